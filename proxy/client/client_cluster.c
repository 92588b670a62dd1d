/*
 * Which node of a cluster a request goes to: the owner of the slot of its keys; the home upstream, which is at some
 * node, if there are none, or if nobody is known to have the slot, as that node then says where it is.
 *
 * A client may have requests under way at several nodes. Those of one slot never are on two lanes: whenever anything
 * has changed that could make it so (cluster_ways.changes), a client's next request waits until all are answered.
 */
#include "client/client_cluster_private.h"
#include "client/client_moves_private.h"

#include "topology/cluster_split.h"

#include <stdio.h>
#include <stdlib.h>

/* So far apart are the slots of two clients that come one after the other, for their scripts without keys, and those
 * that are tried for one. */
#define SLOTS_APART 4093
#define SLOTS_TRIED 16

/* ---- where to ---- */

static void refuse(struct client *client, struct session_route *route, const char *text)
{
    session_drop_route(client, route);
    /* Within MULTI Redis would miss it: it is sent another in its place. */
    route->answer = client->session.sent_transaction ? SESSION_REFUSE : SESSION_ANSWER_HERE;
    snprintf(route->text, sizeof route->text, "%s", text);
}

/* Or for the first map: all are looked at again then. */
static void wait_for_quiet(struct client *client, struct session_route *route)
{
    session_drop_route(client, route);
    route->answer = SESSION_LATER;
}

/* The client's exclusive lane is at another node than the keys. */
static void change_node(struct client *client, struct session_route *route)
{
    if (client->sent_runs > 0) {
        wait_for_quiet(client, route);
    } else if ((client->session.sent_transaction && !client->session.deferred) || !session_may_leave_node(client)) {
        refuse(client, route, CLUSTER_CROSSSLOT);
    } else {
        session_leave_node(client);
    }
}

/* Nobody knows yet where its keys are: it is answered here, and said where they are. */
static void defer_transaction(struct client *client, struct session_route *route)
{
    session_drop_route(client, route);
    client_forget_deferred(client);
    route->answer = SESSION_ANSWER_HERE;
    snprintf(route->text, sizeof route->text, "+OK\r\n");
    client->session.sent_transaction = true;
    client->session.known_transaction = true;
    client->session.deferred = true;
    client->session.spoiled = false;
}

static bool is_beginning(const struct client *client, const struct command *command, const struct session_route *route)
{
    return command != NULL && command->kind == COMMAND_MULTI && route->begins_transaction &&
           !client->session.sent_transaction;
}

static bool ends_watch(const struct client *client, const struct command *command)
{
    return command != NULL && command->kind == COMMAND_UNWATCH && client->exclusive != NULL &&
           !client->session.sent_transaction;
}

static void go(struct client *client, struct session_route *route, const struct cluster_way *way)
{
    if (client->exclusive != NULL && way != client->exclusive_way) {
        change_node(client, route);
    }
    route->way = way;
}

/* It goes to the node of that slot. */
static void go_to_slot(struct client *client, struct session_route *route, uint16_t slot)
{
    const struct cluster_ways *ways = client->service->cluster;

    if (cluster_ways_wait(ways)) {
        wait_for_quiet(client, route);
        return;
    }
    go(client, route, cluster_way_of(ways, slot));
}

/* Any node will do, unless it is part of a transaction that is at none yet: a key may follow. */
static void go_anywhere(struct client *client, const struct command *command, const struct request *request,
                        struct session_route *route)
{
    if (command != NULL && client_defer_request(client, command, request, route)) {
        session_drop_route(client, route);
        route->answer = SESSION_ANSWER_HERE;
        snprintf(route->text, sizeof route->text, "+QUEUED\r\n");
    }
}

/* The client's own one, or the next of some whose owner can be reached, as far as is known. */
static uint16_t slot_for_scripts(const struct client *client)
{
    const struct cluster_ways *ways = client->service->cluster;
    uint64_t slot = client->id * SLOTS_APART;
    bool is_out_of_reach = true;

    for (int tries = 0; tries < SLOTS_TRIED && is_out_of_reach; tries++) {
        slot += SLOTS_APART;
        const struct cluster_way *way = cluster_way_of(ways, (uint16_t)(slot % CLUSTER_SLOTS));
        is_out_of_reach = way != NULL && upstream_is_out_of_reach(way->upstream);
    }
    return (uint16_t)(slot % CLUSTER_SLOTS);
}

/* Any node will do for a script without keys, too; but what it writes WAIT is about, and home may be at another node by
 * then. So it goes to the owner of a slot. */
