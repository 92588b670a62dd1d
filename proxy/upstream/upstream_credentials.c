/*
 * Credentials that Redis does not take any more.
 *
 * When a user's password is changed, or a first one is set, Redis lets those stay who are there; when the user is
 * deleted, it closes their connections. So where Redis refuses what a client has authenticated with, no further attempt
 * is made with it (each would be an entry of ACL LOG), and the clients share the connections that they have: a lane
 * that cannot be made is parked until one comes back to the pool, whose connection it takes over. Clients whose shared
 * lane has gone, and has nothing to take over, are closed, as Redis has closed their connection; so are those who wait
 * for a lane of their own for upstream_wait. It is otherwise with the credentials of the configuration: these are an
 * operator's to correct, and are tried again and again.
 */
#include "upstream/upstream_private.h"

/* ---- what is known of credentials ---- */

const char *upstream_identity_of(const struct profile *profile)
{
    const struct profile *other = LIST_FIRST(&profile->upstream->profiles);

    while (other != NULL && !(other->identity != NULL && profile_same_credentials(other, profile))) {
        other = LIST_NEXT(other, of_upstream);
    }
    return other != NULL ? other->identity : NULL;
}

bool upstream_is_default(const struct profile *profile)
{
    return profile_same_credentials(profile, profile->upstream->base) || !profile->upstream->settings.serves_clients;
}

bool upstream_is_operators(const struct profile *profile)
{
    return upstream_is_default(profile) || upstream_identity_of(profile) != NULL;
}

bool upstream_is_refused(const struct profile *profile)
{
    return profile->refused && !upstream_is_operators(profile);
}

bool upstream_mark_refused(const struct profile *marked, bool refused)
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
    if (!upstream_mark_refused(profile, false)) {
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
        if (profile->refused && !upstream_is_operators(profile)) {
            upstream_credentials_accepted(profile);
        }
    }
}
