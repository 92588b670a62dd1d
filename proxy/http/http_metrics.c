/*
 * Metrics, as Prometheus reads them: its text format 0.0.4, or OpenMetrics 1.0. Names are those of STATS behind
 * "headgate_", in base units. Labels are bounded: operations beyond OPERATIONS_MAX are told together.
 */
#include "http/http_private.h"

#include "version.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first ones have series of their own for as long as the process lives. */
#define OPERATIONS_MAX 256
#define OTHER "other"
#define SECONDS_OF_DAY UINT64_C(86400)

/* Bounds of the buckets: µs, and as they are written, which is the same in both formats. */
static const struct bound {
    uint64_t us;
    const char *text;
} bounds[] = {
    {10, "1e-05"},    {20, "2e-05"},    {50, "5e-05"},    {100, "0.0001"},    {200, "0.0002"},
    {500, "0.0005"},  {1000, "0.001"},  {2000, "0.002"},  {5000, "0.005"},    {10000, "0.01"},
    {20000, "0.02"},  {50000, "0.05"},  {100000, "0.1"},  {200000, "0.2"},    {500000, "0.5"},
    {1000000, "1.0"}, {2000000, "2.0"}, {5000000, "5.0"}, {10000000, "10.0"}, {60000000, "60.0"},
};

#define BOUNDS (sizeof bounds / sizeof bounds[0])

struct metrics {
    FILE *out;
    bool openmetrics;
};

enum kind { KIND_GAUGE, KIND_COUNTER, KIND_HISTOGRAM, KIND_INFO };

/* ---- the formats ---- */

/* name: as in the format of Prometheus, where those of counters and infos end as their series do. */
static void begin(const struct metrics *metrics, const char *name, enum kind kind, const char *help)
{
    static const char *const types[2][4] = {{"gauge", "counter", "histogram", "gauge"},
                                            {"gauge", "counter", "histogram", "info"}};
    size_t length = strlen(name);

    if (metrics->openmetrics && kind == KIND_COUNTER) {
        length -= strlen("_total");
    } else if (metrics->openmetrics && kind == KIND_INFO) {
        length -= strlen("_info");
    }
    fprintf(metrics->out, "# HELP headgate_%.*s ", (int)length, name);
    for (; *help != '\0'; help++) {
        if (*help == '\\' || (*help == '"' && metrics->openmetrics)) {
            fputc('\\', metrics->out);
        }
        fputc(*help == '\n' ? ' ' : *help, metrics->out);
    }
    fprintf(metrics->out, "\n# TYPE headgate_%.*s %s\n", (int)length, name, types[metrics->openmetrics][kind]);
}

static void write_number(const struct metrics *metrics, const char *name, uint64_t value)
{
    fprintf(metrics->out, "headgate_%s %" PRIu64 "\n", name, value);
}

/* µs, as seconds. */
static void write_seconds(FILE *out, uint64_t us)
{
    fprintf(out, "%" PRIu64 ".%06u\n", us / 1000000, (unsigned)(us % 1000000));
}

static void write_label(FILE *out, const char *name, const char *value)
{
    fprintf(out, "%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\') {
            fprintf(out, "\\%c", *value);
        } else if ((unsigned char)*value < ' ' || (unsigned char)*value >= 0x7f) {
            fprintf(out, "\\\\x%02x", (unsigned char)*value);
        } else {
            fputc(*value, out);
        }
    }
    fputc('"', out);
}

/* ---- the process ---- */

