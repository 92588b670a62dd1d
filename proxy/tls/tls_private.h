/*
 * What the files of TLS share:
 *
 *   tls_context.c     what connections have in common, from files
 *   tls_algorithms.c  what OpenSSL would make later, when memory may be short
 *   tls_ticket.c      the keys of tickets, by which clients resume; sessions, by which Headgate does
 *   tls_names.c       what a certificate says of whom it was given to
 *   tls_reason.c      what OpenSSL has against something, in words
 *   tls_wire.c        between OpenSSL and the socket
 *   tls.c             one connection
 */
#ifndef HEADGATE_TLS_PRIVATE_H
#define HEADGATE_TLS_PRIVATE_H

#include "tls/tls_context.h"
#include "tls/tls_names.h"
#include "tls/tls_wire.h"

#include "base/buffer.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

/* What callbacks of OpenSSL find out about a connection, as its app data. */
struct tls_of_ssl {
    int fd;
    bool has_opened_ticket; /* in this handshake, of a client */
};

/* ---- tls_ticket.c ---- */

/* A ticket is sealed by a key, which it names. */
struct tls_ticket_key {
    unsigned char name[16];
    unsigned char cipher[32];
    unsigned char mac[32];
};

/* The second one is that of before: what it has sealed is taken, and sealed anew by the first. */
struct tls_ticket_keys {
    pthread_mutex_t mutex;
    struct tls_ticket_key keys[2];
    int64_t made_us; /* the first one; 0: there is none yet */
};

/* How many servers' sessions are kept. */
#define TLS_SESSIONS_MAX 16

/* The last session with a server, by its address. */
struct tls_kept_session {
    struct sockaddr_storage address;
    socklen_t length; /* 0: none */
    SSL_SESSION *session;
};

struct tls_sessions {
    pthread_mutex_t mutex;
    struct tls_kept_session items[TLS_SESSIONS_MAX];
    size_t next; /* the place of the one that has to go next */
};

struct tls_context {
    SSL_CTX *ssl;
    atomic_size_t holders;
    struct tls_ticket_keys tickets; /* towards clients */
    struct tls_sessions sessions;   /* towards servers */
    char *server_name;              /* "" for that of the address */
    bool is_server;
    bool verifies;
    bool has_own_ca; /* else the system's, if any */
    int64_t begins;
    int64_t expires;
};

/* Clients may resume by tickets of the context's own keys. False when memory is short. */
bool tls_ticket_use(struct tls_context *context);
void tls_ticket_free(struct tls_ticket_keys *keys);
/* Sessions with servers are kept. False when memory is short. */
bool tls_ticket_keep_sessions(struct tls_context *context);
void tls_ticket_free_sessions(struct tls_sessions *sessions);
/* Of a connection whose handshake is done, and whose tickets are made, towards a client: frees its certificates, which
 * are half of what it costs. */
void tls_ticket_forget_peer(SSL *ssl);
/* Has a connection, whose socket is that, resume what was kept of the server at its other end, if anything was that is
 * good for the host that it expects. */
void tls_ticket_resume(struct tls_context *context, SSL *ssl, int fd);

/* ---- tls_algorithms.c ---- */

/* So that none is missing later, if memory is short when it is needed first. To be called again does no harm. */
void tls_algorithms_make(void);

/* ---- tls_reason.c ---- */

/* What the queue of errors says first, in words; empties it. fallback: if it says nothing. */
void tls_reason(char *text, size_t size, const char *fallback);

/* ---- tls_names.c ---- */

/* NULL when memory is short, or if it has more names than are looked at: a rule might be about one of the others. */
struct tls_names *tls_names_of(const X509 *certificate, bool *has_too_many);

/* ---- tls_wire.c ---- */

/* Read from a socket at once. Bytes. */
#define TLS_IN_SIZE ((size_t)256 * 1024)
/* Of plain bytes, sealed at once: eight records. */
#define TLS_WRITE_MAX ((size_t)128 * 1024)
/* What that can become; a handshake with a long chain of certificates is shorter. */
#define TLS_OUT_SIZE (TLS_WRITE_MAX + (size_t)64 * 1024)

struct tls_wire {
    struct buffer_pool *pool;
    BIO_METHOD *method;
    char *in_memory;
    const char *in; /* what OpenSSL has not taken yet */
    size_t in_length;
    char *out; /* what it has made */
    size_t out_length;
};

/* For one connection, which owns it. NULL when memory is short. */
BIO *tls_wire_bio(struct tls_wire *wire);

#endif
