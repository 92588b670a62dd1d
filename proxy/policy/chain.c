#include "policy/chain.h"

#include <assert.h>
#include <stdlib.h>

struct chain_record {
    struct chain_record *next_free;
    const struct command *command;
    int64_t received_us;
    uint32_t asked;   /* bit n: policy n has seen it: its ticket is set */
    uint32_t passed;  /* bit n: policy n passed it and is owed an on_reply */
    uint32_t holding; /* 1 + the policy that holds it, or waits for more of it; 0: none does */
    uint32_t holds;
    uint64_t tickets[POLICIES_MAX];
};

struct chain {
    const struct policy *list[POLICIES_MAX];
    void *instances[POLICIES_MAX];
    _Atomic uint64_t *counters[POLICIES_MAX]; /* of each; NULL: it has none */
    size_t count;
    bool wants_any;
    uint32_t listeners; /* bit n: policy n is told what happens */
    size_t measurer;    /* the policy that measures; count: none does */
    bool measures;
    struct policy_attention attention;
    struct stats *stats;
    struct chain_record *free;
    /* For each command, by command_index(); the last is for unknown commands. */
    struct chain_interest interests[];
};

/* group: of the one policy that wants it. translator: 1 + the policy that translates it. */
static struct chain_interest compile_interest(const struct chain *chain, const struct command *command)
{
    struct chain_interest interest = {0};

    for (size_t n = 0; n < chain->count; n++) {
        const struct policy *policy = chain->list[n];
        if (policy->translates != NULL && policy->translates(chain->instances[n], command)) {
            interest.translator = (uint32_t)n + 1;
        }
        if (policy->tag != NULL) {
            interest.tag = policy->tag(chain->instances[n], command);
        }
        if (!policy->wants(chain->instances[n], command)) {
            continue;
        }
        bool alone = interest.wanted == 0 && policy->group != NULL;
        interest.group = alone ? policy->group(chain->instances[n], command) : 0;
        interest.wanted |= UINT32_C(1) << n;
    }
    return interest;
}

static size_t find_measurer(const struct chain *chain)
{
    size_t n = 0;

    while (n < chain->count && chain->list[n]->tag == NULL) {
        n++;
    }
    return n;
}

static struct policy_attention ask_attention(const struct chain *chain)
{
    if (!chain->measures || chain->list[chain->measurer]->attends == NULL) {
        return (struct policy_attention){.us = INT64_MAX, .bytes = UINT64_MAX};
    }
    return chain->list[chain->measurer]->attends(chain->instances[chain->measurer]);
}

static uint32_t find_listeners(const struct chain *chain)
{
    uint32_t listeners = 0;

    for (size_t n = 0; n < chain->count; n++) {
        bool listens = chain->list[n]->listens != NULL && chain->list[n]->listens(chain->instances[n]);
        listeners |= (uint32_t)listens << n;
    }
    return listeners;
}

static void compile_interests(struct chain *chain)
{
    chain->listeners = find_listeners(chain);
    chain->wants_any = false;
    chain->measures = false;
    for (size_t index = 0; index <= command_count(); index++) {
        const struct command *command = index < command_count() ? command_at(index) : NULL;
        chain->interests[index] = compile_interest(chain, command);
        chain->wants_any = chain->wants_any || chain->interests[index].wanted != 0;
        chain->measures = chain->measures || chain->interests[index].tag != POLICY_TAG_NONE;
    }
    chain->measurer = find_measurer(chain);
    chain->attention = ask_attention(chain);
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
    chain->list[chain->count] = policy;
    chain->instances[chain->count] = instance;
    chain->counters[chain->count] = counters;
    chain->count++;
    return true;
}

struct chain *chain_new(const struct chain_roster *roster, const struct conf_rule *rules, struct stats *stats,
                        const struct policy_host *host)
{
    struct chain *chain = calloc(1, sizeof *chain + (command_count() + 1) * sizeof chain->interests[0]);

    if (chain == NULL) {
        return NULL;
    }
    chain->stats = stats;
    while (chain->count < roster->count) {
        if (!add_policy(chain, roster, rules, host)) {
            chain_free(chain);
            return NULL;
        }
    }
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
    compile_interests(chain);
    return whole;
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
    while (chain->free != NULL) {
        struct chain_record *record = chain->free;
        chain->free = record->next_free;
        free(record);
    }
    free(chain);
}

