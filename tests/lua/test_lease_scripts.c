/*
 * The scripts of lua/ that keep leases, on a real Redis.
 *
 * Most tests bring a clock of their own, so that times to live are exact to the millisecond and hours pass in a moment.
 * It is so far ahead of Redis' that nothing expires by that one. The tests called …_in_real_time bring none.
 */
#include "redis_fixture.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* 2100-01-01, in ms. */
#define EPOCH INT64_C(4102444800000)

#define NO_KEY (-2)
#define NO_EXPIRY (-1)

#define MEGABYTE (1024 * 1024)

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

TestSuite(lease_string, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(lease_hash, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(lease_zset, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(lease_heal, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(lease_release, .init = start_redis, .fini = stop_redis, .timeout = 100);
TestSuite(lease_scripts, .init = start_redis, .fini = stop_redis, .timeout = 100);

/* The codes that all scripts have in common. */
enum code {
    ANOTHER_TYPE = -4,
    SHORTENED = -3,
    PERSISTENT = -2,
    NOT_OWNER = -1,
    GONE = 0,
    RENEWED = 1,
    DEFERRED = 2,
};

/* ---- asking Redis ---- */

static redisReply *ask(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    redisReply *reply = redisvCommand(redis, format, arguments);
    va_end(arguments);
    cr_assert_not_null(reply, "%s", redis->errstr);
    return reply;
}

static redisReply *checked(redisReply *reply, int type)
{
    cr_assert_neq(reply->type, REDIS_REPLY_ERROR, "%s", reply->str);
    cr_assert_eq(reply->type, type);
    return reply;
}

static void tell(redisReply *reply)
{
    cr_assert_neq(reply->type, REDIS_REPLY_ERROR, "%s", reply->str);
    freeReplyObject(reply);
}

static int64_t integer_of(redisReply *reply)
{
    int64_t integer = checked(reply, REDIS_REPLY_INTEGER)->integer;

    freeReplyObject(reply);
    return integer;
}

/* NaN if there is none. */
static double score_of(const char *key, const char *member)
{
    redisReply *reply = ask("ZSCORE %s %s", key, member);
    double score = reply->type == REDIS_REPLY_STRING ? strtod(reply->str, NULL) : NAN;

    freeReplyObject(reply);
    return score;
}

static void assert_error_begins(redisReply *reply, const char *text)
{
    cr_assert_eq(reply->type, REDIS_REPLY_ERROR, "no error, where there ought to be: %s", text);
    cr_assert_eq(strncmp(reply->str, text, strlen(text)), 0, "%s", reply->str);
    freeReplyObject(reply);
}

/* ---- scripts ---- */

/* A script with or without a clock of the test's own, as Redis knows it. */
struct runner {
    char digest[41];
};

/* Goes before a script whose last argument is the time. */
static const char own_clock[] = "local own_time, real = tonumber(ARGV[#ARGV]), redis\n"
                                "local redis = setmetatable({call = function(name, key, ...)\n"
                                "    if name == 'PTTL' then\n"
                                "        local at = real.call('PEXPIRETIME', key)\n"
                                "        return at < 0 and at or at - own_time\n"
                                "    elseif name == 'PEXPIRE' then\n"
                                "        local life = tonumber((...))\n"
                                "        assert(life >= 1 and real.call('EXISTS', key) == 1)\n"
                                "        return real.call('PEXPIREAT', key, string.format('%.0f', own_time + life))\n"
                                "    end\n"
                                "    return real.call(name, key, ...)\n"
                                "end}, {__index = real})\n";

static struct runner with_own_clock(const char *name)
{
    struct runner runner;
    char text[16384];

    snprintf(text, sizeof text, "%s%s", own_clock, script_find(name)->text);
    redisReply *reply = checked(ask("SCRIPT LOAD %s", text), REDIS_REPLY_STRING);
    snprintf(runner.digest, sizeof runner.digest, "%s", reply->str);
    freeReplyObject(reply);
    return runner;
}

static struct runner with_redis_clock(const char *name)
{
    struct runner runner;

    load_script(script_find(name));
    snprintf(runner.digest, sizeof runner.digest, "%s", script_find(name)->sha1);
    return runner;
}

struct keys {
    size_t count;
    const char *names[4];
};

static const struct keys only_lock = {1, {"lock"}};

struct owner {
    const char *bytes;
    size_t length;
};

static struct owner owner(const char *text)
{
    return (struct owner){text, strlen(text)};
}

/* The words of an EVALSHA: with keys, an owner, and numbers or texts. It must stay where it is once begun. */
struct call {
    size_t count;
    const char *words[16];
    size_t lengths[16];
    char texts[16][48];
};

static void add_bytes(struct call *call, const char *bytes, size_t length)
{
    cr_assert_lt(call->count, LENGTH(call->words));
    call->words[call->count] = bytes;
    call->lengths[call->count++] = length;
}

static void add_text(struct call *call, const char *text)
{
    add_bytes(call, text, strlen(text));
}

static void add_number(struct call *call, int64_t number)
{
    char *text = call->texts[call->count];

    snprintf(text, sizeof call->texts[0], "%" PRId64, number);
    add_text(call, text);
}

/* Written so that it is read back as the very same. */
static void add_score(struct call *call, double score)
{
    char *text = call->texts[call->count];

    snprintf(text, sizeof call->texts[0], "%.17g", score);
    add_text(call, text);
}

static void begin(struct call *call, const struct runner *runner, const struct keys *keys, struct owner owner)
{
    call->count = 0;
    add_text(call, "EVALSHA");
    add_text(call, runner->digest);
    add_number(call, (int64_t)keys->count);
    for (size_t i = 0; i < keys->count; i++) {
        add_text(call, keys->names[i]);
    }
    add_bytes(call, owner.bytes, owner.length);
}

static redisReply *finish(struct call *call)
{
    redisReply *reply = redisCommandArgv(redis, (int)call->count, call->words, call->lengths);

    cr_assert_not_null(reply, "%s", redis->errstr);
    return reply;
}

struct answer {
    int64_t code;
    int64_t life_ms;
    double score; /* of a permit that is deferred to; NaN if none was told */
};

static struct answer read_answer(redisReply *reply, size_t elements)
{
    checked(reply, REDIS_REPLY_ARRAY);
    cr_assert_eq(reply->elements, elements);
    for (size_t i = 0; i < elements; i++) {
        cr_assert_eq(reply->element[i]->type, REDIS_REPLY_INTEGER);
    }
    return (struct answer){reply->element[0]->integer, reply->element[1]->integer, NAN};
}

static struct answer answer_of(redisReply *reply)
{
    struct answer answer = read_answer(reply, 2);

    freeReplyObject(reply);
    return answer;
}

/* The two halves of the score's bits. */
static double told_score(const redisReply *high, const redisReply *low)
{
    uint64_t bits = (uint64_t)high->integer << 32 | (uint64_t)low->integer;
    double score;

    cr_assert(high->integer >= 0 && high->integer <= UINT32_MAX);
    cr_assert(low->integer >= 0 && low->integer <= UINT32_MAX);
    memcpy(&score, &bits, sizeof score);
    return score;
}

static struct answer permit_answer_of(redisReply *reply)
{
    bool tells_score = reply->type == REDIS_REPLY_ARRAY && reply->elements == 4;
    struct answer answer = read_answer(reply, tells_score ? 4 : 2);

    cr_assert_eq(tells_score, answer.code == DEFERRED);
    if (tells_score) {
        answer.score = told_score(reply->element[2], reply->element[3]);
    }
    freeReplyObject(reply);
    return answer;
}

/* -0 is another number than 0 here. */
static bool same_number(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static void assert_answer(struct answer answer, int64_t code, int64_t life_ms, const char *what)
{
    cr_assert(answer.code == code && answer.life_ms == life_ms,
              "%s: {%" PRId64 ", %" PRId64 "}, expected {%" PRId64 ", %" PRId64 "}", what, answer.code, answer.life_ms,
              code, life_ms);
}

struct terms {
    int64_t lease_ms;
    int64_t expected_ms;
    int64_t slack_ms;
};

/* Of the scripts for strings and hashes, which take the same. */
static struct answer renew(const struct runner *runner, const struct keys *keys, struct owner owner, struct terms terms,
                           int64_t now_ms)
{
    struct call call;

    begin(&call, runner, keys, owner);
    add_number(&call, terms.lease_ms);
    add_number(&call, terms.expected_ms);
    add_number(&call, terms.slack_ms);
    add_number(&call, now_ms);
    return answer_of(finish(&call));
}

static struct answer renew_permit(const struct runner *runner, struct owner member, double score, double expected,
                                  int64_t lease_ms, int64_t now_ms)
{
    struct call call;

    begin(&call, runner, &only_lock, member);
    add_score(&call, score);
    add_score(&call, expected);
    add_number(&call, lease_ms);
    add_number(&call, now_ms);
    return permit_answer_of(finish(&call));
}

static struct answer heal(const struct runner *runner, struct owner token, int64_t ttl_ms, int64_t now_ms)
{
    struct call call;

    begin(&call, runner, &only_lock, token);
    add_number(&call, ttl_ms);
    add_number(&call, now_ms);
    return answer_of(finish(&call));
}

static int64_t release(const struct runner *runner, const struct keys *keys, struct owner owner)
{
    struct call call;

    begin(&call, runner, keys, owner);
    return integer_of(finish(&call));
}

/* ---- what there is ---- */

struct seen {
    char type[8];
    char digest[41]; /* of the value */
    int64_t at_ms;   /* when it ends; NO_KEY, NO_EXPIRY */
    bool owned;      /* by the owner that was asked for */
};

static struct seen look_for(const char *key, struct owner owner)
{
    static const char script[] =
        "local type = redis.call('TYPE', KEYS[1]).ok\n"
        "local dump = redis.call('DUMP', KEYS[1])\n"
        "local owned = type == 'string' and redis.call('GET', KEYS[1]) == ARGV[1] or\n"
        "    type == 'hash' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 or\n"
        "    type == 'zset' and redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= false\n"
        "return {type, dump and redis.sha1hex(dump) or '', redis.call('PEXPIRETIME', KEYS[1]), owned and 1 or 0}\n";
    redisReply *reply = checked(ask("EVAL %s 1 %s %b", script, key, owner.bytes, owner.length), REDIS_REPLY_ARRAY);
    struct seen seen = {.at_ms = reply->element[2]->integer, .owned = reply->element[3]->integer == 1};

    snprintf(seen.type, sizeof seen.type, "%s", reply->element[0]->str);
    snprintf(seen.digest, sizeof seen.digest, "%s", reply->element[1]->str);
    freeReplyObject(reply);
    return seen;
}

static void look(const struct keys *keys, struct owner owner, struct seen *seen)
{
    for (size_t i = 0; i < keys->count; i++) {
        seen[i] = look_for(keys->names[i], owner);
    }
}

static bool is_same(const struct seen *one, const struct seen *other)
{
    return strcmp(one->type, other->type) == 0 && strcmp(one->digest, other->digest) == 0 && one->at_ms == other->at_ms;
}

static int64_t life_at(const struct seen *seen, int64_t now_ms)
{
    return seen->at_ms < 0 ? seen->at_ms : seen->at_ms - now_ms;
}

/*
 * What a renewal may never do, whatever it answers: make, end or change a value, shorten a time to live or give one,
 * and lengthen by more than the lease. Only with RENEWED is anything lengthened. What ownership is, is up to the
 * caller.
 */
static void assert_only_lengthened(const struct seen *before, const struct seen *after, int64_t code, int64_t until_ms)
{
    cr_assert_str_eq(before->type, after->type);
    cr_assert_str_eq(before->digest, after->digest);
    if (code != RENEWED || before->at_ms < 0) {
        cr_assert_eq(before->at_ms, after->at_ms);
    } else {
        cr_assert_geq(after->at_ms, before->at_ms, "shortened");
        cr_assert(after->at_ms == before->at_ms || after->at_ms == until_ms);
    }
}

/* ---- chance ---- */

static uint64_t chance_state = 88172645463325252;

/* From 0 to below bound, always the same ones in a test. */
static int64_t chance(int64_t bound)
{
    chance_state ^= chance_state << 13;
    chance_state ^= chance_state >> 7;
    chance_state ^= chance_state << 17;
    return (int64_t)(chance_state % (uint64_t)bound);
}

/* How often each code was answered. */
static int64_t tally[DEFERRED - ANOTHER_TYPE + 1];

static void count_code(int64_t code)
{
    cr_assert(code >= ANOTHER_TYPE && code <= DEFERRED, "%" PRId64, code);
    tally[code - ANOTHER_TYPE]++;
}

static void assert_counted(enum code code, int64_t least)
{
    cr_assert_geq(tally[code - ANOTHER_TYPE], least, "code %d only %" PRId64 " times", code,
                  tally[code - ANOTHER_TYPE]);
}

/* Near to what is there, often at the very edge of the slack, sometimes far off. */
static struct terms random_terms(int64_t life_ms)
{
    struct terms terms = {.lease_ms = 1 + chance(30000), .slack_ms = chance(3) * 500};
    const int64_t off_ms[] = {
        0, 0, 0, terms.slack_ms, -terms.slack_ms, terms.slack_ms + 1, -terms.slack_ms - 1, chance(40000) - 20000};

    terms.expected_ms = life_ms + off_ms[chance(LENGTH(off_ms))];
    return terms;
}

/* Has those expire by the test's own clock whose time has come. */
static void expire(const struct keys *keys, int64_t now_ms)
{
    for (size_t i = 0; i < keys->count; i++) {
        int64_t at_ms = integer_of(ask("PEXPIRETIME %s", keys->names[i]));
        if (at_ms >= 0 && at_ms < now_ms) {
            tell(ask("DEL %s", keys->names[i]));
        }
    }
}

static int64_t random_step_ms(void)
{
    return chance(20) == 0 ? chance(20000) : chance(500);
}

/* ---- in real time ---- */

static int64_t wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* It was set to live so long since began_ms. */
static void assert_life_since(const char *key, int64_t life_ms, int64_t began_ms)
{
    int64_t left_ms = integer_of(ask("PTTL %s", key));

    cr_assert_leq(left_ms, life_ms);
    cr_assert_geq(left_ms, life_ms - (wall_ms() - began_ms) - 2);
}

/* ---- strings ---- */

static void set_lock(const char *key, const char *token, int64_t life_ms)
{
    tell(ask("SET %s %s PXAT %lld", key, token, (long long)(EPOCH + life_ms)));
}

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

static void fill(char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = (char)chance(256);
    }
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
        struct seen before[4], after[4];
        do_something_to_strings(now_ms);
        now_ms += random_step_ms();
        expire(&strings, now_ms);
        struct keys keys = random_strings();
        struct owner token = owner(tokens[chance(3)]);
        look(&keys, token, before);
        int64_t dbsize = integer_of(ask("DBSIZE"));
        struct terms terms = random_terms(life_at(&before[chance((int64_t)keys.count)], now_ms));
        struct answer answer = renew(&runner, &keys, token, terms, now_ms),
                      model = model_strings(before, keys.count, terms, now_ms);
        look(&keys, token, after);
        assert_answer(answer, model.code, model.life_ms, "step");
        cr_assert_eq(integer_of(ask("DBSIZE")), dbsize);
        for (size_t i = 0; i < keys.count; i++) {
            assert_only_lengthened(&before[i], &after[i], answer.code, now_ms + terms.lease_ms);
            cr_assert(answer.code != RENEWED || (before[i].owned && after[i].at_ms >= now_ms + terms.lease_ms));
        }
        count_code(answer.code);
        renewed_several += answer.code == RENEWED && keys.count > 1;
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

/* ---- hashes ---- */

static void set_hash(const char *fields, int64_t life_ms)
{
    char command[128];

    tell(ask("DEL lock"));
    snprintf(command, sizeof command, "HSET lock %s", fields);
    tell(ask(command));
    if (life_ms >= 0) {
        tell(ask("PEXPIREAT lock %lld", (long long)(EPOCH + life_ms)));
    }
}

Test(lease_hash, tells_what_became_of_the_lock)
{
    struct runner runner = with_own_clock("lease_renew_hash");
    struct terms terms = {30000, 20000, 500};

    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), GONE, NO_KEY, "none");
    cr_assert_eq(integer_of(ask("DBSIZE")), 0, "it was made");
    set_hash("other 1", 25000);
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), NOT_OWNER, 25000, "stolen");
    set_hash("other 1", NO_EXPIRY);
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), NOT_OWNER, NO_EXPIRY, "stolen for ever");
    set_hash("me 1", NO_EXPIRY);
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), PERSISTENT, NO_EXPIRY, "persistent");
    set_hash("me 1", 19499);
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), SHORTENED, 19499, "shortened");
    set_hash("me 1", 20501);
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), DEFERRED, 20501, "renewed by the owner");
    set_hash("me 3", 19500);
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), RENEWED, 30000, "renewed");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 30000);
    assert_answer(renew(&runner, &only_lock, owner("me"), (struct terms){900, 30000, 0}, EPOCH), RENEWED, 30000,
                  "has more than the lease");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 30000, "shortened");
    tell(ask("SET lock me PXAT %lld", (long long)(EPOCH + 20000)));
    assert_answer(renew(&runner, &only_lock, owner("me"), terms, EPOCH), ANOTHER_TYPE, 20000, "string");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 20000);
}

