#include "worker/worker.h"
#include "worker/worker_cluster.h"
#include "worker/worker_scripts.h"
#include "worker/worker_settings.h"

#include "base/log.h"
#include "conf/conf_table.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_US 100000
/* Ticks between two looks at memory that could be given back. */
#define TRIM_TICKS 20
/* Clients that have gone since the last look, from which on the C library is asked to give their memory back. */
#define TRIM_CLIENTS 256
/* Recycled runs that are kept whatever happens. */
#define RUNS_KEPT 4096

/* Nothing was found out of whether Redis wants a password. */
#define ACCESS_UNKNOWN (-1)

struct worker {
    size_t index;
    pthread_t thread;
    struct stats stats;
    struct reactor reactor;
    struct mailbox mailbox;
    struct run_pool runs;
    struct upstream *upstream;
    struct worker_cluster cluster;
    struct control *control;
    struct server_info *server_info;
    struct client_service *clients;
    struct worker_parts parts;
    char server_name[CONF_RULE_NAME_MAX + 1]; /* of the one that it is of, to operators … */
    bool is_of_several;                       /* … who have others, too */
    struct message access_message;            /* under way if so; what it says: */
    _Atomic bool access_is_posted;
    _Atomic bool access_has_changed;
    _Atomic int access_found; /* enum upstream_access, or ACCESS_UNKNOWN */
    struct event tick;
    uint32_t ticks;
    uint64_t gone_at_trim; /* clients that had gone when memory was given back last */
    struct worker_scripts scripts;
    bool stopping;
};

static struct upstream_settings upstream_settings(struct worker *worker, const struct conf *conf)
{
    struct upstream_settings settings = worker_upstream_settings(conf, worker->index, &worker->stats, &worker->cluster);

    if (worker->cluster.ways != NULL) {
        settings.changes = &worker->cluster.changes;
    }
    return settings;
}

static struct worker_cluster_parts cluster_parts(struct worker *worker)
{
    return (struct worker_cluster_parts){
        .reactor = &worker->reactor,
        .runs = &worker->runs,
        .home = worker->upstream,
        .control = worker->control,
        .want_map = worker->parts.want_map,
        .pool = worker->parts.pool,
    };
}

/* ---- the thread ---- */

/* What a burst took is given back step by step, so that the next burst does not find everything gone. */
static void trim_memory(struct worker *worker)
{
    bool trimmed = buffer_pool_trim(&worker->reactor.buffers);
    uint64_t gone = stats_get(&worker->stats, STATS_CLIENTS_ACCEPTED) - client_count(worker->clients);

    if (gone - worker->gone_at_trim >= TRIM_CLIENTS) {
        worker->gone_at_trim = gone;
        trimmed = true;
    }
    if (worker->runs.count > RUNS_KEPT) {
        run_pool_trim(&worker->runs, worker->runs.count / 2);
        trimmed = true;
    }
    trimmed = client_service_trim(worker->clients, RUNS_KEPT) || trimmed;
    if (trimmed) {
        malloc_trim(0);
    }
}

/* Redis wants a password and Headgate has none: then it can run nothing on its own account. */
static void watch_for_password(struct worker *worker)
{
    static const char why[] = "Redis wants a password, and upstream_password is not set";
    bool locked = upstream_is_locked(worker->upstream);

    if (locked != worker_scripts_have_problem(&worker->scripts, why)) {
        worker_scripts_find_problem(&worker->scripts, locked ? why : NULL);
    }
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct worker *worker = context;

    (void)fd;
    (void)what;
    upstream_tick(worker->upstream);
    worker_cluster_tick(&worker->cluster);
    client_service_tick(worker->clients);
    watch_for_password(worker);
    server_info_tick(worker->server_info);
    if (++worker->ticks % TRIM_TICKS == 0) {
        trim_memory(worker);
    }
    stats_set(&worker->stats, STATS_BUFFER_BYTES_USED, worker->reactor.buffers.bytes_lent);
    stats_set(&worker->stats, STATS_BUFFER_BYTES_KEPT, worker->reactor.buffers.bytes_kept);
}

