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
    fixture_start(&fixture, ON "database = 3\nretention = 1h\n", workers);
}

/* How many requests the oldest flush under way speaks of, in the minute at that place. */
static long requests_in(size_t minute)
{
    const struct script_call *call = fixture_call(&fixture, "latency_flush");
    long max, min, sum, count;

    cr_assert_not_null(call);
    cr_assert_eq(sscanf(call->arguments[call->key_count + 3 + minute], "%ld %ld %ld %ld", &max, &min, &sum, &count), 4);
    return count;
}

LATENCY_TEST(latency_flush, writes_each_operation_once_in_a_round)
{
    start(1);
    fixture_request(&fixture, 0, "GET k", 1500);
    fixture_request(&fixture, 0, "GET k", 500);
    fixture_request(&fixture, 0, "SET k v", 700);
    fixture_tick(&fixture, ROUND_US + 100000);
    cr_assert_eq(fixture.call_count, 2);
    const struct script_call *call = fixture_call(&fixture, "latency_flush");
    cr_assert_eq(call->database, 3);
    cr_assert_eq(call->key_count, 6);
    cr_assert_eq(strncmp(call->arguments[0], "headgate:statistics_get_flushed_by_", 35), 0, "%s", call->arguments[0]);
    cr_assert_str_eq(call->arguments[1], "headgate:statistics_get_28333333_for_max");
    cr_assert_str_eq(call->arguments[8], "3600", "the retention");
    cr_assert_eq(strncmp(call->arguments[9], "1500 500 2000 2 0 ", 18), 0, "%s", call->arguments[9]);
    cr_assert_eq(fixture_acknowledge(&fixture), 2);
    fixture_tick(&fixture, 2 * ROUND_US);
    cr_assert_null(fixture_call(&fixture, "latency_flush"), "nothing is new");
    cr_assert_eq(fixture_counter(&fixture, "latency_flushes_total"), 2);
}

LATENCY_TEST(latency_flush, spreads_a_round_over_its_ticks)
{
    static const char *const commands[] = {"GET k",  "SET k v", "DEL k",     "PING",       "TTL k",
                                           "INCR k", "DECR k",  "HGETALL k", "SMEMBERS k", "STRLEN k"};
    size_t most = 0;

    start(1);
    for (size_t i = 0; i < 10; i++) {
        fixture_request(&fixture, 0, commands[i], 100);
    }
    for (int tick = 0; tick < 51; tick++) {
        size_t before = fixture.call_count;
        fixture_tick(&fixture, 100000);
        most = fixture.call_count - before > most ? fixture.call_count - before : most;
    }
    cr_assert_eq(fixture.call_count, 10);
    cr_assert_leq(most, 1);
}

LATENCY_TEST(latency_flush, adds_up_workers_in_one_call)
{
    start(2);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_request(&fixture, 1, "GET k", 100);
    fixture_request(&fixture, 1, "GET k", 100);
    fixture_tick(&fixture, 2 * ROUND_US + 200000);
    long requests = 0;
    while (fixture_call(&fixture, "latency_flush") != NULL) {
        requests += requests_in(0);
        fixture_answer(&fixture, "latency_flush", &counted, 1);
        fixture_tick(&fixture, ROUND_US + 200000);
    }
    cr_assert_eq(requests, 3);
    cr_assert_leq(fixture_counter(&fixture, "latency_flushes_total"), 2);
}

LATENCY_TEST(latency_flush, writes_under_the_minute_in_which_requests_ended)
{
    start(1);
    fixture_request(&fixture, 0, "GET k", 100);
    /* It began in the minute before; no tick has told of the new one. */
    fixture_pass(&fixture, 41000000);
    fixture_request(&fixture, 0, "GET k", 2000000);
    fixture_tick(&fixture, ROUND_US);
    const struct script_call *call = fixture_call(&fixture, "latency_flush");
    cr_assert_eq(call->key_count, 11);
    cr_assert_str_eq(call->arguments[1], "headgate:statistics_get_28333333_for_max");
    cr_assert_str_eq(call->arguments[6], "headgate:statistics_get_28333334_for_max");
    cr_assert_eq(requests_in(0), 1);
    cr_assert_eq(requests_in(1), 1);
}

