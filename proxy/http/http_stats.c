/* What the page shows, as JSON: bounded, whatever there is. */
#include "http/http_private.h"

#include "version.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Operations that have been busiest since the last snapshot are told with their distributions. */
#define DISTRIBUTIONS_MAX 64
/* Operations that are told at all: those with the lowest numbers. */
#define OPERATIONS_MAX 2000

/* ---- the process ---- */

uint64_t http_resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file != NULL) {
        if (fscanf(file, "%llu %llu", &size, &resident) != 2) {
            resident = 0;
        }
        fclose(file);
    }
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool http_is_ready(const struct http *http, const char **why)
{
    struct http_process process = http->host.process(http->host.context);

    if (process.is_draining) {
        *why = "draining: no new clients are taken";
        return false;
    }
    if (worker_pool_stat(http->worker_pool, STATS_UPSTREAM_UP) == 0) {
        *why = "Redis cannot be reached";
        return false;
    }
    return true;
}

static void write_text(FILE *out, const char *name, const char *text)
{
    fprintf(out, "\"%s\":", name);
    http_json_string(out, text, strlen(text));
    fputc(',', out);
}

static int64_t unix_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void write_process(const struct http *http, const struct http_snapshot *snapshot, FILE *out)
{
    const struct conf *conf = http->host.conf(http->host.context);
    struct http_process process = http->host.process(http->host.context);
    const struct worker_facts *facts = &snapshot->facts;
    const char *why = "ready";
    char version[32] = "";

    if (facts->redis_version != 0) {
        snprintf(version, sizeof version, "%u.%u.%u", facts->redis_version >> 16, facts->redis_version >> 8 & 0xff,
                 facts->redis_version & 0xff);
    }
    bool is_ready = http_is_ready(http, &why);
    write_text(out, "version", HEADGATE_VERSION);
    write_text(out, "machine", http->machine);
    write_text(out, "upstream", conf->upstream.text);
    write_text(out, "redis_version", version);
    write_text(out, "config_file", conf->path);
    write_text(out, "pool", conf->pool == CONF_POOL_SESSION ? "session" : "shared");
    write_text(out, "state", why);
    fprintf(
        out,
        "\"ready\":%s,\"reload_ok\":%s,\"reloaded\":%" PRId64 ",\"process_id\":%ld,\"threads\":%zu,\"time\":%" PRId64
        ",\"uptime\":%" PRId64 ",\"resident_bytes\":%" PRIu64 ",\n",
        is_ready ? "true" : "false", process.reload_has_failed ? "false" : "true", process.reloaded_s, (long)getpid(),
        http->worker_pool->count, unix_ms(), (clock_now_us() - http->started_us) / 1000000, http_resident_bytes());
}

/* ---- counters ---- */

typedef void counter_told(FILE *out, const char *section, const char *name, enum stats_kind kind, const char *help,
                          uint64_t value);

static void tell_value(FILE *out, const char *section, const char *name, enum stats_kind kind, const char *help,
                       uint64_t value)
{
    (void)section;
    (void)kind;
    (void)help;
    fprintf(out, "\"%s\":%" PRIu64, name, value);
}

static void tell_meaning(FILE *out, const char *section, const char *name, enum stats_kind kind, const char *help,
                         uint64_t value)
{
    (void)value;
    fprintf(out, "\"%s\":{\"section\":\"%s\",\"kind\":\"%s\",\"help\":", name, section,
            kind == STATS_COUNTER ? "counter" : "gauge");
    http_json_string(out, help, strlen(help));
    fputc('}', out);
}

