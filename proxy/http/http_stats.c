/* What the page shows, as JSON: bounded, whatever there is. */
#include "http/http_private.h"

#include "base/json.h"
#include "base/resident.h"
#include "version.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Operations that have been busiest since the last snapshot are told with their distributions. */
#define DISTRIBUTIONS_MAX 64
/* Operations that are told at all: those with the lowest numbers. Of both several servers have a share each. */
#define OPERATIONS_MAX 2000

static bool is_up(const struct server *server)
{
    return worker_pool_stat(&server->worker_pool, STATS_UPSTREAM_UP) != 0;
}

/* As far as there is room. */
static void add_why(char why[HTTP_WHY_SIZE], const char *text)
{
    size_t length = strlen(why);

    snprintf(why + length, HTTP_WHY_SIZE - length, "%s", text);
}

/* Of several servers, also which. False: all can be reached. */
static bool tell_unreached(const struct servers *servers, char why[HTTP_WHY_SIZE])
{
    bool is_told = false;

    *why = '\0';
    for (size_t i = 0; i < servers->count; i++) {
        if (is_up(&servers->list[i])) {
            continue;
        }
        if (!is_told) {
            add_why(why, "Redis cannot be reached");
        }
        if (servers->count > 1) {
            add_why(why, is_told ? ", " : ": ");
            add_why(why, servers->list[i].name);
        }
        is_told = true;
    }
    return is_told;
}

bool http_is_ready(const struct http *http, char why[HTTP_WHY_SIZE])
{
    struct http_process process = http->host.process(http->host.context);

    if (process.is_draining) {
        snprintf(why, HTTP_WHY_SIZE, "draining: no new clients are taken");
        return false;
    }
    if (tell_unreached(http->servers, why)) {
        return false;
    }
    snprintf(why, HTTP_WHY_SIZE, "ready");
    return true;
}

static int64_t unix_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The field of what is about one of several servers. */
static void write_server(const struct http *http, size_t server, FILE *out)
{
    if (http_names_servers(http)) {
        json_field(out, "server", http->servers->list[server].name);
    }
}

static void write_redis(const struct http *http, const struct http_snapshot *snapshot, size_t server, FILE *out)
{
    const struct worker_facts *facts = &snapshot->parts[server].facts;
    char version[32] = "";

    if (facts->redis_version != 0) {
        snprintf(version, sizeof version, "%u.%u.%u", facts->redis_version >> 16, facts->redis_version >> 8 & 0xff,
                 facts->redis_version & 0xff);
    }
    json_field(out, "upstream", http->servers->list[server].conf->upstream.text);
    json_field(out, "redis_version", version);
}

static void write_pool(const struct server *server, FILE *out)
{
    json_field(out, "pool", server->conf->pool == CONF_POOL_SESSION ? "session" : "shared");
}

/* Several: what one has in place of the process. */
static void write_servers(const struct http *http, const struct http_snapshot *snapshot, FILE *out)
{
    fputs("\"servers\":[", out);
    for (size_t i = 0; i < http->servers->count; i++) {
        const struct server *server = &http->servers->list[i];
        const struct worker_pool *worker_pool = &server->worker_pool;
        fprintf(out, "%s{", i > 0 ? ",\n" : "");
        write_server(http, i, out);
        write_redis(http, snapshot, i, out);
        write_pool(server, out);
        fprintf(
            out, "\"up\":%s,\"threads\":%zu,\"clients\":%" PRIu64 ",\"lanes\":%" PRIu64 ",\"requests\":%" PRIu64 "}",
            is_up(server) ? "true" : "false", worker_pool->count,
            worker_pool_stat(worker_pool, STATS_CLIENTS_CONNECTED),
            worker_pool_stat(worker_pool, STATS_LANES_SHARED) + worker_pool_stat(worker_pool, STATS_LANES_EXCLUSIVE),
            servers_stat(http->servers, i, i + 1, STATS_REQUESTS));
    }
    fputs("],\n", out);
}

static void write_process(const struct http *http, const struct http_snapshot *snapshot, FILE *out)
{
    struct http_process process = http->host.process(http->host.context);
    char why[HTTP_WHY_SIZE];
    bool is_ready = http_is_ready(http, why);

    json_field(out, "version", HEADGATE_VERSION);
    json_field(out, "machine", http->machine);
    if (http_names_servers(http)) {
        write_servers(http, snapshot, out);
    } else {
        write_redis(http, snapshot, 0, out);
    }
    json_field(out, "config_file", http->host.conf(http->host.context)->path);
    if (!http_names_servers(http)) {
        write_pool(&http->servers->list[0], out);
    }
    json_field(out, "state", why);
    fprintf(
        out,
        "\"ready\":%s,\"reload_ok\":%s,\"reloaded\":%" PRId64 ",\"process_id\":%ld,\"threads\":%zu,\"time\":%" PRId64
        ",\"uptime\":%" PRId64 ",\"resident_bytes\":%" PRIu64 ",\n",
        is_ready ? "true" : "false", process.reload_has_failed ? "false" : "true", process.reloaded_s, (long)getpid(),
        servers_workers(http->servers), unix_ms(), (clock_now_us() - http->started_us) / 1000000, resident_bytes());
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
    json_string(out, help, strlen(help));
    fputc('}', out);
}

