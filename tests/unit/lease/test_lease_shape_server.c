/*
 * What requests mean for locks against what the installed redis-server does: SET and the EXPIREs with options by
 * chance, spelt oddly, doubled, in any order and with numbers of all kinds, on a key that is there and on one that is
 * not.
 */
#include "../command/server_fixture.h"
#include "lease_request.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WORDS_MAX 16
#define OLD_MS 500000
/* Between the clocks that are read here and Redis', on a slow machine. */
#define SLACK_MS 60000

TestSuite(lease_shape_server, .init = server_start, .fini = server_stop, .timeout = 300);

/* ---- requests by chance ---- */

struct words {
    size_t count;
    struct slice slices[WORDS_MAX];
};

#define WORD(text)                                                                                                     \
    {                                                                                                                  \
        text, sizeof(text) - 1                                                                                         \
    }

static const struct slice set_options[] = {
    WORD("NX"),  WORD("nx"),  WORD("nX\0"),  WORD("Nx\0px"),  WORD("XX"),         WORD("xx\0x"),
    WORD("GET"), WORD("get"), WORD("Get\0"), WORD("KEEPTTL"), WORD("keepttl\0x"), WORD("PERSIST"),
    WORD("n"),   WORD("nxx"), WORD(""),      WORD("\0nx"),    WORD("NX "),        WORD("IFEQ"),
};
static const struct slice set_expiries[] = {
    WORD("PX"), WORD("px\0x"), WORD("EX"), WORD("eX\0"), WORD("PXAT"), WORD("EXAT"), WORD("exat\0ex"), WORD("pxat"),
};
static const struct slice expire_options[] = {
    WORD("NX"), WORD("XX\0"), WORD("gt"), WORD("LT\0x"), WORD("GT"), WORD("get"), WORD(""), WORD("nx\0xx"),
};
/* The first five are sound. */
#define NUMBERS                                                                                                        \
    "90000|100|900000|4102444800|4102444800000|1|0|-1|-90000|090000|+90000| 90000|90000 |9e4|90000.0|0x90000||-|-0|"   \
    "9223372036854775807|9223372036854775808|9223372036854775|9223372036854776|-9223372036854775808|"                  \
    "18446744073709551615|nx"
#define NUMBERS_COUNT 26

#define PICK(list) (list)[next_random(state) % (sizeof(list) / sizeof(list)[0])]

static void add(struct words *words, struct slice word)
{
    cr_assert_lt(words->count, (size_t)WORDS_MAX);
    words->slices[words->count++] = word;
}

/* Most numbers are sound. */
static struct slice pick_number(uint32_t *state)
{
    uint32_t place = next_random(state) % (next_random(state) % 3 > 0 ? 5 : NUMBERS_COUNT);

    return next_random(state) % 100 > 0 ? word_of(NUMBERS, place) : (struct slice)WORD("90000\0");
}

static struct words make_set(uint32_t *state)
{
    struct words words = {3, {WORD("SET"), WORD("k"), WORD("new")}};

    for (uint32_t left = next_random(state) % 5; left > 0; left--) {
        if (next_random(state) % 3 == 0) {
            add(&words, PICK(set_expiries));
            if (next_random(state) % 12 > 0) {
                add(&words, pick_number(state));
            }
        } else {
            add(&words, next_random(state) % 4 > 0 ? set_options[next_random(state) % 9] : PICK(set_options));
        }
    }
    return words;
}

static struct words make_expire(uint32_t *state)
{
    static const struct slice names[] = {WORD("EXPIRE"), WORD("PEXPIRE"), WORD("EXPIREAT"), WORD("PEXPIREAT")};
    struct words words = {0};

    add(&words, PICK(names));
    add(&words, (struct slice)WORD("k"));
    add(&words, pick_number(state));
    for (uint32_t left = next_random(state) % 3; left > 0; left--) {
        add(&words, PICK(expire_options));
    }
    return words;
}

static const char *shown(const struct words *words)
{
    static char text[1024];
    size_t length = 0;

    for (size_t i = 0; i < words->count; i++) {
        for (size_t j = 0; j < words->slices[i].length; j++) {
            char byte = words->slices[i].data[j];
            text[length++] = byte != '\0' ? byte : '@';
        }
        text[length++] = i + 1 < words->count ? ' ' : '\0';
    }
    return text;
}

/* ---- what Redis does ---- */

struct outcome {
    char head[64]; /* of the reply, as on the wire */
    bool is_error;
    char value[16]; /* of the key; "": there is none */
    int64_t ms;     /* that it has to live; -1: for ever, -2: there is none */
};

static int64_t wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void write_head(const redisReply *reply, char *head, size_t size)
{
    switch (reply->type) {
    case REDIS_REPLY_STATUS:
        snprintf(head, size, "+%s\r\n", reply->str);
        break;
    case REDIS_REPLY_ERROR:
        snprintf(head, size, "-ERR\r\n");
        break;
    case REDIS_REPLY_INTEGER:
        snprintf(head, size, ":%lld\r\n", reply->integer);
        break;
    case REDIS_REPLY_NIL:
        snprintf(head, size, "$-1\r\n");
        break;
    default:
        snprintf(head, size, "$%zu\r\n%s\r\n", reply->len, reply->str);
    }
}

