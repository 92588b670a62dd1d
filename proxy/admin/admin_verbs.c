/* What can be asked on the admin port. */
#include "admin/admin_gathering.h"

#include "version.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VERB_COUNT 24
/* Of a section, with its end. A longer name is none that there is, and neither is what is left of it. */
#define SECTION_NAME_SIZE 32

struct verb {
    const char *name;
    size_t least, most; /* arguments, with the verb */
    void (*run)(struct session_entry *session, size_t count, const struct slice *arguments);
    const char *usage;
    const char *help;
    enum policy_verb_effect effect; /* reads, unless it is said otherwise */
    bool is_of_servers;             /* may be asked of one of several servers */
};

static const struct verb verbs[VERB_COUNT + 1];

static void run_servers(struct session_entry *session, size_t count, const struct slice *arguments);
static void run_server(struct session_entry *session, size_t count, const struct slice *arguments);

/* ---- STATS ---- */

static void collect_facts(struct admin_gathering *gathering, struct worker *worker)
{
    struct worker_facts facts = worker_tell(worker);

    client_service_update_gauges(worker_clients(worker));

    if (facts.redis_version > gathering->facts.redis_version) {
        gathering->facts = facts;
    }
}

static uint64_t resident_bytes(void)
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
    admin_reply_gathered(gathering->session, &gathering->text);
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

static void start_stats(struct session_entry *session, size_t count, const struct slice *arguments, bool may_be_empty)
{
    struct admin_gathering *gathering = admin_gathering_new(session, collect_facts, finish_stats);

    if (gathering != NULL) {
        gathering->may_be_empty = may_be_empty;
        want_sections(gathering, count - 1, arguments + 1);
        admin_gathering_start(gathering);
    }
}

static void run_stats(struct session_entry *session, size_t count, const struct slice *arguments)
{
    start_stats(session, count, arguments, false);
}

static void run_info(struct session_entry *session, size_t count, const struct slice *arguments)
{
    start_stats(session, count, arguments, true);
}

/* ---- the other verbs ---- */

static void add_counter_help(struct admin_text *text, const struct slice *wanted, const char *name,
                             enum stats_kind kind, const char *help)
{
    if (slice_is_word(*wanted, "counters") || slice_is_word(*wanted, name)) {
        admin_text_add(text, "%s (%s): %s\n", name, kind == STATS_GAUGE ? "gauge" : "counter", help);
    }
}

static void add_counters_help(struct admin_text *text, const struct chain_roster *policies, const struct slice *wanted)
{
    for (enum stats_id id = 0; id < STATS_COUNT; id++) {
        const struct stats_description *description = stats_describe(id);
        add_counter_help(text, wanted, description->name, description->kind, description->help);
    }
    for (size_t i = 0; i < policies->count; i++) {
        for (size_t n = 0; n < policies->list[i]->counter_count; n++) {
            const struct policy_counter *counter = &policies->list[i]->counters[n];
            add_counter_help(text, wanted, counter->name, counter->kind, counter->help);
        }
    }
}

/* Whether the verb's name, or the first word of it, is that. */
static bool is_named(struct slice wanted, const char *name)
{
    size_t length = strcspn(name, " ");

    return slice_is_word(wanted, name) || (wanted.length == length && strncasecmp(wanted.data, name, length) == 0);
}

static void add_verb_help(struct admin_text *text, const struct slice *wanted, const char *name, const char *usage,
                          const char *help, enum policy_verb_effect effect)
{
    static const char *const notes[] = {
        [POLICY_VERB_READS] = "",
        [POLICY_VERB_CHANGES] = " (changes something)",
        [POLICY_VERB_CHANGES_ON_RESET] = " (RESET changes something)",
    };

    if (wanted == NULL || is_named(*wanted, name)) {
        admin_text_add(text, "%-27s  %s%s\n", usage, help, notes[effect]);
    }
}

