/* The command table against what the installed redis-server says of its commands. */
#include "command_fixture.h"
#include "server_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

TestSuite(command_server, .init = server_start, .fini = server_stop, .timeout = 60);

/* Elements of a command in COMMAND's reply. */
enum { TOLD_NAME, TOLD_ARITY, TOLD_FLAGS, TOLD_FIRST, TOLD_LAST, TOLD_STEP, TOLD_CATEGORIES, TOLD_SUBCOMMANDS = 9 };

static uint32_t told_categories(const redisReply *told)
{
    uint32_t categories = 0;
    const redisReply *names = told->element[TOLD_CATEGORIES];
    for (size_t i = 0; i < names->elements; i++) {
        const redisReply *name = names->element[i];
        uint32_t category = command_category_find((struct slice){name->str + 1, name->len - 1});
        cr_expect_neq(category, 0, "%s", name->str);
        categories |= category;
    }
    return categories;
}

static bool told_movable(const redisReply *told)
{
    const redisReply *flags = told->element[TOLD_FLAGS];
    for (size_t i = 0; i < flags->elements; i++) {
        if (strcmp(flags->element[i]->str, "movablekeys") == 0)
            return true;
    }
    return false;
}

static void expect_keys(const struct command *command, const redisReply *told)
{
    cr_expect_eq(command->keys, COMMAND_KEYS_RANGE, "%s", command->name);
    cr_expect_eq(command->first_key, told->element[TOLD_FIRST]->integer, "%s: first key", command->name);
    cr_expect_eq(command->last_key, told->element[TOLD_LAST]->integer, "%s: last key", command->name);
    cr_expect_eq(command->key_step, told->element[TOLD_STEP]->integer, "%s: key step", command->name);
}

/* Where a row follows versions later than 7.0. */
static bool arity_as_told(const struct command *command, long long told)
{
    bool loosened = strcmp(command->name, "zrank") == 0 || strcmp(command->name, "zrevrank") == 0;
    return command->arity == told || (loosened && command->arity == -3 && told == 3);
}

static uint32_t categories_added(const struct command *command)
{
    return strcmp(command->name, "wait") == 0 ? CATEGORY_BLOCKING : 0;
}

static void expect_as_told(const redisReply *told)
{
    const struct command *command = find(told->element[TOLD_NAME]->str);
    cr_expect_not_null(command, "%s is not in the table", told->element[TOLD_NAME]->str);
    if (command == NULL)
        return;
    cr_expect(arity_as_told(command, told->element[TOLD_ARITY]->integer), "%s: arity", command->name);

    const redisReply *keys = told;
    uint32_t categories = told_categories(told);
    const redisReply *subcommands = told->element[TOLD_SUBCOMMANDS];
    for (size_t i = 0; i < subcommands->elements; i++) {
        categories |= told_categories(subcommands->element[i]);
        if (subcommands->element[i]->element[TOLD_FIRST]->integer > 0)
            keys = subcommands->element[i];
    }
    uint32_t added = categories_added(command);
    cr_expect_eq(command->categories | added, categories | added, "%s: categories %x, not %x", command->name,
                 command->categories, categories);
    if (!told_movable(told))
        expect_keys(command, keys);
}

Test(command_server, table_is_as_command_says)
{
    redisReply *reply = server_ask(1, (const char *[]){"COMMAND"});
    cr_assert_eq(reply->type, REDIS_REPLY_ARRAY);
    cr_assert_gt(reply->elements, 200);
    for (size_t i = 0; i < reply->elements; i++)
        expect_as_told(reply->element[i]);
    freeReplyObject(reply);
}

