/*
 * Lanes that are told CLIENT TRACKING ON OPTIN for their clients, to whom Headgate has answered it before. What is said
 * to a client that caches without Redis' knowing would be stale for ever, so a lane on which Redis does not take it
 * breaks, and its client with it.
 */
#include "upstream/upstream_private.h"

#include <stdio.h>
#include <string.h>

static bool told_reply(struct run *run, const struct resp_reply *reply)
{
    struct lane *lane = run->owner;

    if (reply->type == '>') {
        return false;
    }
    if (!resp_reply_starts(reply, "+OK\r")) {
        char why[96];
        snprintf(why, sizeof why, "Redis answered %.*s to CLIENT TRACKING of Headgate's own",
                 (int)resp_reply_head_line(reply), reply->head);
        lane_fail(lane, why);
    }
    return true;
}

static void told_bytes(struct run *run, const char *data, size_t length)
{
    (void)run;
    (void)data;
    (void)length;
}

static void told_answered(struct run *run)
{
    const struct lane *lane = run->owner;

    run_give(lane->runs, run);
}

/* The lane may live on, and get another connection, which has not heard it. */
static void told_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct lane *lane = run->owner;

    (void)loss;
    (void)why;
    lane->opted_in = false;
    run_give(lane->runs, run);
}

static const struct run_receiver told_receiver = {
    .bytes = told_bytes,
    .reply = told_reply,
    .answered = told_answered,
    .lost = told_lost,
};

static bool tell(struct lane *lane, const char *command)
{
    struct run *run = run_take(lane->runs);

    if (run == NULL) {
        return false;
    }
    run->requests = 1;
    run->receiver = &told_receiver;
    run->owner = lane;
    run->expected = lane;
    if (!lane_send(lane, run, command, strlen(command))) {
        run_give(lane->runs, run);
        return false;
    }
    return true;
}

bool upstream_opt_in(struct lane *lane)
{
    lane->opted_in = tell(lane, "*4\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\nON\r\n$5\r\nOPTIN\r\n");
    return lane->opted_in;
}

/* FLUSHALL is told to all who have said it, so something may be on its way until Redis has answered. */
bool upstream_opt_out(struct lane *lane)
{
    if (!lane->opted_in) {
        return true;
    }
    lane->opted_in = false;
    lane->needs_fence = true;
    return tell(lane, "*3\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$3\r\nOFF\r\n");
}
