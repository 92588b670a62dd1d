/*
 * What two processes tell each other of how long requests took, while one takes over from the other. The new one begins
 * with the totals of the old one; from then on each tells what it has measured since it told last, and the other adds
 * that to its own. Each request is measured by the process that answers it, which alone has it on record in Redis: what
 * is heard counts in totals only.
 *
 *   interface NAME FREE                what is measured under that safe name; FREE: 1 if clients chose it
 *       COUNT ERRORS BYTES_IN BYTES_OUT [SUM MIN MAX BUCKET COUNT …]
 *                                      µs, and the buckets at scale 4 that are not empty, by their index less that of
 *                                      the first one. A COUNT of 0: there is the name, so that numbers stay the same.
 */
#include "latency/latency_private.h"

#include "base/percent.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One line: a name, seven numbers, and two for each bucket. */
#define LINE_MAX_BYTES (128 + 7 * 21 + LATENCY_BUCKETS * 25)
/* So many operations are looked at before the worker has a moment for its clients. */
#define LOOKED_AT_ONCE 256
/* So long after the last word another process is taken to be there: it is told more than once a second. */
#define BESIDE_US (3 * LATENCY_US_PER_S)

static_assert(POLICY_TWIN_TEXT_MAX > 2 * LINE_MAX_BYTES, "there is room for a line and the number ahead of it");

/* ---- telling ---- */

static void write_name(const struct latency_operation *operation, FILE *out)
{
    fprintf(out, "interface ");
    (void)percent_write(out, slice_of(operation->named.name));
    fprintf(out, " %d", operation->is_free);
}

static void write_figures(const struct latency_figures *figures, FILE *out)
{
    const struct latency_histogram *histogram = &figures->histogram;

    fprintf(out, " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, histogram->count, figures->errors, figures->bytes_in,
            figures->bytes_out);
    fprintf(out, " %" PRIu64 " %" PRIu64 " %" PRIu64, histogram->sum_us, histogram->min_us, histogram->max_us);
    for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
        if (histogram->buckets[i] > 0) {
            fprintf(out, " %zu %" PRIu64, i, histogram->buckets[i]);
        }
    }
    fputc('\n', out);
}

/* Copies what is to be told, which counts as told from then on. False: there is nothing. */
static bool take_untold(struct latency_share *share, struct latency_operation *operation, bool all,
                        struct latency_figures *figures)
{
    pthread_mutex_lock(&share->lock);
    bool is_due = all || operation->untold != NULL;
    memset(figures, 0, sizeof *figures);
    if (all && operation->total != NULL) {
        *figures = *operation->total;
    } else if (!all && operation->untold != NULL) {
        latency_minute_add_to(operation->untold, figures);
    }
    free(operation->untold);
    operation->untold = NULL;
    operation->told_number = share->told_number;
    pthread_mutex_unlock(&share->lock);
    return is_due;
}

static void tell_operation(struct latency *latency, uint32_t number, bool all, FILE *out)
{
    struct latency_operation *operation = latency_share_operation(latency->share, number);
    struct latency_figures figures;

    latency_share_move(latency, number);
    if (take_untold(latency->share, operation, all, &figures)) {
        write_name(operation, out);
        if (figures.histogram.count > 0) {
            write_figures(&figures, out);
        } else {
            fprintf(out, " 0\n");
        }
    }
}

static bool is_beside(const struct latency_share *share, int64_t now_us)
{
    return share->told_us != 0 && now_us - share->told_us < BESIDE_US;
}

/* When another process is told nothing for a while, as it hangs, metrics show all again. Then nothing of an operation
 * is kept back before that is told, or what was shown would run back. The other workers' clocks may be a little ahead.
 */
static void note_pause(struct latency *latency)
{
    struct latency_share *share = latency->share;

    pthread_mutex_lock(&share->lock);
    share->told_number += share->told_us != 0 && !is_beside(share, latency_now(latency) + LATENCY_US_PER_S);
    pthread_mutex_unlock(&share->lock);
}

/* The others move what they have at their next ticks, and it is told in the next round. */
static void begin_telling(struct latency *latency, bool all)
{
    struct latency_share *share = latency->share;

    pthread_mutex_lock(&share->lock);
    share->wanted++;
    share->told_number += all;
    pthread_mutex_unlock(&share->lock);
}

/* The next operation to tell of; 0: that was all. */
static uint32_t tell_some(struct latency *latency, uint32_t at, bool all, struct text_stream *text)
{
    uint32_t count = latency_share_count(latency->share);
    uint32_t end = at < count && count - at > LOOKED_AT_ONCE ? at + LOOKED_AT_ONCE : count;

    while (at < end && text->length < POLICY_TWIN_TEXT_MAX - 2 * LINE_MAX_BYTES) {
        tell_operation(latency, at++, all, text->out);
        (void)fflush(text->out);
    }
    return at < count ? at : 0;
}

