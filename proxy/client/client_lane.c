/* The exclusive lane of a client: when it is taken, what it is told of the client, when it may be left. */
#include "client/client_cluster_private.h"

#include <stdio.h>
#include <string.h>

/* Redis 6.0. */
#define VERSION_WITH_HELLO ((uint32_t)6 << 16)

bool session_is_doubtful(const struct client *client)
{
    return client->session.unsure && chain_wants_any(client->service->chain);
}

bool session_may_leave_node(const struct client *client)
{
    const struct session *session = &client->session;

    return !client->streaming && (!session->known_transaction || session->deferred) && !session->watching &&
           !session->pinned && !session->passthrough && !session->unsure && session->channels == 0 &&
           session->patterns == 0 && session->shard_channels == 0;
}

bool session_is_portable(const struct client *client)
{
    return session_may_leave_node(client) && client->session.told_id_us == 0 && !client->session.waited;
}

bool session_is_clean(const struct client *client)
{
    return !client->service->settings.session_pool && !client->profile->needs_password && client->heavy == 0 &&
           upstream_may_share(client->profile) && !client->output_congested && session_is_portable(client);
}

const char *session_reason(const struct client *client)
{
    const struct session *session = &client->session;

    if (client->exclusive == NULL) {
        return client_is_subscriber(client) ? "subscribed" : "shared";
    }
    return client->service->settings.session_pool                                          ? "session"
           : session->passthrough                                                          ? "tunnel"
           : session->blocking > 0                                                         ? "blocking"
           : session->known_transaction                                                    ? "transaction"
           : session->watching                                                             ? "watch"
           : session->channels > 0 || session->patterns > 0 || session->shard_channels > 0 ? "subscribed"
           : client->profile->needs_password                                               ? "unauthenticated"
           : session->pinned || session->waited || session->keeps_id                       ? "connection-state"
           : session->told_id_us != 0                                                      ? "client-id"
           : client->heavy > 0                                                             ? "slow-reader"
                                                                                           : "passing";
}

static bool set_library(struct lane *lane, const char *attribute, const char *value)
{
    char command[640];
    int length =
        snprintf(command, sizeof command, "*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                 strlen(attribute), attribute, strlen(value), value);

    if ((lane_profile(lane)->denied & PROFILE_MAY_SETINFO) != 0) {
        return true;
    }
    lane->dirty = true;
    /* What is too long for this is not worth a larger buffer: the lane goes without. */
    return (size_t)length >= sizeof command || upstream_send_told(lane, command, (size_t)length, PROFILE_MAY_SETINFO);
}

bool session_tell_identity(const struct client *client, struct lane *lane, bool whole)
{
    if (client->name != NULL || lane->named) {
        lane->named = client->name != NULL;
        if (!upstream_name_lane(lane, lane->named ? client->name : "")) {
            return false;
        }
    }
    if (whole && client->library_name != NULL && !set_library(lane, "LIB-NAME", client->library_name)) {
        return false;
    }
    return !whole || client->library_version == NULL || set_library(lane, "LIB-VER", client->library_version);
}

bool session_give_identity(struct client *client, bool whole)
{
    client->owes_identity = false;
    return session_tell_identity(client, client->exclusive, whole);
}

static void taken(struct client *client)
{
    lane_pause(client->exclusive, client->output_congested);
    client->session.sent_transaction = false;
    stats_add(client->service->reactor->stats, STATS_CLIENTS_EXCLUSIVE, 1);
}

/* Others would have to wait for this client, too, and would lose their replies with it. */
bool session_may_take_home_lane(const struct client *client)
{
    struct profile *profile = client_profile_at(client, client_last_way(client));
    const struct lane *lane = profile != NULL ? upstream_find_shared(profile, client->last_lane_id) : NULL;

    return lane != NULL && lane->state == LANE_READY && !lane_serves_others(lane, client);
}

static void take_home_lane(struct client *client)
{
    struct lane *lane = upstream_find_shared(client_profile_at(client, client_last_way(client)), client->last_lane_id);

    upstream_make_exclusive(lane, &session_lane_owner, client);
    client->exclusive = lane;
    client->exclusive_way = client_last_way(client);
    client->owes_identity = true;
}

/* A command of this connection that changes nothing, and that any user may use: behind one that is refused, WAIT would
 * speak of no writes. Servers that have rights have HELLO. */
bool session_write_nothing(const struct client *client, struct lane *lane)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    char hello[48];

    if (server_info_redis_version(client->service->server_info) < VERSION_WITH_HELLO) {
        return upstream_send_hidden(lane, ping, sizeof ping - 1, false);
    }
    int length = snprintf(hello, sizeof hello, "*2\r\n$5\r\nHELLO\r\n$1\r\n%d\r\n", client->profile->resp);
    return upstream_send_hidden(lane, hello, (size_t)length, false);
}