static void add_verbs_help(struct admin_text *text, const struct chain_roster *policies, const struct slice *wanted)
{
    for (const struct verb *verb = verbs; verb->name != NULL; verb++) {
        add_verb_help(text, wanted, verb->name, verb->usage, verb->help, verb->effect);
    }
    for (size_t i = 0; i < policies->count; i++) {
        for (size_t n = 0; n < policies->list[i]->verb_count; n++) {
            const struct policy_verb *verb = &policies->list[i]->verbs[n];
            add_verb_help(text, wanted, verb->name, verb->usage, verb->help, verb->effect);
        }
    }
}

static void run_help(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct slice *wanted = count > 1 ? &arguments[1] : NULL;
    struct admin_text text;

    if (!admin_text_open(&text)) {
        admin_reply_error(session, "ERR out of memory");
        return;
    }
    add_verbs_help(&text, admin_policies(session->admin), wanted);
    if (wanted != NULL) {
        add_counters_help(&text, admin_policies(session->admin), wanted);
    }
    if (evbuffer_get_length(text.bytes) == 0 && !text.is_lost) {
        admin_reply_error(session, "ERR no verb or counter of that name; see HELP and HELP COUNTERS");
    } else {
        admin_reply_gathered(session, &text);
    }
    admin_text_close(&text);
}

static const struct verb verbs[VERB_COUNT + 1] = {
    {"PING", 1, 2, admin_hello_ping, "PING [text]", "answers PONG, or the text", POLICY_VERB_READS, false},
    {"HELP", 1, 2, run_help, "HELP [name]", "the verbs; HELP COUNTERS explains all counters, HELP name one of them",
     POLICY_VERB_READS, false},
    {"STATS", 1, ADMIN_ARGUMENTS_MAX, run_stats, "STATS [section ...]",
     "counters and gauges, as key:value under # Section", POLICY_VERB_READS, true},
    {"INFO", 1, ADMIN_ARGUMENTS_MAX, run_info, "INFO [section ...]",
     "the same as STATS; redis-cli prints the answer to this name as text", POLICY_VERB_READS, true},
    {"CLIENTS", 1, ADMIN_ARGUMENTS_MAX, admin_run_clients, "CLIENTS [field=value ...] [COUNT n]",
     "one line for each client, of those that the fields choose", POLICY_VERB_READS, true},
    {"LANES", 1, ADMIN_ARGUMENTS_MAX, admin_run_lanes, "LANES [field=value ...] [COUNT n]",
     "one line for each connection to Redis, of those that the fields choose", POLICY_VERB_READS, true},
    {"KILL", 2, ADMIN_ARGUMENTS_MAX, admin_run_kill, "KILL field=value ... [COUNT n] or ALL",
     "closes the clients that the fields choose, and says how many", POLICY_VERB_CHANGES, true},
    {"NODES", 1, 1, admin_run_nodes, "NODES", "one line for each node of Redis: the master, its replicas, sentinels",
     POLICY_VERB_READS, true},
    {"SERVERS", 1, 1, run_servers, "SERVERS", "one line for each of several servers", POLICY_VERB_READS, false},
    {"SERVER", 3, ADMIN_WORDS_MAX, run_server, "SERVER name verb ...",
     "asks about one of several servers, as if it were alone", POLICY_VERB_READS, false},
    {"CONFIG", 1, ADMIN_ARGUMENTS_MAX, admin_config, "CONFIG", "the configuration in force, without passwords",
     POLICY_VERB_READS, false},
    {"CONFIG GET", 3, ADMIN_ARGUMENTS_MAX, admin_config_get, "CONFIG GET pattern ...",
     "the options whose names match, each with its value", POLICY_VERB_READS, false},
    {"CONFIG SHOW", 2, ADMIN_ARGUMENTS_MAX, admin_config_show, "CONFIG SHOW [pattern ...]",
     "one line for each of them: value, default, what changes it, and who says so", POLICY_VERB_READS, false},
    {"CONFIG SET", 4, ADMIN_ARGUMENTS_MAX, admin_config_set, "CONFIG SET name value ...",
     "sets options that a reload would take, all or none, until the file is read again", POLICY_VERB_CHANGES, false},
    {"CONFIG REWRITE", 2, 2, admin_config_rewrite, "CONFIG REWRITE", "refused: the file is the operator's",
     POLICY_VERB_READS, false},
    {"LOGLEVEL", 1, 1, admin_loglevel, "LOGLEVEL", "the level from which lines are logged", POLICY_VERB_READS, false},
    {"LOGLEVEL", 2, 2, admin_loglevel, "LOGLEVEL level",
     "sets it (debug, info, warning or error), until the file is read again", POLICY_VERB_CHANGES, false},
    {"RELOAD", 1, 2, admin_process_reload, "RELOAD [VERBOSE]",
     "reads the configuration file again, like SIGHUP; VERBOSE tells what was changed", POLICY_VERB_CHANGES, false},
    {"VERSION", 1, 1, admin_process_version, "VERSION", "the version of Headgate", POLICY_VERB_READS, false},
    {"DRAIN", 1, 1, admin_run_drain, "DRAIN",
     "takes no new clients, lets the others go, and says how many are left; the process stays", POLICY_VERB_CHANGES,
     false},
    {"SHUTDOWN", 1, 2, admin_process_shutdown, "SHUTDOWN [NOW]", "ends Headgate: drained, or at once",
     POLICY_VERB_CHANGES, false},
    {"AUTH", 2, 3, admin_process_auth, "AUTH password", "needed first if admin_password is set", POLICY_VERB_READS,
     false},
    {"QUIT", 1, 1, admin_process_quit, "QUIT", "closes this connection", POLICY_VERB_READS, false},
    {"COMMAND", 1, ADMIN_ARGUMENTS_MAX, admin_hello_command, "COMMAND", "an empty list, for redis-cli",
     POLICY_VERB_READS, false},
    {NULL, 0, 0, NULL, NULL, NULL, POLICY_VERB_READS, false},
};

