/*
 * One connection with TLS over a non-blocking socket: the handshake, then plain bytes in and out. Knows no event loop:
 * whoever does calls when the socket can be read or written, and asks what is wanted next. Used by one thread at a
 * time.
 *
 *   tls_new() ─► tls_handshake() … ─► TLS_OPEN: tls_read(), tls_write() ─► tls_free()
 *                                └──► TLS_FAILED: tls_why()
 */
#ifndef HEADGATE_TLS_H
#define HEADGATE_TLS_H

#include "tls/tls_context.h"
#include "tls/tls_names.h"
#include "tls/tls_wire.h"

#include <sys/types.h>

struct tls;

enum tls_state { TLS_HANDSHAKE, TLS_OPEN, TLS_FAILED };

/* What a handshake, or the connection, failed of. */
enum tls_failure {
    TLS_FAILURE_OTHER,
    TLS_FAILURE_SILENT,      /* it went before it said anything, as those do who only look whether somebody listens */
    TLS_FAILURE_PLAIN,       /* the other side does not speak TLS */
    TLS_FAILURE_CERTIFICATE, /* a certificate was not good, or was not there */
    TLS_FAILURE_TIMEOUT,
    TLS_FAILURES
};

enum tls_result {
    TLS_AGAIN = -1, /* nothing now */
    TLS_BROKEN = -2 /* tls_why() says why */
};

/* fd is the caller's; the context is held. host: of the server, needed within the call only, NULL towards clients. NULL
 * when memory is short, or if there is no name that the certificate of the server could have. What takes time comes
 * with the first step of the handshake. */
struct tls *tls_new(struct tls_context *context, struct tls_wire *wire, int fd, const char *host);
/* Says that nothing more will be said, as far as the socket takes it. Does not close it. */
void tls_free(struct tls *tls);

/* Between two threads: the one before lets go of its wire, the next one brings its own. In between there is nothing but
 * tls_attach(). When memory is short it has FAILED. Nothing may wait for the socket (tls_wants_write()), unless it has
 * FAILED: that is dropped. */
void tls_detach(struct tls *tls);
void tls_attach(struct tls *tls, struct tls_wire *wire);

/* Goes on with the handshake; to be called at first by who connects, and whenever there is something to be read. */
enum tls_state tls_handshake(struct tls *tls);
enum tls_state tls_state(const struct tls *tls);
/* Ends it by a failure of the caller's. */
void tls_fail(struct tls *tls, enum tls_failure failure, const char *why);
/* Of one that FAILED: one line for a person. */
const char *tls_why(const struct tls *tls);
enum tls_failure tls_failure(const struct tls *tls);
/* Whether its handshake was short, as an earlier session went on. */
bool tls_is_resumed(const struct tls *tls);
/* The name by which a client has asked for us, in any case of letters; NULL: it gave none. Valid as long as tls. */
const char *tls_server_name(const struct tls *tls);
/* What the good certificate of a client says; NULL: it gave none, or was asked for none. */
const struct tls_names *tls_names(const struct tls *tls);

/* Bytes read; 0 at the end of the stream; or an enum tls_result. Reads the socket once at most. */
ssize_t tls_read(struct tls *tls, char *data, size_t size);
/* Whether tls_read() has something without reading the socket, so that nobody would tell. */
bool tls_has_input(const struct tls *tls);
/* Whether the stream ended without the other side's saying so. */
bool tls_is_truncated(const struct tls *tls);

/*
 * Bytes that are done with, possibly fewer than size, or an enum tls_result. As long as the socket has not taken all
 * that became of them, at least the last byte counts as not done: so who has nothing left to write knows that the
 * kernel has it. The next call is to begin with what was not done. If it breaks behind what is done, that is returned,
 * and the next call returns TLS_BROKEN.
 */
ssize_t tls_write(struct tls *tls, const char *data, size_t size);
/* Whether sealed bytes wait for the socket. */
bool tls_wants_write(const struct tls *tls);
/* Writes these. False: the socket is broken, with errno set. */
bool tls_flush(struct tls *tls);
/* Says that nothing more will be said, and ends that side of the stream. */
void tls_end_output(struct tls *tls);

#endif
