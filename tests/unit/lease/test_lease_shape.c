/* What requests mean for locks and semaphores: on bytes, sound and unsound. */
#include "lease_request.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* ---- SET ---- */

Test(lease_shape_set, replaces_and_extends)
{
    cr_assert_eq(request_action("set k t"), LEASE_FORCE_RELEASE);
    cr_assert_eq(request_action("set k t keepttl"), LEASE_WRITE);
    cr_assert_eq(request_action("set k t xx keepttl"), LEASE_WRITE);
    cr_assert_eq(request_action("set k t nx keepttl"), LEASE_ACQUIRE);
    cr_assert_eq(request_action("set k t px 5"), LEASE_FORCE_RELEASE);
    cr_assert_eq(request_action("set k t get"), LEASE_FORCE_RELEASE);
    cr_assert_eq(request_action("set k t px 5 ifeq t"), LEASE_EXTEND);
    cr_assert_eq(request_action("SET k t IFEQ t EX 5"), LEASE_EXTEND);
    cr_assert_eq(request_action("set k t ifeq t"), LEASE_FORCE_RELEASE, "the time to live goes");
    cr_assert_eq(request_action("set k t px 5 ifeq u"), LEASE_FORCE_RELEASE, "another owner");
    cr_assert_eq(request_action("set k t px 5 ifne u"), LEASE_FORCE_RELEASE);
}

/* ---- other commands ---- */

