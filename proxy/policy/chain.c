#include "policy/chain_private.h"

#include <stdlib.h>

static void compile_interests(struct chain *chain)
{
    chain->wants_any = false;
    chain->measures = false;
    for (size_t index = 0; index <= command_count(); index++) {
        const struct command *command = index < command_count() ? command_at(index) : NULL;
        struct chain_interest *interest = &chain->interests[index];
        *interest = (struct chain_interest){
            .translator = chain_find_translator(chain, command),
            .routers = chain_find_routers(chain, command),
            .tag = chain_tag(chain, command),
        };
        chain_gate_interest(chain, command, interest, interest + chain->unconcerned);
        chain->wants_any = chain->wants_any || (interest->wanted & ~chain->ignoring) != 0;
        chain->measures = chain->measures || interest->tag != POLICY_TAG_NONE;
    }
    chain_ask_observers(chain);
}

bool chain_roster_open(struct chain_roster *roster, const struct policy *const *list, size_t threads)
{
    *roster = (struct chain_roster){.list = list};
    for (; list[roster->count] != NULL && roster->count < POLICIES_MAX; roster->count++) {
        const struct policy *policy = list[roster->count];
        if (policy->share == NULL) {
            continue;
        }
        roster->shared[roster->count] = policy->share(threads);
        if (roster->shared[roster->count] == NULL) {
            chain_roster_close(roster);
            return false;
        }
    }
    return true;
}

void chain_roster_close(struct chain_roster *roster)
{
    while (roster->count > 0) {
        const struct policy *policy = roster->list[--roster->count];
        if (policy->unshare != NULL) {
            policy->unshare(roster->shared[roster->count]);
        }
    }
}

/* Takes note of the pieces of a policy that was started. */
static void add_pieces(struct chain *chain, const struct policy *policy, void *instance)
{
    size_t place = chain->count;

    if (policy->gate != NULL) {
        chain->following |= policy->gate->on_step != NULL ? UINT32_C(1) << chain->gate_count : 0;
        chain->keeping |= policy->gate->on_reply != NULL ? UINT32_C(1) << chain->gate_count : 0;
        chain->recurring |= policy->gate->is_asked_again ? UINT32_C(1) << chain->gate_count : 0;
        chain->ignoring |= policy->gate->ignores_clients ? UINT32_C(1) << chain->gate_count : 0;
        chain->gates[chain->gate_count++] = (struct chain_gate){policy->gate, instance, place};
    }
    if (policy->observer != NULL) {
        chain->observers[chain->observer_count++] = (struct chain_observer){policy->observer, instance, place};
    }
    if (policy->translator != NULL) {
        chain->translators[chain->translator_count++] = (struct chain_translator){policy->translator, instance};
    }
    if (policy->router != NULL) {
        chain->routers[chain->router_count++] = (struct chain_router){policy->router, instance};
    }
}

/* Starts the next policy of the roster. */
static bool add_policy(struct chain *chain, const struct chain_roster *roster, const struct conf_rule *rules,
                       const struct policy_host *host)
{
    const struct policy *policy = roster->list[chain->count];
    _Atomic uint64_t *counters = policy->counter_count > 0 ? calloc(policy->counter_count, sizeof *counters) : NULL;
    const struct policy_start start = {
        .host = host, .shared = roster->shared[chain->count], .rules = rules, .counters = counters};

    if (policy->counter_count > 0 && counters == NULL) {
        return false;
    }
    void *instance = policy->start(&start);
    if (instance == NULL) {
        free(counters);
        return false;
    }
    add_pieces(chain, policy, instance);
    chain->list[chain->count] = policy;
    chain->instances[chain->count] = instance;
    chain->counters[chain->count] = counters;
    chain->count++;
    return true;
}

