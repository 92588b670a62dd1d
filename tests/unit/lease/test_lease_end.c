/*
 * How the watch over a lease goes on and ends: what scripts say, who has gone, how long is long enough, the last round
 * before the process ends, other rules, and what the admin port says of it all.
 */
#include "lease_stage.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define RULES "[lease:locks]\nkeys = *\nttl = 30s\ngrace = 2s\nwatchdog =\nowner = client\n"
#define RULES_OF_PROCESSES "[lease:locks]\nkeys = *\nttl = 30s\ngrace = 2s\nwatchdog =\n"
#define RELEASE "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 "
#define REACQUIRE "EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 "
#define REDISSON_LOCK "EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 "
#define MUTEX_REFRESH "EVALSHA 594683e49a64ebaf975caf5f8079a1d097c438f1 1 "

extern const struct policy lease_policy;

/* The client has the lock "job" with the token "t1" and a lease of 30 s. */
struct scene {
    struct stage *stage;
    struct stage_client *client;
};

static struct scene scene_of(const char *rules)
{
    struct stage *stage = stage_new(rules, 1);
    struct scene scene = {stage, stage_join(stage, 0, "10.0.0.1", "app")};

    stage_ask(scene.client, "SET job t1 NX PX 30000", "+OK\r\n");
    return scene;
}

static void assert_call(struct stage *stage, const char *text)
{
    stage_pass_until_call(stage, 20000);
    cr_assert_str_eq(stage_call_text(stage), text);
}

/* ---- what renewals find ---- */

Test(lease_end, what_a_renewal_finds_ends_the_watch)
{
    static const struct {
        const char *answer;
        const char *counter;
        const char *warning;
        const char *happening;
    } cases[] = {
        {"0 -2", "lease_lost_gone_total", "lock lost (gone): job of 10.0.0.1/default/app, held for ",
         "lease:locks gone"},
        {"-1 5000", "lease_lost_taken_total", "lock lost (taken by another): job of ", "lease:locks taken by another"},
        {"-2 -1", "lease_lost_persisted_total", "lock lost (made persistent): job of ", "lease:locks made persistent"},
        {"-3 100", "lease_lost_shortened_total", "lock lost (shortened): job of ", "lease:locks shortened"},
        {"-4 -1", "lease_lost_type_total", "lock lost (of another type): job of ", "lease:locks of another type"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scene scene = scene_of(RULES);
        cr_assert_str_eq(scene.stage->happening, "lease:locks string");
        assert_call(scene.stage, "lease_renew_string job / t1");
        stage_answer(scene.stage, cases[i].answer);
        cr_assert_str_eq(scene.stage->happening, cases[i].happening);
        cr_assert(stage_lists(scene.stage, NULL));
        stage_assert_counter(scene.stage, cases[i].counter, 1);
        cr_assert_eq(strncmp(scene.stage->warning, cases[i].warning, strlen(cases[i].warning)), 0, "%s",
                     scene.stage->warning);
        stage_assert_quiet(scene.stage, 60000);
        stage_free(scene.stage);
    }
}

Test(lease_end, an_owner_that_renews_is_left_to_itself)
{
    struct scene scene = scene_of(RULES);

    assert_call(scene.stage, "lease_renew_string job / t1");
    stage_answer(scene.stage, "2 60000");
    cr_assert(stage_lists(scene.stage, "lease=30000 left=60000"));
    cr_assert(stage_lists(scene.stage, "renewals=0 deferred=1 failures=0 reason=\"deferred\""));
    stage_assert_quiet(scene.stage, 38000);
    assert_call(scene.stage, "lease_renew_string job / t1");
    stage_free(scene.stage);
}

Test(lease_end, a_time_to_live_that_is_only_late_is_not_shortened)
{
    struct scene scene = scene_of(RULES);

    assert_call(scene.stage, "lease_renew_string job / t1");
    /* The script waited for five seconds. */
    int64_t left = (int64_t)stage_call_number(scene.stage, 2) - 5000;
    stage_pass(scene.stage, 5000);
    stage_answer_with(scene.stage, (int64_t[]){-3, left}, 2);
    cr_assert(stage_lists(scene.stage, "state=held"));
    assert_call(scene.stage, "lease_renew_string job / t1");
    cr_assert_leq(stage_call_number(scene.stage, 2), (double)left);
    stage_free(scene.stage);
}

Test(lease_end, times_to_live_of_any_length_are_borne)
{
    static const char *const answers[] = {"2 9223372036854775807", "1 9223372036854775807", "-3 9223372036854775807",
                                          "2 -9223372036854775807"};

    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct scene scene = scene_of(RULES "max_hold = 1m\n");
        stage_ask(scene.client, "SETNX other t2", ":1\r\n");
        for (int n = 0; n < 2; n++) {
            stage_pass_until_call(scene.stage, 20000);
            stage_answer(scene.stage, answers[i]);
        }
        for (int n = 0; n < 1000; n++) {
            stage_pass(scene.stage, 100);
            while (scene.stage->calls != NULL) {
                stage_answer(scene.stage, answers[i]);
            }
        }
        cr_assert_leq(scene.stage->sent_count, (size_t)2002);
        stage_free(scene.stage);
    }
}

