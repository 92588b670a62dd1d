/* LATENCY, SLOWLOG, BIGLOG and HOTKEYS on the admin port: what this process knows by itself. */
#include "latency/latency_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* How long the other workers are waited for: longer than moving all operations takes, a slice at each tick. */
#define WAIT_US (5 * LATENCY_US_PER_S)
#define ENTRIES_SHOWN 10
/* Entries of a log in one answer, which one worker writes while its clients wait. */
#define ENTRIES_MAX 1000
#define ENTRIES_AT_ONCE 32
#define HOT_KEYS_SHOWN 20

static const char is_off[] = "requests are not measured; see [latency] enabled";

/* ---- figures ---- */

void latency_print_figure(FILE *out, const char *name, bool is_known, int decimals, double figure)
{
    if (is_known) {
        fprintf(out, " %s=%.*f", name, decimals, figure);
    } else {
        fprintf(out, " %s=unknown", name);
    }
}

void latency_print_figures(const struct latency_figures *figures, double seconds, FILE *out)
{
    static const struct {
        const char *name;
        double part;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
    const struct latency_histogram *histogram = &figures->histogram;
    const bool *unknown = figures->unknown;
    bool has_count = !unknown[LATENCY_COUNT];
    uint64_t in_buckets = 0;

    for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
        in_buckets += histogram->buckets[i];
    }
    latency_print_figure(out, "count", has_count, 0, (double)histogram->count);
    if (seconds != 0) {
        latency_print_figure(out, "rate", has_count && seconds > 0, 3, (double)histogram->count / seconds);
    }
    latency_print_figure(out, "errors", !unknown[LATENCY_ERRORS], 0, (double)figures->errors);
    latency_print_figure(out, "min", !unknown[LATENCY_MIN], 3, (double)histogram->min_us / 1000);
    latency_print_figure(out, "mean", has_count && !unknown[LATENCY_SUM], 3, latency_histogram_mean(histogram) / 1000);
    latency_print_figure(out, "max", !unknown[LATENCY_MAX], 3, (double)histogram->max_us / 1000);
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
        latency_print_figure(out, quantiles[i].name, has_count && in_buckets == histogram->count, 3,
                             latency_histogram_quantile(histogram, quantiles[i].part) / 1000);
    }
    latency_print_figure(out, "bytes_in", !unknown[LATENCY_IN], 0, (double)figures->bytes_in);
    latency_print_figure(out, "bytes_out", !unknown[LATENCY_OUT], 0, (double)figures->bytes_out);
    fputc('\n', out);
}

/* ---- LATENCY ---- */

void latency_answer_error(struct latency *latency, struct admin_query *admin_query, const char *text)
{
    latency->host->answer(latency->host->context, admin_query, POLICY_ANSWER_ERROR, slice_of(text));
}

static void print_operation(struct latency_share *share, uint32_t number, FILE *out)
{
    struct latency_figures figures;

    if (latency_share_total(share, number, &figures)) {
        fprintf(out, "interface=%s", latency_share_operation(share, number)->named.name);
        latency_print_figures(&figures, 0, out);
    }
}

static bool find_operation(struct latency_share *share, const char *name, uint32_t *operation)
{
    pthread_mutex_lock(&share->lock);
    bool is_found = latency_operation_names_find(share->operations, slice_of(name), operation);
    pthread_mutex_unlock(&share->lock);
    return is_found;
}

/* Writes some more of the answer, or all that is left; what is wrong, or NULL. */
static const char *write_some(struct latency_wait *wait, struct latency_share *share, bool all, bool *is_written)
{
    uint32_t count = latency_share_count(share), only;
    bool is_of_all = *wait->operation == '\0';

    *is_written = true;
    if (wait->text.out == NULL && !text_open(&wait->text)) {
        return "out of memory";
    }
    if (!is_of_all && !find_operation(share, wait->operation, &only)) {
        return "no such interface; see LATENCY";
    }
    uint32_t first = is_of_all ? wait->at : only;
    uint32_t end = is_of_all ? first + latency_share_slice(count) : first + 1;
    end = end > count || (is_of_all && all) ? count : end;
    for (uint32_t i = first; i < end; i++) {
        print_operation(share, i, wait->text.out);
    }
    wait->at = end;
    *is_written = !is_of_all || end == count;
    return NULL;
}

