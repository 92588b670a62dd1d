/*
 * The command line: what the program is to do, and what it prints about itself: its usage, its version, the reference
 * of its options and its manual pages.
 */
#ifndef HEADGATE_COMMAND_LINE_H
#define HEADGATE_COMMAND_LINE_H

#include "policy/policy.h"

#include <stdbool.h>

enum command_line_task {
    COMMAND_LINE_RUN,
    COMMAND_LINE_CHECK,   /* whether the configuration is sound */
    COMMAND_LINE_SHOW,    /* print it */
    COMMAND_LINE_PING,    /* ask the Headgate of that configuration whether it serves */
    COMMAND_LINE_UPGRADE, /* have it replaced by the program as it is now */
    COMMAND_LINE_EXIT,    /* nothing more: what was asked for was printed, or the command line is not sound */
};

struct command_line {
    enum command_line_task task;
    int status;            /* of COMMAND_LINE_EXIT */
    const char *conf_path; /* NULL: defaults */
    bool pings_admin;      /* of COMMAND_LINE_PING: the admin port is asked, and Redis is left alone */
    bool takes_over;       /* an address may be in use by a Headgate that will be ended */
};

/* policies: those whose options and verbs the references have, up to a NULL. What is wrong is printed. */
struct command_line command_line_read(int argc, char **argv, const struct policy *const *policies);

#endif