Test(lease_end, without_an_answer_it_is_tried_again_until_it_must_be_over)
{
    struct scene scene = scene_of(RULES);

    scene.stage->refusal = "no connection to Redis";
    stage_pass(scene.stage, 29000);
    cr_assert(stage_lists(scene.stage, "reason=\"failed\""));
    cr_assert_gt(stage_counter(scene.stage, "lease_failures_total"), (uint64_t)15);
    cr_assert_leq(stage_counter(scene.stage, "lease_failures_total"), (uint64_t)25);
    /* Not once for each failure. */
    cr_assert_eq(scene.stage->warning_count, (size_t)1);
    stage_pass(scene.stage, 2200);
    cr_assert(stage_lists(scene.stage, NULL));
    stage_assert_counter(scene.stage, "lease_lost_unreachable_total", 1);
    stage_free(scene.stage);
}

Test(lease_end, renewals_go_on_when_redis_is_back)
{
    struct scene scene = scene_of(RULES);

    scene.stage->refusal = "no connection to Redis";
    stage_pass(scene.stage, 20000);
    scene.stage->refusal = NULL;
    cr_assert_leq(stage_pass_until_call(scene.stage, 2000), 1100);
    stage_fail(scene.stage, "ERR");
    stage_pass_until_call(scene.stage, 2000);
    stage_answer(scene.stage, "1 30000");
    cr_assert(stage_lists(scene.stage, "left=30000"));
    stage_free(scene.stage);
}

Test(lease_end, answers_that_make_no_sense_are_failures)
{
    static const char *const answers[] = {"", "1", "7 30000", "-5 1"};
    struct scene scene = scene_of(RULES);

    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        stage_pass_until_call(scene.stage, 20000);
        stage_answer(scene.stage, answers[i]);
        stage_assert_counter(scene.stage, "lease_failures_total", i + 1);
    }
    cr_assert(stage_lists(scene.stage, "state=held"));
    stage_free(scene.stage);
}

/* ---- max_hold ---- */

Test(lease_end, nothing_is_renewed_beyond_max_hold)
{
    struct scene scene = scene_of(RULES "max_hold = 40s\n");
    int64_t deadline_us = STAGE_FIRST_US + 40000 * MS;

    while (scene.stage->now_us + 37 * MS < deadline_us) {
        stage_pass(scene.stage, 37);
        if (scene.stage->calls != NULL) {
            int64_t lease_us = (int64_t)stage_call_number(scene.stage, 1) * MS;
            cr_assert_leq(scene.stage->now_us + lease_us, deadline_us);
            stage_answer_with(scene.stage, (int64_t[]){1, lease_us / MS}, 2);
        }
    }
    cr_assert_leq(stage_counter(scene.stage, "lease_renewals_total"), (uint64_t)4);
    stage_pass(scene.stage, 200);
    stage_assert_counter(scene.stage, "lease_max_hold_total", 1);
    assert_call(scene.stage, "lease_renew_string job / t1");
    cr_assert_eq(stage_call_number(scene.stage, 1), 1, "it is looked for, and not renewed");
    stage_answer(scene.stage, "0 -2");
    cr_assert(stage_lists(scene.stage, NULL));
    /* That was to be expected. */
    stage_assert_counter(scene.stage, "lease_lost_gone_total", 0);
    stage_free(scene.stage);
}