/* The lane was just taken, in a cluster: it is told of a MULTI that was answered before. False when memory is short. */
static bool begin_deferred(struct client *client)
{
    static const char multi[] = "*1\r\n$5\r\nMULTI\r\n";
    static const char bad_arity[] = "*1\r\n$3\r\nGET\r\n";
    struct session *session = &client->session;

    session->deferred = false;
    session->sent_transaction = true;
    session->known_transaction = true;
    return upstream_send_hidden(client->exclusive, multi, sizeof multi - 1, true) && client_send_deferred(client) &&
           (!session->spoiled || upstream_send_hidden(client->exclusive, bad_arity, sizeof bad_arity - 1, false));
}

bool session_take_lane(struct client *client, const struct session_route *route)
{
    /* A pinned client would not give a pooled lane back. */
    bool fresh = route->passthrough || route->pinned || route->own_writes;

    if (route->own_writes && session_may_take_home_lane(client)) {
        take_home_lane(client);
        /* It gets the name after the WAIT: a command before it would make it wait for more than the own writes. */
        taken(client);
        return true;
    }
    struct profile *profile = client_profile_at(client, route->way);
    client->exclusive = profile != NULL ? upstream_take_exclusive(profile, fresh, &session_lane_owner, client) : NULL;
    client->exclusive_way = route->way;
    if (client->exclusive == NULL) {
        return false;
    }
    taken(client);
    client->at_replicas = false;
    /* WAIT is about all that happened before the last command of its connection, so this makes it speak of everything
     * until now: of the client's own writes, too. */
    if (route->own_writes && !session_write_nothing(client, client->exclusive)) {
        return false;
    }
    return (route->sync || session_give_identity(client, route->identity)) &&
           (!client->session.deferred || begin_deferred(client));
}

bool session_take_bare_lane(struct client *client)
{
    client->exclusive = upstream_take_bare(client->profile, &session_lane_owner, client);
    client->exclusive_way = NULL;
    if (client->exclusive == NULL) {
        return false;
    }
    taken(client);
    return true;
}

/* What is left of it without the lane: a MULTI that was not said on it. */
static struct session without_lane(const struct session *session)
{
    bool deferred = session->deferred;

    return (struct session){
        .deferred = deferred, .spoiled = session->spoiled, .sent_transaction = deferred, .known_transaction = deferred};
}

static void leave(struct client *client, struct session left, bool clean)
{
    struct lane *lane = client->exclusive;

    client->exclusive = NULL;
    client->session = left;
    stats_subtract(client->service->reactor->stats, STATS_CLIENTS_EXCLUSIVE, 1);
    upstream_release_exclusive(lane, clean);
}

void session_leave_lane(struct client *client)
{
    leave(client, without_lane(&client->session), client->sent_runs == 0 && session_is_clean(client));
}

void session_leave_node(struct client *client)
{
    struct session left = without_lane(&client->session);

    left.blocking = client->session.blocking;
    left.scripts = client->session.scripts;
    leave(client, left, session_is_portable(client));
}

/* A lane of its own has to hear what the client says of itself; one on which nothing keeps the client is left first. */
enum session_place session_place_for(struct client *client, enum profile_right right)
{
    return profile_has_right(client->profile, right) ? session_place_here(client) : SESSION_PLACE_LANE;
}