static void write_counters(const struct worker_pool *worker_pool, counter_told *tell, FILE *out)
{
    const char *comma = "";

    fputc('{', out);
    for (enum stats_id id = 0; id < STATS_COUNT; id++, comma = ",\n") {
        const struct stats_description *description = stats_describe(id);
        fputs(comma, out);
        tell(out, description->section, description->name, description->kind, description->help,
             worker_pool_stat(worker_pool, id));
    }
    for (size_t i = 0; i < worker_pool->policies.count; i++) {
        const struct policy *policy = worker_pool->policies.list[i];
        for (size_t n = 0; n < policy->counter_count; n++) {
            const struct policy_counter *counter = &policy->counters[n];
            fputs(comma, out);
            tell(out, policy->counter_section, counter->name, counter->kind, counter->help,
                 worker_pool_policy_counter(worker_pool, i, n));
        }
    }
    fputc('}', out);
}

void http_stats_explain(const struct http *http, FILE *out)
{
    write_counters(http->worker_pool, tell_meaning, out);
    fputc('\n', out);
}

/* ---- clients and lanes ---- */

static void write_clients(const struct http_snapshot *snapshot, FILE *out)
{
    fprintf(out, "\"clients\":{\"count\":%zu,\"rows\":[", snapshot->client_count);
    for (size_t i = 0; i < snapshot->clients_shown; i++) {
        const struct http_client_row *row = &snapshot->clients[i];
        fprintf(out, "%s{", i > 0 ? ",\n" : "");
        write_text(out, "address", row->address);
        write_text(out, "name", row->name);
        write_text(out, "user", row->user);
        write_text(out, "identity", row->identity);
        write_text(out, "lane", row->lane);
        fprintf(out,
                "\"id\":%" PRIu64 ",\"worker\":%zu,\"db\":%" PRId64 ",\"resp\":%d,\"age\":%" PRId64
                ",\"idle_ms\":%" PRId64 ",\"pending\":%u,\"qbuf\":%zu,\"obuf\":%zu}",
                row->id, row->worker, row->database, row->resp, row->age_us / 1000000, row->idle_us / 1000,
                row->in_flight, row->input_bytes, row->output_bytes);
    }
    fputs("]},\n", out);
}

static void write_lanes(const struct http_snapshot *snapshot, FILE *out)
{
    fprintf(out, "\"lanes\":{\"count\":%zu,\"rows\":[", snapshot->lane_count);
    for (size_t i = 0; i < snapshot->lanes_shown; i++) {
        const struct http_lane_row *row = &snapshot->lanes[i];
        fprintf(out, "%s{", i > 0 ? ",\n" : "");
        write_text(out, "use", row->use);
        write_text(out, "state", row->state);
        write_text(out, "user", row->user);
        fprintf(out,
                "\"id\":%" PRIu64 ",\"worker\":%zu,\"db\":%" PRId64 ",\"resp\":%d,\"pending\":%" PRIu64
                ",\"obuf\":%zu,\"idle_ms\":%" PRId64 ",\"failures\":%u}",
                row->id, row->worker, row->database, row->resp, row->waiting, row->output_bytes, row->idle_us / 1000,
                row->failures);
    }
    fputs("]},\n", out);
}

/* ---- operations ---- */

struct rank {
    size_t place; /* in the snapshot */
    uint64_t fresh;
};

static int compare_ranks(const void *a, const void *b)
{
    const struct rank *left = a, *right = b;

    return left->fresh != right->fresh ? (left->fresh < right->fresh ? 1 : -1)
                                       : (left->place > right->place) - (left->place < right->place);
}

static uint64_t count_before(const struct http *http, const struct http_operation *operation)
{
    return operation->number < http->counts_room ? http->counts_before[operation->number] : 0;
}

/* Without memory it is as if there had been nothing before. */
static void keep_counts(struct http *http, const struct http_snapshot *snapshot)
{
    size_t count = snapshot->operation_count;
    size_t room = count > 0 ? (size_t)snapshot->operations[count - 1].number + 1 : 0;

    if (room > http->counts_room) {
        uint64_t *counts = realloc(http->counts_before, room * sizeof counts[0]);
        if (counts == NULL) {
            return;
        }
        memset(counts + http->counts_room, 0, (room - http->counts_room) * sizeof counts[0]);
        http->counts_before = counts;
        http->counts_room = room;
    }
    for (size_t i = 0; i < count; i++) {
        http->counts_before[snapshot->operations[i].number] = snapshot->operations[i].count;
    }
}

