/*
 * The workers of the process as they reach each other: whoever finds out what all must know has it posted to each. Who
 * has ended is not reached any more.
 */
#ifndef HEADGATE_PEERS_H
#define HEADGATE_PEERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct peers {
    pthread_mutex_t lock;
    void **members;
    size_t count;
};

/* Room for so many members. False when memory is short. */
bool peers_open(struct peers *peers, size_t most);
/* All have left. */
void peers_close(struct peers *peers);

/* From any thread. When peers_leave() returns, nobody is visiting the member, nor will. */
void peers_join(struct peers *peers, void *member);
void peers_leave(struct peers *peers, void *member);
/* Calls visit for each member. It must not take long, nor join or leave. */
void peers_visit(struct peers *peers, void (*visit)(void *member, void *context), void *context);

#endif