Test(lease_end, an_extension_does_not_bring_back_what_was_held_too_long)
{
    struct scene scene = scene_of(RULES "max_hold = 10s\n");

    stage_pass(scene.stage, 11000);
    cr_assert(stage_lists(scene.stage, "state=max-hold"));
    stage_ask(scene.client, REACQUIRE "job t1 30000", ":1\r\n");
    stage_ask(scene.client, "PEXPIRE job 60000", ":1\r\n");
    cr_assert(stage_lists(scene.stage, "state=max-hold"));
    stage_assert_quiet(scene.stage, 59000);
    stage_ask(scene.client, RELEASE "job t1", ":1\r\n");
    stage_ask(scene.client, "SET job t1 NX PX 30000", "+OK\r\n");
    cr_assert(stage_lists(scene.stage, "state=held"));
    stage_free(scene.stage);
}

Test(lease_end, taking_a_hash_lock_once_more_does_not_prolong_max_hold)
{
    struct stage *stage = stage_new(RULES "max_hold = 10s\n", 1);
    struct stage_client *client = stage_join(stage, 0, "10.0.0.1", "app");

    for (int i = 0; i < 12; i++) {
        stage_ask(client, REDISSON_LOCK "job 6000 id:1", "$-1\r\n");
        stage_pass(stage, 1000);
        while (stage->calls != NULL) {
            stage_answer(stage, "1 6000");
        }
    }
    cr_assert(stage_lists(stage, "state=max-hold"));
    stage_assert_counter(stage, "lease_max_hold_total", 1);
    stage_free(stage);
}

/* ---- owners ---- */

Test(lease_end, without_its_owner_it_is_not_renewed)
{
    struct scene scene = scene_of(RULES);

    stage_pass(scene.stage, 5000);
    stage_leave(scene.client);
    cr_assert(stage_lists(scene.stage, "state=ownerless"));
    stage_assert_quiet(scene.stage, 1900);
    cr_assert(stage_lists(scene.stage, "state=ownerless"));
    stage_assert_quiet(scene.stage, 300);
    cr_assert(stage_lists(scene.stage, NULL));
    stage_assert_counter(scene.stage, "lease_owner_gone_total", 1);
    stage_assert_quiet(scene.stage, 60000);
    stage_free(scene.stage);
}

Test(lease_end, an_owner_that_comes_back_in_time_goes_on)
{
    struct scene scene = scene_of(RULES);

    stage_pass(scene.stage, 8000);
    stage_leave(scene.client);
    stage_assert_quiet(scene.stage, 1900);
    stage_join(scene.stage, 0, "10.0.0.1", "other");
    cr_assert(stage_lists(scene.stage, "state=ownerless"));
    stage_join(scene.stage, 0, "10.0.0.1", "app");
    cr_assert(stage_lists(scene.stage, "state=held"));
    cr_assert_leq(stage_pass_until_call(scene.stage, 2000), 200);
    stage_free(scene.stage);
}

Test(lease_end, an_owner_that_comes_back_is_not_kept_waiting_for_grace)
{
    struct scene scene = scene_of("[lease:locks]\nkeys = *\ngrace = 60s\nowner = client\n");

    stage_pass(scene.stage, 8000);
    stage_leave(scene.client);
    stage_pass(scene.stage, 4000);
    stage_join(scene.stage, 0, "10.0.0.1", "app");
    cr_assert_leq(stage_pass_until_call(scene.stage, 2000), 200);
    stage_free(scene.stage);
}

Test(lease_end, any_connection_of_its_owner_keeps_it)
{
    struct scene scene = scene_of(RULES);

    stage_join(scene.stage, 0, "10.0.0.1", "app");
    stage_leave(scene.client);
    cr_assert(stage_lists(scene.stage, "state=held"));
    assert_call(scene.stage, "lease_renew_string job / t1");
    stage_free(scene.stage);
}

Test(lease_end, with_owner_connection_only_the_one_that_took_it_counts)
{
    struct scene scene = scene_of(RULES_OF_PROCESSES "owner = connection\n");

    stage_join(scene.stage, 0, "10.0.0.1", "app");
    stage_leave(scene.client);
    cr_assert(stage_lists(scene.stage, "state=ownerless"));
    stage_assert_quiet(scene.stage, 2200);
    cr_assert(stage_lists(scene.stage, NULL));
    stage_free(scene.stage);
}

