/*
 * A client: one connection to a Headgate, over which several sections are under way at once. Replies come in the order
 * of the requests; each goes to the section that asked.
 */
#ifndef SAFETY_CLIENT_H
#define SAFETY_CLIENT_H

#include "rig_buffer.h"
#include "rig_reply.h"
#include "safety_shared.h"

#define CLIENT_SLOTS 4u
#define CLIENT_PENDING 256u /* a power of two */
#define REPLY_ITEMS 4

struct worker;
struct slot;

/* What a reply answers. */
enum question {
    QUESTION_ACQUIRE,
    QUESTION_EXPIRE,
    QUESTION_RELEASE,
    QUESTION_OWNER,        /* GET after WATCH */
    QUESTION_EXEC_RELEASE, /* EXEC of a DEL */
    QUESTION_EXEC_PERMIT,  /* EXEC of a permit's three commands */
    QUESTION_NOTHING
};

struct reply {
    struct token head;
    struct token items[REPLY_ITEMS]; /* of an array, if it has no more */
    int count;
};

struct pending {
    struct slot *slot;
    uint32_t serial;
    enum question question;
};

enum link { LINK_DOWN, LINK_CONNECTING, LINK_UP };

struct client {
    struct worker *worker;
    unsigned number;
    unsigned headgate;
    unsigned connections; /* so far: tokens that are used again are not used again over another connection */
    enum link link;
    int fd;
    bool writable_wanted;
    int64_t retry_us; /* when to connect again */
    struct buffer in;
    struct buffer out;
    struct pending pending[CLIENT_PENDING];
    unsigned pending_first;
    unsigned pending_count;
    struct slot *slots;
    unsigned slot_count;
};

void client_connect(struct client *client, int64_t now);
void client_event(struct client *client, unsigned events, int64_t now);
/* Sends what has been put out; may find that the connection is closed. */
void client_flush(struct client *client, int64_t now);
/* Closes the connection without a word; nothing is told to the sections. */
void client_close(struct client *client, int64_t now);
/* True if the peer has closed it, be that read already or not. */
bool client_is_cut(const struct client *client);
/* Room for a section's requests. */
bool client_has_room(const struct client *client);

/* Puts out a request of so many words, whose reply goes to the section. */
void client_ask(struct client *client, struct slot *slot, enum question question, unsigned count, ...);

#endif
