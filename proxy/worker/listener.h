/*
 * Listening sockets for clients. Accepts on the main thread, refuses what is too much with Redis' own words, and hands
 * the rest to the worker pool.
 */
#ifndef HEADGATE_LISTENER_H
#define HEADGATE_LISTENER_H

#include "net/port.h"
#include "worker/worker_pool.h"

struct listener;

/* Opens all of conf->listen, for listener_serve(). NULL with one logged line for each that cannot be opened. conf may
 * be replaced later by listener_reconfigure(); source is needed within the call only. */
struct listener *listener_open(struct reactor *reactor, struct worker_pool *worker_pool, const struct conf *conf,
                               struct port_source *source);
/* Takes its addresses over from who serves there (port.h). False with one logged line. */
bool listener_serve(struct listener *listener);
/* max_clients is that of conf until listener_bound() says that fewer fit. */
void listener_reconfigure(struct listener *listener, const struct conf *conf);
void listener_bound(struct listener *listener, size_t most);
/* Stops accepting, when all who have connected were accepted; removes Unix sockets from the file system. Sockets that
 * were handed over are left to who keeps them, with those who wait there. */
void listener_stop(struct listener *listener);
/* Accepts nobody where another process does (port_leave()), but keeps these sockets; stops at all other addresses. */
void listener_leave(struct listener *listener);
/* Accepts again at the sockets that listener_leave() has kept. */
void listener_resume(struct listener *listener);
/* Those whose PROXY header is to come have half a second for it. */
void listener_hasten(struct listener *listener);
/* Whether another process has taken all of its addresses over; to be called before listener_stop(). */
bool listener_has_successor(const struct listener *listener);
/* How many there are whose header is to come. */
size_t listener_waiting(const struct listener *listener);
/* Stops, closes those who wait, and frees the listener. */
void listener_close(struct listener *listener);

#endif
