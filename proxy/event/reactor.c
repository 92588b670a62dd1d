#include "event/reactor.h"

#include "base/splice.h"
#include "event/handshaker.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

/* How long a doze is at most; the kernel may take twice that. */
#define DOZE_NS 100000

static struct event_base *base_new(void)
{
    struct event_config *config = event_config_new();

    if (config == NULL) {
        return NULL;
    }
    /* Everything on a base belongs to one thread; other threads reach it by a pipe of its own. */
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    /* Not EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST: it tells the kernel of a closed descriptor only later, when the number
     * may already be another worker's socket. */
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

bool reactor_init(struct reactor *reactor, struct stats *stats)
{
    *reactor = (struct reactor){.stats = stats, .wakers = epoll_create1(EPOLL_CLOEXEC)};
    for (size_t stage = 0; stage < REACTOR_QUEUES; stage++) {
        STAILQ_INIT(&reactor->tasks[stage]);
    }
    reactor->base = base_new();
    reactor->scratch = malloc(REACTOR_SCRATCH_SIZE);
    (void)splice_open(&reactor->splice);
    if (reactor->base == NULL || reactor->scratch == NULL || reactor->wakers < 0) {
        reactor_free(reactor);
        return false;
    }
    return true;
}

void reactor_free(struct reactor *reactor)
{
    handshaker_free(reactor->handshakers[false]);
    handshaker_free(reactor->handshakers[true]);
    if (reactor->base != NULL) {
        event_base_free(reactor->base);
    }
    free(reactor->scratch);
    tls_wire_free(reactor->wire);
    splice_close(&reactor->splice);
    buffer_pool_free(&reactor->buffers);
    close(reactor->wakers);
    *reactor = (struct reactor){.wakers = -1, .splice = {-1, -1}};
}

void reactor_cancel(struct reactor *reactor, enum reactor_stage stage, struct reactor_task *task)
{
    if (task->queued) {
        STAILQ_REMOVE(&reactor->tasks[stage], task, reactor_task, next);
        task->queued = false;
    }
}

static void run_first(struct reactor *reactor, enum reactor_stage stage)
{
    struct reactor_task *task = STAILQ_FIRST(&reactor->tasks[stage]);

    STAILQ_REMOVE_HEAD(&reactor->tasks[stage], next);
    task->queued = false;
    task->run(task);
}

bool reactor_settle_stage(struct reactor *reactor, enum reactor_stage stage)
{
    bool worked = false;

    while (!STAILQ_EMPTY(&reactor->tasks[stage])) {
        run_first(reactor, stage);
        worked = true;
    }
    return worked;
}

void reactor_settle(struct reactor *reactor)
{
    enum reactor_stage stage = REACTOR_STAGE_REQUESTS;

    while (stage < REACTOR_STAGES) {
        stage = reactor_settle_stage(reactor, stage) ? REACTOR_STAGE_REQUESTS : stage + 1;
    }
}

/* Whether callbacks have queued nothing. */
static bool has_no_tasks(const struct reactor *reactor)
{
    for (size_t stage = 0; stage < REACTOR_STAGES; stage++) {
        if (!STAILQ_EMPTY(&reactor->tasks[stage])) {
            return false;
        }
    }
    return true;
}

/* Each that is there now; they may queue themselves again. */
static void run_late(struct reactor *reactor)
{
    const struct reactor_task *late;
    size_t count = 0;

    STAILQ_FOREACH(late, &reactor->tasks[REACTOR_STAGE_LATE], next)
    {
        count++;
    }
    for (; count > 0 && !STAILQ_EMPTY(&reactor->tasks[REACTOR_STAGE_LATE]); count--) {
        run_first(reactor, REACTOR_STAGE_LATE);
    }
}

/* Timers are no worse for it: libevent's are exact to the millisecond. */
static void doze(struct reactor *reactor)
{
    struct epoll_event event;

    int ended = epoll_pwait2(reactor->wakers, &event, 1, &(struct timespec){.tv_nsec = DOZE_NS}, NULL);
    stats_add(reactor->stats, STATS_DOZES, ended >= 0);
}

bool reactor_turn(struct reactor *reactor)
{
    bool waits = STAILQ_EMPTY(&reactor->tasks[REACTOR_STAGE_LATE]);
    bool dozes = !STAILQ_EMPTY(&reactor->tasks[REACTOR_STAGE_HELD]);

    if (waits && dozes && event_base_get_num_events(reactor->base, EVENT_BASE_COUNT_ACTIVE) == 0) {
        doze(reactor);
    }
    waits = waits && !dozes;
    reactor->now_us = 0;
    reactor->handshakes = 0;
    reactor_settle_stage(reactor, REACTOR_STAGE_HELD);
    assert(!waits || STAILQ_EMPTY(&reactor->tasks[REACTOR_STAGE_HELD]));
    if (event_base_loop(reactor->base, waits ? EVLOOP_ONCE : EVLOOP_ONCE | EVLOOP_NONBLOCK) < 0) {
        return false;
    }
    reactor->is_idle = !waits && has_no_tasks(reactor);
    reactor_settle(reactor);
    if (!STAILQ_EMPTY(&reactor->tasks[REACTOR_STAGE_LATE])) {
        run_late(reactor);
        reactor_settle(reactor);
    }
    stats_add(reactor->stats, STATS_TURNS, 1);
    return true;
}
