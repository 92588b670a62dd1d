/*
 * The operations whose latency is on record: names, numbered in the order in which they came. There are so many at
 * most; the rest goes to "other", which is there from the beginning and has the number 0. A name stays once it is in.
 * Nothing is locked: threads that share a table lock around each call.
 *
 * Names become parts of keys, so they are made safe for that, the same way in every process: blanks, control
 * characters, what is not ASCII, and { } % ~ are written as % and two hexadecimal digits; nothing at all is written as
 * a single %. What is then longer than LATENCY_NAME_MAX keeps its beginning, with ~ and 16 hexadecimal digits of a hash
 * of the whole name in place of the rest. So different names stay different, with one exception: two that are that
 * long, alike in their beginning, and of one hash (one chance in 2^64, but not proof against who looks for such names)
 * are taken for one.
 */
#ifndef HEADGATE_LATENCY_OPERATION_NAME_H
#define HEADGATE_LATENCY_OPERATION_NAME_H

#include "base/table.h"
#include "policy/policy.h"

/* The longest safe name, in bytes, without the NUL behind it. */
#define LATENCY_NAME_MAX 64
/* The number and the name of what has no room. */
#define LATENCY_OTHER 0
#define LATENCY_OTHER_NAME "other"
#define LATENCY_OPERATIONS_MAX 65536

/* The beginning of each: the rest is the table owner's. It stays where it is. */
struct latency_operation_name {
    struct table_node node; /* by name */
    uint32_t number;
    char name[LATENCY_NAME_MAX + 1];
};

/* Numbers are below count. */
struct latency_operation_names {
    struct latency_operation_name **list;
    uint32_t room; /* of the list */
    uint32_t count;
    uint32_t most; /* so many at most; those that are there stay, also if they are more */
    size_t size;   /* of each */
    struct table table;
    uint64_t refused; /* how often somebody was sent to "other" for want of room */
};

/* Writes the safe name, ended by a NUL; returns its length, 1 to LATENCY_NAME_MAX. */
size_t latency_operation_safe_name(struct slice name, char safe[LATENCY_NAME_MAX + 1]);

/* A table for so many operations, "other" among them: 1 to LATENCY_OPERATIONS_MAX. Each has so many bytes, which are
 * zero behind its beginning. NULL when memory is short. */
struct latency_operation_names *latency_operation_names_new(uint32_t most, size_t size);
void latency_operation_names_free(struct latency_operation_names *operations);

/* The number of the operation of that name (any bytes; it is made safe), which is added if there is room, and
 * memory; else LATENCY_OTHER. What is named "other" is it. */
uint32_t latency_operation_names_add(struct latency_operation_names *operations, struct slice name);
/* The number of the one whose safe name is that, as it is shown and as keys have it; false if there is none. */
bool latency_operation_names_find(const struct latency_operation_names *operations, struct slice safe,
                                  uint32_t *operation);

#endif
