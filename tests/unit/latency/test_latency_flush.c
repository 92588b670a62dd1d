/* Minutes on their way to Redis: rounds, repeats, losses, the end. */
#include "latency_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define ON "[latency]\nenabled = on\nflush = 5s\n"
#define ROUND_US 5000000
#define MINUTE_US 60000000
/* More than a call to list them takes, and no more than may be under way here. */
#define OPERATIONS 100

static const int64_t counted = 1;

static void start(size_t workers)
{
    fixture_start(ON "database = 3\nretention = 1h\n", workers);
}

/* How many requests the oldest flush under way speaks of, in the minute at that place. */
static long requests_in(size_t minute)
{
    const struct fake_call *call = fixture_call("latency_flush");
    long max, min, sum, count;

    cr_assert_not_null(call);
    cr_assert_eq(sscanf(call->arguments[call->key_count + 3 + minute], "%ld %ld %ld %ld", &max, &min, &sum, &count), 4);
    return count;
}

/* Requests now and then while Redis answers all flushes: how many of them it has been told. */
static long flush_for(int minutes, int requests_in_minute)
{
    long requests = 0;

    for (int i = 0; i < minutes * requests_in_minute; i++) {
        for (size_t worker = 0; worker < fixture.host->worker_count && i < (minutes - 30) * requests_in_minute;
             worker++) {
            fixture_request(worker, "GET k", 100);
        }
        for (int tick = 0; tick < 600 / requests_in_minute; tick++) {
            fake_pass(fixture.host, 100);
            while (fixture_call("latency_flush") != NULL) {
                for (size_t at = 0; at < (fixture_call("latency_flush")->key_count - 1) / 5; at++) {
                    requests += requests_in(at);
                }
                fixture_answer("latency_flush", &counted, 1);
            }
            fixture_acknowledge();
        }
    }
    return requests;
}

/* However seldom it flushes, and however little it is to keep. */
LATENCY_TEST(latency_flush, loses_nothing_while_redis_answers)
{
    static const char *const confs[] = {"flush = 1s\nkeep = 1m\n", "flush = 1m\nkeep = 1m\n", "flush = 3m\nkeep = 1m\n",
                                        "flush = 10m\nkeep = 1m\n", "flush = 10m\n"};
    enum { MINUTES = 150, IN_MINUTE = 3 };

    for (size_t i = 0; i < sizeof confs / sizeof confs[0]; i++) {
        char conf[128];
        snprintf(conf, sizeof conf, "[latency]\nenabled = on\n%s", confs[i]);
        fixture_start(conf, 2);
        long requests = flush_for(MINUTES, IN_MINUTE);
        cr_assert_eq(fake_counter(fixture.host, "latency_lost_requests_total"), 0, "%s", confs[i]);
        cr_assert_eq(requests, 2 * (MINUTES - 30) * IN_MINUTE, "%s: %ld", confs[i], requests);
        cr_assert_eq(fake_counter(fixture.host, "latency_minutes_waiting"), 0, "%s", confs[i]);
        fixture_stop();
    }
}

/* ---- whatever happens ---- */

enum { WALK_MINUTES = 200, WALK_OPERATIONS = 3 };

/* Redis as lua/ has it: a number that it knows is not counted again. */
struct walk {
    uint64_t state;
    unsigned long known[WALK_OPERATIONS];
    long recorded[WALK_OPERATIONS][WALK_MINUTES], counted[WALK_OPERATIONS][WALK_MINUTES];
    long lost;
};

static uint32_t below(struct walk *walk, uint32_t limit)
{
    walk->state = walk->state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(walk->state >> 33) % limit;
}

static const char *const walk_requests[WALK_OPERATIONS] = {"GET k", "SET k v", "DEL k"};
static const char *const walk_names[WALK_OPERATIONS] = {"get", "set", "del"};

