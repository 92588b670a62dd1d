#include "lease/lease_table.h"

#include <stdlib.h>

#define SIZE_AT_FIRST 256

bool lease_table_open(struct lease_table *table)
{
    *table = (struct lease_table){.size = SIZE_AT_FIRST};
    table->buckets = calloc(table->size, sizeof(struct lease_node *));
    return table->buckets != NULL;
}

void lease_table_close(struct lease_table *table)
{
    free(table->buckets);
}

static struct lease_node **bucket_of(const struct lease_table *table, uint64_t hash)
{
    return &table->buckets[hash & (table->size - 1)];
}

/* Without memory it stays as it is, and gets slower. */
static void grow(struct lease_table *table)
{
    struct lease_table grown = {.size = table->size * 2, .count = table->count};

    grown.buckets = calloc(grown.size, sizeof(struct lease_node *));
    if (grown.buckets == NULL) {
        return;
    }
    for (size_t i = 0; i < table->size; i++) {
        while (table->buckets[i] != NULL) {
            struct lease_node *node = table->buckets[i];
            struct lease_node **bucket = bucket_of(&grown, node->hash);
            table->buckets[i] = node->next;
            node->next = *bucket;
            *bucket = node;
        }
    }
    free(table->buckets);
    *table = grown;
}

void lease_table_add(struct lease_table *table, struct lease_node *node, uint64_t hash)
{
    if (table->count >= table->size) {
        grow(table);
    }
    struct lease_node **bucket = bucket_of(table, hash);
    node->hash = hash;
    node->next = *bucket;
    *bucket = node;
    table->count++;
}

void lease_table_remove(struct lease_table *table, struct lease_node *node)
{
    struct lease_node **link = bucket_of(table, node->hash);

    while (*link != node) {
        link = &(*link)->next;
    }
    *link = node->next;
    table->count--;
}

static struct lease_node *with_hash(struct lease_node *node, uint64_t hash)
{
    while (node != NULL && node->hash != hash) {
        node = node->next;
    }
    return node;
}

struct lease_node *lease_table_first(const struct lease_table *table, uint64_t hash)
{
    return with_hash(*bucket_of(table, hash), hash);
}

struct lease_node *lease_table_next(const struct lease_node *node)
{
    return with_hash(node->next, node->hash);
}
