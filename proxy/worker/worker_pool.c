#include "worker/worker_pool.h"
#include "worker/worker_cluster.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

/* Redis has moved, or was found. */
static void on_targets(void *context, const struct connection_targets *targets)
{
    struct worker_pool *worker_pool = context;

    for (size_t i = 0; i < worker_pool->count; i++) {
        worker_set_targets(worker_pool->workers[i], targets);
    }
}

/* They are others, or others are fit to be read from. */
static void on_replicas(void *context, struct replica_list *list)
{
    struct worker_pool *worker_pool = context;

    for (size_t i = 0; i < worker_pool->count; i++) {
        struct worker *worker = worker_pool->workers[i];
        worker_post(worker, worker_replicas_message(worker_nodes(worker), "", 0, list));
    }
}

/* The master is elsewhere, or there is none. */
static void on_master(void *context, const struct sentinel_master *master)
{
    struct worker_pool *worker_pool = context;

    for (size_t i = 0; i < worker_pool->count; i++) {
        worker_move(worker_pool->workers[i], &master->targets, master->host);
    }
}

/* A name that leads to Headgate would have it connect to itself until descriptors are gone. */
static const char *refuse_own(void *context, const struct sockaddr *address)
{
    const struct worker_pool *worker_pool = context;

    return conf_own_address(worker_pool->conf, address) != NULL ? "it leads to Headgate itself" : NULL;
}

/* The same of a master of the cluster. */
static void on_cluster_replicas(void *context, const char *host, uint16_t port, struct replica_list *list)
{
    struct worker_pool *worker_pool = context;

    for (size_t i = 0; i < worker_pool->count; i++) {
        struct worker *worker = worker_pool->workers[i];
        worker_post(worker, worker_replicas_message(worker_nodes(worker), host, port, list));
    }
}

static void on_map(void *context, struct cluster_map *map)
{
    struct worker_pool *worker_pool = context;

    for (size_t i = 0; i < worker_pool->count; i++) {
        struct worker *worker = worker_pool->workers[i];
        worker_post(worker, worker_cluster_message(worker_nodes(worker), map));
    }
    cluster_replicas_follow(worker_pool->replicas, map);
}

struct map_request {
    struct message message;
    struct worker_pool *worker_pool;
};

/* On the main thread. */
static void run_map_request(struct message *message)
{
    struct map_request *request = (struct map_request *)(void *)message;

    if (request->worker_pool->watch != NULL) {
        cluster_watch_soon(request->worker_pool->watch);
    }
    free(request);
}

/* On a worker's. If there is no memory to ask, the map is looked at at the next interval. */
static void want_map(void *context)
{
    struct worker_pool *worker_pool = context;
    struct map_request *request = malloc(sizeof *request);

    if (request != NULL) {
        *request = (struct map_request){.message.run = run_map_request, .worker_pool = worker_pool};
        mailbox_post(&worker_pool->mailbox, &request->message);
    }
}

/* False when memory is short. */
static bool watch_cluster(struct worker_pool *worker_pool, const struct worker_pool_parts *given,
                          const struct conf *conf)
{
    const struct cluster_watch_settings settings = {
        .conf = conf,
        .changed = on_map,
        .refuses = refuse_own,
        .context = worker_pool,
    };

    const struct cluster_replicas_settings of_replicas = {
        .conf = conf,
        .changed = on_cluster_replicas,
        .refuses = refuse_own,
        .context = worker_pool,
    };

    if (conf->upstream.topology != CONF_TOPOLOGY_CLUSTER) {
        return true;
    }
    worker_pool->replicas = cluster_replicas_new(given->reactor, &of_replicas);
    worker_pool->watch = worker_pool->replicas != NULL ? cluster_watch_new(given->reactor, &settings) : NULL;
    return worker_pool->watch != NULL;
}

/* Who finds out where Redis is. False when memory is short. */
static bool open_finder(struct worker_pool *worker_pool, const struct worker_pool_parts *given, const struct conf *conf)
{
    const struct lookup_settings of_lookup = {
        .address = conf->upstream.topology == CONF_TOPOLOGY_CLUSTER ? &conf->upstream.seeds[0] : &conf->upstream,
        .interval = conf->resolve_every,
        .changed = on_targets,
        .refuses = refuse_own,
        .context = worker_pool,
        .stats = given->stats,
    };
    const struct sentinel_settings of_sentinels = {
        .conf = conf,
        .moved = on_master,
        .replicas = on_replicas,
        .refuses = refuse_own,
        .context = worker_pool,
        .stats = given->stats,
    };

    if (conf->upstream.topology == CONF_TOPOLOGY_SENTINEL) {
        worker_pool->sentinels = sentinel_new(given->reactor, &of_sentinels);
        return worker_pool->sentinels != NULL;
    }
    worker_pool->lookup = lookup_new(given->reactor, &of_lookup);
    return worker_pool->lookup != NULL;
}