Test(lease_end, a_process_goes_on_with_a_connection_on_another_worker)
{
    struct stage *stage = stage_new(RULES_OF_PROCESSES, 2);
    struct stage_client *client = stage_join(stage, 0, "10.0.0.1", "app");
    struct stage_client *idle = stage_join(stage, 1, "10.0.0.1", "app");

    stage_join(stage, 0, "10.0.0.1", "other");
    stage_join(stage, 1, "10.0.0.1", "other");
    stage_ask(client, "SET job t1 NX PX 30000", "+OK\r\n");
    stage_leave(client);
    cr_assert(stage_lists(stage, "state=held"));
    stage_pass(stage, 5000);
    cr_assert(stage_lists(stage, "state=held"), "longer than grace");
    stage_leave(idle);
    cr_assert(stage_lists(stage, "state=ownerless"), "it has ended");
    stage_assert_quiet(stage, 2200);
    cr_assert(stage_lists(stage, NULL));
    stage_assert_counter(stage, "lease_owner_gone_total", 1);
    stage_free(stage);
}

Test(lease_end, a_process_that_lives_without_connections_is_waited_for)
{
    struct stage *stage = stage_new(RULES_OF_PROCESSES, 2);
    struct stage_client *client = stage_join(stage, 0, "10.0.0.1", "app");

    stage->processes_live = true;
    stage_join(stage, 1, "10.0.0.1", "other");
    stage_ask(client, "SET job t1 NX PX 30000", "+OK\r\n");
    stage_leave(client);
    cr_assert(stage_lists(stage, "state=held"), "until all workers have looked for another one");
    stage_pass(stage, 200);
    cr_assert(stage_lists(stage, "state=ownerless"));
    stage_pass(stage, 1500);
    client = stage_join(stage, 1, "10.0.0.1", "app");
    stage_pass(stage, 200);
    cr_assert(stage_lists(stage, "state=held"), "it has come back");
    stage_leave(client);
    stage_pass(stage, 2500);
    cr_assert(stage_lists(stage, NULL));
    stage_free(stage);
}

/* One of its connections is kept open by a child that it has forked: what was taken by that is the child's from then
 * on, and nothing else is. */
Test(lease_end, a_process_that_has_ended_leaves_what_others_have)
{
    struct stage *stage = stage_new(RULES_OF_PROCESSES, 1);
    struct stage_client *client = stage_join(stage, 0, "10.0.0.1", "app");
    struct stage_client *closed = stage_join(stage, 0, "10.0.0.1", "app");

    stage->processes_live = true;
    stage_ask(client, "SET job t1 NX PX 30000", "+OK\r\n");
    stage_ask(closed, "SET other t1 NX PX 30000", "+OK\r\n");
    stage_leave(closed);
    stage_pass(stage, 2000);
    stage_assert_counter(stage, "lease_owner_gone_total", 0);
    /* Another process is at the other end from now on. */
    snprintf(client->name, sizeof client->name, "child");
    stage->processes_live = false;
    stage_pass(stage, 4200);
    cr_assert(stage_lists(stage, "key=job"), "but not what was taken on the connection that is closed");
    cr_assert(stage_lists(stage, "owner=process:"), "the child is found");
    stage_assert_counter(stage, "lease_owner_gone_total", 1);
    cr_assert_not_null(strstr(stage->information, "owner gone, lock not renewed any more: other of process:"));
    cr_assert_eq(stage->information_count, (size_t)1);
    stage_leave(client);
    stage_pass(stage, 3000);
    cr_assert(stage_lists(stage, NULL));
    stage_free(stage);
}

/* Many that end at once do not fill the log. */
Test(lease_end, ends_of_owners_are_logged_up_to_a_number)
{
    struct stage *stage = stage_new(RULES_OF_PROCESSES, 1);
    struct stage_client *client = stage_join(stage, 0, "10.0.0.1", "app");

    for (int i = 0; i < 100; i++) {
        char request[64];
        snprintf(request, sizeof request, "SET job%d t1 NX PX 30000", i);
        stage_ask(client, request, "+OK\r\n");
    }
    stage_leave(client);
    stage_pass(stage, 3000);
    cr_assert(stage_lists(stage, NULL));
    cr_assert_eq(stage->information_count, (size_t)20);
    stage_free(stage);
}

