/*
 * Reading and printing configurations.
 *
 *   file → conf_next_line() checks each line as inih is about to see it → inih splits it → take_option()
 */
#include "conf/conf_private.h"

#include "base/log.h"
#include "base/text.h"
#include "tls/tls_context.h"

#include <assert.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Options ---- */

/* Options before any section are faulty once, and then taken as those of [headgate], so that their faults show too. */
static void check_within_section(struct conf_reading *reading)
{
    if (reading->part == NULL && !reading->in_unknown) {
        conf_fault_line(reading, "option stands before any section; expected [" CONF_SECTION "] above it");
        reading->part = reading->parts;
    }
}

/* Of an option in the line that inih has; text: what stands there, which is not shown if it may be a secret. */
static void fault_text(struct conf_reading *reading, const struct conf_option *option, const char *text,
                       const char *what, const char *expected)
{
    bool is_address = option->type == CONF_ADDRESS || option->type == CONF_ADDRESSES;
    char *shown = conf_option_hides(option) ? conf_format(CONF_SECRET_SHOWN)
                  : is_address              ? conf_hidden_url(text)
                                            : NULL;

    conf_fault_option(reading, reading->part, reading->line, option->name, shown != NULL ? shown : text, what,
                      expected);
    free(shown);
}

/* … and not in the environment. */
static bool is_written_here(const char *text)
{
    return *text != '\0' && strcmp(text, "\"\"") != 0 && (strstr(text, "${") == NULL || strstr(text, "$${") != NULL);
}

static bool holds_secret(const struct conf_option *option, const void *values)
{
    const struct conf_address *address = (const void *)((const char *)values + option->offset);

    return conf_option_hides(option) || (option->type == CONF_ADDRESS && address->password != NULL);
}

/* The path of a file is one from the directory of the ini file on. */
static bool set_value(struct conf_reading *reading, const struct conf_option *option, void *values, const char *text,
                      char problem[CONF_PROBLEM_MAX])
{
    bool set = conf_value_read(option, values, text, problem);

    if (set && option->type == CONF_FILE) {
        char **field = (char **)(void *)((char *)values + option->offset);
        char *path = conf_file_path(reading->path, *field);
        free(*field);
        *field = path;
    }
    if (set && is_written_here(text) && holds_secret(option, values)) {
        conf_source_holds_secret(reading);
    }
    return set;
}

/*
 * inih's handler, called within inih's turn for the line that conf_next_line() gave last. inih's own section is not
 * used: conf_next_line() has judged it.
 */
static int take_option(void *user, const char *section, const char *name, const char *value)
{
    (void)section;
    struct conf_reading *reading = user;
    if (strcmp(name, "include") == 0) {
        conf_include(reading, value);
        return 1;
    }
    check_within_section(reading);
    struct conf_part *part = reading->part;
    if (part == NULL) {
        return 1;
    }
    const struct conf_option *option = conf_section_option(part->section, name);
    if (option == NULL) {
        conf_fault_unknown_option(reading, name);
        return 1;
    }
    struct conf_sighting *sighting = &part->sightings[option - part->section->options];
    if (part->section == &conf_section_server && option->reach == CONF_REACH_PROCESS) {
        fault_text(reading, option, value, "is of the whole process", "it in [" CONF_SECTION "]");
        return 1;
    }
    if (sighting->line > 0) {
        char *place = conf_place_text(reading, sighting->line);
        char *what = conf_format("given %s already", place);
        free(place);
        fault_text(reading, option, value, what, "it once");
        free(what);
        return 1;
    }
    sighting->line = reading->line;
    char problem[CONF_PROBLEM_MAX];
    if (!set_value(reading, option, part->values, value, problem)) {
        char *expected = conf_value_expected(option);
        fault_text(reading, option, value, problem, expected);
        free(expected);
        sighting->faulty = true;
    }
    return 1;
}

/* ---- Options against each other ---- */

static struct conf_sighting *sighting_of(struct conf_part *part, const char *name)
{
    return &part->sightings[conf_section_option(part->section, name) - part->section->options];
}

/* Reports option, or other if only that stands in the file; says nothing if either has a fault of its own, nor if a
 * server has both from [headgate], where they are reported. */
