/* Exclusive lanes: how they are taken and given back, and the fences that show that they owe nothing. */
#include "upstream/upstream_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Of all profiles together no more are kept than exclusive_idle: clients come from one and leave into another. */
static void return_to_pool(struct lane *lane)
{
    struct upstream *upstream = lane_profile(lane)->upstream;

    stats_add(lane->settings->stats, STATS_EXCLUSIVE_RETURNED, 1);
    upstream_pool(lane);
    bool is_one_more = upstream->pooled_count > (size_t)upstream->settings.exclusive_idle;
    struct lane *oldest = is_one_more ? upstream_longest_idle(upstream) : NULL;
    if (oldest != NULL) {
        lane_close(oldest, "others were used later");
    }
}

/*
 * ---- fences ----
 *
 * A PING, which Redis may refuse: NOPERM, of which ACL LOG would tell each time, NOAUTH, BUSY, LOADING. Then a name
 * that no command has: Redis looks for it before anything else, notes nothing, and has it in its answer. That one
 * counts as an error in INFO, and so it is not for all.
 */

#define FENCE_SECRET 16 /* bytes; twice as many digits */

struct fence {
    struct lane *lane;
    struct run_pool *runs;
    bool passed;
    bool by_name;    /* the secret is the name of a command, not an argument of PING */
    bool is_refused; /* Redis does not take a PING */
    bool is_sign;    /* of life: any error is one, too */
    bool keeps_star; /* the first byte of an array has come, and not what it is */
    char secret[FENCE_SECRET * 2 + 1];
};

/* A subscriber of RESP2 is sent arrays of three and of four; only its pong is one of two. */
static bool is_message(const struct fence *fence, const struct resp_reply *reply)
{
    return fence->lane->owner != NULL && fence->lane->expects_pushes && reply->type == '*' && reply->head_length > 1 &&
           reply->head[1] != '2';
}

static void fence_bytes(struct run *run, const char *data, size_t length)
{
    struct fence *fence = run->owner;
    struct lane *lane = fence->lane;
    bool goes_on = is_message(fence, &lane->reply), begins = goes_on && fence->keeps_star;

    /* The fence goes with its lane, if the owner lets go of that. */
    fence->keeps_star = lane->reply.type == '*' && lane->reply.head_length == 1;
    if (begins) {
        lane->owner_events->bytes(lane->owner, "*", 1);
    }
    if (goes_on && lane->owner != NULL) {
        lane->owner_events->bytes(lane->owner, data, length);
    }
}

static bool is_unknown(const struct fence *fence, const struct resp_reply *reply)
{
    static const char begin[] = "-ERR unknown command ";
    size_t quote = sizeof begin - 1;

    return resp_reply_starts(reply, begin) && reply->head_length > quote + 1 + strlen(fence->secret) &&
           memcmp(reply->head + quote + 1, fence->secret, strlen(fence->secret)) == 0;
}

static bool is_pong(const struct fence *fence, const struct resp_reply *reply)
{
    char text[RESP_HEAD_KEPT];
    int length = snprintf(text, sizeof text, "%s$%d\r\n%s\r\n", reply->type == '*' ? "*2\r\n$4\r\npong\r\n" : "",
                          FENCE_SECRET * 2, fence->secret);

    return reply->size == (uint64_t)length && memcmp(reply->head, text, (size_t)length) == 0;
}

static bool fence_reply(struct run *run, const struct resp_reply *reply)
{
    struct fence *fence = run->owner;
    struct lane *lane = fence->lane;

    if (reply->type == '>' || is_message(fence, reply)) {
        /* The owner may close the lane, and the fence is gone with it. */
        if (lane->owner != NULL) {
            (void)lane->owner_events->frame(lane->owner, reply);
        }
        return false;
    }
    fence->passed = fence->by_name ? is_unknown(fence, reply) : is_pong(fence, reply);
    if (!fence->by_name && (fence->passed || resp_reply_starts(reply, "-NOPERM"))) {
        profile_learn_right(lane_profile(fence->lane), PROFILE_MAY_PING, reply);
    }
    fence->is_refused = !fence->by_name && reply->type == '-';
    if (!fence->passed && fence->lane->owner != NULL && !(fence->is_sign && fence->is_refused)) {
        lane_fail(fence->lane, "there were more replies than requests");
    }
    return true;
}

/* A lane without an owner waited for it before it is given to others. */
static void fence_answered(struct run *run)
{
    struct fence *fence = run->owner;
    struct lane *lane = fence->lane;
    bool passed = fence->passed, is_refused = fence->is_refused;

    run_give(fence->runs, run);
    free(fence);
    if (lane->owner != NULL || lane->state == LANE_CLOSED) {
        return;
    }
    /* Whatever is refused so, the other kind finds out. */
    if (is_refused && upstream_send_fence(lane)) {
        return;
    }
    if (passed && upstream_may_be_pooled(lane)) {
        lane->needs_fence = false;
        return_to_pool(lane);
    } else {
        lane_close(lane, "there were more replies than requests");
    }
}

