/*
 * Requests that only read, and may be answered by a replica: reads = prefer-replica, or replica.
 *
 * A client's requests under way are on one lane, as anywhere else: to the master, or to the one replica that the client
 * reads from for as long as it is fit. Before it goes to the other one it waits until all are answered. So nothing
 * overtakes, and no read sees what its client wrote after it. For some time after a write (read_own_writes) the client
 * reads from the master.
 *
 * A policy may say of requests who answers them. All that is under way at a replica may be answered by the same: what
 * may go to the master, too, waits for what may not, and the other way round.
 *
 * What only reads may be sent twice: requests on a replica's lane that breaks, or whose replica says that it cannot
 * serve, go to another one, or to the master.
 */
#include "client/client_cluster_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- commands ---- */

/* Their cursors are of one node, and what they do is meant for the master's memory. */
static bool is_of_one_node(const struct command *command)
{
    static const char *const names[] = {"hscan", "sscan", "zscan", "touch"};
    bool is = false;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        is = is || strcmp(command->name, names[i]) == 0;
    }
    return is;
}

static bool has_keys(const struct command *command)
{
    return command->keys != COMMAND_KEYS_RANGE || command->first_key > 0;
}

static bool may_write(const struct command *command)
{
    switch (command->kind) {
    case COMMAND_EXEC:
    case COMMAND_REPLICATION:
    case COMMAND_ALONE:
    case COMMAND_EVAL:
    case COMMAND_SCRIPT:
        return true;
    default:
        return (command->categories & (CATEGORY_WRITE | CATEGORY_SCRIPTING)) != 0;
    }
}

static enum client_reading reading_of(const struct command *command)
{
    if (may_write(command)) {
        return CLIENT_READING_NONE;
    }
    bool is_anywhere = command->kind == COMMAND_ORDINARY && (command->categories & CATEGORY_READ) != 0 &&
                       (command->categories & CATEGORY_BLOCKING) == 0 && has_keys(command) && !is_of_one_node(command);
    return is_anywhere ? CLIENT_READING_ANYWHERE : CLIENT_READING_HARMLESS;
}

uint8_t *client_readings(void)
{
    uint8_t *readings = calloc(command_count(), sizeof *readings);

    for (size_t i = 0; readings != NULL && i < command_count(); i++) {
        readings[i] = (uint8_t)reading_of(command_at(i));
    }
    return readings;
}

static enum client_reading find_reading(const struct client *client, const struct command *command)
{
    bool is_known = command != NULL && command_index(command) < command_count();

    return is_known ? (enum client_reading)client->service->readings[command_index(command)] : CLIENT_READING_NONE;
}

void client_reads_reconfigure(struct client_service *service)
{
    service->reads = service->readings != NULL && service->settings.reads_replicas;
    service->looks_further = service->cluster != NULL || service->reads;
}

/* ---- where to ---- */

/* What it has written may not have come to the replicas. */
static bool wants_own_writes(const struct client *client)
{
    int64_t window_us = clock_ms_to_us(client->service->settings.read_own_writes);

    return client->wrote ||
           (client->wrote_us != 0 && reactor_now(client->service->reactor) - client->wrote_us < window_us);
}

enum conf_reads client_reads_by(struct client *client, const struct request *request, enum client_reading reading)
{
    enum conf_reads reads = client->service->settings.reads;

    if (reading != CLIENT_READING_ANYWHERE) {
        return CONF_READS_MASTER;
    }
    if (request->interest->routers != 0) {
        struct policy_client view = client_policy_view(client);
        struct policy_request asked = client_describe(client, &view, request);
        (void)chain_route_reads(client->service->chain, &asked, &reads);
    }
    return reads;
}

/* The profile at whose lanes a read is answered: that of a replica, the client's own, or that of nowhere. NULL when
 * memory is short. */
static struct profile *profile_for_reading(struct client *client, enum conf_reads by)
{
    const struct client_service *service = client->service;
    struct replica_ways *ways = service->replicas;
    struct replica_way *way = replica_way_choose(ways, client->reads_at, client->profile, client->id);

