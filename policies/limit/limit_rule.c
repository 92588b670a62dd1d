#include "limit/limit_rule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Leased permits live for this part of the window, or of the time in which the funnel empties, … */
#define HOLD_PART_WINDOW 20
#define HOLD_PART_FUNNEL 8
/* … no longer than this, … */
#define HOLD_MAX_US 500000
/* … and not shorter: they would be over before they come, and be asked for again and again. */
#define HOLD_MIN_US 1000

/* ---- options ---- */

/* What stands in the ini file. */
struct limit_options {
    char *commands;
    char *keys;
    char *per;
    char *except;
    int algorithm; /* enum limit_algorithm, and so on */
    int64_t limit;
    int64_t window;
    int64_t capacity;
    struct conf_rate leak;
    int cost;
    int action;
    int64_t max_delay;
    int scope;
    int accuracy;
    int on_error;
    int64_t decision_timeout;
    int64_t max_clients_tracked;
    char *prefix;
    char *servers;
};

#define TEXT_MAX 2048
#define AMOUNT_MAX INT64_C(1000000000000000)
#define MINUTE_MS INT64_C(60000)
#define DAY_US INT64_C(86400000000)
#define FIELD(field) .name = #field, .offset = offsetof(struct limit_options, field), .reloadable = true

static const char *const algorithm_words[] = {"sliding-window", "funnel", NULL};
static const char *const cost_words[] = {"1", "keys", "bytes", NULL};
static const char *const action_words[] = {"reject", "delay", "observe", NULL};
static const char *const scope_words[] = {"local", "global", NULL};
static const char *const accuracy_words[] = {"exact", "leased", NULL};
static const char *const on_error_words[] = {"allow", "deny", "local", NULL};

static const struct conf_option option_table[] = {
    {FIELD(commands), .type = CONF_STRING, .max = TEXT_MAX, .initial = "*",
     .help = "Commands: names, @categories, * for all, config|set for a subcommand, ! before a word to exclude it.\n"
             "Later words override earlier ones."},
    {FIELD(keys), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help = "Globs of keys, as in KEYS; empty: requests with any keys or none. With key in per, a part in braces is\n"
             "what is counted: user:{*}:* counts per user."},
    {FIELD(per), .type = CONF_STRING, .max = TEXT_MAX, .initial = "process",
     .help = "What has a limit of its own: process (elsewhere than on this machine: the address), uid, ip, ip/24 (and\n"
             "ip/24/56 for IPv6), user, name, identity (of [identity:NAME]), connection, host (this sidecar), key, "
             "several\n"
             "of them with + between, or all for one limit over all."},
    {FIELD(except), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help = "Clients without limit: ip:10.0.0.0/8 user:GLOB name:GLOB identity:GLOB."},
    {FIELD(algorithm), .type = CONF_WORD, .words = algorithm_words, .initial = "sliding-window",
     .help = "sliding-window: limit in any window. funnel: bursts of capacity, and leak in the long run."},
    {FIELD(limit), .type = CONF_AMOUNT, .min = 1, .max = AMOUNT_MAX, .zero = "not set", .initial = "0",
     .help = "Of the sliding window: how much is admitted in any window."},
    {FIELD(window), .type = CONF_PERIOD, .min = 1, .max = 366 * DAY_US, .zero = "not set", .initial = "0",
     .help = "Of the sliding window: how long it is."},
    {FIELD(capacity), .type = CONF_AMOUNT, .min = 1, .max = AMOUNT_MAX, .zero = "not set", .initial = "0",
     .help = "Of the funnel: how much is admitted at once when it is empty."},
    {FIELD(leak), .type = CONF_RATE, .min = 1, .max = AMOUNT_MAX, .zero = "not set", .initial = "0",
     .help = "Of the funnel: how much leaves it in how long, such as 100/s, 5/250ms or 1/h."},
    {FIELD(cost), .type = CONF_WORD, .words = cost_words, .initial = "1",
     .help = "What a request counts: 1, its keys that are meant, or its bytes on the wire (a limit of bandwidth)."},
    {FIELD(action), .type = CONF_WORD, .words = action_words, .initial = "reject",
     .help =
         "reject: -RATELIMITED NAME: … is the answer. delay: the client waits, up to max_delay, and is refused if it\n"
         "would have to wait longer. observe: nothing is refused, and what would be is counted."},
    {FIELD(max_delay), .type = CONF_TIME, .min = 1, .max = 10 * MINUTE_MS, .zero = "not set", .initial = "0",
     .help = "Of action = delay: how long a request waits at most."},
    {FIELD(scope), .type = CONF_WORD, .words = scope_words, .initial = "local",
     .help = "local: this process counts for itself. global: all that share the Redis count together, in Redis."},
    {FIELD(accuracy), .type = CONF_WORD, .words = accuracy_words, .initial = "exact",
     .help =
         "Of scope = global. exact: Redis is asked for each request. leased: permits are fetched in batches and spent\n"
         "here; never more than the limit, but those fetched and not spent are lost for a while."},
    {FIELD(on_error), .type = CONF_WORD, .words = on_error_words, .initial = "allow",
     .help =
         "Of scope = global, when Redis does not answer in time: allow or deny the request, or decide by what this\n"
         "process alone has counted (local)."},
    {FIELD(decision_timeout), .type = CONF_TIME, .min = 1, .max = MINUTE_MS, .initial = "100ms",
     .help = "Of scope = global: how long Redis is waited for without an answer; a request waits for two at most."},
    {FIELD(max_clients_tracked), .type = CONF_INTEGER, .min = 1, .max = 100000000, .initial = "100000",
     .help = "How many of what per says have a limit of their own at once; beyond it the rest shares one."},
    {FIELD(prefix), .type = CONF_STRING, .max = LIMIT_PREFIX_MAX, .initial = "headgate:",
     .help =
         "Of scope = global: what the names of the keys in Redis begin with. No blanks. Sidecars that count together\n"
         "have the same."},
    CONF_SERVERS_OPTION(struct limit_options, servers),
};

