/*
 * What the files of the policy trace share:
 *
 *   trace.c         its gate, its verbs, its life
 *   trace_stream.c  TRACE and MONITOR: who asks for which requests, and the lines that wait to be fetched
 *   trace_line.c    a request as a line
 *   trace_budget.c  what all of this may cost clients
 *   trace_top.c     TOP: gathering on each worker, and the answer
 *   trace_table.c   … the busiest, in bounded memory
 *
 * While nobody asks, no command is wanted, so that nobody pays for it. A request that somebody asks for is passed with
 * a ticket: what is known of it until its reply.
 */
#ifndef HEADGATE_TRACE_PRIVATE_H
#define HEADGATE_TRACE_PRIVATE_H

#include "conf/filter.h"
#include "match/match.h"
#include "policy/policy.h"

#include <sys/queue.h>

/* Streams of one worker: bits of a word. */
#define TRACE_STREAMS_MAX 8
/* Requests under way that are known at once on one worker; of others it is not told. */
#define TRACE_PENDING_MAX 16384
/* The longest line, with its end. Bytes. */
#define TRACE_LINE_MAX 4096
#define TRACE_OPERATION_MAX 80
#define TRACE_RULE_MAX 96

struct trace_stream;
struct trace_top;
struct trace_shared;

/* What became of a request. */
enum trace_verdict {
    TRACE_PASSED,
    TRACE_HELD,     /* … and passed later */
    TRACE_REFUSED,  /* by a rule */
    TRACE_ANSWERED, /* by a policy, or Headgate itself */
    TRACE_CLOSED,   /* with its client, by a policy */
    TRACE_LOST,     /* with the connection to Redis */
    TRACE_LEFT      /* nobody waited for its reply, or asked for one */
};

/* A request under way. */
struct traced {
    LIST_ENTRY(traced) of_trace;
    uint32_t streams; /* bit n: the stream of that number wants it */
    bool is_counted;  /* for TOP, by these: */
    uint64_t client_hash;
    uint64_t operation_hash;
    int64_t received_us;
    int64_t sent_us; /* 0: it was not, or that is not known */
    uint64_t lane;
    enum trace_verdict verdict;
    char rule[TRACE_RULE_MAX]; /* that holds or refuses it; "" for none */
    char *head;                /* the first part of its line */
    char *keys;                /* … and its keys, if they are asked for */
};

/* The instance of a worker. */
struct trace {
    const struct policy_host *host;
    struct trace_shared *shared;
    _Atomic uint64_t *counters;
    uint64_t chance;
    struct trace_stream *streams[TRACE_STREAMS_MAX];
    size_t stream_count;
    struct trace_top *top; /* NULL: TOP is not asked for */
    uint32_t followed;     /* the last TOP that this worker knows of */
    LIST_HEAD(, traced) pending;
    size_t pending_count;
    int64_t credit_us; /* of the worker's time that may yet be taken */
    int64_t filled_us; /* when it was filled last; 0: never */
    bool is_spent;     /* nothing is looked at until there is enough again */
    bool was_spent;    /* … when it was said last which commands are wanted */
    int64_t spent_us;  /* since when */
    int64_t unseen_us; /* for how long it was so before */
};

enum trace_counter { TRACE_COUNTER_STREAMS, TRACE_COUNTER_LINES, TRACE_COUNTER_LOST, TRACE_COUNTER_PAUSES };

/* A request as it is looked at: when it has come, and when it has ended. */
struct trace_subject {
    const struct policy_host *host;
    const struct policy_request *request;
    const char *operation;
    uint64_t bytes;
    const struct traced *traced; /* from here on only at its end */
    const struct policy_reply *reply;
};

/* ---- trace_line.c ---- */

/* What filters may name: those up to TRACE_FIELDS_EARLY are known when the request has come. */
#define TRACE_FIELDS_EARLY 9
extern const struct filter_field trace_fields[];
extern const size_t trace_field_count;
struct filter_value trace_value(const void *subject, size_t field);

/* The name of what is done: the command, with its subcommand if the table knows it. */
void trace_name_operation(const struct policy_request *request, char name[TRACE_OPERATION_MAX]);
/* Text of its own, to be freed; NULL when memory is short. */
char *trace_head(const struct trace_subject *subject);
char *trace_keys(const struct policy_request *request);
/* Who a client is, as a line has it. Returns the length. */
size_t trace_client(const struct policy_client *client, char *text, size_t size);
/* What may be anything, made fit for a line: without blanks, quotes and what cannot be printed. Returns the length. */
size_t trace_word(struct slice word, char *text, size_t size);
/* The whole line, with its end. Returns its length. */
size_t trace_line(const struct trace_subject *subject, bool with_keys, char line[TRACE_LINE_MAX]);

/* ---- trace_stream.c ---- */

extern const struct policy_stream trace_stream_gathered, trace_stream_told;

/* The streams that want the request, as bits. */
uint32_t trace_streams_want(struct trace *trace, const struct trace_subject *subject);
bool trace_streams_want_keys(const struct trace *trace, uint32_t streams);
/* It has ended: a line for each of those that want it. */
void trace_streams_tell(struct trace *trace, uint32_t streams, const struct trace_subject *subject);
/* A request that they want is not known any more: it counts as lost. */
void trace_streams_lose(struct trace *trace, uint32_t streams);
void trace_streams_free(struct trace *trace);

/* ---- trace_top.c ---- */

void *trace_top_share(size_t threads);
void trace_top_unshare(void *shared);
void trace_top_ask(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments);
/* Ten times a second: begins what was asked for, and ends it. */
void trace_top_tick(struct trace *trace, int64_t now_us);
/* A request has come, and has ended: of those that traced says are counted. */
void trace_top_count(struct trace *trace, struct traced *traced, const struct trace_subject *subject);
void trace_top_end(struct trace *trace, const struct traced *traced, const struct policy_reply *reply);
void trace_top_free(struct trace *trace);

/* ---- trace_budget.c ---- */

void trace_budget_start(struct trace *trace);
/* Ten times a second: fills the credit, and has requests looked at again. */
void trace_budget_tick(struct trace *trace, int64_t now_us);
/* µs, for trace_budget_looked(): this moment, unlike the host's, which is that of the loop iteration. */
int64_t trace_budget_clock(void);
/* A request, or its reply, was looked at since that moment. */
void trace_budget_looked(struct trace *trace, int64_t since_us, bool is_request);
/* The same of what is known without a clock. µs. */
void trace_budget_spend(struct trace *trace, int64_t us);
/* For how long requests passed unseen, since the start of the process. µs. */
int64_t trace_budget_unseen(const struct trace *trace, int64_t now_us);

/* ---- all of these ---- */

/* What is wanted may be another now. */
static inline void trace_changed(struct trace *trace)
{
    trace->host->reconsider(trace->host->context);
}

#endif
