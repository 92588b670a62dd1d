/*
 * The keys of a rule that counts per key: globs as in match.h, of which each may have one part in braces. The part of
 * the key that it stands for is what is counted: "user:{*}:*" counts per user. Of several ways to match, the one with
 * the shortest stars is taken, those on the left first.
 */
#ifndef HEADGATE_LIMIT_KEYS_H
#define HEADGATE_LIMIT_KEYS_H

#include "match/match.h"

struct limit_keys;

/* NULL if the text is faulty, with what is wrong in problem. No text stands for all keys, each counted whole. */
struct limit_keys *limit_keys_compile(const char *text, char problem[CONF_PROBLEM_MAX]);
void limit_keys_free(struct limit_keys *keys); /* NULL: does nothing */

/* Whether the key matches any of the globs, the first of which says what is counted: a part of the key. Takes at most
 * the product of the lengths. */
bool limit_keys_find(struct limit_keys *keys, struct slice key, struct slice *counted);

#endif
