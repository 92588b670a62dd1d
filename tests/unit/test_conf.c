/*
 * The configuration: values, faults, files that inih would read wrongly, and that the table, conf/headgate.ini and
 * docs/configuration.md say the same. Each test writes its file into a directory of its own.
 */
#include "conf_fixture.h"
#include "log.h"

#include "../../policies/policy.h"

#include <criterion/criterion.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Files and what comes of them ---- */

struct fixture {
    char directory[64];
    char path[96];
    struct conf *conf;
    struct conf_faults faults;
};

static void load_bytes(struct fixture *fixture, const char *bytes, size_t length)
{
    strcpy(fixture->directory, "/tmp/headgate-test-XXXXXX");
    cr_assert_not_null(mkdtemp(fixture->directory));
    snprintf(fixture->path, sizeof fixture->path, "%s/h.ini", fixture->directory);
    FILE *file = fopen(fixture->path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, length, file), length);
    cr_assert_eq(fclose(file), 0);
    fixture->conf = conf_load(fixture->path, NULL, &fixture->faults);
    unlink(fixture->path);
    rmdir(fixture->directory);
    cr_assert_eq(fixture->conf == NULL, fixture->faults.count > 0, "either a configuration or faults");
}

static void load_text(struct fixture *fixture, const char *text)
{
    load_bytes(fixture, text, strlen(text));
}

static void drop(struct fixture *fixture)
{
    conf_free(fixture->conf);
    conf_faults_free(&fixture->faults);
}

static void assert_loads(struct fixture *fixture, const char *text)
{
    load_text(fixture, text);
    cr_assert_not_null(fixture->conf, "%s: %s", text, fixture->faults.lines[0]);
}

/* A fault without the directory of the file: "h.ini:2: ...". */
static const char *fault_at(const struct fixture *fixture, size_t index)
{
    cr_assert_lt(index, fixture->faults.count, "there are %zu faults", fixture->faults.count);
    const char *line = fixture->faults.lines[index];
    size_t length = strlen(fixture->directory);
    cr_assert(strncmp(line, fixture->directory, length) == 0, "%s", line);
    return line + length + 1;
}

static void assert_faults(const char *bytes, size_t length, size_t count, const char *const *expected)
{
    struct fixture fixture;
    load_bytes(&fixture, bytes, length);
    for (size_t i = 0; i < count; i++) {
        cr_assert_str_eq(fault_at(&fixture, i), expected[i]);
    }
    cr_assert_eq(fixture.faults.count, count, "one more: %s", fixture.faults.lines[count]);
    drop(&fixture);
}

static void assert_fault(const char *text, const char *expected)
{
    assert_faults(text, strlen(text), 1, &expected);
}

/* Loads one option and expects one fault that contains what. */
static void assert_refused(const char *option, const char *value, const char *what)
{
    struct fixture fixture;
    char *text = conf_format("[headgate]\n%s = %s\n", option, value);
    load_text(&fixture, text);
    cr_assert_eq(fixture.faults.count, 1, "%s: %zu faults", text, fixture.faults.count);
    const char *start = "h.ini:2: [headgate] ";
    cr_assert(strncmp(fault_at(&fixture, 0), start, strlen(start)) == 0, "%s", fault_at(&fixture, 0));
    cr_assert_not_null(strstr(fault_at(&fixture, 0), what), "%s", fault_at(&fixture, 0));
    drop(&fixture);
    free(text);
}

/* With the sections of the policies of this build. */
static char *reference(void (*print)(FILE *, const struct conf_section *const *))
{
    const struct conf_section *sections[POLICY_SECTIONS_MAX + 1];
    policy_list_sections(policies, sections);
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    print(out, sections);
    fclose(out);
    return text;
}

static char *source_file(const char *name)
{
    char *path = conf_format("%s/%s", HEADGATE_SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    char *text = calloc(1, 1 << 20);
    cr_assert_lt(fread(text, 1, 1 << 20, file), 1 << 20);
    fclose(file);
    free(path);
    return text;
}

static struct conf *defaults(void)
{
    struct conf_faults faults;
    struct conf *conf = conf_load(NULL, NULL, &faults);
    cr_assert_not_null(conf);
    cr_assert_eq(faults.count, 0);
    conf_faults_free(&faults);
    return conf;
}

/* ---- Defaults ---- */

Test(conf, defaults)
{
    struct conf *conf = defaults();
    cr_assert_eq(conf->listen.count, 1);
    cr_assert_str_eq(conf->listen.items[0].host, "127.0.0.1");
    cr_assert_eq(conf->listen.items[0].port, 6380);
    cr_assert_null(conf->listen.items[0].path);
    cr_assert_str_eq(conf->admin.items[0].text, "127.0.0.1:6390");
    cr_assert_str_eq(conf->upstream.text, "127.0.0.1:6379");
    cr_assert_str_eq(conf->admin_password, "");
    cr_assert_str_eq(conf->upstream_user, "");
    cr_assert_str_eq(conf->upstream_password, "");
    cr_assert_eq(conf->pool, CONF_POOL_SHARED);
    cr_assert_eq(conf->log_level, LOG_LEVEL_INFO);
    cr_assert_str_eq(conf->log_file, "");
    cr_assert_str_eq(conf->path, "");
    conf_free(conf);
}

Test(conf, default_numbers)
{
    struct conf *conf = defaults();
    const int64_t pairs[][2] = {
        {conf->threads, 1},
        {conf->lanes, 1},
        {conf->max_clients, 10000},
        {conf->backlog, 511},
        {conf->unix_socket_mode, 0700},
        {conf->client_idle_timeout, 0},
        {conf->client_output_limit, 1 << 30},
        {conf->client_pipeline_limit, 1024},
        {conf->max_request, 512 << 20},
        {conf->cut_through, 64 << 10},
        {conf->tcp_keepalive, 300000},
        {conf->tcp_user_timeout, 30000},
        {conf->client_tcp_user_timeout, 0},
        {conf->connect_timeout, 5000},
        {conf->reconnect_min, 50},
        {conf->reconnect_max, 2000},
        {conf->upstream_wait, 3000},
        {conf->upstream_wait_requests, 10000},
        {conf->upstream_reply_timeout, 60000},
        {conf->exclusive_idle, 64},
        {conf->lane_idle_timeout, 60000},
        {conf->drain_timeout, 10000},
    };
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        cr_assert_eq(pairs[i][0], pairs[i][1], "number %zu is %lld", i, (long long)pairs[i][0]);
    }
    conf_free(conf);
}