/* Takes the wait. */
static void answer_latency(struct latency *latency, struct latency_wait *wait, const char *error)
{
    const struct policy_host *host = latency->host;

    if (wait->text.out != NULL && !text_close(&wait->text)) {
        error = "out of memory";
    }
    if (error != NULL) {
        latency_answer_error(latency, wait->admin_query, error);
    } else {
        host->answer(host->context, wait->admin_query, POLICY_ANSWER_TEXT,
                     (struct slice){wait->text.bytes, wait->text.length});
    }
    text_free(&wait->text);
    free(wait);
}

/* Whether all workers have moved what they had when it was wanted. */
static bool have_moved(struct latency_share *share, uint64_t wanted)
{
    bool all = true;

    pthread_mutex_lock(&share->lock);
    for (size_t i = 0; i < share->threads; i++) {
        all = all && share->seats[i].moved >= wanted;
    }
    pthread_mutex_unlock(&share->lock);
    return all;
}

static bool is_to_wait(const struct latency *latency, const struct latency_wait *wait)
{
    return wait->text.out == NULL && wait->deadline_us > latency_now(latency) &&
           !have_moved(latency->share, wait->wanted);
}

void latency_answer_waits(struct latency *latency, bool all)
{
    struct latency_wait **at = &latency->waits;

    while (*at != NULL) {
        struct latency_wait *wait = *at;
        bool is_written = false;
        const char *error = NULL;
        if (all || !is_to_wait(latency, wait)) {
            error = write_some(wait, latency->share, all, &is_written);
        }
        if (is_written) {
            *at = wait->next;
            answer_latency(latency, wait, error);
        } else {
            at = &wait->next;
        }
    }
}

void latency_verb_latency(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    struct latency *latency = instance;
    struct latency_share *share = latency->share;

    if (latency->sketch == NULL) {
        latency_answer_error(latency, admin_query, is_off);
        return;
    }
    if (count == 2 && (arguments[1].length > LATENCY_NAME_MAX || arguments[1].length == 0)) {
        latency_answer_error(latency, admin_query, "no such interface; see LATENCY");
        return;
    }
    struct latency_wait *wait = calloc(1, sizeof *wait);
    if (wait == NULL) {
        latency_answer_error(latency, admin_query, "out of memory");
        return;
    }
    if (count == 2) {
        memcpy(wait->operation, arguments[1].data, arguments[1].length);
    }
    wait->admin_query = admin_query;
    wait->deadline_us = latency_now(latency) + WAIT_US;
    pthread_mutex_lock(&share->lock);
    wait->wanted = ++share->wanted;
    pthread_mutex_unlock(&share->lock);
    wait->next = latency->waits;
    latency->waits = wait;
    latency_share_move_some(latency);
    latency_answer_waits(latency, false);
}

/* ---- SLOWLOG and BIGLOG ---- */

static bool read_number(struct slice word, size_t most, size_t *number)
{
    *number = 0;
    for (size_t i = 0; i < word.length; i++) {
        if (word.data[i] < '0' || word.data[i] > '9' || *number > most) {
            return false;
        }
        *number = *number * 10 + (size_t)(word.data[i] - '0');
    }
    return word.length > 0 && *number <= most;
}

/* A part at a time, as who measures waits for the lock. log: where the share has it, for it may be made anew. */
static void print_log(struct latency_share *share, struct latency_slow_log *const *log, uint64_t before, size_t most,
                      FILE *answer)
{
    size_t printed = 1;

    while (printed > 0 && most > 0) {
        pthread_mutex_lock(&share->log_lock);
        printed = latency_slow_log_print(*log, &before, most < ENTRIES_AT_ONCE ? most : ENTRIES_AT_ONCE, answer);
        pthread_mutex_unlock(&share->log_lock);
        most -= printed;
    }
}

