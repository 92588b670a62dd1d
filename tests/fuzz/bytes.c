#include "bytes.h"

#include <stdlib.h>
#include <string.h>

void bytes_add(struct bytes *bytes, const char *data, size_t length)
{
    if (bytes->length + length > bytes->capacity) {
        bytes->capacity = (bytes->length + length) * 2;
        bytes->data = realloc(bytes->data, bytes->capacity);
        if (bytes->data == NULL) {
            abort();
        }
    }
    if (length > 0) {
        memcpy(bytes->data + bytes->length, data, length);
    }
    bytes->length += length;
}

void bytes_drop(struct bytes *bytes, size_t length)
{
    bytes->length -= length;
    if (bytes->length > 0) {
        memmove(bytes->data, bytes->data + length, bytes->length);
    }
}

void bytes_free(struct bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct bytes){0};
}
