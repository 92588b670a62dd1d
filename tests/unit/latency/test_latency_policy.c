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
    uint64_t samples = fixture_counter(&fixture, "latency_samples_total");

    snprintf(words, sizeof words, "LATENCY %s", operation);
    const char *answer = fixture_ask(&fixture, 0, words);
    unsigned long before = 0;
    if (says(answer, "count=")) {
        before = strtoul(strstr(answer, "count=") + 6, NULL, 10);
    }
    fixture_request(&fixture, 0, request, 100);
    cr_assert_eq(fixture_counter(&fixture, "latency_samples_total"), samples + 1, "%s", request);
    snprintf(line, sizeof line, "interface=%s count=%lu ", operation, before + 1);
    answer = fixture_ask(&fixture, 0, words);
    cr_assert(says(answer, line), "%s: %s", request, answer);
}

LATENCY_TEST(latency_policy, is_off_by_default)
{
    fixture_start(&fixture, "[headgate]\n[latency:a]\n", 1);
    cr_assert_eq(fixture_tag(&fixture, 0, "GET k", NULL, NULL), POLICY_TAG_NONE);
    cr_assert_eq(fixture_tag(&fixture, 0, "WHAT k", NULL, NULL), POLICY_TAG_NONE);
    cr_assert_not(latency_policy.observer->attends(fixture.workers[0].instance).heads);
    fixture_spot(&fixture, 0, "GET k");
    fixture_tick(&fixture, 10000000);
    cr_assert_eq(fixture.call_count, 0);
    cr_assert(latency_policy.on_drain(fixture.workers[0].instance, 0));
    const char *const verbs[] = {"LATENCY", "REPORT *", "SLOWLOG", "BIGLOG", "HOTKEYS"};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        cr_assert(says(fixture_ask(&fixture, 0, verbs[i]), "not measured"), "%s", verbs[i]);
        cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_ERROR);
    }
}

