/*
 * The lease policy and what comes in another order than expected: Redis executes the requests of several connections in
 * an order that is not that of their replies, scripts are overtaken, and connections break.
 */
#include "lease_host.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/* So long that any renewal would be due. In ms. */
#define MINUTES 180000
#define RULES "[lease:locks]\nkeys = *\nttl = 30s\nmax_hold = 1h\ngrace = 1s\nwatchdog =\n"
#define RELEASE "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 "
#define REDISSON_LOCK "EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 "
#define REACQUIRE "EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 "

/* A host with two workers and a client of each; they are one owner. */
struct scene {
    struct fake_host *host;
    struct fake_client *a;
    struct fake_client *b;
};

static struct scene scene_of(const char *rules)
{
    struct fake_host *host = lease_host_new(rules, 2);

    return (struct scene){host, fake_join(host, 0, "10.0.0.1", "app"), fake_join(host, 1, "10.0.0.1", "app")};
}

/* The next script is a renewal of 30 s, within a lease's third. */
static void assert_renewal(struct fake_host *host, const char *text)
{
    fake_pass_until_call(host, 10000);
    cr_assert_str_eq(fake_call_text(host), text);
    cr_assert_gt(fake_call_number(host, 1), 1);
}

/* Answers until all is quiet, as Redis does that has the key of a SETNX; whether it was given a time to live. */
static bool is_healed(struct fake_host *host)
{
    bool healed = false;

    for (int i = 0; i < 50; i++) {
        fake_pass(host, 100);
        while (host->calls != NULL) {
            bool heals = strcmp(fake_call_text(host), "lease_heal job / t1") == 0;
            fake_answer(host, heals ? "1 30000" : healed ? "1 30000" : "-2 -1");
            healed = healed || heals;
        }
    }
    return healed;
}

/* ---- acquisitions ---- */

LEASE_TEST(lease_order, an_acquisition_that_a_release_overtook_is_asked_for)
{
    struct scene scene = scene_of(RULES);

    fake_send(scene.a, "SET job t1 NX PX 30000");
    fake_ask(scene.b, "DEL job", ":1\r\n");
    fake_hear(scene.a, "+OK\r\n");
    fake_assert_counter(scene.host, "lease_acquired_total", 1);
    fake_pass(scene.host, 100);
    cr_assert_eq(fake_call_number(scene.host, 1), 1);
    fake_answer(scene.host, "0 -2");
    cr_assert(lease_host_lists(scene.host, NULL));
    fake_assert_counter(scene.host, "lease_lost_gone_total", 0);
    fake_assert_counter(scene.host, "lease_released_total", 1);
    cr_assert_eq(scene.host->warning_count, (size_t)0);
}

/* Sent before over another connection, and executed nobody knows when. */
LEASE_TEST(lease_order, a_release_that_was_sent_before_the_acquisition_is_asked_for)
{
    static const struct {
        const char *answer;
        const char *state;
    } cases[] = {{"1 29900", "state=held"}, {"0 -2", NULL}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scene scene = scene_of(RULES);
        fake_ask(scene.a, "SET job t1 NX PX 30000", "+OK\r\n");
        fake_send(scene.a, RELEASE "job t1");
        fake_ask(scene.b, "SET job t1 NX PX 30000", "+OK\r\n");
        cr_assert(lease_host_lists(scene.host, "state=releasing"));
        fake_assert_quiet(scene.host, 8000);
        fake_hear(scene.a, ":1\r\n");
        fake_pass_until_call(scene.host, 1000);
        cr_assert_eq(scene.host->calls->worker, (size_t)1);
        cr_assert_eq(fake_call_number(scene.host, 1), 1);
        fake_answer(scene.host, cases[i].answer);
        cr_assert(lease_host_lists(scene.host, cases[i].state));
        fake_assert_counter(scene.host, "lease_lost_gone_total", 0);
        lease_host_free(scene.host);
    }
}

