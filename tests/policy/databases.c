/* [databases]: which databases clients may SELECT. */
#include "policy/policy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct databases_options {
    int64_t highest;
};

static const struct conf_option options[] = {
    {.name = "highest",
     .type = CONF_INTEGER,
     .offset = offsetof(struct databases_options, highest),
     .max = INT32_MAX,
     .zero = "database 0 alone",
     .initial = "0",
     .reloadable = true,
     .help = "The last database clients may SELECT."},
};

static const struct conf_section section = {
    .name = "databases",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .values_size = sizeof(struct databases_options),
    .help = "Which databases clients may SELECT. Without this section: all.",
};

static const struct policy_counter counters[] = {
    {"databases_refused_total", STATS_COUNTER, "SELECTs refused by [databases]"},
};

/* The policy on one worker. */
struct databases {
    int64_t highest; /* INT64_MAX: there is no such section */
    _Atomic uint64_t *refused;
};

static bool databases_reload(void *instance, const struct conf_rule *rules)
{
    const struct conf_rule *rule = conf_rules_first(rules, &section);
    const struct databases_options *values = rule != NULL ? rule->values : NULL;

    ((struct databases *)instance)->highest = values != NULL ? values->highest : INT64_MAX;
    return true;
}

static void *databases_start(const struct policy_start *start)
{
    struct databases *databases = calloc(1, sizeof *databases);

    if (databases != NULL) {
        databases->refused = &start->counters[0];
        databases_reload(databases, start->rules);
    }
    return databases;
}

static bool databases_wants(void *instance, const struct command *command)
{
    bool is_on = ((const struct databases *)instance)->highest != INT64_MAX;

    return is_on && command != NULL && strcmp(command->name, "select") == 0;
}

static enum policy_verdict databases_request(void *instance, const struct policy_request *request,
                                             struct policy_decision *decision)
{
    const struct databases *databases = instance;
    struct resp_walk walk = resp_walk_start(request->frame);
    struct slice argument; /* the name, then the number */
    int64_t number;

    bool is_number =
        resp_walk_next(&walk, &argument) && resp_walk_next(&walk, &argument) && word_integer(argument, &number);
    if (!is_number || number <= databases->highest) {
        return POLICY_ADMIT; /* what is no number, Redis refuses */
    }
    policy_count(databases->refused, 1);
    decision->rule = "highest";
    decision->length = (size_t)snprintf(decision->text, sizeof decision->text,
                                        "-DENIED databases: %" PRId64 " is the last one\r\n", databases->highest);
    return POLICY_REPLY;
}

static const struct conf_section *const sections[] = {&section, NULL};

static const struct policy_gate databases_gate = {.wants = databases_wants, .on_request = databases_request};

const struct policy databases_policy = {
    .name = "databases",
    .sections = sections,
    .counter_section = "Databases",
    .counters = counters,
    .counter_count = sizeof counters / sizeof counters[0],
    .gate = &databases_gate,
    .start = databases_start,
    .reload = databases_reload,
    .stop = free,
};