static uint32_t number_of(struct slice word)
{
    int64_t number;

    return percent_take_number(&word, &number) && number <= LATENCY_OPERATIONS_MAX ? (uint32_t)number : 0;
}

enum policy_answer latency_verb_tell(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct latency *latency = instance;
    bool all = slice_is(arguments[1], "ALL");
    uint32_t at = number_of(arguments[2]);
    struct text_stream text;

    (void)count;
    if (latency->sketch == NULL) {
        fputs("0\n", answer);
        return POLICY_ANSWER_TEXT;
    }
    if (!text_open(&text)) {
        return POLICY_ANSWER_ERROR;
    }
    note_pause(latency);
    if (at == 0) {
        begin_telling(latency, all);
    }
    uint32_t next = tell_some(latency, at, all, &text);
    pthread_mutex_lock(&latency->share->lock);
    latency->share->told_us = latency_now(latency);
    pthread_mutex_unlock(&latency->share->lock);
    bool is_whole = text_close(&text);
    fprintf(answer, "%" PRIu32 "\n", is_whole ? next : 0);
    if (is_whole) {
        (void)fwrite(text.bytes, 1, text.length, answer);
    }
    text_free(&text);
    return POLICY_ANSWER_TEXT;
}

bool latency_twin_shows(const struct latency_share *share, const struct latency_operation *operation, int64_t now_us,
                        struct latency_figures *figures)
{
    if (is_beside(share, now_us) && operation->told_number == share->told_number) {
        return latency_operation_told(operation, figures);
    }
    if (operation->total == NULL) {
        return false;
    }
    *figures = *operation->total;
    return figures->histogram.count > 0;
}

/* ---- hearing ---- */

/* The buckets, which come in order, and hold what was counted. False: that is not so. */
static bool read_buckets(struct slice *line, struct latency_histogram *histogram)
{
    int64_t index, count, last = -1;
    uint64_t sum = 0;

    while (line->length > 0) {
        if (!percent_take_number(line, &index) || !percent_take_number(line, &count) || index <= last ||
            index >= LATENCY_BUCKETS || count <= 0 || sum + (uint64_t)count > histogram->count) {
            return false;
        }
        histogram->buckets[index] = (uint64_t)count;
        sum += (uint64_t)count;
        last = index;
    }
    return sum == histogram->count;
}

static bool take_numbers(struct slice *line, int64_t *numbers, size_t count)
{
    bool all = true;

    for (size_t i = 0; i < count && all; i++) {
        all = percent_take_number(line, &numbers[i]);
    }
    return all;
}

/* What is behind the name. False: it is not understood. */
static bool read_figures(struct slice *line, struct latency_figures *figures)
{
    struct latency_histogram *histogram = &figures->histogram;
    int64_t numbers[7];

    memset(figures, 0, sizeof *figures);
    if (!take_numbers(line, numbers, 1)) {
        return false;
    }
    if (numbers[0] == 0) {
        return true;
    }
    if (!take_numbers(line, numbers + 1, 6) || numbers[1] > numbers[0] || numbers[5] > numbers[6]) {
        return false;
    }
    histogram->count = (uint64_t)numbers[0];
    figures->errors = (uint64_t)numbers[1];
    figures->bytes_in = (uint64_t)numbers[2];
    figures->bytes_out = (uint64_t)numbers[3];
    histogram->sum_us = (uint64_t)numbers[4];
    histogram->min_us = (uint64_t)numbers[5];
    histogram->max_us = (uint64_t)numbers[6];
    return read_buckets(line, histogram);
}

static void hear_interface(struct latency_share *share, struct slice line)
{
    char name[LATENCY_NAME_MAX];
    struct latency_figures figures;
    struct slice word;
    size_t length;
    int64_t is_free;

    if (percent_take_word(&line, &word) && percent_read(word, name, sizeof name, &length) &&
        percent_take_number(&line, &is_free) && read_figures(&line, &figures)) {
        latency_share_hear(share, (struct slice){name, length}, is_free != 0, &figures);
    }
}

enum policy_answer latency_verb_hear(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    const struct latency *latency = instance;
    struct slice text = arguments[1], line, kind;

    (void)count;
    (void)answer;
    while (latency->sketch != NULL && percent_take_line(&text, &line)) {
        if (percent_take_word(&line, &kind) && slice_is(kind, "interface")) {
            hear_interface(latency->share, line);
        }
    }
    return POLICY_ANSWER_OK;
}
