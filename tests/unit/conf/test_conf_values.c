/* The values of options: numbers, words, strings, addresses and URLs; what is refused, and that no secret is shown. */
#include "base/log.h"
#include "conf_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What whoever listens with TLS needs. */
#define CERTIFICATE "tls_certificate = " HEADGATE_SOURCE_DIR "/tests/unit/conf/certificate.pem\n"

/* ---- what is refused ---- */

/* Each of the values, which stand between bars. */
static void each_of(const char *values, void (*judge)(const char *value, const void *context), const void *context)
{
    char *copy = strdup(values), *rest = copy;

    for (char *value = strsep(&rest, "|"); value != NULL; value = strsep(&rest, "|")) {
        judge(value, context);
    }
    free(copy);
}

struct refusal {
    const char *option, *problem, *values;
};

static const struct refusal refusals[] = {
    {"threads", "is too small; expected a number from 1 to 64", "0"},
    {"threads", "is too large; expected a number from 1 to 64", "65|18446744073709551617"},
    {"threads", "is not a whole number", "-1|2;two"},
    {"threads", "is empty", ""},
    {"exclusive_idle", "from 1 to 10000, or 0 (none)", "10001"},
    {"max_request", "is too small; expected a size from 1kb to 4gb, in bytes or with kb, mb or gb", "0"},
    {"max_request", "is too large", "9223372036854775807gb|9223372036854775807.5gb"},
    {"max_request", "has no such unit as \"k b\"", "64 k b"},
    {"max_request", "has no such unit as \",5mb\"", "2,5mb"},
    {"max_request", "has more digits behind the point than count", "1.0001kb"},
    {"max_request", "is not a whole number", "2000.5|2000.0|.5mb"},
    {"max_request", "is not a number", "2.kb|2.0000000001mb|2..5mb"},
    {"client_output_limit", "from 64kb to 1024gb, or 0 (no limit)", "63kb"},
    {"client_idle_timeout", "has no unit; expected a time from 1ms to 365d, or 0 (never)", "30"},
    {"client_idle_timeout", "has no such unit as \"h30m\"", "1h30m"},
    {"client_idle_timeout", "has no such unit as \"week\"", "1 week"},
    {"client_idle_timeout", "has the unit \"M\", which is a month to some: m or min is a minute", "1M|1 M"},
    {"client_idle_timeout", "has more digits behind the point than count", "1.0005s"},
    {"connect_timeout", "is too small", "0"},
    {"unix_socket_mode", "is not an octal number; expected an octal mode from 0000 to 0777", "0788"},
    {"unix_socket_mode", "is too large", "1777"},
    {"pool", "is not one of the known words; expected shared or session", "sessions"},
    {"reload_on_change", "is neither on nor off; expected on or off (or yes, no, true, false, 1, 0)", "enabled"},
    {"log_file", "holds a ';' or '#' that could be a comment", "a ;b|a\t#b|#a"},
    {"log_file", "starts with a double quote but does not end with one", "\"a|\"a\"b|\"a\\\""},
    {"log_file", "names the variable HG_NOT_SET, which is not set", "${HG_NOT_SET}"},
    {"upstream_password", "has a ${ without the name of a variable", "a${|${}|${1A}|${A B}|${A-b}|${:-b}"},
    {"upstream", "has a control character in the variable HG_LINES", "${HG_LINES}"},
    {"upstream_password", "is what a hidden secret is shown as", "********"},
    {"upstream", "is empty; expected host:port, [IPv6]:port, unix:/path or a URL such as rediss://host", ""},
    {"upstream", "has no port", "localhost|[::1]|[::1]6379"},
    {"upstream", "is not a number", "localhost:|localhost:6379x|localhost:-1|redis://h:|sentinel://a:x/m"},
    {"upstream", "is not from 1 to 65535",
     "localhost:0|localhost:65536|localhost:99999999999999999999|[::1]:0|redis://h:0|sentinel://a:0/m"},
    {"upstream", "is neither a host name nor an IPv4 address",
     ":6379|*:6379|256.0.0.1:6379|10.1:6379|a..b:6379|-a:6379"},
    {"upstream", "holds an IPv6 address without brackets", "::1:6379|redis://h:1:2|sentinel://fe80::1/m"},
    {"upstream", "holds no IPv6 address in brackets", "[::1:6379|[127.0.0.1]:6379|[]:6379|[::1%]:6379|redis://[::1"},
    {"upstream", "holds a blank", "a:1, b:2|sentinel://a, b/m"},
    {"upstream", "is not an absolute path", "unix:|unix:/|unix:run/redis.sock"},
    {"upstream", "is not one of the schemes", "http://h:1|rediss+tls://h|://h"},
    {"upstream", "has no host", "redis://|redis://:6379|rediss:///run/r.sock"},
    {"upstream", "has a path that is not the number of a database",
     "redis://h/x|redis://h/1/|redis://h//1|redis://h/-1|redis://h/99999999999999999999"},
    {"upstream", "has a query or fragment", "redis://h?db=1|redis://h/1?db=1|redis://h#x|unix:///r.sock?db=1"},
    {"upstream", "names a database, but clients begin in database 0 and choose theirs by SELECT", "redis://h/2"},
    {"upstream", "has neither user nor password before its @", "redis://@h|redis://:@h|sentinel://@a/m"},
    {"upstream", "has a user without a password", "redis://secret@h|redis://secret:@h"},
    {"upstream", "has more than one @", "redis://a:b@c@h|sentinel://u:p@a@b/m"},
    {"upstream", "has a % in its user or password", "redis://a:%4@h|redis://a:%00@h|redis://%zz:b@h"},
    {"upstream", "has a path before its @", "redis://a:b/c@h|sentinel://u:p/w@a/m"},
    {"upstream", "holds what a hidden secret is shown as, not the secret", "redis://a:********@h"},
    {"upstream", "has an @, as only redis://user:password@host may", "a:b@h:6379"},
    {"upstream", "has a user", "unix://a:b@/r.sock"},
    {"upstream", "has no host between its commas",
     "sentinel://|sentinel:///m|sentinel://a,/m|sentinel://,a/m|sentinel://a,:7/m|clusters://"},
    {"upstream", "has no name of a master", "sentinel://a,b|sentinel://a,b/|sentinel://a?x/m"},
    {"upstream", "has more behind the master's name", "sentinel://a,b/m/0|sentinel://a,b/m?x=1"},
    {"upstream", "has a % in the master's name", "sentinel://a/%zz"},
    {"upstream", "names A:26379 twice", "sentinel://a,A:26379/m"},
    {"upstream", "names more than 16 hosts", "sentinel://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q/m"},
    {"upstream", "has something behind its hosts", "cluster://a/1|cluster://a/x|cluster://a?x"},
    {"listen", "is empty; expected 1 to 16 addresses", "|; a:1"},
    {"listen", "has no address beside a comma", "a:1,|, a:1|a:1,,b:2"},
    {"listen", "twice", "a:1, b:2, A:1|[::1]:5, [0::1]:5|unix:/x, unix:/x|a:1, rediss://a:1"},
    {"listen", "holds more than 16 addresses",
     "h:1,h:2,h:3,h:4,h:5,h:6,h:7,h:8,h:9,h:10,h:11,h:12,h:13,h:14,h:15,h:16,h:17"},
    {"listen", "listen = rediss://********@a:1: has a user or a password", "rediss://:pw@a:1"},
    {"listen", "has a user or a password", "rediss://app@a:1"},
    {"listen", "names a database", "rediss://a:1/3"},
    {"listen", "names sentinels or a cluster, as only upstream of [headgate] may", "cluster://a:7000|sentinel://a/m"},
};