static void on_upstream_ready(void *context)
{
    struct worker *worker = context;

    worker_scripts_connected(&worker->scripts);
    server_info_again(worker->server_info);
}

static void on_upstream_lost(void *context, const char *why, uint64_t requests)
{
    struct worker *worker = context;

    client_service_upstream_lost(worker->clients, why, requests);
}

struct asking {
    struct message message;
    struct lookup *lookup; /* NULL: … */
    struct sentinel_watch *sentinels;
};

/* On the main thread. */
static void run_asking(struct message *message)
{
    struct asking *asking = (struct asking *)(void *)message;

    if (asking->sentinels != NULL) {
        sentinel_suspect(asking->sentinels);
    } else {
        lookup_soon(asking->lookup);
    }
    free(asking);
}

/* Where Redis is may have changed. If there is no memory to ask, it is looked up at the next interval. */
static void on_connecting(void *context)
{
    const struct worker *worker = context;
    struct asking *asking = malloc(sizeof *asking);

    if (asking != NULL) {
        *asking = (struct asking){
            .message.run = run_asking, .lookup = worker->parts.lookup, .sentinels = worker->parts.sentinels};
        mailbox_post(worker->parts.mailbox, &asking->message);
    }
}

static void on_upstream_refused(void *context, const struct lane *lane)
{
    struct worker *worker = context;

    client_service_refused(worker->clients, lane);
}

struct access_news {
    struct worker *worker;
    enum upstream_access access;
};

/* After a client's command all look again at once, so that those who are there are told, too. One look does for all. */
static void take_access(struct worker *worker, enum upstream_access access)
{
    if (access == UPSTREAM_ACCESS_CHANGED && worker->index == 0) {
        upstream_look_soon(worker->upstream);
    }
}

static void run_access(struct message *message)
{
    struct worker *worker = (struct worker *)(void *)((char *)message - offsetof(struct worker, access_message));

    atomic_store(&worker->access_is_posted, false);
    if (atomic_exchange(&worker->access_has_changed, false)) {
        upstream_set_access(worker->upstream, UPSTREAM_ACCESS_CHANGED);
        take_access(worker, UPSTREAM_ACCESS_CHANGED);
    }
    int found = atomic_exchange(&worker->access_found, ACCESS_UNKNOWN);
    if (found != ACCESS_UNKNOWN) {
        upstream_set_access(worker->upstream, (enum upstream_access)found);
    }
}

/* Takes no memory, as a worker that did not hear of it would go on letting in whom Redis would not. News that come
 * before the message was read are read with it: of what was found the last, behind the changes that call for a look. */
static void post_access(void *member, void *context)
{
    const struct access_news *news = context;
    struct worker *worker = member;

    if (worker == news->worker) {
        return;
    }
    if (news->access == UPSTREAM_ACCESS_CHANGED) {
        atomic_store(&worker->access_has_changed, true);
    } else {
        atomic_store(&worker->access_found, (int)news->access);
    }
    if (!atomic_exchange(&worker->access_is_posted, true)) {
        worker->access_message.run = run_access;
        worker_post(worker, &worker->access_message);
    }
}

/* A worker has found out what holds for all, and has taken it over itself. Whoever connects after a client was told of
 * its command's success is given to its worker behind this message. */
static void on_access(void *context, enum upstream_access access)
{
    struct worker *worker = context;
    struct access_news news = {.worker = worker, .access = access};

    workgroup_visit(worker->parts.group, post_access, &news);
    take_access(worker, access);
}

static void *worker_run(void *context)
{
    struct worker *worker = context;

    if (worker->is_of_several) {
        log_name_server(worker->server_name);
    }
    upstream_warm_up(worker->upstream);
    while (!worker->stopping && reactor_turn(&worker->reactor)) {
        if (client_service_relieve(worker->clients)) {
            reactor_settle(&worker->reactor);
        }
    }
    client_service_close_all(worker->clients, "shutting down");
    do {
        reactor_settle(&worker->reactor);
    } while (reactor_settle_stage(&worker->reactor, REACTOR_STAGE_HELD));
    return NULL;
}

