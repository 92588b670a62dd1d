/*
 * [deny:NAME]: commands, keys and sizes that clients may not use. Rules are asked in the order of the file; the first
 * one that applies refuses the request, or counts it if it only observes.
 */
#include "match/match.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum deny_action { DENY_REJECT, DENY_OBSERVE };

/* What stands in the ini file. */
struct deny_options {
    char *commands;
    char *keys;
    char *except;
    int64_t max_bytes;
    int action; /* enum deny_action */
    char *servers;
};

#define TEXT_MAX 2048
#define FIELD(field) .name = #field, .offset = offsetof(struct deny_options, field), .reloadable = true

static const char *const action_words[] = {"reject", "observe", NULL};

static const struct conf_option deny_option_table[] = {
    {FIELD(commands), .type = CONF_STRING, .max = TEXT_MAX, .initial = "*",
     .help = "Commands: names, @categories, * for all, config|set for a subcommand, ! before a word to exclude it.\n"
             "Later words override earlier ones."},
    {FIELD(keys), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help =
         "Globs of keys, as in KEYS. A request that has any such key is meant. Empty: requests with any keys or none."},
    {FIELD(except), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help = "Clients that may all the same: ip:10.0.0.0/8 user:GLOB name:GLOB identity:GLOB."},
    {FIELD(max_bytes), .type = CONF_SIZE, .min = 1, .max = INT64_C(1) << 40, .zero = "requests of any size",
     .initial = "0", .help = "Only requests that are longer than this on the wire are meant."},
    {FIELD(action), .type = CONF_WORD, .words = action_words, .initial = "reject",
     .help = "reject: -DENIED NAME: … is the answer. observe: the request goes on and is counted."},
    CONF_SERVERS_OPTION(struct deny_options, servers),
};

/* A rule, compiled. */
struct deny_rule {
    char name[CONF_RULE_NAME_MAX + 1];
    struct match_requests requests;
    struct match_clients *except;
    uint64_t max_bytes; /* 0: any size */
    enum deny_action action;
};

static void rule_clear(struct deny_rule *rule)
{
    match_requests_clear(&rule->requests);
    match_clients_free(rule->except);
}

/* The name of the option that is at fault, or NULL. Either way the rule is to be cleared. */
static const char *rule_compile(struct deny_rule *rule, const struct deny_options *options,
                                char problem[CONF_PROBLEM_MAX], const char **expected)
{
    *rule = (struct deny_rule){.max_bytes = (uint64_t)options->max_bytes, .action = (enum deny_action)options->action};
    const char *at_fault = match_requests_compile(&rule->requests, options->commands, options->keys, problem, expected);
    if (at_fault != NULL) {
        return at_fault;
    }
    *expected = MATCH_CLIENTS_EXPECTED;
    rule->except = match_clients_compile(options->except, problem);
    return rule->except == NULL ? "except" : NULL;
}

static const char *check_rule(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    const struct deny_options *options = values;
    struct deny_rule rule;
    const char *at_fault = rule_compile(&rule, options, problem, expected);

    rule_clear(&rule);
    if (at_fault == NULL && strcmp(options->commands, "*") == 0 && *options->keys == '\0' && options->max_bytes == 0) {
        snprintf(problem, CONF_PROBLEM_MAX, "leaves no request");
        *expected = "fewer commands, or keys or max_bytes beside it";
        return "commands";
    }
    return at_fault;
}

/* A rule that only observes takes nothing from those behind it. */
static bool covers(const struct conf_rule *earlier, const struct conf_rule *later)
{
    const struct deny_options *first = earlier->values, *second = later->values;
    bool all_commands = strcmp(first->commands, "*") == 0, all_keys = *first->keys == '\0';

    return first->action == DENY_REJECT && *first->except == '\0' && first->max_bytes <= second->max_bytes &&
           (all_commands || strcmp(first->commands, second->commands) == 0) &&
           (all_keys || match_keys_cover(first->keys, second->keys));
}

static bool warn_of_rule(const struct conf_rule *rule, const struct conf_rule *all, char problem[CONF_PROBLEM_MAX])
{
    const struct deny_options *options = rule->values;
    struct match_clients *except = match_clients_compile(options->except, problem);
    bool is_all = match_clients_all(except);

    match_clients_free(except);
    if (is_all) {
        snprintf(problem, CONF_PROBLEM_MAX, "denies nothing: except = %.120s is every client", options->except);
        return true;
    }
    return match_clients_warn(options->except, all, problem) || match_keys_warn(options->keys, problem) ||
           match_is_covered(rule, all, covers, problem);
}

static const char *goes_by_address(const struct conf_rule *rule)
{
    return match_names_addresses(((const struct deny_options *)rule->values)->except) ? "except" : NULL;
}

static const struct conf_section deny_section = {
    .name = "deny",
    .has_rules = true,
    .options = deny_option_table,
    .option_count = sizeof deny_option_table / sizeof deny_option_table[0],
    .values_size = sizeof(struct deny_options),
    .help = "What clients may not do. The first rule of the file that applies to a request answers it.",
    .check = check_rule,
    .warns = warn_of_rule,
    .by_address = goes_by_address,
};

enum deny_counter { DENY_REJECTED, DENY_OBSERVED };

static const struct policy_counter deny_counters[] = {
    [DENY_REJECTED] = {"deny_rejected_total", STATS_COUNTER, "requests refused by a [deny:…] rule"},
    [DENY_OBSERVED] = {"deny_observed_total", STATS_COUNTER, "requests that a rule with action = observe would refuse"},
};

