/* [counters] and [events]: what goes to Redis, when, and again; and what is asked of it. */
#include "latency_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define ON "[latency]\nenabled = on\nflush = 5s\nslowlog_threshold = 10ms\n"
#define COUNTERS "[counters]\nenabled = on\nprefix = {c}\n"
#define EVENTS "[events]\nenabled = on\nprefix = {e}\n"
#define ROUND_US 5000000

static const int64_t counted = 1;

static bool says(const char *answer, const char *text)
{
    return answer != NULL && strstr(answer, text) != NULL;
}

/* What stands behind the keys. */
static const char *argument(const struct script_call *call, size_t index)
{
    cr_assert_not_null(call);
    cr_assert_lt(call->key_count + index, call->argument_count);
    return call->arguments[call->key_count + index];
}

Test(latency_log, is_off_by_default)
{
    struct latency_fixture fixture;

    fixture_start(&fixture, ON, 1);
    fixture_request(&fixture, 0, "GET k", 20000);
    fixture_tick(&fixture, 2 * ROUND_US);
    cr_assert_null(fixture_call(&fixture, "counter_add"));
    cr_assert_null(fixture_call(&fixture, "event_log"));
    const char *const verbs[] = {"COUNTER requests 1", "RECENT slow warning", "COMMON slow warning"};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        cr_assert(says(fixture_ask(&fixture, 0, verbs[i]), "enabled"), "%s", verbs[i]);
        cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_ERROR);
    }
    fixture_stop(&fixture);
}

Test(latency_log, says_that_it_needs_to_measure)
{
    struct latency_fixture fixture;

    fixture_start(&fixture, COUNTERS, 2);
    cr_assert_eq(fixture.warnings, 1);
    cr_assert_not_null(strstr(fixture.warning, "[latency] enabled is off"));
    fixture_stop(&fixture);
}

Test(latency_log, counts_what_all_workers_measure)
{
    struct latency_fixture fixture;

    fixture_start(&fixture, ON "database = 4\n" COUNTERS, 2);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_request(&fixture, 1, "GET k", 20000);
    fixture_tick(&fixture, ROUND_US);
    const struct script_call *call = fixture_call(&fixture, "counter_add");
    cr_assert_eq(call->key_count, 9);
    cr_assert_eq(call->database, 4);
    cr_assert_str_eq(call->arguments[0], "{c}known:");
    cr_assert_eq(strncmp(call->arguments[1], "{c}count:requests:by:", 21), 0);
    cr_assert_str_eq(call->arguments[2], "{c}count:1:requests");
    cr_assert_str_eq(call->arguments[8], "{c}count:86400:requests");
    cr_assert_str_eq(argument(call, 2), "requests");
    cr_assert_str_eq(argument(call, 5), "5 2", "five seconds ago");
    fixture_answer(&fixture, "counter_add", &counted, 1);
    call = fixture_call(&fixture, "counter_add");
    cr_assert_str_eq(argument(call, 2), "slow");
    cr_assert_str_eq(argument(call, 5), "5 1");
    fixture_answer(&fixture, "counter_add", &counted, 1);
    cr_assert_null(fixture_call(&fixture, "counter_add"), "there were no errors");
    fixture_tick(&fixture, 2 * ROUND_US);
    cr_assert_null(fixture_call(&fixture, "counter_add"));
    fixture_stop(&fixture);
}

Test(latency_log, repeats_a_count_under_its_number)
{
    struct latency_fixture fixture;

    fixture_start(&fixture, ON COUNTERS, 1);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, ROUND_US);
    cr_assert_str_eq(argument(fixture_call(&fixture, "counter_add"), 0), "1");
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, ROUND_US);
    fixture_fail(&fixture, "counter_add", "Redis cannot be reached");
    cr_assert_null(fixture_call(&fixture, "counter_add"), "one at a time");
    fixture_tick(&fixture, ROUND_US);
    cr_assert_str_eq(argument(fixture_call(&fixture, "counter_add"), 0), "1");
    cr_assert_str_eq(argument(fixture_call(&fixture, "counter_add"), 5), "15 1");
    fixture_fail(&fixture, "counter_add", "HEADGATE key {c}known: holds a list");
    fixture_tick(&fixture, ROUND_US);
    cr_assert_str_eq(argument(fixture_call(&fixture, "counter_add"), 0), "2", "that one will never be taken");
    fixture_stop(&fixture);
}

