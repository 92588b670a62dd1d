/*
 * A user's password that the configuration has changed. Redis lets connections stay that have authenticated, so nothing
 * is lost by making sure first: a trial, a connection of its own, says the new password.
 *
 *   taken     it is that of all profiles that had the old one, with which their clients notice nothing. Their lanes are
 *             outdated: shared ones give up their place, and are closed when all on them is answered, pooled ones are
 *             closed at once, exclusive ones when their client needs them no more
 *   refused   all stays as it was, which is said, and tried again: Redis may be told later than Headgate
 *
 * AUTH is never sent on a lane that is in use, as Redis may drop the error of one that fails, and the replies behind it
 * would be taken for others.
 */
#include "upstream/upstream_private.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* Between two trials. Each that is refused is an entry of ACL LOG. */
#define TRIAL_PAUSE_US ((int64_t)2000000)

struct renewal {
    LIST_ENTRY(renewal) of_upstream;
    struct profile *before; /* has the old password; referenced, and so is the next one */
    struct profile *next;   /* has the new one */
    struct lane *trial;     /* NULL: none at the moment */
    int64_t tried_us;
    bool told; /* that it was refused */
};

/* ---- the old password gives way ---- */

/* It was not opened with what the profile says now. */
static void outdate(struct lane *lane)
{
    lane->link.outdated = true;
    if (lane->use == LANE_SHARED) {
        upstream_forget_place(lane);
    }
    upstream_check_unwanted(lane);
}

static void outdate_lanes(struct upstream *upstream, const struct profile *credentials)
{
    struct lane *lane;

    /* Lanes that are closed meanwhile keep their place in this walk: they are freed at the end of the loop iteration.
     */
    LIST_FOREACH(lane, &upstream->lanes, of_upstream)
    {
        bool has_said = lane->state == LANE_READY || lane->state == LANE_HANDSHAKE;
        if (has_said && !lane->bare && profile_same_credentials(lane_profile(lane), credentials)) {
            outdate(lane);
        }
    }
}

static void adopt_copied(struct upstream *upstream, const struct profile *before, const char *password)
{
    /* Closes lanes, with which profiles go. */
    outdate_lanes(upstream, before);
    struct profile *profile = LIST_FIRST(&upstream->profiles);
    while (profile != NULL) {
        struct profile *next = LIST_NEXT(profile, of_upstream);
        if (profile_same_credentials(profile, before)) {
            upstream_credentials_accepted(profile);
            if (!profile_set_password(profile, password)) {
                log_error("upstream", "out of memory: the old password stays");
            }
        }
        profile = next;
    }
    upstream_warm_up(upstream);
}

/* What was given may be a profile's own, which goes. */
static void adopt(struct upstream *upstream, const char *user, const char *old, const char *password)
{
    struct profile before = {.user = user != NULL ? strdup(user) : NULL, .password = strdup(old)};
    char *copy = strdup(password);

    if ((user == NULL || before.user != NULL) && before.password != NULL && copy != NULL) {
        adopt_copied(upstream, &before, copy);
    } else {
        log_error("upstream", "out of memory: the old password stays");
    }
    profile_forget_text(before.password);
    profile_forget_text(copy);
    free(before.user);
}

/* ---- trials ---- */

static void renewal_free(struct renewal *renewal)
{
    struct lane *trial = renewal->trial;

    LIST_REMOVE(renewal, of_upstream);
    renewal->trial = NULL;
    if (trial != NULL) {
        lane_close(trial, "not needed any more");
    }
    profile_release(renewal->before);
    profile_release(renewal->next);
    free(renewal);
}

/* Redis takes the new password, or takes the old one no more. */
static void complete(struct renewal *renewal)
{
    adopt(renewal->next->upstream, renewal->before->user, renewal->before->password, renewal->next->password);
    renewal_free(renewal);
}

static void try(struct renewal *renewal)
{
    struct upstream *upstream = renewal->next->upstream;

    renewal->tried_us = reactor_now(upstream->reactor);
    renewal->trial = upstream_open_lane(renewal->next, LANE_EXCLUSIVE);
    if (renewal->trial != NULL) {
        lane_start(renewal->trial);
    }
}

static struct renewal *find_by_credentials(const struct upstream *upstream, const struct profile *before)
{
    struct renewal *renewal = LIST_FIRST(&upstream->renewals);

    while (renewal != NULL && !profile_same_credentials(renewal->before, before)) {
        renewal = LIST_NEXT(renewal, of_upstream);
    }
    return renewal;
}

