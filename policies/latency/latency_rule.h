/*
 * [latency], [latency:NAME], [counters] and [events]: their options, and what is made of them for the time of a
 * configuration.
 */
#ifndef HEADGATE_LATENCY_RULE_H
#define HEADGATE_LATENCY_RULE_H

#include "latency/latency_call.h"
#include "match/match.h"

/* By whom an operation is told apart. */
enum latency_by { LATENCY_BY_NONE, LATENCY_BY_USER, LATENCY_BY_NAME };

/* A rule: what it matches is one operation. */
struct latency_rule {
    char name[CONF_RULE_NAME_MAX + 1];
    struct match_requests requests;
};

/* What [latency] says. */
struct latency_settings {
    bool enabled;
    char prefix[LATENCY_PREFIX_MAX + 1];
    bool braces;     /* operations stand in braces in names of keys */
    bool log_braces; /* the prefixes of [counters] and [events] do, unless they have a hash tag or are empty */
    int64_t database;
    int64_t flush_us;
    int64_t retention_s;
    uint32_t keep; /* minutes */
    uint32_t max_interfaces;
    enum latency_by by;
    int64_t slow_us; /* slower requests are logged; 0: none */
    uint32_t slow_length;
    uint64_t big_request; /* larger ones are logged, in bytes; 0: none */
    uint64_t big_reply;
    uint32_t big_length;
    bool shows_values; /* in these logs */
    bool hot_keys;
    struct latency_rule *rules;
    size_t rule_count;
    bool counters; /* [counters] enabled */
    char counters_prefix[LATENCY_PREFIX_MAX + 1];
    bool events; /* [events] enabled */
    char events_prefix[LATENCY_PREFIX_MAX + 1];
};

extern const struct conf_section latency_section;
extern const struct conf_section latency_rule_section;
extern const struct conf_section latency_counters_section;
extern const struct conf_section latency_events_section;

/* What the settings are for. */
struct latency_place {
    const char *server; /* its name in [server:NAME]; NULL or empty: that of [headgate] */
    bool is_cluster;    /* its upstream is a Redis Cluster */
};

/* Makes the settings of a file that was checked. Without [latency] all is off. */
void latency_settings_make(struct latency_settings *settings, const struct conf_rule *list,
                           const struct latency_place *place);
void latency_settings_clear(struct latency_settings *settings);
/* The Redis server that [latency] has for itself, if any. The texts are those of the list. */
struct policy_server_settings latency_server_settings(const struct conf_rule *list);

/* Whether any request of this command (NULL: an unknown one) may be the rule's, and whether all of them are. */
bool latency_rule_may(const struct latency_rule *rule, const struct command *command);
bool latency_rule_all_of(const struct latency_rule *rule, const struct command *command);
bool latency_rule_is(const struct latency_rule *rule, const struct policy_request *request);

#endif
