/* What rules speak of: commands, keys, clients; and what is wrong with a text that names them. */
#include "../../support/address.h"
#include "match/match.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* What stands between bars, and whether it matches; NULL: nothing. */
static void expect_each(const char *what, const char *texts, bool matches, bool (*match)(const char *, const char *))
{
    char *copy = strdup(texts != NULL ? texts : ""), *rest = texts != NULL ? copy : NULL;

    for (char *text = strsep(&rest, "|"); text != NULL; text = strsep(&rest, "|")) {
        cr_expect_eq(match(what, text), matches, "%s on %s", what, text);
    }
    free(copy);
}

/* A rule, what it matches, and what it does not. */
struct row {
    const char *what, *matches, *others;
};

static void expect_rows(const struct row *rows, size_t count, bool (*match)(const char *, const char *))
{
    for (size_t i = 0; i < count; i++) {
        expect_each(rows[i].what, rows[i].matches, true, match);
        expect_each(rows[i].what, rows[i].others, false, match);
    }
}

#define EXPECT_ROWS(rows, match) expect_rows(rows, sizeof(rows) / sizeof((rows)[0]), match)

/* ---- globs ---- */

static bool glob_matches(const char *glob, const char *text)
{
    return glob_match(glob, slice_of(text));
}

Test(glob_match, stands_for_what_redis_takes_it_for)
{
    static const struct row rows[] = {
        {"*", "|a", NULL},
        {"", "", "a"},
        {"a", "a", "A|ab|"},
        {"ab", "ab", "a"},
        {"?", "x", ""},
        {"a*c", "ac|abbbc|abc", "acb"},
        {"*a*b*", "xxaxxbxx", "ba"},
        {"*ab", "aab", "aba"},
        {"a**b", "ab", "a"},
        {"[abc]", "b", "d"},
        {"[^abc]", "d", "a"},
        {"[a-c]x", "bx", "dx"},
        {"[c-a]x", "bx", "dx"},
        {"[a\\]]", "]", "\\"},
        {"[\\^a]", "^", "b"},
        {"[a-]", "-", "b"},
        {"\\*", "*", "x"},
        {"user:*:cart", "user:7:cart", "user:7:carts"},
        {"\\[a]", "[a]", "a"},
        {"*[0-9]", "abc7", "abc"},
        {"[]", NULL, "a"},
        {"[^]", "a", ""},
        {"*?", "a", ""},
    };

    EXPECT_ROWS(rows, glob_matches);
    cr_assert(glob_match("a*\xff?", (struct slice){"a\0b\xff\0", 5}), "any byte is a character");
}

Test(glob_match, takes_bounded_time, .timeout = 10)
{
    static char text[20001];
    char glob[201];

    memset(text, 'a', 20000);
    for (size_t i = 0; i < 200; i += 2) {
        memcpy(glob + i, "*a", 2);
    }
    memcpy(glob + 198, "*b", 3);
    for (int i = 0; i < 20; i++) {
        cr_assert_not(glob_match(glob, (struct slice){text, 20000}));
    }
}

/* ---- commands ---- */

static struct match_commands *commands_of(const char *text)
{
    char problem[CONF_PROBLEM_MAX] = "";
    struct match_commands *commands = match_commands_compile(text, problem);

    cr_assert_not_null(commands, "%s: %s", text, problem);
    return commands;
}

/* The name of a command, and behind a blank its subcommand. */
static bool commands_match(const char *text, const char *name)
{
    struct match_commands *commands = commands_of(text);
    size_t length = strcspn(name, " ");
    const struct command *command = command_find((struct slice){name, length});
    bool is = match_commands_is(commands, command, slice_of(name[length] != '\0' ? &name[length + 1] : ""));

    cr_assert(!is || match_commands_may(commands, command), "%s: what matches may match", text);
    match_commands_free(commands);
    return is;
}