#define HOLD "{lock}:me:rwlock_timeout:"

static const struct keys reader = {4, {"lock", HOLD "1", HOLD "2", HOLD "3"}};

Test(lease_hash, renews_the_holds_of_a_reader_that_are_left)
{
    struct runner runner = with_own_clock("lease_renew_hash");
    struct terms terms = {30000, 20000, 0};

    /* The other reader keeps the hash longer than this one has it. */
    set_hash("mode read me 2 other 1", 25000);
    set_lock("{lock}:other:rwlock_timeout:1", "1", 25000);
    set_lock(HOLD "1", "1", 5000);
    set_lock(HOLD "2", "1", 20000);
    assert_answer(renew(&runner, &reader, owner("me"), terms, EPOCH), RENEWED, 30000, "renewed");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 30000);
    cr_assert_eq(integer_of(ask("PEXPIRETIME " HOLD "1")), EPOCH + 30000);
    cr_assert_eq(integer_of(ask("PEXPIRETIME " HOLD "2")), EPOCH + 30000);
    cr_assert_eq(integer_of(ask("EXISTS " HOLD "3")), 0, "a hold was made");
    cr_assert_eq(integer_of(ask("PEXPIRETIME {lock}:other:rwlock_timeout:1")), EPOCH + 25000, "another's hold");
}

