/*
 * What a file that is read again puts in force. Some options take a restart, and what says who may use an address, or
 * how it is spoken to, waits with the address (waits_with in the tables). So what is in force may be what no file has
 * said: it is judged as a file is.
 */
#include "conf/conf_private.h"
#include "conf/words.h"

#include <stdlib.h>
#include <string.h>

/* Both configurations as lists of sections, of which [headgate] is the first. */
struct turn {
    struct conf_rule old, fresh;
    bool serves_otherwise; /* [headgate] is a server in one of them only */
};

/* Belongs to conf. */
static struct conf_rule sections_of(const struct conf *conf)
{
    return (struct conf_rule){.section = &conf_section_headgate,
                              .name = conf->server_name,
                              .values = (void *)(uintptr_t)conf,
                              .origins = conf->origins,
                              .next = conf->rules};
}

static struct turn turn_of(const struct conf *old, const struct conf *fresh)
{
    return (struct turn){sections_of(old), sections_of(fresh), old->serves != fresh->serves};
}

/* Whether a section that is in force has an option of that name which is otherwise after a restart, or an address of
 * which the file says nothing any more. */
static bool awaits_restart(const struct turn *turn, const struct conf_rule *old, struct slice name)
{
    for (size_t i = 0; i < old->section->option_count; i++) {
        const struct conf_option *option = &old->section->options[i];
        if (!option->reloadable && slice_is(name, option->name)) {
            const struct conf_rule *fresh = conf_rule_find(&turn->fresh, old);
            bool is_gone =
                fresh == NULL || (turn->serves_otherwise && old == &turn->old && option->reach == CONF_REACH_ADDRESS);
            return is_gone ? option->type == CONF_ADDRESS || option->type == CONF_ADDRESSES
                           : !conf_value_equal(option, old->values, fresh->values);
        }
    }
    return false;
}

/* Whether it is a new password of the same user at Redis: who connects is nobody else by it. */
static bool is_rotation(const struct turn *turn, const struct conf_rule *old, const struct conf_option *option)
{
    bool is_server = old->section == &conf_section_headgate || old->section == &conf_section_server;
    const struct conf_rule *fresh = is_server ? conf_rule_find(&turn->fresh, old) : NULL;
    const struct conf *before = old->values, *now = fresh != NULL ? fresh->values : NULL;

    return now != NULL && strncmp(option->name, "upstream_password", 17) == 0 && *before->upstream_password != '\0' &&
           *now->upstream_password != '\0' && strcmp(before->upstream_user, now->upstream_user) == 0;
}

/* The option with which a reloadable one waits for a restart; empty: it is taken over. */
static struct slice waits_with(const struct turn *turn, const struct conf_rule *old, const struct conf_option *option)
{
    const char *names = option->waits_with != NULL ? option->waits_with : "";
    struct slice name;

    while (words_next(&names, &name)) {
        bool is_of_any = name.data[name.length - 1] == '*';
        const struct conf_rule *at = is_of_any ? &turn->old : old, *end = is_of_any ? NULL : old->next;
        name.length -= is_of_any;
        if (is_of_any && is_rotation(turn, old, option)) {
            continue;
        }
        for (; at != end; at = at->next) {
            if (awaits_restart(turn, at, name)) {
                return name;
            }
        }
    }
    return slice_of("");
}

/* A section that listens, besides [headgate]: there are as many as there were at the start. */
static bool listens(const struct conf_rule *rule)
{
    return rule->section == &conf_section_listener || rule->section == &conf_section_server;
}

/* Whether the rules of that section, with their order, stay as they were: one that comes, goes or means others would
 * undo what of them waits. */
static bool waits_as_a_whole(const struct turn *turn, const struct conf_section *section)
{
    return section->options[0].waits_with != NULL && waits_with(turn, &turn->old, &section->options[0]).length > 0;
}

/* ---- what is told of it ---- */

struct telling {
    void (*report)(void *context, const char *option);
    void *context;
};

static void tell(const struct telling *telling, const struct conf_rule *rule, const char *option, struct slice with)
{
    char *section =
        *rule->name != '\0' ? conf_format("[%s:%s]", rule->section->name, rule->name) : conf_format("%s", "");
    char *beside = with.length > 0 ? conf_format(" (with %.*s)", (int)with.length, with.data) : conf_format("%s", "");
    char *text = conf_format("%s%s%s%s", section, *section != '\0' && *option != '\0' ? " " : "", option, beside);

    telling->report(telling->context, text);
    free(text);
    free(beside);
    free(section);
}

