/*
 * [lease:NAME]: locks and semaphores do not expire under a client that still holds them.
 *
 *   request ─► what it may do to leases is written down ─► Redis ─► reply ─► leases begin, change, end
 *   ten times a second ─► leases that are due are renewed by scripts that prove the ownership first
 */
#include "lease/lease_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct policy_counter counter_table[] = {
    [LEASE_COUNTER_ACQUIRED] = {"lease_acquired_total", STATS_COUNTER, "locks and permits whose watch began"},
    [LEASE_COUNTER_HELD] = {"lease_held", STATS_GAUGE, "locks and permits that are watched now"},
    [LEASE_COUNTER_RENEWALS] = {"lease_renewals_total", STATS_COUNTER, "renewals"},
    [LEASE_COUNTER_DEFERRED] = {"lease_deferred_total", STATS_COUNTER,
                                "renewals that were left out, as the owner had extended its lease"},
    [LEASE_COUNTER_FAILURES] = {"lease_failures_total", STATS_COUNTER, "scripts for leases that Redis did not answer"},
    [LEASE_COUNTER_HEALED] = {"lease_healed_total", STATS_COUNTER, "locks that were taken without a time to live"},
    [LEASE_COUNTER_RELEASED] = {"lease_released_total", STATS_COUNTER, "locks and permits that were released"},
    [LEASE_COUNTER_UNSEEN] = {"lease_unseen_total", STATS_COUNTER,
                              "locks and permits that were gone after a script that Headgate does not know"},
    [LEASE_COUNTER_LOST_GONE] = {"lease_lost_gone_total", STATS_COUNTER,
                                 "locks and permits that a renewal did not find any more"},
    [LEASE_COUNTER_LOST_TAKEN] = {"lease_lost_taken_total", STATS_COUNTER, "… that another owner had"},
    [LEASE_COUNTER_LOST_PERSISTED] = {"lease_lost_persisted_total", STATS_COUNTER,
                                      "… that had no time to live any more"},
    [LEASE_COUNTER_LOST_SHORTENED] = {"lease_lost_shortened_total", STATS_COUNTER,
                                      "… whose time to live somebody had shortened"},
    [LEASE_COUNTER_LOST_TYPE] = {"lease_lost_type_total", STATS_COUNTER, "… that had become keys of another type"},
    [LEASE_COUNTER_LOST_UNREACHABLE] = {"lease_lost_unreachable_total", STATS_COUNTER,
                                        "… that could not be renewed in time, as Redis did not answer"},
    [LEASE_COUNTER_OWNER_GONE] = {"lease_owner_gone_total", STATS_COUNTER,
                                  "locks and permits whose owner had gone for longer than grace"},
    [LEASE_COUNTER_MAX_HOLD] = {"lease_max_hold_total", STATS_COUNTER,
                                "locks and permits that were held for max_hold, and are not renewed any more"},
    [LEASE_COUNTER_DROPPED] = {"lease_dropped_total", STATS_COUNTER,
                               "locks and permits whose watch was ended by LEASE DROP or by another configuration"},
    [LEASE_COUNTER_UNWATCHED] = {"lease_unwatched_total", STATS_COUNTER,
                                 "locks and permits, and requests for them, that max_leases had no room for"},
    [LEASE_COUNTER_WEIGHT] = {"lease_weight", STATS_GAUGE, "what those that are watched now count of max_leases"},
};

static_assert(sizeof counter_table / sizeof counter_table[0] == LEASE_COUNTERS, "a counter is missing");

static const struct policy_verb verb_table[] = {
    {.name = "LEASES",
     .least = 1,
     .most = 3,
     .usage = "LEASES [GLOB [count]]",
     .example = "LEASES lock:* 20",
     .help = "the locks and permits that are watched, of keys that match: so many, 1000 unless told",
     .run = lease_verb_leases},
    {.name = "LEASE",
     .least = 3,
     .most = 3,
     .usage = "LEASE DROP key",
     .example = "LEASE DROP lock:report",
     .help = "ends the watch over a lock, which then ends with its lease",
     .effect = POLICY_VERB_CHANGES,
     .run = lease_verb_lease},
};

