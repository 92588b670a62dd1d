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

/* What stands behind the keys. */
static const char *argument(const struct script_call *call, size_t index)
{
    cr_assert_not_null(call);
    cr_assert_lt(call->key_count + index, call->argument_count);
    return call->arguments[call->key_count + index];
}

LATENCY_TEST(latency_log, counts_what_all_workers_measure)
{
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
}

/* Which counter, or which log, there is a call for, and what it says of the first message. */
static void assert_calls(const char *script, size_t name_at, const char *const *wanted, size_t count)
{
    for (size_t i = 0; i < count; i += 2) {
        const struct script_call *call = fixture_call(&fixture, script);
        cr_assert_not_null(call, "%s", wanted[i]);
        const char *name = name_at > 0 ? call->arguments[name_at] : argument(call, 2);
        cr_assert_str_eq(name, wanted[i]);
        cr_assert_str_eq(argument(call, name_at > 0 ? 6 : 5), wanted[i + 1], "%s", name);
        fixture_answer(&fixture, script, &counted, 1);
    }
    cr_assert_null(fixture_call(&fixture, script));
}

static void happen_all(void)
{
    fixture_happen(&fixture, 0, POLICY_REFUSED, 1, "get");
    fixture_happen(&fixture, 1, POLICY_REFUSED, 1000000, "get");
    fixture_happen(&fixture, 1, POLICY_LEASE_TAKEN, 2, "string");
    fixture_happen(&fixture, 0, POLICY_LEASE_LOST, 1, "gone");
    fixture_happen(&fixture, 1, POLICY_UPSTREAM_LOST, 1, "Connection refused");
    fixture_happen(&fixture, 0, POLICY_REQUEST_LOST, 7, "Connection refused");
}

LATENCY_TEST(latency_log, counts_what_happens_on_all_workers)
{
    static const char *const wanted[] = {"refusals", "5 1000001",       "leases", "5 2",           "lost_leases",
                                         "5 1",      "upstream_losses", "5 1",    "lost_requests", "5 7"};

    fixture_start(&fixture, ON COUNTERS, 2);
    happen_all();
    fixture_tick(&fixture, ROUND_US);
    cr_assert_null(fixture_call(&fixture, "event_log"));
    assert_calls("counter_add", 0, wanted, sizeof wanted / sizeof wanted[0]);
}

LATENCY_TEST(latency_log, logs_what_happens_on_all_workers)
{
    static const char *const wanted[] = {
        "{e}recent:refusals:info",         "1000001", "{e}recent:lost_leases:error",   "1",
        "{e}recent:upstream_losses:error", "1",       "{e}recent:lost_requests:error", "7"};

    fixture_start(&fixture, ON EVENTS, 2);
    happen_all();
    fixture_tick(&fixture, ROUND_US);
    cr_assert_null(fixture_call(&fixture, "counter_add"));
    const struct script_call *call = fixture_call(&fixture, "event_log");
    cr_assert_str_eq(argument(call, 5), "limit:rule get");
    cr_assert_eq(strncmp(call->arguments[0], "{e}recent:refusals:info:by:", 27), 0);
    cr_assert_str_eq(call->arguments[3], "{e}common:refusals:info:start");
    assert_calls("event_log", 1, wanted, sizeof wanted / sizeof wanted[0]);
}

/* Worker 1 has begun its turn a moment later than worker 0, and in the next second. */
LATENCY_TEST(latency_log, what_another_worker_saw_later_has_no_negative_age)
{
    fixture_start(&fixture, ON COUNTERS EVENTS, 2);
    fixture_happen(&fixture, 1, POLICY_REFUSED, 1, "get");
    fixture_pass(&fixture, 2 * ROUND_US);
    latency_policy.on_tick(fixture.workers[1].instance, fixture.now_us);
    fixture_pass(&fixture, -1);
    latency_policy.on_tick(fixture.workers[0].instance, fixture.now_us);
    cr_assert_str_eq(argument(fixture_call(&fixture, "counter_add"), 5), "0 1");
    cr_assert_str_eq(argument(fixture_call(&fixture, "event_log"), 7), "0");
}

LATENCY_TEST(latency_log, a_drain_takes_what_happened_elsewhere)
{
    fixture_start(&fixture, ON EVENTS, 2);
    fixture_happen(&fixture, 1, POLICY_REFUSED, 3, "get");
    cr_assert_not(latency_policy.on_drain(fixture.workers[0].instance, 0));
    cr_assert(latency_policy.on_drain(fixture.workers[1].instance, 0));
    cr_assert_not(latency_policy.on_drain(fixture.workers[0].instance, 0));
    cr_assert_str_eq(argument(fixture_call(&fixture, "event_log"), 6), "3");
    fixture_answer(&fixture, "event_log", &counted, 1);
    cr_assert(latency_policy.on_drain(fixture.workers[0].instance, 0));
}

LATENCY_TEST(latency_log, reads_counters)
{
    const int64_t slices[] = {1700000000, 5, 1700000005, 7};

    fixture_start(&fixture, ON COUNTERS, 1);
    cr_assert_null(fixture_ask(&fixture, 0, "COUNTER requests 5"));
    cr_assert_str_eq(fixture_call(&fixture, "counter_read")->arguments[0], "{c}count:5:requests");
    fixture_answer(&fixture, "counter_read", slices, 4);
    cr_assert_str_eq(fixture.answer, "time=1700000000 count=5\ntime=1700000005 count=7\n");
    cr_assert(says(fixture_ask(&fixture, 0, "COUNTER requests 7"), "expected"));
}

LATENCY_TEST(latency_log, reads_events)
{
    static const char *const lines[] = {"Tue Nov 14 22:13:20 2023 get", "a\nb"};
    static const char *const counts[] = {"get", "3", "set", "1"};

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
