/*
 * [route:NAME]: who answers a part of the traffic. Rules are asked in the order of the file; the first one that means a
 * request says who answers it, if it is one that only reads. What no rule means is as the server has it.
 *
 * A rule that has requests read from replicas means those of which all keys are its own, and one that has them read
 * from the master those of which any is: so a request with keys of two kinds is never answered by who is behind.
 */
#include "match/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum route_reads { ROUTE_READS_UNSET, ROUTE_READS_MASTER, ROUTE_READS_PREFER_REPLICA, ROUTE_READS_REPLICA };

/* What stands in the ini file. */
struct route_options {
    char *commands;
    char *keys;
    char *clients;
    int reads; /* enum route_reads */
    char *servers;
};

#define TEXT_MAX 2048
#define FIELD(field) .name = #field, .offset = offsetof(struct route_options, field), .reloadable = true

static const char *const reads_words[] = {"unset", "master", "prefer-replica", "replica", NULL};

static const enum conf_reads reads_of[] = {
    [ROUTE_READS_MASTER] = CONF_READS_MASTER,
    [ROUTE_READS_PREFER_REPLICA] = CONF_READS_PREFER_REPLICA,
    [ROUTE_READS_REPLICA] = CONF_READS_REPLICA,
};

static const struct conf_option route_option_table[] = {
    {FIELD(commands), .type = CONF_STRING, .max = TEXT_MAX, .initial = "*",
     .help = "Commands: names, @categories, * for all, config|set for a subcommand, ! before a word to exclude it.\n"
             "Later words override earlier ones. Of these, those that only read."},
    {FIELD(keys), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help =
         "Globs of keys, as in KEYS; empty: any keys. With reads = master a request is meant that has any such key,\n"
         "else one that has no others."},
    {FIELD(clients), .type = CONF_STRING, .max = TEXT_MAX, .initial = "",
     .help = "Clients that are meant: ip:10.0.0.0/8 user:GLOB name:GLOB identity:GLOB; empty: all."},
    {FIELD(reads), .type = CONF_WORD, .words = reads_words, .initial = "unset",
     .help =
         "Who answers: master, prefer-replica or replica, in place of what the server's reads says, which tells what\n"
         "they mean. Behind sentinels, or before a cluster. Needs pool = shared."},
    CONF_SERVERS_OPTION(struct route_options, servers),
};

/* A rule, compiled. */
struct route_rule {
    struct match_requests requests;
    struct match_clients *clients; /* NULL: all */
    enum conf_reads reads;
};

static void rule_clear(struct route_rule *rule)
{
    match_requests_clear(&rule->requests);
    match_clients_free(rule->clients);
}

/* The name of the option that is at fault, or NULL. Either way the rule is to be cleared. */
static const char *rule_compile(struct route_rule *rule, const struct route_options *options,
                                char problem[CONF_PROBLEM_MAX], const char **expected)
{
    *rule = (struct route_rule){.reads = reads_of[options->reads]};
    const char *at_fault = match_requests_compile(&rule->requests, options->commands, options->keys, problem, expected);
    if (at_fault != NULL) {
        return at_fault;
    }
    *expected = MATCH_CLIENTS_EXPECTED;
    if (words_count(options->clients) > 0) {
        rule->clients = match_clients_compile(options->clients, problem);
        return rule->clients == NULL ? "clients" : NULL;
    }
    return NULL;
}

static const char *check_rule(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    const struct route_options *options = values;
    struct route_rule rule;
    const char *at_fault = rule_compile(&rule, options, problem, expected);

    rule_clear(&rule);
    if (at_fault != NULL) {
        return at_fault;
    }
    if (options->reads == ROUTE_READS_UNSET) {
        snprintf(problem, CONF_PROBLEM_MAX, "does not say who answers");
        *expected = "master, prefer-replica or replica";
        return "reads";
    }
    return NULL;
}

static bool covers(const struct conf_rule *earlier, const struct conf_rule *later)
{
    const struct route_options *first = earlier->values, *second = later->values;
    bool all_commands = strcmp(first->commands, "*") == 0, all_keys = words_count(first->keys) == 0;
    bool same_kind = (first->reads == ROUTE_READS_MASTER) == (second->reads == ROUTE_READS_MASTER);

    return words_count(first->clients) == 0 && (all_commands || strcmp(first->commands, second->commands) == 0) &&
           (all_keys || (same_kind && match_keys_cover(first->keys, second->keys)));
}

static bool warn_of_rule(const struct conf_rule *rule, const struct conf_rule *all, char problem[CONF_PROBLEM_MAX])
{
    const struct route_options *options = rule->values;

    return match_clients_warn(options->clients, all, problem) || match_keys_warn(options->keys, problem) ||
           match_is_covered(rule, all, covers, problem);
}

