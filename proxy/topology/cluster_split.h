/*
 * Takes a request with keys in several slots apart, into one for each slot, and makes one reply of theirs:
 * cross_slot = split, for MGET, MSET, DEL, UNLINK, EXISTS and TOUCH. The parts are not atomic together.
 */
#ifndef HEADGATE_CLUSTER_SPLIT_H
#define HEADGATE_CLUSTER_SPLIT_H

#include "topology/cluster_command.h"

struct cluster_split;

struct cluster_split_part {
    uint16_t slot;
    struct slice frame; /* a whole multibulk command, valid as long as the split */
};

/* Whether it is one of those. */
bool cluster_split_can(const struct command *command);

/* Of a whole multibulk command, which is copied. The parts are in the order of their first keys, and have their keys in
 * the order of the request. NULL: memory is short, or Redis would refuse the command (MSET with a key too many): any
 * node can be asked for that error. */
struct cluster_split *cluster_split_new(const struct command *command, struct slice frame);
void cluster_split_free(struct cluster_split *split);

/* Bytes that it takes, without the replies. */
size_t cluster_split_size(const struct cluster_split *split);
size_t cluster_split_count(const struct cluster_split *split);
struct cluster_split_part cluster_split_part(const struct cluster_split *split, size_t place);

/* The whole reply to that part, which stays the caller's, and there; in any order, each once. */
void cluster_split_take(struct cluster_split *split, size_t place, struct slice reply);
/* When all have come: writes the reply as from one server; of errors the one of the first part that has one. */
void cluster_split_write(const struct cluster_split *split, FILE *out);

#endif
