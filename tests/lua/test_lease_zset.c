/* The script that renews permits of semaphores that are sorted sets, on a real Redis. */
#include "lease_fixture.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(lease_zset, .init = start_redis, .fini = stop_redis, .timeout = 100);

static void set_permit(const char *member, const char *score, int64_t life_ms)
{
    tell(ask("DEL lock"));
    tell(ask("ZADD lock %s %s 5 bystander", score, member));
    if (life_ms >= 0) {
        tell(ask("PEXPIREAT lock %lld", (long long)(EPOCH + life_ms)));
    }
}

Test(lease_zset, tells_what_became_of_the_permit)
{
    struct runner runner = with_own_clock("lease_renew_zset");

    assert_answer(renew_permit(&runner, owner("me"), 200, 100, 9000, EPOCH), GONE, NO_KEY, "none");
    cr_assert_eq(integer_of(ask("DBSIZE")), 0, "it was made");
    set_permit("other", "100", 4000);
    assert_answer(renew_permit(&runner, owner("me"), 200, 100, 9000, EPOCH), NOT_OWNER, 4000, "reaped");
    cr_assert_eq(integer_of(ask("ZCARD lock")), 2, "it was brought back");
    set_permit("other", "100", NO_EXPIRY);
    assert_answer(renew_permit(&runner, owner("me"), 200, 100, 9000, EPOCH), NOT_OWNER, NO_EXPIRY, "reaped");
    static const char *const others[] = {"99", "101", "100.00000000000001", "inf", "-inf", "1e300", "0"};
    for (size_t i = 0; i < LENGTH(others); i++) {
        set_permit("me", others[i], 4000);
        struct seen before = look_for("lock", owner("me"));
        struct answer answer = renew_permit(&runner, owner("me"), 200, 100, 9000, EPOCH);
        assert_answer(answer, DEFERRED, 4000, others[i]);
        cr_assert(same_number(answer.score, strtod(others[i], NULL)), "%s: %.17g", others[i], answer.score);
        struct seen after = look_for("lock", owner("me"));
        cr_assert(is_same(&before, &after), "%s", others[i]);
    }
    set_permit("me", "100", 4000);
    assert_answer(renew_permit(&runner, owner("me"), 200, 100, 9000, EPOCH), RENEWED, 9000, "renewed");
    cr_assert_eq(score_of("lock", "me"), 200);
    cr_assert_eq(score_of("lock", "bystander"), 5);
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 9000);
    tell(ask("SET lock me PXAT %lld", (long long)(EPOCH + 4000)));
    assert_answer(renew_permit(&runner, owner("me"), 200, 100, 9000, EPOCH), ANOTHER_TYPE, 4000, "string");
    tell(ask("DEL lock"));
    tell(ask("SADD lock me"));
    assert_answer(renew_permit(&runner, owner("me"), 200, 100, 9000, EPOCH), ANOTHER_TYPE, NO_EXPIRY, "set");
}

Test(lease_zset, never_shortens_nor_gives_a_time_to_live)
{
    struct runner runner = with_own_clock("lease_renew_zset");

    set_permit("me", "100", 4000);
    assert_answer(renew_permit(&runner, owner("me"), 200, 100, 3999, EPOCH), RENEWED, 4000, "less than it has");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 4000);
    assert_answer(renew_permit(&runner, owner("me"), 300, 200, 4001, EPOCH), RENEWED, 4001, "more than it has");
    set_permit("me", "100", NO_EXPIRY);
    assert_answer(renew_permit(&runner, owner("me"), 200, 100, 9000, EPOCH), RENEWED, NO_EXPIRY, "persistent");
    cr_assert_eq(score_of("lock", "me"), 200);
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), NO_EXPIRY);
}

Test(lease_zset, never_lowers_a_score)
{
    struct runner runner = with_own_clock("lease_renew_zset");

    set_permit("me", "100", 4000);
    assert_answer(renew_permit(&runner, owner("me"), 99, 100, 9000, EPOCH), RENEWED, 9000, "lower");
    cr_assert_eq(score_of("lock", "me"), 100);
    assert_answer(renew_permit(&runner, owner("me"), -1e300, 100, 9000, EPOCH), RENEWED, 9000, "much lower");
    assert_answer(renew_permit(&runner, owner("me"), 100, 100, 9000, EPOCH), RENEWED, 9000, "the same");
    cr_assert_eq(score_of("lock", "me"), 100);
}

