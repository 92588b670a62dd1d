#include "client/spans.h"

#include <stdlib.h>

/* ---- the pool ---- */

struct spans *spans_new(void)
{
    struct spans *spans = malloc(sizeof *spans);

    if (spans != NULL) {
        spans->slot_used = 0;
        spans->more = (struct buffer){0};
        STAILQ_INIT(&spans->unwritten);
    }
    return spans;
}

void spans_pool_trim(struct spans_pool *pool, size_t keep)
{
    while (pool->count > keep) {
        struct spans *spans = pool->free;
        pool->free = spans->next;
        pool->count--;
        free(spans);
    }
}

/* ---- the queue ---- */

struct span *spans_last(struct spans *spans)
{
    if (buffer_length(&spans->more) > 0) {
        return (struct span *)(void *)(spans->more.data + spans->more.end - spans->last_size);
    }
    return spans->slot_used > 0 ? (struct span *)(void *)spans->slot : NULL;
}

struct span *spans_append_behind(struct spans *spans, struct buffer_pool *buffers, size_t size)
{
    void *room = buffer_reserve(buffers, &spans->more, size);

    if (room != NULL) {
        buffer_commit(&spans->more, size);
        spans->last_size = (uint32_t)size;
    }
    return room;
}

static bool append_bytes(struct spans *spans, struct buffer_pool *buffers, const char *bytes, size_t length)
{
    return length == 0 || buffer_append(buffers, &spans->more, bytes, length);
}

bool spans_join(struct spans *spans, struct buffer_pool *buffers, struct spans *others)
{
    bool is_of_slot = buffer_length(&others->more) == 0;
    bool joined = append_bytes(spans, buffers, others->slot, others->slot_used) &&
                  append_bytes(spans, buffers, buffer_head(&others->more), buffer_length(&others->more));

    if (spans_first(others) != NULL) {
        spans->last_size = is_of_slot ? others->slot_used : others->last_size;
    }
    others->slot_used = 0;
    buffer_clear(buffers, &others->more);
    return joined;
}