Test(lease_hash, judges_a_reader_by_its_own_holds)
{
    struct runner runner = with_own_clock("lease_renew_hash");
    struct terms terms = {30000, 20000, 500};
    static const struct {
        int64_t hash_ms, first_ms, second_ms; /* NO_KEY, NO_EXPIRY */
        int64_t code, life_ms;
    } cases[] = {
        {20000, 20000, NO_KEY, RENEWED, 30000},
        {60000, 20000, NO_KEY, RENEWED, 30000},
        {60000, NO_KEY, 20000, RENEWED, 30000},
        {60000, 10, 20500, RENEWED, 30000},
        {60000, 10, 20501, DEFERRED, 20501},
        {60000, 20501, 20000, DEFERRED, 20501},
        {60000, 19499, 10, SHORTENED, 19499},
        {19499, 20000, NO_KEY, SHORTENED, 19499},
        {19499, 25000, 60000, SHORTENED, 19499},
        {20000, 25000, 60000, RENEWED, 30000},
        {20000, NO_KEY, NO_KEY, GONE, NO_KEY},
        {20000, NO_EXPIRY, NO_KEY, PERSISTENT, NO_EXPIRY},
        {20000, 20000, NO_EXPIRY, PERSISTENT, NO_EXPIRY},
        {NO_EXPIRY, 20000, NO_KEY, PERSISTENT, NO_EXPIRY},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        const int64_t holds_ms[] = {cases[i].first_ms, cases[i].second_ms};
        struct seen before[4], after[4];
        char what[32];
        snprintf(what, sizeof what, "case %zu", i);
        tell(ask("FLUSHALL"));
        set_hash("mode read me 2", cases[i].hash_ms);
        for (size_t j = 0; j < LENGTH(holds_ms); j++) {
            if (holds_ms[j] == NO_EXPIRY) {
                tell(ask("SET %s 1", reader.names[j + 1]));
            } else if (holds_ms[j] >= 0) {
                set_lock(reader.names[j + 1], "1", holds_ms[j]);
            }
        }
        look(&reader, owner("me"), before);
        assert_answer(renew(&runner, &reader, owner("me"), terms, EPOCH), cases[i].code, cases[i].life_ms, what);
        look(&reader, owner("me"), after);
        for (size_t j = 0; j < reader.count; j++) {
            assert_only_lengthened(&before[j], &after[j], cases[i].code, EPOCH + terms.lease_ms);
            cr_assert(cases[i].code != RENEWED || after[j].at_ms == NO_KEY || after[j].at_ms >= EPOCH + terms.lease_ms);
        }
    }
}

