/*
 * The registry: what is found by key, by token and by owner, and that nothing is left of what has gone.
 */
#include "lease/lease_registry.h"
#include "lease_request.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the registry ---- */

static struct lease_registry *registry_new(void)
{
    struct lease_registry *registry = lease_registry_new(1);

    cr_assert_not_null(registry);
    return registry;
}

static struct lease *add(struct lease_registry *registry, int64_t database, const char *key, const char *token)
{
    struct slice name = slice_of(key);
    struct lease *lease = lease_registry_add(registry, database, &name, 1, slice_of(token));

    cr_assert_not_null(lease);
    return lease;
}

static struct lease *find(struct lease_registry *registry, int64_t database, const char *key, const char *token)
{
    return lease_registry_find(registry, database, slice_of(key), slice_of(token));
}

Test(lease_registry, finds_by_database_key_and_token)
{
    struct lease_registry *registry = registry_new();
    struct lease *one = add(registry, 0, "job", "t1");
    struct lease *other_token = add(registry, 0, "job", "t2");
    struct lease *other_database = add(registry, 1, "job", "t1");
    struct lease *empty = add(registry, 0, "", "");

    cr_assert_eq(find(registry, 0, "job", "t1"), one);
    cr_assert_eq(find(registry, 0, "job", "t2"), other_token);
    cr_assert_eq(find(registry, 1, "job", "t1"), other_database);
    cr_assert_eq(find(registry, 0, "", ""), empty);
    cr_assert_null(find(registry, 2, "job", "t1"));
    cr_assert_null(find(registry, 0, "job", "t3"));
    cr_assert_null(find(registry, 0, "jo", "t1"));
    cr_assert_eq(lease_registry_count(registry), (size_t)4);
    lease_registry_remove(registry, one, LEASE_REASON_RELEASED);
    cr_assert_null(find(registry, 0, "job", "t1"));
    cr_assert_eq(find(registry, 0, "job", "t2"), other_token);
    lease_registry_remove(registry, other_token, LEASE_REASON_RELEASED);
    cr_assert_null(lease_registry_find_key(registry, 0, slice_of("job")));
    cr_assert_eq(lease_registry_count(registry), (size_t)2);
    /* What is left goes with it. */
    lease_registry_free(registry);
}

Test(lease_registry, takes_bytes_of_any_kind)
{
    struct lease_registry *registry = registry_new();
    char *large = malloc(LEASE_TEXT_MAX);
    struct slice key = {"a\0b", 3}, token = {large, LEASE_TEXT_MAX};

    memset(large, 0xff, LEASE_TEXT_MAX);
    struct lease *lease = lease_registry_add(registry, 0, &key, 1, token);
    memset(large, 0, LEASE_TEXT_MAX);
    cr_assert_null(lease_registry_find(registry, 0, key, token));
    memset(large, 0xff, LEASE_TEXT_MAX);
    cr_assert_eq(lease_registry_find(registry, 0, key, token), lease);
    cr_assert_null(lease_registry_find_key(registry, 0, (struct slice){"a\0c", 3}));
    lease_registry_free(registry);
    free(large);
}

Test(lease_registry, finds_a_lease_by_each_of_its_keys)
{
    const struct slice keys[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    struct lease_registry *registry = registry_new();
    struct lease *lease = lease_registry_add(registry, 0, keys, 3, slice_of("t"));
    struct lease *other = add(registry, 0, "b", "t2");

    cr_assert_eq(find(registry, 0, "a", "t"), lease);
    cr_assert_eq(find(registry, 0, "b", "t"), lease);
    cr_assert_eq(find(registry, 0, "c", "t"), lease);
    cr_assert_eq(lease_registry_count(registry), (size_t)2);
    lease_registry_remove(registry, lease, LEASE_REASON_RELEASED);
    cr_assert_null(lease_registry_find_key(registry, 0, slice_of("a")));
    cr_assert_null(find(registry, 0, "b", "t"));
    cr_assert_eq(find(registry, 0, "b", "t2"), other);
    lease_registry_free(registry);
}

Test(lease_registry, bears_a_hundred_thousand)
{
    struct lease_registry *registry = registry_new();
    char key[32];

    for (int i = 0; i < 100000; i++) {
        snprintf(key, sizeof key, "lock:%d", i);
        (void)add(registry, i % 3, key, "one-token-for-all");
    }
    for (int i = 0; i < 100000; i++) {
        snprintf(key, sizeof key, "lock:%d", i);
        struct lease *lease = find(registry, i % 3, key, "one-token-for-all");
        cr_assert_not_null(lease);
        if (i % 2 == 0) {
            lease_registry_remove(registry, lease, LEASE_REASON_RELEASED);
        }
    }
    cr_assert_eq(lease_registry_count(registry), (size_t)50000);
    lease_registry_free(registry);
}

/* ---- requests under way ---- */

Test(lease_registry, knows_who_is_being_released)
{
    static const struct {
        const char *token; /* NULL: any */
        bool releases;
        bool releasing[2]; /* t1, t2 */
        bool touched[2];
    } cases[] = {
        {"t1", true, {true, false}, {true, false}},  {"t2", true, {false, true}, {false, true}},
        {NULL, true, {true, true}, {true, true}},    {"t1", false, {false, false}, {true, false}},
        {NULL, false, {false, false}, {true, true}}, {"", true, {false, false}, {false, false}},
    };
    struct lease_registry *registry = registry_new();
    struct lease *leases[] = {add(registry, 0, "job", "t1"), add(registry, 0, "job", "t2")};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct lease_touch touch = {.releases = cases[i].releases};
        touch.token = cases[i].token != NULL ? slice_of(cases[i].token) : (struct slice){NULL, 0};
        lease_registry_touch(registry, &touch, 0, slice_of("job"));
        for (size_t n = 0; n < 2; n++) {
            cr_assert_eq(lease_registry_is_releasing(registry, leases[n]), cases[i].releasing[n], "%zu %zu", i, n);
            cr_assert_eq(lease_registry_is_touched(registry, leases[n]), cases[i].touched[n], "%zu %zu", i, n);
        }
        lease_registry_untouch(registry, &touch);
        lease_registry_untouch(registry, &touch);
        cr_assert_not(lease_registry_is_touched(registry, leases[0]));
    }
    lease_registry_free(registry);
}

