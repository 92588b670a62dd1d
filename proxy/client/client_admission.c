/*
 * Whether a client may come, once it is known who it is; and its way to other credentials.
 *
 * A reload may bring other credentials. Another password of the same user becomes that of the profile, in which clients
 * stay (upstream_renewal.c). To another user a client that has not authenticated moves when a lane there is ready and
 * it has nothing under way: until then, and for as long as it has a lane of its own, it goes on as before.
 */
#include "client/client_private.h"

#include "base/log.h"

/* ---- after the handshake ---- */

/* It hears why, as by Redis, in its place behind nothing at all. */
static void turn_away(struct client *client)
{
    struct client_service *service = client->service;
    uint64_t suppressed;

    stats_add(service->reactor->stats, STATS_CLIENTS_DENIED, 1);
    if (log_limiter_take(&service->denials, clock_now_us(), &suppressed)) {
        client_log(client, LOG_LEVEL_WARNING,
                   "refused client %s, identity %s: allow and refuse do not let it in (%llu more since the last line)",
                   client->address_text, client->who != NULL ? client->who->name : "none",
                   (unsigned long long)suppressed);
    }
    client_output(client, ADMISSION_REFUSAL, sizeof ADMISSION_REFUSAL - 1, false);
    client_finish(client);
}

bool client_now_known(struct client *client)
{
    if (!client_is_let_in(client)) {
        turn_away(client);
        return false;
    }
    return session_change_profile(client, client_arrival_profile(client));
}

/* ---- clients that move to other credentials ---- */

/* The arrival profile, as far as it is not the client's own choice: its database, its version of RESP. Referenced for
 * the caller; NULL when memory is short. */
static struct profile *destination_of(const struct client *client)
{
    struct profile *arrival = client_arrival_profile(client);
    struct profile *speaking = profile_with_resp(arrival, client->profile->resp);
    struct profile *profile = speaking != NULL ? profile_with_database(speaking, client->profile->database) : NULL;

    if (speaking != NULL) {
        profile_release(speaking);
    }
    profile_release(arrival);
    return profile;
}

/* One that has authenticated stays who it is. A connection of its own is a session's for life with pool = session. */
static bool is_at_home(const struct client *client)
{
    if (client->state != CLIENT_OPEN || client->gave_user || client->service->settings.session_pool) {
        return true;
    }
    struct profile *arrival = client_arrival_profile(client);
    bool has_none = arrival->password == NULL && client->profile->password == NULL;
    bool is = has_none || profile_same_credentials(arrival, client->profile);
    profile_release(arrival);
    return is;
}

static bool may_move(const struct client *client)
{
    return client->exclusive == NULL && client->first == NULL && client->wait == CLIENT_WAIT_NOTHING &&
           !client->streaming && client->held == NULL;
}

/* It goes on with what it has until its new lane is ready, unless that is worth nothing any more. */
static void move(struct client *client)
{
    struct profile *profile = destination_of(client);
    const struct lane *lane = profile != NULL ? upstream_shared_lane(profile) : NULL;

    if (lane != NULL && (lane->state == LANE_READY || upstream_is_refused(client->profile))) {
        (void)session_change_profile(client, profile);
    } else if (profile != NULL) {
        profile_release(profile);
    }
}

void client_service_move(struct client_service *service)
{
    bool are_all_there = true;

    for (struct client *client = LIST_FIRST(&service->clients); client != NULL;) {
        struct client *next = LIST_NEXT(client, of_service);
        if (!is_at_home(client)) {
            if (may_move(client)) {
                move(client);
            }
            are_all_there = false;
        }
        client = next;
    }
    service->has_moves = !are_all_there;
}
