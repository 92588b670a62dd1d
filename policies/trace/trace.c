/* TRACE, MONITOR and TOP on the admin port: what clients do now. */
#include "trace/trace_private.h"

#include <stdlib.h>
#include <string.h>

static const struct policy_counter trace_counters[] = {
    [TRACE_COUNTER_STREAMS] = {"traces", STATS_GAUGE, "TRACE and MONITOR under way, on all workers"},
    [TRACE_COUNTER_LINES] = {"trace_lines_total", STATS_COUNTER, "requests that TRACE and MONITOR told of"},
    [TRACE_COUNTER_LOST] = {"trace_lost_total", STATS_COUNTER, "requests that they had no room for"},
    [TRACE_COUNTER_PAUSES] = {"trace_pauses_total", STATS_COUNTER,
                              "times that TRACE, MONITOR and TOP looked away, as they would cost clients too much"},
};

/* ---- requests ---- */

static void traced_free(struct trace *trace, struct traced *traced)
{
    LIST_REMOVE(traced, of_trace);
    trace->pending_count--;
    free(traced->head);
    free(traced->keys);
    free(traced);
}

/* What the line needs of the request. */
static void keep_texts(struct trace *trace, struct traced *traced, const struct trace_subject *subject)
{
    if (traced->streams == 0) {
        return;
    }
    traced->head = trace_head(subject);
    if (trace_streams_want_keys(trace, traced->streams)) {
        traced->keys = trace_keys(subject->request);
    }
}

/* NULL: there is no room. */
static struct traced *traced_new(struct trace *trace, const struct policy_request *request, uint32_t streams)
{
    struct traced *traced = trace->pending_count < TRACE_PENDING_MAX ? calloc(1, sizeof *traced) : NULL;

    if (traced != NULL) {
        traced->streams = streams;
        traced->is_counted = trace->top != NULL;
        traced->received_us = request->received_us;
        LIST_INSERT_HEAD(&trace->pending, traced, of_trace);
        trace->pending_count++;
    }
    return traced;
}

static enum policy_verdict look_at_request(struct trace *trace, const struct policy_request *request)
{
    char operation[TRACE_OPERATION_MAX];
    struct trace_subject subject = {.host = trace->host, .request = request, .operation = operation};

    trace_name_operation(request, operation);
    (void)match_request_bytes(request, &subject.bytes);
    uint32_t streams = trace_streams_want(trace, &subject);
    if (streams == 0 && trace->top == NULL) {
        return POLICY_ADMIT;
    }
    struct traced *traced = traced_new(trace, request, streams);
    if (traced == NULL) {
        trace_streams_lose(trace, streams);
        return POLICY_ADMIT;
    }
    keep_texts(trace, traced, &subject);
    if (traced->is_counted) {
        trace_top_count(trace, traced, &subject);
    }
    *request->ticket = (uint64_t)(uintptr_t)traced;
    return POLICY_PASS;
}

static enum policy_verdict trace_request(void *instance, const struct policy_request *request,
                                         struct policy_decision *decision)
{
    struct trace *trace = instance;

    (void)decision;
    if (trace->is_spent) {
        return POLICY_ADMIT;
    }
    int64_t since_us = trace_budget_clock();
    enum policy_verdict verdict = look_at_request(trace, request);
    trace_budget_looked(trace, since_us, true);
    return verdict;
}

/* What is not looked at goes with its neighbours at once, before it is said which commands are wanted. */
static bool trace_concerns(void *instance, const struct policy_glance *glance)
{
    const struct trace *trace = instance;

    (void)glance;
    return !trace->is_spent;
}

static void trace_step(void *instance, const struct policy_step *step)
{
    static const enum trace_verdict verdicts[] = {
        [POLICY_STEP_HELD] = TRACE_HELD,
        [POLICY_STEP_ANSWERED] = TRACE_ANSWERED,
        [POLICY_STEP_CLOSED] = TRACE_CLOSED,
    };
    struct traced *traced = (struct traced *)(uintptr_t)step->ticket;

    (void)instance;
    if (step->kind == POLICY_STEP_SENT) {
        traced->sent_us = step->now_us;
        traced->lane = step->lane;
        return;
    }
    bool is_refused = step->kind == POLICY_STEP_ANSWERED && step->rule != NULL;
    traced->verdict = is_refused ? TRACE_REFUSED : verdicts[step->kind];
    snprintf(traced->rule, sizeof traced->rule, "%s%s%s", step->policy, step->rule != NULL ? ":" : "",
             step->rule != NULL ? step->rule : "");
}