Test(lease_hash, leaves_alone_a_reader_whose_hold_is_of_another_type)
{
    struct runner runner = with_own_clock("lease_renew_hash");

    set_hash("mode read me 2", 20000);
    set_lock(HOLD "1", "1", 20000);
    tell(ask("RPUSH " HOLD "2 1"));
    tell(ask("PEXPIREAT " HOLD "2 %lld", (long long)(EPOCH + 20)));
    assert_answer(renew(&runner, &reader, owner("me"), (struct terms){30000, 20000, 0}, EPOCH), ANOTHER_TYPE, 20,
                  "list");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 20000);
    cr_assert_eq(integer_of(ask("PEXPIRETIME " HOLD "1")), EPOCH + 20000);
}

static void assert_compares_whole_fields(const struct runner *runner, char *bytes, size_t length)
{
    struct terms terms = {30000, 20000, 0};
    struct owner field = {bytes, length}, prefix = {bytes, length - 1};

    tell(ask("DEL lock"));
    tell(ask("HSET lock %b 1", bytes, length));
    tell(ask("PEXPIREAT lock %lld", (long long)(EPOCH + 20000)));
    bytes[length - 1] ^= 1;
    assert_answer(renew(runner, &only_lock, field, terms, EPOCH), NOT_OWNER, 20000, "one bit differs");
    bytes[length - 1] ^= 1;
    assert_answer(renew(runner, &only_lock, prefix, terms, EPOCH), NOT_OWNER, 20000, "a byte less");
    assert_answer(renew(runner, &only_lock, field, terms, EPOCH), RENEWED, 30000, "the same");
}

Test(lease_hash, takes_any_bytes_for_an_owner)
{
    struct runner runner = with_own_clock("lease_renew_hash");
    static const size_t lengths[] = {1, 16, 65536, MEGABYTE};
    char *bytes = malloc(MEGABYTE);

    cr_assert_not_null(bytes);
    for (size_t i = 0; i < LENGTH(lengths); i++) {
        fill(bytes, lengths[i]);
        assert_compares_whole_fields(&runner, bytes, lengths[i]);
    }
    free(bytes);
}

static const char *const owners[] = {"me", "you"};
static const struct keys holds[] = {
    {4, {"lock", HOLD "1", HOLD "2", HOLD "3"}},
    {4, {"lock", "{lock}:you:rwlock_timeout:1", "{lock}:you:rwlock_timeout:2", "{lock}:you:rwlock_timeout:3"}},
};

