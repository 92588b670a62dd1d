/*
 * Ledgers: who has a state of its own, for how long, and who shares it; how much memory that takes; what the admin port
 * shows of it; and that threads that charge one subject together never pass its limit.
 */
#include "../../policies/limit_ledger.h"

#include <criterion/criterion.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000)
#define NOW (1000 * SECOND)
/* So many sweeps reach every part of every ledger. */
#define SWEEPS_OF_ALL 64

static struct slice slice(const char *text)
{
    return (struct slice){text, strlen(text)};
}

static struct limit_meter window_of(int64_t limit, int64_t length_us)
{
    return (struct limit_meter){
        .algorithm = LIMIT_SLIDING_WINDOW, .most = limit, .window = {.limit = limit, .length_us = length_us}};
}

static struct limit_share *share_of(size_t threads)
{
    struct limit_share *share = limit_share_new(threads);

    cr_assert_not_null(share);
    return share;
}

static void join(struct limit_share *share, struct limit_member *member, const char *rule, const char *identity,
                 struct limit_meter meter, size_t subjects_max)
{
    const struct limit_terms terms = {.rule = rule, .identity = identity, .meter = meter, .subjects_max = subjects_max};

    cr_assert(limit_ledger_join(share, member, &terms));
}

/* A share with one rule: five in a minute. */
struct one_rule {
    struct limit_share *share;
    struct limit_meter meter;
    struct limit_member member;
};

static struct one_rule *one_rule(size_t threads, size_t subjects_max)
{
    struct one_rule *one = calloc(1, sizeof *one);

    cr_assert_not_null(one);
    one->share = share_of(threads);
    one->meter = window_of(5, 60 * SECOND);
    one->member.description = "per=user";
    join(one->share, &one->member, "api", "what api counts", one->meter, subjects_max);
    return one;
}

static void one_rule_free(struct one_rule *one)
{
    limit_ledger_leave(one->share, &one->member);
    limit_share_free(one->share);
    free(one);
}

static struct limit_subject *pin(struct limit_share *share, const struct limit_member *member, const char *name,
                                 int64_t now_us)
{
    return limit_subject_pin(share, member->ledger, slice(name), now_us);
}

static struct limit_subject *pin_tracked(struct limit_share *share, const struct limit_member *member, const char *name)
{
    struct limit_subject *subject = pin(share, member, name, NOW);

    cr_assert(limit_subject_is_tracked(subject), "%s", name);
    cr_assert(subject->length == strlen(name) && memcmp(subject->name, name, subject->length) == 0);
    cr_assert_eq(subject->ledger, member->ledger);
    return subject;
}

/* Admits if it may. */
static bool charge(struct limit_share *share, const struct limit_meter *meter, struct limit_subject *subject,
                   int64_t now_us)
{
    limit_locks locks = limit_subject_locks(subject);

    limit_share_lock(share, locks);
    bool admitted = limit_meter_wait(meter, &subject->state, now_us, 1) == 0;
    if (admitted) {
        cr_assert(limit_meter_charge(meter, &subject->state, now_us, 1));
    }
    limit_share_unlock(share, locks);
    return admitted;
}

/* Pins a subject for as long as it takes to charge it. */
static bool charge_once(struct one_rule *one, const char *name, int64_t now_us)
{
    struct limit_subject *subject = pin(one->share, &one->member, name, now_us);
    bool admitted = charge(one->share, &one->meter, subject, now_us);

    limit_subject_unpin(one->share, subject);
    return admitted;
}

static bool is_tracked_at(struct one_rule *one, const char *name, int64_t now_us)
{
    struct limit_subject *subject = pin(one->share, &one->member, name, now_us);
    bool tracked = limit_subject_is_tracked(subject);

    limit_subject_unpin(one->share, subject);
    return tracked;
}

static void sweep_all(struct limit_share *share, int64_t now_us)
{
    for (int i = 0; i < SWEEPS_OF_ALL; i++) {
        limit_share_sweep(share, now_us);
    }
}

static char *printed(struct limit_share *share, int64_t now_us)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    limit_share_print(share, out, now_us);
    cr_assert_eq(fclose(out), 0);
    return text;
}

static void assert_printed(struct limit_share *share, int64_t now_us, const char *expected)
{
    char *text = printed(share, now_us);

    cr_assert_str_eq(text, expected);
    free(text);
}

/* ---- subjects ---- */

Test(limit_ledger, gives_the_same_subject_for_the_same_name)
{
    struct one_rule *one = one_rule(1, 100);
    struct limit_subject *alice = pin_tracked(one->share, &one->member, "user:alice");
    struct limit_subject *bob = pin_tracked(one->share, &one->member, "user:bob");

    cr_assert_neq(alice, bob);
    cr_assert_eq(pin_tracked(one->share, &one->member, "user:alice"), alice);
    cr_assert_eq(alice->pins, 2);
    cr_assert_eq(bob->pins, 1);
    cr_assert_eq(limit_share_tracked(one->share), 2);
    limit_subject_unpin(one->share, alice);
    limit_subject_unpin(one->share, alice);
    cr_assert_eq(alice->pins, 0);
    cr_assert_eq(pin_tracked(one->share, &one->member, "user:alice"), alice, "it stays until it is swept");
    limit_subject_unpin(one->share, alice);
    limit_subject_unpin(one->share, bob);
    one_rule_free(one);
}