Test(latency_log, logs_slow_requests_by_interface)
{
    struct latency_fixture fixture;

    fixture_start(&fixture, ON EVENTS, 1);
    fixture_request(&fixture, 0, "GET k", 20000);
    fixture_request(&fixture, 0, "SET k v", 20000);
    fixture_request(&fixture, 0, "GET k", 20000);
    fixture_request(&fixture, 0, "DEL k", 100);
    fixture_request(&fixture, 0, "BLPOP k 0", 90000);
    fixture_tick(&fixture, ROUND_US);
    const struct script_call *call = fixture_call(&fixture, "event_log");
    cr_assert_eq(call->key_count, 6);
    cr_assert_eq(strncmp(call->arguments[0], "{e}recent:slow:warning:by:", 26), 0);
    cr_assert_str_eq(call->arguments[1], "{e}recent:slow:warning");
    cr_assert_str_eq(call->arguments[5], "{e}common:slow:warning:pstart");
    cr_assert_eq(call->argument_count, 6 + 5 + 4);
    cr_assert_str_eq(argument(call, 5), "get");
    cr_assert_str_eq(argument(call, 6), "2");
    cr_assert_str_eq(argument(call, 7), "set");
    cr_assert_str_eq(argument(call, 8), "1");
    fixture_request(&fixture, 0, "TTL k", 20000);
    fixture_fail(&fixture, "event_log", "LOADING");
    fixture_tick(&fixture, ROUND_US);
    cr_assert_str_eq(argument(fixture_call(&fixture, "event_log"), 0), "1");
    cr_assert_str_eq(argument(fixture_call(&fixture, "event_log"), 5), "get");
    fixture_answer(&fixture, "event_log", &counted, 1);
    fixture_tick(&fixture, ROUND_US);
    cr_assert_str_eq(argument(fixture_call(&fixture, "event_log"), 0), "2");
    cr_assert_str_eq(argument(fixture_call(&fixture, "event_log"), 5), "ttl");
    fixture_stop(&fixture);
}

Test(latency_log, bounds_the_events_that_wait)
{
    struct latency_fixture fixture;
    char words[32];
    long sum = 0;

    fixture_start(&fixture, ON EVENTS, 1);
    for (int i = 0; i < 60; i++) {
        snprintf(words, sizeof words, "SLOW%d k", i);
        fixture_request(&fixture, 0, words, 20000);
    }
    fixture_tick(&fixture, ROUND_US);
    const struct script_call *call = fixture_call(&fixture, "event_log");
    for (size_t i = 6; call->key_count + i < call->argument_count; i += 2) {
        sum += strtol(argument(call, i), NULL, 10);
    }
    cr_assert_eq(sum, 60);
    fixture_stop(&fixture);
}

Test(latency_log, drains)
{
    struct latency_fixture fixture;

    fixture_start(&fixture, ON COUNTERS EVENTS, 1);
    void *instance = fixture.workers[0].instance;
    fixture_request(&fixture, 0, "GET k", 20000);
    cr_assert_not(latency_policy.on_drain(instance, 0));
    fixture_acknowledge(&fixture);
    cr_assert_not(latency_policy.on_drain(instance, 0));
    fixture_acknowledge(&fixture);
    while (fixture_call(&fixture, "counter_add") != NULL) {
        cr_assert_not(latency_policy.on_drain(instance, 0));
        fixture_answer(&fixture, "counter_add", &counted, 1);
    }
    cr_assert_not(latency_policy.on_drain(instance, 0));
    fixture_answer(&fixture, "event_log", &counted, 1);
    cr_assert(latency_policy.on_drain(instance, 0));
    fixture_stop(&fixture);
}

Test(latency_log, reads_counters)
{
    const int64_t slices[] = {1700000000, 5, 1700000005, 7};
    struct latency_fixture fixture;

    fixture_start(&fixture, ON COUNTERS, 1);
    cr_assert_null(fixture_ask(&fixture, 0, "COUNTER requests 5"));
    cr_assert_str_eq(fixture_call(&fixture, "counter_read")->arguments[0], "{c}count:5:requests");
    fixture_answer(&fixture, "counter_read", slices, 4);
    cr_assert_str_eq(fixture.answer, "time=1700000000 count=5\ntime=1700000005 count=7\n");
    cr_assert(says(fixture_ask(&fixture, 0, "COUNTER requests 7"), "expected"));
    cr_assert_null(fixture_ask(&fixture, 0, "COUNTER requests 86400"));
    fixture_fail(&fixture, "counter_read", "WRONGTYPE");
    cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_ERROR);
    cr_assert_null(fixture_ask(&fixture, 0, "COUNTER requests 1"));
    fixture_stop(&fixture);
}

Test(latency_log, reads_events)
{
    static const char *const lines[] = {"Tue Nov 14 22:13:20 2023 get", "a\nb"};
    static const char *const counts[] = {"get", "3", "set", "1"};
    struct latency_fixture fixture;

    fixture_start(&fixture, ON EVENTS, 1);
    cr_assert_null(fixture_ask(&fixture, 0, "RECENT slow warning"));
    cr_assert_str_eq(fixture_call(&fixture, "event_recent")->arguments[0], "{e}recent:slow:warning");
    fixture_answer_texts(&fixture, "event_recent", lines, 2);
    cr_assert_str_eq(fixture.answer, "\"Tue Nov 14 22:13:20 2023 get\"\n\"a\\nb\"\n");
    cr_assert_null(fixture_ask(&fixture, 0, "COMMON slow warning"));
    cr_assert_str_eq(fixture_call(&fixture, "event_common")->arguments[0], "{e}common:slow:warning");
    fixture_answer_texts(&fixture, "event_common", counts, 4);
    cr_assert_str_eq(fixture.answer, "count=3 event=\"get\"\ncount=1 event=\"set\"\n");
    cr_assert_null(fixture_ask(&fixture, 0, "COMMON slow warning"));
    fixture_stop(&fixture);
    cr_assert_eq(fixture.answers, 3);
}