Test(conf, empty_file_is_all_defaults)
{
    struct conf *conf = defaults();
    char *expected = print_conf(conf, true);
    const char *const texts[] = {"", "\n\n", "# only a comment", "[headgate]\n", "\xef\xbb\xbf[headgate]\r\n"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct fixture fixture;
        assert_loads(&fixture, texts[i]);
        char *text = print_conf(fixture.conf, true);
        cr_assert_str_eq(text, expected);
        cr_assert_str_eq(fixture.conf->path, fixture.path);
        free(text);
        drop(&fixture);
    }
    free(expected);
    conf_free(conf);
}

/* ---- Values ---- */

static int64_t load_number(const char *option, const char *value)
{
    struct fixture fixture;
    char *text = conf_format("[headgate]\n%s=%s\n", option, value);
    assert_loads(&fixture, text);
    int64_t number = -1;
    for (size_t i = 0; i < conf_option_count; i++) {
        if (strcmp(conf_options[i].name, option) == 0) {
            memcpy(&number, (char *)fixture.conf + conf_options[i].offset, sizeof number);
        }
    }
    drop(&fixture);
    free(text);
    return number;
}

Test(conf, integers)
{
    cr_assert_eq(load_number("threads", "64"), 64);
    cr_assert_eq(load_number("threads", "008"), 8);
    cr_assert_eq(load_number("max_clients", "1000000"), 1000000);
    cr_assert_eq(load_number("exclusive_idle", "0"), 0);
    assert_refused("threads", "0", "threads = 0: is too small; expected a number from 1 to 64");
    assert_refused("threads", "65", "is too large; expected a number from 1 to 64");
    assert_refused("threads", "-1", "is not a whole number");
    assert_refused("threads", "+1", "is not a whole number");
    assert_refused("threads", "2x", "is not a whole number");
    assert_refused("threads", "1 2", "is not a whole number");
    assert_refused("threads", "0x10", "is not a whole number");
    assert_refused("threads", "", "threads =: is empty");
    assert_refused("threads", "18446744073709551617", "is too large");
    assert_refused("exclusive_idle", "10001", "from 1 to 10000, or 0 (none)");
}

Test(conf, sizes)
{
    cr_assert_eq(load_number("max_request", "1024"), 1024);
    cr_assert_eq(load_number("max_request", "64kb"), 65536);
    cr_assert_eq(load_number("max_request", "64KB"), 65536);
    cr_assert_eq(load_number("max_request", "3Mb"), 3 << 20);
    cr_assert_eq(load_number("max_request", "4gB"), INT64_C(4) << 30);
    cr_assert_eq(load_number("client_output_limit", "0"), 0);
    cr_assert_eq(load_number("client_output_limit", "0kb"), 0);
    assert_refused("max_request", "0", "is too small; expected a size from 1kb to 4gb, in bytes or with kb, mb or gb");
    assert_refused("max_request", "1023", "is too small");
    assert_refused("max_request", "4294967297", "is too large");
    assert_refused("max_request", "9223372036854775807gb", "is too large");
    assert_refused("max_request", "1.5mb", "has no such unit as \".5mb\"");
    assert_refused("max_request", "64k", "has no such unit as \"k\"");
    assert_refused("max_request", "64 kb", "has no such unit as \" kb\"");
    assert_refused("max_request", "kb", "is not a whole number");
    assert_refused("client_output_limit", "63kb", "from 64kb to 1024gb, or 0 (no limit)");
}

Test(conf, times)
{
    cr_assert_eq(load_number("client_idle_timeout", "250ms"), 250);
    cr_assert_eq(load_number("client_idle_timeout", "30s"), 30000);
    cr_assert_eq(load_number("client_idle_timeout", "10m"), 600000);
    cr_assert_eq(load_number("client_idle_timeout", "2h"), 7200000);
    cr_assert_eq(load_number("client_idle_timeout", "365d"), INT64_C(365) * 86400000);
    cr_assert_eq(load_number("client_idle_timeout", "0"), 0);
    cr_assert_eq(load_number("client_idle_timeout", "0s"), 0);
    assert_refused("client_idle_timeout", "30", "has no unit; expected a time from 1ms to 365d, or 0 (never)");
    assert_refused("client_idle_timeout", "366d", "is too large");
    assert_refused("client_idle_timeout", "30us", "has no such unit as \"us\"");
    assert_refused("client_idle_timeout", "30S", "has no such unit as \"S\"");
    assert_refused("client_idle_timeout", "1h30m", "has no such unit as \"h30m\"");
    assert_refused("connect_timeout", "0", "is too small");
    assert_refused("tcp_keepalive", "999ms", "is too small");
}

