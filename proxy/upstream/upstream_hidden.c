/* Commands of Headgate's own on a lane, ahead of a client's: nobody sees their replies. */
#include "upstream/upstream_private.h"

#include <stdio.h>
#include <string.h>

/* A push that comes between is its owner's, who has had its bytes. */
static bool is_push(const struct lane *lane, const struct resp_reply *reply)
{
    if (reply->type == '>' && lane->owner != NULL) {
        (void)lane->owner_events->frame(lane->owner, reply);
    }
    return reply->type == '>';
}

static bool hidden_reply(struct run *run, const struct resp_reply *reply)
{
    if (is_push(run->lane, reply)) {
        return false;
    }
    if (reply->type == '-') {
        char why[96];
        snprintf(why, sizeof why, "Redis answered %.*s to a command of Headgate's own",
                 (int)resp_reply_head_line(reply), reply->head);
        lane_fail(run->lane, why);
    }
    return true;
}

static void hidden_bytes(struct run *run, const char *data, size_t length)
{
    (void)run;
    (void)data;
    (void)length;
}

static void hidden_answered(struct run *run)
{
    run_give(run->owner, run);
}

static void hidden_lost(struct run *run, enum run_loss loss, const char *why)
{
    (void)loss;
    (void)why;
    run_give(run->owner, run);
}

static const struct run_receiver hidden_receiver = {
    .bytes = hidden_bytes,
    .reply = hidden_reply,
    .answered = hidden_answered,
    .lost = hidden_lost,
};

static bool send_hidden(struct lane *lane, uint32_t requests, const char *commands, size_t length, bool must_succeed)
{
    struct run *run = run_take(lane->runs);

    if (run == NULL) {
        return false;
    }
    run->requests = requests;
    if (must_succeed) {
        run->receiver = &hidden_receiver;
        run->owner = lane->runs;
        run->expected = run;
    }
    if (!lane_send(lane, run, commands, length)) {
        run_give(lane->runs, run);
        return false;
    }
    return true;
}

bool upstream_send_hidden(struct lane *lane, const char *command, size_t length, bool must_succeed)
{
    return send_hidden(lane, 1, command, length, must_succeed);
}

/* What was not taken leaves the lane as it was, with what another client has said of itself: nobody else may get it. */
static bool told_reply(struct run *run, const struct resp_reply *reply)
{
    struct lane *lane = run->lane;
    enum profile_right right = (enum profile_right)(uintptr_t)run->expected;

    if (is_push(lane, reply)) {
        return false;
    }
    /* That HELLO was taken says nothing of rights. */
    if (right != PROFILE_MAY_SETNAME || lane_profile(lane)->lacks_hello) {
        profile_learn_right(lane_profile(lane), right, reply);
    } else if (resp_reply_starts(reply, "-ERR unknown command ")) {
        lane_profile(lane)->lacks_hello = true;
    }
    lane->dirty = lane->dirty || resp_reply_is_error(reply);
    if (lane->dirty && lane->use == LANE_POOLED) {
        lane_fail(lane, "Redis has not taken its name off");
    }
    return true;
}

static const struct run_receiver told_receiver = {
    .bytes = hidden_bytes,
    .reply = told_reply,
    .answered = hidden_answered,
    .lost = hidden_lost,
};

bool upstream_send_told(struct lane *lane, const char *command, size_t length, enum profile_right right)
{
    struct run *run = run_take(lane->runs);

    if (run == NULL) {
        return false;
    }
    run->requests = 1;
    run->receiver = &told_receiver;
    run->owner = lane->runs;
    run->expected = (void *)(uintptr_t)right;
    if (!lane_send(lane, run, command, length)) {
        run_give(lane->runs, run);
        return false;
    }
    return true;
}

bool upstream_name_lane(struct lane *lane, const char *name)
{
    const struct profile *profile = lane_profile(lane);
    char command[640];
    int length =
        profile->lacks_hello
            ? snprintf(command, sizeof command, "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$%zu\r\n%s\r\n", strlen(name),
                       name)
            : snprintf(command, sizeof command, "*4\r\n$5\r\nHELLO\r\n$1\r\n%d\r\n$7\r\nSETNAME\r\n$%zu\r\n%s\r\n",
                       profile->resp, strlen(name), name);

    /* A name too long for this is not worth a larger buffer: the lane goes without. */
    if ((size_t)length >= sizeof command) {
        return true;
    }
    return upstream_send_told(lane, command, (size_t)length, PROFILE_MAY_SETNAME);
}

bool upstream_greet_again(struct lane *lane)
{
    const struct profile *profile = lane_profile(lane);

    return lane->state != LANE_READY || profile->greeting_replies == 0 ||
           send_hidden(lane, profile->greeting_replies, profile->greeting, profile->greeting_length, true);
}
