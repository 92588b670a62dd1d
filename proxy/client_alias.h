/* Ids of clients in pool = shared; see client_alias.c. */
#ifndef HEADGATE_CLIENT_ALIAS_H
#define HEADGATE_CLIENT_ALIAS_H

#include "client_private.h"

/* Whether the client's id is one of Headgate's. */
bool client_has_alias(const struct client *client);

/* The client has taken an exclusive lane, on which nothing was sent yet: what others know of it follows. asks: if the
 * lane's id is not known, it is asked for. False when memory is short. */
bool client_alias_taken(struct client *client, bool asks);
/* It has left that lane, which may be NULL. */
void client_alias_left(struct client *client, struct lane *lane);
/* The client is gone. */
void client_alias_end(struct client *client);
/* Ten times a second. */
void client_alias_tick(struct client *client);

/* Puts Redis' ids in the place of Headgate's in a whole request of CLIENT: *bytes is what to send then, valid until the
 * service's `translated` is used again. False: the client waits, or was closed. */
bool client_translate_ids(struct client *client, const struct resp_command *framed, const char *frame,
                          struct slice *bytes);

/* Whether the reply is written anew, and so kept until it is whole. observation may be NULL. */
bool client_rewrites(const struct client *client, const struct observation *observation);
/* Writes it: text is all that came, from that lane. False when memory is short. */
bool client_rewrite(struct client *client, const struct observation *observation, const struct resp_reply *reply,
                    struct lane *lane, struct slice text, struct buffer *made);

#endif