Test(lease_registry, knows_of_releases_of_any_of_several_keys)
{
    const struct slice keys[] = {{"a", 1}, {"b", 1}};
    struct lease_registry *registry = registry_new();
    struct lease *lease = lease_registry_add(registry, 0, keys, 2, slice_of("t"));
    struct lease_touch touches[2] = {{.releases = true}, {.releases = true}};

    lease_registry_touch(registry, &touches[0], 0, slice_of("b"));
    lease_registry_touch(registry, &touches[1], 1, slice_of("a"));
    cr_assert(lease_registry_is_releasing(registry, lease));
    lease_registry_untouch(registry, &touches[0]);
    cr_assert_not(lease_registry_is_releasing(registry, lease), "the other is of another database");
    lease_registry_untouch(registry, &touches[1]);
    cr_assert_not(lease_registry_expects(registry, 1, slice_of("a")));
    lease_registry_free(registry);
}

Test(lease_registry, expects_a_key_as_long_as_a_request_has_to_do_with_it)
{
    struct lease_registry *registry = registry_new();
    struct lease_touch touch = {.token = {"t", 1}};

    lease_registry_touch(registry, &touch, 0, slice_of("job"));
    cr_assert(lease_registry_expects(registry, 0, slice_of("job")));
    struct lease *lease = add(registry, 0, "job", "t");
    lease_registry_untouch(registry, &touch);
    cr_assert(lease_registry_expects(registry, 0, slice_of("job")));
    lease_registry_remove(registry, lease, LEASE_REASON_RELEASED);
    cr_assert_not(lease_registry_expects(registry, 0, slice_of("job")));
    lease_registry_free(registry);
}

Test(lease_registry, knows_which_requests_a_release_has_overtaken)
{
    struct lease_registry *registry = registry_new();
    struct lease_touch asked = {.token = {"t", 1}, .sequence = 1}, other = {.token = {"u", 1}, .sequence = 1};
    struct lease_touch released = {.token = {"t", 1}, .sequence = 2, .releases = true};

    for (int i = 0; i < 2; i++) {
        (void)lease_registry_sequence(registry);
    }
    struct lease_touch again = asked;
    lease_registry_touch(registry, &asked, 0, slice_of("job"));
    lease_registry_touch(registry, &again, 0, slice_of("job"));
    lease_registry_touch(registry, &other, 0, slice_of("job"));
    lease_registry_touch(registry, &released, 0, slice_of("job"));
    lease_registry_untouch(registry, &released);
    lease_registry_note_release(registry, &released, false);
    lease_registry_untouch(registry, &asked);
    cr_assert(asked.overtaken && !asked.is_over);
    lease_registry_note_release(registry, &released, true);
    struct lease_touch later = {.token = {"t", 1}, .sequence = lease_registry_sequence(registry)};
    lease_registry_touch(registry, &later, 0, slice_of("job"));
    lease_registry_untouch(registry, &again);
    cr_assert(again.overtaken && again.is_over);
    lease_registry_untouch(registry, &other);
    lease_registry_untouch(registry, &later);
    cr_assert_not(other.overtaken || other.is_over || later.overtaken || later.is_over);
    lease_registry_free(registry);
}

/* ---- the end ---- */