Test(command_server, categories_are_those_of_acl_cat)
{
    redisReply *reply = server_ask(2, (const char *[]){"ACL", "CAT"});
    uint32_t all = 0;
    cr_assert_gt(reply->elements, 0);
    for (size_t i = 0; i < reply->elements; i++) {
        uint32_t category = command_category_find(slice_of(reply->element[i]->str));
        cr_expect_neq(category, 0, "%s", reply->element[i]->str);
        cr_expect_eq(all & category, 0, "%s", reply->element[i]->str);
        all |= category;
    }
    cr_expect_eq(all, (CATEGORY_SCRIPTING << 1) - 1);
    freeReplyObject(reply);
}

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Writes the texts sorted, as Redis does not give all keys in the order of the arguments. */
static void join_sorted(const char **texts, size_t count, char *out, size_t size)
{
    qsort(texts, count, sizeof(texts[0]), compare_texts);
    out[0] = '\0';
    for (size_t i = 0; i < count; i++)
        snprintf(out + strlen(out), size - strlen(out), "[%s]", texts[i]);
}

/* Nothing if it is not told. */
static void join_told_keys(const struct line *line, char *out, size_t size)
{
    const char *argv[ARGUMENTS_MAX + 2] = {"COMMAND", "GETKEYS"};
    memcpy(argv + 2, line->argv, sizeof(line->argv));
    redisReply *reply = server_ask(line->argc + 2, argv);
    const char *keys[ARGUMENTS_MAX];
    size_t count = 0;
    if (reply->type == REDIS_REPLY_ARRAY) {
        for (size_t i = 0; i < reply->elements; i++)
            keys[count++] = reply->element[i]->str;
    } else {
        cr_expect_null(strstr(reply->str, "Invalid command specified"), "%s", line->argv[0]);
        cr_expect_null(strstr(reply->str, "Invalid number of arguments"), "%s", line->argv[0]);
    }
    join_sorted(keys, count, out, size);
    freeReplyObject(reply);
}

struct key_list {
    const struct line *line;
    const char *keys[ARGUMENTS_MAX];
    size_t count;
};

static bool list_key(void *context, struct slice key, uint32_t argument_index)
{
    struct key_list *list = context;
    (void)key;
    list->keys[list->count++] = list->line->argv[argument_index];
    return true;
}

