/*
 * Shard channels whose slot goes to another node: the node drops them, and says so to their subscribers. The client is
 * not told, but subscribed at the other node.
 *
 * Redis says it of all channels of the slot, one behind the other (sunsubscribe). These are kept until the last has
 * come. The client hears them after all if it cannot be moved: if it has shard channels in other slots, which stay
 * where they are, or more than subscriptions, or a request under way.
 */
#include "client/client_moves_private.h"

#include <string.h>

/* Of such a frame, behind its type. */
static const char beginning[] = "3\r\n$12\r\nsunsubscribe\r\n$";

/* Whether what has come of a frame is, or may become, one that says so. */
static bool may_be_drop(struct slice frame)
{
    size_t length = frame.length < sizeof beginning ? frame.length - 1 : sizeof beginning - 1;

    return (frame.data[0] == '*' || frame.data[0] == '>') && memcmp(frame.data + 1, beginning, length) == 0;
}

/* What has come of the frame at hand. */
static struct slice at_hand(const struct client_channels *channels)
{
    size_t length = buffer_length(&channels->dropped) - channels->dropped_length;

    return length > 0 ? (struct slice){buffer_head(&channels->dropped) + channels->dropped_length, length}
                      : (struct slice){"", 0};
}

static void forget_dropped(struct client *client)
{
    struct client_channels *channels = client->channels;

    buffer_clear(&client->service->reactor->buffers, &channels->dropped);
    channels->dropped_count = 0;
    channels->dropped_length = 0;
}

/* The client hears what was kept, if anything was, and goes on as with Redis. */
static void let_hear(struct client *client)
{
    struct client_channels *channels = client->channels;

    if (buffer_length(&channels->dropped) == 0) {
        return;
    }
    if (channels->dropped_count > 0) {
        client_channel_list_forget_kind(&channels->names, 's');
    }
    client_output(client, buffer_head(&channels->dropped), buffer_length(&channels->dropped), false);
    forget_dropped(client);
    client_want_flush(client);
}

/* Whether these bytes of the frame are kept, as they may say so. */
static bool keeps(struct client *client, const char *data, size_t length)
{
    struct client_channels *channels = client->channels;
    bool is_first = client->exclusive->reply.size == length;

    /* With a request under way the end of the frame may be told to that. */
    channels->is_passing = channels->is_passing && !is_first;
    if (channels->is_passing || client->first != NULL || (is_first && !may_be_drop((struct slice){data, length})) ||
        buffer_length(&channels->dropped) + length > 2 * CLIENT_CHANNELS_MAX ||
        !buffer_append(&client->service->reactor->buffers, &channels->dropped, data, length)) {
        return false;
    }
    if (!may_be_drop(at_hand(channels))) {
        channels->is_passing = true;
        let_hear(client);
    }
    return true;
}

static void shard_bytes(void *owner, const char *data, size_t length)
{
    struct client *client = owner;

    if (!keeps(client, data, length)) {
        client->channels->is_passing = true;
        let_hear(client);
        session_lane_owner.bytes(owner, data, length);
    }
}

/* The channel's name in a whole frame. */
static struct slice name_in(struct slice frame)
{
    const char *text = frame.data + sizeof beginning;
    size_t length = 0;

    for (; *text != '\r'; text++) {
        length = 10 * length + (size_t)(*text - '0');
    }
    return (struct slice){text + 2, length};
}

/* Whether the client need not hear it, for now: the others will follow. */
static bool may_keep(struct client *client, struct slice name, const struct resp_reply *reply)
{
    struct client_channels *channels = client->channels;
    int64_t left = client_channel_list_count(&channels->names, 's') - channels->dropped_count - 1;

    return client->first == NULL && channels->names.is_whole && reply->integer == left &&
           client_channels_have_shard(channels, name);
}

/* A whole sunsubscribe has come that nobody has asked for. */
static void take_drop(struct client *client, const struct resp_reply *reply)
{
    struct client_channels *channels = client->channels;
    struct slice name = name_in(at_hand(channels)); /* within what is kept */

    if (!may_keep(client, name, reply)) {
        client_channel_list_forget(&channels->names, 's', name);
        let_hear(client);
        return;
    }
    channels->dropped_length = buffer_length(&channels->dropped);
    channels->dropped_count++;
    if (reply->integer > 0) {
        return;
    }
    if (client_move_shards(client)) {
        forget_dropped(client);
    } else if (client->state != CLIENT_CLOSED) {
        let_hear(client);
    }
}

static bool shard_frame(void *owner, const struct resp_reply *reply)
{
    struct client *client = owner;
    struct client_channels *channels = client->channels;

    if (channels->is_passing || at_hand(channels).length == 0) {
        channels->is_passing = false;
        return session_lane_owner.frame(owner, reply);
    }
    (void)session_note_confirmation(client, reply);
    take_drop(client, reply);
    return true;
}

static void shard_broken(void *owner, const char *why)
{
    session_lane_owner.broken(owner, why);
}

const struct lane_owner client_shard_owner = {
    .bytes = shard_bytes,
    .frame = shard_frame,
    .broken = shard_broken,
};