Test(conf, modes)
{
    cr_assert_eq(load_number("unix_socket_mode", "0770"), 0770);
    cr_assert_eq(load_number("unix_socket_mode", "666"), 0666);
    cr_assert_eq(load_number("unix_socket_mode", "0"), 0);
    assert_refused("unix_socket_mode", "0788", "is not an octal number; expected an octal mode from 0000 to 0777");
    assert_refused("unix_socket_mode", "1777", "is too large");
    assert_refused("unix_socket_mode", "rwx", "is not an octal number");
}

Test(conf, words)
{
    struct fixture fixture;
    assert_loads(&fixture, "[headgate]\npool = session\nlog_level = error\n");
    cr_assert_eq(fixture.conf->pool, CONF_POOL_SESSION);
    cr_assert_eq(fixture.conf->log_level, LOG_LEVEL_ERROR);
    drop(&fixture);
    assert_refused("pool", "sessions", "is not one of the known words; expected shared or session");
    assert_refused("pool", "", "is empty");
    assert_refused("log_level", "Info", "expected debug, info, warning or error");
}

static char *load_string(const char *value)
{
    struct fixture fixture;
    char *text = conf_format("[headgate]\nlog_file = %s\n", value);
    assert_loads(&fixture, text);
    char *string = strdup(fixture.conf->log_file);
    drop(&fixture);
    free(text);
    return string;
}

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
        {"\"=\"", "="},
    };
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        char *string = load_string(pairs[i][0]);
        cr_assert_str_eq(string, pairs[i][1]);
        free(string);
    }
    assert_refused("log_file", "a ;b", "holds a ';' or '#' that could be a comment");
    assert_refused("log_file", "a\t#b", "holds a ';' or '#' that could be a comment");
    assert_refused("log_file", "#a", "holds a ';' or '#' that could be a comment");
    assert_refused("log_file", "\"a", "starts with a double quote but does not end with one");
    assert_refused("log_file", "\"a\"b", "starts with a double quote but does not end with one");
    assert_refused("log_file", "\"a\\\"", "starts with a double quote but does not end with one");
}

Test(conf, string_length)
{
    char longest[1026];
    memset(longest, 'a', 1025);
    longest[1025] = '\0';
    assert_refused("log_file", longest, "has 1025 bytes; expected text of up to 1024 bytes");
    longest[1024] = '\0';
    char *string = load_string(longest);
    cr_assert_str_eq(string, longest);
    free(string);
}

/* ---- Addresses ---- */

static void assert_address(const char *value, const char *host, uint16_t port, const char *path)
{
    struct fixture fixture;
    char *text = conf_format("[headgate]\nupstream = %s\n", value);
    assert_loads(&fixture, text);
    const struct conf_address *address = &fixture.conf->upstream;
    cr_assert_str_eq(address->text, value);
    cr_assert_eq(address->port, port);
    if (path == NULL) {
        cr_assert_str_eq(address->host, host);
        cr_assert_null(address->path);
    } else {
        cr_assert_str_eq(address->path, path);
        cr_assert_null(address->host);
    }
    drop(&fixture);
    free(text);
}

Test(conf, addresses)
{
    assert_address("10.0.0.1:1", "10.0.0.1", 1, NULL);
    assert_address("redis-1.example_net:65535", "redis-1.example_net", 65535, NULL);
    assert_address("[::1]:7", "::1", 7, NULL);
    assert_address("[0:0::0001]:7", "::1", 7, NULL);
    assert_address("[fe80::1%eth0]:7", "fe80::1%eth0", 7, NULL);
    assert_address("[::ffff:1.2.3.4]:7", "::ffff:1.2.3.4", 7, NULL);
    assert_address("unix:/run/redis.sock", NULL, 0, "/run/redis.sock");
}

Test(conf, refused_addresses)
{
    const char *const pairs[][2] = {
        {"", "upstream =: is empty; expected host:port, [IPv6]:port or unix:/path"},
        {"localhost", "\"localhost\" has no port"},
        {"localhost:", "port \"\" is not a number"},
        {"localhost:0", "port 0 is not from 1 to 65535"},
        {"localhost:65536", "port 65536 is not from 1 to 65535"},
        {"localhost:99999999999999999999", "is not from 1 to 65535"},
        {"localhost:6379x", "port \"6379x\" is not a number"},
        {"localhost:-1", "port \"-1\" is not a number"},
        {":6379", "\"\" is neither a host name nor an IPv4 address"},
        {"*:6379", "\"*\" is neither a host name nor an IPv4 address"},
        {"256.0.0.1:6379", "\"256.0.0.1\" is neither"},
        {"10.1:6379", "\"10.1\" is neither"},
        {"a..b:6379", "\"a..b\" is neither"},
        {"-a:6379", "\"-a\" is neither"},
        {"::1:6379", "holds an IPv6 address without brackets"},
        {"[::1]", "\"[::1]\" has no port"},
        {"[::1]6379", "\"[::1]6379\" has no port"},
        {"[::1]:0", "port 0 is not from 1 to 65535"},
        {"[::1:6379", "holds no IPv6 address in brackets"},
        {"[127.0.0.1]:6379", "holds no IPv6 address in brackets"},
        {"[]:6379", "holds no IPv6 address in brackets"},
        {"[::1%]:6379", "holds no IPv6 address in brackets"},
        {"a:1, b:2", "holds a blank or a comma"},
        {"unix:", "\"unix:\" is not an absolute path"},
        {"unix:/", "\"unix:/\" is not an absolute path"},
        {"unix:run/redis.sock", "\"unix:run/redis.sock\" is not an absolute path"},
    };
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        assert_refused("upstream", pairs[i][0], pairs[i][1]);
    }
}

