/* What the options that read from replicas need beside them. */
#include "conf/conf_private.h"

static bool is_server(const struct conf_part *part)
{
    return part->section == &conf_section_headgate || part->section == &conf_section_server;
}

void conf_check_reads(struct conf_reading *reading, struct conf_part *part)
{
    const struct conf *conf = part->values;

    if (conf->reads != CONF_READS_MASTER && conf->upstream.topology != CONF_TOPOLOGY_SINGLE &&
        conf->pool != CONF_POOL_SHARED) {
        conf_fault_value(reading, part, "reads", "needs pool = shared, as replicas are read from over shared lanes",
                         "master, or pool = shared");
    }
}

/* ---- rules ---- */

/* Parts and rules go side by side, but for the first part, which is [headgate]. */
static bool next_place(const struct conf_reading *reading, struct conf_walk *walk, struct conf_place *place)
{
    while (walk->part != NULL) {
        const struct conf_part *part = walk->part;
        const struct conf_rule *rule = walk->rule;
        bool is_first = part == reading->parts;
        bool is_server = is_first ? reading->conf->serves : part->section == &conf_section_server;
        walk->part = part->next;
        walk->rule = is_first ? reading->conf->rules : rule->next;
        if (is_server) {
            *place = (struct conf_place){part, part->values, is_first ? CONF_SERVER_DEFAULT : rule->name};
            return true;
        }
    }
    return false;
}

static bool knows_replicas(const struct conf *conf)
{
    return conf->upstream.topology != CONF_TOPOLOGY_SINGLE;
}

/* Of the servers that a rule concerns: whether any knows of replicas, and any of these has no shared lanes. */
static void look_at_servers(const struct conf_reading *reading, const struct conf_rule *rule, bool *knows, bool *lacks)
{
    struct conf_walk walk = conf_walk_start(reading);
    struct conf_place place;

    *knows = *lacks = false;
    while (next_place(reading, &walk, &place)) {
        if (conf_rule_concerns(rule, place.name) && knows_replicas(place.conf)) {
            *knows = true;
            *lacks = *lacks || place.conf->pool != CONF_POOL_SHARED;
        }
    }
}

static bool has_replicas_read(const struct conf_rule *rule)
{
    return rule->section->reads_replicas != NULL && rule->section->reads_replicas(rule);
}

static int line_of_option(const struct conf_part *part, const char *name)
{
    return part->sightings[conf_section_option(part->section, name) - part->section->options].line;
}

void conf_check_rules_reads(struct conf_reading *reading)
{
    const struct conf_rule *rule = reading->conf->rules;
    bool knows, lacks;

    for (struct conf_part *part = reading->parts->next; part != NULL; part = part->next, rule = rule->next) {
        if (has_replicas_read(rule)) {
            look_at_servers(reading, rule, &knows, &lacks);
            if (lacks) {
                conf_fault_value(reading, part, "reads",
                                 "needs pool = shared, as replicas are read from over shared lanes",
                                 "master, or pool = shared");
            }
        }
    }
}

static void warn_of_rules(struct conf_reading *reading)
{
    const struct conf_rule *rule = reading->conf->rules;
    bool knows, lacks;

    for (struct conf_part *part = reading->parts->next; part != NULL; part = part->next, rule = rule->next) {
        if (has_replicas_read(rule)) {
            look_at_servers(reading, rule, &knows, &lacks);
            if (!knows) {
                conf_warn(reading, part, line_of_option(part, "reads"),
                          "reads does nothing: the upstream names no sentinels and no cluster, which would know of "
                          "replicas");
            }
        }
    }
}

bool conf_reads_replicas(const struct conf *server)
{
    const struct conf_rule *rule = server->rules;

    while (rule != NULL && !has_replicas_read(rule)) {
        rule = rule->next;
    }
    return server->reads != CONF_READS_MASTER || rule != NULL;
}

/* ---- what does nothing ---- */

/* What a server has from [headgate] is meant for others. */
static bool says_reads(const struct conf_part *part)
{
    return line_of_option(part, "reads") > 0;
}

void conf_warn_of_reads(struct conf_reading *reading)
{
    for (struct conf_part *part = reading->parts; part != NULL; part = part->next) {
        const struct conf *conf = is_server(part) ? part->values : NULL;
        if (conf != NULL && conf->reads != CONF_READS_MASTER && conf->upstream.topology == CONF_TOPOLOGY_SINGLE &&
            says_reads(part)) {
            conf_warn(reading, part, line_of_option(part, "reads"),
                      "reads does nothing: upstream names no sentinels and no cluster, which would know of replicas");
        }
    }
    warn_of_rules(reading);
}
