/*
 * What the files of the latency policy share:
 *
 *   latency.c          the hooks, the counters, and what a configuration makes of a worker
 *   latency_share.c    what all workers have in common: operations, what waits for Redis, logs, hot keys
 *   latency_name.c     which operation a request is measured under
 *   latency_record.c   samples: figures, SLOWLOG and BIGLOG, hot keys
 *   latency_script.c   how scripts are run, for all that follow
 *   latency_outbox.c   what waits for Redis, until Redis has it: under numbers, and again
 *   latency_flush.c    minutes on their way to Redis, and the list of operations
 *   latency_counter.c  [counters] on their way to Redis, and COUNTER
 *   latency_event.c    what happened: to [counters], and to [events], which it takes to Redis; RECENT and COMMON
 *   latency_report.c   REPORT, which asks Redis
 *   latency_tell.c     what this process tells at once: durations for metrics, EVENTS
 *   latency_verbs.c    LATENCY, SLOWLOG, BIGLOG, HOTKEYS, which ask this process
 *
 *   on_sample ─► the worker's open minutes ─► what is shared, under the lock ─► (worker 0) the outbox ─► Redis
 */
#ifndef HEADGATE_LATENCY_PRIVATE_H
#define HEADGATE_LATENCY_PRIVATE_H

#include "base/table.h"
#include "latency/latency_message.h"
#include "latency/latency_operation.h"
#include "latency/latency_rule.h"
#include "latency/latency_sketch.h"
#include "latency/latency_slow.h"
#include "latency/latency_tally.h"

#include <pthread.h>
#include <string.h>

enum latency_counter {
    LATENCY_COUNTER_SAMPLES,
    LATENCY_COUNTER_FLUSHES,
    LATENCY_COUNTER_FLUSH_FAILURES,
    LATENCY_COUNTER_LOST_REQUESTS,
    LATENCY_COUNTER_LOST_MINUTES,
    LATENCY_COUNTER_NO_ROOM,
    LATENCY_COUNTER_WAITING,
    LATENCY_COUNTER_OPERATIONS,
    LATENCY_COUNTERS
};

#define LATENCY_US_PER_S INT64_C(1000000)
/* The worker that sends what all have measured. */
#define LATENCY_FLUSHER 0
/* In place of an operation that was not asked for yet. */
#define LATENCY_UNRESOLVED UINT32_MAX
/* Keys that are counted on each worker, so that the top ones are seen well. */
#define LATENCY_HOT_KEYS 1024

/* What a tag consists of; never 0 nor POLICY_TAG_ASK. */
#define LATENCY_TAG_NUMBER ((UINT32_C(1) << 24) - 1) /* of an operation, or of a slot */
#define LATENCY_TAG_OPERATION (UINT32_C(1) << 24)
#define LATENCY_TAG_SLOT (UINT32_C(1) << 25)
#define LATENCY_TAG_LEARNED (UINT32_C(1) << 26)  /* only as what a pair is made of */
#define LATENCY_TAG_BLOCKING (UINT32_C(1) << 27) /* it may wait for other clients */

/* What [counters] counts. */
enum latency_tallied {
    LATENCY_TALLY_REQUESTS,
    LATENCY_TALLY_ERRORS,
    LATENCY_TALLY_SLOW,
    LATENCY_TALLY_REFUSALS,
    LATENCY_TALLY_LEASES,
    LATENCY_TALLY_LOST_LEASES,
    LATENCY_TALLY_UPSTREAM_LOSSES,
    LATENCY_TALLY_LOST_REQUESTS,
    LATENCY_TALLIES
};

/* What [events] logs. */
enum latency_logged {
    LATENCY_LOG_SLOW,
    LATENCY_LOG_REFUSALS,
    LATENCY_LOG_LOST_LEASES,
    LATENCY_LOG_UPSTREAM_LOSSES,
    LATENCY_LOG_LOST_REQUESTS,
    LATENCY_LOGS
};

/* A counter of [counters] on its way to Redis. */
struct latency_tally {
    struct latency_entry entry;
    struct latency_tally_list waiting;
    struct latency_tally_list frozen;
};

