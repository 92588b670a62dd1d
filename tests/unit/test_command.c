/*
 * The command table against itself, and against what the installed redis-server says of its commands. The server is
 * started for the tests that ask it, on a Unix socket in a directory of its own.
 */
#include "command.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <ftw.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static struct slice slice_of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

static const struct command *find(const char *name)
{
    return command_find(slice_of(name));
}

/* ---- names ---- */

/* What command_find has to answer, found the slow way. */
static const struct command *find_slowly(struct slice name)
{
    for (size_t i = 0; i < command_count(); i++) {
        const struct command *command = command_at(i);
        if (strlen(command->name) != name.length)
            continue;
        size_t same = 0;
        while (same < name.length && tolower((unsigned char)name.data[same]) == command->name[same])
            same++;
        if (same == name.length)
            return command;
    }
    return NULL;
}

static void expect_as_slowly(const char *data, size_t length)
{
    struct slice name = {data, length};
    cr_expect_eq(command_find(name), find_slowly(name), "'%.*s' (%zu bytes)", (int)length, data, length);
}

Test(command, table_is_sorted_and_each_row_found)
{
    cr_assert_gt(command_count(), 250);
    for (size_t i = 0; i < command_count(); i++) {
        const struct command *command = command_at(i);
        cr_expect_eq(command_index(command), i);
        cr_expect_eq(find(command->name), command, "%s", command->name);
        if (i > 0)
            cr_expect_lt(strcmp(command_at(i - 1)->name, command->name), 0, "%s", command->name);
        for (const char *letter = command->name; *letter != '\0'; letter++)
            cr_expect_eq(*letter, tolower((unsigned char)*letter), "%s", command->name);
    }
}

Test(command, rows_are_consistent)
{
    for (size_t i = 0; i < command_count(); i++) {
        const struct command *command = command_at(i);
        bool is_slow = (command->categories & CATEGORY_SLOW) != 0;
        bool is_fast = (command->categories & CATEGORY_FAST) != 0;
        cr_expect_neq(command->arity, 0, "%s", command->name);
        cr_expect(command->kind == COMMAND_HTTP || is_slow != is_fast, "%s", command->name);
        cr_expect(command->first_key == 0 || command->key_step > 0, "%s", command->name);
        cr_expect(command->first_key >= 0 && command->key_step >= 0, "%s", command->name);
    }
}

Test(command, any_case)
{
    static const char *const spellings[] = {"get", "GET", "Get", "gEt", "geT"};
    for (size_t i = 0; i < COUNT_OF(spellings); i++)
        cr_expect_str_eq(find(spellings[i])->name, "get");
    cr_expect_str_eq(find("GEORADIUSBYMEMBER_RO")->name, "georadiusbymember_ro");
    cr_expect_str_eq(find("Restore-Asking")->name, "restore-asking");
    cr_expect_str_eq(find("Host:")->name, "host:");

    for (size_t i = 0; i < command_count(); i++) {
        const struct command *command = command_at(i);
        char upper[32] = "";
        for (size_t j = 0; command->name[j] != '\0'; j++)
            upper[j] = (char)toupper((unsigned char)command->name[j]);
        cr_expect_eq(find(upper), command, "%s", upper);
    }
}

Test(command, near_misses)
{
    static const char tails[] = {'\0', ' ', 'x', 's', '\n', (char)0xff};
    for (size_t i = 0; i < command_count(); i++) {
        const char *name = command_at(i)->name;
        size_t length = strlen(name);
        char changed[64];

        for (size_t shorter = 0; shorter < length; shorter++) {
            expect_as_slowly(name, shorter);
            expect_as_slowly(name + length - shorter, shorter);
        }
        for (size_t j = 0; j < sizeof(tails); j++) {
            memcpy(changed, name, length);
            changed[length] = tails[j];
            expect_as_slowly(changed, length + 1);
        }
        for (size_t bit = 0; bit < length * 8; bit++) {
            memcpy(changed, name, length);
            changed[bit / 8] = (char)(changed[bit / 8] ^ 1 << bit % 8);
            expect_as_slowly(changed, length);
        }
        /* With a NUL, and anything behind it, it is another name. */
        memset(changed, 0, sizeof(changed));
        memcpy(changed, name, length);
        for (size_t longer = length + 1; longer <= sizeof(changed); longer++)
            cr_expect_null(command_find((struct slice){changed, longer}), "%s and %zu NULs", name, longer - length);
    }
}

