#include "upstream/control_private.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Far more than Redis has to say to any command of ours: the names of all commands are 10 KiB, what a script says a few
 * hundred. As a tree a reply takes some 20 times its bytes, and is made in one go. */
#define REPLY_MAX ((size_t)1 << 20)
/* So often a call is sent on by nodes of a cluster at most. */
#define REDIRECTS_MAX 5

struct call {
    STAILQ_ENTRY(call) of_waiting;
    struct control *control;
    control_callback *callback;
    void *context;
    struct profile *profile; /* while it is sent: who it concerns, or NULL */
    int64_t database;
    int64_t since_us;            /* when the connection was made that the answer comes over */
    redisReader *reader;         /* has what has come of the reply, up to REPLY_MAX */
    size_t reply_bytes;          /* that have come */
    const struct script *script; /* NULL: no script, or sent as a whole */
    bool is_whole;               /* it is sent so at once */
    uint32_t redirects;
    int key_count;
    int argument_count; /* of the script, kept for the retry */
    char **arguments;
    size_t *lengths;
};

static void call_free(struct call *call)
{
    for (int i = 0; i < call->argument_count; i++) {
        free(call->arguments[i]);
    }
    free(call->arguments);
    free(call->lengths);
    redisReaderFree(call->reader);
    call->control->under_way--;
    free(call);
}

static void call_failed(struct call *call, const char *why)
{
    stats_add(upstream_stats(call->control->upstream), STATS_CONTROL_ERRORS, 1);
    call->callback(call->context, NULL, why[0] != '\0' ? why : "no connection to Redis yet");
    call_free(call);
}

static void on_bytes(struct run *run, const char *data, size_t length)
{
    struct call *call = run->owner;

    call->since_us = run->lane->ready_us;
    call->reply_bytes += length;
    if (call->reply_bytes <= REPLY_MAX) {
        /* It remembers that memory was short. */
        (void)redisReaderFeed(call->reader, data, length);
    }
}

static void send_whole_script(struct call *call);
static bool on_redirected(struct run *run, struct slice error, struct slice request);

static bool is_noscript(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0;
}

/* Only when all of it is there: an array's announced length is believed, and memory for it is taken. */
static void take_reply(struct call *call)
{
    void *parsed = NULL;

    if (redisReaderGetReply(call->reader, &parsed) != REDIS_OK || parsed == NULL) {
        call_failed(call, "Redis' reply could not be read");
        return;
    }
    redisReply *reply = parsed;
    if (call->script != NULL && is_noscript(reply)) {
        freeReplyObject(reply);
        stats_add(upstream_stats(call->control->upstream), STATS_CONTROL_SCRIPT_LOADS, 1);
        send_whole_script(call);
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        stats_add(upstream_stats(call->control->upstream), STATS_CONTROL_ERRORS, 1);
    }
    call->control->answered_since_us = call->since_us;
    /* Redis may have executed it since this loop iteration began: nobody is to reckon that it was earlier. */
    call->control->reactor->now_us = 0;
    call->callback(call->context, reply, NULL);
    freeReplyObject(reply);
    call_free(call);
}

static void refuse_reply(struct call *call)
{
    uint64_t more;

    if (log_limiter_take(&call->control->refusals, reactor_now(call->control->reactor), &more)) {
        log_warning("control", "Redis has answered a command of Headgate's own by %zu bytes, more than are taken",
                    call->reply_bytes);
    }
    call_failed(call, "Redis' reply is too large");
}

static void on_answered(struct run *run)
{
    struct call *call = run->owner;
    bool is_answered = run->requests > 0; /* else it was sent elsewhere, in a run of its own */

    run_give(call->control->runs, run);
    if (is_answered && call->reply_bytes > REPLY_MAX) {
        refuse_reply(call);
    } else if (is_answered) {
        take_reply(call);
    }
}

static void on_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct call *call = run->owner;

    (void)loss;
    run_give(call->control->runs, run);
    call_failed(call, why);
}

static const struct run_receiver control_receiver = {
    .bytes = on_bytes,
    .answered = on_answered,
    .lost = on_lost,
    .redirected = on_redirected,
};

/* The profile whose lane carries the call: that of the user whom it concerns, or the default one; in the call's
 * database, and in RESP2. */
static struct profile *control_profile(const struct call *call)
{
    struct profile *base =
        call->profile != NULL ? profile_with_resp(call->profile, 2) : upstream_default_profile(call->control->upstream);
    struct profile *profile = base != NULL ? profile_with_database(base, call->database) : NULL;

