#include "worker/servers.h"

#include "base/log.h"
#include "tls/tls_context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool servers_new(struct servers *servers, const struct conf *process)
{
    size_t count = conf_server_count(process);

    *servers = (struct servers){.list = calloc(count, sizeof *servers->list)};
    if (servers->list == NULL) {
        return false;
    }
    for (; servers->count < count; servers->count++) {
        struct server *server = &servers->list[servers->count];
        server->conf = conf_server_at(process, servers->count);
        snprintf(server->name, sizeof server->name, "%s", conf_server_name(server->conf));
    }
    return true;
}

void servers_free(struct servers *servers)
{
    free(servers->list);
    *servers = (struct servers){0};
}

/* ---- start and end ---- */

static bool start_one(struct server *server, struct servers *servers, struct reactor *reactor,
                      const struct policy *const *policies)
{
    const struct worker_pool_parts parts = {
        .reactor = reactor,
        .policies = policies,
        .stats = &server->stats,
        .clients_given = &servers->clients_given,
        .memory = &servers->memory,
    };

    if (!expiry_open(&server->expiry, reactor, &server->stats, server->conf)) {
        log_error("main", "out of memory");
        return false;
    }
    if (!worker_pool_start(&server->worker_pool, &parts, server->conf)) {
        log_error("main", "cannot start the workers: %s", strerror(errno));
        return false;
    }
    return true;
}

static void follow_memory_limit(struct servers *servers)
{
    uint64_t limit = (uint64_t)servers->list[0].conf->process->memory_limit;

    limit = limit > 0 ? limit : memory_default_limit("");
    atomic_store(&servers->memory.limit, limit);
    for (size_t i = 0; i < servers->count; i++) {
        stats_set(&servers->list[i].stats, STATS_MEMORY_LIMIT, limit);
    }
}

bool servers_start(struct servers *servers, struct reactor *reactor, const struct policy *const *policies)
{
    bool started = true;

    follow_memory_limit(servers);
    for (size_t i = 0; i < servers->count && started; i++) {
        started = start_one(&servers->list[i], servers, reactor, policies);
    }
    return started;
}

/* From the last to the first, as each of them opens its addresses: who reaches the first finds all others in place. */
bool servers_listen(struct servers *servers, struct reactor *reactor, struct port_source *source)
{
    bool opened = true;

    for (size_t i = servers->count; i-- > 0;) {
        struct server *server = &servers->list[i];
        server->listener = listener_open(reactor, &server->worker_pool, server->conf, source);
        opened = opened && server->listener != NULL;
    }
    return opened;
}

bool servers_serve(struct servers *servers)
{
    bool serves = true;

    for (size_t i = 0; i < servers->count && serves; i++) {
        serves = listener_serve(servers->list[i].listener);
    }
    return serves;
}

void servers_stop(struct servers *servers)
{
    for (size_t i = 0; i < servers->count; i++) {
        if (servers->list[i].listener != NULL) {
            listener_close(servers->list[i].listener);
            servers->list[i].listener = NULL;
        }
    }
    for (size_t i = 0; i < servers->count; i++) {
        worker_pool_stop(&servers->list[i].worker_pool);
        expiry_close(&servers->list[i].expiry);
    }
}

/* ---- reload ---- */

static void reconfigure(struct server *server, const struct conf *conf, void (*done)(void *context), void *context)
{
    struct worker_pool *worker_pool = &server->worker_pool;

    server->conf = conf;
    if (server->listener != NULL) {
        listener_reconfigure(server->listener, conf);
    }
    expiry_follow(&server->expiry, conf);
    worker_pool_reconfigure(worker_pool, conf);
    for (size_t i = 0; i < worker_pool->count; i++) {
        worker_reconfigure(worker_pool->workers[i], conf, worker_pool->admission, done, context);
    }
}

void servers_reconfigure(struct servers *servers, const struct conf *process, void (*done)(void *context),
                         void *context)
{
    for (size_t i = 0; i < servers->count; i++) {
        reconfigure(&servers->list[i], conf_server_at(process, i), done, context);
    }
    follow_memory_limit(servers);
}

size_t servers_workers(const struct servers *servers)
{
    size_t count = 0;

    for (size_t i = 0; i < servers->count; i++) {
        count += servers->list[i].worker_pool.count;
    }
    return count;
}

static size_t share_of(const struct server *server, size_t most)
{
    size_t wanted = (size_t)server->conf->max_clients;

    return wanted < most ? wanted : most;
}

void servers_bound_clients(struct servers *servers, size_t most)
{
    size_t each = most, sum = most + 1;

    while (sum > most) {
        sum = 0;
        for (size_t i = 0; i < servers->count; i++) {
            sum += share_of(&servers->list[i], each);
        }
        each -= sum > most ? (sum - most + servers->count - 1) / servers->count : 0;
    }
    for (size_t i = 0; i < servers->count; i++) {
        listener_bound(servers->list[i].listener, share_of(&servers->list[i], each));
        stats_set(&servers->list[i].stats, STATS_CLIENTS_MAX, share_of(&servers->list[i], each));
    }
}

/* ---- drain ---- */

/* The number of what clients are told of when they are to go elsewhere, another one each time; 0: nobody is there for
 * them. */
static uint64_t number_move(struct servers *servers)
{
    uint64_t now = (uint64_t)time(NULL);
    bool has_successor = true;

    for (size_t i = 0; i < servers->count && !servers->has_successor; i++) {
        has_successor = has_successor && listener_has_successor(servers->list[i].listener);
    }
    if (!has_successor) {
        return 0;
    }
    servers->last_move = now > servers->last_move ? now : servers->last_move + 1;
    return servers->last_move;
}