Test(command, names_of_odd_lengths)
{
    static char many[100000];
    memset(many, 'g', sizeof(many));
    for (size_t length = 0; length < 64; length++)
        cr_expect_null(command_find((struct slice){many, length}));
    cr_expect_null(command_find((struct slice){many, sizeof(many)}));
    cr_expect_null(command_find((struct slice){NULL, 0}));
    cr_expect_null(command_find((struct slice){"\0", 1}));
    cr_expect_null(command_find((struct slice){"\0get", 4}));
    cr_expect_null(command_find((struct slice){"g\0t", 3}));
    cr_expect_str_eq(command_find((struct slice){"getdel", 3})->name, "get");
}

Test(command, lookup_is_quick)
{
    static const char *const names[] = {"GET", "SET", "MULTI", "get", "set", "multi"};
    enum { ROUNDS = 200000 };
    struct slice slices[COUNT_OF(names)];
    for (size_t i = 0; i < COUNT_OF(names); i++)
        slices[i] = slice_of(names[i]);
    struct timespec from, to;
    size_t sum = 0;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < COUNT_OF(names); i++)
            sum += command_index(command_find(slices[i]));
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);

    double nanoseconds = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
    double each = nanoseconds / (ROUNDS * (double)COUNT_OF(names));
    cr_log_info("%.1f ns a lookup (%zu)", each, sum);
    /* Far above what it takes: this has to hold under sanitizers and on busy machines, too. */
    cr_expect_lt(each, 1000.0);
}

/* ---- kinds ---- */

Test(command, kinds)
{
    static const struct {
        enum command_kind kind;
        const char *names; /* all of that kind */
    } kinds[] = {
        {COMMAND_MULTI, "multi"},
        {COMMAND_EXEC, "exec"},
        {COMMAND_DISCARD, "discard"},
        {COMMAND_WATCH, "watch"},
        {COMMAND_UNWATCH, "unwatch"},
        {COMMAND_BLOCKING, "blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin"},
        {COMMAND_BLOCKING_IF, "xread xreadgroup"},
        {COMMAND_SUBSCRIBE, "psubscribe ssubscribe subscribe"},
        {COMMAND_UNSUBSCRIBE, "punsubscribe sunsubscribe unsubscribe"},
        {COMMAND_MONITOR, "monitor"},
        {COMMAND_REPLICATION, "psync replconf sync"},
        {COMMAND_CLIENT, "client"},
        {COMMAND_AUTH, "auth"},
        {COMMAND_HELLO, "hello"},
        {COMMAND_SELECT, "select"},
        {COMMAND_RESET, "reset"},
        {COMMAND_WAIT, "wait waitaof"},
        {COMMAND_QUIT, "quit"},
        {COMMAND_HTTP, "host: post"},
        {COMMAND_STICKY, "asking readonly readwrite"},
        {COMMAND_ALONE, "debug failover shutdown"},
        {COMMAND_EVAL, "eval eval_ro evalsha evalsha_ro fcall fcall_ro"},
        {COMMAND_SCRIPT, "script"},
    };
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        char found[256] = "";
        for (size_t j = 0; j < command_count(); j++) {
            if (command_at(j)->kind == kinds[i].kind)
                snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s", found[0] == '\0' ? "" : " ",
                         command_at(j)->name);
        }
        cr_expect_str_eq(found, kinds[i].names);
    }
}

