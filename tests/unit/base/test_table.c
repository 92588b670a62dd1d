/* The table, when it grows and shrinks, and when hashes are the same. */
#include "base/table.h"

#include <criterion/criterion.h>
#include <stdlib.h>

struct item {
    struct table_node node;
    int number;
};

static size_t count_of(const struct table *table, uint64_t hash)
{
    size_t count = 0;

    for (struct table_node *node = table_first(table, hash); node != NULL; node = table_next(node)) {
        cr_assert_eq(node->hash, hash);
        count++;
    }
    return count;
}

Test(table, finds_all_of_a_hash_when_it_has_grown)
{
    enum { ITEMS = 10000, HASHES = 3000 };
    struct item *items = calloc(ITEMS, sizeof *items);
    struct table table;

    cr_assert(table_open(&table, 1));
    for (int i = 0; i < ITEMS; i++) {
        /* Many fall into the same bucket, and some have the same hash. */
        table_add(&table, &items[i].node, (uint64_t)(i % HASHES) << 8);
    }
    cr_assert_eq(table.count, (size_t)ITEMS);
    cr_assert_geq(table.size, (size_t)ITEMS / 2);
    for (int i = 0; i < HASHES; i++) {
        cr_assert_eq(count_of(&table, (uint64_t)i << 8), (size_t)(i < ITEMS % HASHES ? 4 : 3));
    }
    cr_assert_eq(count_of(&table, 1), (size_t)0);
    for (int i = 0; i < ITEMS; i++) {
        table_remove(&table, &items[i].node);
        cr_assert_eq(count_of(&table, (uint64_t)(i % HASHES) << 8),
                     (size_t)(i % HASHES < ITEMS % HASHES ? 4 : 3) - (size_t)(i / HASHES) - 1);
    }
    cr_assert_eq(table.count, (size_t)0);
    table_close(&table);
    free(items);
}

Test(table, walks_to_each_node_once_though_they_are_removed_and_gives_memory_back)
{
    enum { ITEMS = 1000 };
    struct item items[ITEMS];
    struct table table = {0};
    struct table_node *next;
    size_t seen = 0;

    cr_assert_null(table_first(&table, 1));
    cr_assert_null(table_walk(&table, NULL));
    for (int i = 0; i < ITEMS; i++) {
        items[i].number = 0;
        cr_assert(table_add(&table, &items[i].node, (uint64_t)i * 3));
    }
    for (struct table_node *node = table_walk(&table, NULL); node != NULL; node = next) {
        struct item *item = (struct item *)(void *)node;
        next = table_walk(&table, node);
        cr_assert_eq(item->number++, 0);
        if (node->hash % 2 == 0) {
            table_remove(&table, node);
        }
        seen++;
    }
    cr_assert_eq(seen, (size_t)ITEMS);
    cr_assert_eq(table.count, (size_t)ITEMS / 2);
    for (int i = 0; i < ITEMS; i++) {
        cr_assert_eq(count_of(&table, (uint64_t)i * 3), (size_t)(i % 2));
    }
    for (int i = 1; i < ITEMS; i += 2) {
        table_remove(&table, &items[i].node);
        table_shrink(&table);
    }
    cr_assert_leq(table.size, (size_t)8);
    cr_assert(table_add(&table, &items[0].node, 7));
    table_clear(&table);
    cr_assert_eq(count_of(&table, 7), (size_t)0);
    table_close(&table);
}
