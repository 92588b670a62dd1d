/*
 * The way to Redis: profiles, and the lanes that speak for them.
 *
 * A profile is what a connection must have been told to stand in for a client. Clients of one profile share its shared
 * lanes, and take its exclusive lanes from a pool of clean ones. Nothing here is seen by another worker.
 */
#ifndef HEADGATE_UPSTREAM_H
#define HEADGATE_UPSTREAM_H

#include "upstream/lane.h"

struct upstream;

/* Subcommands of CLIENT that a user may use or not: the first client who tries shows it. Nobody else asks, as Redis
 * writes down who was refused (ACL LOG); see upstream_rights.c. And PING, which fences are. */
enum profile_right {
    PROFILE_MAY_SETNAME = 1,
    PROFILE_MAY_GETNAME = 2,
    PROFILE_MAY_SETINFO = 4,
    PROFILE_MAY_PING = 8,
    PROFILE_MAY_SELECT = 16 /* its own database, which rights may tell from others */
};

#define PROFILE_RIGHTS 5

/* Texts and the two arrays are its own. Lanes reference it, and are off its lists before they give that back; it is a
 * client of its counterparts. */
struct profile {
    LIST_ENTRY(profile) of_upstream;
    SLIST_ENTRY(profile) of_released; /* nobody holds it: it is freed at the end of the loop iteration */
    struct upstream *upstream;
    char *user;     /* NULL: none was given (the default user) */
    char *password; /* NULL: no credentials */
    int64_t database;
    int resp;                /* 2 or 3 */
    uint32_t generation;     /* see upstream_renew_default() */
    bool is_default;         /* of the configuration's credentials for who has none of his own, now or once */
    bool needs_password;     /* Redis wants a password and this profile has none: nobody may share a lane */
    bool refused;            /* Redis has refused its credentials last: see upstream_credentials.c */
    bool lacks_hello;        /* Redis is too old for it: names are said by CLIENT SETNAME */
    bool may_share;          /* false: there were too many profiles when it was made */
    size_t spares_under_way; /* being opened for the pool */
    int64_t extra_us;        /* when a shared lane beside the first was opened last */
    uint8_t granted;         /* of enum profile_right: Redis has let the user do so … */
    uint8_t denied;          /* … and has not */
    int64_t granted_us[PROFILE_RIGHTS]; /* when it has let him last; 0 for those it has not */
    char *identity;                     /* whose credentials of the configuration they are; NULL: nobody's … */
    size_t adoptions;                   /* … which as many say */
    size_t references;                  /* clients, lanes and whoever else holds it */
    size_t clients;                     /* of them */
    TAILQ_ENTRY(profile) of_lingering;  /* those without clients; see profile_part() */
    bool is_lingering;
    struct lane **shared;     /* settings.shared_lanes places, NULL where none is open; the first is there for all */
    LIST_HEAD(, lane) pooled; /* clean exclusive lanes, the last used first */
    size_t pooled_count;
    struct profile **elsewhere; /* its counterparts at other nodes, by their numbers; see profile_at() … */
    size_t elsewhere_count;     /* … places for them */
    char *greeting;
    size_t greeting_length;
    size_t greeting_id_length;   /* of what asks for the node's id, behind that; 0: it is not asked */
    int64_t no_key_questions_us; /* when Redis has said last that the user may not ask for keys; 0: it has not */
    bool may_not_ask_id;         /* Redis has said so: it is not asked again, as Redis writes down who was refused */
    size_t greeting_tail_length; /* of what only shared lanes say, at its end: a name, and PING */
    uint32_t greeting_replies;
};

