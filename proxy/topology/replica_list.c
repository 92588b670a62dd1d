#include "topology/replica_list.h"

#include <stdlib.h>

struct replica_list *replica_list_new(void)
{
    struct replica_list *list = calloc(1, sizeof *list);

    if (list != NULL) {
        atomic_init(&list->references, 1);
    }
    return list;
}

struct replica_list *replica_list_reference(struct replica_list *list)
{
    atomic_fetch_add(&list->references, 1);
    return list;
}

void replica_list_release(struct replica_list *list)
{
    if (list == NULL || atomic_fetch_sub(&list->references, 1) > 1) {
        return;
    }
    for (size_t i = 0; i < list->count; i++) {
        replica_tally_release(list->entries[i].tally);
    }
    free(list);
}

struct replica_tally *replica_tally_new(void)
{
    struct replica_tally *tally = calloc(1, sizeof *tally);

    if (tally != NULL) {
        atomic_init(&tally->references, 1);
    }
    return tally;
}

struct replica_tally *replica_tally_reference(struct replica_tally *tally)
{
    atomic_fetch_add(&tally->references, 1);
    return tally;
}

void replica_tally_release(struct replica_tally *tally)
{
    if (tally != NULL && atomic_fetch_sub(&tally->references, 1) == 1) {
        free(tally);
    }
}
