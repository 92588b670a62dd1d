/* What two processes tell each other of how long requests took. */
#include "base/text.h"
#include "latency_fixture.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ON "[latency]\nenabled = on\n"

/* One piece of what a process tells; the number to go on with, and the text behind it. */
static uint64_t tell(struct latency_fixture *from, const char *what, uint64_t at, struct text_stream *text)
{
    char cursor[24];
    uint64_t next;

    snprintf(cursor, sizeof cursor, "%" PRIu64, at);
    const struct slice arguments[] = {slice_of("TELL"), slice_of(what), slice_of(cursor)};
    cr_assert(text_open(text));
    cr_assert_eq(latency_policy.twin->tell.run(from->workers[0].instance, 3, arguments, text->out), POLICY_ANSWER_TEXT);
    cr_assert(text_close(text));
    cr_assert_leq(text->length, POLICY_TWIN_TEXT_MAX);
    const char *end = memchr(text->bytes, '\n', text->length);
    cr_assert_not_null(end);
    next = strtoull(text->bytes, NULL, 10);
    size_t taken = (size_t)(end + 1 - text->bytes);
    text->length -= taken;
    memmove(text->bytes, end + 1, text->length);
    return next;
}

static void hear(struct latency_fixture *to, const char *bytes, size_t length)
{
    const struct slice arguments[] = {slice_of("HEAR"), {bytes, length}};

    cr_assert_eq(latency_policy.twin->hear.run(to->workers[0].instance, 2, arguments, NULL), POLICY_ANSWER_OK);
}

/* All of it, in so many pieces as it takes. Returns how many bytes. */
static size_t pass_on(struct latency_fixture *from, struct latency_fixture *to, const char *what)
{
    uint64_t at = 0;
    size_t bytes = 0, pieces = 0;

    do {
        struct text_stream text;
        at = tell(from, what, at, &text);
        bytes += text.length;
        hear(to, text.bytes, text.length);
        text_free(&text);
        cr_assert_lt(++pieces, 10000);
    } while (at != 0);
    return bytes;
}

static void request(struct latency_fixture *fixture, const char *words, int64_t us, size_t times)
{
    for (size_t i = 0; i < times; i++) {
        fixture_request(fixture, 0, words, us);
    }
}

static void assert_line(struct latency_fixture *fixture, const char *operation, const char *line)
{
    char words[128];

    snprintf(words, sizeof words, "LATENCY %s", operation);
    const char *answer = fixture_ask(fixture, 0, words);
    cr_assert(says(answer, line), "%s: %s", operation, answer);
}

/* What LATENCY says, which may take some ticks. */
static const char *latency_of(struct latency_fixture *fixture)
{
    const char *answer = fixture_ask(fixture, 0, "LATENCY");

    for (size_t i = 0; answer == NULL && i < 10; i++) {
        size_t answers = fixture->answers;
        fixture_tick(fixture, 100000);
        answer = fixture->answers > answers ? fixture->answer : NULL;
    }
    cr_assert_not_null(answer);
    return answer;
}

static void assert_same(struct latency_fixture *one, struct latency_fixture *other)
{
    char *answer = strdup(latency_of(one));

    cr_assert_str_eq(answer, latency_of(other));
    free(answer);
}

/* ---- what metrics show ---- */

struct shown {
    const char *operation;
    uint64_t count;
    uint64_t in_buckets;
};

static void note_shown(void *context, const struct policy_durations *durations)
{
    struct shown *shown = context;

    if (strcmp(durations->operation, shown->operation) == 0) {
        shown->count = durations->count;
        for (size_t i = 0; i < POLICY_DURATION_BUCKETS; i++) {
            shown->in_buckets += durations->buckets[i];
        }
    }
}

static uint64_t shown(struct latency_fixture *fixture, const char *operation)
{
    struct shown shown = {.operation = operation};
    uint32_t at = 0;

    while (latency_policy.observer->tell_durations(fixture->workers[0].instance, &at, note_shown, &shown)) {
    }
    cr_assert_eq(shown.count, shown.in_buckets);
    return shown.count;
}

/* ---- tests ---- */

Test(latency_twin, everything_is_told)
{
    struct latency_fixture old, fresh;

    fixture_start(&old, ON, 2);
    fixture_start(&fresh, ON, 1);
    request(&old, "GET k", 100, 5);
    request(&old, "GET k", 3000000, 1);
    request(&old, "SET k v", 7, 1);
    fixture_request(&old, 1, "CONFIG GET maxmemory", 1);
    fixture_request(&old, 1, "WHAT is that", 1);
    fixture_tick(&old, 10000000);
    (void)pass_on(&old, &fresh, "ALL");
    assert_same(&old, &fresh);
    assert_line(&fresh, "get", " count=6 ");
    request(&fresh, "GET k", 100, 1);
    assert_line(&fresh, "get", " count=7 ");
    fixture_stop(&old);
    fixture_stop(&fresh);
}

