/*
 * What a worker lends to everything that lives on it: the event base, the time of this loop iteration, scratch memory,
 * the buffer pool, the counters, and the queues of what is to be done at the end of the loop iteration.
 *
 * A turn is one round of the event loop: clients that became ready are read and dealt with; then, in the order of enum
 * reactor_stage, each lane and each client that has something to send is written once.
 */
#ifndef HEADGATE_REACTOR_H
#define HEADGATE_REACTOR_H

#include "base/buffer.h"
#include "base/clock.h"
#include "base/splice.h"
#include "base/stats.h"
#include "tls/tls_wire.h"

#include <event2/event.h>
#include <sys/epoll.h>
#include <sys/queue.h>

/* Scratch memory for one read; its content is void when the callback that filled it returns. */
#define REACTOR_SCRATCH_SIZE ((size_t)256 * 1024)

/* In this order: Redis gets its requests first, so that it works while the replies of before are handed out. */
enum reactor_stage {
    REACTOR_STAGE_REQUESTS, /* write to lanes */
    REACTOR_STAGE_REPLIES,  /* read from lanes, and write what was read to clients */
    REACTOR_STAGE_CLIENTS,  /* write what else there is for clients */
    REACTOR_STAGE_FREE,     /* free what was closed */
    REACTOR_STAGES,
    /* What can be put off. It is not settled with the others, but run once behind them; what queues itself again then
     * is run in the next turn, which does not wait for events. */
    REACTOR_STAGE_LATE = REACTOR_STAGES,
    /* It begins the next turn, behind a doze: the turn waits for what ends that alone, and for a moment only. */
    REACTOR_STAGE_HELD,
    REACTOR_QUEUES
};

/* Something to do at the end of the loop iteration; embedded in what it is about. */
struct reactor_task {
    STAILQ_ENTRY(reactor_task) next;
    void (*run)(struct reactor_task *task);
    bool queued;
};

struct handshaker;

struct reactor {
    struct event_base *base;
    struct buffer_pool buffers;
    struct stats *stats;
    struct splice splice;  /* empty whenever no callback is at work with it */
    char *scratch;         /* REACTOR_SCRATCH_SIZE bytes */
    struct tls_wire *wire; /* NULL: no connection here has spoken TLS yet */
    /* The same; what does the handshakes of clients ([true]), which give way, and those with servers. */
    struct handshaker *handshakers[2];
    uint32_t handshakes; /* steps of handshakes in this loop iteration, of such a thread */
    int64_t now_us;      /* monotonic; 0: not yet asked for in this loop iteration */
    bool measures;       /* requests are measured: replies are told the time exactly */
    int wakers;          /* an epoll descriptor of what ends a doze */
    STAILQ_HEAD(, reactor_task) tasks[REACTOR_QUEUES]; /* in the order in which they were queued */
    bool is_idle; /* a turn that did not wait has found nothing to do but what is late */
};

/* Monotonic time in µs, read once a loop iteration. */
static inline int64_t reactor_now(struct reactor *reactor)
{
    if (reactor->now_us == 0) {
        reactor->now_us = clock_now_us();
    }
    return reactor->now_us;
}

/* The time of a reply that was read just now: exactly, where requests are measured. */
static inline int64_t reactor_read_time(struct reactor *reactor)
{
    return reactor->measures ? clock_now_us() : reactor_now(reactor);
}

/* False when libevent or memory refuses. stats must outlive the reactor. */
bool reactor_init(struct reactor *reactor, struct stats *stats);
void reactor_free(struct reactor *reactor);

/* Queues the task for the end of this loop iteration; does nothing if it is queued already. First in, first out:
 * requests that clients sent one after the other reach Redis in that order, whatever lanes they take; not if held. */
static inline void reactor_at_turn_end(struct reactor *reactor, enum reactor_stage stage, struct reactor_task *task)
{
    if (!task->queued) {
        task->queued = true;
        STAILQ_INSERT_TAIL(&reactor->tasks[stage], task, next);
    }
}

/* What comes on that descriptor from now on ends a doze, until it is closed. False when the system refuses. */
static inline bool reactor_wakes_by(struct reactor *reactor, int fd)
{
    return epoll_ctl(reactor->wakers, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN | EPOLLET}) == 0;
}

/* Takes a task out of its queue, for what is about to be freed. */
void reactor_cancel(struct reactor *reactor, enum reactor_stage stage, struct reactor_task *task);

/* One turn: waits for events, runs their callbacks, then the tasks. False when the loop cannot go on. */
bool reactor_turn(struct reactor *reactor);

/* Runs the queued tasks of one stage until none is left; true if there were any. */
bool reactor_settle_stage(struct reactor *reactor, enum reactor_stage stage);
/* The same for all stages in their order, starting over whenever one had something to do. */
void reactor_settle(struct reactor *reactor);

#endif
