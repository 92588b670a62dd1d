/* What has become of a request, by the beginning of its reply or, within a transaction, of EXEC's. */
#include "lease/lease_private.h"

#include <string.h>

static enum lease_outcome outcome_of_exec(struct slice head)
{
    bool executed = slice_begins(head, "*") && !slice_begins(head, "*-1");

    return executed ? LEASE_OUTCOME_UNCLEAR : LEASE_OUTCOME_REFUSED;
}

/* ZADD: 1 for a new member, 0 for one that was there. */
static enum lease_outcome outcome_of_score(struct slice head)
{
    return slice_begins(head, ":1\r")   ? LEASE_OUTCOME_YES
           : slice_begins(head, ":0\r") ? LEASE_OUTCOME_HELD
                                        : LEASE_OUTCOME_REFUSED;
}

struct slice lease_outcome_head(const struct lease_request *request, const struct policy_reply *reply)
{
    struct slice head = reply->head;
    bool is_seen = reply->outcome == POLICY_OUTCOME_REPLY &&
                   (!request->in_transaction || lease_answer_of_exec(reply->head, request->place, request->of, &head));

    return is_seen ? head : (struct slice){"", 0};
}

enum lease_outcome lease_outcome_of(const struct lease_request *request, const struct policy_reply *reply,
                                    struct slice head)
{
    if (reply->outcome == POLICY_OUTCOME_LOCAL) {
        return LEASE_OUTCOME_REFUSED;
    }
    if (reply->outcome != POLICY_OUTCOME_REPLY) {
        return LEASE_OUTCOME_UNKNOWN;
    }
    if (request->in_transaction && head.length == 0) {
        return outcome_of_exec(reply->head);
    }
    if (request->shape.action == LEASE_SCORE) {
        return outcome_of_score(head);
    }
    switch (lease_shape_answer(&request->shape, head)) {
    case LEASE_ANSWER_YES:
        return LEASE_OUTCOME_YES;
    case LEASE_ANSWER_NO:
        return slice_begins(head, "-") ? LEASE_OUTCOME_REFUSED : LEASE_OUTCOME_NO;
    case LEASE_ANSWER_HELD:
        return LEASE_OUTCOME_HELD;
    default:
        /* Who takes a lock and reads an error does not hold it. A release that a script has begun may have come about.
         */
        return slice_begins(head, "-") && !lease_action_releases(request->shape.action) ? LEASE_OUTCOME_REFUSED
                                                                                        : LEASE_OUTCOME_UNCLEAR;
    }
}