LATENCY_TEST(latency_policy, names_operations_by_command)
{
    fixture_start(&fixture, ON, 1);
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
    fixture_start(&fixture,
                  ON "[latency:orders]\nkeys = order:*\n[latency:writes]\ncommands = set del\n"
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

LATENCY_TEST(latency_policy, does_not_ask_about_what_a_rule_takes_whole)
{
    fixture_start(&fixture, ON "[latency:reads]\ncommands = get mget config|get\n", 1);
    void *instance = fixture.workers[0].instance;
    uint32_t get = latency_policy.observer->tag(instance, command_find((struct slice){"get", 3}));
    cr_assert_neq(get, POLICY_TAG_ASK);
    cr_assert_neq(get, POLICY_TAG_NONE);
    cr_assert_eq(get, latency_policy.observer->tag(instance, command_find((struct slice){"mget", 4})));
    uint32_t set = latency_policy.observer->tag(instance, command_find((struct slice){"set", 3}));
    cr_assert(set != POLICY_TAG_ASK && set != POLICY_TAG_NONE && set != get);
    assert_operation("CONFIG GET a", "reads");
    assert_operation("CONFIG SET a b", "config|set");
}

LATENCY_TEST(latency_policy, keeps_the_tags_of_requests_under_way_over_a_reload)
{
    fixture_start(&fixture, ON "[latency:a]\ncommands = get\n[latency:b]\ncommands = set\n", 1);
    uint32_t a = fixture_tag(&fixture, 0, "GET k", NULL, NULL), del = fixture_tag(&fixture, 0, "DEL k", NULL, NULL);
    fixture_reload(&fixture, ON "[latency:b]\ncommands = get\n");
    uint32_t b = fixture_tag(&fixture, 0, "GET k", NULL, NULL);
    struct policy_sample sample = {.count = 1, .received_us = fixture.now_us, .answered_us = fixture.now_us};
    const uint32_t tags[] = {a, del, b, b};
    for (size_t i = 0; i < 4; i++) {
        sample.tag = tags[i];
        latency_policy.observer->on_sample(fixture.workers[0].instance, &sample);
    }
    const char *answer = fixture_ask(&fixture, 0, "LATENCY");
    cr_assert(says(answer, "interface=a count=1 ") && says(answer, "interface=del count=1 ") &&
                  says(answer, "interface=b count=2 "),
              "%s", answer);
}

LATENCY_TEST(latency_policy, takes_requests_that_end_after_it_was_switched_off)
{
    fixture_start(&fixture, ON, 1);
    struct policy_sample sample = {.count = 1,
                                   .tag = fixture_tag(&fixture, 0, "GET k", NULL, NULL),
                                   .received_us = 1,
                                   .answered_us = fixture.now_us};
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_reload(&fixture, "");
    cr_assert_eq(fixture_tag(&fixture, 0, "GET k", NULL, NULL), POLICY_TAG_NONE);
    cr_assert_not(latency_policy.observer->on_sample(fixture.workers[0].instance, &sample));
    cr_assert_eq(fixture_counter(&fixture, "latency_samples_total"), 1);
    /* What was measured before goes to where it was to go. */
    fixture_tick(&fixture, 6000000);
    cr_assert(says(fixture_call(&fixture, "latency_flush")->arguments[1], "headgate:statistics_get_"));
    fixture_reload(&fixture, ON);
    assert_operation("GET k", "get");
}

/* What nobody knows for a command may be a password; it is in no name, and in no log. */
LATENCY_TEST(latency_policy, shows_no_name_that_nobody_knows)
{
    fixture_start(&fixture, ON, 1);
    assert_operation("hunter2 hunter3", "unknown");
    assert_operation("GETT k", "unknown");
    assert_operation("LEARNED.GET k", "learned.get");
    assert_operation("learned.Get k", "learned.get");
    fixture_request(&fixture, 0, "hunter2 hunter3", 100);
    cr_assert_not(says(fixture_ask(&fixture, 0, "LATENCY"), "hunter"));
    fixture_reload(&fixture, ON "by = user\n");
    assert_operation("hunter2 hunter3", "unknown@other");
    assert_operation("LEARNED.GET k", "learned.get@other");
    fixture_reload(&fixture, ON "[latency:all]\ncommands = *\nkeys = k*\n");
    assert_operation("hunter2 hunter3", "unknown");
    assert_operation("LEARNED.SET k", "learned.set");
    fixture_reload(&fixture, ON "[latency:all]\ncommands = *\n");
    assert_operation("LEARNED.SET k", "all");
}

LATENCY_TEST(latency_policy, bounds_the_operations)
{
    char words[64];

    fixture_start(&fixture, ON "max_interfaces = 8\n", 1);
    for (int i = 0; i < 100; i++) {
        snprintf(words, sizeof words, "LEARNED%d k", i);
        fixture_request(&fixture, 0, words, 100);
    }
    cr_assert_gt(fixture_counter(&fixture, "latency_no_room_total"), 0);
    /* Names that the server has told do not take all of the room. */
    assert_operation("GET k", "get");
    assert_operation("SET k v", "set");
    assert_operation("LEARNED0 k", "learned0");
    assert_operation("LEARNED99 k", "other");
    const char *const commands[] = {"DEL k", "PING", "TTL k", "INCR k", "DECR k", "HGETALL k"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fixture_request(&fixture, 0, commands[i], 100);
    }
    cr_assert_leq(fixture_counter(&fixture, "latency_interfaces"), 8);
    cr_assert_gt(fixture_counter(&fixture, "latency_no_room_total"), 0);
    assert_operation("HGETALL k", "other");
}

LATENCY_TEST(latency_policy, has_more_or_fewer_operations_after_a_reload)
{
    fixture_start(&fixture, ON "max_interfaces = 2\n", 1);
    assert_operation("GET k", "get");
    assert_operation("SET k v", "other");
    assert_operation("LEARNED k", "other");
    fixture_reload(&fixture, ON "max_interfaces = 3000\n");
    assert_operation("SET k v", "set");
    assert_operation("LEARNED k", "learned");
    fixture_reload(&fixture, ON "max_interfaces = 1\n");
    assert_operation("GET k", "get");
    assert_operation("LEARNED k", "learned");
    assert_operation("DEL k", "other");
    cr_assert_eq(fixture_counter(&fixture, "latency_interfaces"), 4);
}

/* As the clients of a worker wait meanwhile, it does not do all at once. */
LATENCY_TEST(latency_policy, writes_many_operations_a_slice_at_a_time)
{
    char words[64];
    int lines = 0, ticks = 0;

    fixture_start(&fixture, "[latency]\nenabled = on\nflush = 10m\nmax_interfaces = 9000\n", 2);
    for (int i = 0; i < 2000; i++) {
        snprintf(words, sizeof words, "LEARNED%d k", i);
        fixture_request(&fixture, (size_t)i % 2, words, 100);
    }
    cr_assert_null(fixture_ask(&fixture, 0, "LATENCY"));
    for (; fixture.answers == 0; ticks++) {
        cr_assert_lt(ticks, 2 * 32 + 2);
        fixture_tick(&fixture, 100000);
    }
    cr_assert_geq(ticks, 8, "256 and a 32nd at a time, to be moved and to be written");
    for (const char *at = fixture.answer; *at != '\0'; at++) {
        lines += *at == '\n';
    }
    cr_assert_eq(lines, 2000);
    cr_assert(says(fixture.answer, "interface=learned1999 count=1 "));
    /* One that is halfway is answered at the end. */
    cr_assert_null(fixture_ask(&fixture, 0, "LATENCY"));
    fixture_tick(&fixture, 100000 * (ticks - 3));
    fixture_stop(&fixture);
    cr_assert_eq(fixture.answers, 2);
}

LATENCY_TEST(latency_policy, makes_names_safe_and_short)
{
    char words[11000] = "";

    fixture_start(&fixture, ON, 1);
    assert_operation("LEARNED{a}\n%x", "learned%7Ba%7D%0A%25x");
    memset(words, 'y', 10000);
    memcpy(words, "LEARNED", strlen("LEARNED"));
    fixture_request(&fixture, 0, words, 100);
    const char *answer = fixture_ask(&fixture, 0, "LATENCY");
    const char *line = strstr(answer, "interface=learnedyyyy");
    cr_assert_not_null(line);
    cr_assert_leq(strcspn(line, " "), strlen("interface=") + 64);
}

/* ---- clients told apart ---- */

static void arrive(const struct policy_client *client, void **attachment)
{
    latency_policy.on_client(fixture.workers[0].instance, client, attachment);
}

static void sample_of(const char *words, const struct policy_client *client, void **attachment)
{
    const struct policy_sample sample = {
        .count = 1,
        .tag = fixture_tag(&fixture, 0, words, client, attachment),
        .received_us = fixture.now_us - 10,
        .answered_us = fixture.now_us,
    };
    latency_policy.observer->on_sample(fixture.workers[0].instance, &sample);
}

LATENCY_TEST(latency_policy, tells_clients_apart_if_wanted)
{
    struct policy_client batch = {.user = "batch", .name = "x y"}, web = {.user = "web", .name = ""};
    void *of_batch = NULL, *of_web = NULL;

    fixture_start(&fixture, ON "by = user\n[latency:orders]\nkeys = order:*\n", 1);
    arrive(&batch, &of_batch);
    arrive(&web, &of_web);
    for (int i = 0; i < 2; i++) {
        sample_of("GET k", &batch, &of_batch);
        sample_of("BLPOP k 0", &batch, &of_batch);
        sample_of("GET order:1", &web, &of_web);
        sample_of("LEARNED.GET k", &web, &of_web);
    }
    const char *answer = fixture_ask(&fixture, 0, "LATENCY");
    cr_assert(says(answer, "interface=get@batch count=2 ") && says(answer, "interface=blpop|blocking@batch count=2 ") &&
                  says(answer, "interface=orders@web count=2 ") && says(answer, "interface=learned.get@web count=2 "),
              "%s", answer);

    fixture_reload(&fixture, ON "by = name\n");
    arrive(&batch, &of_batch);
    sample_of("GET k", &batch, &of_batch);
    /* It has a user of another name now, and a name as before. */
    batch.name = "z";
    arrive(&batch, &of_batch);
    sample_of("GET k", &batch, &of_batch);
    answer = fixture_ask(&fixture, 0, "LATENCY");
    cr_assert(says(answer, "interface=get@x%20y count=1 ") && says(answer, "interface=get@z count=1 "), "%s", answer);
}

LATENCY_TEST(latency_policy, bounds_the_clients_told_apart)
{
    char name[32];

    fixture_start(&fixture, ON "by = name\nmax_interfaces = 10\n", 1);
    for (int i = 0; i < 200; i++) {
        struct policy_client client = {.user = "u", .name = name};
        void *attachment = NULL;
        snprintf(name, sizeof name, "c%d", i);
        arrive(&client, &attachment);
        sample_of("GET k", &client, &attachment);
        sample_of("SET k v", &client, &attachment);
    }
    cr_assert_eq(fixture_counter(&fixture, "latency_samples_total"), 400);
    cr_assert_leq(fixture_counter(&fixture, "latency_interfaces"), 10);
    cr_assert(says(fixture_ask(&fixture, 0, "LATENCY other"), "interface=other count=3"));
}

/* What found no room takes none of the part that is left to such names. */
LATENCY_TEST(latency_policy, has_room_for_clients_after_a_reload_that_makes_some)
{
    struct policy_client client = {.user = "u", .name = "c"};
    const char *const commands[] = {"GET k", "SET k v", "DEL k", "TTL k"};
    void *attachment = NULL;

    fixture_start(&fixture, ON "max_interfaces = 5\n", 1);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fixture_request(&fixture, 0, commands[i], 100);
    }
    for (int room = 5; room <= 10; room += 5) {
        char conf[128];
        snprintf(conf, sizeof conf, ON "by = name\nmax_interfaces = %d\n", room);
        fixture_reload(&fixture, conf);
        arrive(&client, &attachment);
        for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
            sample_of(commands[i], &client, &attachment);
        }
        cr_assert_eq(fixture_counter(&fixture, "latency_interfaces"), room == 5 ? 5 : 9);
    }
}

