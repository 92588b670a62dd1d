/* Views into bytes that somebody else owns, and the ways to compare them. */
#ifndef HEADGATE_SLICE_H
#define HEADGATE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/* Not terminated by NUL. */
struct slice {
    const char *data;
    size_t length;
};

static inline struct slice slice_of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

/* Neither needs to point anywhere if it is empty. */
static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

static inline bool slice_is(struct slice slice, const char *text)
{
    return slice_equal(slice, slice_of(text));
}

static inline bool slice_begins(struct slice slice, const char *text)
{
    size_t length = strlen(text);

    return slice.length >= length && memcmp(slice.data, text, length) == 0;
}

/* In any case of letters. */
static inline bool slice_is_word(struct slice slice, const char *word)
{
    return slice.length == strlen(word) && strncasecmp(slice.data, word, slice.length) == 0;
}

#endif
