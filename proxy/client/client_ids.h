/* Ids by which clients without a connection of their own are named: see client_ids.c. */
#ifndef HEADGATE_CLIENT_IDS_H
#define HEADGATE_CLIENT_IDS_H

#include "client/client_private.h"

/*
 * Takes a whole request that asks for the client's id, or names another by such an id. False: it goes its ordinary way,
 * as *sent, which may say another id than frame; then *redirection says which. True: *outcome says what became of it.
 */
bool client_ids_take(struct client *client, const struct resp_command *framed, struct slice frame, struct slice *sent,
                     struct redirection *redirection, enum client_outcome *outcome);
/* What is under way of such a request is forgotten. */
void client_ids_end(struct client *client);
/* The client is closed: nobody can name it any more. */
void client_ids_forget(struct client *client);

/* The client has taken an exclusive lane, of which nothing else was asked yet. False when memory is short. */
bool client_ids_lane_taken(struct client *client);
/* The id of its lane may have become known. */
void client_ids_lane_known(struct client *client);
/* It leaves its lane. True: nobody else may have that, as somebody has named it. */
bool client_ids_lane_left(struct client *client);

/* Ten times a second. */
void client_ids_tick(struct client *client);

#endif