Test(conf, length_of_socket_paths_and_hosts)
{
    char address[300] = "unix:/";
    memset(address + 6, 'p', 106);
    assert_address(address, NULL, 0, address + 5);
    address[112] = 'p';
    assert_refused("upstream", address, "the path of the Unix socket has 108 bytes, more than 107");

    char host[255] = "";
    memset(host, 'h', 253);
    snprintf(address, sizeof address, "%s:1", host);
    assert_address(address, host, 1, NULL);
    snprintf(address, sizeof address, "h%s:1", host);
    assert_refused("upstream", address, "is neither a host name nor an IPv4 address");
}

Test(conf, address_lists)
{
    struct fixture fixture;
    assert_loads(&fixture, "[headgate]\nlisten = a:1,b:2 , unix:/c\td:4 ; the rest is a comment\nadmin =\n");
    cr_assert_eq(fixture.conf->listen.count, 4);
    cr_assert_str_eq(fixture.conf->listen.items[1].host, "b");
    cr_assert_str_eq(fixture.conf->listen.items[2].path, "/c");
    cr_assert_eq(fixture.conf->listen.items[3].port, 4);
    cr_assert_eq(fixture.conf->admin.count, 0);
    drop(&fixture);
    assert_refused("listen", "", "listen =: is empty; expected 1 to 16 addresses");
    assert_refused("listen", "; a:1", "is empty");
    assert_refused("listen", "a:1,", "has no address beside a comma");
    assert_refused("listen", ", a:1", "has no address beside a comma");
    assert_refused("listen", "a:1,,b:2", "has no address beside a comma");
    assert_refused("listen", "a:1, b", "\"b\" has no port");
    assert_refused("listen", "a:1, b:2, A:1", "holds A:1 twice");
    assert_refused("listen", "[::1]:5, [0::1]:5", "holds [0::1]:5 twice");
    assert_refused("listen", "unix:/x, unix:/x", "holds unix:/x twice");
}

Test(conf, address_list_is_bounded)
{
    char value[256] = "h:1";
    for (int i = 2; i <= 16; i++) {
        snprintf(value + strlen(value), sizeof value - strlen(value), ",h:%d", i);
    }
    struct fixture fixture;
    char *text = conf_format("[headgate]\nlisten = %s\n", value);
    assert_loads(&fixture, text);
    cr_assert_eq(fixture.conf->listen.count, 16);
    drop(&fixture);
    free(text);
    strcat(value, ",h:17");
    assert_refused("listen", value, "holds more than 16 addresses");
}

/* ---- What inih does by itself, and what conf_load() makes of it ---- */

struct seen {
    int count;
    char section[128];
    char name[128];
    char value[512];
};

static int see(void *user, const char *section, const char *name, const char *value)
{
    struct seen *seen = user;
    seen->count++;
    snprintf(seen->section, sizeof seen->section, "%s", section);
    snprintf(seen->name, sizeof seen->name, "%s", name);
    snprintf(seen->value, sizeof seen->value, "%s", value);
    return 1;
}

static struct seen inih_alone(const char *text, int *result)
{
    struct seen seen = {0};
    *result = ini_parse_string(text, see, &seen);
    return seen;
}

Test(inih, cuts_long_sections)
{
    int result;
    char text[256] = "[";
    memset(text + 1, 's', 50);
    strcat(text, "]\nx = 1\n");
    cr_assert_eq(strlen(inih_alone(text, &result).section), 49, "the trap is there");
    cr_assert_eq(result, 0, "and is silent");
    assert_fault(text, "h.ini:1: section name of 50 bytes; expected at most 49");
}

Test(inih, breaks_long_lines)
{
    int result;
    char text[8200] = "[headgate]\nlog_file = ";
    memset(text + strlen(text), 'a', 250);
    strcat(text, "\n");
    cr_assert_eq(strlen(inih_alone(text, &result).value), 199 - strlen("log_file = "), "the trap is there");
    struct fixture fixture;
    assert_loads(&fixture, text);
    cr_assert_eq(strlen(fixture.conf->log_file), 250, "but conf_load() takes longer lines");
    drop(&fixture);

    memset(text + 22, 'a', 4096 - 11);
    text[11 + 4096] = '\0';
    strcat(text, "\nthreads = 0\n");
    load_text(&fixture, text);
    cr_assert_not_null(strstr(fault_at(&fixture, 0), "log_file = aaa"), "4096 bytes are taken whole");
    cr_assert_not_null(strstr(fault_at(&fixture, 0), "a...: has 4085 bytes"), "%s", fault_at(&fixture, 0));
    cr_assert_not_null(strstr(fault_at(&fixture, 1), "h.ini:3: [headgate] threads = 0"));
    drop(&fixture);
}

