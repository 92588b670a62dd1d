/*
 * Values that are set at run time. The configuration in force is copied and taken for one that was just read: its
 * values stand where the file said them, and the new ones as if a line more had been there. So they are judged by the
 * same checks as a file, and all of them or none are taken. So is what a reload would put in force.
 */
#include "conf/conf_private.h"

#include "tls/tls_context.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* What stands in faults in place of a file; conf_change() takes it out of them. */
#define PLACE "CONFIG SET"
/* Of a name and of a value, in bytes. */
#define NAME_MAX_BYTES 160

/* ---- the copy ---- */

struct conf *conf_clone(const struct conf *from)
{
    struct conf *copy = conf_new(from->path);

    for (size_t i = 0; i < conf_option_count; i++) {
        conf_value_copy(&conf_options[i], copy, from);
    }
    conf_origins_copy(&conf_section_headgate, copy->origins, from->origins);
    copy->rules = conf_rules_copy(from->rules);
    copy->serves = from->serves;
    return copy;
}

static struct conf_part *make_part(const struct conf_section *section, const char *title, void *values,
                                   const struct conf_origin *origins, int line)
{
    struct conf_part *part = conf_part_new(section, title, values, line);

    for (size_t i = 0; i < section->option_count; i++) {
        part->sightings[i].line = origins[i].file != NULL || origins[i].is_set ? 1 : 0;
    }
    return part;
}

static struct conf_part *make_parts(struct conf *conf)
{
    struct conf_part *first = make_part(&conf_section_headgate, CONF_SECTION, conf, conf->origins, 1), *last = first;

    for (struct conf_rule *rule = conf->rules; rule != NULL; rule = rule->next, last = last->next) {
        char *title = conf_format("%s%s%s", rule->section->name, *rule->name != '\0' ? ":" : "", rule->name);
        last->next = make_part(rule->section, title, rule->values, rule->origins, 1);
        free(title);
    }
    return first;
}

static struct conf_origin *origins_of(const struct conf_reading *reading, const struct conf_part *wanted)
{
    const struct conf_part *part = reading->parts;
    struct conf_rule *rule = reading->conf->rules;

    if (wanted == part) {
        return reading->conf->origins;
    }
    for (part = part->next; part != wanted; part = part->next) {
        rule = rule->next;
    }
    return rule->origins;
}

/* ---- one value ---- */

/* "limit:search.limit" is the option limit of [limit:search]; what has no dot is one of [headgate]. */
static struct conf_part *find_part(const struct conf_reading *reading, const char *name, const char **option)
{
    const char *dot = strrchr(name, '.');
    struct conf_part *part = reading->parts;

    *option = dot != NULL ? dot + 1 : name;
    if (dot == NULL) {
        return part;
    }
    size_t length = (size_t)(dot - name);
    while (part != NULL && !(strlen(part->title) == length && strncmp(part->title, name, length) == 0)) {
        part = part->next;
    }
    return part;
}

/* A value with its faults. what: NULL, or why it is none for CONFIG SET. */
static const char *why_not(const struct conf_part *part, const struct conf_option *option, const char **expected)
{
    *expected = "it in the file";
    if (part->section == &conf_section_server && option->reach == CONF_REACH_PROCESS) {
        *expected = "it without a server's name";
        return "is of the whole process";
    }
    if (!option->reloadable) {
        *expected = "it in the file, and a restart";
        return "takes a restart";
    }
    if (!conf_option_is_settable(option)) {
        return "names a file, or says who may do what: that is for the file alone";
    }
    if (conf_value_is_of_file(part->section, option, part->values)) {
        return "is what a file holds, which another option names";
    }
    return NULL;
}

static void fault(struct conf_reading *reading, const struct conf_part *part, const struct conf_option *option,
                  const char *value, const char *what, const char *expected)
{
    bool is_address = option->type == CONF_ADDRESS || option->type == CONF_ADDRESSES;
    char *shown = conf_option_hides(option) ? conf_format(CONF_SECRET_SHOWN)
                  : is_address              ? conf_hidden_url(value)
                                            : conf_format("%s", value);

    conf_fault_option(reading, part, 1, option->name, shown, what, expected);
    free(shown);
}

