/* REPORT: what is asked for, in which calls, and what is made of the answers. */
#include "latency_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

#define ON "[latency]\nenabled = on\n"
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* count, sum, min, max, errors, bytes in and out, and a bucket of the requests of 1000 µs. */
static const int64_t two_requests[] = {2, 2000, 1000, 1000, 1, 60, 10, 159, 2};
/* The greatest and the sum are gone. */
static const int64_t damaged[] = {2, -1, 1000, -1, 1, 60, 10, 159, 2};
static const int64_t nothing[] = {0, 0, 0, 0, 0, 0, 0};

static void assert_error(const char *admin_query, const char *error)
{
    const char *answer = fixture_ask(admin_query);

    cr_assert(says(answer, error), "%s: %s", admin_query, answer != NULL ? answer : "no answer");
    cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_ERROR);
    cr_assert_eq(fixture.host->call_count, 0);
}

LATENCY_TEST(latency_report, tells_each_minute_with_requests_if_wanted)
{
    fixture_start(ON, 1);
    cr_assert_null(fixture_ask("REPORT get from 2023-11-14T22:10 TO -1m by MINUTE"));
    fixture_answer("latency_report", two_requests, COUNT(two_requests));
    fixture_answer("latency_report", nothing, COUNT(nothing));
    cr_assert_eq(fixture_call("latency_report")->key_count, 5);
    fixture_answer("latency_report", damaged, COUNT(damaged));
    cr_assert_eq(fixture.answers, 1);
    cr_assert(says(fixture.answer, "interface=get from=2023-11-14T22:10 minutes=1 count=2 rate=0.033 "), "%s",
              fixture.answer);
    cr_assert_not(says(fixture.answer, "22:11"));
    cr_assert(says(fixture.answer, "T22:12 minutes=1 count=2 rate=0.033 errors=1 min=1.000 mean=unknown max=unknown "
                                   "p50=1.002 p90=1.002 p99=1.002 p999=1.002 bytes_in=60 "));
    /* Before the clock was set back: of that minute nothing has passed. */
    cr_assert_null(fixture_ask("REPORT get FROM 2023-11-14T22:14 TO 2023-11-14T22:14"));
    fixture_answer("latency_report", two_requests, COUNT(two_requests));
    cr_assert(says(fixture.answer, " count=2 rate=unknown "), "%s", fixture.answer);
}

LATENCY_TEST(latency_report, does_not_ask_for_too_much)
{
    static const char *names[20];

    fixture_start(ON, 1);
    assert_error("REPORT get FROM -44641m", "more than 31 days");
    cr_assert_null(fixture_ask("REPORT get FROM -31d"));
    fixture_fail("latency_report", "ERR no");
    for (size_t i = 0; i < COUNT(names); i++) {
        names[i] = "get";
    }
    cr_assert_null(fixture_ask("REPORT * FROM -30d"));
    fixture_answer_texts("latency_listed", names, COUNT(names));
    cr_assert(says(fixture.answer, "too much at once"));
    cr_assert_eq(fixture.host->call_count, 0);
}

/* Who asked has been told that there was no answer; Redis is not kept busy for nobody. */
LATENCY_TEST(latency_report, ends_when_nobody_waits_for_it_any_more)
{
    fixture_start(ON, 1);
    cr_assert_null(fixture_ask("REPORT get FROM -1d"));
    fixture.host->now_us += POLICY_ANSWER_PATIENCE_MS * INT64_C(1000);
    fixture_answer("latency_report", two_requests, COUNT(two_requests));
    cr_assert_eq(fixture.host->call_count, 1, "it is just in time");
    fixture.host->now_us += 1;
    fixture_answer("latency_report", two_requests, COUNT(two_requests));
    cr_assert_eq(fixture.host->call_count, 0);
    cr_assert_eq(fixture.answers, 1);
    cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_ERROR);
    cr_assert(says(fixture.answer, "too long"));
}

LATENCY_TEST(latency_report, says_what_redis_said)
{
    const int64_t no_report[] = {1, 2};

    fixture_start(ON, 1);
    cr_assert_null(fixture_ask("REPORT get"));
    fixture_fail("latency_report", "HEADGATE key headgate:statistics_get_28333333_for_max\r\n cannot be read");
    cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_ERROR);
    cr_assert(says(fixture.answer, "cannot be read"));
    cr_assert_null(fixture_ask("REPORT get"));
    fixture_answer("latency_report", no_report, 2);
    cr_assert(says(fixture.answer, "is no report"));
    cr_assert_null(fixture_ask("REPORT *"));
    fixture_fail("latency_listed", "ERR no");
    cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_ERROR);
    cr_assert_eq(fixture.answers, 3);
    /* One that is under way at the end is answered, too. */
    cr_assert_null(fixture_ask("REPORT get"));
    fixture_stop();
    cr_assert_eq(fixture.answers, 4);
}
