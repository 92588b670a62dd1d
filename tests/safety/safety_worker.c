#include "safety_worker.h"

#include "rig_random.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define LATE_US 50000

uint64_t worker_random(struct worker *worker)
{
    return next_random(&worker->random);
}

/* WATCH and MULTI go by connections of their own: EXEC ends every WATCH of its connection. */
static void worker_add_client(struct worker *worker, unsigned number)
{
    struct client *client = &worker->clients[number];
    bool watches = number % 8 == 0;
    bool counts = number % 8 == 1;
    *client = (struct client){.worker = worker, .number = number, .fd = -1};
    client->headgate = (number / 8 + number) % worker->shared->options.headgates;
    client->slots = &worker->slots[worker->slots_used];
    client->slot_count = watches || counts ? 1 : CLIENT_SLOTS;
    for (unsigned at = 0; at < client->slot_count; at++) {
        unsigned place = worker->slots_used++;
        struct hold *hold = &worker->shared->holds[worker->number * SLOTS_PER_WORKER + place];
        hold->state = SLOT_IDLE;
        worker->slots[place] = (struct slot){.home = client,
                                             .hold = hold,
                                             .only = watches  ? KIND_WATCH
                                                     : counts ? KIND_SEMAPHORE
                                                              : KIND_COUNT,
                                             .reuses_token = place % 5 == 0};
    }
}

/* What did not run for a while may have missed that its connection was closed. */
static int64_t worker_note_lateness(struct worker *worker, int64_t last, int64_t now)
{
    if (now - last >= LATE_US) {
        struct trouble *trouble = shared_trouble(worker->shared, TROUBLE_LATE, worker->number, last);
        if (trouble != NULL)
            atomic_store(&trouble->end_us, now);
    }
    return now;
}

/* False when nothing is left to do. */
static bool worker_turn(struct worker *worker, bool load, int64_t now)
{
    bool busy = load;
    for (unsigned number = 0; number < worker->shared->options.clients; number++) {
        struct client *client = &worker->clients[number];
        if (client->link == LINK_DOWN && now >= client->retry_us)
            client_connect(client, now);
        for (unsigned at = 0; at < client->slot_count; at++)
            busy = section_act(&client->slots[at], load, now) || busy;
    }
    for (unsigned number = 0; number < worker->shared->options.clients; number++)
        client_flush(&worker->clients[number], now);
    return busy;
}

static void worker_run(struct worker *worker)
{
    struct epoll_event events[EVENTS_MAX];
    int64_t last = now_us();
    bool busy = true;
    while (busy) {
        int count = epoll_wait(worker->epoll, events, EVENTS_MAX, 1);
        int64_t now = now_us();
        last = worker_note_lateness(worker, last, now);
        for (int at = 0; at < count; at++)
            client_event(events[at].data.ptr, events[at].events, now_us());
        busy = worker_turn(worker, atomic_load(&worker->shared->phase) == PHASE_LOAD, now_us());
    }
}

pid_t worker_start(struct shared *shared, unsigned number, unsigned generation)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL || getppid() != parent)
        _exit(1);
    worker->shared = shared;
    worker->number = number;
    worker->generation = generation;
    worker->epoll = epoll_create1(EPOLL_CLOEXEC);
    worker->random = shared->options.seed + number * UINT64_C(1000003) + generation * UINT64_C(7919);
    for (unsigned client = 0; client < shared->options.clients; client++)
        worker_add_client(worker, client);
    worker_run(worker);
    _exit(0);
}
