/*
 * [limit:NAME]: how much clients may do. A request is charged to a bucket of each rule that applies to it, or to none
 * if any of the rules refuses it.
 *
 *   request ─► charges (rule, bucket, cost) ─► all locked ─► judged ─► all charged, or refused, or put on hold
 */
#include "limit/limit_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct policy_counter counter_table[] = {
    [LIMIT_COUNTER_ADMITTED] = {"limit_admitted_total", STATS_COUNTER,
                                "requests admitted by [limit:…] rules, each rule apart"},
    [LIMIT_COUNTER_REFUSED] = {"limit_refused_total", STATS_COUNTER, "requests refused by a [limit:…] rule"},
    [LIMIT_COUNTER_DELAYED] = {"limit_delayed_total", STATS_COUNTER, "requests held by a rule with action = delay"},
    [LIMIT_COUNTER_OBSERVED] = {"limit_observed_total", STATS_COUNTER,
                                "requests that a rule with action = observe would refuse"},
    [LIMIT_COUNTER_UNDECIDED] = {"limit_undecided_total", STATS_COUNTER,
                                 "requests on which Redis did not decide in time, so that on_error did"},
    [LIMIT_COUNTER_SCRIPT_CALLS] = {"limit_script_calls_total", STATS_COUNTER,
                                    "scripts that rules with scope = global had run"},
    [LIMIT_COUNTER_UNTRACKED] = {"limit_untracked_total", STATS_COUNTER,
                                 "requests of clients beyond max_clients_tracked, which share one limit"},
    [LIMIT_COUNTER_TRACKED] = {"limit_tracked", STATS_GAUGE, "clients, users, keys … that rules keep apart now"},
};

static const struct policy_counter rule_counter_table[LIMIT_RULE_COUNTERS] = {
    [LIMIT_ADMITTED] = {"limit_rule_admitted_total", STATS_COUNTER, "requests that the rule has admitted"},
    [LIMIT_REFUSED] = {"limit_rule_refused_total", STATS_COUNTER, "requests that it has refused"},
    [LIMIT_DELAYED] = {"limit_rule_delayed_total", STATS_COUNTER, "requests that it has held"},
    [LIMIT_OBSERVED] = {"limit_rule_observed_total", STATS_COUNTER,
                        "requests that it would have refused, with action = observe"},
    [LIMIT_COUNTS] = {"limit_rule_tracked", STATS_GAUGE, "clients, users, keys … that it keeps apart now"},
};

static const struct policy_verb verb_table[] = {
    {.name = "LIMITS",
     .least = 1,
     .most = 1,
     .usage = "LIMITS",
     .example = "LIMITS",
     .help = "the [limit:…] rules: what they admitted and refused, and whom most",
     .run = limit_verb_limits},
    {.name = "LIMIT",
     .least = 3,
     .most = 4,
     .usage = "LIMIT RESET rule [offender]",
     .example = "LIMIT RESET search",
     .help = "forgets what a rule has admitted: to all, or to one",
     .effect = POLICY_VERB_CHANGES,
     .ask = limit_verb_limit},
};

/* ---- hooks ---- */

/* Finds what the request is charged with and locks it. False, and nothing is locked, when memory is short. */
static bool take_up(struct limit *limit, const struct policy_request *request, struct limit_held **held,
                    limit_locks *locks)
{
    limit->was_delayed = false;
    while (limit_lock_charges(limit, request, locks)) {
        if (limit_find_places(limit, *held)) {
            return true;
        }
        limit_share_unlock(limit->share, *locks);
        limit_drop_charges(limit);
        limit->was_delayed = (*held)->counted;
        limit_end_hold(limit, *held);
        *held = NULL;
    }
    return false;
}

/* What is left to do when nothing is locked any more. */
static void ask_redis(struct limit *limit, const struct policy_request *request, enum policy_verdict verdict,
                      struct limit_held *held, struct policy_decision *decision)
{
    if (verdict == POLICY_HOLD) {
        if (decision->hold_until_us > request->now_us) {
            limit_call_return_grants(limit, held);
        }
        int64_t until_us = limit_call_ask(limit, held, request->now_us);
        decision->hold_until_us = until_us > 0 ? until_us : decision->hold_until_us;
    } else if (verdict == POLICY_ADMIT) {
        limit_call_ask_aside(limit);
    }
}

static enum policy_verdict close_for_memory(struct policy_decision *decision)
{
    decision->length = (size_t)snprintf(decision->text, sizeof decision->text, "out of memory for its limits");
    return POLICY_CLOSE;
}

/* How often it is looked again for the process of a client, and how many times a request waits for that. */
#define PEER_LOOK_US 20000
#define PEER_LOOKS_MAX 100

static enum policy_verdict limit_request(void *instance, const struct policy_request *request,
                                         struct policy_decision *decision)
{
    struct limit *limit = instance;
    struct limit_held *held = (struct limit_held *)(uintptr_t)*request->ticket;
    enum policy_verdict verdict = POLICY_CLOSE;
    limit_locks locks;

