/*
 * TRACE and MONITOR. Words say which requests a stream wants; lines wait in a buffer of the worker until they are
 * fetched. It is bounded: what has no room is lost and counted, so that who reads slowly holds nobody up. What is the
 * same for several streams is done once.
 */
#include "trace/trace_private.h"

#include <stdlib.h>
#include <string.h>

/* How long a stream is open unless it is said otherwise, and at most. Seconds. */
#define SECONDS_DEFAULT 10
#define SECONDS_MAX 300
/* The lines of one answer unless it is said otherwise. */
#define LINES_DEFAULT 1000
/* Lines that wait to be fetched. Bytes. */
#define WAITING_MAX ((size_t)1024 * 1024)
/* What a line costs clients for being told by other threads. µs. */
#define TELLING_US 1
/* Bytes of lines that are handed on within a µs. */
#define BYTES_A_US 1000

struct trace_stream {
    struct filter early; /* what is known when a request has come, … */
    struct filter late;  /* … and when it has ended */
    uint64_t sample;     /* of 2^32, those that are taken by chance */
    int64_t until_us;
    int64_t read_us;   /* until when it was told what was seen: the time, … */
    int64_t unseen_us; /* … and trace_budget_unseen() then */
    bool keys;
    char *waiting; /* WAITING_MAX bytes */
    size_t waiting_length;
    uint64_t lost;
};

/* ---- words ---- */

/* How one was read. */
struct reading {
    struct trace_stream *stream;
    int64_t seconds;
    int64_t lines; /* 0: not said */
    char problem[FILTER_PROBLEM_MAX];
};

static bool fault(struct reading *reading, const char *problem)
{
    snprintf(reading->problem, sizeof reading->problem, "%s", problem);
    return false;
}

static bool read_filter(struct reading *reading, struct slice word)
{
    struct filter one = {0};

    if (!filter_add(&one, trace_fields, trace_field_count, word, reading->problem)) {
        return false;
    }
    bool is_early = one.terms[0].field < TRACE_FIELDS_EARLY;
    struct filter *filter = is_early ? &reading->stream->early : &reading->stream->late;
    if (filter->count == FILTER_WORDS_MAX) {
        return fault(reading, "too many filters");
    }
    filter->terms[filter->count++] = one.terms[0];
    return true;
}

/* "1/n", or "n%". */
static bool read_sample(struct reading *reading, struct slice word)
{
    char text[24], *end;
    int64_t parts;

    if (slice_begins(word, "1/") && word_integer((struct slice){word.data + 2, word.length - 2}, &parts) && parts > 0 &&
        parts <= UINT32_MAX) {
        reading->stream->sample = (UINT64_C(1) << 32) / (uint64_t)parts;
        return true;
    }
    if (word.length > 1 && word.length < sizeof text && word.data[word.length - 1] == '%' &&
        strspn(word.data, "0123456789.") >= word.length - 1) {
        snprintf(text, sizeof text, "%.*s", (int)word.length - 1, word.data);
        double percent = strtod(text, &end);
        bool is_share = *end == '\0' && percent <= 100;
        reading->stream->sample = is_share ? (uint64_t)(percent / 100 * (double)(UINT64_C(1) << 32)) : 0;
        return reading->stream->sample > 0 || fault(reading, "SAMPLE wants more than 0% and 100% at most");
    }
    return fault(reading, "SAMPLE wants one of so many, as in 1/100, or percent, as in 1%");
}

static bool read_number(struct reading *reading, struct slice word, int64_t most, int64_t *number, const char *problem)
{
    return (word_integer(word, number) && *number > 0 && *number <= most) || fault(reading, problem);
}