/* Times in ms. What a reload may change is changed by upstream_reconfigure(). */
struct upstream_settings {
    struct lane_settings lane; /* but for its targets, see upstream_set_targets() */
    size_t shared_lanes;
    int64_t wait;
    int64_t wait_requests;
    int64_t exclusive_idle;
    size_t spares; /* so many of them are opened ahead */
    int64_t lane_idle_timeout;
    int64_t retire_timeout; /* how long exclusive lanes go on to where Redis is no more; 0: as long as they like */
    int64_t access_check;   /* how often to look whether Redis wants a password; 0: only when told to */
    int64_t rights_last;    /* how long what Redis has shown of a user's rights holds; 0: until told of a change */
    const char *user;       /* of the default profile; "" for none */
    const char *password;
    /* False: it is Headgate's alone. Then no connection is kept ready, and NOAUTH is a failure, as there is no client
     * who could authenticate. */
    bool serves_clients;
    bool is_session;    /* its clients' lanes are theirs for life */
    bool says_readonly; /* its lanes go to a replica of a cluster, which answers reads only to who says that it may */
    bool is_aside;      /* it is one of several ways: whether Redis can be reached is not told by this one */
    /* Of a node of a cluster: counts up when requests to come may find another lane than those under way. NULL: nobody
     * wants to know. */
    uint64_t *changes;
    uint64_t first_lane_id; /* those of its lanes are above; so that no two lanes of a worker have the same */
};

/* Told once whenever a shared lane of the default profile becomes ready, so that facts about Redis can be learned. */
typedef void upstream_ready_callback(void *context);

/* Told when a connection that was ready breaks, with so many requests under way; and, with none, when none can be made:
 * once until one is made again. why is one line for a person. */
typedef void upstream_lost_callback(void *context, const char *why, uint64_t requests);

/* settings is copied, its texts are not. NULL when memory is short. */
struct upstream *upstream_new(struct reactor *reactor, struct run_pool *runs, const struct upstream_settings *settings,
                              upstream_ready_callback *ready, void *context);
/* Whether Redis wants a password that Headgate itself does not have. */
bool upstream_is_locked(const struct upstream *upstream);
/* From now on lost is called; nobody is told before. */
void upstream_tell_losses(struct upstream *upstream, upstream_lost_callback *lost, void *context);
/* Whether it has no lane. */
bool upstream_has_no_lanes(const struct upstream *upstream);
/* What was not sent yet, on lanes that are not ready, is given back to who has sent it; owners of exclusive ones may
 * take theirs elsewhere. */
void upstream_give_back(struct upstream *upstream, const char *why);
/* Closes all lanes; others are opened when they are needed. */
void upstream_close_lanes(struct upstream *upstream, const char *why);
/* The same for good. */
void upstream_free(struct upstream *upstream);
void upstream_reconfigure(struct upstream *upstream, const struct upstream_settings *settings);
/* The configuration has another password for a user (NULL: the default one). Once Redis takes it, it is that of all who
 * have the old one, without any being closed; see upstream_renewal.c. */
void upstream_renew_password(struct upstream *upstream, const char *user, const char *old, const char *password);

/* Where Redis is: to be called before anything else, and whenever that has changed. Lanes that are connected to what is
 * none of the targets any more are retired: see upstream_target.c. */
void upstream_set_targets(struct upstream *upstream, const struct connection_targets *targets);

/*
 * The same where servers take over from each other, as behind sentinels: what is not among the targets is left at once.
 * What was not sent yet goes to the new one, whose name is host; what was sent may be answered for a moment, then it is
 * lost. Who has nothing on an exclusive lane that the new server would lack does not notice. No target: it waits for
 * one.
 */
void upstream_move(struct upstream *upstream, const struct connection_targets *targets, const char *host);

/* Told when lanes are opened, fail or break, but not again and again: where Redis is may have changed. */
typedef void upstream_connecting_callback(void *context);
/* From now on that is called; nobody is told before. */
void upstream_tell_connecting(struct upstream *upstream, upstream_connecting_callback *connecting, void *context);

/* Where its lanes are counted. */
struct stats *upstream_stats(const struct upstream *upstream);

/* Opens the first shared lane of the default profile, so that the first client need not wait for it. */
void upstream_warm_up(struct upstream *upstream);

/* ---- profiles; those returned are referenced for the caller ---- */

struct profile *upstream_default_profile(struct upstream *upstream);
/*
 * The profile of clients for whom the configuration has these credentials, beside the default ones. They are an
 * operator's to correct, as those are: see upstream_credentials.c. identity: whose they are, for the log. user ""
 * stands for the default user. NULL when memory is short; else upstream_disown() gives it back.
 */
struct profile *upstream_adopt(struct upstream *upstream, const char *identity, const char *user, const char *password);
/* The same for those who have come with a profile of that user until now: they keep the profile. password: becomes its
 * own as by upstream_renew_password(). NULL: the configuration has changed none of theirs; somebody else's of the same
 * user it may have, so that the profile has another by now, or will. */
