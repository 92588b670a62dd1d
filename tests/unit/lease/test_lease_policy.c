/*
 * The lease policy where a scene does not do: outages, owners that have gone, the last round before the process ends,
 * and when leases of any length are renewed, and many of them.
 */
#include "lease_host.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define RULES "[lease:locks]\nkeys = *\nttl = 30s\ngrace = 2s\nwatchdog =\nowner = client\n"
#define READ_LOCK "EVALSHA 95553a6ff11176c18e71344e89d116b06fd6f753 2 "
#define RULES_OF_PROCESSES "[lease:locks]\nkeys = *\nttl = 30s\ngrace = 2s\nwatchdog =\n"

extern const struct policy lease_policy;

struct scene {
    struct fake_host *host;
    struct fake_client *client;
};

static struct scene scene_of(const char *rules)
{
    struct fake_host *host = lease_host_new(rules, 1);

    return (struct scene){host, fake_join(host, 0, "10.0.0.1", "app")};
}

/* The client has the lock "job" with the token "t1" and a lease of 30 s. */
static struct scene scene_with_lock(const char *rules)
{
    struct scene scene = scene_of(rules);

    fake_ask(scene.client, "SET job t1 NX PX 30000", "+OK\r\n");
    return scene;
}

/* ---- what is seldom ---- */

LEASE_TEST(lease_policy, times_to_live_of_any_length_are_borne)
{
    static const char *const answers[] = {"2 9223372036854775807", "1 9223372036854775807", "-3 9223372036854775807",
                                          "2 -9223372036854775807"};

    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct scene scene = scene_with_lock(RULES "max_hold = 1m\n");
        fake_ask(scene.client, "SETNX other t2", ":1\r\n");
        for (int n = 0; n < 2; n++) {
            fake_pass_until_call(scene.host, 20000);
            fake_answer(scene.host, answers[i]);
        }
        for (int n = 0; n < 1000; n++) {
            fake_pass(scene.host, 100);
            while (scene.host->calls != NULL) {
                fake_answer(scene.host, answers[i]);
            }
        }
        cr_assert_leq(scene.host->sent_count, (size_t)2002);
        lease_host_free(scene.host);
    }
}

LEASE_TEST(lease_policy, without_an_answer_it_is_tried_again_until_it_must_be_over)
{
    struct scene scene = scene_with_lock(RULES);

    scene.host->refusal = "no connection to Redis";
    fake_pass(scene.host, 29000);
    cr_assert(lease_host_lists(scene.host, "reason=\"failed\""));
    cr_assert_gt(fake_counter(scene.host, "lease_failures_total"), (uint64_t)15);
    cr_assert_leq(fake_counter(scene.host, "lease_failures_total"), (uint64_t)25);
    /* Not once for each failure. */
    cr_assert_eq(scene.host->warning_count, (size_t)1);
    fake_pass(scene.host, 2200);
    cr_assert(lease_host_lists(scene.host, NULL));
    fake_assert_counter(scene.host, "lease_lost_unreachable_total", 1);
}

/* ---- owners ---- */

/* One of its connections is kept open by a child that it has forked: what was taken by that is the child's from then
 * on, and nothing else is. */
LEASE_TEST(lease_policy, a_process_that_has_ended_leaves_what_others_have)
{
    struct fake_host *host = lease_host_new(RULES_OF_PROCESSES, 1);
    struct fake_client *client = fake_join(host, 0, "10.0.0.1", "app");
    struct fake_client *closed = fake_join(host, 0, "10.0.0.1", "app");

    host->processes_live = true;
    fake_ask(client, "SET job t1 NX PX 30000", "+OK\r\n");
    fake_ask(closed, "SET other t1 NX PX 30000", "+OK\r\n");
    fake_leave(closed);
    fake_pass(host, 2000);
    fake_assert_counter(host, "lease_owner_gone_total", 0);
    /* Another process is at the other end from now on. */
    snprintf(client->name, sizeof client->name, "child");
    host->processes_live = false;
    fake_pass(host, 4200);
    cr_assert(lease_host_lists(host, "key=job"), "but not what was taken on the connection that is closed");
    cr_assert(lease_host_lists(host, "owner=process:"), "the child is found");
    fake_assert_counter(host, "lease_owner_gone_total", 1);
    cr_assert_not_null(strstr(host->information, "owner gone, lock not renewed any more: other of process:"));
    cr_assert_eq(host->information_count, (size_t)1);
    fake_leave(client);
    fake_pass(host, 3000);
    cr_assert(lease_host_lists(host, NULL));
}

