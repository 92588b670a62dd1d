/*
 * Several servers of one process. While the file is read, a [server:NAME] is a section like others, whose values are a
 * struct conf. What it does not say it has from [headgate]. In the end each server, that of [headgate] among them, gets
 * a configuration by itself, as if it were alone in the process: nobody who serves clients knows of the others.
 */
#include "conf/conf_listener.h"
#include "conf/conf_private.h"
#include "conf/words.h"

#include "tls/tls_context.h"

#include <stdlib.h>
#include <string.h>

#define SERVERS_EXPECTED                                                                                               \
    "NAMEs of [server:NAME], and " CONF_SERVER_DEFAULT " for that of [" CONF_SECTION "], with blanks or commas "       \
    "between"

/* ---- whom a rule concerns ---- */

static const struct conf_option *servers_option(const struct conf_section *section)
{
    for (size_t i = 0; i < section->option_count; i++) {
        if (section->options[i].names_servers) {
            return &section->options[i];
        }
    }
    return NULL;
}

static bool has_word(const char *text, const char *name)
{
    struct slice word;

    while (words_next(&text, &word)) {
        if (word.length == strlen(name) && memcmp(word.data, name, word.length) == 0) {
            return true;
        }
    }
    return false;
}

/* The server that a listener is for. */
static const char *listener_server(const struct conf_rule *rule)
{
    const struct conf_listener_section *section = rule->values;

    return *section->server != '\0' ? section->server : CONF_SERVER_DEFAULT;
}

bool conf_rule_concerns(const struct conf_rule *rule, const char *server)
{
    const struct conf_option *option = servers_option(rule->section);

    if (rule->section == &conf_section_server) {
        return false;
    }
    if (rule->section == &conf_section_listener) {
        return strcmp(listener_server(rule), server) == 0;
    }
    const char *text =
        option != NULL ? *(char *const *)(const void *)((const char *)rule->values + option->offset) : "";
    return words_count(text) == 0 || has_word(text, server);
}

/* ---- names ---- */

static const struct conf_rule *next_server(const struct conf_rule *rule)
{
    while (rule != NULL && rule->section != &conf_section_server) {
        rule = rule->next;
    }
    return rule;
}

static bool is_server(const struct conf *process, const char *name)
{
    const struct conf_rule *rule = next_server(process->rules);

    if (strcmp(name, CONF_SERVER_DEFAULT) == 0) {
        return process->serves;
    }
    while (rule != NULL && strcmp(rule->name, name) != 0) {
        rule = next_server(rule->next);
    }
    return rule != NULL;
}

/* Of names that are of no server the first, in problem. */
static bool are_servers(const struct conf *process, const char *text, char problem[CONF_PROBLEM_MAX])
{
    struct slice word;

    if (!words_check(text, problem)) {
        return false;
    }
    while (words_next(&text, &word)) {
        char *name = conf_copy(word.data, word.length);
        bool known = is_server(process, name);
        if (!known && strcmp(name, CONF_SERVER_DEFAULT) == 0) {
            conf_wrong(problem, "[" CONF_SECTION "] is no server: it says neither listen nor upstream");
        } else if (!known) {
            conf_wrong(problem, "there is no [server:%.*s]", CONF_RULE_NAME_MAX, name);
        }
        free(name);
        if (!known) {
            return false;
        }
    }
    return true;
}

static void fault_names(struct conf_reading *reading, const struct conf_part *part, const struct conf_option *option,
                        const char *problem, const char *expected)
{
    const struct conf_sighting *sighting = &part->sightings[option - part->section->options];
    char *value = conf_value_shown(option, part->values);

    if (!sighting->faulty) {
        conf_fault_option(reading, part, sighting->line > 0 ? sighting->line : part->line, option->name, value, problem,
                          expected);
    }
    free(value);
}

static void check_names(struct conf_reading *reading, const struct conf_part *part)
{
    const struct conf_option *option = servers_option(part->section);
    char problem[CONF_PROBLEM_MAX];

    if (option != NULL) {
        const char *text = *(char *const *)(const void *)((const char *)part->values + option->offset);
        if (!are_servers(reading->conf, text, problem)) {
            fault_names(reading, part, option, problem, SERVERS_EXPECTED);
        }
    }
}

static void check_listener(struct conf_reading *reading, const struct conf_part *part, const struct conf_rule *rule)
{
    const struct conf_option *option = conf_section_option(part->section, "server");
    char problem[CONF_PROBLEM_MAX];

    if (!is_server(reading->conf, listener_server(rule))) {
        (void)are_servers(reading->conf, listener_server(rule), problem);
        fault_names(reading, part, option, problem, "the NAME of a [server:NAME]");
    }
}

/* ---- what a server says ---- */

static bool is_said(const struct conf_part *part, const char *name)
{
    return part->sightings[conf_section_option(part->section, name) - part->section->options].line > 0;
}

bool conf_part_says(const struct conf_part *part, const char *const *names, size_t count)
{
    bool says = false;

    for (size_t i = 0; i < count; i++) {
        says = says || is_said(part, names[i]);
    }
    return says;
}

void conf_pass_on(struct conf_reading *reading, size_t option)
{
    for (struct conf_part *part = reading->parts->next; part != NULL; part = part->next) {
        if (part->section == &conf_section_server && part->sightings[option].line == 0 &&
            conf_options[option].reach != CONF_REACH_ADDRESS) {
            conf_value_copy(&conf_options[option], part->values, reading->conf);
        }
    }
}

