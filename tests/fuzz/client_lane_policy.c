/* The policy: INCR is held once, DECR is refused, APPEND passes when it is whole; all that it let go must come back. */
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

static const struct policy policy = {
    .name = "ledger",
    .start = policy_start,
    .stop = policy_stop,
    .wants = policy_wants,
    .on_request = policy_request,
    .on_reply = policy_reply,
};

const struct policy *const ledger_policies[] = {&policy, NULL};