Test(lease_end, a_process_that_cannot_be_told_is_its_connection)
{
    struct stage *stage = stage_new(RULES_OF_PROCESSES, 1);
    struct stage_client *client = stage_join(stage, 0, "10.0.0.1", "app");

    stage->untold = true;
    stage_join(stage, 0, "10.0.0.1", "app");
    stage_ask(client, "SET job t1 NX PX 30000", "+OK\r\n");
    stage_ask(client, "SET other t1 NX PX 30000", "+OK\r\n");
    cr_assert_not_null(strstr(stage->warning, "cannot be told (it hides): its connection counts"));
    cr_assert_eq(stage->warning_count, (size_t)1);
    stage_leave(client);
    stage_pass(stage, 2200);
    cr_assert(stage_lists(stage, NULL));
    stage_free(stage);
}

Test(lease_end, what_a_connection_took_goes_with_its_name)
{
    struct scene scene = scene_of(RULES);
    struct stage_client *other = stage_join(scene.stage, 0, "10.0.0.1", "app");

    stage_rename(scene.client, "job-17");
    cr_assert(stage_lists(scene.stage, "owner=10.0.0.1/default/job-17 state=held"));
    stage_leave(other);
    cr_assert(stage_lists(scene.stage, "state=held"));
    stage_leave(scene.client);
    cr_assert(stage_lists(scene.stage, "state=ownerless"));
    stage_free(scene.stage);
}

Test(lease_end, the_lock_of_an_owner_that_is_gone_can_be_released)
{
    struct scene scene = scene_of(RULES "on_owner_gone = release\n");

    stage_leave(scene.client);
    stage_assert_quiet(scene.stage, 1900);
    cr_assert_leq(stage_pass_until_call(scene.stage, 1000), 300);
    cr_assert_geq(scene.stage->now_us, STAGE_FIRST_US + 2000 * MS, "grace has not passed");
    cr_assert_str_eq(stage_call_text(scene.stage), "lease_release job / t1");
    stage_fail(scene.stage, "ERR");
    stage_pass_until_call(scene.stage, 2000);
    cr_assert_str_eq(stage_call_text(scene.stage), "lease_release job / t1");
    stage_answer(scene.stage, "1");
    cr_assert(stage_lists(scene.stage, NULL));
    stage_assert_counter(scene.stage, "lease_owner_gone_total", 1);
    stage_free(scene.stage);
}

Test(lease_end, what_was_to_be_tried_again_is_not_released_within_grace)
{
    struct scene scene = scene_of(RULES "on_owner_gone = release\n");

    assert_call(scene.stage, "lease_renew_string job / t1");
    stage_fail(scene.stage, "connection lost");
    stage_leave(scene.client);
    int64_t gone_us = scene.stage->now_us;
    stage_assert_quiet(scene.stage, 1900);
    cr_assert_leq(stage_pass_until_call(scene.stage, 1000), 300);
    cr_assert_geq(scene.stage->now_us, gone_us + 2000 * MS, "grace has not passed");
    cr_assert_str_eq(stage_call_text(scene.stage), "lease_release job / t1");
    stage_free(scene.stage);
}

Test(lease_end, what_was_to_be_tried_again_is_watched_until_grace_has_passed)
{
    struct scene scene = scene_of(RULES);

    assert_call(scene.stage, "lease_renew_string job / t1");
    stage_fail(scene.stage, "connection lost");
    stage_leave(scene.client);
    stage_assert_quiet(scene.stage, 1900);
    cr_assert(stage_lists(scene.stage, "state=ownerless"));
    stage_join(scene.stage, 0, "10.0.0.1", "app");
    assert_call(scene.stage, "lease_renew_string job / t1");
    stage_free(scene.stage);
}

Test(lease_end, each_kind_is_released_by_its_own_script)
{
    static const char *const kinds[][3] = {
        {REDISSON_LOCK "job 30000 id:1", "$-1\r\n", "lease_release_hash job / id:1"},
        {"ZADD sem 1700000000 t1", ":1\r\n", "lease_release_zset sem / t1"},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct stage *stage = stage_new(RULES "on_owner_gone = release\n", 1);
        struct stage_client *client = stage_join(stage, 0, "10.0.0.1", "app");
        stage_ask(client, kinds[i][0], kinds[i][1]);
        stage_leave(client);
        assert_call(stage, kinds[i][2]);
        stage_answer(stage, "1");
        cr_assert(stage_lists(stage, NULL));
        stage_free(stage);
    }
}

/* ---- libraries ---- */

