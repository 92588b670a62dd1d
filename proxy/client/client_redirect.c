/*
 * Requests that a node has not executed, as it said itself: MOVED, ASK, TRYAGAIN, CLUSTERDOWN, LOADING. They are sent
 * again, in their place among the client's replies.
 *
 *   error ─► taken out of its run, held ─► all else of the client is answered ─► sent again, in the client's order
 *
 * Two things must never be: that a request is executed twice, and that two requests for one key are executed in another
 * order than the client's. For the first, only errors count that Redis itself gives before it executes anything; those
 * of scripts could be anybody's words: the node is asked about the first key by a question of Headgate's own, and only
 * what it says to that is believed. For the second, what is held is sent only when
 * nothing else of the client is under way, and of one slot one after the other; until then, and until it is answered,
 * the client sends nothing new. And what was sent behind it to the same node is watched: if one of these with a key of
 * a held request was executed after all (the slot came back in between), it was so before the other, which then must
 * not be sent any more, and is answered by Redis' error.
 */
#include "client/client_redirect_private.h"

#include <stdlib.h>
#include <string.h>

/* From so many on there are pauses between them, in case two nodes send it to each other. */
#define REDIRECTS_AT_ONCE 3

/* ---- what an error means ---- */

enum redirect { REDIRECT_NONE, REDIRECT_MOVED, REDIRECT_ASK, REDIRECT_LATER };

/* Whether the error is certainly of Redis, and says that nothing was done. */
static bool is_believed(const struct client *client, const struct run *run)
{
    const struct expected_reply *expected = run->expected;
    const struct session *session = &client->session;

    /* Where scripts have a lane, what is said may be anybody's words; for parts, from the beginning. */
    bool may_be_forged = run->lane->use == LANE_EXCLUSIVE && (session->split || run->spread != NULL);

    if (session->passthrough || session->unsure || may_be_forged) {
        return false;
    }
    return expected == NULL ||
           (expected->kind != EXPECT_SCRIPT && expected->kind != EXPECT_UNKNOWN && expected->kind != EXPECT_EXEC);
}

/* Whether it can be found out: of a script of its own, that has keys. */
static bool is_provable(const struct client *client, const struct run *run, enum redirect kind)
{
    const struct expected_reply *expected = run->expected;
    const struct session *session = &client->session;

    return kind != REDIRECT_LATER && expected != NULL && expected->kind == EXPECT_SCRIPT && run->spread == NULL &&
           !session->passthrough && !session->unsure && !session->split && client->exclusive == run->lane;
}

/* What is part of a transaction cannot be sent elsewhere without the rest of it. */
static bool is_free(const struct client *client, const struct run *run)
{
    const struct session *session = &client->session;
    const struct expected_reply *expected = run->expected;

    return !session->sent_transaction && !session->known_transaction && !client->streaming &&
           (expected == NULL || !expected->in_transaction);
}

/* Whether it is for one node and no other, as each has its own part of the whole. */
static bool is_for_node(const struct client *client, const struct run *run, struct slice request)
{
    return run->spread != NULL && !client_keys_of(client_command_of(client->service, request), request).has_key;
}

/* Whether it can be kept as a text. No Redis says such a thing otherwise. */
static bool is_text(struct slice error)
{
    return error.length > 2 && memcmp(error.data + error.length - 2, "\r\n", 2) == 0 &&
           memchr(error.data, '\0', error.length) == NULL;
}

static enum redirect kind_of(struct slice error, struct cluster_redirect *there)
{
    if (!is_text(error)) {
        return REDIRECT_NONE;
    }
    if (cluster_redirect_parse(error, there)) {
        return there->ask ? REDIRECT_ASK : REDIRECT_MOVED;
    }
    bool is_later = slice_begins(error, "-TRYAGAIN ") || slice_begins(error, "-CLUSTERDOWN ") ||
                    slice_begins(error, "-LOADING ") || slice_begins(error, "-MASTERDOWN ");
    return is_later ? REDIRECT_LATER : REDIRECT_NONE;
}

/* ---- taking requests over ---- */

/* Those behind the first that is redirected are looked at when they are answered. */
static void watch_followers(const struct client *client, struct run *run)
{
    for (; run != NULL && !run->watched; run = run->lane_next) {
        run->watched = run->owner == client && run->receiver != NULL && run->receiver->passed != NULL;
    }
}

/* The run's next request is held. False when memory is short: the client was closed. */
static bool hold(struct client *client, struct run *run, struct slice error, struct slice request, struct held **into)
{
    struct held *held = run->redirected;
    bool is_new = held == NULL;

    if (is_new) {
        held = client_redirect_open(client) ? client_redirect_new(client, request) : NULL;
    }
    char *copy = held != NULL ? strndup(error.data, error.length) : NULL;
    if (copy == NULL) {
        if (is_new) {
            free(held);
        }
        return client_out_of_memory(client);
    }
    free(held->error);
    held->error = copy;
    const struct held *before = is_new ? client->redirects->recent : TAILQ_PREV(held, held_list, of_client);
    struct run *taken = client_take_out(client, run, before != NULL ? before->run : NULL);
    if (taken == NULL) {
        if (is_new) {
            client_redirect_free(held);
        }
        return false;
    }
    held->run = taken;
    run->redirected = NULL;
    taken->redirected = held;
    held->is_held = true;
    client->redirects->held++;
    if (is_new) {
        client_redirect_insert(client, held);
    }
    client->redirects->recent = held;
    *into = held;
    return true;
}