struct profile *upstream_adopt_again(struct profile *before, const char *identity, const char *password);
void upstream_disown(struct profile *profile);
struct profile *profile_reference(struct profile *profile);
/* Not to be looked at after that: a sanitizer tells, though it is there until the end of the loop iteration. */
void profile_release(struct profile *profile);
/* The caller's reference is that of a client from here on … */
void profile_join(struct profile *profile);
/* … and is given back. The last client of a profile takes its lanes along, but for those of the profiles that were left
 * last: who comes often and does not stay finds them ready. */
void profile_part(struct profile *profile);
/* The profile that differs from this one as said; NULL when memory is short. */
struct profile *profile_with_database(struct profile *profile, int64_t database);
struct profile *profile_with_resp(struct profile *profile, int resp);
/* Whether Redis has let the user SELECT that database lately, so that nobody has to ask. */
bool profile_may_select(const struct profile *profile, int64_t database);
/* user NULL: AUTH with a password alone. */
struct profile *profile_with_credentials(struct profile *profile, struct slice user, struct slice password);
bool profile_same_credentials(const struct profile *a, const struct profile *b);
/* The user that Redis knows for this profile, for policies and the admin port. */
const char *profile_user(const struct profile *profile);

/* ---- the same profile at the nodes of a cluster ---- */

/*
 * What says the same as the profile at another upstream, which has that number among the nodes (from 0, and low). It is
 * found or made, and counts as one client there, until profile_leave(), or until nobody holds the profile. NULL when
 * memory is short. Not referenced for the caller.
 */
struct profile *profile_make_at(struct profile *profile, struct upstream *upstream, size_t number);
static inline struct profile *profile_at(struct profile *profile, struct upstream *upstream, size_t number)
{
    bool is_known = number < profile->elsewhere_count && profile->elsewhere[number] != NULL;

    return is_known ? profile->elsewhere[number] : profile_make_at(profile, upstream, number);
}
/* No profile of the upstream has a counterpart at the node of that number any more. */
void upstream_leave_node(struct upstream *upstream, size_t number);

/* Redis has answered what takes this right: that shows it, or that the user has it not. Of other errors it is not said
 * when Redis finds them, and nothing changes. */
void profile_learn_right(struct profile *profile, enum profile_right right, const struct resp_reply *reply);
/* Whether Redis has shown lately that the user has it. */
bool profile_has_right(const struct profile *profile, enum profile_right right);

/* ---- credentials that Redis refuses: see upstream_credentials.c ---- */

/* Told when a shared lane cannot be made any more, before it is closed: its clients are without a connection. */
typedef void upstream_refused_callback(void *context, const struct lane *lane);
/* From now on that is called; nobody is told before. */
void upstream_tell_refusals(struct upstream *upstream, upstream_refused_callback *refused, void *context);
/* Redis has just taken the credentials of the profile. */
void upstream_credentials_accepted(struct profile *profile);
/* Redis may take what it has refused before: it is tried anew. */
void upstream_forget_refusals(struct upstream *upstream);
/* Whether they are a client's, and Redis has refused them last. */
bool upstream_is_refused(const struct profile *profile);
/* Whether a client can go to a shared lane of the profile. */
bool upstream_may_share(const struct profile *profile);
/* A lane that is being opened for what has waited since then or longer; NULL: there is none. */
struct lane *upstream_find_starting(const struct upstream *upstream, int64_t since_us);
/* The first shared lane; NULL: none is open. */
struct lane *upstream_first_lane(const struct profile *profile);
/* The shared one with that id; NULL: it is none, or no more, as it is retired, or somebody's own. */
struct lane *upstream_find_shared(const struct profile *profile, uint64_t id);

/* Whether the last attempt to connect has failed. */
bool upstream_is_out_of_reach(const struct upstream *upstream);
/* Another server has taken over: lanes (retired_only: those that are retired) that owe an answer, and of which nothing
 * was heard for so long, break. Who listens is asked for a sign of life first. */
void upstream_give_up_silent(struct upstream *upstream, bool retired_only, int64_t silent_us);

/* ---- lanes ---- */

/* The first shared lane, opened if need be; NULL when memory is short. It may not be ready: what is sent waits in it.
 */