/* As Redisson does, as far as keys are concerned. */
static const char redisson[] =
    "local verb, owner, at = ARGV[1], ARGV[2], ARGV[3]\n"
    "local type, mode = redis.call('TYPE', 'lock').ok, false\n"
    "if type ~= 'none' and type ~= 'hash' then return end\n"
    "if type == 'hash' then mode = redis.call('HGET', 'lock', 'mode') end\n"
    "local hold = '{lock}:' .. owner .. ':rwlock_timeout:'\n"
    "if verb == 'lock' and (type == 'none' or not mode and redis.call('HEXISTS', 'lock', owner) == 1) then\n"
    "    redis.call('HINCRBY', 'lock', owner, 1)\n"
    "    redis.call('PEXPIREAT', 'lock', at)\n"
    "elseif verb == 'read' and (type == 'none' or mode == 'read') then\n"
    "    local count = redis.call('HINCRBY', 'lock', owner, 1)\n"
    "    if count > 3 then redis.call('HINCRBY', 'lock', owner, -1) return end\n"
    "    redis.call('HSET', 'lock', 'mode', 'read')\n"
    "    redis.call('SET', hold .. count, 1, 'PXAT', at)\n"
    "    redis.call('PEXPIREAT', 'lock', at, unpack(type == 'hash' and {'GT'} or {}))\n"
    "elseif verb == 'unlock' and type == 'hash' and redis.call('HEXISTS', 'lock', owner) == 1 then\n"
    "    local count = redis.call('HINCRBY', 'lock', owner, -1)\n"
    "    if mode then redis.call('DEL', hold .. (count + 1)) end\n"
    "    if count <= 0 then redis.call('HDEL', 'lock', owner) end\n"
    "    if mode and redis.call('HLEN', 'lock') == 1 then redis.call('DEL', 'lock') end\n"
    "end\n";

static void do_something_to_hash(int64_t now_ms)
{
    const char *owner = owners[chance(2)], *key = holds[chance(2)].names[chance(4)];
    long long at_ms = now_ms + chance(30000);

    switch (chance(14)) {
    case 0:
    case 1:
        tell(ask("EVAL %s 0 lock %s %lld", redisson, owner, at_ms));
        break;
    case 2:
    case 3:
    case 4:
    case 5:
        tell(ask("EVAL %s 0 read %s %lld", redisson, owner, at_ms));
        break;
    case 6:
    case 7:
        tell(ask("EVAL %s 0 unlock %s 0", redisson, owner));
        break;
    case 8:
        tell(ask("DEL lock"));
        tell(ask("HSET lock %s 1", owner));
        tell(ask("PEXPIREAT lock %lld", at_ms));
        break;
    case 9:
        tell(ask("PERSIST %s", key));
        break;
    case 10:
    case 11:
        tell(ask("PEXPIREAT %s %lld", key, at_ms));
        break;
    case 12:
        tell(ask("DEL %s", key));
        break;
    default:
        tell(ask("FLUSHALL"));
        if (chance(2) == 0) {
            tell(ask("RPUSH %s 1", key));
        }
    }
}

static struct answer model_hash(const struct seen *seen, size_t count, struct terms terms, int64_t now_ms)
{
    int64_t life_ms = life_at(&seen[0], now_ms), longest_ms = NO_KEY;

    if (seen[0].at_ms == NO_KEY) {
        return (struct answer){.code = GONE, .life_ms = NO_KEY};
    } else if (strcmp(seen[0].type, "hash") != 0) {
        return (struct answer){.code = ANOTHER_TYPE, .life_ms = life_ms};
    } else if (!seen[0].owned) {
        return (struct answer){.code = NOT_OWNER, .life_ms = life_ms};
    } else if (seen[0].at_ms == NO_EXPIRY) {
        return (struct answer){.code = PERSISTENT, .life_ms = NO_EXPIRY};
    }
    for (size_t i = 1; i < count; i++) {
        int64_t hold_ms = life_at(&seen[i], now_ms);
        if (hold_ms != NO_KEY && strcmp(seen[i].type, "string") != 0) {
            return (struct answer){.code = ANOTHER_TYPE, .life_ms = hold_ms};
        } else if (hold_ms == NO_EXPIRY) {
            return (struct answer){.code = PERSISTENT, .life_ms = NO_EXPIRY};
        }
        longest_ms = hold_ms > longest_ms ? hold_ms : longest_ms;
    }
    if (count > 1 && longest_ms == NO_KEY) {
        return (struct answer){.code = GONE, .life_ms = NO_KEY};
    } else if (count > 1 && longest_ms < life_ms) {
        life_ms = longest_ms;
    }
    if (terms.expected_ms - life_ms > terms.slack_ms) {
        return (struct answer){.code = SHORTENED, .life_ms = life_ms};
    } else if (life_ms - terms.expected_ms > terms.slack_ms) {
        return (struct answer){.code = DEFERRED, .life_ms = life_ms};
    }
    return (struct answer){.code = RENEWED, .life_ms = life_ms > terms.lease_ms ? life_ms : terms.lease_ms};
}

static bool is_read_write(void)
{
    return integer_of(ask("EVAL %s 1 lock", "return redis.call('TYPE', KEYS[1]).ok == 'hash' and "
                                            "redis.call('HEXISTS', KEYS[1], 'mode') or 0")) == 1;
}

Test(lease_hash, does_as_the_model_whatever_others_do)
{
    struct runner runner = with_own_clock("lease_renew_hash");
    int64_t now_ms = EPOCH, renewed_holds = 0;

    for (int step = 0; step < 6000; step++) {
        struct seen before[4], after[4];
        do_something_to_hash(now_ms);
        now_ms += random_step_ms();
        expire(&holds[0], now_ms);
        expire(&holds[1], now_ms);
        size_t who = (size_t)chance(2);
        struct owner field = owner(owners[who]);
        struct keys keys = holds[who];
        keys.count = is_read_write() ? 1 + (size_t)chance(4) : 1;
        look(&keys, field, before);
        int64_t dbsize = integer_of(ask("DBSIZE"));
        struct terms terms = random_terms(life_at(&before[chance((int64_t)keys.count)], now_ms));
        struct answer answer = renew(&runner, &keys, field, terms, now_ms),
                      model = model_hash(before, keys.count, terms, now_ms);
        look(&keys, field, after);
        assert_answer(answer, model.code, model.life_ms, "step");
        cr_assert_eq(integer_of(ask("DBSIZE")), dbsize);
        for (size_t i = 0; i < keys.count; i++) {
            assert_only_lengthened(&before[i], &after[i], answer.code, now_ms + terms.lease_ms);
            cr_assert(answer.code != RENEWED || before[i].at_ms == NO_KEY || after[i].at_ms >= now_ms + terms.lease_ms);
            renewed_holds += i > 0 && after[i].at_ms > before[i].at_ms;
        }
        cr_assert(answer.code != RENEWED || before[0].owned);
        count_code(answer.code);
    }
    for (int code = ANOTHER_TYPE; code <= DEFERRED; code++) {
        assert_counted(code, 60);
    }
    cr_assert_gt(renewed_holds, 100, "%" PRId64, renewed_holds);
}