static void write_process(const struct http *http, const struct http_snapshot *snapshot, const struct metrics *metrics)
{
    const struct conf *conf = http->host.conf(http->host.context);
    struct http_process process = http->host.process(http->host.context);
    const struct worker_facts *facts = &snapshot->facts;

    begin(metrics, "build_info", KIND_INFO, "1; the version of Headgate");
    fprintf(metrics->out, "headgate_build_info{version=\"%s\"} 1\n", HEADGATE_VERSION);
    begin(metrics, "upstream_info", KIND_INFO, "1; the Redis that requests go to, and its version once it has told");
    fputs("headgate_upstream_info{", metrics->out);
    write_label(metrics->out, "address", conf->upstream.text);
    if (facts->redis_version != 0) {
        fprintf(metrics->out, ",version=\"%u.%u.%u\"", facts->redis_version >> 16, facts->redis_version >> 8 & 0xff,
                facts->redis_version & 0xff);
    }
    fputs("} 1\n", metrics->out);
    begin(metrics, "start_time_seconds", KIND_GAUGE, "when the process started, Unix time");
    write_number(metrics, "start_time_seconds", (uint64_t)http->started_s);
    begin(metrics, "worker_threads", KIND_GAUGE, "worker threads");
    write_number(metrics, "worker_threads", http->worker_pool->count);
    begin(metrics, "draining", KIND_GAUGE, "1 while the process drains, and takes no new clients");
    write_number(metrics, "draining", process.is_draining);
    begin(metrics, "config_last_reload_successful", KIND_GAUGE,
          "0 if the configuration that was read last has a fault");
    write_number(metrics, "config_last_reload_successful", !process.reload_has_failed);
    begin(metrics, "config_last_reload_success_timestamp_seconds", KIND_GAUGE,
          "when a configuration was taken over last, Unix time");
    write_number(metrics, "config_last_reload_success_timestamp_seconds", (uint64_t)process.reloaded_s);
    begin(metrics, "resident_memory_bytes", KIND_GAUGE, "memory of the process that is in RAM");
    write_number(metrics, "resident_memory_bytes", http_resident_bytes());
    if (facts->redis_version != 0 && facts->clock_offset_us != INT64_MIN) {
        begin(metrics, "redis_clock_offset_seconds", KIND_GAUGE, "the clock of Redis minus that of this machine");
        fprintf(metrics->out, "headgate_redis_clock_offset_seconds %s", facts->clock_offset_us < 0 ? "-" : "");
        write_seconds(metrics->out, (uint64_t)llabs(facts->clock_offset_us));
    }
}

/* ---- counters ---- */

/* Names in which Prometheus would see a unit, and one that is no base unit. Days become seconds; what is counted by
 * minutes are records of that length. */
static const struct {
    const char *part, *instead;
    uint64_t factor;
} units[] = {{"_days", "_seconds", SECONDS_OF_DAY}, {"_minutes", "_records", 1}};

static void write_counter(const struct metrics *metrics, const char *name, enum stats_kind kind, const char *help,
                          uint64_t value)
{
    char renamed[128];

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        const char *part = strstr(name, units[i].part);
        if (part != NULL) {
            snprintf(renamed, sizeof renamed, "%.*s%s%s", (int)(part - name), name, units[i].instead,
                     part + strlen(units[i].part));
            name = renamed;
            value *= units[i].factor;
            break;
        }
    }
    begin(metrics, name, kind == STATS_COUNTER ? KIND_COUNTER : KIND_GAUGE, help);
    write_number(metrics, name, value);
}

static bool is_counter_of(const char *other, const char *name)
{
    size_t length = strlen(name);

    return strncmp(other, name, length) == 0 && strcmp(other + length, "_total") == 0;
}

/* Whether there is a counter of that name, too, with "_total" behind it: to OpenMetrics both would be one. */
static bool has_counter(const struct worker_pool *worker_pool, const char *name)
{
    bool has = false;

    for (enum stats_id id = 0; id < STATS_COUNT && !has; id++) {
        has = is_counter_of(stats_describe(id)->name, name);
    }
    for (size_t i = 0; i < worker_pool->policies.count && !has; i++) {
        const struct policy *policy = worker_pool->policies.list[i];
        for (size_t n = 0; n < policy->counter_count && !has; n++) {
            has = is_counter_of(policy->counters[n].name, name);
        }
    }
    return has;
}

static void write_named(const struct worker_pool *worker_pool, const struct metrics *metrics, const char *name,
                        enum stats_kind kind, const char *help, uint64_t value)
{
    char full[128];

    snprintf(full, sizeof full, "%s%s", name, kind == STATS_GAUGE && has_counter(worker_pool, name) ? "_now" : "");
    write_counter(metrics, full, kind, help, value);
}

static void write_counters(const struct worker_pool *worker_pool, const struct metrics *metrics)
{
    for (enum stats_id id = 0; id < STATS_COUNT; id++) {
        const struct stats_description *description = stats_describe(id);
        write_named(worker_pool, metrics, description->name, description->kind, description->help,
                    worker_pool_stat(worker_pool, id));
    }
    for (size_t i = 0; i < worker_pool->policies.count; i++) {
        const struct policy *policy = worker_pool->policies.list[i];
        for (size_t n = 0; n < policy->counter_count; n++) {
            const struct policy_counter *counter = &policy->counters[n];
            write_named(worker_pool, metrics, counter->name, counter->kind, counter->help,
                        worker_pool_policy_counter(worker_pool, i, n));
        }
    }
}

/* ---- operations ---- */

