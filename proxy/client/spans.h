/*
 * What is measured of the requests of a run, until their replies are there: a queue of spans. A span is one request, or
 * several of one batch under one tag. The first bytes of each of them lie behind it, if the policy wants such, one
 * behind the other; of requests that share a span these are their whole frames.
 */
#ifndef HEADGATE_SPANS_H
#define HEADGATE_SPANS_H

#include "base/buffer.h"
#include "base/recycle.h"

#include <sys/queue.h>

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client_unwritten;

STAILQ_HEAD(client_unwritten_list, client_unwritten);

struct span {
    int64_t received_us;
    int64_t sent_us;
    uint64_t request_bytes; /* of those in count */
    uint32_t count;         /* requests that no sample told of yet */
    uint32_t tag;
    uint32_t heads_length; /* the bytes behind; in the queue rounded up to a multiple of 8 */
    uint32_t heads_told;   /* how many of them are of requests that samples told of */
    bool is_alone;         /* of a request that is told of by itself */
};

/* The first bytes that are kept of a span's requests. */
static inline char *span_heads(struct span *span)
{
    return (char *)(span + 1);
}

/* What lies in the queue itself, without a block of memory: one ordinary request. */
#define SPANS_SLOT 192

/*
 * First the span in the slot, then those in `more`. The slot is taken when there are no others, so that a run of one
 * request needs no block, which would seldom be in the cache.
 */
struct spans {
    struct spans *next;
    uint32_t slot_used; /* bytes of the slot; 0: its span is not there */
    uint32_t last_size; /* bytes of the last span in `more` */
    struct buffer more;
    struct client_unwritten_list unwritten; /* samples whose replies wait for those of the runs before this one */
    _Alignas(int64_t) char slot[SPANS_SLOT];
};

/* Recycled ones; one pool for each worker. */
struct spans_pool {
    struct spans *free;
    size_t count;
};

/* The next are here for their callers to be compiled with them: each measured request comes through all of them. */

struct spans *spans_new(void);
/* Frees what is more than keep. */
void spans_pool_trim(struct spans_pool *pool, size_t keep);

/* An empty one, or NULL when memory is short. */
static inline struct spans *spans_take(struct spans_pool *pool)
{
    struct spans *spans = pool->free;

    if (spans == NULL) {
        return spans_new();
    }
    pool->free = spans->next;
    pool->count--;
    recycle_show(spans, sizeof *spans);
    return spans;
}

/* Drops what is in it. There must be no samples in it any more. */
static inline void spans_give(struct spans_pool *pool, struct buffer_pool *buffers, struct spans *spans)
{
    assert(STAILQ_EMPTY(&spans->unwritten));
    buffer_clear(buffers, &spans->more);
    spans->slot_used = 0;
    spans->next = pool->free;
    pool->free = spans;
    pool->count++;
    /* All but the link, which comes first. */
    recycle_hide((char *)spans + sizeof spans->next, sizeof *spans - sizeof spans->next);
}

/* NULL: there are none. It is there until something else is done to the queue; so is what the others give. */
static inline struct span *spans_first(struct spans *spans)
{
    if (spans->slot_used > 0) {
        return (struct span *)(void *)spans->slot;
    }
    return buffer_length(&spans->more) > 0 ? (struct span *)(void *)(spans->more.data + spans->more.start) : NULL;
}

struct span *spans_last(struct spans *spans);

/* What a span takes in the queue. */
static inline size_t spans_size_of(size_t heads_length)
{
    return sizeof(struct span) + ((heads_length + 7) & ~(size_t)7);
}

/* Room for the first one of that size in the queue itself; nothing of it is set. NULL: there are others, or it is too
 * large.
 */
static inline struct span *spans_take_slot(struct spans *spans, size_t size)
{
    if (size > sizeof spans->slot || spans_first(spans) != NULL) {
        return NULL;
    }
    spans->slot_used = (uint32_t)size;
    return (struct span *)(void *)spans->slot;
}

/* The same behind the others. NULL when memory is short. */
struct span *spans_append_behind(struct spans *spans, struct buffer_pool *buffers, size_t size);
/* Adds those of another queue, which is empty then. False when memory is short. */
bool spans_join(struct spans *spans, struct buffer_pool *buffers, struct spans *others);

#endif
