/* What a new connection is told to stand in for a client, and what Redis says to that. */
#include "upstream/lane_private.h"

#include <stdio.h>

/* What Redis says, unasked, to a connection that it does not take. */
static bool is_unwelcome(const struct lane *lane)
{
    return resp_reply_starts(&lane->reply, "-ERR max number of clients") || resp_reply_starts(&lane->reply, "-DENIED");
}

/* Whether Redis has refused the credentials, and not the connection. */
static bool are_credentials_refused(const struct lane *lane)
{
    static const char *const refusals[] = {"-WRONGPASS ", "-ERR invalid password",
                                           "-ERR AUTH <password> called without",
                                           "-ERR Client sent AUTH, but no password is set"};
    bool found = false;

    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        found = found || resp_reply_starts(&lane->reply, refusals[i]);
    }
    return found && lane->link.greeting.has_credentials && lane->link.greetings_left == lane->link.greeting.replies;
}

void lane_now_ready(struct lane *lane)
{
    event_del(&lane->timer);
    if (lane->use == LANE_SHARED) {
        lane_keep_owned(lane);
    }
    lane_move(lane, LANE_READY);
    lane->gathered = lane->requests_waiting;
    lane->ready_us = reactor_now(lane->reactor);
    lane->failures = lane->desynced ? lane->failures : 0;
    lane->next_target = 0;
    lane->progress_us = reactor_now(lane->reactor);
    connection_want_read(&lane->connection, !lane->paused);
    lane_want_flush(lane);
    lane_end_stream_when_written(lane);
    lane->events->ready(lane);
    lane_wake_waiters(lane);
}

static void greeting_met_script(struct lane *lane)
{
    bool is_function = memmem(lane->reply.head, (size_t)lane->reply.head_length, "FUNC", 4) != NULL;

    lane_refused(lane, is_function
                           ? "-BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
                           : "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");
    lane_expire(lane);
}

static void greeting_refused(struct lane *lane)
{
    char why[sizeof lane->why];

    if (resp_reply_starts(&lane->reply, "-BUSY ")) {
        greeting_met_script(lane);
        return;
    }
    lane->link.refused = are_credentials_refused(lane);

    snprintf(why, sizeof why, "Redis answered %.*s", (int)resp_reply_head_line(&lane->reply), lane->reply.head);
    lane_refused(lane, why);
}

/* What AUTH, SELECT and READONLY, or HELLO, say where they succeed. */
static bool is_success(const struct resp_reply *reply)
{
    bool has_parts = reply->type == '%' || reply->type == '*';

    return resp_reply_starts(reply, "+OK\r") || (has_parts && reply->head_length > 1 && reply->head[1] > '0');
}

void lane_unheard(struct lane *lane, const char *why)
{
    bool was_unheard = lane->state == LANE_HANDSHAKE && lane->link.greetings_left == lane->link.greeting.replies;
    const struct tls *tls = connection_tls(&lane->connection);
    bool is_told = tls != NULL && tls_state(tls) == TLS_FAILED && tls_failure(tls) == TLS_FAILURE_CERTIFICATE;
    char longer[sizeof lane->why];
    const char *hint = "";

    if (was_unheard && tls == NULL) {
        hint = " before it answered anything; if it speaks TLS, its address begins with rediss://";
    } else if (was_unheard && !is_told) {
        hint = "; perhaps it wants another certificate (upstream_certificate)";
    }
    stats_add(lane->settings->stats, STATS_UPSTREAM_TLS_FAILED, was_unheard && tls != NULL);
    snprintf(longer, sizeof longer, "%s%s%s", is_told ? "TLS: " : "", why, hint);
    lane_break(lane, longer);
}

/* A fresh socket takes a few hundred bytes whole, or it is broken. */
static void say(struct lane *lane, const char *bytes, size_t length)
{
    ssize_t written = connection_write(&lane->connection, bytes, length);

    if (written == CONNECTION_BROKEN) {
        lane_unheard(lane, connection_why(&lane->connection));
    } else if (written != (ssize_t)length) {
        lane_break(lane, "the greeting could not be written");
    }
}

/* A server that does not know HELLO, or has given it another name. What is of Redis 6.0 or newer knows it. */
static void ask_again(struct lane *lane)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    static const char plain[] = "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$8\r\nheadgate\r\n*1\r\n$4\r\nPING\r\n";
    bool shared = lane->use == LANE_SHARED;

    lane->link.asked_again = true;
    lane->link.greetings_left = shared ? 2 : 1;
    resp_reply_reset(&lane->reply);
    say(lane, shared ? plain : ping, shared ? sizeof plain - 1 : sizeof ping - 1);
}

static void end_greeting(struct lane *lane)
{
    lane->link.is_proven = !resp_reply_starts(&lane->reply, "-NOAUTH");
    resp_reply_reset(&lane->reply);
    lane->link.greetings_left = 0;
    lane->reply.keep_head = false;
    lane_now_ready(lane);
}

/* The last of all, which shows that Redis takes the connection. */
static void tail_answered(struct lane *lane)
{
    bool is_error = !lane->link.asked_again && !is_success(&lane->reply);

    if (is_error && !lane->link.asked_again) {
        ask_again(lane);
        return;
    }
    lane->named = lane->named || (!lane->link.asked_again && lane->use == LANE_SHARED);
    end_greeting(lane);
}

