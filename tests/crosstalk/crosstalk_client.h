/*
 * One client: a connection, what the server must think of it, and the replies that it waits for.
 *
 *   workload ── commands ──► out ──► socket ──► in ──► verify
 *       └────── expectations ──► expected ─────────────────┘
 *
 * The session is what the server will think once it has run all that was generated so far; expectations are made from
 * it, so that a reply is judged by what held when its command was sent. What only replies can tell (the connection's
 * id, the messages had so far) is kept beside it.
 */
#ifndef CROSSTALK_CLIENT_H
#define CROSSTALK_CLIENT_H

#include "crosstalk_expect.h"
#include "crosstalk_run.h"
#include "crosstalk_tls.h"
#include "rig_buffer.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The default user is 0. The last, whose password Headgate has, nobody says: who comes by TLS with a certificate is it.
 */
#define USERS 4
#define USERS_NAMED 3
#define DATABASES 3
#define SLOTS 4
#define NEIGHBOURS 4 /* a client sends messages to so many others, and gets them from as many */

/* As they stand in the configuration of Redis. The default user needs no password. */
extern const char *const user_names[USERS];
extern const char *const user_passwords[USERS_NAMED];

/* What the server thinks of a connection; and what is stored under the keys of this generation (0: unknown). */
struct session {
    unsigned resp;
    unsigned user;
    unsigned database;
    uint64_t name;   /* the sequence number of the name's identity; 0: none */
    bool said_reply; /* CLIENT REPLY OFF or SKIP */
    bool subscribed;
    uint32_t channel; /* the generation whose channel is subscribed to */
    uint64_t slots[USERS][DATABASES][SLOTS];
    int64_t counters[USERS][DATABASES];
    bool list_clean[USERS][DATABASES];
    bool marked[DATABASES]; /* the mark of the database is there */
};

/* The last message from one neighbour. */
struct tracker {
    uint32_t generation;
    uint64_t number; /* 0: none yet */
};

enum link_state { LINK_NONE, LINK_CONNECTING, LINK_OPEN };

/* How a connection is going to end. */
enum ending {
    ENDING_NONE,
    ENDING_DRAINED, /* when every reply was had */
    ENDING_AT_ONCE, /* with replies outstanding */
    ENDING_HALFWAY, /* in the middle of a command */
    ENDING_RESET,   /* in the middle of a command, by RST */
    ENDING_HALF,    /* our half is closed; the replies are still read */
    ENDING_QUIT     /* the server closes after its reply to QUIT */
};

struct figures {
    uint64_t requests;
    uint64_t verified; /* replies */
    uint64_t pushes;
    uint64_t connections;
    uint64_t closed_by_peer; /* excused, as are those that Redis did not take while it was away */
    uint64_t resynced; /* replies that only could be checked for belonging to somebody else, as Redis lost its data */
};

struct client {
    struct run *run;
    struct figures *figures; /* of the loop thread that owns this client */
    int epoll;
    uint32_t index;
    uint64_t random;
    uint64_t sequence;      /* of identities, never used twice */
    atomic_uint generation; /* read by those who send messages to this client */
    unsigned epoch;         /* of the run, when this generation started */

    int fd;
    SSL *tls;                    /* over it; NULL: plain */
    SSL_SESSION *session_before; /* of the last connection by TLS, to be resumed */
    enum link_state link;
    uint32_t armed; /* epoll events */
    struct buffer out;
    struct buffer in;
    struct expect_queue expected;
    struct session session;

    enum ending ending;
    size_t ending_left; /* bytes still to send before the end */
    size_t chunk;       /* bytes that the next write may take; 0: all */
    int64_t connect_us; /* when to connect again */
    int64_t send_us;    /* nothing is sent before */
    int64_t read_us;    /* nothing is read before */
    int64_t progress_us;
    bool degraded; /* an error was excused: what follows on this connection cannot be foretold */
    bool final_sent;
    bool finished;

    int64_t known_id;    /* CLIENT ID; 0: not asked */
    unsigned id_changes; /* after client_id_timeout it is another one, once */
    bool listening;      /* between the replies to SUBSCRIBE and UNSUBSCRIBE */
    uint32_t channel;    /* to that of this generation */
    struct tracker channel_trackers[NEIGHBOURS];
    uint64_t published[NEIGHBOURS];
};

void client_init(struct client *client, struct run *run, struct figures *figures, int epoll, uint32_t index);
void client_free(struct client *client);

/* What an epoll event is for. */
void client_event(struct client *client, uint32_t events);

/* What is due by time: connecting, generating, ends of pauses; and whether a reply is missing for too long. */
void client_tick(struct client *client, int64_t now);

/* Keys, counters and messages start afresh. */
void client_new_generation(struct client *client);

/* Whom Headgate takes a client for that has not said who it is. */
unsigned client_home_user(const struct client *client);

/* A number below bound. */
uint32_t client_random(struct client *client, uint32_t bound);

static inline uint32_t client_generation(const struct client *client)
{
    return atomic_load_explicit(&client->generation, memory_order_relaxed);
}

#endif
