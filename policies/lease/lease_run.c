#include "lease/lease_run.h"

/* Takes a mark, digits, CR and LF. */
static bool take_line(struct lease_run *run, char mark, uint64_t *number)
{
    const char *at = run->next;
    uint64_t sum = 0;

    if (run->end - at < 4 || *at != mark) {
        return false;
    }
    for (at++; at < run->end && *at >= '0' && *at <= '9'; at++) {
        if (sum > UINT32_MAX) {
            return false;
        }
        sum = sum * 10 + (uint64_t)(*at - '0');
    }
    if (at == run->next + 1 || run->end - at < 2 || at[0] != '\r' || at[1] != '\n') {
        return false;
    }
    run->next = at + 2;
    *number = sum;
    return true;
}

bool lease_run_take(struct lease_run *run, struct slice *argument)
{
    uint64_t length;

    if (run->left == 0) {
        return false;
    }
    if (!take_line(run, '$', &length) || (uint64_t)(run->end - run->next) < length + 2 || run->next[length] != '\r' ||
        run->next[length + 1] != '\n') {
        run->left = 0;
        return false;
    }
    *argument = (struct slice){run->next, length};
    run->next += length + 2;
    run->left--;
    return true;
}

bool lease_run_next(struct lease_run *run, struct slice *argument)
{
    struct slice passed_over;

    if (!lease_run_take(run, argument)) {
        return false;
    }
    for (uint32_t i = 1; i < run->step && run->left > 0; i++) {
        (void)lease_run_take(run, &passed_over);
    }
    return true;
}

bool lease_run_begin(struct lease_run *run, struct slice frame)
{
    uint64_t count;
    struct slice name;

    if (frame.length == 0) {
        return false;
    }
    *run = (struct lease_run){.next = frame.data, .end = frame.data + frame.length, .step = 1};
    if (!take_line(run, '*', &count) || count == 0 || count > RESP_ARGUMENTS_MAX) {
        return false;
    }
    run->left = (uint32_t)count;
    return lease_run_take(run, &name);
}

bool lease_run_skip(struct lease_run *run, uint64_t count)
{
    struct slice passed_over;

    while (count > 0 && lease_run_take(run, &passed_over)) {
        count--;
    }
    return count == 0;
}

bool lease_run_at(struct lease_run run, uint32_t place, struct slice *argument)
{
    return lease_run_skip(&run, place - 1) && lease_run_take(&run, argument);
}
