/* What a client hears of its exclusive lane, beside replies. */
#include "client/client_cluster_private.h"

static void owner_bytes(void *owner, const char *data, size_t length)
{
    struct client *client = owner;

    if (client->session.resets && resp_reply_starts(&client->exclusive->reply, "-ERR Protocol error: ")) {
        client_end(client, "RESET has taken the credentials off its connection");
    } else {
        client_output(client, data, length, true);
    }
}

static bool owner_frame(void *owner, const struct resp_reply *reply)
{
    struct client *client = owner;

    client_push_ended(client);
    if (session_is_push(client, reply)) {
        session_id_is_used(client);
        return true;
    }
    if (client->first == NULL && session_note_confirmation(client, reply)) {
        return true;
    }
    /* A command of Headgate's own may be under way there, of which the lane has a run and the client none. NULL: the
     * client was closed above. */
    const struct lane *lane = client->exclusive;
    if (lane != NULL && lane->first == NULL && client->first == NULL && !client->session.passthrough) {
        /* An answer to nothing that was asked: from here on nobody can tell what answers what. */
        client->session.pinned = true;
        client->session.unsure = true;
    }
    return false;
}

/* Whether it was a lane with nothing on it, of a client that has subscriptions on others: it goes on with these, and
 * takes another lane when it needs one. */
static bool may_go_on(const struct client *client)
{
    const struct session *session = &client->session;

    return client_is_subscriber(client) && client->state == CLIENT_OPEN && client->first == NULL &&
           !client->streaming && !client->input_ended && resp_reply_idle(&client->exclusive->reply) &&
           session_is_portable(client) && session->blocking == 0 && session->login_us == 0 && !session->deferred;
}

static void owner_broken(void *owner, const char *why)
{
    struct client *client = owner;

    if (client->exclusive == NULL || client_move_subscriptions(client)) {
        return;
    }
    struct stats *stats = client->service->reactor->stats;
    bool had_lane = client->exclusive != NULL, goes_on = had_lane && may_go_on(client);
    client->exclusive = NULL;
    stats_subtract(stats, STATS_CLIENTS_EXCLUSIVE, had_lane);
    if (goes_on) {
        client->session = (struct session){0};
        client_want_flush(client);
        return;
    }
    stats_add(stats, STATS_CLIENTS_CLOSED_LOST, had_lane && client->state == CLIENT_OPEN);
    client_end(client, why);
}

/* Whatever is under way, or is of this connection, would be lost with it. What policies hold was not sent, and finds
 * its way anew. */
static bool owner_leave(void *owner)
{
    struct client *client = owner;
    const struct session *session = &client->session;
    bool is_unsent = client->wait == CLIENT_WAIT_NOTHING || client->wait == CLIENT_WAIT_POLICY;
    bool is_waiting = client->state == CLIENT_OPEN && client->first == NULL && is_unsent;
    bool may_leave = is_waiting && client->told_lane_id != client->exclusive->id && session_is_portable(client) &&
                     session->blocking == 0 && session->login_us == 0;

    if (may_leave) {
        session_leave_lane(client);
    }
    return may_leave;
}

void session_leave_old_server(struct client *client)
{
    if (client->exclusive != NULL && client->exclusive->link.is_left) {
        (void)owner_leave(client);
    }
}

/* All goes to one node: a client has requests on a lane of its own for one node only. If that has given only some of
 * their slots to another, the other sends on what is not for it. What has no slot goes home when the node is gone. */
static void owner_reroute(void *owner)
{
    struct client *client = owner;
    const struct cluster_ways *ways = client->service->cluster;
    const struct cluster_way *from = client->exclusive_way, *way = NULL;

    if (ways == NULL || client->streaming || from == NULL ||
        (!client_cluster_find_waiting(client, client->exclusive, &way) && cluster_way_is_master(ways, from)) ||
        way == from) {
        return;
    }
    struct profile *there = client_profile_at(client, way);
    if (there != NULL) {
        client->exclusive_way = way;
        client->last_way = way != NULL ? way->number + 1 : 0;
        client_written_goes(client, way);
        upstream_carry_exclusive(client->exclusive, there);
    }
}

const struct lane_owner session_lane_owner = {
    .bytes = owner_bytes,
    .frame = owner_frame,
    .broken = owner_broken,
    .leave = owner_leave,
    .reroute = owner_reroute,
};
