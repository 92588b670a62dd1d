#include "crosstalk_loop.h"

#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define TICK_US 1000

static void loop_tick(struct loop *loop, int64_t now)
{
    const struct options *options = &loop->run->options;
    for (uint32_t index = loop->number; index < options->clients; index += options->loops)
        client_tick(&loop->run->clients[index], now);
}

static void *loop_run(void *context)
{
    struct loop *loop = context;
    struct epoll_event events[EVENTS_MAX];
    int64_t next_tick = 0;
    while (run_phase(loop->run) != PHASE_STOP) {
        int count = epoll_wait(loop->epoll, events, EVENTS_MAX, 1);
        for (int at = 0; at < count; at++)
            client_event(events[at].data.ptr, events[at].events);
        int64_t now = now_us();
        if (now < next_tick)
            continue;
        next_tick = now + TICK_US;
        loop_tick(loop, now);
    }
    return NULL;
}

bool loop_start(struct loop *loop, struct run *run, unsigned number)
{
    *loop = (struct loop){.run = run, .number = number, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    if (loop->epoll < 0)
        return false;
    for (uint32_t index = number; index < run->options.clients; index += run->options.loops)
        client_init(&run->clients[index], run, &loop->figures, loop->epoll, index);
    if (pthread_create(&loop->thread, NULL, loop_run, loop) == 0)
        return true;
    close(loop->epoll);
    return false;
}

void loop_join(struct loop *loop)
{
    pthread_join(loop->thread, NULL);
    close(loop->epoll);
}