/* Redis executes the oldest flush, or refuses it for good, or knows nothing of it; and the reply comes, or does not. */
static void end_flush(struct walk *walk, bool executes, bool refuses, bool is_told)
{
    static const char *const later[] = {"the connection to Redis was lost", "OOM command not allowed", "READONLY",
                                        "NOPERM the user of the sidecar may not use SET", "HEADGATEWAY"};
    const struct fake_call *call = fixture_call("latency_flush");
    unsigned long number = strtoul(call->arguments[call->key_count], NULL, 10);
    size_t minutes = (call->key_count - 1) / 5, place = 0;
    char name[64];
    long minute;

    cr_assert_eq(sscanf(call->arguments[1], "headgate:statistics_%63[^_]_%ld", name, &minute), 2);
    while (strcmp(walk_names[place], name) != 0) {
        place++;
    }
    refuses = refuses && number > walk->known[place];
    for (size_t i = 0; i < minutes && number > walk->known[place]; i++) {
        cr_assert_eq(sscanf(call->arguments[1 + 5 * i], "headgate:statistics_%63[^_]_%ld", name, &minute), 2);
        walk->counted[place][minute - 28333333] += executes && !refuses ? requests_in(i) : 0;
        walk->lost += refuses && is_told ? requests_in(i) : 0;
    }
    walk->known[place] = executes && !refuses && number > walk->known[place] ? number : walk->known[place];
    if (is_told && refuses) {
        fixture_fail("latency_flush", "HEADGATE key headgate:statistics_get_1_for_max holds a list");
    } else if (is_told && executes) {
        fixture_answer("latency_flush", &counted, 1);
    } else if (below(walk, 10) == 0) {
        fixture_answer("latency_flush", (int64_t[]){1, 1}, 2 * below(walk, 2));
    } else {
        fixture_fail("latency_flush", later[below(walk, sizeof later / sizeof later[0])]);
    }
}

static void step_at_random(struct walk *walk, bool refuses)
{
    uint32_t what = below(walk, 100), place = below(walk, WALK_OPERATIONS);

    if (what < 60) {
        walk->recorded[place][(fixture.host->wall_us + fixture.host->now_us) / MINUTE_US - 28333333]++;
        fixture_request(below(walk, 2), walk_requests[place], 100);
    } else if (what < 85 || fixture_call("latency_flush") == NULL) {
        fake_pass(fixture.host, 100);
        fixture.host->now_us += below(walk, 3000000);
    } else {
        end_flush(walk, below(walk, 3) > 0, refuses && below(walk, 10) == 0, below(walk, 3) > 0);
    }
    while (fixture_call("latency_list") != NULL) {
        fixture_answer("latency_list", &counted, 1);
    }
}

/* Replies are lost, with and without what was written; Redis takes nothing, or refuses; all counts once. */
LATENCY_TEST(latency_flush, whatever_happens_all_counts_once)
{
    for (int round = 0; round < 4; round++) {
        static struct walk walk;
        walk = (struct walk){.state = (uint64_t)round};
        fixture_start(ON, 2);
        for (int step = 0; step < 20000; step++) {
            step_at_random(&walk, round % 2 == 1);
        }
        for (int i = 0; i < 200; i++) {
            fake_pass(fixture.host, ROUND_US / 1000);
            while (fixture_call("latency_flush") != NULL) {
                end_flush(&walk, true, false, true);
            }
            fixture_acknowledge();
        }
        cr_assert_eq(fake_counter(fixture.host, "latency_minutes_waiting"), 0);
        cr_assert_gt(fake_counter(fixture.host, "latency_flush_failures_total"), 100);
        cr_assert_eq(fake_counter(fixture.host, "latency_lost_requests_total"), (uint64_t)walk.lost);
        cr_assert_eq(walk.lost > 0, round % 2 == 1);
        cr_assert(walk.lost > 0 || memcmp(walk.recorded, walk.counted, sizeof walk.counted) == 0);
        for (size_t place = 0; place < WALK_OPERATIONS; place++) {
            for (size_t minute = 0; minute < WALK_MINUTES; minute++) {
                walk.lost -= walk.recorded[place][minute] - walk.counted[place][minute];
            }
        }
        cr_assert_eq(walk.lost, 0);
        fixture_stop();
    }
}

