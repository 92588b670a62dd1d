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

void latency_tally_add(struct latency_tally_list *list, int64_t second, uint64_t count)
{
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

void latency_tally_write(const struct latency_tally_list *list, int64_t second, char text[LATENCY_TALLY_TEXT_MAX])
{
    size_t length = 0;

    text[0] = '\0';
    for (size_t i = 0; i < list->length; i++) {
        length +=
            (size_t)snprintf(text + length, LATENCY_TALLY_TEXT_MAX - length, "%s%" PRId64 " %" PRIu64, i > 0 ? " " : "",
                             latency_age_s(second, list->seconds[i].second), list->seconds[i].count);
    }
}
