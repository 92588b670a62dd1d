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
#define NUMBER_SIZE 24

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

static struct slice write_hash_key(const struct latency *latency, const char *precision, struct slice name,
                                   char key[LATENCY_KEY_SIZE])
{
    int length = snprintf(key, LATENCY_KEY_SIZE, "%scount:%s:%.*s", latency->settings.counters_prefix, precision,
                          (int)name.length, name.data);

    return (struct slice){key, (size_t)length};
}

/* ---- to Redis ---- */

static void acknowledge(struct latency_share *share, size_t tally)
{
    pthread_mutex_lock(&share->lock);
    latency_tally_acknowledge(&share->tallies[tally]);
    pthread_mutex_unlock(&share->lock);
}

static const struct latency_parcel_kind tally_parcel = {
    .script = "counter_add",
    .key_count = 2 + PRECISIONS,
    .trouble = "a counter was not written",
    .acknowledge = acknowledge,
};

static void send_tally(struct latency *latency, enum latency_tallied tally)
{
    struct latency_share *share = latency->share;
    struct latency_parcel *parcel = &latency->tally_parcels[tally];
    char keys[2 + PRECISIONS][LATENCY_KEY_SIZE], number[NUMBER_SIZE], remember[NUMBER_SIZE],
        ages[LATENCY_TALLY_TEXT_MAX];
    const char *prefix = latency->settings.counters_prefix;
    struct slice arguments[2 + PRECISIONS + 6];
    size_t count = 0;

    if (parcel->is_under_way) {
        return;
    }
    pthread_mutex_lock(&share->lock);
    uint64_t taken = latency_tally_take(&share->tallies[tally], latency_now(latency) / LATENCY_US_PER_S, ages);
    pthread_mutex_unlock(&share->lock);
    if (taken == 0) {
        return;
    }
    snprintf(keys[0], LATENCY_KEY_SIZE, "%sknown:", prefix);
    snprintf(keys[1], LATENCY_KEY_SIZE, "%scount:%s:by:%s", prefix, tally_names[tally], share->process);
    arguments[count++] = slice_of(keys[0]);
    arguments[count++] = slice_of(keys[1]);
    for (size_t i = 0; i < PRECISIONS; i++) {
        arguments[count++] = write_hash_key(latency, precisions[i], slice_of(tally_names[tally]), keys[2 + i]);
    }
    snprintf(number, sizeof number, "%" PRIu64, taken);
    snprintf(remember, sizeof remember, "%" PRId64, LATENCY_REMEMBER_S);
    const char *const rest[] = {number, remember, tally_names[tally], all_precisions, SAMPLES, ages};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
        arguments[count++] = slice_of(rest[i]);
    }
    *parcel = (struct latency_parcel){.latency = latency, .kind = &tally_parcel, .which = tally};
    latency_send(parcel, arguments, count);
}

bool latency_counters_go(struct latency *latency, bool now)
{
    struct latency_share *share = latency->share;
    int64_t second = latency_now(latency) / LATENCY_US_PER_S;
    bool is_empty = true;

    pthread_mutex_lock(&share->lock);
    for (int i = 0; i < LATENCY_TALLIES; i++) {
        if (latency->settings.counters) {
            latency_tally_add(&share->tallies[i], second, latency->tallied[i]);
        }
        latency->tallied[i] = 0;
        is_empty = is_empty && share->tallies[i].waiting.length == 0 && share->tallies[i].snapshot.length == 0;
    }
    pthread_mutex_unlock(&share->lock);
    bool sends = now && latency->settings.counters && latency->host->worker == LATENCY_FLUSHER;
    for (int i = 0; sends && i < LATENCY_TALLIES; i++) {
        send_tally(latency, (enum latency_tallied)i);
    }
    return is_empty || !latency->settings.counters;
}

/* ---- COUNTER ---- */

static bool print_slices(const struct policy_script_reply *reply, FILE *out)
{
    if (!policy_script_gave_integers(reply, 0)) {
        return false;
    }
    for (size_t i = 0; i + 1 < reply->count; i += 2) {
        fprintf(out, "time=%" PRId64 " count=%" PRId64 "\n", reply->integers[i], reply->integers[i + 1]);
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

void latency_verb_counter(void *instance, struct policy_question *question, size_t count, const struct slice *arguments)
{
    static const struct latency_query query = {"counter_read", "Redis did not tell the counter", print_slices};
    struct latency *latency = instance;
    const char *precision;
    char key[LATENCY_KEY_SIZE];

    (void)count;
    if (!latency->settings.counters) {
        latency_answer_error(latency, question, "nothing is counted; see [counters] enabled");
        return;
    }
    if (arguments[1].length > LATENCY_NAME_MAX || !is_precision(arguments[2], &precision)) {
        latency_answer_error(latency, question,
                             "expected the name of a counter, and 1, 5, 60, 300, 3600, 18000 or 86400");
        return;
    }
    latency_ask(latency, question, &query, write_hash_key(latency, precision, arguments[1], key), SAMPLES);
}