static void go_by_client(struct client *client, const struct command *command, const struct request *request,
                         struct session_route *route)
{
    bool is_free = client->exclusive == NULL || session_may_leave_node(client);
    bool is_script = command != NULL && command->kind == COMMAND_EVAL;

    if (is_script && is_free && route->way == NULL && !client->session.sent_transaction) {
        go_to_slot(client, route, slot_for_scripts(client));
    } else {
        go_anywhere(client, command, request, route);
    }
}

/* False: Redis is asked, or what is under way has to be answered first. */
static bool find_keys(struct client *client, const struct command *command, const struct request *request,
                      struct session_route *route, struct client_keys *keys)
{
    bool is_asked = command != NULL && command->keys == COMMAND_KEYS_ASKED;

    if (is_asked && !client_asked_keys(client, request, route)) {
        return false;
    }
    if (is_asked && client->asked != CLIENT_ASKED_UNSAID) {
        *keys = (struct client_keys){.has_key = client->asked != CLIENT_ASKED_NO_KEY,
                                     .is_split = client->asked == CLIENT_ASKED_SPLIT,
                                     .slot = client->asked_place};
    } else {
        *keys = client_keys_of(command, request->sent);
    }
    return true;
}

/* To the node of its keys. What a policy says in its place is another command, with its keys elsewhere. */
static void go_by_keys(struct client *client, const struct command *command, const struct request *request,
                       struct session_route *route)
{
    bool is_translated = request->interest->translator != 0;
    const struct command *said = is_translated ? client_command_of(client->service, request->sent) : command;
    struct client_keys keys;
    bool may_split = client->service->settings.splits && !client->session.sent_transaction;

    if (!find_keys(client, said, request, route, &keys)) {
        return;
    }
    if (keys.is_split && may_split && cluster_split_can(command)) {
        route->splits = true;
    } else if (keys.is_split) {
        refuse(client, route, CLUSTER_CROSSSLOT);
    } else if (keys.has_key) {
        go_to_slot(client, route, keys.slot);
    } else {
        go_by_client(client, command, request, route);
    }
}

/* Any slot of the only master; CLUSTER_NOBODY: there are several, or none is known. */
static int32_t slot_of_only_master(const struct cluster_map *map)
{
    int32_t slot = 0;

    if (map == NULL || map->master_count != 1) {
        return CLUSTER_NOBODY;
    }
    while (slot < CLUSTER_SLOTS && map->owner[slot] == CLUSTER_NOBODY) {
        slot++;
    }
    return slot < CLUSTER_SLOTS ? slot : CLUSTER_NOBODY;
}

/* What is for several nodes, or answered by none, cannot be queued by one, unless there is no other. */
static void go_by_plan(struct client *client, const struct cluster_plan *plan, struct session_route *route)
{
    int32_t slot = slot_of_only_master(client->service->cluster->map);

    if (client->session.sent_transaction && plan->where == CLUSTER_ALL && slot != CLUSTER_NOBODY) {
        go_to_slot(client, route, (uint16_t)slot);
    } else if (client->session.sent_transaction) {
        refuse(client, route, "-ERR headgate: before a cluster this cannot be part of a transaction\r\n");
    } else {
        route->plan = plan;
    }
}

/* SUNSUBSCRIBE of a channel that the client has: it is said where the client has it, wherever the map says that the
 * slot is by now. */
static bool is_of_own_channel(const struct client *client, const struct command *command, struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice channel;

    return command != NULL && command->kind == COMMAND_UNSUBSCRIBE && client->channels != NULL &&
           client->session.shard_channels > 0 && resp_walk_skip(&walk, 1) && resp_walk_next(&walk, &channel) &&
           client_channels_have_shard(client->channels, channel);
}

/* Whether WAIT is about writes at other nodes than the one that it would go to, or about some that would be lost with a
 * node that is not reached before. What is under way has to be answered first. */
static bool waits_for_several(struct client *client, struct session_route *route)
{
    const struct lane *own = client->exclusive;
    const struct cluster_way *way = own != NULL ? client->exclusive_way : client_last_way(client);

    if (client->sent_runs > 0) {
        wait_for_quiet(client, route);
        return false;
    }
    bool is_there = own != NULL ? own->state == LANE_READY : session_may_take_home_lane(client);
    return !is_there || client_wrote_elsewhere(client, way) || client_written_is_gone(client);
}

