/* The lease policy: when leases of any length are renewed, and many of them, or much that is asked for. */
#include "lease_host.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define RULES "[lease:locks]\nkeys = *\nttl = 30s\nmax_hold = 1h\nwatchdog =\n"

#define REDISSON_READ_LOCK "EVALSHA 95553a6ff11176c18e71344e89d116b06fd6f753 2 "

/* A host with one worker and one client. */
struct scene {
    struct fake_host *host;
    struct fake_client *client;
};

static struct scene scene_of(const char *rules)
{
    struct fake_host *host = lease_host_new(rules, 1);

    return (struct scene){host, fake_join(host, 0, "10.0.0.1", "app")};
}

static void assert_call(struct fake_host *host, const char *text)
{
    cr_assert_str_eq(fake_call_text(host), text);
}

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
            assert_call(scene.host, "lease_renew_string job / t1");
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
    assert_call(scene.host, "lease_renew_zset sem / t1");
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
            snprintf(text, sizeof text, REDISSON_READ_LOCK "job {job}:id:%d:rwlock_timeout 30000 id:%d id:%d:write", n,
                     n, n);
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
