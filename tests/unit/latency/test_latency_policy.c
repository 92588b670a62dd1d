/* The latency policy: which operation a request has, what is recorded of it, and what this process tells by itself. */
#include "latency_fixture.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#define ON "[latency]\nenabled = on\n"

/* That the request is measured under that operation. */
static void assert_operation(const char *request, const char *operation)
{
    char line[128], words[128];
    uint64_t samples = fake_counter(fixture.host, "latency_samples_total");

    snprintf(words, sizeof words, "LATENCY %s", operation);
    const char *answer = fixture_ask(words);
    unsigned long before = 0;
    if (says(answer, "count=")) {
        before = strtoul(strstr(answer, "count=") + 6, NULL, 10);
    }
    fixture_request(0, request, 100);
    cr_assert_eq(fake_counter(fixture.host, "latency_samples_total"), samples + 1, "%s", request);
    snprintf(line, sizeof line, "interface=%s count=%lu ", operation, before + 1);
    answer = fixture_ask(words);
    cr_assert(says(answer, line), "%s: %s", request, answer);
}

LATENCY_TEST(latency_policy, names_operations_by_command)
{
    fixture_start(ON, 1);
    assert_operation("GET k", "get");
    assert_operation("get k2", "get");
    assert_operation("CONFIG GET maxmemory", "config|get");
    assert_operation("config SeT a b", "config|set");
    assert_operation("CONFIG NONSENSE", "config");
    assert_operation("BLPOP k 0", "blpop|blocking");
    assert_operation("(MULTI) BLPOP k 0", "blpop");
    assert_operation("XREAD COUNT 5 BLOCK 0 STREAMS s 0", "xread|blocking");
    assert_operation("XREADGROUP GROUP streams c BLOCK 0 STREAMS s >", "xreadgroup|blocking");
    assert_operation("XREADGROUP GROUP g block COUNT 1 STREAMS s >", "xreadgroup");
    assert_operation("XREAD COUNT 5 STREAMS block 0", "xread");
    assert_operation("WAIT 1 0", "wait|blocking");
    assert_operation("LEARNED.GET k", "learned.get");
    assert_operation("learned.get k", "learned.get");
    assert_operation("OTHER", "unknown");
}

LATENCY_TEST(latency_policy, lets_rules_name_them)
{
    fixture_start(ON "[latency:orders]\nkeys = order:*\n[latency:writes]\ncommands = set del\n"
                     "[latency:late]\ncommands = *\nkeys = late:*\n",
                  1);
    assert_operation("GET order:1", "orders");
    assert_operation("SET order:1 v", "orders");
    assert_operation("SET late:1 v", "writes");
    assert_operation("GET late:1", "late");
    assert_operation("GET k", "get");
    assert_operation("BLPOP order:q 0", "orders|blocking");
    assert_operation("MSET a 1 order:2 1", "orders");
    assert_operation("PING", "ping");
}

LATENCY_TEST(latency_policy, keeps_the_tags_of_requests_under_way_over_a_reload)
{
    fixture_start(ON "[latency:a]\ncommands = get\n[latency:b]\ncommands = set\n", 1);
    uint32_t a = fixture_tag(0, "GET k"), del = fixture_tag(0, "DEL k");
    fake_reload(fixture.host, ON "[latency:b]\ncommands = get\n");
    uint32_t b = fixture_tag(0, "GET k");
    struct policy_sample sample = {
        .count = 1, .received_us = fixture.host->now_us, .answered_us = fixture.host->now_us};
    const uint32_t tags[] = {a, del, b, b};
    for (size_t i = 0; i < 4; i++) {
        sample.tag = tags[i];
        latency_policy.observer->on_sample(fixture_instance(0), &sample);
    }
    const char *answer = fixture_ask("LATENCY");
    cr_assert(says(answer, "interface=a count=1 ") && says(answer, "interface=del count=1 ") &&
                  says(answer, "interface=b count=2 "),
              "%s", answer);
}

