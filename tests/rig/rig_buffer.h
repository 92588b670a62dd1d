/* A growing range of bytes: appended at the end, consumed from the start. All zeroes is empty. */
#ifndef RIG_BUFFER_H
#define RIG_BUFFER_H

#include <stddef.h>

struct buffer {
    char *data;
    size_t start; /* of what is not consumed yet */
    size_t end;   /* of what was appended */
    size_t capacity;
};

static inline size_t buffer_length(const struct buffer *buffer)
{
    return buffer->end - buffer->start;
}

static inline const char *buffer_head(const struct buffer *buffer)
{
    return buffer->data + buffer->start;
}

/* Room for so many bytes behind the end; valid until the next call. Ends the program when there is no memory. */
char *buffer_reserve(struct buffer *buffer, size_t length);

/* Makes so many of the reserved bytes part of the content. */
void buffer_commit(struct buffer *buffer, size_t length);

void buffer_append(struct buffer *buffer, const void *data, size_t length);

/* Forgets bytes at the start. An emptied buffer that had grown large gives its memory back. */
void buffer_consume(struct buffer *buffer, size_t length);

void buffer_free(struct buffer *buffer);

#endif
