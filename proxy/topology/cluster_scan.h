/*
 * SCAN over all masters of a Redis Cluster, one after the other: the cursor that a client has says which master is
 * being scanned, and where in it.
 *
 * A master is told by its lowest slot, and they take their turns in that order: the client's cursor is that of the node
 * times 16384, plus that slot. So it means the same to all workers, and to another Headgate. When slots move meanwhile,
 * their keys may be missed or seen twice, as they would be by whoever scans node for node.
 */
#ifndef HEADGATE_CLUSTER_SCAN_H
#define HEADGATE_CLUSTER_SCAN_H

#include "topology/cluster_map.h"

struct cluster_cursor {
    uint16_t slot; /* whose owner is being scanned */
    uint64_t node; /* the cursor of that node; 0: it begins */
};

/* Reads the cursor that a client sends, of a map that has a master. False: Redis would refuse it ("ERR invalid
 * cursor"), as CLUSTER_SCAN_INVALID does. */
bool cluster_scan_read(const struct cluster_map *map, struct slice text, struct cluster_cursor *cursor);
#define CLUSTER_SCAN_INVALID "-ERR invalid cursor\r\n"

/* Writes the request for the node: the client's, whole, with the cursor of the node in place of its own. */
void cluster_scan_write_request(const struct cluster_cursor *cursor, struct slice frame, FILE *out);

/* Writes what the client is answered: the node's whole reply to that request, with a cursor that leads on to the next
 * master when this one is done, and 0 when all are. Errors go through as they are. */
void cluster_scan_write_reply(const struct cluster_map *map, const struct cluster_cursor *cursor, struct slice reply,
                              FILE *out);

#endif