/* A log of [events] on its way to Redis. */
struct latency_log {
    struct latency_entry entry;
    struct latency_message_list waiting;
    struct latency_message_list frozen;
};

/* Different events that EVENTS knows: the last ones. */
#define LATENCY_RECENT_MAX 64

struct latency_recent_event {
    enum latency_logged log;
    int64_t unix_s; /* the last time */
    uint64_t times; /* since it is there */
    char text[LATENCY_MESSAGE_MAX + 1];
};

/* The newest first. */
struct latency_recent {
    size_t count;
    struct latency_recent_event events[LATENCY_RECENT_MAX];
};

/* What each worker has in the shared object. */
struct latency_seat {
    uint64_t moved; /* the last call to move what it has that it has followed to the end */
    bool drained;   /* it has no clients any more, and moved what it had */
    struct latency_sketch *sketch;
};

/*
 * Made once for all workers. What it points to is made when measuring is switched on first, and stays. `lock` is held
 * for operations, seats and all that waits for Redis; `log_lock` for SLOWLOG, BIGLOG and sketches. Neither within the
 * other.
 */
struct latency_share {
    pthread_mutex_t lock;
    pthread_mutex_t log_lock;
    struct latency_operation_names *operations; /* NULL: nothing was made yet */
    uint32_t keep;                              /* minutes of each that wait, at most */
    struct latency_lost lost;
    uint32_t free_texts;      /* names that clients choose: how many there are, … */
    uint32_t most_free_texts; /* … and how many there may be */
    uint64_t free_texts_refused;
    char process[LATENCY_PROCESS_MAX]; /* a name that no other process has */
    struct latency_slow_log *slow, *big;
    uint32_t slow_length, big_length;
    struct latency_tally tallies[LATENCY_TALLIES];
    struct latency_log logs[LATENCY_LOGS];
    struct latency_recent recent;
    uint64_t wanted; /* calls to move what workers have */
    size_t threads;
    struct latency_seat seats[];
};

/* A name that is fixed: a command, with a subcommand, or waiting. */
struct latency_slot {
    const struct command *command;
    const char *subcommand; /* NULL: none */
    bool is_blocking;
    uint32_t operation;
};

/* A command that only the server knows, and its operation. */
struct latency_learned {
    struct latency_operation_name name;
    bool is_resolved;
    uint32_t operation;
};

/* An operation of a client: of all names, those of one identity. */
struct latency_pair {
    struct table_node node; /* its hash is of one pair only: see hash_pair() */
    uint32_t operation;
};

/* Which names have which operations, as far as this worker has asked. */
struct latency_names {
    struct latency_slot *slots;
    size_t slot_count;
    uint32_t *first_subcommands;             /* slots of each command's subcommands, up to those of the next */
    uint32_t (*rules)[2];                    /* operations of each rule: plain, blocking */
    struct latency_operation_names *learned; /* commands that only the server knows: struct latency_learned */
    uint32_t unknown;                        /* the operation of all that nobody knows */
    struct latency_operation_names *identities;
    struct latency_pair *pairs; /* with room for max_interfaces; count: those in the table */
    struct table pair_table;
};

/* A minute of an operation on one worker. */
struct latency_open {
    int64_t minute;
    struct latency_figures figures; /* empty: nothing was recorded since it was moved */
};

/* An admin query that one call answers, by what a key holds. */
struct latency_query {
    const char *script;
    const char *trouble;                                               /* the answer if Redis did not say it */
    bool (*print)(const struct policy_script_reply *reply, FILE *out); /* false: Redis did not say it */
};

/* LATENCY: first all workers move what they have, then the answer is written. */
struct latency_wait {
    struct latency_wait *next;
    struct admin_query *admin_query;
    uint64_t wanted;
    int64_t deadline_us;
    char operation[LATENCY_NAME_MAX + 1]; /* "": all */
    uint32_t at;                          /* the next one to write */
    struct text_stream text;              /* not open: nothing is written yet */
};