/* ---- figures ---- */

LATENCY_TEST(latency_policy, measures_from_received_to_answered)
{
    fixture_start(&fixture, ON, 1);
    struct policy_sample sample = {.count = 1,
                                   .tag = fixture_tag(&fixture, 0, "GET k", NULL, NULL),
                                   .received_us = 100,
                                   .sent_us = 900,
                                   .answered_us = 1100,
                                   .request_bytes = 30,
                                   .reply_bytes = 7};
    latency_policy.observer->on_sample(fixture.workers[0].instance, &sample);
    sample.answered_us = 3100;
    sample.errors = 1;
    latency_policy.observer->on_sample(fixture.workers[0].instance, &sample);
    /* A clock that stands still, or seems to go back. */
    sample.answered_us = 99;
    sample.errors = 0;
    latency_policy.observer->on_sample(fixture.workers[0].instance, &sample);
    cr_assert_str_eq(fixture_ask(&fixture, 0, "LATENCY get"),
                     "interface=get count=3 errors=1 min=0.000 mean=1.333 max=3.000 p50=1.002 p90=2.960 p99=2.960 "
                     "p999=2.960 bytes_in=90 bytes_out=21\n");
    cr_assert_str_eq(fixture_ask(&fixture, 0, "LATENCY nobody"), "no such interface; see LATENCY");
    cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_ERROR);
}