Test(lease_hash, keeps_a_lock_in_real_time)
{
    struct runner runner = with_redis_clock("lease_renew_hash");
    struct keys two = {2, {"lock", HOLD "1"}};
    int64_t began_ms = wall_ms();

    tell(ask("HSET lock mode read me 1"));
    tell(ask("PEXPIRE lock 20000"));
    tell(ask("SET " HOLD "1 1 PX 20000"));
    assert_answer(renew(&runner, &two, owner("me"), (struct terms){30000, 20000, 10000}, 0), RENEWED, 30000, "renewed");
    assert_life_since("lock", 30000, began_ms);
    assert_life_since(HOLD "1", 30000, began_ms);
}

/* ---- sorted sets ---- */

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

/* ---- locks without a time to live ---- */

Test(lease_heal, gives_a_time_to_live_to_the_owners_lock_only)
{
    struct runner runner = with_own_clock("lease_heal");

    assert_answer(heal(&runner, owner("me"), 5000, EPOCH), GONE, NO_KEY, "none");
    cr_assert_eq(integer_of(ask("DBSIZE")), 0, "it was made");
    tell(ask("SETNX lock other"));
    assert_answer(heal(&runner, owner("me"), 5000, EPOCH), NOT_OWNER, NO_EXPIRY, "another's");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), NO_EXPIRY);
    set_lock("lock", "other", 10);
    assert_answer(heal(&runner, owner("me"), 5000, EPOCH), NOT_OWNER, 10, "another's that expires");
    tell(ask("SET lock me"));
    assert_answer(heal(&runner, owner("me"), 5000, EPOCH), RENEWED, 5000, "healed");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 5000);
    assert_answer(heal(&runner, owner("me"), 9000, EPOCH + 1), DEFERRED, 4999, "has one");
    assert_answer(heal(&runner, owner("me"), 1, EPOCH + 1), DEFERRED, 4999, "has a longer one");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH + 5000);
    tell(ask("DEL lock"));
    tell(ask("HSET lock me 1"));
    assert_answer(heal(&runner, owner("me"), 5000, EPOCH), ANOTHER_TYPE, NO_EXPIRY, "hash");
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), NO_EXPIRY);
}

Test(lease_heal, takes_any_bytes_for_a_token)
{
    struct runner runner = with_own_clock("lease_heal");
    char *bytes = malloc(MEGABYTE);

    cr_assert_not_null(bytes);
    fill(bytes, MEGABYTE);
    tell(ask("SET lock %b", bytes, (size_t)MEGABYTE));
    bytes[MEGABYTE - 1] ^= 1;
    assert_answer(heal(&runner, (struct owner){bytes, MEGABYTE}, 5000, EPOCH), NOT_OWNER, NO_EXPIRY, "differs");
    bytes[MEGABYTE - 1] ^= 1;
    assert_answer(heal(&runner, (struct owner){bytes, MEGABYTE}, 5000, EPOCH), RENEWED, 5000, "the same");
    free(bytes);
}

Test(lease_heal, heals_in_real_time)
{
    struct runner runner = with_redis_clock("lease_heal");
    int64_t began_ms = wall_ms();

    tell(ask("SETNX lock me"));
    assert_answer(heal(&runner, owner("me"), 20000, 0), RENEWED, 20000, "healed");
    assert_life_since("lock", 20000, began_ms);
    /* From then on it can be renewed. */
    struct runner renewal = with_redis_clock("lease_renew_string");
    assert_answer(renew(&renewal, &only_lock, owner("me"), (struct terms){30000, 20000, 10000}, 0), RENEWED, 30000,
                  "renewed");
}

/* ---- releases ---- */

Test(lease_release, deletes_only_what_holds_the_token)
{
    struct runner runner = with_redis_clock("lease_release");
    struct keys four = {4, {"{a}1", "{a}2", "{a}3", "{a}4"}};

    cr_assert_eq(release(&runner, &four, owner("me")), 0);
    tell(ask("SET {a}1 me PX 60000"));
    tell(ask("SET {a}2 other"));
    tell(ask("RPUSH {a}3 me"));
    tell(ask("SET {a}4 me"));
    cr_assert_eq(release(&runner, &four, owner("m")), 0);
    cr_assert_eq(release(&runner, &four, owner("")), 0);
    cr_assert_eq(integer_of(ask("DBSIZE")), 4);
    cr_assert_eq(release(&runner, &four, owner("me")), 2);
    cr_assert_eq(integer_of(ask("EXISTS {a}2 {a}3")), 2);
    cr_assert_eq(integer_of(ask("DBSIZE")), 2);
    cr_assert_eq(release(&runner, &four, owner("me")), 0);
    tell(ask("SET {a}1 me"));
    cr_assert_eq(release(&runner, &(struct keys){2, {"{a}1", "{a}1"}}, owner("me")), 1, "named twice");
}