/* Names are bytes: none is cut at a zero, and the longest and the empty one are names too. */
Test(limit_ledger, keeps_names_of_any_bytes_apart)
{
    struct one_rule *one = one_rule(2, 100);
    char longest[2][LIMIT_SUBJECT_MAX];

    memset(longest, 'x', sizeof longest);
    longest[1][LIMIT_SUBJECT_MAX - 1] = 'y';
    const struct slice names[] = {
        {"a\0b", 3},
        {"a\0c", 3},
        {"a", 1},
        {"a\0", 2},
        {"", 0},
        {longest[0], LIMIT_SUBJECT_MAX},
        {longest[1], LIMIT_SUBJECT_MAX},
        {longest[0], LIMIT_SUBJECT_MAX - 1},
    };
    enum { COUNT = sizeof names / sizeof names[0] };
    struct limit_subject *subjects[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        subjects[i] = limit_subject_pin(one->share, one->member.ledger, names[i], NOW);
        cr_assert(limit_subject_is_tracked(subjects[i]));
        cr_assert(subjects[i]->length == names[i].length &&
                  memcmp(subjects[i]->name, names[i].data, names[i].length) == 0);
    }
    cr_assert_eq(limit_share_tracked(one->share), COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        cr_assert_eq(limit_subject_pin(one->share, one->member.ledger, names[i], NOW), subjects[i]);
        limit_subject_unpin(one->share, subjects[i]);
        limit_subject_unpin(one->share, subjects[i]);
    }
    one_rule_free(one);
}

/* ---- without room ---- */