LATENCY_TEST(latency_policy, adds_up_what_all_workers_have)
{
    fixture_start(&fixture, ON, 2);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_request(&fixture, 1, "GET k", 100);
    cr_assert_null(fixture_ask(&fixture, 0, "LATENCY"), "the other worker has not moved yet");
    fixture_tick(&fixture, 200000);
    cr_assert_eq(fixture.answers, 1);
    cr_assert(says(fixture.answer, "interface=get count=2 "), "%s", fixture.answer);
    /* A worker that hangs is not waited for. */
    cr_assert_null(fixture_ask(&fixture, 0, "LATENCY"));
    fixture_pass(&fixture, 5100000);
    latency_policy.on_tick(fixture.workers[0].instance, fixture.now_us);
    cr_assert_eq(fixture.answers, 2);
    /* Nor is anybody left without an answer at the end. */
    cr_assert_null(fixture_ask(&fixture, 0, "LATENCY"));
    fixture_stop(&fixture);
    cr_assert_eq(fixture.answers, 3);
}

LATENCY_TEST(latency_policy, counts_each_request_of_a_sample)
{
    fixture_start(&fixture, ON "[counters]\nenabled = on\n", 1);
    const struct policy_sample sample = {.tag = fixture_tag(&fixture, 0, "GET k", NULL, NULL),
                                         .count = 64,
                                         .errors = 3,
                                         .received_us = 1000,
                                         .sent_us = 1000,
                                         .answered_us = 1500,
                                         .request_bytes = 6400,
                                         .reply_bytes = 640};
    cr_assert_not(latency_policy.observer->on_sample(fixture.workers[0].instance, &sample));
    fixture_request(&fixture, 0, "GET k", 2000);
    const char *answer = fixture_ask(&fixture, 0, "LATENCY get");
    cr_assert(says(answer, "count=65 ") && says(answer, " errors=3 ") && says(answer, " min=0.500 "), "%s", answer);
    cr_assert(says(answer, " mean=0.523 ") && says(answer, " bytes_in=6420 bytes_out=645"), "%s", answer);
    cr_assert_eq(fixture_counter(&fixture, "latency_samples_total"), 65);
}

