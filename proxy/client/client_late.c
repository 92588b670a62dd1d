/*
 * A pipeline over several nodes of a cluster is answered in parts, one whenever a node has answered. To write each part
 * by itself would cost more than all the rest of its requests, here and for the client. So while more is under way,
 * what there is is kept for a moment: until all is answered, until the loop finds nothing else to do, or for LATE_US.
 * Nothing is waited for meanwhile: a turn with something late does not wait for events. A node that hangs holds
 * nobody's replies back, and a client that is not served by several nodes comes to nothing of this.
 */
#include "client/client_cluster_private.h"

/* Nodes that are as fast as each other have answered by then. */
#define LATE_US ((int64_t)500)
/* More than that is not copied for the sake of one write. Bytes. */
#define LATE_BYTES ((size_t)16 * 1024)

static bool is_too_late(const struct client *client)
{
    struct reactor *reactor = client->service->reactor;

    return client->late_us != 0 && (reactor->is_idle || reactor_now(reactor) - client->late_us >= LATE_US);
}

/* Whether the rest may soon be there, and nothing but bytes that lie ready waits for the client to be written. */
static bool may_be_late(const struct client *client)
{
    return client->sent_runs > 0 && client->state == CLIENT_OPEN && client->exclusive == NULL &&
           client->redirects == NULL && client->wait == CLIENT_WAIT_NOTHING && buffer_length(&client->input) == 0;
}

void client_late_task(struct reactor_task *task)
{
    struct client *client = (struct client *)(void *)((char *)task - offsetof(struct client, flush));
    struct reactor *reactor = client->service->reactor;

    if (client->subscriber != NULL) {
        client_subscriber_deliver(client);
    }
    size_t written = buffer_length(&client->output);
    size_t length = written + client->borrowed_length;
    bool is_late = length > 0 && length <= LATE_BYTES && may_be_late(client) && !is_too_late(client);
    bool is_copied = is_late || (written > 0 && length <= LATE_BYTES);

    if (is_copied && client->borrowed_length > 0 && !client_keep_borrowed(client)) {
        return;
    }
    if (is_late) {
        client->late_us = client->late_us != 0 ? client->late_us : reactor_now(reactor);
        reactor_at_turn_end(reactor, REACTOR_STAGE_LATE, task);
        return;
    }
    client->late_us = 0;
    client_flush_task(task);
    if (client->subscriber != NULL && client->state != CLIENT_CLOSED) {
        client_subscriber_hold_back(client);
    }
}