/* The word at *at, with the one behind it that belongs to it. */
static bool read_word(struct reading *reading, size_t count, const struct slice *words, size_t *at)
{
    struct slice word = words[*at];
    bool has_next = *at + 1 < count;

    if (filter_is_word(word)) {
        return read_filter(reading, word);
    }
    if (word_is(word, "keys")) {
        reading->stream->keys = true;
        return true;
    }
    if (has_next && word_is(word, "sample")) {
        return read_sample(reading, words[++*at]);
    }
    if (has_next && word_is(word, "for")) {
        return read_number(reading, words[++*at], SECONDS_MAX, &reading->seconds, "FOR wants 1 to 300 seconds");
    }
    if (has_next && word_is(word, "count")) {
        return read_number(reading, words[++*at], INT64_MAX, &reading->lines, "COUNT wants a number of lines");
    }
    return fault(reading, "wants filters such as user=alice, SAMPLE, FOR, COUNT or KEYS; HELP TRACE");
}

/* ---- opening and closing ---- */

static void stream_free(struct trace_stream *stream)
{
    free(stream->waiting);
    free(stream);
}

/* NULL when memory is short. */
static struct trace_stream *stream_new(void)
{
    struct trace_stream *stream = calloc(1, sizeof *stream);

    if (stream == NULL) {
        return NULL;
    }
    stream->sample = UINT64_C(1) << 32;
    stream->waiting = malloc(WAITING_MAX);
    if (stream->waiting == NULL) {
        stream_free(stream);
        return NULL;
    }
    return stream;
}

static size_t free_place(const struct trace *trace)
{
    size_t place = 0;

    while (place < TRACE_STREAMS_MAX && trace->streams[place] != NULL) {
        place++;
    }
    return place;
}

static void *stream_open(void *instance, size_t count, const struct slice *arguments, uint64_t *lines, FILE *why)
{
    struct trace *trace = instance;
    size_t place = free_place(trace);
    bool has_place = place < TRACE_STREAMS_MAX;
    struct reading reading = {.stream = has_place ? stream_new() : NULL, .seconds = SECONDS_DEFAULT};

    if (reading.stream == NULL) {
        fprintf(why, has_place ? "out of memory" : "too many of TRACE and MONITOR at once");
        return NULL;
    }
    for (size_t i = 1; i < count; i++) {
        if (!read_word(&reading, count, arguments, &i)) {
            fprintf(why, "%s", reading.problem);
            stream_free(reading.stream);
            return NULL;
        }
    }
    reading.stream->read_us = trace->host->now_us(trace->host->context);
    reading.stream->unseen_us = trace_budget_unseen(trace, reading.stream->read_us);
    reading.stream->until_us = reading.stream->read_us + reading.seconds * 1000000;
    *lines = reading.lines > 0 ? (uint64_t)reading.lines : *lines;
    trace->streams[place] = reading.stream;
    trace->stream_count++;
    trace_changed(trace);
    return reading.stream;
}

/* The requests under way are none of that stream any more. */
static void forget(struct trace *trace, size_t number)
{
    struct traced *traced;

    LIST_FOREACH(traced, &trace->pending, of_trace)
    {
        traced->streams &= ~(UINT32_C(1) << number);
    }
}

static void stream_close(void *instance, void *opened)
{
    struct trace *trace = instance;
    size_t place = 0;

    while (trace->streams[place] != opened) {
        place++;
    }
    trace->streams[place] = NULL;
    trace->stream_count--;
    forget(trace, place);
    stream_free(opened);
    trace_changed(trace);
}

void trace_streams_free(struct trace *trace)
{
    for (size_t i = 0; i < TRACE_STREAMS_MAX; i++) {
        if (trace->streams[i] != NULL) {
            stream_free(trace->streams[i]);
        }
    }
}

/* ---- fetching ---- */

static void lose(struct trace *trace, struct trace_stream *stream)
{
    stream->lost++;
    policy_count(&trace->counters[TRACE_COUNTER_LOST], 1);
}

static void lose_waiting(struct trace *trace, struct trace_stream *stream)
{
    for (size_t i = 0; i < stream->waiting_length; i++) {
        if (stream->waiting[i] == '\n') {
            lose(trace, stream);
        }
    }
}

