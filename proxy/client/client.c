/* All clients of a worker: accepting, time-outs, reports. */
#include "client/client_cluster_private.h"
#include "client/client_host_private.h"

#include "base/log.h"
#include "net/peer_process.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A client that is being closed but does not take its last replies, or goes on sending, is given up after this. */
#define ENDING_PATIENCE_US ((int64_t)10 * 1000000)

/* For so long, requests of a client whose connection was reset are carried out. */
#define DEAF_PATIENCE_US ((int64_t)2 * 1000000)

/* ---- the list of clients ---- */

static void list_add(struct client_service *service, struct client *client)
{
    LIST_INSERT_HEAD(&service->clients, client, of_service);
    service->count++;
    stats_set(service->reactor->stats, STATS_CLIENTS_CONNECTED, service->count);
}

/* ---- closing ---- */

void client_service_refused(struct client_service *service, const struct lane *lane)
{
    struct client *client = LIST_FIRST(&service->clients);

    while (client != NULL) {
        struct client *next = LIST_NEXT(client, of_service);
        bool shares = client->exclusive == NULL && client->profile == lane_profile(lane);
        if (shares && client->state == CLIENT_OPEN) {
            client_close_refused(client);
        }
        client = next;
    }
}

static void free_closed(struct reactor_task *task)
{
    struct client_service *service =
        (struct client_service *)(void *)((char *)task - offsetof(struct client_service, free_closed));

    while (!LIST_EMPTY(&service->closed)) {
        struct client *client = LIST_FIRST(&service->closed);
        LIST_REMOVE(client, of_service);
        profile_release(client->profile);
        client_forget_channels(client);
        client_subscriber_free(client);
        client_forget_deferred(client);
        client_asked_forget(client);
        (void)client_keep_text(client, &client->name, (struct slice){0});
        (void)client_keep_text(client, &client->library_name, (struct slice){0});
        (void)client_keep_text(client, &client->library_version, (struct slice){0});
        free(client->peer);
        free(client->unix_peer);
        free(client);
    }
}

/* ---- events ---- */

static void client_writable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    client_want_flush(context);
}

static void hold_expired(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    client_end_hold(context);
}

static void lane_takes_bytes(struct lane_waiter *waiter)
{
    struct client *client = (struct client *)(void *)((char *)waiter - offsetof(struct client, lane_waiter));

    if (client_wait_is_over(client, CLIENT_WAIT_LANE)) {
        client_want_flush(client);
    }
}

/* ---- accepting ---- */

bool client_accept(struct client_service *service, int fd, const struct client_origin *origin, uint64_t id)
{
    struct client *client = calloc(1, sizeof *client);

    stats_add(service->reactor->stats, STATS_CLIENTS_ACCEPTED, 1);
    if (client == NULL) {
        close(fd);
        return false;
    }
    client->service = service;
    client->id = id;
    client->flush.run = service->cluster != NULL ? client_late_task : client_flush_task;
    STAILQ_INIT(&client->unwritten);
    client->lane_waiter.wake = lane_takes_bytes;
    client->address = origin->address;
    client->is_proxied = origin->is_proxied;
    client->listener = (uint32_t)origin->listener;
    client->connected_us = reactor_now(service->reactor);
    client->accepted_us = clock_now_us();
    client->active_us = client->connected_us;
    connection_peer_text(&client->address, client->address_text, sizeof client->address_text);
    connection_open(&client->connection, service->reactor, fd, client_readable, client_writable, client);
    evtimer_assign(&client->hold_timer, service->reactor->base, hold_expired, client);
    list_add(service, client);
    client_find_identity(client);
    client->profile = client_arrival_profile(client);
    profile_join(client->profile);
    client_tell_identity(client);
    client_update_reading(client);
    return !origin->tls || client_begin_tls(client);
}

/* ---- the service ---- */

/* What is asked of the chain often, and changes with its rules only. */
static void follow_chain(struct client_service *service)
{
    service->reactor->measures = chain_measures(service->chain);
    service->host.listens = chain_listens(service->chain);
}

struct client_service *client_service_new(const struct client_parts *parts, const struct client_settings *settings,
                                          const struct conf_rule *rules)
{
    struct client_service *service = calloc(1, sizeof *service);

    if (service == NULL) {
        return NULL;
    }
    service->reactor = parts->reactor;
    service->runs = parts->runs;
    service->upstream = parts->upstream;
    service->cluster = parts->cluster;
    service->replicas = parts->replicas;
    bool is_cluster = parts->cluster != NULL;
    service->readings = parts->replicas != NULL || is_cluster ? client_readings() : NULL;
    service->receiver = is_cluster                ? &client_cluster_receiver
                        : parts->replicas != NULL ? &client_reads_receiver
                                                  : &client_run_receiver;
    service->control = parts->control;
    service->server_info = parts->server_info;
    service->short_ways = parts->cluster != NULL ? client_cluster_short_ways() : NULL;
    service->settings = *settings;
    client_reads_reconfigure(service);
    service->free_closed.run = free_closed;
    client_service_admit(service, parts->admission);
    service->host = client_policy_host(service, parts->worker);
    client_name_host(service, parts->host_name);
    snprintf(service->server_name, sizeof service->server_name, "%s",
             parts->server_name != NULL ? parts->server_name : "");
    service->chain = chain_new(parts->policies, rules, parts->reactor->stats, &service->host);
    if (service->chain == NULL) {
        client_servers_free(service);
        client_service_leave_admission(service);
        free(service->short_ways);
        free(service->readings);
        free(service);
        return NULL;
    }
    service->interests = chain_interest(service->chain, command_at(0));
    service->attention = chain_attention(service->chain);
    service->until_spot = POLICY_SPOT_INTERVAL;
    service->spot_chance = (uint32_t)clock_now_us() | 1;
    follow_chain(service);
    return service;
}