static void expect_refusal(const char *value, const void *context)
{
    const struct refusal *refusal = context;

    assert_refused(refusal->option, value, refusal->problem);
}

Test(conf, what_is_refused)
{
    setenv("HG_LINES", "one\ntwo", 1);
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        each_of(refusals[i].values, expect_refusal, &refusals[i]);
    }
}

static void assert_longest(const char *option, const char *before, char letter, size_t most, const char *problem)
{
    char *value = calloc(1, strlen(before) + most + 8);

    sprintf(value, "%s", before);
    memset(value + strlen(before), letter, most);
    strcat(value, *before == '\0' && letter == 'h' ? ":1" : "");
    struct conf_file file;
    char *text = conf_format("[headgate]\n%s = %s\n", option, value);
    assert_loads(&file, text);
    drop_file(&file);
    free(text);
    memmove(value + strlen(before) + 1, value + strlen(before), strlen(value) - strlen(before) + 1);
    assert_refused(option, value, problem);
    free(value);
}

Test(conf, what_is_too_long)
{
    assert_longest("log_file", "", 'a', 1024, "has 1025 bytes; expected text of up to 1024 bytes");
    assert_longest("upstream", "unix:/", 'p', 106, "the path of the Unix socket has 108 bytes, more than 107");
    assert_longest("upstream", "", 'h', 253, "is neither a host name nor an IPv4 address");
}