Test(latency_twin, what_is_new_is_told_once_and_never_back)
{
    struct latency_fixture old, fresh;

    fixture_start(&old, ON, 1);
    fixture_start(&fresh, ON, 1);
    request(&old, "GET k", 100, 3);
    (void)pass_on(&old, &fresh, "ALL");
    for (size_t i = 0; i < 5; i++) {
        request(&old, "GET k", 200, 1);
        request(&fresh, "GET k", 300, 2);
        (void)pass_on(&old, &fresh, "NEWS");
        (void)pass_on(&fresh, &old, "NEWS");
    }
    assert_same(&old, &fresh);
    assert_line(&old, "get", " count=18 ");
    cr_assert_eq(pass_on(&old, &fresh, "NEWS"), 0);
    cr_assert_eq(pass_on(&fresh, &old, "NEWS"), 0);
    fixture_stop(&old);
    fixture_stop(&fresh);
}

Test(latency_twin, what_was_heard_is_not_put_on_record)
{
    struct latency_fixture old, fresh;

    fixture_start(&old, ON, 1);
    fixture_start(&fresh, ON, 1);
    request(&old, "GET k", 100, 3);
    (void)pass_on(&old, &fresh, "ALL");
    fixture_tick(&fresh, 10000000);
    cr_assert_null(fixture_call(&fresh, "latency_flush"));
    cr_assert_eq(fixture_counter(&fresh, "latency_samples_total"), 0);
    cr_assert_eq(fixture_counter(&fresh, "latency_minutes_waiting"), 0);
    fixture_stop(&old);
    fixture_stop(&fresh);
}

Test(latency_twin, a_new_process_that_failed_changes_nothing)
{
    struct latency_fixture old, failed, fresh;

    fixture_start(&old, ON, 1);
    fixture_start(&failed, ON, 1);
    fixture_start(&fresh, ON, 1);
    request(&old, "GET k", 100, 3);
    (void)pass_on(&old, &failed, "ALL");
    request(&old, "GET k", 100, 1);
    (void)pass_on(&old, &fresh, "ALL");
    cr_assert_eq(pass_on(&old, &fresh, "NEWS"), 0);
    assert_line(&fresh, "get", " count=4 ");
    fixture_stop(&old);
    fixture_stop(&failed);
    fixture_stop(&fresh);
}

Test(latency_twin, metrics_show_no_more_than_the_other_process_knows)
{
    struct latency_fixture old, fresh;

    fixture_start(&old, ON, 1);
    fixture_start(&fresh, ON, 1);
    request(&old, "GET k", 100, 3);
    cr_assert_eq(shown(&old, "get"), 3);
    (void)pass_on(&old, &fresh, "ALL");
    request(&old, "GET k", 100, 2);
    request(&old, "SET k v", 100, 2);
    cr_assert_eq(shown(&old, "get"), 3);
    cr_assert_eq(shown(&old, "set"), 0);
    assert_line(&old, "get", " count=5 ");
    (void)pass_on(&old, &fresh, "NEWS");
    cr_assert_eq(shown(&old, "get"), 5);
    cr_assert_eq(shown(&old, "set"), 2);
    cr_assert_eq(shown(&fresh, "get"), 5);
    /* Nobody is told any more: all is shown. */
    request(&old, "GET k", 100, 1);
    cr_assert_eq(shown(&old, "get"), 5);
    fixture_pass(&old, 4000000);
    cr_assert_eq(shown(&old, "get"), 6);
    /* And it stays so until the other process, which has hung, or the next one is told of it. */
    struct text_stream text;
    (void)tell(&old, "NEWS", 60000, &text);
    text_free(&text);
    cr_assert_eq(shown(&old, "get"), 6);
    (void)pass_on(&old, &fresh, "NEWS");
    request(&old, "GET k", 100, 1);
    cr_assert_eq(shown(&old, "get"), 6);
    (void)tell(&old, "ALL", 100000, &text);
    text_free(&text);
    cr_assert_geq(shown(&old, "get"), 6);
    fixture_stop(&old);
    fixture_stop(&fresh);
}

Test(latency_twin, a_thousand_operations_are_told_in_pieces)
{
    struct latency_fixture old, fresh;
    char words[64];

    fixture_start(&old, ON "max_interfaces = 2000\n", 1);
    fixture_start(&fresh, ON "max_interfaces = 2000\n", 1);
    for (size_t i = 0; i < 600; i++) {
        snprintf(words, sizeof words, "LEARNED%zu k", i);
        for (size_t n = 0; n < 40; n++) {
            fixture_request(&old, 0, words, (int64_t)(1 + n * n * n * 17));
        }
    }
    cr_assert_gt(pass_on(&old, &fresh, "ALL"), POLICY_TWIN_TEXT_MAX);
    assert_same(&old, &fresh);
    fixture_stop(&old);
    fixture_stop(&fresh);
}

Test(latency_twin, what_has_no_room_is_counted_with_others)
{
    struct latency_fixture old, fresh;

    fixture_start(&old, ON, 1);
    fixture_start(&fresh, ON "max_interfaces = 2\n", 1);
    request(&old, "GET k", 100, 3);
    request(&old, "SET k v", 100, 4);
    request(&old, "DEL k", 100, 5);
    (void)pass_on(&old, &fresh, "ALL");
    assert_line(&fresh, "get", " count=3 ");
    assert_line(&fresh, "other", " count=9 ");
    fixture_stop(&old);
    fixture_stop(&fresh);
}