void client_service_free(struct client_service *service)
{
    assert(LIST_EMPTY(&service->clients));
    reactor_cancel(service->reactor, REACTOR_STAGE_FREE, &service->free_closed);
    free_closed(&service->free_closed);
    expected_reply_trim(service);
    chain_free(service->chain);
    client_servers_free(service);
    client_admin_queries_end(service);
    peer_finder_free(service->peer_finder);
    spans_pool_trim(&service->spans, 0);
    free(service->short_ways);
    free(service->readings);
    free(service);
}

bool client_service_trim(struct client_service *service, size_t kept)
{
    size_t count = service->spans.count;

    if (count <= kept) {
        return false;
    }
    spans_pool_trim(&service->spans, count / 2);
    return true;
}

void client_service_reconfigure(struct client_service *service, const struct client_settings *settings,
                                const struct conf_rule *rules, struct admission *admission)
{
    bool session_pool = service->settings.session_pool;

    service->settings = *settings;
    service->settings.session_pool = session_pool;
    client_reads_reconfigure(service);
    client_servers_reconfigure(service);
    if (!chain_reload(service->chain, rules)) {
        log_error("client", "out of memory: some rules stay as they were before the reload");
    }
    follow_chain(service);
    client_service_admit(service, admission);
    for (struct client *client = LIST_FIRST(&service->clients); client != NULL;
         client = LIST_NEXT(client, of_service)) {
        client_tell_identity(client);
    }
}

void client_service_update_gauges(struct client_service *service)
{
    chain_update_gauges(service->chain);
    client_servers_update_counters(service);
}

bool client_service_tell_durations(struct client_service *service, uint32_t *at, policy_durations_told *told,
                                   void *context)
{
    return chain_tell_durations(service->chain, at, told, context);
}

uint64_t client_service_policy_counter(const struct client_service *service, size_t policy, size_t counter)
{
    return chain_counter(service->chain, policy, counter);
}

struct chain *client_service_chain(struct client_service *service)
{
    return service->chain;
}

size_t client_count(const struct client_service *service)
{
    return service->count;
}

/* ---- time ---- */

/* Redis does not count blocked clients, subscribers and the like as idle; a held one waits for its reply, too. */
static bool is_idle(const struct client *client, int64_t now)
{
    int64_t limit = clock_ms_to_us(client->service->settings.idle_timeout);
    const struct session *session = &client->session;
    bool listens = session->channels > 0 || session->patterns > 0 || session->shard_channels > 0 ||
                   session->passthrough || client_is_subscriber(client);
    /* In the loop iteration in which the wait ended, the request is taken only after the events. */
    bool waits = client->first != NULL || client->wait != CLIENT_WAIT_NOTHING || client->flush.queued;

    return limit > 0 && !waits && !listens && now - client->active_us >= limit;
}

/* Whether it is to get its last replies, and has taken nothing of them for too long. */
static bool takes_nothing(const struct client *client, int64_t now)
{
    bool is_due = (client->first == NULL && !client->session.blocking_unseen) || buffer_length(&client->output) > 0;

    return client->state == CLIENT_ENDING && is_due && now - client->active_us > ENDING_PATIENCE_US &&
           now - client->wait_since_us > ENDING_PATIENCE_US;
}

/* What comes behind a request that would have begun a passthrough may have been meant for that. */
static void give_up_waiting(struct client *client, const struct lane *lane)
{
    if (!client->command_whole) {
        client_give_up_stream(client);
        return;
    }
    client_answer_unreachable(client, lane);
    client_finish_presuming(client);
}

