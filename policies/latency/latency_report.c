/*
 * REPORT: figures of some minutes, from Redis, which all sidecars write to. The minutes of an operation are asked for
 * some at a time, one call after the other, so that Redis has never much to do at once.
 *
 *   admin query ─► (REPORT *: the names) ─► for each operation: its minutes, in calls ─► its line, or one for each
 * minute
 */
#include "latency/latency_private.h"
#include "latency/latency_time.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_PER_MINUTE 60
#define DEFAULT_SPAN_S (15 * SECONDS_PER_MINUTE)
/* 31 days, as from -31d to now, of which both ends count; and minutes of all operations together. */
#define MINUTES_MAX (INT64_C(31) * 1440 + 1)
#define MINUTES_OF_ALL_MAX INT64_C(200000)
/* Operations of one answer, as an argument of a script. */
#define NAMES_MAX "10000"

struct name {
    char text[LATENCY_NAME_MAX + 1];
};

struct latency_report {
    struct latency *latency;
    struct admin_query *admin_query;
    struct name *names;
    size_t name_count;
    bool of_all;      /* REPORT *: operations without requests are left out */
    bool lists;       /* the names are being asked for */
    int64_t from, to; /* minutes, both included */
    int64_t now_s;    /* when it was asked */
    int64_t until_us; /* who asked does not wait for longer; monotonic */
    bool by_minute;
    size_t name;                    /* the operation at hand … */
    int64_t minute;                 /* … the first of its minutes that was not read yet … */
    int64_t asked;                  /* … how many are being asked for … */
    struct latency_figures figures; /* … and what has been read */
    struct latency_call call;
    bool is_calling; /* the call has not returned yet */
    bool has_answered;
    struct text_stream text;
    const char *error;
    char error_text[POLICY_TEXT_MAX];
};

/* ---- the end ---- */

static void finish(struct latency_report *report)
{
    const struct policy_host *host = report->latency->host;

    bool is_written = text_close(&report->text);
    if (!is_written && report->error == NULL) {
        report->error = "out of memory";
    }
    if (report->error != NULL) {
        latency_answer_error(report->latency, report->admin_query, report->error);
    } else {
        host->answer(host->context, report->admin_query, POLICY_ANSWER_TEXT,
                     (struct slice){report->text.bytes, report->text.length});
    }
    latency_call_clear(&report->call);
    text_free(&report->text);
    free(report->names);
    free(report);
}

static void fail(struct latency_report *report, const char *error)
{
    snprintf(report->error_text, sizeof report->error_text, "Redis did not answer the report: %s", error);
    report->error = report->error_text;
}

/* ---- lines ---- */

/* How much of the minutes from first to last has passed; -1: they are to come, as after the clock was set back. */
static double seconds_of(const struct latency_report *report, int64_t first, int64_t last)
{
    int64_t begin = first * SECONDS_PER_MINUTE, end = (last + 1) * SECONDS_PER_MINUTE;

    end = end < report->now_s ? end : report->now_s;
    return end > begin ? (double)(end - begin) : end == begin ? 1 : -1;
}

static void print_line(struct latency_report *report, int64_t first, int64_t last)
{
    const char *name = report->names[report->name].text;
    char time[LATENCY_TIME_SIZE];

    if (report->figures.histogram.count > 0 || (!report->of_all && !report->by_minute)) {
        latency_time_write(first * SECONDS_PER_MINUTE, time);
        fprintf(report->text.out, "interface=%s from=%s minutes=%" PRId64, name, time, last - first + 1);
        latency_print_figures(&report->figures, seconds_of(report, first, last), report->text.out);
    }
    report->figures = (struct latency_figures){0};
}

/* What was asked for has been read. */
static void step(struct latency_report *report)
{
    report->minute += report->asked;
    if (report->by_minute) {
        print_line(report, report->minute - 1, report->minute - 1);
    } else if (report->minute > report->to) {
        print_line(report, report->from, report->to);
    }
    if (report->minute > report->to) {
        report->name++;
        report->minute = report->from;
    }
}

/* ---- names ---- */

static bool is_safe(struct slice name)
{
    for (size_t i = 0; i < name.length; i++) {
        if (name.data[i] <= ' ' || name.data[i] > '~' || name.data[i] == '{' || name.data[i] == '}') {
            return false;
        }
    }
    return name.length > 0 && name.length <= LATENCY_NAME_MAX;
}

/* As it is shown, or as it was before it was made safe. */
static void add_name(struct latency_report *report, struct slice name)
{
    struct name *added = &report->names[report->name_count++];

    if (is_safe(name)) {
        memcpy(added->text, name.data, name.length);
        added->text[name.length] = '\0';
    } else {
        (void)latency_operation_safe_name(name, added->text);
    }
}

static void read_names(struct latency_report *report, const struct policy_script_reply *reply)
{
    struct name *names = realloc(report->names, (reply->count + 1) * sizeof *names);

    report->lists = false;
    if (names == NULL) {
        report->error = "out of memory";
        return;
    }
    report->names = names;
    for (size_t i = 0; i < reply->count; i++) {
        if (reply->texts[i].data != NULL) {
            add_name(report, reply->texts[i]);
        }
    }
    if ((int64_t)report->name_count * (report->to - report->from + 1) > MINUTES_OF_ALL_MAX) {
        report->error = "that is too much at once: ask for fewer minutes, or for one interface";
    }
}

