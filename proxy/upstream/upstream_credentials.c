/*
 * Credentials that Redis does not take any more, and connections that are kept for that case and for who is in a hurry.
 *
 * When a user's password is changed, Redis lets those stay who have authenticated; when the user is deleted, it closes
 * their connections. So where Redis refuses what a client has authenticated with, no further attempt is made with it
 * (each would be an entry of ACL LOG), and the clients share the connections that they have: a lane that cannot be made
 * is parked until one comes back to the pool, whose connection it takes over. Clients whose shared lane has gone, and
 * has nothing to take over, are closed, as Redis has closed their connection; so are those who wait for a lane of their
 * own for upstream_wait. It is otherwise with the credentials of the configuration: these are an operator's to correct,
 * and are tried again and again.
 *
 * A spare is an unused exclusive lane, opened ahead: whoever needs one finds it, and the next is opened. So a SUBSCRIBE
 * reaches Redis before what others send behind it.
 */
#include "upstream/upstream_private.h"

#include "base/log.h"

/* ---- what is known of credentials ---- */

const char *upstream_identity_of(const struct profile *profile)
{
    const struct profile *other = LIST_FIRST(&profile->upstream->profiles);

    while (other != NULL && !(other->identity != NULL && profile_same_credentials(other, profile))) {
        other = LIST_NEXT(other, of_upstream);
    }
    return other != NULL ? other->identity : NULL;
}

static bool is_default(const struct profile *profile)
{
    return profile_same_credentials(profile, profile->upstream->base) || !profile->upstream->settings.serves_clients;
}

static bool is_operators(const struct profile *profile)
{
    return is_default(profile) || upstream_identity_of(profile) != NULL;
}

bool upstream_is_refused(const struct profile *profile)
{
    return profile->refused && !is_operators(profile);
}

/* All profiles of the same credentials share their fate. True if that is news. */
static bool mark(const struct profile *marked, bool refused)
{
    bool is_news = false;

    for (struct profile *profile = LIST_FIRST(&marked->upstream->profiles); profile != NULL;
         profile = LIST_NEXT(profile, of_upstream)) {
        if (profile->refused != refused && profile_same_credentials(profile, marked)) {
            profile->refused = refused;
            is_news = true;
        }
    }
    return is_news;
}

static bool speaks_with(const struct lane *lane, const struct profile *profile)
{
    return profile_same_credentials(lane_profile(lane), profile);
}

void upstream_credentials_accepted(struct profile *profile)
{
    if (profile->password == NULL || !mark(profile, false)) {
        return;
    }
    for (struct lane *lane = LIST_FIRST(&profile->upstream->lanes); lane != NULL; lane = LIST_NEXT(lane, of_upstream)) {
        if (lane->parked && speaks_with(lane, profile)) {
            lane_unpark(lane);
        }
    }
}

void upstream_forget_refusals(struct upstream *upstream)
{
    for (struct profile *profile = LIST_FIRST(&upstream->profiles); profile != NULL;
         profile = LIST_NEXT(profile, of_upstream)) {
        if (profile->refused && !is_operators(profile)) {
            upstream_credentials_accepted(profile);
        }
    }
}

/* ---- parked lanes ---- */

/* A connection of that profile that nobody needs at the moment. */
static struct lane *find_idle(const struct profile *profile)
{
    struct lane *lane = LIST_FIRST(&profile->pooled);

    while (lane != NULL && !(lane->first == NULL && lane->state == LANE_READY && resp_reply_idle(&lane->reply))) {
        lane = LIST_NEXT(lane, of_pool);
    }
    return lane;
}

/* The one that has waited longest, of those that can be helped. */
static struct lane *find_parked(const struct upstream *upstream)
{
    struct lane *found = NULL;

    for (struct lane *lane = LIST_FIRST(&upstream->lanes); lane != NULL; lane = LIST_NEXT(lane, of_upstream)) {
        bool can_be_helped = lane->parked && lane->state == LANE_BACKOFF && find_idle(lane_profile(lane)) != NULL;
        if (can_be_helped && (found == NULL || lane->id < found->id)) {
            found = lane;
        }
    }
    return found;
}

