/* Globs, as options have them. */
#ifndef HEADGATE_GLOB_H
#define HEADGATE_GLOB_H

#include "base/slice.h"
#include "conf/conf_table.h"

/* Whether the text matches a sound glob: * ? [abc] [^a-z] and \ before a character that stands for itself. The time is
 * at most the product of the lengths. */
bool glob_match(const char *glob, struct slice text);

/* Where in a glob, which is without them, its braces were; NULL: it had none. */
struct glob_braces {
    const char *open, *close;
};

/* The same; *part becomes what stands for the part in braces, and stays as it is if there are none. Of several ways to
 * match, the one with the shortest stars is taken, those on the left first. */
bool glob_match_part(const char *glob, struct glob_braces braces, struct slice text, struct slice *part);
/* Whether the word is one, with what is wrong in problem. */
bool glob_check(struct slice word, char problem[CONF_PROBLEM_MAX]);
/* Whether the one element at *at, which is neither a star nor the end, stands for the character; *at is moved behind
 * it.
 */
bool glob_element(const char **at, char character);

#endif
