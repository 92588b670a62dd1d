/*
 * Globs are matched from star to star: what stands behind a star is taken at the first place where it fits, and nothing
 * before the star is looked at again. So the time is at most the product of the lengths, and no star could stand for
 * less, those on the left first.
 */
#include "conf/glob.h"

#include <string.h>

/* What follows the element at this place; NULL: it does not stand for the character, or there is none. */
static const char *behind_element(const char *at, char character)
{
    switch (*at) {
    case '\0':
        return NULL;
    case '?':
    case '[':
    case '\\':
        return glob_element(&at, character) ? at : NULL;
    default:
        return *at == character ? at + 1 : NULL;
    }
}

/* Where in the text what follows a star may begin, from that place on; the end of the text, if nowhere else. */
static size_t seek(const char *after_star, struct slice text, size_t from)
{
    if (*after_star == '\0') {
        return text.length;
    }
    if (from == text.length || strchr("*?[\\", *after_star) != NULL) {
        return from;
    }
    const char *found = memchr(text.data + from, *after_star, text.length - from);
    return found != NULL ? (size_t)(found - text.data) : text.length;
}

bool glob_match_part(const char *glob, struct glob_braces braces, struct slice text, struct slice *part)
{
    const char *at = glob, *next;
    const char *after_star = NULL; /* what follows the last star, */
    size_t star_taken = 0;         /* which stands for the text up to here */
    size_t position = 0, start = 0, end = 0;

    for (;;) {
        start = at == braces.open ? position : start;
        end = at == braces.close ? position : end;
        if (*at == '*') {
            after_star = ++at;
            position = star_taken = seek(after_star, text, position);
        } else if (position == text.length) {
            break;
        } else if ((next = behind_element(at, text.data[position])) != NULL) {
            at = next;
            position++;
        } else if (after_star != NULL) {
            at = after_star;
            position = star_taken = seek(after_star, text, star_taken + 1);
        } else {
            return false;
        }
    }
    bool is_whole = *at == '\0';
    if (is_whole && braces.open != NULL) {
        *part = (struct slice){text.data + start, end - start};
    }
    return is_whole;
}

bool glob_match(const char *glob, struct slice text)
{
    return glob_match_part(glob, (struct glob_braces){0}, text, NULL);
}