static struct renewal *find_by_trial(const struct lane *lane)
{
    struct renewal *renewal = LIST_FIRST(&lane_profile(lane)->upstream->renewals);

    while (renewal != NULL && renewal->trial != lane) {
        renewal = LIST_NEXT(renewal, of_upstream);
    }
    return renewal;
}

bool upstream_trial_is_ready(struct lane *lane)
{
    struct renewal *renewal = find_by_trial(lane);

    if (renewal == NULL) {
        return false;
    }
    log_info("upstream", "Redis at %s takes the new password of user %s: connections are replaced as they are unused",
             renewal->next->upstream->settings.lane.target_text, profile_user(renewal->next));
    complete(renewal);
    return true;
}

bool upstream_trial_has_failed(struct lane *lane, const char *why)
{
    struct renewal *renewal = find_by_trial(lane);

    if (renewal == NULL) {
        return false;
    }
    if (lane->link.refused && !renewal->told) {
        log_error("upstream",
                  "Redis at %s does not take the new password of user %s (%s): the old one is used until it does",
                  renewal->next->upstream->settings.lane.target_text, profile_user(renewal->next), why);
        renewal->told = true;
    }
    lane_close(lane, why);
    return true;
}

void upstream_trial_has_closed(struct lane *lane)
{
    struct renewal *renewal = find_by_trial(lane);

    if (renewal != NULL) {
        renewal->trial = NULL;
    }
}

void upstream_old_password_refused(struct profile *profile)
{
    struct renewal *renewal = find_by_credentials(profile->upstream, profile);

    if (renewal != NULL) {
        log_info("upstream", "Redis at %s does not take the old password of user %s any more: the new one is used",
                 profile->upstream->settings.lane.target_text, profile_user(profile));
        complete(renewal);
    }
}

void upstream_tend_renewals(struct upstream *upstream)
{
    int64_t now = reactor_now(upstream->reactor);

    for (struct renewal *renewal = LIST_FIRST(&upstream->renewals); renewal != NULL;) {
        struct renewal *next = LIST_NEXT(renewal, of_upstream);
        if (renewal->trial == NULL && now - renewal->tried_us >= TRIAL_PAUSE_US) {
            try(renewal);
        }
        renewal = next;
    }
}

void upstream_drop_renewal(const struct profile *profile)
{
    struct renewal *renewal = find_by_credentials(profile->upstream, profile);
    bool is_wanted =
        profile_same_credentials(profile, profile->upstream->base) || upstream_identity_of(profile) != NULL;

    if (renewal != NULL && !is_wanted) {
        renewal_free(renewal);
    }
}

void upstream_end_renewals(struct upstream *upstream)
{
    while (!LIST_EMPTY(&upstream->renewals)) {
        renewal_free(LIST_FIRST(&upstream->renewals));
    }
}

/* ---- beginning ---- */

static struct profile *find_profile(const struct upstream *upstream, const struct profile *credentials)
{
    struct profile *profile = LIST_FIRST(&upstream->profiles);

    while (profile != NULL && !profile_same_credentials(profile, credentials)) {
        profile = LIST_NEXT(profile, of_upstream);
    }
    return profile;
}

static bool begin(struct profile *before, const char *password)
{
    struct upstream *upstream = before->upstream;
    struct renewal *renewal = calloc(1, sizeof *renewal);
    struct profile wanted = {.user = before->user, .password = (char *)(uintptr_t)password, .resp = 2};

    if (renewal == NULL) {
        return false;
    }
    renewal->next = profile_get(upstream, &wanted);
    if (renewal->next == NULL) {
        free(renewal);
        return false;
    }
    renewal->before = profile_reference(before);
    LIST_INSERT_HEAD(&upstream->renewals, renewal, of_upstream);
    try(renewal);
    return true;
}

void upstream_renew_password(struct upstream *upstream, const char *user, const char *old, const char *password)
{
    const struct profile credentials = {.user = (char *)(uintptr_t)user, .password = (char *)(uintptr_t)old};
    struct renewal *under_way = find_by_credentials(upstream, &credentials);

    if (under_way != NULL) {
        renewal_free(under_way);
    }
    struct profile *before = find_profile(upstream, &credentials);
    if (before == NULL || strcmp(old, password) == 0) {
        return;
    }
    if (!upstream_has_connection(upstream, &credentials) || !begin(before, password)) {
        /* There is nothing that could be lost. */
        adopt(upstream, user, old, password);
    }
}
