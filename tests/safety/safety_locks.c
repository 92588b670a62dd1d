#include "safety_locks.h"

#include <string.h>

#define LOCKS_OF_A_KIND 12u
#define SEMAPHORE_LIMIT 3
#define US_PER_MS 1000

#define RULES 4
/* Patient ones are as many times longer, so that no lease runs out on a machine that stands still for a second. */
#define PATIENCE 6
#define RULES_TIMES(factor)                                                                                            \
    {                                                                                                                  \
        {.name = "expire",                                                                                             \
         .lease_ms = 500 * (factor),                                                                                   \
         .grace_ms = 200 * (factor),                                                                                   \
         .max_hold_ms = 60000,                                                                                         \
         .watched = true},                                                                                             \
            {.name = "release",                                                                                        \
             .lease_ms = 1000 * (factor),                                                                              \
             .grace_ms = 250 * (factor),                                                                               \
             .max_hold_ms = 60000,                                                                                     \
             .release = true,                                                                                          \
             .watched = true},                                                                                         \
            {.name = "bounded",                                                                                        \
             .lease_ms = 600 * (factor),                                                                               \
             .grace_ms = 200 * (factor),                                                                               \
             .max_hold_ms = 2000 * (factor),                                                                           \
             .watched = true},                                                                                         \
            {.name = "free", .lease_ms = 3000 * (factor)},                                                             \
    }

static const struct rule all_rules[2][RULES] = {RULES_TIMES(1), RULES_TIMES(PATIENCE)};
#define WATCHED_RULES (RULES - 1)

static const char *const kind_names[] = {"script", "del", "watch", "setnx", "hash", "semaphore"};

/* Locks without a rule are of the first two kinds, whose leases their clients give to all of them. */
static size_t rules_of_kind(enum lock_kind kind)
{
    return kind <= KIND_DEL ? RULES : WATCHED_RULES;
}

static unsigned first_of_kind(enum lock_kind kind)
{
    size_t first = 0;
    for (int before = 0; before < (int)kind; before++)
        first += rules_of_kind((enum lock_kind)before) * LOCKS_OF_A_KIND;
    return (unsigned)first;
}

unsigned locks_count(void)
{
    return first_of_kind(KIND_COUNT);
}

void locks_describe(unsigned number, bool patient, struct lock *lock)
{
    const struct rule *rules = all_rules[patient];
    enum lock_kind kind = KIND_SCRIPT;
    while (kind + 1 < KIND_COUNT && number >= first_of_kind(kind + 1))
        kind++;
    unsigned within = number - first_of_kind(kind);
    lock->rule = &rules[within / LOCKS_OF_A_KIND];
    lock->kind = kind;
    lock->limit = kind == KIND_SEMAPHORE ? SEMAPHORE_LIMIT : 1;
    lock->lease_us = (int64_t)lock->rule->lease_ms * US_PER_MS;
    snprintf(lock->key, sizeof lock->key, "%s:%s:%u", lock->rule->name, kind_names[kind], number);
}

int locks_find(const char *key, size_t length)
{
    unsigned number = 0;
    size_t at = length;
    while (at > 0 && key[at - 1] != ':')
        at--;
    if (at == 0 || at == length || length - at > 3)
        return -1;
    for (; at < length; at++) {
        if (key[at] < '0' || key[at] > '9')
            return -1;
        number = number * 10 + (unsigned)(key[at] - '0');
    }
    struct lock lock;
    if (number >= locks_count())
        return -1;
    locks_describe(number, false, &lock);
    return strlen(lock.key) == length && memcmp(lock.key, key, length) == 0 ? (int)number : -1;
}

unsigned locks_pick(enum lock_kind kind, uint64_t random)
{
    /* Few, so that there is always somebody who wants a permit of one that has none left. */
    if (kind == KIND_SEMAPHORE)
        return first_of_kind(kind) + (unsigned)(random % WATCHED_RULES) * LOCKS_OF_A_KIND;
    return first_of_kind(kind) + (unsigned)(random % (rules_of_kind(kind) * LOCKS_OF_A_KIND));
}

const char *locks_kind_name(enum lock_kind kind)
{
    return kind_names[kind];
}

int64_t locks_longest_us(bool patient)
{
    const struct rule *rules = all_rules[patient];
    int64_t longest = 0;
    for (size_t at = 0; at < RULES; at++) {
        int64_t life = (int64_t)(rules[at].lease_ms + rules[at].grace_ms) * US_PER_MS;
        longest = life > longest ? life : longest;
    }
    return longest;
}

void locks_write_rules(FILE *file, bool patient)
{
    const struct rule *rules = all_rules[patient];
    for (size_t at = 0; at < WATCHED_RULES; at++) {
        const struct rule *rule = &rules[at];
        fprintf(file,
                "[lease:%s]\nkeys = %s:*\nttl = %dms\nowner = connection\ngrace = %dms\nmax_hold = %dms\n"
                "prolong_explicit = yes\non_owner_gone = %s\nlimit = %d\n",
                rule->name, rule->name, rule->lease_ms, rule->grace_ms, rule->max_hold_ms,
                rule->release ? "release" : "expire", SEMAPHORE_LIMIT);
    }
}
