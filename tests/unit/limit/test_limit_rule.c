/*
 * [limit:NAME] rules: what is faulty about one, who is the same bucket for it, and when a reload may keep what it
 * remembers.
 */
#include "../../support/address.h"
#include "../conf/conf_fixture.h"
#include "limit/limit_name.h"
#include "limit/limit_rule.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct conf_section *const sections[] = {&limit_section, NULL};

/* The heading is "[limit:a]" unless the text brings one. */
static struct limit_rule *rule_of(const char *options)
{
    struct limit_rule *rule = conf_alloc(NULL, sizeof *rule);
    char *text = conf_format("%s%s", *options == '[' ? "" : "[limit:a]\n", options);
    struct conf *conf = load_conf(text, sections);

    limit_rule_make(rule, conf->rules);
    conf_free(conf);
    free(text);
    return rule;
}

static void rule_free(struct limit_rule *rule)
{
    limit_rule_clear(rule);
    free(rule);
}

#define WINDOW "limit = 5\nwindow = 90s\n"
#define FUNNEL "algorithm = funnel\ncapacity = 20\nleak = 5/s\n"

/* ---- faults ---- */

#define UNSET "is not set; expected "
#define OF_FUNNEL "is of the funnel; expected limit and window, or algorithm = funnel"
#define OF_WINDOW "is of the sliding window; expected capacity and leak"
#define NO_DELAY "has no meaning without action = delay; expected action = delay"
#define NO_KEYS "none of the commands has keys; expected commands with keys beside it"
#define NO_WORD "is not one of the known words; expected "

/* Below "[limit:a]": the line and the option at fault, and how what is said of it begins. */
static const char *const faults_of[][2] = {
    {"window = 1s\n", "1: [limit:a] limit = 0: " UNSET "how much is admitted in any window"},
    {"limit = 0\nwindow = 1s\n", "2: [limit:a] limit = 0: " UNSET "how much is admitted in any window"},
    {"limit = 1\n", "1: [limit:a] window = 0: " UNSET "a time such as 60s"},
    {"limit = 1\nwindow = 0s\n", "3: [limit:a] window = 0: " UNSET "a time such as 60s"},
    {"algorithm = funnel\nleak = 3/s\n", "1: [limit:a] capacity = 0: " UNSET "how much is admitted at once"},
    {"algorithm = funnel\ncapacity = 3\n", "1: [limit:a] leak = 0: " UNSET "a rate such as 5/s"},
    {WINDOW "action = delay\n", "1: [limit:a] max_delay = 0: " UNSET "how long a request may be delayed"},
    {WINDOW "capacity = 3\n", "4: [limit:a] capacity = 3: " OF_FUNNEL},
    {WINDOW "leak = 3/s\n", "4: [limit:a] leak = 3/s: " OF_FUNNEL},
    {FUNNEL "limit = 3\n", "5: [limit:a] limit = 3: " OF_WINDOW},
    {FUNNEL "window = 3s\n", "5: [limit:a] window = 3s: " OF_WINDOW},
    {WINDOW "max_delay = 1s\n", "4: [limit:a] max_delay = 1s: " NO_DELAY},
    {WINDOW "action = observe\nmax_delay = 1s\n", "5: [limit:a] max_delay = 1s: " NO_DELAY},
    {WINDOW "accuracy = leased\n", "4: [limit:a] accuracy = leased: has no meaning without scope = global"},
    {"limit = -5\nwindow = 1s\n", "2: [limit:a] limit = -5: is not a whole number"},
    {"limit = 1000000000000001\nwindow = 1s\n", "2: [limit:a] limit = 1000000000000001: is too large"},
    {"limit = 5\nwindow = 5\n", "3: [limit:a] window = 5: has no unit"},
    {"limit = 5\nwindow = 367d\n", "3: [limit:a] window = 367d: is too large"},
    {"algorithm = funnel\ncapacity = 101\nleak = 1/365d\n",
     "4: [limit:a] leak = 1/365d: would take more than a hundred years to empty the funnel"},
    {WINDOW "algorithm = bucket\n", "4: [limit:a] algorithm = bucket: " NO_WORD "sliding-window or funnel"},
    {WINDOW "cost = 2\n", "4: [limit:a] cost = 2: " NO_WORD "1, keys or bytes"},
    {WINDOW "limits = 5\n", "4: [limit:a] limits = ********: unknown option"},
    {WINDOW "commands = gte\n", "4: [limit:a] commands = gte: \"gte\" is no command that Headgate knows"},
    {WINDOW "except = bob\n", "4: [limit:a] except = bob: \"bob\" is none of ip:ADDRESS"},
    {WINDOW "keys = a[\nper = key\n", "4: [limit:a] keys = a[: \"a[\" opens a class with \"[\" that it does not close"},
    {WINDOW "keys = {a}{b}\nper = key\n", "4: [limit:a] keys = {a}{b}: \"{a}{b}\" has more or other braces than one"},
    {WINDOW "keys = {a\nper = ip+key\n", "4: [limit:a] keys = {a: \"{a\" opens a brace that it does not close"},
    {WINDOW "commands = get !get\n", "4: [limit:a] commands = get !get: matches no command"},
    {WINDOW "commands = ping\nkeys = a\n", "5: [limit:a] keys = a: can never match: " NO_KEYS},
    {WINDOW "commands = ping\nper = user+key\n", "5: [limit:a] per = user+key: can never match: " NO_KEYS},
    {WINDOW "commands = ping\ncost = keys\n", "5: [limit:a] cost = keys: can never count: " NO_KEYS},
    {WINDOW "per = all+user\n", "4: [limit:a] per = all+user: joins all with something else"},
    {WINDOW "per = user+all\n", "4: [limit:a] per = user+all: joins all with something else"},
};