/* ---- what is taken ---- */

struct number {
    const char *option;
    int64_t number;
    const char *values;
};

static const struct number numbers[] = {
    {"threads", 8, "8|008|8 ; eight|8\t# eight"},
    {"max_clients", 1000000, "1000000"},
    {"exclusive_idle", 0, "0"},
    {"max_request", 65536, "64kb|64 kb|64\tKiB|65536|65536 b"},
    {"max_request", 10 << 20, "10MB|10 MB ; ten|10MiB"},
    {"max_request", 3 << 19, "1.5mb"},
    {"max_request", INT64_C(4) << 30, "4gB|4 GIB"},
    {"max_request", 64000, "64k"}, /* as redis.conf has them */
    {"max_request", 1250000000, "1.25g"},
    {"client_output_limit", 0, "0"},
    {"client_idle_timeout", 60000,
     "1m|1 m|1 Min|1MINS|1 minute|1\tMinutes|60S|60 sec|60 secs|60 Seconds|60000 MS|60000msec|60000 milliseconds"},
    {"client_idle_timeout", 1500, "1500ms|1.5s"},
    {"client_idle_timeout", 900000, "0.25 h|15m"},
    {"client_idle_timeout", 3600000, "1 hr|1 Hours"},
    {"client_idle_timeout", INT64_C(365) * 86400000, "365d|365 days|365 D"},
    {"client_idle_timeout", 0, "0"},
    {"unix_socket_mode", 0770, "0770|770"},
    {"unix_socket_mode", 0, "0"},
};

static void expect_number(const char *value, const void *context)
{
    const struct number *number = context;

    cr_expect_eq(load_number(number->option, value), number->number, "%s = %s", number->option, value);
}

Test(conf, numbers)
{
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        each_of(numbers[i].values, expect_number, &numbers[i]);
    }
}

Test(conf, words)
{
    static const char *const toggles[] = {"off", "on", "no", "yes", "false", "true", "0", "1", "OFF", "Yes"};
    struct conf_file file;

    assert_loads(&file, "[headgate]\npool = SESSION\nlog_level = Error\n");
    cr_assert_eq(file.conf->pool, CONF_POOL_SESSION);
    cr_assert_eq(file.conf->log_level, LOG_LEVEL_ERROR);
    drop_file(&file);
    for (size_t i = 0; i < COUNT_OF(toggles); i++) {
        char *text = conf_format("[headgate]\nreload_on_change = %s ; a comment\n", toggles[i]);
        assert_loads(&file, text);
        cr_expect_eq(file.conf->reload_on_change, i % 2, "%s", text);
        drop_file(&file);
        free(text);
    }
}