Test(limit_ledger, that_is_full_has_one_subject_for_all_others)
{
    struct one_rule *one = one_rule(2, 3);

    cr_assert(charge_once(one, "user:a", NOW));
    cr_assert(charge_once(one, "user:b", NOW));
    cr_assert(charge_once(one, "user:c", NOW));
    struct limit_subject *others = pin(one->share, &one->member, "user:d", NOW);
    cr_assert_not(limit_subject_is_tracked(others));
    cr_assert(others->length == 6 && memcmp(others->name, "others", 6) == 0);
    cr_assert_eq(pin(one->share, &one->member, "user:e", NOW), others);
    cr_assert_eq(limit_share_tracked(one->share), 3);
    limit_subject_unpin(one->share, others);
    limit_subject_unpin(one->share, others);

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

Test(limit_ledger, of_which_room_is_changed_by_who_joins_later)
{
    struct one_rule *one = one_rule(1, 1);
    struct limit_member wider = {.description = "per=user"};

    cr_assert(charge_once(one, "user:a", NOW));
    cr_assert_not(is_tracked_at(one, "user:b", NOW));
    join(one->share, &wider, "api", "what api counts", one->meter, 2);
    cr_assert(is_tracked_at(one, "user:b", NOW));
    cr_assert(charge_once(one, "user:b", NOW));
    cr_assert_not(is_tracked_at(one, "user:c", NOW));
    limit_ledger_leave(one->share, &wider);
    one_rule_free(one);
}

/* Connections that are open but idle have theirs pinned; they must not keep the room from those who come. */
Test(limit_ledger, that_is_full_takes_the_room_of_who_is_idle_even_if_pinned)
{
    struct one_rule *one = one_rule(2, 4);
    struct limit_subject *idle = pin_tracked(one->share, &one->member, "user:idle");
    struct limit_subject *busy = pin_tracked(one->share, &one->member, "user:busy");
    struct limit_subject *queued = pin_tracked(one->share, &one->member, "user:queued");

    cr_assert(charge(one->share, &one->meter, idle, NOW - 60 * SECOND));
    cr_assert(charge(one->share, &one->meter, busy, NOW - 60 * SECOND + 1));
    queued->queued = 1;
    limit_subject_unpin(one->share, pin_tracked(one->share, &one->member, "user:idle-and-not-pinned"));
    struct limit_subject *fresh = pin(one->share, &one->member, "user:new", NOW);
    cr_assert(limit_subject_is_tracked(fresh));
    cr_assert(idle->revoked && !busy->revoked && !queued->revoked && !fresh->revoked);
    cr_assert_eq(limit_share_tracked(one->share), 3);
    cr_assert(idle->length == 9 && memcmp(idle->name, "user:idle", 9) == 0, "it can be looked at until it is unpinned");

    /* Its name is another subject from now on; what the one that was revoked does is nobody's. */
    struct limit_subject *again = pin(one->share, &one->member, "user:idle", NOW);
    cr_assert(limit_subject_is_tracked(again));
    cr_assert_neq(again, idle);
    cr_assert(charge(one->share, &one->meter, idle, NOW));
    cr_assert(limit_meter_is_idle(&one->meter, &again->state, NOW));
    limit_subject_unpin(one->share, idle);
    limit_subject_unpin(one->share, again);
    limit_subject_unpin(one->share, fresh);
    limit_subject_unpin(one->share, busy);
    queued->queued = 0;
    limit_subject_unpin(one->share, queued);
    one_rule_free(one);
}

Test(limit_ledger, that_was_revoked_is_kept_for_all_who_have_it_pinned)
{
    struct one_rule *one = one_rule(2, 1);
    struct limit_subject *old = pin_tracked(one->share, &one->member, "user:old");

    cr_assert_eq(pin_tracked(one->share, &one->member, "user:old"), old);
    cr_assert(is_tracked_at(one, "user:new", NOW));
    cr_assert(old->revoked);
    limit_subject_unpin(one->share, old);
    cr_assert_eq(old->pins, 1);
    cr_assert(charge(one->share, &one->meter, old, NOW));
    limit_subject_unpin(one->share, old);
    cr_assert_eq(limit_share_tracked(one->share), 1);
    one_rule_free(one);
}

/* All of a ledger are gone through for that, so it must not be done for each request that finds no room. */
Test(limit_ledger, that_is_full_looks_for_room_ten_times_a_second)
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

Test(limit_ledger, sweeping_drops_who_is_idle_and_not_pinned)
{
    struct one_rule *one = one_rule(2, 100);
    struct limit_subject *pinned = pin_tracked(one->share, &one->member, "user:pinned");

    cr_assert(charge(one->share, &one->meter, pinned, NOW));
    pinned->refused = 3;
    cr_assert(charge_once(one, "user:early", NOW));
    cr_assert(charge_once(one, "user:late", NOW + 30 * SECOND));
    limit_subject_unpin(one->share, pin_tracked(one->share, &one->member, "user:never-charged"));
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
    limit_subject_unpin(one->share, pinned);
    limit_subject_unpin(one->share, pinned);
    sweep_all(one->share, NOW + 2000 * SECOND);
    cr_assert_eq(limit_share_tracked(one->share), 0);
    one_rule_free(one);
}

/* One whose state must not be forgotten is found by the next who asks, however often it was swept meanwhile. */
Test(limit_ledger, sweeping_forgets_nothing_that_matters)
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

Test(limit_ledger, sweeping_reaches_all_of_all_ledgers)
{
    struct limit_share *share = share_of(3);
    struct limit_member members[3] = {0};
    const struct limit_meter meters[3] = {window_of(1, SECOND), window_of(1000, SECOND), window_of(1, 2 * SECOND)};
    const char *const names[3] = {"a", "b", "c"};
    enum { SUBJECTS = 3000 };

    for (size_t i = 0; i < 3; i++) {
        members[i].description = "";
        join(share, &members[i], names[i], names[i], meters[i], SUBJECTS);
        for (int j = 0; j < SUBJECTS; j++) {
            char name[32];
            snprintf(name, sizeof name, "user:%d", j);
            struct limit_subject *subject = pin_tracked(share, &members[i], name);
            cr_assert(charge(share, &meters[i], subject, NOW));
            limit_subject_unpin(share, subject);
        }
    }
    cr_assert_eq(limit_share_tracked(share), 3 * SUBJECTS);
    limit_share_sweep(share, NOW + SECOND);
    size_t left = limit_share_tracked(share);
    cr_assert(left < 3 * SUBJECTS && left > 3 * SUBJECTS - 2 * SUBJECTS / 10, "a part of them at each call: %zu", left);
    sweep_all(share, NOW + SECOND);
    cr_assert_eq(limit_share_tracked(share), SUBJECTS);
    sweep_all(share, NOW + 2 * SECOND);
    cr_assert_eq(limit_share_tracked(share), 0);
    for (size_t i = 0; i < 3; i++) {
        limit_ledger_leave(share, &members[i]);
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

static void fill(struct one_rule *one, int64_t now_us, size_t *bytes_of_subjects)
{
    *bytes_of_subjects = 0;
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "ip:10.%d.%d.%d", i >> 16, i >> 8 & 255, i & 255);
        struct limit_subject *subject = pin_tracked(one->share, &one->member, name);
        cr_assert(charge(one->share, &one->meter, subject, now_us));
        *bytes_of_subjects += malloc_usable_size(subject) + malloc_usable_size(subject->state.window.slots);
        limit_subject_unpin(one->share, subject);
    }
    cr_assert_eq(limit_share_tracked(one->share), MANY);
}

Test(limit_ledger, grows_to_a_hundred_thousand_subjects_and_back)
{
    struct one_rule *one = one_rule(1, MANY);
    size_t bytes_of_subjects, before = heap_used();

    for (int round = 0; round < 3; round++) {
        int64_t now = NOW + round * 3600 * SECOND;
        fill(one, now, &bytes_of_subjects);
        size_t with_all = heap_used() - before;
        cr_assert_not(is_tracked_at(one, "ip:10.99.0.1", now));
        cr_log_info("%zu bytes for each subject and its state, %zu with the table\n", bytes_of_subjects / MANY,
                    with_all / MANY);
        cr_assert_leq(bytes_of_subjects / MANY, 200);
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

Test(limit_ledger, of_equal_identity_are_one)
{
    struct one_rule *one = one_rule(1, 100);
    struct limit_member other_worker = {.description = "per=user"}, other_rule = {.description = "per=user"};
    struct limit_subject *alice = pin_tracked(one->share, &one->member, "user:alice");

    join(one->share, &other_worker, "api", "what api counts", one->meter, 100);
    join(one->share, &other_rule, "api", "what api counts now", one->meter, 100);
    cr_assert_eq(other_worker.ledger, one->member.ledger);
    cr_assert_neq(other_rule.ledger, one->member.ledger);
    cr_assert_eq(pin_tracked(one->share, &other_worker, "user:alice"), alice);
    struct limit_subject *of_other_rule = pin_tracked(one->share, &other_rule, "user:alice");
    cr_assert_neq(of_other_rule, alice);
    for (int i = 0; i < 5; i++) {
        cr_assert(charge(one->share, &one->meter, alice, NOW));
    }
    cr_assert_not(charge(one->share, &one->meter, alice, NOW));
    cr_assert(charge(one->share, &one->meter, of_other_rule, NOW));
    limit_subject_unpin(one->share, alice);
    limit_subject_unpin(one->share, alice);
    limit_subject_unpin(one->share, of_other_rule);
    limit_ledger_leave(one->share, &other_worker);
    limit_ledger_leave(one->share, &other_rule);
    one_rule_free(one);
}

/* As a reload does it: the new rules join before the old ones leave. */
Test(limit_ledger, survives_a_reload_with_its_counters)
{
    struct limit_share *share = share_of(2);
    struct limit_meter meter = window_of(5, 60 * SECOND);
    struct limit_member old[2] = {{.description = "per=user old"}, {.description = "per=user old"}};
    struct limit_member new[2] = {{.description = "per=user new"}, {.description = "per=user new"}};

    join(share, &old[0], "api", "what api counts", meter, 100);
    join(share, &old[1], "api", "what api counts", meter, 100);
    struct limit_subject *alice = pin_tracked(share, &old[0], "user:alice");
    for (int i = 0; i < 5; i++) {
        cr_assert(charge(share, &meter, alice, NOW));
    }
    limit_subject_unpin(share, alice);
    atomic_store(&old[0].counts[LIMIT_ADMITTED], 5);
    atomic_store(&old[1].counts[LIMIT_ADMITTED], 7);
    atomic_store(&old[1].counts[LIMIT_REFUSED], 2);
    for (size_t i = 0; i < 2; i++) {
        join(share, &new[i], "api", "what api counts", meter, 100);
        limit_ledger_leave(share, &old[i]);
        memset(&old[i], 0xa5, sizeof old[i]);
        atomic_store(&new[i].counts[LIMIT_DELAYED], 10 + i);
        atomic_store(&new[i].counts[LIMIT_OBSERVED], 1);
    }
    assert_printed(share, NOW, "rule=api per=user new admitted=12 refused=2 delayed=21 observed=2 tracked=1\n");
    alice = pin_tracked(share, &new[1], "user:alice");
    cr_assert_not(charge(share, &meter, alice, NOW));
    limit_subject_unpin(share, alice);
    limit_ledger_leave(share, &new[0]);
    assert_printed(share, NOW, "rule=api per=user new admitted=12 refused=2 delayed=21 observed=2 tracked=1\n");
    limit_ledger_leave(share, &new[1]);
    assert_printed(share, NOW, "");
    cr_assert_eq(limit_share_tracked(share), 0);

    /* Once all have left, nothing is remembered. */
    struct limit_member again = {.description = "per=user"};
    join(share, &again, "api", "what api counts", meter, 100);
    assert_printed(share, NOW, "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=0\n");
    alice = pin_tracked(share, &again, "user:alice");
    cr_assert(charge(share, &meter, alice, NOW));
    limit_subject_unpin(share, alice);
    limit_ledger_leave(share, &again);
    limit_share_free(share);
}

/* ---- for the admin port ---- */

static void refuse(struct one_rule *one, const char *name, size_t length, uint64_t times)
{
    struct limit_subject *subject =
        limit_subject_pin(one->share, one->member.ledger, (struct slice){name, length}, NOW);

    while (charge(one->share, &one->meter, subject, NOW)) {
    }
    subject->refused += times;
    limit_subject_unpin(one->share, subject);
}

Test(limit_ledger, is_printed_with_those_who_were_refused_most)
{
    struct one_rule *one = one_rule(2, 14);
    char expected[2000] = "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=14\n";

    for (uint64_t i = 1; i <= 13; i++) {
        char name[32];
        snprintf(name, sizeof name, "user:%llu", (unsigned long long)i);
        /* 7 is coprime to 13: in no order. */
        refuse(one, name, strlen(name), (i * 7) % 13 * 10 + 10);
    }
    cr_assert(charge_once(one, "user:well-behaved", NOW));
    refuse(one, "user:one-too-many", 17, 95);
    for (int64_t refused = 130; refused >= 50; refused -= 10) {
        int number = 1;
        while (number * 7 % 13 * 10 + 10 != refused) {
            number++;
        }
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected),
                 "offender=user:%d rule=api refused=%lld next_admission_ms=58000\n", number, (long long)refused);
        if (refused == 100) {
            strcat(expected, "offender=others rule=api refused=95 next_admission_ms=58000\n");
        }
    }
    assert_printed(one->share, NOW + 2 * SECOND, expected);
    one_rule_free(one);
}

Test(limit_ledger, rounds_up_the_time_until_the_next_admission)
{
    struct one_rule *one = one_rule(1, 10);

    refuse(one, "user:a", 6, 1);
    assert_printed(one->share, NOW + 60 * SECOND - 1001,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n"
                   "offender=user:a rule=api refused=1 next_admission_ms=2\n");
    assert_printed(one->share, NOW + 60 * SECOND - 1000,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n"
                   "offender=user:a rule=api refused=1 next_admission_ms=1\n");
    assert_printed(one->share, NOW + 60 * SECOND,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n"
                   "offender=user:a rule=api refused=1 next_admission_ms=0\n");
    one_rule_free(one);
}

/* The name of the first offender, as it is shown. The caller frees it. */
static char *shown_offender(struct limit_share *share)
{
    char *text = printed(share, NOW);
    char *name = strstr(text, "offender="), *end = name != NULL ? strstr(name, " rule=") : NULL;

    cr_assert_not_null(end, "%s", text);
    name = strndup(name + strlen("offender="), (size_t)(end - name) - strlen("offender="));
    free(text);
    return name;
}

Test(limit_ledger, shows_names_as_operators_can_give_them_back)
{
    struct one_rule *one = one_rule(2, 100);
    static const char name[] = "user:alice\nkey:a b\\";

    refuse(one, name, sizeof name - 1, 1);
    assert_printed(one->share, NOW,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n"
                   "offender=user:alice+key:a\\x20b\\x5c rule=api refused=1 next_admission_ms=60000\n");
    cr_assert_not(charge_once(one, name, NOW));
    cr_assert(limit_share_reset(one->share, slice("api"), slice("user:alice+key:a\\x20b\\x5c"), NULL, NULL));
    cr_assert(charge_once(one, name, NOW));
    one_rule_free(one);
}

/* A key holds what its client wants it to hold. */
Test(limit_ledger, shows_names_of_any_bytes_harmlessly)
{
    char all_bytes[256], longest[LIMIT_SUBJECT_MAX];
    static const char forged[] = "key:a rule=other refused=0\r\nrule=api\0\x1b[2J%s%n\\x41\xff";
    const struct slice names[] = {
        {forged, sizeof forged - 1}, {all_bytes, sizeof all_bytes}, {longest, sizeof longest}, {"", 0}};

    for (size_t i = 0; i < sizeof all_bytes; i++) {
        all_bytes[i] = (char)i;
    }
    memset(longest, 1, sizeof longest);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct one_rule *one = one_rule(2, 100);
        refuse(one, names[i].data, names[i].length, 1);
        char *shown = shown_offender(one->share);
        for (const char *at = shown; *at != '\0'; at++) {
            cr_assert(*at > ' ' && *at < 0x7f, "%s", shown);
        }
        cr_assert(strlen(shown) >= names[i].length && strlen(shown) <= 4 * LIMIT_SUBJECT_MAX);
        char *expected = conf_format("rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n"
                                     "offender=%s rule=api refused=1 next_admission_ms=60000\n",
                                     shown);
        assert_printed(one->share, NOW, expected);
        cr_assert(limit_share_reset(one->share, slice("api"), slice(shown), NULL, NULL));
        free(expected);
        free(shown);
        one_rule_free(one);
    }
}

