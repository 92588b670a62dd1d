/* The script that renews locks that are strings, on a real Redis. */
#include "lease_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(lease_string, .init = start_redis, .fini = stop_redis, .timeout = 100);

Test(lease_string, tells_what_became_of_the_lock)
{
    struct runner runner = with_own_clock("lease_renew_string");
    struct terms terms = {30000, 20000, 500};

    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), GONE, NO_KEY, "none");
    cr_assert_eq(integer_of(ask("DBSIZE")), 0, "it was made");
    set_lock("lock", "other", 25000);
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), NOT_OWNER, 25000, "stolen");
    tell(ask("SET lock other"));
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), NOT_OWNER, NO_EXPIRY, "stolen for ever");
    tell(ask("SET lock me"));
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), PERSISTENT, NO_EXPIRY, "persistent");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), NO_EXPIRY);
    set_lock("lock", "me", 19499);
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), SHORTENED, 19499, "shortened");
    set_lock("lock", "me", 20501);
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), DEFERRED, 20501, "renewed by the owner");
    set_lock("lock", "me", 20000);
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), RENEWED, 30000, "renewed");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 30000);
    tell(ask("DEL lock"));
    tell(ask("RPUSH lock me"));
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), ANOTHER_TYPE, NO_EXPIRY, "list");
    tell(ask("PEXPIREAT lock %lld", (long long)(EPOCH + 7)));
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), ANOTHER_TYPE, 7, "list that expires");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 7);
}

Test(lease_string, differs_by_no_more_than_the_slack)
{
    struct runner runner = with_own_clock("lease_renew_string");

    for (int64_t slack_ms = 0; slack_ms < 3; slack_ms++) {
        for (int64_t off_ms = -4; off_ms <= 4; off_ms++) {
            char what[32];
            snprintf(what, sizeof what, "slack %" PRId64 ", off by %" PRId64, slack_ms, off_ms);
            set_lock("lock", "me", 1000 + off_ms);
            enum code code = off_ms < -slack_ms ? SHORTENED : off_ms > slack_ms ? DEFERRED : RENEWED;
            int64_t life_ms = code == RENEWED ? 3000 : 1000 + off_ms;
            assert_answer(renew(&runner, &only_lock, owner("me"), (struct terms){3000, 1000, slack_ms}, EPOCH), code,
                          life_ms, what);
            cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + life_ms, "%s", what);
        }
    }
}

Test(lease_string, never_shortens)
{
    struct runner runner = with_own_clock("lease_renew_string");

    for (int64_t lease_ms = 1; lease_ms <= 1002; lease_ms += lease_ms < 990 ? 43 : 1) {
        int64_t life_ms = lease_ms > 1000 ? lease_ms : 1000;
        set_lock("lock", "me", 1000);
        assert_answer(renew(&runner, &only_lock, owner("me"), (struct terms){lease_ms, 1000, 0}, EPOCH), RENEWED,
                      life_ms, "lease");
        cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + life_ms);
    }
}

Test(lease_string, expects_what_ought_to_be_over)
{
    struct runner runner = with_own_clock("lease_renew_string");

    set_lock("lock", "me", 100);
    assert_answer(renew(&runner, &only_lock, owner("me"), (struct terms){900, -50, 149}, EPOCH), DEFERRED, 100, "far");
    assert_answer(renew(&runner, &only_lock, owner("me"), (struct terms){900, -50, 150}, EPOCH), RENEWED, 900, "near");
    set_lock("lock", "me", 0);
    assert_answer(renew(&runner, &only_lock, owner("me"), (struct terms){900, 0, 0}, EPOCH), RENEWED, 900, "last ms");
}

static const struct keys three = {3, {"{a}1", "{a}2", "{a}3"}};

static void set_three(void)
{
    tell(ask("DEL {a}1 {a}2 {a}3"));
    for (size_t i = 0; i < three.count; i++) {
        set_lock(three.names[i], "me", 20000 + (int64_t)i);
    }
}

