/* Bucket tables: who has a state of its own, for how long, and who shares it; and how much memory that takes. */
#include "bucket_table_fixture.h"

#include <criterion/criterion.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* ---- buckets ---- */

/* Names are bytes: none is cut at a zero, and the longest and the empty one are names too. */
Test(limit_bucket_table, keeps_names_of_any_bytes_apart)
{
    struct one_rule *one = one_rule(2, 100);
    char longest[2][LIMIT_BUCKET_MAX];

    memset(longest, 'x', sizeof longest);
    longest[1][LIMIT_BUCKET_MAX - 1] = 'y';
    const struct slice names[] = {
        {"a\0b", 3},
        {"a\0c", 3},
        {"a", 1},
        {"a\0", 2},
        {"", 0},
        {longest[0], LIMIT_BUCKET_MAX},
        {longest[1], LIMIT_BUCKET_MAX},
        {longest[0], LIMIT_BUCKET_MAX - 1},
    };
    enum { COUNT = sizeof names / sizeof names[0] };
    struct limit_bucket *buckets[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        buckets[i] = limit_bucket_pin(one->share, one->member.bucket_table, names[i], NOW);
        cr_assert(limit_bucket_is_tracked(buckets[i]));
        cr_assert(buckets[i]->length == names[i].length &&
                  memcmp(buckets[i]->name, names[i].data, names[i].length) == 0);
    }
    cr_assert_eq(limit_share_tracked(one->share), COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        cr_assert_eq(limit_bucket_pin(one->share, one->member.bucket_table, names[i], NOW), buckets[i]);
        limit_bucket_unpin(one->share, buckets[i]);
        limit_bucket_unpin(one->share, buckets[i]);
    }
    one_rule_free(one);
}

/* ---- without room ---- */

Test(limit_bucket_table, that_is_full_has_one_bucket_for_all_others)
{
    struct one_rule *one = one_rule(2, 3);

    cr_assert(charge_once(one, "user:a", NOW));
    cr_assert(charge_once(one, "user:b", NOW));
    cr_assert(charge_once(one, "user:c", NOW));
    struct limit_bucket *others = pin(one->share, &one->member, "user:d", NOW);
    cr_assert_not(limit_bucket_is_tracked(others));
    cr_assert(others->length == 6 && memcmp(others->name, "others", 6) == 0);
    cr_assert_eq(pin(one->share, &one->member, "user:e", NOW), others);
    cr_assert_eq(limit_share_tracked(one->share), 3);
    limit_bucket_unpin(one->share, others);
    limit_bucket_unpin(one->share, others);

    /* They share what one of them would have had; those with a state of their own do not notice. */
    for (int i = 0; i < 5; i++) {
        cr_assert(charge_once(one, i % 2 == 0 ? "user:d" : "user:e", NOW));
    }
    cr_assert_not(charge_once(one, "user:d", NOW));
    cr_assert_not(charge_once(one, "user:f", NOW));
    cr_assert(charge_once(one, "user:a", NOW));

    /* When there is room again, a name gets a state of its own. */
    sweep_all(one->share, NOW + 60 * SECOND);
    cr_assert_eq(limit_share_tracked(one->share), 0);
    cr_assert(is_tracked_at(one, "user:d", NOW + 60 * SECOND));
    one_rule_free(one);
}

/* Connections that are open but idle have theirs pinned; they must not keep the room from those who come. */
Test(limit_bucket_table, that_is_full_takes_the_room_of_who_is_idle_even_if_pinned)
{
    struct one_rule *one = one_rule(2, 4);
    struct limit_bucket *idle = pin_tracked(one->share, &one->member, "user:idle");
    struct limit_bucket *busy = pin_tracked(one->share, &one->member, "user:busy");
    struct limit_bucket *queued = pin_tracked(one->share, &one->member, "user:queued");

    cr_assert(charge(one->share, &one->meter, idle, NOW - 60 * SECOND));
    cr_assert(charge(one->share, &one->meter, busy, NOW - 60 * SECOND + 1));
    queued->queued = 1;
    limit_bucket_unpin(one->share, pin_tracked(one->share, &one->member, "user:idle-and-not-pinned"));
    struct limit_bucket *fresh = pin(one->share, &one->member, "user:new", NOW);
    cr_assert(limit_bucket_is_tracked(fresh));
    cr_assert(idle->revoked && !busy->revoked && !queued->revoked && !fresh->revoked);
    cr_assert_eq(limit_share_tracked(one->share), 3);
    cr_assert(idle->length == 9 && memcmp(idle->name, "user:idle", 9) == 0, "it can be looked at until it is unpinned");

    /* Its name is another bucket from now on; what the one that was revoked does is nobody's. */
    struct limit_bucket *again = pin(one->share, &one->member, "user:idle", NOW);
    cr_assert(limit_bucket_is_tracked(again));
    cr_assert_neq(again, idle);
    cr_assert(charge(one->share, &one->meter, idle, NOW));
    cr_assert(limit_meter_is_idle(&one->meter, &again->state, NOW));
    limit_bucket_unpin(one->share, idle);
    limit_bucket_unpin(one->share, again);
    limit_bucket_unpin(one->share, fresh);
    limit_bucket_unpin(one->share, busy);
    queued->queued = 0;
    limit_bucket_unpin(one->share, queued);
    one_rule_free(one);
}

