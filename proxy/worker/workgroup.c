#include "worker/workgroup.h"

#include <assert.h>
#include <stdlib.h>

bool workgroup_open(struct workgroup *group, size_t most)
{
    *group = (struct workgroup){.members = calloc(most, sizeof *group->members)};
    if (group->members == NULL) {
        return false;
    }
    pthread_mutex_init(&group->lock, NULL);
    return true;
}

void workgroup_close(struct workgroup *group)
{
    assert(group->count == 0);
    pthread_mutex_destroy(&group->lock);
    free(group->members);
    group->members = NULL;
}

void workgroup_join(struct workgroup *group, void *member)
{
    pthread_mutex_lock(&group->lock);
    group->members[group->count++] = member;
    pthread_mutex_unlock(&group->lock);
}

void workgroup_leave(struct workgroup *group, void *member)
{
    size_t place = 0;

    pthread_mutex_lock(&group->lock);
    while (place < group->count && group->members[place] != member) {
        place++;
    }
    if (place < group->count) {
        group->members[place] = group->members[--group->count];
    }
    pthread_mutex_unlock(&group->lock);
}

void workgroup_visit(struct workgroup *group, void (*visit)(void *member, void *context), void *context)
{
    pthread_mutex_lock(&group->lock);
    for (size_t i = 0; i < group->count; i++) {
        visit(group->members[i], context);
    }
    pthread_mutex_unlock(&group->lock);
}
