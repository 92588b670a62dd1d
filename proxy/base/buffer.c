#include "base/buffer.h"

#include "base/recycle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t class_capacity(size_t index)
{
    return BUFFER_CLASS_SMALLEST << index;
}

/* The smallest class that holds size bytes; BUFFER_CLASSES if none does. */
static size_t class_of(size_t size)
{
    size_t index = 0;

    while (index < BUFFER_CLASSES && class_capacity(index) < size) {
        index++;
    }
    return index;
}

void buffer_pool_tell(struct buffer_pool *pool)
{
    uint64_t now = pool->bytes_lent + pool->bytes_kept;

    if (pool->memory != NULL && (now > pool->told + MEMORY_STEP || now + MEMORY_STEP < pool->told)) {
        /* Modulo 2^64 it may be less, too. */
        atomic_fetch_add_explicit(&pool->memory->used, now - pool->told, memory_order_relaxed);
        pool->told = now;
    }
}

static char *block_take(struct buffer_pool *pool, size_t size, size_t *capacity)
{
    size_t index = class_of(size);
    char *data;

    if (index == BUFFER_CLASSES) {
        *capacity = size;
        data = malloc(size);
    } else {
        struct buffer_class *class = &pool->classes[index];
        struct buffer_block *block = class->free;

        *capacity = class_capacity(index);
        if (block != NULL) {
            class->free = block->next;
            class->count--;
            if (class->count < class->low_water) {
                class->low_water = class->count;
            }
            pool->bytes_kept -= *capacity;
            data = (char *)block;
            recycle_show(data, *capacity);
        } else {
            data = malloc(*capacity);
        }
    }
    if (data != NULL) {
        pool->bytes_lent += *capacity;
        buffer_pool_tell(pool);
    }
    return data;
}

static void block_give(struct buffer_pool *pool, char *data, size_t capacity)
{
    size_t index = class_of(capacity);

    pool->bytes_lent -= capacity;
    if (index == BUFFER_CLASSES || memory_is_over(pool->memory)) {
        free(data);
        buffer_pool_tell(pool);
        return;
    }
    struct buffer_class *class = &pool->classes[index];
    struct buffer_block *block = (struct buffer_block *)(void *)data;

    block->next = class->free;
    class->free = block;
    class->count++;
    pool->bytes_kept += capacity;
    recycle_hide(block + 1, capacity - sizeof *block);
}

/* Doubles, so that a queue that grows byte by byte is copied a constant number of times. */
static bool buffer_grow(struct buffer_pool *pool, struct buffer *buffer, size_t needed)
{
    size_t length = buffer_length(buffer);
    size_t capacity = buffer->capacity * 2 > needed ? buffer->capacity * 2 : needed;

    if (buffer->data != NULL && class_of(buffer->capacity) == BUFFER_CLASSES) {
        /* Large blocks are malloc's own, which can often extend them without copying. */
        memmove(buffer->data, buffer_head(buffer), length);
        buffer->start = 0;
        buffer->end = length;
        char *data = realloc(buffer->data, capacity);
        if (data == NULL) {
            return false;
        }
        pool->bytes_lent += capacity - buffer->capacity;
        buffer_pool_tell(pool);
        buffer->data = data;
        buffer->capacity = capacity;
        return true;
    }
    size_t taken;
    char *data = block_take(pool, capacity, &taken);
    if (data == NULL) {
        return false;
    }
    if (buffer->data != NULL) {
        memcpy(data, buffer_head(buffer), length);
        block_give(pool, buffer->data, buffer->capacity);
    }
    *buffer = (struct buffer){.data = data, .capacity = taken, .start = 0, .end = length};
    return true;
}

char *buffer_reserve(struct buffer_pool *pool, struct buffer *buffer, size_t size)
{
    size_t length = buffer_length(buffer);

    if (buffer_room(buffer) >= size && buffer->data != NULL) {
        return buffer->data + buffer->end;
    }
    if (buffer->data != NULL && buffer->capacity - length >= size && buffer->start >= buffer->capacity / 2) {
        memmove(buffer->data, buffer_head(buffer), length);
        buffer->start = 0;
        buffer->end = length;
    } else if (!buffer_grow(pool, buffer, length + size)) {
        return NULL;
    }
    return buffer->data + buffer->end;
}

bool buffer_append(struct buffer_pool *pool, struct buffer *buffer, const char *data, size_t size)
{
    if (size == 0) {
        return true;
    }
    char *room = buffer_reserve(pool, buffer, size);
    if (room == NULL) {
        return false;
    }
    memcpy(room, data, size);
    buffer_commit(buffer, size);
    return true;
}

void buffer_consume(struct buffer_pool *pool, struct buffer *buffer, size_t size)
{
    assert(size <= buffer_length(buffer));
    buffer->start += size;
    if (buffer->start == buffer->end) {
        buffer_clear(pool, buffer);
    }
}

void buffer_release(struct buffer_pool *pool, struct buffer *buffer)
{
    block_give(pool, buffer->data, buffer->capacity);
    *buffer = (struct buffer){0};
}

static void class_drop(struct buffer_pool *pool, size_t index, size_t count)
{
    struct buffer_class *class = &pool->classes[index];

    for (; count > 0 && class->free != NULL; count--) {
        struct buffer_block *block = class->free;
        class->free = block->next;
        class->count--;
        pool->bytes_kept -= class_capacity(index);
        free(block);
    }
}

bool buffer_pool_trim(struct buffer_pool *pool)
{
    bool dropped = false;

    for (size_t index = 0; index < BUFFER_CLASSES; index++) {
        struct buffer_class *class = &pool->classes[index];
        if (class->low_water > 0) {
            class_drop(pool, index, (class->low_water + 1) / 2);
            dropped = true;
        }
        class->low_water = class->count;
    }
    buffer_pool_tell(pool);
    return dropped;
}

void buffer_pool_empty(struct buffer_pool *pool)
{
    for (size_t index = 0; index < BUFFER_CLASSES; index++) {
        class_drop(pool, index, SIZE_MAX);
    }
    buffer_pool_tell(pool);
}

void buffer_pool_free(struct buffer_pool *pool)
{
    buffer_pool_empty(pool);
    if (pool->memory != NULL) {
        atomic_fetch_sub_explicit(&pool->memory->used, pool->told, memory_order_relaxed);
        pool->told = 0;
    }
}
