/* What requests mean for locks and semaphores: on bytes, sound and unsound. */
#include "../../policies/lease_shape.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WORDS_MAX 64
#define DIGEST_OF_NOTHING "da39a3ee5e6b4b0d3255bfef95601890afd80709"

static struct slice slice(const char *text)
{
    return (struct slice){text, strlen(text)};
}

static bool is(struct slice value, const char *text)
{
    return value.length == strlen(text) && (value.length == 0 || memcmp(value.data, text, value.length) == 0);
}

/* ---- requests ---- */

/* The frame ends where its memory does, so that the sanitizer sees who reads on. */
struct request {
    char *bytes;
    size_t length;
    const struct command *command;
    struct lease_shape shape;
};

static struct request request_of(const struct slice *words, size_t count)
{
    struct request request = {0};
    FILE *out = open_memstream(&request.bytes, &request.length);

    fprintf(out, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "$%zu\r\n", words[i].length);
        fwrite(words[i].data, 1, words[i].length, out);
        fputs("\r\n", out);
    }
    fclose(out);
    char *exact = malloc(request.length);
    memcpy(exact, request.bytes, request.length);
    free(request.bytes);
    request.bytes = exact;
    request.command = command_find(words[0]);
    return request;
}

static void read_request(struct request *request)
{
    lease_shape_read(&request->shape, request->command, (struct slice){request->bytes, request->length}, NULL, NULL);
}

/* The words stand between single blanks; two blanks hold an empty one. */
static struct request request(const char *text)
{
    struct slice words[WORDS_MAX];
    size_t count = 0;

    for (const char *at = text;; at++) {
        cr_assert_lt(count, (size_t)WORDS_MAX);
        words[count] = (struct slice){at, strcspn(at, " ")};
        at += words[count++].length;
        if (*at == '\0') {
            break;
        }
    }
    struct request made = request_of(words, count);
    cr_assert_not_null(made.command, "%s", text);
    read_request(&made);
    return made;
}

static enum lease_action action_of(const char *text)
{
    struct request made = request(text);
    enum lease_action action = made.shape.action;

    free(made.bytes);
    return action;
}

static void check_runs(const struct request *request)
{
    struct lease_run keys = request->shape.keys;
    struct slice argument;
    uint32_t count = 0;

    while (lease_run_next(&keys, &argument)) {
        cr_assert(argument.data >= request->bytes && argument.length <= request->length &&
                  argument.data + argument.length <= request->bytes + request->length);
        count++;
    }
    cr_assert_leq(count, request->shape.key_count);
    struct lease_run tokens = request->shape.tokens;
    while (lease_run_next(&tokens, &argument)) {
        cr_assert(argument.data + argument.length <= request->bytes + request->length);
    }
}

/* ---- SET ---- */

Test(lease_shape_set, takes_a_lock_in_any_order_and_case)
{
    static const char *const options[][4] = {
        {"nx", "px 30000", "", ""},       {"px 30000", "NX", "", ""},      {"Nx", "Ex 30", "", ""},
        {"EX 30", "nX", "", ""},          {"NX", "GET", "PX 30000", ""},   {"GET", "NX", "EX 30", ""},
        {"get", "px 30000", "nx", ""},    {"PX 30000", "GET", "NX", ""},   {"EX 30", "NX", "GET", ""},
        {"NX", "EX 30", "GET", ""},       {"NX", "NX", "PX 30000", ""},    {"PX 1", "PX 30000", "NX", ""},
        {"GET", "NX", "PX 30000", "GET"}, {"NX", "px 9", "NX", "px 30000"}};

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        char text[128] = "SeT lock token";
        bool get = false;
        for (size_t j = 0; j < 4 && options[i][j][0] != '\0'; j++) {
            strcat(strcat(text, " "), options[i][j]);
            get = get || strcasecmp(options[i][j], "get") == 0;
        }
        struct request made = request(text);
        cr_assert_eq(made.shape.action, LEASE_ACQUIRE, "%s", text);
        cr_assert_eq(made.shape.kind, LEASE_STRING);
        cr_assert_eq(made.shape.reply, get ? LEASE_REPLY_NIL : LEASE_REPLY_OK, "%s", text);
        cr_assert_eq(made.shape.lease_ms, 30000, "%s", text);
        cr_assert(is(made.shape.key, "lock") && is(made.shape.token, "token"));
        cr_assert(made.shape.key_count == 1 && made.shape.token_count == 1 && made.shape.script == NULL);
        cr_assert_eq(lease_shape_ms(&made.shape, 77), 30000);
        check_runs(&made);
        free(made.bytes);
    }
}

