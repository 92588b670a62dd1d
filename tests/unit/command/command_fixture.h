/* Commands by name, and command lines. */
#ifndef HEADGATE_TESTS_COMMAND_FIXTURE_H
#define HEADGATE_TESTS_COMMAND_FIXTURE_H

#include "command/command.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

const struct command *find(const char *name);

#define ARGUMENTS_MAX 24
#define FRAME_MAX 1024

/* A command line taken apart at its blanks, with "" for an empty argument, and the same as a frame. */
struct line {
    int argc;
    const char *argv[ARGUMENTS_MAX];
    char text[FRAME_MAX];
    char frame[FRAME_MAX];
    size_t frame_length;
};

void split(struct line *line, const char *text);

#endif