Test(latency_twin, who_measures_nothing_tells_and_hears_nothing)
{
    struct latency_fixture off, on;

    fixture_start(&off, "[latency]\nenabled = off\n", 1);
    fixture_start(&on, ON, 1);
    request(&on, "GET k", 100, 1);
    (void)pass_on(&on, &off, "ALL");
    cr_assert_eq(pass_on(&off, &on, "ALL"), 0);
    cr_assert_eq(pass_on(&off, &on, "NEWS"), 0);
    assert_line(&on, "get", " count=1 ");
    fixture_stop(&off);
    fixture_stop(&on);
}

/* ---- what is not understood ---- */

Test(latency_twin, what_cannot_be_understood_is_passed_over)
{
    static const char *const lines[] = {
        "",
        "\n",
        "interface",
        "interface get",
        "interface get 0",
        "interface get 0 1",
        "interface get 0 1 0 0 0 5 5 5",
        "interface get 0 1 0 0 0 5 5 5 1",
        "interface get 0 1 0 0 0 5 5 5 1 2",
        "interface get 0 2 0 0 0 5 5 5 1 1",
        "interface get 0 2 0 0 0 5 5 5 2 1 1 1",
        "interface get 0 2 0 0 0 5 5 5 1 1 1 1",
        "interface get 0 1 2 0 0 5 5 5 1 1",
        "interface get 0 1 0 0 0 5 6 5 1 1",
        "interface get 0 1 0 0 0 5 5 5 593 1",
        "interface get 0 1 0 0 0 5 5 5 -1 1",
        "interface get 0 -1 0 0 0 5 5 5 1 1",
        "interface get 0 1 0 0 0 5 5 5 1 1 x",
        "interface get 0 99999999999999999999 0 0 0 5 5 5 1 1",
        "interface get 0 9223372036854775807 0 0 0 5 5 5 1 9223372036854775807 2 9223372036854775807",
        "interface %zz 0 1 0 0 0 5 5 5 1 1",
        "histogram get 0 1 0 0 0 5 5 5 1 1",
        "interface  0 1 0 0 0 5 5 5 1 1",
    };
    struct latency_fixture fixture;

    fixture_start(&fixture, ON, 1);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        hear(&fixture, lines[i], strlen(lines[i]));
    }
    cr_assert_str_eq(fixture_ask(&fixture, 0, "LATENCY"), "");
    static const char sound[] = "nonsense\ninterface get 0 1 0 0 0 5 5 5 1 1\ninterface";
    hear(&fixture, sound, sizeof sound - 1);
    assert_line(&fixture, "get", " count=1 ");
    fixture_stop(&fixture);
}

/* Names that are none go to those without a name of their own, and the table stays within its bounds. */
Test(latency_twin, names_are_bounded)
{
    static const char *const names[] = {"%00", "a%7Bb%7D", "%20", "%FF",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    struct latency_fixture fixture;
    char line[256];

    fixture_start(&fixture, ON "max_interfaces = 10\n", 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(line, sizeof line, "interface %s 0 1 0 0 0 5 5 5 1 1\n", names[i]);
        hear(&fixture, line, strlen(line));
    }
    for (size_t i = 0; i < 100; i++) {
        snprintf(line, sizeof line, "interface chosen-%zu 1 1 0 0 0 5 5 5 1 1\n", i);
        hear(&fixture, line, strlen(line));
    }
    cr_assert_eq(fixture_counter(&fixture, "latency_interfaces"), 6,
                 "other, and half of the room for what clients choose");
    fixture_stop(&fixture);
}

/* What is told, changed at random, is heard without harm; what is shown adds up in any case. */
Test(latency_twin, noise_does_no_harm)
{
    struct latency_fixture old, fresh;
    struct text_stream text;
    uint32_t random = 2463534242u;
    char noise[4096];

    fixture_start(&old, ON, 1);
    fixture_start(&fresh, ON, 1);
    for (int64_t us = 1; us < 1000000; us *= 3) {
        request(&old, "GET k", us, 2);
        request(&old, "SET k v", us + 1, 3);
    }
    (void)tell(&old, "ALL", 0, &text);
    cr_assert_lt(text.length, sizeof noise);
    for (size_t round = 0; round < 20000; round++) {
        memcpy(noise, text.bytes, text.length);
        for (size_t i = 0; i < 1 + round % 4; i++) {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            noise[random % text.length] =
                (round & 4) != 0 ? (char)(random >> 24) : "0123456789 \n%i"[(random >> 24) % 14];
        }
        hear(&fresh, noise, text.length - random % 7);
        if (round % 1000 == 0) {
            (void)shown(&fresh, "get");
        }
    }
    (void)shown(&fresh, "set");
    text_free(&text);
    fixture_stop(&old);
    fixture_stop(&fresh);
}