static void fault_pair(struct conf_reading *reading, struct conf_part *part, const char *option, const char *other,
                       const char *what, const char *expected)
{
    struct conf_sighting *first = sighting_of(part, option);
    struct conf_sighting *second = sighting_of(part, other);
    bool is_inherited = part != reading->parts && first->line == 0 && second->line == 0;
    if (first->faulty || second->faulty || is_inherited) {
        return;
    }
    const char *name = first->line > 0 ? option : other;
    char *value = conf_value_shown(conf_section_option(part->section, name), part->values);
    conf_fault_option(reading, part, sighting_of(part, name)->line, name, value, what, expected);
    free(value);
}

static void check_address_use(struct conf_reading *reading, const char *option, const struct conf_address_list *list,
                              const char *other, const struct conf_address *address, const char *expected)
{
    for (size_t i = 0; i < list->count; i++) {
        if (conf_addresses_meet(&list->items[i], address) || conf_address_equal(&list->items[i], address)) {
            bool same = strcasecmp(list->items[i].text, address->text) == 0;
            char *what = same ? conf_format("%s is an address of %s and of %s", address->text, option, other)
                              : conf_format("%s of %s and %s of %s are the same address", list->items[i].text, option,
                                            address->text, other);
            fault_pair(reading, reading->parts, option, other, what, expected);
            free(what);
        }
    }
}

/* … and those who are asked where Redis is. */
static void check_seeds(struct conf_reading *reading, struct conf_part *part)
{
    const struct conf *conf = part->values, *process = reading->conf;

    for (size_t i = 0; i < conf->upstream.seed_count; i++) {
        const struct conf_address *seed = &conf->upstream.seeds[i];
        if (process->serves) {
            check_address_use(reading, "listen", &process->listen, "upstream", seed, "the address of another server");
        }
        check_address_use(reading, "admin", &process->admin, "upstream", seed, "the address of another server");
    }
}

/* The admin port tells of all clients, and ends the process: to others only with a password. */
static void check_admin(struct conf_reading *reading)
{
    const struct conf *conf = reading->conf;

    for (size_t i = 0; i < conf->admin.count && *conf->admin_password == '\0'; i++) {
        if (conf_address_is_beyond(&conf->admin.items[i])) {
            char *what = conf_format("%s is open to other machines without a password", conf->admin.items[i].text);
            fault_pair(reading, reading->parts, "admin", "admin_password", what,
                       "admin_password beside it, or an address of this machine such as 127.0.0.1");
            free(what);
        }
    }
}

/* What HTTP shows is for who may ask on the admin port; and there is nothing between it and the network. */
static void check_http(struct conf_reading *reading)
{
    const struct conf *conf = reading->conf;

    for (size_t i = 0; i < conf->http.count; i++) {
        const struct conf_address *address = &conf->http.items[i];
        if (conf_address_is_beyond(address) && *conf->admin_password == '\0') {
            char *what = conf_format("%s is open to other machines without a password", address->text);
            fault_pair(reading, reading->parts, "http", "admin_password", what,
                       "admin_password beside it, or an address of this machine such as 127.0.0.1");
            free(what);
        }
        if (address->tls) {
            char *what = conf_format("%s has TLS, which is not spoken there", address->text);
            fault_pair(reading, reading->parts, "http", "http", what,
                       "HOST:PORT, or unix:/PATH; a web server in front of it has TLS");
            free(what);
        }
        check_address_use(reading, "listen", &conf->listen, "http", address, "an address for each");
        check_address_use(reading, "admin", &conf->admin, "http", address, "an address for each");
    }
    check_address_use(reading, "http", &conf->http, "upstream", &conf->upstream, "the address of Redis upstream");
}

/* Words that other programs take for a destination would be names of files. */
static void check_log_file(struct conf_reading *reading)
{
    static const char *const words[] = {"stderr", "stdout", "stdin", "-", "journal", "none", "off", "null"};
    const char *file = reading->conf->log_file;

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(file, words[i]) == 0) {
            fault_pair(reading, reading->parts, "log_file", "log_file", "would be a file of that name",
                       "nothing for standard error, syslog, or the path of a file");
        }
    }
    if (strcasecmp(file, LOG_SYSLOG) == 0 && log_is_file(file)) {
        fault_pair(reading, reading->parts, "log_file", "log_file", "would be a file of that name",
                   "syslog in small letters, nothing for standard error, or the path of a file");
    }
}

