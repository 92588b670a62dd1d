/* The gates of a chain: what they decide about requests, and which of them is owed an on_reply. */
#include "policy/chain_private.h"

#include <stdlib.h>

struct chain_record {
    struct chain_record *next_free;
    const struct command *command;
    int64_t received_us;
    uint32_t asked;   /* bit n: gate n has seen it: its ticket is set */
    uint32_t decided; /* bit n: gate n has let it through */
    uint32_t passed;  /* bit n: gate n passed it and is owed an on_reply */
    uint32_t holding; /* bit n: gate n held it, or waits for more of it, and was not asked again */
    uint32_t holds;
    uint32_t reloads; /* of the chain, by which it was asked about */
    uint64_t tickets[POLICIES_MAX];
};

/* ---- records ---- */

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
        record->decided = 0;
        record->passed = 0;
        record->holding = 0;
        record->holds = 0;
        record->reloads = chain->reloads;
    }
    return record;
}

static void record_give(struct chain *chain, struct chain_record *record)
{
    record->next_free = chain->free;
    chain->free = record;
}

void chain_free_records(struct chain *chain)
{
    while (chain->free != NULL) {
        struct chain_record *record = chain->free;
        chain->free = record->next_free;
        free(record);
    }
}

/* ---- what gates want ---- */

static bool has_one_key(const struct command *command)
{
    return command != NULL && command->keys == COMMAND_KEYS_RANGE && command->first_key == 1 &&
           command->last_key == 1 && (command->categories & CATEGORY_PUBSUB) == 0;
}

/* The group of the command at the one gate that wants it, or does so with others that only glance; 0: none. */
static uint32_t find_group(const struct chain *chain, const struct command *command, uint32_t wanted)
{
    if (wanted == 0 || (wanted & (wanted - 1)) != 0) {
        return 0;
    }
    const struct chain_gate *gate = &chain->gates[__builtin_ctz(wanted)];
    return gate->hooks->group != NULL ? gate->hooks->group(gate->instance, command) : 0;
}

void chain_gate_interest(const struct chain *chain, const struct command *command, struct chain_interest *interest,
                         struct chain_interest *unconcerned)
{
    uint32_t others = 0;

    for (size_t n = 0; n < chain->gate_count; n++) {
        const struct chain_gate *gate = &chain->gates[n];
        if (!gate->hooks->wants(gate->instance, command)) {
            continue;
        }
        interest->wanted |= UINT32_C(1) << n;
        if (gate->hooks->concerns != NULL && has_one_key(command)) {
            interest->glances |= UINT32_C(1) << n;
        } else {
            others |= UINT32_C(1) << n;
        }
    }
    uint32_t group = find_group(chain, command, others);
    if (interest->glances == 0) {
        interest->group = group;
    } else if (others != 0 && group == 0) {
        /* One that looks at each request has all of them put to all. */
        interest->glances = 0;
    }
    *unconcerned = *interest;
    unconcerned->wanted = others;
    unconcerned->group = group;
}

/* ---- asking ---- */

static void attach(const struct chain_gate *gate, struct policy_request *request)
{
    request->attachment = &request->client->attachments[gate->place];
}

/* Whether any of those gates is to be asked about the request. */
static bool concerns_any(const struct chain *chain, uint32_t gates, struct policy_glance *glance,
                         void *const *attachments)
{
    for (; gates != 0; gates &= gates - 1) {
        const struct chain_gate *gate = &chain->gates[__builtin_ctz(gates)];
        glance->attachment = attachments[gate->place];
        if (gate->hooks->concerns(gate->instance, glance)) {
            return true;
        }
    }
    return false;
}