LATENCY_TEST(latency_flush, follows_a_clock_that_jumps)
{
    start(1);
    fixture.wall_us += 10 * (int64_t)MINUTE_US;
    fixture_tick(&fixture, 100000);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, ROUND_US);
    cr_assert_str_eq(fixture_call(&fixture, "latency_flush")->arguments[1], "headgate:statistics_get_28333343_for_max");
}

LATENCY_TEST(latency_flush, repeats_what_was_not_taken_under_the_same_number)
{
    char *first;

    start(1);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, ROUND_US);
    const struct script_call *call = fixture_call(&fixture, "latency_flush");
    first = strdup(call->arguments[call->key_count]);
    /* While it is under way nothing else goes. */
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, 2 * ROUND_US);
    cr_assert_eq(fixture.call_count, 1);
    fixture_fail(&fixture, "latency_flush", "OOM command not allowed");
    fixture_tick(&fixture, ROUND_US);
    call = fixture_call(&fixture, "latency_flush");
    cr_assert_str_eq(call->arguments[call->key_count], first);
    cr_assert_eq(requests_in(0), 1, "what was recorded later goes later");
    fixture_answer(&fixture, "latency_flush", &counted, 1);
    fixture_tick(&fixture, ROUND_US);
    call = fixture_call(&fixture, "latency_flush");
    cr_assert_str_neq(call->arguments[call->key_count], first);
    cr_assert_eq(requests_in(0), 1);
    cr_assert_eq(fixture_counter(&fixture, "latency_flush_failures_total"), 1);
    free(first);
}

LATENCY_TEST(latency_flush, gives_up_what_will_never_be_taken)
{
    start(1);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, ROUND_US);
    fixture_fail(&fixture, "latency_flush", "HEADGATE key headgate:statistics_get_28333333_for_max holds a list");
    cr_assert_eq(fixture_counter(&fixture, "latency_lost_requests_total"), 2);
    cr_assert_eq(fixture_counter(&fixture, "latency_lost_minutes_total"), 1);
    cr_assert_eq(fixture_counter(&fixture, "latency_minutes_waiting"), 0);
    cr_assert_not_null(strstr(fixture.warning, "holds a list"));
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, ROUND_US);
    cr_assert_eq(requests_in(0), 1, "what comes next is not held up by it");
}

LATENCY_TEST(latency_flush, keeps_an_hour_and_loses_nothing_of_it)
{
    long requests = 0;

    start(1);
    for (int minute = 0; minute < 59; minute++) {
        fixture_request(&fixture, 0, "GET k", 100);
        fixture_tick(&fixture, MINUTE_US);
        if (fixture_call(&fixture, "latency_flush") != NULL) {
            fixture_fail(&fixture, "latency_flush", "Redis cannot be reached");
        }
    }
    cr_assert_eq(fixture_counter(&fixture, "latency_minutes_waiting"), 59);
    cr_assert_leq(fixture.warnings, 60);
    cr_assert_geq(fixture.warnings, 30);
    for (int round = 0; round < 61; round++) {
        while (fixture_call(&fixture, "latency_flush") != NULL) {
            for (size_t i = 0; i < (fixture_call(&fixture, "latency_flush")->key_count - 1) / 5; i++) {
                requests += requests_in(i);
            }
            fixture_answer(&fixture, "latency_flush", &counted, 1);
        }
        fixture_tick(&fixture, ROUND_US);
    }
    cr_assert_eq(requests, 59);
    cr_assert_eq(fixture_counter(&fixture, "latency_lost_minutes_total"), 0);
}

LATENCY_TEST(latency_flush, drops_the_oldest_beyond_it)
{
    fixture_start(&fixture, ON "keep = 5m\n", 1);
    for (int minute = 0; minute < 20; minute++) {
        fixture_request(&fixture, 0, "GET k", 100);
        fixture_tick(&fixture, MINUTE_US);
    }
    cr_assert_leq(fixture_counter(&fixture, "latency_minutes_waiting"), 8);
    cr_assert_geq(fixture_counter(&fixture, "latency_lost_requests_total"), 12);
    cr_assert_eq(fixture_counter(&fixture, "latency_lost_requests_total") +
                     fixture_counter(&fixture, "latency_minutes_waiting"),
                 20);
}

