/*
 * What stands between a client's requests and their way: nothing else changes what the client waits for, or for how
 * long policies hold its request.
 */
#include "client/client_private.h"

bool client_wait_for(struct client *client, enum client_wait what)
{
    client->wait = what;
    client->wait_since_us = reactor_now(client->service->reactor);
    return false;
}

bool client_wait_for_lane(struct client *client, struct lane *lane)
{
    lane_await(lane, &client->lane_waiter);
    return client_wait_for(client, CLIENT_WAIT_LANE);
}

bool client_waits_to_pass(struct client *client)
{
    bool waits = client->session.passthrough && lane_is_congested(client->exclusive);

    return waits && !client_wait_for_lane(client, client->exclusive);
}

bool client_hold_until(struct client *client, int64_t until_us)
{
    int64_t delay = until_us - reactor_now(client->service->reactor);
    struct timeval wait = {0};

    if (delay > 0) {
        wait.tv_sec = delay / 1000000;
        wait.tv_usec = delay % 1000000;
    }
    (void)client_wait_for(client, CLIENT_WAIT_POLICY);
    client->hold_timer_set = true;
    return event_add(&client->hold_timer, &wait) == 0;
}

void client_stop_hold_timer(struct client *client)
{
    if (client->hold_timer_set) {
        event_del(&client->hold_timer);
        client->hold_timer_set = false;
    }
}

void client_end_hold(struct client *client)
{
    client_stop_hold_timer(client);
    if (client_wait_is_over(client, CLIENT_WAIT_POLICY)) {
        client_want_flush(client);
    }
}

/* ---- whether more is taken ---- */

/*
 * Replies are read while the client keeps up with them, so what is kept goes as Redis answers, and a client can be made
 * to wait for that. One that does not read its replies cannot, unless memory is short: it may have to write all of its
 * pipeline first, and Redis is not read until it has caught up. Of a long request the rest must come, or it is never
 * answered.
 */
static bool has_room(const struct client *client)
{
    if (client->output_congested) {
        size_t much = client->service->much_held;
        return client->streaming || much == 0 || buffer_length(&client->output) < much;
    }
    return client->first == NULL || client->streaming ||
           client->kept.records + client->kept.texts + client->measured <= CLIENT_QUEUE_MARK;
}

void client_check_room(struct client *client)
{
    if (client->wait == CLIENT_WAIT_NOTHING && !has_room(client)) {
        (void)client_wait_for(client, CLIENT_WAIT_ROOM);
        client_want_flush(client);
    } else if (client->wait == CLIENT_WAIT_ROOM && has_room(client)) {
        (void)client_wait_is_over(client, CLIENT_WAIT_ROOM);
        client_want_flush(client);
    }
}

void client_update_reading(struct client *client)
{
    if (client->state == CLIENT_CLOSED) {
        return;
    }
    /* What Redis may never answer, or is not done for who has gone, is not waited for without a look at what comes:
     * behind all of it may be the end. */
    bool awaits_turn = client->wait == CLIENT_WAIT_POLICY && client->dropped_if_gone;
    bool reads_ahead = session_may_block(client) || client->session.login_us != 0 || awaits_turn;
    bool has_memory = !memory_is_beyond(client->service->reactor->buffers.memory, 2);
    size_t mark = reads_ahead && has_memory ? CLIENT_AHEAD_MARK : CLIENT_INPUT_MARK;
    bool has_room = buffer_length(&client->input) < mark || client_may_take(client, 0);
    connection_want_read(&client->connection, has_room && !client->input_ended);
}