/* ---- what waits ---- */

/* How many minutes wait, whoever has them. */
static uint64_t wait_for_redis(int minutes)
{
    for (int minute = 0; minute < minutes; minute++) {
        fixture_request(0, "GET k", 100);
        fixture_request(fixture.host->worker_count - 1, "GET k", 100);
        fake_pass(fixture.host, MINUTE_US / 1000);
    }
    return fake_counter(fixture.host, "latency_minutes_waiting");
}

LATENCY_TEST(latency_flush, keeps_more_or_less_after_a_reload)
{
    fixture_start(ON "keep = 5m\n", 2);
    /* Two are in the snapshot that is not answered, at most. */
    cr_assert_leq(wait_for_redis(20), 5 + 2);
    uint64_t lost = fake_counter(fixture.host, "latency_lost_minutes_total");
    fake_reload(fixture.host, ON "keep = 30m\n");
    cr_assert_geq(wait_for_redis(20), 20);
    cr_assert_eq(fake_counter(fixture.host, "latency_lost_minutes_total"), lost);
    fake_reload(fixture.host, ON "keep = 3m\n");
    uint64_t waiting = fake_counter(fixture.host, "latency_minutes_waiting");
    cr_assert(waiting >= 3 && waiting <= 3 + 2 + 1, "at once: %d", (int)waiting);
    cr_assert_gt(fake_counter(fixture.host, "latency_lost_minutes_total"), lost + 10);
    cr_assert_leq(wait_for_redis(20), 3 + 2);
}

LATENCY_TEST(latency_flush, drains)
{
    start(2);
    void *first = fixture_instance(0), *second = fixture_instance(1);
    fixture_request(0, "GET k", 100);
    cr_assert_not(latency_policy.on_drain(first, 1), "clients may yet ask");
    cr_assert_eq(fixture.host->call_count, 0);
    cr_assert_not(latency_policy.on_drain(first, 0), "the other worker has clients");
    fixture_request(1, "GET k", 100);
    cr_assert(latency_policy.on_drain(second, 0));
    cr_assert_not(latency_policy.on_drain(first, 0));
    cr_assert_eq(fixture.host->call_count, 1);
    cr_assert_eq(requests_in(0), 2);
    cr_assert_not(latency_policy.on_drain(first, 0), "it is not answered");
    cr_assert_eq(fixture.host->call_count, 1);
    fixture_fail("latency_flush", "Redis cannot be reached");
    cr_assert_not(latency_policy.on_drain(first, 0));
    fixture_answer("latency_flush", &counted, 1);
    cr_assert_not(latency_policy.on_drain(first, 0), "its name is to be listed");
    fixture_answer("latency_list", &counted, 1);
    cr_assert(latency_policy.on_drain(first, 0));
}

/* Not only those that Redis can be told in the time after which they are told anew. */
LATENCY_TEST(latency_flush, lists_all_operations_by_turns)
{
    static bool listed[OPERATIONS];
    size_t count = 0;

    start(1);
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < OPERATIONS; i++) {
            char words[32];
            snprintf(words, sizeof words, "LEARNED%d k", i);
            fixture_request(0, words, 100);
        }
        fixture.host->now_us += MINUTE_US;
        fake_pass(fixture.host, 100);
        while (fixture_call("latency_flush") != NULL) {
            fixture_answer("latency_flush", &counted, 1);
        }
        fake_pass(fixture.host, 100);
        const struct fake_call *call = fixture_call("latency_list");
        for (size_t i = 2; i < call->argument_count; i++) {
            int number = atoi(call->arguments[i] + strlen("learned"));
            count += !listed[number];
            listed[number] = true;
        }
        fixture_answer("latency_list", &counted, 1);
    }
    cr_assert_eq(count, OPERATIONS);
}
