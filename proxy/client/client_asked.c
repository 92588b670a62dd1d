/*
 * Keys that only Redis finds: of commands that the table does not have, and of which COMMAND INFO says only that they
 * have keys somewhere. Each request of these is asked about before it is sent (control_keys.h), as any of its arguments
 * may decide; it waits for the answer at the head of its client's input.
 *
 * Nobody can tell which of these requests have a key in common with others, so each goes alone: what is under way is
 * answered first, and nothing follows before its own answer. So one whose keys Redis does not say, or that is too long
 * to be asked about, is in its client's order, too: it goes to one node, which knows where it belongs.
 */
#include "client/client_cluster_private.h"

#include "upstream/control_keys.h"

#include <stdlib.h>

struct client_question {
    struct client *client; /* NULL: it has gone */
};

/* ---- asking ---- */

static enum client_asked find_place(struct client *client, const redisReply *keys)
{
    enum client_asked found = CLIENT_ASKED_NO_KEY;

    for (size_t i = 0; i < keys->elements && found != CLIENT_ASKED_SPLIT; i++) {
        const redisReply *key = keys->element[i];
        if (key->type != REDIS_REPLY_STRING) {
            return CLIENT_ASKED_UNSAID;
        }
        uint16_t place = cluster_slot_of((struct slice){key->str, key->len});
        bool is_split = found == CLIENT_ASKED_PLACE && place != client->asked_place;
        found = is_split ? CLIENT_ASKED_SPLIT : CLIENT_ASKED_PLACE;
        client->asked_place = place;
    }
    return found;
}

static void answered(void *context, const redisReply *keys, bool none)
{
    struct client_question *question = context;
    struct client *client = question->client;

    free(question);
    if (client == NULL) {
        return;
    }
    client->question = NULL;
    client->asked = none ? CLIENT_ASKED_NO_KEY : keys == NULL ? CLIENT_ASKED_UNSAID : find_place(client, keys);
    if (client_wait_is_over(client, CLIENT_WAIT_KEYS)) {
        client_want_flush(client);
    }
}

static void ask(struct client *client, struct slice request)
{
    struct client_question *question = request.length <= CONTROL_KEYS_MAX ? malloc(sizeof *question) : NULL;

    if (question == NULL) {
        client->asked = CLIENT_ASKED_UNSAID;
        return;
    }
    question->client = client;
    client->question = question;
    client->asked = CLIENT_ASKED_UNDER_WAY;
    stats_add(client->service->reactor->stats, STATS_KEYS_ASKED, 1);
    control_ask_keys(client->service->control, client->profile, request, answered, question);
}

void client_asked_forget(struct client *client)
{
    if (client->question != NULL) {
        client->question->client = NULL;
        client->question = NULL;
    }
}

/* ---- what the route says of it ---- */

static bool waits(struct client *client, struct session_route *route, enum session_answer what)
{
    session_drop_route(client, route);
    route->answer = what;
    return false;
}

bool client_asked_keys(struct client *client, const struct request *request, struct session_route *route)
{
    /* What is part of a transaction has its order by that. */
    bool goes_alone = !client->session.sent_transaction;

    if (client->asked == CLIENT_ASKED_NOT) {
        ask(client, request->frame);
    }
    if (client->asked == CLIENT_ASKED_UNDER_WAY) {
        return waits(client, route, SESSION_ASKS);
    }
    if (goes_alone && client->sent_runs > 0) {
        return waits(client, route, SESSION_LATER);
    }
    route->barrier = route->barrier || goes_alone;
    return true;
}
