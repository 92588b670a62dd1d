#include "directory.h"

#include <criterion/criterion.h>
#include <stdlib.h>

Test(directory, ids_are_whole_numbers_everywhere_and_above_those_of_redis)
{
    struct directory directory;

    directory_open(&directory);
    for (uint64_t client = 1; client < 1000; client++) {
        int64_t id = directory_id(&directory, client);
        cr_assert(id >= DIRECTORY_FIRST && id < DIRECTORY_END);
        cr_assert_neq(id, directory_id(&directory, client + 1));
    }
    directory.first = DIRECTORY_END - DIRECTORY_FIRST - 1;
    cr_expect_eq(directory_id(&directory, 0), DIRECTORY_END - 1);
    cr_expect_eq(directory_id(&directory, 1), DIRECTORY_FIRST, "they go on from the beginning");
    directory_close(&directory);
}

Test(directory, finds_who_is_there)
{
    struct directory directory;

    directory_open(&directory);
    /* Two of one bucket. */
    struct directory_entry *one = directory_add(&directory, DIRECTORY_FIRST + 7, "1.2.3.4:5");
    struct directory_entry *other = directory_add(&directory, DIRECTORY_FIRST + 7 + DIRECTORY_BUCKETS, "1.2.3.4:6");
    cr_expect_eq(directory_find(&directory, one->id, false), 0);
    cr_expect_not(atomic_load(&one->is_wanted));
    atomic_store(&other->connection, 12);
    cr_expect_eq(directory_find(&directory, other->id, true), 12);
    cr_expect(atomic_load(&other->is_wanted));
    cr_expect_eq(directory_find(&directory, DIRECTORY_FIRST, true), -1);
    directory_remove(&directory, one);
    cr_expect_eq(directory_find(&directory, DIRECTORY_FIRST + 7, false), -1);
    directory_remove(&directory, other);
    directory_close(&directory);
}

Test(directory, lists_connections_in_order)
{
    struct directory directory;
    struct directory_entry *entries[10];
    struct directory_place *places;

    directory_open(&directory);
    cr_expect_eq(directory_places(&directory, &places), 0);
    for (int i = 0; i < 10; i++) {
        entries[i] = directory_add(&directory, DIRECTORY_FIRST + i, "here");
        atomic_store(&entries[i]->connection, i % 2 == 0 ? 100 - i : -1);
    }
    cr_assert_eq(directory_places(&directory, &places), 5, "unknown ones are none");
    for (size_t i = 0; i < 5; i++) {
        cr_expect_eq(places[i].connection, 92 + 2 * (int64_t)i);
        cr_expect_eq(places[i].id, DIRECTORY_FIRST + 8 - 2 * (int64_t)i);
        cr_expect_str_eq(places[i].address, "here");
    }
    free(places);
    for (int i = 0; i < 10; i++) {
        directory_remove(&directory, entries[i]);
    }
    directory_close(&directory);
}