/* Nor is it known, of a lock that can be taken more than once, whether it is the hold of before. A DEL of several keys
 * proves nothing of any of them. */
LEASE_TEST(lease_order, what_was_released_and_taken_anew_may_be_held_for_max_hold_again)
{
    static const char *const cases[][2] = {{"DEL job", "state=held"}, {"DEL job other", "state=max-hold"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scene scene = scene_of("[lease:locks]\nkeys = *\nttl = 30s\nmax_hold = 40s\nwatchdog =\n");
        fake_ask(scene.a, REDISSON_LOCK "job 30000 id:1", "$-1\r\n");
        for (int tick = 0; tick < 400; tick++) {
            fake_pass(scene.host, 100);
            if (scene.host->calls != NULL) {
                fake_answer(scene.host, "1 30000");
            }
        }
        cr_assert(lease_host_lists(scene.host, "state=max-hold"));
        fake_send(scene.b, cases[i][0]);
        fake_ask(scene.a, REDISSON_LOCK "job 30000 id:1", "$-1\r\n");
        fake_hear(scene.b, ":1\r\n");
        fake_pass(scene.host, 1000);
        if (scene.host->calls != NULL) {
            fake_answer(scene.host, "1 29000");
        }
        cr_assert(lease_host_lists(scene.host, cases[i][1]), "%s", cases[i][0]);
        lease_host_free(scene.host);
    }
}

/* In Redis the DEL comes first, and removes what was there before: nobody knows but Redis. */
LEASE_TEST(lease_order, a_release_that_was_under_way_at_the_same_time_is_asked_for)
{
    static const struct {
        const char *taking;
        const char *granted;
        const char *script;
        const char *answer;
        bool goes_on;
        const char *state;
    } cases[] = {
        {"SET job t1 NX PX 30000", "+OK\r\n", "lease_renew_string job / t1", "1 29900", true, "state=held"},
        {"SET job t1 NX PX 30000", "+OK\r\n", "lease_renew_string job / t1", "0 -2", false, NULL},
        {"SETNX job t1", ":1\r\n", "lease_renew_string job / t1", "-2 -1", true, "state=unhealed"},
        {"SETNX job t1", ":1\r\n", "lease_renew_string job / t1", "0 -2", false, NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scene scene = scene_of(RULES);
        fake_send(scene.a, cases[i].taking);
        fake_ask(scene.b, "SET job t0 NX PX 30000", "+OK\r\n");
        fake_send(scene.b, "DEL job");
        fake_hear(scene.a, cases[i].granted);
        fake_hear(scene.b, ":1\r\n");
        fake_pass_until_call(scene.host, 1000);
        cr_assert_str_eq(fake_call_text(scene.host), cases[i].script);
        fake_answer(scene.host, cases[i].answer);
        cr_assert(lease_host_lists(scene.host, cases[i].goes_on ? cases[i].state : NULL));
        fake_assert_counter(scene.host, "lease_lost_gone_total", 0);
        lease_host_free(scene.host);
    }
}

/* In Redis: t1 is taken and released, and t2 was asked for first: it is not known who has it, until Redis says so. */
LEASE_TEST(lease_order, who_was_asking_for_a_lock_at_the_same_time_may_have_it)
{
    static const struct {
        const char *answer;
        const char *state;
        uint64_t lost;
    } cases[] = {{"1 29900", "state=held", 0}, {"-1 29900", NULL, 1}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scene scene = scene_of(RULES);
        fake_send(scene.b, "SET job t2 NX PX 30000");
        fake_send(scene.a, "SET job t1 NX PX 30000");
        fake_send(scene.a, RELEASE "job t1");
        fake_hear(scene.b, "+OK\r\n");
        fake_hear(scene.a, "+OK\r\n");
        fake_hear(scene.a, ":1\r\n");
        cr_assert(lease_host_lists(scene.host, "state=checking"));
        fake_pass_until_call(scene.host, 1000);
        cr_assert_str_eq(fake_call_text(scene.host), "lease_renew_string job / t2");
        fake_answer(scene.host, cases[i].answer);
        cr_assert(lease_host_lists(scene.host, cases[i].state));
        fake_assert_counter(scene.host, "lease_lost_taken_total", cases[i].lost);
        lease_host_free(scene.host);
    }
}

/* ---- extensions ---- */

/* As both have succeeded, Redis executed the extension first, whichever was sent first. */
LEASE_TEST(lease_order, an_extension_that_was_sent_behind_the_release_that_ended_it_is_no_acquisition)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.a, "SET job t1 NX PX 30000", "+OK\r\n");
    fake_send(scene.a, RELEASE "job t1");
    fake_send(scene.b, REACQUIRE "job t1 30000");
    fake_hear(scene.a, ":1\r\n");
    fake_hear(scene.b, ":1\r\n");
    cr_assert(lease_host_lists(scene.host, NULL));
    fake_assert_quiet(scene.host, MINUTES);
    fake_assert_counter(scene.host, "lease_acquired_total", 1);
    fake_assert_counter(scene.host, "lease_released_total", 1);
    fake_assert_counter(scene.host, "lease_lost_gone_total", 0);
}