/* What workers need, but for themselves. False with errno set and nothing left open. */
static bool open_parts(struct worker_pool *worker_pool, const struct worker_pool_parts *given, const struct conf *conf)
{
    size_t count = (size_t)conf->threads;

    worker_pool->workers = calloc(count, sizeof(struct worker *));
    if (worker_pool->workers == NULL || !workgroup_open(&worker_pool->group, count)) {
        errno = ENOMEM;
        return false;
    }
    if (!chain_roster_open(&worker_pool->policies, given->policies, count)) {
        workgroup_close(&worker_pool->group);
        errno = ENOMEM;
        return false;
    }
    if (!mailbox_open(&worker_pool->mailbox, given->reactor)) {
        int reason = errno;
        workgroup_close(&worker_pool->group);
        chain_roster_close(&worker_pool->policies);
        errno = reason;
        return false;
    }
    if (!open_finder(worker_pool, given, conf)) {
        worker_pool_stop(worker_pool);
        errno = ENOMEM;
        return false;
    }
    return true;
}

bool worker_pool_start(struct worker_pool *worker_pool, const struct worker_pool_parts *given, const struct conf *conf)
{
    size_t count = (size_t)conf->threads;

    /* Initialises the C library's allocator while there is one thread. Under a sanitizer nobody else does, and workers
     * that trim would all do it at once. */
    (void)malloc_trim(0);
    *worker_pool = (struct worker_pool){.stats = given->stats, .conf = conf, .last_client = given->clients_given};
    if (!open_parts(worker_pool, given, conf)) {
        free(worker_pool->workers);
        worker_pool->workers = NULL;
        return false;
    }
    worker_pool->admission = admission_new(conf);
    const struct worker_parts parts = {
        .lookup = worker_pool->lookup,
        .sentinels = worker_pool->sentinels,
        .mailbox = &worker_pool->mailbox,
        .policies = &worker_pool->policies,
        .group = &worker_pool->group,
        .admission = worker_pool->admission,
        .memory = given->memory,
        .want_map = want_map,
        .pool = worker_pool,
    };
    for (; worker_pool->count < count; worker_pool->count++) {
        worker_pool->workers[worker_pool->count] = worker_start(worker_pool->count, conf, &parts);
        if (worker_pool->workers[worker_pool->count] == NULL) {
            int reason = errno;
            worker_pool_stop(worker_pool);
            errno = reason;
            return false;
        }
    }
    if (!watch_cluster(worker_pool, given, conf)) {
        worker_pool_stop(worker_pool);
        errno = ENOMEM;
        return false;
    }
    return true;
}

void worker_pool_stop(struct worker_pool *worker_pool)
{
    if (worker_pool->workers == NULL) {
        return;
    }
    if (worker_pool->watch != NULL) {
        cluster_watch_free(worker_pool->watch);
        worker_pool->watch = NULL;
    }
    cluster_replicas_free(worker_pool->replicas);
    worker_pool->replicas = NULL;
    while (worker_pool->count > 0) {
        worker_stop(worker_pool->workers[--worker_pool->count]);
    }
    /* What they have left there is for nobody, but is to be freed. */
    mailbox_run(&worker_pool->mailbox);
    mailbox_close(&worker_pool->mailbox);
    if (worker_pool->lookup != NULL) {
        lookup_free(worker_pool->lookup);
    }
    if (worker_pool->sentinels != NULL) {
        sentinel_free(worker_pool->sentinels);
    }
    if (worker_pool->admission != NULL) {
        admission_release(worker_pool->admission);
    }
    workgroup_close(&worker_pool->group);
    chain_roster_close(&worker_pool->policies);
    free(worker_pool->workers);
    worker_pool->workers = NULL;
}

void worker_pool_reconfigure(struct worker_pool *worker_pool, const struct conf *conf)
{
    worker_pool->conf = conf;
    admission_release(worker_pool->admission);
    worker_pool->admission = admission_new(conf);
    if (worker_pool->sentinels != NULL) {
        sentinel_reconfigure(worker_pool->sentinels, conf);
        return;
    }
    lookup_set_interval(worker_pool->lookup, conf->resolve_every);
    lookup_soon(worker_pool->lookup);
    if (worker_pool->watch != NULL) {
        cluster_watch_reconfigure(worker_pool->watch, conf);
        cluster_replicas_reconfigure(worker_pool->replicas, conf);
    }
}

void worker_pool_drain(struct worker_pool *worker_pool, uint64_t move)
{
    for (size_t i = 0; i < worker_pool->count; i++) {
        worker_drain(worker_pool->workers[i], move);
    }
}

void worker_pool_offer_move(struct worker_pool *worker_pool, uint64_t move)
{
    for (size_t i = 0; i < worker_pool->count; i++) {
        worker_offer_move(worker_pool->workers[i], move);
    }
}