/* A score takes no memory: who holds a permit does not lose it because others have filled Redis. */
Test(lease_zset, raises_a_score_while_redis_is_out_of_memory)
{
    struct runner runner = with_own_clock("lease_renew_zset");

    set_permit("me", "100", NO_EXPIRY);
    tell(ask("ZADD lock 7 me- 8 me--"));
    tell(ask("CONFIG SET maxmemory 1"));
    assert_error_begins(ask("ZADD lock XX 9 me--"), "OOM");
    assert_answer(renew_permit(&runner, owner("me"), 200, 100, 9000, EPOCH), RENEWED, NO_EXPIRY, "out of memory");
    tell(ask("CONFIG SET maxmemory 0"));
    cr_assert_eq(score_of("lock", "me"), 200);
    cr_assert_eq(score_of("lock", "me-"), 7);
    cr_assert_eq(score_of("lock", "me--"), 8);
    cr_assert_eq(integer_of(ask("ZCARD lock")), 4);
}

/* As clients write them: seconds with a fraction, ms, µs; the caller may write the same number otherwise. */
Test(lease_zset, keeps_every_digit_of_a_score)
{
    struct runner runner = with_own_clock("lease_renew_zset");
    static const struct {
        const char *score, *expected, *next;
    } cases[] = {
        {"1700000000.1234567", "1700000000.1234567", "1700000010.1234567"},
        {"1700000000.1", "1.7000000001e9", "1700000000.1000004"},
        {"1700000000123", "1700000000123", "1700000010123"},
        {"1700000000123456", "1.700000000123456e15", "1700000000123457"},
        {"9007199254740991", "9007199254740991", "9007199254740992"},
        {"922337203685477", "922337203685477.0", "922337203685478"},
        {"0.1", "0.10000000000000000", "0.30000000000000004"},
        {"-5", "-5.0", "-4"},
        {"0", "-0", "1e-300"},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        set_permit("me", cases[i].score, NO_EXPIRY);
        assert_answer(answer_of(ask("EVALSHA %s 1 lock me %s %s 1 %lld", runner.digest, cases[i].next,
                                    cases[i].expected, (long long)EPOCH)),
                      RENEWED, NO_EXPIRY, cases[i].score);
        cr_assert_eq(score_of("lock", "me"), strtod(cases[i].next, NULL), "%s", cases[i].next);
        /* What it now is, is what is expected next. */
        assert_answer(answer_of(ask("EVALSHA %s 1 lock me %s %s 1 %lld", runner.digest, cases[i].next, cases[i].next,
                                    (long long)EPOCH)),
                      RENEWED, NO_EXPIRY, cases[i].next);
    }
}

/* The sign, the exponent and each bit of the fraction, on either side of the halves. */
Test(lease_zset, tells_the_score_it_has_to_the_bit)
{
    struct runner runner = with_own_clock("lease_renew_zset");
    static const uint64_t some[] = {
        0x0000000000000000, 0x8000000000000000, /* 0, -0 */
        0x0000000000000001, 0x800fffffffffffff, /* the least above 0; a negative one without an exponent */
        0x7ff0000000000000, 0xfff0000000000000, /* inf, -inf */
        0x7fefffffffffffff, 0xffefffffffffffff, /* the largest of all, and the smallest */
        0x3ff00000ffffffff, 0x3ff0000100000000, /* the low half full, and the carry */
        0xbff0000080000000, 0x41d954fc4007e6b7, /* its highest bit; a time in seconds with a fraction */
    };
    char score[40];

    for (size_t i = 0; i < 2000; i++) {
        uint64_t bits = (uint64_t)chance(1 << 30) << 34 ^ (uint64_t)chance(1 << 30) << 17 ^ (uint64_t)chance(1 << 30);
        double number;
        bits = i < LENGTH(some) ? some[i] : bits;
        memcpy(&number, &bits, sizeof number);
        if (isnan(number) || number == 100) {
            continue;
        }
        snprintf(score, sizeof score, "%.17g", number);
        set_permit("me", score, NO_EXPIRY);
        struct answer answer = renew_permit(&runner, owner("me"), 200, 100, 9000, EPOCH);
        assert_answer(answer, DEFERRED, NO_EXPIRY, score);
        cr_assert_eq(answer.score, number, "%s: %.17g", score, answer.score);
        /* Redis may have made 0 of -0. */
        cr_assert(same_number(answer.score, score_of("lock", "me")), "%s: %.17g", score, answer.score);
        /* With that it goes on, where there is an end to go on from. */
        if (isfinite(number)) {
            assert_answer(renew_permit(&runner, owner("me"), number, answer.score, 9000, EPOCH), RENEWED, NO_EXPIRY,
                          score);
        }
    }
}

