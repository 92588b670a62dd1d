#include "chain.h"

#include <stdlib.h>

struct chain_record {
    struct chain_record *next_free;
    const struct command *command;
    int64_t received_us;
    uint32_t passed;  /* bit n: policy n passed it and is owed an on_reply */
    uint32_t holding; /* 1 + the policy that holds it; 0: none does */
    uint32_t holds;
    uint64_t tickets[POLICIES_MAX];
};

struct chain {
    const struct policy *list[POLICIES_MAX];
    void *instances[POLICIES_MAX];
    size_t count;
    struct stats *stats;
    struct chain_record *free;
    /* For each command, by command_index(), the policies that want it as bits; the last is for unknown commands. */
    uint32_t wanted[];
};

static size_t wanted_index(const struct command *command)
{
    return command != NULL ? command_index(command) : command_count();
}

static void compile_wanted(struct chain *chain)
{
    for (size_t index = 0; index <= command_count(); index++) {
        const struct command *command = index < command_count() ? command_at(index) : NULL;
        for (size_t n = 0; n < chain->count; n++) {
            if (chain->list[n]->wants(chain->instances[n], command)) {
                chain->wanted[index] |= UINT32_C(1) << n;
            }
        }
    }
}

struct chain *chain_new(const struct policy *const *list, struct stats *stats, const struct policy_host *host)
{
    struct chain *chain = calloc(1, sizeof *chain + (command_count() + 1) * sizeof chain->wanted[0]);

    if (chain == NULL) {
        return NULL;
    }
    chain->stats = stats;
    for (; list[chain->count] != NULL && chain->count < POLICIES_MAX; chain->count++) {
        chain->list[chain->count] = list[chain->count];
        chain->instances[chain->count] = list[chain->count]->start(host);
        if (chain->instances[chain->count] == NULL) {
            chain_free(chain);
            return NULL;
        }
    }
    compile_wanted(chain);
    return chain;
}

void chain_free(struct chain *chain)
{
    for (size_t n = 0; n < chain->count; n++) {
        if (chain->list[n]->stop != NULL) {
            chain->list[n]->stop(chain->instances[n]);
        }
    }
    while (chain->free != NULL) {
        struct chain_record *record = chain->free;
        chain->free = record->next_free;
        free(record);
    }
    free(chain);
}

bool chain_wants(const struct chain *chain, const struct command *command)
{
    return chain->count > 0 && chain->wanted[wanted_index(command)] != 0;
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
        *record = (struct chain_record){.command = request->command, .received_us = request->received_us};
    }
    return record;
}

static void count_verdict(struct chain *chain, enum policy_verdict verdict)
{
    static const enum stats_id counters[] = {
        [POLICY_REPLY] = STATS_POLICY_REPLIES,
        [POLICY_HOLD] = STATS_POLICY_HOLDS,
        [POLICY_CLOSE] = STATS_POLICY_CLOSES,
    };

    if (verdict != POLICY_PASS) {
        stats_add(chain->stats, counters[verdict], 1);
    }
}

static enum policy_verdict ask_all(struct chain *chain, struct policy_request *request,
                                   struct policy_decision *decision, struct chain_record *record)
{
    uint32_t wanted = chain->wanted[wanted_index(request->command)];
    size_t first = record->holding > 0 ? record->holding - 1 : 0;

    record->holding = 0;
    for (size_t n = first; n < chain->count; n++) {
        if ((wanted >> n & 1) == 0) {
            continue;
        }
        request->ticket = &record->tickets[n];
        enum policy_verdict verdict = chain->list[n]->on_request(chain->instances[n], request, decision);
        if (verdict == POLICY_HOLD) {
            record->holding = (uint32_t)n + 1;
            record->holds++;
        }
        if (verdict != POLICY_PASS) {
            return verdict;
        }
        record->passed |= UINT32_C(1) << n;
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
    request->holds = (*record)->holds;
    request->received_us = (*record)->received_us;
    enum policy_verdict verdict = ask_all(chain, request, decision, *record);
    count_verdict(chain, verdict);
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
    record->next_free = chain->free;
    chain->free = record;
}

void chain_client_closed(struct chain *chain, const struct policy_client *client)
{
    for (size_t n = 0; n < chain->count; n++) {
        if (chain->list[n]->on_client_close != NULL) {
            chain->list[n]->on_client_close(chain->instances[n], client);
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