Test(lease_end, a_library_that_renews_is_watched_only)
{
    struct scene scene = scene_of(RULES);

    stage_ask(scene.client, MUTEX_REFRESH "job t1 30000", ":1\r\n");
    cr_assert(stage_lists(scene.stage, "state=self"));
    stage_assert_quiet(scene.stage, 29800);
    assert_call(scene.stage, "lease_renew_string job / t1");
    cr_assert_eq(stage_call_number(scene.stage, 1), 1);
    stage_answer(scene.stage, "1 24000");
    stage_assert_quiet(scene.stage, 23800);
    assert_call(scene.stage, "lease_renew_string job / t1");
    stage_answer(scene.stage, "0 -2");
    stage_assert_counter(scene.stage, "lease_lost_gone_total", 1);
    stage_free(scene.stage);
}

Test(lease_end, a_library_that_is_never_renewed_is_not_on_file)
{
    struct stage *stage = stage_new(RULES "libraries = redisson:never\n", 1);
    struct stage_client *client = stage_join(stage, 0, "10.0.0.1", "app");

    stage_ask(client, REDISSON_LOCK "job 30000 id:1", "$-1\r\n");
    cr_assert(stage_lists(stage, NULL));
    stage_free(stage);
}

/* ---- the last round ---- */

static bool drain(struct stage *stage, size_t clients)
{
    bool done = lease_policy.on_drain(stage->workers[0].instance, clients);

    stage_pass(stage, 100);
    return done;
}

Test(lease_end, before_the_process_ends_each_lease_is_renewed_once_more)
{
    struct scene scene = scene_of(RULES);

    stage_ask(scene.client, "SETNX other t2", ":1\r\n");
    cr_assert_not(drain(scene.stage, 1));
    cr_assert_eq(scene.stage->call_count, (size_t)0);
    /* It comes back elsewhere. */
    stage_leave(scene.client);
    cr_assert_not(drain(scene.stage, 0));
    cr_assert_eq(scene.stage->call_count, (size_t)2);
    for (int i = 0; i < 2; i++) {
        const char *text = stage_call_text(scene.stage);
        cr_assert(strcmp(text, "lease_renew_string job / t1") == 0 || strcmp(text, "lease_heal other / t2") == 0, "%s",
                  text);
        cr_assert_not(drain(scene.stage, 0));
        stage_answer(scene.stage, "1 30000");
    }
    cr_assert(drain(scene.stage, 0));
    cr_assert_eq(scene.stage->sent_count, (size_t)2);
    stage_free(scene.stage);
}

Test(lease_end, the_last_round_does_not_wait_for_what_fails)
{
    struct scene scene = scene_of(RULES);

    scene.stage->refusal = "no connection";
    stage_leave(scene.client);
    (void)drain(scene.stage, 0);
    cr_assert(drain(scene.stage, 0));
    stage_free(scene.stage);
}

Test(lease_end, the_last_round_releases_nothing_within_grace)
{
    struct scene scene = scene_of(RULES "on_owner_gone = release\n");

    stage_leave(scene.client);
    stage_pass(scene.stage, 500);
    cr_assert(drain(scene.stage, 0));
    cr_assert_eq(scene.stage->sent_count, (size_t)0);
    stage_free(scene.stage);
}

/* ---- other rules ---- */

Test(lease_end, other_rules_are_taken_over)
{
    struct scene scene = scene_of(RULES);

    stage_reload(scene.stage, "[lease:first]\nkeys = job\nrenew = 2/3\n" RULES);
    cr_assert(stage_lists(scene.stage, "rule=first"));
    cr_assert_gt(stage_pass_until_call(scene.stage, 30000), 17000);
    stage_answer(scene.stage, "1 30000");
    stage_reload(scene.stage, "[lease:other]\nkeys = x\n");
    cr_assert(stage_lists(scene.stage, NULL));
    stage_assert_counter(scene.stage, "lease_dropped_total", 1);
    stage_ask(scene.client, "SET job t1 NX PX 30000", "+OK\r\n");
    cr_assert(stage_lists(scene.stage, NULL));
    stage_reload(scene.stage, "[lease:hashes]\nkeys = *\nkind = hash\n");
    stage_reload(scene.stage, "");
    stage_ask(scene.client, "SET x t1 NX PX 30000", "+OK\r\n");
    stage_free(scene.stage);
}