enum session_place session_place_here(struct client *client)
{
    if (client->service->settings.session_pool) {
        return SESSION_PLACE_LANE;
    }
    if (client->exclusive == NULL) {
        return SESSION_PLACE_HERE;
    }
    if (!session_is_clean(client)) {
        return SESSION_PLACE_LANE;
    }
    if (client->first != NULL) {
        return SESSION_PLACE_LATER;
    }
    session_leave_lane(client);
    return SESSION_PLACE_HERE;
}

/* ---- the id of the lane ---- */

/*
 * Redis gives no id twice, and nobody else gets a lane whose id was told: it is closed when it is left. So an id is the
 * client's or, later, nobody's. Who asks again after that keeps the second lane: its id changes once at most. Before a
 * cluster it changes with the node: there an id is of no use to others, and all nodes are to be reached.
 */
void session_id_was_told(struct client *client)
{
    uint64_t lane_id = client->exclusive->id;
    bool is_second = client->told_lane_id != 0 && client->told_lane_id != lane_id;
    bool is_for_life = client->service->settings.session_pool || client->service->settings.client_id_timeout == 0;

    client->told_lane_id = lane_id;
    client->exclusive->dirty = true;
    client->session.told_id_us = reactor_now(client->service->reactor);
    if (is_second || is_for_life) {
        session_id_is_used(client);
    }
}

void session_id_is_used(struct client *client)
{
    bool stays = client->session.told_id_us != 0 && client->service->cluster == NULL;

    client->session.keeps_id = client->session.keeps_id || stays;
}

/* Whether its next request, if there is one, has not begun. */
static bool is_between_requests(const struct client *client)
{
    return client->state == CLIENT_OPEN && client->first == NULL && client->wait == CLIENT_WAIT_NOTHING &&
           buffer_length(&client->input) == 0;
}

void session_review_id(struct client *client, int64_t now_us)
{
    struct session *session = &client->session;
    int64_t timeout_us = clock_ms_to_us(client->service->settings.client_id_timeout);

    if (session->told_id_us == 0 || session->pinned || session->keeps_id || timeout_us == 0 ||
        now_us - session->told_id_us < timeout_us) {
        return;
    }
    if (session->blocking > 0) {
        session_id_is_used(client);
        return;
    }
    session->told_id_us = 0;
    if (!session_is_portable(client)) {
        /* What keeps the lane may be what the id is for. */
        session->told_id_us = now_us;
    } else if (is_between_requests(client) && session_is_clean(client)) {
        session_leave_lane(client);
    }
}

void session_review_weight(struct client *client)
{
    if (client->heavy == 0 || client->output_congested || !is_between_requests(client)) {
        return;
    }
    client->heavy--;
    if (client->exclusive != NULL && session_is_clean(client)) {
        session_leave_lane(client);
    }
}

bool client_enter_exclusive(struct client *client, const struct session_route *route)
{
    if (client->exclusive != NULL) {
        return !client->session.deferred || begin_deferred(client) || client_out_of_memory(client);
    }
    if (client->lane_in_use != NULL && !(route->own_writes && session_may_take_home_lane(client))) {
        return client_wait_for(client, CLIENT_WAIT_QUIET);
    }
    return session_take_lane(client, route) || client_out_of_memory(client);
}

/* ---- a lane that was told nothing ---- */

static bool tell(struct client *client, const char *command, const char *argument)
{
    char text[64];
    int length = snprintf(text, sizeof text, "*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(command), command,
                          strlen(argument), argument);

    return upstream_send_hidden(client->exclusive, text, (size_t)length, true) || client_out_of_memory(client);
}

bool session_complete_lane(struct client *client, const struct expected_reply *expected)
{
    const struct profile *profile = client->profile;
    char database[24];

    client->exclusive->bare = false;
    client->exclusive->dirty = false;
    if (profile->resp == 3 && !expected->is_hello && !tell(client, "HELLO", "3")) {
        return false;
    }
    snprintf(database, sizeof database, "%lld", (long long)profile->database);
    return profile->database == 0 || tell(client, "SELECT", database);
}
