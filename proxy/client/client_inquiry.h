/* An inquiry: a request that asks for an id, or names a client by one, while Redis is asked about it. See client_ids.c.
 */
#ifndef HEADGATE_CLIENT_INQUIRY_H
#define HEADGATE_CLIENT_INQUIRY_H

#include "client/client_ids.h"

/* What is longer, or has more arguments, is not looked at. */
#define REQUEST_MOST 4096
#define ARGUMENTS_MOST 64

enum inquiry_kind {
    INQUIRY_ID,
    INQUIRY_INFO,
    INQUIRY_REDIRECTION, /* CLIENT GETREDIR and TRACKINGINFO */
    INQUIRY_UNBLOCK,
    INQUIRY_KILL,
    INQUIRY_TRACKING
};

enum inquiry_state {
    INQUIRY_SENT,     /* Redis is asked */
    INQUIRY_ANSWERED, /* its reply is there, or what is said in place of it */
    INQUIRY_KEEPS,    /* it is waited until the client that is named keeps a connection … */
    INQUIRY_ENDS      /* … or has ended */
};

struct client_inquiry {
    struct client *client;
    enum inquiry_kind kind;
    enum inquiry_state state;
    struct run *run; /* NULL: none is under way */
    int64_t since_us;
    int64_t named;      /* the id that is named; 0: none */
    size_t named_at;    /* where in the request its argument begins, with its length … */
    size_t named_end;   /* … and ends */
    bool names_only;    /* of CLIENT KILL: there is no filter but that id, and SKIPME */
    int64_t connection; /* what was put in its place last; 0: nothing */
    int attempts;
    bool is_done; /* the reply is the client's */
    struct buffer reply;
};

static inline struct directory *client_directory(const struct client *client)
{
    return client->service->directory;
}

static inline int64_t client_own_id(const struct client *client)
{
    return directory_id(client_directory(client), client->id);
}

static inline bool client_knows_lane(const struct client *client)
{
    return client->exclusive != NULL && client->exclusive->redis_id > 0;
}

/* Whether the request is one of these, and what it names. */
bool client_inquiry_read(const struct client *client, struct client_inquiry *inquiry, const struct resp_command *framed,
                         struct slice frame);
/* What the client is told in place of the reply; empty: the reply. False when memory is short. */
bool client_inquiry_rewrite(const struct client_inquiry *inquiry, struct slice reply, struct buffer *made);

#endif
