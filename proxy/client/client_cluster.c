/*
 * Which node of a cluster a request goes to: the owner of the slot of its keys; the home upstream, which is at some
 * node, if there are none, or if nobody is known to have the slot, as that node then says where it is.
 *
 * A client may have requests under way at several nodes. Those of one slot never are on two lanes: whenever anything
 * has changed that could make it so (cluster_ways.changes), a client's next request waits until all are answered.
 */
#include "client/client_cluster_private.h"

#include "topology/cluster_split.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- keys ---- */

static bool note_key(void *context, struct slice key, uint32_t index)
{
    struct client_keys *keys = context;
    uint16_t slot = cluster_slot_of(key);

    (void)index;
    if (keys->has_key && slot != keys->slot) {
        keys->is_split = true;
        return false;
    }
    keys->has_key = true;
    keys->slot = slot;
    return true;
}

struct client_keys client_keys_of(const struct command *command, struct slice frame)
{
    struct client_keys keys = {.has_key = false};

    if (command != NULL) {
        command_visit_slotted(command, frame, note_key, &keys);
    }
    return keys;
}

const struct command *client_command_of(const struct client_service *service, struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice name;

    if (!resp_walk_next(&walk, &name)) {
        return NULL;
    }
    const struct command *command = command_find(name);
    return command != NULL ? command : server_info_find(service->server_info, name);
}

/* ---- where to ---- */

const struct cluster_way *client_last_way(const struct client *client)
{
    const struct cluster_ways *ways = client->service->cluster;

    return client->last_way > 0 && client->last_way <= ways->count ? ways->ways[client->last_way - 1] : NULL;
}

/* Whether Redis would miss the request that is answered here: it is sent another in its place. */
static bool is_missed(const struct client *client)
{
    return client->session.sent_transaction || client->session.silent || client->session.silent_next;
}

/* It spoils a transaction as it does in Redis. */
static void refuse(struct client *client, struct session_route *route, const char *text)
{
    session_drop_route(client, route);
    route->answer = is_missed(client) ? SESSION_REFUSE : SESSION_ANSWER_HERE;
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
    } else if (client->session.silent || client->session.silent_next) {
        /* Whether that is answered is a state of the lane that it has, and nobody would hear of a refusal. */
        session_drop_route(client, route);
        route->answer = SESSION_CLOSE;
        snprintf(route->text, sizeof route->text, "it said CLIENT REPLY, and what follows is for another node");
    } else if ((client->session.sent_transaction && !client->session.deferred) || !session_is_portable(client)) {
        refuse(client, route, CLUSTER_CROSSSLOT);
    } else {
        session_leave_node(client);
    }
}

/* Nobody knows yet where its keys are: it is answered here, and said where they are. */
static void defer_transaction(struct client *client, struct session_route *route)
{
    session_drop_route(client, route);
    route->answer = SESSION_ANSWER_HERE;
    snprintf(route->text, sizeof route->text, "+OK\r\n");
    client->session.sent_transaction = true;
    client->session.known_transaction = true;
    client->session.deferred = true;
    client->session.spoiled = false;
}

static bool is_beginning(const struct client *client, const struct command *command, const struct session_route *route)
{
    return command != NULL && command->kind == COMMAND_MULTI && route->begins_transaction && !is_missed(client);
}

static bool may_defer(const struct client *client)
{
    return client->exclusive == NULL || session_is_portable(client);
}

/* It goes to the node of that slot. */
static void go_to_slot(struct client *client, struct session_route *route, uint16_t slot)
{
    const struct cluster_ways *ways = client->service->cluster;

    if (cluster_ways_wait(ways)) {
        wait_for_quiet(client, route);
        return;
    }
    const struct cluster_way *way = cluster_way_of(ways, slot);
    if (client->exclusive != NULL && way != client->exclusive_way) {
        change_node(client, route);
    }
    route->way = way;
}

/* To the node of its keys. What a policy says in its place is another command, with its keys elsewhere. */
static void go_by_keys(struct client *client, const struct command *command, const struct request *request,
                       struct session_route *route)
{
    bool is_translated = request->interest->translator != 0;
    const struct command *said = is_translated ? client_command_of(client->service, request->sent) : command;
    struct client_keys keys = client_keys_of(said, request->sent);
    bool may_split = client->service->settings.splits && !client->session.sent_transaction;

    if (keys.is_split && may_split && cluster_split_can(command)) {
        route->splits = true;
    } else if (keys.is_split) {
        refuse(client, route, CLUSTER_CROSSSLOT);
    } else if (keys.has_key) {
        go_to_slot(client, route, keys.slot);
    }
}