struct chain *chain_new(const struct chain_roster *roster, const struct conf_rule *rules, struct stats *stats,
                        const struct policy_host *host)
{
    size_t interests = command_count() + 1;
    struct chain *chain = calloc(1, sizeof *chain + 2 * interests * sizeof chain->interests[0]);

    if (chain == NULL) {
        return NULL;
    }
    chain->stats = stats;
    chain->unconcerned = interests;
    while (chain->count < roster->count) {
        if (!add_policy(chain, roster, rules, host)) {
            chain_free(chain);
            return NULL;
        }
    }
    chain_find_measurer(chain);
    compile_interests(chain);
    return chain;
}

bool chain_reload(struct chain *chain, const struct conf_rule *rules)
{
    bool whole = true;

    for (size_t n = 0; n < chain->count; n++) {
        if (chain->list[n]->reload != NULL) {
            whole = chain->list[n]->reload(chain->instances[n], rules) && whole;
        }
    }
    chain->reloads++;
    compile_interests(chain);
    return whole;
}

void chain_reconsider(struct chain *chain)
{
    compile_interests(chain);
}

uint64_t chain_counter(const struct chain *chain, size_t policy, size_t counter)
{
    return atomic_load_explicit(&chain->counters[policy][counter], memory_order_relaxed);
}

void chain_free(struct chain *chain)
{
    chain->listeners = 0;
    for (size_t n = 0; n < chain->count; n++) {
        if (chain->list[n]->stop != NULL) {
            chain->list[n]->stop(chain->instances[n]);
        }
        free(chain->counters[n]);
    }
    chain_free_records(chain);
    free(chain);
}

bool chain_wants_any(const struct chain *chain)
{
    return chain->wants_any;
}

void chain_client(struct chain *chain, const struct policy_client *client)
{
    for (size_t n = 0; n < chain->count; n++) {
        if (chain->list[n]->on_client != NULL) {
            chain->list[n]->on_client(chain->instances[n], client, &client->attachments[n]);
        }
    }
}

void chain_client_closed(struct chain *chain, const struct policy_client *client)
{
    for (size_t n = 0; n < chain->count; n++) {
        if (chain->list[n]->on_client_close != NULL) {
            chain->list[n]->on_client_close(chain->instances[n], client, client->attachments[n]);
        }
    }
}

void chain_tick(struct chain *chain, int64_t now_us)
{
    for (size_t n = 0; n < chain->count; n++) {
        if (chain->list[n]->on_tick != NULL) {
            chain->list[n]->on_tick(chain->instances[n], now_us);
        }
    }
}

bool chain_drain(struct chain *chain, size_t clients)
{
    bool done = true;

    for (size_t n = 0; n < chain->count; n++) {
        if (chain->list[n]->on_drain != NULL) {
            done = chain->list[n]->on_drain(chain->instances[n], clients) && done;
        }
    }
    return done;
}

void chain_update_gauges(struct chain *chain)
{
    for (size_t n = 0; n < chain->count; n++) {
        if (chain->list[n]->on_stats != NULL) {
            chain->list[n]->on_stats(chain->instances[n]);
        }
    }
}

enum policy_answer chain_run_verb(struct chain *chain, size_t policy, const struct policy_verb *verb, size_t count,
                                  const struct slice *arguments, FILE *answer)
{
    return verb->run(chain->instances[policy], count, arguments, answer);
}

void chain_ask_verb(struct chain *chain, size_t policy, const struct policy_verb *verb, struct admin_query *admin_query,
                    size_t count, const struct slice *arguments)
{
    verb->ask(chain->instances[policy], admin_query, count, arguments);
}

void *chain_open_stream(struct chain *chain, size_t policy, const struct policy_stream *stream, size_t count,
                        const struct slice *arguments, uint64_t *lines, FILE *why)
{
    return stream->open(chain->instances[policy], count, arguments, lines, why);
}

bool chain_read_stream(struct chain *chain, size_t policy, const struct policy_stream *stream, void *opened, FILE *text,
                       struct policy_stream_told *told)
{
    return stream->read(chain->instances[policy], opened, text, told);
}

void chain_close_stream(struct chain *chain, size_t policy, const struct policy_stream *stream, void *opened)
{
    stream->close(chain->instances[policy], opened);
}
