/*
 * Redis servers that policies have for themselves, beside that of the clients: each is an upstream of its own with one
 * shared lane, which is opened for the first script and closed when none has needed it for lane_idle_timeout. Nothing
 * of them is seen by clients, and their lanes are counted apart.
 *
 *   client_server_change() ─► its name is looked up ─► first script: upstream and control ─► left ─► (tick) freed
 */
#include "client/client_host_private.h"

#include "net/lookup.h"

#include <stdlib.h>
#include <string.h>

/* How long the scripts of a server that was left may go on. */
#define LEAVE_PATIENCE_US ((int64_t)5000000)

struct policy_server {
    LIST_ENTRY(policy_server) of_service;
    struct client_service *service;
    struct conf_address address;
    char *user;
    char *password;
    struct tls_context *tls;   /* NULL: without TLS */
    struct lookup *lookup;     /* where it is */
    struct upstream *upstream; /* NULL: there was no script yet */
    struct control *control;
    bool was_reached; /* at least once */
    int64_t leave_us; /* it was left, and is freed then at the latest; 0: it was not */
};

/* By which an address is copied and freed. */
static const struct conf_option address_option = {.name = "upstream", .type = CONF_ADDRESS};

/* ---- names ---- */

static void on_targets(void *context, const struct connection_targets *targets)
{
    const struct policy_server *server = context;

    if (server->upstream != NULL) {
        upstream_set_targets(server->upstream, targets);
    }
}

static void on_connecting(void *context)
{
    const struct policy_server *server = context;

    lookup_soon(server->lookup);
}

/* The program ends when memory is short, as with all of a configuration. */
static void start_lookup(struct policy_server *server)
{
    const struct lookup_settings settings = {
        .address = &server->address,
        .interval = server->service->settings.resolve_every,
        .changed = on_targets,
        .context = server,
        .stats = server->service->reactor->stats,
    };

    server->lookup = lookup_new(server->service->reactor, &settings);
    if (server->lookup == NULL) {
        abort();
    }
}

/* ---- the way to it ---- */

static struct upstream_settings settings_of(const struct policy_server *server)
{
    struct upstream_settings settings = server->service->settings.servers;

    settings.lane.target_text = server->address.text;
    settings.lane.stats = &server->service->server_stats;
    settings.user = server->user;
    settings.password = server->password;
    settings.lane.tls = server->tls;
    settings.lane.host = server->address.host;
    return settings;
}

static void now_ready(void *context)
{
    struct policy_server *server = context;

    server->was_reached = true;
}

/* False when memory is short. */
static bool make_way(struct policy_server *server)
{
    struct client_service *service = server->service;
    struct upstream_settings settings = settings_of(server);

    server->upstream = upstream_new(service->reactor, service->runs, &settings, now_ready, server);
    if (server->upstream == NULL) {
        return false;
    }
    upstream_set_targets(server->upstream, lookup_targets(server->lookup));
    upstream_tell_connecting(server->upstream, on_connecting, server);
    server->control = control_new(service->reactor, service->runs, server->upstream);
    if (server->control == NULL) {
        upstream_free(server->upstream);
        server->upstream = NULL;
    }
    return server->control != NULL;
}

struct control *client_server_control(struct policy_server *server, const char **why)
{
    if (server->service->ends_scripts) {
        *why = "the process is ending";
        return NULL;
    }
    const struct connection_targets *targets = lookup_targets(server->lookup);
    if (targets->count == 0) {
        lookup_soon(server->lookup);
        *why = targets->why != NULL ? targets->why : "its name is being looked up";
        return NULL;
    }
    if (server->upstream == NULL && !make_way(server)) {
        *why = "out of memory";
    }
    return server->control;
}

/* Ends the scripts that are under way. */
static void close_way(struct policy_server *server)
{
    if (server->upstream != NULL) {
        upstream_free(server->upstream);
        control_free(server->control);
        server->upstream = NULL;
        server->control = NULL;
    }
}

/* ---- life ---- */

static void server_free(struct policy_server *server)
{
    close_way(server);
    LIST_REMOVE(server, of_service);
    lookup_free(server->lookup);
    explicit_bzero(server->password, strlen(server->password));
    free(server->password);
    free(server->user);
    tls_context_release(server->tls);
    conf_value_free(&address_option, &server->address);
    free(server);
}