/* Text is taken as it is, whatever it holds; all else as it would stand in the file. */
static bool set_value(const struct conf_option *option, void *values, const char *value, char problem[CONF_PROBLEM_MAX])
{
    char **field = (char **)(void *)((char *)values + option->offset);

    if (option->type != CONF_STRING) {
        return conf_value_set(option, values, value, problem);
    }
    if (conf_option_hides(option) && strcmp(value, CONF_SECRET_SHOWN) == 0) {
        return conf_wrong(problem, "is what a hidden secret is shown as, not the secret");
    }
    if (strlen(value) > (size_t)option->max) {
        return conf_wrong(problem, "has %zu bytes", strlen(value));
    }
    conf_value_free(option, values);
    *field = conf_copy(value, strlen(value));
    return true;
}

static void take_value(struct conf_reading *reading, struct conf_part *part, const struct conf_option *option,
                       const char *value)
{
    size_t index = (size_t)(option - part->section->options);
    struct conf_sighting *sighting = &part->sightings[index];
    struct conf_origin *origin = &origins_of(reading, part)[index];
    char problem[CONF_PROBLEM_MAX];
    const char *expected, *what = why_not(part, option, &expected);

    if (what != NULL) {
        fault(reading, part, option, value, what, expected);
    } else if (!set_value(option, part->values, value, problem)) {
        char *text = conf_value_expected(option);
        fault(reading, part, option, value, problem, text);
        free(text);
    }
    if (part == reading->parts) {
        conf_pass_on(reading, index);
    }
    sighting->line = 1;
    free(origin->file);
    *origin = (struct conf_origin){.is_set = true};
}