/* What a reply says that no gate has said. */
static void judge(struct traced *traced, enum policy_outcome outcome)
{
    bool is_open = traced->verdict == TRACE_PASSED || traced->verdict == TRACE_HELD;

    if (outcome == POLICY_OUTCOME_LOST) {
        traced->verdict = TRACE_LOST;
    } else if (is_open && outcome == POLICY_OUTCOME_LOCAL) {
        traced->verdict = TRACE_ANSWERED;
    } else if (is_open && outcome == POLICY_OUTCOME_OWNERLESS) {
        traced->verdict = TRACE_LEFT;
    }
}

static void trace_reply(void *instance, const struct policy_reply *reply)
{
    struct trace *trace = instance;
    struct traced *traced = (struct traced *)(uintptr_t)reply->ticket;
    const struct trace_subject subject = {.host = trace->host, .traced = traced, .reply = reply};
    int64_t since_us = trace_budget_clock();

    judge(traced, reply->outcome);
    trace_streams_tell(trace, traced->streams, &subject);
    if (traced->is_counted) {
        trace_top_end(trace, traced, reply);
    }
    traced_free(trace, traced);
    trace_budget_looked(trace, since_us, false);
}

static bool trace_wants(void *instance, const struct command *command)
{
    const struct trace *trace = instance;

    (void)command;
    return (trace->stream_count > 0 || trace->top != NULL) && !trace->is_spent;
}

/* ---- life ---- */

static void *trace_start(const struct policy_start *start)
{
    struct trace *trace = calloc(1, sizeof *trace);

    if (trace != NULL) {
        trace->host = start->host;
        trace->shared = start->shared;
        trace->counters = start->counters;
        trace_budget_start(trace);
        trace->chance = ((uint64_t)start->host->worker << 32) ^ UINT64_C(0x9e3779b97f4a7c15);
    }
    return trace;
}

static void trace_stop(void *instance)
{
    struct trace *trace = instance;

    while (!LIST_EMPTY(&trace->pending)) {
        traced_free(trace, LIST_FIRST(&trace->pending));
    }
    trace_streams_free(trace);
    trace_top_free(trace);
    free(trace);
}

static void trace_tick(void *instance, int64_t now_us)
{
    trace_budget_tick(instance, now_us);
    trace_top_tick(instance, now_us);
}

static void trace_stats(void *instance)
{
    struct trace *trace = instance;

    atomic_store_explicit(&trace->counters[TRACE_COUNTER_STREAMS], trace->stream_count, memory_order_relaxed);
}

#define TRACE_WORDS "[field=value ...] [SAMPLE 1/n or n%] [FOR seconds] [COUNT n] [KEYS]"

static const struct policy_verb trace_verbs[] = {
    {.name = "TRACE",
     .least = 1,
     .most = 16,
     .usage = "TRACE " TRACE_WORDS,
     .help =
         "a line for each request of the next seconds, or for some of them: whose, what, how long, what became of it",
     .effect = POLICY_VERB_READS,
     .stream = &trace_stream_gathered},
    {.name = "MONITOR",
     .least = 1,
     .most = 16,
     .usage = "MONITOR " TRACE_WORDS,
     .help = "the same, line by line as it happens, and closes the connection at the end: for redis-cli",
     .effect = POLICY_VERB_READS,
     .stream = &trace_stream_told},
    {.name = "TOP",
     .least = 1,
     .most = 6,
     .usage = "TOP [seconds] [COUNT n] [BY requests or bytes or time]",
     .help = "the busiest clients, operations and keys of the next seconds",
     .effect = POLICY_VERB_READS,
     .ask = trace_top_ask},
};

static const struct policy_gate trace_gate = {
    .ignores_clients = true,
    .wants = trace_wants,
    .on_request = trace_request,
    .on_reply = trace_reply,
    .concerns = trace_concerns,
    .on_step = trace_step,
};

const struct policy trace_policy = {
    .name = "trace",
    .gate = &trace_gate,
    .counter_section = "Trace",
    .counters = trace_counters,
    .counter_count = sizeof trace_counters / sizeof trace_counters[0],
    .verbs = trace_verbs,
    .verb_count = sizeof trace_verbs / sizeof trace_verbs[0],
    .share = trace_top_share,
    .unshare = trace_top_unshare,
    .start = trace_start,
    .stop = trace_stop,
    .on_tick = trace_tick,
    .on_stats = trace_stats,
};
