/*
 * What the files of the upstream share:
 *
 *   upstream.c              what lanes tell; time; the life of an upstream
 *   upstream_renewal.c      a password that the configuration has changed
 *   upstream_identity.c     credentials that the configuration has for identities
 *   upstream_target.c       where Redis is, and lanes to where it is no more
 *   upstream_silence.c      servers that hang
 *   upstream_access.c       whether Redis wants a password of those who come
 *   upstream_exclusive.c    exclusive lanes: taken, given back, fences
 *   upstream_tracking.c     exclusive lanes that are told CLIENT TRACKING ON OPTIN
 *   upstream_parked.c       lanes that cannot be made, and take over what comes to the pool
 *   upstream_spares.c       lanes that are kept ready
 *   upstream_pool.c         exclusive lanes that are clean and nobody's
 *   upstream_hidden.c       commands of Headgate's own
 *   upstream_lanes.c        lanes: opened, found at their places, freed
 *   upstream_credentials.c  credentials that Redis refuses
 *   upstream_profile.c      profiles, and what a connection is told to stand in for their clients
 */
#ifndef HEADGATE_UPSTREAM_PRIVATE_H
#define HEADGATE_UPSTREAM_PRIVATE_H

#include "base/log.h"
#include "upstream/upstream.h"

/* Lanes and profiles are its own. The settings' texts and certificates are those of who has made it, and outlive what
 * goes by them: upstream_reconfigure() comes before they go. */
struct upstream {
    struct reactor *reactor;
    struct log_limiter losses;
    struct run_pool *runs;
    struct upstream_settings settings;
    struct connection_targets targets;        /* the one that was reached last is the first */
    char *host;                               /* of the server that was moved to; NULL: that of the settings */
    struct event leave_timer;                 /* after which nothing is under way to a server that was left */
    uint64_t left_lanes;                      /* to the server that is being left … */
    uint64_t left_requests;                   /* … and what was lost with them … */
    uint64_t left_clients;                    /* … who had an exclusive one, and were closed */
    int64_t readonly_us;                      /* when it was told last that there was a READONLY error */
    upstream_connecting_callback *connecting; /* NULL: nobody is told */
    void *connecting_context;
    int64_t asked_us; /* when it was called last */
    upstream_ready_callback *ready;
    void *context;
    upstream_lost_callback *lost; /* NULL: nobody is told */
    void *lost_context;
    LIST_HEAD(, profile) profiles;
    struct profile *base; /* the default profile */
    TAILQ_HEAD(, profile)
    lingering;           /* those that their clients have left, and that have lanes; who was left first is first */
    size_t sharing;      /* profiles that may share lanes */
    size_t pooled_count; /* lanes in the pools of all profiles */
    const struct lane_events *lane_events;
    LIST_HEAD(, lane) lanes;        /* all of them */
    LIST_HEAD(, lane) closed;       /* to be freed at the end of the loop iteration, linked by of_pool … */
    SLIST_HEAD(, profile) released; /* … as are these */
    struct reactor_task free_closed;
    uint64_t last_lane_id;
    uint32_t generation;              /* of the default profile */
    upstream_access_callback *access; /* NULL: nobody is told */
    void *access_context;
    upstream_refused_callback *refused; /* NULL: nobody is told */
    void *refused_context;
    LIST_HEAD(, renewal) renewals;  /* passwords that Redis has yet to take */
    struct reactor_task help;       /* for parked lanes */
    struct lane *look;              /* a connection that finds out what Redis wants; not one of the lanes */
    struct lane_settings look_lane; /* … and what it goes by */
    struct stats look_stats;        /* … and where it is counted, so that it is not taken for a lane */
    bool look_wanted;
    int64_t looked_us; /* when the last one began */
    bool reachable;    /* what was logged last */
    bool told;         /* whether anything was logged yet */
};

/* ---- upstream_lanes.c ---- */

/* A new lane for the profile, on the worker's list; it is not started yet. NULL when memory is short. */
struct lane *upstream_open_lane(struct profile *profile, enum lane_use use);
/* Has the lane connect, and say what its profile and its use need. */
void upstream_start_lane(struct lane *lane);
/* A lane is to be connected, or could not be: where Redis is may be asked anew. */
void upstream_note_connecting(struct upstream *upstream);
/* Something came to the pool, or is wanted from there: it may be what a parked lane waits for. */
void upstream_help_soon(struct upstream *upstream);
/* Frees a lane that was closed when nobody can have a pointer to it any more: */
void upstream_free_at_turn_end(struct upstream *upstream, struct lane *lane);
/* then. upstream->free_closed. */
void upstream_free_closed(struct reactor_task *task);
/* Whether it is a shared lane beside the profile's first; whether nobody waits for it: then it is closed if it fails.
 */
bool upstream_is_extra(const struct lane *lane);
bool upstream_is_for_nobody(const struct lane *lane);
/* A shared lane is none any more: its place is free for another. */
void upstream_forget_place(struct lane *lane);
/* Whether Redis does what it asks for; who has no password on it may have to authenticate yet. */
static inline bool upstream_is_let_in(const struct lane *lane)
{
    return lane->state == LANE_READY && (lane_profile(lane)->password != NULL || lane->link.is_proven);
}
/* Whether there is a connection that stands in for whoever has these credentials. */
bool upstream_has_connection(const struct upstream *upstream, const struct profile *credentials);
/* Whether a shared lane of the profile carries requests. */
bool upstream_has_ready_lane(const struct profile *profile);
/* What was found out last of whether Redis can be reached, for the gauge. */
void upstream_is_up(struct upstream *upstream);
void upstream_is_down(struct upstream *upstream);

