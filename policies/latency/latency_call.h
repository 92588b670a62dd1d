/*
 * The calls of lua/latency_flush.lua and lua/latency_report.lua: the names of the keys, the arguments, and what the
 * reply says.
 *
 * Keys are <prefix>_<operation>_<minute>_for_max, …_for_min, …_for_sum_count, …_for_hist and …_for_errors_bytes. The
 * well-known pattern has no braces in them: "statistics_get_28333333_for_max". With braces the operation is in braces,
 * "statistics_{get}_28333333_for_max", which makes it the hash tag of Redis Cluster: all minutes of an operation lie in
 * one slot, and a reader of the pattern finds them under the operation "{get}". A prefix with a hash tag of its own,
 * "{statistics}", puts all operations in one slot. Without either, a flush of several keys is no call for a cluster.
 *
 * Beside them is <prefix>_<operation>_flushed_by_<process>: the number of that process's last flush.
 */
#ifndef HEADGATE_LATENCY_CALL_H
#define HEADGATE_LATENCY_CALL_H

#include "latency/latency_minute.h"
#include "latency/latency_operation_name.h"

/* The longest texts, in bytes. */
#define LATENCY_PREFIX_GIVEN_MAX 64 /* as it is configured, */
#define LATENCY_PREFIX_MAX                                                                                             \
    (LATENCY_PREFIX_GIVEN_MAX + 1 + CONF_RULE_NAME_MAX + 2) /* and with a server's name and braces */
#define LATENCY_PROCESS_MAX 64
/* What has room for every key, with a NUL behind it. */
#define LATENCY_KEY_SIZE 320

/* Sorted sets of a minute. */
#define LATENCY_KEYS 5
/* How many minutes fit a call of the report: 12. */
#define LATENCY_REPORT_MINUTES (POLICY_SCRIPT_ARGUMENTS_MAX / LATENCY_KEYS)

/* What all calls of a process have in common. The texts are borrowed. */
struct latency_layout {
    const char *prefix;  /* "statistics"; up to LATENCY_PREFIX_MAX bytes without blanks and control characters */
    bool braces;         /* around the operation */
    const char *process; /* what no other process, nor another record of this one, has ever been called */
    int64_t retention_s; /* for how long a minute is kept after it was written last: 1 or more */
    /* For how long after a flush a repeat of it is known as one: 1 or more. Longer than Redis may be out of reach: a
     * repeat that comes later counts twice. */
    int64_t remember_s;
};

/* A script's arguments, ready for struct policy_script. All zero at first; used again, it keeps its memory. */
struct latency_call {
    struct slice arguments[POLICY_SCRIPT_ARGUMENTS_MAX];
    size_t argument_count;
    size_t key_count;
    char *text;
    char *end; /* of what is written */
    size_t size;
};

/* Gives back the call's memory. */
void latency_call_clear(struct latency_call *call);
/* Empties the call and makes room for all of its text, so that no argument has to move. False when memory is short. */
bool latency_call_start(struct latency_call *call, size_t size);
/* Writes the next argument, a key or another one; keys come first. There must be room for it, with a NUL behind. */
void latency_call_key(struct latency_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
void latency_call_add(struct latency_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For lua/latency_flush.lua: what is frozen, under that number. False when memory is short. */
bool latency_call_flush(struct latency_call *call, const struct latency_layout *layout, const char *operation,
                        uint64_t number, const struct latency_frozen *frozen);

/* What is to be done with what is frozen when its call has ended. */
enum latency_flush_end {
    LATENCY_FLUSH_DONE, /* forget it: Redis has it, from this call or from one before */
    LATENCY_FLUSH_AGAIN, /* repeat it later: no answer, or Redis cannot write now (OOM, READONLY, NOPERM, LOADING, …) */
    LATENCY_FLUSH_NEVER /* give it up: the script refuses it, as for a key of another type; the error names the key */
};

enum latency_flush_end latency_flush_ended(const struct policy_script_reply *reply);
/* Why it is not done, for a person; NULL if it is. Valid as long as the reply. */
const char *latency_flush_problem(const struct policy_script_reply *reply);

/* For lua/latency_report.lua: count minutes from first on, 1 to LATENCY_REPORT_MINUTES. False when memory is short. */
bool latency_call_report(struct latency_call *call, const struct latency_layout *layout, const char *operation,
                         int64_t first, size_t count);

/* The most integers that a report replies with. */
#define LATENCY_REPORT_INTEGERS_MAX (7 + 2 * LATENCY_BUCKETS)
/* Adds what a report replied. False, and nothing is added, if that is not what the script gives. */
bool latency_report_read(const int64_t *integers, size_t count, struct latency_figures *figures);

#endif
