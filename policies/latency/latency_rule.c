#include "latency/latency_rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What stands in the ini file. Times in ms. */
struct latency_options {
    int enabled; /* 0 or 1, as the other toggles */
    char *prefix;
    int braces;
    int64_t database;
    struct conf_address upstream;
    char *upstream_user;
    char *upstream_password;
    char *upstream_password_file;
    struct conf_server_tls server_tls;
    int64_t flush;
    int64_t retention;
    int64_t keep;
    int64_t max_interfaces;
    int by;
    int64_t slowlog_threshold; /* µs */
    int64_t slowlog_length;
    int64_t biglog_request;
    int64_t biglog_reply;
    int64_t biglog_length;
    int log_values;
    int hotkeys;
    char *servers;
};

struct latency_rule_options {
    char *commands;
    char *keys;
    char *servers;
};

/* Of [counters], and of [events]. */
struct latency_log_options {
    int enabled;
    char *prefix;
    char *servers;
};

#define TEXT_MAX 2048
#define CREDENTIAL_MAX 1024
#define SECOND_MS INT64_C(1000)
#define MINUTE_MS (INT64_C(60) * SECOND_MS)
#define HOUR_MS (INT64_C(60) * MINUTE_MS)
#define DAY_MS (INT64_C(24) * HOUR_MS)
#define FIELD(field) .name = #field, .offset = offsetof(struct latency_options, field), .reloadable = true
#define LOG_FIELD(field) .name = #field, .offset = offsetof(struct latency_log_options, field), .reloadable = true
#define RULE_FIELD(field) .name = #field, .offset = offsetof(struct latency_rule_options, field), .reloadable = true

enum braces { BRACES_AUTO, BRACES_ON, BRACES_OFF };

static const char *const braces_words[] = {"auto", "on", "off", NULL};
static const char *const by_words[] = {"none", "user", "name", NULL};