/* Between them stands "; ". */
static const char with_keys[] =
    "GET a; MGET a b c; MSET a 1 b 2 c 3; MSETNX a 1; DEL a b; BITOP AND to a b; BITOP NOT to a; RENAME a b; "
    "COPY a b REPLACE; LMOVE a b LEFT RIGHT; BLMOVE a b LEFT RIGHT 0; RPOPLPUSH a b; BRPOPLPUSH a b 0; "
    "BLPOP a 0; BLPOP a b c 0; BZPOPMIN a b 0; SINTERSTORE to a b; SMOVE a b m; PFCOUNT a b; PFMERGE to a b; "
    "LCS a b LEN; GEOSEARCHSTORE to a FROMMEMBER m BYRADIUS 1 m; ZRANGESTORE to a 0 1; WATCH a b; TOUCH a b; "
    "EXISTS a b a; SET a v EX 1 GET; BITFIELD a GET u8 0; RESTORE a 0 x; RESTORE-ASKING a 0 x; "
    "PFDEBUG ENCODING a; OBJECT ENCODING a; OBJECT FREQ a; MEMORY USAGE a; MEMORY USAGE a SAMPLES 5; "
    "XINFO STREAM a FULL COUNT 1; XINFO GROUPS a; XINFO CONSUMERS a g; XGROUP CREATE a g $ MKSTREAM; "
    "XGROUP DESTROY a g; XGROUP SETID a g 0; XGROUP CREATECONSUMER a g c; XGROUP DELCONSUMER a g c; "
    "EVAL s 1 a x; EVAL s 2 a b x; EVALSHA d 1 a; EVAL_RO s 1 a; EVALSHA_RO d 2 a b; FCALL f 2 a b x; "
    "FCALL_RO f 1 a; ZUNION 2 a b WEIGHTS 1 2; ZINTER 1 a WITHSCORES; ZDIFF 3 a b c; ZINTERCARD 2 a b LIMIT 1; "
    "SINTERCARD 2 a b LIMIT 1; LMPOP 2 a b LEFT; ZMPOP 1 a MIN COUNT 2; BLMPOP 0 2 a b LEFT; BZMPOP 1.5 1 a MAX; "
    "ZUNIONSTORE to 2 a b AGGREGATE SUM; ZINTERSTORE to 1 a; ZDIFFSTORE to 2 a b; XREAD STREAMS a 0; "
    "XREAD COUNT 1 BLOCK 0 STREAMS a b 0 0; xread streams streams block 0 0; "
    "XREADGROUP GROUP streams c STREAMS a >; "
    "XREADGROUP GROUP g streams COUNT 1 NOACK BLOCK 5 STREAMS a b c > 0 1; SORT a; SORT_RO a BY b GET c; "
    "SORT a STORE b; SORT a LIMIT 0 1 BY w_* GET o_* GET # ALPHA DESC STORE b; sort a store b Store c; "
    "SORT a GET store; SORT a BY STORE GET c; SORT a LIMIT STORE b STORE c; SORT a STORE; SORT a BY; "
    "SORT store STORE store; GEORADIUS a 1 2 3 m; GEORADIUS a 1 2 3 m STORE b; "
    "GEORADIUS a 1 2 3 m WITHDIST COUNT 3 ASC STOREDIST b; GEORADIUSBYMEMBER a store 3 m STORE b; "
    "GEORADIUSBYMEMBER a storedist 3 m; GEORADIUS a 1 2 3 m STORE STORE b; "
    "GEORADIUSBYMEMBER a m 3 m storedist b; GEORADIUS_RO a 1 2 3 m; GEORADIUSBYMEMBER_RO a m 3 m; "
    "MIGRATE h 1 a 0 9; MIGRATE h 1 \"\" 0 9 KEYS a b c; MIGRATE h 1 \"\" 0 9 COPY REPLACE AUTH p KEYS a; "
    "MIGRATE h 1 \"\" 0 9 AUTH2 keys keys KEYS a b; MIGRATE h 1 \"\" 0 9 AUTH keys KEYS keys; "
    "MIGRATE h 1 a 0 9 COPY; MIGRATE h 1 keys 0 9 REPLACE AUTH keys";
static char *texts[128];

/* The lines one by one; their number. */
static size_t take_apart(const char *lines)
{
    static char copy[8192];
    char *rest = copy;
    size_t count = 0;

    snprintf(copy, sizeof copy, "%s", lines);
    for (char *end = strstr(rest, "; "); end != NULL; end = strstr(rest, "; ")) {
        *end = '\0';
        texts[count++] = rest;
        rest = end + 2;
    }
    texts[count++] = rest;
    return count;
}

/* ---- by chance ---- */

static const char *const strays[] = {"STORE", "storedist", "BY",    "GET",   "LIMIT", "KEYS",  "STREAMS",
                                     "BLOCK", "COUNT",     "GROUP", "NOACK", "AUTH",  "AUTH2", "COPY",
                                     "1",     "2",         "3",     "0",     "-1",    "x",     "WEIGHTS",
                                     "LEFT",  "REPLACE",   "MIN",   "ASC",   "k"};

/* Takes a line apart, and changes up to two of its arguments. */
static void mutate(struct line *line, const char *text, unsigned *seed)
{
    split(line, text);
    for (int changes = rand_r(seed) % 3; changes > 0; changes--) {
        const char *stray = strays[(size_t)rand_r(seed) % COUNT_OF(strays)];
        int place = 1 + rand_r(seed) % line->argc;
        bool inserts = line->argc < ARGUMENTS_MAX && rand_r(seed) % 2 == 0;
        if (inserts) {
            memmove(&line->argv[place + 1], &line->argv[place], (size_t)(line->argc - place) * sizeof line->argv[0]);
            line->argc++;
        }
        if (inserts || place < line->argc)
            line->argv[place] = stray;
    }
    line->frame_length = (size_t)snprintf(line->frame, sizeof(line->frame), "*%d\r\n", line->argc);
    for (int i = 0; i < line->argc; i++) {
        line->frame_length +=
            (size_t)snprintf(line->frame + line->frame_length, sizeof(line->frame) - line->frame_length,
                             "$%zu\r\n%s\r\n", strlen(line->argv[i]), line->argv[i]);
    }
}

