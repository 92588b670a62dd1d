/* What is said to Redis: the scripts of global rules, their keys and arguments. */
#include "limit/limit_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The scripts that are asked, by algorithm, and what their states are called. */
static const char *const kinds[] = {[LIMIT_SLIDING_WINDOW] = "slots", [LIMIT_FUNNEL] = "funnel"};
static const char *const questions[] = {[LIMIT_SLIDING_WINDOW] = "limit_slots", [LIMIT_FUNNEL] = "limit_funnel"};

struct limit_state limit_script_state(const struct limit_rule *rule, struct slice bucket)
{
    struct limit_state state = {
        .algorithm = rule->meter.algorithm, .window_us = rule->meter.window.length_us, .leak = rule->leak};
    int length =
        snprintf(state.key, LIMIT_STATE_KEY_MAX, "%shist:%s:%s:", rule->prefix, kinds[state.algorithm], rule->name);

    memcpy(state.key + length, bucket.data, bucket.length);
    state.key_length = (size_t)length + bucket.length;
    return state;
}

#define NUMBER_MAX 24
/* Of the scripts of limits, with the key. */
#define ARGUMENTS_MAX 8

/* Arguments of a script, with room for their texts. */
struct arguments {
    size_t count;
    struct slice slices[ARGUMENTS_MAX];
    char numbers[ARGUMENTS_MAX][NUMBER_MAX];
};

static void add_slice(struct arguments *arguments, struct slice slice)
{
    arguments->slices[arguments->count++] = slice;
}

static void add_number(struct arguments *arguments, int64_t number)
{
    char *text = arguments->numbers[arguments->count];
    int length = snprintf(text, NUMBER_MAX, "%" PRId64, number);

    add_slice(arguments, (struct slice){text, (size_t)length});
}

/* *is_known: whether it was sent whole before. The first is not answered by NOSCRIPT: from afar that would cost what is
 * left of decision_timeout, and what is sent behind a change would overtake it. */
static void run(struct limit_call *call, const char *script, bool *is_known, const struct arguments *arguments,
                policy_script_done *done)
{
    const struct policy_host *host = call->limit->host;
    const struct policy_script asked = {
        .script = script_find(script),
        .arguments = arguments->slices,
        .argument_count = arguments->count,
        .key_count = 1,
        .is_sent_whole = !*is_known,
        .done = done,
        .context = call,
    };

    *is_known = true;
    policy_count(&call->limit->counters[LIMIT_COUNTER_SCRIPT_CALLS], 1);
    host->run_script(host->context, &asked);
}

static struct arguments arguments_of(const struct limit_state *state)
{
    return (struct arguments){.count = 1, .slices = {{state->key, state->key_length}}};
}

/* The rate of a funnel, or the length of the window. */
static void add_rate(struct arguments *arguments, const struct limit_state *state)
{
    if (state->algorithm == LIMIT_FUNNEL) {
        add_number(arguments, state->leak.amount);
        add_number(arguments, state->leak.period_us);
    } else {
        add_number(arguments, state->window_us);
    }
}

void limit_script_ask(struct limit_call *call, policy_script_done *done)
{
    struct arguments arguments = arguments_of(&call->state);

    add_number(&arguments, call->rule->meter.most);
    add_rate(&arguments, &call->state);
    add_number(&arguments, call->wanted);
    add_number(&arguments, call->cost);
    add_number(&arguments, limit_rule_hold_us(call->rule));
    run(call, questions[call->state.algorithm], &call->limit->is_known[call->state.algorithm], &arguments, done);
}

void limit_script_give_back(struct limit_call *call, int64_t count, int64_t mark, policy_script_done *done)
{
    struct arguments arguments = arguments_of(&call->state);

    add_slice(&arguments, slice_of(kinds[call->state.algorithm]));
    add_number(&arguments, count);
    add_number(&arguments, mark);
    add_rate(&arguments, &call->state);
    run(call, "limit_return", &call->limit->is_known[2], &arguments, done);
}

void limit_script_forget(struct limit_call *call, policy_script_done *done)
{
    struct arguments arguments = arguments_of(&call->state);
    bool is_known = false; /* always whole: it is short */

    run(call, "limit_forget", &is_known, &arguments, done);
}