static const struct conf_option option_table[] = {
    {FIELD(enabled), .type = CONF_TOGGLE, .initial = "off",
     .help = "Whether requests are measured. Off, nothing of this section costs anything."},
    {FIELD(prefix), .type = CONF_STRING, .min = 1, .max = LATENCY_PREFIX_GIVEN_MAX, .initial = "headgate:statistics",
     .help = "What the names of the keys begin with: PREFIX_INTERFACE_MINUTE_for_max and so on. No blanks.\n"
             "statistics makes the well-known names that other programs may read, and may write."},
    {FIELD(braces), .type = CONF_WORD, .words = braces_words, .initial = "auto",
     .help =
         "Whether names have hash tags, as Redis Cluster needs them: the interface, …_{get}_…, and of [counters] and\n"
         "[events] the prefix, {headgate}:count:…; not where a prefix has a tag of its own, or is empty. auto: where\n"
         "they are written to a cluster."},
    {FIELD(database), .type = CONF_INTEGER, .min = 0, .max = INT32_MAX, .zero = "the first one", .initial = "0",
     .help = "In which database the keys are."},
    {FIELD(upstream), .type = CONF_ADDRESS, .zero = "the Redis of the clients", .initial = "",
     .help =
         "A Redis server of its own for all that is written and read here, for [counters] and [events], too. What is\n"
         "wrong with it, clients do not notice."},
    {FIELD(upstream_user), .type = CONF_STRING, .max = CREDENTIAL_MAX, .initial = "",
     .help = "The ACL user as which Headgate authenticates there. Empty: the default user. Needs upstream_password."},
    {FIELD(upstream_password), .type = CONF_STRING, .max = CREDENTIAL_MAX, .initial = "", .secret = true,
     .help = "The password for it. Empty: Headgate does not authenticate there."},
    {FIELD(upstream_password_file), .type = CONF_FILE, .max = CREDENTIAL_MAX, .initial = "", .secret = true,
     .fills = "upstream_password", .help = "The file that holds it, alone on its line, in place of upstream_password."},
#define SERVER_TLS offsetof(struct latency_options, server_tls)
#include "conf/conf_server_tls.inc"
#undef SERVER_TLS
    {FIELD(flush), .type = CONF_TIME, .min = SECOND_MS, .max = 10 * MINUTE_MS, .initial = "5s",
     .help = "How often what was measured is written to Redis."},
    {FIELD(retention), .type = CONF_TIME, .min = MINUTE_MS, .max = 3660 * DAY_MS, .initial = "7d",
     .help = "For how long the keys of a minute are kept."},
    {FIELD(keep), .type = CONF_TIME, .min = MINUTE_MS, .max = DAY_MS, .initial = "1h",
     .help = "How much is kept in memory while Redis does not take it; what is older is dropped. Whole minutes,\n"
             "and no fewer than there are in two times flush."},
    {FIELD(max_interfaces), .type = CONF_INTEGER, .min = 1, .max = LATENCY_OPERATIONS_MAX, .initial = "1000",
     .help = "How many interfaces there are at most; what has no room goes to the interface \"other\". Those that "
             "there are\n"
             "stay until a restart, also if they are more."},
    {FIELD(by), .type = CONF_WORD, .words = by_words, .initial = "none",
     .help = "Whether interfaces are told apart by client: by Redis' user, get@batch, or by the name that CLIENT\n"
             "SETNAME gave, get@worker-1."},
    {FIELD(slowlog_threshold), .type = CONF_PERIOD, .min = 1, .max = HOUR_MS * 1000, .zero = "none", .initial = "100ms",
     .help = "Requests that take so long are kept for SLOWLOG; those that wait for other clients (BLPOP) are not."},
    {FIELD(slowlog_length), .type = CONF_INTEGER, .min = 1, .max = 100000, .initial = "128",
     .help = "How many of them are kept. Another value forgets them."},
    {FIELD(biglog_request), .type = CONF_SIZE, .min = 1, .max = INT64_MAX, .zero = "none", .initial = "1mb",
     .help = "Requests of so many bytes are kept for BIGLOG."},
    {FIELD(biglog_reply), .type = CONF_SIZE, .min = 1, .max = INT64_MAX, .zero = "none", .initial = "1mb",
     .help = "The same for those with replies of so many bytes."},
    {FIELD(biglog_length), .type = CONF_INTEGER, .min = 1, .max = 100000, .initial = "128",
     .help = "How many of them are kept. Another value forgets them."},
    {FIELD(log_values), .type = CONF_TOGGLE, .initial = "off",
     .help = "Whether SLOWLOG, BIGLOG and the page show values, not only names and keys; those of AUTH and the\n"
             "like never."},
    {FIELD(hotkeys), .type = CONF_TOGGLE, .initial = "on",
     .help = "Whether the keys of one in 64 requests are counted for HOTKEYS."},
    CONF_SERVERS_OPTION(struct latency_options, servers),
};

static const struct conf_option rule_option_table[] = {
    {RULE_FIELD(commands), .type = CONF_STRING, .min = 1, .max = TEXT_MAX, .initial = "*",
     .help = "The commands: names, @categories, config|set for a subcommand, * for all; ! leaves out, and later words\n"
             "override earlier ones."},
    {RULE_FIELD(keys), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help = "Globs of keys, as in KEYS: a request is meant when any of its keys matches. Empty: whatever its keys."},
    CONF_SERVERS_OPTION(struct latency_rule_options, servers),
};

static const struct conf_option log_option_table[] = {
    {LOG_FIELD(enabled), .type = CONF_TOGGLE, .initial = "off",
     .help = "Whether this is written to Redis. It goes by what [latency] measures, which has to be enabled, too."},
    {LOG_FIELD(prefix), .type = CONF_STRING, .max = LATENCY_PREFIX_GIVEN_MAX, .initial = "headgate:",
     .help = "What the names of the keys begin with. No blanks. Redis Cluster needs a hash tag in it: {headgate}:.\n"
             "Empty makes the well-known names that other programs may read, and may write."},
    CONF_SERVERS_OPTION(struct latency_log_options, servers),
};

/* ---- [latency] ---- */

static const char *check_prefix(const char *prefix, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    *expected = MATCH_PREFIX_EXPECTED;
    return match_prefix_check(prefix, problem) ? NULL : "prefix";
}