static void assert_fault(const char *options, const char *expected)
{
    char *text = conf_format("[limit:a]\n%s", options), *line = conf_format("h.ini:%s", expected);

    assert_conf_fault(text, sections, line);
    free(line);
    free(text);
}

Test(limit_rule, faults)
{
    for (size_t i = 0; i < sizeof faults_of / sizeof faults_of[0]; i++) {
        assert_fault(faults_of[i][0], faults_of[i][1]);
    }
}

Test(limit_rule, of_a_per_that_is_none)
{
    static const char words[] =
        "hosts,user+user,ip+ip,ip/24+ip,user+,+user,user++ip,user + ip,user ip,USER,ip/,ip/0,"
        "ip/33,ip/x,ip/24/129,ip/24/0,ip/24/,ip//64,ip/-1,ip/24/64/8,ip/4294967320,user/24,all+all";

    for (const char *at = words; *at != '\0'; at += strspn(at, ",")) {
        int length = (int)strcspn(at, ",");
        char *options = conf_format(WINDOW "per = %.*s\n", length, at);
        char *expected = conf_format("4: [limit:a] per = %.*s: \"", length, at);
        assert_fault(options, expected);
        free(expected);
        free(options);
        at += length;
    }
}

/* ---- names of buckets ---- */

struct name {
    size_t length;
    char text[LIMIT_BUCKET_MAX + 1]; /* terminated, for comparing */
};

struct who {
    const char *address, *user, *name;
    uint64_t id;
    struct policy_peer peer;
    struct slice key; /* without data: the rule does not count per key */
};

static struct name name_of(const struct limit_rule *rule, const struct who *who)
{
    struct sockaddr_storage from = address_of(who->address);
    const struct policy_client client = {
        .id = who->id, .address = &from, .address_text = "", .user = who->user, .name = who->name};
    /* Of its own, so that the sanitizer sees a byte too many. */
    char *text = conf_alloc(NULL, LIMIT_BUCKET_MAX);
    struct name name = {.length = limit_name_client(rule, &client, &who->peer, "web1", text)};

    cr_assert_leq(name.length, LIMIT_BUCKET_MAX);
    if (who->key.data != NULL) {
        name.length = limit_name_key(text, name.length, who->key);
        cr_assert_leq(name.length, LIMIT_BUCKET_MAX);
    }
    memcpy(name.text, text, name.length);
    free(text);
    return name;
}