Test(limit_ledger, are_printed_in_the_order_in_which_they_joined)
{
    struct limit_share *share = share_of(1);
    struct limit_member members[3] = {{.description = "x=1"}, {.description = "x=2"}, {.description = "x=3"}};
    const char *const names[3] = {"zebra", "ape", "mule"};

    assert_printed(share, NOW, "");
    for (size_t i = 0; i < 3; i++) {
        join(share, &members[i], names[i], names[i], window_of(1, 1), 10);
        atomic_store(&members[i].counts[LIMIT_ADMITTED], i);
    }
    assert_printed(share, NOW,
                   "rule=zebra x=1 admitted=0 refused=0 delayed=0 observed=0 tracked=0\n"
                   "rule=ape x=2 admitted=1 refused=0 delayed=0 observed=0 tracked=0\n"
                   "rule=mule x=3 admitted=2 refused=0 delayed=0 observed=0 tracked=0\n");
    for (size_t i = 0; i < 3; i++) {
        limit_ledger_leave(share, &members[i]);
    }
    limit_share_free(share);
}

Test(limit_ledger, of_a_rule_are_reset_for_one_or_for_all)
{
    struct one_rule *one = one_rule(2, 3);
    struct limit_member other = {.description = "per=user"};

    join(one->share, &other, "api2", "api2", one->meter, 10);
    refuse(one, "user:a", 6, 1);
    refuse(one, "user:b", 6, 2);
    refuse(one, "user:c", 6, 3);
    refuse(one, "user:without-room", 17, 4);
    struct limit_subject *of_other = pin_tracked(one->share, &other, "user:a");
    while (charge(one->share, &one->meter, of_other, NOW)) {
    }

    cr_assert_not(limit_share_reset(one->share, slice("ap"), slice(""), NULL, NULL));
    cr_assert_not(limit_share_reset(one->share, slice(""), slice(""), NULL, NULL));
    cr_assert_not(limit_share_reset(one->share, slice("api"), slice("user:x"), NULL, NULL));
    cr_assert_not(limit_share_reset(one->share, slice("api"), slice("user:aa"), NULL, NULL));
    cr_assert_not(limit_share_reset(one->share, slice("api2"), slice("user:b"), NULL, NULL));
    cr_assert_not(charge_once(one, "user:a", NOW));

    cr_assert(limit_share_reset(one->share, slice("api"), slice("user:a"), NULL, NULL));
    cr_assert(charge_once(one, "user:a", NOW));
    cr_assert_not(charge_once(one, "user:b", NOW));
    assert_printed(one->share, NOW,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=3\n"
                   "offender=others rule=api refused=4 next_admission_ms=60000\n"
                   "offender=user:c rule=api refused=3 next_admission_ms=60000\n"
                   "offender=user:b rule=api refused=2 next_admission_ms=60000\n"
                   "rule=api2 per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n");
    cr_assert(limit_share_reset(one->share, slice("api"), slice("others"), NULL, NULL));
    cr_assert(charge_once(one, "user:without-room", NOW));
    cr_assert_not(charge_once(one, "user:b", NOW));

    cr_assert(limit_share_reset(one->share, slice("api"), slice(""), NULL, NULL));
    cr_assert(charge_once(one, "user:b", NOW));
    cr_assert(charge_once(one, "user:c", NOW));
    assert_printed(one->share, NOW,
                   "rule=api per=user admitted=0 refused=0 delayed=0 observed=0 tracked=3\n"
                   "rule=api2 per=user admitted=0 refused=0 delayed=0 observed=0 tracked=1\n");
    cr_assert_not(charge(one->share, &one->meter, of_other, NOW), "the other rule's is as it was");
    cr_assert(limit_share_reset(one->share, slice("api2"), slice("user:a"), NULL, NULL));
    cr_assert(charge(one->share, &one->meter, of_other, NOW));
    limit_subject_unpin(one->share, of_other);
    limit_ledger_leave(one->share, &other);
    one_rule_free(one);
}

