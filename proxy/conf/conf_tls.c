/*
 * Certificates and keys, from the files that options name, to what connections with TLS need: so a file that does not
 * load is a fault like any other, and a reload that has one changes nothing.
 *
 * [headgate] has one for all clients and one for Redis; any other section with the options upstream, upstream_ca and so
 * on has one for the server that it names. A [server:NAME] that says anything of the TLS of its clients has one for
 * those, too.
 */
#include "conf/conf_listener.h"
#include "conf/conf_private.h"

#include "tls/tls_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_SECONDS (24 * 3600)
/* So long before a certificate expires it is warned of. */
#define WARNING_DAYS 14

/* The options that tls_context_new() speaks of, in the order of enum tls_setting. */
static const char *const client_options[] = {"tls_certificate", "tls_key",     "tls_ca",          "tls_crl",
                                             "tls_protocols",   "tls_ciphers", "tls_ciphersuites"};
static const char *const server_options[] = {"upstream_certificate", "upstream_key", "upstream_ca",     "upstream_crl",
                                             "tls_protocols",        "tls_ciphers",  "tls_ciphersuites"};

/* ---- options by name ---- */

static const void *field_of(const struct conf_part *part, const char *name)
{
    return (const char *)part->values + conf_section_option(part->section, name)->offset;
}

static const char *text_of(const struct conf_part *part, const char *name)
{
    return *(char *const *)field_of(part, name);
}

static int line_of(const struct conf_part *part, const char *name)
{
    int line = part->sightings[conf_section_option(part->section, name) - part->section->options].line;

    return line > 0 ? line : part->line;
}

/* Of the options of TLS towards a server, in the section that has the address, or in [headgate]. */
static void fault(struct conf_reading *reading, const struct conf_part *part, const char *name, const char *problem,
                  const char *expected)
{
    const struct conf_part *holder = conf_section_option(part->section, name) != NULL ? part : reading->parts;
    char *value = conf_value_shown(conf_section_option(holder->section, name), holder->values);

    conf_fault_option(reading, holder, line_of(holder, name), name, value, problem, expected);
    free(value);
}

static void warn(struct conf_reading *reading, const struct conf_part *part, const char *name, const char *what)
{
    char *text = conf_format("%s: %s", name, what);

    conf_warn(reading, part, line_of(part, name), text);
    free(text);
}

/* ---- who speaks TLS ---- */

static bool has_secure(const struct conf_address_list *list)
{
    bool has = false;

    for (size_t i = 0; i < list->count; i++) {
        has = has || list->items[i].tls;
    }
    return has;
}

static bool is_server(const struct conf_part *part)
{
    return part->section == &conf_section_server;
}

/* Whether a server has what it says to its clients apart from [headgate]. */
static bool has_own(const struct conf_part *part)
{
    static const char *const also[] = {"client_certificates"};

    return is_server(part) && (conf_part_says(part, client_options, sizeof client_options / sizeof client_options[0]) ||
                               conf_part_says(part, also, 1));
}

/* The server that the listener is for, as a part; NULL: that of [headgate]. */
static const struct conf_part *server_of(const struct conf_reading *reading,
                                         const struct conf_listener_section *section)
{
    const struct conf_part *part = reading->parts;

    while (part != NULL && !(is_server(part) && strcmp(strchr(part->title, ':') + 1, section->server) == 0)) {
        part = part->next;
    }
    return part;
}

/* Whether an address speaks TLS by what this part says: [headgate], also for servers that say nothing else, or a server
 * that does. */
static bool listens_securely(const struct conf_reading *reading, const struct conf_part *by)
{
    bool is_first = by == reading->parts;
    bool listens = is_first &&
                   (has_secure(&reading->conf->admin) || (reading->conf->serves && has_secure(&reading->conf->listen)));

    for (const struct conf_part *part = reading->parts->next; part != NULL; part = part->next) {
        const struct conf_part *server = part;
        const struct conf_address_list *list = NULL;
        if (is_server(part)) {
            list = &((const struct conf *)part->values)->listen;
        } else if (part->section == &conf_section_listener) {
            list = &((const struct conf_listener_section *)part->values)->listen;
            server = server_of(reading, part->values);
        }
        const struct conf_part *speaker = server != NULL && has_own(server) ? server : reading->parts;
        listens = listens || (list != NULL && speaker == by && has_secure(list));
    }
    return listens;
}

