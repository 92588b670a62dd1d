#include "latency/latency_tally.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Joins the two oldest, under the later one's second. */
static void join_oldest(struct latency_tally_list *list)
{
    list->seconds[1].count += list->seconds[0].count;
    list->length--;
    memmove(&list->seconds[0], &list->seconds[1], list->length * sizeof list->seconds[0]);
}

void latency_tally_add(struct latency_tally *tally, int64_t second, uint64_t count)
{
    struct latency_tally_list *list = &tally->waiting;

    if (count == 0) {
        return;
    }
    if (list->length > 0 && list->seconds[list->length - 1].second == second) {
        list->seconds[list->length - 1].count += count;
        return;
    }
    if (list->length == LATENCY_TALLY_SECONDS) {
        join_oldest(list);
    }
    list->seconds[list->length++] = (struct latency_tally_second){second, count};
}

int64_t latency_age_s(int64_t now, int64_t second)
{
    return now > second ? now - second : 0;
}

uint64_t latency_tally_take(struct latency_tally *tally, int64_t second, char text[LATENCY_TALLY_TEXT_MAX])
{
    struct latency_tally_list *list = &tally->snapshot;
    size_t length = 0;

    if (list->length == 0 && tally->waiting.length == 0) {
        return 0;
    }
    if (list->length == 0) {
        *list = tally->waiting;
        tally->waiting.length = 0;
        tally->number++;
    }
    for (size_t i = 0; i < list->length; i++) {
        length +=
            (size_t)snprintf(text + length, LATENCY_TALLY_TEXT_MAX - length, "%s%" PRId64 " %" PRIu64, i > 0 ? " " : "",
                             latency_age_s(second, list->seconds[i].second), list->seconds[i].count);
    }
    return tally->number;
}

void latency_tally_acknowledge(struct latency_tally *tally)
{
    tally->snapshot.length = 0;
}