Test(inih, line_length_bound)
{
    char text[4200] = "[headgate]\n#";
    memset(text + strlen(text), 'a', 4095);
    struct fixture fixture;
    assert_loads(&fixture, text);
    drop(&fixture);
    strcat(text, "a");
    assert_fault(text, "h.ini:2: line of 4097 bytes; expected at most 4096");
}

/* Whatever it holds, a long line is one fault on its own line, and nothing of it is read as an option. */
Test(inih, long_lines_are_faults)
{
    static const char *const starts[] = {"log_file = ", "# ", "[", "upstream_password = threads = 5", ""};
    static const char *const subjects[] = {"[headgate] log_file: ", "", "", "[headgate] upstream_password: ", ""};
    for (size_t i = 0; i < COUNT_OF(starts); i++) {
        char text[20000] = "[headgate]\n";
        strcat(text, starts[i]);
        memset(text + strlen(text), 'a', 9000 - strlen(starts[i]));
        strcat(text, "\r\nthreads = 0\n");
        char *fault = conf_format("h.ini:2: %sline of 9000 bytes; expected at most 4096", subjects[i]);
        const char *const expected[] = {
            fault, "h.ini:3: [headgate] threads = 0: is too small; expected a number from 1 to 64"};
        assert_faults(text, strlen(text), 2, expected);
        free(fault);
    }
}

Test(inih, joins_indented_lines)
{
    int result;
    const char *text = "[headgate]\nlog_file = /a\n  threads = 2\n";
    struct seen seen = inih_alone(text, &result);
    cr_assert_str_eq(seen.name, "log_file", "the trap is there");
    cr_assert_str_eq(seen.value, "threads = 2");
    assert_fault(text, "h.ini:3: [headgate] threads: line starts with a blank; expected an option at the start of a "
                       "line, its value on that line");
    assert_fault(
        "[headgate]\nupstream_password = a\n\tsecret\n",
        "h.ini:3: line starts with a blank; expected an option at the start of a line, its value on that line");
    struct fixture fixture;
    assert_loads(&fixture, "[headgate]\nthreads = 2\n   \n\t# comment\n  ; comment\nlanes = 3\n");
    cr_assert_eq(fixture.conf->threads, 2);
    cr_assert_eq(fixture.conf->lanes, 3);
    drop(&fixture);
}

Test(inih, cuts_inline_comments)
{
    int result;
    const char *text = "[headgate]\nlog_file = a ;b\n";
    cr_assert_str_eq(inih_alone(text, &result).value, "a", "the trap is there");
    assert_refused("log_file", "a ;b", "log_file = a ;b: holds a ';' or '#' that could be a comment");
    cr_assert_eq(load_number("threads", "2 ; two"), 2);
    cr_assert_eq(load_number("threads", "2\t# two"), 2);
    assert_refused("threads", "2;two", "is not a whole number");
}

Test(inih, goes_on_after_errors)
{
    int result;
    const char *text = "[headgate]\nthreads 4\nlanes = 0\n";
    struct seen seen = inih_alone(text, &result);
    cr_assert_eq(result, 2);
    cr_assert_eq(seen.count, 1, "the trap is there: later lines are read all the same");
    const char *const expected[] = {
        "h.ini:2: [headgate] threads: line has no \"=\"; expected option = value, [section] or a # comment",
        "h.ini:3: [headgate] lanes = 0: is too small; expected a number from 1 to 64"};
    assert_faults(text, strlen(text), 2, expected);
}

Test(inih, says_nothing_of_duplicates)
{
    int result;
    const char *text = "[headgate]\nthreads = 4\n\nthreads = 5\n";
    cr_assert_eq(inih_alone(text, &result).count, 2);
    cr_assert_eq(result, 0, "the trap is there");
    assert_fault(text, "h.ini:4: [headgate] threads = 5: given on line 2 already; expected it once");
}

Test(inih, ignores_text_after_a_section)
{
    int result;
    const char *text = "[headgate] threads = 4\nlanes = 2\n";
    cr_assert_eq(inih_alone(text, &result).count, 1);
    cr_assert_eq(result, 0, "the trap is there");
    assert_fault(text, "h.ini:1: text after the closing bracket of a section; expected the section alone on its line");
    struct fixture fixture;
    assert_loads(&fixture, "[headgate] # comment\nlanes = 2\n");
    cr_assert_eq(fixture.conf->lanes, 2);
    drop(&fixture);
}

Test(inih, does_not_mention_empty_sections)
{
    int result;
    const char *text = "[headgat]\n";
    cr_assert_eq(inih_alone(text, &result).count, 0);
    cr_assert_eq(result, 0, "the trap is there");
    assert_fault(text, "h.ini:1: [headgat]: unknown section; expected perhaps [headgate]");
}

Test(inih, stops_at_nul)
{
    const char text[] = "[headgate]\nthreads = 2\0000\nlanes = 99\n";
    const char *const expected[] = {"h.ini:2: file holds a NUL byte; expected text"};
    assert_faults(text, sizeof text - 1, 1, expected);
}

/* ---- Faults of files ---- */

Test(conf, sections)
{
    assert_fault("[limits]\nanything = 1\n[headgate]\nthreads = 2\n",
                 "h.ini:1: [limits]: unknown section; expected [headgate]");
    assert_fault("[]\n", "h.ini:1: []: unknown section; expected [headgate]");
    assert_fault("[headgate]\n[headgate]\n", "h.ini:2: [headgate]: section stands on line 1 already; expected once");
    assert_fault("[headgate\nthreads = 2\n", "h.ini:1: section has no closing bracket; expected [headgate]");
    const char *text = "threads = 2\nlanes = 0\n";
    const char *const expected[] = {"h.ini:1: option stands before any section; expected [headgate] above it",
                                    "h.ini:2: [headgate] lanes = 0: is too small; expected a number from 1 to 64"};
    assert_faults(text, strlen(text), 2, expected);
}