/* ---- rules ---- */

static void free_rules(struct lease_rule *rules, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        lease_rule_clear(&rules[i]);
    }
    free(rules);
}

static struct lease_rule *make_rules(struct lease_registry *registry, const struct conf_rule *list, size_t *count)
{
    *count = conf_rules_count(list, &lease_section);
    struct lease_rule *rules = conf_alloc(NULL, *count * sizeof *rules);

    lease_registry_lock(registry);
    lease_registry_bound(registry, lease_rule_most(list));
    lease_registry_unlock(registry);
    for (size_t i = 0; i < *count; i++) {
        list = conf_rules_first(list, &lease_section);
        lease_rule_make(&rules[i], list);
        rules[i].terms.tally = lease_tallies_find(lease_registry_tallies(registry), rules[i].terms.rule);
        list = list->next;
    }
    return rules;
}

static const struct lease_rule *rule_for(const struct lease_worker *worker, const struct lease *lease)
{
    const struct lease_key *key = lease->members[0].key;
    const struct lease_rule *rule = lease_rule_of(worker, (struct slice){key->name, key->length});

    return rule != NULL && lease_rule_watches(rule, lease->kind) ? rule : NULL;
}

/* Leases go on under the rules that are now. Each worker does that anew, which changes nothing. */
static void apply_rules(struct lease_worker *worker)
{
    lease_registry_lock(worker->registry);
    struct lease *lease = lease_registry_first(worker->registry);
    while (lease != NULL) {
        struct lease *next = LIST_NEXT(lease, of_all);
        const struct lease_rule *rule = rule_for(worker, lease);
        if (rule == NULL) {
            lease_end(worker, lease, LEASE_REASON_DROPPED);
        } else {
            lease_count_under(lease, &rule->terms);
            lease_schedule(worker, lease);
        }
        lease = next;
    }
    lease_registry_unlock(worker->registry);
}

static bool lease_reload(void *instance, const struct conf_rule *list)
{
    struct lease_worker *worker = instance;
    size_t count;
    struct lease_rule *rules = make_rules(worker->registry, list, &count);

    free_rules(worker->rules, worker->rule_count);
    worker->rules = rules;
    worker->rule_count = count;
    apply_rules(worker);
    return true;
}

/* ---- hooks ---- */

/* Of transactions, and of what they look at. */
static bool is_of_transactions(const struct command *command)
{
    switch (command->kind) {
    case COMMAND_EXEC:
    case COMMAND_DISCARD:
    case COMMAND_WATCH:
    case COMMAND_UNWATCH:
    case COMMAND_RESET:
    case COMMAND_SELECT:
        return true;
    default:
        return false;
    }
}

static bool lease_wants(void *instance, const struct command *command)
{
    const struct lease_worker *worker = instance;

    return worker->rule_count > 0 && command != NULL &&
           (lease_shape_wants(command) || is_of_transactions(command) || strcmp(command->name, "script") == 0);
}

static enum policy_verdict lease_request(void *instance, const struct policy_request *request,
                                         struct policy_decision *decision)
{
    return lease_request_begin(instance, request, decision);
}

static bool lease_concerns(void *instance, const struct policy_glance *glance)
{
    return lease_request_concerns(instance, glance);
}

static void lease_reply(void *instance, const struct policy_reply *reply)
{
    lease_request_end(instance, (struct lease_request *)(uintptr_t)reply->ticket, reply);
}

static void lease_client(void *instance, const struct policy_client *client, void **attachment)
{
    lease_client_join(instance, client, attachment);
}

static void lease_client_close(void *instance, const struct policy_client *client, void *attachment)
{
    if (attachment != NULL) {
        lease_client_leave(instance, attachment, client);
    }
}

