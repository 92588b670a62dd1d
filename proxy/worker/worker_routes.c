#include "worker/worker_routes.h"
#include "worker/worker_settings.h"

#include "conf/conf_table.h"
#include "net/lookup.h"

#include <stdlib.h>

/* A way to another server. */
struct worker_route {
    struct cluster_way *way; /* NULL: there is none to the server of that number */
    struct lookup *lookup;   /* where its Redis is */
};

struct worker_routes {
    struct worker_route *list; /* by the number of the server */
    size_t count;
};

bool worker_routes_are_wanted(const struct conf *conf)
{
    const struct conf_rule *rule = conf->rules;

    while (rule != NULL && *conf_rule_sends_to(rule) == '\0') {
        rule = rule->next;
    }
    return rule != NULL;
}

static struct upstream_settings settings_of(struct worker_cluster *cluster, const struct worker_cluster_parts *parts,
                                            const struct conf *conf, size_t number)
{
    struct upstream_settings settings =
        worker_upstream_settings(conf_server_at(conf->process, number), parts->worker, parts->stats, cluster);

    settings.changes = &cluster->changes;
    settings.access_check = 0;
    settings.is_elsewhere = true;
    settings.is_aside = true;
    settings.first_lane_id = (uint64_t)(number + 1) << 32;
    return settings;
}

/* ---- the scripts of policies ---- */

static struct profile *node_of(void *context, struct profile *profile, struct slice key)
{
    const struct worker_cluster *cluster = context;
    const struct cluster_way *way = cluster->clients != NULL ? client_service_way_of(cluster->clients, key) : NULL;

    return way != NULL ? cluster_way_profile(way, profile) : profile;
}

/* ---- making ---- */

static void on_targets(void *context, const struct connection_targets *targets)
{
    const struct worker_route *route = context;

    upstream_set_targets(route->way->upstream, targets);
}

static void on_connecting(void *context)
{
    const struct worker_route *route = context;

    lookup_soon(route->lookup);
}

static void nothing_wanted(void *context)
{
    (void)context;
}

static void on_lost(void *context, const char *why, uint64_t requests)
{
    const struct worker_cluster *cluster = context;

    client_service_upstream_lost(cluster->clients, why, requests);
}

/* Nobody redirects there. */
static bool is_own(void *context, const struct sockaddr *address)
{
    (void)context;
    (void)address;
    return false;
}

/* False when memory is short. */
static bool make_ways(struct worker_cluster *cluster, const struct worker_cluster_parts *parts, const struct conf *conf,
                      const struct upstream_settings *settings)
{
    const struct control_router router = {.node_of = node_of, .context = cluster};
    const struct cluster_ways_parts ways = {
        .reactor = parts->reactor,
        .runs = parts->runs,
        .home = parts->home,
        .changes = &cluster->changes,
        .want_map = nothing_wanted,
        .map_came = nothing_wanted,
        .lost = on_lost,
        .is_own = is_own,
        .context = cluster,
    };

    cluster->ways = cluster_ways_new(&ways, settings);
    cluster->routes = cluster->ways != NULL ? calloc(1, sizeof *cluster->routes) : NULL;
    if (cluster->routes == NULL) {
        return false;
    }
    cluster->ways->is_by_key = true;
    cluster->routes->count = conf_server_count(conf->process);
    cluster->routes->list = calloc(cluster->routes->count, sizeof *cluster->routes->list);
    control_set_router(parts->control, &router);
    return cluster->routes->list != NULL;
}

static bool make_way(struct worker_cluster *cluster, const struct worker_cluster_parts *parts, const struct conf *conf,
                     size_t number)
{
    const struct conf *there = conf_server_at(conf->process, number);
    struct worker_route *route = &cluster->routes->list[number];
    struct upstream_settings settings = settings_of(cluster, parts, conf, number);
    const struct lookup_settings lookup = {
        .address = &there->upstream,
        .interval = there->resolve_every,
        .changed = on_targets,
        .context = route,
        .stats = parts->stats,
    };

    route->way = cluster_ways_add(cluster->ways, number, &settings);
    route->lookup = route->way != NULL ? lookup_new(parts->reactor, &lookup) : NULL;
    if (route->lookup == NULL) {
        return false;
    }
    upstream_set_targets(route->way->upstream, lookup_targets(route->lookup));
    upstream_tell_losses(route->way->upstream, on_lost, cluster);
    if (lookup_is_needed(route->lookup)) {
        upstream_tell_connecting(route->way->upstream, on_connecting, route);
    }
    return true;
}

/* ---- following ---- */

/* Clients' profiles keep their counterparts there: those of a user who is the configuration's no more are left. */
static void reconfigure_way(struct upstream *home, struct cluster_way *way, const struct upstream_settings *settings)
{
    struct profile *before = upstream_default_profile(way->upstream);

    upstream_reconfigure(way->upstream, settings);
    struct profile *now = upstream_default_profile(way->upstream);
    if (now != before) {
        upstream_leave_node(home, way->number);
    }
    profile_release(now);
    profile_release(before);
}

static void reconfigure(struct worker_cluster *cluster, const struct worker_cluster_parts *parts,
                        const struct conf *conf)
{
    for (size_t i = 0; i < cluster->routes->count; i++) {
        struct worker_route *route = &cluster->routes->list[i];
        if (route->way != NULL) {
            struct upstream_settings settings = settings_of(cluster, parts, conf, i);
            reconfigure_way(parts->home, route->way, &settings);
            lookup_set_interval(route->lookup, conf_server_at(conf->process, i)->resolve_every);
        }
    }
}

bool worker_routes_follow(struct worker_cluster *cluster, const struct worker_cluster_parts *parts,
                          const struct conf *conf, const struct upstream_settings *settings)
{
    bool is_made =
        cluster->ways != NULL || !worker_routes_are_wanted(conf) || make_ways(cluster, parts, conf, settings);

    if (cluster->ways == NULL || !is_made) {
        return is_made;
    }
    reconfigure(cluster, parts, conf);
    for (const struct conf_rule *rule = conf->rules; rule != NULL && is_made; rule = rule->next) {
        const char *name = conf_rule_sends_to(rule);
        size_t number = conf_server_find(conf->process, name);
        bool is_other =
            *name != '\0' && number < cluster->routes->count && conf_server_at(conf->process, number) != conf;
        if (is_other && cluster->routes->list[number].way == NULL) {
            is_made = make_way(cluster, parts, conf, number);
        }
    }
    /* Rules may say otherwise of keys from now on. */
    cluster->changes++;
    if (cluster->clients != NULL) {
        client_service_use_ways(cluster->clients, cluster->ways);
    }
    return is_made;
}

void worker_routes_close(struct worker_cluster *cluster)
{
    if (cluster->routes == NULL) {
        return;
    }
    for (size_t i = 0; i < cluster->routes->count && cluster->routes->list != NULL; i++) {
        if (cluster->routes->list[i].lookup != NULL) {
            lookup_free(cluster->routes->list[i].lookup);
        }
    }
    free(cluster->routes->list);
    free(cluster->routes);
    cluster->routes = NULL;
}