Test(lease_zset, raises_companions_that_have_its_score)
{
    struct runner runner = with_redis_clock("lease_renew_zset");

    tell(ask("ZADD lock 100 me 100 with-me 99 older 101 newer 100 bystander"));
    redisReply *reply = ask("EVALSHA %s 1 lock me 200 100 9000 with-me older newer missing me", runner.digest);
    assert_answer(answer_of(reply), RENEWED, NO_EXPIRY, "with companions");
    cr_assert_eq(score_of("lock", "me"), 200);
    cr_assert_eq(score_of("lock", "with-me"), 200);
    cr_assert_eq(score_of("lock", "older"), 99);
    cr_assert_eq(score_of("lock", "newer"), 101);
    cr_assert_eq(score_of("lock", "bystander"), 100);
    cr_assert_eq(integer_of(ask("ZCARD lock")), 5, "one was added");
    reply = ask("EVALSHA %s 1 lock me 300 100 9000 with-me", runner.digest);
    assert_answer(permit_answer_of(reply), DEFERRED, NO_EXPIRY, "another score than expected");
    cr_assert_eq(score_of("lock", "with-me"), 200);
}

Test(lease_zset, takes_any_bytes_for_a_member)
{
    struct runner runner = with_own_clock("lease_renew_zset");
    static const size_t lengths[] = {1, 16, 65536, MEGABYTE};
    char *bytes = malloc(MEGABYTE);

    cr_assert_not_null(bytes);
    for (size_t i = 0; i < LENGTH(lengths); i++) {
        struct owner member = {bytes, lengths[i]}, prefix = {bytes, lengths[i] - 1};
        fill(bytes, lengths[i]);
        tell(ask("DEL lock"));
        tell(ask("ZADD lock 100 %b", bytes, lengths[i]));
        bytes[lengths[i] - 1] ^= 1;
        assert_answer(renew_permit(&runner, member, 200, 100, 1, EPOCH), NOT_OWNER, NO_EXPIRY, "one bit differs");
        bytes[lengths[i] - 1] ^= 1;
        assert_answer(renew_permit(&runner, prefix, 200, 100, 1, EPOCH), NOT_OWNER, NO_EXPIRY, "a byte less");
        assert_answer(renew_permit(&runner, member, 200, 100, 1, EPOCH), RENEWED, NO_EXPIRY, "the same");
        cr_assert_eq(integer_of(ask("ZCARD lock")), 1);
        cr_assert_eq(integer_of(ask("ZCOUNT lock 200 200")), 1);
    }
    free(bytes);
}

static const char *const members[] = {"permit-1", "permit-2", "permit-3"};

static void do_something_to_zset(int64_t now_ms)
{
    const char *member = members[chance(3)];
    long long at_ms = now_ms + chance(30000);
    redisReply *type = ask("TYPE lock");
    bool usable = strcmp(type->str, "zset") == 0 || strcmp(type->str, "none") == 0;

    freeReplyObject(type);
    if (!usable) {
        tell(ask("DEL lock"));
    }
    switch (chance(11)) {
    case 0:
    case 1:
    case 2:
    case 3:
        tell(ask("ZADD lock %lld %s", (long long)now_ms, member));
        break;
    case 4:
        tell(ask("ZADD lock %lld.%03d %s", (long long)now_ms / 1000, (int)chance(1000), member));
        break;
    case 5:
        tell(ask("ZREM lock %s", member));
        break;
    case 6:
        tell(ask("ZREMRANGEBYSCORE lock -inf %lld", (long long)now_ms - 10000));
        break;
    case 7:
    case 8:
        tell(ask("PEXPIREAT lock %lld", at_ms));
        break;
    case 9:
        tell(ask("PERSIST lock"));
        break;
    default:
        tell(ask("DEL lock"));
        if (chance(2) == 0) {
            tell(ask("SET lock %s PXAT %lld", member, at_ms));
        }
    }
}