void servers_stop_listening(struct servers *servers)
{
    for (size_t i = 0; i < servers->count; i++) {
        listener_stop(servers->list[i].listener);
    }
}

void servers_leave_listening(struct servers *servers)
{
    for (size_t i = 0; i < servers->count; i++) {
        listener_leave(servers->list[i].listener);
    }
}

void servers_resume_listening(struct servers *servers)
{
    for (size_t i = 0; i < servers->count; i++) {
        listener_resume(servers->list[i].listener);
    }
}

void servers_drain(struct servers *servers)
{
    if (servers->is_draining) {
        return;
    }
    servers->is_draining = true;
    uint64_t move = number_move(servers);
    servers->has_successor = move != 0;
    servers_stop_listening(servers);
    for (size_t i = 0; i < servers->count; i++) {
        listener_hasten(servers->list[i].listener);
        worker_pool_drain(&servers->list[i].worker_pool, move);
    }
}

void servers_offer_move(struct servers *servers)
{
    uint64_t move = servers->is_draining ? 0 : number_move(servers);

    for (size_t i = 0; i < servers->count && move != 0; i++) {
        worker_pool_offer_move(&servers->list[i].worker_pool, move);
    }
}

void servers_lose_successor(struct servers *servers)
{
    servers->has_successor = false;
    for (size_t i = 0; i < servers->count; i++) {
        struct worker_pool *worker_pool = &servers->list[i].worker_pool;
        if (servers->is_draining) {
            worker_pool_drain(worker_pool, 0);
        } else {
            worker_pool_offer_move(worker_pool, 0);
        }
    }
}

size_t servers_clients(const struct servers *servers)
{
    size_t count = 0;

    for (size_t i = 0; i < servers->count; i++) {
        const struct server *server = &servers->list[i];
        count += worker_pool_clients(&server->worker_pool) + listener_waiting(server->listener);
    }
    return count;
}

bool servers_are_settled(const struct servers *servers)
{
    bool settled = true;

    for (size_t i = 0; i < servers->count; i++) {
        settled = settled && worker_pool_is_settled(&servers->list[i].worker_pool);
    }
    return settled;
}

bool servers_wait_in_vain(const struct servers *servers)
{
    bool in_vain = true;

    for (size_t i = 0; i < servers->count; i++) {
        in_vain = in_vain && worker_pool_waits_in_vain(&servers->list[i].worker_pool);
    }
    return in_vain;
}

void servers_close_clients(struct servers *servers)
{
    for (size_t i = 0; i < servers->count; i++) {
        worker_pool_close_clients(&servers->list[i].worker_pool);
    }
}

/* ---- figures ---- */

bool servers_share_stat(enum stats_id id)
{
    return id == STATS_UPGRADES || id == STATS_UPGRADE_FAILURES || id == STATS_PREDECESSOR_CLIENTS ||
           id == STATS_RELOADS || id == STATS_RELOAD_FAILURES || id == STATS_RELOAD_FAILED || id == STATS_LAST_RELOAD ||
           id == STATS_MEMORY_LIMIT || id == STATS_ADMIN_REFUSED;
}

/* Of these a sum says nothing. */
static bool is_least(enum stats_id id)
{
    return id == STATS_UPSTREAM_UP || id == STATS_TLS_CERTIFICATE_DAYS || id == STATS_UPSTREAM_CERTIFICATE_DAYS ||
           servers_share_stat(id);
}

static bool expires(const struct tls_context *context)
{
    return context != NULL && tls_context_expires(context) != 0;
}

/* Certificates that a server does not have count no days. */
static bool has_value(const struct server *server, enum stats_id id)
{
    return (id != STATS_TLS_CERTIFICATE_DAYS || expires(server->conf->tls_clients)) &&
           (id != STATS_UPSTREAM_CERTIFICATE_DAYS || expires(server->conf->tls_upstream));
}

static uint64_t least_stat(const struct servers *servers, size_t first, size_t end, enum stats_id id)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = first; i < end; i++) {
        uint64_t one = worker_pool_stat(&servers->list[i].worker_pool, id);
        least = has_value(&servers->list[i], id) && one < least ? one : least;
    }
    return least == UINT64_MAX ? 0 : least;
}

uint64_t servers_stat(const struct servers *servers, size_t first, size_t end, enum stats_id id)
{
    uint64_t sum = 0;

    if (is_least(id)) {
        return least_stat(servers, first, end, id);
    }
    if (id == STATS_REQUESTS_PER_WRITES || id == STATS_REQUESTS_PER_READS) {
        enum stats_id calls = id == STATS_REQUESTS_PER_WRITES ? STATS_UPSTREAM_WRITES : STATS_UPSTREAM_READS;
        sum = servers_stat(servers, first, end, calls);
        return sum == 0 ? 0 : 100 * servers_stat(servers, first, end, STATS_REQUESTS_FORWARDED) / sum;
    }
    for (size_t i = first; i < end; i++) {
        sum += worker_pool_stat(&servers->list[i].worker_pool, id);
    }
    return sum;
}

uint64_t servers_policy_counter(const struct servers *servers, size_t first, size_t end, size_t policy, size_t counter)
{
    uint64_t sum = 0;

    for (size_t i = first; i < end; i++) {
        sum += worker_pool_policy_counter(&servers->list[i].worker_pool, policy, counter);
    }
    return sum;
}

/* ---- names ---- */

const struct server *servers_find(const struct servers *servers, struct slice name)
{
    for (size_t i = 0; i < servers->count; i++) {
        const char *known = servers->list[i].name;
        if (strlen(known) == name.length && memcmp(known, name.data, name.length) == 0) {
            return &servers->list[i];
        }
    }
    return NULL;
}
