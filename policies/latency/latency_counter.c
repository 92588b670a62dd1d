/*
 * [counters]: how many requests there were, and how much happened, in slices of time, in Redis. Each worker hands what
 * it has counted to the shared tallies at each tick; worker 0 sends them.
 */
#include "latency/latency_private.h"

#include <inttypes.h>
#include <string.h>

#define PRECISIONS 7
/* Of each counter, slices that are kept, and shown. */
#define SAMPLES "120"
/* Of a hash: prefix, precision, how long the name is at most, and the name. */
#define HASH_KEY "%scount:%s:%.*s"
/* Keys, numbers and texts of a call, and the ages. */
#define CALL_SIZE ((2 + PRECISIONS + 5) * LATENCY_KEY_SIZE + LATENCY_TALLY_TEXT_MAX)

static const char *const tally_names[] = {
    [LATENCY_TALLY_REQUESTS] = "requests",
    [LATENCY_TALLY_ERRORS] = "errors",
    [LATENCY_TALLY_SLOW] = "slow",
    [LATENCY_TALLY_REFUSALS] = "refusals",
    [LATENCY_TALLY_LEASES] = "leases",
    [LATENCY_TALLY_LOST_LEASES] = "lost_leases",
    [LATENCY_TALLY_UPSTREAM_LOSSES] = "upstream_losses",
    [LATENCY_TALLY_LOST_REQUESTS] = "lost_requests",
};
static const char *const precisions[PRECISIONS] = {"1", "5", "60", "300", "3600", "18000", "86400"};
static const char all_precisions[] = "1 5 60 300 3600 18000 86400";

/* ---- to Redis ---- */

static bool freeze(struct latency_entry *entry)
{
    struct latency_tally *tally = (struct latency_tally *)(void *)entry;

    tally->frozen = tally->waiting;
    tally->waiting.length = 0;
    return tally->frozen.length > 0;
}

static bool write_call(struct latency *latency, const struct latency_entry *entry, struct latency_call *call)
{
    const struct latency_tally *tally = (const struct latency_tally *)(const void *)entry;
    const char *name = tally_names[tally - latency->share->tallies], *prefix = latency->settings.counters_prefix;
    char ages[LATENCY_TALLY_TEXT_MAX];

    if (!latency_call_start(call, CALL_SIZE)) {
        return false;
    }
    latency_call_key(call, "%sknown:", prefix);
    latency_call_key(call, "%scount:%s:by:%s", prefix, name, latency->share->process);
    for (size_t i = 0; i < PRECISIONS; i++) {
        latency_call_key(call, HASH_KEY, prefix, precisions[i], LATENCY_NAME_MAX, name);
    }
    latency_call_add(call, "%" PRIu64, entry->number);
    latency_call_add(call, "%" PRId64, LATENCY_REMEMBER_S);
    latency_call_add(call, "%s", name);
    latency_call_add(call, "%s", all_precisions);
    latency_call_add(call, "%s", SAMPLES);
    latency_tally_write(&tally->frozen, latency_now(latency) / LATENCY_US_PER_S, ages);
    latency_call_add(call, "%s", ages);
    return true;
}

static const struct latency_entry_kind kind = {
    .script = "counter_add",
    .trouble = "a counter was not written",
    .lost = "a counter was not written",
    .freeze = freeze,
    .write = write_call,
};

void latency_counters_collect(struct latency *latency)
{
    struct latency_share *share = latency->share;
    int64_t second = latency_now(latency) / LATENCY_US_PER_S;

    pthread_mutex_lock(&share->lock);
    for (int i = 0; latency->settings.counters && i < LATENCY_TALLIES; i++) {
        latency_tally_add(&share->tallies[i].waiting, second, latency->tallied[i]);
    }
    pthread_mutex_unlock(&share->lock);
    memset(latency->tallied, 0, sizeof latency->tallied);
}

bool latency_counters_send(struct latency *latency)
{
    bool nothing_waits = true;

    for (int i = 0; latency->settings.counters && i < LATENCY_TALLIES; i++) {
        nothing_waits &= latency_outbox_send(latency, &latency->share->tallies[i].entry, &kind);
    }
    return nothing_waits;
}

/* ---- COUNTER ---- */

static bool print_slices(const struct policy_script_reply *reply, FILE *out)
{
    if (!policy_script_gave_integers(reply, 0)) {
        return false;
    }
    for (size_t i = 0; i + 1 < reply->count; i += 2) {
        fprintf(out, "time=%" PRId64, reply->integers[i]);
        latency_print_figure(out, "count", reply->integers[i + 1] >= 0, 0, (double)reply->integers[i + 1]);
        fputc('\n', out);
    }
    return true;
}

static bool is_precision(struct slice text, const char **precision)
{
    for (size_t i = 0; i < PRECISIONS; i++) {
        if (slice_is(text, precisions[i])) {
            *precision = precisions[i];
            return true;
        }
    }
    return false;
}

void latency_verb_counter(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    static const struct latency_query query = {"counter_read", "Redis did not tell the counter", print_slices};
    struct latency *latency = instance;
    const char *precision;
    char key[LATENCY_KEY_SIZE];

    (void)count;
    if (!latency->settings.counters) {
        latency_answer_error(latency, admin_query, "nothing is counted; see [counters] enabled");
        return;
    }
    if (arguments[1].length > LATENCY_NAME_MAX || !is_precision(arguments[2], &precision)) {
        latency_answer_error(latency, admin_query,
                             "expected the name of a counter, and 1, 5, 60, 300, 3600, 18000 or 86400");
        return;
    }
    int length = snprintf(key, sizeof key, HASH_KEY, latency->settings.counters_prefix, precision,
                          (int)arguments[1].length, arguments[1].data);
    latency_ask(latency, admin_query, &query, (struct slice){key, (size_t)length}, SAMPLES);
}
