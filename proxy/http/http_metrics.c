/*
 * Metrics, as Prometheus reads them: its text format 0.0.4, or OpenMetrics 1.0. Names are those of STATS behind
 * "headgate_", in base units. Labels are bounded: operations beyond OPERATIONS_MAX are told together.
 */
#include "http/http_private.h"

#include "base/resident.h"
#include "version.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first ones have series of their own for as long as the process lives. Several servers share their number, but
 * each has as many as OPERATIONS_LEAST. */
#define OPERATIONS_MAX 256
#define OPERATIONS_LEAST 32
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
    const struct http *http;
};

/* Of a series; NULL: it has no label of that name. */
struct labels {
    const char *server;
    const char *rule;
    const char *operation;
    const char *bound;
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

/* The server of that place, for a label; NULL if there is one only. */
static const char *server_label(const struct http *http, size_t server)
{
    return http_names_servers(http) ? http->servers->list[server].name : NULL;
}

/* A series up to its value. suffix: of the name. */
static void write_series(FILE *out, const char *name, const char *suffix, const struct labels *labels)
{
    const struct {
        const char *name, *value;
    } pairs[] = {
        {"server", labels->server}, {"rule", labels->rule}, {"operation", labels->operation}, {"le", labels->bound}};
    char before = '{';

    fprintf(out, "headgate_%s%s", name, suffix);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (pairs[i].value != NULL) {
            fputc(before, out);
            write_label(out, pairs[i].name, pairs[i].value);
            before = ',';
        }
    }
    fputs(before == ',' ? "} " : " ", out);
}

static void write_number(const struct metrics *metrics, const char *name, const char *server, uint64_t value)
{
    write_series(metrics->out, name, "", &(struct labels){.server = server});
    fprintf(metrics->out, "%" PRIu64 "\n", value);
}

/* ---- the process ---- */

static void write_process(const struct http *http, const struct metrics *metrics)
{
    struct http_process process = http->host.process(http->host.context);

    begin(metrics, "start_time_seconds", KIND_GAUGE, "when the process started, Unix time");
    write_number(metrics, "start_time_seconds", NULL, (uint64_t)http->started_s);
    begin(metrics, "worker_threads", KIND_GAUGE, "worker threads");
    for (size_t i = 0; i < http->servers->count; i++) {
        write_number(metrics, "worker_threads", server_label(http, i), http->servers->list[i].worker_pool.count);
    }
    begin(metrics, "draining", KIND_GAUGE, "1 while the process drains, and takes no new clients");
    write_number(metrics, "draining", NULL, process.is_draining);
    begin(metrics, "config_last_reload_successful", KIND_GAUGE,
          "0 if the configuration that was read last has a fault");
    write_number(metrics, "config_last_reload_successful", NULL, !process.reload_has_failed);
    begin(metrics, "config_last_reload_success_timestamp_seconds", KIND_GAUGE,
          "when a configuration was taken over last, Unix time");
    write_number(metrics, "config_last_reload_success_timestamp_seconds", NULL, (uint64_t)process.reloaded_s);
    begin(metrics, "resident_memory_bytes", KIND_GAUGE, "memory of the process that is in RAM");
    write_number(metrics, "resident_memory_bytes", NULL, resident_bytes());
}

/* ---- Redis ---- */

static void write_upstream(const struct metrics *metrics, const struct http_snapshot *snapshot, size_t server)
{
    const struct worker_facts *facts = &snapshot->parts[server].facts;
    const char *label = server_label(metrics->http, server);

    fputs("headgate_upstream_info{", metrics->out);
    if (label != NULL) {
        write_label(metrics->out, "server", label);
        fputc(',', metrics->out);
    }
    write_label(metrics->out, "address", metrics->http->servers->list[server].conf->upstream.text);
    if (facts->redis_version != 0) {
        fprintf(metrics->out, ",version=\"%u.%u.%u\"", facts->redis_version >> 16, facts->redis_version >> 8 & 0xff,
                facts->redis_version & 0xff);
    }
    fputs("} 1\n", metrics->out);
}

static void write_infos(const struct metrics *metrics, const struct http_snapshot *snapshot)
{
    begin(metrics, "build_info", KIND_INFO, "1; the version of Headgate");
    fprintf(metrics->out, "headgate_build_info{version=\"%s\"} 1\n", HEADGATE_VERSION);
    begin(metrics, "upstream_info", KIND_INFO, "1; the Redis that requests go to, and its version once it has told");
    for (size_t i = 0; i < snapshot->part_count; i++) {
        write_upstream(metrics, snapshot, i);
    }
}

