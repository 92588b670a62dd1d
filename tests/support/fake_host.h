/*
 * The whole lease policy on a stage: its hooks are called as a worker calls them, and what it asks of its host ends up
 * in a queue that the test answers when and as it likes. Time stands still unless the test moves it.
 */
#ifndef HEADGATE_TESTS_LEASE_STAGE_H
#define HEADGATE_TESTS_LEASE_STAGE_H

#include "conf/conf.h"
#include "lease_request.h"

#include <netinet/in.h>

#define STAGE_WORKERS_MAX 2
#define STAGE_ARGUMENTS_MAX POLICY_SCRIPT_ARGUMENTS_MAX
#define STAGE_TEXT_MAX 512
#define STAGE_FIRST_US INT64_C(1000000000)
#define MS INT64_C(1000)

/* A script that the policy wants to run. */
struct stage_call {
    struct stage_call *next;
    const char *script;
    size_t worker;
    int64_t database;
    size_t key_count;
    size_t argument_count;
    char *arguments[STAGE_ARGUMENTS_MAX]; /* the keys, then the rest; texts, with their ends */
    size_t lengths[STAGE_ARGUMENTS_MAX];
    int64_t sent_us;
    policy_script_done *done;
    void *context;
};

/* A request that was forwarded. */
struct stage_request {
    uint64_t ticket;
    bool passed; /* the policy waits for the reply */
    const struct command *command;
    int64_t received_us;
};

#define STAGE_REQUESTS_MAX 64

struct stage;

struct stage_client {
    struct stage_client *next;
    struct stage *stage;
    size_t worker;
    struct sockaddr_storage address;
    char user[64];
    char name[64];
    struct policy_client view;
    void *attachment;
    bool in_transaction;
    /* Those that the policy waits for, the oldest first. */
    struct stage_request requests[STAGE_REQUESTS_MAX];
    size_t request_count;
};

struct stage_worker {
    struct stage *stage;
    struct policy_host host;
    void *instance;
    _Atomic uint64_t counters[64];
    int64_t looked_at; /* the process whose connections were looked at last */
};

struct stage {
    int64_t now_us;
    int64_t wall_us;
    void *shared;
    size_t worker_count;
    struct stage_worker workers[STAGE_WORKERS_MAX];
    struct stage_client *clients;
    struct stage_call *calls; /* not answered yet, the oldest first */
    size_t call_count;
    size_t sent_count;   /* calls since the beginning */
    const char *refusal; /* with which calls fail at once; NULL for none */
    void (*on_call)(void *context, const struct stage_call *call);
    void *on_call_context;
    char warning[STAGE_TEXT_MAX]; /* the last one */
    size_t warning_count;
    char information[STAGE_TEXT_MAX]; /* the last one */
    size_t information_count;
    bool processes_live; /* even without connections */
    bool untold;         /* processes cannot be told */
    size_t happened[POLICY_HAPPENINGS];
    char happening[STAGE_TEXT_MAX]; /* the last one: "source:rule what" */
    uint64_t last_id;
};

/* rules: the text of an ini file. */
struct stage *stage_new(const char *rules, size_t workers);
/* Closes what is open; nothing may be left on file for requests or clients. */
void stage_free(struct stage *stage);
void stage_reload(struct stage *stage, const char *rules);
/* Time goes on, with a tick every 100 ms. */
void stage_pass(struct stage *stage, int64_t ms);
/* Time goes on until a script is called, but not longer; how many ms it was. */
int64_t stage_pass_until_call(struct stage *stage, int64_t most_ms);
/* One tick, now. */
void stage_tick(struct stage *stage);

/* ---- clients ---- */

struct stage_client *stage_join(struct stage *stage, size_t worker, const char *address, const char *name);
void stage_rename(struct stage_client *client, const char *name);
/* Its requests end without an owner, and it is gone. */
void stage_leave(struct stage_client *client);
/* Forwards a request. */
struct stage_request stage_forward(struct stage_client *client, const struct slice *words, size_t count);
/* The same for words between single blanks; if the policy waits for the reply, it is the last of the client's requests.
 */
void stage_send(struct stage_client *client, const char *text);
/* Ends the oldest of the requests for which the policy waits. */
void stage_hear(struct stage_client *client, const char *head);
void stage_lose(struct stage_client *client);
void stage_end(struct stage_client *client, const struct stage_request *request, enum policy_outcome outcome,
               const char *head);
/* A request and its reply. */
void stage_ask(struct stage_client *client, const char *text, const char *head);

/* ---- scripts ---- */

/* "script key key / argument argument" of the oldest call; "" if there is none. Valid until the next call of this. */
const char *stage_call_text(struct stage *stage);
/* An argument of the oldest call behind its keys, from 0 on, as a number. */
double stage_call_number(struct stage *stage, size_t place);
/* Answers the oldest call with integers that stand between blanks. */
void stage_answer(struct stage *stage, const char *integers);
void stage_answer_with(struct stage *stage, const int64_t *integers, size_t count);
void stage_fail(struct stage *stage, const char *error);

/* ---- what it says ---- */

/* Over all workers. */
uint64_t stage_counter(struct stage *stage, const char *name);
void stage_assert_counter(struct stage *stage, const char *name, uint64_t expected);
/* Time goes on, and no script is called. */
void stage_assert_quiet(struct stage *stage, int64_t ms);
/* What a verb answers, with "OK", "ERROR: " or nothing before the text. The caller frees it. */
char *stage_tell(struct stage *stage, const char *text);
/* Whether LEASES has exactly one line, which has this in it; or, if it is NULL, none. */
bool stage_lists(struct stage *stage, const char *part);

#endif