static void lease_tick(void *instance, int64_t now_us)
{
    struct lease_worker *worker = instance;

    (void)now_us;
    worker->ticks++;
    worker->fresh_calls = 0;
    lease_client_tick(worker);
    lease_watch(worker);
}

/* Clients that are closed now come back elsewhere: their locks are renewed once more, when the last one has gone. Once
 * is enough: those of a short lease are due again with every tick. */
static bool lease_drain(void *instance, size_t clients)
{
    struct lease_worker *worker = instance;

    if (worker->last_round && lease_watch_is_done(worker)) {
        return true;
    }
    lease_registry_lock(worker->registry);
    lease_registry_drain(worker->registry);
    if (clients == 0 && !worker->last_round) {
        worker->last_round = true;
        lease_wheel_rush(lease_registry_wheel(worker->registry, worker->host->worker));
    }
    lease_registry_unlock(worker->registry);
    lease_watch(worker);
    return worker->last_round && lease_watch_is_done(worker);
}

/* STATS adds up what the workers say: one of them speaks for all. */
static void lease_stats(void *instance)
{
    struct lease_worker *worker = instance;

    lease_registry_lock(worker->registry);
    bool speaks = worker->host->worker == 0;
    size_t held = speaks ? lease_registry_count(worker->registry) : 0;
    size_t weight = speaks ? lease_registry_weight(worker->registry) : 0;
    lease_registry_unlock(worker->registry);
    atomic_store_explicit(&worker->counters[LEASE_COUNTER_HELD], held, memory_order_relaxed);
    atomic_store_explicit(&worker->counters[LEASE_COUNTER_WEIGHT], weight, memory_order_relaxed);
}

static void lease_stop(void *instance)
{
    struct lease_worker *worker = instance;

    assert(worker->calls == 0 && LIST_EMPTY(&worker->clients));
    free_rules(worker->rules, worker->rule_count);
    free(worker);
}

static void *lease_start(const struct policy_start *start)
{
    struct lease_worker *worker = calloc(1, sizeof *worker);

    if (worker != NULL) {
        worker->registry = start->shared;
        worker->host = start->host;
        worker->counters = start->counters;
        LIST_INIT(&worker->clients);
        worker->rules = make_rules(worker->registry, start->rules, &worker->rule_count);
    }
    return worker;
}

static void *share(size_t threads)
{
    return lease_registry_new(threads);
}

static void tell_rules(void *shared, policy_rule_told *told, void *context)
{
    lease_tallies_tell(lease_registry_tallies(shared), told, context);
}

static void unshare(void *shared)
{
    lease_registry_free(shared);
}

static const struct conf_section *const sections[] = {&lease_all_section, &lease_section, NULL};

static const struct policy_twin lease_twin = {
    .tell = {.name = "TELL", .least = 3, .most = 3, .run = lease_verb_tell},
    .hear = {.name = "HEAR", .least = 2, .most = 2, .run = lease_verb_hear},
    .is_for_successor = true,
};

static const struct policy_gate lease_gate = {
    .wants = lease_wants,
    .on_request = lease_request,
    .on_reply = lease_reply,
    .concerns = lease_concerns,
};

const struct policy lease_policy = {
    .name = "lease",
    .gate = &lease_gate,
    .sections = sections,
    .counter_section = "Lease",
    .counters = counter_table,
    .counter_count = sizeof counter_table / sizeof counter_table[0],
    .rule_counters = lease_tally_table,
    .rule_counter_count = LEASE_TALLIES,
    .tell_rules = tell_rules,
    .verbs = verb_table,
    .verb_count = sizeof verb_table / sizeof verb_table[0],
    .share = share,
    .unshare = unshare,
    .start = lease_start,
    .reload = lease_reload,
    .on_client = lease_client,
    .on_client_close = lease_client_close,
    .on_tick = lease_tick,
    .on_drain = lease_drain,
    .on_stats = lease_stats,
    .stop = lease_stop,
    .twin = &lease_twin,
};
