/*
 * Requests about subscriptions of a client of RESP3 before a cluster, and over which lane they go: the client's other
 * requests leave that lane to them, and go wherever their keys are.
 *
 * They wait until all else of the client is answered, and all else waits for them: so their confirmations, which are
 * pushes, come in its order. Those about channels and patterns may follow each other.
 */
#include "client/client_subscriber_private.h"

#include <stdio.h>

bool client_subscriber_takes(const struct client *client, const struct session_route *route)
{
    const struct session *session = &client->session;
    const struct expected_reply *expected = route->expected;

    return route->answer == SESSION_FORWARD && expected != NULL &&
           (expected->kind == EXPECT_SUBSCRIBE || expected->kind == EXPECT_UNSUBSCRIBE) && client->profile->resp == 3 &&
           !client->profile->needs_password && !session->sent_transaction && !session->passthrough && !session->unsure;
}

/* ---- over which lane ---- */

static struct slice first_name(struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice name = {0};

    (void)(resp_walk_skip(&walk, 1) && resp_walk_next(&walk, &name));
    return name;
}

/* Where the client has that shard channel, wherever the map says that its slot is by now. NULL: nowhere. */
static struct subscriber_lane *lane_of_shard(const struct client_subscriber *subscriber, struct slice name)
{
    const struct client_channel_list *names = &subscriber->names;
    size_t place = client_channel_list_find(names, 's', name);

    return place < names->used ? client_subscriber_numbered(subscriber, client_channel_list_at(names, place).place)
                               : NULL;
}

/* One with shard channels, but for those up to that one; NULL: there is none. */
static struct subscriber_lane *next_with_shards(const struct client_subscriber *subscriber,
                                                const struct subscriber_lane *behind)
{
    struct subscriber_lane *at = behind != NULL ? LIST_NEXT(behind, of_subscriber) : LIST_FIRST(&subscriber->lanes);

    while (at != NULL && at->shards == 0) {
        at = LIST_NEXT(at, of_subscriber);
    }
    return at;
}

/* The lane in *at; NULL: it has yet to be opened, at route->way. False: the route says what is done instead. */
static bool find_lane_for_shards(struct client *client, const struct command *command, struct slice frame,
                                 struct session_route *route, struct subscriber_lane **at)
{
    const struct client_subscriber *subscriber = client->subscriber;
    struct expected_reply *expected = route->expected;
    struct client_keys keys = client_keys_of(command, frame);
    bool is_end = expected->kind == EXPECT_UNSUBSCRIBE;

    if (keys.is_split) {
        session_drop_route(client, route);
        route->answer = SESSION_ANSWER_HERE;
        snprintf(route->text, sizeof route->text, "%s", CLUSTER_CROSSSLOT);
        return false;
    }
    if (!keys.has_key) {
        expected->is_of_all = is_end;
        *at = is_end ? next_with_shards(subscriber, NULL) : NULL;
        *at = *at != NULL ? *at : client_subscriber_general(subscriber);
        return true;
    }
    *at = is_end ? lane_of_shard(subscriber, first_name(frame)) : NULL;
    if (*at != NULL) {
        return true;
    }
    if (cluster_ways_wait(client->service->cluster)) {
        session_drop_route(client, route);
        route->answer = SESSION_LATER;
        return false;
    }
    route->way = cluster_way_of(client->service->cluster, keys.slot);
    *at = client_subscriber_at(subscriber, route->way);
    return true;
}

static bool is_marked(const struct client_subscriber *subscriber)
{
    const struct subscriber_lane *at = LIST_FIRST(&subscriber->lanes);

    while (at != NULL && !at->is_marked) {
        at = LIST_NEXT(at, of_subscriber);
    }
    return at != NULL;
}

/* Whether it may follow what is under way. */
static bool may_follow(const struct client *client, const struct subscriber_lane *at,
                       const struct expected_reply *expected)
{
    /* Those about shard channels may be sent elsewhere, or be of several lanes, or about what a node is just dropping:
     * of these there is one at a time. */
    bool is_behind = at != NULL && client->lane_in_use == at->lane && expected->channel_kind != 's';

    bool is_clear = expected->channel_kind != 's' || !is_marked(client->subscriber);

    return client->subscriber->lost == 0 && client->redirects == NULL && is_clear &&
           (client->sent_runs == 0 || is_behind);
}

void client_subscriber_route(struct client *client, const struct command *command, const struct request *request,
                             struct session_route *route)
{
    struct client_subscriber *subscriber = client_subscriber_of(client);
    struct subscriber_lane *at;