static bool stream_read(void *instance, void *opened, FILE *text, struct policy_stream_told *told)
{
    struct trace *trace = instance;
    struct trace_stream *stream = opened;
    int64_t now_us = trace->host->now_us(trace->host->context);
    int64_t unseen_us = trace_budget_unseen(trace, now_us);

    told->passed_us += now_us - stream->read_us;
    told->unseen_us += unseen_us - stream->unseen_us;
    stream->read_us = now_us;
    stream->unseen_us = unseen_us;
    trace_budget_spend(trace, (int64_t)stream->waiting_length / BYTES_A_US);
    if (text != NULL) {
        fwrite(stream->waiting, 1, stream->waiting_length, text);
    } else {
        lose_waiting(trace, stream);
    }
    stream->waiting_length = 0;
    told->lost += stream->lost;
    stream->lost = 0;
    return now_us < stream->until_us;
}

const struct policy_stream trace_stream_gathered = {
    .gathers = true, .lines = LINES_DEFAULT, .open = stream_open, .read = stream_read, .close = stream_close};
const struct policy_stream trace_stream_told = {
    .lines = UINT64_MAX, .open = stream_open, .read = stream_read, .close = stream_close};

/* ---- requests ---- */

/* Of 2^32. */
static uint64_t draw(struct trace *trace)
{
    trace->chance ^= trace->chance << 13;
    trace->chance ^= trace->chance >> 7;
    trace->chance ^= trace->chance << 17;
    return trace->chance >> 32;
}

static bool wants(struct trace *trace, const struct trace_stream *stream, const struct trace_subject *subject)
{
    bool is_over = subject->request->now_us >= stream->until_us;

    return !is_over && filter_passes(&stream->early, trace_fields, trace_value, subject) &&
           draw(trace) < stream->sample;
}

uint32_t trace_streams_want(struct trace *trace, const struct trace_subject *subject)
{
    uint32_t streams = 0;

    for (size_t i = 0; i < TRACE_STREAMS_MAX; i++) {
        bool is_wanted = trace->streams[i] != NULL && wants(trace, trace->streams[i], subject);
        streams |= (uint32_t)is_wanted << i;
    }
    return streams;
}

bool trace_streams_want_keys(const struct trace *trace, uint32_t streams)
{
    bool wanted = false;

    for (; streams != 0 && !wanted; streams &= streams - 1) {
        wanted = trace->streams[__builtin_ctz(streams)]->keys;
    }
    return wanted;
}

void trace_streams_lose(struct trace *trace, uint32_t streams)
{
    for (; streams != 0; streams &= streams - 1) {
        lose(trace, trace->streams[__builtin_ctz(streams)]);
    }
}

/* A line in one of its two forms: without keys, and with them. */
struct line {
    size_t length; /* 0: nobody has wanted it yet */
    char text[TRACE_LINE_MAX];
};

static void tell(struct trace *trace, struct trace_stream *stream, const struct trace_subject *subject,
                 struct line *line)
{
    if (!filter_passes(&stream->late, trace_fields, trace_value, subject)) {
        return;
    }
    if (line->length == 0) {
        line->length = trace_line(subject, stream->keys, line->text);
    }
    if (subject->traced->head == NULL || stream->waiting_length + line->length > WAITING_MAX) {
        lose(trace, stream);
        return;
    }
    memcpy(stream->waiting + stream->waiting_length, line->text, line->length);
    stream->waiting_length += line->length;
    policy_count(&trace->counters[TRACE_COUNTER_LINES], 1);
    trace_budget_spend(trace, TELLING_US);
}

void trace_streams_tell(struct trace *trace, uint32_t streams, const struct trace_subject *subject)
{
    struct line lines[2];

    lines[false].length = 0;
    lines[true].length = 0;
    for (; streams != 0; streams &= streams - 1) {
        struct trace_stream *stream = trace->streams[__builtin_ctz(streams)];
        tell(trace, stream, subject, &lines[stream->keys]);
    }
}