/* ---- per ---- */

static bool read_bits(struct slice text, unsigned int most, unsigned int *bits)
{
    *bits = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || i > 2) {
            return false;
        }
        *bits = *bits * 10 + (unsigned int)(text.data[i] - '0');
    }
    return text.length > 0 && *bits >= 1 && *bits <= most;
}

/* text: what follows "ip": nothing, "/24" or "/24/56". IPv6 networks are commonly given out by /64. */
static bool read_ip(struct slice text, struct limit_per *per)
{
    const char *second = text.length > 1 ? memchr(text.data + 1, '/', text.length - 1) : NULL;
    size_t first_length = second != NULL ? (size_t)(second - text.data) : text.length;

    per->ip = true;
    per->ipv4_bits = 32;
    per->ipv6_bits = text.length == 0 ? 128 : 64;
    if (text.length == 0) {
        return true;
    }
    if (!read_bits((struct slice){text.data + 1, first_length - 1}, 32, &per->ipv4_bits)) {
        return false;
    }
    return second == NULL ||
           read_bits((struct slice){second + 1, text.length - first_length - 1}, 128, &per->ipv6_bits);
}

static bool read_per_word(struct slice word, struct limit_per *per, bool *all)
{
    static const char *const names[] = {"user", "name", "identity", "connection", "process",
                                        "uid",  "host", "key",      "all"};
    bool *const fields[] = {
        &per->user, &per->name, &per->identity, &per->connection, &per->process, &per->uid, &per->host, &per->key, all};

    if (slice_begins(word, "ip") && (word.length == 2 || word.data[2] == '/')) {
        return !per->ip && read_ip((struct slice){word.data + 2, word.length - 2}, per);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (slice_is(word, names[i])) {
            bool is_new = !*fields[i];
            *fields[i] = true;
            return is_new;
        }
    }
    return false;
}

static bool read_per(const char *text, struct limit_per *per, char problem[CONF_PROBLEM_MAX])
{
    bool all = false;
    size_t words = 0;

    *per = (struct limit_per){0};
    for (const char *at = text;; at++, words++) {
        struct slice word = {at, strcspn(at, "+")};
        if (!read_per_word(word, per, &all)) {
            snprintf(problem, CONF_PROBLEM_MAX, "\"%.*s\" is not one of the known words, or there twice",
                     (int)(word.length > 64 ? 64 : word.length), word.data);
            return false;
        }
        at += word.length;
        if (*at == '\0') {
            break;
        }
    }
    if (all && words > 0) {
        snprintf(problem, CONF_PROBLEM_MAX, "joins all with something else");
    }
    return !all || words == 0;
}

