/*
 * Rules that send keys to another server of the process. Both it and those that the rules concern have one Redis each:
 * behind sentinels, or before a cluster, requests go to more than one place already.
 */
#include "conf/conf_private.h"

#include <string.h>

const char *conf_rule_sends_to(const struct conf_rule *rule)
{
    return rule->section->sends_to != NULL ? rule->section->sends_to(rule) : "";
}

static bool find_place(const struct conf_reading *reading, const char *name, struct conf_place *place)
{
    struct conf_walk walk = conf_walk_start(reading);
    bool found = false;

    while (!found && conf_next_place(reading, &walk, place)) {
        found = strcmp(place->name, name) == 0;
    }
    return found;
}

/* What stands in the way of keys going from the one to the other; NULL: nothing. */
static const char *find_obstacle(const struct conf *from, const struct conf *to, const char **expected)
{
    if (to->upstream.topology != CONF_TOPOLOGY_SINGLE) {
        *expected = "a server with one Redis, without sentinels and cluster";
        return "has keys in several places itself";
    }
    if (from->upstream.topology != CONF_TOPOLOGY_SINGLE) {
        *expected = "servers with one Redis, without sentinels and cluster";
        return "is for clients of a server before sentinels or a cluster, too";
    }
    if (from->pool != CONF_POOL_SHARED) {
        *expected = "pool = shared for the clients that it is for";
        return "needs pool = shared, as a client has requests at two servers";
    }
    if (*to->upstream_password != '\0' && *from->upstream_password == '\0') {
        *expected = "upstream_password for both, or for neither";
        return "has upstream_password, and the server of the clients has none: who has no password could use it";
    }
    return NULL;
}

/* The same for all servers that the rule concerns; *is_for: for how many. */
static const char *find_any_obstacle(const struct conf_reading *reading, const struct conf_rule *rule,
                                     const struct conf_place *to, size_t *is_for, const char **expected)
{
    struct conf_walk walk = conf_walk_start(reading);
    struct conf_place from;
    const char *obstacle = NULL;

    *is_for = 0;
    while (obstacle == NULL && conf_next_place(reading, &walk, &from)) {
        if (conf_rule_concerns(rule, from.name) && strcmp(from.name, to->name) != 0) {
            ++*is_for;
            obstacle = find_obstacle(from.conf, to->conf, expected);
        }
    }
    return obstacle;
}

void conf_check_rules_places(struct conf_reading *reading)
{
    const struct conf_rule *rule = reading->conf->rules;
    struct conf_place to;
    size_t is_for;

    for (struct conf_part *part = reading->parts->next; part != NULL; part = part->next, rule = rule->next) {
        const char *name = conf_rule_sends_to(rule), *expected = "the NAME of a [server:NAME]";
        if (*name == '\0') {
            continue;
        }
        const char *obstacle = find_place(reading, name, &to)
                                   ? find_any_obstacle(reading, rule, &to, &is_for, &expected)
                                   : "is no server of this file";
        if (obstacle != NULL) {
            conf_fault_value(reading, part, "server", obstacle, expected);
        }
    }
}

/* ---- what a reload would put in force ---- */

/* The same with what the servers go by; a server that is not there yet has no number. */
static const char *find_obstacle_now(const struct conf *process, const struct conf_rule *rule)
{
    const char *name = conf_rule_sends_to(rule), *obstacle = NULL, *expected;
    size_t number = conf_server_find(process, name), count = conf_server_count(process);

    if (number == count) {
        return "is a server that this process does not have";
    }
    for (size_t i = 0; i < count && obstacle == NULL; i++) {
        const struct conf *from = conf_server_at(process, i);
        if (i != number && conf_rule_concerns(rule, conf_server_name(from))) {
            obstacle = find_obstacle(from, conf_server_at(process, number), &expected);
        }
    }
    return obstacle;
}

bool conf_check_merged(const struct conf *merged, struct conf_faults *faults)
{
    struct conf_reading reading = {.path = merged->path, .line = 1, .faults = faults};

    for (const struct conf_rule *rule = merged->rules; rule != NULL; rule = rule->next) {
        const char *name = conf_rule_sends_to(rule);
        const char *obstacle = *name != '\0' ? find_obstacle_now(merged, rule) : NULL;
        if (obstacle != NULL) {
            conf_fault_line(&reading,
                            "[%s:%s] server = %s: %s; expected a restart first, for what is another in the file",
                            rule->section->name, rule->name, name, obstacle);
        }
    }
    return faults->count == 0;
}

/* ---- warnings ---- */

void conf_warn_of_rules_places(struct conf_reading *reading)
{
    const struct conf_rule *rule = reading->conf->rules;
    const char *expected;
    struct conf_place to;
    size_t is_for;

    for (struct conf_part *part = reading->parts->next; part != NULL; part = part->next, rule = rule->next) {
        const char *name = conf_rule_sends_to(rule);
        if (*name != '\0' && find_place(reading, name, &to)) {
            (void)find_any_obstacle(reading, rule, &to, &is_for, &expected);
            if (is_for == 0) {
                conf_warn(reading, part, part->line, "does nothing: it is for clients of that same server only");
            }
        }
    }
}
