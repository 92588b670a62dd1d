/*
 * What the files of the lane share:
 *
 *   lane_socket.c      what its socket has to say
 *   lane_replies.c     reading, taking replies apart, measuring
 *   lane_greeting.c    what a new connection is told, and what Redis says to that
 *   lane_push.c        pushes that nobody gets
 *   lane_output.c      sending, writing
 *   lane.c             the life of a lane: connecting, who owns it, breaking, time
 *   lane_follow.c      what was sent, as long as it may have to be sent elsewhere; what is lost
 *   lane_congestion.c  who waits while there is too much to write
 *
 * Calls go down this list.
 *
 * After a call of what may break the lane, or tells others, its state may be another one.
 */
#ifndef HEADGATE_LANE_PRIVATE_H
#define HEADGATE_LANE_PRIVATE_H

#include "upstream/lane.h"

/* ---- the queue of runs; inline, as each request passes it ---- */

static inline void lane_queue_append(struct lane *lane, struct run *run)
{
    run->lane_next = NULL;
    if (lane->first == NULL) {
        lane->first = run;
        lane->progress_us = reactor_now(lane->reactor);
    } else {
        lane->last->lane_next = run;
    }
    lane->last = run;
}

/* The first run, which there must be: it belongs to the caller. */
static inline struct run *lane_queue_pop(struct lane *lane)
{
    struct run *run = lane->first;

    lane->first = run->lane_next;
    if (lane->first == NULL) {
        lane->last = NULL;
    }
    run->lane_next = NULL;
    run->lane = NULL;
    lane->requests_waiting -= run->requests - run->answered;
    return run;
}

/* ---- lane_congestion.c ---- */

/* To be called when there may be less output than before. */
static inline void lane_note_relief(struct lane *lane)
{
    if (lane->was_congested && !lane_is_congested(lane)) {
        lane->was_congested = false;
        lane_wake_waiters(lane);
    }
}

/* ---- lane.c ---- */

/* The only way to another state, which is counted, too. Not for a lane that is CLOSED. */
void lane_move(struct lane *lane, enum lane_state state);
/* The connection, or the attempt to make it, came to an end. reason: one line for a person. Not for a lane that is
 * CLOSED.
 */
void lane_break(struct lane *lane, const char *reason);
/* Of runs that are all unsent, those whose clients have gone are not for the next connection; nor what Headgate says
 * ahead of them (ASKING), which would hold for another. */
void lane_keep_owned(struct lane *lane);
/* Redis does not take the connection that was just made: there is no use in trying its other addresses now. */
void lane_refused(struct lane *lane, const char *why);
/* What waits to be sent waits no more: it is told why. Not for a lane that is READY. */
void lane_expire(struct lane *lane);
/* Breaks the lane as Redis sent what cannot be anybody's reply: nothing that follows can be trusted. */
void lane_desync(struct lane *lane, const char *why);

/* ---- lane_follow.c: lanes that follow redirects ---- */

/* Keeps what was just written, the first bytes of the output. False when memory is short. */
bool lane_keep_sent(struct lane *lane, size_t length);
/* Forgets what was answered. */
void lane_forget_answered(struct lane *lane);
/* Forgets all, as its connection ends. */
void lane_forget_sent(struct lane *lane);
/* The lane ends, and gives back what was not answered, if it is one that does so: but for what was answered in part. */
void lane_give_back_all(struct lane *lane, const char *why);
/* The run has left the lane and is lost. */
void lane_run_was_lost(struct lane *lane, struct run *run, enum run_loss loss, const char *why);
/* Puts the beginning of an error that was read before in front of what will be read: the bytes that it has. */
size_t lane_recall(struct lane *lane, char *scratch);
/* Whether an error begins here, in place of a reply to the first run. */
static inline bool lane_begins_error(const struct lane *lane, const char *data)
{
    return *data == '-' && lane->first != NULL && resp_reply_idle(&lane->reply);
}
/* Where that error ends, by its first line: its length; 0: that has not come yet. */
size_t lane_error_length(const char *data, size_t length);
/* Whether its receiver has taken the request over that is answered so: then the run goes on behind it. */
bool lane_is_redirected(struct lane *lane, struct slice error);

/* ---- lane_greeting.c ---- */

/* Says the greeting on a connection that was just made; without one the lane is ready. */
void lane_greet(struct lane *lane);
/* Takes what came while the lane was in HANDSHAKE. */
void lane_take_greeting(struct lane *lane, const char *data, size_t length);
/* The greeting, if any, was answered: what waits is sent, and who waits is told. */
void lane_now_ready(struct lane *lane);

/* Breaks the lane, as lane_break() does. Before anything was answered, why is not all: whoever speaks TLS says nothing
 * to who does not, and who wants another certificate often has no time to say so. */
void lane_unheard(struct lane *lane, const char *why);

/* ---- lane_output.c ---- */

/* Has the output written at the end of this loop iteration, if the lane is ready. */
void lane_want_flush(struct lane *lane);
/* Writes what the kernel takes of the output; nothing on a lane that is not ready. */
void lane_flush(struct lane *lane);
/* Writes it, or holds it for one turn. The task of the stage of requests: lane->flush. */
void lane_flush_task(struct reactor_task *task);
/* Ends our side of the stream if lane_end_output() was called and all is written. */
void lane_end_stream_when_written(struct lane *lane);
/* Tells whoever waits for an AUTH to go out alone, if the lane owes nothing. */
static inline void lane_tell_quiet(struct lane *lane)
{
    if (lane->awaits_quiet && lane->first == NULL && lane->state == LANE_READY) {
        lane_wake_waiters(lane);
    }
}

/* ---- lane_push.c ---- */

/*
 * Whether data goes on with, or begins with, a push that nobody gets: inline, as all that is read passes it.
 *
 * A client may have the invalidation messages of CLIENT TRACKING sent to any connection. On one without an owner, or
 * before its owner was heard, they are nobody's. They come in RESP3 only, where their type tells them from replies.
 */
static inline bool lane_is_unwanted_push(const struct lane *lane, const char *data)
{
    bool is_nobodys = lane->owner == NULL || lane->written == 0;

    return lane->link.swallows || (is_nobodys && lane->link.resp3 && *data == '>' && resp_reply_idle(&lane->reply));
}
/* Drops such a push, or what there is of it. Returns the bytes that it dealt with. */
size_t lane_drop_push(struct lane *lane, const char *data, size_t length);

/* ---- lane_replies.c ---- */

/* Reads the connection once and hands out what came. The task of the stage of replies: lane->take. */
void lane_take_task(struct reactor_task *task);

/* ---- lane_socket.c ---- */

/* What libevent calls. Whoever waits to connect has the second one called. */
void lane_readable(evutil_socket_t fd, short what, void *context);
void lane_writable(evutil_socket_t fd, short what, void *context);

#endif