/* Credentials are for a server of its own: those of the Redis of the clients stand in [headgate]. */
static const char *check_server(const struct latency_options *options, char problem[CONF_PROBLEM_MAX],
                                const char **expected)
{
    if (*options->upstream_password != '\0' && *options->upstream.text == '\0') {
        snprintf(problem, CONF_PROBLEM_MAX, "has no server that it is for");
        *expected = "upstream beside it";
        return "upstream_password";
    }
    if (*options->upstream_user != '\0' && *options->upstream_password == '\0') {
        snprintf(problem, CONF_PROBLEM_MAX, "has no password");
        *expected = "upstream_password beside it";
        return "upstream_user";
    }
    return NULL;
}

static const char *check_section(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    const struct latency_options *options = values;
    const char *at_fault = check_server(options, problem, expected);

    if (at_fault != NULL) {
        return at_fault;
    }
    if (*options->prefix == '\0') {
        snprintf(problem, CONF_PROBLEM_MAX, "is empty");
        *expected = "a text";
        return "prefix";
    }
    return check_prefix(options->prefix, problem, expected);
}

static bool runs_scripts(const struct conf_rule *rule)
{
    const struct latency_options *options = rule->values;

    return options->enabled != 0 && *options->upstream.text == '\0';
}

const struct conf_section latency_section = {
    .name = "latency",
    .options = option_table,
    .option_count = sizeof option_table / sizeof option_table[0],
    .values_size = sizeof(struct latency_options),
    .help = "How long requests take, by the minute and on record in Redis; and the logs of slow and of large requests\n"
            "and the hot keys, in memory.",
    .check = check_section,
    .runs_scripts = runs_scripts,
};

/* At least those that lie, in part or whole, between a flush and the one after the next: what another worker moves just
 * after a flush is as old as that when it is taken. */
static uint32_t minutes_kept(const struct latency_options *options)
{
    int64_t wanted = (options->keep + MINUTE_MS - 1) / MINUTE_MS;
    int64_t needed = (2 * options->flush + MINUTE_MS - 1) / MINUTE_MS + 1;

    return (uint32_t)(wanted > needed ? wanted : needed);
}

/* Of several servers of one process each has keys of its own, also where all write to one Redis: "headgate:statistics"
 * is "headgate:cache:statistics" for the server cache. A hash tag stays whole: names have no braces. */
static void make_prefix(char prefix[LATENCY_PREFIX_MAX + 1], const char *given, const char *server)
{
    const char *colon = strrchr(given, ':');
    int ahead = colon != NULL ? (int)(colon + 1 - given) : 0;
    bool is_named = server != NULL && *server != '\0';

    snprintf(prefix, LATENCY_PREFIX_MAX + 1, "%.*s%s%s%s", ahead, given, is_named ? server : "", is_named ? ":" : "",
             given + ahead);
}

/* Whether that puts keys into one slot: there is something between its first brace and the next that closes. */
static bool has_hash_tag(const char *prefix)
{
    const char *open = strchr(prefix, '{');
    const char *close = open != NULL ? strchr(open, '}') : NULL;

    return close != NULL && close > open + 1;
}

/* Of [counters] and [events] all is one slot's, as each call has keys of several names: "headgate:" becomes
 * "{headgate}:". */
static void put_in_braces(char prefix[LATENCY_PREFIX_MAX + 1])
{
    char bare[LATENCY_PREFIX_MAX + 1];
    size_t length = strlen(prefix);
    bool ends_in_colon = length > 0 && prefix[length - 1] == ':';

    length -= ends_in_colon;
    if (length == 0 || has_hash_tag(prefix)) {
        return;
    }
    memcpy(bare, prefix, length);
    snprintf(prefix, LATENCY_PREFIX_MAX + 1, "{%.*s}%s", (int)length, bare, ends_in_colon ? ":" : "");
}

/* is_cluster: at the Redis of the clients. */
static bool needs_braces(const struct latency_options *options, bool is_cluster)
{
    bool goes_elsewhere = *options->upstream.text != '\0';

    return options->braces == BRACES_ON || (options->braces == BRACES_AUTO && is_cluster && !goes_elsewhere);
}

