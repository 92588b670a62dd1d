/*
 * Subscriptions before a cluster. Messages go to all of its nodes, so a subscriber is at any; when that one goes, the
 * client is subscribed at another, and notices nothing but that messages of the moment between are lost.
 *
 *   lane broken, nothing else on it ─► another lane ─► SUBSCRIBE each name ─► confirmations are dropped, messages go on
 *
 * Which names there are is noted when they are asked for, as confirmations are not kept whole. Before and after a move
 * they are counted against what Redis has confirmed: where that differs, the client is closed, as without this.
 */
#include "client/client_moves_private.h"

#include "base/log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before another try, where the node of shard channels is gone, or is just being found; and how often it is looked
 * whether there is another node by now. */
#define PAUSE_US ((int64_t)25000)

/* A move under way. */
struct resubscription {
    struct client *client;
    struct buffer frame; /* what has come of a frame, until it is known what it is */
    struct run *run;     /* of the requests that are under way; NULL: between two tries */
    bool failed;
    bool tries_again; /* it has come to nothing, and may not for long */
    int64_t until_us; /* as long as that */
    struct event timer;
};

/* ---- the names ---- */

static struct client_channels *channels_of(struct client *client)
{
    if (client->channels == NULL) {
        client->channels = calloc(1, sizeof *client->channels);
    }
    return client->channels;
}

void client_note_channels(struct client *client, const struct expected_reply *expected, struct slice frame)
{
    struct client_channels *channels = channels_of(client);
    struct resp_walk walk = resp_walk_start(frame);
    bool is_end = expected->kind == EXPECT_UNSUBSCRIBE;
    struct slice name;

    if (channels == NULL || !resp_walk_skip(&walk, 1)) {
        return;
    }
    if (client->first == NULL && client->session.channels == 0 && client->session.patterns == 0 &&
        client->session.shard_channels == 0) {
        /* What was before is over, however it ended. */
        client_channel_list_begin(&channels->names);
    }
    if (is_end && walk.left == 0) {
        client_channel_list_forget_kind(&channels->names, expected->channel_kind);
    }
    while (resp_walk_next(&walk, &name)) {
        if (is_end) {
            client_channel_list_forget(&channels->names, expected->channel_kind, name);
        } else {
            client_channel_list_keep(&channels->names, expected->channel_kind, name, 0);
        }
    }
}

/* The slot of all shard channels; CLUSTER_NOBODY: there are none, or they are of several. */
static int32_t slot_of_shards(const struct client_channel_list *names)
{
    int32_t slot = CLUSTER_NOBODY;

    for (size_t at = 0; at < names->used; at = client_channel_list_next(names, at)) {
        bool is_shard = client_channel_list_at(names, at).kind == 's';
        int32_t other = is_shard ? cluster_slot_of(client_channel_list_name(names, at)) : slot;
        if (slot != CLUSTER_NOBODY && other != slot) {
            return CLUSTER_NOBODY;
        }
        slot = other;
    }
    return slot;
}

bool client_channels_have_shard(const struct client_channels *channels, struct slice name)
{
    bool has_it = client_channel_list_find(&channels->names, 's', name) < channels->names.used;

    return has_it && slot_of_shards(&channels->names) != CLUSTER_NOBODY;
}

bool client_is_moving(const struct client *client)
{
    const struct client_channels *channels = client->channels;

    return channels != NULL && (channels->moving != NULL || buffer_length(&channels->dropped) > 0);
}

static void moving_free(struct resubscription *moving);

void client_forget_channels(struct client *client)
{
    if (client->channels != NULL) {
        if (client->channels->moving != NULL) {
            /* Between two tries. */
            moving_free(client->channels->moving);
        }
        buffer_clear(&client->service->reactor->buffers, &client->channels->dropped);
        client_channel_list_free(&client->channels->names);
        free(client->channels);
        client->channels = NULL;
    }
}

/* ---- what the new node says ---- */

static void moving_free(struct resubscription *moving)
{
    struct client *client = moving->client;

    event_del(&moving->timer);
    buffer_clear(&client->service->reactor->buffers, &moving->frame);
    client->channels->moving = NULL;
    free(moving);
}

static void gather(struct resubscription *moving, const char *data, size_t length)
{
    struct client *client = moving->client;

    if (!buffer_append(&client->service->reactor->buffers, &moving->frame, data, length)) {
        moving->failed = true;
    }
}

static void on_bytes(struct run *run, const char *data, size_t length)
{
    gather(run->owner, data, length);
}

/* The node has not got the slot, or not for now. */
static bool may_pass(struct resubscription *moving)
{
    struct client *client = moving->client;
    struct cluster_ways *ways = client->service->cluster;
    struct slice error = {buffer_head(&moving->frame), buffer_length(&moving->frame)};
    struct cluster_redirect there;

    cluster_ways_want_map(ways);
    if (cluster_redirect_parse(error, &there)) {
        (void)cluster_way_redirect(ways, cluster_way_by_upstream(ways, lane_profile(client->exclusive)->upstream),
                                   &there);
        return true;
    }
    return slice_begins(error, "-CLUSTERDOWN ") || slice_begins(error, "-LOADING ") ||
           slice_begins(error, "-TRYAGAIN ") || slice_begins(error, "-MASTERDOWN ");
}