Test(lease_shape_set, leases_by_date)
{
    struct request made = request("set k t exat 2000 nx");

    cr_assert(made.shape.action == LEASE_ACQUIRE && made.shape.lease_ms == 0 && made.shape.expires_at == 2000);
    cr_assert_eq(made.shape.expires_unit, LEASE_UNIT_AT_S);
    cr_assert_eq(lease_shape_ms(&made.shape, 1990000), 10000);
    cr_assert_eq(lease_shape_ms(&made.shape, 2000001), 0, "over");
    free(made.bytes);
    made = request("set k t nx PXAT 2000");
    cr_assert(made.shape.expires_at == 2000 && made.shape.expires_unit == LEASE_UNIT_AT_MS);
    cr_assert_eq(lease_shape_ms(&made.shape, 1500), 500);
    cr_assert_eq(lease_shape_ms(&made.shape, INT64_MIN), 0, "no overflow");
    free(made.bytes);
}

Test(lease_shape_set, leases_of_all_sizes)
{
    static const struct {
        const char *options;
        enum lease_action action;
        int64_t ms;
    } cases[] = {
        {"nx", LEASE_ACQUIRE, 0},
        {"nx px 1", LEASE_ACQUIRE, 1},
        {"nx px 0", LEASE_NOTHING, 0},
        {"nx px 0 px 5", LEASE_ACQUIRE, 5},
        {"nx px 5 px 0", LEASE_NOTHING, 0},
        {"nx ex 0", LEASE_NOTHING, 0},
        {"nx px -1", LEASE_NOTHING, 0},
        {"nx px -9223372036854775808", LEASE_NOTHING, 0},
        {"nx px +5", LEASE_NOTHING, 0},
        {"nx px 05", LEASE_NOTHING, 0},
        {"nx px 5.0", LEASE_NOTHING, 0},
        {"nx px 5x", LEASE_NOTHING, 0},
        {"nx px -", LEASE_NOTHING, 0},
        {"nx px ", LEASE_NOTHING, 0},
        {"nx px 3155760000000", LEASE_ACQUIRE, 3155760000000}, /* 100 years */
        {"nx ex 3155760000", LEASE_ACQUIRE, 3155760000000},
        {"nx px 31557600000001", LEASE_ACQUIRE, 0}, /* past LEASE_MS_MAX: for ever */
        {"nx px 9223372036854775807", LEASE_ACQUIRE, 0},
        {"nx px 9223372036854775808", LEASE_NOTHING, 0},
        {"nx ex 9223372036854775807", LEASE_NOTHING, 0},
        {"nx ex 99999999999999999999999", LEASE_NOTHING, 0},
        {"nx exat 9223372036854775807", LEASE_NOTHING, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "set k t %s", cases[i].options);
        struct request made = request(text);
        cr_assert_eq(made.shape.action, cases[i].action, "%s", text);
        cr_assert_eq(made.shape.lease_ms, cases[i].ms, "%s", text);
        free(made.bytes);
    }
}

Test(lease_shape_set, what_is_no_lock)
{
    static const char *const nothing[] = {"set k t keepttl",
                                          "set k t xx keepttl",
                                          "set k t xx px 0",
                                          "set k t xx px 5 ex 5",
                                          "set k t nx keepttl",
                                          "set k t nx xx",
                                          "set k t xx nx",
                                          "set k t nx px",
                                          "set k t nx ex 1 px 1",
                                          "set k t nx keepttl ex 1",
                                          "set k t ex 1 keepttl",
                                          "set k t nx nope",
                                          "set k t nx ifeq a",
                                          "set k t ifeq",
                                          "set k t ifeq a ifeq b",
                                          "set k t ifeq a nx",
                                          "set k",
                                          "set k t nx px 5 ",
                                          "set k t ",
                                          "set k t nxx",
                                          "set k t n",
                                          "set k t nx 5",
                                          "set k t nx pxx 5",
                                          "set k t exat 5 pxat 5 nx"};

    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++) {
        struct request made = request(nothing[i]);
        cr_assert_eq(made.shape.action, LEASE_NOTHING, "%s", nothing[i]);
        cr_assert(made.shape.key_count == 0 && made.shape.key.length == 0 && made.shape.lease_ms == 0);
        free(made.bytes);
    }
}

Test(lease_shape_set, replaces_and_extends)
{
    cr_assert_eq(action_of("set k t"), LEASE_FORCE_RELEASE);
    cr_assert_eq(action_of("set k t px 5"), LEASE_FORCE_RELEASE);
    cr_assert_eq(action_of("set k t get"), LEASE_FORCE_RELEASE);
    cr_assert_eq(action_of("set k t px 5 ifeq t"), LEASE_EXTEND);
    cr_assert_eq(action_of("SET k t IFEQ t EX 5"), LEASE_EXTEND);
    cr_assert_eq(action_of("set k t ifeq t"), LEASE_FORCE_RELEASE, "the time to live goes");
    cr_assert_eq(action_of("set k t px 5 ifeq u"), LEASE_FORCE_RELEASE, "another owner");
    cr_assert_eq(action_of("set k t px 5 ifne u"), LEASE_FORCE_RELEASE);
}