static bool is_store(const char *word)
{
    return strcasecmp(word, "store") == 0 || strcasecmp(word, "storedist") == 0;
}

static bool is_sort_option(const char *word)
{
    return is_store(word) || strcasecmp(word, "by") == 0 || strcasecmp(word, "get") == 0 ||
           strcasecmp(word, "limit") == 0;
}

/* Of several STORE and STOREDIST of GEORADIUS, COMMAND GETKEYS names all, and Redis takes the last; what follows STORE
 * of SORT it takes for an option if it looks like one, and Redis for a key; and a group or a consumer that is called
 * STREAMS it takes for the word. */
static bool is_told_wrongly(const struct line *line)
{
    bool is_stream = strncasecmp(line->argv[0], "xread", strlen("xread")) == 0;
    bool is_georadius = strncasecmp(line->argv[0], "georadius", strlen("georadius")) == 0;
    bool is_sort = strcasecmp(line->argv[0], "sort") == 0;
    int stores = 0, oddities = 0, streams = 0;

    for (int i = 1; i < line->argc; i++) {
        stores += is_store(line->argv[i]);
        streams += strcasecmp(line->argv[i], "streams") == 0;
        oddities += i + 1 < line->argc && is_store(line->argv[i]) && is_sort_option(line->argv[i + 1]);
    }
    return (is_georadius && stores > 1) || (is_sort && oddities > 0) || (is_stream && streams > 1);
}

/* Whether Redis does not refuse it as unsound. In MULTI nothing waits. */
static bool is_carried_out(const struct line *line)
{
    const char *argv[ARGUMENTS_MAX];
    memcpy(argv, line->argv, sizeof(line->argv));
    freeReplyObject(server_ask(1, (const char *[]){"FLUSHALL"}));
    freeReplyObject(server_ask(1, (const char *[]){"MULTI"}));
    freeReplyObject(server_ask(line->argc, argv));
    redisReply *reply = server_ask(1, (const char *[]){"EXEC"});
    bool is_refused = reply->type != REDIS_REPLY_ARRAY || reply->elements != 1 ||
                      (reply->element[0]->type == REDIS_REPLY_ERROR && strncmp(reply->element[0]->str, "ERR", 3) == 0);
    freeReplyObject(reply);
    return !is_refused;
}

/* Of what Redis refuses, COMMAND GETKEYS names keys at times (numbers by atoi(), STREAMS wherever it stands). */
Test(command_server, keys_are_as_getkeys_says_by_chance)
{
    unsigned seed = 4;
    size_t count = take_apart(with_keys);
    int compared = 0;

    for (int round = 0; round < 20000; round++) {
        struct line line;
        char told[FRAME_MAX], visited[FRAME_MAX], shown[FRAME_MAX] = "";
        mutate(&line, texts[(size_t)rand_r(&seed) % count], &seed);
        if (!is_carried_out(&line) || is_told_wrongly(&line))
            continue;
        struct key_list list = {.line = &line};
        command_visit_keys(find(line.argv[0]), (struct slice){line.frame, line.frame_length}, list_key, &list);
        join_sorted(list.keys, list.count, visited, sizeof(visited));
        join_told_keys(&line, told, sizeof(told));
        for (int i = 0; i < line.argc; i++)
            snprintf(shown + strlen(shown), sizeof(shown) - strlen(shown), "%s ", line.argv[i]);
        cr_expect_str_eq(visited, told, "%s: keys %s, not %s", shown, visited, told);
        compared++;
    }
    cr_assert_gt(compared, 3000);
}
