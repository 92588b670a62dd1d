/*
 * The lanes of a client's subscriptions: which there are, and how they are let go of.
 */
#include "client/client_subscriber_private.h"

#include <stdlib.h>

/* ---- lanes ---- */

struct subscriber_lane *client_subscriber_find(const struct client_subscriber *subscriber, const struct lane *lane)
{
    struct subscriber_lane *at = LIST_FIRST(&subscriber->lanes);

    while (at != NULL && at->lane != lane) {
        at = LIST_NEXT(at, of_subscriber);
    }
    return at;
}

struct subscriber_lane *client_subscriber_numbered(const struct client_subscriber *subscriber, uint16_t number)
{
    struct subscriber_lane *at = LIST_FIRST(&subscriber->lanes);

    while (at != NULL && at->number != number) {
        at = LIST_NEXT(at, of_subscriber);
    }
    return at;
}

struct subscriber_lane *client_subscriber_at(const struct client_subscriber *subscriber, const struct cluster_way *way)
{
    struct subscriber_lane *at = LIST_FIRST(&subscriber->lanes);

    while (at != NULL && at->way != way) {
        at = LIST_NEXT(at, of_subscriber);
    }
    return at;
}

/* Always the same one, if that can be: another node might tell again what was heard at the one before. */
struct subscriber_lane *client_subscriber_general(const struct client_subscriber *subscriber)
{
    struct subscriber_lane *at;

    LIST_FOREACH(at, &subscriber->lanes, of_subscriber)
    {
        if (at->channels + at->patterns > 0) {
            return at;
        }
    }
    return client_subscriber_at(subscriber, NULL);
}

void client_subscriber_drop(struct subscriber_lane *at, bool clean)
{
    struct client_subscriber *subscriber = at->subscriber;
    struct lane *lane = at->lane;

    LIST_REMOVE(at, of_subscriber);
    LIST_INSERT_HEAD(&subscriber->gone, at, of_subscriber);
    at->lane = NULL;
    buffer_clear(&subscriber->client->service->reactor->buffers, &at->frame);
    client_subscriber_tend_soon(subscriber);
    if (lane->state != LANE_CLOSED) {
        upstream_release_exclusive(lane, clean);
    }
}

int64_t client_subscriber_other_shards(const struct client_subscriber *subscriber, const struct subscriber_lane *at)
{
    const struct subscriber_lane *other;
    int64_t count = subscriber->lost_shards;

    LIST_FOREACH(other, &subscriber->lanes, of_subscriber)
    {
        count += other != at ? other->shards : 0;
    }
    return count;
}

void client_subscriber_tend_soon(struct client_subscriber *subscriber)
{
    reactor_at_turn_end(subscriber->client->service->reactor, REACTOR_STAGE_CLIENTS, &subscriber->task);
}

/* ---- the client ---- */

static bool is_in_use(const struct subscriber_lane *at)
{
    return at->channels + at->patterns + at->shards > 0;
}

bool client_is_subscriber(const struct client *client)
{
    const struct client_subscriber *subscriber = client->subscriber;
    const struct subscriber_lane *at;

    if (subscriber == NULL) {
        return false;
    }
    LIST_FOREACH(at, &subscriber->lanes, of_subscriber)
    {
        if (is_in_use(at)) {
            return true;
        }
    }
    return subscriber->lost > 0;
}

bool client_is_subscribing(const struct client *client)
{
    return client->subscriber != NULL && client->sent_runs > 0 && client->lane_in_use != NULL &&
           client_subscriber_find(client->subscriber, client->lane_in_use) != NULL;
}

bool client_subscriber_name(struct client *client)
{
    const struct subscriber_lane *at;

    LIST_FOREACH(at, &client->subscriber->lanes, of_subscriber)
    {
        at->lane->named = client->name != NULL;
        if (!upstream_name_lane(at->lane, client->name != NULL ? client->name : "")) {
            return false;
        }
    }
    return true;
}

size_t client_subscriber_kept(const struct client *client)
{
    const struct client_subscriber *subscriber = client->subscriber;
    size_t kept = subscriber != NULL ? buffer_length(&subscriber->waiting) : 0;
    const struct subscriber_lane *at;

    if (subscriber != NULL) {
        LIST_FOREACH(at, &subscriber->lanes, of_subscriber)
        {
            kept += buffer_length(&at->frame);
        }
    }
    return kept;
}

/* Redis leaves a connection its subscriptions when another user authenticates on it. */
bool client_subscriber_speak_for(struct client *client)
{
    struct client_subscriber *subscriber = client->subscriber;
    const struct subscriber_lane *at;

    LIST_FOREACH(at, &subscriber->lanes, of_subscriber)
    {
        struct profile *there = client_profile_at(client, at->way);
        if (there == NULL) {
            return false;
        }
        upstream_lane_speaks_for(at->lane, there);
        if (!upstream_greet_again(at->lane)) {
            return false;
        }
    }
    return true;
}

void client_subscriber_end(struct client *client)
{
    struct client_subscriber *subscriber = client->subscriber;

    if (subscriber == NULL) {
        return;
    }
    while (!LIST_EMPTY(&subscriber->lanes)) {
        client_subscriber_drop(LIST_FIRST(&subscriber->lanes), false);
    }
    event_del(&subscriber->timer);
    buffer_clear(&client->service->reactor->buffers, &subscriber->waiting);
    client_channel_list_begin(&subscriber->names);
    subscriber->lost = 0;
    subscriber->lost_shards = 0;
    subscriber->until_us = 0;
}

static void free_gone(struct client_subscriber *subscriber)
{
    while (!LIST_EMPTY(&subscriber->gone)) {
        struct subscriber_lane *at = LIST_FIRST(&subscriber->gone);
        LIST_REMOVE(at, of_subscriber);
        free(at);
    }
}

void client_subscriber_free(struct client *client)
{
    struct client_subscriber *subscriber = client->subscriber;

    if (subscriber != NULL) {
        reactor_cancel(client->service->reactor, REACTOR_STAGE_CLIENTS, &subscriber->task);
        free_gone(subscriber);
        client_channel_list_free(&subscriber->names);
        free(subscriber);
        client->subscriber = NULL;
    }
}

void client_subscriber_tidy(struct client_subscriber *subscriber)
{
    struct subscriber_lane *at = LIST_FIRST(&subscriber->lanes);

    free_gone(subscriber);
    while (at != NULL) {
        struct subscriber_lane *next = LIST_NEXT(at, of_subscriber);
        if (at->lane->first == NULL && !is_in_use(at)) {
            client_subscriber_drop(at, true);
        }
        at = next;
    }
    if (!client_is_subscriber(subscriber->client) && !client_is_subscribing(subscriber->client)) {
        /* However many there were. */
        client_channel_list_begin(&subscriber->names);
    }
}
