#include "client/directory.h"

#include <criterion/criterion.h>

static int here, there;

static struct directory_finding find(struct directory *directory, const struct directory_entry *entry)
{
    return directory_find(directory, entry->id, DIRECTORY_NAME);
}

Test(directory, ids_are_whole_numbers_everywhere_and_above_those_of_redis)
{
    static struct directory directory;

    directory_open(&directory);
    for (uint64_t client = 1; client < 1000; client++) {
        int64_t id = directory_id(&directory, client);
        cr_assert(directory_has_range(id));
        cr_assert_neq(id, directory_id(&directory, client + 1));
    }
    directory.first = DIRECTORY_END - DIRECTORY_FIRST - 1;
    cr_expect_eq(directory_id(&directory, 0), DIRECTORY_END - 1);
    cr_expect_eq(directory_id(&directory, 1), DIRECTORY_FIRST, "they go on from the beginning");
    directory_close(&directory);
}

Test(directory, finds_who_is_there)
{
    static struct directory directory;

    directory_open(&directory);
    /* Two of one bucket. */
    struct directory_entry *one = directory_add(&directory, DIRECTORY_FIRST + 7, &here, &here);
    struct directory_entry *other = directory_add(&directory, DIRECTORY_FIRST + 7 + DIRECTORY_BUCKETS, &there, &here);
    cr_expect(find(&directory, one).is_there);
    cr_expect_eq(find(&directory, one).connection, 0);
    cr_expect_eq(find(&directory, other).thread, &there);
    directory_enter(&directory, other, 12);
    cr_expect_eq(find(&directory, other).connection, 12);
    cr_expect_eq(find(&directory, one).connection, 0);
    cr_expect_not(directory_find(&directory, DIRECTORY_FIRST, DIRECTORY_NAME).is_there);
    int64_t id = one->id;
    directory_remove(&directory, one);
    cr_expect_not(directory_find(&directory, id, DIRECTORY_NAME).is_there);
    directory_remove(&directory, other);
    directory_close(&directory);
}

Test(directory, a_connection_that_was_named_is_told_of_when_it_is_left)
{
    static struct directory directory;

    directory_open(&directory);
    struct directory_entry *entry = directory_add(&directory, DIRECTORY_FIRST, &here, &here);
    (void)find(&directory, entry);
    directory_enter(&directory, entry, 12);
    cr_expect_not(directory_leave(&directory, entry), "there was none when it was named");
    directory_enter(&directory, entry, 13);
    (void)find(&directory, entry);
    cr_expect(directory_leave(&directory, entry));
    directory_enter(&directory, entry, 14);
    cr_expect_not(directory_leave(&directory, entry));
    directory_remove(&directory, entry);
    directory_close(&directory);
}

Test(directory, is_asked_to_keep_a_connection)
{
    static struct directory directory;

    directory_open(&directory);
    struct directory_entry *entry = directory_add(&directory, DIRECTORY_FIRST, &here, &here);
    directory_enter(&directory, entry, 12);
    cr_expect_not(directory_find(&directory, entry->id, DIRECTORY_KEEP).kept);
    cr_expect(atomic_load(&entry->is_asked));
    cr_expect_not(directory_ends(&directory, entry));
    cr_expect_not(directory_leave(&directory, entry), "it is named when it is kept");
    directory_enter(&directory, entry, 13);
    directory_keep(&directory, entry);
    cr_expect_not(atomic_load(&entry->is_asked));
    cr_expect(directory_find(&directory, entry->id, DIRECTORY_KEEP).kept);
    cr_expect(directory_leave(&directory, entry));
    cr_expect_not(find(&directory, entry).kept);
    directory_remove(&directory, entry);
    directory_close(&directory);
}

Test(directory, is_asked_to_end)
{
    static struct directory directory;

    directory_open(&directory);
    struct directory_entry *entry = directory_add(&directory, DIRECTORY_FIRST, &here, &here);
    directory_enter(&directory, entry, 12);
    cr_expect_eq(directory_find(&directory, entry->id, DIRECTORY_NAME_OR_END).connection, 12);
    cr_expect_not(atomic_load(&entry->is_asked));
    cr_expect(directory_leave(&directory, entry));
    (void)directory_find(&directory, entry->id, DIRECTORY_NAME_OR_END);
    cr_expect(atomic_load(&entry->is_asked));
    cr_expect(directory_ends(&directory, entry));
    directory_keep(&directory, entry);
    cr_expect(atomic_load(&entry->is_asked), "that is not done yet");
    directory_remove(&directory, entry);
    directory_close(&directory);
}
