/* The values of options: numbers, words, strings, addresses. */
#include "base/log.h"
#include "conf_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Values ---- */

Test(conf, integers)
{
    cr_assert_eq(load_number("threads", "64"), 64);
    cr_assert_eq(load_number("threads", "008"), 8);
    cr_assert_eq(load_number("max_clients", "1000000"), 1000000);
    cr_assert_eq(load_number("exclusive_idle", "0"), 0);
    assert_refused("threads", "0", "threads = 0: is too small; expected a number from 1 to 64");
    assert_refused("threads", "65", "is too large; expected a number from 1 to 64");
    assert_refused("threads", "-1", "is not a whole number");
    assert_refused("threads", "", "threads =: is empty");
    assert_refused("threads", "18446744073709551617", "is too large");
    assert_refused("exclusive_idle", "10001", "from 1 to 10000, or 0 (none)");
}

Test(conf, sizes)
{
    cr_assert_eq(load_number("max_request", "1024"), 1024);
    cr_assert_eq(load_number("max_request", "3Mb"), 3 << 20);
    cr_assert_eq(load_number("max_request", "4gB"), INT64_C(4) << 30);
    cr_assert_eq(load_number("client_output_limit", "0"), 0);
    assert_refused("max_request", "0", "is too small; expected a size from 1kb to 4gb, in bytes or with kb, mb or gb");
    assert_refused("max_request", "9223372036854775807gb", "is too large");
    assert_refused("max_request", "64 k b", "has no such unit as \"k b\"");
    assert_refused("max_request", "64t", "has no such unit as \"t\"");
    assert_refused("client_output_limit", "63kb", "from 64kb to 1024gb, or 0 (no limit)");
}

Test(conf, times)
{
    cr_assert_eq(load_number("client_idle_timeout", "250ms"), 250);
    cr_assert_eq(load_number("client_idle_timeout", "30s"), 30000);
    cr_assert_eq(load_number("client_idle_timeout", "365d"), INT64_C(365) * 86400000);
    cr_assert_eq(load_number("client_idle_timeout", "0"), 0);
    assert_refused("client_idle_timeout", "30", "has no unit; expected a time from 1ms to 365d, or 0 (never)");
    assert_refused("client_idle_timeout", "1h30m", "has no such unit as \"h30m\"");
    assert_refused("connect_timeout", "0", "is too small");
    assert_refused("tcp_keepalive", "999ms", "is too small");
}

Test(conf, modes)
{
    cr_assert_eq(load_number("unix_socket_mode", "0770"), 0770);
    cr_assert_eq(load_number("unix_socket_mode", "0"), 0);
    assert_refused("unix_socket_mode", "0788", "is not an octal number; expected an octal mode from 0000 to 0777");
    assert_refused("unix_socket_mode", "1777", "is too large");
}

Test(conf, words)
{
    struct conf_file file;
    assert_loads(&file, "[headgate]\npool = session\nlog_level = error\n");
    cr_assert_eq(file.conf->pool, CONF_POOL_SESSION);
    cr_assert_eq(file.conf->log_level, LOG_LEVEL_ERROR);
    drop_file(&file);
    assert_refused("pool", "sessions", "is not one of the known words; expected shared or session");
    assert_refused("pool", "", "is empty");
    assert_refused("log_level", "Informal", "expected debug, info, warning or error");
    assert_loads(&file, "[headgate]\npool = SESSION\nlog_level = Error\n");
    cr_assert_eq(file.conf->pool, CONF_POOL_SESSION);
    cr_assert_eq(file.conf->log_level, LOG_LEVEL_ERROR);
    drop_file(&file);
}

