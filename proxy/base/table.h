/*
 * A hash table of nodes that are embedded, as their first field, in what it holds. Who looks something up compares what
 * is beyond the hash:
 *
 *   for (node = table_first(table, hash); node != NULL; node = table_next(node)) …
 *
 * Where others choose what is hashed, the hash is to be one with a secret key (siphash.h).
 */
#ifndef HEADGATE_TABLE_H
#define HEADGATE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table_node {
    struct table_node *next;
    uint64_t hash;
};

/* All zeroes: empty, and with its first node it gets memory. */
struct table {
    struct table_node **buckets;
    size_t size; /* a power of two, or 0 */
    size_t count;
};

/* Makes room for so many, 1 or more, in advance. False when memory is short. */
bool table_open(struct table *table, size_t room);
/* Frees the table, and nothing that is in it. */
void table_close(struct table *table);
/* Forgets all nodes, and keeps the memory. */
void table_clear(struct table *table);
/* False when memory is short, which is no matter once there is some: the table only gets slower. */
bool table_add(struct table *table, struct table_node *node, uint64_t hash);
/* The node must be in the table. */
void table_remove(struct table *table, struct table_node *node);
/* Gives back memory if there is far more than is needed. */
void table_shrink(struct table *table);
/* Any node, and the next one in no order; NULL behind the last. Nodes that were passed may be removed meanwhile. */
struct table_node *table_walk(const struct table *table, const struct table_node *node);

static inline struct table_node *table_with_hash(struct table_node *node, uint64_t hash)
{
    while (node != NULL && node->hash != hash) {
        node = node->next;
    }
    return node;
}

/* The first with that hash, and the next with the same one; NULL if there is none. */
static inline struct table_node *table_first(const struct table *table, uint64_t hash)
{
    return table->size > 0 ? table_with_hash(table->buckets[hash & (table->size - 1)], hash) : NULL;
}

static inline struct table_node *table_next(const struct table_node *node)
{
    return table_with_hash(node->next, node->hash);
}

#endif
