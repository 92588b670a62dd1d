/*
 * The workers of the process as they reach each other: whoever finds out what all must know has it posted to each. Who
 * has ended is not reached any more.
 */
#ifndef HEADGATE_WORKGROUP_H
#define HEADGATE_WORKGROUP_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct workgroup {
    pthread_mutex_t lock;
    void **members;
    size_t count;
};

/* Room for so many members. False when memory is short. */
bool workgroup_open(struct workgroup *group, size_t most);
/* All have left. */
void workgroup_close(struct workgroup *group);

/* From any thread. When workgroup_leave() returns, nobody is visiting the member, nor will. */
void workgroup_join(struct workgroup *group, void *member);
void workgroup_leave(struct workgroup *group, void *member);
/* Calls visit for each member. It must not take long, nor join or leave. */
void workgroup_visit(struct workgroup *group, void (*visit)(void *member, void *context), void *context);

#endif
