/*
 * Subscriptions that go to another node:
 *
 *   client_channel_list.c  the names of a client
 *   client_resubscribe.c   … and its move to another node, where they are on its exclusive lane
 *   client_shard.c         … shard channels that their node has dropped
 *   client_subscriber*.c   where they have lanes of their own (client_subscriber_private.h)
 */
#ifndef HEADGATE_CLIENT_MOVES_PRIVATE_H
#define HEADGATE_CLIENT_MOVES_PRIVATE_H

#include "client/client_cluster_private.h"

#include <stdio.h>

/* Names that are kept of a client. Who has more is closed when its node goes. Bytes. */
#define CLIENT_CHANNELS_MAX ((size_t)64 * 1024)

/* Whether a lane has it; of clients whose subscriptions have lanes of their own. */
enum client_channel_state {
    CLIENT_CHANNEL_HELD,
    CLIENT_CHANNEL_LOST, /* none, any more */
    CLIENT_CHANNEL_ASKED /* … and it is asked for again */
};

/* In front of each name. */
struct client_channel {
    uint32_t length;
    char kind;      /* 'c', 'p' or 's' */
    uint8_t state;  /* enum client_channel_state */
    uint16_t place; /* the number of the lane */
};

struct client_channel_list {
    bool is_whole; /* false: there were too many, or memory was short */
    size_t used;
    size_t room;
    char *entries; /* each a struct client_channel, and the bytes of the name, one behind the other */
};

struct client_channels {
    struct client_channel_list names;
    struct resubscription *moving;
    struct buffer
        dropped; /* what the node has said of shard channels that it has dropped, and the client has not heard */
    int64_t dropped_count; /* of them */
    size_t dropped_length; /* … of those that have come whole */
    bool is_passing;       /* the frame that is coming in goes to the client */
};

/* ---- client_channel_list.c: `at` is the place of a name among the bytes ---- */

/* The one at that place, its name, and the place behind it; up to list->used. */
struct client_channel client_channel_list_at(const struct client_channel_list *list, size_t at);
struct slice client_channel_list_name(const struct client_channel_list *list, size_t at);
size_t client_channel_list_next(const struct client_channel_list *list, size_t at);
/* list->used: it is not there. */
size_t client_channel_list_find(const struct client_channel_list *list, char kind, struct slice name);
void client_channel_list_set(struct client_channel_list *list, size_t at, enum client_channel_state state,
                             uint16_t place);
/* Puts the name behind the others, as one that the lane of that number has. */
void client_channel_list_keep(struct client_channel_list *list, char kind, struct slice name, uint16_t place);
/* Harmless if it is not there. */
void client_channel_list_forget(struct client_channel_list *list, char kind, struct slice name);
void client_channel_list_forget_kind(struct client_channel_list *list, char kind);
/* How many of that kind: 'c', 'p' or 's'. */
int64_t client_channel_list_count(const struct client_channel_list *list, char kind);
/* Writes the request that subscribes to the one at that place. */
void client_channel_list_write_request(const struct client_channel_list *list, size_t at, FILE *out);
/* Empties it: all names are known again. */
void client_channel_list_begin(struct client_channel_list *list);
void client_channel_list_free(struct client_channel_list *list);

/* ---- client_resubscribe.c ---- */

/* Whether that is a shard channel of the client, and all others of them are of its slot. */
bool client_channels_have_shard(const struct client_channels *channels, struct slice name);
/* The node has dropped all shard channels: the client is subscribed where they are now. False: it has more on its
 * connection. */
bool client_move_shards(struct client *client);

#endif