Test(conf, unknown_options)
{
    assert_fault("[headgate]\nmax_client = 5\n",
                 "h.ini:2: [headgate] max_client = 5: unknown option; expected a known option, perhaps "
                 "\"max_clients\"");
    assert_fault("[headgate]\nThreads = 5\n",
                 "h.ini:2: [headgate] Threads = 5: unknown option; expected a known option, perhaps \"threads\"");
    assert_fault("[headgate]\ncolour = blue\n",
                 "h.ini:2: [headgate] colour = blue: unknown option; expected one of the options in "
                 "conf/headgate.ini");
    assert_fault("[headgate]\n= 5\n", "h.ini:2: no option stands before the \"=\"; expected option = value");
}

Test(conf, control_characters)
{
    assert_fault("[headgate]\nlog_file = a\x1b[2Jb\n",
                 "h.ini:2: [headgate] log_file: line holds a control character; expected printable text");
    assert_fault("[headgate]\nlog_file = a\rthreads = 2\n",
                 "h.ini:2: [headgate] log_file: line holds a control character; expected printable text");
    assert_fault("[head\x7fgate]\n", "h.ini:1: line holds a control character; expected printable text");
}

/* No fault of any kind may show a secret, even one that stands under a misspelt name. */
Test(conf, secrets_are_never_shown)
{
    static const char *const lines[] = {
        "upstream_password = hunter2 ;x",
        "upstream_password = \"hunter2",
        "admin_password = x\nadmin_password = hunter2",
        "upstream_pasword = hunter2",
        "password = hunter2",
        "redis_auth = hunter2",
        "upstream_password hunter2",
        "upstream_password = a\n hunter2",
        "upstream_password = hunter2\x01",
        "hunter2",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        struct fixture fixture;
        char *text = conf_format("[headgate]\n%s\n", lines[i]);
        load_text(&fixture, text);
        cr_assert_eq(fixture.faults.count, 1, "%s", text);
        cr_assert_null(strstr(fixture.faults.lines[0], "hunter2"), "%s", fixture.faults.lines[0]);
        drop(&fixture);
        free(text);
    }
}

Test(conf, hidden_secret_is_not_taken_for_a_secret)
{
    assert_refused("upstream_password", "********", "is what a hidden secret is shown as");
    struct fixture fixture;
    assert_loads(&fixture, "[headgate]\nupstream_password = \"********\"\n");
    cr_assert_str_eq(fixture.conf->upstream_password, "********");
    drop(&fixture);
}

Test(conf, all_faults_at_once)
{
    const char *text = "[headgate]\r\nthreads = 0\r\npool = x\r\n\r\ntypo = 1\r\nlisten = y\r\n";
    struct fixture fixture;
    load_text(&fixture, text);
    cr_assert_eq(fixture.faults.count, 4);
    static const int lines[] = {2, 3, 5, 6};
    for (size_t i = 0; i < 4; i++) {
        int line = 0;
        cr_assert_eq(sscanf(fault_at(&fixture, i), "h.ini:%d:", &line), 1);
        cr_assert_eq(line, lines[i]);
    }
    drop(&fixture);
}