static void assert_name(const char *per, struct who who, const char *expected)
{
    char *options = conf_format(WINDOW "per = %s\n", per);
    struct limit_rule *rule = rule_of(options);
    struct name name = name_of(rule, &who);

    cr_assert_str_eq(name.text, expected, "per %s: \"%s\", not \"%s\"", per, name.text, expected);
    cr_assert_eq(name.length, strlen(expected));
    rule_free(rule);
    free(options);
}

Test(limit_rule, counts_per_address_or_network)
{
    static const char *const cases[][3] = {
        {"ip", "10.1.2.3", "ip:10.1.2.3"},
        {"ip/32", "10.1.2.3", "ip:10.1.2.3"},
        {"ip/24", "10.1.2.255", "ip:10.1.2.0/24"},
        {"ip/1", "255.255.255.255", "ip:128.0.0.0/1"},
        {"ip/31", "10.1.2.3", "ip:10.1.2.2/31"},
        {"ip/23", "10.1.3.3", "ip:10.1.2.0/23"},
        {"ip/9", "10.255.3.3", "ip:10.128.0.0/9"},
        {"ip", "2001:db8::1", "ip:2001:db8::1"},
        {"ip/24", "2001:db8:1:2:3:4:5:6", "ip:2001:db8:1:2::/64"},
        {"ip/24/56", "2001:db8:1:2ff:3:4:5:6", "ip:2001:db8:1:200::/56"},
        {"ip/24/128", "2001:db8:1:2:3:4:5:6", "ip:2001:db8:1:2:3:4:5:6"},
        {"ip/24/127", "2001:db8:1:2:3:4:5:7", "ip:2001:db8:1:2:3:4:5:6/127"},
        {"ip/24/1", "ffff::1", "ip:8000::/1"},
        /* IPv4 on an IPv6 socket is the same client as on an IPv4 socket. */
        {"ip", "::ffff:10.1.2.3", "ip:10.1.2.3"},
        {"ip/24/56", "::ffff:10.1.2.3", "ip:10.1.2.0/24"},
        {"ip/24/56", "all of a Unix socket are one", "ip:unix"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_name(cases[i][0], (struct who){.address = cases[i][1], .user = "u", .name = "n", .id = 1}, cases[i][2]);
    }
}

Test(limit_rule, counts_per_user_name_connection_key_or_all_together)
{
    const struct who who = {
        .address = "10.1.2.3", .user = "alice", .name = "job-7", .id = 18446744073709551615U, .key = {NULL, 0}};
    struct who with_key = who, nobody = {.address = "10.1.2.3", .user = "", .name = "", .key = {"", 0}};

    with_key.key = (struct slice){"user:42", 7};
    assert_name("user", who, "user:alice");
    assert_name("name", who, "name:job-7");
    assert_name("connection", who, "connection:18446744073709551615");
    assert_name("all", who, "all");
    assert_name("key", with_key, "key:user:42");
    assert_name("user+key", with_key, "user:alice\nkey:user:42");
    assert_name("key+user", with_key, "user:alice\nkey:user:42");
    assert_name("ip/16+user+name+connection+key", with_key,
                "ip:10.1.0.0/16\nuser:alice\nname:job-7\nconnection:18446744073709551615\nkey:user:42");
    assert_name("host", who, "host:web1");
    assert_name("host+user", who, "host:web1\nuser:alice");
    assert_name("name", nobody, "name:\nkey:");
    assert_name("key", nobody, "key:");
}

/* Who cannot be told from others is known by what can be told; with scope = global, by the sidecar's name, too. */
Test(limit_rule, counts_per_process_and_uid)
{
    static const struct policy_peer process = {.has_uid = true, .uid = 1000, .pid = 4711, .started = 88};
    static const struct policy_peer hidden = {.has_uid = true, .uid = 1000}, stranger = {.has_uid = false};
    const struct who local = {.address = "127.0.0.1", .user = "u", .name = "n", .id = 1, .peer = process};
    struct who other = local, remote = local;

    assert_name("process", local, "process:4711/88");
    assert_name("process\nscope = global", local, "process:web1/4711/88");
    assert_name("uid", local, "uid:1000");
    assert_name("uid\nscope = global", local, "uid:1000");
    assert_name("uid+host\nscope = global", local, "uid:1000\nhost:web1");
    assert_name("process+uid+user", local, "process:4711/88\nuid:1000\nuser:u");
    other.peer.started++;
    assert_name("process", other, "process:4711/89");
    other.peer = hidden;
    assert_name("process", other, "process:uid/1000");
    assert_name("process\nscope = global", other, "process:web1/uid/1000");
    other.peer = stranger;
    assert_name("process", other, "process:untold/127.0.0.1");
    assert_name("process\nscope = global", other, "process:web1/untold/127.0.0.1");
    assert_name("uid\nscope = global", other, "uid:web1/untold/127.0.0.1");
    other.address = "a Unix socket";
    assert_name("process\nscope = global", other, "process:web1/untold/unix");
    other.address = "::1";
    assert_name("process\nscope = global", other, "process:web1/untold/::1");
    remote.peer = stranger;
    remote.address = "10.1.2.3";
    assert_name("process", remote, "process:10.1.2.3");
    assert_name("process\nscope = global", remote, "process:10.1.2.3");
    assert_name("uid", remote, "uid:10.1.2.3");
}

/* What users, names and keys hold must not make two of them one. */
Test(limit_rule, keeps_parts_apart)
{
    struct limit_rule *rule = rule_of(WINDOW "per = user+name+key\n");
    const struct who who[] = {
        {.address = "", .user = "a", .name = "b", .key = {"c", 1}},
        {.address = "", .user = "a", .name = "", .key = {"bc", 2}},
        {.address = "", .user = "a+name:b", .name = "", .key = {"c", 1}},
        {.address = "", .user = "a", .name = "b+key:c", .key = {"", 0}},
        {.address = "", .user = "a", .name = "b", .key = {"\nkey:c", 6}},
        {.address = "", .user = "a", .name = "b", .key = {"", 0}},
        {.address = "", .user = "a", .name = "b", .key = {"c\0", 2}},
        {.address = "", .user = "a", .name = "name:b", .key = {"c", 1}},
        {.address = "", .user = "", .name = "a", .key = {"c", 1}},
    };
    enum { COUNT = sizeof who / sizeof who[0] };
    struct name names[COUNT];

    for (size_t i = 0; i < COUNT; i++) {
        names[i] = name_of(rule, &who[i]);
        for (size_t j = 0; j < i; j++) {
            cr_assert(names[i].length != names[j].length || memcmp(names[i].text, names[j].text, names[i].length) != 0,
                      "%zu and %zu: %s", i, j, names[i].text);
        }
    }
    rule_free(rule);
}

/* Of that length, but for its last character the same each time; good until the call after the next. */
static const char *long_text(size_t length, char last)
{
    static char text[2][100001];
    static int turn;

    turn = !turn;
    memset(text[turn], 'k', length);
    text[turn][length - 1] = last;
    text[turn][length] = '\0';
    return text[turn];
}

/* All Headgates that count together must agree on it: the digest is two SipHashes of keys that never change. */
Test(limit_rule, cuts_long_keys_as_others_do)
{
    struct limit_rule *rule = rule_of(WINDOW "per = key\n");
    const struct who fits = {.address = "", .user = "", .name = "", .key = {long_text(507, 'x'), 507}};
    const struct who cut = {.address = "", .user = "", .name = "", .key = {long_text(600, 'k'), 600}};
    struct name name = name_of(rule, &fits);

    cr_assert(name.length == 511 && memcmp(name.text + 4, fits.key.data, 507) == 0);
    name = name_of(rule, &cut);
    cr_assert_eq(name.length, LIMIT_BUCKET_MAX);
    cr_assert_str_eq(name.text + LIMIT_BUCKET_MAX - 33, "#2bafecc7e8d7b31dcbf7b224eacc0265");
    rule_free(rule);
}

/* Of parts of any length: nothing is longer than it may be, and the last byte of each part still tells. */
Test(limit_rule, has_names_of_bounded_length)
{
    struct limit_rule *rule = rule_of(WINDOW "per = ip/24/127+user+name+connection+key\n");
    static const size_t lengths[] = {1, 57, 58, 59, 60, 61, 100, 300, 399, 507, 600, 100000};

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const char *text = long_text(lengths[i], 'x'), *other = long_text(lengths[i], 'y');
        for (int part = 0; part < 4; part++) {
            const struct who one = {.address = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                                    .user = text,
                                    .name = text,
                                    .id = UINT64_MAX,
                                    .key = {text, lengths[i]}};
            struct who changed = one;
            changed.user = part == 0 ? other : text;
            changed.name = part == 1 ? other : text;
            changed.id -= part == 2;
            changed.key.data = part == 3 ? other : text;
            struct name name = name_of(rule, &one), name_then = name_of(rule, &changed);
            cr_assert(name.length != name_then.length || memcmp(name.text, name_then.text, name.length) != 0, "%s",
                      name.text);
        }
    }
    rule_free(rule);
}