struct lane *upstream_shared_lane(struct profile *profile);
/* The same, for a client that has nothing under way: the first that is ready and has less than LANE_FULL bytes waiting.
 */
struct lane *upstream_lane_with_room(struct profile *profile);
/* False when as many requests wait for a connection as may. */
bool upstream_may_wait(const struct upstream *upstream, const struct lane *lane);

/* A lane for one client alone, from the pool or new; NULL when memory is short. fresh: a new one, on which no
 * answer to a command of Headgate's own is under way: SYNC would be refused, and CLIENT LIST would show it. */
struct lane *upstream_take_exclusive(struct profile *profile, bool fresh, const struct lane_owner *events, void *owner);
/* The same for an AUTH: one on which nothing was said yet. It is to be given to nobody else until it speaks for a
 * profile: see `bare` and `dirty`. */
struct lane *upstream_take_bare(struct profile *profile, const struct lane_owner *events, void *owner);
/* Makes a shared lane the owner's exclusive one. Its other clients find another in its place. */
void upstream_make_exclusive(struct lane *lane, const struct lane_owner *events, void *owner);
/* An exclusive lane on which nothing was sent yet, as it is not READY, is one of that profile from here on, at another
 * upstream: with all that waits on it, in its order. */
void upstream_carry_exclusive(struct lane *lane, struct profile *profile);
/* The owner does not need it any more: a clean lane goes to the pool, any other is closed. Clean means that nothing is
 * under way and that the connection's state is just what its profile says. */
void upstream_release_exclusive(struct lane *lane, bool clean);
/* The owner has changed what the connection was told (SELECT, AUTH, HELLO). One that is not READY begins anew, and is
 * told by the greeting. */
void upstream_lane_speaks_for(struct lane *lane, struct profile *profile);

/* Sends one command of Headgate's own whose reply is swallowed; an error reply breaks the lane if must_succeed. */
bool upstream_send_hidden(struct lane *lane, const char *command, size_t length, bool must_succeed);

/* As upstream_send_hidden(), for what takes a right: whether the user has it is learned from the reply. If it was not
 * done, the lane is dirty. */
bool upstream_send_told(struct lane *lane, const char *command, size_t length, enum profile_right right);

/* Names the connection, hidden: by HELLO, which any user may use, and which Redis takes while it is busy. name: "" for
 * none. */
bool upstream_name_lane(struct lane *lane, const char *name);

/*
 * Sends a question of Headgate's own whose answer nobody else can know; any other reply in its place breaks the lane.
 * So what answers the requests behind it are the answers to them, whatever came before. False when memory is short.
 */
bool upstream_send_fence(struct lane *lane);

/* The profile a lane speaks for. */
static inline struct profile *lane_profile(const struct lane *lane)
{
    return lane->context;
}

/* Tells a READY lane what it has to know to speak for its profile, as it was told otherwise, or RESET. False: out of
 * memory. */
bool upstream_greet_again(struct lane *lane);

/* ---- whether Redis wants a password of those who come; only with no password in the settings ---- */

/* What is known of that. */
enum upstream_access {
    UPSTREAM_ACCESS_CHANGED, /* it may be otherwise than before, as may the rights of users */
    UPSTREAM_ACCESS_CLOSED,  /* it wants one */
    UPSTREAM_ACCESS_OPEN     /* it wants none */
};

/* Told of what was found out here and holds for all workers. */
typedef void upstream_access_callback(void *context, enum upstream_access access);

/* From now on that is called; nobody is told before. */
void upstream_tell_access(struct upstream *upstream, upstream_access_callback *access, void *context);
/*
 * What Redis wants has changed. Those who are there keep their lanes, as Redis lets them stay authenticated; those who
 * come now are the default profile anew. Who had to have a lane of their own for want of a password need none any more
 * where none is wanted.
 */
void upstream_set_access(struct upstream *upstream, enum upstream_access access);
/* A client has done what may change it: all are told. */
void upstream_access_changed(struct upstream *upstream);
/* Has a look taken soon, by a connection of its own; what it finds is told. */
void upstream_look_soon(struct upstream *upstream);

/* Several times a second: expires what waits too long, closes what is idle. */
void upstream_tick(struct upstream *upstream);

/* Calls visit for each lane of the worker. */
void upstream_visit_lanes(struct upstream *upstream, void (*visit)(void *context, struct lane *lane), void *context);

#endif
