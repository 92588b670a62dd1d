/*
 * A non-blocking stream socket in an event loop: reading, writing, connecting. Knows nothing of Redis. Nothing above
 * knows whether its bytes are sealed by TLS on their way.
 *
 *   connection.c         all of it but TLS
 *   connection_secure.c  with TLS
 */
#ifndef HEADGATE_CONNECTION_H
#define HEADGATE_CONNECTION_H

#include "conf/conf.h"
#include "event/reactor.h"
#include "tls/tls.h"

#include <event2/event_struct.h>
#include <sys/socket.h>
#include <sys/types.h>

struct connection {
    struct reactor *reactor;
    int fd; /* -1: not open */
    bool reading;
    bool writing;
    struct event read_event;
    struct event write_event;
    struct connection_secure *secure; /* NULL: without TLS */
};

typedef void connection_callback(evutil_socket_t fd, short what, void *context);

enum connection_result {
    CONNECTION_AGAIN = -1, /* nothing now; the event will tell */
    CONNECTION_BROKEN = -2 /* errno says why, connection_why() in words */
};

/* Takes over fd (non-blocking). The callbacks get context; nothing is watched yet. */
void connection_open(struct connection *connection, struct reactor *reactor, int fd, connection_callback *readable,
                     connection_callback *writable, void *context);

/* Closes the descriptor and forgets the events; harmless if it is closed already. */
void connection_close(struct connection *connection);

/* Gives an open one to another, which is not open, with callbacks and context of its own; nothing is watched yet. */
void connection_move(struct connection *to, struct connection *from, connection_callback *readable,
                     connection_callback *writable, void *context);

static inline bool connection_is_open(const struct connection *connection)
{
    return connection->fd >= 0;
}

/* Only for a change of what is wanted, see below. what: EV_READ or EV_WRITE. */
void connection_watch(struct connection *connection, short what, bool wanted);

/* Says whether the readable callback is wanted. Cheap when nothing changes. */
static inline void connection_want_read(struct connection *connection, bool wanted)
{
    if (connection->reading != wanted) {
        connection_watch(connection, EV_READ, wanted);
    }
}

/* The same for the writable one. */
static inline void connection_want_write(struct connection *connection, bool wanted)
{
    if (connection->writing != wanted) {
        connection_watch(connection, EV_WRITE, wanted);
    }
}

/* Bytes read; 0 at the end of the stream; or an enum connection_result. */
ssize_t connection_read(struct connection *connection, char *data, size_t size);
/* Bytes taken by the kernel, possibly fewer than size; or an enum connection_result. The next call begins with what was
 * not taken. */
ssize_t connection_write(struct connection *connection, const char *data, size_t size);
/* Ends our side of the stream, behind what was written. */
void connection_end_output(struct connection *connection);
/* After CONNECTION_BROKEN, before anything else is done: one line for a person. */
const char *connection_why(const struct connection *connection);

/* Whether there is something to be read at once. */
bool connection_has_input(const struct connection *connection);

/* Moves at most `most` bytes from one connection to another inside the kernel (see splice_move()). The bytes taken, 0
 * if there are none to be had this way, or an enum connection_result about `from`. */
ssize_t connection_pull(struct connection *from, struct connection *to, size_t most, size_t *left);

/* ---- TLS ---- */

/* How a connection is to speak TLS. */
struct connection_security {
    struct tls_context *context;
    const char *host;   /* of the server in its address, needed within the call only; NULL towards clients */
    int64_t timeout_ms; /* of the handshake; 0: none */
    uint32_t most;      /* steps of handshakes in one loop iteration of their thread; 0: as many as there are */
};

/*
 * Speaks TLS from now on: for an open one, on which nothing was read or written yet. Until the handshake is done
 * nothing can be read or written; then both callbacks are called, as far as they are wanted. If it fails, one of them
 * is called, and reading and writing are CONNECTION_BROKEN. False when memory is short, or if there is no name that the
 * server's certificate could have. The handshake is done by a thread of its own (handshaker.h).
 */
bool connection_secure(struct connection *connection, const struct connection_security *security);

/* Has what that takes on this reactor, a thread among it, now rather than with the first connection: for who is about
 * to start. is_client: towards clients, else a server. False when the system refuses. */
bool connection_prepare_security(struct reactor *reactor, bool is_client);

/* What became of that. */
enum connection_secrecy {
    CONNECTION_PLAIN,    /* it speaks no TLS */
    CONNECTION_SECURING, /* the handshake is under way */
    CONNECTION_SECURE,
    CONNECTION_INSECURE /* TLS has failed: connection_tls() knows of what */
};
enum connection_secrecy connection_secrecy(const struct connection *connection);
/* What else is known of it; NULL: it speaks no TLS, or not yet. */
const struct tls *connection_tls(const struct connection *connection);

/* ---- the other side ---- */

/* What has become of a connection's other side. */
enum connection_end {
    CONNECTION_GOES_ON,
    CONNECTION_HALF_CLOSED, /* it sends no more, but for what was not read yet */
    CONNECTION_RESET        /* it is gone */
};

/* The most that are asked about at once. */
#define CONNECTION_ENDS_MAX 64

/* Says of so many open connections, at most CONNECTION_ENDS_MAX, what has become of their other sides; for those that
 * are not read, so that no event tells. */
void connection_find_ends(struct connection *const connections[], size_t count, enum connection_end ends[]);

struct connection_tuning {
    int64_t keepalive_ms;    /* 0: off */
    int64_t user_timeout_ms; /* 0: the system's */
};

/* TCP_NODELAY, keepalive and TCP_USER_TIMEOUT; nothing on Unix sockets. */
void connection_tune(int fd, const struct connection_tuning *tuning);

/* A resolved address. */
struct connection_target {
    struct sockaddr_storage address;
    socklen_t length;
};

#define CONNECTION_TARGETS_MAX 16

/* Where a server is: the addresses of its name, in the order in which they are to be tried. */
struct connection_targets {
    size_t count;
    const char *why; /* a constant text: why there are none, if there are none; NULL: that is being found out */
    struct connection_target items[CONNECTION_TARGETS_MAX];
};

/* Turns a numeric or Unix address, or a name by the system's resolver (may block: for start-up, and for threads of
 * their own), into at least one target. False with why set in targets. */
bool connection_resolve(const struct conf_address *address, struct connection_targets *targets);
/* The same without asking anybody: false if it is a name. */
bool connection_resolve_numeric(const struct conf_address *address, struct connection_targets *targets);
/* The place of that target among them; their count: it is not one of them. */
size_t connection_targets_find(const struct connection_targets *targets, const struct connection_target *target);
/* Whether they are the same addresses, in whatever order. */
bool connection_targets_equal(const struct connection_targets *a, const struct connection_targets *b);

/* Begins to connect; the socket, writable when it is done, or -1 with errno set. One of a number from end on is not
 * taken: see places.h. */
int connection_start(const struct connection_target *target, int end);
/* After the socket became writable: 0, or the error number that the attempt ended with. A socket that was connected to
 * itself, as happens when nobody listens on a port that the system gives out, counts as refused. */
int connection_outcome(int fd);

/* Writes the peer as "1.2.3.4:5678", "[::1]:5678" or "unix" to text. */
void connection_peer_text(const struct sockaddr_storage *address, char *text, size_t size);

#endif
