#include "worker/worker_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool worker_cluster_is_wanted(const struct conf *conf)
{
    return conf->upstream.topology == CONF_TOPOLOGY_CLUSTER;
}

/* Any node of it will do. Before the first map nobody knows better. */
static bool may_have_id(void *context, const char *target_text, struct slice id)
{
    const struct worker_cluster *cluster = context;

    return cluster->ways == NULL || cluster_ways_have_id(cluster->ways, target_text, id);
}

void worker_cluster_ask_ids(struct worker_cluster *cluster, const struct conf *conf, struct lane_settings *settings)
{
    if (worker_cluster_is_wanted(conf)) {
        settings->may_have_id = may_have_id;
        settings->id_context = cluster;
    }
}

static void on_map_wanted(void *context)
{
    const struct worker_cluster *cluster = context;

    if (cluster->want_map != NULL) {
        cluster->want_map(cluster->pool);
    }
}

static void on_map_came(void *context)
{
    const struct worker_cluster *cluster = context;

    control_go_on(cluster->control);
    client_service_map_came(cluster->clients);
}

static bool has_no_map(const void *context)
{
    const struct worker_cluster *cluster = context;

    return cluster_ways_wait(cluster->ways);
}

static struct profile *node_of(void *context, struct profile *profile, struct slice key)
{
    const struct worker_cluster *cluster = context;
    const struct cluster_way *way = cluster_way_of(cluster->ways, cluster_slot_of(key));

    return way != NULL ? cluster_way_profile(way, profile) : profile;
}

static struct profile *node_after(void *context, struct profile *profile, const struct lane *lane, struct slice error,
                                  bool *asks)
{
    const struct worker_cluster *cluster = context;
    struct cluster_redirect redirect;

    if (!cluster_redirect_parse(error, &redirect)) {
        return NULL;
    }
    *asks = redirect.ask;
    const struct cluster_way *from = cluster_way_by_upstream(cluster->ways, lane_profile(lane)->upstream);
    const struct cluster_way *way = cluster_way_redirect(cluster->ways, from, &redirect);
    return way != NULL ? cluster_way_profile(way, profile) : NULL;
}

/* Where any node may be, until the first map. */
static void find_seeds(struct upstream *home, const struct conf *conf)
{
    struct connection_targets targets = {.count = 0};

    for (size_t i = 0; i < conf->upstream.seed_count && targets.count < CONNECTION_TARGETS_MAX; i++) {
        struct connection_targets one;
        if (connection_resolve_numeric(&conf->upstream.seeds[i], &one)) {
            targets.items[targets.count++] = one.items[0];
        }
    }
    if (targets.count > 0) {
        upstream_set_targets(home, &targets);
    }
}

/* A node that announces Headgate's address would have requests go round in a circle. */
static bool is_own(void *context, const struct sockaddr *address)
{
    const struct worker_cluster *cluster = context;

    return conf_own_address(cluster->conf, address) != NULL;
}

static bool find_seed(void *context, const char *host, uint16_t port, struct connection_targets *targets)
{
    const struct worker_cluster *cluster = context;
    const struct conf_address *upstream = &cluster->conf->upstream;

    for (size_t i = 0; i < upstream->seed_count; i++) {
        if (upstream->seeds[i].port == port && strcmp(upstream->seeds[i].host, host) == 0) {
            return connection_resolve_numeric(&upstream->seeds[i], targets);
        }
    }
    return false;
}

static void on_lost(void *context, const char *why, uint64_t requests)
{
    const struct worker_cluster *cluster = context;

    client_service_upstream_lost(cluster->clients, why, requests);
}

bool worker_cluster_open(struct worker_cluster *cluster, const struct worker_cluster_parts *parts,
                         const struct conf *conf, const struct upstream_settings *settings)
{
    const struct control_router router = {
        .node_of = node_of, .waits = has_no_map, .redirected = node_after, .context = cluster};
    const struct cluster_ways_parts ways = {
        .reactor = parts->reactor,
        .runs = parts->runs,
        .home = parts->home,
        .changes = &cluster->changes,
        .want_map = on_map_wanted,
        .map_came = on_map_came,
        .lost = on_lost,
        .is_own = is_own,
        .find_seed = find_seed,
        .context = cluster,
    };

    if (conf->upstream.topology == CONF_TOPOLOGY_SENTINEL) {
        cluster->replicas = replica_ways_new(parts->reactor, parts->runs, parts->home, settings);
        return cluster->replicas != NULL;
    }
    if (!worker_cluster_is_wanted(conf)) {
        return true;
    }
    cluster->conf = conf;
    cluster->want_map = parts->want_map;
    cluster->pool = parts->pool;
    find_seeds(parts->home, conf);
    cluster->control = parts->control;
    control_set_router(parts->control, &router);
    cluster->ways = cluster_ways_new(&ways, settings);
    return cluster->ways != NULL;
}