/* What is for several nodes, or answered by none, cannot be queued by one. */
static void go_by_plan(struct client *client, const struct cluster_plan *plan, struct session_route *route)
{
    if (client->session.sent_transaction) {
        refuse(client, route, "-ERR headgate: before a cluster this cannot be part of a transaction\r\n");
    } else {
        route->plan = plan;
    }
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
    if (client->redirects != NULL ||
        (client->exclusive != NULL && client->sent_runs > 0 && client->lane_in_use != client->exclusive)) {
        /* What is held has to be sent first; and what went to several nodes took other lanes. */
        wait_for_quiet(client, route);
        return;
    }
    bool begins = is_beginning(client, command, route);
    if (begins && may_defer(client)) {
        defer_transaction(client, route);
        return;
    }
    if (begins && client->sent_runs > 0) {
        /* The one before it is not answered: behind it, this one may be for another node. */
        wait_for_quiet(client, route);
        return;
    }
    route->exclusive = route->exclusive || client->session.deferred;
    if (route->own_writes && client->exclusive == NULL) {
        route->way = client_last_way(client);
        return;
    }
    const struct cluster_plan *plan = command != NULL ? cluster_command_plan(command, request->sent) : &by_keys;
    switch (plan->where) {
    case CLUSTER_HOME:
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
        (void)cluster_command_refusal(plan, route->text, sizeof route->text);
        session_drop_route(client, route);
        route->answer = is_missed(client) ? SESSION_REFUSE : SESSION_ANSWER_HERE;
        return;
    case CLUSTER_ALL:
        if (route->own_writes) {
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

/* What is under way stands in the way of a request for that lane. */
bool client_cluster_has_to_wait(const struct client *client, const struct lane *lane)
{
    const struct client_service *service = client->service;
    /* What is measured is told of in the order of the requests. */
    bool is_in_order = !service->reactor->measures || lane == NULL || client->lane_in_use == lane;

    /* What was sent to masters and what was sent to their replicas would not keep their order. */
    bool is_other_kind = client->at_replicas != (lane != NULL && lane->settings->gives_back);

    return client->redirects != NULL ||
           (client->sent_runs > 0 &&
            (is_other_kind || client->routed_changes != *service->cluster->changes || !is_in_order));
}

bool client_cluster_lane(struct client *client, const struct session_route *route, struct lane **lane)
{
    *lane = route->reads ? client_reads_lane_at(client, route->way) : NULL;
    if (*lane == NULL) {
        struct profile *profile = client_profile_at(client, route->way);
        *lane = profile != NULL ? upstream_shared_lane(profile, client->place) : NULL;
    }
    if (*lane == NULL) {
        return client_out_of_memory(client);
    }
    if (client_cluster_has_to_wait(client, *lane)) {
        return client_wait_for(client, CLIENT_WAIT_QUIET);
    }
    if (lane_is_congested(*lane)) {
        lane_await(*lane, &client->lane_waiter);
        return client_wait_for(client, CLIENT_WAIT_LANE);
    }
    client->routed_changes = *client->service->cluster->changes;
    client->at_replicas = (*lane)->settings->gives_back;
    client->last_way = route->way != NULL ? route->way->number + 1 : 0;
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
           !service->reactor->measures && !session->sent_transaction && !client_needs_exclusive(client) &&
           service->cluster->map != NULL;
}

/* Notes, too, that it may write, if it may. */
static bool reads_replica(struct client *client, const struct request *request)
{
    const struct client_service *service = client->service;

    if (!service->reads) {
        return false;
    }
    uint8_t reading = service->readings[command_index(request->command)];
    client->wrote = client->wrote || reading == CLIENT_READING_NONE;
    return reading == CLIENT_READING_ANYWHERE;
}

bool client_cluster_take(struct client *client, const struct request *request)
{
    const struct cluster_ways *ways = client->service->cluster;

    if (!is_short(client, request)) {
        return false;
    }
    uint16_t slot = cluster_slot_of(session_kept_argument(request->framed, request->frame.data, 1));
    const struct cluster_way *way = cluster_way_of(ways, slot);
    struct lane *lane = reads_replica(client, request) ? client_reads_lane_at(client, way) : NULL;
    if (lane == NULL) {
        struct profile *profile = client_profile_at(client, way);
        lane = profile != NULL ? upstream_shared_lane(profile, client->place) : NULL;
    }
    if (lane == NULL || client_cluster_has_to_wait(client, lane) || lane_is_congested(lane) ||
        !upstream_may_wait(client->service->upstream, lane)) {
        return false;
    }
    client->routed_changes = *ways->changes;
    client->at_replicas = lane->settings->gives_back;
    client->last_way = way != NULL ? way->number + 1 : 0;
    client_note_end(client);
    (void)client_send_plain(client, lane, request->frame, 1);
    return true;
}

/* ---- transactions ---- */

bool client_cluster_begin(struct client *client)
{
    static const char multi[] = "*1\r\n$5\r\nMULTI\r\n";
    static const char bad_arity[] = "*1\r\n$3\r\nGET\r\n";
    struct session *session = &client->session;

    session->deferred = false;
    session->sent_transaction = true;
    session->known_transaction = true;
    return upstream_send_hidden(client->exclusive, multi, sizeof multi - 1, true) &&
           (!session->spoiled || upstream_send_hidden(client->exclusive, bad_arity, sizeof bad_arity - 1, false));
}
