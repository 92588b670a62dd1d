/*
 * What goes out to the client between its replies.
 *
 * A push is kept until it is whole, and goes out when the client has got all of a reply, or nothing of it. The client
 * has nothing under way on the lanes of its subscriptions but requests about these, and then nothing else; so what they
 * answer goes out in the order of the client's requests as any reply does, and no message comes before the confirmation
 * of its channel.
 */
#include "client/client_subscriber_private.h"

/* ---- what is kept of pushes ---- */

/* Redis keeps the rest. */
void client_subscriber_hold_back(struct client *client)
{
    const struct client_subscriber *subscriber = client->subscriber;
    bool paused = client->output_congested || buffer_length(&subscriber->waiting) > CLIENT_PUSHES_MARK;
    const struct subscriber_lane *at;

    LIST_FOREACH(at, &subscriber->lanes, of_subscriber)
    {
        if (at->lane->paused != paused) {
            lane_pause(at->lane, paused);
        }
    }
}

void client_subscriber_gather(struct subscriber_lane *at, const char *data, size_t length)
{
    struct client *client = at->subscriber->client;

    if (!buffer_append(&client->service->reactor->buffers, &at->frame, data, length)) {
        (void)client_out_of_memory(client);
    } else {
        (void)client_is_over_limit(client);
    }
}

/* ---- between replies ---- */

/* Whether nothing of a reply, or of a push of the client's own lane, has gone out of which the rest is to come. */
static bool is_between_replies(const struct client *client)
{
    const struct run *run = client->first;
    const struct lane *lane = run != NULL ? run->lane : NULL;

    if (client_is_within_push(client)) {
        return false;
    }
    return lane == NULL || lane->first != run || !lane_is_within_frame(lane) || lane->reply.type == '>';
}

void client_subscriber_push(struct client_subscriber *subscriber, struct slice push)
{
    struct client *client = subscriber->client;
    struct buffer *waiting = &subscriber->waiting;

    if (client->exclusive != NULL && client->exclusive->raw) {
        /* It is a replica by now: what it gets is no RESP. */
        return;
    }
    if (buffer_length(waiting) == 0 && is_between_replies(client)) {
        client_output(client, push.data, push.length, false);
    } else if (!buffer_append(&client->service->reactor->buffers, waiting, push.data, push.length)) {
        (void)client_out_of_memory(client);
    } else if (!client_is_over_limit(client)) {
        client_subscriber_hold_back(client);
    }
}

void client_subscriber_deliver(struct client *client)
{
    struct buffer *waiting = &client->subscriber->waiting;

    if (buffer_length(waiting) == 0 || client->state == CLIENT_CLOSED || !is_between_replies(client)) {
        return;
    }
    client_output(client, buffer_head(waiting), buffer_length(waiting), false);
    buffer_clear(&client->service->reactor->buffers, waiting);
    client_subscriber_hold_back(client);
}
