/*
 * Clients that go away while they wait.
 *
 * A client whose requests are taken is read, so its end is seen as it is in Redis. One that waits is not always read:
 * its input is full, or its end was seen already and a reset may still come. Ten times a second the kernel is asked
 * about these. Nobody is closed who may still get replies: a writing half that was closed is no reason, as every
 * request that had come is carried out and answered, unless it waits behind one that Redis may keep for ever, or for a
 * policy.
 */
#include "client/client_cluster_private.h"

#include <string.h>
#include <sys/socket.h>

/* ---- the end of the input ---- */

/* Closes a lane that is not ready: what waits for it is answered by an error. The client may be closed by that. */
static void give_up_lane(struct client *client)
{
    struct lane *lane = client->exclusive;

    lane_close(lane, lane->why);
    if (client->exclusive == lane) {
        session_leave_lane(client);
    }
}

void client_hung_up(struct client *client)
{
    struct lane *lane = client->exclusive;

    if (client->state == CLIENT_OPEN && client->wait == CLIENT_WAIT_POLICY && client->dropped_if_gone) {
        /* What it sent before is in Redis, and keeps its replies. */
        client_finish(client);
    }
    if (client_redirect_holds(client)) {
        /* Nothing of it is in Redis, and it is still to be sent: seen again then. */
        return;
    }
    /* Bytes that pass unmatched pass behind a request that blocks, too, and their lane ends behind the last of them. */
    bool may_block = client->session.blocking > 0 || client->waits_for_nodes;
    if (client_spread_hang_up(client) || lane == NULL || !(may_block || client_login_is_slow(client))) {
        return;
    }
    if (lane_is_unreachable(lane)) {
        /* When Redis is back, nobody may be there to get what it would hand out. */
        give_up_lane(client);
        client_want_flush(client);
        return;
    }
    if (!lane->ending) {
        lane_end_output(lane);
    }
    if (client->state == CLIENT_OPEN) {
        /* Nothing more can be sent on it. */
        (void)client_wait_for(client, CLIENT_WAIT_QUIET);
    }
}

/* ---- clients that are not read ---- */

static struct client *client_of(struct connection *connection)
{
    return (struct client *)(void *)((char *)connection - offsetof(struct client, connection));
}

static void close_reset(struct client *client)
{
    int error = 0;
    socklen_t length = sizeof error;

    (void)getsockopt(client->connection.fd, SOL_SOCKET, SO_ERROR, &error, &length);
    client_was_reset(client, error != 0 ? strerror(error) : "connection reset");
}

void client_find_hangups(struct client_unread *unread)
{
    enum connection_end ends[CONNECTION_ENDS_MAX];

    if (unread->count == 0) {
        return;
    }
    connection_find_ends(unread->connections, unread->count, ends);
    for (size_t i = 0; i < unread->count; i++) {
        struct client *client = client_of(unread->connections[i]);
        if (client->state == CLIENT_CLOSED) {
            continue;
        }
        if (ends[i] == CONNECTION_RESET) {
            close_reset(client);
        } else if (ends[i] == CONNECTION_HALF_CLOSED) {
            client_hung_up(client);
        }
    }
    unread->count = 0;
}

void client_watch_unread(struct client_unread *unread, struct client *client)
{
    if (client->state == CLIENT_CLOSED || client->connection.reading) {
        return;
    }
    unread->connections[unread->count++] = &client->connection;
    if (unread->count == CONNECTION_ENDS_MAX) {
        client_find_hangups(unread);
    }
}
