/*
 * A [lease:NAME] rule: its options, and what is made of them for the time of a configuration.
 */
#ifndef HEADGATE_LEASE_RULE_H
#define HEADGATE_LEASE_RULE_H

#include "lease/lease_shape.h"
#include "match/match.h"

enum lease_watched { LEASE_WATCH_AUTO, LEASE_WATCH_STRINGS, LEASE_WATCH_HASHES, LEASE_WATCH_SEMAPHORES };
enum lease_owner_kind { LEASE_OWNER_PROCESS, LEASE_OWNER_CONNECTION, LEASE_OWNER_CLIENT };
enum lease_farewell { LEASE_FAREWELL_EXPIRE, LEASE_FAREWELL_RELEASE };
enum lease_score_meaning { LEASE_SCORE_AUTO, LEASE_SCORE_ACQUIRED, LEASE_SCORE_EXPIRES };
enum lease_score_unit {
    LEASE_SCORE_UNIT_AUTO,
    LEASE_SCORE_SECONDS,
    LEASE_SCORE_MILLISECONDS,
    LEASE_SCORE_MICROSECONDS
};

/* What becomes of a lock that a library has taken. */
enum lease_care {
    LEASE_CARE_RENEW,
    LEASE_CARE_SELF, /* the library renews it: it is on file, and left to the library */
    LEASE_CARE_NEVER /* its end is part of what the library means by it */
};

struct lease_tally;

/* How the leases of a rule are kept. */
struct lease_terms {
    struct lease_tally *tally; /* what the rule counts; NULL: nothing */
    char rule[CONF_RULE_NAME_MAX + 1];
    int64_t ttl_us;   /* the lease of what was taken without one */
    int64_t renew;    /* renewed after so many … */
    int64_t renew_of; /* … parts of so many of the lease */
    int64_t max_hold_us;
    int64_t grace_us;
    uint32_t limit; /* permits of a semaphore; 0: not known */
    enum lease_owner_kind owner;
    enum lease_farewell farewell;
};

struct lease_rule {
    struct lease_terms terms;
    struct match_keys *keys;
    enum lease_watched watched;
    enum lease_score_meaning score;
    enum lease_score_unit unit;
    char *libraries; /* words LIBRARY:CARE */
    char *watchdog;  /* words LIBRARY:TIME */
    bool prolong_explicit;
};

extern const struct conf_section lease_section;
/* [lease]: what all rules have in common. */
extern const struct conf_section lease_all_section;

/* max_leases, by the sections of a configuration. */
size_t lease_rule_most(const struct conf_rule *sections);

/* Makes the rule of what the file says, which was checked. */
void lease_rule_make(struct lease_rule *rule, const struct conf_rule *from);
void lease_rule_clear(struct lease_rule *rule);

/* Whether locks of this kind are watched under the rule. */
bool lease_rule_watches(const struct lease_rule *rule, enum lease_kind kind);
/* Whether the rule names the key, or the lock whose permits Redisson keeps in a key of that name: {NAME}:timeout. */
bool lease_rule_names(const struct lease_rule *rule, struct slice key);
/* The first of so many rules that does, or NULL. */
const struct lease_rule *lease_rule_find(const struct lease_rule *rules, size_t count, struct slice key);
/* What becomes of a lock that was taken or extended by this script (NULL: by a command), for so long. */
enum lease_care lease_rule_care(const struct lease_rule *rule, const struct lease_script *script, int64_t lease_ms);

#endif
