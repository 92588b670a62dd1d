/* STATS and INFO: what is counted, as text or as JSON; and RESETSTAT. */
#include "admin/admin_gathering.h"

#include "base/json.h"
#include "base/resident.h"
#include "base/text.h"
#include "version.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void collect_facts(struct admin_gathering *gathering, struct worker *worker)
{
    struct worker_facts facts = worker_tell(worker);

    client_service_update_gauges(worker_clients(worker));

    if (facts.redis_version > gathering->facts.redis_version) {
        gathering->facts = facts;
    }
}

static bool section_wanted(const struct admin_gathering *gathering, const char *section)
{
    bool wanted = gathering->section_count == 0;

    for (size_t i = 0; i < gathering->section_count && !wanted; i++) {
        wanted = strcasecmp(gathering->sections[i], section) == 0;
    }
    return wanted;
}

static void begin_section(struct admin_text *text, const char *section)
{
    admin_text_add(text, "%s# %s\r\n", evbuffer_get_length(text->bytes) > 0 ? "\r\n" : "", section);
}

static void add_server_section(struct admin_gathering *gathering)
{
    const struct admin *admin = gathering->session->admin;
    const struct server *server = &admin->servers->list[gathering->session->scope.first];
    const struct worker_facts *facts = &gathering->facts;
    struct admin_text *text = &gathering->text;

    begin_section(text, "Server");
    admin_text_add(text, "headgate_version:%s\r\n", HEADGATE_VERSION);
    admin_text_add(text, "process_id:%ld\r\n", (long)getpid());
    admin_text_add(text, "uptime_in_seconds:%" PRId64 "\r\n", (clock_now_us() - admin->started_us) / 1000000);
    admin_text_add(text, "counting_since_seconds:%" PRId64 "\r\n", admin_counting_since(gathering->session));
    if (admin_names_servers(gathering->session)) {
        admin_text_add(text, "config_file:%s\r\n", server->conf->path);
        admin_add_servers(text, gathering->session);
        return;
    }
    admin_text_add(text, "threads:%zu\r\n", server->worker_pool.count);
    admin_text_add(text, "pool:%s\r\n", server->conf->pool == CONF_POOL_SESSION ? "session" : "shared");
    admin_text_add(text, "config_file:%s\r\n", server->conf->path);
    admin_text_add(text, "upstream:%s\r\n", server->conf->upstream.text);
    if (facts->redis_version != 0) {
        admin_text_add(text, "redis_version:%u.%u.%u\r\n", facts->redis_version >> 16, facts->redis_version >> 8 & 0xff,
                       facts->redis_version & 0xff);
    }
    if (facts->clock_offset_us != INT64_MIN && facts->redis_version != 0) {
        admin_text_add(text, "redis_clock_offset_us:%" PRId64 "\r\n", facts->clock_offset_us);
    }
}

static void add_counters(struct admin_gathering *gathering)
{
    const char *section = "";

    for (enum stats_id id = 0; id < STATS_COUNT; id++) {
        const struct stats_description *description = stats_describe(id);
        if (!section_wanted(gathering, description->section)) {
            continue;
        }
        if (strcmp(section, description->section) != 0) {
            section = description->section;
            begin_section(&gathering->text, section);
            if (strcmp(section, "Memory") == 0) {
                admin_text_add(&gathering->text, "resident_bytes:%" PRIu64 "\r\n", resident_bytes());
            }
        }
        admin_text_add(&gathering->text, "%s:%" PRIu64 "\r\n", description->name, admin_stat(gathering->session, id));
    }
}

static void add_policy_counters(struct admin_gathering *gathering)
{
    const struct chain_roster *policies = admin_policies(gathering->session->admin);

    for (size_t i = 0; i < policies->count; i++) {
        const struct policy *policy = policies->list[i];
        if (policy->counter_count == 0 || !section_wanted(gathering, policy->counter_section)) {
            continue;
        }
        begin_section(&gathering->text, policy->counter_section);
        for (size_t n = 0; n < policy->counter_count; n++) {
            admin_text_add(&gathering->text, "%s:%" PRIu64 "\r\n", policy->counters[n].name,
                           admin_policy_counter(gathering->session, i, n));
        }
    }
}

/* ---- as JSON: the names are those of /stats.json ---- */

static void write_redis_version(FILE *out, const struct worker_facts *facts)
{
    char version[32] = "";

    if (facts->redis_version != 0) {
        snprintf(version, sizeof version, "%u.%u.%u", facts->redis_version >> 16, facts->redis_version >> 8 & 0xff,
                 facts->redis_version & 0xff);
    }
    json_field(out, "redis_version", version);
}

static void write_server(FILE *out, const struct server *server)
{
    const struct worker_pool *worker_pool = &server->worker_pool;

    json_field(out, "upstream", server->conf->upstream.text);
    json_field(out, "pool", server->conf->pool == CONF_POOL_SESSION ? "session" : "shared");
    fprintf(out, "\"up\":%s,\"threads\":%zu,", worker_pool_stat(worker_pool, STATS_UPSTREAM_UP) != 0 ? "true" : "false",
            worker_pool->count);
}