/* The token has taken it anew: that is told by the answer to that. */
LEASE_TEST(lease_order, a_lock_that_was_taken_anew_between_its_release_and_an_extension_is_held)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.a, "SET job t1 NX PX 30000", "+OK\r\n");
    fake_send(scene.a, RELEASE "job t1");
    fake_send(scene.a, "SET job t1 NX PX 30000");
    fake_send(scene.b, REACQUIRE "job t1 30000");
    fake_hear(scene.a, ":1\r\n");
    fake_hear(scene.b, ":1\r\n");
    fake_hear(scene.a, "+OK\r\n");
    cr_assert(lease_host_lists(scene.host, "state=held"));
    assert_renewal(scene.host, "lease_renew_string job / t1");
    fake_assert_counter(scene.host, "lease_acquired_total", 2);
    fake_assert_counter(scene.host, "lease_released_total", 1);
}

/* Redis has executed both, and then the release; another has the lock now. */
LEASE_TEST(lease_order, an_extension_that_was_pipelined_and_overtaken_is_asked_for)
{
    struct scene scene = scene_of(RULES);

    fake_send(scene.a, "SET job t1 NX PX 30000");
    fake_send(scene.a, REACQUIRE "job t1 30000");
    fake_ask(scene.b, RELEASE "job t1", ":1\r\n");
    fake_hear(scene.a, "+OK\r\n");
    fake_hear(scene.a, ":1\r\n");
    cr_assert(lease_host_lists(scene.host, "state=checking"));
    fake_pass_until_call(scene.host, 1000);
    cr_assert_eq(fake_call_number(scene.host, 1), 1);
    fake_answer(scene.host, "-1 29900");
    cr_assert(lease_host_lists(scene.host, NULL));
    fake_assert_counter(scene.host, "lease_lost_taken_total", 0);
    cr_assert_eq(scene.host->warning_count, (size_t)0);
}

LEASE_TEST(lease_order, an_extension_of_the_lock_before_says_nothing_about_this_one)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.a, "SET job t1 NX PX 30000", "+OK\r\n");
    fake_send(scene.b, "SET job t1 XX PX 3000");
    fake_ask(scene.a, RELEASE "job t1", ":1\r\n");
    fake_ask(scene.a, "SET job t1 NX PX 30000", "+OK\r\n");
    fake_hear(scene.b, "+OK\r\n");
    cr_assert(lease_host_lists(scene.host, "lease=30000"));
}

LEASE_TEST(lease_order, who_extends_a_lock_that_is_not_on_file_holds_it)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.a, REACQUIRE "job t1 30000", ":0\r\n");
    cr_assert(lease_host_lists(scene.host, NULL));
    fake_ask(scene.a, REACQUIRE "job t1 30000", ":1\r\n");
    cr_assert(lease_host_lists(scene.host, "state=held"));
    assert_renewal(scene.host, "lease_renew_string job / t1");
}

