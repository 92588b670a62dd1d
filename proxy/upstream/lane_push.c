/* Pushes that nobody gets. */
#include "upstream/lane_private.h"

size_t lane_drop_push(struct lane *lane, const char *data, size_t length)
{
    bool keeps_head = lane->reply.keep_head;
    size_t taken;

    lane->link.swallows = true;
    lane->reply.keep_head = false;
    enum resp_status status = resp_reply_feed(&lane->reply, data, length, &taken);
    lane->reply.keep_head = keeps_head;
    if (status == RESP_FAULT) {
        lane_desync(lane, "Redis sent bytes that are not RESP");
        return length;
    }
    if (status == RESP_DONE) {
        lane->link.swallows = false;
        resp_reply_reset(&lane->reply);
        stats_add(lane->settings->stats, STATS_PUSHES_DROPPED, 1);
    }
    return taken;
}
