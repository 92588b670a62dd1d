/* Bytes that grow at their end and are taken from their beginning. Zero at first. */
#ifndef HEADGATE_BYTES_H
#define HEADGATE_BYTES_H

#include <stddef.h>

struct bytes {
    char *data;
    size_t length;
    size_t capacity;
};

/* Ends the program when memory is short. */
void bytes_add(struct bytes *bytes, const char *data, size_t length);
void bytes_drop(struct bytes *bytes, size_t length);
void bytes_free(struct bytes *bytes);

#endif