/* An admin address that takes in one of listen, where listen does not take in that. */
static void check_wider_use(struct conf_reading *reading, const struct conf_address *listen)
{
    const struct conf_address_list *admin = &reading->conf->admin;

    for (size_t i = 0; i < admin->count; i++) {
        if (conf_addresses_meet(&admin->items[i], listen) && !conf_addresses_meet(listen, &admin->items[i])) {
            char *what =
                conf_format("%s of admin and %s of listen are the same address", admin->items[i].text, listen->text);
            fault_pair(reading, reading->parts, "admin", "listen", what, "an address for each");
            free(what);
        }
    }
}

/* What [headgate] and each server say of themselves. */
static void check_server(struct conf_reading *reading, struct conf_part *part)
{
    const struct conf *conf = part->values;
    char problem[CONF_PROBLEM_MAX];
    const char *expected = "";

    if (conf->reconnect_min > conf->reconnect_max) {
        char *max = conf_value_text(conf_section_option(part->section, "reconnect_max"), conf);
        char *min = conf_value_text(conf_section_option(part->section, "reconnect_min"), conf);
        char *what = conf_format("reconnect_min (%s) is longer than reconnect_max (%s)", min, max);
        fault_pair(reading, part, "reconnect_min", "reconnect_max", what, "reconnect_min of at most reconnect_max");
        free(what);
        free(min);
        free(max);
    }
    if (*conf->upstream_user != '\0' && *conf->upstream_password == '\0') {
        fault_pair(reading, part, "upstream_user", "upstream_password", "has no password",
                   "upstream_password beside it");
    }
    if (*conf->sentinel_user != '\0' && *conf->sentinel_password == '\0') {
        fault_pair(reading, part, "sentinel_user", "sentinel_password", "has no password",
                   "sentinel_password beside it");
    }
    check_seeds(reading, part);
    conf_check_reads(reading, part);
    const char *name = conf_listener_check(&conf->listener_terms, problem, &expected);
    if (name != NULL) {
        fault_pair(reading, part, name, name, problem, expected);
    }
}

static void check_together(struct conf_reading *reading)
{
    const struct conf *conf = reading->conf;

    if (*conf->group != '\0' && *conf->user == '\0') {
        fault_pair(reading, reading->parts, "group", "user", "has no user", "user beside it");
    }
    for (size_t i = 0; conf->serves && i < conf->admin.count; i++) {
        check_address_use(reading, "listen", &conf->listen, "admin", &conf->admin.items[i], "an address for each");
    }
    for (size_t i = 0; conf->serves && i < conf->listen.count; i++) {
        check_wider_use(reading, &conf->listen.items[i]);
    }
    for (struct conf_part *part = reading->parts; part != NULL; part = part->next) {
        if (part->section == &conf_section_headgate || part->section == &conf_section_server) {
            check_server(reading, part);
        }
    }
    conf_check_listeners(reading);
    check_admin(reading);
    conf_check_admin_passwords(reading);
    check_http(reading);
    check_log_file(reading);
    if (conf->serves) {
        check_address_use(reading, "listen", &conf->listen, "upstream", &conf->upstream,
                          "the address of Redis upstream");
        check_address_use(reading, "admin", &conf->admin, "upstream", &conf->upstream, "the address of Redis upstream");
    }
}

static bool has_faulty_option(const struct conf_part *part)
{
    for (size_t i = 0; i < part->section->option_count; i++) {
        if (part->sightings[i].faulty) {
            return true;
        }
    }
    return false;
}

/* A rule whose options contradict each other, or that lacks one. Says nothing if one of them has a fault of its own. */
static void check_rule(struct conf_reading *reading, struct conf_part *part)
{
    char problem[CONF_PROBLEM_MAX];
    const char *expected = "";

    if (part->section->check == NULL || has_faulty_option(part)) {
        return;
    }
    const char *name = part->section->check(part->values, problem, &expected);
    if (name != NULL) {
        conf_fault_value(reading, part, name, problem, expected);
    }
}

static bool list_has(const struct conf_address_list *list, const struct conf_address *address)
{
    bool has = false;

    for (size_t i = 0; i < list->count; i++) {
        has = has || conf_addresses_meet(&list->items[i], address) || conf_address_equal(&list->items[i], address);
    }
    return has;
}

static bool is_listened_on(const struct conf *conf, const struct conf_address *address)
{
    bool is = false;

    for (size_t i = 0; i < conf_process_listener_count(conf); i++) {
        is = is || list_has(conf_process_listener_at(conf, i).listen, address);
    }
    return is;
}

static bool is_own(const struct conf *conf, const struct conf_address *address)
{
    return is_listened_on(conf, address) || list_has(&conf->admin, address) || list_has(&conf->http, address);
}