/* As people write them. */
Test(conf, sizes_in_other_words)
{
    cr_assert_eq(load_number("max_request", "64 kb"), 65536);
    cr_assert_eq(load_number("max_request", "64\tKiB"), 65536);
    cr_assert_eq(load_number("max_request", "10 MB ; ten"), 10 << 20);
    cr_assert_eq(load_number("max_request", "10MiB"), 10 << 20);
    cr_assert_eq(load_number("max_request", "1 GIB"), 1 << 30);
    cr_assert_eq(load_number("max_request", "1.5mb"), 3 << 19);
    cr_assert_eq(load_number("max_request", "0.5 gb"), 1 << 29);
    cr_assert_eq(load_number("max_request", "2048 b"), 2048);
    /* As redis.conf has them. */
    cr_assert_eq(load_number("max_request", "64k"), 64000);
    cr_assert_eq(load_number("max_request", "64 M"), 64000000);
    cr_assert_eq(load_number("max_request", "1.25g"), 1250000000);
    assert_refused("max_request", "1.0001kb", "has more digits behind the point than count");
    assert_refused("max_request", "2000.5", "is not a whole number");
    assert_refused("max_request", "2000.0", "is not a whole number");
    assert_refused("max_request", "2.kb", "is not a number");
    assert_refused("max_request", "2.0000000001mb", "is not a number");
    assert_refused("max_request", "2..5mb", "is not a number");
    assert_refused("max_request", ".5mb", "is not a whole number");
    assert_refused("max_request", "2,5mb", "has no such unit as \",5mb\"");
    assert_refused("max_request", "9223372036854775807.5gb", "is too large");
}

Test(conf, times_in_other_words)
{
    static const char *const minutes[] = {
        "1m",     "1 m",     "1 Min",      "1MINS",    "1 minute",  "1\tMinutes",        "60S",
        "60 sec", "60 secs", "60 Seconds", "60000 MS", "60000msec", "60000 milliseconds"};
    for (size_t i = 0; i < COUNT_OF(minutes); i++) {
        cr_expect_eq(load_number("client_idle_timeout", minutes[i]), 60000, "%s", minutes[i]);
    }
    cr_assert_eq(load_number("client_idle_timeout", "1.5s"), 1500);
    cr_assert_eq(load_number("client_idle_timeout", "0.25 h"), 900000);
    cr_assert_eq(load_number("client_idle_timeout", "2 Hours"), 7200000);
    cr_assert_eq(load_number("client_idle_timeout", "1 hr"), 3600000);
    cr_assert_eq(load_number("client_idle_timeout", "1 D"), 86400000);
    cr_assert_eq(load_number("client_idle_timeout", "7 days"), INT64_C(7) * 86400000);
    assert_refused("client_idle_timeout", "1M", "has the unit \"M\", which is a month to some: m or min is a minute");
    assert_refused("client_idle_timeout", "1 M", "has the unit \"M\"");
    assert_refused("client_idle_timeout", "1.0005s", "has more digits behind the point than count");
    assert_refused("client_idle_timeout", "1.5", "is not a whole number");
    assert_refused("client_idle_timeout", "1 month", "has no such unit as \"month\"");
    assert_refused("client_idle_timeout", "1 week", "has no such unit as \"week\"");
    assert_refused("client_idle_timeout", "1 h 30 m", "has no such unit as \"h 30 m\"");
}

static char *load_string(const char *value)
{
    struct conf_file file;
    char *text = conf_format("[headgate]\nlog_file = %s\n", value);
    assert_loads(&file, text);
    char *string = strdup(file.conf->log_file);
    drop_file(&file);
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
    struct conf_file file;
    char *text = conf_format("[headgate]\nupstream = %s\n", value);
    assert_loads(&file, text);
    const struct conf_address *address = &file.conf->upstream;
    cr_assert_str_eq(address->text, value);
    cr_assert_eq(address->port, port);
    if (path == NULL) {
        cr_assert_str_eq(address->host, host);
        cr_assert_null(address->path);
    } else {
        cr_assert_str_eq(address->path, path);
        cr_assert_null(address->host);
    }
    drop_file(&file);
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
        {"", "upstream =: is empty; expected host:port, [IPv6]:port, unix:/path or a URL such as rediss://host"},
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
    struct conf_file file;
    assert_loads(&file, "[headgate]\nlisten = a:1,b:2 , unix:/c\td:4 ; the rest is a comment\nadmin =\n");
    cr_assert_eq(file.conf->listen.count, 4);
    cr_assert_str_eq(file.conf->listen.items[1].host, "b");
    cr_assert_str_eq(file.conf->listen.items[2].path, "/c");
    cr_assert_eq(file.conf->listen.items[3].port, 4);
    cr_assert_eq(file.conf->admin.count, 0);
    drop_file(&file);
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
    struct conf_file file;
    char *text = conf_format("[headgate]\nlisten = %s\n", value);
    assert_loads(&file, text);
    cr_assert_eq(file.conf->listen.count, 16);
    drop_file(&file);
    free(text);
    strcat(value, ",h:17");
    assert_refused("listen", value, "holds more than 16 addresses");
}
