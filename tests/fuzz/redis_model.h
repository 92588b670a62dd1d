/*
 * One connection of a very small Redis: it keeps the state that Headgate has to get right (transaction, database, user,
 * protocol, names, reply mode, subscriptions, tracking) and knows nothing of data. The fuzz target uses it twice: as
 * the Redis behind Headgate, and beside it as what a client would have got without Headgate.
 */
#ifndef HEADGATE_REDIS_MODEL_H
#define HEADGATE_REDIS_MODEL_H

#include "bytes.h"

#include "resp/resp.h"

/* Arguments of a command that are looked at; further ones are not. */
#define MODEL_ARGUMENTS 16
/* Commands that a transaction remembers. More make it fail. */
#define MODEL_QUEUED 16
/* The answer to DECR, which stands for what a policy refuses. */
#define MODEL_REFUSAL "-REFUSED by a policy\r\n"

struct model {
    bool is_reference;   /* what Redis would say to the client, but for what Headgate promises to refuse */
    struct bytes input;  /* what was not taken yet */
    struct bytes output; /* replies */
    struct resp_command framed;
    int resp;
    int database;
    char user[16];
    char name[16];
    bool transaction;
    bool spoiled;      /* the transaction will fail */
    bool in_exec;      /* what is queued runs now */
    bool silent;       /* CLIENT REPLY OFF */
    bool skip_next;    /* CLIENT REPLY SKIP came with the last command */
    bool skipping;     /* … and this one is skipped */
    bool tracking;     /* it is told of what is touched */
    bool blocked;      /* takes nothing until model_unblock() */
    bool blocks;       /* whether blocking commands wait for that */
    bool closing;      /* takes nothing any more; to be closed when the output is written */
    unsigned channels; /* bits */
    struct bytes queued[MODEL_QUEUED];
    size_t queued_count;
};

/* The Redis behind Headgate finds every name with a NUL in it, as a real one finds some of them. */
void model_init(struct model *model, bool is_reference);
void model_free(struct model *model);
/* Takes bytes of commands and answers those that are whole. */
void model_feed(struct model *model, const char *data, size_t length);
void model_unblock(struct model *model);
/* A message for those who are subscribed to channel "a". */
void model_publish(struct model *model);
/* The name that Headgate's table has for a command that goes by this one, as far as COMMAND tells. */
struct slice model_own_name(struct slice name);
extern const char model_message[];
extern const char model_push[];

#endif