/* Signals are the main thread's. */
static int start_thread(struct worker *worker)
{
    sigset_t all, before;
    char name[16];

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&worker->thread, NULL, worker_run, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == 0) {
        snprintf(name, sizeof name, "%.12s-%zu", worker->is_of_several ? worker->server_name : "worker",
                 worker->index % 100);
        pthread_setname_np(worker->thread, name);
    }
    return status;
}

/* ---- life ---- */

static void worker_free(struct worker *worker)
{
    /* With the lanes end the scripts that policies wait for, so that none ends after the policies. */
    if (worker->clients != NULL) {
        client_service_end_scripts(worker->clients);
        client_service_leave_admission(worker->clients);
    }
    worker_cluster_close(&worker->cluster);
    if (worker->upstream != NULL) {
        upstream_free(worker->upstream);
    }
    if (worker->clients != NULL) {
        client_service_free(worker->clients);
    }
    if (worker->server_info != NULL) {
        server_info_free(worker->server_info);
    }
    worker_scripts_close(&worker->scripts);
    if (worker->control != NULL) {
        control_free(worker->control);
    }
    run_pool_trim(&worker->runs, 0);
    reactor_free(&worker->reactor);
    free(worker);
}

/* Where Redis is as far as that is known at the start. */
static void place_upstream(struct worker *worker)
{
    const struct worker_parts *parts = &worker->parts;

    if (parts->sentinels != NULL) {
        const struct sentinel_master *master = sentinel_master(parts->sentinels);
        upstream_move(worker->upstream, &master->targets, master->host);
    } else {
        upstream_set_targets(worker->upstream, lookup_targets(parts->lookup));
    }
}

static bool build_parts(struct worker *worker, const struct conf *conf)
{
    struct upstream_settings upstream = upstream_settings(worker, conf);
    struct client_settings clients = worker_client_settings(conf);
    struct reactor *reactor = &worker->reactor;

    worker->upstream = upstream_new(reactor, &worker->runs, &upstream, on_upstream_ready, worker);
    worker->control = worker->upstream != NULL ? control_new(reactor, &worker->runs, worker->upstream) : NULL;
    worker->server_info = worker->control != NULL ? server_info_new(worker->control) : NULL;
    if (worker->upstream != NULL) {
        place_upstream(worker);
    }
    const struct worker_cluster_parts cluster = cluster_parts(worker);
    if (worker->server_info != NULL && !worker_cluster_open(&worker->cluster, &cluster, conf, &upstream)) {
        return false;
    }
    const struct client_parts parts = {
        .reactor = reactor,
        .runs = &worker->runs,
        .upstream = worker->upstream,
        .cluster = worker->cluster.ways,
        .replicas = worker->cluster.replicas,
        .control = worker->control,
        .server_info = worker->server_info,
        .policies = worker->parts.policies,
        .worker = worker->index,
        .host_name = conf->host_name,
        .server_name = conf->server_name,
        .admission = worker->parts.admission,
    };
    worker->clients = worker->server_info != NULL ? client_service_new(&parts, &clients, conf->rules) : NULL;
    if (worker->clients == NULL) {
        return false;
    }
    worker->cluster.clients = worker->clients;
    worker_scripts_open(&worker->scripts, worker->index, worker->server_info, conf);
    upstream_tell_losses(worker->upstream, on_upstream_lost, worker);
    upstream_tell_refusals(worker->upstream, on_upstream_refused, worker);
    upstream_tell_access(worker->upstream, on_access, worker);
    if (worker->cluster.ways == NULL && (worker->parts.sentinels != NULL || lookup_is_needed(worker->parts.lookup))) {
        upstream_tell_connecting(worker->upstream, on_connecting, worker);
    }
    return true;
}

static bool prepare_security(struct reactor *reactor, const struct conf *conf)
{
    bool asks = conf->tls_upstream != NULL;

    for (const struct conf_rule *rule = conf->rules; !asks && rule != NULL; rule = rule->next) {
        asks = rule->tls != NULL;
    }
    return (conf->tls_clients == NULL || connection_prepare_security(reactor, true)) &&
           (!asks || connection_prepare_security(reactor, false));
}