static struct outcome run(const struct words *words, bool is_there)
{
    const char *argv[WORDS_MAX];
    size_t lengths[WORDS_MAX];
    struct outcome outcome = {.is_error = false};

    freeReplyObject(server_ask(1, (const char *[]){"FLUSHALL"}));
    if (is_there) {
        freeReplyObject(server_ask(5, (const char *[]){"SET", "k", "old", "PX", "500000"}));
    }
    for (size_t i = 0; i < words->count; i++) {
        argv[i] = words->slices[i].data;
        lengths[i] = words->slices[i].length;
    }
    redisReply *reply = server_ask_bytes((int)words->count, argv, lengths);
    write_head(reply, outcome.head, sizeof outcome.head);
    outcome.is_error = reply->type == REDIS_REPLY_ERROR;
    freeReplyObject(reply);
    reply = server_ask(2, (const char *[]){"GET", "k"});
    snprintf(outcome.value, sizeof outcome.value, "%s", reply->type == REDIS_REPLY_STRING ? reply->str : "");
    freeReplyObject(reply);
    reply = server_ask(2, (const char *[]){"PTTL", "k"});
    outcome.ms = reply->integer;
    freeReplyObject(reply);
    return outcome;
}

/* ---- whether that is what was read ---- */

static bool is_as_before(const struct outcome *outcome, bool is_there)
{
    return is_there ? strcmp(outcome->value, "old") == 0 && outcome->ms > 0 && outcome->ms <= OLD_MS &&
                          outcome->ms > OLD_MS - SLACK_MS
                    : outcome->ms == -2;
}

/* The key lives as long as was read; no lease is for ever, or so long that nobody cares, or over. */
static bool lives_as_read(const struct lease_shape *shape, const struct outcome *outcome)
{
    int64_t ms = lease_shape_ms(shape, wall_ms());

    if (ms > 0) {
        return outcome->ms > ms - SLACK_MS && outcome->ms < ms + SLACK_MS;
    }
    return shape->expires_unit != LEASE_UNIT_NONE ? outcome->ms == -2 || outcome->ms > LEASE_MS_MAX / 2
                                                  : outcome->ms == -1 || outcome->ms > LEASE_MS_MAX / 2;
}

static bool is_as_read(const struct lease_shape *shape, const struct outcome *outcome, bool is_there)
{
    enum lease_answer answer = lease_shape_answer(shape, slice_of(outcome->head));
    bool is_set = strcmp(outcome->value, "new") == 0;

    if (outcome->is_error) {
        return answer != LEASE_ANSWER_YES && is_as_before(outcome, is_there);
    }
    switch (shape->action) {
    case LEASE_WRITE:
        /* SET with KEEPTTL: the key lives as before, or for ever if it is new. */
        return is_there ? outcome->ms > OLD_MS - SLACK_MS && outcome->ms <= OLD_MS : outcome->ms < 0;
    case LEASE_ACQUIRE:
        return is_there ? answer == LEASE_ANSWER_NO && is_as_before(outcome, is_there)
                        : answer == LEASE_ANSWER_YES && (is_set || outcome->ms == -2) && lives_as_read(shape, outcome);
    case LEASE_EXTEND:
        return is_there ? answer == LEASE_ANSWER_YES && (is_set || outcome->ms == -2) && lives_as_read(shape, outcome)
                        : answer == LEASE_ANSWER_NO && is_as_before(outcome, is_there);
    case LEASE_FORCE_RELEASE:
        /* The key was removed, or replaced whatever it was; or there was nothing. */
        return answer == LEASE_ANSWER_YES ? !(is_there && strcmp(outcome->value, "old") == 0)
                                          : is_as_before(outcome, is_there);
    case LEASE_EXPIRE:
        return answer == LEASE_ANSWER_YES ? is_there && lives_as_read(shape, outcome) : is_as_before(outcome, is_there);
    default:
        return false;
    }
}

/* How often each action was read, where Redis agreed to it. */
static size_t counts[LEASE_REAP + 1];

static void run_rounds(struct words (*make)(uint32_t *state), int rounds)
{
    uint32_t state = 77;

    memset(counts, 0, sizeof counts);
    for (int round = 0; round < rounds; round++) {
        struct words words = make(&state);
        struct request made = request_of_words(words.slices, words.count);
        request_read(&made);
        for (int is_there = 0; is_there < 2; is_there++) {
            struct outcome outcome = run(&words, is_there);
            cr_assert(is_as_read(&made.shape, &outcome, is_there),
                      "%s: read as %d, %" PRId64 " ms; %s: %.3s, \"%s\" lives %" PRId64 " ms", shown(&words),
                      (int)made.shape.action, lease_shape_ms(&made.shape, wall_ms()), is_there ? "there" : "none",
                      outcome.head, outcome.value, outcome.ms);
            counts[made.shape.action] += !outcome.is_error;
        }
        free(made.bytes);
    }
}

Test(lease_shape_server, set_is_read_as_redis_reads_it)
{
    run_rounds(make_set, 6000);
    cr_assert(counts[LEASE_ACQUIRE] > 100 && counts[LEASE_EXTEND] > 100 && counts[LEASE_FORCE_RELEASE] > 100);
}

Test(lease_shape_server, expiries_are_read_as_redis_reads_them)
{
    run_rounds(make_expire, 6000);
    cr_assert(counts[LEASE_EXPIRE] > 100 && counts[LEASE_FORCE_RELEASE] > 100);
}