Test(lease_shape_set, extends_what_is_there)
{
    static const struct {
        const char *text;
        enum lease_action action;
        enum lease_reply reply;
        int64_t ms; /* at 1000 s of the wall clock */
    } cases[] = {
        {"set k t xx px 5", LEASE_EXTEND, LEASE_REPLY_OK, 5},
        {"SET k t PX 5 XX", LEASE_EXTEND, LEASE_REPLY_OK, 5},
        {"set k t XX EX 5", LEASE_EXTEND, LEASE_REPLY_OK, 5000},
        {"set k t xx exat 1005", LEASE_EXTEND, LEASE_REPLY_OK, 5000},
        {"set k t pxat 1000005 xx", LEASE_EXTEND, LEASE_REPLY_OK, 5},
        {"set k t xx get px 5", LEASE_EXTEND, LEASE_REPLY_VALUE, 5},
        {"set k t px 5 get xx", LEASE_EXTEND, LEASE_REPLY_VALUE, 5},
        {"set k t xx", LEASE_FORCE_RELEASE, LEASE_REPLY_OK, 0},
        {"set k t XX get", LEASE_FORCE_RELEASE, LEASE_REPLY_VALUE, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request made = request(cases[i].text);
        cr_assert_eq(made.shape.action, cases[i].action, "%s", cases[i].text);
        cr_assert_eq(made.shape.reply, cases[i].reply, "%s", cases[i].text);
        cr_assert_eq(lease_shape_ms(&made.shape, 1000000), cases[i].ms, "%s", cases[i].text);
        cr_assert(made.shape.kind == LEASE_STRING && made.shape.key_count == 1, "%s", cases[i].text);
        cr_assert(is(made.shape.key, "k") && is(made.shape.token, "t"), "%s", cases[i].text);
        cr_assert_eq(lease_shape_answer(&made.shape, slice("$-1\r\n")), LEASE_ANSWER_NO, "%s", cases[i].text);
        cr_assert_eq(lease_shape_answer(&made.shape, slice("-ERR no\r\n")), LEASE_ANSWER_UNCLEAR);
        cr_assert_eq(lease_shape_answer(&made.shape, slice("$1\r\nt\r\n")),
                     cases[i].reply == LEASE_REPLY_VALUE ? LEASE_ANSWER_YES : LEASE_ANSWER_NO, "%s", cases[i].text);
        check_runs(&made);
        free(made.bytes);
    }
}

Test(lease_shape_set, tokens_of_all_sizes)
{
    size_t size = 1024 * 1024;
    char *large = malloc(size);
    memset(large, '\r', size);
    for (size_t length = 0; length <= size; length += size) {
        const struct slice words[] = {slice("set"), slice(""), {large, length}, slice("nx"), slice("px"), slice("9")};
        struct request made = request_of(words, 6);
        read_request(&made);
        cr_assert_eq(made.shape.action, LEASE_ACQUIRE);
        cr_assert(made.shape.token.length == length && made.shape.key.length == 0 && made.shape.lease_ms == 9);
        check_runs(&made);
        free(made.bytes);
    }
    free(large);
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
        {"append k t", LEASE_NOTHING, LEASE_REPLY_NONE, 0, "", "", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request made = request(cases[i].text);
        cr_assert_eq(made.shape.action, cases[i].action, "%s", cases[i].text);
        cr_assert_eq(made.shape.reply, cases[i].reply, "%s", cases[i].text);
        cr_assert_eq(made.shape.key_count, cases[i].keys, "%s", cases[i].text);
        cr_assert(is(made.shape.token, cases[i].token), "%s", cases[i].text);
        cr_assert(is(made.shape.score, cases[i].score), "%s", cases[i].text);
        cr_assert_eq(made.shape.lease_ms, cases[i].ms, "%s", cases[i].text);
        cr_assert_eq(made.shape.every_key, strstr(cases[i].text, "flush") != NULL || cases[i].text[1] == 'w', "%s",
                     cases[i].text);
        cr_assert(made.shape.action == LEASE_NOTHING || lease_shape_wants(made.command));
        check_runs(&made);
        free(made.bytes);
    }
}

Test(lease_shape, finds_every_reader)
{
    static const char *const names[] = {"del",      "delex",    "delifeq", "eval",    "evalsha",   "expire",
                                        "expireat", "flushall", "flushdb", "getdel",  "getset",    "move",
                                        "mset",     "msetex",   "persist", "pexpire", "pexpireat", "psetex",
                                        "rename",   "renamenx", "restore", "set",     "setex",     "setnx",
                                        "swapdb",   "unlink",   "zadd",    "zrank",   "zrem",      "zremrangebyscore"};
    size_t count = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        cr_assert(lease_shape_wants(command_find(slice(names[i]))), "%s", names[i]);
    }
    for (size_t i = 0; i < command_count(); i++) {
        count += lease_shape_wants(command_at(i));
    }
    cr_assert_eq(count, sizeof names / sizeof names[0]);
    cr_assert_not(lease_shape_wants(NULL));
}