LATENCY_TEST(latency_flush, warns_once_a_minute)
{
    start(1);
    fixture_request(&fixture, 0, "GET k", 100);
    for (size_t minutes = 1; minutes <= 3; minutes++) {
        for (int round = 0; round < 11; round++) {
            fixture_tick(&fixture, ROUND_US);
            fixture_fail(&fixture, "latency_flush", "READONLY You can't write against a read only replica.");
        }
        cr_assert_eq(fixture.warnings, minutes);
        fixture_tick(&fixture, ROUND_US);
        fixture_fail(&fixture, "latency_flush", "READONLY");
        fixture_pass(&fixture, ROUND_US);
    }
    cr_assert_eq(fixture_counter(&fixture, "latency_flush_failures_total"), 36);
}

/* Requests now and then while Redis answers all flushes: how many of them it has been told. */
static long flush_for(int minutes, int requests_in_minute)
{
    long requests = 0;

    for (int i = 0; i < minutes * requests_in_minute; i++) {
        for (size_t worker = 0; worker < fixture.worker_count && i < (minutes - 30) * requests_in_minute; worker++) {
            fixture_request(&fixture, worker, "GET k", 100);
        }
        for (int tick = 0; tick < 600 / requests_in_minute; tick++) {
            fixture_tick(&fixture, 100000);
            while (fixture_call(&fixture, "latency_flush") != NULL) {
                for (size_t at = 0; at < (fixture_call(&fixture, "latency_flush")->key_count - 1) / 5; at++) {
                    requests += requests_in(at);
                }
                fixture_answer(&fixture, "latency_flush", &counted, 1);
            }
            (void)fixture_acknowledge(&fixture);
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
        fixture_start(&fixture, conf, 2);
        long requests = flush_for(MINUTES, IN_MINUTE);
        cr_assert_eq(fixture_counter(&fixture, "latency_lost_requests_total"), 0, "%s", confs[i]);
        cr_assert_eq(requests, 2 * (MINUTES - 30) * IN_MINUTE, "%s: %ld", confs[i], requests);
        cr_assert_eq(fixture_counter(&fixture, "latency_minutes_waiting"), 0, "%s", confs[i]);
        fixture_stop(&fixture);
    }
}

/* How many minutes wait, whoever has them. */
static uint64_t wait_for_redis(int minutes)
{
    for (int minute = 0; minute < minutes; minute++) {
        fixture_request(&fixture, 0, "GET k", 100);
        fixture_request(&fixture, fixture.worker_count - 1, "GET k", 100);
        fixture_tick(&fixture, MINUTE_US);
    }
    return fixture_counter(&fixture, "latency_minutes_waiting");
}

LATENCY_TEST(latency_flush, keeps_more_or_less_after_a_reload)
{
    fixture_start(&fixture, ON "keep = 5m\n", 2);
    /* Two are in the snapshot that is not answered, at most. */
    cr_assert_leq(wait_for_redis(20), 5 + 2);
    uint64_t lost = fixture_counter(&fixture, "latency_lost_minutes_total");
    fixture_reload(&fixture, ON "keep = 30m\n");
    cr_assert_geq(wait_for_redis(20), 20);
    cr_assert_eq(fixture_counter(&fixture, "latency_lost_minutes_total"), lost);
    fixture_reload(&fixture, ON "keep = 3m\n");
    uint64_t waiting = fixture_counter(&fixture, "latency_minutes_waiting");
    cr_assert(waiting >= 3 && waiting <= 3 + 2 + 1, "at once: %d", (int)waiting);
    cr_assert_gt(fixture_counter(&fixture, "latency_lost_minutes_total"), lost + 10);
    cr_assert_leq(wait_for_redis(20), 3 + 2);
}

LATENCY_TEST(latency_flush, lists_its_operations_now_and_then)
{
    start(1);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, ROUND_US);
    cr_assert_null(fixture_call(&fixture, "latency_list"), "first it has to be there");
    fixture_answer(&fixture, "latency_flush", &counted, 1);
    fixture_tick(&fixture, 100000);
    const struct script_call *call = fixture_call(&fixture, "latency_list");
    cr_assert_not_null(call);
    cr_assert_eq(call->argument_count, 3);
    cr_assert_eq(call->database, 3);
    cr_assert_str_eq(call->arguments[0], "headgate:statistics_interfaces");
    cr_assert_str_eq(call->arguments[1], "3720");
    cr_assert_str_eq(call->arguments[2], "get");
    fixture_fail(&fixture, "latency_list", "ERR no");
    cr_assert_eq(fixture_counter(&fixture, "latency_flush_failures_total"), 1);
    for (int round = 0; round < 10; round++) {
        fixture_request(&fixture, 0, "GET k", 100);
        fixture_tick(&fixture, ROUND_US);
        cr_assert_null(fixture_call(&fixture, "latency_list"));
        while (fixture_call(&fixture, "latency_flush") != NULL) {
            fixture_answer(&fixture, "latency_flush", &counted, 1);
        }
    }
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, 3 * ROUND_US);
    fixture_answer(&fixture, "latency_flush", &counted, 1);
    fixture_tick(&fixture, 100000);
    cr_assert_not_null(fixture_call(&fixture, "latency_list"), "a minute has passed");
}