const struct chain_interest *chain_glance(const struct chain *chain, const struct chain_interest *interest,
                                          const struct command *command, const struct resp_command *framed,
                                          const char *frame, void *const *attachments)
{
    const struct resp_argument *key = &framed->arguments[1];
    struct policy_glance glance = {
        .command = command,
        .key = {frame + key->offset, (size_t)key->length},
        .bytes = framed->size,
    };

    if (framed->argument_count < 2 || concerns_any(chain, interest->glances, &glance, attachments)) {
        return interest;
    }
    return interest + chain->unconcerned;
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
static void tell_refusal(struct chain *chain, const struct chain_gate *gate, const struct command *command,
                         const char *rule)
{
    const struct policy_event event = {
        .kind = POLICY_REFUSED,
        .count = 1,
        .source = chain->list[gate->place]->name,
        .rule = rule,
        .what = command != NULL ? command->name : "unknown command",
    };

    chain_happened(chain, &event);
}

/* Who is asked about the group of a command. */
static const struct chain_gate *gate_of_group(const struct chain *chain, const struct command *command)
{
    const struct chain_interest *interest = chain_interest(chain, command);

    return &chain->gates[__builtin_ctz(interest->wanted & ~interest->glances)];
}

uint32_t chain_admit(struct chain *chain, struct policy_request *request, uint32_t count,
                     struct policy_decision *decision)
{
    const struct chain_gate *gate = gate_of_group(chain, request->command);

    decision->length = 0;
    decision->rule = NULL;
    decision->drops_who_leaves = false;
    attach(gate, request);
    uint32_t admitted = gate->hooks->on_batch(gate->instance, request, count, decision);
    assert(admitted <= count);
    return admitted;
}

void chain_refused(struct chain *chain, const struct command *command, const struct policy_decision *decision)
{
    count_verdict(chain, POLICY_REPLY);
    if (decision->rule != NULL) {
        tell_refusal(chain, gate_of_group(chain, command), command, decision->rule);
    }
}

/* ---- steps ---- */

static void tell_step(const struct chain *chain, const struct chain_record *record, struct policy_step *step)
{
    for (uint32_t left = record->passed & chain->following; left != 0; left &= left - 1) {
        size_t n = (size_t)__builtin_ctz(left);
        step->ticket = record->tickets[n];
        chain->gates[n].hooks->on_step(chain->gates[n].instance, step);
    }
}

/* What a gate decided, other than to let it through or to see more of it. */
static void tell_verdict(const struct chain *chain, const struct chain_record *record, size_t place,
                         enum policy_verdict verdict, const struct policy_decision *decision, int64_t now_us)
{
    struct policy_step step = {
        .kind = verdict == POLICY_HOLD    ? POLICY_STEP_HELD
                : verdict == POLICY_REPLY ? POLICY_STEP_ANSWERED
                                          : POLICY_STEP_CLOSED,
        .policy = chain->list[place]->name,
        .rule = decision->rule,
        .now_us = now_us,
    };

    if (verdict != POLICY_WHOLE) {
        tell_step(chain, record, &step);
    }
}

void chain_sent(struct chain *chain, const struct chain_record *record, uint64_t lane, int64_t now_us)
{
    struct policy_step step = {.kind = POLICY_STEP_SENT, .lane = lane, .now_us = now_us};

    tell_step(chain, record, &step);
}

/* ---- each gate ---- */

/* Asks a gate, and takes note of what it is owed. */
static enum policy_verdict ask_gate(struct chain *chain, size_t n, struct policy_request *request,
                                    struct policy_decision *decision, struct chain_record *record)
{
    const struct chain_gate *gate = &chain->gates[n];
    uint32_t bit = UINT32_C(1) << n;

    if ((record->asked & bit) == 0) {
        record->asked |= bit;
        record->tickets[n] = 0;
    }
    request->ticket = &record->tickets[n];
    record->holding &= ~bit;
    attach(gate, request);
    enum policy_verdict verdict = gate->hooks->on_request(gate->instance, request, decision);
    assert(verdict != POLICY_WHOLE || request->partial);
    if (verdict == POLICY_HOLD || verdict == POLICY_WHOLE) {
        record->holding |= bit;
        record->holds += verdict == POLICY_HOLD;
    }
    if (verdict == POLICY_CLOSE || (verdict == POLICY_REPLY && decision->rule != NULL)) {
        tell_refusal(chain, gate, request->command, decision->rule);
    }
    record->decided |= verdict == POLICY_PASS || verdict == POLICY_ADMIT ? bit & ~chain->recurring : 0;
    record->passed |= verdict == POLICY_PASS ? bit & chain->keeping : 0;
    return verdict;
}

static enum policy_verdict ask_all(struct chain *chain, struct policy_request *request,
                                   struct policy_decision *decision, struct chain_record *record)
{
    if (record->reloads != chain->reloads) {
        record->reloads = chain->reloads;
        record->decided &= chain->keeping;
    }
    /* Who held it is owed another word, even if a reload has made it lose interest in such commands. */
    uint32_t left = (chain_interest(chain, request->command)->wanted & ~record->decided) | record->holding;
    for (; left != 0; left &= left - 1) {
        size_t n = (size_t)__builtin_ctz(left);
        enum policy_verdict verdict = ask_gate(chain, n, request, decision, record);
        if (verdict != POLICY_PASS && verdict != POLICY_ADMIT) {
            tell_verdict(chain, record, chain->gates[n].place, verdict, decision, request->now_us);
            return verdict;
        }
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
    decision->drops_who_leaves = false;
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

/* ---- how requests end ---- */

void chain_end(struct chain *chain, struct chain_record *record, const struct policy_client *client,
               enum policy_outcome outcome, struct slice head, uint64_t length, int64_t now_us)
{
    if (record == NULL) {
        return;
    }
    uint32_t owed = record->passed | record->holding;
    struct policy_reply reply = {
        .client = client,
        .command = record->command,
        .outcome = outcome,
        .head = head,
        .length = length,
        .received_us = record->received_us,
        .now_us = now_us,
    };
    for (; owed != 0; owed &= owed - 1) {
        size_t n = (size_t)__builtin_ctz(owed);
        const struct chain_gate *gate = &chain->gates[n];
        if (gate->hooks->on_reply != NULL) {
            reply.ticket = record->tickets[n];
            gate->hooks->on_reply(gate->instance, &reply);
        }
    }
    record_give(chain, record);
}
