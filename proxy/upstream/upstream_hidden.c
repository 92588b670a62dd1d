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

/* What takes a right may be refused since the user has shown to have it: so it is not said again and again. */
static bool told_reply(struct run *run, const struct resp_reply *reply)
{
    const enum profile_right *right = run->expected;

    if (is_push(run->lane, reply)) {
        return false;
    }
    profile_learn_right(lane_profile(run->lane), *right, reply);
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
    static const enum profile_right rights[] = {PROFILE_MAY_SETNAME, PROFILE_MAY_GETNAME, PROFILE_MAY_SETINFO};
    struct run *run = run_take(lane->runs);
    size_t i = 0;

    if (run == NULL) {
        return false;
    }
    while (rights[i] != right) {
        i++;
    }
    run->requests = 1;
    run->receiver = &told_receiver;
    run->owner = lane->runs;
    run->expected = (void *)(uintptr_t)&rights[i];
    if (!lane_send(lane, run, command, length)) {
        run_give(lane->runs, run);
        return false;
    }
    return true;
}

bool upstream_name_lane(struct lane *lane, const char *name)
{
    const struct profile *profile = lane_profile(lane);
    bool may_set_name = (profile->granted & PROFILE_MAY_SETNAME) != 0;
    char command[640];
    int length = may_set_name ? snprintf(command, sizeof command,
                                         "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$%zu\r\n%s\r\n", strlen(name), name)
                              : snprintf(command, sizeof command,
                                         "*4\r\n$5\r\nHELLO\r\n$1\r\n%d\r\n$7\r\nSETNAME\r\n$%zu\r\n%s\r\n",
                                         profile->resp, strlen(name), name);

    /* A name too long for this is not worth a larger buffer: the lane goes without. */
    if ((size_t)length >= sizeof command) {
        return true;
    }
    return may_set_name ? upstream_send_told(lane, command, (size_t)length, PROFILE_MAY_SETNAME)
                        : upstream_send_hidden(lane, command, (size_t)length, false);
}

bool upstream_greet_again(struct lane *lane)
{
    const struct profile *profile = lane_profile(lane);

    return lane->state != LANE_READY || profile->greeting_replies == 0 ||
           send_hidden(lane, profile->greeting_replies, profile->greeting, profile->greeting_length, true);
}