static void fence_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct fence *fence = run->owner;

    (void)loss;
    (void)why;
    run_give(fence->runs, run);
    free(fence);
}

static const struct run_receiver fence_receiver = {
    .bytes = fence_bytes,
    .reply = fence_reply,
    .answered = fence_answered,
    .lost = fence_lost,
};

static struct fence *fence_new(struct lane *lane)
{
    unsigned char secret[FENCE_SECRET];
    struct fence *fence = malloc(sizeof *fence);

    if (fence == NULL || getrandom(secret, sizeof secret, 0) != sizeof secret) {
        free(fence);
        return NULL;
    }
    *fence = (struct fence){.lane = lane, .runs = lane->runs};
    for (size_t i = 0; i < sizeof secret; i++) {
        snprintf(fence->secret + 2 * i, 3, "%02x", secret[i]);
    }
    return fence;
}

bool upstream_may_ping(const struct lane *lane)
{
    const struct profile *profile = lane_profile(lane);

    return profile->user == NULL ? (profile->denied & PROFILE_MAY_PING) == 0
                                 : (profile->granted & PROFILE_MAY_PING) != 0;
}

static bool send_fence(struct lane *lane, bool by_name, bool is_sign)
{
    struct fence *fence = fence_new(lane);
    struct run *run = fence != NULL ? run_take(lane->runs) : NULL;
    char command[96];

    if (run == NULL) {
        free(fence);
        return false;
    }
    run->requests = 1;
    run->receiver = &fence_receiver;
    run->owner = fence;
    run->expected = fence;
    fence->by_name = by_name;
    fence->is_sign = is_sign;
    int length = snprintf(command, sizeof command, "%s$%d\r\n%s\r\n",
                          fence->by_name ? "*1\r\n" : "*2\r\n$4\r\nPING\r\n", FENCE_SECRET * 2, fence->secret);
    if (!lane_send(lane, run, command, (size_t)length)) {
        run_give(lane->runs, run);
        free(fence);
        return false;
    }
    return true;
}

bool upstream_send_fence(struct lane *lane)
{
    /* One that is refused breaks the lane of who waits for it: his does not begin by asking. */
    return send_fence(lane, lane->owner != NULL || (lane_profile(lane)->denied & PROFILE_MAY_PING) != 0, false);
}

bool upstream_send_ping(struct lane *lane)
{
    return send_fence(lane, false, true);
}

struct lane *upstream_take_exclusive(struct profile *profile, bool fresh, const struct lane_owner *events, void *owner)
{
    struct lane *lane = fresh ? NULL : upstream_take_pooled(profile);

    stats_add(profile->upstream->settings.lane.stats, STATS_EXCLUSIVE_TAKEN, 1);
    if (lane == NULL) {
        lane = upstream_open_lane(profile, LANE_EXCLUSIVE);
        if (lane == NULL) {
            return NULL;
        }
        lane_set_owner(lane, events, owner);
        upstream_start_lane(lane);
    }
    lane_set_owner(lane, events, owner);
    lane->owned_from = lane->appended;
    upstream_open_spares(profile);
    return lane;
}

struct lane *upstream_take_bare(struct profile *profile, const struct lane_owner *events, void *owner)
{
    struct lane *lane = upstream_open_lane(profile, LANE_EXCLUSIVE);

    stats_add(profile->upstream->settings.lane.stats, STATS_EXCLUSIVE_TAKEN, 1);
    if (lane != NULL) {
        lane->bare = true;
        lane->dirty = true;
        lane_set_owner(lane, events, owner);
        upstream_note_connecting(profile->upstream);
        lane_start(lane);
    }
    return lane;
}

void upstream_make_exclusive(struct lane *lane, const struct lane_owner *events, void *owner)
{
    struct stats *stats = lane->settings->stats;

    upstream_forget_place(lane);
    lane_make_exclusive(lane, events, owner);
    if (lane->state == LANE_READY) {
        stats_subtract(stats, STATS_LANES_SHARED, 1);
        stats_add(stats, STATS_LANES_EXCLUSIVE, 1);
    }
    stats_add(stats, STATS_EXCLUSIVE_TAKEN, 1);
}

void upstream_release_exclusive(struct lane *lane, bool clean)
{
    lane_set_owner(lane, NULL, NULL);
    lane_wake_waiters(lane);
    lane_pause(lane, false);
    lane->awaits_quiet = false;
    lane->expects_pushes = false;
    if (!clean || !resp_reply_idle(&lane->reply) || !upstream_may_be_pooled(lane)) {
        lane_close(lane, "not needed any more");
    } else if (!lane->needs_fence) {
        return_to_pool(lane);
    } else if (!upstream_send_fence(lane)) {
        lane_close(lane, "out of memory");
    }
}