const struct chain_interest *chain_interest(const struct chain *chain, const struct command *command)
{
    return &chain->interests[command != NULL ? command_index(command) : command_count()];
}

enum policy_translation chain_translate(struct chain *chain, struct policy_request *request,
                                        enum policy_server_has server, struct slice *frame,
                                        struct policy_decision *decision)
{
    size_t n = chain_interest(chain, request->command)->translator - 1;

    return chain->list[n]->translate(chain->instances[n], request, server, frame, decision);
}

bool chain_wants_any(const struct chain *chain)
{
    return chain->wants_any;
}

size_t chain_record_size(void)
{
    return sizeof(struct chain_record);
}

static struct chain_record *record_take(struct chain *chain, const struct policy_request *request)
{
    struct chain_record *record = chain->free;

    if (record != NULL) {
        chain->free = record->next_free;
    } else {
        record = malloc(sizeof *record);
    }
    if (record != NULL) {
        record->command = request->command;
        record->received_us = request->received_us;
        record->asked = 0;
        record->passed = 0;
        record->holding = 0;
        record->holds = 0;
    }
    return record;
}

static void record_give(struct chain *chain, struct chain_record *record)
{
    record->next_free = chain->free;
    chain->free = record;
}

static void count_verdict(struct chain *chain, enum policy_verdict verdict)
{
    static const enum stats_id counters[] = {
        [POLICY_REPLY] = STATS_POLICY_REPLIES,
        [POLICY_HOLD] = STATS_POLICY_HOLDS,
        [POLICY_CLOSE] = STATS_POLICY_CLOSES,
    };

    if (verdict != POLICY_PASS && verdict != POLICY_WHOLE) {
        stats_add(chain->stats, counters[verdict], 1);
    }
}

/* The name of a command that Headgate does not know is the client's own text. */
static void tell_refusal(struct chain *chain, size_t n, const struct command *command, const char *rule)
{
    const struct policy_happening happening = {
        .kind = POLICY_REFUSED,
        .count = 1,
        .source = chain->list[n]->name,
        .rule = rule,
        .what = command != NULL ? command->name : "unknown command",
    };

    chain_happened(chain, &happening);
}

/* Who is asked about the group of a command. */
static size_t policy_of_group(const struct chain *chain, const struct command *command)
{
    return (size_t)__builtin_ctz(chain_interest(chain, command)->wanted);
}

uint32_t chain_admit(struct chain *chain, struct policy_request *request, uint32_t count,
                     struct policy_decision *decision)
{
    size_t n = policy_of_group(chain, request->command);

    decision->length = 0;
    decision->rule = NULL;
    request->attachment = &request->client->attachments[n];
    uint32_t admitted = chain->list[n]->on_batch(chain->instances[n], request, count, decision);
    assert(admitted <= count);
    return admitted;
}

void chain_refused(struct chain *chain, const struct command *command, const struct policy_decision *decision)
{
    count_verdict(chain, POLICY_REPLY);
    if (decision->rule != NULL) {
        tell_refusal(chain, policy_of_group(chain, command), command, decision->rule);
    }
}

static enum policy_verdict ask_all(struct chain *chain, struct policy_request *request,
                                   struct policy_decision *decision, struct chain_record *record)
{
    uint32_t wanted = chain_interest(chain, request->command)->wanted;
    size_t first = record->holding > 0 ? record->holding - 1 : 0;

