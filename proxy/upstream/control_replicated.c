/*
 * Scripts whose writes replicas are to have. WAIT speaks of what its own connection has written, and holds that up: so
 * both go over an exclusive lane, which comes from the pool and goes back to it.
 *
 *   EVALSHA ─(NOSCRIPT: EVAL)─► it has written ─► WAIT ─► how many replicas have it
 *
 * Replication is in order: a replica that has this write has all that the same master was told before.
 */
#include "upstream/control_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So often a call is sent on by nodes of a cluster at most. */
#define REDIRECTS_MAX 5
/* An integer, or a line of an error. */
#define REPLY_MAX ((size_t)16 * 1024)

enum step { STEP_SCRIPT, STEP_WHOLE_SCRIPT, STEP_WAIT };

/* A command as bytes of its own. */
struct message {
    char *bytes;
    size_t length;
};

struct replicated {
    struct control *control;
    control_callback *callback;
    void *context;
    int64_t database;
    struct lane *lane; /* NULL: there is none (any more) */
    struct lane *next; /* where a node has sent the call; NULL: nowhere */
    bool asks;         /* with ASKING */
    enum step step;
    uint32_t redirects;
    struct message by_digest, whole, wait;
    struct buffer reply;
    bool reply_is_cut;
};

/* ---- ends ---- */

static void message_free(struct message *message)
{
    if (message->bytes != NULL) {
        redisFreeCommand(message->bytes);
    }
}

static void give_lane_back(struct lane *lane, bool clean)
{
    if (lane != NULL && lane->state != LANE_CLOSED) {
        upstream_release_exclusive(lane, clean);
    }
}

/* reply or why is NULL. */
static void finish(struct replicated *call, const redisReply *reply, const char *why)
{
    struct control *control = call->control;

    give_lane_back(call->lane, reply != NULL);
    give_lane_back(call->next, false);
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        stats_add(upstream_stats(control->upstream), STATS_CONTROL_ERRORS, 1);
    }
    call->callback(call->context, reply, why != NULL && why[0] == '\0' ? "no connection to Redis yet" : why);
    message_free(&call->by_digest);
    message_free(&call->whole);
    message_free(&call->wait);
    buffer_clear(&control->reactor->buffers, &call->reply);
    control->under_way--;
    free(call);
}

/* ---- lanes ---- */

static struct lane *take_lane(struct replicated *call, struct profile *profile)
{
    return profile->needs_password ? NULL : upstream_take_exclusive(profile, false, &lane_unheard_owner, &call->lane);
}

static struct profile *profile_of(const struct control *control, int64_t database)
{
    struct profile *base = upstream_default_profile(control->upstream);
    struct profile *profile = base != NULL ? profile_with_database(base, database) : NULL;

    if (base != NULL) {
        profile_release(base);
    }
    return profile;
}

/* The lane to the node of the key. NULL: there can be none. */
static struct lane *find_lane(struct replicated *call, struct slice key)
{
    const struct control_router *router = &call->control->router;
    struct profile *profile = profile_of(call->control, call->database);
    struct profile *there = profile != NULL && router->node_of != NULL && key.data != NULL
                                ? router->node_of(router->context, profile, key)
                                : profile;
    struct lane *lane = there != NULL ? take_lane(call, there) : NULL;

    if (profile != NULL) {
        profile_release(profile);
    }
    return lane;
}

/* ---- steps ---- */

static const struct run_receiver replicated_receiver;

static const struct message *message_of(const struct replicated *call)
{
    return call->step == STEP_SCRIPT ? &call->by_digest : call->step == STEP_WAIT ? &call->wait : &call->whole;
}

static void send_step(struct replicated *call, enum step step)
{
    static const char asking[] = "*1\r\n$6\r\nASKING\r\n";
    struct control *control = call->control;
    struct run *run = run_take(control->runs);

    call->step = step;
    const struct message *message = message_of(call);
    buffer_clear(&control->reactor->buffers, &call->reply);
    if (run != NULL) {
        run->receiver = &replicated_receiver;
        run->owner = call;
        run->requests = 1;
    }
    bool asks = call->asks && step != STEP_WAIT;
    if (run == NULL || (asks && !upstream_send_hidden(call->lane, asking, sizeof asking - 1, false)) ||
        !lane_send(call->lane, run, message->bytes, message->length)) {
        if (run != NULL) {
            run_give(control->runs, run);
        }
        finish(call, NULL, "out of memory");
        return;
    }
    stats_add(upstream_stats(control->upstream), STATS_CONTROL_CALLS, 1);
}

static void on_bytes(struct run *run, const char *data, size_t length)
{
    struct replicated *call = run->owner;

    call->reply_is_cut = call->reply_is_cut || buffer_length(&call->reply) + length > REPLY_MAX ||
                         !buffer_append(&call->control->reactor->buffers, &call->reply, data, length);
}

static bool is_noscript(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0;
}

static void take_reply(struct replicated *call, const redisReply *reply)
{
    if (call->step == STEP_SCRIPT && is_noscript(reply)) {
        stats_add(upstream_stats(call->control->upstream), STATS_CONTROL_SCRIPT_LOADS, 1);
        send_step(call, STEP_WHOLE_SCRIPT);
    } else if (call->step != STEP_WAIT && reply->type == REDIS_REPLY_INTEGER && reply->integer > 0) {
        send_step(call, STEP_WAIT);
    } else {
        finish(call, reply, NULL);
    }
}

