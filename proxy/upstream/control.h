/*
 * Headgate's own commands to Redis. They ride on a shared lane of the default profile between the clients' requests,
 * are seen by no policy, and wait for a connection like any request.
 */
#ifndef HEADGATE_CONTROL_H
#define HEADGATE_CONTROL_H

#include "upstream/script.h"
#include "upstream/upstream.h"

#include <hiredis/hiredis.h>

struct control;

/* reply is NULL if none came (why says it), else Redis' reply, of type REDIS_REPLY_ERROR for an error. It is freed
 * after the call. */
typedef void control_callback(void *context, const redisReply *reply, const char *why);

/* In a cluster: where calls go that have a key. */
struct control_router {
    /* The counterpart of the profile at the node that has the key; NULL when memory is short. */
    struct profile *(*node_of)(void *context, struct profile *profile, struct slice key);
    /* Whether nobody knows yet: calls wait until control_go_on(). */
    bool (*waits)(const void *context);
    /* The same at the node to which that lane's node has sent a call by that error; *asks: with ASKING. NULL: it was no
     * such error, or there is no such node. */
    struct profile *(*redirected)(void *context, struct profile *profile, const struct lane *lane, struct slice error,
                                  bool *asks);
    void *context;
};

struct control *control_new(struct reactor *reactor, struct run_pool *runs, struct upstream *upstream);
/* From now on scripts go to the node of their first key. router is copied. */
void control_set_router(struct control *control, const struct control_router *router);
void control_go_on(struct control *control);
/* All calls must have ended: free the upstream first. */
void control_free(struct control *control);
/* Whether all calls have ended. */
bool control_is_idle(const struct control *control);

/* Within the callback of an answered call: since when the connection had been there that the answer came over. */
int64_t control_answered_since(const struct control *control);

/* Sends a command. The arguments are copied. callback is called exactly once, possibly before this returns (on
 * failure). */
void control_call(struct control *control, int argument_count, const char *const *arguments, const size_t *lengths,
                  control_callback *callback, void *context);

/* The same as the user of a profile. */
void control_call_as(struct control *control, struct profile *profile, int argument_count, const char *const *arguments,
                     const size_t *lengths, control_callback *callback, void *context);

/* The same with a whole request in multibulk form, which is copied. */
void control_send_as(struct control *control, struct profile *profile, struct slice request, control_callback *callback,
                     void *context);

/* Runs a script in a database: EVALSHA, and once EVAL if Redis does not know it; whole: EVAL at once. The arguments are
 * the keys followed by the rest. */
void control_script(struct control *control, int64_t database, const struct script *script, bool whole, int key_count,
                    int argument_count, const char *const *arguments, const size_t *lengths, control_callback *callback,
                    void *context);

#endif
