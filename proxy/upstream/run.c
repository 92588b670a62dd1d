#include "upstream/run.h"

#include "base/recycle.h"

#include <assert.h>
#include <stdlib.h>

struct run *run_take(struct run_pool *pool)
{
    struct run *run = pool->free;

    if (run == NULL) {
        return calloc(1, sizeof *run);
    }
    pool->free = run->lane_next;
    pool->count--;
    recycle_show(run, sizeof *run);
    run->lane_next = NULL;
    return run;
}

void run_give(struct run_pool *pool, struct run *run)
{
    assert(run->text.data == NULL && run->spans == NULL);
    *run = (struct run){0};
    run->lane_next = pool->free;
    pool->free = run;
    pool->count++;
    /* All but the link, which comes first. */
    recycle_hide((char *)run + sizeof run->lane_next, sizeof *run - sizeof run->lane_next);
}

void run_pool_trim(struct run_pool *pool, size_t keep)
{
    while (pool->count > keep) {
        struct run *run = pool->free;
        pool->free = run->lane_next;
        pool->count--;
        free(run);
    }
}
