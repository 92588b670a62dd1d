/*
 * A text that is written as a FILE. Unlike open_memstream() of the C library, whose text then merely lacks something,
 * it knows whether memory was short.
 */
#ifndef HEADGATE_TEXT_H
#define HEADGATE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct text_stream {
    FILE *out; /* to write to; NULL: closed */
    char *bytes;
    size_t length;
    size_t capacity;
};

/* False when memory is short. The text must not move until it is closed. */
bool text_open(struct text_stream *text);
/* Nothing more is written. True: bytes has all of it; false: memory was short. */
bool text_close(struct text_stream *text);
/* Closes it, if that was not done, and forgets it. */
void text_free(struct text_stream *text);

#endif