Test(lease_shape, runs_give_every_key_and_token)
{
    static const char *const expected[] = {"a", "b", "c"};
    struct request made = request("mset a 1 b 2 c 3");
    struct slice argument;

    for (size_t i = 0; i < 3; i++) {
        cr_assert(lease_run_next(&made.shape.keys, &argument) && is(argument, expected[i]));
    }
    cr_assert_not(lease_run_next(&made.shape.keys, &argument));
    free(made.bytes);
    made = request("zrem k a b c");
    cr_assert_eq(made.shape.token_count, 3);
    for (size_t i = 0; i < 3; i++) {
        cr_assert(lease_run_next(&made.shape.tokens, &argument) && is(argument, expected[i]));
    }
    cr_assert_not(lease_run_next(&made.shape.tokens, &argument));
    free(made.bytes);
}

/* ---- scripts ---- */

/* A call with two more keys and values than the row needs: K1 K2 … and V1 V2 …, with the lease and time given. */
static struct request call_of(const struct lease_script *script, const char *lease, const char *now, bool upper)
{
    char digest[LEASE_DIGEST_LENGTH + 1];
    char text[512];
    int keys = script->key == 0 ? 3 : script->key + 2;
    int length;

    for (size_t i = 0; i <= LEASE_DIGEST_LENGTH; i++) {
        char c = script->digest[i];
        digest[i] = upper && c >= 'a' && c <= 'f' ? (char)(c - 'a' + 'A') : c;
    }
    length = sprintf(text, "evalsha %s %d", digest, keys);
    for (int i = 1; i <= keys; i++) {
        length += sprintf(text + length, " K%d", i);
    }
    for (int i = 1; i <= 8; i++) {
        length += i == script->lease  ? sprintf(text + length, " %s", lease)
                  : i == script->now  ? sprintf(text + length, " %s", now)
                  : i == script->adds ? sprintf(text + length, " 0")
                                      : sprintf(text + length, " V%d", i);
    }
    return request(text);
}

static void check_call(const struct lease_script *script, bool upper)
{
    struct request made = call_of(script, script->now != 0 ? "31000" : "30", "1000", upper);
    char expected[16];

    cr_assert_eq(made.shape.action, script->action, "%s", script->name);
    cr_assert(made.shape.script == script && made.shape.kind == script->kind && made.shape.reply == script->reply);
    cr_assert_eq(made.shape.renews, script->renews);
    cr_assert_eq(made.shape.key_count, script->key == 0 ? 3 : 1, "%s", script->name);
    sprintf(expected, "K%d", script->key == 0 ? 1 : script->key);
    cr_assert(is(made.shape.key, expected), "%s", script->name);
    sprintf(expected, "V%d", script->token);
    cr_assert(script->token == 0 ? made.shape.token_count == 0 : is(made.shape.token, expected), "%s", script->name);
    cr_assert(!script->tokens || made.shape.token_count == 9u - script->token, "%s", script->name);
    cr_assert_eq(made.shape.lease_ms,
                 script->lease == 0             ? 0
                 : script->now != 0             ? 30000
                 : script->unit == LEASE_UNIT_S ? 30000
                                                : 30,
                 "%s", script->name);
    cr_assert_eq(made.shape.adds, script->adds != 0);
    cr_assert_eq(made.shape.score.length > 0, script->score != 0);
    check_runs(&made);
    free(made.bytes);
}