    if (way == NULL && by != CONF_READS_REPLICA) {
        return client->profile;
    }
    client->reads_at = way != NULL ? way->number : client->reads_at;
    return replica_way_profile(way != NULL ? way : ways->ways[0], client->profile);
}

/* The lane for a request that may be answered so. NULL when memory is short. */
static struct lane *find_lane(struct client *client, enum conf_reads by)
{
    bool is_master = by == CONF_READS_MASTER || wants_own_writes(client);
    struct profile *profile = is_master ? client->profile : profile_for_reading(client, by);

    return profile != NULL ? upstream_shared_lane(profile) : NULL;
}

static void count(const struct client *client, const struct lane *lane)
{
    struct replica_way *way = client->service->replicas->ways[client->reads_at];

    if (way != NULL && way->number > 0 && lane_profile(lane)->upstream == way->upstream) {
        way->reads++;
        stats_add(client->service->reactor->stats, STATS_READS_REPLICA, 1);
    }
}

bool client_reads_lane(struct client *client, const struct session_route *route, struct lane **lane)
{
    *lane = find_lane(client, route->reads ? route->reads_by : CONF_READS_MASTER);
    if (*lane == NULL) {
        return client_out_of_memory(client);
    }
    if ((client->lane_in_use != NULL && client->lane_in_use != *lane) ||
        client_reads_mixes(client, *lane, route->reads_by)) {
        return client_wait_for(client, CLIENT_WAIT_QUIET);
    }
    if (lane_is_congested(*lane)) {
        return client_wait_for_lane(client, *lane);
    }
    client->reads_by = route->reads_by;
    count(client, *lane);
    return true;
}

void client_reads_route(struct client *client, const struct command *command, const struct request *request,
                        struct session_route *route)
{
    enum client_reading reading = find_reading(client, command);
    bool is_translated = request->interest->translator != 0;

    route->reads_by = is_translated || route->answer != SESSION_FORWARD ? CONF_READS_MASTER
                                                                        : client_reads_by(client, request, reading);
    route->reads = route->reads_by != CONF_READS_MASTER;
    route->harmless = reading != CLIENT_READING_NONE && !is_translated;
    client_reads_note(client, route);
}

/* ---- before a cluster ---- */

struct lane *client_reads_lane_at(struct client *client, const struct cluster_way *way, enum conf_reads by)
{
    struct replica_ways *replicas = way != NULL ? way->replicas : NULL;
    struct profile *master = replicas != NULL && !wants_own_writes(client) ? client_profile_at(client, way) : NULL;

    if (master == NULL) {
        return NULL;
    }
    struct replica_way *at = replica_way_choose(replicas, 0, master, client->id);
    if (at == NULL && by == CONF_READS_PREFER_REPLICA) {
        return NULL;
    }
    struct profile *profile = replica_way_profile(at != NULL ? at : replicas->ways[0], master);
    return profile != NULL ? upstream_shared_lane(profile) : NULL;
}

void client_reads_count_at(const struct client *client, const struct cluster_way *way, const struct lane *lane)
{
    struct replica_way *at = lane->settings->gives_back && way != NULL && way->replicas != NULL
                                 ? replica_way_by_upstream(way->replicas, lane_profile(lane)->upstream)
                                 : NULL;

    if (at != NULL && at->number > 0) {
        at->reads++;
        stats_add(client->service->reactor->stats, STATS_READS_REPLICA, 1);
    }
}

struct lane *client_reads_again_at(struct client *client, const struct cluster_way *way, struct slice request)
{
    const struct client_service *service = client->service;
    bool is_replicas = service->reads && client->at_replicas && client->reads_by == CONF_READS_REPLICA &&
                       find_reading(client, client_command_of(service, request)) == CLIENT_READING_ANYWHERE;

    struct lane *lane = is_replicas ? client_reads_lane_at(client, way, CONF_READS_REPLICA) : NULL;
    if (lane != NULL) {
        client_reads_count_at(client, way, lane);
    }
    return lane;
}

