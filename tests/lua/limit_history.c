/* All that a test was granted, and what it is judged by. */
#include "limit_history.h"

#include <criterion/criterion.h>
#include <stdlib.h>

struct history history;

void remember(int64_t first_us, int64_t last_us, int64_t count)
{
    cr_assert_lt(history.count, HISTORY_MAX);
    history.grants[history.count++] = (struct grant){first_us, last_us, count};
}

void forget_until(int64_t until_us)
{
    size_t kept = 0;

    for (size_t i = 0; i < history.count; i++) {
        if (history.grants[i].last_us > until_us) {
            history.grants[kept++] = history.grants[i];
        }
    }
    history.count = kept;
}

int64_t spent_after(int64_t after_us)
{
    int64_t sum = 0;

    for (size_t i = 0; i < history.count; i++) {
        sum += history.grants[i].last_us > after_us ? history.grants[i].count : 0;
    }
    return sum;
}

/*
 * Each permit of a lease is spent when it suits who wants to break the limit. For the window that begins at a lease's
 * last moment that is any moment they have in common; no other window can hold more.
 */
void assert_no_window_holds_more(struct window window)
{
    for (size_t i = 0; i < history.count; i++) {
        int64_t begins_us = history.grants[i].last_us, sum = 0;
        for (size_t j = 0; j < history.count; j++) {
            const struct grant *grant = &history.grants[j];
            sum += grant->last_us >= begins_us && grant->first_us < begins_us + window.length_us ? grant->count : 0;
        }
        cr_assert_leq(sum, window.limit, "%" PRId64 " in a window", sum);
    }
}

static int by_first(const void *left, const void *right)
{
    const struct grant *a = left, *b = right;

    return (a->first_us > b->first_us) - (a->first_us < b->first_us);
}

void assert_never_runs_over(struct funnel funnel, int spender)
{
    static struct history spent;
    double level = 0;
    int64_t time_us = EPOCH;

    spent = history;
    for (size_t i = 0; i < spent.count; i++) {
        struct grant *grant = &spent.grants[i];
        int64_t hold_us = grant->last_us - grant->first_us;
        grant->first_us += spender == 0 ? 0 : spender == 1 ? hold_us : chance(hold_us + 1);
    }
    qsort(spent.grants, spent.count, sizeof spent.grants[0], by_first);
    for (size_t i = 0; i < spent.count; i++) {
        const struct grant *grant = &spent.grants[i];
        level -= (double)(grant->first_us - time_us) * (double)funnel.leak / (double)funnel.period_us;
        level = (level < 0 ? 0 : level) + (double)grant->count;
        time_us = grant->first_us;
        cr_assert_leq(level, (double)funnel.capacity + 1e-6);
    }
}