Test(lease_shape_scripts, every_row)
{
    size_t count = 0;

    for (const struct lease_script *script; (script = lease_shape_script(count)) != NULL; count++) {
        cr_assert_eq(strlen(script->digest), (size_t)LEASE_DIGEST_LENGTH, "%s", script->name);
        cr_assert_eq(strspn(script->digest, "0123456789abcdef"), (size_t)LEASE_DIGEST_LENGTH, "%s", script->name);
        cr_assert(script->bytes > 0 && script->action != LEASE_NOTHING && script->kind != LEASE_KIND_ANY);
        cr_assert_eq(script->lease == 0, script->unit == LEASE_UNIT_NONE, "%s", script->name);
        cr_assert(script->action == LEASE_FORCE_RELEASE || script->token > 0, "%s", script->name);
        cr_assert(script->reply != LEASE_REPLY_NONE || script->action == LEASE_EXTEND, "%s", script->name);
        for (size_t i = 0; i < count; i++) {
            cr_assert_str_neq(lease_shape_script(i)->digest, script->digest, "%s", script->name);
        }
        check_call(script, false);
        check_call(script, true);
    }
    cr_assert_gt(count, (size_t)70);
}

Test(lease_shape_scripts, of_libraries)
{
    static const char *const some[] = {"redis-py", "node-redlock", "redlock.net", "spring", "shedlock", "redisson"};
    size_t count = 0, rows = 0;

    for (const char *library; (library = lease_script_library(count)) != NULL; count++) {
        cr_assert_eq(strcspn(library, " :ABCDEFGHIJKLMNOPQRSTUVWXYZ"), strlen(library), "%s", library);
        for (size_t i = 0; i < count; i++) {
            cr_assert_str_neq(lease_script_library(i), library);
        }
        for (size_t i = 0; lease_shape_script(i) != NULL; i++) {
            rows += lease_script_is_of(lease_shape_script(i), slice(library));
        }
    }
    for (size_t i = 0; lease_shape_script(i) != NULL; i++) {
        const struct lease_script *script = lease_shape_script(i);
        cr_assert(strncmp(script->name, script->library, strlen(script->library)) == 0, "%s", script->name);
        rows--;
    }
    cr_assert_eq(rows, (size_t)0, "each row is of one library");
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        size_t at = 0;
        while (at < count && strcmp(lease_script_library(at), some[i]) != 0) {
            at++;
        }
        cr_assert_lt(at, count, "%s", some[i]);
    }
    const struct lease_script *first = lease_shape_script(0);
    cr_assert(lease_script_is_of(first, slice("redis-py")) && lease_script_is_of(first, slice("Redis-PY")));
    cr_assert_not(lease_script_is_of(first, slice("redis-p")));
    cr_assert_not(lease_script_is_of(first, slice("redis-py ")));
    cr_assert_not(lease_script_is_of(first, slice("")));
}

Test(lease_shape_scripts, with_leases_that_are_none)
{
    static const char *const faulty[] = {"", "x", "1.5", "9223372036854775808", "00", "- 1", "0x10"};

    for (size_t i = 0; lease_shape_script(i) != NULL; i++) {
        const struct lease_script *script = lease_shape_script(i);
        for (size_t j = 0; j < sizeof faulty / sizeof faulty[0] && script->lease != 0; j++) {
            struct request made = call_of(script, faulty[j], "0", false);
            cr_assert_eq(made.shape.action, LEASE_NOTHING, "%s: %s", script->name, faulty[j]);
            free(made.bytes);
        }
        for (int j = 0; j < 2 && script->lease != 0; j++) {
            struct request made = call_of(script, j == 0 ? "0" : "-9223372036854775", "1", false);
            cr_assert_eq(made.shape.action, script->action == LEASE_EXTEND ? LEASE_RELEASE : LEASE_NOTHING, "%s",
                         script->name);
            free(made.bytes);
        }
        if (script->lease != 0) {
            struct request made = call_of(script, "922337203685477", "1", false);
            cr_assert(made.shape.action == script->action && made.shape.lease_ms == 0, "%s: never ends", script->name);
            free(made.bytes);
            made = call_of(script, script->unit == LEASE_UNIT_S ? "3155760000" : "3155760000000", "0", false);
            cr_assert_eq(made.shape.lease_ms, 3155760000000, "%s: 100 years", script->name);
            free(made.bytes);
        }
    }
    struct request made = request("evalsha 992c96b09a3d8ea0b37f5dc12e5347a44d93909d 3 a b c 1 9 -9223372036854775807 0 "
                                  "publish id");
    cr_assert_eq(made.shape.action, LEASE_NOTHING, "no overflow");
    free(made.bytes);
}