LEASE_TEST(lease_policy, who_goes_before_its_process_is_found_leaves_its_locks_to_the_connections_of_its_user)
{
    struct fake_host *host = lease_host_new(RULES_OF_PROCESSES, 2);
    struct fake_client *client = fake_join(host, 0, "10.0.0.1", "app");
    struct fake_client *idle = fake_join(host, 1, "10.0.0.1", "another");

    fake_join(host, 0, "10.0.0.2", "app");
    host->unfound = true;
    fake_ask(client, "SET job t1 NX PX 30000", "+OK\r\n");
    fake_leave(client);
    fake_pass(host, 3000);
    cr_assert(lease_host_lists(host, "owner=10.0.0.1/default/* state=held"), "longer than grace");
    fake_leave(idle);
    fake_pass(host, 1500);
    cr_assert(lease_host_lists(host, "state=ownerless"));
    idle = fake_join(host, 0, "10.0.0.1", "");
    fake_pass(host, 200);
    cr_assert(lease_host_lists(host, "state=held"), "one has come back");
    snprintf(idle->user, sizeof idle->user, "other");
    fake_rename(idle, "");
    fake_pass(host, 200);
    cr_assert(lease_host_lists(host, "state=ownerless"), "it is another user's");
    fake_assert_quiet(host, 2200);
    cr_assert(lease_host_lists(host, NULL));
    fake_assert_counter(host, "lease_owner_gone_total", 1);
}

/* What one process tells the other one, which takes over from it. */
static void take_over(struct fake_host *from, struct fake_host *to)
{
    const struct policy_twin *twin = from->policy->twin;
    struct text_stream text;

    cr_assert(text_open(&text));
    const struct slice ask[] = {slice_of("TELL"), slice_of("NEWS"), slice_of("0")};
    cr_assert_eq(twin->tell.run(from->workers[0].instance, 3, ask, text.out), POLICY_ANSWER_TEXT);
    cr_assert(text_close(&text));
    const struct slice told[] = {slice_of("HEAR"), {text.bytes + 2, text.length - 2}};
    cr_assert_eq(twin->hear.run(to->workers[0].instance, 2, told, NULL), POLICY_ANSWER_OK);
    text_free(&text);
}

/* What one was given, it does not tell of as taken. */
Test(lease_policy, another_process_goes_on_with_the_connections_of_a_user)
{
    struct fake_host *old = fake_host_new(&lease_policy, RULES_OF_PROCESSES, 1);
    struct fake_host *next = fake_host_new(&lease_policy, RULES_OF_PROCESSES, 1);
    struct fake_client *client = fake_join(old, 0, "10.0.0.1", "app");

    fake_join(next, 0, "10.0.0.1", "");
    old->unfound = true;
    fake_ask(client, "SET job t1 NX PX 30000", "+OK\r\n");
    take_over(old, next);
    fake_leave(client);
    take_over(old, next);
    cr_assert(lease_host_lists(old, "state=held"), "it may have others there");
    fake_pass(old, 200);
    take_over(old, next);
    cr_assert(lease_host_lists(old, NULL));
    fake_pass(next, 3000);
    cr_assert(lease_host_lists(next, "owner=10.0.0.1/default/* state=held"));
    fake_host_free(old);
    fake_host_free(next);
}

