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

bool client_wait_is_over(struct client *client, enum client_wait what)
{
    bool waited = client->wait == what;

    if (waited) {
        client->wait = CLIENT_WAIT_NOTHING;
    }
    return waited;
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
    return event_add(&client->hold_timer, &wait) == 0 || client_out_of_memory(client);
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