Test(command, what_newer_servers_have)
{
    static const struct {
        const char *name;
        int arity;
        uint32_t categories;
    } rows[] = {
        {"waitaof", 4, CATEGORY_CONNECTION | CATEGORY_BLOCKING | CATEGORY_SLOW},
        {"hexpire", -6, CATEGORY_WRITE | CATEGORY_HASH | CATEGORY_FAST},
        {"hexpireat", -6, CATEGORY_WRITE | CATEGORY_HASH | CATEGORY_FAST},
        {"hexpiretime", -5, CATEGORY_READ | CATEGORY_HASH | CATEGORY_FAST},
        {"hpersist", -5, CATEGORY_WRITE | CATEGORY_HASH | CATEGORY_FAST},
        {"hpexpire", -6, CATEGORY_WRITE | CATEGORY_HASH | CATEGORY_FAST},
        {"hpexpireat", -6, CATEGORY_WRITE | CATEGORY_HASH | CATEGORY_FAST},
        {"hpexpiretime", -5, CATEGORY_READ | CATEGORY_HASH | CATEGORY_FAST},
        {"hpttl", -5, CATEGORY_READ | CATEGORY_HASH | CATEGORY_FAST},
        {"httl", -5, CATEGORY_READ | CATEGORY_HASH | CATEGORY_FAST},
        {"hgetex", -5, CATEGORY_WRITE | CATEGORY_HASH | CATEGORY_FAST},
        {"hgetdel", -5, CATEGORY_WRITE | CATEGORY_HASH | CATEGORY_FAST},
        {"hsetex", -6, CATEGORY_WRITE | CATEGORY_HASH | CATEGORY_FAST},
        {"xdelex", -5, CATEGORY_WRITE | CATEGORY_STREAM | CATEGORY_FAST},
        {"xackdel", -6, CATEGORY_WRITE | CATEGORY_STREAM | CATEGORY_FAST},
        {"delex", -2, CATEGORY_WRITE | CATEGORY_STRING | CATEGORY_FAST},
        {"delifeq", 3, CATEGORY_WRITE | CATEGORY_STRING | CATEGORY_SLOW},
        {"digest", 2, CATEGORY_READ | CATEGORY_STRING | CATEGORY_FAST},
        {"msetex", -4, CATEGORY_WRITE | CATEGORY_STRING | CATEGORY_SLOW},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct command *command = find(rows[i].name);
        cr_assert_not_null(command, "%s", rows[i].name);
        cr_expect_eq(command->arity, rows[i].arity, "%s", rows[i].name);
        cr_expect_eq(command->categories, rows[i].categories, "%s", rows[i].name);
        cr_expect_eq(command->kind, strcmp(rows[i].name, "waitaof") == 0 ? COMMAND_WAIT : COMMAND_ORDINARY);
    }
    cr_expect_null(find("ft.search"));
    cr_expect_null(find("json.get"));
}

/* ---- keys ---- */

#define ARGUMENTS_MAX 24
#define FRAME_MAX 1024

/* A command line taken apart at its blanks, with "" for an empty argument, and the same as a frame. */
struct line {
    int argc;
    const char *argv[ARGUMENTS_MAX];
    char text[FRAME_MAX];
    char frame[FRAME_MAX];
    size_t frame_length;
};

static void split(struct line *line, const char *text)
{
    *line = (struct line){.argc = 0};
    snprintf(line->text, sizeof(line->text), "%s", text);
    char *rest = line->text;
    for (char *word = strsep(&rest, " "); word != NULL; word = strsep(&rest, " ")) {
        cr_assert_lt(line->argc, ARGUMENTS_MAX);
        line->argv[line->argc++] = strcmp(word, "\"\"") == 0 ? "" : word;
    }
    line->frame_length = (size_t)snprintf(line->frame, sizeof(line->frame), "*%d\r\n", line->argc);
    for (int i = 0; i < line->argc; i++) {
        char *end = line->frame + line->frame_length;
        size_t room = sizeof(line->frame) - line->frame_length;
        line->frame_length += (size_t)snprintf(end, room, "$%zu\r\n%s\r\n", strlen(line->argv[i]), line->argv[i]);
        cr_assert_lt(line->frame_length, sizeof(line->frame));
    }
}