/* What nobody knows for a command may be a password; it is in no name, and in no log. */
LATENCY_TEST(latency_policy, shows_no_name_that_nobody_knows)
{
    fixture_start(ON, 1);
    assert_operation("hunter2 hunter3", "unknown");
    assert_operation("GETT k", "unknown");
    assert_operation("LEARNED.GET k", "learned.get");
    assert_operation("learned.Get k", "learned.get");
    fixture_request(0, "hunter2 hunter3", 100);
    cr_assert_not(says(fixture_ask("LATENCY"), "hunter"));
    fake_reload(fixture.host, ON "by = user\n");
    assert_operation("hunter2 hunter3", "unknown@other");
    assert_operation("LEARNED.GET k", "learned.get@other");
    fake_reload(fixture.host, ON "[latency:all]\ncommands = *\nkeys = k*\n");
    assert_operation("hunter2 hunter3", "unknown");
    assert_operation("LEARNED.SET k", "learned.set");
    fake_reload(fixture.host, ON "[latency:all]\ncommands = *\n");
    assert_operation("LEARNED.SET k", "all");
}

LATENCY_TEST(latency_policy, bounds_the_operations)
{
    char words[64];

    fixture_start(ON "max_interfaces = 8\n", 1);
    for (int i = 0; i < 100; i++) {
        snprintf(words, sizeof words, "LEARNED%d k", i);
        fixture_request(0, words, 100);
    }
    cr_assert_gt(fake_counter(fixture.host, "latency_no_room_total"), 0);
    /* Names that the server has told do not take all of the room. */
    assert_operation("GET k", "get");
    assert_operation("SET k v", "set");
    assert_operation("LEARNED0 k", "learned0");
    assert_operation("LEARNED99 k", "other");
    const char *const commands[] = {"DEL k", "PING", "TTL k", "INCR k", "DECR k", "HGETALL k"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fixture_request(0, commands[i], 100);
    }
    cr_assert_leq(fake_counter(fixture.host, "latency_interfaces"), 8);
    cr_assert_gt(fake_counter(fixture.host, "latency_no_room_total"), 0);
    assert_operation("HGETALL k", "other");
}

/* ---- the logs ---- */

LATENCY_TEST(latency_policy, keeps_slow_requests)
{
    fixture_start(ON "slowlog_threshold = 10ms\nslowlog_length = 3\n", 1);
    cr_assert(latency_policy.observer->attends(fixture_instance(0)).heads);
    cr_assert_not(fixture_request(0, "GET fast", 9999));
    cr_assert(fixture_request(0, "GET slow", 10000));
    cr_assert_not(fixture_request(0, "BLPOP queue 0", 90000), "it waits for others");
    cr_assert(fixture_request(0, "AUTH someone secret", 20000));
    const char *answer = fixture_ask("SLOWLOG");
    cr_assert(says(answer, "id=0 time=1700000000.000000 queued_us=1 redis_us=9999 writing_us=3 "), "%s", answer);
    cr_assert(says(answer, "address=\"10.0.0.1:4711\" name=\"worker-1\" user=\"default\" command=\"GET\" \"slow\"\n"));
    cr_assert_not(says(answer, "fast") || says(answer, "queue\"") || says(answer, "secret") || says(answer, "someone"));
    cr_assert_str_eq(fixture_ask("SLOWLOG 0"), "");
    cr_assert_eq(fixture_ask("SLOWLOG 1")[3], '1', "the newest one");
    cr_assert_eq(fixture_ask("SLOWLOG 1 before 1")[3], '0', "the one before");
    cr_assert_str_eq(fixture_ask("SLOWLOG 5 BEFORE 0"), "");
    static const char *const wrong[] = {"SLOWLOG many", "SLOWLOG 1001", "SLOWLOG 1 BEFORE", "SLOWLOG 1 after 7",
                                        "SLOWLOG 1 BEFORE x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        fixture_ask(wrong[i]);
        cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_ERROR, "%s", wrong[i]);
    }
    fixture_ask("SLOWLOG reset");
    cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_OK);
    cr_assert_str_eq(fixture_ask("SLOWLOG"), "");
    cr_assert_str_eq(fixture_ask("BIGLOG"), "");
}
