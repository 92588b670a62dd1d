/* The outbox with a host that is none: numbers, repeats, losses; and that whatever happens, all counts once. */
#include "latency/latency_private.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE 3
#define WAITING_MAX 64

/* Things that wait: numbers. */
struct things {
    struct latency_entry entry;
    size_t waiting_count, frozen_count;
    long waiting[WAITING_MAX], frozen[AT_ONCE];
    long lost; /* their sum */
    bool is_memory_short;
    size_t age; /* of the call: it is written anew each time */
};

struct call {
    char script[32];
    char text[256]; /* the arguments */
    policy_script_done *done;
    void *context;
};

struct fixture {
    struct latency latency;
    struct latency_share *share;
    struct policy_host host;
    _Atomic uint64_t counters[LATENCY_COUNTERS];
    struct call calls[8];
    size_t call_count;
    bool answers_at_once;
    char warning[256];
};

/* ---- the kind ---- */

static bool freeze(struct latency_entry *entry)
{
    struct things *things = (struct things *)(void *)entry;
    size_t count = things->waiting_count < AT_ONCE ? things->waiting_count : AT_ONCE;

    cr_assert_eq(things->frozen_count, 0, "what is frozen was not forgotten");
    memcpy(things->frozen, things->waiting, count * sizeof things->waiting[0]);
    things->frozen_count = count;
    things->waiting_count -= count;
    memmove(things->waiting, things->waiting + count, things->waiting_count * sizeof things->waiting[0]);
    return count > 0;
}

static bool write_call(struct latency *latency, const struct latency_entry *entry, struct latency_call *call)
{
    struct things *things = (struct things *)(void *)(uintptr_t)entry;

    (void)latency;
    if (things->is_memory_short || !latency_call_start(call, 256)) {
        return false;
    }
    latency_call_key(call, "key");
    latency_call_add(call, "%d", (int)entry->number);
    latency_call_add(call, "age%zu", things->age++);
    for (size_t i = 0; i < things->frozen_count; i++) {
        latency_call_add(call, "%ld", things->frozen[i]);
    }
    return true;
}

static void forget(struct latency *latency, struct latency_entry *entry, bool is_lost)
{
    struct things *things = (struct things *)(void *)entry;

    (void)latency;
    for (size_t i = 0; is_lost && i < things->frozen_count; i++) {
        things->lost += things->frozen[i];
    }
    things->frozen_count = 0;
}

static const struct latency_entry_kind kind = {
    .script = "counter_add",
    .trouble = "not now",
    .lost = "never",
    .freeze = freeze,
    .write = write_call,
    .forget = forget,
};

static void add(struct things *things, long number)
{
    cr_assert_lt(things->waiting_count, (size_t)WAITING_MAX);
    things->waiting[things->waiting_count++] = number;
}

/* ---- the host ---- */

static void reply(const struct call *call, const char *error)
{
    const int64_t one = 1;

    call->done(call->context, &(struct policy_script_reply){.error = error, .integers = &one, .count = 1});
}

static void run_script(void *context, const struct policy_script *script)
{
    struct fixture *fixture = context;
    struct call *call = &fixture->calls[fixture->call_count++];

    cr_assert_eq(script->key_count, 1);
    *call = (struct call){.done = script->done, .context = script->context};
    snprintf(call->script, sizeof call->script, "%s", script->script->name);
    for (size_t i = 0; i < script->argument_count; i++) {
        snprintf(call->text + strlen(call->text), sizeof call->text - strlen(call->text), "%s%.*s", i > 0 ? " " : "",
                 (int)script->arguments[i].length, script->arguments[i].data);
    }
    if (fixture->answers_at_once) {
        fixture->call_count--;
        reply(call, NULL);
    }
}

static void warn(void *context, const char *rule, const char *text)
{
    struct fixture *fixture = context;

    cr_assert_str_eq(rule, "latency");
    snprintf(fixture->warning, sizeof fixture->warning, "%s", text);
}

static int64_t now_us(void *context)
{
    (void)context;
    return 1;
}

static void start(struct fixture *fixture)
{
    *fixture = (struct fixture){.share = latency_share_new(1)};
    fixture->host = (struct policy_host){.run_script = run_script, .warn = warn, .now_us = now_us, .context = fixture};
    fixture->latency = (struct latency){.share = fixture->share, .host = &fixture->host, .counters = fixture->counters};
}

static void stop(struct fixture *fixture)
{
    cr_assert_eq(fixture->latency.calls, fixture->call_count);
    latency_call_clear(&fixture->latency.call);
    latency_share_free(fixture->share);
}

static bool send_things(struct fixture *fixture, struct things *things)
{
    return latency_outbox_send(&fixture->latency, &things->entry, &kind);
}