/* The place of each operation in the order of the busiest; NULL when memory is short. */
static size_t *rank_operations(const struct http *http, const struct http_snapshot *snapshot)
{
    size_t count = snapshot->operation_count;
    struct rank *ranks = malloc((count + 1) * sizeof ranks[0]);
    size_t *places = malloc((count + 1) * sizeof places[0]);

    if (ranks != NULL && places != NULL) {
        for (size_t i = 0; i < count; i++) {
            const struct http_operation *operation = &snapshot->operations[i];
            ranks[i] = (struct rank){i, operation->count - count_before(http, operation)};
        }
        qsort(ranks, count, sizeof ranks[0], compare_ranks);
        for (size_t i = 0; i < count; i++) {
            places[ranks[i].place] = i;
        }
    } else {
        free(places);
        places = NULL;
    }
    free(ranks);
    return places;
}

static void write_operation(const struct http_operation *operation, bool with_buckets, FILE *out)
{
    fputc('{', out);
    write_text(out, "name", operation->name);
    fprintf(out,
            "\"count\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"sum_us\":%" PRIu64 ",\"min_us\":%" PRIu64
            ",\"max_us\":%" PRIu64 ",\"in\":%" PRIu64 ",\"out\":%" PRIu64,
            operation->count, operation->errors, operation->sum_us, operation->min_us, operation->max_us,
            operation->request_bytes, operation->reply_bytes);
    if (with_buckets) {
        fputs(",\"buckets\":[", out);
        for (size_t i = 0; i < operation->bucket_count; i++) {
            fprintf(out, "%s%u,%" PRIu64, i > 0 ? "," : "", operation->buckets[i].index, operation->buckets[i].count);
        }
        fputc(']', out);
    }
    fputc('}', out);
}

static void write_operations(struct http *http, const struct http_snapshot *snapshot, FILE *out)
{
    size_t *places = rank_operations(http, snapshot);

    fprintf(out, "\"bucket_steps\":%d,\"operation_count\":%zu,\"operations\":[", POLICY_DURATION_STEPS,
            snapshot->operation_count);
    for (size_t i = 0; i < snapshot->operation_count && i < OPERATIONS_MAX; i++) {
        fputs(i > 0 ? ",\n" : "", out);
        write_operation(&snapshot->operations[i], places != NULL && places[i] < DISTRIBUTIONS_MAX, out);
    }
    fputs("],\n", out);
    free(places);
    keep_counts(http, snapshot);
}

/* ---- verbs ---- */

/* An answer that is an error is given as { "error": "…" }. */
static void write_answer(const struct http_snapshot *snapshot, size_t verb, FILE *out)
{
    const struct text_stream *answer = &snapshot->answers[verb];

    fprintf(out, "\"%s\":", http_verbs[verb].field);
    if (answer->bytes == NULL) {
        fputs("[]", out);
    } else if (snapshot->is_refused[verb]) {
        fputs("{\"error\":", out);
        http_json_string(out, answer->bytes, answer->length);
        fputc('}', out);
    } else {
        http_json_lines(out, answer->bytes, answer->length);
    }
    fputs(",\n", out);
}

void http_stats_write(struct http *http, const struct http_snapshot *snapshot, FILE *out)
{
    fputc('{', out);
    write_process(http, snapshot, out);
    write_clients(snapshot, out);
    write_lanes(snapshot, out);
    write_operations(http, snapshot, out);
    for (size_t i = 0; i < HTTP_VERBS; i++) {
        write_answer(snapshot, i, out);
    }
    fputs("\"counters\":", out);
    write_counters(http->worker_pool, tell_value, out);
    fputs("}\n", out);
}