/* Its subscriptions are not where it could go back to RESP2 with them, or ask for others amid EXEC. */
static bool refuses_subscriber(struct client *client, const struct command *command, struct session_route *route)
{
    enum command_kind kind = command != NULL ? command->kind : COMMAND_ORDINARY;
    bool is_going_back = kind == COMMAND_HELLO && route->expected != NULL && route->expected->resp == 2;
    bool is_queued = kind == COMMAND_SUBSCRIBE || kind == COMMAND_UNSUBSCRIBE;

    if (is_going_back) {
        refuse(client, route, "-ERR headgate: before a cluster a subscriber cannot go back to RESP2\r\n");
    } else if (is_queued) {
        refuse(client, route, "-ERR headgate: before a cluster this cannot be part of a subscriber's transaction\r\n");
    }
    return is_going_back || is_queued;
}

void client_cluster_route(struct client *client, const struct command *command, const struct request *request,
                          struct session_route *route)
{
    static const struct cluster_plan by_keys = {.where = CLUSTER_KEYS};
    uint16_t slot;

    route->way = client->exclusive != NULL ? client->exclusive_way : NULL;
    if (route->answer != SESSION_FORWARD || client->session.passthrough) {
        return;
    }
    if (client_subscriber_takes(client, route)) {
        client_subscriber_route(client, command, request, route);
        return;
    }
    if (client->redirects != NULL || client_is_moving(client) || client_is_subscribing(client) ||
        (client->exclusive != NULL && client->sent_runs > 0 && client->lane_in_use != client->exclusive)) {
        /* What is held has to be sent first; and what went to several nodes took other lanes. */
        wait_for_quiet(client, route);
        return;
    }
    if (client_is_subscriber(client) && refuses_subscriber(client, command, route)) {
        return;
    }
    bool begins = is_beginning(client, command, route);
    if ((begins || ends_watch(client, command)) && client->sent_runs > 0) {
        /* A WATCH that is sent elsewhere would come behind it, and hold the client there; and within MULTI nothing is
         * sent elsewhere. */
        wait_for_quiet(client, route);
        return;
    }
    if (begins && (client->exclusive == NULL || session_may_leave_node(client))) {
        defer_transaction(client, route);
        return;
    }
    route->exclusive = route->exclusive || client->session.deferred;
    if (route->own_writes && waits_for_several(client, route)) {
        route->plan = cluster_command_plan(command, request->sent);
        return;
    }
    if (route->answer == SESSION_LATER) {
        return;
    }
    if (route->own_writes && client->exclusive == NULL) {
        route->way = client_last_way(client);
        return;
    }
    if (client->exclusive != NULL && is_of_own_channel(client, command, request->sent)) {
        return;
    }
    const struct cluster_plan *plan = command != NULL ? cluster_command_plan(command, request->sent) : &by_keys;
    switch (plan->where) {
    case CLUSTER_HOME:
        go_anywhere(client, command, request, route);
        return;
    case CLUSTER_SESSION:
        return;
    case CLUSTER_KEYS:
        go_by_keys(client, command, request, route);
        return;
    case CLUSTER_SLOT:
    case CLUSTER_KEY:
        if (cluster_command_argument_slot(plan, request->sent, &slot)) {
            go_to_slot(client, route, slot);
        }
        return;
    case CLUSTER_REFUSED:
        refuse(client, route, "");
        (void)cluster_command_refusal(plan, route->text, sizeof route->text);
        return;
    case CLUSTER_ALL:
        if (command->kind == COMMAND_WAIT) {
            return;
        }
        go_by_plan(client, plan, route);
        return;
    case CLUSTER_CURSOR:
    case CLUSTER_HERE:
        go_by_plan(client, plan, route);
        return;
    }
}

/* Where a whole request would go by its slot, whatever it was when it was sent. False: it has none. */
static bool find_by_slot(const struct client *client, struct slice frame, const struct cluster_way **way)
{
    const struct command *command = client_command_of(client->service, frame);
    const struct cluster_plan *plan = command != NULL ? cluster_command_plan(command, frame) : NULL;
    struct client_keys keys = {.has_key = false};

    if (plan != NULL && (plan->where == CLUSTER_SLOT || plan->where == CLUSTER_KEY)) {
        keys.has_key = cluster_command_argument_slot(plan, frame, &keys.slot);
    } else if (plan != NULL && plan->where == CLUSTER_KEYS) {
        keys = client_keys_of(command, frame);
    }
    *way = keys.has_key ? cluster_way_of(client->service->cluster, keys.slot) : NULL;
    return keys.has_key;
}

