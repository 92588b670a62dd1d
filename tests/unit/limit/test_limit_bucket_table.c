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

/* What is remembered is but a copy of what Redis knows, so nobody has to share: a bucket is made for as long as it is
 * pinned, and found by all who ask meanwhile. */
Test(limit_bucket_table, that_is_a_full_cache_has_transient_buckets)
{
    struct limit_share *share = share_of(2);
    struct limit_member member = {.description = "per=user"};
    const struct limit_terms terms = {.rule = "api",
                                      .identity = "what api counts",
                                      .meter = window_of(5, 60 * SECOND),
                                      .buckets_max = 1,
                                      .is_cache = true};

    cr_assert(limit_bucket_table_join(share, &member, &terms));
    struct limit_bucket *tracked = pin_tracked(share, &member, "user:a");
    tracked->keep_until_us = NOW + SECOND;
    for (int round = 0; round < 3; round++) {
        struct limit_bucket *b = pin(share, &member, "user:b", NOW);
        struct limit_bucket *c = pin(share, &member, "user:c", NOW);
        cr_assert(!limit_bucket_is_tracked(b) && !limit_bucket_is_tracked(c));
        cr_assert(b != c && b != tracked && c != tracked);
        cr_assert(b->length == 6 && memcmp(b->name, "user:b", 6) == 0);
        cr_assert_eq(pin(share, &member, "user:b", NOW), b);
        cr_assert_eq(limit_share_tracked(share), 1, "they take no room");
        limit_bucket_unpin(share, b);
        cr_assert_eq(b->refused, 0, "what one of them remembered is gone with it");
        b->refused = 7;
        cr_assert_eq(pin(share, &member, "user:b", NOW), b);
        cr_assert_eq(b->refused, 7);
        limit_bucket_unpin(share, b);
        limit_bucket_unpin(share, c);
        limit_bucket_unpin(share, b);
    }

    /* One that is idle and pinned is revoked where all are looked through for room; it is gone with the last pin, too.
     */
    struct limit_bucket *idle = pin(share, &member, "user:idle", NOW + SECOND / 2);
    struct limit_bucket *next = pin(share, &member, "user:next", NOW + SECOND);
    cr_assert(idle->revoked && !limit_bucket_is_tracked(idle));
    cr_assert(limit_bucket_is_tracked(next) && tracked->revoked);
    cr_assert_eq(limit_share_tracked(share), 1);
    limit_bucket_unpin(share, idle);
    limit_bucket_unpin(share, next);
    limit_bucket_unpin(share, tracked);
    sweep_all(share, NOW + 60 * SECOND);
    cr_assert_eq(limit_share_tracked(share), 0);
    limit_bucket_table_leave(share, &member);
    limit_share_free(share);
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

Test(limit_bucket_table, sweeping_reaches_all_of_all_bucket_tables)
{
    struct limit_share *share = share_of(3);
    struct limit_member members[3] = {0};
    const struct limit_meter meters[3] = {window_of(1, SECOND), window_of(1000, SECOND), window_of(1, 2 * SECOND)};
    const char *const names[3] = {"a", "b", "c"};
    enum { BUCKETS = 3000 };

    for (size_t i = 0; i < 3; i++) {
        members[i].description = "";
        join(share, &members[i], names[i], names[i], meters[i], BUCKETS);
        for (int j = 0; j < BUCKETS; j++) {
            char name[32];
            snprintf(name, sizeof name, "user:%d", j);
            struct limit_bucket *bucket = pin_tracked(share, &members[i], name);
            cr_assert(charge(share, &meters[i], bucket, NOW));
            limit_bucket_unpin(share, bucket);
        }
    }
    cr_assert_eq(limit_share_tracked(share), 3 * BUCKETS);
    limit_share_sweep(share, NOW + SECOND);
    size_t left = limit_share_tracked(share);
    cr_assert(left < 3 * BUCKETS && left > 3 * BUCKETS - 2 * BUCKETS / 10, "a part of them at each call: %zu", left);
    sweep_all(share, NOW + SECOND);
    cr_assert_eq(limit_share_tracked(share), BUCKETS);
    sweep_all(share, NOW + 2 * SECOND);
    cr_assert_eq(limit_share_tracked(share), 0);
    for (size_t i = 0; i < 3; i++) {
        limit_bucket_table_leave(share, &members[i]);
    }
    limit_share_free(share);
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

/* ---- members ---- */

/* As a reload does it: the new rules join before the old ones leave. */
Test(limit_bucket_table, survives_a_reload_with_its_counters)
{
    struct limit_share *share = share_of(2);
    struct limit_meter meter = window_of(5, 60 * SECOND);
    struct limit_member old[2] = {{.description = "per=user old"}, {.description = "per=user old"}};
    struct limit_member new[2] = {{.description = "per=user new"}, {.description = "per=user new"}};

    join(share, &old[0], "api", "what api counts", meter, 100);
    join(share, &old[1], "api", "what api counts", meter, 100);
    struct limit_bucket *alice = pin_tracked(share, &old[0], "user:alice");
    for (int i = 0; i < 5; i++) {
        cr_assert(charge(share, &meter, alice, NOW));
    }
    limit_bucket_unpin(share, alice);
    atomic_store(&old[0].counts[LIMIT_ADMITTED], 5);
    atomic_store(&old[1].counts[LIMIT_ADMITTED], 7);
    atomic_store(&old[1].counts[LIMIT_REFUSED], 2);
    for (size_t i = 0; i < 2; i++) {
        join(share, &new[i], "api", "what api counts", meter, 100);
        limit_bucket_table_leave(share, &old[i]);
        memset(&old[i], 0xa5, sizeof old[i]);
        atomic_store(&new[i].counts[LIMIT_DELAYED], 10 + i);
        atomic_store(&new[i].counts[LIMIT_OBSERVED], 1);
    }
    assert_printed(share, NOW, "rule=api per=user new admitted=12 refused=2 delayed=21 observed=2 tracked=1\n");
    alice = pin_tracked(share, &new[1], "user:alice");
    cr_assert_not(charge(share, &meter, alice, NOW));
    limit_bucket_unpin(share, alice);
    limit_bucket_table_leave(share, &new[0]);
    assert_printed(share, NOW, "rule=api per=user new admitted=12 refused=2 delayed=21 observed=2 tracked=1\n");
    limit_bucket_table_leave(share, &new[1]);
    assert_printed(share, NOW, "");
    cr_assert_eq(limit_share_tracked(share), 0);

    /* Once all have left, nothing is remembered. */
    struct limit_member again = {.description = "per=user"};
    join(share, &again, "api", "what api counts", meter, 100);
    assert_printed(share, NOW, "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=0\n");
    alice = pin_tracked(share, &again, "user:alice");
    cr_assert(charge(share, &meter, alice, NOW));
    limit_bucket_unpin(share, alice);
    limit_bucket_table_leave(share, &again);
    limit_share_free(share);
}
