/*
 * What the files that make up the admin port share:
 *
 *   admin.c         listening, connections, requests
 *   admin_verbs.c   what can be asked
 *   admin_policy.c  … of policies
 */
#ifndef HEADGATE_ADMIN_PRIVATE_H
#define HEADGATE_ADMIN_PRIVATE_H

#include "admin.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <string.h>
#include <strings.h>

/* Arguments of a request, with the verb. */
#define ADMIN_ARGUMENTS_MAX 8

struct admin {
    struct reactor *reactor;
    struct crew *crew;
    struct admin_host host;
    struct evconnlistener *listeners[CONF_ADDRESSES_MAX];
    char *unix_paths[CONF_ADDRESSES_MAX];
    size_t listener_count;
    struct event rest; /* until it fires, nothing is accepted */
    struct session_entry *sessions;
    size_t session_count;
    int64_t started_us;
    struct mailbox mailbox; /* for what workers send back */
    bool ending;            /* the workers are gone: nothing more is taken */
};

/* One admin connection. */
struct session_entry {
    struct admin *admin;
    struct session_entry *next;
    struct bufferevent *stream;
    struct resp_command command;
    bool authenticated;
    bool gathering; /* an answer is being gathered, or a policy thinks: nothing else is taken meanwhile */
    bool closed;    /* the connection is gone, but who brings the answer still refers to this */
    bool last;      /* closed once the output is written */
};

static inline bool slice_is(struct slice slice, const char *word)
{
    return slice.length == strlen(word) && strncasecmp(slice.data, word, slice.length) == 0;
}

/* ---- admin.c ---- */

void admin_reply_text(struct session_entry *session, const char *text, size_t length);
void admin_reply_evbuffer(struct session_entry *session, struct evbuffer *text);
void admin_reply_status(struct session_entry *session, const char *text);
/* text: one line, with its first word in capitals. */
void admin_reply_error(struct session_entry *session, const char *text);
/* Nothing more is taken from the session until admin_session_resume(), which it outlives even if it is closed. */
void admin_session_pause(struct session_entry *session);
void admin_session_resume(struct session_entry *session);

/* ---- admin_verbs.c ---- */

/* Answers a request, now or when the workers have told what it takes. */
void admin_run(struct session_entry *session, size_t count, const struct slice *arguments);

/* ---- admin_policy.c ---- */

/* Puts a question to a policy, by its place in the list. The session is told the answer, and waits for it. */
void admin_ask_policy(struct session_entry *session, size_t policy, const struct policy_verb *verb, size_t count,
                      const struct slice *arguments);

#endif
