/*
 * A world: processes that share one clock and one processor, both of which are ours (README.md says how it works).
 *
 * All of its processes map this structure. Exactly one thread of the world runs at any moment: it has the baton. Only
 * the thread that has it writes here, but for what is named; so there are no locks.
 */
#ifndef HEADGATE_WORLD_H
#define HEADGATE_WORLD_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORLD_THREADS 1024 /* a power of two */
#define WORLD_PROCESSES 512
#define WORLD_STEPS (1U << 18)
#define NEVER INT64_MAX
#define SECOND INT64_C(1000000000)

/* Descriptors that all processes inherit. */
enum {
    READY_FD = 1020, /* an epoll instance, which says whose descriptors are ready */
    PROBE_FD = 1021, /* a UDP socket that is connected to itself */
    WORLD_FD = 1022  /* the memory of this structure */
};

/* What READY_FD knows of a descriptor: whose it is, of which epoll instance. */
#define TICKET(thread, generation, watched)                                                                            \
    ((uint64_t)(generation) << 32 | (uint64_t)(watched) << 10 | (uint64_t)(thread))
#define WATCHES_ALL 0x3fffff

/* What a thread without the baton waits for, beside its deadline. */
enum wait {
    WAIT_TURN,   /* nothing: it could go on at any time */
    WAIT_READY,  /* a descriptor is ready, as READY_FD says */
    WAIT_WOKEN,  /* another thread of its process wakes it: a condition variable, a semaphore */
    WAIT_TIME,   /* its deadline alone */
    WAIT_CHANGE, /* what only itself can see: it looks whenever others have done anything */
    WAIT_NAMES   /* how many there are */
};

struct thread {
    uint32_t go; /* the futex that it sleeps on: 1 gives it the baton */
    uint32_t generation;
    bool used, is_main, is_woken, is_drawn;
    enum wait wait;
    int process, tid;
    uint64_t handle;    /* pthread_t */
    uint64_t address;   /* of what wakes it: WAIT_WOKEN */
    uint64_t last_turn; /* in which it had the baton */
    uint64_t tried;     /* what others had done when it looked last: WAIT_CHANGE */
    int watched;        /* the epoll instance that it waits at; WATCHES_ALL: all that it has registered */
    uint64_t seen;      /* the look in which READY_FD said that it may go on */
    int64_t deadline;   /* ns, of the world's clock */
    int64_t late_until; /* it could go on, but is late */
    int64_t cpu_ns;
};

#define SIGNAL_BIT(number) (UINT64_C(1) << ((number)-1))

struct process {
    int pid;    /* -1: not known yet */
    int parent; /* a process of this world, if it has not ended; -1: none */
    bool used, is_paused, is_root;
    uint64_t pending, handled, ignored; /* signals, by bits */
    uint64_t random;
    int64_t skew_ns;                  /* its calendar is ahead of the world's by so much */
    int64_t alarm_ns, alarm_interval; /* setitimer(); 0: none */
    int64_t late_us,
        late_permille;  /* of a thousand times that a thread of it could go on, so many find it late by up to that */
    uint64_t last_turn; /* it is killed before that turn; 0: it is not */
    char name[32];
};

struct step {
    int64_t now;
    int thread, wait;
};

struct world {
    int64_t now;     /* ns since the world began */
    int64_t epoch;   /* what CLOCK_REALTIME was then */
    int64_t look_ns; /* what each look at a clock takes: who waits by looking comes to an end */
    int64_t turn_ns; /* what each turn takes: who is busy does no more in a second than it could */
    uint64_t seed, random;
    uint64_t turn;     /* how often the baton was given */
    uint64_t progress; /* how often somebody has gone on */
    uint64_t looks;    /* at READY_FD */
    uint64_t ports;    /* that were given out */
    uint64_t order;    /* a hash of whose turns came when */
    uint64_t kills;
    int64_t late_us, late_permille; /* of processes that begin … */
    char late_names[128];           /* … and are called so; empty: of all */
    int64_t yield_permille;         /* of a thousand mutexes and writes, before so many others get a turn */
    int baton;                      /* the thread that has it; -1: none */
    int dying;     /* a process that is about to end: who gets the baton waits for that first; 0: none */
    bool is_dirty; /* something was sent since the last probe */
    bool is_stuck; /* nobody can ever go on */
    int thread_count, process_count; /* beyond the highest in use */
    uint64_t process_serial;         /* how many there have been */
    struct thread threads[WORLD_THREADS];
    struct process processes[WORLD_PROCESSES];
    struct step steps[WORLD_STEPS]; /* the last ones */
};

/* The kernel's answer, past all that the preload does. errno is set as by syscall(). */
typedef long kernel_call(long number, ...);
extern kernel_call *kernel;

/* A number from a seed, which it changes. */
uint64_t world_draw(uint64_t *state);
/* True in so many of a thousand. */
bool world_chance(struct world *world, int64_t permille);

/* A new process, a new thread of one. -1: there are too many. */
int world_take_process(struct world *world, int pid);
int world_take_thread(struct world *world, int process);
void world_free_thread(struct thread *thread);
/* All of the process, but one (-1: none). */
void world_free_threads(struct world *world, int process, int but);
/* -1: it is not of this world. */
int world_process_of(const struct world *world, int pid);
/* It is dead, or is as soon as the kernel has done so: waits for that in real time, and forgets it. */
void world_bury(struct world *world, int pid);

/* The thread that goes on next. Puts the clock forward if nobody can go on now. -1: nobody ever can. self: the process
 * of the caller, which ends itself if its time has come; -1: none. */
int world_pick(struct world *world, int self);
void world_give_baton(struct world *world, int thread);
/* The caller is of that process, which ends: another thread waits for that, and picks who goes on. */
void world_hand_over(struct world *world, int process);
/* A table of all threads, to standard error. */
void world_show(const struct world *world);

#endif