/* ---- checking and compiling ---- */

static const char *fault(const char *option, char problem[CONF_PROBLEM_MAX], const char *what, const char **expected,
                         const char *instead)
{
    snprintf(problem, CONF_PROBLEM_MAX, "%s", what);
    *expected = instead;
    return option;
}

static const char *check_numbers(const struct limit_options *options, char problem[CONF_PROBLEM_MAX],
                                 const char **expected)
{
    bool window = options->algorithm == LIMIT_SLIDING_WINDOW;

    if (window && options->capacity != 0) {
        return fault("capacity", problem, "is of the funnel", expected, "limit and window, or algorithm = funnel");
    }
    if (window && options->leak.amount != 0) {
        return fault("leak", problem, "is of the funnel", expected, "limit and window, or algorithm = funnel");
    }
    if (!window && options->limit != 0) {
        return fault("limit", problem, "is of the sliding window", expected, "capacity and leak");
    }
    if (!window && options->window != 0) {
        return fault("window", problem, "is of the sliding window", expected, "capacity and leak");
    }
    if (window && options->limit == 0) {
        return fault("limit", problem, "is not set", expected, "how much is admitted in any window");
    }
    if (window && options->window == 0) {
        return fault("window", problem, "is not set", expected, "a time such as 60s");
    }
    if (!window && options->capacity == 0) {
        return fault("capacity", problem, "is not set", expected, "how much is admitted at once");
    }
    if (!window && options->leak.amount == 0) {
        return fault("leak", problem, "is not set", expected, "a rate such as 5/s");
    }
    return NULL;
}

static const char *check_words(const struct limit_options *options, char problem[CONF_PROBLEM_MAX],
                               const char **expected)
{
    if (options->action == LIMIT_DELAY && options->max_delay == 0) {
        return fault("max_delay", problem, "is not set", expected, "how long a request may be delayed");
    }
    if (options->action != LIMIT_DELAY && options->max_delay != 0) {
        return fault("max_delay", problem, "has no meaning without action = delay", expected, "action = delay");
    }
    if (options->scope == LIMIT_LOCAL && options->accuracy == LIMIT_LEASED) {
        return fault("accuracy", problem, "has no meaning without scope = global", expected, "scope = global");
    }
    return NULL;
}

static bool make_meter(struct limit_meter *meter, const struct limit_options *options)
{
    *meter = (struct limit_meter){.algorithm = (enum limit_algorithm)options->algorithm};
    if (meter->algorithm == LIMIT_SLIDING_WINDOW) {
        meter->most = options->limit;
        meter->window = (struct limit_window){.limit = options->limit, .length_us = options->window};
        return true;
    }
    meter->most = options->capacity;
    return limit_funnel_make(&meter->funnel, options->capacity, options->leak.amount, options->leak.period_us * 1000);
}

int64_t limit_rule_hold_us(const struct limit_rule *rule)
{
    if (rule->accuracy == LIMIT_EXACT) {
        return 0;
    }
    int64_t part_us = rule->meter.algorithm == LIMIT_FUNNEL ? rule->meter.funnel.full_ns / 1000 / HOLD_PART_FUNNEL
                                                            : rule->meter.window.length_us / HOLD_PART_WINDOW;
    return part_us < HOLD_MAX_US ? part_us : HOLD_MAX_US;
}

bool limit_rule_may_mean(const struct limit_rule *rule, const struct command *command)
{
    bool ends_transaction = command != NULL && (command->kind == COMMAND_EXEC || command->kind == COMMAND_DISCARD);

    return !ends_transaction && match_commands_may(rule->commands, command);
}

static bool may_mean_any(const struct limit_rule *rule)
{
    for (size_t i = 0; i <= command_count(); i++) {
        if (limit_rule_may_mean(rule, i < command_count() ? command_at(i) : NULL)) {
            return true;
        }
    }
    return false;
}