static void take_options(struct latency_settings *settings, const struct latency_options *options,
                         const struct latency_place *place)
{
    bool has_braces = needs_braces(options, place->is_cluster);

    settings->enabled = options->enabled != 0;
    make_prefix(settings->prefix, options->prefix, place->server);
    settings->braces = options->braces == BRACES_ON || (has_braces && !has_hash_tag(settings->prefix));
    settings->log_braces = has_braces;
    settings->database = options->database;
    settings->flush_us = options->flush * 1000;
    settings->retention_s = options->retention / SECOND_MS;
    settings->keep = minutes_kept(options);
    settings->max_interfaces = (uint32_t)options->max_interfaces;
    settings->by = (enum latency_by)options->by;
    settings->slow_us = options->slowlog_threshold;
    settings->slow_length = (uint32_t)options->slowlog_length;
    settings->big_request = (uint64_t)options->biglog_request;
    settings->big_reply = (uint64_t)options->biglog_reply;
    settings->big_length = (uint32_t)options->biglog_length;
    settings->shows_values = options->log_values != 0;
    settings->hot_keys = options->hotkeys != 0;
}

/* ---- [latency:NAME] ---- */

/* The name of the option that is at fault, or NULL. Either way requests is to be cleared. */
static const char *compile(struct match_requests *requests, const struct latency_rule_options *options,
                           char problem[CONF_PROBLEM_MAX], const char **expected)
{
    return match_requests_compile(requests, options->commands, options->keys, problem, expected);
}

static const char *check_rule(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    struct match_requests requests;
    const char *at_fault = compile(&requests, values, problem, expected);

    match_requests_clear(&requests);
    return at_fault;
}

static bool is_measuring(const struct conf_rule *all)
{
    const struct conf_rule *section = conf_rules_first(all, &latency_section);

    return section != NULL && ((const struct latency_options *)section->values)->enabled != 0;
}

static bool covers(const struct conf_rule *earlier, const struct conf_rule *later)
{
    const struct latency_rule_options *first = earlier->values, *second = later->values;
    bool all_commands = strcmp(first->commands, "*") == 0, all_keys = *first->keys == '\0';

    return (all_commands || strcmp(first->commands, second->commands) == 0) &&
           (all_keys || match_keys_cover(first->keys, second->keys));
}

static bool warn_of_rule(const struct conf_rule *rule, const struct conf_rule *all, char problem[CONF_PROBLEM_MAX])
{
    if (!is_measuring(all)) {
        snprintf(problem, CONF_PROBLEM_MAX, "does nothing: [latency] with enabled = on is not in the file");
        return true;
    }
    return match_keys_warn(((const struct latency_rule_options *)rule->values)->keys, problem) ||
           match_is_covered(rule, all, covers, problem);
}

const struct conf_section latency_rule_section = {
    .name = "latency",
    .has_rules = true,
    .options = rule_option_table,
    .option_count = sizeof rule_option_table / sizeof rule_option_table[0],
    .values_size = sizeof(struct latency_rule_options),
    .help = "Requests that are measured together, as the interface NAME, instead of each command by itself. The first\n"
            "rule of the file that applies to a request counts.",
    .check = check_rule,
    .warns = warn_of_rule,
};

bool latency_rule_may(const struct latency_rule *rule, const struct command *command)
{
    return match_commands_may(rule->requests.commands, command);
}

bool latency_rule_all_of(const struct latency_rule *rule, const struct command *command)
{
    return match_keys_all(rule->requests.keys) && match_commands_all_of(rule->requests.commands, command);
}

bool latency_rule_is(const struct latency_rule *rule, const struct policy_request *request)
{
    /* Any argument of a command that is not known might be a key, but that is no measure. */
    return (request->command != NULL || match_keys_all(rule->requests.keys)) &&
           match_requests_is(&rule->requests, request);
}

/* ---- [counters] and [events] ---- */

static const char *check_log(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    const struct latency_log_options *options = values;

    return check_prefix(options->prefix, problem, expected);
}

