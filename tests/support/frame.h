/* Requests as tests write them, and the frames that clients send for them. */
#ifndef HEADGATE_TESTS_FRAME_H
#define HEADGATE_TESTS_FRAME_H

#include "base/slice.h"

#include <stddef.h>

#define FRAME_WORDS_MAX 80

/* The words of a text, with single blanks between them; two blanks hold an empty one. Up to FRAME_WORDS_MAX. */
size_t frame_split(const char *text, struct slice words[FRAME_WORDS_MAX]);
/* A command in multibulk form. It ends where its memory does, so that the sanitizer sees who reads on; the caller frees
 * its data. */
struct slice frame_of_words(const struct slice *words, size_t count);

#endif
