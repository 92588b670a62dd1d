/*
 * AUTH, and HELLO with AUTH: who the client is from here on.
 *
 * Redis 7.2 to 7.4 and Valkey 7.2.7 to 8.0.1 give no answer to an AUTH that fails while earlier replies of the
 * connection wait to be written (addAuthErrReply() in acl.c). The next reply would be taken for it. So it goes out when
 * its lane owes nothing, not even to a command of Headgate's own, and nothing follows it until it is answered. If it is
 * not answered all the same, the client is closed.
 *
 * Where Redis refuses the credentials that the client has (its password was changed), no lane can be opened with them,
 * and none is needed: AUTH goes over one that was told nothing ("bare").
 */
#include "client/client_private.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

bool client_login_is_watched(const struct client *client, const struct session_route *route)
{
    return route->logs_in && route->expected != NULL && !client_has_no_answer(client, route);
}

/* ---- before it is sent ---- */

/* Whether nothing of the client's was ever said on its lane, nor is waiting to be. What Headgate has to say of the
 * client, as its name, another lane is told as well. */
static bool is_unused(const struct client *client, const struct lane *lane)
{
    return lane->state != LANE_READY && client->sent_runs == 0;
}

static bool enter_lane(struct client *client, const struct session_route *route)
{
    const struct lane *lane = client->exclusive;

    if (!client->profile->refused || (lane != NULL && (lane->bare || !is_unused(client, lane)))) {
        return client_enter_exclusive(client, route);
    }
    if (lane != NULL) {
        session_leave_lane(client);
    }
    return session_take_bare_lane(client) || client_out_of_memory(client);
}

/* What scripts had Redis say in several lines could be taken for the answer. */
static bool needs_fence(const struct client *client)
{
    return client->session.split && !client->fenced && !client->session.sent_transaction &&
           chain_wants_any(client->service->chain);
}

/* It is looked at again whenever something changes, and has waited since the first time all the same. */
static bool wait_for_quiet(struct client *client)
{
    client->exclusive->awaits_quiet = true;
    (void)client_wait_for_lane(client, client->exclusive);
    if (client->login_wait_us == 0) {
        client->login_wait_us = client->wait_since_us;
    }
    client->wait_since_us = client->login_wait_us;
    return false;
}

bool client_login_lane(struct client *client, const struct session_route *route, struct lane **lane)
{
    if (client->sent_runs > 0) {
        return client_wait_for(client, CLIENT_WAIT_QUIET);
    }
    if (!enter_lane(client, route)) {
        return false;
    }
    *lane = client->exclusive;
    if ((*lane)->state != LANE_READY || (*lane)->first != NULL || buffer_length(&(*lane)->output) > 0) {
        return wait_for_quiet(client);
    }
    if (needs_fence(client)) {
        client->fenced = true;
        return upstream_send_fence(*lane) ? wait_for_quiet(client) : client_out_of_memory(client);
    }
    client->fenced = false;
    client->gave_up = false;
    client->login_wait_us = 0;
    (*lane)->awaits_quiet = false;
    return true;
}

bool client_login_was_given_up(const struct client *client)
{
    const struct lane *lane = client->exclusive;

    return client->gave_up && lane != NULL && lane->state != LANE_READY;
}

void client_login_end(struct client *client)
{
    client->gave_up = false;
    client->fenced = false;
    client->login_wait_us = 0;
    if (client->state != CLIENT_CLOSED && client->exclusive != NULL) {
        session_leave_lane(client);
    }
}

/* ---- time ---- */

/* Since when it is waited for Redis; 0: it is not. */
static int64_t waits_since(const struct client *client)
{
    bool waits_for_quiet = client->wait == CLIENT_WAIT_LANE && client->exclusive != NULL &&
                           client->exclusive->awaits_quiet && client->exclusive->state == LANE_READY;

    return waits_for_quiet ? client->wait_since_us : client->session.login_us;
}

static bool is_overdue(const struct client *client, int64_t now)
{
    int64_t limit = clock_ms_to_us(client->service->settings.auth_timeout);
    int64_t since = waits_since(client);

    /* Who does not read its replies has Redis wait for it, not the other way round. */
    return limit > 0 && since != 0 && now - since >= limit && !client->output_congested;
}

static bool waits_in_vain(const struct client *client, int64_t now)
{
    return client->wait == CLIENT_WAIT_LANE && client->exclusive != NULL && client->exclusive->awaits_quiet &&
           client->exclusive->state != LANE_READY &&
           now - client->wait_since_us >= clock_ms_to_us(client->service->settings.upstream_wait);
}

void client_login_tick(struct client *client, int64_t now)
{
    if (client->state == CLIENT_CLOSED) {
        return;
    }
    if (is_overdue(client, now)) {
        client_log(client, LOG_LEVEL_WARNING,
                   "closing client %s: Redis has not answered its AUTH for %lld ms (auth_timeout)",
                   client->address_text, (long long)client->service->settings.auth_timeout);
        client_close(client, "no answer to AUTH");
    } else if (client->state == CLIENT_OPEN && waits_in_vain(client, now)) {
        client->gave_up = true;
        (void)client_wait_is_over(client, CLIENT_WAIT_LANE);
        client_want_flush(client);
    } else if (client->input_ended && client_login_is_slow(client)) {
        client_hung_up(client);
    }
}