struct visits {
    const struct line *line;
    uint32_t stop_after;
    uint32_t count;
    uint32_t last_index;
    char places[256]; /* of the keys, with a blank before each */
};

static bool note_visit(void *context, struct slice key, uint32_t argument_index)
{
    struct visits *visits = context;
    const char *expected = visits->line->argv[argument_index];
    cr_expect_eq(key.length, strlen(expected), "%s", expected);
    cr_expect_arr_eq(key.data, expected, key.length);
    cr_expect_gt(argument_index, visits->last_index, "not in order: %s", expected);
    visits->last_index = argument_index;
    size_t used = strlen(visits->places);
    snprintf(visits->places + used, sizeof(visits->places) - used, " %u", argument_index);
    return ++visits->count != visits->stop_after;
}

static struct visits visit_line(const struct line *line, uint32_t stop_after)
{
    struct visits visits = {.line = line, .stop_after = stop_after};
    const struct command *command = find(line->argv[0]);
    cr_assert_not_null(command, "%s", line->argv[0]);
    command_visit_keys(command, (struct slice){line->frame, line->frame_length}, note_visit, &visits);
    return visits;
}

static void expect_places(const char *text, const char *places)
{
    struct line line;
    split(&line, text);
    struct visits visits = visit_line(&line, 0);
    cr_expect_str_eq(visits.places, places, "%s: keys at%s, not at%s", text, visits.places, places);
}

/* What COMMAND GETKEYS of Redis 7.0 does not know, or says otherwise than the command itself does. */
Test(command_keys, places)
{
    expect_places("MSETEX 2 k1 v1 k2 v2 EX 10", " 2 4");
    expect_places("MSETEX 3 k1 v1 k2 v2", "");
    expect_places("MSETEX 1 k1", "");
    expect_places("DELEX k IFEQ v", " 1");
    expect_places("XREADGROUP GROUP g c CLAIM 100 NOACK STREAMS a b > >", " 8 9");
    expect_places("HGETEX k EX 1 FIELDS 1 f", " 1");
    expect_places("ZRANK k m WITHSCORE", " 1");
    expect_places("SORT k STORE get STORE last", " 1 5");
    expect_places("SUBSCRIBE a b", "");
    expect_places("MSET k1 v1 k2", " 1 3");
    expect_places("POST / HTTP/1.1", "");
}

Test(command_keys, order_and_stop)
{
    struct line line;
    split(&line, "ZUNIONSTORE to 3 a b c");
    cr_expect_str_eq(visit_line(&line, 0).places, " 1 3 4 5");
    cr_expect_str_eq(visit_line(&line, 1).places, " 1");
    cr_expect_str_eq(visit_line(&line, 3).places, " 1 3 4");
    split(&line, "MGET a b c");
    cr_expect_str_eq(visit_line(&line, 2).places, " 1 2");
    split(&line, "SORT a STORE b");
    cr_expect_str_eq(visit_line(&line, 1).places, " 1");
    split(&line, "XREAD STREAMS a b 0 0");
    cr_expect_str_eq(visit_line(&line, 1).places, " 2");
    split(&line, "MIGRATE h 1 \"\" 0 9 KEYS a b");
    cr_expect_str_eq(visit_line(&line, 1).places, " 7");
}