static struct answer model_zset(const struct seen *seen, double found, double expected, int64_t lease_ms,
                                int64_t now_ms)
{
    int64_t life_ms = life_at(seen, now_ms);

    if (life_ms == NO_KEY) {
        return (struct answer){.code = GONE, .life_ms = life_ms};
    } else if (strcmp(seen->type, "zset") != 0) {
        return (struct answer){.code = ANOTHER_TYPE, .life_ms = life_ms};
    } else if (!seen->owned) {
        return (struct answer){.code = NOT_OWNER, .life_ms = life_ms};
    } else if (found != expected) {
        return (struct answer){.code = DEFERRED, .life_ms = life_ms};
    }
    return (struct answer){.code = RENEWED, .life_ms = life_ms >= 0 && life_ms < lease_ms ? lease_ms : life_ms};
}

/* NaN of those that are not there, and of all if it is no sorted set. */
static void look_at_scores(double *scores, const struct seen *seen)
{
    for (size_t i = 0; i < LENGTH(members); i++) {
        scores[i] = strcmp(seen->type, "zset") == 0 ? score_of("lock", members[i]) : NAN;
    }
}

/* The last of its digits differs. */
static double nudged(double number)
{
    uint64_t bits;

    memcpy(&bits, &number, sizeof bits);
    bits ^= 1;
    memcpy(&number, &bits, sizeof bits);
    return number;
}

Test(lease_zset, does_as_the_model_whatever_others_do)
{
    struct runner runner = with_own_clock("lease_renew_zset");
    int64_t now_ms = EPOCH;

    for (int step = 0; step < 6000; step++) {
        double before_scores[LENGTH(members)], after_scores[LENGTH(members)];
        do_something_to_zset(now_ms);
        now_ms += random_step_ms();
        expire(&only_lock, now_ms);
        size_t who = (size_t)chance(LENGTH(members));
        struct owner member = owner(members[who]);
        struct seen before = look_for("lock", member);
        look_at_scores(before_scores, &before);
        double found = before_scores[who], expected = isnan(found) ? 1 : found;
        expected = chance(5) == 0 ? nudged(expected) : expected;
        double score = expected + (double)(chance(2000) - 300) / (chance(2) == 0 ? 1 : 1000);
        int64_t lease_ms = 1 + chance(30000);
        struct answer answer = renew_permit(&runner, member, score, expected, lease_ms, now_ms),
                      model = model_zset(&before, found, expected, lease_ms, now_ms);
        struct seen after = look_for("lock", member);
        look_at_scores(after_scores, &after);
        assert_answer(answer, model.code, model.life_ms, "step");
        cr_assert(answer.code != DEFERRED || same_number(answer.score, found), "%.17g, not %.17g", answer.score, found);
        cr_assert_str_eq(before.type, after.type);
        cr_assert_eq(after.at_ms, answer.life_ms < 0 ? answer.life_ms : now_ms + answer.life_ms);
        cr_assert_geq(after.at_ms, before.at_ms);
        if (answer.code != RENEWED) {
            cr_assert(is_same(&before, &after));
        }
        for (size_t i = 0; i < LENGTH(members); i++) {
            double should = i == who && answer.code == RENEWED && score > found ? score : before_scores[i];
            cr_assert(after_scores[i] == should || (isnan(after_scores[i]) && isnan(should)), "%s", members[i]);
        }
        count_code(answer.code);
    }
    static const enum code codes[] = {ANOTHER_TYPE, NOT_OWNER, GONE, RENEWED, DEFERRED};
    for (size_t i = 0; i < LENGTH(codes); i++) {
        assert_counted(codes[i], 100);
    }
}

Test(lease_zset, keeps_a_permit_in_real_time)
{
    struct runner runner = with_redis_clock("lease_renew_zset");
    int64_t began_ms = wall_ms();

    tell(ask("ZADD lock 1700000000123 me"));
    tell(ask("PEXPIRE lock 5000"));
    assert_answer(renew_permit(&runner, owner("me"), 1700000003456, 1700000000123, 10000, 0), RENEWED, 10000, "me");
    cr_assert_eq(score_of("lock", "me"), 1700000003456);
    assert_life_since("lock", 10000, began_ms);
}