/* A message that comes between goes to the client. */
static bool on_reply(struct run *run, const struct resp_reply *reply)
{
    struct resubscription *moving = run->owner;
    const struct client *client = moving->client;
    bool is_confirmed = session_is_subscribed(reply);
    bool is_error = reply->type == '-' || reply->type == '!';
    bool is_dropped = session_is_dropped(reply);

    if (is_error && may_pass(moving)) {
        moving->tries_again = true;
    } else if (is_dropped) {
        /* The slot goes on. */
        moving->tries_again = true;
    } else if (is_error) {
        moving->failed = true;
    } else if (!is_confirmed) {
        client_output(moving->client, buffer_head(&moving->frame), buffer_length(&moving->frame), false);
    }
    if (client->state == CLIENT_CLOSED) {
        /* The move went with its lane. */
        return false;
    }
    buffer_clear(&client->service->reactor->buffers, &moving->frame);
    return is_confirmed || is_error;
}

static void look_later(struct resubscription *moving)
{
    const struct timeval pause = {.tv_usec = PAUSE_US};

    event_add(&moving->timer, &pause);
}

static void on_answered(struct run *run)
{
    struct resubscription *moving = run->owner;
    struct client *client = moving->client;
    bool failed = moving->failed;

    run_give(client->service->runs, run);
    moving->run = NULL;
    if (!failed && moving->tries_again) {
        look_later(moving);
        return;
    }
    moving_free(moving);
    if (failed) {
        client_end(client, "it could not be subscribed at another node");
        return;
    }
    lane_set_owner(client->exclusive,
                   client_channel_list_count(&client->channels->names, 's') > 0 ? &client_shard_owner
                                                                                : &session_lane_owner,
                   client);
    client_want_flush(client);
}

static void on_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct resubscription *moving = run->owner;
    struct client *client = moving->client;
    bool is_closed = client->exclusive == NULL || client->exclusive->state == LANE_CLOSED;

    (void)loss;
    run_give(client->service->runs, run);
    moving_free(moving);
    if (!is_closed) {
        /* It never came to be. If it was closed, its owner is told. */
        client_end(client, why);
    }
}

static const struct run_receiver moving_receiver = {
    .bytes = on_bytes,
    .reply = on_reply,
    .answered = on_answered,
    .lost = on_lost,
};

static void lane_bytes(void *owner, const char *data, size_t length)
{
    struct client *client = owner;

    if (client->channels->moving != NULL) {
        gather(client->channels->moving, data, length);
    }
}

/* With a request under way that is asked. Between two tries messages may come of what was confirmed. */
static bool lane_frame(void *owner, const struct resp_reply *reply)
{
    struct client *client = owner;
    struct resubscription *moving = client->channels->moving;

    if (moving != NULL && !session_is_dropped(reply)) {
        client_output(client, buffer_head(&moving->frame), buffer_length(&moving->frame), false);
    }
    if (moving != NULL) {
        buffer_clear(&client->service->reactor->buffers, &moving->frame);
    }
    return true;
}

static void lane_broken(void *owner, const char *why)
{
    struct client *client = owner;

    if (client->channels->moving != NULL) {
        /* Between two tries. */
        moving_free(client->channels->moving);
    }
    session_lane_owner.broken(owner, why);
}

static const struct lane_owner moving_owner = {
    .bytes = lane_bytes,
    .frame = lane_frame,
    .broken = lane_broken,
};

/* ---- moving ---- */

/* Whether the subscriptions are all that the client had there. */
static bool may_move(struct client *client)
{
    const struct client_channels *channels = client->channels;
    struct session *session = &client->session;
    const struct session before = *session;

    if (client->service->cluster == NULL || channels == NULL || !channels->names.is_whole ||
        channels->names.used == 0 || client->state != CLIENT_OPEN || client->first != NULL || client->streaming ||
        client->input_ended || client->service->draining ||
        before.channels != client_channel_list_count(&channels->names, 'c') ||
        before.patterns != client_channel_list_count(&channels->names, 'p')) {
        return false;
    }
    session->channels = 0;
    session->patterns = 0;
    session->shard_channels = 0;
    bool is_all = session_is_portable(client) && before.blocking == 0 && before.login_us == 0 && !before.deferred;
    *session = before;
    return is_all;
}

static bool write_requests(const struct client_channel_list *names, FILE *out)
{
    for (size_t at = 0; at < names->used; at = client_channel_list_next(names, at)) {
        client_channel_list_write_request(names, at, out);
    }
    return ferror(out) == 0;
}