Test(command_keys, malformed_counts_give_none)
{
    static const char *const counts[] = {
        "\"\"",
        "0",
        "-1",
        "+1",
        "01",
        "1x",
        "x",
        "0x1",
        "1.0",
        "1e0",
        "3",
        "4294967297",
        "4294967298",
        "18446744073709551617",
        "18446744073709551618",
        "99999999999999999999999999999999999999",
        "-9223372036854775808",
    };
    static const char *const shapes[] = {
        "EVAL s %s a b", "ZUNION %s a b",   "ZUNIONSTORE to %s a b",
        "LMPOP %s a b",  "BZMPOP 0 %s a b", "MSETEX %s a b c d",
    };
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        for (size_t j = 0; j < COUNT_OF(shapes); j++) {
            char text[256];
            snprintf(text, sizeof(text), shapes[j], counts[i]);
            expect_places(text, "");
        }
    }
    struct line line;
    split(&line, "ZUNION 1_ a");
    line.frame[strcspn(line.frame, "_")] = '\0';
    cr_expect_eq(visit_line(&line, 0).count, 0, "a NUL in a count");
}

Test(command_keys, too_few_arguments)
{
    static const char *const tails[] = {"", " 1", " 1 1", " 1 1 1", " STORE", " KEYS", " STREAMS", " \"\""};
    for (size_t i = 0; i < command_count(); i++) {
        for (size_t j = 0; j < COUNT_OF(tails); j++) {
            char text[64];
            struct line line;
            snprintf(text, sizeof(text), "%s%s", command_at(i)->name, tails[j]);
            split(&line, text);
            cr_expect_lt(visit_line(&line, 0).last_index, (uint32_t)line.argc, "%s", text);
        }
    }
}

/* ---- categories ---- */

Test(command_categories, names)
{
    cr_expect_eq(command_category_find(slice_of("keyspace")), CATEGORY_KEYSPACE);
    cr_expect_eq(command_category_find(slice_of("scripting")), CATEGORY_SCRIPTING);
    static const char *const none[] = {"", "@read", "rea", "reads", "READ", "all", "nothing"};
    for (size_t i = 0; i < COUNT_OF(none); i++)
        cr_expect_eq(command_category_find(slice_of(none[i])), 0, "%s", none[i]);
    cr_expect_eq(command_category_find((struct slice){"read\0", 5}), 0);
    cr_expect_eq(command_category_find((struct slice){NULL, 0}), 0);
}

/* ---- the installed redis-server ---- */

static struct {
    pid_t pid;
    char directory[64];
    redisContext *connection;
} server;

static redisReply *ask(int argc, const char **argv)
{
    redisReply *reply = redisCommandArgv(server.connection, argc, argv, NULL);
    cr_assert_not_null(reply, "%s", server.connection->errstr);
    return reply;
}

static redisContext *connect_patiently(const char *path)
{
    for (int i = 0; i < 1000; i++) {
        redisContext *connection = redisConnectUnix(path);
        if (connection != NULL && connection->err == 0)
            return connection;
        redisFree(connection);
        usleep(10000);
    }
    return NULL;
}

static void start_server(void)
{
    char path[96];
    snprintf(server.directory, sizeof(server.directory), "/tmp/headgate-command-XXXXXX");
    cr_assert_not_null(mkdtemp(server.directory));
    snprintf(path, sizeof(path), "%s/socket", server.directory);
    server.pid = fork();
    cr_assert_geq(server.pid, 0);
    if (server.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when the test crashes */
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", path, "--dir", server.directory, "--save",
               "", "--logfile", "log", (char *)NULL);
        _exit(127);
    }
    server.connection = connect_patiently(path);
    cr_assert_not_null(server.connection, "redis-server does not answer");
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

static void stop_server(void)
{
    redisFree(server.connection);
    if (server.pid > 0) {
        kill(server.pid, SIGKILL);
        waitpid(server.pid, NULL, 0);
    }
    nftw(server.directory, remove_entry, 4, FTW_DEPTH | FTW_PHYS);
}

