/* A client's subscriptions get a lane. */
#include "client/client_subscriber_private.h"

#include <stdlib.h>

struct client_subscriber *client_subscriber_of(struct client *client)
{
    struct client_subscriber *subscriber = client->subscriber;

    if (subscriber != NULL) {
        return subscriber;
    }
    subscriber = calloc(1, sizeof *subscriber);
    if (subscriber != NULL) {
        subscriber->client = client;
        subscriber->names.is_whole = true;
        subscriber->task.run = client_subscriber_tend_task;
        LIST_INIT(&subscriber->lanes);
        LIST_INIT(&subscriber->gone);
        evtimer_assign(&subscriber->timer, client->service->reactor->base, client_subscriber_on_timer, subscriber);
        client->subscriber = subscriber;
    }
    return subscriber;
}

static uint16_t free_number(const struct client_subscriber *subscriber)
{
    uint16_t number = 0;

    while (client_subscriber_numbered(subscriber, number) != NULL) {
        number++;
    }
    return number;
}

struct subscriber_lane *client_subscriber_open(struct client_subscriber *subscriber, const struct cluster_way *way)
{
    struct client *client = subscriber->client;
    struct subscriber_lane *at = client_subscriber_at(subscriber, way);

    if (at != NULL) {
        return at;
    }
    struct profile *profile = client_profile_at(client, way);
    at = profile != NULL ? calloc(1, sizeof *at) : NULL;
    if (at == NULL) {
        return NULL;
    }
    at->subscriber = subscriber;
    at->way = way;
    at->number = free_number(subscriber);
    at->lane = upstream_take_exclusive(profile, false, &client_subscriber_owner, at);
    if (at->lane == NULL) {
        free(at);
        return NULL;
    }
    LIST_INSERT_HEAD(&subscriber->lanes, at, of_subscriber);
    /* Perhaps nothing may wait for it. */
    client_subscriber_tend_soon(subscriber);
    lane_pause(at->lane, client->output_congested);
    if (!session_tell_identity(client, at->lane, true)) {
        client_subscriber_drop(at, false);
        return NULL;
    }
    return at;
}