static bool build(struct worker *worker, const struct conf *conf)
{
    struct reactor *reactor = &worker->reactor;

    if (!reactor_init(reactor, &worker->stats)) {
        return false;
    }
    reactor->buffers.memory = worker->parts.memory;
    return prepare_security(reactor, conf) && build_parts(worker, conf);
}

struct worker *worker_start(size_t index, const struct conf *conf, const struct worker_parts *parts)
{
    const struct timeval tick = {.tv_sec = 0, .tv_usec = TICK_US};
    struct worker *worker = calloc(1, sizeof *worker);

    if (worker == NULL) {
        return NULL;
    }
    worker->index = index;
    atomic_init(&worker->access_found, ACCESS_UNKNOWN);
    worker->parts = *parts;
    worker->is_of_several = conf_server_count(conf->process) > 1;
    snprintf(worker->server_name, sizeof worker->server_name, "%s", conf_server_name(conf));
    if (!build(worker, conf)) {
        worker_free(worker);
        errno = ENOMEM;
        return NULL;
    }
    if (!mailbox_open(&worker->mailbox, &worker->reactor)) {
        int reason = errno;
        worker_free(worker);
        errno = reason;
        return NULL;
    }
    event_assign(&worker->tick, worker->reactor.base, -1, EV_PERSIST, on_tick, worker);
    int status = event_add(&worker->tick, &tick) == 0 ? start_thread(worker) : ENOMEM;
    if (status != 0) {
        mailbox_close(&worker->mailbox);
        worker_free(worker);
        errno = status;
        return NULL;
    }
    workgroup_join(parts->group, worker);
    return worker;
}

/* ---- messages ---- */

void worker_post(struct worker *worker, struct message *message)
{
    mailbox_post(&worker->mailbox, message);
}

struct plain_message {
    struct message message;
    struct worker *worker;
    uint64_t move; /* of a drain, or without one */
};

static void post_plain(struct worker *worker, void (*run)(struct message *message), uint64_t move)
{
    struct plain_message *message = malloc(sizeof *message);

    if (message == NULL) {
        /* Draining and stopping cannot be done without; there is nothing left to lose. */
        abort();
    }
    *message = (struct plain_message){.message.run = run, .worker = worker, .move = move};
    worker_post(worker, &message->message);
}

static void run_drain(struct message *message)
{
    struct plain_message *plain = (struct plain_message *)(void *)message;

    client_service_drain(plain->worker->clients, plain->move);
    free(plain);
}

void worker_drain(struct worker *worker, uint64_t move)
{
    post_plain(worker, run_drain, move);
}

static void run_offer_move(struct message *message)
{
    struct plain_message *plain = (struct plain_message *)(void *)message;

    client_service_offer_move(plain->worker->clients, plain->move);
    free(plain);
}

void worker_offer_move(struct worker *worker, uint64_t move)
{
    post_plain(worker, run_offer_move, move);
}

bool worker_is_settled(const struct worker *worker)
{
    return client_service_is_settled(worker->clients);
}

bool worker_waits_in_vain(const struct worker *worker)
{
    return client_service_waits_in_vain(worker->clients);
}

static void run_close_clients(struct message *message)
{
    struct plain_message *plain = (struct plain_message *)(void *)message;

    client_service_close_all(plain->worker->clients, "drain_timeout");
    free(plain);
}

void worker_close_clients(struct worker *worker)
{
    post_plain(worker, run_close_clients, 0);
}

static void run_stop(struct message *message)
{
    struct plain_message *plain = (struct plain_message *)(void *)message;

    plain->worker->stopping = true;
    free(plain);
}

void worker_stop(struct worker *worker)
{
    workgroup_leave(worker->parts.group, worker);
    post_plain(worker, run_stop, 0);
    pthread_join(worker->thread, NULL);
    event_del(&worker->tick);
    mailbox_close(&worker->mailbox);
    worker_free(worker);
}

struct client_message {
    struct message message;
    struct worker *worker;
    int fd;
    struct client_origin origin;
    uint64_t id;
};