void worker_cluster_reconfigure(struct worker_cluster *cluster, const struct conf *conf,
                                const struct upstream_settings *settings)
{
    cluster->conf = conf;
    if (cluster->ways != NULL) {
        cluster_ways_reconfigure(cluster->ways, settings);
    }
    if (cluster->replicas != NULL) {
        replica_ways_reconfigure(cluster->replicas, settings);
    }
}

static void visit_replicas(const struct replica_ways *replicas, void (*visit)(void *context, struct lane *lane),
                           void *context)
{
    for (size_t i = 0; replicas != NULL && i <= REPLICAS_MAX; i++) {
        if (replicas->ways[i] != NULL) {
            upstream_visit_lanes(replicas->ways[i]->upstream, visit, context);
        }
    }
}

void worker_cluster_visit_lanes(struct worker_cluster *cluster, void (*visit)(void *context, struct lane *lane),
                                void *context)
{
    for (size_t i = 0; cluster->ways != NULL && i < cluster->ways->count; i++) {
        if (cluster->ways->ways[i] != NULL) {
            upstream_visit_lanes(cluster->ways->ways[i]->upstream, visit, context);
            visit_replicas(cluster->ways->ways[i]->replicas, visit, context);
        }
    }
    visit_replicas(cluster->replicas, visit, context);
}

void worker_cluster_tick(struct worker_cluster *cluster)
{
    if (cluster->ways != NULL) {
        cluster_ways_tick(cluster->ways);
    }
    if (cluster->replicas != NULL) {
        replica_ways_tick(cluster->replicas);
    }
}

void worker_cluster_close(struct worker_cluster *cluster)
{
    if (cluster->ways != NULL) {
        control_go_on(cluster->control);
        control_set_router(cluster->control, &(struct control_router){0});
        cluster_ways_free(cluster->ways);
        cluster->ways = NULL;
    }
    if (cluster->replicas != NULL) {
        replica_ways_free(cluster->replicas);
        cluster->replicas = NULL;
    }
}

struct map_message {
    struct message message;
    struct worker_cluster *cluster;
    struct cluster_map *map; /* referenced */
};

static void run_map(struct message *message)
{
    struct map_message *order = (struct map_message *)(void *)message;

    if (order->cluster->ways != NULL) {
        cluster_ways_follow(order->cluster->ways, order->map);
    }
    cluster_map_release(order->map);
    free(order);
}

struct message *worker_cluster_message(struct worker_cluster *cluster, struct cluster_map *map)
{
    struct map_message *order = malloc(sizeof *order);

    if (order == NULL) {
        abort();
    }
    *order = (struct map_message){.message.run = run_map, .cluster = cluster, .map = cluster_map_reference(map)};
    return &order->message;
}

struct list_message {
    struct message message;
    struct worker_cluster *cluster;
    char host[CLUSTER_HOST_MAX];
    uint16_t port;
    struct replica_list *list; /* referenced */
};

static void run_list(struct message *message)
{
    struct list_message *order = (struct list_message *)(void *)message;

    if (order->cluster->replicas != NULL) {
        replica_ways_follow(order->cluster->replicas, order->list);
    } else if (order->cluster->ways != NULL) {
        cluster_ways_follow_replicas(order->cluster->ways, order->host, order->port, order->list);
    }
    replica_list_release(order->list);
    free(order);
}

struct message *worker_replicas_message(struct worker_cluster *cluster, const char *host, uint16_t port,
                                        struct replica_list *list)
{
    struct list_message *order = malloc(sizeof *order);

    if (order == NULL) {
        abort();
    }
    *order = (struct list_message){
        .message.run = run_list, .cluster = cluster, .port = port, .list = replica_list_reference(list)};
    snprintf(order->host, sizeof order->host, "%s", host);
    return &order->message;
}