bool client_redirected(struct run *run, struct slice error, struct slice request)
{
    struct client *client = run->owner;
    struct cluster_ways *ways = client->service->cluster;
    struct cluster_redirect there;
    enum redirect kind = kind_of(error, &there);
    const struct held *before = run->redirected;
    struct held *held;

    if (kind == REDIRECT_NONE) {
        return false;
    }
    cluster_ways_want_map(ways);
    bool is_doubtful = !is_believed(client, run);
    if ((is_doubtful && !is_provable(client, run, kind)) || is_for_node(client, run, request)) {
        return false;
    }
    const struct cluster_way *from = cluster_way_by_upstream(ways, lane_profile(run->lane)->upstream);
    bool is_unknown = false;
    if (kind != REDIRECT_LATER && !is_doubtful) {
        is_unknown = cluster_way_redirect(ways, from, &there) == NULL;
    }
    if (!is_free(client, run) || client_redirect_is_over(client, before)) {
        stats_add(client->service->reactor->stats, STATS_REDIRECTS_ENDED, before != NULL);
        return false;
    }
    watch_followers(client, run);
    stats_add(client->service->reactor->stats, STATS_REDIRECTS, 1);
    /* An error of a script may go on in further lines. */
    run->lane->needs_fence = run->lane->needs_fence || is_doubtful;
    if (!hold(client, run, error, request, &held)) {
        return true;
    }
    if (kind != REDIRECT_LATER && !held->keys.has_key && !is_doubtful) {
        /* Of one that was sent without its keys being known, the node has found them. */
        held->keys = (struct client_keys){.has_key = true, .slot = there.slot};
    }
    held->redirects += kind != REDIRECT_LATER && !is_unknown;
    held->was_asked = held->asks;
    held->asks = kind == REDIRECT_ASK && !is_unknown;
    /* An ASK that names no host ("?") no map explains: the request is sent to the same node until it goes on. */
    held->awaits_map = is_unknown && !(there.ask && there.is_unknown);
    held->pauses = kind == REDIRECT_LATER || is_unknown || held->redirects >= REDIRECTS_AT_ONCE;
    held->there = there;
    held->owner = held->awaits_map ? cluster_way_of(ways, there.slot) : NULL;
    held->is_doubtful = is_doubtful;
    held->is_refuted = false;
    held->asked = from;
    client_redirect_check(client);
    return true;
}

/* The next whole request of those; empty: there is none. */
static struct slice next_request(struct slice *requests)
{
    struct resp_command command = {0};
    size_t taken = 0;
    bool is_whole = requests->length > 0 &&
                    resp_command_feed(&command, requests->data, requests->length, UINT64_MAX, &taken) == RESP_DONE;
    struct slice request = {requests->data, is_whole ? taken : 0};

    requests->data += request.length;
    requests->length -= request.length;
    return request;
}

void client_returned(struct run *run, struct slice requests)
{
    static const char why[] = "-ERR headgate: the node that had this slot is gone, and was not reached before\r\n";
    struct client *client = run->owner;
    struct held *held;

    while (run->requests > 0) {
        struct slice request = next_request(&requests);
        if (!hold(client, run, (struct slice){why, sizeof why - 1}, request, &held)) {
            return;
        }
        run->requests -= run->answered + 1;
        run->answered = 0;
        held->asks = false;
        held->is_refuted = is_for_node(client, held->run, held->request) || client_redirect_is_over(client, held);
    }
    client_end_taken(client);
    if (client->state != CLIENT_CLOSED) {
        client_redirect_check(client);
    }
}

/* ---- what was executed meanwhile ---- */

struct key_search {
    struct slice key;
    bool found;
};

static bool is_that_key(void *context, struct slice key, uint32_t index)
{
    struct key_search *search = context;

    (void)index;
    search->found = slice_equal(search->key, key);
    return !search->found;
}

/* Whether it may have that key at all: most are of other slots. */
static bool may_have(const struct held *held, uint16_t slot)
{
    return held->is_held && !held->is_overtaken &&
           (!held->keys.has_key || held->keys.is_split || held->keys.slot == slot);
}

static bool overtake(void *context, struct slice key, uint32_t index)
{
    const struct client *client = context;
    uint16_t slot = cluster_slot_of(key);
    struct held *held;

    (void)index;
    TAILQ_FOREACH(held, &client->redirects->requests, of_client)
    {
        struct key_search search = {.key = key};
        if (may_have(held, slot)) {
            const struct command *command = client_command_of(client->service, held->request);
            command_visit_keys(command, held->request, is_that_key, &search);
            held->is_overtaken = search.found;
        }
    }
    return true;
}

void client_passed(struct run *run, struct slice request)
{
    struct client *client = run->owner;
    const struct command *command = client_command_of(client->service, request);

    if (client->redirects != NULL && client->redirects->held > 0 && command != NULL) {
        command_visit_keys(command, request, overtake, client);
    }
}
