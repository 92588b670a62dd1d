#include "base/table.h"

#include <stdlib.h>
#include <string.h>

#define SIZE_LEAST ((size_t)4)

static struct table_node **bucket_of(const struct table *table, uint64_t hash)
{
    return &table->buckets[hash & (table->size - 1)];
}

static void insert(struct table *table, struct table_node *node)
{
    struct table_node **bucket = bucket_of(table, node->hash);

    node->next = *bucket;
    *bucket = node;
    table->count++;
}

/* False when memory is short: the table is as it was. */
static bool resize(struct table *table, size_t size)
{
    struct table resized = {.buckets = calloc(size, sizeof(struct table_node *)), .size = size};
    struct table_node *next;

    if (resized.buckets == NULL) {
        return false;
    }
    for (struct table_node *node = table_walk(table, NULL); node != NULL; node = next) {
        next = table_walk(table, node);
        insert(&resized, node);
    }
    free(table->buckets);
    *table = resized;
    return true;
}

bool table_open(struct table *table, size_t room)
{
    size_t size = SIZE_LEAST;

    while (size < room) {
        size *= 2;
    }
    *table = (struct table){0};
    return resize(table, size);
}

void table_close(struct table *table)
{
    free(table->buckets);
}

void table_clear(struct table *table)
{
    memset(table->buckets, 0, table->size * sizeof(struct table_node *));
    table->count = 0;
}

bool table_add(struct table *table, struct table_node *node, uint64_t hash)
{
    if (table->count >= table->size && !resize(table, table->size > 0 ? table->size * 2 : SIZE_LEAST) &&
        table->size == 0) {
        return false;
    }
    node->hash = hash;
    insert(table, node);
    return true;
}

void table_remove(struct table *table, struct table_node *node)
{
    struct table_node **link = bucket_of(table, node->hash);

    while (*link != node) {
        link = &(*link)->next;
    }
    *link = node->next;
    table->count--;
}

void table_shrink(struct table *table)
{
    if (table->size > SIZE_LEAST && table->count < table->size / 8) {
        (void)resize(table, table->size / 4);
    }
}

struct table_node *table_walk(const struct table *table, const struct table_node *node)
{
    struct table_node *next = node != NULL ? node->next : NULL;
    size_t bucket = node != NULL ? (node->hash & (table->size - 1)) + 1 : 0;

    for (; next == NULL && bucket < table->size; bucket++) {
        next = table->buckets[bucket];
    }
    return next;
}