void admin_verbs_tell(void (*tell)(void *context, const char *usage, const char *help, enum policy_verb_effect effect),
                      void *context)
{
    for (const struct verb *verb = verbs; verb->name != NULL; verb++) {
        tell(context, verb->usage, verb->help, verb->effect);
    }
}

/* ---- requests ---- */

static void answer_unknown(struct session_entry *session, struct slice name)
{
    char text[160];

    snprintf(text, sizeof text, "ERR unknown verb '%.*s'; HELP lists them", (int)(name.length > 64 ? 64 : name.length),
             name.data);
    for (char *c = text; *c != '\0'; c++) {
        *c = *c < ' ' ? ' ' : *c;
    }
    admin_reply_error(session, text);
}

/* Whether the request has as many arguments as the verb wants; it is told if not. */
static bool fits(struct session_entry *session, size_t count, size_t least, size_t most, const char *usage)
{
    char text[160];

    if (count >= least && count <= most) {
        return true;
    }
    snprintf(text, sizeof text, "ERR usage: %s", usage);
    admin_reply_error(session, text);
    return false;
}

/* Whether the request would change something. */
static bool changes(enum policy_verb_effect effect, size_t count, const struct slice *arguments)
{
    return effect == POLICY_VERB_CHANGES ||
           (effect == POLICY_VERB_CHANGES_ON_RESET && count > 1 && slice_is_word(arguments[1], "reset"));
}

/* Whether the request is to be obeyed; who asks is told if not. What changes something is written down. */
static bool is_allowed(struct session_entry *session, enum policy_verb_effect effect, size_t count,
                       const struct slice *arguments)
{
    if (!changes(effect, count, arguments)) {
        return true;
    }
    if (!admin_guard_may_change(session)) {
        admin_audit_refused(session, count, arguments);
        return false;
    }
    admin_audit_begin(session, count, arguments);
    return true;
}

