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
static const char *argument(const struct fake_call *call, size_t index)
{
    cr_assert_not_null(call);
    cr_assert_lt(call->key_count + index, call->argument_count);
    return call->arguments[call->key_count + index];
}

/* Requests were refused on worker 1. */
static void refuse(uint64_t count)
{
    const struct policy_event event = {
        .kind = POLICY_REFUSED, .count = count, .source = "limit", .rule = "rule", .what = "get"};

    latency_policy.observer->on_event(fixture_instance(1), &event);
}

/* Worker 1 has begun its turn a moment later than worker 0, and in the next second. */
LATENCY_TEST(latency_log, what_another_worker_saw_later_has_no_negative_age)
{
    fixture_start(ON COUNTERS EVENTS, 2);
    refuse(1);
    fixture.host->now_us += 2 * ROUND_US;
    latency_policy.on_tick(fixture_instance(1), fixture.host->now_us);
    fixture.host->now_us -= 1;
    latency_policy.on_tick(fixture_instance(0), fixture.host->now_us);
    cr_assert_str_eq(argument(fixture_call("counter_add"), 5), "0 1");
    cr_assert_str_eq(argument(fixture_call("event_log"), 7), "0");
}

LATENCY_TEST(latency_log, a_drain_takes_what_happened_elsewhere)
{
    fixture_start(ON EVENTS, 2);
    refuse(3);
    cr_assert_not(latency_policy.on_drain(fixture_instance(0), 0));
    cr_assert(latency_policy.on_drain(fixture_instance(1), 0));
    cr_assert_not(latency_policy.on_drain(fixture_instance(0), 0));
    cr_assert_str_eq(argument(fixture_call("event_log"), 6), "3");
    fixture_answer("event_log", &counted, 1);
    cr_assert(latency_policy.on_drain(fixture_instance(0), 0));
}