/* Of those whose clock is known. */
static void write_clocks(const struct metrics *metrics, const struct http_snapshot *snapshot)
{
    bool has_begun = false;

    for (size_t i = 0; i < snapshot->part_count; i++) {
        const struct worker_facts *facts = &snapshot->parts[i].facts;
        if (facts->redis_version == 0 || facts->clock_offset_us == INT64_MIN) {
            continue;
        }
        if (!has_begun) {
            begin(metrics, "redis_clock_offset_seconds", KIND_GAUGE, "the clock of Redis minus that of this machine");
            has_begun = true;
        }
        write_series(metrics->out, "redis_clock_offset_seconds", "",
                     &(struct labels){.server = server_label(metrics->http, i)});
        fputs(facts->clock_offset_us < 0 ? "-" : "", metrics->out);
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

/* A family of counters or gauges, as Prometheus knows it. */
struct family {
    char name[128];
    uint64_t factor; /* of its values */
};

static bool is_counter_of(const char *other, const char *name)
{
    size_t length = strlen(name);

    return strncmp(other, name, length) == 0 && strcmp(other + length, "_total") == 0;
}

/* Whether there is a counter of that name, too, with "_total" behind it: to OpenMetrics both would be one. */
static bool has_counter(const struct chain_roster *policies, const char *name)
{
    bool has = false;

    for (enum stats_id id = 0; id < STATS_COUNT && !has; id++) {
        has = is_counter_of(stats_describe(id)->name, name);
    }
    for (size_t i = 0; i < policies->count && !has; i++) {
        const struct policy *policy = policies->list[i];
        for (size_t n = 0; n < policy->counter_count && !has; n++) {
            has = is_counter_of(policy->counters[n].name, name);
        }
    }
    return has;
}

static struct family begin_family(const struct metrics *metrics, const char *name, enum stats_kind kind,
                                  const char *help)
{
    struct family family = {.factor = 1};
    bool is_now = kind == STATS_GAUGE && has_counter(http_policies(metrics->http), name);
    const char *now = is_now ? "_now" : "";

    snprintf(family.name, sizeof family.name, "%s%s", name, now);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        const char *part = strstr(name, units[i].part);
        if (part != NULL) {
            snprintf(family.name, sizeof family.name, "%.*s%s%s%s", (int)(part - name), name, units[i].instead,
                     part + strlen(units[i].part), now);
            family.factor = units[i].factor;
            break;
        }
    }
    begin(metrics, family.name, kind == STATS_COUNTER ? KIND_COUNTER : KIND_GAUGE, help);
    return family;
}

static void write_stat(const struct metrics *metrics, enum stats_id id)
{
    const struct stats_description *description = stats_describe(id);
    const struct servers *servers = metrics->http->servers;
    struct family family = begin_family(metrics, description->name, description->kind, description->help);
    bool is_shared = servers_share_stat(id);

    for (size_t i = 0; i < (is_shared ? 1 : servers->count); i++) {
        write_number(metrics, family.name, is_shared ? NULL : server_label(metrics->http, i),
                     servers_stat(servers, i, i + 1, id) * family.factor);
    }
}

static void write_policy_counter(const struct metrics *metrics, size_t policy, size_t place)
{
    const struct policy_counter *counter = &http_policies(metrics->http)->list[policy]->counters[place];
    const struct servers *servers = metrics->http->servers;
    struct family family = begin_family(metrics, counter->name, counter->kind, counter->help);

    for (size_t i = 0; i < servers->count; i++) {
        write_number(metrics, family.name, server_label(metrics->http, i),
                     servers_policy_counter(servers, i, i + 1, policy, place) * family.factor);
    }
}

static void write_counters(const struct metrics *metrics)
{
    const struct chain_roster *policies = http_policies(metrics->http);

    for (enum stats_id id = 0; id < STATS_COUNT; id++) {
        write_stat(metrics, id);
    }
    for (size_t i = 0; i < policies->count; i++) {
        for (size_t n = 0; n < policies->list[i]->counter_count; n++) {
            write_policy_counter(metrics, i, n);
        }
    }
}

/* ---- rules ---- */

static void write_rule_counter(const struct metrics *metrics, const struct policy_counter *counter, size_t place,
                               const struct http_rules rules[])
{
    begin(metrics, counter->name, counter->kind == STATS_COUNTER ? KIND_COUNTER : KIND_GAUGE, counter->help);
    for (size_t i = 0; i < metrics->http->servers->count; i++) {
        for (size_t n = 0; n < rules[i].count; n++) {
            write_series(metrics->out, counter->name, "",
                         &(struct labels){.server = server_label(metrics->http, i), .rule = rules[i].list[n].name});
            fprintf(metrics->out, "%" PRIu64 "\n", rules[i].list[n].values[place]);
        }
    }
}

/* Those of one policy, before all servers; nothing where it has no rule. */
static void write_rules_of(const struct metrics *metrics, size_t place)
{
    const struct policy *policy = http_policies(metrics->http)->list[place];
    size_t servers = metrics->http->servers->count, count = 0;
    struct http_rules *rules = calloc(servers, sizeof *rules);

    for (size_t i = 0; rules != NULL && i < servers; i++) {
        rules[i] = http_rules_of(metrics->http, i, place);
        count += rules[i].count;
    }
    for (size_t n = 0; count > 0 && n < policy->rule_counter_count; n++) {
        write_rule_counter(metrics, &policy->rule_counters[n], n, rules);
    }
    for (size_t i = 0; rules != NULL && i < servers; i++) {
        free(rules[i].list);
    }
    free(rules);
}

static void write_rules(const struct metrics *metrics)
{
    const struct chain_roster *policies = http_policies(metrics->http);

    for (size_t i = 0; i < policies->count; i++) {
        if (policies->list[i]->tell_rules != NULL) {
            write_rules_of(metrics, i);
        }
    }
}

/* ---- operations ---- */

struct series {
    struct labels labels;
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
static bool is_other(const struct http_operation *operation, size_t servers)
{
    size_t share = OPERATIONS_MAX / servers > OPERATIONS_LEAST ? OPERATIONS_MAX / servers : OPERATIONS_LEAST;

    return operation->number >= share || strcmp(operation->name, OTHER) == 0;
}

/* Writes one for each operation of a server, and the last for all others, to where there is room for them. Returns
 * their count. */
static size_t add_part(struct series *series, const struct http_snapshot *snapshot, size_t server, const char *label)
{
    const struct http_part *part = &snapshot->parts[server];
    struct series others = {.labels = {.server = label, .operation = OTHER}};
    size_t count = 0;

    for (size_t i = 0; i < part->operation_count; i++) {
        const struct http_operation *operation = &part->operations[i];
        if (is_other(operation, snapshot->part_count)) {
            add_operation(&others, operation);
        } else {
            series[count].labels = (struct labels){.server = label, .operation = operation->name};
            add_operation(&series[count++], operation);
        }
    }
    if (others.count > 0) {
        series[count++] = others;
    }
    return count;
}

/* Those of all servers. NULL when memory is short. */
static struct series *series_of(const struct http *http, const struct http_snapshot *snapshot, size_t *count)
{
    size_t room = 0;

    for (size_t i = 0; i < snapshot->part_count; i++) {
        room += snapshot->parts[i].operation_count + 1;
    }
    struct series *all = calloc(room, sizeof *all);
    *count = 0;
    for (size_t i = 0; all != NULL && i < snapshot->part_count; i++) {
        *count += add_part(all + *count, snapshot, i, server_label(http, i));
    }
    return all;
}

static void write_histogram(FILE *out, const struct series *series)
{
    uint64_t sum = 0;

    for (size_t i = 0; i <= BOUNDS; i++) {
        struct labels labels = series->labels;
        labels.bound = i < BOUNDS ? bounds[i].text : "+Inf";
        sum += series->within[i];
        write_series(out, "request_duration_seconds", "_bucket", &labels);
        fprintf(out, "%" PRIu64 "\n", sum);
    }
    write_series(out, "request_duration_seconds", "_sum", &series->labels);
    write_seconds(out, series->sum_us);
    write_series(out, "request_duration_seconds", "_count", &series->labels);
    fprintf(out, "%" PRIu64 "\n", sum);
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
    struct series *all = series_of(metrics->http, snapshot, &count);

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
            write_series(metrics->out, counters[n].name, "", &all[i].labels);
            fprintf(metrics->out, "%" PRIu64 "\n", value);
        }
    }
    free(all);
}

void http_metrics_write(const struct http *http, const struct http_snapshot *snapshot, bool openmetrics, FILE *out)
{
    const struct metrics metrics = {.out = out, .openmetrics = openmetrics, .http = http};

    write_infos(&metrics, snapshot);
    write_process(http, &metrics);
    write_clocks(&metrics, snapshot);
    write_counters(&metrics);
    write_rules(&metrics);
    write_operations(snapshot, &metrics);
    if (openmetrics) {
        fputs("# EOF\n", out);
    }
}