/* What it changes may be there for each server; nobody is to change more than he thinks of. */
static bool is_meant(struct session_entry *session, enum policy_verb_effect effect, size_t count,
                     const struct slice *arguments)
{
    if (changes(effect, count, arguments) && admin_names_servers(session)) {
        admin_reply_error(session, "ERR there are several servers: SERVER name verb ..., as SERVERS lists them");
        return false;
    }
    return true;
}

/* False: no policy has the verb. */
static bool run_verb_of_policy(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct chain_roster *policies = admin_policies(session->admin);

    for (size_t i = 0; i < policies->count; i++) {
        const struct policy *policy = policies->list[i];
        for (size_t n = 0; n < policy->verb_count; n++) {
            const struct policy_verb *verb = &policy->verbs[n];
            if (!slice_is_word(arguments[0], verb->name)) {
                continue;
            }
            if (fits(session, count, verb->least, verb->most, verb->usage) &&
                is_allowed(session, verb->effect, count, arguments) &&
                is_meant(session, verb->effect, count, arguments)) {
                admin_ask_policy(session, i, verb, count, arguments);
            }
            return true;
        }
    }
    return false;
}

/* How many words of the request are the verb's name; 0: it is another one. */
static size_t words_of_name(const struct verb *verb, size_t count, const struct slice *arguments)
{
    const char *blank = strchr(verb->name, ' ');
    size_t length = blank != NULL ? (size_t)(blank - verb->name) : strlen(verb->name);

    if (arguments[0].length != length || strncasecmp(arguments[0].data, verb->name, length) != 0) {
        return 0;
    }
    if (blank == NULL) {
        return 1;
    }
    return count > 1 && slice_is_word(arguments[1], blank + 1) ? 2 : 0;
}

/* Of several with the name that with more words, and then the one that takes so many. */
static const struct verb *find_verb(size_t count, const struct slice *arguments)
{
    const struct verb *found = NULL, *verb = verbs;
    size_t most = 0;

    for (; verb->name != NULL; verb++) {
        size_t words = words_of_name(verb, count, arguments);
        bool fits_better = words > 0 && words == most && count >= verb->least && count <= verb->most &&
                           !(count >= found->least && count <= found->most);
        if (words > most || fits_better) {
            found = verb;
            most = words;
        }
    }
    return found != NULL ? found : verb;
}

static void run_in_scope(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct verb *verb = find_verb(count, arguments);

    if (!admin_session_is_trusted(session) && verb->run != admin_process_auth && verb->run != admin_process_quit) {
        admin_reply_error(session, "NOAUTH Authentication required.");
    } else if (verb->name == NULL) {
        if (!run_verb_of_policy(session, count, arguments)) {
            answer_unknown(session, arguments[0]);
        }
    } else if (session->scope.is_named && !verb->is_of_servers) {
        admin_reply_error(session, "ERR this verb is about the process, and about no server");
    } else if (fits(session, count, verb->least, verb->most, verb->usage) &&
               is_allowed(session, verb->effect, count, arguments)) {
        verb->run(session, count, arguments);
    }
}

void admin_run(struct session_entry *session, size_t count, const struct slice *arguments)
{
    session->scope = (struct admin_scope){.first = 0, .end = session->admin->servers->count};
    run_in_scope(session, count, arguments);
}

/* ---- several servers ---- */

static void run_servers(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    admin_tell_servers(session);
}

static void run_server(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct servers *servers = session->admin->servers;
    const struct server *server = servers_find(servers, arguments[1]);

    if (server == NULL) {
        admin_reply_error(session, "ERR no server of that name; SERVERS lists them");
        return;
    }
    session->scope.first = (size_t)(server - servers->list);
    session->scope.end = session->scope.first + 1;
    session->scope.is_named = true;
    run_in_scope(session, count - 2, arguments + 2);
}
