/* What is said to Redis: the scripts of global rules, their keys and arguments. */
#include "limit/limit_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A log has a member for each permit; larger limits have slots. */
#define LOG_LIMIT_MAX 128
/* See age_bound(). */
#define RETURN_MARGIN_US 1000000

static const char *const kind_names[] = {
    [LIMIT_STATE_LOG] = "log", [LIMIT_STATE_SLOTS] = "slots", [LIMIT_STATE_FUNNEL] = "funnel"};

static enum limit_state_kind kind_of(const struct limit_rule *rule)
{
    if (rule->meter.algorithm == LIMIT_FUNNEL) {
        return LIMIT_STATE_FUNNEL;
    }
    bool few = rule->meter.most <= LOG_LIMIT_MAX && rule->cost == LIMIT_COST_ONE;
    return few && rule->accuracy == LIMIT_EXACT ? LIMIT_STATE_LOG : LIMIT_STATE_SLOTS;
}

struct limit_state limit_script_state(const struct limit_rule *rule, struct slice bucket)
{
    struct limit_state state = {.kind = kind_of(rule), .window_us = rule->meter.window.length_us, .leak = rule->leak};
    int length =
        snprintf(state.key, LIMIT_STATE_KEY_MAX, "%shist:%s:%s:", rule->prefix, kind_names[state.kind], rule->name);

    memcpy(state.key + length, bucket.data, bucket.length);
    state.key_length = (size_t)length + bucket.length;
    return state;
}

#define NUMBER_MAX 24
#define ID_MAX 48
/* Of the scripts of limits, with the key. */
#define ARGUMENTS_MAX 8

/* Arguments of a script, with room for their texts. */
struct arguments {
    size_t count;
    struct slice slices[ARGUMENTS_MAX];
    char numbers[ARGUMENTS_MAX][NUMBER_MAX];
    char id[ID_MAX];
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

/* A name for the permits of a call that no other call has. */
static void add_id(struct arguments *arguments, const struct limit *limit, uint64_t number)
{
    int length = snprintf(arguments->id, ID_MAX, "%016" PRIx64 "-%" PRIu64, limit->process_id, number);

    add_slice(arguments, (struct slice){arguments->id, (size_t)length});
}

static void run(struct limit *limit, const char *script, const struct arguments *arguments, policy_script_done *done,
                void *context)
{
    const struct policy_script call = {
        .script = script_find(script),
        .arguments = arguments->slices,
        .argument_count = arguments->count,
        .key_count = 1,
        .done = done,
        .context = context,
    };

    policy_count(&limit->counters[LIMIT_COUNTER_SCRIPT_CALLS], 1);
    limit->host->run_script(limit->host->context, &call);
}

void limit_script_ask(struct limit *limit, struct limit_call *call, policy_script_done *done)
{
    static const char *const scripts[] = {
        [LIMIT_STATE_LOG] = "limit_log", [LIMIT_STATE_SLOTS] = "limit_slots", [LIMIT_STATE_FUNNEL] = "limit_funnel"};
    const struct limit_rule *rule = call->rule;
    enum limit_state_kind kind = call->state.kind;
    struct arguments arguments = {0};

    add_slice(&arguments, (struct slice){call->state.key, call->state.key_length});
    add_number(&arguments, rule->meter.most);
    if (kind == LIMIT_STATE_FUNNEL) {
        add_number(&arguments, rule->leak.amount);
        add_number(&arguments, rule->leak.period_us);
    } else {
        add_number(&arguments, rule->meter.window.length_us);
    }
    add_number(&arguments, call->wanted);
    add_number(&arguments, call->least);
    add_number(&arguments, limit_rule_hold_us(rule));
    if (kind == LIMIT_STATE_LOG) {
        add_id(&arguments, limit, call->number);
    }
    run(limit, scripts[kind], &arguments, done, call);
}

static void returned(void *context, const struct policy_script_reply *reply)
{
    (void)context;
    (void)reply;
    /* What could not be given back is counted as spent: there is less than the limit, never more. */
}

/* How long the permits' asking may be ago when Redis gets them back; rather more than less, or others' would be taken
 * for them. */
static int64_t age_bound(const struct limit_state *state, int64_t age_us)
{
    int64_t margin_us = state->window_us / 4;

    return age_us + (margin_us < RETURN_MARGIN_US ? margin_us : RETURN_MARGIN_US);
}

/* Of a funnel: what may have leaked out of it meanwhile is not given back, unless that is next to nothing: a hundredth
 * of a drop would cost a request its place. */
static int64_t funnel_age(const struct limit_state *state, int64_t age_us)
{
    return (double)age_us * (double)state->leak.amount * 100 < (double)state->leak.period_us ? 0 : age_us;
}

void limit_script_give_back(struct limit *limit, const struct limit_state *state, struct limit_grant grant)
{
    int64_t age_us = limit->host->now_us(limit->host->context) - grant.asked_us;
    struct arguments arguments = {0};

    add_slice(&arguments, (struct slice){state->key, state->key_length});
    add_slice(&arguments, slice_of(kind_names[state->kind]));
    add_number(&arguments, grant.count);
    switch (state->kind) {
    case LIMIT_STATE_LOG:
        add_id(&arguments, limit, grant.call);
        add_number(&arguments, grant.first);
        break;
    case LIMIT_STATE_SLOTS:
        add_number(&arguments, age_bound(state, age_us));
        add_number(&arguments, state->window_us);
        break;
    case LIMIT_STATE_FUNNEL:
        add_number(&arguments, funnel_age(state, age_us));
        add_number(&arguments, state->leak.amount);
        add_number(&arguments, state->leak.period_us);
        break;
    }
    run(limit, "limit_return", &arguments, returned, NULL);
}

void limit_script_forget(struct limit *limit, const struct limit_rule *rule, struct slice bucket)
{
    struct limit_state state = limit_script_state(rule, bucket);
    struct arguments arguments = {0};

    add_slice(&arguments, (struct slice){state.key, state.key_length});
    run(limit, "limit_forget", &arguments, returned, NULL);
}