/* Variables of the environment are taken as they are, and are not read again when it is printed. */
Test(conf, strings)
{
    const char *const pairs[][2] = {
        {"/var/log/a b.log", "/var/log/a b.log"},
        {"", ""},
        {"\"\"", ""},
        {"a;b#c", "a;b#c"},
        {"\" a ;b #c \"", " a ;b #c "},
        {"\"a\" # a comment", "a"},
        {"\"say \\\"hi\\\" \\\\ \\n\"", "say \"hi\" \\ \\n"},
        {"a\"b\\", "a\"b\\"},
        {"k=v:w", "k=v:w"},
        {"\xc3\xa4\xff", "\xc3\xa4\xff"},
        {"\"********\"", "********"},
        {"a${HG_PLAIN}b${HG_PLAIN}", "aplainbplain"},
        {"\"${HG_ODD}\"", "a \"b\\ ;#${HG_PLAIN}"},
        {"${HG_ODD}", "a \"b\\ ;#${HG_PLAIN}"},
        {"${HG_NONE:-else}", "else"},
        {"${HG_EMPTY:-else}", "else"},
        {"${HG_NONE:-}x", "x"},
        {"${HG_PLAIN:-else}", "plain"},
        {"pa$$word$", "pa$$word$"},
        {"$HG_PLAIN", "$HG_PLAIN"},
        {"$${HG_PLAIN}", "${HG_PLAIN}"},
        {"$$${HG_PLAIN}", "$${HG_PLAIN}"},
        {"{HG_PLAIN}", "{HG_PLAIN}"},
    };
    setenv("HG_PLAIN", "plain", 1);
    setenv("HG_ODD", "a \"b\\ ;#${HG_PLAIN}", 1);
    setenv("HG_EMPTY", "", 1);
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        struct conf_file file, again;
        char *text = conf_format("[headgate]\nupstream_password = %s\n", pairs[i][0]);
        assert_loads(&file, text);
        cr_assert_str_eq(file.conf->upstream_password, pairs[i][1], "%s: %s", text, file.conf->upstream_password);
        char *printed = print_conf(file.conf, true), *hidden = print_conf(file.conf, false);
        assert_loads(&again, printed);
        cr_assert_str_eq(again.conf->upstream_password, pairs[i][1], "%s", printed);
        struct conf *merged = merge_conf(again.conf, file.conf, NULL);
        cr_assert_str_eq(merged->upstream_password, pairs[i][1]);
        cr_assert_eq(strstr(hidden, "upstream_password = ********\n") != NULL, *pairs[i][1] != '\0');
        conf_free(merged);
        free(hidden);
        free(printed);
        free(text);
        drop_file(&file);
        drop_file(&again);
    }
}

/* ---- addresses ---- */

/* "host port user:password", "sentinels master user:password host:port …" and the like. */
static char *described(const struct conf *conf)
{
    static const char *const kinds[] = {
        [CONF_TOPOLOGY_SINGLE] = "", [CONF_TOPOLOGY_SENTINEL] = "sentinel", [CONF_TOPOLOGY_CLUSTER] = "cluster"};
    const struct conf_address *to = &conf->upstream;
    const char *path = to->path != NULL ? to->path : to->master, *host = to->host != NULL ? to->host : path;
    char *text = conf_format("%s%s %s %u %s:%s", kinds[to->topology], to->tls ? "s" : "", host != NULL ? host : "",
                             to->port, conf->upstream_user, conf->upstream_password);

    for (size_t i = 0; i < to->seed_count; i++) {
        char *longer = conf_format("%s %s=%s:%u", text, to->seeds[i].text, to->seeds[i].host, to->seeds[i].port);
        free(text);
        text = longer;
    }
    cr_assert(to->user == NULL && to->password == NULL && to->database == -1);
    return text;
}