LATENCY_TEST(latency_flush, drains)
{
    start(2);
    void *first = fixture.workers[0].instance, *second = fixture.workers[1].instance;
    fixture_request(&fixture, 0, "GET k", 100);
    cr_assert_not(latency_policy.on_drain(first, 1), "clients may yet ask");
    cr_assert_eq(fixture.call_count, 0);
    cr_assert_not(latency_policy.on_drain(first, 0), "the other worker has clients");
    fixture_request(&fixture, 1, "GET k", 100);
    cr_assert(latency_policy.on_drain(second, 0));
    cr_assert_not(latency_policy.on_drain(first, 0));
    cr_assert_eq(fixture.call_count, 1);
    cr_assert_eq(requests_in(0), 2);
    cr_assert_not(latency_policy.on_drain(first, 0), "it is not answered");
    cr_assert_eq(fixture.call_count, 1);
    fixture_fail(&fixture, "latency_flush", "Redis cannot be reached");
    cr_assert_not(latency_policy.on_drain(first, 0));
    fixture_answer(&fixture, "latency_flush", &counted, 1);
    cr_assert_not(latency_policy.on_drain(first, 0), "its name is to be listed");
    fixture_answer(&fixture, "latency_list", &counted, 1);
    cr_assert(latency_policy.on_drain(first, 0));
}

LATENCY_TEST(latency_flush, takes_other_names_of_keys_with_a_reload)
{
    start(2);
    fixture_reload(&fixture, ON "prefix = other\nbraces = on\n");
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, 2 * ROUND_US);
    cr_assert_str_eq(fixture_call(&fixture, "latency_flush")->arguments[1], "other_{get}_28333333_for_max");
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
            fixture_request(&fixture, 0, words, 100);
        }
        fixture_pass(&fixture, MINUTE_US);
        fixture_tick(&fixture, 100000);
        while (fixture_call(&fixture, "latency_flush") != NULL) {
            fixture_answer(&fixture, "latency_flush", &counted, 1);
        }
        fixture_tick(&fixture, 100000);
        const struct script_call *call = fixture_call(&fixture, "latency_list");
        for (size_t i = 2; i < call->argument_count; i++) {
            int number = atoi(call->arguments[i] + strlen("learned"));
            count += !listed[number];
            listed[number] = true;
        }
        fixture_answer(&fixture, "latency_list", &counted, 1);
    }
    cr_assert_eq(count, OPERATIONS);
}

/* Where the flush under way goes. */
static const char *server_of(void)
{
    const struct script_call *call = fixture_call(&fixture, "latency_flush");

    cr_assert_not_null(call);
    return call->server;
}

