/*
 * Byte queues and the pool their memory comes from.
 *
 * A buffer holds no memory while it is empty: it takes a block from its worker's pool with the first byte and gives it
 * back with the last, so an idle client costs nothing here, and a warm proxy does not call malloc.
 */
#ifndef HEADGATE_BUFFER_H
#define HEADGATE_BUFFER_H

#include "base/memory.h"

/* Blocks of 1 KiB, 2 KiB, … 8 MiB are recycled; larger ones go straight back to malloc. The largest holds what fifty
 * clients with sixteen requests of 16 KiB each leave behind on one lane. */
#define BUFFER_CLASS_SMALLEST ((size_t)1024)
#define BUFFER_CLASSES 14

struct buffer_block {
    struct buffer_block *next;
};

struct buffer_class {
    struct buffer_block *free;
    size_t count;     /* blocks in free */
    size_t low_water; /* the fewest that were free since the last trim: those nobody needed */
};

/* One for each worker; used by its thread only. */
struct buffer_pool {
    struct buffer_class classes[BUFFER_CLASSES];
    size_t bytes_lent;     /* capacity of all blocks in use, and what buffer_pool_count() has said */
    size_t bytes_kept;     /* capacity of all free blocks */
    struct memory *memory; /* where both are counted together; NULL: nowhere */
    uint64_t told;         /* … of it so far */
};

/* Bytes start … end - 1 of data are the queue's content. data is NULL while there is no block. */
struct buffer {
    char *data;
    size_t capacity;
    size_t start;
    size_t end;
};

static inline size_t buffer_length(const struct buffer *buffer)
{
    return buffer->end - buffer->start;
}

/* The first byte of the content; NULL for an empty buffer. */
static inline const char *buffer_head(const struct buffer *buffer)
{
    return buffer->data != NULL ? buffer->data + buffer->start : NULL;
}

/* Room for at least size more bytes behind the content; NULL when memory is short (nothing is lost then). The content
 * may move: pointers into it are void afterwards. */
char *buffer_reserve(struct buffer_pool *pool, struct buffer *buffer, size_t size);

/* Bytes that can be written behind the content without reserving. */
static inline size_t buffer_room(const struct buffer *buffer)
{
    return buffer->capacity - buffer->end;
}

/* Counts size bytes, written to what buffer_reserve() gave, as content. */
static inline void buffer_commit(struct buffer *buffer, size_t size)
{
    buffer->end += size;
}

/* Appends a copy; false when memory is short. */
bool buffer_append(struct buffer_pool *pool, struct buffer *buffer, const char *data, size_t size);

/* Drops size bytes (at most the length) from the front; gives the block back when none is left. */
void buffer_consume(struct buffer_pool *pool, struct buffer *buffer, size_t size);

/* Drops what is behind the first length bytes. */
static inline void buffer_truncate(struct buffer *buffer, size_t length)
{
    buffer->end = buffer->start + length;
}

/* Gives back the block of a buffer that has one. */
void buffer_release(struct buffer_pool *pool, struct buffer *buffer);

/* Drops everything. */
static inline void buffer_clear(struct buffer_pool *pool, struct buffer *buffer)
{
    if (buffer->data != NULL) {
        buffer_release(pool, buffer);
    }
}

/* So many bytes are held elsewhere for the same purpose; buffer_pool_uncount(): no more. */
static inline void buffer_pool_count(struct buffer_pool *pool, size_t size)
{
    pool->bytes_lent += size;
}
static inline void buffer_pool_uncount(struct buffer_pool *pool, size_t size)
{
    pool->bytes_lent -= size;
}

/* Tells the account what the pool has by now. Done by the pool itself when a block is taken or given back; to be called
 * now and then for what is held elsewhere. */
void buffer_pool_tell(struct buffer_pool *pool);
/* Gives back to malloc half of what nobody needed since the last call. True if anything was given back. */
bool buffer_pool_trim(struct buffer_pool *pool);
/* Gives back to malloc all that nobody needs. */
void buffer_pool_empty(struct buffer_pool *pool);
/* The same; nothing may be in use. */
void buffer_pool_free(struct buffer_pool *pool);

#endif