void conf_restart_only_changes(const struct conf *merged, const struct conf *fresh,
                               void (*report)(void *context, const char *option), void *context)
{
    const struct telling telling = {report, context};
    const struct turn turn = turn_of(merged, fresh);

    for (const struct conf_rule *rule = &turn.old; rule != NULL; rule = rule->next) {
        const struct conf_rule *now = conf_rule_find(&turn.fresh, rule);
        for (size_t i = 0; now != NULL && i < rule->section->option_count; i++) {
            const struct conf_option *option = &rule->section->options[i];
            bool is_of_all = option->reach == CONF_REACH_PROCESS && rule != &turn.old;
            if (!is_of_all && !conf_value_equal(option, rule->values, now->values)) {
                tell(&telling, rule, option->name, option->reloadable ? waits_with(&turn, rule, option) : slice_of(""));
            }
        }
        if (now == NULL) {
            tell(&telling, rule, "", slice_of(""));
        }
        if (rule == &turn.old && turn.serves_otherwise) {
            report(context, "whether [" CONF_SECTION "] is a server itself");
        }
    }
    for (const struct conf_rule *rule = fresh->rules; rule != NULL; rule = rule->next) {
        if (conf_rule_find(&turn.old, rule) == NULL) {
            tell(&telling, rule, "", slice_of(""));
        }
    }
}

/* ---- what is in force then ---- */

/* to: a copy of the section as the file says it, or as it was; it is left with what waits as it was. */
static void keep(const struct turn *turn, struct conf_rule *to, const struct conf_rule *old)
{
    for (size_t i = 0; i < to->section->option_count; i++) {
        const struct conf_option *option = &to->section->options[i];
        bool is_same = conf_value_equal(option, to->values, old->values);
        if (option->reloadable && waits_with(turn, old, option).length == 0) {
            continue;
        }
        if (!is_same) {
            conf_value_copy(option, to->values, old->values);
        }
        if (!is_same || option->reloadable || turn->serves_otherwise) {
            const struct conf_origin *own = &old->origins[i];
            bool is_inherited = old->section == &conf_section_server && own->file == NULL && !own->is_set;
            conf_origin_copy(&to->origins[i], is_inherited ? &turn->old.origins[i] : own);
        }
    }
}

/* Of the sections that listen those of old, in their order, as rules has them if it does; of those that wait as a whole
 * those of old. Takes the list of rules. */
static struct conf_rule *keep_sections(const struct turn *turn, struct conf_rule *rules)
{
    struct conf_rule **end = &rules, *from_file = NULL;

    while (*end != NULL) {
        struct conf_rule *rule = *end;
        if (listens(rule) || waits_as_a_whole(turn, rule->section)) {
            *end = rule->next;
            rule->next = from_file;
            from_file = rule;
        } else {
            end = &rule->next;
        }
    }
    for (const struct conf_rule *old = turn->old.next; old != NULL; old = old->next) {
        bool stays = waits_as_a_whole(turn, old->section);
        if (listens(old) || stays) {
            const struct conf_rule *now = stays ? NULL : conf_rule_find(from_file, old);
            *end = conf_rule_copy(now != NULL ? now : old);
            end = &(*end)->next;
        }
    }
    conf_rules_free(from_file);
    return rules;
}

struct conf *conf_merge_reloadable(const struct conf *old, const struct conf *new_conf,
                                   const struct conf_section *const *sections, struct conf_faults *faults)
{
    const struct turn turn = turn_of(old, new_conf);
    struct conf *merged = conf_clone(new_conf);

    merged->rules = keep_sections(&turn, merged->rules);
    merged->serves = old->serves;
    struct conf_rule first = sections_of(merged);
    for (struct conf_rule *rule = &first; rule != NULL; rule = rule->next) {
        const struct conf_rule *before = conf_rule_find(&turn.old, rule);
        struct conf_rule *blank = before == NULL ? conf_rule_new(rule->section, rule->name, rule->line) : NULL;
        keep(&turn, rule, before != NULL ? before : blank);
        conf_rules_free(blank);
    }
    if (!conf_judge(merged, sections, faults)) {
        conf_free(merged);
        return NULL;
    }
    conf_finish(merged);
    return merged;
}
