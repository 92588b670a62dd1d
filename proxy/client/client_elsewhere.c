/*
 * Which server of the process a request goes to, where rules say by keys that it is another one than the client's own.
 * The ways there are as those to the nodes of a cluster, and all that holds of these holds: a client may have requests
 * under way at several, those of one key never on two lanes; a transaction, a watch, a script is at one; what has keys
 * of two is refused as CROSSSLOT. What has no key is at the client's own server: PUBLISH and SUBSCRIBE, FLUSHDB, SCAN.
 */
#include "client/client_cluster_private.h"

#include <stdlib.h>
#include <string.h>

struct key_search {
    const struct client_service *service;
    const struct cluster_way *way; /* of the first key */
    bool has_key;
    bool is_split; /* another key goes elsewhere */
};

static bool note_key(void *context, struct slice key, uint32_t index)
{
    struct key_search *search = context;
    const struct cluster_way *way = client_service_way_of(search->service, key);

    (void)index;
    if (search->has_key && way != search->way) {
        search->is_split = true;
        return false;
    }
    search->has_key = true;
    search->way = way;
    return true;
}

/* Keys that SORT makes up of what it finds are to be where the list is. Any of them stands for all. */
static bool note_pattern(void *context, const struct command_key_pattern *pattern)
{
    struct key_search *search = context;
    struct slice prefix = pattern->prefix, suffix = pattern->suffix;
    char key[512];

    if (prefix.length + suffix.length >= sizeof key) {
        search->is_split = true;
        return false;
    }
    memcpy(key, prefix.data, prefix.length);
    key[prefix.length] = '0';
    memcpy(key + prefix.length + 1, suffix.data, suffix.length);
    return note_key(search, (struct slice){key, prefix.length + 1 + suffix.length}, 0);
}

/* A transaction that was begun, and what is about it, stays where it is. */
static bool is_of_transaction(const struct command *command)
{
    enum command_kind kind = command != NULL ? command->kind : COMMAND_ORDINARY;

    return kind == COMMAND_MULTI || kind == COMMAND_EXEC || kind == COMMAND_DISCARD || kind == COMMAND_UNWATCH;
}

/* About the connection that the client has, if that is tied to something. */
static bool is_of_connection(const struct command *command)
{
    switch (command != NULL ? command->kind : COMMAND_ORDINARY) {
    case COMMAND_CLIENT:
    case COMMAND_AUTH:
    case COMMAND_HELLO:
    case COMMAND_SELECT:
    case COMMAND_RESET:
    case COMMAND_WAIT:
    case COMMAND_QUIT:
    case COMMAND_UNSUBSCRIBE:
        return true;
    default:
        return false;
    }
}

/* What has no key. On the client's own lane at another server it would be said there, and FLUSHDB done there. WAIT is
 * about what was said on that lane. */
static void go_home(struct client *client, const struct command *command, struct session_route *route)
{
    bool stays =
        is_of_transaction(command) || route->own_writes || (is_of_connection(command) && !session_is_portable(client));

    if (!stays) {
        client_cluster_go(client, route, NULL);
    }
}

/* Redis wants a password there that the client has not given: it hears so itself. */
static bool is_stranger_there(const struct client *client, const struct cluster_way *way)
{
    const struct profile *there = way != NULL ? client_profile_at(client, way) : NULL;

    return there != NULL && there->needs_password;
}

/* False: Redis is asked, or what is under way has to be answered first. */
static bool find_keys(struct client *client, const struct command *command, const struct request *request,
                      struct session_route *route, struct key_search *search)
{
    const struct cluster_ways *ways = client->service->cluster;
    bool is_asked = command->keys == COMMAND_KEYS_ASKED;
    struct slice frame = request->interest->translator != 0 ? request->sent : request->frame;

    if (is_asked && !client_asked_keys(client, request, route)) {
        return false;
    }
    if (is_asked && client->asked != CLIENT_ASKED_UNSAID) {
        search->has_key = client->asked != CLIENT_ASKED_NO_KEY;
        search->is_split = client->asked == CLIENT_ASKED_SPLIT;
        search->way = client->asked_place > 0 ? ways->ways[client->asked_place - 1] : NULL;
        return true;
    }
    command_visit_keys(command, frame, note_key, search);
    command_visit_patterns(command, frame, note_pattern, search);
    return true;
}

void client_elsewhere_route(struct client *client, const struct command *command, const struct request *request,
                            struct session_route *route)
{
    struct key_search search = {.service = client->service};
    bool is_translated = request->interest->translator != 0;
    const struct command *said = is_translated ? client_command_of(client->service, request->sent) : command;
    /* Who has yet to authenticate hears so from the own server. */
    bool may_have_keys = said != NULL && !client->profile->needs_password;

    if (may_have_keys && !find_keys(client, said, request, route, &search)) {
        return;
    }
    if (search.is_split) {
        client_cluster_refuse(client, route, CLUSTER_CROSSSLOT);
    } else if (search.has_key && client->session.deferred && is_stranger_there(client, search.way)) {
        /* The MULTI that was answered here would be refused there. */
        client_cluster_refuse(client, route, "-NOAUTH Authentication required.\r\n");
    } else if (search.has_key) {
        route->exclusive = route->exclusive || is_stranger_there(client, search.way);
        client_cluster_go(client, route, search.way);
    } else {
        go_home(client, command, route);
    }
}

void client_elsewhere_sent(const struct client *client)
{
    if (client->service->cluster->is_by_key) {
        stats_add(client->service->reactor->stats, STATS_REQUESTS_ELSEWHERE, 1);
    }
}

/* ---- the short way ---- */

static bool is_short(const struct client *client, const struct request *request)
{
    const struct client_service *service = client->service;

    return service->short_ways != NULL && service->short_ways[command_index(request->command)] &&
           request->framed->argument_count > 1 && request->interest->wanted == 0 && client->exclusive == NULL &&
           !client->session.sent_transaction && !client->session.unproven && !client->session.unsure &&
           !client_needs_exclusive(client);
}

bool client_elsewhere_take(struct client *client, const struct request *request)
{
    const struct client_service *service = client->service;

    if (!is_short(client, request)) {
        return false;
    }
    struct slice key = session_kept_argument(request->framed, request->frame.data, 1);
    const struct cluster_way *way = client_service_way_of(service, key);
    struct profile *profile = client_profile_at(client, way);
    bool is_shared = profile != NULL && !profile->needs_password;
    struct lane *lane = is_shared ? upstream_shared_lane(profile, client->place) : NULL;
    if (lane == NULL || client_cluster_has_to_wait(client, lane) || lane_is_congested(lane) ||
        !upstream_may_wait(service->upstream, lane)) {
        return false;
    }
    client->routed_changes = *service->cluster->changes;
    client->last_way = way != NULL ? way->number + 1 : 0;
    stats_add(service->reactor->stats, STATS_REQUESTS_ELSEWHERE, way != NULL);
    (void)client_send_short(client, lane, request);
    return true;
}

/* ---- the service ---- */

void client_service_use_ways(struct client_service *service, struct cluster_ways *ways)
{
    service->short_ways = service->short_ways != NULL ? service->short_ways : client_cluster_short_ways();
    if (service->short_ways == NULL) {
        abort();
    }
    service->cluster = ways;
    service->looks_further = true;
}
