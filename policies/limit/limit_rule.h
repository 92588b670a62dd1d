/*
 * A [limit:NAME] rule: its options, and what is made of them for the time of a configuration.
 */
#ifndef HEADGATE_LIMIT_RULE_H
#define HEADGATE_LIMIT_RULE_H

#include "limit/limit_bucket_table.h"
#include "match/match.h"

/* Of what names of keys begin with. Bytes. */
#define LIMIT_PREFIX_MAX 64

enum limit_scope { LIMIT_LOCAL, LIMIT_GLOBAL };
enum limit_accuracy { LIMIT_EXACT, LIMIT_LEASED };
enum limit_action { LIMIT_REJECT, LIMIT_DELAY, LIMIT_OBSERVE };
enum limit_cost { LIMIT_COST_ONE, LIMIT_COST_KEYS, LIMIT_COST_BYTES };
enum limit_on_error { LIMIT_ON_ERROR_ALLOW, LIMIT_ON_ERROR_DENY, LIMIT_ON_ERROR_LOCAL };

/* What a rule counts apart from each other. */
struct limit_per {
    bool ip, user, name, identity, connection, process, uid, host, key;
    unsigned int ipv4_bits, ipv6_bits; /* of the address that count */
};

struct limit_rule {
    char name[CONF_RULE_NAME_MAX + 1];
    struct match_commands *commands;
    struct match_keys *keys; /* with parts if it counts per key */
    struct match_clients *except;
    struct limit_per per;
    char *per_text;
    struct limit_meter meter;
    struct conf_rate leak; /* of the funnel */
    char *what;            /* "5 in 60s per user", for refusals */
    char *refusal;         /* what most refusals begin with */
    char *identity;        /* of its bucket table: equal for rules whose state means the same */
    enum limit_scope scope;
    char prefix[LIMIT_PREFIX_MAX + 1]; /* of the keys in Redis */
    enum limit_accuracy accuracy;
    enum limit_action action;
    enum limit_cost cost;
    enum limit_on_error on_error;
    int64_t max_delay_us;
    int64_t decision_timeout_us;
    size_t buckets_max;
    struct limit_member member; /* its description is the rule's own memory */
};

extern const struct conf_section limit_section;

/* Makes the rule of what the file says, which was checked. The member is not joined yet. */
void limit_rule_make(struct limit_rule *rule, const struct conf_rule *from);
/* The member must have left. */
void limit_rule_clear(struct limit_rule *rule);

/* Whether the rule may mean any request of this command (NULL: one that Headgate does not know). Never EXEC and
 * DISCARD: what was queued has been charged, and a transaction that cannot be ended would hold its client for ever. */
bool limit_rule_may_mean(const struct limit_rule *rule, const struct command *command);
/* How long permits may be kept here that Redis has granted: 0 unless they are leased. */
int64_t limit_rule_hold_us(const struct limit_rule *rule);

#endif
