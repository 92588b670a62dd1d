/*
 * Channels of a client on its exclusive lane: confirmations, messages and pushes are told from replies, and the
 * subscriptions are counted.
 */
#include "client/client_cluster_private.h"

#include <stdio.h>
#include <string.h>

static bool kind_is(const struct resp_reply *reply, const char *kind)
{
    char wanted[40];
    /* "*3\r\n$9\r\nsubscribe\r\n…" or the same with '>' */
    int length = snprintf(wanted, sizeof wanted, "3\r\n$%zu\r\n%s\r\n", strlen(kind), kind);

    return (reply->type == '*' || reply->type == '>') && reply->head_length > length &&
           memcmp(reply->head + 1, wanted, (size_t)length) == 0;
}

static bool is_confirmation(const struct resp_reply *reply, char channel_kind, bool opposite)
{
    static const char *const kinds[2][3] = {{"subscribe", "psubscribe", "ssubscribe"},
                                            {"unsubscribe", "punsubscribe", "sunsubscribe"}};

    return kind_is(reply, kinds[opposite][channel_kind == 'c' ? 0 : channel_kind == 'p' ? 1 : 2]);
}

bool session_is_subscribed(const struct resp_reply *reply)
{
    return is_confirmation(reply, 'c', false) || is_confirmation(reply, 'p', false) ||
           is_confirmation(reply, 's', false);
}

bool session_is_dropped(const struct resp_reply *reply)
{
    return is_confirmation(reply, 's', true);
}

/* The count that ends a confirmation is that of channels and patterns together; shard channels are counted apart. */
static int64_t *subscription_count(struct session *session, char channel_kind)
{
    return channel_kind == 'c'   ? &session->channels
           : channel_kind == 'p' ? &session->patterns
                                 : &session->shard_channels;
}

static void confirmed(struct client *client, char channel_kind, int64_t count)
{
    struct session *session = &client->session;
    int64_t others = channel_kind == 'c' ? session->patterns : channel_kind == 'p' ? session->channels : 0;

    *subscription_count(session, channel_kind) = count - others;
    if (client->exclusive != NULL) {
        client->exclusive->expects_pushes =
            session->channels > 0 || session->patterns > 0 || session->shard_channels > 0;
        if (session->shard_channels > 0 && client->channels != NULL) {
            lane_set_owner(client->exclusive, &client_shard_owner, client);
        }
    }
}

/* Looks at any confirmation, whatever asked for it. True if it is one. */
bool session_note_confirmation(struct client *client, const struct resp_reply *reply)
{
    static const char channel_kinds[] = {'c', 'p', 's'};

    /* In a passthrough it may be the reply to anything. */
    bool is_read = !client->session.passthrough || client->first != NULL;
    for (size_t i = 0; is_read && i < sizeof channel_kinds; i++) {
        for (int opposite = 0; opposite < 2; opposite++) {
            if (is_confirmation(reply, channel_kinds[i], opposite != 0)) {
                confirmed(client, channel_kinds[i], session_confirmed_count(reply));
                return true;
            }
        }
    }
    return false;
}

static bool is_message(const struct client *client, const struct resp_reply *reply)
{
    const struct session *session = &client->session;

    if (reply->type == '>') {
        return true;
    }
    if (client->profile->resp == 3 ||
        (session->channels <= 0 && session->patterns <= 0 && session->shard_channels <= 0)) {
        return false;
    }
    return kind_is(reply, "message") || kind_is(reply, "smessage") ||
           resp_reply_starts(reply, "*4\r\n$8\r\npmessage\r\n");
}

bool session_is_push(struct client *client, const struct resp_reply *reply)
{
    bool subscribed = client->profile->resp == 2 && client->exclusive != NULL && client->exclusive->expects_pushes;

    return ((reply->type == '>' || subscribed) && session_note_confirmation(client, reply)) ||
           is_message(client, reply);
}

/* True when the last confirmation that this request is owed has come, or anything that is none. */
bool session_replied_subscription(struct client *client, struct expected_reply *expected,
                                  const struct resp_reply *reply)
{
    bool opposite = expected->kind == EXPECT_UNSUBSCRIBE;

    if (!is_confirmation(reply, expected->channel_kind, opposite)) {
        if (session_note_confirmation(client, reply) || is_message(client, reply)) {
            return false;
        }
        client->session.pinned = client->session.pinned || !resp_reply_is_error(reply);
        return true;
    }
    if (!expected->started && expected->confirmations == 0) {
        /* UNSUBSCRIBE from all is confirmed once for each, and once if there is none. */
        int64_t count = *subscription_count(&client->session, expected->channel_kind);
        expected->confirmations = count > 1 ? (uint32_t)count : 1;
    }
    expected->started = true;
    confirmed(client, expected->channel_kind, session_confirmed_count(reply));
    expected->confirmations--;
    return expected->confirmations == 0;
}
