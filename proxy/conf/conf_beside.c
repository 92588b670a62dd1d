/*
 * Rules beside others: what contradicts, and what is sound but can hardly be meant. Rules of different servers are not
 * beside each other. Parts and rules stand in the same order.
 */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>

/* A rule as it stands among those of a server. */
struct place {
    struct conf_reading *reading;
    struct conf_part *part;
    const struct conf_rule *rule;
    const struct conf_rule *all; /* of the server */
};

/* Calls look for each rule that concerns the server. */
static void visit_view(struct conf_reading *reading, const char *server, void (*look)(const struct place *place))
{
    struct conf_rule *view = conf_view_new(reading->conf->rules, server), *at = view;
    const struct conf_rule *rule = reading->conf->rules;

    for (struct conf_part *part = reading->parts->next; part != NULL && at != NULL;
         part = part->next, rule = rule->next) {
        if (conf_rule_concerns(rule, server)) {
            look(&(struct place){.reading = reading, .part = part, .rule = at, .all = view});
            at = at->next;
        }
    }
    free(view);
}

static void visit(struct conf_reading *reading, void (*look)(const struct place *place))
{
    for (const char *server = conf_view_next(reading->conf, NULL); server != NULL;
         server = conf_view_next(reading->conf, server)) {
        visit_view(reading, server, look);
    }
}

/* What has no use for one server may have it for another. */
static void check(const struct place *place)
{
    const struct conf_section *section = place->part->section;
    struct conf_part *part = place->part;
    char problem[CONF_PROBLEM_MAX];
    const char *expected = "";
    const char *name =
        section->check_beside != NULL ? section->check_beside(place->rule, place->all, problem, &expected) : NULL;

    if (name == NULL) {
        part->is_sound = true;
    } else if (part->at_fault == NULL) {
        part->at_fault = name;
        part->problem = conf_copy(problem, strlen(problem));
        part->expected = expected;
    }
}

void conf_check_beside(struct conf_reading *reading)
{
    visit(reading, check);
    for (struct conf_part *part = reading->parts; part != NULL; part = part->next) {
        if (part->at_fault != NULL && !part->is_sound) {
            conf_fault_value(reading, part, part->at_fault, part->problem, part->expected);
        }
    }
}

/* ---- what can hardly be meant ---- */

/* What does nothing for one server may do something for another. */
static void weigh(const struct place *place)
{
    const struct conf_section *section = place->part->section;
    struct conf_part *part = place->part;
    char problem[CONF_PROBLEM_MAX];

    if (section->warns == NULL || !section->warns(place->rule, place->all, problem)) {
        part->is_quiet = true;
    } else if (part->warning == NULL) {
        part->warning = conf_copy(problem, strlen(problem));
    }
}

/* Where all clients are of this machine, they have one address: 127.0.0.1, or that of the Unix socket. */
static void warn_of_addresses(struct conf_reading *reading, const struct conf_part *part, const struct conf_rule *rule)
{
    const char *option = part->section->by_address != NULL ? part->section->by_address(rule) : NULL;

    if (option != NULL) {
        char *what =
            conf_format("%s goes by addresses, and all clients have the same: listen takes connections of this "
                        "machine only; there are %s",
                        option, strcmp(option, "per") == 0 ? "per = process and uid" : "user:GLOB and name:GLOB");
        conf_warn(reading, part, part->line, what);
        free(what);
    }
}

void conf_warn_of_rules(struct conf_reading *reading)
{
    const struct conf_rule *rule = reading->conf->rules;
    bool is_local = conf_serves_this_machine_only(reading->conf);

    visit(reading, weigh);
    for (struct conf_part *part = reading->parts->next; part != NULL; part = part->next, rule = rule->next) {
        if (part->warning != NULL && !part->is_quiet) {
            conf_warn(reading, part, part->line, part->warning);
        } else if (is_local) {
            warn_of_addresses(reading, part, rule);
        }
    }
}