LATENCY_TEST(latency_flush, goes_to_a_server_of_its_own)
{
    fixture_start(&fixture, ON "upstream = stats:1\n[counters]\nenabled = on\n[events]\nenabled = on\n", 2);
    fixture_request(&fixture, 0, "GET k", 1000000);
    fixture_tick(&fixture, ROUND_US + 200000);
    fixture_answer(&fixture, "latency_flush", &counted, 1);
    fixture_tick(&fixture, 100000);
    (void)fixture_ask(&fixture, 0, "REPORT get");
    (void)fixture_ask(&fixture, 1, "REPORT *");
    (void)fixture_ask(&fixture, 0, "COUNTER requests 60");
    (void)fixture_ask(&fixture, 0, "RECENT slow warning");
    (void)fixture_ask(&fixture, 0, "COMMON slow warning");
    static const char *const scripts[] = {"latency_list", "latency_report", "latency_listed",
                                          "counter_add",  "counter_read",   "event_log"};
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        cr_assert_not_null(fixture_call(&fixture, scripts[i]), "%s", scripts[i]);
    }
    for (size_t i = 0; i < fixture.call_count; i++) {
        cr_assert_str_eq(fixture.calls[i].server, "stats:1", "%s", fixture.calls[i].script->name);
    }
}

LATENCY_TEST(latency_flush, changes_its_server_with_what_waits)
{
    start(1);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, ROUND_US);
    cr_assert_str_eq(server_of(), "");
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_reload(&fixture, ON "database = 3\nupstream = stats:1\n");
    fixture_tick(&fixture, 2 * ROUND_US);
    cr_assert_eq(fixture.call_count, 1, "not before it is known what has become of the other one");
    fixture_fail(&fixture, "latency_flush", "gone");
    fixture_tick(&fixture, ROUND_US + 100000);
    cr_assert_str_eq(server_of(), "stats:1");
    cr_assert_eq(requests_in(0), 1);
    fixture_answer(&fixture, "latency_flush", &counted, 1);
    fixture_tick(&fixture, ROUND_US + 100000);
    cr_assert_eq(requests_in(0), 1);
    fixture_answer(&fixture, "latency_flush", &counted, 1);
    fixture_reload(&fixture, ON "database = 3\nupstream = stats:1\n");
    cr_assert_eq(fixture.workers[0].server_count, 1, "the same one is kept");
}

LATENCY_TEST(latency_flush, lists_its_operations_on_another_server_anew)
{
    static const char *const files[] = {ON "upstream = stats:1\n", ON "upstream = stats:2\n", ON "prefix = p\n",
                                        ON "prefix = p\ndatabase = 4\n"};

    start(1);
    for (size_t i = 0; i <= sizeof files / sizeof files[0]; i++) {
        for (int again = 0; again < 2; again++) {
            fixture_request(&fixture, 0, "GET k", 100);
            fixture_tick(&fixture, ROUND_US + 100000);
            fixture_answer(&fixture, "latency_flush", &counted, 1);
            fixture_tick(&fixture, 100000);
            cr_assert_eq(fixture_call(&fixture, "latency_list") != NULL, again == 0, "once on each: %zu", i);
            if (again == 0) {
                fixture_answer(&fixture, "latency_list", &counted, 1);
            }
        }
        if (i < sizeof files / sizeof files[0]) {
            fixture_reload(&fixture, files[i]);
        }
    }
}

LATENCY_TEST(latency_flush, keeps_its_server_when_switched_off)
{
    fixture_start(&fixture, ON "upstream = stats:1\n", 1);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_reload(&fixture, "[latency]\nenabled = off\n");
    fixture_tick(&fixture, ROUND_US + 100000);
    cr_assert_str_eq(server_of(), "stats:1", "where the figures were to go");
    fixture_answer(&fixture, "latency_flush", &counted, 1);
    fixture_reload(&fixture, ON);
    fixture_request(&fixture, 0, "GET k", 100);
    fixture_tick(&fixture, ROUND_US + 100000);
    cr_assert_str_eq(server_of(), "");
}
