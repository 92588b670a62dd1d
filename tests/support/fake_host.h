/*
 * A fake host for a whole policy: its hooks are called as a worker calls them, and what it asks of its host ends up in
 * a queue that the test answers when and as it likes. Time stands still unless the test moves it. Requests are texts
 * with single blanks between their words.
 */
#ifndef HEADGATE_TESTS_FAKE_HOST_H
#define HEADGATE_TESTS_FAKE_HOST_H

#include "conf/conf.h"
#include "policy/policy.h"

#include <netinet/in.h>

#define FAKE_WORKERS_MAX 2
#define FAKE_ARGUMENTS_MAX POLICY_SCRIPT_ARGUMENTS_MAX
#define FAKE_TEXT_MAX 512
#define FAKE_TRANSLATION_MAX 16384
#define FAKE_FIRST_US INT64_C(1000000000)
#define MS INT64_C(1000)

/* A script that the policy wants to run. */
struct fake_call {
    struct fake_call *next;
    const char *script;
    size_t worker;
    int64_t database;
    size_t key_count;
    size_t argument_count;
    char *arguments[FAKE_ARGUMENTS_MAX]; /* the keys, then the rest; texts, with their ends */
    size_t lengths[FAKE_ARGUMENTS_MAX];
    int64_t sent_us;
    policy_script_done *done;
    void *context;
};

/* A request that was forwarded. */
struct fake_request {
    uint64_t ticket;
    bool passed; /* the policy waits for the reply */
    const struct command *command;
    int64_t received_us;
};

#define FAKE_REQUESTS_MAX 64

struct fake_host;

struct fake_client {
    struct fake_client *next;
    struct fake_host *host;
    size_t worker;
    struct sockaddr_storage address;
    char user[64];
    char name[64];
    struct policy_client view;
    void *attachment;
    bool in_transaction;
    /* Those that the policy waits for, the oldest first. */
    struct fake_request requests[FAKE_REQUESTS_MAX];
    size_t request_count;
    /* The request that is on hold: "" for none. */
    char held[FAKE_TEXT_MAX];
    uint32_t holds;
    uint64_t held_ticket;
    int64_t hold_until_us;
    bool resumed; /* it is to be asked about again */
};

struct fake_worker {
    struct fake_host *fake;
    struct policy_host host;
    void *instance;
    _Atomic uint64_t counters[64];
    int64_t looked_at; /* the process whose connections were looked at last */
};

struct fake_host {
    const struct policy *policy;
    int64_t now_us;
    int64_t wall_us;
    void *shared;
    size_t worker_count;
    struct fake_worker workers[FAKE_WORKERS_MAX];
    struct fake_client *clients;
    struct fake_call *calls; /* not answered yet, the oldest first */
    size_t call_count;
    size_t sent_count;           /* calls since the beginning */
    int64_t since_us;            /* when the connection was made over which calls are answered */
    const char *refusal;         /* with which calls fail at once; NULL for none */
    char warning[FAKE_TEXT_MAX]; /* the last one */
    size_t warning_count;
    char information[FAKE_TEXT_MAX]; /* the last one */
    size_t information_count;
    bool processes_live; /* even without connections */
    bool untold;         /* processes cannot be told */
    bool unfound;        /* processes are looked for still */
    size_t happened[POLICY_EVENTS];
    char event[FAKE_TEXT_MAX]; /* the last one: "source:rule what" */
    uint64_t last_id;
};

/* Starts the policy on as many workers. rules: the text of an ini file. */
struct fake_host *fake_host_new(const struct policy *policy, const char *rules, size_t workers);
/* Closes what is open; nothing may be left on file for requests or clients. */
void fake_host_free(struct fake_host *host);
void fake_reload(struct fake_host *host, const char *rules);
/* Time goes on, with a tick every 100 ms. */
void fake_pass(struct fake_host *host, int64_t ms);
/* Time goes on until a script is called, but not longer; how many ms it was. */
int64_t fake_pass_until_call(struct fake_host *host, int64_t most_ms);
/* One tick, now. */
void fake_tick(struct fake_host *host);

/* ---- clients ---- */

struct fake_client *fake_join(struct fake_host *host, size_t worker, const char *address, const char *name);
void fake_rename(struct fake_client *client, const char *name);
/* Its requests end without an owner, and it is gone. */
void fake_leave(struct fake_client *client);
/* Forwards a request. */
struct fake_request fake_forward(struct fake_client *client, const struct slice *words, size_t count);
/* The same for a text; if the policy waits for the reply, it is the last of the client's requests.
 */
void fake_send(struct fake_client *client, const char *text);
/* Ends the oldest of the requests for which the policy waits. */
void fake_hear(struct fake_client *client, const char *head);
void fake_lose(struct fake_client *client);
void fake_end(struct fake_client *client, const struct fake_request *request, enum policy_outcome outcome,
              const char *head);
/* A request and its reply. */
void fake_ask(struct fake_client *client, const char *text, const char *head);

/* ---- what is decided on requests ---- */

/* What the policy says of a request: "pass", "admit", "hold", "whole", "close: REASON", or the reply without its end.
 * Valid until the next call. bytes: only so many of them have come, the rest follows. */
const char *fake_verdict(struct fake_client *client, const char *text);
const char *fake_verdict_of_part(struct fake_client *client, const char *text, size_t bytes);
/* The same, asked again, of the client's request that is on hold. */
const char *fake_verdict_again(struct fake_client *client);
/* What is sent in place of a request: "as it is", its words with single blanks between them, or the reply that is given
 * at once, which begins with "answered: ". Valid until the next call. */
const char *fake_translation(struct fake_client *client, const char *text, enum policy_server_has server);

/* Who is to answer a request that only reads: "unsaid", or as the option reads says it. */
const char *fake_reads(struct fake_client *client, const char *text);

/* ---- scripts ---- */

/* Of a call that was taken off the queue. */
void fake_call_free(struct fake_call *call);
/* "script key key / argument argument" of the oldest call; "" if there is none. Valid until the next call of this. */
const char *fake_call_text(struct fake_host *host);
/* An argument of the oldest call behind its keys, from 0 on, as a number. */
double fake_call_number(struct fake_host *host, size_t place);
/* Answers the oldest call with integers that stand between blanks. */
void fake_answer(struct fake_host *host, const char *integers);
void fake_answer_with(struct fake_host *host, const int64_t *integers, size_t count);
void fake_fail(struct fake_host *host, const char *error);

/* ---- what it says ---- */

/* Over all workers. */
uint64_t fake_counter(struct fake_host *host, const char *name);
void fake_assert_counter(struct fake_host *host, const char *name, uint64_t expected);
/* Time goes on, and no script is called. */
void fake_assert_quiet(struct fake_host *host, int64_t ms);
/* What a verb answers, with "OK", "ERROR: " or nothing before the text. The caller frees it. */
char *fake_tell(struct fake_host *host, const char *text);

#endif
