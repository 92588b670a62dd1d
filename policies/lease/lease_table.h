/*
 * A hash table of nodes that are embedded, as their first field, in what it holds. Who looks something up compares what
 * is beyond the hash:
 *
 *   for (node = lease_table_first(table, hash); node != NULL; node = lease_table_next(node)) …
 */
#ifndef HEADGATE_LEASE_TABLE_H
#define HEADGATE_LEASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lease_node {
    struct lease_node *next;
    uint64_t hash;
};

struct lease_table {
    struct lease_node **buckets;
    size_t size; /* a power of two */
    size_t count;
};

/* False when memory is short. */
bool lease_table_open(struct lease_table *table);
/* Frees the table, and nothing that is in it. */
void lease_table_close(struct lease_table *table);
void lease_table_add(struct lease_table *table, struct lease_node *node, uint64_t hash);
/* The node must be in the table. */
void lease_table_remove(struct lease_table *table, struct lease_node *node);
/* The first with that hash, and the next with the same one; NULL if there is none. */
struct lease_node *lease_table_first(const struct lease_table *table, uint64_t hash);
struct lease_node *lease_table_next(const struct lease_node *node);

#endif