Test(lease_shape_scripts, with_counts_that_are_wrong)
{
    static const char *const counts[] = {"-1",
                                         "0",
                                         "5",
                                         "4",
                                         "x",
                                         "",
                                         "+1",
                                         "01",
                                         "1.0",
                                         "2147483648",
                                         "4294967297",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "-9223372036854775808"};
    char text[256];

    for (size_t i = 0; lease_shape_script(i) != NULL; i++) {
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
            sprintf(text, "evalsha %s %s 1 2 3", lease_shape_script(i)->digest, counts[j]);
            enum lease_action action = action_of(text);
            cr_assert_eq(action, LEASE_NOTHING, "%s: %s", lease_shape_script(i)->name, counts[j]);
        }
        sprintf(text, "evalsha %s", lease_shape_script(i)->digest);
        cr_assert_eq(action_of(text), LEASE_NOTHING);
        /* All are keys, no value is left. */
        sprintf(text, "evalsha %s 3 1 2 3", lease_shape_script(i)->digest);
        cr_assert_eq(action_of(text), lease_shape_script(i)->token == 0 ? LEASE_FORCE_RELEASE : LEASE_NOTHING);
    }
}

Test(lease_shape_scripts, of_unknown_digests)
{
    cr_assert_eq(action_of("evalsha " DIGEST_OF_NOTHING " 1 k t 5"), LEASE_NOTHING);
    cr_assert_eq(action_of("evalsha 96da70f7716f27d278a5218544df37fd8b0a5e4 1 k t 5"), LEASE_NOTHING);
    cr_assert_eq(action_of("evalsha 96da70f7716f27d278a5218544df37fd8b0a5e4c0 1 k t 5"), LEASE_NOTHING);
    cr_assert_eq(action_of("evalsha  1 k t 5"), LEASE_NOTHING);
    cr_assert_eq(action_of("eval 96da70f7716f27d278a5218544df37fd8b0a5e4c 1 k t 5"), LEASE_NOTHING);
}

Test(lease_shape_scripts, digests)
{
    static const struct {
        const char *text;
        const char *digest;
    } cases[] = {
        {"", DIGEST_OF_NOTHING},
        {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
    };
    char digest[LEASE_DIGEST_LENGTH + 1];
    char million[1000];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lease_shape_digest(slice(cases[i].text), digest);
        cr_assert_str_eq(digest, cases[i].digest);
    }
    memset(million, 'a', sizeof million);
    lease_shape_digest((struct slice){million, 63}, digest);
    cr_assert_str_eq(digest, "03f09f5b158a7a8cdad920bddc29b81c18a551f5");
    lease_shape_digest((struct slice){million, 64}, digest);
    cr_assert_str_eq(digest, "0098ba824b5c16427bd7a1122a5a442a25ec644d");
    lease_shape_digest((struct slice){million, 1000}, digest);
    cr_assert_str_eq(digest, "291e9a6c66994949b57ba5e650361e98fc36b1ba");
}

/* ---- texts ---- */

#define HELD "if redis.call('get', KEYS[1]) == ARGV[1] then "

static const struct lease_script *learn(const char *text)
{
    return lease_shape_learn(slice(text));
}

Test(lease_shape_texts, idioms_in_any_dress)
{
    static const struct {
        const char *text;
        enum lease_action action;
        enum lease_unit unit;
    } cases[] = {
        {HELD "return redis.call('del', KEYS[1]) else return 0 end", LEASE_RELEASE, LEASE_UNIT_NONE},
        {HELD "return redis.call('unlink', KEYS[1]) end return 0", LEASE_RELEASE, LEASE_UNIT_NONE},
        {HELD "return redis.call('DEL', KEYS[1]); end;", LEASE_RELEASE, LEASE_UNIT_NONE},
        {"\n\t" HELD "\r\n return  redis.call ( \"Del\" ,KEYS[ 1 ])\n else\n  return 0;\n end;\n", LEASE_RELEASE,
         LEASE_UNIT_NONE},
        {HELD "return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end", LEASE_EXTEND, LEASE_UNIT_MS},
        {HELD "return redis.call(\"EXPIRE\",KEYS[1],ARGV[2]) else return 0 end", LEASE_EXTEND, LEASE_UNIT_S},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct lease_script *script = learn(cases[i].text);
        cr_assert_not_null(script, "%s", cases[i].text);
        cr_assert_not(lease_script_is_of(script, slice("")), "no library's");
        cr_assert(script->action == cases[i].action && script->unit == cases[i].unit, "%s", cases[i].text);
        cr_assert(script->key == 1 && script->token == 1 && script->kind == LEASE_STRING);
    }
}