    if (base != NULL) {
        profile_release(base);
    }
    return profile;
}

/* The same where the call's first key is. Not referenced. */
static struct profile *profile_by_key(const struct call *call, struct profile *profile)
{
    const struct control_router *router = &call->control->router;

    if (profile == NULL || router->node_of == NULL || call->key_count == 0) {
        return profile;
    }
    return router->node_of(router->context, profile, (struct slice){call->arguments[0], call->lengths[0]});
}

static struct lane *control_lane(const struct call *call)
{
    struct profile *profile = control_profile(call);
    struct profile *there = profile_by_key(call, profile);
    bool has_none = there == NULL || profile->needs_password || !upstream_may_share(there);
    struct lane *lane = has_none ? NULL : upstream_shared_lane(there);

    if (profile != NULL) {
        profile_release(profile);
    }
    /* What was lost with the lane may be followed by another call before the lane is forgotten. */
    return lane != NULL && lane->state == LANE_CLOSED ? NULL : lane;
}

/* False when memory is short: then nothing of it was sent. */
static bool send_on(struct call *call, struct lane *lane, struct slice request, bool asks)
{
    static const char asking[] = "*1\r\n$6\r\nASKING\r\n";
    struct run *run = run_take(call->control->runs);

    if (run == NULL) {
        return false;
    }
    run->receiver = &control_receiver;
    run->owner = call;
    run->requests = 1;
    if ((asks && !upstream_send_hidden(lane, asking, sizeof asking - 1, false)) ||
        !lane_send(lane, run, request.data, request.length)) {
        run_give(call->control->runs, run);
        return false;
    }
    return true;
}

/* Headgate's own scripts answer by nothing that looks like it. */
static bool on_redirected(struct run *run, struct slice error, struct slice request)
{
    struct call *call = run->owner;
    const struct control_router *router = &call->control->router;
    bool may_go_on = call->key_count > 0 && call->redirects < REDIRECTS_MAX && router->redirected != NULL;
    struct profile *profile = may_go_on ? control_profile(call) : NULL;
    bool asks = false;

    if (profile == NULL) {
        return false;
    }
    struct profile *there = router->redirected(router->context, profile, run->lane, error, &asks);
    struct lane *lane = there != NULL ? upstream_shared_lane(there) : NULL;
    profile_release(profile);
    if (lane == NULL || lane->state == LANE_CLOSED) {
        return false;
    }
    call->redirects++;
    return send_on(call, lane, request, asks);
}

static void call_send(struct call *call, const char *command, size_t length)
{
    struct control *control = call->control;
    struct lane *lane = control_lane(call);
    struct run *run = lane != NULL ? run_take(control->runs) : NULL;

    if (run == NULL) {
        call_failed(call, lane == NULL ? "Redis wants a password, and upstream_password is not set" : "out of memory");
        return;
    }
    run->receiver = &control_receiver;
    run->owner = call;
    run->requests = 1;
    stats_add(upstream_stats(control->upstream), STATS_CONTROL_CALLS, 1);
    if (!lane_send(lane, run, command, length)) {
        run_give(control->runs, run);
        call_failed(call, "out of memory");
    }
}

static void call_send_arguments(struct call *call, int count, const char **arguments, const size_t *lengths)
{
    char *command = NULL;
    long long length = redisFormatCommandArgv(&command, count, arguments, lengths);

    if (length < 0) {
        call_failed(call, "out of memory");
        return;
    }
    call_send(call, command, (size_t)length);
    redisFreeCommand(command);
}

static struct call *call_new(struct control *control, control_callback *callback, void *context)
{
    struct call *call = calloc(1, sizeof *call);
    redisReader *reader = call != NULL ? redisReaderCreate() : NULL;

    if (reader == NULL) {
        free(call);
        callback(context, NULL, "out of memory");
        return NULL;
    }
    *call = (struct call){.control = control, .callback = callback, .context = context, .reader = reader};
    control->under_way++;
    return call;
}

void control_call(struct control *control, int argument_count, const char *const *arguments, const size_t *lengths,
                  control_callback *callback, void *context)
{
    control_call_as(control, NULL, argument_count, arguments, lengths, callback, context);
}

