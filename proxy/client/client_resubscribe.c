/*
 * Subscriptions before a cluster. Messages go to all of its nodes, so a subscriber is at any; when that one goes, the
 * client is subscribed at another, and notices nothing but that messages of the moment between are lost.
 *
 *   lane broken, nothing else on it ─► another lane ─► SUBSCRIBE each name ─► confirmations are dropped, messages go on
 *
 * Which names there are is noted when they are asked for, as confirmations are not kept whole. Before and after a move
 * they are counted against what Redis has confirmed: where that differs, the client is closed, as without this.
 */
#include "client/client_cluster_private.h"

#include "base/log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names that are kept of a client. Who has more is closed when its node goes. Bytes. */
#define NAMES_MAX ((size_t)64 * 1024)

/* In front of each name. */
struct entry {
    uint32_t length;
    char kind; /* 'c' or 'p' */
};

struct client_channels {
    bool is_whole; /* false: there were too many, or memory was short */
    size_t used;
    size_t room;
    char *entries; /* a struct entry and its bytes, one behind the other */
    struct resubscription *moving;
};

/* A move under way. */
struct resubscription {
    struct client *client;
    struct buffer frame; /* what has come of a frame, until it is known what it is */
    bool failed;
};

/* ---- the names ---- */

static struct entry entry_at(const struct client_channels *channels, size_t at)
{
    struct entry entry;

    memcpy(&entry, channels->entries + at, sizeof entry);
    return entry;
}

static size_t size_of(struct entry entry)
{
    return sizeof entry + entry.length;
}

static void take_away(struct client_channels *channels, size_t at)
{
    size_t size = size_of(entry_at(channels, at));

    memmove(channels->entries + at, channels->entries + at + size, channels->used - at - size);
    channels->used -= size;
}

/* name.data NULL: all of that kind. */
static void forget(struct client_channels *channels, char kind, struct slice name)
{
    size_t at = 0;

    while (at < channels->used) {
        struct entry entry = entry_at(channels, at);
        struct slice found = {channels->entries + at + sizeof entry, entry.length};
        if (entry.kind == kind && (name.data == NULL || slice_equal(found, name))) {
            take_away(channels, at);
        } else {
            at += size_of(entry);
        }
    }
}

static bool make_room(struct client_channels *channels, size_t size)
{
    size_t room = channels->room > 0 ? channels->room : 256;

    while (room < channels->used + size) {
        room *= 2;
    }
    char *entries = room > NAMES_MAX ? NULL : realloc(channels->entries, room);
    if (entries != NULL) {
        channels->entries = entries;
        channels->room = room;
    }
    return entries != NULL;
}

static void keep(struct client_channels *channels, char kind, struct slice name)
{
    const struct entry entry = {.length = (uint32_t)name.length, .kind = kind};

    forget(channels, kind, name);
    if (name.length > NAMES_MAX || !make_room(channels, sizeof entry + name.length)) {
        channels->is_whole = false;
        return;
    }
    memcpy(channels->entries + channels->used, &entry, sizeof entry);
    if (name.length > 0) {
        memcpy(channels->entries + channels->used + sizeof entry, name.data, name.length);
    }
    channels->used += size_of(entry);
}

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

    if (channels == NULL || expected->channel_kind == 's' || !resp_walk_skip(&walk, 1)) {
        return;
    }
    if (client->first == NULL && client->session.channels == 0 && client->session.patterns == 0) {
        /* What was before is over, however it ended. */
        channels->used = 0;
        channels->is_whole = true;
    }
    if (is_end && walk.left == 0) {
        forget(channels, expected->channel_kind, (struct slice){0});
    }
    while (resp_walk_next(&walk, &name)) {
        if (is_end) {
            forget(channels, expected->channel_kind, name);
        } else {
            keep(channels, expected->channel_kind, name);
        }
    }
}

static int64_t count_of(const struct client_channels *channels, char kind)
{
    int64_t count = 0;
    struct entry entry;

    for (size_t at = 0; at < channels->used; at += size_of(entry)) {
        entry = entry_at(channels, at);
        count += entry.kind == kind;
    }
    return count;
}

void client_forget_channels(struct client *client)
{
    if (client->channels != NULL) {
        assert(client->channels->moving == NULL);
        free(client->channels->entries);
        free(client->channels);
        client->channels = NULL;
    }
}

/* ---- what the new node says ---- */