TestSuite(command_server, .init = start_server, .fini = stop_server, .timeout = 60);

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
    redisReply *reply = ask(1, (const char *[]){"COMMAND"});
    cr_assert_eq(reply->type, REDIS_REPLY_ARRAY);
    cr_assert_gt(reply->elements, 200);
    for (size_t i = 0; i < reply->elements; i++)
        expect_as_told(reply->element[i]);
    freeReplyObject(reply);
}

Test(command_server, categories_are_those_of_acl_cat)
{
    redisReply *reply = ask(2, (const char *[]){"ACL", "CAT"});
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

static void join_told_keys(const struct line *line, char *out, size_t size)
{
    const char *argv[ARGUMENTS_MAX + 2] = {"COMMAND", "GETKEYS"};
    memcpy(argv + 2, line->argv, sizeof(line->argv));
    redisReply *reply = ask(line->argc + 2, argv);
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

/* True if there are keys. */
static bool expect_keys_as_told(const char *text)
{
    struct line line;
    char told[FRAME_MAX], visited[FRAME_MAX];
    split(&line, text);
    struct key_list list = {.line = &line};
    join_told_keys(&line, told, sizeof(told));
    command_visit_keys(find(line.argv[0]), (struct slice){line.frame, line.frame_length}, list_key, &list);
    join_sorted(list.keys, list.count, visited, sizeof(visited));
    cr_expect_str_eq(visited, told, "%s: keys %s, not %s", text, visited, told);
    return list.count > 0;
}

Test(command_server, keys_are_as_getkeys_says)
{
    static const char *const lines[] = {
        "GET a",
        "MGET a b c",
        "MSET a 1 b 2 c 3",
        "MSETNX a 1",
        "DEL a b",
        "BITOP AND to a b",
        "BITOP NOT to a",
        "RENAME a b",
        "COPY a b REPLACE",
        "LMOVE a b LEFT RIGHT",
        "BLMOVE a b LEFT RIGHT 0",
        "RPOPLPUSH a b",
        "BRPOPLPUSH a b 0",
        "BLPOP a 0",
        "BLPOP a b c 0",
        "BZPOPMIN a b 0",
        "SINTERSTORE to a b",
        "SMOVE a b m",
        "PFCOUNT a b",
        "PFMERGE to a b",
        "LCS a b LEN",
        "GEOSEARCHSTORE to a FROMMEMBER m BYRADIUS 1 m",
        "ZRANGESTORE to a 0 1",
        "WATCH a b",

        "TOUCH a b",
        "EXISTS a b a",
        "SET a v EX 1 GET",
        "BITFIELD a GET u8 0",
        "RESTORE a 0 x",
        "RESTORE-ASKING a 0 x",
        "PFDEBUG ENCODING a",
        /* subcommands */
        "OBJECT ENCODING a",
        "OBJECT FREQ a",
        "MEMORY USAGE a",
        "MEMORY USAGE a SAMPLES 5",
        "XINFO STREAM a FULL COUNT 1",
        "XINFO GROUPS a",
        "XINFO CONSUMERS a g",
        "XGROUP CREATE a g $ MKSTREAM",
        "XGROUP DESTROY a g",
        "XGROUP SETID a g 0",
        "XGROUP CREATECONSUMER a g c",
        "XGROUP DELCONSUMER a g c",
        /* counted */
        "EVAL s 1 a x",
        "EVAL s 2 a b x",
        "EVALSHA d 1 a",
        "EVAL_RO s 1 a",
        "EVALSHA_RO d 2 a b",
        "FCALL f 2 a b x",
        "FCALL_RO f 1 a",
        "ZUNION 2 a b WEIGHTS 1 2",
        "ZINTER 1 a WITHSCORES",
        "ZDIFF 3 a b c",
        "ZINTERCARD 2 a b LIMIT 1",
        "SINTERCARD 2 a b LIMIT 1",
        "LMPOP 2 a b LEFT",
        "ZMPOP 1 a MIN COUNT 2",
        "BLMPOP 0 2 a b LEFT",
        "BZMPOP 1.5 1 a MAX",
        "ZUNIONSTORE to 2 a b AGGREGATE SUM",
        "ZINTERSTORE to 1 a",
        "ZDIFFSTORE to 2 a b",
        /* streams */
        "XREAD STREAMS a 0",
        "XREAD COUNT 1 BLOCK 0 STREAMS a b 0 0",
        "xread streams streams block 0 0",

        "XREADGROUP GROUP streams c STREAMS a >",
        "XREADGROUP GROUP g streams COUNT 1 NOACK BLOCK 5 STREAMS a b c > 0 1",
        /* sort, georadius */
        "SORT a",
        "SORT_RO a BY b GET c",
        "SORT a STORE b",
        "SORT a LIMIT 0 1 BY w_* GET o_* GET # ALPHA DESC STORE b",
        "sort a store b Store c",
        "SORT a GET store",
        "SORT a BY STORE GET c",
        "SORT a LIMIT STORE b STORE c",
        "SORT a STORE",
        "SORT a BY",
        "SORT store STORE store",
        "GEORADIUS a 1 2 3 m",
        "GEORADIUS a 1 2 3 m STORE b",
        "GEORADIUS a 1 2 3 m WITHDIST COUNT 3 ASC STOREDIST b",

        "GEORADIUSBYMEMBER a store 3 m STORE b",
        "GEORADIUSBYMEMBER a storedist 3 m",
        "GEORADIUS a 1 2 3 m STORE STORE b",
        "GEORADIUSBYMEMBER a m 3 m storedist b",
        "GEORADIUS_RO a 1 2 3 m",
        "GEORADIUSBYMEMBER_RO a m 3 m",
        /* migrate */
        "MIGRATE h 1 a 0 9",
        "MIGRATE h 1 \"\" 0 9 KEYS a b c",
        "MIGRATE h 1 \"\" 0 9 COPY REPLACE AUTH p KEYS a",
        "MIGRATE h 1 \"\" 0 9 AUTH2 keys keys KEYS a b",
        "MIGRATE h 1 \"\" 0 9 AUTH keys KEYS keys",
        "MIGRATE h 1 a 0 9 COPY",
        "MIGRATE h 1 keys 0 9 REPLACE AUTH keys",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        cr_expect(expect_keys_as_told(lines[i]), "%s", lines[i]);
}

Test(command_server, no_keys_where_getkeys_says_none)
{
    static const char *const lines[] = {
        "PING",
        "PUBLISH c m",
        "SUBSCRIBE a b",
        "SSUBSCRIBE a b",
        "SPUBLISH a m",
        "CONFIG GET maxmemory",
        "CLIENT LIST",
        "SCRIPT EXISTS d",
        "SCAN 0",
        "KEYS *",
        "WAIT 0 0",
        "SWAPDB 0 1",
        "SELECT 1",
        "MEMORY DOCTOR",
        "OBJECT HELP",
        "XINFO HELP",
        "EVAL s 0 a b",
        "FCALL f 0",
        "EVAL s 3 a b",
        "EVAL s -1 a",
        "EVAL s x a",
        "ZUNION 3 a b",
        "ZUNION 0 a",
        "ZUNION -1 a",
        "ZUNIONSTORE to 3 a b",
        "ZUNIONSTORE to 0 a",
        "BLMPOP 0 9 a LEFT",
        "LMPOP 4 a LEFT",

        "XREAD COUNT 1 BLOCK 0",
        "XREAD BLOCK 0 STREAMS",

        "XREAD COUNT 1 NOACK GROUP a",
        "XREADGROUP GROUP g c NONSENSE STREAMS a",
        "MIGRATE h 1 a 0 9 KEYS b",

    };
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        cr_expect_not(expect_keys_as_told(lines[i]), "%s", lines[i]);
}