/* What all servers have together. */
static void write_counters(const struct servers *servers, counter_told *tell, FILE *out)
{
    const struct chain_roster *policies = &servers->list[0].worker_pool.policies;
    const char *comma = "";

    fputc('{', out);
    for (enum stats_id id = 0; id < STATS_COUNT; id++, comma = ",\n") {
        const struct stats_description *description = stats_describe(id);
        fputs(comma, out);
        tell(out, description->section, description->name, description->kind, description->help,
             servers_stat(servers, 0, servers->count, id));
    }
    for (size_t i = 0; i < policies->count; i++) {
        const struct policy *policy = policies->list[i];
        for (size_t n = 0; n < policy->counter_count; n++) {
            const struct policy_counter *counter = &policy->counters[n];
            fputs(comma, out);
            tell(out, policy->counter_section, counter->name, counter->kind, counter->help,
                 servers_policy_counter(servers, 0, servers->count, i, n));
        }
    }
    fputc('}', out);
}

void http_stats_explain(const struct http *http, FILE *out)
{
    write_counters(http->servers, tell_meaning, out);
    fputc('\n', out);
}

/* ---- clients and lanes ---- */

static void write_clients(const struct http *http, const struct http_snapshot *snapshot, FILE *out)
{
    fprintf(out, "\"clients\":{\"count\":%zu,\"rows\":[", snapshot->client_count);
    for (size_t i = 0; i < snapshot->clients_shown; i++) {
        const struct http_client_row *row = &snapshot->clients[i];
        fprintf(out, "%s{", i > 0 ? ",\n" : "");
        write_server(http, row->server, out);
        json_field(out, "address", row->address);
        json_field(out, "name", row->name);
        json_field(out, "user", row->user);
        json_field(out, "identity", row->identity);
        json_field(out, "lane", row->lane);
        fprintf(out,
                "\"id\":%" PRIu64 ",\"worker\":%zu,\"db\":%" PRId64 ",\"resp\":%d,\"age\":%" PRId64
                ",\"idle_ms\":%" PRId64 ",\"pending\":%u,\"qbuf\":%zu,\"obuf\":%zu}",
                row->id, row->worker, row->database, row->resp, row->age_us / 1000000, row->idle_us / 1000,
                row->in_flight, row->input_bytes, row->output_bytes);
    }
    fputs("]},\n", out);
}