/* ---- the logs ---- */

LATENCY_TEST(latency_policy, attends_to_what_may_be_logged)
{
    fixture_start(&fixture, ON "slowlog_threshold = 7ms\nbiglog_request = 2kb\nbiglog_reply = 1kb\n", 1);
    struct policy_attention attention = latency_policy.observer->attends(fixture.workers[0].instance);
    cr_assert(attention.heads && attention.us == 7000 && attention.bytes == 1024);
    fixture_reload(&fixture, ON "slowlog_threshold = 0\nbiglog_request = 2kb\nbiglog_reply = 0\n");
    attention = latency_policy.observer->attends(fixture.workers[0].instance);
    cr_assert(attention.heads && attention.us == INT64_MAX && attention.bytes == 2048);
    fixture_reload(&fixture, ON "slowlog_threshold = 0\nbiglog_request = 0\nbiglog_reply = 0\n");
    attention = latency_policy.observer->attends(fixture.workers[0].instance);
    cr_assert(!attention.heads && attention.us == INT64_MAX && attention.bytes == UINT64_MAX);
}

LATENCY_TEST(latency_policy, keeps_slow_requests)
{
    fixture_start(&fixture, ON "slowlog_threshold = 10ms\nslowlog_length = 3\n", 1);
    cr_assert(latency_policy.observer->attends(fixture.workers[0].instance).heads);
    cr_assert_not(fixture_request(&fixture, 0, "GET fast", 9999));
    cr_assert(fixture_request(&fixture, 0, "GET slow", 10000));
    cr_assert_not(fixture_request(&fixture, 0, "BLPOP queue 0", 90000), "it waits for others");
    cr_assert(fixture_request(&fixture, 0, "AUTH someone secret", 20000));
    const char *answer = fixture_ask(&fixture, 0, "SLOWLOG");
    cr_assert(says(answer, "id=0 time=1700000000.000000 queued_us=1 redis_us=9999 writing_us=3 "), "%s", answer);
    cr_assert(says(answer, "address=\"10.0.0.1:4711\" name=\"worker-1\" user=\"default\" command=\"GET\" \"slow\"\n"));
    cr_assert_not(says(answer, "fast") || says(answer, "queue\"") || says(answer, "secret") || says(answer, "someone"));
    cr_assert_str_eq(fixture_ask(&fixture, 0, "SLOWLOG 0"), "");
    cr_assert_eq(fixture_ask(&fixture, 0, "SLOWLOG 1")[3], '1', "the newest one");
    cr_assert_eq(fixture_ask(&fixture, 0, "SLOWLOG 1 before 1")[3], '0', "the one before");
    cr_assert_str_eq(fixture_ask(&fixture, 0, "SLOWLOG 5 BEFORE 0"), "");
    static const char *const wrong[] = {"SLOWLOG many", "SLOWLOG 1001", "SLOWLOG 1 BEFORE", "SLOWLOG 1 after 7",
                                        "SLOWLOG 1 BEFORE x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        fixture_ask(&fixture, 0, wrong[i]);
        cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_ERROR, "%s", wrong[i]);
    }
    fixture_ask(&fixture, 0, "SLOWLOG reset");
    cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_OK);
    cr_assert_str_eq(fixture_ask(&fixture, 0, "SLOWLOG"), "");
    cr_assert_str_eq(fixture_ask(&fixture, 0, "BIGLOG"), "");
}