/* As with all of a configuration, the program ends when memory is short: no script may go elsewhere instead. */
static struct policy_server *server_new(struct client_service *service, const struct policy_server_settings *settings)
{
    struct policy_server *server = conf_alloc(NULL, sizeof *server);

    *server = (struct policy_server){
        .service = service,
        .user = conf_format("%s", settings->user),
        .password = conf_format("%s", settings->password),
        .tls = tls_context_hold(settings->tls),
    };
    conf_value_copy(&address_option, &server->address, settings->address);
    LIST_INSERT_HEAD(&service->servers, server, of_service);
    start_lookup(server);
    return server;
}

static bool is_that(const struct policy_server *server, const struct policy_server_settings *settings)
{
    return settings->address != NULL && conf_address_equal(&server->address, settings->address) &&
           server->address.tls == settings->address->tls && strcmp(server->user, settings->user) == 0 &&
           strcmp(server->password, settings->password) == 0;
}

/* New connections are made by what a reload has brought. */
static void follow_tls(struct policy_server *server, struct tls_context *tls)
{
    struct tls_context *before = server->tls;

    server->tls = tls_context_hold(tls);
    if (server->upstream != NULL) {
        struct upstream_settings settings = settings_of(server);
        upstream_reconfigure(server->upstream, &settings);
    }
    tls_context_release(before);
}

struct policy_server *client_server_change(struct client_service *service, struct policy_server *server,
                                           const struct policy_server_settings *settings)
{
    if (server != NULL && is_that(server, settings)) {
        follow_tls(server, settings->tls);
        return server;
    }
    if (server != NULL) {
        server->leave_us = reactor_now(service->reactor) + LEAVE_PATIENCE_US;
    }
    return settings->address != NULL ? server_new(service, settings) : NULL;
}

/* Left, and nothing is under way to it, or for too long. */
static bool is_over(const struct policy_server *server, int64_t now_us)
{
    bool is_idle = server->control == NULL || control_is_idle(server->control);

    return server->leave_us != 0 && (is_idle || now_us >= server->leave_us);
}

void client_servers_update_counters(struct client_service *service)
{
    static const enum stats_id shown[][2] = {
        {STATS_LANES_SHARED, STATS_POLICY_LANES},         {STATS_LANES_FAILED, STATS_POLICY_LANES_FAILED},
        {STATS_LANES_LOST, STATS_POLICY_LANES_LOST},      {STATS_CONTROL_CALLS, STATS_POLICY_CALLS},
        {STATS_CONTROL_ERRORS, STATS_POLICY_CALL_ERRORS},
    };

    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        stats_set(service->reactor->stats, shown[i][1], stats_get(&service->server_stats, shown[i][0]));
    }
}

void client_servers_tick(struct client_service *service, int64_t now_us)
{
    struct policy_server *next;
    bool is_unreached = false;

    for (struct policy_server *server = LIST_FIRST(&service->servers); server != NULL; server = next) {
        next = LIST_NEXT(server, of_service);
        is_unreached = is_unreached || (server->leave_us == 0 && !server->was_reached);
        if (is_over(server, now_us)) {
            server_free(server);
        } else if (server->upstream != NULL) {
            upstream_tick(server->upstream);
        }
    }
    atomic_store_explicit(&service->server_unreached, is_unreached, memory_order_relaxed);
}

void client_servers_reconfigure(struct client_service *service)
{
    for (struct policy_server *server = LIST_FIRST(&service->servers); server != NULL;
         server = LIST_NEXT(server, of_service)) {
        lookup_set_interval(server->lookup, service->settings.resolve_every);
        lookup_soon(server->lookup);
        if (server->upstream != NULL) {
            struct upstream_settings settings = settings_of(server);
            upstream_reconfigure(server->upstream, &settings);
        }
    }
}

void client_service_end_scripts(struct client_service *service)
{
    service->ends_scripts = true;
    for (struct policy_server *server = LIST_FIRST(&service->servers); server != NULL;
         server = LIST_NEXT(server, of_service)) {
        close_way(server);
    }
}

void client_servers_free(struct client_service *service)
{
    while (!LIST_EMPTY(&service->servers)) {
        server_free(LIST_FIRST(&service->servers));
    }
}