static const char *goes_by_address(const struct conf_rule *rule)
{
    return match_names_addresses(((const struct route_options *)rule->values)->clients) ? "clients" : NULL;
}

static bool reads_replicas(const struct conf_rule *rule)
{
    return ((const struct route_options *)rule->values)->reads > ROUTE_READS_MASTER;
}

static const struct conf_former former[] = {
    {"server", "a listen of the other [server:NAME], to which whoever uses those keys connects"},
    {NULL, NULL},
};

static const struct conf_section route_section = {
    .name = "route",
    .has_rules = true,
    .options = route_option_table,
    .option_count = sizeof route_option_table / sizeof route_option_table[0],
    .values_size = sizeof(struct route_options),
    .help =
        "Who answers a part of the traffic: replicas or the master. The first rule of the file that means a request\n"
        "says so; what none means is as the server has it.",
    .check = check_rule,
    .warns = warn_of_rule,
    .by_address = goes_by_address,
    .reads_replicas = reads_replicas,
    .former = former,
};

struct route {
    struct route_rule *rules;
    size_t count;
};

static void free_rules(struct route *route)
{
    for (size_t i = 0; i < route->count; i++) {
        rule_clear(&route->rules[i]);
    }
    free(route->rules);
    route->rules = NULL;
    route->count = 0;
}

static bool route_reload(void *instance, const struct conf_rule *list)
{
    struct route *route = instance;
    char problem[CONF_PROBLEM_MAX];
    const char *expected;

    free_rules(route);
    route->count = conf_rules_count(list, &route_section);
    route->rules = conf_alloc(NULL, route->count * sizeof *route->rules);
    for (size_t i = 0; i < route->count; i++) {
        list = conf_rules_first(list, &route_section);
        /* It was sound when the file was read. */
        (void)rule_compile(&route->rules[i], list->values, problem, &expected);
        list = list->next;
    }
    return true;
}

static void *route_start(const struct policy_start *start)
{
    struct route *route = calloc(1, sizeof *route);

    if (route != NULL) {
        route_reload(route, start->rules);
    }
    return route;
}

static void route_stop(void *instance)
{
    free_rules(instance);
    free(instance);
}

static bool route_routes(void *instance, const struct command *command)
{
    const struct route *route = instance;
    bool routes = false;

    for (size_t i = 0; i < route->count && command != NULL; i++) {
        routes = routes || match_commands_may(route->rules[i].requests.commands, command);
    }
    return routes;
}

/* ---- requests ---- */

struct key_count {
    const struct match_keys *keys;
    size_t own;
    bool has_others;
};

static bool look_at_key(void *context, struct slice key, uint32_t index)
{
    struct key_count *count = context;
    bool is_own = match_keys_is(count->keys, key);

    (void)index;
    count->own += is_own;
    count->has_others = !is_own;
    return is_own;
}

static bool look_at_pattern(void *context, const struct command_key_pattern *pattern)
{
    struct key_count *count = context;

    (void)pattern;
    count->has_others = true;
    return false;
}

/* All keys are the rule's. What a pattern of SORT reads may be anything. */
static bool has_own_keys_only(const struct match_keys *keys, const struct policy_request *request)
{
    struct key_count count = {.keys = keys};

    if (match_keys_all(keys)) {
        return true;
    }
    bool is_whole = match_visit_keys(request, look_at_key, &count);
    if (is_whole && !count.has_others && request->command->keys == COMMAND_KEYS_SORT) {
        command_visit_patterns(request->command, request->frame, look_at_pattern, &count);
    }
    return is_whole && count.own > 0 && !count.has_others;
}

static bool means(const struct route_rule *rule, const struct policy_request *request)
{
    if (!match_commands_request(rule->requests.commands, request) ||
        (rule->clients != NULL && !match_clients_is(rule->clients, request->client))) {
        return false;
    }
    return rule->reads == CONF_READS_MASTER ? match_keys_any(rule->requests.keys, request)
                                            : has_own_keys_only(rule->requests.keys, request);
}

static bool route_reads(void *instance, const struct policy_request *request, enum conf_reads *reads)
{
    const struct route *route = instance;

    for (size_t i = 0; i < route->count; i++) {
        if (means(&route->rules[i], request)) {
            *reads = route->rules[i].reads;
            return true;
        }
    }
    return false;
}

static const struct conf_section *const sections[] = {&route_section, NULL};

static const struct policy_router route_router = {.routes = route_routes, .reads = route_reads};

const struct policy route_policy = {
    .name = "route",
    .router = &route_router,
    .sections = sections,
    .start = route_start,
    .reload = route_reload,
    .stop = route_stop,
};