/* What may become of one key, and the code and the time to live that it is answered with then. */
static const struct {
    const char *first, *second;
    int64_t code;
    int64_t life_ms;
} spoilt[] = {
    {"DEL %s", NULL, GONE, NO_KEY},
    {"SET %s other", NULL, NOT_OWNER, NO_EXPIRY},
    {"SET %s other PXAT 4102444825000", NULL, NOT_OWNER, 25000},
    {"PERSIST %s", NULL, PERSISTENT, NO_EXPIRY},
    {"PEXPIREAT %s 4102444800010", NULL, SHORTENED, 10},
    {"DEL %s", "RPUSH %s me", ANOTHER_TYPE, NO_EXPIRY},
};

static void spoil(size_t how, const char *key)
{
    tell(ask(spoilt[how].first, key));
    if (spoilt[how].second != NULL) {
        tell(ask(spoilt[how].second, key));
    }
}

Test(lease_string, renews_all_keys_or_none)
{
    struct runner runner = with_own_clock("lease_renew_string");
    struct terms terms = {30000, 20000, 500};
    struct seen before[3], after[3];

    set_three();
    assert_answer(renew(&runner, &three, owner("me"), terms, EPOCH), RENEWED, 30000, "all");
    look(&three, owner("me"), after);
    for (size_t i = 0; i < three.count; i++) {
        cr_assert_eq(after[i].at_ms, EPOCH + 30000);
    }
    for (size_t at = 0; at < three.count; at++) {
        for (size_t how = 0; how < LENGTH(spoilt); how++) {
            set_three();
            spoil(how, three.names[at]);
            look(&three, owner("me"), before);
            assert_answer(renew(&runner, &three, owner("me"), terms, EPOCH), spoilt[how].code, spoilt[how].life_ms,
                          spoilt[how].first);
            look(&three, owner("me"), after);
            for (size_t i = 0; i < three.count; i++) {
                cr_assert(is_same(&before[i], &after[i]), "%s: %s was changed", spoilt[how].first, three.names[i]);
            }
        }
    }
}

Test(lease_string, is_worth_what_its_worst_key_is)
{
    struct runner runner = with_own_clock("lease_renew_string");
    struct terms terms = {30000, 20000, 500};

    for (size_t one = 0; one < LENGTH(spoilt); one++) {
        for (size_t other = 0; other < LENGTH(spoilt); other++) {
            set_three();
            spoil(one, three.names[2]);
            spoil(other, three.names[1]);
            struct answer answer = renew(&runner, &three, owner("me"), terms, EPOCH);
            cr_assert_eq(answer.code, spoilt[one].code < spoilt[other].code ? spoilt[one].code : spoilt[other].code);
        }
    }
}

Test(lease_string, lasts_as_long_as_its_shortest_key)
{
    struct runner runner = with_own_clock("lease_renew_string");
    struct terms terms = {30000, 20000, 500};

    set_three();
    set_lock(three.names[1], "me", 29000);
    set_lock(three.names[2], "me", 40000);
    assert_answer(renew(&runner, &three, owner("me"), terms, EPOCH), RENEWED, 30000, "one is due");
    cr_assert_eq(integer_of(ask("PEXPIRETIME %s", three.names[0])), EPOCH + 30000);
    cr_assert_eq(integer_of(ask("PEXPIRETIME %s", three.names[1])), EPOCH + 30000);
    cr_assert_eq(integer_of(ask("PEXPIRETIME %s", three.names[2])), EPOCH + 40000, "shortened");
    assert_answer(renew(&runner, &three, owner("me"), terms, EPOCH), DEFERRED, 30000, "none is due");
}

static void assert_compares_whole_tokens(const struct runner *runner, char *bytes, size_t length)
{
    struct terms terms = {30000, 20000, 0};
    struct owner token = {bytes, length};

    tell(ask("SET lock %b PXAT %lld", bytes, length, (long long)(EPOCH + 20000)));
    if (length > 0) {
        const size_t places[] = {0, length / 2, length - 1};
        for (size_t i = 0; i < LENGTH(places); i++) {
            bytes[places[i]] ^= 1;
            assert_answer(renew(runner, &only_lock, token, terms, EPOCH), NOT_OWNER, 20000, "one bit differs");
            bytes[places[i]] ^= 1;
        }
        struct owner prefix = {bytes, length - 1}, none = {"", 0};
        assert_answer(renew(runner, &only_lock, prefix, terms, EPOCH), NOT_OWNER, 20000, "a byte less");
        assert_answer(renew(runner, &only_lock, none, terms, EPOCH), NOT_OWNER, 20000, "nothing");
    }
    bytes[length] = '\0';
    struct owner longer = {bytes, length + 1};
    assert_answer(renew(runner, &only_lock, longer, terms, EPOCH), NOT_OWNER, 20000, "a byte more");
    assert_answer(renew(runner, &only_lock, token, terms, EPOCH), RENEWED, 30000, "the same");
}