static const char *const addresses[][2] = {
    {"10.0.0.1:1", " 10.0.0.1 1 :"},
    {"redis-1.example_net:65535", " redis-1.example_net 65535 :"},
    {"[0:0::0001]:7", " ::1 7 :"},
    {"[fe80::1%eth0]:7", " fe80::1%eth0 7 :"},
    {"[::ffff:1.2.3.4]:7", " ::ffff:1.2.3.4 7 :"},
    {"unix:/run/redis.sock", " /run/redis.sock 0 :"},
    {"unix:///run/r.sock", " /run/r.sock 0 :"},
    {"unix:/run/r@1?.sock", " /run/r@1?.sock 0 :"},
    {"unix://run/r.sock", " //run/r.sock 0 :"},
    {"redis://h", " h 6379 :"},
    {"redis://h:7000/", " h 7000 :"},
    {"redis://h/0", " h 6379 :"},
    {"REDISS://h.example:1", "s h.example 1 :"},
    {"valkey://h", " h 6379 :"},
    {"valkeys://app:pw@h:7/0", "s h 7 app:pw"},
    {"redis://[::1]", " ::1 6379 :"},
    {"rediss://[0::1]:7", "s ::1 7 :"},
    {"redis://:pw@h", " h 6379 :pw"},
    {"redis://default:pw@[::1]:7", " ::1 7 default:pw"},
    {"redis://a%40b:%70%C3%a4%25%2f%3A@h", " h 6379 a@b:p\xc3\xa4%/:"},
    {"redis://app:a:b+c;d!@h", " h 6379 app:a:b+c;d!"},
    {"redis://app:%20x%22@h", " h 6379 app: x\""},
    {"redis://app@h\nupstream_password = pw", " h 6379 app:pw"},
    {"redis://app:pw@h\nupstream_user = app\nupstream_password = pw", " h 6379 app:pw"},
    {"redis://:pw@h\nupstream_user = app\nupstream_password =", " h 6379 app:pw"},
    {"${HG_HOST:-h}:${HG_PORT:-7} # ${HG_NOT_SET}", " h 7 :"},
    {"sentinel://a,b.example:7,[0::1]/my.M-1_x", "sentinel my.M-1_x 0 : a:26379=a:26379 b.example:7=b.example:7 "
                                                 "[::1]:26379=::1:26379"},
    {"SENTINELS://app:p%40%2F@a/m%20x", "sentinels m x 0 app:p@/ a:26379=a:26379"},
    {"cluster://a:7000,b/", "cluster  0 : a:7000=a:7000 b:6379=b:6379"},
    {"clusters://:pw@[::1]:7000/0", "clusters  0 :pw [::1]:7000=::1:7000"},
};

/* What is printed without secrets has none, and with them makes the same again. */
Test(conf, what_addresses_mean)
{
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
        struct conf_file file, again;
        char *text = conf_format("[headgate]\nupstream = %s\n", addresses[i][0]);
        assert_loads(&file, text);
        char *means = described(file.conf), *hidden = print_conf(file.conf, false);
        char *printed = print_conf(file.conf, true);
        cr_expect_str_eq(means, addresses[i][1], "%s: %s", text, means);
        assert_loads(&again, printed);
        char *means_again = described(again.conf);
        cr_expect_str_eq(means_again, means);
        cr_expect(*file.conf->upstream_password == '\0' || strstr(hidden, "\nupstream_password = ********\n") != NULL);
        cr_expect(file.conf->upstream.path != NULL || strchr(file.conf->upstream.text, '@') == NULL);
        free(means_again);
        free(printed);
        free(hidden);
        free(means);
        free(text);
        drop_file(&again);
        drop_file(&file);
    }
}

Test(conf, lists_of_addresses)
{
    struct conf_file file;

    assert_loads(&file,
                 "[headgate]\nlisten = a:1,rediss://b:2 , redis://c, unix:/d\td:4 ; a comment\nadmin =\n" CERTIFICATE);
    cr_assert_eq(file.conf->listen.count, 5);
    cr_assert_not(file.conf->listen.items[0].tls);
    cr_assert(file.conf->listen.items[1].tls);
    cr_assert_str_eq(file.conf->listen.items[1].host, "b");
    cr_assert_eq(file.conf->listen.items[2].port, 6379);
    cr_assert_str_eq(file.conf->listen.items[3].path, "/d");
    cr_assert_eq(file.conf->listen.items[4].port, 4);
    cr_assert_eq(file.conf->admin.count, 0);
    drop_file(&file);
}