/* All of a bucket table are gone through for that, so it must not be done for each request that finds no room. */
Test(limit_bucket_table, that_is_full_looks_for_room_ten_times_a_second)
{
    struct one_rule *one = one_rule(1, 1);

    cr_assert(charge_once(one, "user:a", NOW - 60 * SECOND));
    cr_assert_not(is_tracked_at(one, "user:b", NOW - 1));
    cr_assert_not(is_tracked_at(one, "user:b", NOW + 99998), "it is idle, but that was not looked for yet");
    cr_assert(is_tracked_at(one, "user:b", NOW + 99999));
    cr_assert_eq(limit_share_tracked(one->share), 1);
    one_rule_free(one);
}

/* ---- sweeping ---- */

Test(limit_bucket_table, sweeping_drops_who_is_idle_and_not_pinned)
{
    struct one_rule *one = one_rule(2, 100);
    struct limit_bucket *pinned = pin_tracked(one->share, &one->member, "user:pinned");

    cr_assert(charge(one->share, &one->meter, pinned, NOW));
    pinned->refused = 3;
    cr_assert(charge_once(one, "user:early", NOW));
    cr_assert(charge_once(one, "user:late", NOW + 30 * SECOND));
    limit_bucket_unpin(one->share, pin_tracked(one->share, &one->member, "user:never-charged"));
    cr_assert_eq(limit_share_tracked(one->share), 4);

    sweep_all(one->share, NOW + 60 * SECOND - 1);
    cr_assert_eq(limit_share_tracked(one->share), 3, "only what was never charged is idle");
    sweep_all(one->share, NOW + 60 * SECOND);
    cr_assert_eq(limit_share_tracked(one->share), 2);
    sweep_all(one->share, NOW + 90 * SECOND);
    cr_assert_eq(limit_share_tracked(one->share), 1);
    sweep_all(one->share, NOW + 1000 * SECOND);
    cr_assert_eq(limit_share_tracked(one->share), 1);
    cr_assert_eq(pin_tracked(one->share, &one->member, "user:pinned"), pinned);
    cr_assert_null(pinned->state.window.slots, "what it remembered in vain is given back");
    cr_assert_eq(pinned->refused, 3);
    cr_assert(charge(one->share, &one->meter, pinned, NOW + 1000 * SECOND));
    limit_bucket_unpin(one->share, pinned);
    limit_bucket_unpin(one->share, pinned);
    sweep_all(one->share, NOW + 2000 * SECOND);
    cr_assert_eq(limit_share_tracked(one->share), 0);
    one_rule_free(one);
}

/* One whose state must not be forgotten is found by the next who asks, however often it was swept meanwhile. */
Test(limit_bucket_table, sweeping_forgets_nothing_that_matters)
{
    struct one_rule *one = one_rule(1, 100);

    for (int64_t now = NOW; now < NOW + 60 * SECOND; now += SECOND) {
        bool admitted = charge_once(one, "user:a", now);
        cr_assert_eq(admitted, now < NOW + 5 * SECOND);
        sweep_all(one->share, now);
    }
    cr_assert(charge_once(one, "user:a", NOW + 60 * SECOND));
    one_rule_free(one);
}

/* ---- memory ---- */

/* 0 under the address sanitizer, whose allocator does not tell. */
static size_t heap_used(void)
{
    return mallinfo2().uordblks;
}

#define MANY 100000

static void fill(struct one_rule *one, int64_t now_us, size_t *bytes_of_buckets)
{
    *bytes_of_buckets = 0;
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "ip:10.%d.%d.%d", i >> 16, i >> 8 & 255, i & 255);
        struct limit_bucket *bucket = pin_tracked(one->share, &one->member, name);
        cr_assert(charge(one->share, &one->meter, bucket, now_us));
        *bytes_of_buckets += malloc_usable_size(bucket) + malloc_usable_size(bucket->state.window.slots);
        limit_bucket_unpin(one->share, bucket);
    }
    cr_assert_eq(limit_share_tracked(one->share), MANY);
}

Test(limit_bucket_table, grows_to_a_hundred_thousand_buckets_and_back)
{
    struct one_rule *one = one_rule(1, MANY);
    size_t bytes_of_buckets, before = heap_used();

    for (int round = 0; round < 3; round++) {
        int64_t now = NOW + round * 3600 * SECOND;
        fill(one, now, &bytes_of_buckets);
        size_t with_all = heap_used() - before;
        cr_assert_not(is_tracked_at(one, "ip:10.99.0.1", now));
        cr_log_info("%zu bytes for each bucket and its state, %zu with the table\n", bytes_of_buckets / MANY,
                    with_all / MANY);
        cr_assert_leq(bytes_of_buckets / MANY, 200);
        cr_assert_leq(with_all / MANY, 256);
        /* Tables shrink as they empty, a step in each sweep. */
        for (int i = 0; i < 10; i++) {
            sweep_all(one->share, now + 3600 * SECOND);
        }
        cr_assert_eq(limit_share_tracked(one->share), 0);
        size_t left = heap_used() - before;
        cr_assert_leq(left, (size_t)64 * 1024, "%zu bytes left", left);
    }
    one_rule_free(one);
}
