/* The script that renews locks that are hashes, on a real Redis. */
#include "lease_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(lease_hash, .init = start_redis, .fini = stop_redis, .timeout = 100);

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
        do_something_to_hash(now_ms);
        now_ms += random_step_ms();
        expire(&holds[0], now_ms);
        expire(&holds[1], now_ms);
        size_t who = (size_t)chance(2);
        struct keys keys = holds[who];
        keys.count = is_read_write() ? 1 + (size_t)chance(4) : 1;
        struct renewal renewal = renew_like_model(&runner, &keys, owner(owners[who]), model_hash, now_ms);
        bool renewed = renewal.code == RENEWED;
        for (size_t i = 0; i < keys.count; i++) {
            const struct seen *before = &renewal.before[i], *after = &renewal.after[i];
            cr_assert(!renewed || before->at_ms == NO_KEY || after->at_ms >= renewal.until_ms);
            renewed_holds += i > 0 && after->at_ms > before->at_ms;
        }
        cr_assert(!renewed || renewal.before[0].owned);
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