Test(lease_release, takes_any_bytes_for_an_owner)
{
    static const char *const names[] = {"lease_release", "lease_release_hash", "lease_release_zset"};
    static const char *const takes[] = {"SET lock %b", "HSET lock %b 1", "ZADD lock 1 %b"};
    char *bytes = malloc(MEGABYTE);

    cr_assert_not_null(bytes);
    for (size_t i = 0; i < LENGTH(names); i++) {
        struct runner runner = with_redis_clock(names[i]);
        fill(bytes, MEGABYTE);
        tell(ask(takes[i], bytes, (size_t)MEGABYTE));
        bytes[MEGABYTE - 1] ^= 1;
        cr_assert_eq(release(&runner, &only_lock, (struct owner){bytes, MEGABYTE}), 0, "%s", names[i]);
        bytes[MEGABYTE - 1] ^= 1;
        cr_assert_eq(release(&runner, &only_lock, (struct owner){bytes, MEGABYTE}), 1, "%s", names[i]);
        cr_assert_eq(integer_of(ask("DBSIZE")), 0, "%s", names[i]);
    }
    free(bytes);
}

Test(lease_release, removes_the_field_of_the_owner)
{
    struct runner runner = with_redis_clock("lease_release_hash");

    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0);
    tell(ask("HSET lock me 3 other 1"));
    tell(ask("PEXPIREAT lock %lld", (long long)(EPOCH)));
    cr_assert_eq(release(&runner, &only_lock, owner("m")), 0);
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 1);
    cr_assert_eq(integer_of(ask("HEXISTS lock me")), 0);
    cr_assert_eq(integer_of(ask("HEXISTS lock other")), 1);
    cr_assert_eq(integer_of(ask("PEXPIRETIME lock")), EPOCH);
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0);
    cr_assert_eq(release(&runner, &only_lock, owner("other")), 1);
    cr_assert_eq(integer_of(ask("EXISTS lock")), 0);
    tell(ask("SET lock me"));
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0, "a string");
    cr_assert_eq(integer_of(ask("EXISTS lock")), 1);
}

static void assert_mode(const char *mode)
{
    redisReply *reply = checked(ask("HGET lock mode"), REDIS_REPLY_STRING);

    cr_assert_str_eq(reply->str, mode);
    freeReplyObject(reply);
}

Test(lease_release, leaves_a_read_write_lock_to_the_others)
{
    struct runner runner = with_redis_clock("lease_release_hash");

    tell(ask("HSET lock mode read me 2 other 1"));
    tell(ask("MSET " HOLD "1 1 " HOLD "2 1 {lock}:other:rwlock_timeout:1 1"));
    cr_assert_eq(release(&runner, &reader, owner("nobody")), 0);
    cr_assert_eq(integer_of(ask("DBSIZE")), 4, "holds without a field");
    cr_assert_eq(release(&runner, &reader, owner("me")), 1);
    cr_assert_eq(integer_of(ask("EXISTS lock {lock}:other:rwlock_timeout:1")), 2);
    cr_assert_eq(integer_of(ask("DBSIZE")), 2);
    assert_mode("read");
    cr_assert_eq(release(&runner, &only_lock, owner("other")), 1);
    cr_assert_eq(integer_of(ask("EXISTS lock")), 0, "its mode alone is left");

    tell(ask("HSET lock mode write me:write 1 me 1"));
    cr_assert_eq(release(&runner, &only_lock, owner("me:write")), 1);
    assert_mode("read");
    tell(ask("HSET lock mode write me:write 1"));
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 1);
    assert_mode("write");
    cr_assert_eq(release(&runner, &only_lock, owner("me:write")), 1);
    cr_assert_eq(integer_of(ask("EXISTS lock")), 0);
}

Test(lease_release, publishes_nothing)
{
    struct runner runner = with_redis_clock("lease_release_hash");

    tell(ask("CONFIG RESETSTAT"));
    tell(ask("HSET lock me 1"));
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 1);
    redisReply *stats = checked(ask("INFO commandstats"), REDIS_REPLY_STRING);
    cr_assert_not_null(strstr(stats->str, "cmdstat_hdel:"));
    cr_assert_null(strstr(stats->str, "publish"));
    freeReplyObject(stats);
}

Test(lease_release, removes_the_permit_of_the_owner)
{
    struct runner runner = with_redis_clock("lease_release_zset");

    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0);
    tell(ask("ZADD lock 1 me 2 other"));
    cr_assert_eq(release(&runner, &only_lock, owner("m")), 0);
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 1);
    cr_assert_eq(score_of("lock", "other"), 2);
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0);
    tell(ask("DEL lock"));
    tell(ask("SADD lock me"));
    cr_assert_eq(release(&runner, &only_lock, owner("me")), 0, "a set");
    cr_assert_eq(integer_of(ask("SCARD lock")), 1);
}

/* ---- all of them ---- */

static const char *const lease_scripts[] = {"lease_renew_string", "lease_renew_hash", "lease_renew_zset",
                                            "lease_heal",         "lease_release",    "lease_release_hash",
                                            "lease_release_zset"};

/* What takes the lock, and a call that then renews or releases it. */
static const struct {
    const char *name;
    const char *take;
    const char *arguments;
} uses[] = {
    {"lease_renew_string", "SET lock me PX 60000", "1 lock me 90000 60000 60000"},
    {"lease_renew_hash", "HSET lock me 1", "1 lock me 90000 60000 60000"},
    {"lease_renew_zset", "ZADD lock 1 me", "1 lock me 2 1 90000"},
    {"lease_heal", "SET lock me", "1 lock me 90000"},
    {"lease_release", "SET lock me", "1 lock me"},
    {"lease_release_hash", "HSET lock me 1", "1 lock me"},
    {"lease_release_zset", "ZADD lock 1 me", "1 lock me"},
};

static redisReply *use(const char *name, const char *arguments)
{
    char command[192];

    snprintf(command, sizeof command, "EVALSHA %s %s", script_find(name)->sha1, arguments);
    return ask(command);
}

