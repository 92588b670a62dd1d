/*
 * The policy: INCR is held once, DECR is refused, APPEND passes when it is whole; all that it let go must come back. In
 * some worlds it also measures all requests, and hears of the slow and the large ones by themselves.
 */
#include "client_lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ledger {
    int64_t owed;
};

static void *policy_start(const struct policy_start *with)
{
    (void)with;
    return calloc(1, sizeof(struct ledger));
}

static void policy_stop(void *instance)
{
    const struct ledger *ledger = instance;

    require(ledger->owed == 0);
    free(instance);
}

static bool policy_wants(void *instance, const struct command *command)
{
    (void)instance;
    return command != NULL && (strcmp(command->name, "incr") == 0 || strcmp(command->name, "decr") == 0 ||
                               strcmp(command->name, "append") == 0);
}

static enum policy_verdict policy_request(void *instance, const struct policy_request *request,
                                          struct policy_decision *decision)
{
    struct ledger *ledger = instance;

    if (strcmp(request->command->name, "decr") == 0) {
        decision->length = (size_t)snprintf(decision->text, sizeof decision->text, MODEL_REFUSAL);
        return POLICY_REPLY;
    }
    ledger->owed += *request->ticket == 0;
    *request->ticket += 1;
    if (strcmp(request->command->name, "incr") == 0 && *request->ticket == 1) {
        decision->hold_until_us = request->now_us;
        return POLICY_HOLD;
    }
    return request->partial ? POLICY_WHOLE : POLICY_PASS;
}

static void policy_reply(void *instance, const struct policy_reply *reply)
{
    struct ledger *ledger = instance;

    require(reply->ticket > 0);
    ledger->owed--;
}

/* ---- measuring ---- */

#define UNKNOWN_TAG 1
#define FIRST_TAG 2

static uint32_t policy_tag(void *instance, const struct command *command)
{
    (void)instance;
    return command == NULL ? UNKNOWN_TAG : FIRST_TAG + (uint32_t)command_index(command);
}

static struct policy_attention policy_attends(void *instance)
{
    (void)instance;
    return (struct policy_attention){.us = 1000000, .bytes = 48, .heads = true};
}

/* The bytes that are shown are those of a request under that tag. */
static void check_head(const struct policy_sample *sample)
{
    struct resp_walk walk = resp_walk_start(sample->head);
    struct slice name = {0};

    if (sample->head.length == POLICY_HEAD_MAX || sample->is_local) {
        return;
    }
    require(sample->count == 1 && resp_walk_next(&walk, &name));
    /* Redis may not have told what a renamed command is. */
    require(policy_tag(NULL, command_find(name)) == sample->tag ||
            policy_tag(NULL, command_find(model_own_name(name))) == sample->tag);
}

static bool policy_sample(void *instance, const struct policy_sample *sample)
{
    (void)instance;
    require(sample->count > 0 && sample->errors <= sample->count && sample->tag > 0);
    require(sample->received_us > 0 && sample->answered_us >= sample->received_us);
    require(sample->count == 1 || (sample->reply_bytes < UINT64_C(48) * sample->count && !sample->is_local));
    if (sample->head.length > 0) {
        check_head(sample);
    }
    return true;
}

static void policy_written(void *instance, const struct policy_sample *sample)
{
    (void)instance;
    require(sample->count == 1 && sample->client != NULL);
}

static const struct policy_gate ledger_gate = {
    .wants = policy_wants,
    .on_request = policy_request,
    .on_reply = policy_reply,
};

static const struct policy ledger_policy = {
    .name = "ledger",
    .gate = &ledger_gate,
    .start = policy_start,
    .stop = policy_stop,
};

static const struct policy_observer meter_observer = {
    .tag = policy_tag,
    .attends = policy_attends,
    .on_sample = policy_sample,
    .on_written = policy_written,
};

static const struct policy meter_policy = {
    .name = "meter",
    .gate = &ledger_gate,
    .observer = &meter_observer,
    .start = policy_start,
    .stop = policy_stop,
};

const struct policy *const ledger_policies[] = {&ledger_policy, NULL};
const struct policy *const meter_policies[] = {&meter_policy, NULL};