Test(lease_end, a_shorter_max_hold_counts_at_once)
{
    struct scene scene = scene_of(RULES);

    stage_pass(scene.stage, 5000);
    stage_reload(scene.stage, RULES "max_hold = 4s\n");
    stage_pass(scene.stage, 200);
    cr_assert(stage_lists(scene.stage, "state=max-hold"));
    stage_free(scene.stage);
}

Test(lease_end, rules_that_go_while_requests_and_scripts_are_under_way)
{
    struct scene scene = scene_of(RULES);

    assert_call(scene.stage, "lease_renew_string job / t1");
    stage_send(scene.client, "SET two t2 NX PX 30000");
    stage_reload(scene.stage, "");
    stage_hear(scene.client, "+OK\r\n");
    stage_answer(scene.stage, "1 30000");
    cr_assert_neq(strcmp(stage_call_text(scene.stage), "lease_renew_string job / t1"), 0);
    stage_free(scene.stage);
}

Test(lease_end, who_was_there_before_the_first_rule_counts_as_an_owner)
{
    struct stage *stage = stage_new("", 1);
    struct stage_client *client = stage_join(stage, 0, "10.0.0.1", "app");

    stage_ask(client, "SET job t1 NX PX 30000", "+OK\r\n");
    stage_reload(stage, RULES);
    stage_ask(client, "SET job t1 NX PX 30000", "+OK\r\n");
    cr_assert(stage_lists(stage, "owner=10.0.0.1/default/app state=held"));
    stage_free(stage);
}

/* ---- the admin port ---- */

Test(lease_end, leases_are_listed_by_glob)
{
    struct scene scene = scene_of(RULES);

    stage_ask(scene.client, "SET a\"b\x01 t1 NX PX 30000", "+OK\r\n");
    char *text = stage_tell(scene.stage, "LEASES j*");
    cr_assert_str_eq(text, "key=job db=0 kind=string rule=locks owner=10.0.0.1/default/app state=held held=0.000 "
                           "lease=30000 left=30000 next=9228 renewals=0 deferred=0 failures=0 reason=\"none\"\n");
    free(text);
    text = stage_tell(scene.stage, "LEASES a*");
    cr_assert_eq(strncmp(text, "key=\"a\\\"b\\x01\" db=0 ", 20), 0, "%s", text);
    free(text);
    text = stage_tell(scene.stage, "LEASES [");
    cr_assert_eq(strncmp(text, "ERROR: the glob ", 16), 0, "%s", text);
    free(text);
    stage_free(scene.stage);
}

static void assert_told(struct stage *stage, const char *asked, const char *expected)
{
    char *text = stage_tell(stage, asked);

    cr_assert_str_eq(text, expected);
    free(text);
}

Test(lease_end, the_watch_over_a_key_can_be_dropped)
{
    struct scene scene = scene_of(RULES);

    scene.client->view.database = 2;
    stage_ask(scene.client, "SET job t2 NX PX 30000", "+OK\r\n");
    stage_pass_until_call(scene.stage, 20000);
    assert_told(scene.stage, "LEASE SHOW job", "ERROR: LEASE knows DROP only: LEASE DROP key");
    assert_told(scene.stage, "LEASE DROP jo", "ERROR: no lease with that key is on file");
    assert_told(scene.stage, "LEASE drop job", "OK");
    assert_told(scene.stage, "LEASE DROP job", "ERROR: no lease with that key is on file");
    cr_assert(stage_lists(scene.stage, NULL));
    stage_assert_counter(scene.stage, "lease_dropped_total", 2);
    stage_assert_counter(scene.stage, "lease_held", 0);
    while (scene.stage->calls != NULL) {
        stage_answer(scene.stage, "1 30000");
    }
    stage_assert_quiet(scene.stage, 60000);
    stage_free(scene.stage);
}

Test(lease_end, long_lists_and_long_names_are_cut)
{
    struct stage *stage = stage_new(RULES, 1);
    struct stage_client *client = stage_join(stage, 0, "10.0.0.1", "app");
    char text[700];

    for (int i = 0; i < 1001; i++) {
        snprintf(text, sizeof text, "SET job:%0400d t NX PX 30000", i);
        stage_ask(client, text, "+OK\r\n");
    }
    char *list = stage_tell(stage, "LEASES");
    cr_assert_not_null(strstr(list, "000...\" db=0"));
    cr_assert_not_null(strstr(list, "\n# and 1 more\n"));
    free(list);
    stage_free(stage);
}