static void write_lanes(const struct http *http, const struct http_snapshot *snapshot, FILE *out)
{
    fprintf(out, "\"lanes\":{\"count\":%zu,\"rows\":[", snapshot->lane_count);
    for (size_t i = 0; i < snapshot->lanes_shown; i++) {
        const struct http_lane_row *row = &snapshot->lanes[i];
        fprintf(out, "%s{", i > 0 ? ",\n" : "");
        write_server(http, row->server, out);
        json_field(out, "use", row->use);
        json_field(out, "state", row->state);
        json_field(out, "user", row->user);
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

static uint64_t count_before(const struct http_counts *before, const struct http_operation *operation)
{
    return operation->number < before->room ? before->list[operation->number] : 0;
}

/* Without memory it is as if there had been nothing before. */
static void keep_counts(struct http_counts *before, const struct http_part *part)
{
    size_t count = part->operation_count;
    size_t room = count > 0 ? (size_t)part->operations[count - 1].number + 1 : 0;

    if (room > before->room) {
        uint64_t *list = realloc(before->list, room * sizeof list[0]);
        if (list == NULL) {
            return;
        }
        memset(list + before->room, 0, (room - before->room) * sizeof list[0]);
        before->list = list;
        before->room = room;
    }
    for (size_t i = 0; i < count; i++) {
        before->list[part->operations[i].number] = part->operations[i].count;
    }
}

/* The place of each operation in the order of the busiest; NULL when memory is short. */
static size_t *rank_operations(const struct http_counts *before, const struct http_part *part)
{
    size_t count = part->operation_count;
    struct rank *ranks = malloc((count + 1) * sizeof ranks[0]);
    size_t *places = malloc((count + 1) * sizeof places[0]);

    if (ranks != NULL && places != NULL) {
        for (size_t i = 0; i < count; i++) {
            const struct http_operation *operation = &part->operations[i];
            ranks[i] = (struct rank){i, operation->count - count_before(before, operation)};
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

/* Without the brace at its beginning. */
static void write_operation(const struct http_operation *operation, bool with_buckets, FILE *out)
{
    json_field(out, "name", operation->name);
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

/* What one of several may have of what there is for all. */
static size_t share_of(size_t all, size_t servers)
{
    return (all + servers - 1) / servers;
}

/* Those of one server. comma: what stands before the first. Returns what stands before the next. */
static const char *write_part(struct http *http, const struct http_snapshot *snapshot, size_t server, const char *comma,
                              FILE *out)
{
    const struct http_part *part = &snapshot->parts[server];
    size_t *places = rank_operations(&http->counts_before[server], part);
    size_t most = share_of(OPERATIONS_MAX, snapshot->part_count);
    size_t distributions = share_of(DISTRIBUTIONS_MAX, snapshot->part_count);

    for (size_t i = 0; i < part->operation_count && i < most; i++) {
        fprintf(out, "%s{", comma);
        comma = ",\n";
        write_server(http, server, out);
        write_operation(&part->operations[i], places != NULL && places[i] < distributions, out);
    }
    free(places);
    keep_counts(&http->counts_before[server], part);
    return comma;
}

static void write_operations(struct http *http, const struct http_snapshot *snapshot, FILE *out)
{
    const char *comma = "";
    size_t count = 0;

    for (size_t i = 0; i < snapshot->part_count; i++) {
        count += snapshot->parts[i].operation_count;
    }
    fprintf(out, "\"bucket_steps\":%d,\"operation_count\":%zu,\"operations\":[", POLICY_DURATION_STEPS, count);
    for (size_t i = 0; i < snapshot->part_count; i++) {
        comma = write_part(http, snapshot, i, comma, out);
    }
    fputs("],\n", out);
}

/* ---- verbs ---- */

/* The lines of all servers. */
static void write_lines(const struct http *http, const struct http_snapshot *snapshot, size_t verb, FILE *out)
{
    const char *comma = "";

    for (size_t i = 0; i < snapshot->part_count; i++) {
        const struct text_stream *answer = &snapshot->parts[i].answers[verb];
        if (answer->length > 0 && answer->bytes != NULL && !snapshot->parts[i].is_refused[verb]) {
            fputs(comma, out);
            comma = ",\n";
            http_json_lines(out, http_names_servers(http) ? http->servers->list[i].name : NULL, answer->bytes,
                            answer->length);
        }
    }
}

/* The answer is an error if it is that of all servers: what one of them does not know, another may. NULL: it is not. */
static const struct text_stream *find_refusal(const struct http_snapshot *snapshot, size_t verb)
{
    const struct text_stream *refusal = NULL;

    for (size_t i = 0; i < snapshot->part_count; i++) {
        const struct http_part *part = &snapshot->parts[i];
        if (!part->is_refused[verb] || part->answers[verb].bytes == NULL) {
            return NULL;
        }
        refusal = &part->answers[verb];
    }
    return refusal;
}

/* An error is given as { "error": "…" }. */
static void write_answer(const struct http *http, const struct http_snapshot *snapshot, size_t verb, FILE *out)
{
    const struct text_stream *refusal = find_refusal(snapshot, verb);

    fprintf(out, "\"%s\":", http_verbs[verb].field);
    if (refusal != NULL) {
        fputs("{\"error\":", out);
        json_string(out, refusal->bytes, refusal->length);
        fputc('}', out);
    } else {
        fputc('[', out);
        write_lines(http, snapshot, verb, out);
        fputc(']', out);
    }
    fputs(",\n", out);
}

/* ---- rules ---- */

/* A counter's name within its rule: "refused" of "limit_rule_refused_total". */
static struct slice short_name(const char *name)
{
    const char *begin = strstr(name, "_rule_");
    begin = begin != NULL ? begin + strlen("_rule_") : name;
    const char *end = strstr(begin, "_total");

    return (struct slice){begin, end != NULL ? (size_t)(end - begin) : strlen(begin)};
}

static void write_rule(const struct http *http, size_t server, const struct policy *policy,
                       const struct http_rule *rule, FILE *out)
{
    fputc('{', out);
    write_server(http, server, out);
    json_field(out, "policy", policy->name);
    json_field(out, "rule", rule->name);
    for (size_t i = 0; i < policy->rule_counter_count; i++) {
        struct slice name = short_name(policy->rule_counters[i].name);
        fprintf(out, "%s\"%.*s\":%" PRIu64, i > 0 ? "," : "", (int)name.length, name.data, rule->values[i]);
    }
    fputc('}', out);
}

static void write_rules(const struct http *http, FILE *out)
{
    const struct chain_roster *policies = http_policies(http);
    const char *comma = "";

    fputs("\"rules\":[", out);
    for (size_t i = 0; i < http->servers->count; i++) {
        for (size_t n = 0; n < policies->count; n++) {
            struct http_rules rules = http_rules_of(http, i, n);
            for (size_t rule = 0; rule < rules.count; rule++) {
                fputs(comma, out);
                write_rule(http, i, policies->list[n], &rules.list[rule], out);
                comma = ",\n";
            }
            free(rules.list);
        }
    }
    fputs("],\n", out);
}

void http_stats_write(struct http *http, const struct http_snapshot *snapshot, FILE *out)
{
    fputc('{', out);
    write_process(http, snapshot, out);
    write_clients(http, snapshot, out);
    write_lanes(http, snapshot, out);
    write_operations(http, snapshot, out);
    write_rules(http, out);
    for (size_t i = 0; i < HTTP_VERBS; i++) {
        write_answer(http, snapshot, i, out);
    }
    fputs("\"counters\":", out);
    write_counters(http->servers, tell_value, out);
    fputs("}\n", out);
}
