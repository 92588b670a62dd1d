/*
 * Where the keys of a command are, as a server has said it (key specifications, Redis 7.0): of commands that the table
 * does not have. Each specification says where to begin, and how to go on from there; keys are those of all of them.
 *
 * Specification: https://redis.io/docs/latest/develop/reference/key-specs/.
 */
#ifndef HEADGATE_COMMAND_SPECS_H
#define HEADGATE_COMMAND_SPECS_H

#include "command/command.h"

#define COMMAND_SPECS_MAX 4
/* Of a keyword with its NUL. */
#define COMMAND_KEYWORD_SIZE 32

struct command_spec {
    /* Where it begins: at that argument, or behind the keyword, which is looked for from that argument on, backwards
     * from the end if it is negative. */
    int32_t begin;
    char keyword[COMMAND_KEYWORD_SIZE]; /* "": none */
    bool is_counted;                    /* the number of keys is an argument */
    /* Places behind the begin. Counted: of the number, and of the first key. */
    int32_t count_at, first;
    /* Else: of the last key, or counted from the end of the arguments if it is negative. */
    int32_t last;
    int32_t limit; /* with last = -1: only so great a part of the arguments (2: half of them); 0 or 1: all */
    int32_t step;  /* from key to key, at least 1 */
};

struct command_specs {
    size_t count;
    struct command_spec items[COMMAND_SPECS_MAX];
};

/* A command whose keys are COMMAND_KEYS_SPECS. */
struct specified_command {
    struct command command;
    struct command_specs specs;
};

/* Those of such a command, given by its first member. */
static inline const struct command_specs *command_specs_of(const struct command *command)
{
    return &((const struct specified_command *)(const void *)command)->specs;
}

/* As command_visit_keys(), in the order of specifications. What does not fit the arguments gives no keys. */
void command_specs_visit(const struct command_specs *specs, struct slice frame, command_key_visitor *visit,
                         void *context);

#endif