/* A node has sent the call elsewhere, where it begins anew. */
static void go_on_elsewhere(struct replicated *call)
{
    give_lane_back(call->lane, true);
    call->lane = call->next;
    call->next = NULL;
    send_step(call, STEP_SCRIPT);
}

static void on_answered(struct run *run)
{
    struct replicated *call = run->owner;
    bool is_sent_on = run->requests == 0;

    run_give(call->control->runs, run);
    if (is_sent_on) {
        go_on_elsewhere(call);
        return;
    }
    redisReader *reader = call->reply_is_cut ? NULL : redisReaderCreate();
    void *parsed = NULL;
    if (reader == NULL || redisReaderFeed(reader, buffer_head(&call->reply), buffer_length(&call->reply)) != REDIS_OK ||
        redisReaderGetReply(reader, &parsed) != REDIS_OK || parsed == NULL) {
        finish(call, NULL, "Redis' reply could not be read");
    } else {
        take_reply(call, parsed);
        freeReplyObject(parsed);
    }
    if (reader != NULL) {
        redisReaderFree(reader);
    }
}

static void on_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct replicated *call = run->owner;

    (void)loss;
    run_give(call->control->runs, run);
    finish(call, NULL, why);
}

/* Headgate's own scripts answer by nothing that looks like it. */
static bool on_redirected(struct run *run, struct slice error, struct slice request)
{
    struct replicated *call = run->owner;
    const struct control_router *router = &call->control->router;
    bool may_go_on = call->step != STEP_WAIT && call->redirects < REDIRECTS_MAX && router->redirected != NULL;
    struct profile *profile = may_go_on ? profile_of(call->control, call->database) : NULL;

    (void)request;
    if (profile == NULL) {
        return false;
    }
    struct profile *there = router->redirected(router->context, profile, run->lane, error, &call->asks);
    call->next = there != NULL ? take_lane(call, there) : NULL;
    profile_release(profile);
    call->redirects++;
    return call->next != NULL;
}

static const struct run_receiver replicated_receiver = {
    .bytes = on_bytes,
    .answered = on_answered,
    .lost = on_lost,
    .redirected = on_redirected,
};

/* ---- beginning ---- */

static void make_message(struct message *message, int count, const char **arguments, const size_t *lengths)
{
    long long length = redisFormatCommandArgv(&message->bytes, count, arguments, lengths);

    if (length < 0) {
        message->bytes = NULL;
    }
    message->length = length > 0 ? (size_t)length : 0;
}

/* EVALSHA digest or EVAL text, then the number of keys, the keys and the arguments. */
static void make_script(struct message *message, const struct control_replicated *what, const char *verb,
                        const char *body, size_t body_length)
{
    size_t given = (size_t)what->argument_count;
    const char **arguments = calloc(given + 3, sizeof *arguments);
    size_t *lengths = calloc(given + 3, sizeof *lengths);
    char keys[16];

    if (arguments != NULL && lengths != NULL) {
        arguments[0] = verb;
        lengths[0] = strlen(verb);
        arguments[1] = body;
        lengths[1] = body_length;
        arguments[2] = keys;
        lengths[2] = (size_t)snprintf(keys, sizeof keys, "%d", what->key_count);
        for (size_t i = 0; i < given; i++) {
            arguments[i + 3] = what->arguments[i];
            lengths[i + 3] = what->lengths[i];
        }
        make_message(message, what->argument_count + 3, arguments, lengths);
    }
    free(arguments);
    free(lengths);
}

static void make_wait(struct message *message, const struct control_replicated *what)
{
    char replicas[16], wait_ms[24];
    const char *arguments[] = {"WAIT", replicas, wait_ms};
    size_t lengths[] = {4, (size_t)snprintf(replicas, sizeof replicas, "%" PRIu32, what->replicas),
                        (size_t)snprintf(wait_ms, sizeof wait_ms, "%" PRId64, what->wait_ms)};

    make_message(message, 3, arguments, lengths);
}

void control_script_replicated(struct control *control, const struct control_replicated *what,
                               control_callback *callback, void *context)
{
    struct replicated *call = calloc(1, sizeof *call);
    struct slice key = {0};

    if (call == NULL) {
        callback(context, NULL, "out of memory");
        return;
    }
    *call =
        (struct replicated){.control = control, .callback = callback, .context = context, .database = what->database};
    control->under_way++;
    make_script(&call->by_digest, what, "EVALSHA", what->script->sha1, strlen(what->script->sha1));
    make_script(&call->whole, what, "EVAL", what->script->text, what->script->length);
    make_wait(&call->wait, what);
    if (what->key_count > 0) {
        key = (struct slice){what->arguments[0], what->lengths[0]};
    }
    if (call->by_digest.bytes == NULL || call->whole.bytes == NULL || call->wait.bytes == NULL) {
        finish(call, NULL, "out of memory");
        return;
    }
    call->lane = find_lane(call, key);
    if (call->lane == NULL) {
        finish(call, NULL, "Redis wants a password, and upstream_password is not set");
        return;
    }
    send_step(call, STEP_SCRIPT);
}