struct deny {
    struct deny_rule *rules;
    size_t count;
    _Atomic uint64_t *counters;
};

static void free_rules(struct deny *deny)
{
    for (size_t i = 0; i < deny->count; i++) {
        rule_clear(&deny->rules[i]);
    }
    free(deny->rules);
    deny->rules = NULL;
    deny->count = 0;
}

static void rule_make(struct deny_rule *rule, const struct conf_rule *from)
{
    char problem[CONF_PROBLEM_MAX];
    const char *expected;

    /* It was sound when the file was read. */
    (void)rule_compile(rule, from->values, problem, &expected);
    snprintf(rule->name, sizeof rule->name, "%s", from->name);
}

static bool deny_reload(void *instance, const struct conf_rule *list)
{
    struct deny *deny = instance;

    free_rules(deny);
    deny->count = conf_rules_count(list, &deny_section);
    deny->rules = conf_alloc(NULL, deny->count * sizeof *deny->rules);
    for (size_t i = 0; i < deny->count; i++) {
        list = conf_rules_first(list, &deny_section);
        rule_make(&deny->rules[i], list);
        list = list->next;
    }
    return true;
}

static void *deny_start(const struct policy_start *start)
{
    struct deny *deny = calloc(1, sizeof *deny);

    if (deny != NULL) {
        deny->counters = start->counters;
        deny_reload(deny, start->rules);
    }
    return deny;
}

static void deny_stop(void *instance)
{
    free_rules(instance);
    free(instance);
}

static bool deny_wants(void *instance, const struct command *command)
{
    const struct deny *deny = instance;

    for (size_t i = 0; i < deny->count; i++) {
        if (match_commands_may(deny->rules[i].requests.commands, command)) {
            return true;
        }
    }
    return false;
}

static enum match_answer match_size(const struct deny_rule *rule, const struct policy_request *request)
{
    uint64_t bytes;
    bool is_all = match_request_bytes(request, &bytes);

    if (rule->max_bytes == 0 || bytes > rule->max_bytes) {
        return MATCH_YES;
    }
    return is_all ? MATCH_NO : MATCH_OPEN;
}

static enum match_answer match(const struct deny_rule *rule, const struct policy_request *request)
{
    enum match_answer size = match_size(rule, request);
    enum match_answer asked = size != MATCH_NO ? match_requests_is(&rule->requests, request) : MATCH_NO;

    if (asked == MATCH_NO || match_clients_is(rule->except, request->client)) {
        return MATCH_NO;
    }
    return asked == MATCH_OPEN ? asked : size;
}

/* What a client may see in an error: its own command's name, made harmless. */
static void write_refusal(const struct deny_rule *rule, const struct policy_request *request,
                          struct policy_decision *decision)
{
    const char *name = request->command != NULL ? request->command->name : "this command";
    const char *what = rule->max_bytes > 0                   ? "is not allowed at this size"
                       : match_keys_all(rule->requests.keys) ? "is not allowed"
                                                             : "is not allowed on such a key";

    decision->length =
        (size_t)snprintf(decision->text, sizeof decision->text, "-DENIED %s: %s %s\r\n", rule->name, name, what);
}

static enum policy_verdict deny_request(void *instance, const struct policy_request *request,
                                        struct policy_decision *decision)
{
    const struct deny *deny = instance;
    enum policy_verdict verdict = POLICY_PASS;
    uint32_t observed = 0;

    for (size_t i = 0; i < deny->count && verdict == POLICY_PASS; i++) {
        const struct deny_rule *rule = &deny->rules[i];
        enum match_answer matches = match(rule, request);
        if (matches == MATCH_OPEN) {
            /* Nothing is counted yet: all rules are asked again. */
            return POLICY_WHOLE;
        }
        if (matches == MATCH_YES && rule->action == DENY_REJECT) {
            policy_count(&deny->counters[DENY_REJECTED], 1);
            write_refusal(rule, request, decision);
            decision->rule = rule->name;
            verdict = POLICY_REPLY;
        } else if (matches == MATCH_YES) {
            observed++;
        }
    }
    /* A request that is held is asked about again after a reload: the ticket is what was counted of it. */
    if (observed > *request->ticket) {
        policy_count(&deny->counters[DENY_OBSERVED], observed - *request->ticket);
        *request->ticket = observed;
    }
    return verdict;
}

/* Whether a rule may mean it, for all that is known. */
static bool deny_concerns(void *instance, const struct policy_glance *glance)
{
    const struct deny *deny = instance;

    for (size_t i = 0; i < deny->count; i++) {
        const struct deny_rule *rule = &deny->rules[i];
        if (match_commands_may(rule->requests.commands, glance->command) &&
            (rule->max_bytes == 0 || glance->bytes > rule->max_bytes) &&
            match_keys_is(rule->requests.keys, glance->key)) {
            return true;
        }
    }
    return false;
}

static const struct conf_section *const sections[] = {&deny_section, NULL};

static const struct policy_gate deny_gate = {
    .wants = deny_wants,
    .on_request = deny_request,
    .concerns = deny_concerns,
};

const struct policy deny_policy = {
    .name = "deny",
    .gate = &deny_gate,
    .sections = sections,
    .counter_section = "Deny",
    .counters = deny_counters,
    .counter_count = sizeof deny_counters / sizeof deny_counters[0],
    .start = deny_start,
    .reload = deny_reload,
    .stop = deny_stop,
};