Test(match_commands, by_name_category_and_exclusion)
{
    static const struct row rows[] = {
        {"get", "get", "set"},
        {"get  set\tdel", "del|set", "incr"},
        {"@write", "set", "get"},
        {"@write !set", "append", "set"},
        {"@write !@string set", "set", "append"},
        {"*", "get|json.get", NULL},    /* also what Headgate does not know */
        {"!get *  !set", "get", "set"}, /* later words override earlier ones */
        {"config|set", "config SET", "config get|config"},
        {"CONFIG|SET", "config set", "config get"},
        {"config !config|get", "config set", "config get"},
        {"!config|get config", "config get", NULL}, /* a word on the whole command overrides */
        {"config|get config|set !config|get", "config set", "config get"},
        {"debug|object", "debug object", "debug"}, /* nobody lists the subcommands of DEBUG */
        {"get,set,config|set,!set", "get|config set", "set"},
        {"get ,set\t, config|set !set", "get|config set", "set"},
        /* By categories: what is not known is taken for the worst. */
        {"@dangerous", "client kill|client of-the-future|config get", "client setname|client SETINFO"},
        {"@write", "xgroup create", "xgroup help"},
        {"* !@dangerous", "client setname", "client kill"},
        {"client @dangerous", "client setname", NULL}, /* it was meant before */
        {"@dangerous client|setname", "client setname", "client setinfo"},
        {"@dangerous !client", "flushall", "client kill"},
        {"get client|setname !@connection", "get", "client setname"},
    };

    EXPECT_ROWS(rows, commands_match);
}

Test(match_commands, tells_which_may_match)
{
    struct match_commands *commands = commands_of("config|set get !get");

    cr_assert(match_commands_may(commands, command_find(slice_of("config"))));
    cr_assert_not(match_commands_may(commands, command_find(slice_of("get"))));
    cr_assert_not(match_commands_may(commands, NULL));
    cr_assert_not(match_commands_have_keys(commands));
    match_commands_free(commands);
    commands = commands_of("ping get");
    cr_assert(match_commands_have_keys(commands));
    match_commands_free(commands);
    commands = commands_of("publish spublish ping");
    cr_assert_not(match_commands_have_keys(commands), "a channel is no key");
    match_commands_free(commands);
}

static bool learned_match(const char *text, uint32_t categories)
{
    const struct command learned = {.name = "of.the.future", .categories = categories};
    const struct policy_request request = {.learned = &learned};
    struct match_commands *commands = commands_of(text);
    bool is = match_commands_request(commands, &request);

    cr_assert(!is || match_commands_may(commands, NULL), "%s", text);
    cr_assert(is || !match_commands_all_of(commands, NULL), "%s", text);
    match_commands_free(commands);
    return is;
}

Test(match_commands, that_only_redis_knows)
{
    static const uint32_t read = CATEGORY_READ, write = CATEGORY_WRITE, guessed = CATEGORY_READ | CATEGORY_GUESSED;

    cr_expect(learned_match("*", 0));
    cr_expect(learned_match("@write", write | CATEGORY_SLOW));
    cr_expect(learned_match("@slow", write | CATEGORY_SLOW));
    cr_expect(learned_match("@read !get", read));
    cr_expect_not(learned_match("@write", read));
    cr_expect_not(learned_match("* !@write", write));
    cr_expect(learned_match("* !@write", read));
    cr_expect(learned_match("!@write *", write), "later words override");
    cr_expect_not(learned_match("get set", read));
    cr_expect_not(learned_match("* !@read", read));
    /* Of which Redis does not say that they only read. */
    cr_expect(learned_match("@read", guessed));
    cr_expect(learned_match("* !@read !@write", guessed));
    cr_expect_not(learned_match("* !@slow", guessed | CATEGORY_SLOW));
}

