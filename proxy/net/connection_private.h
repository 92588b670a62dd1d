/* What connection.c and connection_secure.c know of each other. All but the first are of connections with TLS. */
#ifndef HEADGATE_CONNECTION_PRIVATE_H
#define HEADGATE_CONNECTION_PRIVATE_H

#include "net/connection.h"

/* Watches an event, or not any more. *current: whether it is watched, which must not be so already. */
void connection_watch_event(struct event *event, bool *current, bool wanted);

/* Says that nothing more will be said; forgets the events. The descriptor is the caller's. */
void connection_secure_close(struct connection *connection);
/* Both have the descriptor; from has no TLS afterwards. */
void connection_secure_move(struct connection *to, struct connection *from, connection_callback *readable,
                            connection_callback *writable, void *context);
/* What is wanted has changed. */
void connection_secure_watch(struct connection *connection);
/* As connection_read() and its like. */
ssize_t connection_secure_read(struct connection *connection, char *data, size_t size);
ssize_t connection_secure_write(struct connection *connection, const char *data, size_t size);
void connection_secure_end(struct connection *connection);

#endif