/* The policy on one worker. */
struct latency {
    struct latency_share *share;
    const struct policy_host *host;
    _Atomic uint64_t *counters;
    struct latency_settings settings;
    struct policy_server *server; /* where all scripts run; NULL: the Redis of the clients */
    struct latency_names names;
    struct latency_sketch *sketch; /* this worker's own, under log_lock; NULL: nothing was ever measured */
    struct latency_open **open;    /* by operation; each is made when something is recorded */
    uint32_t open_room;            /* for so many */
    int64_t wall_offset_us;        /* the calendar's clock minus the monotonic one */
    int64_t minute;
    int64_t minute_begins_us, minute_ends_us;         /* monotonic */
    int64_t round_begun_us;                           /* all operations are moved, and flushed, in a round */
    uint32_t round_at;                                /* the next of them */
    TAILQ_HEAD(, latency_operation) behind;           /* of which a call did not take all … */
    STAILQ_HEAD(, latency_operation) to_list;         /* … and whose names Redis is to be told, on worker 0 */
    bool listing;                                     /* it is being told some */
    uint64_t moving;                                  /* the call to move that is being followed; 0: none … */
    uint32_t move_at;                                 /* … and the next operation to move for it */
    uint64_t tallied[LATENCY_TALLIES];                /* since the last tick … */
    struct latency_message_list logged[LATENCY_LOGS]; /* … as these are, without their times … */
    bool has_logged;                                  /* … if there are any */
    int64_t logged_us;                                /* when counters and events went last */
    size_t calls;                                     /* scripts under way */
    int64_t warned_us;                                /* 0: never */
    struct latency_call call;
    struct latency_wait *waits;
};

static inline void latency_count(struct latency *latency, enum latency_counter counter)
{
    policy_count(&latency->counters[counter], 1);
}

static inline int64_t latency_now(const struct latency *latency)
{
    return latency->host->now_us(latency->host->context);
}

/* ---- latency_share.c ---- */

/* As the hooks share() and unshare(). */
void *latency_share_new(size_t threads);
void latency_share_free(void *shared);
/* Makes what measuring needs, unless it is there, and sets its bounds. False when memory is short. */
bool latency_share_enable(struct latency_share *share, const struct latency_settings *settings);
/* Makes logs of other lengths; what was logged is forgotten. False when memory is short. */
bool latency_share_resize_logs(struct latency_share *share, const struct latency_settings *settings);
/* The operation of that name, which is added if there is room. free_text: clients choose it. */
uint32_t latency_share_operation_number(struct latency_share *share, struct slice name, bool free_text);
/* How many of so many operations are looked at in one go, so that clients do not wait for whoever asks: all have had
 * their turn after 32 ticks at most. */
static inline uint32_t latency_share_slice(uint32_t operations)
{
    return 256 + operations / 32;
}

/* How many operations there are. Nothing is locked. */
uint32_t latency_share_count(struct latency_share *share);
/* The one of that number, which stays where it is. The lock is held. */
static inline struct latency_operation *latency_share_at(const struct latency_share *share, uint32_t number)
{
    return (struct latency_operation *)(void *)share->operations->list[number];
}

/* The same; nothing is locked. */
struct latency_operation *latency_share_operation(struct latency_share *share, uint32_t number);
/* Copies all that was moved of one. False: that is nothing. Nothing is locked. */
bool latency_share_total(struct latency_share *share, uint32_t number, struct latency_figures *figures);
/* Moves what the worker has of one: its open minute has it wait, and is empty. Nothing is locked. */
void latency_share_move(struct latency *latency, uint32_t number);
/* Moves what the worker has of all operations. Nothing is locked. */
void latency_share_move_all(struct latency *latency);
/* Follows a call to move what the worker has, if there is one, for a slice of the operations. Nothing is locked. */
void latency_share_move_some(struct latency *latency);

/* ---- latency_name.c ---- */

/* For a worker and its settings: other rules, or told apart by others. False when memory is short. */
bool latency_names_make(struct latency *latency);
void latency_names_clear(struct latency_names *names);
uint32_t latency_tag(void *instance, const struct command *command);
uint32_t latency_measure(void *instance, const struct policy_request *request);
/* Whether a request with that name was measured as one of a command that only the server knows. */
bool latency_names_have_learned(const struct latency_names *names, struct slice name);
/* The operation that a tag stands for. */
uint32_t latency_tag_operation(struct latency *latency, uint32_t tag);
void latency_client(void *instance, const struct policy_client *client, void **attachment);