Test(lease_registry, keeps_what_has_ended_until_its_script_has)
{
    struct lease_registry *registry = registry_new();
    struct lease *lease = add(registry, 0, "job", "t");

    lease->calling = true;
    lease_wheel_set(lease_registry_wheel(registry, 0), &lease->watch, 0);
    lease_registry_remove(registry, lease, LEASE_REASON_TAKEN);
    cr_assert_eq(lease->state, LEASE_ENDED);
    cr_assert_eq(lease->reason, LEASE_REASON_TAKEN);
    cr_assert_null(lease_wheel_take(lease_registry_wheel(registry, 0), 0));
    cr_assert_null(find(registry, 0, "job", "t"));
    cr_assert_eq(lease_registry_count(registry), (size_t)0);
    /* A new one of that name is another. */
    struct lease *again = add(registry, 0, "job", "t");
    cr_assert_neq(again, lease);
    lease_free_ended(lease);
    lease->calling = false;
    lease_free_ended(lease);
    lease_free_ended(again);
    cr_assert_eq(find(registry, 0, "job", "t"), again);
    lease_registry_free(registry);
}

/* ---- owners ---- */

Test(lease_registry, has_an_owner_as_long_as_it_has_connections_or_leases)
{
    struct lease_registry *registry = registry_new();
    struct lease_owner *owner = lease_registry_join(registry, slice_of("app"), 3);

    cr_assert_eq(lease_registry_join(registry, slice_of("app"), 3), owner);
    struct lease_owner *other = lease_registry_join(registry, slice_of("apps"), 4);
    cr_assert_neq(other, owner);
    lease_registry_leave(registry, other, 6);
    cr_assert_eq(owner->connections, (size_t)2);
    struct lease *lease = add(registry, 0, "job", "t");
    cr_assert_eq(lease_own(lease, owner), lease_own(lease, owner));
    lease_registry_leave(registry, owner, 7);
    cr_assert_eq(owner->gone_us, 0);
    lease_registry_leave(registry, owner, 8);
    cr_assert_eq(owner->gone_us, 8);
    cr_assert_eq(lease_registry_join(registry, slice_of("app"), 3), owner);
    cr_assert_eq(owner->gone_us, 0);
    lease_registry_leave(registry, owner, 9);
    lease_registry_remove(registry, lease, LEASE_REASON_OWNER_GONE);
    owner = lease_registry_join(registry, slice_of("app"), 3);
    cr_assert_eq(owner->connections, (size_t)1);
    cr_assert(LIST_EMPTY(&owner->shares));
    lease_registry_leave(registry, owner, 10);
    lease_registry_free(registry);
}

Test(lease_registry, gives_leases_from_owner_to_owner)
{
    struct lease_registry *registry = registry_new();
    struct lease_owner *one = lease_registry_join(registry, slice_of("one"), 3);
    struct lease_owner *two = lease_registry_join(registry, slice_of("two"), 3);
    struct lease *lease = add(registry, 0, "job", "t");

    struct lease_share *taken = lease_own(lease, one);
    cr_assert_not_null(lease_own(lease, two));
    cr_assert_eq(lease_taker(lease), one);
    lease_registry_leave(registry, one, 5);
    /* The one before has nothing any more, and is gone. */
    lease_registry_hand_over(registry, taken, two);
    cr_assert_eq(lease_taker(lease), two);
    cr_assert_eq(LIST_FIRST(&two->shares)->lease, lease);
    cr_assert_null(LIST_NEXT(LIST_FIRST(&two->shares), of_owner));
    lease_registry_leave(registry, two, 6);
    lease_registry_free(registry);
}

Test(lease_registry, does_not_note_departures_when_the_process_ends)
{
    struct lease_registry *registry = registry_new();
    struct lease_owner *owner = lease_registry_join(registry, slice_of("app"), 3);
    struct lease *lease = add(registry, 0, "job", "t");

    (void)lease_own(lease, owner);
    cr_assert_not(lease_registry_is_draining(registry));
    lease_registry_drain(registry);
    cr_assert(lease_registry_is_draining(registry));
    lease_registry_leave(registry, owner, 7);
    cr_assert_eq(owner->gone_us, 0);
    lease_registry_free(registry);
}

/* ---- scripts ---- */

Test(lease_registry, remembers_scripts_but_not_without_end)
{
    struct lease_registry *registry = registry_new();
    const struct lease_script script = {.name = "a"}, other = {.name = "b"};
    char digest[LEASE_DIGEST_LENGTH + 1];

    cr_assert_null(lease_registry_script(registry, slice_of(DIGEST_OF_NOTHING)));
    lease_registry_learn(registry, DIGEST_OF_NOTHING, &script, 1);
    lease_registry_learn(registry, DIGEST_OF_NOTHING, &script, 2);
    lease_registry_learn(registry, DIGEST_OF_NOTHING, &script, 2);
    for (int i = 0; i < 5000; i++) {
        snprintf(digest, sizeof digest, "%040d", i);
        lease_registry_learn(registry, digest, &other, 1);
    }
    cr_assert_eq(lease_registry_script(registry, slice_of(digest)), &other);
    cr_assert_null(lease_registry_script(registry, slice_of("0000000000000000000000000000000000000000")));
    cr_assert_eq(lease_registry_script(registry, slice_of(DIGEST_OF_NOTHING)), &script, "another user's");
    lease_registry_free(registry);
}