/* Reset with nothing behind the answer, or closed ahead of it. */
LEASE_TEST(lease_policy, what_nobody_has_heard_of_is_not_kept_by_its_process)
{
    static const struct {
        bool ends_first;
        int64_t active_ms, waits_ms;
        const char *state;
    } cases[] = {
        {false, 0, 1000, "state=ownerless"},
        {false, 500, 1000, "state=held"},
        {false, 0, 10000, "state=held"},
        {true, 0, 0, "state=ownerless"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fake_host *host = lease_host_new(RULES_OF_PROCESSES "renew = 1/2\n", 1);
        struct fake_client *client = fake_join(host, 0, "10.0.0.1", "app");

        fake_join(host, 0, "10.0.0.1", "app");
        fake_send(client, "SET job t1 NX PX 30000");
        client->view.is_broken = cases[i].ends_first;
        fake_hear(client, "+OK\r\n");
        client->view.is_broken = !cases[i].ends_first;
        client->view.active_us = host->now_us + cases[i].active_ms * MS;
        fake_pass(host, cases[i].waits_ms);
        fake_leave(client);
        cr_assert(lease_host_lists(host, cases[i].state), "%zu", i);
        lease_host_free(host);
    }
}

/* ---- the last round ---- */

static bool drain(struct fake_host *host, size_t clients)
{
    bool done = lease_policy.on_drain(host->workers[0].instance, clients);

    fake_pass(host, 100);
    return done;
}

/* Also if Redis took it later than it was asked to, or somebody else has extended it: it is to have a whole lease. */
LEASE_TEST(lease_policy, before_the_process_ends_each_lease_is_renewed_once_more)
{
    struct scene scene = scene_with_lock(RULES);

    fake_send(scene.client, "SET late t3 NX PX 30000");
    fake_pass(scene.host, 5000);
    fake_hear(scene.client, "+OK\r\n");
    fake_ask(scene.client, "SETNX other t2", ":1\r\n");
    cr_assert_not(drain(scene.host, 1));
    cr_assert_eq(scene.host->call_count, (size_t)0);
    /* It comes back elsewhere. */
    fake_leave(scene.client);
    cr_assert_not(drain(scene.host, 0));
    cr_assert_eq(scene.host->call_count, (size_t)3);
    for (int i = 0; i < 5; i++) {
        const char *text = fake_call_text(scene.host);
        bool heals = strcmp(text, "lease_heal other / t2") == 0;
        cr_assert(heals || strncmp(text, "lease_renew_string ", 19) == 0, "%s", text);
        cr_assert(heals || fake_call_number(scene.host, 2) + fake_call_number(scene.host, 3) >= 3600000);
        cr_assert_not(drain(scene.host, 0));
        fake_answer(scene.host, i < 2 ? "2 20000" : "1 30000");
    }
    cr_assert(drain(scene.host, 0));
    cr_assert_eq(scene.host->sent_count, (size_t)5);
}

LEASE_TEST(lease_policy, the_last_round_does_not_wait_for_what_fails)
{
    struct scene scene = scene_with_lock(RULES);

    scene.host->refusal = "no connection";
    fake_leave(scene.client);
    (void)drain(scene.host, 0);
    cr_assert(drain(scene.host, 0));
}

/* ---- when, and how often ---- */

/* However the looks at leases fall: ten times a second is seldom for a short one. */
LEASE_TEST(lease_policy, a_short_lease_is_renewed_by_its_third)
{
    for (int64_t offset = 0; offset < 100; offset += 7) {
        for (int64_t tick = 1; tick <= 100; tick += 9) {
            struct scene scene = scene_of(RULES);
            fake_pass(scene.host, 1000 + offset);
            int64_t taken_us = scene.host->now_us;
            fake_ask(scene.client, "SET job t1 NX PX 400", "+OK\r\n");
            fake_pass(scene.host, tick);
            fake_pass_until_call(scene.host, 400);
            cr_assert_leq(scene.host->now_us - taken_us, 134 * MS);
            cr_assert_str_eq(fake_call_text(scene.host), "lease_renew_string job / t1");
            fake_answer(scene.host, "1 400");
            lease_host_free(scene.host);
        }
    }
}

/* Returns how long after its request a permit is renewed, µs: requests went before it, it is taken so much later than a
 * look at all leases, and those are so much later than full tenths of a second. */
static int64_t permit_renewed_after(int before, int64_t phase_ms, int64_t later_ms)
{
    struct scene scene = scene_of(RULES);

    for (int request = 0; request < before; request++) {
        fake_ask(scene.client, "SETNX job t1", ":0\r\n");
    }
    fake_pass(scene.host, phase_ms);
    scene.host->now_us += later_ms * 1000;
    int64_t begin = scene.host->now_us;
    fake_send(scene.client, "MULTI");
    fake_send(scene.client, "ZREMRANGEBYSCORE sem -inf 1699999990.5");
    fake_send(scene.client, "ZADD sem 1700000000.5 t1");
    fake_send(scene.client, "ZRANK sem t1");
    fake_ask(scene.client, "EXEC", "*3\r\n:0\r\n:1\r\n:0\r\n");
    scene.host->now_us -= later_ms * 1000;
    (void)fake_pass_until_call(scene.host, 8000);
    cr_assert_str_eq(fake_call_text(scene.host), "lease_renew_zset sem / t1");
    int64_t passed = scene.host->now_us - begin;
    lease_host_free(scene.host);
    return passed;
}

/* The third of the lease that is left is for clocks that are ahead. How much sooner a permit is renewed depends on how
 * many requests went before. */
LEASE_TEST(lease_policy, a_permit_is_renewed_before_two_thirds_are_over)
{
    for (int before = 0; before < 24; before++) {
        for (int64_t phase_ms = 0; phase_ms < 100; phase_ms += 30) {
            for (int64_t later_ms = 0; later_ms < 100; later_ms += 30) {
                int64_t passed = permit_renewed_after(before, phase_ms, later_ms);
                cr_assert(passed >= 6000000 && passed <= 6666667, "after %lld us", (long long)passed);
            }
        }
    }
}

/* ---- many ---- */

LEASE_TEST(lease_policy, calls_under_way_are_bounded)
{
    struct scene scene = scene_of(RULES);
    char text[64];

    for (int i = 0; i < 20000; i++) {
        snprintf(text, sizeof text, "SET job:%d t NX PX 30000", i);
        fake_ask(scene.client, text, "+OK\r\n");
    }
    size_t before = 0, most = 0;
    for (int tick = 0; tick < 150; tick++) {
        fake_pass(scene.host, 100);
        most = most < scene.host->call_count - before ? scene.host->call_count - before : most;
        before = scene.host->call_count;
    }
    /* What is not answered for longer than a tick takes nothing from others. */
    cr_assert_eq(most, (size_t)1024);
    cr_assert_eq(before, (size_t)20000);
    while (scene.host->calls != NULL) {
        fake_answer(scene.host, "1 30000");
    }
    fake_assert_counter(scene.host, "lease_renewals_total", 20000);
    fake_assert_counter(scene.host, "lease_held", 20000);
}

LEASE_TEST(lease_policy, requests_that_max_leases_has_no_room_for_are_not_kept)
{
    static char text[62000];
    struct scene scene = scene_of(RULES "[lease]\nmax_leases = 1000\n");

    fake_send(scene.client, "MULTI");
    for (int i = 0; i < 9; i++) {
        snprintf(text, sizeof text, "SET job:%d %060000d NX PX 30000", i, 0);
        fake_send(scene.client, text);
    }
    fake_assert_counter(scene.host, "lease_unwatched_total", 5);
    fake_send(scene.client, "EXEC");
    fake_lose(scene.client);
    fake_ask(scene.client, "SET job t NX PX 30000", "+OK\r\n");
    cr_assert(lease_host_lists(scene.host, "key=job db=0"), "and there is room again");
}

LEASE_TEST(lease_policy, many_leases_of_a_key_are_looked_at_no_more_than_twice_as_often_as_they_are_renewed)
{
    static const struct {
        const char *request, *reply;
    } others[] = {{"EVAL x 1 job", ":1\r\n"}, {"PEXPIRE job 30000", ":1\r\n"}, {"RENAMENX job other", ":0\r\n"}};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct scene scene = scene_of(RULES);
        struct fake_client *other = fake_join(scene.host, 0, "10.0.0.2", "other");
        char text[200];
        for (int n = 0; n < 100; n++) {
            snprintf(text, sizeof text, READ_LOCK "job {job}:id:%d:rwlock_timeout 30000 id:%d id:%d:write", n, n, n);
            fake_ask(scene.client, text, "$-1\r\n");
        }
        for (int n = 0; n < 200; n++) {
            fake_ask(other, others[i].request, others[i].reply);
            fake_pass(scene.host, 100);
            while (scene.host->calls != NULL) {
                fake_answer(scene.host, "1 30000");
            }
        }
        cr_assert(scene.host->sent_count >= 300 && scene.host->sent_count <= 600, "%zu", scene.host->sent_count);
        lease_host_free(scene.host);
    }
}

