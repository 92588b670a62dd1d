/*
 * Servers that hang: they answer nothing, and break no connection. Where Redis is is asked anew while one is silent
 * that owes an answer, and lanes to it are given up when another has taken over. Who only listens is owed nothing: such
 * a lane is asked for a sign of life (a fence, which subscribers may be sent), and owes that.
 */
#include "upstream/upstream_private.h"

/* Who has answered nothing for so long is suspect, and asked for a sign of life. */
#define SUSPECT_US ((int64_t)1000000)

/* Before a cluster alone: sentinels are heard, and all lanes go with the server that they leave. */
static bool may_be_asked(const struct lane *lane)
{
    bool listens = lane->owner != NULL && (lane->expects_pushes || lane->owner_events->listens);

    return listens && lane->first == NULL && !lane->paused && lane->settings->may_have_id != NULL;
}

void upstream_tend_silent(struct upstream *upstream)
{
    int64_t now = reactor_now(upstream->reactor);
    struct lane *lane, *listening = NULL;
    bool is_silent = false, is_heard = false;

    LIST_FOREACH(lane, &upstream->lanes, of_upstream)
    {
        bool is_quiet = now - lane->progress_us >= SUSPECT_US;
        if (lane->state == LANE_READY && lane->link.retired_us == 0) {
            is_heard = is_heard || !is_quiet;
            is_silent = is_silent || (is_quiet && lane->first != NULL && !lane->first->may_block && !lane->paused);
            listening = may_be_asked(lane) && upstream_may_ping(lane) ? lane : listening;
        } else if (lane->state == LANE_HANDSHAKE) {
            is_silent = is_silent || is_quiet;
        }
    }
    if (is_silent) {
        upstream_note_connecting(upstream);
    } else if (!is_heard && listening != NULL) {
        /* One speaks for all. */
        (void)upstream_send_ping(listening);
    }
}

void upstream_give_up_silent(struct upstream *upstream, bool retired_only, int64_t silent_us)
{
    struct lane *lane = LIST_FIRST(&upstream->lanes);
    int64_t now = reactor_now(upstream->reactor);

    while (lane != NULL) {
        struct lane *next = LIST_NEXT(lane, of_upstream);
        bool is_meant = lane->state == LANE_READY && (!retired_only || lane->link.retired_us != 0);
        bool is_silent = is_meant && now - lane->progress_us >= silent_us;
        if (is_silent && lane->first != NULL) {
            lane_fail(lane, "another server has taken over, and this one does not answer");
        } else if (is_silent && may_be_asked(lane)) {
            (void)upstream_send_fence(lane);
        }
        lane = next;
    }
}
