/*
 * SCAN over all masters of a Redis Cluster, one after the other, without anything that is remembered of it: the cursor
 * that a client has says all, to each worker and to another Headgate.
 *
 * The scan goes over the slots in their order. Where it stands (at a slot), the owner of that slot has its turn, and is
 * scanned whole. Behind it the next turn is that of the first slot which needs one. A slot does not need one if
 * - its owner has a slot further ahead, and has had both of them since before the scan began: it was scanned there; or
 * - it lies in one run with the slot of the turn just over, and was its owner's while that lasted.
 * A slot that has changed hands lately (CLUSTER_SCAN_MEMORY_US) says nothing of its owner, and has a turn of its own.
 * The owner of the slot of a turn may change: another node, of which the cursor means nothing, is scanned from its
 * beginning. So a scan meets nodes twice after slots have moved, and ends, as it never goes back to a lower slot.
 *
 * What is promised: a key that is there from the first call to the last is reported at least once, whatever slots
 * have changed hands meanwhile. As long as
 * - the scan lasts for less than that hour, and whoever takes part in it has known the cluster since it began;
 * - what has changed is known: a slot whose keys have gone ahead, and which has not changed hands yet for all that is
 *   known here, has its turn where they were;
 * - no two nodes that have one slot, one after the other, have the same mark (one pair in 1024; in 16 where a node's
 *   own cursors go beyond 32 bits, as those of Redis 7.4 do for 262,144 keys of one slot).
 */
#ifndef HEADGATE_CLUSTER_SCAN_H
#define HEADGATE_CLUSTER_SCAN_H

#include "topology/cluster_map.h"

/* How long a slot that has changed hands is no evidence. */
#define CLUSTER_SCAN_MEMORY_US ((int64_t)3600 * 1000000)

struct cluster_cursor {
    uint16_t slot; /* whose owner has its turn */
    uint16_t mark; /* of that owner */
    uint16_t run;  /* so many slots, from that one on, have been its owner's since the turn began; 0: not known */
    bool is_over;  /* nothing is left to scan: whatever the node answers is the end */
    uint64_t node; /* the cursor of that node; 0: it begins */
};

/* Reads the cursor that a client sends at that time of clock_now_us(), by a map that has a master. False: Redis would
 * refuse it ("ERR invalid cursor"), as CLUSTER_SCAN_INVALID does. The owner of cursor->slot is to be asked. */
bool cluster_scan_read(const struct cluster_map *map, int64_t now_us, struct slice text, struct cluster_cursor *cursor);
#define CLUSTER_SCAN_INVALID "-ERR invalid cursor\r\n"

/* Writes the request for the node: the client's, whole, with the cursor of the node in place of its own. */
void cluster_scan_write_request(const struct cluster_cursor *cursor, struct slice frame, FILE *out);

/* Writes what the client is answered: the node's whole reply to that request, with a cursor that leads on to the next
 * turn when this one is over, and 0 when all are. The map is the newest, and may be another one than that by which the
 * cursor was read. Errors go through as they are. */
void cluster_scan_write_reply(const struct cluster_map *map, int64_t now_us, const struct cluster_cursor *cursor,
                              struct slice reply, FILE *out);

#endif
