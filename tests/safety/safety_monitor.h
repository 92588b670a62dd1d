/* Reads the lines of MONITOR. Pure. */
#ifndef SAFETY_MONITOR_H
#define SAFETY_MONITOR_H

#include <stdbool.h>
#include <stddef.h>

#define MONITOR_WORDS 12u

struct monitor_word {
    const char *data;
    size_t length;
};

struct monitor_line {
    double time; /* s since 1970, by Redis' clock */
    bool lua;    /* a script called it */
    unsigned count;
    struct monitor_word words[MONITOR_WORDS]; /* the command and its first arguments, without their escapes */
};

/* Takes a line without its end apart, in place. False if it is none of MONITOR's. */
bool monitor_parse(char *text, size_t length, struct monitor_line *line);
/* Whether that word is there and reads so, whatever its case. */
bool monitor_is(const struct monitor_line *line, unsigned at, const char *text);

#endif
