/* Options one by one, as they are told to who asks: what they are, and who says so. */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>

/* "server:", the name, a dot and an option, with room to spare. */
#define NAME_SIZE 160

/* A server has what it does not say from [headgate], and so who says it. */
static const struct conf_origin *origin_of(const struct conf *process, const struct conf_rule *rule, size_t index)
{
    const struct conf_origin *own = &rule->origins[index];
    bool inherits = rule->section == &conf_section_server && rule->section->options[index].reach == CONF_REACH_SERVER;

    return inherits && own->file == NULL && !own->is_set ? &process->origins[index] : own;
}

static void visit_rule(const struct conf *process, const struct conf_rule *rule,
                       void (*visit)(void *context, const struct conf_fact *fact), void *context)
{
    char name[NAME_SIZE];

    for (size_t i = 0; i < rule->section->option_count; i++) {
        const struct conf_option *option = &rule->section->options[i];
        if (rule->section == &conf_section_server && option->reach == CONF_REACH_PROCESS) {
            continue;
        }
        snprintf(name, sizeof name, "%s%s%s.%s", rule->section->name, *rule->name != '\0' ? ":" : "", rule->name,
                 option->name);
        visit(context, &(struct conf_fact){name, option, rule->section, rule->values, origin_of(process, rule, i)});
    }
}

static void visit_facts(const struct conf *process, void (*visit)(void *context, const struct conf_fact *fact),
                        void *context)
{
    for (size_t i = 0; i < conf_option_count; i++) {
        const struct conf_option *option = &conf_options[i];
        if (process->serves || option->reach != CONF_REACH_ADDRESS) {
            visit(context,
                  &(struct conf_fact){option->name, option, &conf_section_headgate, process, &process->origins[i]});
        }
    }
    for (const struct conf_rule *rule = process->rules; rule != NULL; rule = rule->next) {
        visit_rule(process, rule, visit, context);
    }
}

static const char *text_of(const struct conf_option *option, const void *values)
{
    return *(char *const *)(const void *)((const char *)values + option->offset);
}

static char *value_of(const struct conf_fact *fact)
{
    const struct conf_option *option = fact->option;
    bool is_text = option->type == CONF_STRING || option->type == CONF_FILE;

    return is_text && !conf_option_hides(option) ? conf_format("%s", text_of(option, fact->values))
                                                 : conf_value_shown(option, fact->values);
}

static char *source_of(const struct conf_fact *fact)
{
    const struct conf_option *file = conf_value_file(fact->section, fact->option, fact->values);

    if (file != NULL) {
        return conf_format("%s", text_of(file, fact->values));
    }
    if (fact->origin->is_set) {
        return conf_format("CONFIG SET");
    }
    return fact->origin->file != NULL ? conf_format("%s:%d", fact->origin->file, fact->origin->line)
                                      : conf_format("default");
}

/* ---- ready to be told ---- */

static void count_fact(void *context, const struct conf_fact *fact)
{
    struct conf *process = context;

    (void)fact;
    process->listed_count++;
}

static void list_fact(void *context, const struct conf_fact *fact)
{
    struct conf *process = context;

    process->listed[process->listed_count++] = (struct conf_listed){
        .option = fact->option,
        .name = conf_format("%s", fact->name),
        .value = value_of(fact),
        .source = source_of(fact),
    };
}

void conf_list_make(struct conf *process)
{
    visit_facts(process, count_fact, process);
    process->listed = conf_alloc(NULL, process->listed_count * sizeof process->listed[0]);
    process->listed_count = 0;
    visit_facts(process, list_fact, process);
}

void conf_list_free(struct conf *process)
{
    for (size_t i = 0; i < process->listed_count; i++) {
        free(process->listed[i].name);
        free(process->listed[i].value);
        free(process->listed[i].source);
    }
    free(process->listed);
}

/* ---- values that are to be set ---- */

struct seeking {
    const struct conf_setting *setting;
    const struct conf_option *option; /* NULL: not found */
};

static void seek(void *context, const struct conf_fact *fact)
{
    struct seeking *seeking = context;

    if (slice_is_word(seeking->setting->name, fact->name)) {
        seeking->option = fact->option;
    }
}

/* NULL: there is none of that name. */
static const struct conf_option *find_option(const struct conf *process, const struct conf_setting *setting)
{
    struct seeking seeking = {.setting = setting};

    visit_facts(process, seek, &seeking);
    return seeking.option;
}

/* An address may have a password in it. */
static bool is_address(const struct conf_option *option, struct slice value)
{
    return option->type == CONF_ADDRESS || option->type == CONF_ADDRESSES ||
           (value.length > 0 && memmem(value.data, value.length, "://", 3) != NULL);
}

/* What nobody knows may be a secret by a name misspelt. */
char *conf_setting_shown(const struct conf *process, const struct conf_setting *setting)
{
    const struct conf_option *option = find_option(process, setting);

    if (option == NULL || conf_option_hides(option)) {
        return conf_format(CONF_SECRET_SHOWN);
    }
    char *value = conf_copy(setting->value.data, setting->value.length);
    char *shown = is_address(option, setting->value) ? conf_hidden_url(value) : conf_format("%s", value);
    free(value);
    return shown;
}

struct slice conf_setting_name_shown(const struct conf *process, const struct conf_setting *setting)
{
    struct slice name = setting->name;
    size_t length = 0;

    if (find_option(process, setting) != NULL) {
        return name;
    }
    while (length < name.length && strchr(CONF_BLANKS "=", name.data[length]) == NULL) {
        length++;
    }
    return (struct slice){name.data, length};
}

/* A name in the place of a value: that was forgotten, and what follows is the other one's value. */
static bool is_name(const struct conf *process, struct slice value)
{
    return find_option(process, &(struct conf_setting){.name = value}) != NULL;
}

struct conf_doubt conf_settings_doubt(const struct conf *process, const struct conf_setting *settings, size_t count)
{
    struct conf_doubt doubt = {count, count};

    for (size_t i = 0; i < count && doubt.split == count; i++) {
        const struct conf_option *option = find_option(process, &settings[i]);
        if (option == NULL && doubt.first < count) {
            doubt.split = i;
        } else if (option == NULL || conf_option_hides(option) || is_address(option, settings[i].value) ||
                   is_name(process, settings[i].value)) {
            doubt.first = doubt.first < count ? doubt.first : i;
        }
    }
    return doubt;
}

/* ---- which values were set ---- */

struct reporting {
    void (*report)(void *context, const char *name);
    void *context;
};

/* What a server has from [headgate] is reported there. */
static void report_setting(void *context, const struct conf_fact *fact)
{
    const struct reporting *reporting = context;

    if (fact->origin->is_set) {
        reporting->report(reporting->context, fact->name);
    }
}

void conf_settings(const struct conf *process, void (*report)(void *context, const char *name), void *context)
{
    struct reporting reporting = {report, context};

    visit_facts(process, report_setting, &reporting);
}
