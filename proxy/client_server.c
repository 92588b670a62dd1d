/*
 * Redis servers that policies have for themselves, beside that of the clients: each is an upstream of its own with one
 * shared lane, which is opened for the first script and closed when none has needed it for lane_idle_timeout. Nothing
 * of them is seen by clients, and their lanes are counted apart.
 *
 *   client_server_change() ─► its name is looked up ─► first script: upstream and control ─► left ─► (tick) freed
 */
#include "client_private.h"

#include "resolver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A name that could not be looked up is tried again after so long, for the next script. */
#define LOOK_UP_AGAIN_US ((int64_t)5000000)
/* How long the scripts of a server that was left may go on. */
#define LEAVE_PATIENCE_US ((int64_t)5000000)

struct policy_server {
    struct policy_server *next;
    struct client_service *service;
    struct conf_address address;
    char *user;
    char *password;
    struct resolver *resolver; /* NULL: its name is not being looked up */
    int64_t looked_up_us;
    bool is_resolved;
    struct connection_target target; /* if it is */
    const char *why;                 /* if it is not */
    struct upstream *upstream;       /* NULL: there was no script yet */
    struct control *control;
    int64_t leave_us; /* it was left, and is freed then at the latest; 0: it was not */
};

/* By which an address is copied and freed. */
static const struct conf_option address_option = {.name = "upstream", .type = CONF_ADDRESS};

/* ---- names ---- */

static void resolved(void *context, const struct connection_target *target, const char *why)
{
    struct policy_server *server = context;

    server->resolver = NULL;
    server->is_resolved = target != NULL;
    if (target != NULL) {
        server->target = *target;
    } else {
        server->why = why;
    }
}

/* A name needs a thread: the system's resolver may take long, and clients must not notice. */
static void look_up(struct policy_server *server)
{
    server->is_resolved = connection_resolve_numeric(&server->address, &server->target);
    if (server->is_resolved) {
        return;
    }
    server->looked_up_us = reactor_now(server->service->reactor);
    server->why = "its name is being looked up";
    server->resolver = resolver_start(server->service->reactor, &server->address, resolved, server);
    if (server->resolver == NULL) {
        server->why = strerror(errno);
    }
}

static void look_up_again(struct policy_server *server)
{
    int64_t age_us = reactor_now(server->service->reactor) - server->looked_up_us;

    if (!server->is_resolved && server->resolver == NULL && age_us >= LOOK_UP_AGAIN_US) {
        look_up(server);
    }
}

/* ---- the way to it ---- */

static struct upstream_settings settings_of(const struct policy_server *server)
{
    struct upstream_settings settings = server->service->settings.servers;

    settings.lane.target = server->target;
    settings.lane.target_text = server->address.text;
    settings.lane.stats = &server->service->server_stats;
    settings.user = server->user;
    settings.password = server->password;
    return settings;
}

static void now_ready(void *context)
{
    (void)context;
}

/* False when memory is short. */
static bool make_way(struct policy_server *server)
{
    struct client_service *service = server->service;
    struct upstream_settings settings = settings_of(server);

    server->upstream = upstream_new(service->reactor, service->runs, &settings, now_ready, NULL);
    if (server->upstream == NULL) {
        return false;
    }
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
    look_up_again(server);
    if (!server->is_resolved) {
        *why = server->why;
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
    if (server->resolver != NULL) {
        resolver_cancel(server->resolver);
    }
    close_way(server);
    explicit_bzero(server->password, strlen(server->password));
    free(server->password);
    free(server->user);
    conf_value_free(&address_option, &server->address);
    free(server);
}

/* As with all of a configuration, the program ends when memory is short: no script may go elsewhere instead. */
static struct policy_server *server_new(struct client_service *service, const struct policy_server_settings *settings)
{
    struct policy_server *server = conf_alloc(NULL, sizeof *server);

    *server = (struct policy_server){
        .next = service->servers,
        .service = service,
        .user = conf_format("%s", settings->user),
        .password = conf_format("%s", settings->password),
    };
    conf_value_copy(&address_option, &server->address, settings->address);
    service->servers = server;
    look_up(server);
    return server;
}

static bool is_that(const struct policy_server *server, const struct policy_server_settings *settings)
{
    return settings->address != NULL && conf_address_equal(&server->address, settings->address) &&
           strcmp(server->user, settings->user) == 0 && strcmp(server->password, settings->password) == 0;
}

struct policy_server *client_server_change(struct client_service *service, struct policy_server *server,
                                           const struct policy_server_settings *settings)
{
    if (server != NULL && is_that(server, settings)) {
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
    struct policy_server **at = &service->servers;

    while (*at != NULL) {
        struct policy_server *server = *at;
        if (is_over(server, now_us)) {
            *at = server->next;
            server_free(server);
            continue;
        }
        if (server->upstream != NULL) {
            upstream_tick(server->upstream);
        }
        at = &server->next;
    }
}

void client_servers_reconfigure(struct client_service *service)
{
    for (struct policy_server *server = service->servers; server != NULL; server = server->next) {
        if (server->upstream != NULL) {
            struct upstream_settings settings = settings_of(server);
            upstream_reconfigure(server->upstream, &settings);
        }
    }
}

void client_service_end_scripts(struct client_service *service)
{
    service->ends_scripts = true;
    for (struct policy_server *server = service->servers; server != NULL; server = server->next) {
        close_way(server);
    }
}

void client_servers_free(struct client_service *service)
{
    while (service->servers != NULL) {
        struct policy_server *server = service->servers;
        service->servers = server->next;
        server_free(server);
    }
}
