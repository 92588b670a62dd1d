/*
 * A contact: a connection of Headgate's own to a server that is asked about others (a sentinel, or whether a server is
 * a master). It carries no client's request, and speaks RESP2.
 *
 * Questions are answered in order; what a subscription brings comes as answers, too. Whatever is not answered in time,
 * is no RESP, or is longer than any answer may be, closes it.
 */
#ifndef HEADGATE_CONTACT_H
#define HEADGATE_CONTACT_H

#include "net/connection.h"

#include <hiredis/hiredis.h>

struct contact;

/* All calls come from within the event loop, and may free the contact. */
struct contact_events {
    /* The connection is made, with TLS if it is to have that, and the server has taken the credentials. */
    void (*ready)(void *context);
    /* An answer, also an error (REDIS_REPLY_ERROR), or a message of a subscription. It is freed after the call. */
    void (*answer)(void *context, const redisReply *reply);
    /* It is closed, and freed after the call; why is one line for a person. */
    void (*closed)(void *context, const char *why);
};

/* Texts are needed within the call only. */
struct contact_settings {
    const struct connection_target *target;
    struct tls_context *tls; /* NULL: without TLS */
    const char *host;        /* by which its certificate is judged */
    const char *user;        /* "": the default user */
    const char *password;    /* "": none */
    int64_t timeout_ms;      /* for the connection, and for each answer */
    struct connection_tuning tuning;
};

/* Begins to connect. NULL when the system or memory refuses; then no call comes. */
struct contact *contact_new(struct reactor *reactor, const struct contact_settings *settings,
                            const struct contact_events *events, void *context);
/* No call comes any more. NULL is none. */
void contact_free(struct contact *contact);

/* Sends a command of so many arguments, each without NUL. Only once it is ready. */
void contact_ask(struct contact *contact, size_t count, const char *const *arguments);
/* Answers that are still to come. */
size_t contact_owed(const struct contact *contact);
/* Where it is connected to. */
const struct connection_target *contact_target(const struct contact *contact);

#endif