/* ---- upstream_target.c ---- */

/* It was reached: lanes try it first from now on, so that all of them go to the same server. */
void upstream_prefer_target(struct upstream *upstream, const struct connection_target *target);
/* Closes the lane if new requests are not to come to it, or cannot, and it is time to. */
void upstream_check_unwanted(struct lane *lane);
/* A READONLY error: what is taken for a master may be none. */
void upstream_note_readonly(struct upstream *upstream);
/* Makes ready for upstream_move(); undone by upstream_free(). */
void upstream_prepare_move(struct upstream *upstream);

/* ---- upstream_exclusive.c, upstream_silence.c ---- */

/* Whether Redis has let the user PING, or lets everybody as far as is known. */
bool upstream_may_ping(const struct lane *lane);
/* A fence that asks for a sign of life, by what is no error. */
bool upstream_send_ping(struct lane *lane);
/* Several times a second: who knows where Redis is is asked while it answers nothing. */
void upstream_tend_silent(struct upstream *upstream);

/* ---- upstream_tracking.c ---- */

/* ---- upstream_renewal.c ---- */

/* The lane is ready, could not be made, or is closed. False: it is no trial of a new password. */
bool upstream_trial_is_ready(struct lane *lane);
bool upstream_trial_has_failed(struct lane *lane, const char *why);
void upstream_trial_has_closed(struct lane *lane);
/* Redis does not take the profile's credentials. If there is a newer password, it is the profile's from now on. */
void upstream_old_password_refused(struct profile *profile);
/* Several times a second. */
void upstream_tend_renewals(struct upstream *upstream);
/* Ends the renewal of these credentials, unless the configuration has them for somebody else, too. */
void upstream_drop_renewal(const struct profile *profile);
void upstream_end_renewals(struct upstream *upstream);

/* ---- upstream_access.c ---- */

/* Looks whether Redis wants a password, if it is time to. */
void upstream_look_if_due(struct upstream *upstream);
/* Redis has answered NOAUTH to a new connection of who has no password; of lane_events. */
bool upstream_lane_needs_password(struct lane *lane);
/* Ends a look that is under way. */
void upstream_end_look(struct upstream *upstream);

/* ---- upstream_credentials.c ---- */

/* The identity whose credentials of the configuration they are; NULL: none's. */
const char *upstream_identity_of(const struct profile *profile);
/* Whether they are those of the default profile, … */
bool upstream_is_default(const struct profile *profile);
/* … or the configuration's at all: an operator's to correct, and tried again and again. */
bool upstream_is_operators(const struct profile *profile);
/* All profiles of the same credentials share their fate. True if that is news. */
bool upstream_mark_refused(const struct profile *marked, bool refused);

/* ---- upstream_parked.c ---- */

/* Redis has refused the credentials of the lane, whose attempt has just failed. True: that was seen to, and the lane
 * may be CLOSED. */
bool upstream_lane_refused(struct lane *lane);
/* The task that upstream_help_soon() asks for: upstream->help. */
void upstream_help_task(struct reactor_task *task);
/* Several times a second: parked lanes that nothing can be done for. */
void upstream_tend_parked(struct upstream *upstream);

/* ---- upstream_spares.c ---- */

/* Opens what the profile's pool lacks of lanes that are to be there. */
void upstream_open_spares(struct profile *profile);
/* It goes to the pool. */
void upstream_spare_is_ready(struct lane *lane);
/* It is none any more. */
void upstream_spare_ended(struct lane *lane);
/* Whether a lane stays however long it was not used. */
bool upstream_is_kept(const struct lane *lane);
/* The pooled lane that was not used for longest, of those that are not kept; NULL: there is none. */
struct lane *upstream_longest_idle(const struct upstream *upstream);

/* ---- upstream_profile.c ---- */

/* The profile that says what wanted does (whose texts are copied), made if there is none; referenced for the caller.
 * NULL when memory is short. */
struct profile *profile_get(struct upstream *upstream, const struct profile *wanted);
/* Has all connections that are made from now on say another password. False when memory is short: then nothing is
 * changed. */
bool profile_set_password(struct profile *profile, const char *password);
/* Those that were released, and that nobody can have a pointer to any more. */
void upstream_free_released(struct upstream *upstream);
/* Overwrites and frees it; NULL is none. */
void profile_forget_text(char *text);
/* What a lane says first, as its profile is now; of lane_events. */
struct lane_greeting upstream_greeting(const struct lane *lane, struct slice *text);

/* Makes the default profile of the settings and the generation. False when memory is short: then it stays as it was. */
bool upstream_make_base(struct upstream *upstream);

/* ---- upstream_pool.c ---- */

/* The lane without a client is to have no name. */
void upstream_forget_name(struct lane *lane);
/* Whether a lane whose client has nothing to say about it any more may be others'. */
bool upstream_may_be_pooled(const struct lane *lane);
/* Puts a lane without an owner into its profile's pool, or closes it if it must not be there. */
void upstream_pool(struct lane *lane);
/* Takes one from there that speaks for the profile, or was told to. NULL: there is none, or memory is short. */
struct lane *upstream_take_pooled(struct profile *profile);
/* Whether a pooled lane of the other one will do, once it was told the RESP version. */
bool profile_fits_pool(const struct profile *other, const struct profile *profile);
/* Has a pooled lane that fits the profile speak its RESP version, in its pool. It is idle when that was answered. */
void upstream_move_pooled(struct lane *lane, struct profile *profile);
/* Takes a pooled lane out of its profile's pool. */
void upstream_forget_pooled(struct lane *lane);

#endif
