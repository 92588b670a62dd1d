/*
 * The locks that clients contend for, and the rules for them: key "RULE:KIND:NUMBER". They are few enough that each is
 * wanted by several clients all the time.
 */
#ifndef SAFETY_LOCKS_H
#define SAFETY_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LOCKS_MAX 256u
#define KEY_MAX 40

enum lock_kind {
    KIND_SCRIPT,    /* SET NX PX; released by a script that compares */
    KIND_DEL,       /* SET NX PX; released by DEL */
    KIND_WATCH,     /* SET NX PX; released by WATCH, GET, MULTI, DEL, EXEC */
    KIND_SETNX,     /* SETNX, and mostly PEXPIRE; released by a script that compares */
    KIND_HASH,      /* a hash with a field for the owner, taken and released by scripts */
    KIND_SEMAPHORE, /* a sorted set with the time of each permit, taken in one MULTI, released by ZREM */
    KIND_COUNT
};

struct rule {
    const char *name;
    int lease_ms;
    int grace_ms;
    int max_hold_ms;
    bool release; /* the lock of an owner that is gone is deleted after the grace; else it runs out */
    bool watched; /* else no section of the configuration names its keys */
};

struct lock {
    const struct rule *rule;
    enum lock_kind kind;
    int limit;        /* so many may be inside */
    int64_t lease_us; /* as it is asked for */
    char key[KEY_MAX];
};

/* Locks 0 to locks_count() - 1. */
unsigned locks_count(void);
/* Fills in the lock of that number; patient: with leases that no machine is too slow for. */
void locks_describe(unsigned number, bool patient, struct lock *lock);
/* The number of the lock with that key, or -1. */
int locks_find(const char *key, size_t length);
/* A lock of that kind, by a random number. */
unsigned locks_pick(enum lock_kind kind, uint64_t random);

const char *locks_kind_name(enum lock_kind kind);
/* By how much the clock of a client that wants a permit may be ahead or behind: one part of so many of the lease. */
#define SKEW_PART 10

/* The longest lease and grace of all rules together, µs. */
int64_t locks_longest_us(bool patient);

/* Writes the [lease:…] sections. */
void locks_write_rules(FILE *file, bool patient);

#endif