bool client_cluster_find_waiting(const struct client *client, const struct lane *lane, const struct cluster_way **way)
{
    struct slice waiting = lane_waiting(lane);
    struct resp_command framed = {0};
    size_t taken;

    while (waiting.length > 0 &&
           resp_command_feed(&framed, waiting.data, waiting.length, UINT64_MAX, &taken) == RESP_DONE) {
        if (find_by_slot(client, (struct slice){waiting.data, taken}, way)) {
            return true;
        }
        waiting = (struct slice){waiting.data + taken, waiting.length - taken};
        framed = (struct resp_command){0};
    }
    return false;
}

/* The shared lane there, or to a replica. NULL when memory is short. */
static struct lane *find_lane(struct client *client, const struct cluster_way *way, enum conf_reads by)
{
    struct lane *lane = by != CONF_READS_MASTER ? client_reads_lane_at(client, way, by) : NULL;
    struct profile *profile = lane == NULL ? client_profile_at(client, way) : NULL;

    return profile != NULL ? upstream_shared_lane(profile) : lane;
}

static void note_lane(struct client *client, const struct cluster_way *way, const struct lane *lane, enum conf_reads by)
{
    client->routed_changes = *client->service->cluster->changes;
    client->at_replicas = lane->settings->gives_back;
    client->reads_by = by;
    client_reads_count_at(client, way, lane);
    client->last_way = way != NULL ? way->number + 1 : 0;
}

bool client_cluster_lane(struct client *client, const struct session_route *route, struct lane **lane)
{
    *lane = find_lane(client, route->way, route->reads ? route->reads_by : CONF_READS_MASTER);
    if (*lane == NULL) {
        return client_out_of_memory(client);
    }
    if (client_cluster_has_to_wait(client, *lane) || client_reads_mixes(client, *lane, route->reads_by)) {
        return client_wait_for(client, CLIENT_WAIT_QUIET);
    }
    if (lane_is_congested(*lane)) {
        return client_wait_for_lane(client, *lane);
    }
    note_lane(client, route->way, *lane, route->reads_by);
    return true;
}

void client_service_map_came(struct client_service *service)
{
    struct client *client;

    LIST_FOREACH(client, &service->clients, of_service)
    {
        client_want_flush(client);
    }
}

/* ---- the short way ---- */

bool *client_cluster_short_ways(void)
{
    bool *ways = calloc(command_count(), sizeof *ways);

    for (size_t i = 0; ways != NULL && i < command_count(); i++) {
        const struct command *command = command_at(i);
        ways[i] = command->keys == COMMAND_KEYS_RANGE && command->first_key == 1 && command->last_key == 1 &&
                  command->kind == COMMAND_ORDINARY && cluster_command_is_plain(command);
    }
    return ways;
}

/* Whether nothing has to be known of the client or the request but the key. */
static bool is_short(const struct client *client, const struct request *request)
{
    const struct client_service *service = client->service;
    const struct session *session = &client->session;

    return service->short_ways != NULL && service->short_ways[command_index(request->command)] &&
           request->framed->argument_count > 1 && request->interest->wanted == 0 && client->exclusive == NULL &&
           !session->sent_transaction && !client_needs_exclusive(client) && service->cluster->map != NULL;
}

/* Who may answer it. Notes, too, that it may write, if it may. */
static enum conf_reads reads_by(struct client *client, const struct request *request)
{
    const struct client_service *service = client->service;

    if (!service->reads) {
        return CONF_READS_MASTER;
    }
    enum client_reading reading = (enum client_reading)service->readings[command_index(request->command)];
    client->wrote = client->wrote || reading == CLIENT_READING_NONE;
    return client_reads_by(client, request, reading);
}

bool client_cluster_take(struct client *client, const struct request *request)
{
    const struct cluster_ways *ways = client->service->cluster;

    if (!is_short(client, request)) {
        return false;
    }
    uint16_t slot = cluster_slot_of(session_kept_argument(request->framed, request->frame.data, 1));
    const struct cluster_way *way = cluster_way_of(ways, slot);
    enum conf_reads by = reads_by(client, request);
    struct lane *lane = find_lane(client, way, by);
    if (lane == NULL || client_cluster_has_to_wait(client, lane) || client_reads_mixes(client, lane, by) ||
        lane_is_congested(lane) || !upstream_may_wait(client->service->upstream, lane)) {
        return false;
    }
    note_lane(client, way, lane, by);
    client_note_written(client, request->command, way);
    (void)client_send_short(client, lane, request);
    return true;
}