Test(lease_shape_texts, what_is_no_idiom)
{
    static const char *const texts[] = {
        "",
        "return 1",
        "if",
        HELD,
        HELD "return redis.call(",
        HELD "return redis.call('del', KEYS[1])",
        HELD "return redis.call('del', KEYS[2]) else return 0 end",
        HELD "return redis.call('del', KEYS[1], KEYS[2]) else return 0 end",
        HELD "return redis.call('del', KEYS[1]) else return 1 end",
        HELD "return redis.call('del', KEYS[1]) else return 0 end return 1",
        HELD "return redis.call('set', KEYS[1], 'x') else return 0 end",
        HELD "return redis.call('pexpire', KEYS[1], ARGV[3]) else return 0 end",
        HELD "return redis.call('pexpire', KEYS[1], ARGV[2] + 1) else return 0 end",
        HELD "return redis.call(' del', KEYS[1]) else return 0 end",
        "if redis.call('get', keys[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        "if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        "if redis.call('get', KEYS[1]) == ARGV[2] then return redis.call('del', KEYS[1]) else return 0 end",
        "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        cr_assert_null(learn(texts[i]), "%s", texts[i]);
    }
    cr_assert_null(lease_shape_learn((struct slice){NULL, 0}));
}

static const struct lease_script *lookup(void *context, struct slice digest)
{
    return is(digest, DIGEST_OF_NOTHING) ? context : NULL;
}

Test(lease_shape_texts, by_eval_and_learned)
{
    const char *text = HELD "return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
    const struct slice words[] = {slice("eval"), slice(text), slice("1"), slice("k"), slice("t"), slice("5")};
    struct request made = request_of(words, 6);
    struct slice found;

    read_request(&made);
    cr_assert(made.shape.action == LEASE_EXTEND && is(made.shape.key, "k") && is(made.shape.token, "t"));
    cr_assert_eq(made.shape.lease_ms, 5);
    cr_assert(lease_shape_text(made.command, (struct slice){made.bytes, made.length}, &found) && is(found, text));
    free(made.bytes);
    made = request("evalsha DA39a3ee5e6b4b0d3255bfef95601890afd80709 1 k t 5");
    cr_assert_eq(made.shape.action, LEASE_NOTHING);
    lease_shape_read(&made.shape, made.command, (struct slice){made.bytes, made.length}, lookup, (void *)learn(text));
    cr_assert(made.shape.action == LEASE_EXTEND && made.shape.lease_ms == 5);
    free(made.bytes);
    made = request("script LOAD return");
    cr_assert(lease_shape_text(made.command, (struct slice){made.bytes, made.length}, &found) && is(found, "return"));
    free(made.bytes);
    made = request("script exists return");
    cr_assert_not(lease_shape_text(made.command, (struct slice){made.bytes, made.length}, &found));
    free(made.bytes);
}

/* ---- replies ---- */

static enum lease_answer answer(enum lease_reply reply, const char *head)
{
    struct lease_shape shape = {.action = LEASE_ACQUIRE, .reply = reply, .key_count = 3};

    return lease_shape_answer(&shape, slice(head));
}

Test(lease_shape_answer, of_every_reply)
{
    static const char *const heads[] = {"+OK\r\n",
                                        "$2\r\nOK\r\n",
                                        "$-1\r\n",
                                        "_\r\n",
                                        ":1\r\n",
                                        ":0\r\n",
                                        ":3\r\n",
                                        ":-1\r\n",
                                        "$1\r\nx\r\n",
                                        "*2\r\n:-1\r\n:7\r\n",
                                        "*2\r\n:99\r\n:-1\r\n",
                                        "-ERR no\r\n",
                                        "-NOSCRIPT no\r\n",
                                        "+QUEUED\r\n"};
    /* Yes, No, Held, ? unclear: one for each head. */
    static const char *const expected[] = {
        [LEASE_REPLY_NONE] = "??????????????",     [LEASE_REPLY_OK] = "YYNN????N???N?",
        [LEASE_REPLY_NIL] = "NNYYNNNNN???N?",      [LEASE_REPLY_ONE] = "??NNYNNN????N?",
        [LEASE_REPLY_ZERO] = "????NYNN????N?",     [LEASE_REPLY_COUNT] = "??NNYNYN????N?",
        [LEASE_REPLY_ALL_KEYS] = "??NNNNYN????N?", [LEASE_REPLY_TRUTH] = "YYNNYNYN????N?",
        [LEASE_REPLY_VALUE] = "YYNNYYYYY???N?",    [LEASE_REPLY_NO_ERROR] = "YYYYYYYYY??NN?",
        [LEASE_REPLY_HOLDS] = "??NNYH??????N?",    [LEASE_REPLY_MAYBE] = "??NNY???????N?",
        [LEASE_REPLY_FENCE] = "?????????YN?N?",
    };
    static const char letters[] = {
        [LEASE_ANSWER_UNCLEAR] = '?', [LEASE_ANSWER_YES] = 'Y', [LEASE_ANSWER_NO] = 'N', [LEASE_ANSWER_HELD] = 'H'};

    for (size_t reply = 0; reply < sizeof expected / sizeof expected[0]; reply++) {
        for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
            char letter = letters[answer((enum lease_reply)reply, heads[i])];
            cr_assert_eq(letter, expected[reply][i], "reply %zu: %c to %s", reply, letter, heads[i]);
        }
    }
    cr_assert_eq(answer(LEASE_REPLY_OK, ""), LEASE_ANSWER_UNCLEAR);
    cr_assert_eq(answer(LEASE_REPLY_ONE, "#t\r\n"), LEASE_ANSWER_YES);
    cr_assert_eq(answer(LEASE_REPLY_ONE, "#f\r\n"), LEASE_ANSWER_NO);
    cr_assert_eq(answer(LEASE_REPLY_ONE, ":1"), LEASE_ANSWER_UNCLEAR, "the line is not whole");
}

