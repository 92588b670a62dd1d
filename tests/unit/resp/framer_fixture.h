/* The framer of commands as tests feed it, and frames that it must refuse. */
#ifndef HEADGATE_TESTS_FRAMER_FIXTURE_H
#define HEADGATE_TESTS_FRAMER_FIXTURE_H

#include "cut_fixture.h"

#define BULK_MAX ((uint64_t)512 * 1024 * 1024)

/* feed_one_piece() and feed_in_pieces() to the framer of commands. */
enum resp_status feed_piece(struct resp_command *command, struct slice piece, size_t *taken);
enum resp_status feed_cut(struct resp_command *command, struct slice bytes, size_t first, size_t further,
                          size_t *total);
enum resp_status feed_whole(struct resp_command *command, struct slice bytes);

struct unsound {
    struct slice bytes;
    enum resp_command_fault fault;
};

extern const struct unsound unsound[];
extern const size_t unsound_count;

/* A line that goes on and on: what is before it, and how it begins. */
struct endless {
    struct slice before;
    struct slice line;
    enum resp_command_fault fault;
};

extern const struct endless endless[];
extern const size_t endless_count;

/* What is before the line, and the line with so many 'A' behind it that it has that length. The caller frees it. */
struct slice long_line(struct slice before, struct slice line, size_t line_length);

#endif