Test(lease_string, takes_any_bytes_for_a_token)
{
    struct runner runner = with_own_clock("lease_renew_string");
    static const char nasty[] = "a\0b\r\n$3\r\n*1\r\n\xff\xfe'\"\\%s";
    static const size_t lengths[] = {0, 1, 16, 20, 255, 65536, MEGABYTE};
    char *bytes = malloc(MEGABYTE + 1);

    cr_assert_not_null(bytes);
    memcpy(bytes, nasty, sizeof nasty);
    assert_compares_whole_tokens(&runner, bytes, sizeof nasty - 1);
    for (size_t i = 0; i < LENGTH(lengths); i++) {
        fill(bytes, lengths[i]);
        assert_compares_whole_tokens(&runner, bytes, lengths[i]);
    }
    free(bytes);
}

Test(lease_string, compares_numbers_as_they_are_written)
{
    struct runner runner = with_own_clock("lease_renew_string");

    set_lock("lock", "10", 20000);
    assert_answer(renew(&runner, &only_lock, owner("1e1"), (struct terms){30000, 20000, 0}, EPOCH), NOT_OWNER, 20000,
                  "1e1");
    assert_answer(renew(&runner, &only_lock, owner("10"), (struct terms){30000, 20000, 0}, EPOCH), RENEWED, 30000,
                  "10");
}

/* Of a code's name what the head of the script says, for one key. */
static enum code code_of_string(const struct seen *seen, int64_t life_ms, struct terms terms)
{
    if (strcmp(seen->type, "none") == 0) {
        return GONE;
    } else if (strcmp(seen->type, "string") != 0) {
        return ANOTHER_TYPE;
    } else if (!seen->owned) {
        return NOT_OWNER;
    } else if (seen->at_ms == NO_EXPIRY) {
        return PERSISTENT;
    } else if (terms.expected_ms - life_ms > terms.slack_ms) {
        return SHORTENED;
    }
    return life_ms - terms.expected_ms > terms.slack_ms ? DEFERRED : RENEWED;
}

static struct answer model_strings(const struct seen *seen, size_t count, struct terms terms, int64_t now_ms)
{
    struct answer answer = {.code = DEFERRED, .life_ms = INT64_MAX};

    for (size_t i = 0; i < count; i++) {
        int64_t life_ms = life_at(&seen[i], now_ms), code = code_of_string(&seen[i], life_ms, terms);
        if (code < answer.code) {
            answer = (struct answer){.code = code, .life_ms = life_ms};
        } else if (code == answer.code && life_ms < answer.life_ms) {
            answer.life_ms = life_ms;
        }
    }
    if (answer.code == RENEWED && answer.life_ms < terms.lease_ms) {
        answer.life_ms = terms.lease_ms;
    }
    return answer;
}

static const struct keys strings = {4, {"{s}1", "{s}2", "{s}3", "{s}4"}};
static const char *const tokens[] = {"token-1", "token-2", "token-3"};

