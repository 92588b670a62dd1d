/* Messages that wait for Redis: what they say, that none is lost, and that there are not too many. */
#include "latency/latency_message.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static uint64_t sum_of(const struct latency_message_list *list)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < list->length; i++) {
        sum += list->messages[i].times;
    }
    return sum;
}

static void assert_message(const struct latency_message_list *list, size_t at, const char *text, uint64_t times,
                           int64_t second)
{
    cr_assert_lt(at, list->length);
    cr_assert_str_eq(list->messages[at].text, text);
    cr_assert_eq(list->messages[at].times, times);
    cr_assert_eq(list->messages[at].second, second);
}

Test(latency_message, is_cut)
{
    char text[LATENCY_MESSAGE_MAX + 1], what[1000];

    memset(what, 'x', sizeof what);
    what[sizeof what - 1] = '\0';
    latency_message_write("lease", "jobs", what, text);
    cr_assert_eq(strlen(text), LATENCY_MESSAGE_MAX);
    cr_assert_eq(strncmp(text, "lease:jobs xxx", 14), 0);
    latency_message_write(what, "jobs", "gone", text);
    cr_assert_eq(strlen(text), LATENCY_MESSAGE_MAX);
    struct latency_message_list list = {0};
    latency_message_add(&list, text, 1, 1);
    latency_message_add(&list, text, 1, 2);
    assert_message(&list, 0, text, 2, 2);
}

/* Whatever comes first, "other" among them. */
Test(latency_message, those_beyond_are_others_and_none_is_lost)
{
    char text[32];

    for (size_t others_at = 0; others_at < 40; others_at++) {
        struct latency_message_list list = {0};
        for (size_t i = 0; i < 40; i++) {
            snprintf(text, sizeof text, "message %zu", i);
            latency_message_add(&list, i == others_at ? "other" : text, i + 1, 5);
        }
        cr_assert_eq(list.length, LATENCY_MESSAGES);
        cr_assert_eq(sum_of(&list), 40 * 41 / 2);
        size_t others = 0;
        for (size_t i = 0; i < list.length; i++) {
            others += strcmp(list.messages[i].text, "other") == 0;
        }
        cr_assert_eq(others, 1);
    }
}
