/* Keys of commands as the installed redis-server specifies them (COMMAND INFO), against those that it finds itself
 * (COMMAND GETKEYS). Headgate has all of these commands in its table; here it is as if it had not. */
#include "upstream/learned_keys.h"

#include "../command/command_fixture.h"
#include "../command/server_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(learned_keys, .init = server_start, .fini = server_stop, .timeout = 60);

struct key_list {
    char text[FRAME_MAX];
};

static bool list_key(void *context, struct slice key, uint32_t argument_index)
{
    struct key_list *list = context;
    size_t length = strlen(list->text);

    (void)argument_index;
    snprintf(list->text + length, sizeof(list->text) - length, "[%.*s]", (int)key.length, key.data);
    return true;
}

static redisReply *ask_about(const char *name)
{
    redisReply *reply = server_ask(3, (const char *[]){"COMMAND", "INFO", name});

    cr_assert_eq(reply->type, REDIS_REPLY_ARRAY, "%s", name);
    cr_assert_eq(reply->elements, 1);
    cr_assert_eq(reply->element[0]->type, REDIS_REPLY_ARRAY, "%s", name);
    return reply;
}

static void told_keys(const struct line *line, struct key_list *list)
{
    const char *argv[ARGUMENTS_MAX + 2] = {"COMMAND", "GETKEYS"};

    memcpy(argv + 2, line->argv, sizeof(line->argv));
    redisReply *reply = server_ask(line->argc + 2, argv);
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
        list_key(list, slice_of(reply->element[i]->str), 0);
    freeReplyObject(reply);
}

static void visit(const struct command_specs *specs, const struct line *line, struct key_list *list)
{
    const struct specified_command told = {.command = {.keys = COMMAND_KEYS_SPECS}, .specs = *specs};

    command_visit_keys(&told.command, (struct slice){line->frame, line->frame_length}, list_key, list);
}

/* With semicolons between them. */
static const char lines[] =
    "GET a;MGET a b c;MSET a 1 b 2 c 3;BITOP AND to a b;RENAME a b;BLPOP a b c 0;ZUNION 2 a b WEIGHTS 1 2;"
    "ZDIFF 3 a b c;ZINTERCARD 2 a b LIMIT 1;SINTERCARD 1 a LIMIT 1;SINTERCARD 0 a;SINTERCARD x a;SINTERCARD 3 a b;"
    "SINTERCARD -1 a b;SINTERCARD 9223372036854775807 a b;LMPOP 2 a b LEFT;BLMPOP 0 2 a b LEFT;BZMPOP 1.5 1 a MAX;"
    "EVAL s 2 a b x;EVAL s 0 a b x;FCALL f 1 a x;ZUNIONSTORE to 2 a b AGGREGATE SUM;ZDIFFSTORE to 1 a;"
    "XREAD COUNT 1 BLOCK 0 STREAMS a b 0 0;XREAD streams a 0;XREAD COUNT 1 BLOCK 0;"
    "XREADGROUP GROUP g c STREAMS a b c > 0 1;GEORADIUS_RO a 1 2 3 m";

Test(learned_keys, are_those_of_getkeys)
{
    char copy[sizeof lines], *rest = memcpy(copy, lines, sizeof lines);
    size_t without_keys = 0;

    for (char *text = strsep(&rest, ";"); text != NULL; text = strsep(&rest, ";")) {
        struct key_list told = {""}, visited = {""};
        struct command_specs specs;
        struct line line;
        split(&line, text);
        redisReply *reply = ask_about(line.argv[0]);
        cr_expect(learned_keys_read(reply->element[0], &specs), "%s", text);
        freeReplyObject(reply);
        told_keys(&line, &told);
        visit(&specs, &line, &visited);
        cr_expect_str_eq(visited.text, told.text, "%s: %s, not %s", text, visited.text, told.text);
        without_keys += told.text[0] == '\0';
    }
    cr_expect_leq(without_keys, 8);
}

/* Where it does not say all, or there is nothing to be said. */
Test(learned_keys, are_not_known)
{
    static const char *const names[] = {"SORT", "MIGRATE", "PING", "SSUBSCRIBE", "OBJECT"};

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct command_specs specs;
        redisReply *reply = ask_about(names[i]);
        cr_expect_not(learned_keys_read(reply->element[0], &specs), "%s", names[i]);
        freeReplyObject(reply);
    }
}

struct from_the_end {
    struct command_spec spec;
    const char *line;
    const char *keys;
};

/* What no command of Redis' own has. */
Test(learned_keys, of_every_form)
{
    static const struct from_the_end cases[] = {
        {{.begin = -1, .keyword = "KEYS", .last = -1, .step = 1}, "x KEYS a keys b c", "[b][c]"},
        {{.begin = -3, .keyword = "KEYS", .last = -1, .step = 1}, "x KEYS a b keys c", "[a][b][keys][c]"},
        {{.begin = -9, .keyword = "KEYS", .last = -1, .step = 1}, "x KEYS a", ""},
        {{.begin = 2, .keyword = "KEYS", .last = -1, .step = 1}, "x KEYS a keys b", "[b]"},
        {{.begin = 1, .keyword = "KEYS", .last = 0, .step = 1}, "x KEYS", ""},
        {{.begin = 1, .last = -2, .step = 2}, "x a 1 b 2 c", "[a][b]"},
        {{.begin = 1, .last = 3, .step = 1}, "x a b", ""},
        {{.begin = 1, .last = -1024, .step = 1}, "x a b", ""},
        {{.begin = 1, .last = -1, .limit = 3, .step = 1}, "x a b c d e f", "[a][b]"},
        {{.begin = 1024, .is_counted = true, .count_at = 1024, .first = 1024, .step = 1024}, "x a b", ""},
        {{.begin = 1, .is_counted = true, .first = 1, .step = 2}, "x 2 a 1 b 2", "[a][b]"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct command_specs specs = {.count = 1, .items = {cases[i].spec}};
        struct key_list visited = {""};
        struct line line;
        split(&line, cases[i].line);
        visit(&specs, &line, &visited);
        cr_expect_str_eq(visited.text, cases[i].keys, "%zu: %s", i, visited.text);
    }
}