Test(match_commands, that_are_none)
{
    static const char *const cases[][2] = {
        {"", "matches no command"},
        {"get !get", "matches no command"},
        {"* !*", "matches no command"},
        {"@read @slow !@read !*", "matches no command"},
        {"gte", "\"gte\" is no command that Headgate knows"},
        {"@wirte", "\"@wirte\" is no category of commands"},
        {"get !", "\"!\" excludes nothing"},
        {"config|", "\"config|\" names no subcommand"},
        {"confi|get", "\"confi|get\" is no command that Headgate knows"},
        {"config|gte", "\"config|gte\" is no subcommand that Headgate knows"},
        {"get|key", "\"get|key\" is no subcommand that Headgate knows"},
        {"get,,set", "has nothing beside a comma"},
        {"get,", "has nothing beside a comma"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char problem[CONF_PROBLEM_MAX] = "";
        cr_assert_null(match_commands_compile(cases[i][0], problem), "%s", cases[i][0]);
        cr_assert_str_eq(problem, cases[i][1]);
    }
}

/* ---- keys ---- */

static struct resp_command framed;

/* What policies are told of the command, as far as it is there. */
static struct policy_request request_of(const char *name, const char *frame)
{
    size_t taken;

    resp_command_reset(&framed);
    enum resp_status status = resp_command_feed(&framed, frame, strlen(frame), UINT64_MAX, &taken);
    cr_assert(status != RESP_FAULT && taken == strlen(frame), "%s", frame);
    return (struct policy_request){.command = command_find(slice_of(name)),
                                   .frame = slice_of(frame),
                                   .partial = status == RESP_MORE,
                                   .framed = &framed};
}

#define SORT(pattern) "*4\r\n$4\r\nSORT\r\n$1\r\nl\r\n$2\r\nBY\r\n" pattern "\r\n"
#define JSON "*3\r\n$8\r\nJSON.GET\r\n$1\r\na\r\n$1\r\nb\r\n"

static const struct {
    const char *globs, *name, *frame;
    enum match_answer answer;
} requests[] = {
    {"", "ping", "*1\r\n$4\r\nPING\r\n", MATCH_YES},
    {"*", "ping", "*1\r\n$4\r\nPING\r\n", MATCH_NO}, /* no key is no key that matches */
    {"a*", "get", "*2\r\n$3\r\nGET\r\n$2\r\nab\r\n", MATCH_YES},
    {"b* c*", "get", "*2\r\n$3\r\nGET\r\n$2\r\nab\r\n", MATCH_NO},
    {"b", "mget", "*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n", MATCH_YES}, /* one of them is enough */
    {"v", "set", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nv\r\n", MATCH_NO},    /* a value is no key */
    /* Any argument may be a key, as nobody knows which are. */
    {"a", "json.get", JSON, MATCH_YES},
    {"b", "json.get", JSON, MATCH_YES},
    {"JSON.GET c", "json.get", JSON, MATCH_NO},
    {"c", "json.get", "*2\r\n$8\r\nJSON.GET\r\n$90000\r\na", MATCH_OPEN},
    {"secret:*", "sort", SORT("$8\r\nsecret:*"), MATCH_YES},
    {"secret:*", "sort", SORT("$11\r\n*->secret:*"), MATCH_YES},
    {"secret:*", "sort", SORT("$12\r\nw*->secret:*"), MATCH_NO},
    {"secret:*", "sort", SORT("$8\r\nsecret:1"), MATCH_NO}, /* it names no key */
    /* Of which a part has come. */
    {"b", "sort_ro", "*3\r\n$7\r\nSORT_RO\r\n$1\r\na\r\n$90000\r\nvvv", MATCH_OPEN},
    {"a", "set", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$90000\r\nvvv", MATCH_YES},
    {"b", "set", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$90000\r\nvvv", MATCH_NO},
    {"b", "set", "*3\r\n$3\r\nSET\r\n$90000\r\na", MATCH_OPEN},
    {"b", "mset", "*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$90000\r\nvvv", MATCH_OPEN},
    {"a", "mset", "*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$90000\r\nvvv", MATCH_YES},
    {"b", "mget", "*4\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n$1", MATCH_YES},
    {"b", "ping", "*2\r\n$4\r\nPING\r\n$90000\r\naaa", MATCH_NO},
    {"a", "spublish", "*3\r\n$8\r\nSPUBLISH\r\n$1\r\na\r\n$90000\r\naaa", MATCH_NO},
};

Test(match_keys, of_requests)
{
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        char problem[CONF_PROBLEM_MAX] = "";
        struct match_keys *keys = match_keys_compile(requests[i].globs, problem);
        const struct policy_request request = request_of(requests[i].name, requests[i].frame);
        cr_expect_eq(match_keys_any(keys, &request), requests[i].answer, "%s: %s", requests[i].globs,
                     requests[i].frame);
        match_keys_free(keys);
    }
}

/* Whatever glob and pattern are: if a key that the pattern becomes is the glob's, it was foreseen. */
Test(match_keys, of_patterns_by_chance)
{
    static const char *const pieces[] = {"a", "b", "*", "?", "[ab]", "[^a]", "\\*", "\\a"};
    static const char letters[] = "ab*";
    unsigned seed = 17;
    int matched = 0;

    for (int round = 0; round < 200000; round++) {
        char glob[64] = "", prefix[4] = "", filling[4] = "", suffix[4] = "", key[16], problem[CONF_PROBLEM_MAX];
        char *const parts[] = {prefix, filling, suffix};
        for (int i = rand_r(&seed) % 5 + 1; i > 0; i--) {
            strcat(glob, pieces[(size_t)rand_r(&seed) % (sizeof pieces / sizeof pieces[0])]);
        }
        for (size_t part = 0; part < 3; part++) {
            size_t length = (size_t)rand_r(&seed) % 4;
            for (size_t i = 0; i < length; i++) {
                parts[part][i] = letters[(size_t)rand_r(&seed) % (sizeof letters - 1)];
            }
        }
        snprintf(key, sizeof key, "%s%s%s", prefix, filling, suffix);
        struct match_keys *keys = match_keys_compile(glob, problem);
        cr_assert_not_null(keys, "%s", glob);
        struct command_key_pattern pattern = {slice_of(prefix), slice_of(suffix)};
        bool matches = match_keys_is(keys, slice_of(key));
        cr_assert(!matches || match_keys_may_be(keys, &pattern), "%s: %s*%s: %s", glob, prefix, suffix, key);
        matched += matches;
        match_keys_free(keys);
    }
    cr_assert_gt(matched, 1000);
}

static bool key_matches(const char *globs, const char *key)
{
    char problem[CONF_PROBLEM_MAX] = "";
    struct match_keys *keys = match_keys_compile(globs, problem);

    cr_assert_not_null(keys, "%s: %s", globs, problem);
    bool is = match_keys_is(keys, slice_of(key));
    match_keys_free(keys);
    return is;
}

/* What people write and does not mean what they think is refused; commas stand between globs, or in classes. */
Test(match_keys, as_people_write_them)
{
    static const struct row rows[] = {
        {"secret:*, *:pin", "secret:a|a:pin", "a|"},
        {"secret:* ,\t*:pin", "secret:a|a:pin", "a|"},
        {"secret:* *:pin", "secret:a|a:pin", "a|"},
        {"a\\,b", "a,b", "a"},
        {"a[,;]b", "a,b", "b"},
        {"a[\\],]b, c", "a,b|c", "b"},
        {"{user}:*, \\{x", "{x", "user"},
        {"\\'a", "'a", "a"},
        {"a\\;b", "a;b", "a"},
        {"a*[;]*b", "a;b", "a"},
        {"[-a]", "-", "b"},
        {"[^-a]", "b", "-"},
        {"[a-c-]", "-|b", "d"},
        {"[\\a-]", "-", "b"},
        {"[a\\-z]", "-", "b"},
        {"[a-z]-[0-9]", "k-7", "k7"},
    };
    static const char *const refused[] = {"secret:*,", ", secret:*", "a,,b",   ",",    "'secret:*'", "a 'b c'",
                                          "\"a",       "{a,b}:*",    "a{b,c}", "a[]b", "a*;*b",      "a;b",
                                          "a*|*b",     "x|a?|[bc]d", "[a\\]",  "a [b", "a\\"};

    EXPECT_ROWS(rows, key_matches);
    cr_assert(key_matches("user|*|cart", "user|7|cart") && key_matches("a*\\|*b", "a|b"));
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char problem[CONF_PROBLEM_MAX] = "";
        cr_assert_null(match_keys_compile(refused[i], problem), "%s", refused[i]);
        cr_assert_str_not_empty(problem);
    }
}

/* Only what means the same here and to Redis is taken. */
Test(match_keys, that_redis_reads_otherwise)
{
    static const char *const refused[] = {"[a-]*", "[a-]x]", "[--]", "[^a-]", "[\\a-z]", "[a-\\z]", "x[0-9a-]"};
    char problem[CONF_PROBLEM_MAX];

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        cr_assert_null(match_keys_compile(refused[i], problem), "%s", refused[i]);
        cr_assert(strstr(problem, "put \"-\" first") != NULL, "%s: %s", refused[i], problem);
    }
}

/* ---- commands and keys together ---- */

static void assert_at_fault(const char *commands, const char *keys, const char *option, const char *expected)
{
    char problem[CONF_PROBLEM_MAX] = "";
    struct match_requests requests;
    const char *instead = "";
    const char *at_fault = match_requests_compile(&requests, commands, keys, problem, &instead);

    match_requests_clear(&requests);
    cr_assert_not_null(at_fault, "%s with %s", commands, keys);
    cr_assert_str_eq(at_fault, option);
    cr_assert_str_eq(instead, expected);
    cr_assert_str_not_empty(problem);
}

Test(match_requests, that_can_be_none)
{
    assert_at_fault("nonsense", "a*", "commands", MATCH_COMMANDS_EXPECTED);
    assert_at_fault("get", "[a", "keys", MATCH_KEYS_EXPECTED);
    assert_at_fault("ping", "a*", "keys", "commands with keys beside it, or no keys");
}

/* ---- bytes ---- */

static bool knows_all(const char *frame, uint64_t bytes)
{
    const struct policy_request request = request_of("rpush", frame);
    uint64_t found;
    bool is_all = match_request_bytes(&request, &found);

    cr_assert_eq(found, bytes, "%s: %llu", frame, (unsigned long long)found);
    return is_all;
}

Test(match_request, bytes)
{
    cr_assert(knows_all("*2\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n", 22));
    cr_assert_not(knows_all("*3\r\n$5\r\nRPUSH\r\n$90", 18), "its length has not come as a whole");
    cr_assert_not(knows_all("*3\r\n$5\r\nRPUSH\r\n$90\r\nl", 20 + 90 + 2));
    cr_assert_not(knows_all("*3\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n", 22));
    cr_assert_not(knows_all("*3\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$90000", 28));
    cr_assert(knows_all("*3\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$90000\r\n", 30 + 90000 + 2));
    cr_assert(knows_all("*3\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$90000\r\nvvv", 30 + 90000 + 2));
}

/* ---- clients ---- */

static bool client_matches(const char *text, const char *address, const char *user, const char *name)
{
    char problem[CONF_PROBLEM_MAX] = "";
    struct match_clients *clients = match_clients_compile(text, problem);
    struct sockaddr_storage from = address_of(address);

    cr_assert_not_null(clients, "%s: %s", text, problem);
    const struct policy_client client = {.address = &from, .user = user, .name = name};
    bool is = match_clients_is(clients, &client);
    match_clients_free(clients);
    return is;
}

static bool address_matches(const char *text, const char *address)
{
    return client_matches(text, address, "", "");
}

/* tests/unit/base/test_subnet.c has more of networks. */
Test(match_clients, by_address)
{
    static const struct row rows[] = {
        {"ip:10.0.0.0/8", "10.250.3.4|::ffff:10.2.3.4", "11.0.0.1"},
        {"ip:10.1.2.3", "10.1.2.3", "10.1.2.4"},
        {"ip:0.0.0.0/0", "1.2.3.4", "2001:db8::1"},
        {"ip:2001:db8::/33", "2001:db8:1::5", "2001:db8:8000::5"},
        {"ip:::/0", "::1", "a Unix socket"},
    };

    EXPECT_ROWS(rows, address_matches);
}

Test(match_clients, that_are_none)
{
    static const char *const cases[] = {"10.0.0.1",       "ip:",        "ip:10.0.0.0/33", "ip:10.0.0/8", "ip:10.0.0.0/",
                                        "ip:10.0.0.0/x",  "ip:::1/129", "user:",          "host:a",      "user:[a",
                                        "user:a,,user:b", "user:'a'",   "name:a,"};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char problem[CONF_PROBLEM_MAX] = "";
        cr_assert_null(match_clients_compile(cases[i], problem), "%s", cases[i]);
        cr_assert_neq(problem[0], '\0');
    }
}
