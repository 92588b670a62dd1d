/* What the socket of a lane has to say: that it is connected, may be read or written; and the socket of another lane.
 */
#include "upstream/lane_private.h"

#include <stdio.h>
#include <string.h>

void lane_readable(evutil_socket_t fd, short what, void *context)
{
    struct lane *lane = context;

    (void)fd;
    (void)what;
    reactor_at_turn_end(lane->reactor, REACTOR_STAGE_REPLIES, &lane->take);
}

/* The connection is made, with TLS if it is to have that. */
static void now_connected(struct lane *lane)
{
    const struct tls *tls = connection_tls(&lane->connection);

    if (tls != NULL) {
        stats_add(lane->settings->stats, STATS_UPSTREAM_TLS_HANDSHAKES, 1);
        stats_add(lane->settings->stats, STATS_UPSTREAM_TLS_RESUMED, tls_is_resumed(tls));
    }
    connection_want_write(&lane->connection, false);
    connection_want_read(&lane->connection, true);
    lane_greet(lane);
}

/* lane_writable() hears of its end. */
static void begin_tls(struct lane *lane)
{
    const struct connection_security security = {.context = lane->settings->tls, .host = lane->settings->host};

    lane->progress_us = reactor_now(lane->reactor);
    if (!connection_secure(&lane->connection, &security)) {
        lane_break(lane,
                   "there is no memory, thread or descriptor for TLS, or no name that its certificate could have");
    }
}

/* Redis may say what it has against a certificate after the handshake only: then it is known from the first read. */
static void tls_failed(struct lane *lane)
{
    char why[sizeof lane->why];

    stats_add(lane->settings->stats, STATS_UPSTREAM_TLS_FAILED, 1);
    snprintf(why, sizeof why, "TLS: %s", connection_why(&lane->connection));
    lane_break(lane, why);
}

void lane_writable(evutil_socket_t fd, short what, void *context)
{
    struct lane *lane = context;

    (void)what;
    if (lane->state != LANE_CONNECTING) {
        lane_flush(lane);
        return;
    }
    if (connection_secrecy(&lane->connection) == CONNECTION_INSECURE) {
        tls_failed(lane);
        return;
    }
    bool is_secure = connection_secrecy(&lane->connection) == CONNECTION_SECURE;
    int outcome = is_secure ? 0 : connection_outcome(fd);
    if (outcome != 0) {
        lane_break(lane, strerror(outcome));
    } else if (lane->settings->tls != NULL && !is_secure) {
        begin_tls(lane);
    } else {
        now_connected(lane);
    }
}

void lane_take_over(struct lane *lane, struct lane *from)
{
    connection_move(&lane->connection, &from->connection, lane_readable, lane_writable, lane);
    lane->link = from->link;
    lane->link.taken_over = true;
    lane->named = lane->named || from->named;
    lane->parked = false;
    lane_close(from, "its connection is another lane's now");
    resp_reply_reset(&lane->reply);
    lane->reply.keep_head = false;
    lane_now_ready(lane);
}