static const char *compile_keys(struct limit_rule *rule, const struct limit_options *options,
                                char problem[CONF_PROBLEM_MAX], const char **expected)
{
    *expected = MATCH_KEYS_EXPECTED ", one part of each in braces with key in per";
    rule->keys =
        rule->per.key ? match_keys_compile_parts(options->keys, problem) : match_keys_compile(options->keys, problem);
    if (rule->keys == NULL) {
        return "keys";
    }
    bool needs_keys = rule->per.key || !match_keys_all(rule->keys);
    if (needs_keys && !match_commands_have_keys(rule->commands)) {
        return fault(rule->per.key ? "per" : "keys", problem, "can never match: none of the commands has keys",
                     expected, "commands with keys beside it");
    }
    if (options->cost == LIMIT_COST_KEYS && !match_commands_have_keys(rule->commands)) {
        return fault("cost", problem, "can never count: none of the commands has keys", expected,
                     "commands with keys beside it");
    }
    return NULL;
}

/* The name of the option that is at fault, or NULL. Either way the rule is to be cleared. */
static const char *compile(struct limit_rule *rule, const struct limit_options *options, char problem[CONF_PROBLEM_MAX],
                           const char **expected)
{
    *rule = (struct limit_rule){
        .scope = (enum limit_scope)options->scope,
        .accuracy = (enum limit_accuracy)options->accuracy,
        .action = (enum limit_action)options->action,
        .cost = (enum limit_cost)options->cost,
        .leak = options->leak,
        .on_error = (enum limit_on_error)options->on_error,
        .max_delay_us = options->max_delay * 1000,
        .decision_timeout_us = options->decision_timeout * 1000,
        .buckets_max = (size_t)options->max_clients_tracked,
    };
    snprintf(rule->prefix, sizeof rule->prefix, "%s", options->prefix);
    *expected = MATCH_PREFIX_EXPECTED;
    if (!match_prefix_check(options->prefix, problem)) {
        return "prefix";
    }
    *expected = MATCH_COMMANDS_EXPECTED;
    rule->commands = match_commands_compile(options->commands, problem);
    if (rule->commands == NULL) {
        return "commands";
    }
    if (!may_mean_any(rule)) {
        return fault("commands", problem, "are never limited: EXEC and DISCARD end what was counted when it was queued",
                     expected, "other commands beside them");
    }
    *expected = "process, uid, ip, ip/BITS, user, name, connection, host or key, with + between them, or all";
    if (!read_per(options->per, &rule->per, problem)) {
        return "per";
    }
    if (rule->per.connection && options->scope == LIMIT_GLOBAL) {
        return fault("per", problem, "has connection, which other sidecars do not know", expected,
                     "scope = local, or something that all of them know");
    }
    const char *at_fault = compile_keys(rule, options, problem, expected);
    if (at_fault != NULL) {
        return at_fault;
    }
    *expected = MATCH_CLIENTS_EXPECTED;
    rule->except = match_clients_compile(options->except, problem);
    if (rule->except == NULL) {
        return "except";
    }
    if (!make_meter(&rule->meter, options)) {
        return fault("leak", problem, "would take more than a hundred years to empty the funnel", expected,
                     "a faster leak or a smaller capacity");
    }
    if (rule->accuracy == LIMIT_LEASED && limit_rule_hold_us(rule) < HOLD_MIN_US) {
        return fault("accuracy", problem, "leases permits for less than 1 ms, which is over before they come", expected,
                     "exact, or a window of 20ms at least, or a funnel that takes 8ms at least to empty");
    }
    return NULL;
}

static const char *check_rule(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    const struct limit_options *options = values;
    struct limit_rule rule;
    const char *at_fault = check_numbers(options, problem, expected);

    if (at_fault == NULL) {
        at_fault = check_words(options, problem, expected);
    }
    if (at_fault == NULL) {
        at_fault = compile(&rule, options, problem, expected);
        limit_rule_clear(&rule);
    }
    return at_fault;
}