struct series {
    const char *operation;
    uint64_t count;
    uint64_t errors;
    uint64_t sum_us;
    uint64_t request_bytes;
    uint64_t reply_bytes;
    uint64_t within[BOUNDS + 1]; /* not added up; the last: longer than all */
};

/* The first bound that all of the bucket is within, or at least its middle. */
static size_t bound_of(uint32_t bucket)
{
    double middle = exp2(((double)bucket - 0.5) / POLICY_DURATION_STEPS);
    double greatest = floor(exp2((double)bucket / POLICY_DURATION_STEPS));
    size_t place = 0;

    while (place < BOUNDS && middle > (double)bounds[place].us && greatest > (double)bounds[place].us) {
        place++;
    }
    return place;
}

static void add_operation(struct series *series, const struct http_operation *operation)
{
    series->count += operation->count;
    series->errors += operation->errors;
    series->sum_us += operation->sum_us;
    series->request_bytes += operation->request_bytes;
    series->reply_bytes += operation->reply_bytes;
    for (size_t i = 0; i < operation->bucket_count; i++) {
        series->within[bound_of(operation->buckets[i].index)] += operation->buckets[i].count;
    }
}

/* The policy's own name for what has no room is the same. */
static bool is_other(const struct http_operation *operation)
{
    return operation->number >= OPERATIONS_MAX || strcmp(operation->name, OTHER) == 0;
}

/* One for each operation, and the last for all others. NULL when memory is short. */
static struct series *series_of(const struct http_snapshot *snapshot, size_t *count)
{
    struct series *all = calloc(snapshot->operation_count + 1, sizeof *all);
    struct series others = {.operation = OTHER};

    *count = 0;
    for (size_t i = 0; all != NULL && i < snapshot->operation_count; i++) {
        const struct http_operation *operation = &snapshot->operations[i];
        if (is_other(operation)) {
            add_operation(&others, operation);
        } else {
            all[*count].operation = operation->name;
            add_operation(&all[(*count)++], operation);
        }
    }
    if (all != NULL && others.count > 0) {
        all[(*count)++] = others;
    }
    return all;
}

/* Names of operations need no escapes (policy_durations). */
static void write_histogram(FILE *out, const struct series *series)
{
    uint64_t sum = 0;

    for (size_t i = 0; i <= BOUNDS; i++) {
        sum += series->within[i];
        fprintf(out, "headgate_request_duration_seconds_bucket{operation=\"%s\",le=\"%s\"} %" PRIu64 "\n",
                series->operation, i < BOUNDS ? bounds[i].text : "+Inf", sum);
    }
    fprintf(out, "headgate_request_duration_seconds_sum{operation=\"%s\"} ", series->operation);
    write_seconds(out, series->sum_us);
    fprintf(out, "headgate_request_duration_seconds_count{operation=\"%s\"} %" PRIu64 "\n", series->operation, sum);
}

static void write_operations(const struct http_snapshot *snapshot, const struct metrics *metrics)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } counters[] = {
        {"operation_errors_total", "requests answered by an error, or not at all", offsetof(struct series, errors)},
        {"operation_request_bytes_total", "bytes of requests", offsetof(struct series, request_bytes)},
        {"operation_reply_bytes_total", "bytes of replies", offsetof(struct series, reply_bytes)},
    };
    size_t count;
    struct series *all = series_of(snapshot, &count);

    if (all == NULL || count == 0) {
        free(all);
        return;
    }
    begin(metrics, "request_duration_seconds", KIND_HISTOGRAM,
          "from the last byte of a request to the last byte of its reply, as [latency] measures it");
    for (size_t i = 0; i < count; i++) {
        write_histogram(metrics->out, &all[i]);
    }
    for (size_t n = 0; n < sizeof counters / sizeof counters[0]; n++) {
        begin(metrics, counters[n].name, KIND_COUNTER, counters[n].help);
        for (size_t i = 0; i < count; i++) {
            uint64_t value;
            memcpy(&value, (const char *)&all[i] + counters[n].offset, sizeof value);
            fprintf(metrics->out, "headgate_%s{operation=\"%s\"} %" PRIu64 "\n", counters[n].name, all[i].operation,
                    value);
        }
    }
    free(all);
}

void http_metrics_write(const struct http *http, const struct http_snapshot *snapshot, bool openmetrics, FILE *out)
{
    const struct metrics metrics = {.out = out, .openmetrics = openmetrics};

    write_process(http, snapshot, &metrics);
    write_counters(http->worker_pool, &metrics);
    write_operations(snapshot, &metrics);
    if (openmetrics) {
        fputs("# EOF\n", out);
    }
}