void conf_servers_inherit(struct conf_reading *reading)
{
    reading->conf->serves = next_server(reading->conf->rules) == NULL || is_said(reading->parts, "listen") ||
                            is_said(reading->parts, "upstream");
    for (size_t i = 0; i < conf_option_count; i++) {
        conf_pass_on(reading, i);
    }
}

static void require(struct conf_reading *reading, const struct conf_part *part, const char *name, const char *expected)
{
    if (!is_said(part, name)) {
        conf_fault_option(reading, part, part->line, name, "", "is missing", expected);
    }
}

/* They would be nobody's, and least of all those of other servers. */
static void check_nobodys(struct conf_reading *reading)
{
    const struct conf_part *part = reading->parts;

    for (size_t i = 0; i < part->section->option_count; i++) {
        const struct conf_option *option = &part->section->options[i];
        if (option->reach == CONF_REACH_ADDRESS && part->sightings[i].line > 0) {
            fault_names(reading, part, option, "belongs to an upstream, and [" CONF_SECTION "] has none",
                        "it in [server:NAME], beside the upstream that it is for");
        }
    }
}

void conf_check_servers(struct conf_reading *reading)
{
    const struct conf_rule *rule = reading->conf->rules;

    if (!reading->conf->serves) {
        check_nobodys(reading);
    }
    for (const struct conf_part *part = reading->parts->next; part != NULL; part = part->next, rule = rule->next) {
        if (part->section == &conf_section_server) {
            require(reading, part, "listen", "the addresses where its clients connect");
            require(reading, part, "upstream", "the address of its Redis");
        } else if (part->section == &conf_section_listener) {
            check_listener(reading, part, rule);
        } else {
            check_names(reading, part);
        }
    }
}

/* ---- views ---- */

const char *conf_view_next(const struct conf *process, const char *name)
{
    const struct conf_rule *rule = next_server(process->rules);

    if (name == NULL && process->serves) {
        return CONF_SERVER_DEFAULT;
    }
    if (name != NULL && strcmp(name, CONF_SERVER_DEFAULT) != 0) {
        while (rule != NULL && rule->name != name) {
            rule = next_server(rule->next);
        }
        rule = rule != NULL ? next_server(rule->next) : NULL;
    }
    return rule != NULL ? rule->name : NULL;
}

struct conf_rule *conf_view_new(const struct conf_rule *all, const char *server)
{
    size_t count = 0, places = 0;

    for (const struct conf_rule *rule = all; rule != NULL; rule = rule->next) {
        places++;
    }
    struct conf_rule *view = conf_alloc(NULL, (places + 1) * sizeof *view);
    for (const struct conf_rule *rule = all; rule != NULL; rule = rule->next) {
        if (conf_rule_concerns(rule, server)) {
            view[count] = *rule;
            view[count].next = &view[count + 1];
            count++;
        }
    }
    if (count == 0) {
        free(view);
        return NULL;
    }
    view[count - 1].next = NULL;
    return view;
}

/* ---- each by itself ---- */

static struct conf_rule *copy_concerned(const struct conf_rule *all, const char *server)
{
    struct conf_rule *first = NULL, **last = &first;

    for (; all != NULL; all = all->next) {
        if (conf_rule_concerns(all, server)) {
            *last = conf_rule_copy(all);
            last = &(*last)->next;
        }
    }
    return first;
}

/* values: of the server's section; name: "" for that of [headgate]. */
static void add_server(struct conf *process, const struct conf *values, const char *name)
{
    struct conf *server = conf_alloc(NULL, sizeof *server);

    *server = (struct conf){
        .path = conf_format("%s", process->path),
        .server_name = conf_format("%s", name),
        .process = process,
    };
    for (size_t i = 0; i < conf_option_count; i++) {
        conf_value_copy(&conf_options[i], server, values);
    }
    server->rules = copy_concerned(process->rules, *name != '\0' ? name : CONF_SERVER_DEFAULT);
    process->servers = conf_alloc(process->servers, (process->server_count + 1) * sizeof(struct conf *));
    process->servers[process->server_count++] = server;
}

static void add_tls(struct conf *server, struct tls_context *clients, struct tls_context *upstream)
{
    server->tls_clients = tls_context_hold(clients);
    server->tls_upstream = tls_context_hold(upstream);
}

void conf_servers_make(struct conf *process)
{
    process->process = process;
    if (process->serves) {
        add_server(process, process, "");
        add_tls(process->servers[0], process->tls_clients, process->tls_upstream);
    }
    for (const struct conf_rule *rule = next_server(process->rules); rule != NULL; rule = next_server(rule->next)) {
        add_server(process, rule->values, rule->name);
        add_tls(process->servers[process->server_count - 1],
                rule->tls_clients != NULL ? rule->tls_clients : process->tls_clients, rule->tls);
    }
}

size_t conf_server_count(const struct conf *process)
{
    return process->server_count;
}

const struct conf *conf_server_at(const struct conf *process, size_t index)
{
    return process->servers[index];
}

const char *conf_server_name(const struct conf *server)
{
    return *server->server_name != '\0' ? server->server_name : CONF_SERVER_DEFAULT;
}