static void run_client(struct message *message)
{
    struct client_message *given = (struct client_message *)(void *)message;

    if (!client_accept(given->worker->clients, given->fd, &given->origin, given->id)) {
        log_error("worker", "out of memory: a client could not be taken in");
    }
    free(given);
}

bool worker_give_client(struct worker *worker, int fd, const struct client_origin *origin, uint64_t id)
{
    struct client_message *given = malloc(sizeof *given);

    if (given == NULL) {
        close(fd);
        return false;
    }
    *given =
        (struct client_message){.message.run = run_client, .worker = worker, .fd = fd, .origin = *origin, .id = id};
    worker_post(worker, &given->message);
    return true;
}

struct conf_message {
    struct message message;
    struct worker *worker;
    const struct conf *conf;
    struct admission *admission; /* referenced */
    void (*done)(void *context);
    void *context;
};

static void run_reconfigure(struct message *message)
{
    struct conf_message *order = (struct conf_message *)(void *)message;
    struct upstream_settings upstream = upstream_settings(order->worker, order->conf);
    struct client_settings clients = worker_client_settings(order->conf);

    upstream_reconfigure(order->worker->upstream, &upstream);
    worker_cluster_reconfigure(&order->worker->cluster, order->conf, &upstream);
    client_service_reconfigure(order->worker->clients, &clients, order->conf->rules, order->admission);
    admission_release(order->admission);
    worker_scripts_reconfigure(&order->worker->scripts, order->conf);
    order->done(order->context);
    free(order);
}

void worker_reconfigure(struct worker *worker, const struct conf *conf, struct admission *admission,
                        void (*done)(void *context), void *context)
{
    struct conf_message *order = malloc(sizeof *order);

    if (order == NULL) {
        abort();
    }
    *order = (struct conf_message){
        .message.run = run_reconfigure,
        .worker = worker,
        .conf = conf,
        .admission = admission_reference(admission),
        .done = done,
        .context = context,
    };
    worker_post(worker, &order->message);
}

struct targets_message {
    struct message message;
    struct worker *worker;
    struct connection_targets targets;
    bool is_move; /* upstream_move(), by that name */
    char host[];
};

static void run_targets(struct message *message)
{
    struct targets_message *order = (struct targets_message *)(void *)message;

    if (order->is_move) {
        upstream_move(order->worker->upstream, &order->targets, order->host);
    } else {
        upstream_set_targets(order->worker->upstream, &order->targets);
    }
    free(order);
}

static void post_targets(struct worker *worker, const struct connection_targets *targets, bool is_move,
                         const char *host)
{
    struct targets_message *order = malloc(sizeof *order + strlen(host) + 1);

    if (order == NULL) {
        abort();
    }
    *order =
        (struct targets_message){.message.run = run_targets, .worker = worker, .targets = *targets, .is_move = is_move};
    strcpy(order->host, host);
    worker_post(worker, &order->message);
}

void worker_set_targets(struct worker *worker, const struct connection_targets *targets)
{
    post_targets(worker, targets, false, "");
}

void worker_move(struct worker *worker, const struct connection_targets *targets, const char *host)
{
    post_targets(worker, targets, true, host);
}

struct worker_cluster *worker_nodes(struct worker *worker)
{
    return &worker->cluster;
}

/* ---- telling ---- */

const struct stats *worker_stats(const struct worker *worker)
{
    return &worker->stats;
}

uint64_t worker_policy_counter(const struct worker *worker, size_t policy, size_t counter)
{
    return client_service_policy_counter(worker->clients, policy, counter);
}

size_t worker_index(const struct worker *worker)
{
    return worker->index;
}

struct client_service *worker_clients(struct worker *worker)
{
    return worker->clients;
}

void worker_visit_lanes(struct worker *worker, void (*visit)(void *context, struct lane *lane), void *context)
{
    upstream_visit_lanes(worker->upstream, visit, context);
    worker_cluster_visit_lanes(&worker->cluster, visit, context);
}

struct worker_facts worker_tell(const struct worker *worker)
{
    return (struct worker_facts){
        .redis_version = server_info_redis_version(worker->server_info),
        .clock_offset_us = server_info_clock_offset_us(worker->server_info),
    };
}