LEASE_TEST(lease_order, another_lease_by_a_script_is_the_one_from_then_on)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.a, "SET job t1 NX PX 30000", "+OK\r\n");
    fake_ask(scene.b, REACQUIRE "job t1 6000", ":1\r\n");
    cr_assert(lease_host_lists(scene.host, "lease=6000 left=6000"));
    fake_pass_until_call(scene.host, 2000);
    cr_assert_eq(fake_call_number(scene.host, 1), 6000);
    fake_answer(scene.host, "1 6000");
    fake_ask(scene.a, REACQUIRE "job t1 60000", ":1\r\n");
    cr_assert(lease_host_lists(scene.host, "lease=60000 left=60000"));
}

/* ShedLock's unlock with lockAtLeastFor. */
LEASE_TEST(lease_order, that_is_shortened_by_set_xx_is_released)
{
    static const char *const unlocks[] = {"SET job t1 XX PX 3000", "SET job t2 XX PX 3000", "PEXPIRE job 200"};

    for (size_t i = 0; i < sizeof unlocks / sizeof unlocks[0]; i++) {
        struct scene scene = scene_of(RULES);
        fake_ask(scene.a, "SET job t1 NX PX 30000", "+OK\r\n");
        fake_ask(scene.a, unlocks[i], i == 2 ? ":1\r\n" : "+OK\r\n");
        cr_assert(lease_host_lists(scene.host, NULL), "%s", unlocks[i]);
        fake_assert_quiet(scene.host, MINUTES);
        lease_host_free(scene.host);
    }
}

LEASE_TEST(lease_order, set_xx_proves_nothing_of_a_lock_that_is_not_on_file)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.a, "SET job t1 XX PX 3000", "+OK\r\n");
    cr_assert(lease_host_lists(scene.host, NULL));
    fake_assert_quiet(scene.host, MINUTES);
}

LEASE_TEST(lease_order, set_xx_with_another_value_extends)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.a, "SET job t1 NX PX 30000", "+OK\r\n");
    fake_ask(scene.a, "SET job t2 XX PX 60000", "+OK\r\n");
    cr_assert(lease_host_lists(scene.host, "lease=60000"));
    fake_pass_until_call(scene.host, 20000);
    cr_assert_str_eq(fake_call_text(scene.host), "lease_renew_string job / t2");
}

/* ---- scripts ---- */

LEASE_TEST(lease_order, a_renewal_that_the_owner_overtook_says_nothing)
{
    static const char *const answers[] = {"0 -2", "-1 3000", "-3 100", "1 30000"};

    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct scene scene = scene_of(RULES);
        fake_ask(scene.a, "SET job t1 NX PX 30000", "+OK\r\n");
        assert_renewal(scene.host, "lease_renew_string job / t1");
        fake_ask(scene.a, RELEASE "job t1", ":1\r\n");
        fake_ask(scene.a, "SET job t1 NX PX 60000", "+OK\r\n");
        fake_answer(scene.host, answers[i]);
        cr_assert(lease_host_lists(scene.host, "lease=60000 left=60000"), "%s", answers[i]);
        cr_assert(lease_host_lists(scene.host, "renewals=0"), "%s", answers[i]);
        lease_host_free(scene.host);
    }
}

LEASE_TEST(lease_order, a_renewal_under_way_does_not_end_what_is_being_released)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.a, "SET job t1 NX PX 30000", "+OK\r\n");
    assert_renewal(scene.host, "lease_renew_string job / t1");
    fake_send(scene.a, RELEASE "job t1");
    fake_answer(scene.host, "0 -2");
    cr_assert(lease_host_lists(scene.host, "state=releasing"));
    fake_assert_quiet(scene.host, 9000);
    fake_hear(scene.a, ":1\r\n");
    fake_assert_counter(scene.host, "lease_released_total", 1);
    fake_assert_counter(scene.host, "lease_lost_gone_total", 0);
}

