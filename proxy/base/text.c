#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* For the first bytes. */
#define CAPACITY_LEAST ((size_t)1024)

/* 0 makes the stream one with an error. */
static ssize_t append(void *cookie, const char *bytes, size_t size)
{
    struct text_stream *text = cookie;
    size_t needed = text->length + size;

    if (needed > text->capacity) {
        size_t capacity = text->capacity * 2 > needed ? text->capacity * 2 : needed;
        capacity = capacity > CAPACITY_LEAST ? capacity : CAPACITY_LEAST;
        char *grown = realloc(text->bytes, capacity);
        if (grown == NULL) {
            errno = ENOMEM;
            return 0;
        }
        text->bytes = grown;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->length, bytes, size);
    text->length = needed;
    return (ssize_t)size;
}

bool text_open(struct text_stream *text)
{
    *text = (struct text_stream){0};
    text->out = fopencookie(text, "w", (cookie_io_functions_t){.write = append});
    return text->out != NULL;
}

bool text_close(struct text_stream *text)
{
    bool is_whole = fflush(text->out) == 0 && ferror(text->out) == 0;

    is_whole = fclose(text->out) == 0 && is_whole;
    text->out = NULL;
    return is_whole;
}

void text_free(struct text_stream *text)
{
    if (text->out != NULL) {
        (void)text_close(text);
    }
    free(text->bytes);
    *text = (struct text_stream){0};
}