Test(lease_shape, of_plain_commands)
{
    static const struct {
        const char *text;
        enum lease_action action;
        enum lease_reply reply;
        uint32_t keys;
        const char *token;
        const char *score;
        int64_t ms;
    } cases[] = {
        {"setnx k t", LEASE_ACQUIRE, LEASE_REPLY_ONE, 1, "t", "", 0},
        {"SETNX k t u", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"setnx k", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"delifeq k t", LEASE_RELEASE, LEASE_REPLY_ONE, 1, "t", "", 0},
        {"delifequals k t", LEASE_RELEASE, LEASE_REPLY_ONE, 1, "t", "", 0},
        {"delex k ifeq t", LEASE_RELEASE, LEASE_REPLY_ONE, 1, "t", "", 0},
        {"delex k IFNE t", LEASE_FORCE_RELEASE, LEASE_REPLY_ONE, 1, "t", "", 0},
        {"delex k", LEASE_FORCE_RELEASE, LEASE_REPLY_ONE, 1, "", "", 0},
        {"delex k ifeq", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"del a", LEASE_FORCE_RELEASE, LEASE_REPLY_COUNT, 1, "", "", 0},
        {"unlink a b c", LEASE_FORCE_RELEASE, LEASE_REPLY_COUNT, 3, "", "", 0},
        {"del", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"getdel a", LEASE_FORCE_RELEASE, LEASE_REPLY_VALUE, 1, "", "", 0},
        {"getdel a b", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"getset a t", LEASE_FORCE_RELEASE, LEASE_REPLY_NO_ERROR, 1, "", "", 0},
        {"setex a 5 t", LEASE_FORCE_RELEASE, LEASE_REPLY_NO_ERROR, 1, "", "", 0},
        {"psetex a 5 t", LEASE_FORCE_RELEASE, LEASE_REPLY_NO_ERROR, 1, "", "", 0},
        {"mset a 1 b 2", LEASE_FORCE_RELEASE, LEASE_REPLY_NO_ERROR, 2, "", "", 0},
        {"mset a 1 b", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"rename a b", LEASE_FORCE_RELEASE, LEASE_REPLY_NO_ERROR, 2, "", "", 0},
        {"renamenx a b", LEASE_FORCE_RELEASE, LEASE_REPLY_COUNT, 2, "", "", 0},
        {"move a 1", LEASE_FORCE_RELEASE, LEASE_REPLY_COUNT, 1, "", "", 0},
        {"persist a", LEASE_FORCE_RELEASE, LEASE_REPLY_COUNT, 1, "", "", 0},
        {"restore a 0 x REPLACE", LEASE_FORCE_RELEASE, LEASE_REPLY_NO_ERROR, 1, "", "", 0},
        {"flushall", LEASE_FORCE_RELEASE, LEASE_REPLY_NO_ERROR, 0, "", "", 0},
        {"flushdb async", LEASE_FORCE_RELEASE, LEASE_REPLY_NO_ERROR, 0, "", "", 0},
        {"swapdb 0 1", LEASE_FORCE_RELEASE, LEASE_REPLY_NO_ERROR, 0, "", "", 0},
        {"expire k 5", LEASE_EXPIRE, LEASE_REPLY_ONE, 1, "", "", 5000},
        {"pexpire k 5 NX", LEASE_EXPIRE, LEASE_REPLY_ONE, 1, "", "", 5},
        {"pexpire k 5 zz", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"expireat k 5", LEASE_EXPIRE, LEASE_REPLY_ONE, 1, "", "", 0},
        {"pexpireat k 5 gt", LEASE_EXPIRE, LEASE_REPLY_ONE, 1, "", "", 0},
        {"expire k 0", LEASE_FORCE_RELEASE, LEASE_REPLY_ONE, 1, "", "", 0},
        {"pexpire k -1", LEASE_FORCE_RELEASE, LEASE_REPLY_ONE, 1, "", "", 0},
        {"expire k 9223372036854775807", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"expire k soon", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"zadd k 1.5 t", LEASE_SCORE, LEASE_REPLY_NONE, 1, "t", "1.5", 0},
        {"zadd k nx 1.5 t", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"zadd k 1 t 2 u", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"zrank k t", LEASE_RANK, LEASE_REPLY_NONE, 1, "t", "", 0},
        {"zrank k t withscore", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"zrem k t u", LEASE_RELEASE, LEASE_REPLY_COUNT, 1, "t", "", 0},
        {"zrem k", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"zremrangebyscore k -INF (99.5", LEASE_REAP, LEASE_REPLY_NONE, 1, "", "(99.5", 0},
        {"zremrangebyscore k 5 9", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"msetex 2 a t b t nx px 7", LEASE_ACQUIRE, LEASE_REPLY_ONE, 2, "t", "", 7},
        {"msetex 2 a t b u nx px 7", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"msetex 1 a t EX 7 NX", LEASE_ACQUIRE, LEASE_REPLY_ONE, 1, "t", "", 7000},
        {"msetex 2 a t b u px 7", LEASE_FORCE_RELEASE, LEASE_REPLY_ONE, 2, "", "", 7},
        {"msetex 2 a t b t xx px 7", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"msetex 3 a t b t nx", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"msetex 0 a t", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"msetex -1 a t", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"msetex 4294967297 a t nx", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"msetex 9223372036854775807 a t nx", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"get k", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"append k t", LEASE_WRITE, LEASE_REPLY_NO_ERROR, 1, "", "", 0},
        {"msetnx a t b t", LEASE_ACQUIRE, LEASE_REPLY_ONE, 2, "t", "", 0},
        {"msetnx a t b u", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
        {"msetnx a t b", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request made = request_of(cases[i].text);
        cr_assert_eq(made.shape.action, cases[i].action, "%s", cases[i].text);
        cr_assert_eq(made.shape.reply, cases[i].reply, "%s", cases[i].text);
        cr_assert_eq(made.shape.key_count, cases[i].keys, "%s", cases[i].text);
        cr_assert(slice_is(made.shape.token, cases[i].token), "%s", cases[i].text);
        cr_assert(slice_is(made.shape.score, cases[i].score), "%s", cases[i].text);
        cr_assert_eq(made.shape.lease_ms, cases[i].ms, "%s", cases[i].text);
        cr_assert_eq(made.shape.every_key, strstr(cases[i].text, "flush") != NULL || cases[i].text[1] == 'w', "%s",
                     cases[i].text);
        cr_assert(made.shape.action == LEASE_NOTHING || lease_shape_wants(made.command));
        request_check_runs(&made);
        free(made.bytes);
    }
}

/* ---- unsound frames ---- */

static void read_copy(const char *bytes, size_t length, const struct command *command)
{
    struct request made = {.bytes = malloc(length + (length == 0)), .length = length, .command = command};
    struct slice text;

    memcpy(made.bytes, bytes, length);
    request_read(&made);
    request_check_runs(&made);
    if (lease_shape_text(command, (struct slice){made.bytes, length}, &text)) {
        cr_assert(text.data + text.length <= made.bytes + length);
    }
    free(made.bytes);
}

static const char *const samples[] = {
    "set k t nx px 5",
    "SET k t ifeq t ex 5",
    "msetex 2 a t b t nx px 5",
    "mset a 1 b 2",
    "del a b c",
    "zadd k 1 t",
    "zrem k a b",
    "expire k 5",
    "eval return 1 k v",
    "evalsha a4e8783852e6b949f9ef3a97212805108459a890 1 k t 5 0",
    "evalsha 6a3d31570dc6f4b0bd32bcdc8e75667747c6f635 2 a b 5 t u",
    "evalsha 992c96b09a3d8ea0b37f5dc12e5347a44d93909d 3 a b c 1 9 5 0 publish id1 id2",
    "evalsha 43ebdb49120d170e08af560cb4e46e36f8585936 1 k 3 id 5 9",
};

#define SAMPLE_COUNT (sizeof samples / sizeof samples[0])

/* The same on every run. */
Test(lease_shape_frames, at_random, .timeout = 60)
{
    static const char likely[] = "*$\r\n0123456789-KV";
    uint32_t state = 20260401;

    for (int i = 0; i < 60000; i++) {
        struct request made = request_of(samples[next_random(&state) % SAMPLE_COUNT]);
        uint32_t changes = 1 + next_random(&state) % 6;
        while (changes-- > 0) {
            made.bytes[next_random(&state) % made.length] = next_random(&state) % 2 == 0
                                                                ? likely[next_random(&state) % (sizeof likely - 1)]
                                                                : (char)next_random(&state);
        }
        /* Also as another command than the bytes say. */
        const struct command *command =
            next_random(&state) % 4 == 0 ? command_at(next_random(&state) % command_count()) : made.command;
        read_copy(made.bytes, next_random(&state) % 8 == 0 ? next_random(&state) % made.length : made.length, command);
        free(made.bytes);
    }
}