/* What clients and others do to locks, those who keep to the rules and those who do not. */
static void do_something_to_strings(int64_t now_ms)
{
    const char *key = strings.names[chance(4)], *token = tokens[chance(3)];
    long long at_ms = now_ms + chance(30000);

    switch (chance(14)) {
    case 0:
    case 1:
        for (size_t i = 0; i < strings.count; i++) {
            tell(ask("SET %s %s NX PXAT %lld", strings.names[i], token, at_ms));
        }
        break;
    case 2:
    case 3:
    case 4:
        tell(ask("SET %s %s NX PXAT %lld", key, token, at_ms));
        break;
    case 5:
    case 6:
        tell(ask("EVAL %s 1 %s %s",
                 "return redis.call('TYPE', KEYS[1]).ok == 'string' and "
                 "redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])",
                 key, token));
        break;
    case 7:
        tell(ask("SET %s %s PXAT %lld", key, token, at_ms));
        break;
    case 8:
        tell(ask("SETNX %s %s", key, token));
        break;
    case 9:
        tell(ask("PERSIST %s", key));
        break;
    case 10:
        tell(ask("PEXPIREAT %s %lld", key, at_ms));
        break;
    case 11:
        tell(ask("DEL %s", key));
        break;
    case 12:
        tell(ask("FLUSHALL"));
        break;
    default:
        tell(ask("DEL %s", key));
        tell(ask("RPUSH %s %s", key, token));
        tell(ask("PEXPIREAT %s %lld", key, at_ms));
    }
}

static struct keys random_strings(void)
{
    struct keys keys = {.count = 1 + (size_t)(chance(2) * chance(4))};
    size_t first = (size_t)chance(4);

    for (size_t i = 0; i < keys.count; i++) {
        keys.names[i] = strings.names[(first + i) % strings.count];
    }
    return keys;
}

Test(lease_string, does_as_the_model_whatever_others_do)
{
    struct runner runner = with_own_clock("lease_renew_string");
    int64_t now_ms = EPOCH, renewed_several = 0;

    for (int step = 0; step < 6000; step++) {
        do_something_to_strings(now_ms);
        now_ms += random_step_ms();
        expire(&strings, now_ms);
        struct keys keys = random_strings();
        struct owner token = owner(tokens[chance(3)]);
        struct renewal renewal = renew_like_model(&runner, &keys, token, model_strings, now_ms);
        bool renewed = renewal.code == RENEWED;
        for (size_t i = 0; i < keys.count; i++) {
            cr_assert(!renewed || (renewal.before[i].owned && renewal.after[i].at_ms >= renewal.until_ms));
        }
        renewed_several += renewed && keys.count > 1;
    }
    for (int code = ANOTHER_TYPE; code <= DEFERRED; code++) {
        assert_counted(code, 100);
    }
    cr_assert_gt(renewed_several, 20, "%" PRId64, renewed_several);
}

Test(lease_string, keeps_a_lock_in_real_time)
{
    struct runner runner = with_redis_clock("lease_renew_string");
    struct keys two = {2, {"{a}1", "{a}2"}};
    int64_t began_ms = wall_ms(), set_ms = began_ms;

    tell(ask("SET {a}1 me PX 1500"));
    tell(ask("SET {a}2 me PX 1500"));
    while (wall_ms() - began_ms < 3000) {
        usleep(50000);
        int64_t asked_ms = wall_ms();
        struct answer answer =
            renew(&runner, &two, owner("me"), (struct terms){1500, 1500 - (asked_ms - set_ms), 1400}, 0);
        cr_assert_eq(answer.code, RENEWED);
        cr_assert_eq(answer.life_ms, 1500);
        assert_life_since("{a}1", 1500, asked_ms);
        assert_life_since("{a}2", 1500, asked_ms);
        set_ms = asked_ms;
    }
    usleep(1600000);
    assert_answer(renew(&runner, &two, owner("me"), (struct terms){1500, 0, 100}, 0), GONE, NO_KEY, "left alone");
    cr_assert_eq(integer_of(ask("DBSIZE")), 0);
}

/* The race that has locks live for ever elsewhere: here a renewal after the release finds nothing. */
Test(lease_string, does_not_bring_back_what_was_released_in_real_time)
{
    struct runner runner = with_redis_clock("lease_renew_string");

    tell(ask("SET lock me PX 30000"));
    cr_assert_eq(integer_of(ask("DEL lock")), 1);
    assert_answer(renew(&runner, &only_lock, owner("me"), (struct terms){30000, 30000, 1000}, 0), GONE, NO_KEY, "late");
    tell(ask("SET lock other PX 5000"));
    cr_assert_eq(renew(&runner, &only_lock, owner("me"), (struct terms){30000, 5000, 5000}, 0).code, NOT_OWNER);
    cr_assert_leq(integer_of(ask("PTTL lock")), 5000);
}