/* ---- identity ---- */

/* A reload keeps what is counted where the two are alike in what they count. */
Test(limit_rule, keeps_its_state_if_it_counts_the_same)
{
    static const struct {
        const char *options, *others;
        bool same;
    } cases[] = {
        {WINDOW, "limit = 5\nwindow = 90000ms\n", true},
        {FUNNEL, "algorithm = funnel\ncapacity = 20\nleak = 5/1000ms\n", true},
        {WINDOW, WINDOW "commands = @write !del\n", true},
        {WINDOW, WINDOW "except = user:batch\n", true},
        {WINDOW, WINDOW "action = observe\n", true},
        {WINDOW, WINDOW "action = delay\nmax_delay = 1s\n", true},
        {WINDOW, WINDOW "max_clients_tracked = 7\n", true},
        {WINDOW, WINDOW "on_error = deny\ndecision_timeout = 5ms\n", true},
        {WINDOW, "[headgate]\nthreads = 1\n[limit:a]\n" WINDOW, true},
        {WINDOW, "[limit:b]\n" WINDOW, false},
        {WINDOW, "limit = 6\nwindow = 90s\n", false},
        {WINDOW, "limit = 5\nwindow = 91s\n", false},
        {WINDOW, WINDOW "per = user\n", false},
        {WINDOW, WINDOW "per = ip/24\n", false},
        {WINDOW "per = ip/24", WINDOW "per = ip/24/56\n", false},
        {WINDOW, WINDOW "per = ip+user\n", false},
        {WINDOW, WINDOW "scope = global\n", false},
        {WINDOW, WINDOW "cost = bytes\n", false},
        {WINDOW, WINDOW "cost = keys\n", false},
        {WINDOW, FUNNEL, false},
        {FUNNEL, "algorithm = funnel\ncapacity = 21\nleak = 5/s\n", false},
        {FUNNEL, "algorithm = funnel\ncapacity = 20\nleak = 6/s\n", false},
        {FUNNEL, "algorithm = funnel\ncapacity = 20\nleak = 5/2s\n", false},
        {FUNNEL, "algorithm = funnel\ncapacity = 20\nleak = 10/2s\n", false},
        {WINDOW "per = key\nkeys = {*}:*\n", WINDOW "per = key\nkeys = *:{*}\n", false},
        {WINDOW "per = key\nkeys = {*}:*\n", WINDOW "per = key\n", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct limit_rule *rule = rule_of(cases[i].options), *other = rule_of(cases[i].others);
        cr_assert_eq(strcmp(rule->identity, other->identity) == 0, cases[i].same, "%s and %s", cases[i].options,
                     cases[i].others);
        rule_free(rule);
        rule_free(other);
    }
}