/* ---- without a time to live: never for ever ---- */

/* Whoever has chosen the same value may have set it for ever. */
LEASE_TEST(lease_order, setnx_without_an_answer_changes_nothing)
{
    struct scene scene = scene_of(RULES);

    fake_send(scene.a, "SETNX job t1");
    fake_lose(scene.a);
    fake_send(scene.b, "SETNX job t1");
    fake_leave(scene.b);
    fake_assert_quiet(scene.host, MINUTES);
}

/* Nobody knows whether Redis has heard of it. */
LEASE_TEST(lease_order, setnx_is_healed_if_its_release_was_lost_and_not_renewed)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.a, "SETNX job t1", ":1\r\n");
    fake_send(scene.a, "DEL job");
    fake_lose(scene.a);
    cr_assert(is_healed(scene.host));
    fake_assert_quiet(scene.host, MINUTES);
}

LEASE_TEST(lease_order, expire_behind_setnx_counts_whenever_it_is_answered)
{
    struct scene scene = scene_of(RULES);

    fake_send(scene.a, "SETNX job t1");
    fake_send(scene.a, "EXPIRE job 6");
    fake_hear(scene.a, ":1\r\n");
    fake_pass(scene.host, 1000);
    cr_assert_str_eq(fake_call_text(scene.host), "lease_heal job / t1");
    fake_hear(scene.a, ":1\r\n");
    fake_answer(scene.host, "2 6000");
    cr_assert(lease_host_lists(scene.host, "state=held"));
    cr_assert(lease_host_lists(scene.host, "lease=6000 left=5000"));
    fake_assert_counter(scene.host, "lease_healed_total", 0);
}

/* ---- semaphores ---- */

LEASE_TEST(lease_order, a_permit_that_is_refreshed_keeps_its_lease)
{
    struct scene scene = scene_of(RULES);
    char text[64];

    fake_ask(scene.a, "ZREMRANGEBYSCORE sem -inf 1699999990", "");
    fake_ask(scene.a, "ZADD sem 1700000000 t1", ":1\r\n");
    for (int i = 1; i <= 10; i++) {
        fake_pass(scene.host, 2000);
        snprintf(text, sizeof text, "ZADD sem %d t1", 1700000000 + 2 * i);
        fake_ask(scene.a, text, ":0\r\n");
        cr_assert(lease_host_lists(scene.host, "lease=10000 left=10000"), "%d", i);
        cr_assert_eq(scene.host->call_count, (size_t)0);
    }
}

LEASE_TEST(lease_order, a_permit_that_has_to_be_added_again_was_lost)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.a, "ZADD sem 1700000000 t1", ":1\r\n");
    cr_assert(lease_host_lists(scene.host, "lease=30000"));
    fake_ask(scene.a, "ZADD sem 1700000000 t1", ":1\r\n");
    cr_assert(lease_host_lists(scene.host, NULL));
    fake_assert_counter(scene.host, "lease_lost_gone_total", 1);
}

LEASE_TEST(lease_order, a_permit_whose_score_the_owner_has_set_goes_on_from_there)
{
    struct scene scene = scene_of(RULES);

    fake_ask(scene.a, "ZREMRANGEBYSCORE sem -inf 1699999990", "");
    fake_ask(scene.a, "ZADD sem 1700000000 t1", ":1\r\n");
    fake_pass_until_call(scene.host, 7000);
    int64_t passed_us = scene.host->now_us - FAKE_FIRST_US;
    /* 1700000001.0 as a double */
    fake_answer(scene.host, "2 -1 1104762108 1077936128");
    fake_assert_counter(scene.host, "lease_deferred_total", 1);
    char expected[64];
    snprintf(expected, sizeof expected, "left=%lld", (long long)(11000 - passed_us / 1000));
    cr_assert(lease_host_lists(scene.host, expected));
    fake_pass_until_call(scene.host, 4000);
    cr_assert_eq(fake_call_number(scene.host, 2), 1700000001.0);
}
