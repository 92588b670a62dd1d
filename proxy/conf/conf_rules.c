/* The values that a section's options fill, as a whole, and the rules that hold them. */
#include "conf/conf.h"
#include "conf/conf_table.h"

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
        free(rule->values);
        free(rule->name);
        free(rule);
        rule = next;
    }
}

void conf_value_copy(const struct conf_option *option, void *to, const void *from)
{
    char problem[CONF_PROBLEM_MAX];
    char *text = conf_value_text(option, from);
    bool set = conf_value_set(option, to, text, problem);

    assert(set);
    (void)set;
    free(text);
}

struct conf_rule *conf_rules_copy(const struct conf_rule *from)
{
    struct conf_rule *first = NULL, **last = &first;

    for (; from != NULL; from = from->next) {
        *last = conf_rule_new(from->section, from->name, from->line);
        for (size_t i = 0; i < from->section->option_count; i++) {
            conf_value_copy(&from->section->options[i], (*last)->values, from->values);
        }
        last = &(*last)->next;
    }
    return first;
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
