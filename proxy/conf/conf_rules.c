/* The values that a section's options fill, as a whole, and the rules that hold them. */
#include "conf/conf_private.h"

#include "tls/tls_context.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void conf_values_default(const struct conf_section *section, void *values)
{
    for (size_t i = 0; i < section->option_count; i++) {
        char problem[CONF_PROBLEM_MAX];
        bool set = conf_value_set(&section->options[i], values, section->options[i].initial, problem);
        assert(set);
        (void)set;
    }
}

struct conf_rule *conf_rule_new(const struct conf_section *section, const char *name, int line)
{
    struct conf_rule *rule = conf_alloc(NULL, sizeof *rule);

    *rule = (struct conf_rule){.section = section, .name = conf_format("%s", name), .line = line};
    rule->values = conf_alloc(NULL, section->values_size);
    memset(rule->values, 0, section->values_size);
    conf_values_default(section, rule->values);
    rule->origins = conf_origins_new(section);
    return rule;
}

void conf_values_free(const struct conf_section *section, void *values)
{
    for (size_t i = 0; i < section->option_count; i++) {
        conf_value_free(&section->options[i], values);
    }
}

void conf_rules_free(struct conf_rule *rule)
{
    while (rule != NULL) {
        struct conf_rule *next = rule->next;
        conf_values_free(rule->section, rule->values);
        tls_context_release(rule->tls);
        tls_context_release(rule->tls_clients);
        conf_origins_free(rule->section, rule->origins);
        free(rule->values);
        free(rule->name);
        free(rule);
        rule = next;
    }
}

struct conf_rule *conf_rule_copy(const struct conf_rule *from)
{
    struct conf_rule *copy = conf_rule_new(from->section, from->name, from->line);

    for (size_t i = 0; i < from->section->option_count; i++) {
        conf_value_copy(&from->section->options[i], copy->values, from->values);
    }
    conf_origins_copy(from->section, copy->origins, from->origins);
    copy->tls = tls_context_hold(from->tls);
    copy->tls_clients = tls_context_hold(from->tls_clients);
    return copy;
}

struct conf_rule *conf_rules_copy(const struct conf_rule *from)
{
    struct conf_rule *first = NULL, **last = &first;

    for (; from != NULL; from = from->next) {
        *last = conf_rule_copy(from);
        last = &(*last)->next;
    }
    return first;
}

const struct conf_rule *conf_rule_find(const struct conf_rule *list, const struct conf_rule *wanted)
{
    while (list != NULL && !(list->section == wanted->section && strcmp(list->name, wanted->name) == 0)) {
        list = list->next;
    }
    return list;
}

static void report_rule(const struct conf_rule *rule, void (*report)(void *context, const char *what), void *context)
{
    char *title = conf_format("[%s%s%s]", rule->section->name, *rule->name != '\0' ? ":" : "", rule->name);

    report(context, title);
    free(title);
}

static bool same_values(const struct conf_section *section, const void *a, const void *b)
{
    bool same = true;

    for (size_t i = 0; i < section->option_count && same; i++) {
        same = conf_value_equal(&section->options[i], a, b);
    }
    return same;
}

void conf_changes(const struct conf *old, const struct conf *new_conf, void (*report)(void *context, const char *what),
                  void *context)
{
    for (size_t i = 0; i < conf_option_count; i++) {
        if (!conf_value_equal(&conf_options[i], old, new_conf)) {
            report(context, conf_options[i].name);
        }
    }
    for (const struct conf_rule *rule = new_conf->rules; rule != NULL; rule = rule->next) {
        const struct conf_rule *before = conf_rule_find(old->rules, rule);
        if (before == NULL || !same_values(rule->section, before->values, rule->values)) {
            report_rule(rule, report, context);
        }
    }
    for (const struct conf_rule *rule = old->rules; rule != NULL; rule = rule->next) {
        if (conf_rule_find(new_conf->rules, rule) == NULL) {
            report_rule(rule, report, context);
        }
    }
}

size_t conf_rules_count(const struct conf_rule *list, const struct conf_section *section)
{
    size_t count = 0;

    for (; list != NULL; list = list->next) {
        count += list->section == section;
    }
    return count;
}

const struct conf_rule *conf_rules_first(const struct conf_rule *list, const struct conf_section *section)
{
    while (list != NULL && list->section != section) {
        list = list->next;
    }
    return list;
}

const struct conf_rule *conf_rules_with_scripts(const struct conf_rule *list)
{
    while (list != NULL && (list->section->runs_scripts == NULL || !list->section->runs_scripts(list))) {
        list = list->next;
    }
    return list;
}