/* PEXPIRE with nothing or less would delete the lock. */
Test(lease_scripts, guard_against_what_they_cannot_reckon_with)
{
    static const struct {
        const char *name;
        const char *arguments; /* with the place of a number that is to be 1 or more, and a time */
    } leases[] = {
        {"lease_renew_string", "1 lock me %s 60000 60000"},
        {"lease_renew_hash", "1 lock me %s 60000 60000"},
        {"lease_renew_zset", "1 lock me 2 1 %s"},
        {"lease_heal", "1 lock me %s"},
    };
    static const char *const bad[] = {"0",   "-1", "-60000", "0.5",  "1.5",  "nan", "-nan",
                                      "inf", "x",  "1x",     "1e17", "-inf", ""};

    for (size_t i = 0; i < LENGTH(leases); i++) {
        load_script(script_find(leases[i].name));
        tell(ask("FLUSHALL"));
        tell(ask(uses[i].take));
        struct seen before = look_for("lock", owner("me"));
        for (size_t j = 0; j < LENGTH(bad); j++) {
            char arguments[96];
            snprintf(arguments, sizeof arguments, leases[i].arguments, bad[j]);
            assert_error_begins(use(leases[i].name, arguments), "HEADGATE no key, or ");
            struct seen after = look_for("lock", owner("me"));
            cr_assert(is_same(&before, &after), "%s with %s", leases[i].name, bad[j]);
        }
    }
}

Test(lease_scripts, guard_against_other_arguments)
{
    static const struct {
        const char *name;
        const char *arguments;
    } calls[] = {
        {"lease_renew_string", "0 me 1000 1000 0"},
        {"lease_renew_string", "1 lock me 1000 1000"},
        {"lease_renew_string", "1 lock me 1000 x 0"},
        {"lease_renew_string", "1 lock me 1000 1.5 0"},
        {"lease_renew_string", "1 lock me 1000 nan 0"},
        {"lease_renew_string", "1 lock me 1000 1000 -1"},
        {"lease_renew_hash", "0 me 1000 1000 0"},
        {"lease_renew_hash", "1 lock me 1000 1000"},
        {"lease_renew_hash", "1 lock me 1000 -inf 0"},
        {"lease_renew_hash", "1 lock me 1000 1000 nan"},
        {"lease_renew_zset", "0 me 2 1 1000"},
        {"lease_renew_zset", "1 lock me nan 1 1000"},
        {"lease_renew_zset", "1 lock me inf 1 1000"},
        {"lease_renew_zset", "1 lock me 2 nan 1000"},
        {"lease_renew_zset", "1 lock me 2 -inf 1000"},
        {"lease_renew_zset", "1 lock me 2 1"},
        {"lease_renew_zset", "1 lock me x 1 1000"},
        {"lease_heal", "0 me 1000"},
        {"lease_heal", "1 lock me"},
    };

    for (size_t i = 0; i < LENGTH(calls); i++) {
        load_script(script_find(calls[i].name));
        assert_error_begins(use(calls[i].name, calls[i].arguments), "HEADGATE no key, or ");
    }
    cr_assert_eq(integer_of(ask("DBSIZE")), 0);
}

/* The largest lease there is neither wraps around nor deletes. */
Test(lease_scripts, take_leases_for_ages)
{
    static const char ages[] = "9007199254740992";

    for (size_t i = 0; i < 4; i++) {
        char arguments[96];
        load_script(script_find(uses[i].name));
        tell(ask("FLUSHALL"));
        tell(ask(uses[i].take));
        if (i < 3) {
            tell(ask("PEXPIRE lock 60000"));
        }
        snprintf(arguments, sizeof arguments,
                 i < 2    ? "1 lock me %s 60000 60000"
                 : i == 2 ? "1 lock me 2 1 %s"
                          : "1 lock me %s",
                 ages);
        assert_answer(answer_of(use(uses[i].name, arguments)), RENEWED, INT64_C(9007199254740992), uses[i].name);
        cr_assert_gt(integer_of(ask("PTTL lock")), INT64_C(9007199254740000), "%s", uses[i].name);
    }
}

/* A Redis that refuses what a script does is not a lock that is gone. */
Test(lease_scripts, say_when_redis_refuses)
{
    tell(ask("ACL SETUSER default -get -hexists -zscore -hdel -zrem"));
    for (size_t i = 0; i < LENGTH(uses); i++) {
        load_script(script_find(uses[i].name));
        tell(ask("FLUSHALL"));
        tell(ask(uses[i].take));
        redisReply *reply = use(uses[i].name, uses[i].arguments);
        cr_assert_eq(reply->type, REDIS_REPLY_ERROR, "%s", uses[i].name);
        freeReplyObject(reply);
        cr_assert_eq(integer_of(ask("EXISTS lock")), 1, "%s", uses[i].name);
    }
}

Test(lease_scripts, change_nothing_where_memory_is_out)
{
    load_script(script_find("lease_renew_zset"));
    tell(ask("ZADD lock 1 me"));
    tell(ask("PEXPIREAT lock %lld", (long long)EPOCH));
    tell(ask("CONFIG SET maxmemory 1"));
    struct seen before = look_for("lock", owner("me"));
    assert_error_begins(use("lease_renew_zset", "1 lock me 2 1 9000000000000"), "OOM ");
    struct seen after = look_for("lock", owner("me"));
    cr_assert(is_same(&before, &after));
    /* Locks that are strings and hashes are renewed even so. */
    tell(ask("CONFIG SET maxmemory 0"));
    tell(ask("SET lock me PX 60000"));
    tell(ask("CONFIG SET maxmemory 1"));
    load_script(script_find("lease_renew_string"));
    assert_answer(answer_of(use("lease_renew_string", "1 lock me 90000 60000 60000")), RENEWED, 90000, "string");
}

/* In the text, as calls that no test leads to count, too. */
Test(lease_scripts, touch_no_key_that_is_not_declared)
{
    for (size_t i = 0; i < LENGTH(lease_scripts); i++) {
        const char *text = script_find(lease_scripts[i])->text;
        for (const char *at = strstr(text, "call('"); at != NULL; at = strstr(at + 1, "call('")) {
            const char *key = strchr(at, ',') + 2;
            cr_assert(strncmp(key, "key", 3) == 0 || strncmp(key, "KEYS[", 5) == 0 || strncmp(key, "name", 4) == 0,
                      "%s: %.40s", lease_scripts[i], at);
        }
    }
}
