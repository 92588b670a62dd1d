/*
 * Subscriptions that go to another node:
 *
 *   client_resubscribe.c  the names of a client, and its move to another node
 *   client_shard.c        shard channels that their node has dropped
 */
#ifndef HEADGATE_CLIENT_MOVES_PRIVATE_H
#define HEADGATE_CLIENT_MOVES_PRIVATE_H

#include "client/client_cluster_private.h"

/* Names that are kept of a client. Who has more is closed when its node goes. Bytes. */
#define CLIENT_CHANNELS_MAX ((size_t)64 * 1024)

struct client_channels {
    bool is_whole; /* false: there were too many, or memory was short */
    size_t used;
    size_t room;
    char *entries; /* a kind and length, and the bytes of the name, one behind the other */
    struct resubscription *moving;
    struct buffer
        dropped; /* what the node has said of shard channels that it has dropped, and the client has not heard */
    int64_t dropped_count; /* of them */
    size_t dropped_length; /* … of those that have come whole */
    bool is_passing;       /* the frame that is coming in goes to the client */
};

/* ---- client_resubscribe.c ---- */

/* How many of that kind: 'c', 'p' or 's'. */
int64_t client_channels_count(const struct client_channels *channels, char kind);
/* Whether that is a shard channel of the client, and all others of them are of its slot. */
bool client_channels_have_shard(const struct client_channels *channels, struct slice name);
void client_channels_forget(struct client_channels *channels, char kind, struct slice name);
/* The node has dropped all shard channels: the client is subscribed where they are now. False: it has more on its
 * connection. */
bool client_move_shards(struct client *client);

#endif
