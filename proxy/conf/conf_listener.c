/* Listeners: their section, and their addresses against all others of the file. */
#include "conf/conf_listener.h"

#include "conf/conf_private.h"
#include "conf/networks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *const conf_proxy_protocol_words[] = {"off", "required", NULL};

static_assert(CONF_PROXY_PROTOCOL_OFF == 0 && CONF_PROXY_PROTOCOL_REQUIRED == 1,
              "the words are in the order of enum conf_proxy_protocol");

/* ---- the section ---- */

static const struct conf_option option_table[] = {
    {.name = "listen",
     .offset = offsetof(struct conf_listener_section, listen),
     .type = CONF_ADDRESSES,
     .min = 0,
     .max = CONF_ADDRESSES_MAX,
     .initial = "",
     .help = "Where clients of this listener connect, besides listen of its server."},
    CONF_LISTENER_OPTIONS(struct conf_listener_section, terms),
    {.name = "server",
     .offset = offsetof(struct conf_listener_section, server),
     .type = CONF_STRING,
     .max = CONF_RULE_NAME_MAX,
     .initial = "",
     .help = "The server that is reached here: the NAME of a [server:NAME]. Empty, or default: that of [headgate]."},
};

const char *conf_listener_check(const struct conf_listener_terms *terms, char problem[CONF_PROBLEM_MAX],
                                const char **expected)
{
    struct networks *networks = networks_compile(terms->proxy_from, problem);

    *expected = NETWORKS_EXPECTED;
    if (networks == NULL) {
        return "proxy_from";
    }
    networks_free(networks);
    if (terms->proxy_protocol == CONF_PROXY_PROTOCOL_REQUIRED && *terms->proxy_from == '\0') {
        conf_wrong(problem, "has nobody who is believed");
        *expected = "the addresses of the proxies in proxy_from beside it";
        return "proxy_protocol";
    }
    if (terms->proxy_protocol == CONF_PROXY_PROTOCOL_OFF && *terms->proxy_from != '\0') {
        conf_wrong(problem, "means nothing while no proxy protocol is spoken");
        *expected = "proxy_protocol = required beside it";
        return "proxy_from";
    }
    return NULL;
}

static const char *check(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    const struct conf_listener_section *section = values;

    if (section->listen.count == 0) {
        conf_wrong(problem, "is missing");
        *expected = "the addresses where clients connect";
        return "listen";
    }
    return conf_listener_check(&section->terms, problem, expected);
}

const struct conf_section conf_section_listener = {
    .name = "listener",
    .has_rules = true,
    .options = option_table,
    .option_count = sizeof option_table / sizeof option_table[0],
    .values_size = sizeof(struct conf_listener_section),
    .help = "Further addresses where clients connect, with options of their own; there may be any number of them.",
    .check = check,
};

/* ---- all of them ---- */

static struct conf_listener listener_of(const struct conf_rule *rule)
{
    const struct conf_listener_section *section = rule->values;

    return (struct conf_listener){.name = rule->name, .listen = &section->listen, .terms = &section->terms};
}

size_t conf_listener_count(const struct conf *conf)
{
    return 1 + conf_rules_count(conf->rules, &conf_section_listener);
}

struct conf_listener conf_listener_at(const struct conf *conf, size_t index)
{
    const struct conf_rule *rule = conf->rules;

    if (index == 0) {
        return (struct conf_listener){.name = "", .listen = &conf->listen, .terms = &conf->listener_terms};
    }
    for (; rule != NULL; rule = rule->next) {
        if (rule->section == &conf_section_listener && --index == 0) {
            break;
        }
    }
    assert(rule != NULL);
    return listener_of(rule);
}

/* A section that listens, besides [headgate]. */
static bool listens(const struct conf_rule *rule)
{
    return rule->section == &conf_section_listener || rule->section == &conf_section_server;
}

static struct conf_listener server_listener(const char *name, const struct conf *values)
{
    return (struct conf_listener){.name = name, .listen = &values->listen, .terms = &values->listener_terms};
}

size_t conf_process_listener_count(const struct conf *process)
{
    size_t count = process->serves ? 1 : 0;

    for (const struct conf_rule *rule = process->rules; rule != NULL; rule = rule->next) {
        count += listens(rule);
    }
    return count;
}

struct conf_listener conf_process_listener_at(const struct conf *process, size_t index)
{
    const struct conf_rule *rule = process->rules;

    if (process->serves && index == 0) {
        return server_listener("", process);
    }
    for (index -= process->serves ? 1 : 0; !listens(rule) || index > 0; rule = rule->next) {
        index -= listens(rule);
    }
    return rule->section == &conf_section_server ? server_listener(rule->name, rule->values) : listener_of(rule);
}

