/*
 * Gathering: goes from worker to worker of the servers of a request and collects text. On a worker's thread it only
 * touches that worker; between two parts of one it lets the worker's clients have a turn. The session waits meanwhile,
 * and is told the answer by finish() on the main thread.
 */
#ifndef HEADGATE_ADMIN_GATHERING_H
#define HEADGATE_ADMIN_GATHERING_H

#include "admin/admin_private.h"

/* Of a section, with its end. A longer name is none that there is, and neither is what is left of it. */
#define ADMIN_SECTION_NAME_SIZE 32

struct admin_gathering {
    struct message message;
    struct session_entry *session;
    struct admin_text text;
    size_t server;
    size_t worker;
    uint64_t after; /* where to go on with this worker; 0: at its first */
    bool more;      /* to be set by collect(): it is to be called for this worker again */
    bool is_enough; /* … or: for none any more */
    void (*collect)(struct admin_gathering *gathering, struct worker *worker);
    void (*finish)(struct admin_gathering *gathering);
    void *context; /* the verb's own; freed by free() with the gathering */
    struct worker_facts facts;
    /* STATS: the sections wanted; none: all of them. */
    size_t section_count;
    char sections[ADMIN_ARGUMENTS_MAX][ADMIN_SECTION_NAME_SIZE];
    bool may_be_empty; /* as INFO answers, where none is known */
    bool is_json;      /* STATS: how it is to be told */
};

/* NULL when memory is short, which the session is told. */
struct admin_gathering *admin_gathering_new(struct session_entry *session,
                                            void (*collect)(struct admin_gathering *, struct worker *),
                                            void (*finish)(struct admin_gathering *));
/* It frees itself when it has come to its end. */
void admin_gathering_start(struct admin_gathering *gathering);

/* The server whose worker is collected from. */
const struct server *admin_gathering_server(const struct admin_gathering *gathering);

#endif
