/* What each rule of a policy has counted. */
#include "http/http_private.h"

#include <stdlib.h>
#include <string.h>

/* More rules than that are not told of one by one: labels are bounded. */
#define RULES_MAX 1000

struct collecting {
    struct http_rules *rules;
    size_t room;
    size_t counters;
};

static struct http_rule *find_rule(struct http_rules *rules, const char *name)
{
    for (size_t i = 0; i < rules->count; i++) {
        if (strcmp(rules->list[i].name, name) == 0) {
            return &rules->list[i];
        }
    }
    return NULL;
}

/* NULL: there is no room, or no memory. */
static struct http_rule *add_rule(struct collecting *collecting, const char *name)
{
    struct http_rules *rules = collecting->rules;

    if (rules->count == collecting->room) {
        size_t room = collecting->room * 2 + 16;
        struct http_rule *list = room <= 2 * RULES_MAX ? realloc(rules->list, room * sizeof *list) : NULL;
        if (list == NULL) {
            return NULL;
        }
        rules->list = list;
        collecting->room = room;
    }
    struct http_rule *rule = &rules->list[rules->count++];
    *rule = (struct http_rule){0};
    snprintf(rule->name, sizeof rule->name, "%s", name);
    return rule;
}

/* While a reload is on its way, a rule may be there twice, as it was and as it will be. */
static void on_rule(void *context, const char *name, const uint64_t *values)
{
    struct collecting *collecting = context;
    struct http_rule *rule = find_rule(collecting->rules, name);

    if (rule == NULL) {
        rule = add_rule(collecting, name);
    }
    for (size_t i = 0; rule != NULL && i < collecting->counters; i++) {
        rule->values[i] += values[i];
    }
}

struct http_rules http_rules_of(const struct http *http, size_t server, size_t policy)
{
    const struct chain_roster *roster = &http->servers->list[server].worker_pool.policies;
    struct http_rules rules = {0};
    struct collecting collecting = {.rules = &rules, .counters = roster->list[policy]->rule_counter_count};

    if (roster->list[policy]->tell_rules != NULL) {
        roster->list[policy]->tell_rules(roster->shared[policy], on_rule, &collecting);
    }
    return rules;
}
