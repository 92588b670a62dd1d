/*
 * Subscriptions that no lane has any more, as their node is gone, or as it has dropped shard channels of a slot that it
 * has given away: they are asked for at another node, and the client notices nothing but that messages of the moment
 * between are lost.
 *
 *   lost ─► asked for: shard channels at the owner of their slot, others at any node ─► confirmed, which nobody hears
 *    ▲                                   │
 *    └──────── after a pause ◄───────────┘ the node has not got the slot, or is gone, too
 *
 * Only when all that was asked for is answered, what is still lost is asked for again. What the client asks for of its
 * subscriptions waits meanwhile; its other requests go on.
 */
#include "client/client_subscriber_private.h"

#include "base/log.h"

/* Before another try, where the slot's new owner is just being found. */
#define PAUSE_US 25000

/* ---- the names ---- */

size_t client_subscriber_asked(const struct subscriber_lane *at)
{
    const struct client_channel_list *names = &at->subscriber->names;
    size_t place = 0;

    for (; place < names->used; place = client_channel_list_next(names, place)) {
        struct client_channel channel = client_channel_list_at(names, place);
        if (channel.state == CLIENT_CHANNEL_ASKED && channel.place == at->number) {
            break;
        }
    }
    return place;
}

void client_subscriber_lose(struct client_subscriber *subscriber, size_t at)
{
    struct client_channel channel = client_channel_list_at(&subscriber->names, at);

    client_channel_list_set(&subscriber->names, at, CLIENT_CHANNEL_LOST, CLIENT_CHANNEL_NOWHERE);
    subscriber->lost++;
    subscriber->lost_shards += channel.kind == 's';
    client_subscriber_tend_soon(subscriber);
}

void client_subscriber_found(struct client_subscriber *subscriber, char kind, struct slice name)
{
    struct client_channel_list *names = &subscriber->names;
    size_t place = client_channel_list_find(names, kind, name);

    if (place < names->used && client_channel_list_at(names, place).state == CLIENT_CHANNEL_LOST) {
        client_channel_list_forget(names, kind, name);
        subscriber->lost--;
        subscriber->lost_shards -= kind == 's';
    }
}

void client_subscriber_lose_all(struct subscriber_lane *at)
{
    struct client_subscriber *subscriber = at->subscriber;
    const struct client_channel_list *names = &subscriber->names;

    for (size_t place = 0; place < names->used; place = client_channel_list_next(names, place)) {
        struct client_channel channel = client_channel_list_at(names, place);
        if (channel.state == CLIENT_CHANNEL_HELD && channel.place == at->number) {
            client_subscriber_lose(subscriber, place);
        }
    }
}

/* ---- what nodes say to that ---- */

void client_subscriber_regain(struct subscriber_lane *at, size_t place)
{
    struct client_subscriber *subscriber = at->subscriber;
    struct client_channel channel = client_channel_list_at(&subscriber->names, place);

    client_channel_list_set(&subscriber->names, place, CLIENT_CHANNEL_HELD, at->number);
    subscriber->lost--;
    subscriber->lost_shards -= channel.kind == 's';
}

static void still_lost(struct subscriber_lane *at)
{
    struct client_channel_list *names = &at->subscriber->names;
    size_t place = client_subscriber_asked(at);

    if (place < names->used) {
        client_channel_list_set(names, place, CLIENT_CHANNEL_LOST, CLIENT_CHANNEL_NOWHERE);
    }
}

static void give_up(struct client *client)
{
    client_end(client, "it could not be subscribed at another node");
}

/* The node has not got the slot, or not for now: it is tried again. */
void client_subscriber_not_regained(struct subscriber_lane *at, struct slice error)
{
    struct client *client = at->subscriber->client;
    struct cluster_ways *ways = client->service->cluster;
    struct cluster_redirect there;

    cluster_ways_want_map(ways);
    bool is_moved = cluster_redirect_parse(error, &there);
    bool may_pass = is_moved || slice_begins(error, "-CLUSTERDOWN ") || slice_begins(error, "-LOADING ") ||
                    slice_begins(error, "-TRYAGAIN ") || slice_begins(error, "-MASTERDOWN ");
    if (is_moved) {
        (void)cluster_way_redirect(ways, cluster_way_by_upstream(ways, lane_profile(at->lane)->upstream), &there);
    }
    if (may_pass) {
        still_lost(at);
    } else {
        give_up(client);
    }
}

