/*
 * What programs that test are told on their command lines. Whatever is not as it ought to be ends the program with
 * status 2 and its usage on standard error.
 */
#ifndef RIG_OPTIONS_H
#define RIG_OPTIONS_H

#include <stdint.h>

_Noreturn void options_fail(const char *usage);
/* A number from low to high. */
uint64_t options_number(const char *usage, const char *text, uint64_t low, uint64_t high);
/* One of two words. */
const char *options_word(const char *usage, const char *text, const char *one, const char *other);

#endif
