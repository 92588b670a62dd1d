/*
 * What TRACE, MONITOR and TOP may cost clients. Requests that are looked at take time by themselves, and go alone where
 * they would have gone with their neighbours. All of that is taken from a credit, which time fills again: so bursts are
 * seen whole, and of more than that a part, while clients have the rest of the worker's time. Without credit requests
 * pass as if nobody watched, until there is enough for the next look.
 */
#include "trace/trace_private.h"

#include "base/clock.h"

/* Of the worker's time, one part of so many. */
#define SHARE 200
#define CREDIT_MAX_US INT64_C(50000)
/* With so much of it requests are looked at again. */
#define CREDIT_ENOUGH_US INT64_C(2000)
/* What a request costs for going alone, beside what is measured. µs. */
#define ALONE_US 2
/* What took longer was interrupted by something else. µs. */
#define LOOK_MAX_US 50

void trace_budget_start(struct trace *trace)
{
    trace->credit_us = CREDIT_MAX_US;
}

int64_t trace_budget_clock(void)
{
    return clock_now_us();
}

void trace_budget_spend(struct trace *trace, int64_t us)
{
    trace->credit_us -= us;
    if (trace->credit_us <= 0 && !trace->is_spent) {
        trace->is_spent = true;
        trace->spent_us = trace->host->now_us(trace->host->context);
        policy_count(&trace->counters[TRACE_COUNTER_PAUSES], 1);
    }
}

void trace_budget_looked(struct trace *trace, int64_t since_us, bool is_request)
{
    int64_t us = clock_now_us() - since_us;

    trace_budget_spend(trace, (us < LOOK_MAX_US ? us : LOOK_MAX_US) + (is_request ? ALONE_US : 0));
}

int64_t trace_budget_unseen(const struct trace *trace, int64_t now_us)
{
    return trace->unseen_us + (trace->is_spent ? now_us - trace->spent_us : 0);
}

void trace_budget_tick(struct trace *trace, int64_t now_us)
{
    int64_t passed_us = trace->filled_us > 0 ? now_us - trace->filled_us : 0;
    int64_t credit_us = trace->credit_us + passed_us / SHARE;

    trace->filled_us = now_us;
    trace->credit_us = credit_us < CREDIT_MAX_US ? credit_us : CREDIT_MAX_US;
    if (trace->is_spent && trace->credit_us >= CREDIT_ENOUGH_US) {
        trace->unseen_us = trace_budget_unseen(trace, now_us);
        trace->is_spent = false;
    }
    if (trace->is_spent != trace->was_spent) {
        trace->was_spent = trace->is_spent;
        trace_changed(trace);
    }
}