void control_call_as(struct control *control, struct profile *profile, int argument_count, const char *const *arguments,
                     const size_t *lengths, control_callback *callback, void *context)
{
    struct call *call = call_new(control, callback, context);

    if (call != NULL) {
        call->profile = profile;
        call_send_arguments(call, argument_count, (const char **)(uintptr_t)arguments, lengths);
    }
}

void control_send_as(struct control *control, struct profile *profile, struct slice request, control_callback *callback,
                     void *context)
{
    struct call *call = call_new(control, callback, context);

    if (call != NULL) {
        call->profile = profile;
        call_send(call, request.data, request.length);
    }
}

/* EVALSHA digest or EVAL text, then the number of keys, the keys and the arguments. */
static void send_script(struct call *call, const char *verb, const char *body, size_t body_length)
{
    int count = call->argument_count + 3;
    const char **arguments = calloc((size_t)count, sizeof *arguments);
    size_t *lengths = calloc((size_t)count, sizeof *lengths);
    char keys[16];

    if (arguments == NULL || lengths == NULL) {
        call_failed(call, "out of memory");
    } else {
        arguments[0] = verb;
        lengths[0] = strlen(verb);
        arguments[1] = body;
        lengths[1] = body_length;
        arguments[2] = keys;
        lengths[2] = (size_t)snprintf(keys, sizeof keys, "%d", call->key_count);
        for (int i = 0; i < call->argument_count; i++) {
            arguments[i + 3] = call->arguments[i];
            lengths[i + 3] = call->lengths[i];
        }
        call_send_arguments(call, count, arguments, lengths);
    }
    free(arguments);
    free(lengths);
}

static void send_whole_script(struct call *call)
{
    const struct script *script = call->script;

    call->script = NULL;
    call->reply_bytes = 0;
    send_script(call, "EVAL", script->text, script->length);
}

static void begin_script(struct call *call)
{
    if (call->is_whole) {
        send_whole_script(call);
    } else {
        send_script(call, "EVALSHA", call->script->sha1, strlen(call->script->sha1));
    }
}

void control_go_on(struct control *control)
{
    while (!STAILQ_EMPTY(&control->waiting)) {
        struct call *call = STAILQ_FIRST(&control->waiting);
        STAILQ_REMOVE_HEAD(&control->waiting, of_waiting);
        begin_script(call);
    }
}

static bool keep_arguments(struct call *call, int count, const char *const *arguments, const size_t *lengths)
{
    if (count == 0) {
        return true;
    }
    call->arguments = calloc((size_t)count, sizeof *call->arguments);
    call->lengths = calloc((size_t)count, sizeof *call->lengths);
    if (call->arguments == NULL || call->lengths == NULL) {
        return false;
    }
    for (; call->argument_count < count; call->argument_count++) {
        int i = call->argument_count;
        call->arguments[i] = malloc(lengths[i] + 1);
        if (call->arguments[i] == NULL) {
            return false;
        }
        memcpy(call->arguments[i], arguments[i], lengths[i]);
        call->lengths[i] = lengths[i];
    }
    return true;
}

void control_script(struct control *control, int64_t database, const struct script *script, bool whole, int key_count,
                    int argument_count, const char *const *arguments, const size_t *lengths, control_callback *callback,
                    void *context)
{
    struct call *call = call_new(control, callback, context);

    if (call == NULL) {
        return;
    }
    call->database = database;
    call->script = script;
    call->is_whole = whole;
    call->key_count = key_count;
    if (!keep_arguments(call, argument_count, arguments, lengths)) {
        call_failed(call, "out of memory");
        return;
    }
    if (control->router.waits != NULL && control->router.waits(control->router.context)) {
        STAILQ_INSERT_TAIL(&control->waiting, call, of_waiting);
    } else {
        begin_script(call);
    }
}

struct control *control_new(struct reactor *reactor, struct run_pool *runs, struct upstream *upstream)
{
    struct control *control = calloc(1, sizeof *control);

    if (control != NULL) {
        *control = (struct control){.reactor = reactor, .runs = runs, .upstream = upstream};
        STAILQ_INIT(&control->waiting);
    }
    return control;
}

void control_set_router(struct control *control, const struct control_router *router)
{
    control->router = *router;
}

int64_t control_answered_since(const struct control *control)
{
    return control->answered_since_us;
}

bool control_is_idle(const struct control *control)
{
    return control->under_way == 0;
}

void control_free(struct control *control)
{
    assert(control->under_way == 0);
    free(control);
}