static bool is_plain(struct slice text)
{
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if ((c < ' ' && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return true;
}

/* Of a name that is none: behind it may stand its value. */
static size_t length_shown(const char *name)
{
    return strcspn(name, CONF_BLANKS "=");
}

static void take_setting(struct conf_reading *reading, const char *name, const char *value)
{
    const char *option_name;
    struct conf_part *part = find_part(reading, name, &option_name);
    char *lower = conf_format("%s", option_name);

    for (char *c = lower; *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    const struct conf_option *option = part != NULL ? conf_section_option(part->section, lower) : NULL;
    reading->part = part;
    reading->hides_values = reading->hides_values || option == NULL;
    if (part == NULL) {
        conf_fault_line(reading, "%.*s: there is no such section; expected a name that CONFIG GET * lists",
                        (int)length_shown(name), name);
    } else if (option == NULL) {
        lower[length_shown(lower)] = '\0';
        conf_fault_unknown_option(reading, lower);
    } else {
        take_value(reading, part, option, value);
    }
    free(lower);
}

static bool same_name(struct slice a, struct slice b)
{
    return a.length == b.length && strncasecmp(a.data, b.data, a.length) == 0;
}

static bool is_repeated(const struct conf_setting *settings, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (same_name(settings[i].name, settings[index].name)) {
            return true;
        }
    }
    return false;
}

/* A value that came as several words. */
static void fault_split(struct conf_reading *reading, const struct conf_setting *setting)
{
    char *name = conf_copy(setting->name.data, setting->name.length);

    conf_fault_line(reading,
                    "%.*s: what follows its value is no option's name; expected a value with blanks to be quoted",
                    (int)length_shown(name), is_plain(setting->name) ? name : "");
    free(name);
}

static void take_settings(struct conf_reading *reading, const struct conf *process, const struct conf_setting *settings,
                          size_t count)
{
    const struct conf_doubt doubt = conf_settings_doubt(process, settings, count);

    if (doubt.split < count) {
        fault_split(reading, &settings[doubt.first]);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        reading->hides_values = i > doubt.first;
        bool is_sound = is_plain(settings[i].name) && is_plain(settings[i].value) &&
                        settings[i].name.length <= NAME_MAX_BYTES && settings[i].value.length <= CONF_LINE_MAX;
        char *name = conf_copy(settings[i].name.data, is_sound ? settings[i].name.length : 0);
        char *value = conf_copy(settings[i].value.data, is_sound ? settings[i].value.length : 0);
        if (!is_sound) {
            conf_fault_line(reading,
                            "a name or a value holds a control character, or is too long; expected text of up "
                            "to %zu bytes",
                            CONF_LINE_MAX);
        } else if (is_repeated(settings, i)) {
            conf_fault_line(reading, "%s: is given twice; expected it once", name);
        } else {
            take_setting(reading, name, value);
        }
        explicit_bzero(value, strlen(value));
        free(value);
        free(name);
    }
}

/* ---- all of it ---- */

/* Whether it is something that TLS contexts are made of. */
static bool concerns_tls(const struct conf_setting *setting)
{
    static const char *const words[] = {"tls_", "certificate", "verify", "server_name"};
    char *name = conf_copy(setting->name.data, setting->name.length);
    bool concerns = false;

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        concerns = concerns || strcasestr(name, words[i]) != NULL;
    }
    free(name);
    return concerns;
}

/* What was made of files that nobody has spoken of stays, so that one that is faulty by now is no hindrance. */
static void keep_tls(struct conf_reading *reading, const struct conf *from, const struct conf_setting *settings,
                     size_t count)
{
    reading->has_tls = true;
    for (size_t i = 0; i < count; i++) {
        reading->has_tls = reading->has_tls && !concerns_tls(&settings[i]);
    }
    if (reading->has_tls) {
        reading->conf->tls_clients = tls_context_hold(from->tls_clients);
        reading->conf->tls_upstream = tls_context_hold(from->tls_upstream);
    }
}

/* There is no file, nor a line of it. */
static void drop_place(char *line)
{
    const char *end = strncmp(line, PLACE ":", sizeof PLACE) == 0 ? strstr(line, ": ") : NULL;

    if (end != NULL) {
        memmove(line, end + 2, strlen(end + 2) + 1);
    }
}

static void drop_places(struct conf_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++) {
        drop_place(faults->lines[i]);
    }
    for (size_t i = 0; i < faults->warning_count; i++) {
        drop_place(faults->warnings[i]);
    }
}

bool conf_judge(struct conf *conf, const struct conf_section *const *sections, struct conf_faults *faults)
{
    struct conf_faults found = {0};
    struct conf_reading reading = {
        .path = PLACE, .line = 1, .conf = conf, .faults = &found, .sections = sections, .parts = make_parts(conf)};
    struct conf_reading file = {.path = conf->path, .faults = faults};

    conf_check_values(&reading);
    conf_parts_free(&reading);
    drop_places(&found);
    for (size_t i = 0; i < found.count; i++) {
        conf_fault_file(&file, "beside what waits for a restart, %s", found.lines[i]);
    }
    conf_faults_free(&found);
    return faults->count == 0;
}

struct conf *conf_change(const struct conf *process, const struct conf_section *const *sections,
                         const struct conf_setting *settings, size_t count, struct conf_faults *faults)
{
    struct conf *conf = conf_clone(process);
    struct conf_reading reading = {
        .path = PLACE,
        .line = 1,
        .conf = conf,
        .faults = faults,
        .sections = sections,
        .parts = make_parts(conf),
    };

    *faults = (struct conf_faults){0};
    take_settings(&reading, process, settings, count);
    keep_tls(&reading, process, settings, count);
    if (faults->count == 0) {
        conf_check_all(&reading);
    }
    conf_parts_free(&reading);
    drop_places(faults);
    if (faults->count > 0) {
        conf_free(conf);
        return NULL;
    }
    conf_finish(conf);
    return conf;
}