static void write_servers(FILE *out, const struct session_entry *session)
{
    fputs("\"servers\":[", out);
    for (size_t i = session->scope.first; i < session->scope.end; i++) {
        const struct server *server = &session->admin->servers->list[i];
        fputs(i > session->scope.first ? ",{" : "{", out);
        json_field(out, "server", server->name);
        write_server(out, server);
        fprintf(out, "\"clients\":%" PRIu64 "}", worker_pool_stat(&server->worker_pool, STATS_CLIENTS_CONNECTED));
    }
    fputs("],", out);
}

static void write_process(FILE *out, const struct admin_gathering *gathering)
{
    const struct session_entry *session = gathering->session;
    const struct server *server = &session->admin->servers->list[session->scope.first];

    json_field(out, "version", HEADGATE_VERSION);
    json_field(out, "config_file", server->conf->path);
    fprintf(out, "\"process_id\":%ld,\"uptime\":%" PRId64 ",\"counting_since\":%" PRId64 ",", (long)getpid(),
            (clock_now_us() - session->admin->started_us) / 1000000, admin_counting_since(session));
    if (admin_names_servers(session)) {
        write_servers(out, session);
    } else {
        write_server(out, server);
        write_redis_version(out, &gathering->facts);
    }
}

/* Returns what stands before the next one. */
static const char *write_counters(FILE *out, const struct admin_gathering *gathering)
{
    const char *comma = "";

    for (enum stats_id id = 0; id < STATS_COUNT; id++) {
        if (section_wanted(gathering, stats_describe(id)->section)) {
            fprintf(out, "%s\"%s\":%" PRIu64, comma, stats_describe(id)->name, admin_stat(gathering->session, id));
            comma = ",";
        }
    }
    return comma;
}

static void write_policy_counters(FILE *out, const struct admin_gathering *gathering, const char *comma)
{
    const struct chain_roster *policies = admin_policies(gathering->session->admin);

    for (size_t i = 0; i < policies->count; i++) {
        const struct policy *policy = policies->list[i];
        for (size_t n = 0; n < policy->counter_count && section_wanted(gathering, policy->counter_section); n++) {
            fprintf(out, "%s\"%s\":%" PRIu64, comma, policy->counters[n].name,
                    admin_policy_counter(gathering->session, i, n));
            comma = ",";
        }
    }
}

static void reply_json(const struct admin_gathering *gathering)
{
    struct text_stream text;

    if (!text_open(&text)) {
        admin_reply_error(gathering->session, "ERR out of memory");
        return;
    }
    fputc('{', text.out);
    if (section_wanted(gathering, "Server")) {
        write_process(text.out, gathering);
    }
    if (section_wanted(gathering, "Memory")) {
        fprintf(text.out, "\"resident_bytes\":%" PRIu64 ",", resident_bytes());
    }
    fputs("\"counters\":{", text.out);
    write_policy_counters(text.out, gathering, write_counters(text.out, gathering));
    fputs("}}", text.out);
    if (text_close(&text)) {
        admin_reply_text(gathering->session, text.bytes, text.length);
    } else {
        admin_reply_error(gathering->session, "ERR out of memory");
    }
    text_free(&text);
}

/* ---- the answer ---- */

static void finish_stats(struct admin_gathering *gathering)
{
    if (section_wanted(gathering, "Server")) {
        add_server_section(gathering);
    }
    add_counters(gathering);
    add_policy_counters(gathering);
    if (evbuffer_get_length(gathering->text.bytes) == 0 && !gathering->may_be_empty) {
        admin_reply_error(gathering->session, "ERR no section of that name; see STATS");
        return;
    }
    if (gathering->is_json) {
        reply_json(gathering);
    } else if (gathering->may_be_empty) {
        /* INFO: whoever asks for that takes it apart himself. */
        admin_reply_gathered(gathering->session, &gathering->text);
    } else {
        admin_reply_sections(gathering->session, &gathering->text);
    }
}

/* Names of sections, several or none, or one of those by which INFO of Redis means all. */
static void want_sections(struct admin_gathering *gathering, size_t count, const struct slice *names)
{
    for (size_t i = 0; i < count; i++) {
        if (slice_is_word(names[i], "all") || slice_is_word(names[i], "default") ||
            slice_is_word(names[i], "everything")) {
            gathering->section_count = 0;
            return;
        }
        snprintf(gathering->sections[gathering->section_count++], ADMIN_SECTION_NAME_SIZE, "%.*s", (int)names[i].length,
                 names[i].data);
    }
}

/* How it is to be answered. */
struct answer {
    bool is_json;
    bool may_be_empty;
};

static void start_stats(struct session_entry *session, size_t count, const struct slice *arguments,
                        struct answer answer)
{
    struct admin_gathering *gathering = admin_gathering_new(session, collect_facts, finish_stats);

    if (gathering != NULL) {
        gathering->may_be_empty = answer.may_be_empty;
        gathering->is_json = answer.is_json;
        want_sections(gathering, count - 1, arguments + 1);
        admin_gathering_start(gathering);
    }
}

void admin_run_stats(struct session_entry *session, size_t count, const struct slice *arguments)
{
    bool is_json = count > 1 && slice_is_word(arguments[count - 1], "json");

    start_stats(session, count - is_json, arguments, (struct answer){.is_json = is_json});
}

void admin_run_info(struct session_entry *session, size_t count, const struct slice *arguments)
{
    start_stats(session, count, arguments, (struct answer){.may_be_empty = true});
}

void admin_run_resetstat(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    if (admin_reset_counters(session)) {
        admin_reply_status(session, "OK");
    } else {
        admin_reply_error(session, "ERR out of memory");
    }
}
