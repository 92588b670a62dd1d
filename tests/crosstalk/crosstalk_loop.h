/* A thread that drives its share of the clients with epoll. */
#ifndef CROSSTALK_LOOP_H
#define CROSSTALK_LOOP_H

#include "crosstalk_client.h"

#include <pthread.h>

struct loop {
    struct run *run;
    unsigned number;        /* it owns the clients whose index modulo options.loops is this */
    struct figures figures; /* to be read after loop_join() */
    int epoll;
    pthread_t thread;
};

bool loop_start(struct loop *loop, struct run *run, unsigned number);

/* Waits until the thread has seen PHASE_STOP. The clients' connections stay open. */
void loop_join(struct loop *loop);

#endif