bool conf_serves_this_machine_only(const struct conf *conf)
{
    for (size_t i = 0; i < conf_process_listener_count(conf); i++) {
        const struct conf_listener listener = conf_process_listener_at(conf, i);
        if (listener.terms->proxy_protocol != CONF_PROXY_PROTOCOL_OFF) {
            return false;
        }
        for (size_t j = 0; j < listener.listen->count; j++) {
            if (conf_address_is_beyond(&listener.listen->items[j])) {
                return false;
            }
        }
    }
    return true;
}

/* ---- addresses against each other ---- */

static bool meet(const struct conf_address *a, const struct conf_address *b)
{
    return conf_address_equal(a, b) || conf_addresses_meet(a, b) || conf_addresses_meet(b, a);
}

static void fault_listen(struct conf_reading *reading, const struct conf_part *part, const struct conf_address *address,
                         const struct conf_address *other, const char *where, const char *expected)
{
    const struct conf_option *option = conf_section_option(part->section, "listen");
    char *value = conf_value_shown(option, part->values);
    char *what = conf_format("%s and %s of %s are the same address", address->text, other->text, where);

    conf_fault_option(reading, part, part->sightings[option - part->section->options].line, option->name, value, what,
                      expected);
    free(what);
    free(value);
}

static void check_against(struct conf_reading *reading, const struct conf_part *part,
                          const struct conf_address *address, const struct conf_address_list *others, const char *where)
{
    for (size_t i = 0; i < others->count; i++) {
        if (meet(address, &others->items[i])) {
            fault_listen(reading, part, address, &others->items[i], where, "an address for each");
        }
    }
}

/* Those of [headgate], of a server or of a listener; NULL: the section has none, or they are nobody's. */
static const struct conf_address_list *addresses_of(const struct conf_reading *reading, const struct conf_part *part)
{
    const struct conf *server = part->values;
    const struct conf_listener_section *section = part->values;

    if (part->section == &conf_section_listener) {
        return &section->listen;
    }
    return part->section == &conf_section_server || (part == reading->parts && reading->conf->serves) ? &server->listen
                                                                                                      : NULL;
}

static void check_address(struct conf_reading *reading, const struct conf_part *part,
                          const struct conf_address *address)
{
    const struct conf *conf = reading->conf;

    if (conf->serves) {
        check_against(reading, part, address, &conf->listen, "listen in [" CONF_SECTION "]");
    }
    check_against(reading, part, address, &conf->admin, "admin");
    check_against(reading, part, address, &conf->http, "http");
    if (conf->serves && meet(address, &conf->upstream)) {
        fault_listen(reading, part, address, &conf->upstream, "upstream", "the address of Redis upstream");
    }
    for (const struct conf_part *other = reading->parts->next; other != part; other = other->next) {
        const struct conf_address_list *others = addresses_of(reading, other);
        if (others != NULL) {
            check_against(reading, part, address, others, other->title);
        }
    }
}

/* [headgate] is looked at with its other options. What a section does not say is missing, which is said elsewhere. */
void conf_check_listeners(struct conf_reading *reading)
{
    static const char *const listen[] = {"listen"};

    for (const struct conf_part *part = reading->parts->next; part != NULL; part = part->next) {
        const struct conf_address_list *list = addresses_of(reading, part);
        for (size_t i = 0; list != NULL && conf_part_says(part, listen, 1) && i < list->count; i++) {
            check_address(reading, part, &list->items[i]);
        }
    }
}

static void warn_of_listener(struct conf_reading *reading, const struct conf_part *part,
                             const struct conf_address_list *list)
{
    const struct conf_option *option = conf_section_option(part->section, "listen");

    for (size_t i = 0; i < list->count; i++) {
        if (conf_address_is_beyond(&list->items[i])) {
            char *what =
                conf_format("other machines that reach %s are served without a password, with that of upstream",
                            list->items[i].text);
            conf_warn(reading, part, part->sightings[option - part->section->options].line, what);
            free(what);
        }
    }
}

/* Whether Headgate authenticates on behalf of those who come by the section's addresses. */
static bool has_password(const struct conf_reading *reading, const struct conf_part *part)
{
    const struct conf *server = part->values;
    const struct conf_listener_section *section = part->values;
    const struct conf_part *other = reading->parts;

    if (part->section != &conf_section_listener) {
        return *server->upstream_password != '\0';
    }
    for (; other != NULL && *section->server != '\0'; other = other->next) {
        if (other->section == &conf_section_server && strcmp(strchr(other->title, ':') + 1, section->server) == 0) {
            return has_password(reading, other);
        }
    }
    return *reading->conf->upstream_password != '\0';
}

void conf_warn_of_listeners(struct conf_reading *reading)
{
    for (const struct conf_part *part = reading->parts; part != NULL; part = part->next) {
        const struct conf_address_list *list = addresses_of(reading, part);
        if (list != NULL && has_password(reading, part)) {
            warn_of_listener(reading, part, list);
        }
    }
}
