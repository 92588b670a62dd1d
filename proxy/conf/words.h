/* Lists of words, as options have them, with blanks or commas between them. */
#ifndef HEADGATE_WORDS_H
#define HEADGATE_WORDS_H

#include "base/slice.h"
#include "conf/conf_table.h"

/* Takes the next word off the text; false at its end. A comma belongs to the word behind a backslash and in a class of
 * a glob. */
bool words_next(const char **text, struct slice *word);
size_t words_count(const char *text);
/* Whether there is a word on both sides of each comma, with what is wrong in problem. */
bool words_check(const char *text, char problem[CONF_PROBLEM_MAX]);
/* The same as glob_check() for a word that words_next() has taken: sound globs that are hardly meant are at
 * fault, too. */
bool words_check_glob(struct slice word, char problem[CONF_PROBLEM_MAX]);

#endif
