#include "crosstalk_expect.h"

#include <stdlib.h>

static void queue_grow(struct expect_queue *queue)
{
    size_t capacity = queue->capacity > 0 ? queue->capacity * 2 : 64;
    struct expectation *items = calloc(capacity, sizeof *items);
    if (items == NULL)
        abort();
    for (size_t place = 0; place < queue->count; place++)
        items[place] = *expect_at(queue, place);
    free(queue->items);
    queue->items = items;
    queue->capacity = capacity;
    queue->head = 0;
    queue->dropped = 0;
}

void expect_push(struct expect_queue *queue, struct expectation expectation)
{
    if (queue->count == queue->capacity)
        queue_grow(queue);
    queue->items[(queue->head + queue->count) & (queue->capacity - 1)] = expectation;
    queue->count++;
}

const struct expectation *expect_at(const struct expect_queue *queue, size_t place)
{
    if (place >= queue->count)
        return NULL;
    return &queue->items[(queue->head + place) & (queue->capacity - 1)];
}

const struct expectation *expect_dropped(const struct expect_queue *queue, size_t place)
{
    if (place >= queue->dropped || place >= queue->capacity - queue->count)
        return NULL;
    return &queue->items[(queue->head - 1 - place) & (queue->capacity - 1)];
}

void expect_pop(struct expect_queue *queue)
{
    const struct expectation *head = expect_at(queue, 0);
    if (head == NULL)
        return;
    size_t taken = head->kind == EXPECT_ARRAY ? 1 + (size_t)head->count : 1;
    queue->head = (queue->head + taken) & (queue->capacity - 1);
    queue->count -= taken;
    queue->dropped += taken;
}

void expect_clear(struct expect_queue *queue)
{
    queue->head = 0;
    queue->count = 0;
    queue->dropped = 0;
}

void expect_free(struct expect_queue *queue)
{
    free(queue->items);
    *queue = (struct expect_queue){0};
}