/* All are answered: those that are still lost are asked for again when the timer says so. */
static void end_one(struct client_subscriber *subscriber)
{
    subscriber->asked--;
    if (subscriber->asked == 0 && subscriber->lost == 0) {
        event_del(&subscriber->timer);
        subscriber->until_us = 0;
        client_subscriber_tend_soon(subscriber);
        /* Its requests about subscriptions may have waited. */
        client_want_flush(subscriber->client);
    }
}

void client_subscriber_unasked(struct subscriber_lane *at)
{
    still_lost(at);
    end_one(at->subscriber);
}

void client_subscriber_answered(struct subscriber_lane *at)
{
    end_one(at->subscriber);
}

/* ---- asking ---- */

/* The lane for the one at that place. NULL when memory is short. */
static struct subscriber_lane *lane_for(struct client_subscriber *subscriber, size_t place)
{
    const struct client_channel_list *names = &subscriber->names;
    struct subscriber_lane *at;

    if (client_channel_list_at(names, place).kind == 's') {
        uint16_t slot = cluster_slot_of(client_channel_list_name(names, place));
        return client_subscriber_open(subscriber, cluster_way_of(subscriber->client->service->cluster, slot));
    }
    at = client_subscriber_general(subscriber);
    return at != NULL ? at : client_subscriber_open(subscriber, NULL);
}

/* False when memory is short. */
static bool send_request(struct subscriber_lane *at, struct slice request)
{
    struct run *run = run_take(at->lane->runs);

    if (run == NULL) {
        return false;
    }
    run->receiver = &client_subscriber_restore_receiver;
    run->owner = at;
    run->expected = at;
    run->requests = 1;
    if (!lane_send(at->lane, run, request.data, request.length)) {
        run_give(at->lane->runs, run);
        return false;
    }
    return true;
}

/* False when memory is short. */
static bool ask_for(struct client_subscriber *subscriber, size_t place)
{
    struct subscriber_lane *at = lane_for(subscriber, place);
    struct text_stream text;

    if (at == NULL || !text_open(&text)) {
        return false;
    }
    client_channel_list_write_request(&subscriber->names, place, text.out);
    bool sent = text_close(&text) && send_request(at, (struct slice){text.bytes, text.length});
    text_free(&text);
    if (sent) {
        client_channel_list_set(&subscriber->names, place, CLIENT_CHANNEL_ASKED, at->number);
        subscriber->asked++;
    }
    return sent;
}

static void ask_for_all(struct client_subscriber *subscriber)
{
    const struct client_channel_list *names = &subscriber->names;

    for (size_t place = 0; place < names->used; place = client_channel_list_next(names, place)) {
        bool is_lost = client_channel_list_at(names, place).state == CLIENT_CHANNEL_LOST;
        if (is_lost && !ask_for(subscriber, place)) {
            (void)client_out_of_memory(subscriber->client);
            return;
        }
    }
}

static void begin(struct client_subscriber *subscriber)
{
    struct client *client = subscriber->client;

    subscriber->until_us =
        reactor_now(client->service->reactor) + clock_ms_to_us(client->service->settings.upstream_wait);
    stats_add(client->service->reactor->stats, STATS_SUBSCRIBERS_MOVED, 1);
    log_debug("client", "client %s is subscribed at another node", client->address_text);
}

static void look_later(struct client_subscriber *subscriber)
{
    const struct timeval pause = {.tv_usec = PAUSE_US};

    event_add(&subscriber->timer, &pause);
}

/* What the client itself asks for of its subscriptions is answered first. */
static void restore(struct client_subscriber *subscriber)
{
    struct client *client = subscriber->client;

    if (subscriber->lost == 0 || client->state != CLIENT_OPEN) {
        return;
    }
    look_later(subscriber);
    if (subscriber->asked > 0 || client_is_subscribing(client)) {
        return;
    }
    if (subscriber->until_us == 0) {
        begin(subscriber);
    } else if (reactor_now(client->service->reactor) >= subscriber->until_us) {
        give_up(client);
        return;
    }
    ask_for_all(subscriber);
}

static void tend(struct client_subscriber *subscriber)
{
    if (subscriber->client->redirects == NULL) {
        client_subscriber_tidy(subscriber);
        restore(subscriber);
    } else {
        /* One of its requests may be about subscriptions. */
        look_later(subscriber);
    }
}

void client_subscriber_on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    tend(context);
}

void client_subscriber_tend_task(struct reactor_task *task)
{
    struct client_subscriber *subscriber =
        (struct client_subscriber *)(void *)((char *)task - offsetof(struct client_subscriber, task));

    if (subscriber->lost == 0 || !evtimer_pending(&subscriber->timer, NULL)) {
        tend(subscriber);
    }
    /* Else it is between two tries. */
}
