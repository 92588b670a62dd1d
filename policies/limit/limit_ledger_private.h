/* What the files of ledgers share: limit_ledger.c, and limit_ledger_report.c for the admin port. */
#ifndef HEADGATE_LIMIT_LEDGER_PRIVATE_H
#define HEADGATE_LIMIT_LEDGER_PRIVATE_H

#include "base/siphash.h"
#include "limit/limit_ledger.h"

#include <pthread.h>

/* As many as a limit_locks has bits. */
#define LIMIT_STRIPES 64

struct limit_ledger {
    LIST_ENTRY(limit_ledger) of_share;
    char *rule;
    char *identity;
    struct limit_meter meter;
    bool is_cache;
    _Atomic size_t subjects_max;
    _Atomic size_t subject_count;
    LIST_HEAD(, limit_member) members; /* guarded by the registry's lock, and so are the next two */
    uint64_t counts_of_those_who_left[LIMIT_COUNTS];
    size_t sweep_stripe;
    _Atomic int64_t reclaimed_us;
    _Atomic int64_t warned_us; /* 0: never */
    _Atomic bool said_untold[2];
    struct table stripes[LIMIT_STRIPES]; /* subjects, each guarded by the lock of the same number */
    struct limit_subject *overflow;      /* stands for those without room; in no table */
};

struct limit_share {
    bool locks; /* there are several workers */
    struct siphash_key key;
    pthread_mutex_t registry; /* guards the list of ledgers; taken before any stripe's */
    LIST_HEAD(, limit_ledger) ledgers;
    pthread_mutex_t stripes[LIMIT_STRIPES];
};

/* Calls visit for each subject of the ledger, the one of those without room among them, while it is locked; the
 * registry is locked. visit must not add or drop any. */
typedef void limit_subject_visitor(void *context, struct limit_subject *subject);
void limit_ledger_visit(struct limit_share *share, struct limit_ledger *ledger, limit_subject_visitor *visit,
                        void *context);

#endif
