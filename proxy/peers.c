#include "peers.h"

#include <assert.h>
#include <stdlib.h>

bool peers_open(struct peers *peers, size_t most)
{
    *peers = (struct peers){.members = calloc(most, sizeof *peers->members)};
    if (peers->members == NULL) {
        return false;
    }
    pthread_mutex_init(&peers->lock, NULL);
    return true;
}

void peers_close(struct peers *peers)
{
    assert(peers->count == 0);
    pthread_mutex_destroy(&peers->lock);
    free(peers->members);
    peers->members = NULL;
}

void peers_join(struct peers *peers, void *member)
{
    pthread_mutex_lock(&peers->lock);
    peers->members[peers->count++] = member;
    pthread_mutex_unlock(&peers->lock);
}

void peers_leave(struct peers *peers, void *member)
{
    size_t place = 0;

    pthread_mutex_lock(&peers->lock);
    while (place < peers->count && peers->members[place] != member) {
        place++;
    }
    if (place < peers->count) {
        peers->members[place] = peers->members[--peers->count];
    }
    pthread_mutex_unlock(&peers->lock);
}

void peers_visit(struct peers *peers, void (*visit)(void *member, void *context), void *context)
{
    pthread_mutex_lock(&peers->lock);
    for (size_t i = 0; i < peers->count; i++) {
        visit(peers->members[i], context);
    }
    pthread_mutex_unlock(&peers->lock);
}