static void check_times(struct client *client, int64_t now)
{
    int64_t patience = clock_ms_to_us(client->service->settings.upstream_wait);
    struct lane *awaited = client->wait == CLIENT_WAIT_LANE ? client->lane_waiter.lane : NULL;
    bool is_own = awaited != NULL && awaited == client->exclusive;
    /* Who waits for what is behind others on it goes with these. */
    bool waits_for_connection = is_own && awaited->state != LANE_READY && awaited->state != LANE_HANDSHAKE &&
                                !awaited->awaits_quiet && (!client->command_whole || awaited->first == NULL);

    if (client->deaf && now - client->deaf_us > DEAF_PATIENCE_US) {
        client_close(client, "its connection was reset");
    } else if (takes_nothing(client, now)) {
        client_close(client, "did not take its last replies");
    } else if (client->state == CLIENT_OPEN && waits_for_connection && now - client->wait_since_us >= patience) {
        give_up_waiting(client, awaited);
    } else if (awaited != NULL && !is_own && awaited->state == LANE_BACKOFF && !lane_is_congested(awaited)) {
        lane_waiter_cancel(&client->lane_waiter);
        lane_takes_bytes(&client->lane_waiter);
    } else if (client->state == CLIENT_OPEN && is_idle(client, now)) {
        client_log(client, LOG_LEVEL_INFO, "closing client %s: idle for client_idle_timeout", client->address_text);
        stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_IDLE, 1);
        client_close(client, "idle");
    }
}

void client_service_tick(struct client_service *service)
{
    int64_t now = reactor_now(service->reactor);
    struct client_unread unread = {.count = 0};
    struct client *client = LIST_FIRST(&service->clients);

    if (service->draining && chain_drain(service->chain, service->count)) {
        atomic_store_explicit(&service->settled, service->count == 0, memory_order_relaxed);
    }
    chain_tick(service->chain, now);
    client_servers_tick(service, now);
    if (service->has_moves) {
        client_service_move(service);
    }
    client_admin_queries_tick(service, now);
    service->offers_left = client_offers_at_once(service);
    while (client != NULL) {
        struct client *next = LIST_NEXT(client, of_service);
        check_times(client, now);
        if (service->draining && client->state == CLIENT_OPEN) {
            client_drain(client, now);
        } else if (service->move != 0 && client->state == CLIENT_OPEN) {
            client_offer_move(client, now);
        }
        if (client_has_beginning_to_refuse(client)) {
            client_resume(client);
        }
        client_login_tick(client, now);
        session_review_id(client, now);
        session_review_weight(client);
        client_watch_unread(&unread, client);
        client = next;
    }
    client_find_hangups(&unread);
}

void client_service_drain(struct client_service *service, uint64_t move)
{
    if (!service->draining) {
        service->draining = true;
        service->draining_since_us = reactor_now(service->reactor);
    }
    service->move = move;
    client_service_tick(service);
}

void client_service_offer_move(struct client_service *service, uint64_t move)
{
    service->move = move;
}

bool client_service_is_settled(const struct client_service *service)
{
    return atomic_load_explicit(&service->settled, memory_order_relaxed);
}

bool client_service_waits_in_vain(const struct client_service *service)
{
    return !client_service_is_settled(service) &&
           atomic_load_explicit(&service->server_unreached, memory_order_relaxed);
}

void client_service_close_all(struct client_service *service, const char *why)
{
    while (!LIST_EMPTY(&service->clients)) {
        client_close(LIST_FIRST(&service->clients), why);
    }
}

/* ---- reports ---- */

static struct client_report report_on(const struct client *client, int64_t now)
{
    return (struct client_report){
        .id = client->id,
        .address = client->address_text,
        .peer_address = &client->address,
        .name = client->name != NULL ? client->name : "",
        .user = profile_user(client->profile),
        .identity = client_identity_name(client),
        .database = client->profile->database,
        .resp = client->profile->resp,
        .age_us = now - client->connected_us,
        .idle_us = now - client->active_us,
        .lane = session_reason(client),
        .in_flight = client->in_flight,
        .input_bytes = buffer_length(&client->input),
        .output_bytes = buffer_length(&client->output) + client_subscriber_kept(client),
    };
}

/* New clients are put in front and ids grow, so the list is in falling order of ids: "after" counts downwards. */
static struct client *first_below(struct client_service *service, uint64_t after)
{
    struct client *client = LIST_FIRST(&service->clients);

    while (client != NULL && after != 0 && client->id >= after) {
        client = LIST_NEXT(client, of_service);
    }
    return client;
}

uint64_t client_visit(struct client_service *service, uint64_t after, size_t count,
                      void (*visit)(void *context, const struct client_report *report), void *context)
{
    int64_t now = reactor_now(service->reactor);
    const struct client *client = first_below(service, after);
    uint64_t last = 0;

    for (; client != NULL && count > 0; client = LIST_NEXT(client, of_service), count--) {
        struct client_report report = report_on(client, now);
        visit(context, &report);
        last = client->id;
    }
    return client != NULL ? last : 0;
}

uint64_t client_kill(struct client_service *service, uint64_t after, size_t count,
                     bool (*chooses)(void *context, const struct client_report *report), void *context)
{
    int64_t now = reactor_now(service->reactor);
    struct client *client = first_below(service, after), *next;
    uint64_t last = 0;

    for (; client != NULL && count > 0; client = next, count--) {
        struct client_report report = report_on(client, now);
        next = LIST_NEXT(client, of_service);
        last = client->id;
        if (chooses(context, &report)) {
            stats_add(service->reactor->stats, STATS_CLIENTS_KILLED, 1);
            client_close(client, "killed by an operator");
        }
    }
    return client != NULL ? last : 0;
}