/* ---- unsound frames ---- */

static void read_copy(const char *bytes, size_t length, const struct command *command)
{
    struct request made = {.bytes = malloc(length + (length == 0)), .length = length, .command = command};
    struct slice text;

    memcpy(made.bytes, bytes, length);
    read_request(&made);
    check_runs(&made);
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

Test(lease_shape_frames, cut_anywhere)
{
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        struct request made = request(samples[i]);
        for (size_t length = 0; length < made.length; length++) {
            read_copy(made.bytes, length, made.command);
        }
        free(made.bytes);
    }
}

Test(lease_shape_frames, with_wrong_numbers)
{
    static const char *const frames[] = {"*6\r\n$3\r\nset\r\n$1\r\nk\r\n$1\r\nt\r\n$2\r\nnx\r\n$2\r\npx\r\n",
                                         "*-1\r\n$3\r\nset\r\n",
                                         "*0\r\n",
                                         "*4294967298\r\n$3\r\nset\r\n$1\r\nk\r\n",
                                         "*99999999999999999999999\r\n$3\r\nset\r\n",
                                         "*4\r\n$-1\r\n",
                                         "*4\r\n$3\r\nset\r\n$99\r\nk\r\n$1\r\nt\r\n$2\r\nnx\r\n",
                                         "*4\r\n$3\r\nset\r\n$18446744073709551615\r\nk\r\n$1\r\nt\r\n$2\r\nnx\r\n",
                                         "*4\r\n$3\r\nset\r\n$2\r\nk\r\n$1\r\nt\r\n$2\r\nnx\r\n",
                                         "*4\r\n$3\r\nset\r\n:1\r\nk\r\n$1\r\nt\r\n$2\r\nnx\r\n",
                                         "*\r\n",
                                         "*4\n$3\nset\n",
                                         "set k t nx\r\n",
                                         "*4\r\n$3\r\nset\r\n$\r\nk\r\n$1\r\nt\r\n$2\r\nnx\r\n",
                                         "",
                                         "*5\r\n$3\r\nset\r\n$1\r\nk\r\n$1\r\nt\r\n$2\r\nnx\r\n"};
    const struct command *set = command_find(slice("set"));
    struct lease_shape shape;

    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        lease_shape_read(&shape, set, slice(frames[i]), NULL, NULL);
        cr_assert_eq(shape.action, LEASE_NOTHING, "%zu", i);
        read_copy(frames[i], strlen(frames[i]), set);
    }
    lease_shape_read(&shape, set, (struct slice){NULL, 0}, NULL, NULL);
    cr_assert_eq(shape.action, LEASE_NOTHING);
    lease_shape_read(&shape, NULL, slice("*1\r\n$1\r\nx\r\n"), NULL, NULL);
    cr_assert_eq(shape.action, LEASE_NOTHING);
}

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* The same on every run. */
Test(lease_shape_frames, at_random, .timeout = 60)
{
    static const char likely[] = "*$\r\n0123456789-KV";
    uint32_t state = 20260401;

    for (int i = 0; i < 60000; i++) {
        struct request made = request(samples[next_random(&state) % SAMPLE_COUNT]);
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

Test(lease_shape_frames, replies_at_random)
{
    static const char likely[] = "*$:+-_#\r\n0123OKtf=!NOSCRIPT";
    uint32_t state = 7;

    for (int i = 0; i < 100000; i++) {
        size_t length = next_random(&state) % 24;
        char *head = malloc(length + 1);
        char *exact = head + 1;
        for (size_t j = 0; j < length; j++) {
            exact[j] = likely[next_random(&state) % (sizeof likely - 1)];
        }
        struct lease_shape shape = {.action = LEASE_RELEASE,
                                    .reply = (enum lease_reply)(next_random(&state) % (LEASE_REPLY_FENCE + 1))};
        lease_shape_answer(&shape, (struct slice){exact, length});
        lease_shape_learn((struct slice){exact, length});
        free(head);
    }
}
