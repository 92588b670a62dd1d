/*
 * A connection with TLS in an event loop of its own, whose other side is OpenSSL without a socket: the test says which
 * of its bytes arrive when, and what becomes of them on their way.
 */
#ifndef HEADGATE_TEST_SECURE_LINE_H
#define HEADGATE_TEST_SECURE_LINE_H

#include "net/connection.h"

#include "../tls/tls_files.h"

#include <openssl/ssl.h>

#define LINE_ROOM ((size_t)4 * 1024 * 1024)

struct line {
    struct tls_files files;
    struct tls_context *context;
    struct stats *stats;
    struct reactor reactor;
    struct event *tick; /* a turn does not last longer */
    struct connection connection;
    SSL_CTX *peer_context;
    SSL *peer;
    int peer_fd; /* -1: the test has closed it */

    size_t room;         /* for one read of the connection; each call of its callback reads once */
    size_t enough;       /* … until so many bytes were read in all; 0: for ever */
    char *got;           /* what was read, LINE_ROOM bytes */
    size_t got_length;   /* … so much */
    ssize_t last;        /* what the last read returned that gave nothing */
    unsigned reads;      /* calls of the callback */
    const char *to_send; /* each call of the callback for writing writes once of this … */
    size_t to_send_length;
    unsigned writes; /* calls of that */
    char why[200];   /* of the first failure */
};

/* Accepted, and nothing was said yet; both sides are there. */
void line_open(struct line *line, int64_t timeout_ms);
/* The same with the handshake done. */
void line_open_secure(struct line *line);
void line_close(struct line *line);

/* A few turns of the event loop: enough for what has come by then and needs no other thread. A handshake needs one,
 * which may have to wait for the processor. */
void line_turn(struct line *line);
/* As many as it takes until the handshake is over, and a few for who is to hear of it. */
void line_await_handshake(struct line *line);
/* As many as it takes until that many bytes were read; false if they do not come. */
bool line_await(struct line *line, size_t length);

/* Has the peer go on with the handshake. */
void line_peer_shake_hands(struct line *line);
/* Has the peer seal bytes; takes what it has to send into data, at most size. */
size_t line_seal(struct line *line, const char *plain, size_t length, char *data, size_t size);
/* Takes what the peer has to send otherwise. */
size_t line_take(struct line *line, char *data, size_t size);
/* Puts bytes into the socket, as if the peer had sent them. */
void line_put(struct line *line, const char *data, size_t length);
/* All that the peer has to send goes into the socket. */
void line_deliver(struct line *line);
/* What the socket has goes to the peer, which opens it; the length of what was in it. */
size_t line_open_at_peer(struct line *line, char *data, size_t size);

#endif
