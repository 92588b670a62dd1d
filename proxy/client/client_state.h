/* What is known of a client's connection to Redis, and what the replies to requests under way will mean for it. */
#ifndef HEADGATE_CLIENT_STATE_H
#define HEADGATE_CLIENT_STATE_H

#include "upstream/upstream.h"

/*
 * The state of a client's connection to Redis beyond its profile. As what Redis makes of a command is known only from
 * its reply, there are two views: `sent` runs ahead with the requests and says what the next one meets, `known` follows
 * the replies. When nothing is under way they are made equal, and an exclusive lane may be given back if nothing is on.
 */
struct session {
    bool sent_transaction;
    bool known_transaction;
    bool access_queued; /* in it is a command that changes who needs a password */
    bool watching;
    bool database_unseen; /* nobody has seen what became of a SELECT, so which one the client has now */
    bool pinned;          /* state that nothing clears: exclusive for life */
    int64_t told_id_us;   /* when the client was told the lane's id, which it may use for a while; 0: it was not */
    bool keeps_id;        /* … or for life: somebody may count on the id */
    bool waited;    /* WAIT has spoken of this connection, which is kept, in a cluster until another node is wanted */
    bool was_reset; /* RESET has taken Headgate's credentials off this connection: it is left, whatever else holds */
    bool deferred;  /* in a cluster: MULTI was answered here, and is to be said ahead of the first request in it … */
    bool spoiled;   /* … of which one was refused since, so that EXEC is to fail */
    bool passthrough; /* which reply answers what cannot be told: bytes only, exclusive for life … */
    bool resets;   /* … until RESET is done: it closes the client, as it takes Headgate's credentials off the lane */
    bool silenced; /* … as CLIENT REPLY was said, so that a request may have none */
    bool split;    /* an error of a script has come, and Redis may have said it in several lines */
    bool unproven; /* a request is under way that may be anything: nothing may follow before its answer */
    bool unsure;   /* replies may be those of other requests, or the client somebody else: see session_is_doubtful() */
    uint32_t blocking;    /* requests under way that may wait in Redis for ever */
    bool blocking_unseen; /* … or were sent in a passthrough, where nothing tells when they are answered */
    uint32_t scripts;     /* scripts under way */
    bool queued_script;   /* one of those that MULTI has queued */
    int64_t login_us;     /* since when an answer to AUTH is due; 0: none is */
    int64_t channels;
    int64_t patterns;
    int64_t shard_channels;
};

/* What the reply to a request will mean; on runs of one request only. */
enum expected_reply_kind {
    EXPECT_NOTHING, /* for policies, which want to see the reply */
    EXPECT_MULTI,
    EXPECT_EXEC, /* and DISCARD */
    EXPECT_WATCH,
    EXPECT_UNWATCH,
    EXPECT_BLOCKING,
    EXPECT_SUBSCRIBE,
    EXPECT_UNSUBSCRIBE,
    EXPECT_PROFILE, /* AUTH, HELLO, SELECT */
    EXPECT_NAME,    /* CLIENT SETNAME */
    EXPECT_LIBRARY, /* CLIENT SETINFO */
    EXPECT_RIGHT,   /* whether the user may, and nothing else */
    EXPECT_STATE,   /* something may be left on the connection */
    EXPECT_ID,      /* the reply tells the id of the connection */
    EXPECT_RESET,
    EXPECT_PAUSE,  /* CLIENT PAUSE and UNPAUSE */
    EXPECT_ACCESS, /* commands that change who needs a password */
    EXPECT_SCRIPT, /* scripts, and what loads them */
    EXPECT_UNKNOWN
};

struct expected_reply {
    struct expected_reply *next_free;
    enum expected_reply_kind kind;
    bool in_transaction;      /* the request was queued by MULTI, if it was accepted */
    char channel_kind;        /* 's', 'p' or 'c' for [P|S]SUBSCRIBE and their opposites */
    uint32_t confirmations;   /* of (un)subscribing: how many are to come; 0: one for each subscription there is */
    bool started;             /* of (un)subscribing without arguments: the number is known now */
    bool has_others;          /* of the same: … and that of others, which is added to their counts, … */
    bool is_of_all;           /* … without arguments */
    int64_t others;           /* … */
    int64_t database;         /* -1: unchanged */
    int64_t pause_ms;         /* of CLIENT PAUSE; 0: UNPAUSE */
    int resp;                 /* 0: unchanged */
    char *user;               /* with password */
    char *password;           /* NULL: unchanged */
    char *name;               /* NULL: unchanged; of CLIENT SETINFO, what is set */
    bool is_library_name;     /* … and whether that is the name, or the version */
    enum profile_right right; /* shown by the reply */
    bool is_hello;            /* its success is a map */
    bool is_absent;           /* unknown: Redis has told that it has no such command */
    bool has_unclear_errors;  /* after an error something may have been done all the same, as HELLO with several options
                               */
    bool keeps_lane;          /* of WAIT: if it is accepted */
    bool has_hidden_text;     /* credentials that cannot be kept */
    uint32_t credentials;     /* so many were given */
};

#endif