/* ---- asking Redis ---- */

static void advance(struct latency_report *report);

static void answered(void *context, const struct policy_script_reply *reply)
{
    struct latency_report *report = context;

    report->latency->calls--;
    report->has_answered = true;
    if (reply->error != NULL) {
        fail(report, reply->error);
    } else if (report->lists) {
        read_names(report, reply);
    } else if (policy_script_gave_integers(reply, 1) &&
               latency_report_read(reply->integers, reply->count, &report->figures)) {
        step(report);
    } else {
        fail(report, "what it said is no report");
    }
    if (!report->is_calling) {
        advance(report);
    }
}

static void ask_names(struct latency_report *report)
{
    char key[LATENCY_KEY_SIZE];
    int length = snprintf(key, sizeof key, LATENCY_LIST_KEY, report->latency->settings.prefix);
    const struct slice arguments[] = {{key, (size_t)length}, slice_of(NAMES_MAX)};

    latency_run(report->latency, "latency_listed", arguments, 2, 1, answered, report);
}

static void ask_minutes(struct latency_report *report)
{
    struct latency_layout layout = latency_layout_of(report->latency);
    int64_t left = report->to - report->minute + 1;
    int64_t most = report->by_minute ? 1 : LATENCY_REPORT_MINUTES;

    report->asked = left < most ? left : most;
    if (!latency_call_report(&report->call, &layout, report->names[report->name].text, report->minute,
                             (size_t)report->asked)) {
        report->error = "out of memory";
        report->has_answered = true;
        return;
    }
    latency_run(report->latency, "latency_report", report->call.arguments, report->call.argument_count,
                report->call.key_count, answered, report);
}

/* Redis is not kept busy for nobody. */
static void check_time(struct latency_report *report)
{
    if (report->error == NULL && latency_now(report->latency) > report->until_us) {
        report->error = "it takes too long: ask for fewer minutes, or for one interface";
    }
}

/* Goes on until something has to be waited for. Answers may come within the call. */
static void advance(struct latency_report *report)
{
    do {
        check_time(report);
        if (report->error != NULL || (!report->lists && report->name == report->name_count)) {
            finish(report);
            return;
        }
        report->has_answered = false;
        report->is_calling = true;
        if (report->lists) {
            ask_names(report);
        } else {
            ask_minutes(report);
        }
        report->is_calling = false;
    } while (report->has_answered);
}

/* ---- the admin query ---- */

/* [FROM t] [TO t] [BY minute]; what is wrong, or NULL. */
static const char *read_arguments(struct latency_report *report, size_t count, const struct slice *arguments)
{
    int64_t from_s = report->now_s - DEFAULT_SPAN_S, to_s = report->now_s;

    for (size_t i = 2; i < count; i += 2) {
        bool is_from = slice_is_word(arguments[i], "from"), is_to = slice_is_word(arguments[i], "to");
        if (i + 1 == count || !(is_from || is_to || slice_is_word(arguments[i], "by"))) {
            return "expected FROM time, TO time or BY minute behind the interface";
        }
        if (!is_from && !is_to) {
            report->by_minute = true;
            if (!slice_is_word(arguments[i + 1], "minute")) {
                return "expected BY minute";
            }
        } else if (!latency_time_read(arguments[i + 1], report->now_s, is_from ? &from_s : &to_s)) {
            return "not a time; expected Unix seconds, -15m, now or 2026-11-21T20:15";
        }
    }
    report->from = from_s / SECONDS_PER_MINUTE;
    report->to = to_s / SECONDS_PER_MINUTE;
    report->minute = report->from;
    if (report->from > report->to) {
        return "FROM is behind TO";
    }
    return report->to - report->from >= MINUTES_MAX ? "that is more than 31 days" : NULL;
}

static struct latency_report *report_new(struct latency *latency, struct admin_query *admin_query)
{
    struct latency_report *report = calloc(1, sizeof *report);

    if (report == NULL) {
        return NULL;
    }
    report->latency = latency;
    report->admin_query = admin_query;
    report->now_s = latency->host->wall_us(latency->host->context) / LATENCY_US_PER_S;
    report->until_us = latency_now(latency) + POLICY_ANSWER_PATIENCE_MS * INT64_C(1000);
    report->names = malloc(sizeof *report->names);
    if (report->names != NULL && text_open(&report->text)) {
        return report;
    }
    free(report->names);
    free(report);
    return NULL;
}

void latency_verb_report(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    struct latency *latency = instance;

    if (!latency->settings.enabled) {
        latency_answer_error(latency, admin_query, "requests are not measured; see [latency] enabled");
        return;
    }
    struct latency_report *report = report_new(latency, admin_query);
    if (report == NULL) {
        latency_answer_error(latency, admin_query, "out of memory");
        return;
    }
    report->of_all = slice_is_word(arguments[1], "*");
    report->lists = report->of_all;
    if (!report->of_all) {
        add_name(report, arguments[1]);
    }
    report->error = read_arguments(report, count, arguments);
    advance(report);
}