/* ---- threads ---- */

#define THREADS 4
#define LIMIT 500
#define HOT_SUBJECTS 8

/* All at one time of the clock: so what is admitted is the limit exactly, whoever comes first. */
struct crowd {
    struct limit_share *share;
    struct limit_meter meter;
    struct limit_member members[THREADS];
    _Atomic int64_t admitted[HOT_SUBJECTS];
    int64_t counts[HOT_SUBJECTS]; /* guarded by locks of the test */
    pthread_barrier_t start;      /* so that all run at one time */
};

struct crowd_thread {
    struct crowd *crowd;
    size_t number;
    int64_t rounds;
    void (*play)(struct crowd_thread *thread, int64_t round);
    uint64_t seed;
};

static struct crowd *crowd_new(size_t subjects_max)
{
    struct crowd *crowd = calloc(1, sizeof *crowd);

    cr_assert_not_null(crowd);
    crowd->share = share_of(THREADS);
    crowd->meter = window_of(LIMIT, 3600 * SECOND);
    cr_assert_eq(pthread_barrier_init(&crowd->start, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++) {
        crowd->members[i].description = "";
        join(crowd->share, &crowd->members[i], "hot", "hot", crowd->meter, subjects_max);
    }
    return crowd;
}

static void crowd_free(struct crowd *crowd)
{
    for (size_t i = 0; i < THREADS; i++) {
        limit_ledger_leave(crowd->share, &crowd->members[i]);
    }
    pthread_barrier_destroy(&crowd->start);
    limit_share_free(crowd->share);
    free(crowd);
}

static void *run_thread(void *context)
{
    struct crowd_thread *thread = context;

    pthread_barrier_wait(&thread->crowd->start);
    for (int64_t round = 0; round < thread->rounds; round++) {
        thread->play(thread, round);
    }
    return NULL;
}

/* Each thread plays so many rounds. */
static void run_crowd(struct crowd *crowd, int64_t rounds, void (*play)(struct crowd_thread *thread, int64_t round))
{
    struct crowd_thread threads[THREADS];
    pthread_t ids[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        threads[i] = (struct crowd_thread){.crowd = crowd, .number = i, .rounds = rounds, .play = play, .seed = i};
        cr_assert_eq(pthread_create(&ids[i], NULL, run_thread, &threads[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_join(ids[i], NULL), 0);
    }
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return *seed >> 33;
}

/* Lets the others run where it hurts most: in the midst of what a lock guards. */
static void dawdle(int64_t round)
{
    if (round % 16 == 0) {
        sched_yield();
    }
}

static struct limit_subject *pin_hot(struct crowd *crowd, size_t number, uint64_t which)
{
    char name[16];

    snprintf(name, sizeof name, "user:%u", (unsigned int)which);
    return limit_subject_pin(crowd->share, crowd->members[number].ledger, slice(name), NOW);
}

/* Charges two subjects, both or none, as a request does that two rules apply to. */
static void charge_pair(struct crowd *crowd, size_t number, uint64_t first, uint64_t second, int64_t round)
{
    struct limit_subject *a = pin_hot(crowd, number, first), *b = pin_hot(crowd, number, second);
    limit_locks locks = limit_subject_locks(a) | limit_subject_locks(b);

    limit_share_lock(crowd->share, locks);
    bool admitted = limit_meter_wait(&crowd->meter, &a->state, NOW, 1) == 0 &&
                    limit_meter_wait(&crowd->meter, &b->state, NOW, 1) == 0;
    dawdle(round);
    if (admitted) {
        (void)limit_meter_charge(&crowd->meter, &a->state, NOW, 1);
        (void)limit_meter_charge(&crowd->meter, &b->state, NOW, 1);
    } else {
        a->refused++;
        b->refused++;
    }
    limit_share_unlock(crowd->share, locks);
    atomic_fetch_add(&crowd->admitted[first], admitted);
    atomic_fetch_add(&crowd->admitted[second], admitted);
    atomic_fetch_add(&crowd->members[number].counts[LIMIT_ADMITTED], admitted);
    limit_subject_unpin(crowd->share, a);
    limit_subject_unpin(crowd->share, b);
}

/* A reload, and an operator who looks. */
static void disturb(struct crowd *crowd, const char *name)
{
    struct limit_member passing = {.description = ""};

    join(crowd->share, &passing, "hot", "hot", crowd->meter, 1000);
    (void)limit_share_reset(crowd->share, slice("hot"), slice(name), NULL, NULL);
    free(printed(crowd->share, NOW));
    (void)limit_share_tracked(crowd->share);
    limit_ledger_leave(crowd->share, &passing);
}

static void play_pairs(struct crowd_thread *thread, int64_t round)
{
    struct crowd *crowd = thread->crowd;
    uint64_t first = next_random(&thread->seed) % HOT_SUBJECTS;
    uint64_t second = (first + 1 + next_random(&thread->seed) % (HOT_SUBJECTS - 1)) % HOT_SUBJECTS;

    charge_pair(crowd, thread->number, first, second, round);
    if (round % 8 == 0) {
        /* Others come and go, for tables that grow and shrink. */
        char name[32];
        snprintf(name, sizeof name, "passing:%lld", (long long)round);
        limit_subject_unpin(crowd->share,
                            limit_subject_pin(crowd->share, crowd->members[thread->number].ledger, slice(name), NOW));
        limit_share_sweep(crowd->share, NOW);
        if (round % 64 == 0) {
            disturb(crowd, name);
        }
    }
}

Test(limit_ledger, never_admits_more_to_threads_that_come_together, .timeout = 100)
{
    struct crowd *crowd = crowd_new(1000);
    int64_t admitted = 0, total = 0;
    size_t full = 0;

    run_crowd(crowd, 5000, play_pairs);
    for (size_t i = 0; i < HOT_SUBJECTS; i++) {
        struct limit_subject *subject = pin_hot(crowd, 0, i);
        cr_assert_eq(subject->pins, 1, "all were given back");
        cr_assert_leq(crowd->admitted[i], LIMIT);
        cr_assert_eq(subject->state.window.count, crowd->admitted[i]);
        full += crowd->admitted[i] == LIMIT;
        admitted += crowd->admitted[i];
        limit_subject_unpin(crowd->share, subject);
    }
    for (size_t i = 0; i < THREADS; i++) {
        total += (int64_t)crowd->members[i].counts[LIMIT_ADMITTED];
    }
    cr_assert_eq(admitted, 2 * total, "both or none");
    cr_assert_geq(full, HOT_SUBJECTS - 1, "of two with room, a pair is found in time");
    sweep_all(crowd->share, NOW + 3600 * SECOND);
    cr_assert_eq(limit_share_tracked(crowd->share), 0);
    crowd_free(crowd);
}

/* Pins and locks it, as a policy has to: one that was revoked meanwhile is looked for anew. */
static struct limit_subject *lock_named(struct crowd *crowd, size_t number, const char *name, int64_t now_us)
{
    for (;;) {
        struct limit_subject *subject =
            limit_subject_pin(crowd->share, crowd->members[number].ledger, slice(name), now_us);
        limit_share_lock(crowd->share, limit_subject_locks(subject));
        if (!subject->revoked) {
            return subject;
        }
        limit_share_unlock(crowd->share, limit_subject_locks(subject));
        limit_subject_unpin(crowd->share, subject);
    }
}

/* With hardly any room, and subjects that lose theirs as long as they are idle. */
static void play_without_room(struct crowd_thread *thread, int64_t round)
{
    struct crowd *crowd = thread->crowd;
    char name[32];

    /* Time goes on fast enough to look for room each time, and slowly enough for the window. */
    snprintf(name, sizeof name, "user:%lld", (long long)(round % 50));
    struct limit_subject *subject = lock_named(crowd, thread->number, name, NOW + round * 100000);
    bool admitted = limit_meter_wait(&crowd->meter, &subject->state, NOW, 1) == 0;
    dawdle(round);
    if (admitted) {
        (void)limit_meter_charge(&crowd->meter, &subject->state, NOW, 1);
    }
    limit_share_unlock(crowd->share, limit_subject_locks(subject));
    atomic_fetch_add(&crowd->admitted[limit_subject_is_tracked(subject)], admitted);
    limit_subject_unpin(crowd->share, subject);
    limit_share_sweep(crowd->share, NOW);
}

Test(limit_ledger, never_tracks_more_than_told_with_threads_that_come_together, .timeout = 100)
{
    enum { ROOM = 10 };
    struct crowd *crowd = crowd_new(ROOM);

    run_crowd(crowd, 20000, play_without_room);
    cr_assert_eq(limit_share_tracked(crowd->share), ROOM);
    cr_assert_eq(crowd->admitted[false], LIMIT, "all others share it");
    cr_assert_eq(crowd->admitted[true], ROOM * LIMIT);
    crowd_free(crowd);
}

/* Any of them, and now and then all. */
static limit_locks some_locks(uint64_t *seed, int64_t round)
{
    limit_locks locks = next_random(seed) << 32 ^ next_random(seed) << 1;

    return round % 100 == 0 ? UINT64_MAX : locks;
}

static bool has_lock(limit_locks locks, size_t count)
{
    return (locks >> (count * 8) & 1) != 0;
}

static void play_locks(struct crowd_thread *thread, int64_t round)
{
    struct crowd *crowd = thread->crowd;
    limit_locks locks = some_locks(&thread->seed, round);
    int64_t seen[HOT_SUBJECTS];

    limit_share_lock(crowd->share, locks);
    for (size_t i = 0; i < HOT_SUBJECTS; i++) {
        seen[i] = has_lock(locks, i) ? crowd->counts[i] : 0;
    }
    dawdle(round);
    for (size_t i = 0; i < HOT_SUBJECTS; i++) {
        if (has_lock(locks, i)) {
            crowd->counts[i] = seen[i] + 1;
        }
    }
    limit_share_unlock(crowd->share, locks);
}

/* In any order, and all at once: whoever takes several does not wait for one who waits for him. */
Test(limit_ledger, several_are_locked_together, .timeout = 100)
{
    struct crowd *crowd = crowd_new(1);
    enum { ROUNDS = 5000 };
    int64_t expected[HOT_SUBJECTS] = {0};

    for (uint64_t number = 0; number < THREADS; number++) {
        uint64_t seed = number;
        for (int64_t round = 0; round < ROUNDS; round++) {
            limit_locks locks = some_locks(&seed, round);
            for (size_t i = 0; i < HOT_SUBJECTS; i++) {
                expected[i] += has_lock(locks, i);
            }
        }
    }
    run_crowd(crowd, ROUNDS, play_locks);
    for (size_t i = 0; i < HOT_SUBJECTS; i++) {
        cr_assert_eq(crowd->counts[i], expected[i], "lock %zu", i * 8);
    }
    crowd_free(crowd);
}

Test(limit_ledger, of_one_worker_are_not_locked)
{
    struct limit_share *share = share_of(1);

    limit_share_lock(share, UINT64_MAX);
    limit_share_lock(share, UINT64_MAX);
    limit_share_unlock(share, UINT64_MAX);
    limit_share_free(share);
}
