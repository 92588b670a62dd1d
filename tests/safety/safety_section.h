/*
 * Critical sections: one after the other in each slot. A lock is asked for; who is granted it enters, stays, leaves and
 * only then has the release sent. Some stay longer than their lease, some release through another Headgate, some take
 * the lock again in the same write, some use one token for all their locks, some vanish.
 */
#ifndef SAFETY_SECTION_H
#define SAFETY_SECTION_H

#include "safety_client.h"

struct slot {
    struct client *home;
    struct client *via; /* the release is under way over this one; NULL: there is none */
    struct hold *hold;
    enum lock_kind only; /* KIND_COUNT: all but those that need a connection of their own */
    bool reuses_token;
    bool lengthy;
    bool retaking;        /* released is not answered, and the lock is asked for again already */
    bool again;           /* the release has to be repeated at act_us */
    bool judged;          /* the release that is under way is the first: it has to find the lock */
    struct hold released; /* what the release under way is of */
    int64_t act_us;       /* idle: when to ask; holding: when to leave */
    int64_t release_us;   /* when it was sent */
};

/* Goes on with the section if it is time to; begins none unless there is load. False when there is nothing to do. */
bool section_act(struct slot *slot, bool load, int64_t now);
void section_reply(struct slot *slot, uint32_t serial, enum question question, const struct reply *reply, int64_t now);
/* The peer closed the connection. It is closed by the caller afterwards. */
void section_connection_lost(struct client *client, int64_t now);

/* The scripts by which locks are taken and released, for whoever loads them. NULL behind the last. */
const char *section_script(size_t index);
/* What EVALSHA calls them; also the text of the one that is sent by EVAL. */
bool section_is_own_script(const char *text, size_t length);

#endif