/* The address itself, or one of those who are asked where Redis is; NULL: none of them is Headgate's. */
static const struct conf_address *find_own(const struct conf *conf, const struct conf_address *address)
{
    for (size_t i = 0; i < address->seed_count; i++) {
        if (is_own(conf, &address->seeds[i])) {
            return &address->seeds[i];
        }
    }
    return address->seed_count == 0 && is_own(conf, address) ? address : NULL;
}

/* A Redis that a section names is not Headgate itself. */
static void check_addresses(struct conf_reading *reading, struct conf_part *part)
{
    for (size_t i = 0; i < part->section->option_count; i++) {
        const struct conf_option *option = &part->section->options[i];
        const void *field = (const char *)part->values + option->offset;
        bool is_said = option->type == CONF_ADDRESS && part->sightings[i].line > 0 && !part->sightings[i].faulty;
        const struct conf_address *own = is_said ? find_own(reading->conf, field) : NULL;
        if (own != NULL) {
            conf_fault_option(reading, part, part->sightings[i].line, option->name, own->text,
                              "is an address of Headgate itself", "the address of a Redis server");
        }
    }
}

static void check_rules(struct conf_reading *reading)
{
    for (struct conf_part *part = reading->parts->next; part != NULL; part = part->next) {
        check_rule(reading, part);
        check_addresses(reading, part);
    }
}

/* ---- what is sound but can hardly be meant ---- */

static void warn_of_open_sockets(struct conf_reading *reading)
{
    const struct conf *conf = reading->conf;
    struct conf_part *part = reading->parts;
    bool open_to_all = (conf->unix_socket_mode & 06) != 0;

    for (size_t i = 0; i < conf->admin.count && *conf->admin_password == '\0' && open_to_all; i++) {
        if (conf->admin.items[i].path != NULL) {
            char *what = conf_format("unix_socket_mode lets every user of this machine change things on %s; "
                                     "admin_password would not",
                                     conf->admin.items[i].text);
            conf_warn(reading, part, sighting_of(part, "admin")->line, what);
            free(what);
        }
    }
}

void conf_check_all(struct conf_reading *reading)
{
    for (struct conf_part *part = reading->parts; part != NULL; part = part->next) {
        conf_take_credentials(reading, part);
    }
    conf_check_servers(reading);
    conf_check_values(reading);
}

void conf_check_values(struct conf_reading *reading)
{
    check_together(reading);
    check_rules(reading);
    if (reading->faults->count == 0) {
        conf_check_beside(reading);
        conf_check_rules_reads(reading);
    }
    if (reading->faults->count == 0 && !reading->has_tls) {
        conf_make_tls(reading);
    }
    if (reading->faults->count == 0) {
        conf_check_clients(reading);
    }
    if (reading->faults->count == 0) {
        warn_of_open_sockets(reading);
        conf_warn_of_reads(reading);
        conf_warn_of_listeners(reading);
        conf_warn_of_rules(reading);
        conf_warn_of_users(reading);
    }
}

/* ---- Files ---- */

struct conf *conf_new(const char *path)
{
    struct conf *conf = conf_alloc(NULL, sizeof *conf);
    *conf = (struct conf){.path = conf_format("%s", path), .server_name = conf_copy("", 0), .serves = true};
    conf_values_default(&conf_section_headgate, conf);
    conf->origins = conf_origins_new(&conf_section_headgate);
    return conf;
}

static void keep_shown(struct conf *conf)
{
    struct text_stream text;

    if (!text_open(&text)) {
        conf_out_of_memory();
    }
    conf_print(conf, text.out, false);
    if (!text_close(&text)) {
        conf_out_of_memory();
    }
    conf->shown = conf_copy(text.bytes, text.length);
    text_free(&text);
}

void conf_finish(struct conf *conf)
{
    keep_shown(conf);
    conf_servers_make(conf);
    conf_list_make(conf);
}

void conf_faults_free(struct conf_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++) {
        free(faults->lines[i]);
    }
    for (size_t i = 0; i < faults->warning_count; i++) {
        free(faults->warnings[i]);
    }
    free(faults->lines);
    free(faults->warnings);
    conf_files_free(&faults->files);
    *faults = (struct conf_faults){0};
}