/* ---- the short way ---- */

bool client_reads_take(struct client *client, const struct request *request)
{
    enum client_reading reading = find_reading(client, request->command);
    const struct session *session = &client->session;
    bool is_short = request->interest->wanted == 0 && client->exclusive == NULL && !session->sent_transaction &&
                    !session->passthrough && !session->unproven && !session->unsure && !client_needs_exclusive(client);
    enum conf_reads by = is_short ? client_reads_by(client, request, reading) : CONF_READS_MASTER;
    struct lane *lane = is_short ? find_lane(client, by) : NULL;

    if (lane == NULL || (client->lane_in_use != NULL && client->lane_in_use != lane) ||
        client_reads_mixes(client, lane, by) || lane_is_congested(lane) ||
        !upstream_may_wait(client->service->upstream, lane)) {
        return false;
    }
    client->wrote = client->wrote || reading == CLIENT_READING_NONE;
    client->reads_by = by;
    count(client, lane);
    (void)client_send_short(client, lane, request);
    return true;
}

/* ---- what comes of them ---- */

void client_reads_answered(struct client *client)
{
    if (client->wrote) {
        client->wrote_us = reactor_now(client->service->reactor);
        client->wrote = client->sent_runs > 1;
    }
}

static void on_answered(struct run *run)
{
    client_reads_answered(run->owner);
    client_run_answered(run);
}

static void on_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct client *client = run->owner;

    client->wrote = client->wrote && client->sent_runs > 1;
    client_run_lost(run, loss, why);
}

/* Redis says so itself, before it looks at the request: nothing of what it serves can be made up of that. */
static bool on_redirected(struct run *run, struct slice error, struct slice request)
{
    bool cannot_serve = slice_begins(error, "-LOADING ") || slice_begins(error, "-MASTERDOWN ");

    (void)request;
    if (cannot_serve) {
        lane_fail(run->lane, "the replica says that it cannot serve");
    }
    return cannot_serve;
}

/* It is moved for as long as a request waits for Redis, from the first time on; run->part says how often it was. */
static bool is_too_late(const struct client *client, const struct run *run)
{
    int64_t patience_us = clock_ms_to_us(client->service->settings.upstream_wait);

    return run->part > 0 && reactor_now(client->service->reactor) - run->queued_us >= patience_us;
}

/* False when memory is short. */
static bool send_again(struct client *client, struct run *run, struct slice requests)
{
    struct profile *profile = profile_for_reading(client, client->reads_by);
    struct lane *lane = profile != NULL ? upstream_shared_lane(profile) : NULL;
    int64_t queued_us = run->queued_us;

    if (lane != NULL && lane->giving_back) {
        /* That one is about to be closed. */
        on_lost(run, RUN_UNSENT, "no replica is fit to be read from");
        return true;
    }
    if (lane == NULL || !lane_send(lane, run, requests.data, requests.length)) {
        return false;
    }
    if (run->part++ > 0) {
        run->queued_us = queued_us;
    }
    client->lane_in_use = lane;
    client->last_lane_id = lane->id;
    count(client, lane);
    return true;
}

/* The replica is gone, or there is one at last: the requests go where new ones would go. */
static void on_returned(struct run *run, struct slice requests)
{
    struct client *client = run->owner;

    if (is_too_late(client, run)) {
        on_lost(run, RUN_UNSENT, "no replica has answered in time");
        return;
    }
    client->in_flight -= run->answered;
    run->requests -= run->answered;
    run->answered = 0;
    stats_add(client->service->reactor->stats, STATS_READS_MOVED, run->requests);
    if (!send_again(client, run, requests)) {
        client_out_of_memory(client);
    }
}

const struct run_receiver client_reads_receiver = {
    .bytes = client_run_bytes,
    .reply = client_run_reply,
    .tally = client_run_tally,
    .measured = client_run_measured,
    .answered = on_answered,
    .lost = on_lost,
    .redirected = on_redirected,
    .returned = on_returned,
};
