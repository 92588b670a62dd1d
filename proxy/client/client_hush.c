/*
 * CLIENT REPLY where requests of one client may be for different nodes. Were a node told of it, it would hold there and
 * nowhere else; a request that it sends elsewhere would be lost without a word; and nobody would know when it has
 * executed what it was sent, before the client goes to another node. So no node hears of it: all replies come, mean
 * what they mean, and are dropped here.
 *
 * Pushes are heard all the same, and subscriptions confirmed, as by Redis.
 */
#include "client/client_cluster_private.h"

#include "resp/word.h"

#include <stdio.h>

static bool is_subscribed(const struct client *client)
{
    const struct session *session = &client->session;

    return session->channels > 0 || session->patterns > 0 || session->shard_channels > 0;
}

static bool is_of_subscriptions(const struct expected_reply *expected)
{
    return expected->kind == EXPECT_SUBSCRIBE || expected->kind == EXPECT_UNSUBSCRIBE;
}

/* Within MULTI it would be done amid EXEC, and Redis refuses it to subscribers of RESP2 and to who has to authenticate
 * first: they hear that from Redis. */
static bool is_for_redis(const struct client *client)
{
    const struct session *session = &client->session;

    return client->service->cluster == NULL || session->sent_transaction || session->silent || session->silent_next ||
           session->passthrough || session->unsure || client->profile->needs_password ||
           (client->profile->resp == 2 && is_subscribed(client));
}

static void answer(struct session_route *route, const char *text)
{
    route->answer = SESSION_ANSWER_HERE;
    snprintf(route->text, sizeof route->text, "%s", text);
}

bool client_hush_route(struct client *client, struct slice mode, struct session_route *route)
{
    bool ends = word_is(mode, "on"), begins = word_is(mode, "off"), skips = word_is(mode, "skip");

    if (is_for_redis(client) || !(ends || begins || skips)) {
        return false;
    }
    if (client->exclusive != NULL && client->sent_runs > 0 && client->profile->resp == 2) {
        /* It may be about to be a subscriber. */
        route->answer = SESSION_LATER;
        return true;
    }
    client->hushed = begins || (client->hushed && !ends);
    client->hushes_next = client->hushes_next && !ends;
    client->hushes_behind = skips && !client->hushed;
    answer(route, ends ? "+OK\r\n" : "");
    return true;
}

/* RESET ends it, and its own reply is heard, unless that is to be skipped. */
bool client_hush_holds(const struct client *client, const struct expected_reply *expected)
{
    if (expected != NULL && expected->kind == EXPECT_RESET) {
        return client->hushes_next;
    }
    return expected == NULL || !is_of_subscriptions(expected);
}

/*
 * Of a subscriber in RESP2, replies are told from messages by what they are. What is dropped is not to be one of these:
 * so nothing is under way but requests about subscriptions. Of all that Redis takes from a subscriber, the others do
 * nothing.
 */
void client_hush_drop(struct client *client, const struct command *command, struct session_route *route)
{
    enum command_kind kind = command != NULL ? command->kind : COMMAND_ORDINARY;
    bool is_about_them = kind == COMMAND_SUBSCRIBE || kind == COMMAND_UNSUBSCRIBE;

    if (client->profile->resp != 2) {
        return;
    }
    route->barrier = route->barrier || is_about_them;
    if (is_subscribed(client) && !is_about_them && kind != COMMAND_QUIT && kind != COMMAND_RESET) {
        session_drop_route(client, route);
        answer(route, "");
    }
}