static bool send_requests(struct client *client, struct resubscription *moving, struct slice requests)
{
    const struct client_channels *channels = client->channels;
    struct run *run = run_take(client->service->runs);

    if (run == NULL) {
        return false;
    }
    run->receiver = &moving_receiver;
    run->owner = moving;
    run->expected = moving;
    run->requests =
        (uint32_t)(client_channel_list_count(&channels->names, 'c') + client_channel_list_count(&channels->names, 'p') +
                   client_channel_list_count(&channels->names, 's'));
    if (!lane_send(client->exclusive, run, requests.data, requests.length)) {
        run_give(client->service->runs, run);
        return false;
    }
    moving->run = run;
    look_later(moving);
    return true;
}

static bool subscribe_again(struct client *client, struct resubscription *moving)
{
    struct text_stream text;

    if (!text_open(&text)) {
        return false;
    }
    bool written = write_requests(&client->channels->names, text.out);
    bool sent = text_close(&text) && written && send_requests(client, moving, (struct slice){text.bytes, text.length});
    text_free(&text);
    if (sent) {
        lane_set_owner(client->exclusive, &moving_owner, client);
        client->exclusive->expects_pushes = true;
    }
    return sent;
}

/* Where shard channels are now, or any node. */
static const struct cluster_way *destination(const struct client *client)
{
    int32_t slot = slot_of_shards(&client->channels->names);

    return slot != CLUSTER_NOBODY ? cluster_way_of(client->service->cluster, (uint16_t)slot) : NULL;
}

/* The client has no exclusive lane. */
static bool move(struct client *client, struct resubscription *moving)
{
    const struct session_route route = {.exclusive = true, .identity = true, .way = destination(client)};
    const struct session before = client->session;

    if (!session_take_lane(client, &route)) {
        return false;
    }
    /* It is not given to others as long as it has these. */
    client->session = before;
    client->session.shard_channels = client_channel_list_count(&client->channels->names, 's');
    if (!subscribe_again(client, moving)) {
        session_leave_lane(client);
        return false;
    }
    return true;
}

/* Without its lane: others have to be told of that. */
static void leave(struct client *client)
{
    struct lane *lane = client->exclusive;

    client->exclusive = NULL;
    client->exclusive_way = NULL;
    stats_subtract(client->service->reactor->stats, STATS_CLIENTS_EXCLUSIVE, 1);
    if (lane->state != LANE_CLOSED) {
        upstream_release_exclusive(lane, false);
    }
}

/* Whether the lane does not come to be, while shard channels have another node by now. */
static bool is_overdue(const struct client *client)
{
    return client->exclusive->state != LANE_READY && destination(client) != client->exclusive_way;
}

/* Another try, if there is need of it. */
static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct resubscription *moving = context;
    struct client *client = moving->client;

    (void)fd;
    (void)what;
    if (client->state != CLIENT_OPEN || client->exclusive == NULL) {
        return;
    }
    if (moving->run != NULL && !is_overdue(client)) {
        look_later(moving);
        return;
    }
    if (moving->run != NULL) {
        /* It was not sent, and is nobody's any more. */
        moving->run->receiver = NULL;
        moving->run->expected = NULL;
        moving->run = NULL;
    }
    moving->tries_again = false;
    leave(client);
    if (reactor_now(client->service->reactor) >= moving->until_us || !move(client, moving)) {
        moving_free(moving);
        client_end(client, "it could not be subscribed at another node");
    }
}

/* It has an exclusive lane, which is closed or to be closed. */
static bool begin_move(struct client *client)
{
    struct resubscription *moving = calloc(1, sizeof *moving);

    if (moving == NULL) {
        return false;
    }
    moving->client = client;
    moving->until_us = reactor_now(client->service->reactor) + clock_ms_to_us(client->service->settings.upstream_wait);
    evtimer_assign(&moving->timer, client->service->reactor->base, on_timer, moving);
    client->channels->moving = moving;
    leave(client);
    if (!move(client, moving)) {
        moving_free(moving);
        return false;
    }
    stats_add(client->service->reactor->stats, STATS_SUBSCRIBERS_MOVED, 1);
    log_debug("client", "client %s is subscribed at another node", client->address_text);
    return true;
}

bool client_move_subscriptions(struct client *client)
{
    const struct client_channels *channels = client->channels;

    /* What has come of a message would be part of what comes next. Shard channels of several slots may come to be at
     * several nodes. */
    if (!may_move(client) || !resp_reply_idle(&client->exclusive->reply) || channels->dropped_count > 0 ||
        client->session.shard_channels != client_channel_list_count(&channels->names, 's') ||
        (client->session.shard_channels > 0 && slot_of_shards(&channels->names) == CLUSTER_NOBODY)) {
        return false;
    }
    return begin_move(client);
}

bool client_move_shards(struct client *client)
{
    if (!may_move(client)) {
        return false;
    }
    if (!begin_move(client) && client->exclusive == NULL) {
        client_end(client, "it could not be subscribed at another node");
    }
    return true;
}