/* A connection that only lacks the profile's RESP version. */
static struct lane *find_idle_elsewhere(const struct profile *profile)
{
    struct lane *lane = NULL;

    for (struct profile *other = LIST_FIRST(&profile->upstream->profiles); other != NULL && lane == NULL;
         other = LIST_NEXT(other, of_upstream)) {
        lane = other != profile && profile_fits_pool(other, profile) ? find_idle(other) : NULL;
    }
    return lane;
}

/* Parked lanes that find nothing in their own pool get something there, for the next time. */
static void fetch_for_parked(struct upstream *upstream)
{
    for (struct lane *lane = LIST_FIRST(&upstream->lanes); lane != NULL; lane = LIST_NEXT(lane, of_upstream)) {
        struct profile *profile = lane_profile(lane);
        bool lacks = lane->parked && lane->state == LANE_BACKOFF && LIST_EMPTY(&profile->pooled);
        struct lane *found = lacks ? find_idle_elsewhere(profile) : NULL;
        if (found != NULL) {
            upstream_move_pooled(found, profile);
        }
    }
}

static void help_parked(struct upstream *upstream)
{
    struct lane *lane = find_parked(upstream);

    while (lane != NULL) {
        lane_take_over(lane, find_idle(lane_profile(lane)));
        lane = find_parked(upstream);
    }
    fetch_for_parked(upstream);
}

void upstream_help_task(struct reactor_task *task)
{
    help_parked((struct upstream *)(void *)((char *)task - offsetof(struct upstream, help)));
}

void upstream_help_soon(struct upstream *upstream)
{
    reactor_at_turn_end(upstream->reactor, REACTOR_STAGE_FREE, &upstream->help);
}

/* Those who share a lane that cannot be made are without a connection. */
static void give_up_shared(struct lane *lane)
{
    struct profile *profile = profile_reference(lane_profile(lane));
    struct upstream *upstream = profile->upstream;

    if (upstream->refused != NULL) {
        upstream->refused(upstream->refused_context, lane);
    }
    lane_close(lane, lane->why);
    profile_release(profile);
}

void upstream_tend_parked(struct upstream *upstream)
{
    help_parked(upstream);
    for (struct lane *lane = LIST_FIRST(&upstream->lanes); lane != NULL;) {
        /* As in upstream_tick(): what is closed meanwhile keeps its place. */
        struct lane *next = LIST_NEXT(lane, of_upstream);
        bool is_in_vain = lane->parked && lane->state == LANE_BACKOFF && LIST_EMPTY(&lane_profile(lane)->pooled);
        if (is_in_vain && lane->use == LANE_SHARED) {
            give_up_shared(lane);
        }
        lane = next;
    }
}

void upstream_tell_refusals(struct upstream *upstream, upstream_refused_callback *refused, void *context)
{
    upstream->refused = refused;
    upstream->refused_context = context;
}

/* Redis is there, and serves the others: it is no outage. The lane goes on trying; a spare is tried again with the next
 * one. Always true. */
static bool identity_refused(struct lane *lane, bool is_news)
{
    const struct profile *profile = lane_profile(lane);

    if (is_news) {
        log_error("upstream", "Redis at %s does not take the password of identity %s, user %s: %s; trying again",
                  profile->upstream->settings.lane.target_text, upstream_identity_of(profile), profile_user(profile),
                  lane->why);
    }
    if (lane->spare) {
        lane_close(lane, lane->why);
    }
    return true;
}

bool upstream_lane_refused(struct lane *lane)
{
    struct profile *profile = lane_profile(lane);
    bool is_news = mark(profile, true);

    if (is_operators(profile)) {
        /* A client may be about to authenticate for itself. */
        if (lane->owner != NULL && lane->awaits_quiet) {
            lane->owner_events->writable(lane->owner);
        }
        return !is_default(profile) && identity_refused(lane, is_news);
    }
    if (is_news) {
        log_warning("upstream",
                    "Redis at %s does not take the password of user %s any more; clients share what they have",
                    profile->upstream->settings.lane.target_text, profile_user(profile));
    }
    if (lane->spare) {
        lane_close(lane, lane->why);
        return true;
    }
    lane_park(lane);
    upstream_help_soon(profile->upstream);
    if (lane->owner != NULL && lane->awaits_quiet) {
        lane->owner_events->writable(lane->owner);
    }
    return true;
}