    if (subscriber == NULL) {
        session_drop_route(client, route);
        route->answer = SESSION_CLOSE;
        snprintf(route->text, sizeof route->text, "out of memory");
        return;
    }
    route->way = NULL;
    if (route->expected->channel_kind != 's') {
        at = client_subscriber_general(subscriber);
    } else if (!find_lane_for_shards(client, command, request->sent, route, &at)) {
        return;
    }
    if (!may_follow(client, at, route->expected)) {
        session_drop_route(client, route);
        route->answer = SESSION_LATER;
        return;
    }
    route->exclusive = false;
    route->barrier = route->expected->channel_kind == 's';
    route->subscribes = true;
    route->way = at != NULL ? at->way : route->way;
    route->subscriber_lane = at;
}

bool client_subscriber_lane(struct client *client, const struct session_route *route, struct lane **lane)
{
    struct subscriber_lane *at = route->subscriber_lane;

    if (at == NULL) {
        at = client_subscriber_open(client->subscriber, route->way);
    }
    if (at == NULL) {
        return client_out_of_memory(client);
    }
    *lane = at->lane;
    if (lane_is_congested(*lane)) {
        return client_wait_for_lane(client, *lane);
    }
    client->routed_changes = *client->service->cluster->changes;
    client->at_replicas = false;
    return true;
}

struct lane *client_subscriber_lane_to(struct client *client, const struct cluster_way *way)
{
    struct subscriber_lane *at = client_subscriber_open(client->subscriber, way);

    if (at == NULL) {
        client_out_of_memory(client);
    }
    return at != NULL ? at->lane : NULL;
}

/* ---- sent ---- */

/* The same to another lane: its confirmations come behind those of the lanes before it. False when memory is short. */
static bool send_further(struct client *client, struct subscriber_lane *at)
{
    static const char request[] = "*1\r\n$12\r\nSUNSUBSCRIBE\r\n";
    struct run *run = run_take(client->service->runs);
    struct expected_reply *expected = run != NULL ? expected_reply_take(client->service, EXPECT_UNSUBSCRIBE) : NULL;

    if (expected == NULL) {
        if (run != NULL) {
            run_give(client->service->runs, run);
        }
        return false;
    }
    expected->channel_kind = 's';
    expected->is_of_all = true;
    run->receiver = &client_subscriber_receiver;
    run->owner = client;
    run->requests = 1;
    run->expected = expected;
    if (!lane_send(at->lane, run, request, sizeof request - 1)) {
        expected_reply_give(client->service, expected);
        run_give(client->service->runs, run);
        return false;
    }
    client->sent_runs++;
    client->lane_in_use = at->lane;
    client_queue_run(client, run);
    return client_subscriber_mark(at);
}

/* Channels that are to be confirmed behind those of the run before are none of the others of that one: each count is of
 * what is left then. */
static void count_down(struct client *client, const struct subscriber_lane *first, struct run *run)
{
    const struct subscriber_lane *at = first;
    int64_t others = client_subscriber_other_shards(client->subscriber, first);

    for (; run != NULL && at != NULL; run = run->client_next, at = next_with_shards(client->subscriber, at)) {
        struct expected_reply *expected = run->expected;
        others -= at != first ? at->shards : 0;
        expected->has_others = true;
        expected->others = others;
    }
}

/* SUNSUBSCRIBE of all: said on each lane that has some. */
static bool end_all(struct client *client, struct subscriber_lane *first)
{
    struct run *run = client->last;
    struct subscriber_lane *at = next_with_shards(client->subscriber, first);

    for (; at != NULL; at = next_with_shards(client->subscriber, at)) {
        if (!send_further(client, at)) {
            return client_out_of_memory(client);
        }
    }
    count_down(client, first, run);
    return true;
}

void client_subscriber_sent(struct client *client, struct lane *lane)
{
    struct run *run = client->last;
    const struct expected_reply *expected = run->expected;
    struct subscriber_lane *at = client_subscriber_find(client->subscriber, lane);

    run->receiver = &client_subscriber_receiver;
    bool is_end = expected->kind == EXPECT_UNSUBSCRIBE && expected->channel_kind == 's';
    if (is_end && at != NULL && !client_subscriber_mark(at)) {
        (void)client_out_of_memory(client);
    } else if (is_end && expected->is_of_all && at != NULL && at->shards > 0) {
        (void)end_all(client, at);
    }
}
