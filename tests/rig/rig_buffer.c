#include "rig_buffer.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_FIRST ((size_t)4096)
#define BUFFER_KEEP ((size_t)256 * 1024)

static void buffer_compact(struct buffer *buffer)
{
    if (buffer->start == 0)
        return;
    memmove(buffer->data, buffer->data + buffer->start, buffer_length(buffer));
    buffer->end -= buffer->start;
    buffer->start = 0;
}

char *buffer_reserve(struct buffer *buffer, size_t length)
{
    if (buffer->capacity - buffer->end < length)
        buffer_compact(buffer);
    if (buffer->capacity - buffer->end < length) {
        size_t capacity = buffer->capacity > 0 ? buffer->capacity : BUFFER_FIRST;
        while (capacity - buffer->end < length)
            capacity *= 2;
        char *data = realloc(buffer->data, capacity);
        if (data == NULL)
            abort();
        buffer->data = data;
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->end;
}

void buffer_commit(struct buffer *buffer, size_t length)
{
    buffer->end += length;
}

void buffer_append(struct buffer *buffer, const void *data, size_t length)
{
    if (length == 0)
        return;
    memcpy(buffer_reserve(buffer, length), data, length);
    buffer_commit(buffer, length);
}

void buffer_consume(struct buffer *buffer, size_t length)
{
    buffer->start += length;
    if (buffer->start < buffer->end)
        return;
    buffer->start = 0;
    buffer->end = 0;
    if (buffer->capacity > BUFFER_KEEP)
        buffer_free(buffer);
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}
