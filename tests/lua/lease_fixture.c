#include "lease_fixture.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const struct keys only_lock = {1, {"lock"}};
const struct keys reader = {4, {"lock", HOLD "1", HOLD "2", HOLD "3"}};

double score_of(const char *key, const char *member)
{
    redisReply *reply = ask("ZSCORE %s %s", key, member);
    double score = reply->type == REDIS_REPLY_STRING ? strtod(reply->str, NULL) : NAN;

    freeReplyObject(reply);
    return score;
}

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

struct runner with_own_clock(const char *name)
{
    return with_clock(own_clock, name);
}

struct owner owner(const char *text)
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

static struct answer read_answer(redisReply *reply, size_t elements)
{
    checked(reply, REDIS_REPLY_ARRAY);
    cr_assert_eq(reply->elements, elements);
    for (size_t i = 0; i < elements; i++) {
        cr_assert_eq(reply->element[i]->type, REDIS_REPLY_INTEGER);
    }
    return (struct answer){reply->element[0]->integer, reply->element[1]->integer, NAN};
}

struct answer answer_of(redisReply *reply)
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

struct answer permit_answer_of(redisReply *reply)
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

bool same_number(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

void assert_answer(struct answer answer, int64_t code, int64_t life_ms, const char *what)
{
    cr_assert(answer.code == code && answer.life_ms == life_ms,
              "%s: {%" PRId64 ", %" PRId64 "}, expected {%" PRId64 ", %" PRId64 "}", what, answer.code, answer.life_ms,
              code, life_ms);
}

struct answer renew(const struct runner *runner, const struct keys *keys, struct owner owner, struct terms terms,
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

struct answer renew_permit(const struct runner *runner, struct owner member, double score, double expected,
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

struct answer heal(const struct runner *runner, struct owner token, int64_t ttl_ms, int64_t now_ms)
{
    struct call call;

    begin(&call, runner, &only_lock, token);
    add_number(&call, ttl_ms);
    add_number(&call, now_ms);
    return answer_of(finish(&call));
}

int64_t release(const struct runner *runner, const struct keys *keys, struct owner owner)
{
    struct call call;

    begin(&call, runner, keys, owner);
    return integer_of(finish(&call));
}

struct seen look_for(const char *key, struct owner owner)
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

void look(const struct keys *keys, struct owner owner, struct seen *seen)
{
    for (size_t i = 0; i < keys->count; i++) {
        seen[i] = look_for(keys->names[i], owner);
    }
}

bool is_same(const struct seen *one, const struct seen *other)
{
    return strcmp(one->type, other->type) == 0 && strcmp(one->digest, other->digest) == 0 && one->at_ms == other->at_ms;
}

int64_t life_at(const struct seen *seen, int64_t now_ms)
{
    return seen->at_ms < 0 ? seen->at_ms : seen->at_ms - now_ms;
}

void assert_only_lengthened(const struct seen *before, const struct seen *after, int64_t code, int64_t until_ms)
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

/* How often each code was answered. */
static int64_t tally[DEFERRED - ANOTHER_TYPE + 1];

void count_code(int64_t code)
{
    cr_assert(code >= ANOTHER_TYPE && code <= DEFERRED, "%" PRId64, code);
    tally[code - ANOTHER_TYPE]++;
}

void assert_counted(enum code code, int64_t least)
{
    cr_assert_geq(tally[code - ANOTHER_TYPE], least, "code %d only %" PRId64 " times", code,
                  tally[code - ANOTHER_TYPE]);
}

struct terms random_terms(int64_t life_ms)
{
    struct terms terms = {.lease_ms = 1 + chance(30000), .slack_ms = chance(3) * 500};
    const int64_t off_ms[] = {
        0, 0, 0, terms.slack_ms, -terms.slack_ms, terms.slack_ms + 1, -terms.slack_ms - 1, chance(40000) - 20000};

    terms.expected_ms = life_ms + off_ms[chance(LENGTH(off_ms))];
    return terms;
}

void expire(const struct keys *keys, int64_t now_ms)
{
    for (size_t i = 0; i < keys->count; i++) {
        int64_t at_ms = integer_of(ask("PEXPIRETIME %s", keys->names[i]));
        if (at_ms >= 0 && at_ms < now_ms) {
            tell(ask("DEL %s", keys->names[i]));
        }
    }
}

int64_t random_step_ms(void)
{
    return chance(20) == 0 ? chance(20000) : chance(500);
}

int64_t wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void assert_life_since(const char *key, int64_t life_ms, int64_t began_ms)
{
    int64_t left_ms = integer_of(ask("PTTL %s", key));

    cr_assert_leq(left_ms, life_ms);
    cr_assert_geq(left_ms, life_ms - (wall_ms() - began_ms) - 2);
}

void set_lock(const char *key, const char *token, int64_t life_ms)
{
    tell(ask("SET %s %s PXAT %lld", key, token, (long long)(EPOCH + life_ms)));
}

void fill(char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = (char)chance(256);
    }
}

struct renewal renew_like_model(const struct runner *runner, const struct keys *keys, struct owner owner,
                                renewal_model *model, int64_t now_ms)
{
    struct renewal renewal;

    look(keys, owner, renewal.before);
    int64_t dbsize = integer_of(ask("DBSIZE"));
    struct terms terms = random_terms(life_at(&renewal.before[chance((int64_t)keys->count)], now_ms));
    struct answer answer = renew(runner, keys, owner, terms, now_ms),
                  expected = model(renewal.before, keys->count, terms, now_ms);
    look(keys, owner, renewal.after);
    assert_answer(answer, expected.code, expected.life_ms, "step");
    cr_assert_eq(integer_of(ask("DBSIZE")), dbsize);
    renewal.code = answer.code;
    renewal.until_ms = now_ms + terms.lease_ms;
    for (size_t i = 0; i < keys->count; i++) {
        assert_only_lengthened(&renewal.before[i], &renewal.after[i], renewal.code, renewal.until_ms);
    }
    count_code(renewal.code);
    return renewal;
}
