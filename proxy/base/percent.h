/*
 * Bytes of any kind as one word of a line: letters, digits and most signs stand for themselves, all others as %41.
 */
#ifndef HEADGATE_PERCENT_H
#define HEADGATE_PERCENT_H

#include "base/slice.h"

#include <stdint.h>
#include <stdio.h>

/* Returns how many bytes were written. Nothing at all is written as a single %. */
size_t percent_write(FILE *out, struct slice bytes);
/* Reads a word back into room bytes. False: it is none, or too long. */
bool percent_read(struct slice word, char *bytes, size_t room, size_t *length);
/* Takes the next word, up to a blank or a line's end, off a text; the one character behind it is taken, too. False:
 * there is none. */
bool percent_take_word(struct slice *text, struct slice *word);
/* The same for a line. */
bool percent_take_line(struct slice *text, struct slice *line);
/* The same for a number from 0 to INT64_MAX. False: the next word is none. */
bool percent_take_number(struct slice *text, int64_t *number);

#endif