Test(conf, long_values_are_cut_in_faults)
{
    char value[400];
    memset(value, '7', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    assert_refused("threads", value, "7...: is too large; expected a number from 1 to 64");
}

Test(conf, unreadable_files)
{
    struct conf_faults faults;
    cr_assert_null(conf_load("/nonexistent/h.ini", NULL, &faults));
    cr_assert_eq(faults.count, 1);
    cr_assert_str_eq(faults.lines[0], "/nonexistent/h.ini: cannot be read: No such file or directory");
    conf_faults_free(&faults);
    cr_assert_null(conf_load("/", NULL, &faults));
    cr_assert_eq(faults.count, 1);
    cr_assert_str_eq(faults.lines[0], "/: cannot be read: Is a directory");
    conf_faults_free(&faults);
    cr_assert_null(conf_load("/dev/zero", NULL, &faults));
    cr_assert_eq(faults.count, 1);
    cr_assert_str_eq(faults.lines[0], "/dev/zero: file is too large; expected at most 1mb");
    conf_faults_free(&faults);
}

Test(conf, last_line_without_newline)
{
    struct fixture fixture;
    assert_loads(&fixture, "[headgate]\nthreads: 7");
    cr_assert_eq(fixture.conf->threads, 7);
    drop(&fixture);
}

/* ---- Options against each other ---- */

Test(conf, contradictions)
{
    assert_fault("[headgate]\nreconnect_min = 5s\n",
                 "h.ini:2: [headgate] reconnect_min = 5s: reconnect_min (5s) is longer than reconnect_max (2s); "
                 "expected reconnect_min of at most reconnect_max");
    assert_fault("[headgate]\n\nreconnect_max = 20ms\n",
                 "h.ini:3: [headgate] reconnect_max = 20ms: reconnect_min (50ms) is longer than reconnect_max (20ms); "
                 "expected reconnect_min of at most reconnect_max");
    assert_fault("[headgate]\nupstream_user = app\n",
                 "h.ini:2: [headgate] upstream_user = app: has no password; expected upstream_password beside it");
    assert_fault("[headgate]\nadmin = LOCALHOST:1\nlisten = a:1, localhost:1\n",
                 "h.ini:3: [headgate] listen = a:1, localhost:1: LOCALHOST:1 is an address of listen and of admin; "
                 "expected an address for each");
    assert_fault("[headgate]\nadmin = 127.0.0.1:6380\n",
                 "h.ini:2: [headgate] admin = 127.0.0.1:6380: 127.0.0.1:6380 is an address of listen and of admin; "
                 "expected an address for each");
    assert_fault("[headgate]\nlisten = 127.0.0.1:6379\n",
                 "h.ini:2: [headgate] listen = 127.0.0.1:6379: 127.0.0.1:6379 is an address of listen and of "
                 "upstream; expected the address of Redis upstream");
    assert_fault("[headgate]\nupstream = 127.0.0.1:6390\n",
                 "h.ini:2: [headgate] upstream = 127.0.0.1:6390: 127.0.0.1:6390 is an address of admin and of "
                 "upstream; expected the address of Redis upstream");
}

Test(conf, a_faulty_option_contradicts_nothing)
{
    assert_fault("[headgate]\nreconnect_min = 5s\nreconnect_max = 9\n",
                 "h.ini:3: [headgate] reconnect_max = 9: has no unit; expected a time from 1ms to 1h, with ms, s, m, "
                 "h or d");
}

/* ---- Printing, and the references ---- */

/* One value for each option that is not its default; the order is that of the table. */
static const char *const other_values[][2] = {
    {"listen", "10.0.0.1:1, [::1]:2, unix:/run/h.sock"},
    {"admin", ""},
    {"admin_password", "\" quoted \\\"pass\\\\word\\\" ;#\""},
    {"upstream", "unix:/run/redis.sock"},
    {"upstream_user", "app;user"},
    {"upstream_password", "\"********\""},
    {"pool", "session"},
    {"threads", "3"},
    {"lanes", "5"},
    {"max_clients", "77"},
    {"backlog", "12"},
    {"unix_socket_mode", "0060"},
    {"client_idle_timeout", "90s"},
    {"client_output_limit", "0"},
    {"client_pipeline_limit", "65536"},
    {"max_request", "1025"},
    {"cut_through", "17kb"},
    {"tcp_keepalive", "0"},
    {"tcp_user_timeout", "1ms"},
    {"client_tcp_user_timeout", "2m"},
    {"connect_timeout", "1h"},
    {"reconnect_min", "1500ms"},
    {"reconnect_max", "3m"},
    {"upstream_wait", "59m"},
    {"upstream_wait_requests", "0"},
    {"upstream_reply_timeout", "1d"},
    {"exclusive_idle", "1"},
    {"lane_idle_timeout", "25h"},
    {"drain_timeout", "999ms"},
    {"log_level", "debug"},
    {"log_file", "/var/log/headgate/headgate.log"},
};

static char *file_of_other_values(void)
{
    char *text = conf_format("[headgate]\n");
    for (size_t i = 0; i < COUNT_OF(other_values); i++) {
        const char *value = other_values[i][1];
        char *longer = conf_format("%s%s =%s%s\n", text, other_values[i][0], *value != '\0' ? " " : "", value);
        free(text);
        text = longer;
    }
    return text;
}

Test(conf, every_option_is_printed_as_it_was_read)
{
    cr_assert_eq(COUNT_OF(other_values), conf_option_count, "other_values has an entry for every option");
    struct conf *initial = defaults();
    struct fixture fixture;
    struct fixture again;
    char *text = file_of_other_values();
    assert_loads(&fixture, text);
    for (size_t i = 0; i < conf_option_count; i++) {
        cr_assert_str_eq(conf_options[i].name, other_values[i][0]);
        char *before = conf_value_text(&conf_options[i], initial);
        char *after = conf_value_text(&conf_options[i], fixture.conf);
        cr_assert_str_neq(before, after, "%s is not at its default", conf_options[i].name);
        free(before);
        free(after);
    }
    char *first = print_conf(fixture.conf, true);
    assert_loads(&again, first);
    char *second = print_conf(again.conf, true);
    cr_assert_str_eq(first, second);
    cr_assert_str_eq(again.conf->admin_password, " quoted \"pass\\word\" ;#");
    cr_assert_str_eq(again.conf->upstream_password, "********");
    cr_assert_str_eq(first, text);
    free(first);
    free(second);
    free(text);
    drop(&fixture);
    drop(&again);
    conf_free(initial);
}

Test(conf, longest_list_is_printed_as_it_was_read)
{
    char text[4096] = "[headgate]\nlisten = ";
    for (int i = 0; i < 16; i++) {
        char path[110];
        memset(path, 'p', sizeof path);
        snprintf(path + 100, sizeof path - 100, "%02d", i);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%sunix:/%s", i > 0 ? ", " : "", path);
    }
    struct fixture fixture;
    struct fixture again;
    assert_loads(&fixture, text);
    char *first = print_conf(fixture.conf, true);
    cr_assert_gt(strlen(first), 1700);
    assert_loads(&again, first);
    char *second = print_conf(again.conf, true);
    cr_assert_str_eq(first, second);
    free(first);
    free(second);
    drop(&fixture);
    drop(&again);
}

Test(conf, passwords_are_hidden_unless_asked_for)
{
    struct fixture fixture;
    assert_loads(&fixture, "[headgate]\nupstream_password = hunter2\n");
    char *hidden = print_conf(fixture.conf, false);
    char *shown = print_conf(fixture.conf, true);
    cr_assert_not_null(strstr(hidden, "upstream_password = ********\n"));
    cr_assert_not_null(strstr(hidden, "admin_password =\n"), "that there is none is no secret");
    cr_assert_null(strstr(hidden, "hunter2"));
    cr_assert_not_null(strstr(shown, "upstream_password = hunter2\n"));
    free(hidden);
    free(shown);
    drop(&fixture);
}

Test(conf, table_is_sound)
{
    for (size_t i = 0; i < conf_option_count; i++) {
        const struct conf_option *option = &conf_options[i];
        cr_assert(option->help != NULL && *option->help != '\0', "%s has help", option->name);
        cr_assert_eq(option->words != NULL, option->type == CONF_WORD, "%s", option->name);
        for (size_t j = 0; j < i; j++) {
            cr_assert_neq(option->offset, conf_options[j].offset, "%s", option->name);
        }
    }
    cr_assert_eq(conf_option_count, 31, "a new field of struct conf needs its option, and a word here");
}

Test(conf, sample_file_is_the_reference)
{
    char *expected = reference(conf_print_reference_ini);
    char *sample = source_file("conf/headgate.ini");
    cr_assert_str_eq(sample, expected);
    free(sample);
    free(expected);
}

/* Every option stands in the sample, and uncommenting all of them changes nothing. */
Test(conf, sample_file_shows_the_defaults)
{
    char *sample = source_file("conf/headgate.ini");
    for (size_t i = 0; i < conf_option_count; i++) {
        char *line = conf_format("\n#%s =", conf_options[i].name);
        char *at = strstr(sample, line);
        cr_assert_not_null(at, "%s", line);
        at[0] = '\n';
        memmove(at + 1, at + 2, strlen(at + 2) + 1);
        free(line);
    }
    struct fixture fixture;
    assert_loads(&fixture, sample);
    struct conf *conf = defaults();
    char *expected = print_conf(conf, true);
    char *text = print_conf(fixture.conf, true);
    cr_assert_str_eq(text, expected);
    free(text);
    free(expected);
    free(sample);
    conf_free(conf);
    drop(&fixture);
}

Test(conf, documentation_holds_the_reference)
{
    static const char start[] = "<!-- options: printed from the option table -->\n";
    char *expected = reference(conf_print_reference_markdown);
    char *page = source_file("docs/configuration.md");
    char *from = strstr(page, start);
    cr_assert_not_null(from);
    from += strlen(start);
    char *to = strstr(from, "<!-- options: end -->\n");
    cr_assert_not_null(to);
    *to = '\0';
    cr_assert_str_eq(from, expected);
    free(page);
    free(expected);
}

Test(conf, examples_load)
{
    static const char *const names[] = {"session-pool", "unix-sockets", "upstream-password"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char *path = conf_format("%s/conf/examples/%s.ini", HEADGATE_SOURCE_DIR, names[i]);
        struct conf_faults faults;
        struct conf *conf = conf_load(path, NULL, &faults);
        cr_assert_not_null(conf, "%s", faults.count > 0 ? faults.lines[0] : path);
        conf_free(conf);
        conf_faults_free(&faults);
        free(path);
    }
}

/* ---- Reload ---- */

struct report {
    size_t count;
    const char *options[16];
};

static void note(void *context, const char *option)
{
    struct report *report = context;
    cr_assert_lt(report->count, COUNT_OF(report->options));
    report->options[report->count++] = option;
}

Test(conf, restart_only_changes)
{
    static const char *const expected[] = {"listen",  "admin", "upstream", "pool",
                                           "threads", "lanes", "backlog",  "unix_socket_mode"};
    struct conf *old = defaults();
    struct fixture fixture;
    char *text = file_of_other_values();
    assert_loads(&fixture, text);
    struct report report = {0};
    conf_restart_only_changes(old, fixture.conf, note, &report);
    cr_assert_eq(report.count, COUNT_OF(expected));
    for (size_t i = 0; i < report.count; i++) {
        cr_assert_str_eq(report.options[i], expected[i]);
    }
    struct report none = {0};
    conf_restart_only_changes(fixture.conf, fixture.conf, note, &none);
    cr_assert_eq(none.count, 0);
    free(text);
    drop(&fixture);
    conf_free(old);
}

Test(conf, merge_takes_what_a_reload_may_change)
{
    struct conf *old = defaults();
    struct fixture fixture;
    char *text = file_of_other_values();
    assert_loads(&fixture, text);
    struct conf *merged = conf_merge_reloadable(old, fixture.conf);
    cr_assert_str_eq(merged->path, fixture.conf->path);
    for (size_t i = 0; i < conf_option_count; i++) {
        const struct conf_option *option = &conf_options[i];
        char *got = conf_value_text(option, merged);
        char *expected = conf_value_text(option, option->reloadable ? fixture.conf : old);
        cr_assert_str_eq(got, expected, "%s", option->name);
        free(got);
        free(expected);
    }
    struct report report = {0};
    conf_restart_only_changes(old, merged, note, &report);
    cr_assert_eq(report.count, 0);
    free(text);
    conf_free(merged);
    conf_free(old);
    drop(&fixture);
}