static bool warn_of_rule(const struct conf_rule *rule, const struct conf_rule *all, char problem[CONF_PROBLEM_MAX])
{
    const struct limit_options *options = rule->values;
    struct match_clients *except = match_clients_compile(options->except, problem);
    bool excepts_all = match_clients_all(except);

    match_clients_free(except);
    if (excepts_all) {
        snprintf(problem, CONF_PROBLEM_MAX, "limits nothing: except = %.120s is every client", options->except);
        return true;
    }
    if (options->scope == LIMIT_LOCAL && options->on_error != LIMIT_ON_ERROR_ALLOW) {
        snprintf(problem, CONF_PROBLEM_MAX, "on_error has no meaning without scope = global");
        return true;
    }
    if (match_clients_warn(options->except, all, problem)) {
        return true;
    }
    struct limit_per per;
    return read_per(options->per, &per, problem) && !per.key && match_keys_warn(options->keys, problem);
}

static bool runs_scripts(const struct conf_rule *rule)
{
    return ((const struct limit_options *)rule->values)->scope == LIMIT_GLOBAL;
}

static const char *goes_by_address(const struct conf_rule *from)
{
    const struct limit_options *options = from->values;
    struct limit_per per;
    char problem[CONF_PROBLEM_MAX];

    if (read_per(options->per, &per, problem) && per.ip) {
        return "per";
    }
    return match_names_addresses(options->except) ? "except" : NULL;
}

const struct conf_section limit_section = {
    .name = "limit",
    .has_rules = true,
    .options = option_table,
    .option_count = sizeof option_table / sizeof option_table[0],
    .values_size = sizeof(struct limit_options),
    .help = "How much clients may do. All rules that apply to a request must admit it; a refusal charges none of them.",
    .check = check_rule,
    .warns = warn_of_rule,
    .by_address = goes_by_address,
    .runs_scripts = runs_scripts,
};

/* ---- rules ---- */

/* The text of an option, as it would stand in the file. */
static char *option_text(const char *name, const void *values)
{
    for (size_t i = 0; i < limit_section.option_count; i++) {
        if (strcmp(option_table[i].name, name) == 0) {
            return conf_value_text(&option_table[i], values);
        }
    }
    abort();
}

static char *amount_text(const struct limit_options *options)
{
    bool window = options->algorithm == LIMIT_SLIDING_WINDOW;
    const char *unit = options->cost == LIMIT_COST_BYTES ? " bytes" : options->cost == LIMIT_COST_KEYS ? " keys" : "";
    char *time = option_text(window ? "window" : "leak", options);
    char *text = conf_format(window ? "%" PRId64 "%s in %s" : "%" PRId64 "%s leaking %s",
                             window ? options->limit : options->capacity, unit, time);

    free(time);
    return text;
}

void limit_rule_make(struct limit_rule *rule, const struct conf_rule *from)
{
    const struct limit_options *options = from->values;
    char problem[CONF_PROBLEM_MAX];
    const char *expected;

    /* It was sound when the file was read. */
    (void)compile(rule, options, problem, &expected);
    snprintf(rule->name, sizeof rule->name, "%s", from->name);
    rule->per_text = conf_format("%s", options->per);
    char *amount = amount_text(options);
    rule->what =
        strcmp(options->per, "all") == 0 ? conf_format("%s", amount) : conf_format("%s per %s", amount, options->per);
    rule->refusal = conf_format("-RATELIMITED %s: %s", rule->name, rule->what);
    rule->identity = conf_format("%s\n%s\n%s\n%s\n%s\n%s", from->name, amount, options->per, options->keys,
                                 scope_words[options->scope], options->prefix);
    rule->member.description = conf_format("scope=%s algorithm=%s admits=\"%s\" per=%s cost=%s action=%s",
                                           scope_words[options->scope], algorithm_words[options->algorithm], amount,
                                           options->per, cost_words[options->cost], action_words[options->action]);
    free(amount);
}

void limit_rule_clear(struct limit_rule *rule)
{
    match_commands_free(rule->commands);
    match_keys_free(rule->keys);
    match_clients_free(rule->except);
    free(rule->per_text);
    free(rule->what);
    free(rule->refusal);
    free(rule->identity);
    free((char *)(uintptr_t)rule->member.description);
}