/* Whether a section says how TLS is spoken to the server that it names. */
static bool names_server(const struct conf_part *part)
{
    return conf_section_option(part->section, "upstream_server_name") != NULL;
}

static bool is_server_secure(const struct conf_part *part)
{
    const struct conf_address *address = field_of(part, "upstream");

    return address->tls;
}

/* ---- certificates that expire ---- */

static void check_times(struct conf_reading *reading, const struct conf_part *part, const char *name,
                        const struct tls_context *context)
{
    int64_t now = (int64_t)time(NULL), expires = tls_context_expires(context);
    char *what = NULL;

    if (expires == 0) {
        return;
    }
    if (expires <= now) {
        what = conf_format("the certificate, or one of its chain, has expired: nobody will take it");
    } else if (tls_context_begins(context) > now) {
        what = conf_format("the certificate is not good yet: nobody will take it");
    } else if (expires - now < WARNING_DAYS * DAY_SECONDS) {
        what = conf_format("the certificate expires in %lld days", (long long)((expires - now) / DAY_SECONDS));
    }
    if (what != NULL) {
        warn(reading, part, name, what);
    }
    free(what);
}

/* ---- what can hardly be meant of files ---- */

/* Where the key has no file of its own, that of the certificate holds it; it may do so in any case. */
static void check_key_beside(struct conf_reading *reading, const char *path, const char *key)
{
    FILE *file = *path != '\0' && strcmp(path, key) != 0 ? fopen(path, "re") : NULL;
    char line[128];
    struct stat status;

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strstr(line, "PRIVATE KEY-----") != NULL && fstat(fileno(file), &status) == 0) {
            conf_check_mode(reading, path, &status);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* options: of the certificate, the key and so on, as tls_context_new() speaks of them. */
static void check_files(struct conf_reading *reading, const struct conf_part *part, const char *const *options,
                        const struct tls_context *context)
{
    struct tls_fault doubt;

    check_times(reading, part, options[TLS_SETTING_CERTIFICATE], context);
    check_key_beside(reading, text_of(part, options[TLS_SETTING_CERTIFICATE]), text_of(part, options[TLS_SETTING_KEY]));
    for (int place = 0; tls_context_doubt(context, &place, &doubt);) {
        warn(reading, part, options[doubt.setting], doubt.problem);
    }
}

/* [identity:NAME] that goes by a certificate which no client is asked for. */
static void check_identities(struct conf_reading *reading)
{
    bool asks =
        reading->conf->client_certificates != TLS_CLIENT_CERTIFICATES_NONE && listens_securely(reading, reading->parts);

    for (const struct conf_part *part = reading->parts->next; part != NULL; part = part->next) {
        const struct conf *server = part->values;
        asks = asks || (has_own(part) && server->client_certificates != TLS_CLIENT_CERTIFICATES_NONE &&
                        listens_securely(reading, part));
    }
    for (const struct conf_part *part = reading->parts->next; !asks && part != NULL; part = part->next) {
        static const char *const by[] = {"certificate"};
        if (strcmp(part->section->name, "identity") == 0 && conf_part_says(part, by, 1)) {
            warn(reading, part, by[0],
                 "no client is asked for one: client_certificates = none, or no address speaks TLS");
        }
    }
}

/* ---- contexts ---- */

static struct tls_settings common_settings(const struct conf *conf)
{
    return (struct tls_settings){
        .protocols = conf->tls_protocols,
        .ciphers = conf->tls_ciphers,
        .ciphersuites = conf->tls_ciphersuites,
        .server_name = "",
    };
}

/* part: [headgate], or a server with options of its own. */
static struct tls_context *make_for_clients(struct conf_reading *reading, const struct conf_part *part)
{
    const struct conf *conf = part->values;
    struct tls_settings settings = common_settings(conf);
    struct tls_fault found;
    bool is_wanted = listens_securely(reading, part);

    if (!is_wanted && *conf->tls_certificate == '\0') {
        return NULL;
    }
    settings.is_server = true;
    settings.certificate = conf->tls_certificate;
    settings.key = conf->tls_key;
    settings.ca = conf->tls_ca;
    settings.crl = conf->tls_crl;
    settings.client_certificates = (enum tls_client_certificates)conf->client_certificates;
    struct tls_context *context = tls_context_new(&settings, &found);
    if (context == NULL) {
        fault(reading, part, client_options[found.setting], found.problem, found.expected);
        return NULL;
    }
    check_files(reading, part, client_options, context);
    if (!is_wanted) {
        warn(reading, part, "tls_certificate", "no address speaks TLS; those that are to begin with rediss://");
    }
    if (*conf->tls_ca != '\0' && conf->client_certificates == TLS_CLIENT_CERTIFICATES_NONE) {
        warn(reading, part, "tls_ca", "no client is asked for a certificate; client_certificates says whether");
    }
    return context;
}

/* Whether anything is said of TLS to the Redis of the section: what a server has from [headgate] is said there. */
static bool speaks_of_tls(const struct conf_part *part)
{
    static const char *const more[] = {"upstream_server_name", "upstream_verify"};
    bool says = *(const int *)field_of(part, "upstream_verify") == 0 || *text_of(part, "upstream_server_name") != '\0';

    for (size_t i = 0; i < 4; i++) {
        says = says || *text_of(part, server_options[i]) != '\0';
    }
    return says && (!is_server(part) || conf_part_says(part, server_options, 4) || conf_part_says(part, more, 2));
}

static struct tls_context *make_for_server(struct conf_reading *reading, const struct conf_part *part)
{
    struct tls_settings settings = common_settings(is_server(part) ? part->values : reading->conf);
    struct tls_fault found;

    settings.certificate = text_of(part, "upstream_certificate");
    settings.key = text_of(part, "upstream_key");
    settings.ca = text_of(part, "upstream_ca");
    settings.crl = text_of(part, "upstream_crl");
    settings.verifies = *(const int *)field_of(part, "upstream_verify") != 0;
    settings.server_name = text_of(part, "upstream_server_name");
    if (!speaks_of_tls(part) && !is_server_secure(part)) {
        return NULL;
    }
    struct tls_context *context = tls_context_new(&settings, &found);
    if (context == NULL) {
        fault(reading, part, server_options[found.setting], found.problem, found.expected);
        return NULL;
    }
    check_files(reading, part, server_options, context);
    if (!is_server_secure(part)) {
        warn(reading, part, "upstream",
             "it is asked for without TLS, for all that is said of TLS; rediss:// asks for it");
    } else if (!settings.verifies) {
        warn(reading, part, "upstream_verify",
             "nobody looks whether it is Redis that answers: whoever is between can read and change everything");
    }
    return context;
}

void conf_make_tls(struct conf_reading *reading)
{
    struct conf_rule *rule = reading->conf->rules;

    reading->conf->tls_clients = make_for_clients(reading, reading->parts);
    reading->conf->tls_upstream = reading->conf->serves ? make_for_server(reading, reading->parts) : NULL;
    for (struct conf_part *part = reading->parts->next; part != NULL; part = part->next, rule = rule->next) {
        tls_context_release(rule->tls);
        tls_context_release(rule->tls_clients);
        rule->tls = NULL;
        rule->tls_clients = has_own(part) ? make_for_clients(reading, part) : NULL;
        if (names_server(part)) {
            struct tls_context *context = make_for_server(reading, part);
            rule->tls = is_server_secure(part) ? tls_context_hold(context) : NULL;
            tls_context_release(context);
        }
    }
    check_identities(reading);
}