bool worker_pool_is_settled(const struct worker_pool *worker_pool)
{
    bool settled = true;

    for (size_t i = 0; i < worker_pool->count; i++) {
        settled = settled && worker_is_settled(worker_pool->workers[i]);
    }
    return settled;
}

bool worker_pool_waits_in_vain(const struct worker_pool *worker_pool)
{
    bool in_vain = true;

    for (size_t i = 0; i < worker_pool->count; i++) {
        in_vain =
            in_vain && (worker_is_settled(worker_pool->workers[i]) || worker_waits_in_vain(worker_pool->workers[i]));
    }
    return in_vain;
}

void worker_pool_close_clients(struct worker_pool *worker_pool)
{
    for (size_t i = 0; i < worker_pool->count; i++) {
        worker_close_clients(worker_pool->workers[i]);
    }
}

/* What holds only if it holds for every worker. */
static uint64_t stat_of_all(const struct worker_pool *worker_pool, enum stats_id id)
{
    uint64_t least = 1;

    for (size_t i = 0; i < worker_pool->count; i++) {
        uint64_t one = stats_get(worker_stats(worker_pool->workers[i]), id);
        least = one < least ? one : least;
    }
    return least;
}

/* What the main thread counts; what it does besides is no worker's turn. */
static uint64_t stat_of_main(const struct worker_pool *worker_pool, enum stats_id id)
{
    switch (id) {
    case STATS_CLIENTS_REFUSED:
        return worker_pool->clients_refused;
    case STATS_CLIENTS_DENIED:
        return worker_pool->clients_denied;
    case STATS_CLIENTS_PROXIED:
        return worker_pool->clients_proxied;
    case STATS_PROXIES_REFUSED:
        return worker_pool->proxies_refused;
    case STATS_CLIENTS_MAX:
    case STATS_TOPOLOGY_CHANGES:
    case STATS_SENTINELS_UP:
    case STATS_LOOKUPS:
    case STATS_LOOKUPS_FAILED:
    case STATS_TLS_CERTIFICATE_DAYS:
    case STATS_UPSTREAM_CERTIFICATE_DAYS:
    case STATS_RELOADS:
    case STATS_RELOAD_FAILURES:
    case STATS_RELOAD_FAILED:
    case STATS_LAST_RELOAD:
    case STATS_UPGRADES:
    case STATS_UPGRADE_FAILURES:
    case STATS_PREDECESSOR_CLIENTS:
    case STATS_MEMORY_LIMIT:
    case STATS_ADMIN_REFUSED:
        return stats_get(worker_pool->stats, id);
    default:
        return 0;
    }
}

uint64_t worker_pool_stat(const struct worker_pool *worker_pool, enum stats_id id)
{
    uint64_t sum = stat_of_main(worker_pool, id);

    if (id == STATS_UPSTREAM_UP) {
        return stat_of_all(worker_pool, id);
    }

    for (size_t i = 0; i < worker_pool->count; i++) {
        sum += stats_get(worker_stats(worker_pool->workers[i]), id);
    }
    return sum;
}

uint64_t worker_pool_policy_counter(const struct worker_pool *worker_pool, size_t policy, size_t counter)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < worker_pool->count; i++) {
        sum += worker_policy_counter(worker_pool->workers[i], policy, counter);
    }
    return sum;
}

size_t worker_pool_clients(const struct worker_pool *worker_pool)
{
    uint64_t closed =
        worker_pool_stat(worker_pool, STATS_CLIENTS_ACCEPTED) - worker_pool_stat(worker_pool, STATS_CLIENTS_CONNECTED);

    return worker_pool->clients_given > closed ? (size_t)(worker_pool->clients_given - closed) : 0;
}

static struct worker *least_loaded(const struct worker_pool *worker_pool)
{
    /* Beginning at another one each time spreads a burst that the gauges do not show yet. */
    size_t start = (size_t)(worker_pool->clients_given % worker_pool->count);
    struct worker *best = worker_pool->workers[start];

    for (size_t i = 1; i < worker_pool->count; i++) {
        struct worker *worker = worker_pool->workers[(start + i) % worker_pool->count];
        if (stats_get(worker_stats(worker), STATS_CLIENTS_CONNECTED) <
            stats_get(worker_stats(best), STATS_CLIENTS_CONNECTED)) {
            best = worker;
        }
    }
    return best;
}

void worker_pool_give_client(struct worker_pool *worker_pool, int fd, const struct client_origin *origin)
{
    struct worker *worker = least_loaded(worker_pool);

    if (worker_give_client(worker, fd, origin, *worker_pool->last_client + 1)) {
        (*worker_pool->last_client)++;
        worker_pool->clients_given++;
    } else {
        worker_pool->clients_refused++;
    }
}