void conf_free(struct conf *conf)
{
    if (conf == NULL) {
        return;
    }
    for (size_t i = 0; i < conf->server_count; i++) {
        conf_free(conf->servers[i]);
    }
    free(conf->servers);
    conf_values_free(&conf_section_headgate, conf);
    conf_origins_free(&conf_section_headgate, conf->origins);
    conf_rules_free(conf->rules);
    tls_context_release(conf->tls_clients);
    tls_context_release(conf->tls_upstream);
    free(conf->server_name);
    free(conf->path);
    free(conf->shown);
    conf_list_free(conf);
    free(conf);
}

/* Says whether text can be read line by line at all. */
static bool check_text(struct conf_reading *reading, const char *text, size_t length)
{
    const char *nul = memchr(text, '\0', length);
    if (nul == NULL) {
        return true;
    }
    reading->line = 1;
    for (const char *at = text; at < nul; at++) {
        reading->line += *at == '\n';
    }
    conf_fault_line(reading, "file holds a NUL byte; expected text");
    return false;
}

static void parse(struct conf_reading *reading)
{
    /* Debian's inih takes its settings from variables of the whole process; nothing else in it uses inih. */
    ini_max_line = CONF_LINE_MAX + 3;
    ini_allow_inline_comments = false;
    int result = ini_parse_stream(conf_next_line, reading, take_option, reading);
    if (result != 0 && reading->faults->count == 0) {
        conf_fault_line(reading, "a line is not understood; expected option = value");
    }
    conf_look_at_files(reading);
    conf_servers_inherit(reading);
    conf_check_all(reading);
}

static void load_file(struct conf_reading *reading)
{
    size_t length = 0;
    struct stat status;
    char problem[CONF_PROBLEM_MAX];
    char *text = conf_file_read(&reading->faults->files, reading->path, CONF_FILE_MAX, &length, &status, problem);

    conf_files_last(&reading->faults->files)->is_ini = true;
    if (text == NULL) {
        conf_fault_file(reading, "%s; expected an ini file of at most 1mb", problem);
        return;
    }
    if (check_text(reading, text, length)) {
        conf_source_push(reading, reading->path, text, length, &status);
        parse(reading);
    } else {
        explicit_bzero(text, length);
        free(text);
    }
}

struct conf *conf_load(const char *path, const struct conf_section *const *sections, struct conf_faults *faults)
{
    static const struct conf_section *const none[] = {NULL};

    *faults = (struct conf_faults){0};
    struct conf *conf = conf_new(path != NULL ? path : "");
    if (path == NULL) {
        conf_finish(conf);
        return conf;
    }
    struct conf_reading reading = {
        .path = path,
        .conf = conf,
        .faults = faults,
        .sections = sections != NULL ? sections : none,
        .parts = conf_part_new(&conf_section_headgate, CONF_SECTION, conf, 0),
    };
    load_file(&reading);
    conf_origins_keep(&reading);
    conf_sources_free(&reading);
    conf_parts_free(&reading);
    if (faults->count > 0) {
        conf_free(conf);
        return NULL;
    }
    conf_finish(conf);
    return conf;
}

/* ---- Printing ---- */

/* left_out: none if it is CONF_REACH_SERVER. */
static void print_values(const struct conf_section *section, const void *values, enum conf_reach left_out, FILE *out,
                         bool show_secrets)
{
    for (size_t i = 0; i < section->option_count; i++) {
        const struct conf_option *option = &section->options[i];
        if (option->reach == left_out && left_out != CONF_REACH_SERVER) {
            continue;
        }
        char *text = conf_value_is_of_file(section, option, values) ? conf_copy("", 0)
                     : show_secrets                                 ? conf_value_text(option, values)
                                                                    : conf_value_shown(option, values);
        char *shown = conf_unexpand(text);
        fprintf(out, "%s =%s%s\n", option->name, *shown != '\0' ? " " : "", shown);
        free(shown);
        free(text);
    }
}

void conf_print(const struct conf *conf, FILE *out, bool show_secrets)
{
    fputs("[" CONF_SECTION "]\n", out);
    print_values(&conf_section_headgate, conf, conf->serves ? CONF_REACH_SERVER : CONF_REACH_ADDRESS, out,
                 show_secrets);
    for (const struct conf_rule *rule = conf->rules; rule != NULL; rule = rule->next) {
        fprintf(out, "\n[%s%s%s]\n", rule->section->name, *rule->name != '\0' ? ":" : "", rule->name);
        bool is_server = rule->section == &conf_section_server;
        print_values(rule->section, rule->values, is_server ? CONF_REACH_PROCESS : CONF_REACH_SERVER, out,
                     show_secrets);
    }
}