LATENCY_TEST(latency_policy, keeps_large_requests)
{
    fixture_start(&fixture, ON "slowlog_threshold = 0\nbiglog_request = 40\nbiglog_reply = 1000\n", 1);
    cr_assert_not(fixture_request(&fixture, 0, "GET k", 1));
    cr_assert(fixture_request(&fixture, 0, "SET k vvvvvvvvvvvvvvvvvvvvvvvvvvvvv", 1));
    struct policy_sample sample = {
        .count = 1, .tag = fixture_tag(&fixture, 0, "GET k", NULL, NULL), .reply_bytes = 1000};
    cr_assert(latency_policy.observer->on_sample(fixture.workers[0].instance, &sample));
    /* The client has gone before it was written. */
    latency_policy.observer->on_written(fixture.workers[0].instance, &sample);
    const char *answer = fixture_ask(&fixture, 0, "BIGLOG");
    cr_assert(says(answer, "writing_us=-1 bytes_in=0 bytes_out=1000"), "%s", answer);
    cr_assert(says(answer, "\"SET\" \"k\" \"(29 bytes)\""), "%s", answer);
    cr_assert_str_eq(fixture_ask(&fixture, 0, "SLOWLOG"), "");
    fixture_reload(&fixture, ON "slowlog_threshold = 0\nbiglog_request = 40\nlog_values = on\n");
    cr_assert(fixture_request(&fixture, 0, "SET k vvvvvvvvvvvvvvvvvvvvvvvvvvvvv", 1));
    cr_assert(says(fixture_ask(&fixture, 0, "BIGLOG"), "\"SET\" \"k\" \"vvvv"));
    fixture_reload(&fixture, ON "slowlog_threshold = 0\nbiglog_request = 0\nbiglog_reply = 0\n");
    cr_assert_not(latency_policy.observer->attends(fixture.workers[0].instance).heads);
    cr_assert_not(latency_policy.observer->on_sample(fixture.workers[0].instance, &sample));
    cr_assert(says(fixture_ask(&fixture, 0, "BIGLOG"), "bytes_out=1000"), "it stays");
}

/* ---- hot keys ---- */

LATENCY_TEST(latency_policy, counts_the_keys_asked_for_most)
{
    fixture_start(&fixture, ON, 2);
    for (int i = 0; i < 3; i++) {
        fixture_spot(&fixture, 0, "GET hot");
        fixture_spot(&fixture, 1, "MGET warm hot");
    }
    fixture_spot(&fixture, 0, "PING");
    fixture_spot(&fixture, 0, "WHAT hot");
    const char *answer = fixture_ask(&fixture, 1, "HOTKEYS");
    cr_assert_str_eq(answer, "count=384 error=0 length=3 key=\"hot\"\ncount=192 error=0 length=4 key=\"warm\"\n"
                             "# of 576 in all; no other key was counted more than 0 times\n");
    fixture_ask(&fixture, 0, "HOTKEYS RESET");
    cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_OK);
    cr_assert_not(says(fixture_ask(&fixture, 0, "HOTKEYS"), "key="));
    char many[256] = "DEL";
    for (int i = 0; i < 50; i++) {
        snprintf(many + strlen(many), sizeof many - strlen(many), " k%d", i);
    }
    fixture_spot(&fixture, 0, many);
    cr_assert(says(fixture_ask(&fixture, 0, "HOTKEYS"), "# of 2048 in all;"), "of a long request the first 32 keys");
    fixture_ask(&fixture, 0, "HOTKEYS ALL");
    cr_assert_eq(fixture.answer_kind, POLICY_ANSWER_ERROR);
    fixture_reload(&fixture, ON "hotkeys = off\n");
    fixture_spot(&fixture, 0, "GET hot");
    cr_assert_not(says(fixture_ask(&fixture, 0, "HOTKEYS"), "key=\"hot\""));
}