LEASE_TEST(lease_policy, short_leases_are_looked_at_no_more_often_than_time_is_told)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.client, "SET job t1 NX PX 1", "+OK\r\n");
    for (int i = 0; i < 100; i++) {
        fake_pass(scene.host, 100);
        for (int n = 0; n < 3 && scene.host->calls != NULL; n++) {
            fake_answer(scene.host, "1 1");
        }
    }
    cr_assert_leq(scene.host->sent_count, (size_t)101);
}

LEASE_TEST(lease_policy, long_lists_and_many_ends_are_cut)
{
    struct scene scene = scene_of(RULES);
    char text[700];

    for (int i = 0; i < 1001; i++) {
        snprintf(text, sizeof text, "SET job:%0400d t NX PX 30000", i);
        fake_ask(scene.client, text, "+OK\r\n");
    }
    char *list = fake_tell(scene.host, "LEASES");
    cr_assert(strstr(list, "000...\" db=0") != NULL && strstr(list, "\n# and 1 more\n") != NULL);
    free(list);
    fake_leave(scene.client);
    fake_pass(scene.host, 3000);
    cr_assert(lease_host_lists(scene.host, NULL));
    cr_assert_eq(scene.host->information_count, (size_t)20, "lines in the log: %zu", scene.host->information_count);
}