    if (request->holds < PEER_LOOKS_MAX && limit_awaits_peer(limit, request)) {
        decision->hold_until_us = request->now_us + PEER_LOOK_US;
        return POLICY_HOLD;
    }
    if (take_up(limit, request, &held, &locks)) {
        verdict = limit_judge_request(limit, request, &held, decision);
        limit_share_unlock(limit->share, locks);
        ask_redis(limit, request, verdict, held, decision);
    }
    limit_drop_charges(limit);
    if (verdict != POLICY_HOLD && held != NULL) {
        limit_end_hold(limit, held);
        held = NULL;
    }
    *request->ticket = (uint64_t)(uintptr_t)held;
    return verdict == POLICY_CLOSE ? close_for_memory(decision) : verdict;
}

/* ---- pipelines of requests that differ in nothing that a rule looks at ---- */

static uint32_t limit_batch(void *instance, const struct policy_request *request, uint32_t count,
                            struct policy_decision *decision)
{
    struct limit *limit = instance;
    limit_locks locks;
    uint32_t admitted = 0;

    if (limit_awaits_peer(limit, request)) {
        return 0;
    }
    if (limit_lock_charges(limit, request, &locks)) {
        admitted = limit_judge_batch(limit, request->now_us, count, decision);
        limit_share_unlock(limit->share, locks);
    }
    if (admitted > 0) {
        limit_call_ask_aside(limit);
    }
    limit_drop_charges(limit);
    return admitted;
}

static uint32_t limit_group(void *instance, const struct command *command)
{
    const struct limit *limit = instance;

    return command != NULL ? limit->groups[command_index(command)] : 0;
}

/* Only requests that left, or that another gate answered, while they were held: those that were passed are not heard of
 * again. */
static void limit_reply(void *instance, const struct policy_reply *reply)
{
    if (reply->ticket != 0) {
        limit_end_hold(instance, (struct limit_held *)(uintptr_t)reply->ticket);
    }
}

static void limit_client_close(void *instance, const struct policy_client *client, void *attachment)
{
    (void)client;
    if (attachment != NULL) {
        limit_remove_client(instance, attachment);
    }
}

static void limit_tick(void *instance, int64_t now_us)
{
    struct limit *limit = instance;

    limit_share_sweep(limit->share, now_us);
    limit_move_up(limit, now_us);
}

/* One worker tells for all. */
static void limit_stats(void *instance)
{
    struct limit *limit = instance;

    if (limit->host->worker == 0) {
        atomic_store_explicit(&limit->counters[LIMIT_COUNTER_TRACKED], limit_share_tracked(limit->share),
                              memory_order_relaxed);
    }
}

static bool limit_wants(void *instance, const struct command *command)
{
    const struct limit *limit = instance;
    size_t index = command != NULL ? command_index(command) : command_count();

    return limit->starts[index + 1] > limit->starts[index];
}

/* ---- rules ---- */

/* Whether the rule looks at nothing of a request of this command but who sent it. */
static bool looks_at_client_only(const struct limit_rule *rule, const struct command *command)
{
    return !rule->per.key && match_keys_all(rule->keys) && rule->cost == LIMIT_COST_ONE &&
           (rule->scope == LIMIT_LOCAL || rule->accuracy == LIMIT_LEASED) &&
           match_commands_all_of(rule->commands, command);
}

static bool have_same_rules(const struct limit *limit, size_t left, size_t right)
{
    uint32_t count = limit->starts[left + 1] - limit->starts[left];

    return limit->starts[right + 1] - limit->starts[right] == count &&
           memcmp(limit->numbers + limit->starts[left], limit->numbers + limit->starts[right],
                  count * sizeof *limit->numbers) == 0;
}

/* The group of a command: 1 + the first command with the same rules. */
static uint32_t find_group(const struct limit *limit, size_t index)
{
    size_t first = 0;

    for (size_t i = limit->starts[index]; i < limit->starts[index + 1]; i++) {
        if (!looks_at_client_only(&limit->rules[limit->numbers[i]], command_at(index))) {
            return 0;
        }
    }
    while (!have_same_rules(limit, first, index) || (first < index && limit->groups[first] == 0)) {
        first++;
    }
    return (uint32_t)first + 1;
}

static void free_rules(struct limit *limit, struct limit_rule *rules, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (rules[i].member.bucket_table != NULL) {
            limit_bucket_table_leave(limit->share, &rules[i].member);
        }
        limit_rule_clear(&rules[i]);
    }
    free(rules);
}

static struct limit_rule *make_rules(const struct conf_rule *list, size_t *count)
{
    *count = conf_rules_count(list, &limit_section);
    struct limit_rule *rules = conf_alloc(NULL, *count * sizeof *rules);

    for (size_t i = 0; i < *count; i++) {
        list = conf_rules_first(list, &limit_section);
        limit_rule_make(&rules[i], list);
        list = list->next;
    }
    return rules;
}