/* ---- latency_record.c ---- */

/* Reads the calendar's clock, which may have jumped. */
void latency_read_clock(struct latency *latency, int64_t now_us);
struct policy_attention latency_attends(void *instance);
bool latency_sample(void *instance, const struct policy_sample *sample);
void latency_written(void *instance, const struct policy_sample *sample);
void latency_spot(void *instance, const struct policy_request *request);

/* ---- latency_script.c ---- */

/* Logs a trouble, once a minute. */
void latency_warn(struct latency *latency, const char *what, const char *error);
/* Runs a script in the database of the settings, on the server of its own if there is one. done() takes the call off
 * latency->calls. */
void latency_run(struct latency *latency, const char *script, const struct slice *arguments, size_t argument_count,
                 size_t key_count, policy_script_done *done, void *context);
/* Answers the admin query by what that key holds: the newest so many. The query stays. */
void latency_ask(struct latency *latency, struct admin_query *admin_query, const struct latency_query *query,
                 struct slice key, const char *most);

/* ---- latency_flush.c ---- */

/* How the keys of the settings are named. */
struct latency_layout latency_layout_of(const struct latency *latency);
/* The key that lists the operations, behind the prefix. */
#define LATENCY_LIST_KEY "%s_interfaces"
/* For how long Redis knows the number of a call, so that one that is repeated counts once. Seconds. */
#define LATENCY_REMEMBER_S (INT64_C(48) * 3600)
/* Moves and flushes some of the operations, so that each has its turn once in a round. */
void latency_flush_some(struct latency *latency, int64_t now_us);
/* What is written goes elsewhere from now on, where no operation is listed yet. */
void latency_list_anew(struct latency *latency);
/* The process ends: true when nothing waits any more. */
bool latency_flush_rest(struct latency *latency, size_t clients);

/* ---- latency_counter.c ---- */

/* Hands what this worker has counted to the tallies. */
void latency_counters_collect(struct latency *latency);
/* Sends the tallies, on worker 0. True if nothing waits. */
bool latency_counters_send(struct latency *latency);
void latency_verb_counter(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments);

/* ---- latency_event.c ---- */

/* A slow request. */
void latency_event(struct latency *latency, uint32_t operation);
bool latency_listens(void *instance);
void latency_policy_event(void *instance, const struct policy_event *event);
/* Hands what happened on this worker to the shared logs. */
void latency_events_collect(struct latency *latency);
/* Sends the logs, on worker 0. True if nothing waits. */
bool latency_events_send(struct latency *latency);
void latency_verb_recent(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments);
void latency_verb_common(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments);

/* ---- latency_report.c ---- */

void latency_verb_report(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments);

/* ---- latency_tell.c ---- */

/* As the hook of struct policy_observer. */
bool latency_tell_durations(void *instance, uint32_t *at, policy_durations_told *told, void *context);
/* Notes for EVENTS what is about to be handed to a log. The lock is held. */
void latency_recent_note(struct latency_recent *recent, enum latency_logged log,
                         const struct latency_message_list *messages, int64_t unix_s);
enum policy_answer latency_verb_events(void *instance, size_t count, const struct slice *arguments, FILE *answer);

/* ---- latency_verbs.c ---- */

/* " name=…", a number or "unknown". */
void latency_print_figure(FILE *out, const char *name, bool is_known, int decimals, double figure);
/* " count=…" and all that follows, a line. seconds: over how many; 0: no rate is told; -1: it is not known. */
void latency_print_figures(const struct latency_figures *figures, double seconds, FILE *out);
void latency_answer_error(struct latency *latency, struct admin_query *admin_query, const char *text);
void latency_verb_latency(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments);
/* Answers who waits and need not any more; all of them if the process ends. */
void latency_answer_waits(struct latency *latency, bool all);
enum policy_answer latency_verb_slowlog(void *instance, size_t count, const struct slice *arguments, FILE *answer);
enum policy_answer latency_verb_biglog(void *instance, size_t count, const struct slice *arguments, FILE *answer);
enum policy_answer latency_verb_hotkeys(void *instance, size_t count, const struct slice *arguments, FILE *answer);

#endif