struct lane *upstream_place(const struct profile *profile, size_t place)
{
    return profile->shared[place % profile->upstream->settings.shared_lanes];
}

bool upstream_may_share(const struct profile *profile, size_t place)
{
    const struct lane *lane = upstream_place(profile, place);

    return !upstream_is_refused(profile) || (lane != NULL && lane->state == LANE_READY);
}

/* ---- spares ---- */

static bool has_clients(const struct profile *profile)
{
    return profile->clients > 0 || profile == profile->upstream->base;
}

/* With more profiles than this a spare for each would be connections of which few are ever used. */
#define PROFILES_WITH_SPARES 8

/* Lanes that whoever takes one for the profile finds, or will find soon. */
static size_t count_ready(const struct profile *profile)
{
    size_t count = 0;

    for (const struct profile *other = LIST_FIRST(&profile->upstream->profiles); other != NULL;
         other = LIST_NEXT(other, of_upstream)) {
        if (profile_fits_pool(other, profile)) {
            count += other->pooled_count + other->spares_under_way;
        }
    }
    return count;
}

/* How many lanes are to be ready for the profile. */
static size_t spares_of(const struct profile *profile)
{
    const struct upstream *upstream = profile->upstream;
    const struct upstream_settings *settings = &upstream->settings;
    size_t most = (size_t)settings->exclusive_idle;

    if (!settings->serves_clients || !has_clients(profile) || upstream->sharing > PROFILES_WITH_SPARES) {
        return 0;
    }
    return settings->spares < most ? settings->spares : most;
}

void upstream_open_spares(struct profile *profile)
{
    bool is_able = !profile->needs_password && !profile->refused && profile->may_share;
    size_t ready = count_ready(profile);
    size_t wanted = is_able ? spares_of(profile) : 0;

    /* Counted ahead: one that cannot be made is closed at once, and is tried again when the next one is taken. */
    for (size_t opened = ready; opened < wanted; opened++) {
        struct lane *lane = upstream_open_lane(profile, LANE_EXCLUSIVE);
        if (lane == NULL) {
            return;
        }
        lane->spare = true;
        profile->spares_under_way++;
        upstream_start_lane(lane);
    }
}

void upstream_spare_is_ready(struct lane *lane)
{
    upstream_spare_ended(lane);
    if (has_clients(lane_profile(lane))) {
        upstream_pool(lane);
    } else {
        lane_close(lane, "its last client has left");
    }
}

void upstream_spare_ended(struct lane *lane)
{
    lane->spare = false;
    lane_profile(lane)->spares_under_way--;
}

static bool has_shared(const struct profile *profile)
{
    for (size_t i = 0; i < profile->upstream->settings.shared_lanes; i++) {
        if (profile->shared[i] != NULL && profile->shared[i]->state == LANE_READY) {
            return true;
        }
    }
    return false;
}

/*
 * The last unused lanes of a profile with clients are their spares. If these have authenticated, the connections are
 * what they have when their password is refused, so one stays in any case, and the shared lanes do.
 */
bool upstream_is_kept(const struct lane *lane)
{
    const struct profile *profile = lane_profile(lane);
    const struct upstream *upstream = profile->upstream;
    bool has_password = profile->password != NULL;

    if (!upstream->settings.serves_clients || !has_clients(profile)) {
        return false;
    }
    if (lane->use == LANE_SHARED) {
        return profile == upstream->base || has_password;
    }
    bool is_needed = has_password && (!has_shared(profile) || upstream->sharing <= PROFILES_WITH_SPARES);
    return count_ready(profile) <= spares_of(profile) || (is_needed && profile->pooled_count == 1);
}
