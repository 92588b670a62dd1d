/* The lines of the admin port's verbs, "name=value name=\"value\" …", taken apart for who wants them in another form.
 */
#ifndef HEADGATE_FIELDS_H
#define HEADGATE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

/* A part of a line: a name (or none, length 0) and a value, which may be in quotes. */
struct fields_part {
    const char *name;
    size_t name_length;
    const char *value;
    size_t value_length;
    bool is_quoted;
};

/* Takes the next one off the line, with all that belongs to its value; false at the end. *was_quoted: there were quotes
 * around all of it, and they are left out. One without a name, at the start of a line, is called "text". */
bool fields_next_whole(const char **at, const char *end, struct fields_part *part, bool *was_quoted);
/* -12, 3.25, of digits that no reader loses. */
bool fields_is_number(const char *text, size_t length);

#endif
