/*
 * What a command does before a Redis Cluster: where it goes, and what becomes of the replies of several nodes. One
 * constant table (cluster_plans.inc) for all that is not decided by the slot of its keys.
 */
#ifndef HEADGATE_CLUSTER_COMMAND_H
#define HEADGATE_CLUSTER_COMMAND_H

#include "command/command.h"
#include "topology/cluster_slot.h"

#include <stdio.h>

enum cluster_where {
    CLUSTER_KEYS,    /* to the node of the slot of its keys; without any to the home node */
    CLUSTER_HOME,    /* to one node, the same one for all of a client's */
    CLUSTER_ALL,     /* to all masters; the replies become one (cluster_merge.h) */
    CLUSTER_SLOT,    /* to the node of the slot that its second argument is */
    CLUSTER_KEY,     /* to the node of the key that its second argument is, if there is one */
    CLUSTER_CURSOR,  /* SCAN: one master after the other (cluster_scan.h) */
    CLUSTER_SESSION, /* it is about the connection: as its kind says (enum command_kind) */
    CLUSTER_HERE,    /* Headgate answers (cluster_shown.h) */
    CLUSTER_REFUSED  /* Headgate refuses it (cluster_command_refusal()) */
};

/* What becomes of the replies of several nodes. The first error is the whole reply, but for ANY. */
enum cluster_merge {
    CLUSTER_MERGE_NONE,   /* there is one reply only */
    CLUSTER_MERGE_AGREED, /* the first one: all say the same */
    CLUSTER_MERGE_ANY,    /* the first that is no error */
    CLUSTER_MERGE_SUM,    /* of integers */
    CLUSTER_MERGE_LEAST,  /* of integers */
    CLUSTER_MERGE_EACH,   /* lists of integers, as long as each other: the least at each place */
    CLUSTER_MERGE_LIST,   /* lists, one behind the other; what is none (ACL LOG RESET): the first one */
    CLUSTER_MERGE_UNION,  /* the same, each element once */
    CLUSTER_MERGE_COUNTS, /* lists of names and numbers in turn: the sum for each name */
    CLUSTER_MERGE_TEXT,   /* texts, one behind the other */
    CLUSTER_MERGE_CHOICE  /* one that is no null */
};

struct cluster_plan {
    const char *command;    /* lower case */
    const char *subcommand; /* "" for the command, and for its further subcommands */
    enum cluster_where where;
    enum cluster_merge merge;
    const char *text; /* why it is refused, or what else is to be said; "" */
};

/*
 * The plan of a whole multibulk command. Never NULL: what has no row of its own goes by its keys. Of a command learned
 * from Redis (server_info.h) likewise.
 */
const struct cluster_plan *cluster_command_plan(const struct command *command, struct slice frame);

/* Whether a command has no rows at all, so that its plan is known without its frame: nearly all have none. */
bool cluster_command_is_plain(const struct command *command);

/* The slot of a command whose plan is SLOT or KEY; false: it has none that could be (then any node refuses it). */
bool cluster_command_argument_slot(const struct cluster_plan *plan, struct slice frame, uint16_t *slot);

/* What Redis says of keys in several slots, with its CR LF. */
#define CLUSTER_CROSSSLOT "-CROSSSLOT Keys in request don't hash to the same slot\r\n"

/* Writes the error for a plan that is REFUSED, with its CR LF; returns its length, which is below size (256 is enough).
 */
size_t cluster_command_refusal(const struct cluster_plan *plan, char *text, size_t size);

/* Calls visit for each row of the table, in its order. */
void cluster_command_visit(void (*visit)(void *context, const struct cluster_plan *plan), void *context);
/* The table as Markdown (docs/topology.md holds it). */
void cluster_command_print_markdown(FILE *out);

#endif
