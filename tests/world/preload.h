/*
 * What the parts of the preloaded library share. It takes a process, as it is, into a world: whatever could wait gives
 * the baton away instead, and what reads a clock or asks for randomness is answered by the world.
 *
 *   threads.c      threads and processes come, go, wait for each other, and signal each other; the constructor
 *   clocks.c       clocks, sleeping, randomness
 *   descriptors.c  waiting for descriptors, and calls that may block
 */
#ifndef HEADGATE_WORLD_PRELOAD_H
#define HEADGATE_WORLD_PRELOAD_H

#include "world.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
/* The function of that name that is called where nothing is preloaded. */
#define REAL(name)                                                                                                     \
    ({                                                                                                                 \
        static __typeof__(&name) real;                                                                                 \
        real != NULL ? real : (real = (__typeof__(&name))dlsym(RTLD_NEXT, #name));                                     \
    })

/* NULL outside of any world. */
extern struct world *world;
/* The calling thread's number; -1: it is of no world. */
extern __thread int self __attribute__((tls_model("initial-exec")));

static inline bool is_inside(void)
{
    return self >= 0;
}

static inline struct thread *own(void)
{
    return &world->threads[self];
}

static inline struct process *own_process(void)
{
    return &world->processes[own()->process];
}

/* Gives the baton away until what it waits for has come, or the deadline. True: a signal's handler has run. */
bool give_way(enum wait wait, int64_t deadline);
/* Waits for what only a look can tell, as long as the condition does not hold. False: the deadline has come first. */
#define AWAIT(condition, until)                                                                                        \
    ({                                                                                                                 \
        bool is_done;                                                                                                  \
        while (!(is_done = (condition)) && world->now < (until)) {                                                     \
            own()->tried = world->progress;                                                                            \
            (void)give_way(WAIT_CHANGE, until);                                                                        \
        }                                                                                                              \
        world->progress++;                                                                                             \
        is_done;                                                                                                       \
    })
/* Others get a turn now and then, where the world is made so. */
void maybe_yield(void);

/* Times of the world. ns from now; NEVER for less than 0. */
int64_t after(int64_t ns);
int64_t ns_of(const struct timespec *time);
/* A time of one of the clocks, as a caller gives it. NULL: NEVER. */
int64_t deadline_of(const struct timespec *absolute);

#endif