static bool join_bucket_tables(struct limit *limit, struct limit_rule *rules, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct limit_terms terms = {
            .rule = rules[i].name,
            .identity = rules[i].identity,
            .meter = rules[i].meter,
            .buckets_max = rules[i].buckets_max,
            .is_cache = rules[i].scope == LIMIT_GLOBAL,
        };
        if (!limit_bucket_table_join(limit->share, &rules[i].member, &terms)) {
            return false;
        }
    }
    return true;
}

/* Which rules may apply to which command. */
static void list_rules(struct limit *limit)
{
    uint32_t count = 0;

    limit->starts = conf_alloc(limit->starts, (command_count() + 2) * sizeof *limit->starts);
    limit->numbers = conf_alloc(limit->numbers, (command_count() + 1) * limit->rule_count * sizeof *limit->numbers);
    for (size_t index = 0; index <= command_count(); index++) {
        const struct command *command = index < command_count() ? command_at(index) : NULL;
        limit->starts[index] = count;
        for (size_t i = 0; i < limit->rule_count; i++) {
            if (limit_rule_may_mean(&limit->rules[i], command)) {
                limit->numbers[count++] = (uint32_t)i;
            }
        }
    }
    limit->starts[command_count() + 1] = count;
    limit->groups = conf_alloc(limit->groups, command_count() * sizeof *limit->groups);
    for (size_t index = 0; index < command_count(); index++) {
        limit->groups[index] = find_group(limit, index);
    }
}

static bool limit_reload(void *instance, const struct conf_rule *list)
{
    struct limit *limit = instance;
    size_t count;
    struct limit_rule *rules = make_rules(list, &count);

    /* The new rules join before the old ones leave: so a bucket table that both have goes on. */
    if (!join_bucket_tables(limit, rules, count)) {
        free_rules(limit, rules, count);
        return false;
    }
    for (struct limit_client *client = LIST_FIRST(&limit->clients); client != NULL;
         client = LIST_NEXT(client, of_limit)) {
        limit_give_up_seats(limit, client);
    }
    /* Nobody waits for a rule that may be gone: all are judged anew, in their order. */
    for (struct limit_held *held = TAILQ_FIRST(&limit->held); held != NULL; held = TAILQ_NEXT(held, of_limit)) {
        limit_leave_places(limit, held);
        limit->host->resume(limit->host->context, held->holder);
    }
    limit_call_move(limit, rules, count);
    free_rules(limit, limit->rules, limit->rule_count);
    limit->rules = rules;
    limit->rule_count = count;
    list_rules(limit);
    return true;
}

static void limit_stop(void *instance)
{
    struct limit *limit = instance;

    assert(TAILQ_EMPTY(&limit->held) && LIST_EMPTY(&limit->calls));
    while (!LIST_EMPTY(&limit->clients)) {
        limit_remove_client(limit, LIST_FIRST(&limit->clients));
    }
    free_rules(limit, limit->rules, limit->rule_count);
    free(limit->starts);
    free(limit->groups);
    free(limit->numbers);
    free(limit->charges);
    table_close(&limit->gathering);
    free(limit);
}

static void *limit_start(const struct policy_start *start)
{
    struct limit *limit = calloc(1, sizeof *limit);

    if (limit == NULL) {
        return NULL;
    }
    TAILQ_INIT(&limit->held);
    limit->share = start->shared;
    limit->host = start->host;
    limit->counters = start->counters;
    if (!limit_reload(limit, start->rules)) {
        free(limit);
        return NULL;
    }
    return limit;
}

static void *share(size_t threads)
{
    return limit_share_new(threads);
}

static void tell_rules(void *shared, policy_rule_told *told, void *context)
{
    limit_share_tell_rules(shared, told, context);
}

static void unshare(void *shared)
{
    limit_share_free(shared);
}

static const struct conf_section *const sections[] = {&limit_section, NULL};

static const struct policy_twin limit_twin = {
    .tell = {.name = "TELL", .least = 3, .most = 3, .run = limit_verb_tell},
    .hear = {.name = "HEAR", .least = 2, .most = 2, .run = limit_verb_hear},
    .is_for_successor = true,
};

static const struct policy_gate limit_gate = {
    .wants = limit_wants,
    .group = limit_group,
    .on_batch = limit_batch,
    .on_request = limit_request,
    .on_reply = limit_reply,
};

const struct policy limit_policy = {
    .name = "limit",
    .gate = &limit_gate,
    .sections = sections,
    .counter_section = "Limit",
    .counters = counter_table,
    .counter_count = sizeof counter_table / sizeof counter_table[0],
    .rule_counters = rule_counter_table,
    .rule_counter_count = LIMIT_RULE_COUNTERS,
    .tell_rules = tell_rules,
    .verbs = verb_table,
    .verb_count = sizeof verb_table / sizeof verb_table[0],
    .share = share,
    .unshare = unshare,
    .start = limit_start,
    .reload = limit_reload,
    .on_client_close = limit_client_close,
    .on_tick = limit_tick,
    .on_stats = limit_stats,
    .stop = limit_stop,
    .twin = &limit_twin,
};