static void answer(struct fixture *fixture, const char *expected, const char *error)
{
    cr_assert_gt(fixture->call_count, 0);
    struct call call = fixture->calls[--fixture->call_count];
    cr_assert_str_eq(call.text, expected);
    reply(&call, error);
}

static uint64_t failures(const struct fixture *fixture)
{
    return atomic_load(&fixture->counters[LATENCY_COUNTER_FLUSH_FAILURES]);
}

/* ---- tests ---- */

Test(latency_outbox, repeats_under_the_same_number_what_was_not_taken)
{
    static const char *const errors[] = {"Redis cannot be reached", "OOM command not allowed", "READONLY", "LOADING",
                                         "NOPERM the user of the sidecar may not use SET, nothing was written"};
    struct fixture fixture;
    struct things things = {0};
    char expected[64];
    size_t count = sizeof errors / sizeof errors[0];

    start(&fixture);
    add(&things, 7);
    for (size_t i = 0; i < count; i++) {
        cr_assert_not(send_things(&fixture, &things));
        snprintf(expected, sizeof expected, "key 1 age%zu 7", i);
        answer(&fixture, expected, errors[i]);
        add(&things, 8);
    }
    cr_assert_eq(failures(&fixture), count);
    cr_assert_str_eq(fixture.warning, "not now: Redis cannot be reached", "once a minute");
    cr_assert_not(send_things(&fixture, &things));
    snprintf(expected, sizeof expected, "key 1 age%zu 7", count);
    answer(&fixture, expected, NULL);
    cr_assert_not(send_things(&fixture, &things));
    snprintf(expected, sizeof expected, "key 2 age%zu 8 8 8", count + 1);
    answer(&fixture, expected, NULL);
    stop(&fixture);
}

/* A server that knows no scripts, or somebody between. */
Test(latency_outbox, what_is_no_answer_is_none)
{
    const int64_t integers[] = {1, 1};
    struct fixture fixture;
    struct things things = {0};

    start(&fixture);
    add(&things, 7);
    for (size_t count = 0; count <= 2; count += 2) {
        (void)send_things(&fixture, &things);
        const struct call call = fixture.calls[--fixture.call_count];
        call.done(call.context, &(struct policy_script_reply){.integers = integers, .count = count});
    }
    cr_assert_eq(failures(&fixture), 2);
    (void)send_things(&fixture, &things);
    answer(&fixture, "key 1 age2 7", NULL);
    stop(&fixture);
}

Test(latency_outbox, may_be_answered_at_once)
{
    struct fixture fixture;
    struct things things = {0};

    start(&fixture);
    fixture.answers_at_once = true;
    add(&things, 7);
    cr_assert_not(send_things(&fixture, &things));
    cr_assert_not(things.entry.is_under_way);
    cr_assert(send_things(&fixture, &things));
    stop(&fixture);
}

/* Redis as lua/ has it: a number that it knows is not counted again. */
struct redis {
    unsigned long known;
    long sum;
};

/* True if it was counted, now or before. */
static bool execute(struct redis *redis, const struct call *call, bool refuses)
{
    unsigned long number, age;
    long each[AT_ONCE] = {0};
    int words = sscanf(call->text, "key %lu age%lu %ld %ld %ld", &number, &age, &each[0], &each[1], &each[2]);

    cr_assert_geq(words, 3);
    if (number > redis->known && !refuses) {
        redis->sum += each[0] + each[1] + each[2];
        redis->known = number;
    }
    return number <= redis->known;
}

/* Replies are lost, with and without what was written; Redis refuses; memory is short. */
Test(latency_outbox, whatever_happens_all_counts_once)
{
    struct fixture fixture;
    struct things things = {0};
    struct redis redis = {0};
    uint64_t state = 77;
    long added = 0;

    start(&fixture);
    for (int step = 0; step < 20000 || !send_things(&fixture, &things); step++) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        uint32_t what = (uint32_t)(state >> 33) % 100;
        bool may_fail = step < 20000;
        if (may_fail && what < 40 && things.waiting_count < WAITING_MAX) {
            add(&things, step);
            added += step;
        } else if (fixture.call_count == 0) {
            things.is_memory_short = may_fail && what < 45;
            (void)send_things(&fixture, &things);
        } else {
            const struct call call = fixture.calls[--fixture.call_count];
            bool is_lost = may_fail && what < 20, refuses = may_fail && what >= 90;
            bool counts = !is_lost && execute(&redis, &call, refuses);
            bool is_told = !may_fail || what >= 50;
            reply(&call, !is_told || is_lost ? "no answer" : counts ? NULL : "HEADGATE no");
        }
    }
    cr_assert_gt(things.lost, 0);
    cr_assert_gt(failures(&fixture), 1000);
    cr_assert_eq(redis.sum + things.lost, added);
    stop(&fixture);
}