Test(conf, which_addresses_are_the_same)
{
    static const struct conf_option option = {.name = "upstream", .type = CONF_ADDRESS, .takes_topology = true};
    static const struct {
        const char *one, *other;
        bool same;
    } cases[] = {
        {"sentinel://a,b/m", "sentinel://b:26379,a/m", true},
        {"sentinel://a,b/m", "sentinel://a,b/n", false},
        {"sentinel://a,b/m", "sentinel://a/m", false},
        {"sentinel://a/m", "cluster://a:26379", false},
        {"cluster://a", "cluster://A", true},
        {"cluster://a", "redis://a", false},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct conf_address one = {.database = -1}, other = {.database = -1};
        char problem[CONF_PROBLEM_MAX] = "";
        cr_assert(conf_value_set(&option, &one, cases[i].one, problem), "%s", problem);
        cr_assert(conf_value_set(&option, &other, cases[i].other, problem), "%s", problem);
        cr_expect_eq(conf_address_equal(&one, &other), cases[i].same, "%s %s", cases[i].one, cases[i].other);
        conf_value_free(&option, &one);
        conf_value_free(&option, &other);
    }
}

/* ---- secrets ---- */

/* However it is misspelt, no fault has the secret. */
static void expect_secrecy(const char *lines, const void *context)
{
    struct conf_file file;
    char *text = conf_format("[headgate]\n%s\n", lines);

    (void)context;
    load_file(&file, text);
    cr_assert_gt(file.faults.count, 0, "%s", lines);
    for (size_t i = 0; i < file.faults.count; i++) {
        cr_assert_null(strstr(file.faults.lines[i], "SECRET"), "%s", file.faults.lines[i]);
    }
    drop_file(&file);
    free(text);
}

Test(conf, secrets_are_never_shown)
{
    each_of("upstream_password = SECRET ;x|upstream_password = \"SECRET|admin_password = x\nadmin_password = SECRET|"
            "upstream_pasword = SECRET|redis_auth = SECRET|upstream_password SECRET|upstream_password = a\n SECRET|"
            "upstream_password = SECRET\x01|SECRET|upstream = redis://app:SECRET@|upstream = redis://app:SECRET@h:x|"
            "upstream = redis://app:SECRET@h/x|upstream = redis://app:a/SECRET@h|upstream = redis://app:a?SECRET@h|"
            "upstream = redis://app:a@SECRET@h|upstream = redis://app:SECRET%@h|upstream = redis://SECRET@h|"
            "upstream = redis://h?password=SECRET|upstream = unix:///r.sock?password=SECRET|"
            "upstream = unix://app:SECRET@/r.sock|upstream = http://app:SECRET@h|upstream = app:SECRET@h:6379|"
            "upstream = redis:/app:SECRET@h|upstream = redis://app:SECRET @h|listen = a:1, redis://app:SECRET@h:1, b:2|"
            "listen = a:1 app:SECRET@h:1|upsteam = redis://app:SECRET@h|"
            "upstream = redis://app:SECRET@h\nupstream = redis://app:SECRET@h|"
            "upstream = redis://app:SECRET@127.0.0.1:6380|upstream = redis://app:SECRET@h/3|"
            "upstream = redis://app:SECRET@h\nupstream_user = other|"
            "upstream = redis://app:SECRET@h\nupstream_password = other|upstream = sentinel://app:SECRET@a,b|"
            "upstream = sentinel://app:SECRET@a,,b/m|upstream = sentinel://app:SECRET,x@a,b/m/n|"
            "upstream = cluster://app:SECRET@a/1",
            expect_secrecy, NULL);
}