static void moving_free(struct resubscription *moving)
{
    struct client *client = moving->client;

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

/* A message that comes between goes to the client. */
static bool on_reply(struct run *run, const struct resp_reply *reply)
{
    struct resubscription *moving = run->owner;
    bool is_confirmed = session_is_subscribed(reply);
    bool is_error = reply->type == '-' || reply->type == '!';

    moving->failed = moving->failed || is_error;
    if (!is_confirmed && !is_error) {
        client_output(moving->client, buffer_head(&moving->frame), buffer_length(&moving->frame), false);
    }
    buffer_clear(&moving->client->service->reactor->buffers, &moving->frame);
    return is_confirmed || is_error;
}

static void on_answered(struct run *run)
{
    struct resubscription *moving = run->owner;
    struct client *client = moving->client;
    bool failed = moving->failed;

    run_give(client->service->runs, run);
    moving_free(moving);
    if (failed) {
        client_end(client, "it could not be subscribed at another node");
        return;
    }
    lane_set_owner(client->exclusive, &session_lane_owner, client);
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

/* There is a request under way, which is asked. */
static bool lane_frame(void *owner, const struct resp_reply *reply)
{
    (void)owner;
    (void)reply;
    return true;
}

static void lane_broken(void *owner, const char *why)
{
    session_lane_owner.broken(owner, why);
}

static void lane_writable(void *owner)
{
    session_lane_owner.writable(owner);
}

static const struct lane_owner moving_owner = {
    .bytes = lane_bytes,
    .frame = lane_frame,
    .broken = lane_broken,
    .writable = lane_writable,
};

/* ---- moving ---- */

/* Whether the subscriptions are all that the client had there. */
static bool may_move(struct client *client)
{
    const struct client_channels *channels = client->channels;
    struct session *session = &client->session;
    const struct session before = *session;

    if (client->service->cluster == NULL || channels == NULL || !channels->is_whole || channels->used == 0 ||
        client->state != CLIENT_OPEN || client->first != NULL || client->streaming || client->input_ended ||
        client->service->draining || !resp_reply_idle(&client->exclusive->reply) ||
        before.channels != count_of(channels, 'c') || before.patterns != count_of(channels, 'p')) {
        return false;
    }
    session->channels = 0;
    session->patterns = 0;
    bool is_all = session_is_portable(client) && !before.silent && !before.silent_next && before.blocking == 0 &&
                  before.login_us == 0 && !before.deferred;
    *session = before;
    return is_all;
}

static bool write_requests(const struct client_channels *channels, FILE *out)
{
    struct entry entry;

    for (size_t at = 0; at < channels->used; at += size_of(entry)) {
        entry = entry_at(channels, at);
        const char *name = channels->entries + at + sizeof entry;
        fputs(entry.kind == 'p' ? "*2\r\n$10\r\nPSUBSCRIBE\r\n" : "*2\r\n$9\r\nSUBSCRIBE\r\n", out);
        fprintf(out, "$%u\r\n", (unsigned)entry.length);
        fwrite(name, 1, entry.length, out);
        fputs("\r\n", out);
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
    run->requests = (uint32_t)(count_of(channels, 'c') + count_of(channels, 'p'));
    if (!lane_send(client->exclusive, run, requests.data, requests.length)) {
        run_give(client->service->runs, run);
        return false;
    }
    return true;
}

static bool subscribe_again(struct client *client)
{
    struct resubscription *moving = calloc(1, sizeof *moving);
    struct text_stream text;

    if (moving == NULL || !text_open(&text)) {
        free(moving);
        return false;
    }
    moving->client = client;
    bool written = write_requests(client->channels, text.out);
    bool sent = text_close(&text) && written && send_requests(client, moving, (struct slice){text.bytes, text.length});
    text_free(&text);
    if (sent) {
        client->channels->moving = moving;
        lane_set_owner(client->exclusive, &moving_owner, client);
        client->exclusive->expects_pushes = true;
    } else {
        free(moving);
    }
    return sent;
}

bool client_move_subscriptions(struct client *client)
{
    const struct session_route route = {.exclusive = true, .identity = true};
    const struct session before = client->session;

    if (!may_move(client)) {
        return false;
    }
    client->exclusive = NULL;
    client->exclusive_way = NULL;
    stats_subtract(client->service->reactor->stats, STATS_CLIENTS_EXCLUSIVE, 1);
    if (!session_take_lane(client, &route)) {
        return false;
    }
    /* It is not given to others as long as it has these. */
    client->session = before;
    if (!subscribe_again(client)) {
        session_leave_lane(client);
        return false;
    }
    stats_add(client->service->reactor->stats, STATS_SUBSCRIBERS_MOVED, 1);
    log_debug("client", "client %s is subscribed at another node", client->address_text);
    return true;
}