    if (record->holding > 0) {
        /* Who held it is owed another word, even if a reload has made it lose interest in such commands. */
        wanted |= UINT32_C(1) << first;
    }
    record->holding = 0;
    for (size_t n = first; n < chain->count; n++) {
        if ((wanted >> n & 1) == 0) {
            continue;
        }
        if ((record->asked >> n & 1) == 0) {
            record->asked |= UINT32_C(1) << n;
            record->tickets[n] = 0;
        }
        request->ticket = &record->tickets[n];
        request->attachment = &request->client->attachments[n];
        enum policy_verdict verdict = chain->list[n]->on_request(chain->instances[n], request, decision);
        assert(verdict != POLICY_WHOLE || request->partial);
        if (verdict == POLICY_HOLD || verdict == POLICY_WHOLE) {
            record->holding = (uint32_t)n + 1;
            record->holds += verdict == POLICY_HOLD;
        }
        if (verdict == POLICY_CLOSE || (verdict == POLICY_REPLY && decision->rule != NULL)) {
            tell_refusal(chain, n, request->command, decision->rule);
        }
        if (verdict != POLICY_PASS && verdict != POLICY_ADMIT) {
            return verdict;
        }
        bool wants_reply = verdict == POLICY_PASS && chain->list[n]->on_reply != NULL;
        record->passed |= (uint32_t)wants_reply << n;
    }
    return POLICY_PASS;
}

enum policy_verdict chain_ask(struct chain *chain, struct policy_request *request, struct policy_decision *decision,
                              struct chain_record **record)
{
    if (*record == NULL) {
        *record = record_take(chain, request);
    }
    if (*record == NULL) {
        decision->length = 0;
        return POLICY_CLOSE;
    }
    if ((*record)->holds == 0) {
        /* More of it may have come since it was asked about. */
        (*record)->received_us = request->received_us;
    }
    decision->rule = NULL;
    request->holds = (*record)->holds;
    request->received_us = (*record)->received_us;
    enum policy_verdict verdict = ask_all(chain, request, decision, *record);
    count_verdict(chain, verdict);
    if ((*record)->passed == 0 && (*record)->holding == 0) {
        record_give(chain, *record);
        *record = NULL;
    }
    return verdict;
}

void chain_end(struct chain *chain, struct chain_record *record, const struct policy_client *client,
               enum policy_outcome outcome, struct slice head, uint64_t length, int64_t now_us)
{
    if (record == NULL) {
        return;
    }
    uint32_t owed = record->passed | (record->holding > 0 ? UINT32_C(1) << (record->holding - 1) : 0);
    struct policy_reply reply = {
        .client = client,
        .command = record->command,
        .outcome = outcome,
        .head = head,
        .length = length,
        .received_us = record->received_us,
        .now_us = now_us,
    };
    for (size_t n = 0; n < chain->count; n++) {
        if ((owed >> n & 1) != 0 && chain->list[n]->on_reply != NULL) {
            reply.ticket = record->tickets[n];
            chain->list[n]->on_reply(chain->instances[n], &reply);
        }
    }
    record_give(chain, record);
}

bool chain_measures(const struct chain *chain)
{
    return chain->measures;
}

const struct policy_attention *chain_attention(const struct chain *chain)
{
    return &chain->attention;
}

uint32_t chain_measure(struct chain *chain, struct policy_request *request)
{
    const struct policy *policy = chain->list[chain->measurer];

    request->attachment = &request->client->attachments[chain->measurer];
    return policy->measure != NULL ? policy->measure(chain->instances[chain->measurer], request) : POLICY_TAG_NONE;
}

bool chain_sample(struct chain *chain, const struct policy_sample *sample)
{
    const struct policy *policy = chain->list[chain->measurer];

    return policy->on_sample(chain->instances[chain->measurer], sample) && policy->on_written != NULL;
}

void chain_written(struct chain *chain, const struct policy_sample *sample)
{
    chain->list[chain->measurer]->on_written(chain->instances[chain->measurer], sample);
}

void chain_spot(struct chain *chain, struct policy_request *request)
{
    const struct policy *policy = chain->list[chain->measurer];

    if (policy->on_spot != NULL) {
        request->attachment = &request->client->attachments[chain->measurer];
        policy->on_spot(chain->instances[chain->measurer], request);
    }
}

bool chain_listens(const struct chain *chain)
{
    return chain->listeners != 0;
}

void chain_happened(struct chain *chain, const struct policy_happening *happening)
{
    for (uint32_t left = chain->listeners; left != 0; left &= left - 1) {
        size_t n = (size_t)__builtin_ctz(left);
        chain->list[n]->on_happening(chain->instances[n], happening);
    }
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

void chain_ask_verb(struct chain *chain, size_t policy, const struct policy_verb *verb,
                    struct policy_question *question, size_t count, const struct slice *arguments)
{
    verb->ask(chain->instances[policy], question, count, arguments);
}