/* They go by what [latency] measures. */
static const char *check_log_beside(const struct conf_rule *rule, const struct conf_rule *all,
                                    char problem[CONF_PROBLEM_MAX], const char **expected)
{
    const struct latency_log_options *options = rule->values;

    if (options->enabled == 0 || is_measuring(all)) {
        return NULL;
    }
    snprintf(problem, CONF_PROBLEM_MAX, "would write nothing: it goes by what [latency] measures");
    *expected = "[latency] with enabled = on in the file";
    return "enabled";
}

const struct conf_section latency_counters_section = {
    .name = "counters",
    .options = log_option_table,
    .option_count = sizeof log_option_table / sizeof log_option_table[0],
    .values_size = sizeof(struct latency_log_options),
    .help = "Time-sliced counters in Redis, of all sidecars: requests, errors, slow (requests), refusals, leases,\n"
            "lost_leases, upstream_losses and lost_requests, in hashes count:PRECISION:NAME, for slices of 1 s, 5 s,\n"
            "1 min, 5 min, 1 h, 5 h and 1 d, the newest 120 of each.",
    .check = check_log,
    .check_beside = check_log_beside,
};

const struct conf_section latency_events_section = {
    .name = "events",
    .options = log_option_table,
    .option_count = sizeof log_option_table / sizeof log_option_table[0],
    .values_size = sizeof(struct latency_log_options),
    .help =
        "What happens, in Redis, of all sidecars: slow requests by interface, refusals and lost leases by rule, and\n"
        "losses of connections to Redis. The newest 100 of each are in a list recent:NAME:SEVERITY, and how many\n"
        "there were in this hour in a sorted set common:NAME:SEVERITY.",
    .check = check_log,
    .check_beside = check_log_beside,
};

static void take_log_options(bool *enabled, char prefix[LATENCY_PREFIX_MAX + 1],
                             const struct latency_log_options *options, const char *server)
{
    *enabled = options->enabled != 0;
    make_prefix(prefix, options->prefix, server);
}

/* ---- all of them ---- */

static void take_rule(struct latency_settings *settings, const struct conf_rule *from)
{
    struct latency_rule *rule = &settings->rules[settings->rule_count++];
    char problem[CONF_PROBLEM_MAX];
    const char *expected;

    /* It was sound when the file was read. */
    (void)compile(&rule->requests, from->values, problem, &expected);
    snprintf(rule->name, sizeof rule->name, "%s", from->name);
}

void latency_settings_make(struct latency_settings *settings, const struct conf_rule *list,
                           const struct latency_place *place)
{
    *settings = (struct latency_settings){0};
    settings->rules = conf_alloc(NULL, conf_rules_count(list, &latency_rule_section) * sizeof *settings->rules);
    for (const struct conf_rule *rule = list; rule != NULL; rule = rule->next) {
        if (rule->section == &latency_section) {
            take_options(settings, rule->values, place);
        } else if (rule->section == &latency_rule_section) {
            take_rule(settings, rule);
        } else if (rule->section == &latency_counters_section) {
            take_log_options(&settings->counters, settings->counters_prefix, rule->values, place->server);
        } else if (rule->section == &latency_events_section) {
            take_log_options(&settings->events, settings->events_prefix, rule->values, place->server);
        }
    }
    if (settings->log_braces) {
        put_in_braces(settings->counters_prefix);
        put_in_braces(settings->events_prefix);
    }
}

struct policy_server_settings latency_server_settings(const struct conf_rule *list)
{
    const struct conf_rule *section = conf_rules_first(list, &latency_section);
    const struct latency_options *options = section != NULL ? section->values : NULL;

    if (options == NULL || *options->upstream.text == '\0') {
        return (struct policy_server_settings){0};
    }
    return (struct policy_server_settings){
        .address = &options->upstream,
        .user = options->upstream_user,
        .password = options->upstream_password,
        .tls = section->tls,
    };
}

void latency_settings_clear(struct latency_settings *settings)
{
    for (size_t i = 0; i < settings->rule_count; i++) {
        match_requests_clear(&settings->rules[i].requests);
    }
    free(settings->rules);
    *settings = (struct latency_settings){0};
}
