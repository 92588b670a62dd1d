/* All that a test was granted: what a limit is judged by. */
#ifndef HEADGATE_TESTS_LIMIT_HISTORY_H
#define HEADGATE_TESTS_LIMIT_HISTORY_H

#include "limit_fixture.h"

/* So many permits, and when they may be spent. */
struct grant {
    int64_t first_us;
    int64_t last_us;
    int64_t count;
};

#define HISTORY_MAX 20000

struct history {
    size_t count;
    struct grant grants[HISTORY_MAX];
};

/* Of the test at hand, which empties it. */
extern struct history history;

void remember(int64_t first_us, int64_t last_us, int64_t count);
/* Forgets what can be spent no later than that. */
void forget_until(int64_t until_us);
/* How many may be spent later than that. */
int64_t spent_after(int64_t after_us);

/* No window holds more than its limit, whenever permits are spent. */
void assert_no_window_holds_more(struct window window);
/* Fills a funnel with what was granted, in the order in which it is spent: it must never run over. spender 0: spends
 * permits as soon as it may; 1: as late as it may; else at any time between. */
void assert_never_runs_over(struct funnel funnel, int spender);

#endif