/* HELLO tells whether the server is a replica. Words that have begun may end in what comes next. */
static void look_for_role(struct lane *lane, const char *data, size_t length)
{
    static const char replica[] = "role\r\n$7\r\nreplica";

    for (size_t i = 0; i < length && replica[lane->link.role_matched] != '\0'; i++) {
        if (data[i] == replica[lane->link.role_matched]) {
            lane->link.role_matched++;
        } else {
            lane->link.role_matched = data[i] == replica[0];
        }
    }
    lane->link.is_replica = replica[lane->link.role_matched] == '\0';
}

/* The id that is told, of 40 characters in every version; false: it is none. */
static bool read_id(const struct resp_reply *reply, struct slice *id)
{
    static const char header[] = "$40\r\n";
    const int length = sizeof header - 1;

    if (!resp_reply_starts(reply, header) || reply->head_length < length + 40) {
        return false;
    }
    *id = (struct slice){reply->head + length, 40};
    return true;
}

/* Whether the node is another one than should be there. Who may not ask, or is before what tells no ids, is let on. */
static bool is_other_node(struct lane *lane)
{
    const struct lane_settings *settings = lane->settings;
    bool is_none = resp_reply_starts(&lane->reply, "-ERR This instance has cluster support disabled");
    struct slice id = {"", 0};

    lane->link.has_node_id = is_none || read_id(&lane->reply, &id);
    snprintf(lane->link.node_id, sizeof lane->link.node_id, "%.*s", (int)id.length, id.data);
    return lane->link.has_node_id && settings->may_have_id != NULL &&
           !settings->may_have_id(settings->id_context, settings->target_text, id);
}

/* False: it is another node, or does not say yet which one, and the lane has gone on to its other addresses. */
static bool take_id(struct lane *lane)
{
    if (resp_reply_starts(&lane->reply, "-LOADING ")) {
        /* It serves nobody now, and would be somebody by the time that it does. */
        lane_break(lane, "it loads its data, and does not say which node it is");
        return false;
    }
    if (is_other_node(lane)) {
        stats_add(lane->settings->stats, STATS_UPSTREAM_STRANGERS, 1);
        lane_break(lane, "it is not the node of the cluster that should be there");
        return false;
    }
    lane->link.may_not_ask_id = resp_reply_starts(&lane->reply, "-NOPERM");
    return true;
}

/* One reply to the greeting has ended. */
static void greeting_answered(struct lane *lane)
{
    bool is_tail = lane->link.greeting.has_tail && lane->link.greetings_left == 1;
    bool is_naming = lane->link.asked_again && lane->link.greetings_left == 2;
    bool is_id = lane->link.greeting.asks_id && !lane->link.asked_again &&
                 lane->link.greetings_left == 1U + lane->link.greeting.has_tail;

    if (lane->link.is_replica) {
        lane->events->readonly(lane);
        lane_refused(lane, "it is a replica, and no master");
        return;
    }
    bool is_locked = resp_reply_starts(&lane->reply, "-NOAUTH") && !is_id;
    if (is_locked && !lane->link.greeting.password_known) {
        if (lane->events->needs_password(lane)) {
            end_greeting(lane);
        } else if (lane->state == LANE_HANDSHAKE) {
            greeting_refused(lane);
        }
        return;
    }
    if (is_unwelcome(lane) || is_locked || (!is_success(&lane->reply) && !is_tail && !is_naming && !is_id)) {
        greeting_refused(lane);
        return;
    }
    if (is_id && !take_id(lane)) {
        return;
    }
    if (is_tail) {
        tail_answered(lane);
        return;
    }
    if (is_naming) {
        lane->named = lane->reply.type != '-';
    }
    resp_reply_reset(&lane->reply);
    lane->link.greetings_left--;
    if (lane->link.greetings_left == 0) {
        end_greeting(lane);
    }
}

static bool is_greeted(const struct lane *lane)
{
    return lane->state == LANE_HANDSHAKE || lane->state == LANE_READY;
}

/* Somebody may have had pushes sent to this connection before it was made ready. Returns the bytes of such. */
static size_t drop_pushes(struct lane *lane, const char *data, size_t length)
{
    size_t dropped = 0;

    while (dropped < length && is_greeted(lane) && lane_is_unwanted_push(lane, data + dropped)) {
        dropped += lane_drop_push(lane, data + dropped, length - dropped);
    }
    return dropped;
}

void lane_take_greeting(struct lane *lane, const char *data, size_t length)
{
    size_t dropped = drop_pushes(lane, data, length);

    while (length > dropped && lane->state == LANE_HANDSHAKE) {
        size_t taken;
        data += dropped;
        length -= dropped;
        enum resp_status status = resp_reply_feed(&lane->reply, data, length, &taken);
        if (status == RESP_FAULT) {
            lane_desync(lane, "Redis answered the greeting with bytes that are not RESP");
            return;
        }
        if (lane->settings->wants_master) {
            look_for_role(lane, data, taken);
        }
        data += taken;
        length -= taken;
        if (status == RESP_DONE) {
            greeting_answered(lane);
        }
        dropped = drop_pushes(lane, data, length);
    }
    if (length > dropped && lane->state == LANE_READY) {
        lane_desync(lane, "Redis answered more than it was asked");
    }
}

void lane_greet(struct lane *lane)
{
    struct slice text;

    lane->link.greeting = lane->events->greeting(lane, &text);
    if (lane->link.greeting.replies == 0) {
        lane_now_ready(lane);
        return;
    }
    lane_move(lane, LANE_HANDSHAKE);
    lane->progress_us = reactor_now(lane->reactor);
    lane->link.greetings_left = lane->link.greeting.replies;
    lane->link.resp3 = lane->link.greeting.resp3;
    lane->reply.keep_head = true;
    say(lane, text.data, text.length);
}
