#include "process/announce.h"

#include "base/log.h"
#include "conf/conf_table.h"
#include "version.h"

#include <stdio.h>
#include <unistd.h>

static void announce_listener(const struct conf *conf, struct conf_listener listener, const char *whose)
{
    bool is_proxied = listener.terms->proxy_protocol == CONF_PROXY_PROTOCOL_REQUIRED;

    for (size_t i = 0; i < listener.listen->count; i++) {
        log_info("main", "serving clients%s on %s%s, Redis is at %s", whose, listener.listen->items[i].text,
                 is_proxied ? " (by the PROXY protocol)" : "", conf->upstream.text);
    }
}

static void announce_server(const struct conf *conf)
{
    bool is_of_several = conf_server_count(conf->process) > 1;
    char whose[CONF_RULE_NAME_MAX + 8] = "";

    if (is_of_several) {
        log_info("main", "server %s: %lld worker(s), pool = %s", conf_server_name(conf), (long long)conf->threads,
                 conf->pool == CONF_POOL_SESSION ? "session" : "shared");
        snprintf(whose, sizeof whose, " of %s", conf_server_name(conf));
    }
    for (size_t i = 0; i < conf_listener_count(conf); i++) {
        announce_listener(conf, conf_listener_at(conf, i), whose);
    }
}

void announce(const struct conf *conf)
{
    const struct conf *first = conf_server_at(conf, 0);

    if (conf_server_count(conf) == 1) {
        log_info("main", "headgate %s, process %ld, %lld worker(s), pool = %s", HEADGATE_VERSION, (long)getpid(),
                 (long long)first->threads, first->pool == CONF_POOL_SESSION ? "session" : "shared");
    } else {
        log_info("main", "headgate %s, process %ld, %zu servers", HEADGATE_VERSION, (long)getpid(),
                 conf_server_count(conf));
    }
    for (size_t i = 0; i < conf_server_count(conf); i++) {
        announce_server(conf_server_at(conf, i));
    }
    for (size_t i = 0; i < conf->admin.count; i++) {
        log_info("main", "admin port on %s", conf->admin.items[i].text);
    }
    for (size_t i = 0; i < conf->http.count; i++) {
        log_info("main", "HTTP on %s", conf->http.items[i].text);
    }
}

void announce_sound(const struct conf *conf, const char *path, const struct conf_faults *faults, bool whole)
{
    for (size_t i = 0; i < faults->warning_count; i++) {
        fprintf(stderr, "headgate: warning: %s\n", faults->warnings[i]);
    }
    if (whole) {
        conf_print(conf, stdout, false);
    } else {
        printf("headgate: %s is sound\n", path != NULL ? path : "the default configuration");
    }
}
