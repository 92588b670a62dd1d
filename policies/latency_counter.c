/*
 * [counters]: how many requests there were, and how much happened, in slices of time, in Redis. Each worker hands what
 * it has counted to the shared tallies at each tick; worker 0 sends them.
 */
#include "latency_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FLUSHER 0
#define PRECISIONS 7
/* Of each counter, slices that are kept, and shown. */
#define SAMPLES "120"
#define KEY_SIZE 256
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

static struct slice slice_of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

static struct slice write_hash_key(const struct latency *latency, const char *precision, struct slice name,
                                   char key[KEY_SIZE])
{
    int length = snprintf(key, KEY_SIZE, "%scount:%s:%.*s", latency->settings.counters_prefix, precision,
                          (int)name.length, name.data);

    return (struct slice){key, (size_t)length};
}

/* ---- to Redis ---- */

static void counted(void *context, const struct policy_script_reply *reply)
{
    struct latency_tally_flight *flight = context;
    struct latency *latency = flight->latency;
    enum latency_flush_end end = latency_flush_ended(reply);

    latency->calls--;
    flight->is_under_way = false;
    if (end != LATENCY_FLUSH_AGAIN) {
        pthread_mutex_lock(&latency->share->lock);
        latency_tally_acknowledge(&latency->share->tallies[flight->tally]);
        pthread_mutex_unlock(&latency->share->lock);
    }
    if (end != LATENCY_FLUSH_DONE) {
        latency_warn(latency, "a counter was not written", latency_flush_problem(reply));
    }
}

static void send_tally(struct latency *latency, enum latency_tallied tally)
{
    struct latency_share *share = latency->share;
    struct latency_tally_flight *flight = &latency->tally_flights[tally];
    char keys[2 + PRECISIONS][KEY_SIZE], number[NUMBER_SIZE], remember[NUMBER_SIZE], ages[LATENCY_TALLY_TEXT_MAX];
    const char *prefix = latency->settings.counters_prefix;
    struct slice arguments[2 + PRECISIONS + 6];
    size_t count = 0;

    if (flight->is_under_way) {
        return;
    }
    pthread_mutex_lock(&share->lock);
    uint64_t taken = latency_tally_take(&share->tallies[tally], latency_now(latency) / LATENCY_US_PER_S, ages);
    pthread_mutex_unlock(&share->lock);
    if (taken == 0) {
        return;
    }
    snprintf(keys[0], KEY_SIZE, "%sknown:", prefix);
    snprintf(keys[1], KEY_SIZE, "%scount:%s:by:%s", prefix, tally_names[tally], share->process);
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
    flight->is_under_way = true;
    latency_run(latency, "counter_add", arguments, count, 2 + PRECISIONS, counted, flight);
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
    for (int i = 0; now && latency->settings.counters && latency->host->worker == FLUSHER && i < LATENCY_TALLIES; i++) {
        send_tally(latency, (enum latency_tallied)i);
    }
    return is_empty || !latency->settings.counters;
}

/* ---- COUNTER ---- */

struct question {
    struct latency *latency;
    struct policy_question *question;
};

static void answer(void *context, const struct policy_script_reply *reply)
{
    struct question *asked = context;
    struct latency *latency = asked->latency;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    latency->calls--;
    for (size_t i = 0; out != NULL && i + 1 < reply->count; i += 2) {
        fprintf(out, "time=%" PRId64 " count=%" PRId64 "\n", reply->integers[i], reply->integers[i + 1]);
    }
    if (out == NULL || fclose(out) != 0) {
        latency_answer_error(latency, asked->question, "out of memory");
    } else if (!policy_script_gave_integers(reply, 0)) {
        latency_answer_error(latency, asked->question, "Redis did not tell the counter");
    } else {
        latency->host->answer(latency->host->context, asked->question, POLICY_ANSWER_TEXT,
                              (struct slice){text, length});
    }
    free(text);
    free(asked);
}

static bool is_precision(struct slice text, const char **precision)
{
    for (size_t i = 0; i < PRECISIONS; i++) {
        if (strlen(precisions[i]) == text.length && memcmp(precisions[i], text.data, text.length) == 0) {
            *precision = precisions[i];
            return true;
        }
    }
    return false;
}

void latency_verb_counter(void *instance, struct policy_question *question, size_t count, const struct slice *arguments)
{
    struct latency *latency = instance;
    const char *precision;
    char key[KEY_SIZE];

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
    struct question *asked = malloc(sizeof *asked);
    if (asked == NULL) {
        latency_answer_error(latency, question, "out of memory");
        return;
    }
    *asked = (struct question){latency, question};
    const struct slice call[] = {write_hash_key(latency, precision, arguments[1], key), slice_of(SAMPLES)};
    latency_run(latency, "counter_read", call, 2, 1, answer, asked);
}
