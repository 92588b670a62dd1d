/*
 * Clients while the process drains: each is closed when nothing of it is under way.
 *
 * Who has just connected, before the port was closed, is answered first. Who has Redis wait for something that may
 * never come (BLPOP and the like) is not waited for, as Redis itself does not when it is shut down: the stream to Redis
 * is ended, so that what Redis has popped by then still comes, and nothing is popped for a client that is gone.
 */
#include "client/client_private.h"

/* So long somebody who has just connected may take to send something. */
#define ARRIVAL_PATIENCE_US ((int64_t)500000)
/* A request that may block, and has for so long, is taken to wait for what may never come. */
#define BLOCKED_PATIENCE_US ((int64_t)500000)
/* So long a client goes on that is about to send its next request whenever it is looked at. */
#define BUSY_PATIENCE_US ((int64_t)1000000)

/* Of those whose bytes are passed nothing tells what is under way, but that something was a moment ago, or is amid.
 * What never ends (MONITOR) is not waited for. */
static bool may_be_answered(const struct client *client, int64_t now_us)
{
    bool is_early = now_us - client->service->draining_since_us < BUSY_PATIENCE_US;

    return (is_early && now_us - client->active_us < BLOCKED_PATIENCE_US) || buffer_length(&client->output) > 0 ||
           !resp_reply_idle(&client->exclusive->reply);
}

static bool nothing_under_way(const struct client *client, int64_t now_us)
{
    return client->first == NULL && client->wait == CLIENT_WAIT_NOTHING && buffer_length(&client->input) == 0 &&
           !client->streaming && !(client->session.passthrough && may_be_answered(client, now_us));
}

static bool has_just_come(const struct client *client, int64_t now_us)
{
    return client->active_us == client->connected_us && now_us - client->connected_us < ARRIVAL_PATIENCE_US;
}

/* What the kernel has of it would be lost, and never carried out. */
static bool has_more_to_read(const struct client *client, int64_t now_us)
{
    return now_us - client->service->draining_since_us < BUSY_PATIENCE_US && client->connection.reading &&
           connection_has_input(&client->connection);
}

/* Whether the first of its requests under way is what Redis makes it wait for. */
static bool waits_in_redis(const struct client *client, int64_t now_us)
{
    const struct expected_reply *first = client->first != NULL ? client->first->expected : NULL;
    bool may_block =
        client->waits_for_nodes || (first != NULL && first->kind == EXPECT_BLOCKING && client->exclusive != NULL);

    return may_block && now_us - client->active_us >= BLOCKED_PATIENCE_US;
}

void client_drain(struct client *client, int64_t now_us)
{
    if (client_may_move(client, now_us)) {
        return;
    }
    if (nothing_under_way(client, now_us)) {
        if (!has_just_come(client, now_us) && !has_more_to_read(client, now_us)) {
            client_finish(client);
        }
    } else if (waits_in_redis(client, now_us)) {
        client_finish(client);
        client_hung_up(client);
    }
}
