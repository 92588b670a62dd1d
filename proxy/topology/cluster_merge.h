/* Makes one reply of those that several nodes have given to the same command, in RESP2 or RESP3. */
#ifndef HEADGATE_CLUSTER_MERGE_H
#define HEADGATE_CLUSTER_MERGE_H

#include "base/text.h"
#include "topology/cluster_command.h"

/*
 * Writes what becomes of count replies, each of which is whole, to out. The first error among them is the whole reply,
 * but for ANY. Replies that do not fit together are answered by an error. choice: any number, by which CHOICE chooses.
 */
void cluster_merge(enum cluster_merge how, const struct slice replies[], size_t count, uint64_t choice, FILE *out);

#endif