static bool read_place(size_t count, const struct slice *arguments, uint64_t *before, size_t *most)
{
    size_t id;

    if (count >= 2 && !read_number(arguments[1], ENTRIES_MAX, most)) {
        return false;
    }
    if (count < 3) {
        return true;
    }
    if (count != 4 || !slice_is_word(arguments[2], "before") || !read_number(arguments[3], SIZE_MAX / 20, &id)) {
        return false;
    }
    *before = id;
    return true;
}

static enum policy_answer show_log(struct latency *latency, struct latency_slow_log *const *log, size_t count,
                                   const struct slice *arguments, FILE *answer)
{
    struct latency_share *share = latency->share;
    size_t most = ENTRIES_SHOWN;
    uint64_t before = UINT64_MAX;

    if (latency->sketch == NULL) {
        fputs(is_off, answer);
        return POLICY_ANSWER_ERROR;
    }
    if (count == 2 && slice_is_word(arguments[1], "reset")) {
        pthread_mutex_lock(&share->log_lock);
        latency_slow_log_reset(*log);
        pthread_mutex_unlock(&share->log_lock);
        return POLICY_ANSWER_OK;
    }
    if (!read_place(count, arguments, &before, &most)) {
        fputs("expected a number of entries up to 1000, with or without BEFORE and an id; or RESET", answer);
        return POLICY_ANSWER_ERROR;
    }
    print_log(share, log, before, most, answer);
    return POLICY_ANSWER_TEXT;
}

enum policy_answer latency_verb_slowlog(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct latency *latency = instance;

    return show_log(latency, &latency->share->slow, count, arguments, answer);
}

enum policy_answer latency_verb_biglog(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct latency *latency = instance;

    return show_log(latency, &latency->share->big, count, arguments, answer);
}

/* ---- HOTKEYS ---- */

static void print_hot_keys(const struct latency_sketch *sketch, FILE *out)
{
    struct latency_hot_key top[HOT_KEYS_SHOWN];
    size_t count = latency_sketch_top(sketch, top, HOT_KEYS_SHOWN);

    for (size_t i = 0; i < count; i++) {
        fprintf(out, "count=%" PRIu64 " error=%" PRIu64 " length=%" PRIu64 " key=", top[i].count, top[i].error,
                top[i].length);
        latency_excerpt_print_text(top[i].key, out);
        fputc('\n', out);
    }
    fprintf(out, "# of %" PRIu64 " in all; no other key was counted more than %" PRIu64 " times\n",
            latency_sketch_total(sketch), latency_sketch_least(sketch));
}

/* The log lock is held. Workers that never measured have none. */
static void visit_sketches(struct latency_share *share, struct latency_sketch *into)
{
    for (size_t i = 0; i < share->threads; i++) {
        struct latency_sketch *sketch = share->seats[i].sketch;
        if (sketch != NULL && into != NULL) {
            latency_sketch_merge(into, sketch);
        } else if (sketch != NULL) {
            latency_sketch_clear(sketch);
        }
    }
}

enum policy_answer latency_verb_hotkeys(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct latency *latency = instance;
    struct latency_share *share = latency->share;
    bool resets = count == 2;

    if (latency->sketch == NULL) {
        fputs(is_off, answer);
        return POLICY_ANSWER_ERROR;
    }
    if (resets && !slice_is_word(arguments[1], "reset")) {
        fputs("HOTKEYS knows RESET only", answer);
        return POLICY_ANSWER_ERROR;
    }
    struct latency_sketch *all = resets ? NULL : latency_sketch_new(LATENCY_HOT_KEYS);
    if (!resets && all == NULL) {
        fputs("out of memory", answer);
        return POLICY_ANSWER_ERROR;
    }
    pthread_mutex_lock(&share->log_lock);
    visit_sketches(share, all);
    pthread_mutex_unlock(&share->log_lock);
    if (resets) {
        return POLICY_ANSWER_OK;
    }
    print_hot_keys(all, answer);
    latency_sketch_free(all);
    return POLICY_ANSWER_TEXT;
}
