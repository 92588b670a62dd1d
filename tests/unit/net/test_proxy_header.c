/* The PROXY protocol's header: what is one, whom it names, and what is none; however it comes in pieces. */
#include "net/proxy_header.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* "10.0.0.1:80", "[::1]:80", "unix", or "-" where nobody is named. */
static void write_address(const struct proxy_header *header, char *text, size_t size)
{
    const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)(const void *)&header->address;
    const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)(const void *)&header->address;
    char host[INET6_ADDRSTRLEN];

    if (!header->has_address) {
        snprintf(text, size, "-");
    } else if (header->address.ss_family == AF_INET) {
        inet_ntop(AF_INET, &ipv4->sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%u", host, (unsigned)ntohs(ipv4->sin_port));
    } else if (header->address.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &ipv6->sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%u", host, (unsigned)ntohs(ipv6->sin6_port));
    } else {
        cr_assert_eq(header->address.ss_family, AF_UNIX);
        snprintf(text, size, "unix");
    }
}

/* The header, with something behind it, is whole, and no shorter piece is; nothing behind it is looked at. */
static void assert_whole(const char *data, size_t length, bool is_proxied, const char *address)
{
    char with_more[1024], text[64];
    struct proxy_header header;

    cr_assert_leq(length, sizeof with_more - 8);
    memcpy(with_more, data, length);
    memcpy(with_more + length, "PROXY \r\n", 8);
    for (size_t i = 0; i < length && i < PROXY_HEADER_ENOUGH; i++) {
        enum proxy_header_result result = proxy_header_parse(data, i, &header);
        bool is_skipped = result == PROXY_HEADER_WHOLE && header.length > i;
        cr_assert(result == PROXY_HEADER_PARTIAL || is_skipped, "%zu of %zu bytes", i, length);
    }
    cr_assert_eq(proxy_header_parse(with_more, length + 8, &header), PROXY_HEADER_WHOLE, "%s", header.why);
    cr_assert_eq(header.length, length);
    cr_assert_eq(header.is_proxied, is_proxied);
    write_address(&header, text, sizeof text);
    cr_assert_str_eq(text, address);
}

static void assert_bad(const char *data, size_t length, const char *why)
{
    struct proxy_header header;
    enum proxy_header_result result = proxy_header_parse(data, length, &header);

    cr_assert_eq(result, PROXY_HEADER_BAD, "%s: %d", data, (int)result);
    cr_assert_not_null(strstr(header.why, why), "%s: %s", data, header.why);
}

Test(proxy_header, lines)
{
    const char *const lines[][2] = {
        {"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", "192.168.0.1:56324"},
        {"PROXY TCP4 255.255.255.255 0.0.0.0 0 65535\r\n", "255.255.255.255:0"},
        {"PROXY TCP6 ::1 2001:db8::2 1 2\r\n", "[::1]:1"},
        {"PROXY TCP6 ffff:f:f:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
         "[ffff:f:f:ffff:ffff:ffff:ffff:ffff]:65535"},
        {"PROXY UNKNOWN\r\n", "-"},
        {"PROXY UNKNOWN ffff::1 anything at all\r\n", "-"},
    };

    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        assert_whole(lines[i][0], strlen(lines[i][0]), true, lines[i][1]);
    }
}

Test(proxy_header, faulty_lines)
{
    /* What is wrong with those that stand between bars. */
    static const char *const lines[][2] = {
        {"neither TCP4, TCP6 nor UNKNOWN", "PROXY \r\n|PROXY TCP4\r\n|PROXY TCP5 1.1.1.1 2.2.2.2 1 2\r\n|"
                                           "PROXY tcp4 1.1.1.1 2.2.2.2 1 2\r\n|PROXY  TCP4 1.1.1.1 2.2.2.2 1 2\r\n|"
                                           "PROXY UNKNOWNX\r\n"},
        {"addresses or ports",
         "PROXY TCP4 \r\n|PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n|PROXY TCP4 1.1.1.1 2.2.2.2 1 \r\n|"
         "PROXY TCP4 1.1.1.1 2.2.2.2 1 2 \r\n|PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n|PROXY TCP4 1.1.1.1  2.2.2.2 1 2\r\n|"
         "PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n\r\n|PROXY TCP4 1.1.1 2.2.2.2 1 2\r\n|PROXY TCP4 ::1 ::1 1 2\r\n|"
         "PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n|PROXY TCP4 1.1.1.1 x 1 2\r\n|PROXY TCP4 1.1.1.1 2.2.2.2 65536 2\r\n|"
         "PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n|PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n|"
         "PROXY TCP4 1.1.1.1 2.2.2.2 1 99999999999\r\n|PROXY TCP6 ::1%lo ::1 1 2\r\n"},
        {"something else", "PROXX|GET / HTTP/1.1\r\n|\r\n\r\n\r\n"},
        {"a Redis request without", "*1\r\n$4\r\nPING\r\n"},
        {"TLS without", "\x16\x03\x01"},
    };

    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        char *copy = strdup(lines[i][1]), *rest = copy;
        for (char *line = strsep(&rest, "|"); line != NULL; line = strsep(&rest, "|")) {
            assert_bad(line, strlen(line), lines[i][0]);
        }
        free(copy);
    }
    assert_bad("PROXY TCP4 1.1.1.1\0 2.2.2.2 1 2\r\n", 33, "addresses or ports");
}

Test(proxy_header, long_lines)
{
    char line[200] = "PROXY UNKNOWN ";

    memset(line + 14, 'x', sizeof line - 15);
    memcpy(line + 105, "\r\n", 3);
    assert_whole(line, 107, true, "-");
    memset(line + 105, 'x', 20);
    memcpy(line + 106, "\r\n", 3);
    assert_bad(line, 108, "more than 107 bytes");
    assert_bad(line, 107, "more than 107 bytes");
}

/* A binary header of the version and command, family and announced length, with so many zero bytes behind it. */
static size_t binary(char *data, int command, int family, size_t announced, size_t bytes)
{
    memcpy(data, SIGNATURE, 12);
    data[12] = (char)command;
    data[13] = (char)family;
    data[14] = (char)(announced >> 8);
    data[15] = (char)announced;
    memset(data + 16, 0, bytes);
    return 16 + bytes;
}

Test(proxy_header, binary)
{
    char data[1024];

    binary(data, 0x21, 0x11, 12, 12);
    memcpy(data + 16, "\x0a\x00\x00\x07\x0a\x00\x00\x01\xdc\x04\x18\xeb", 12);
    assert_whole(data, 28, true, "10.0.0.7:56324");
    binary(data, 0x21, 0x11, 12 + 300, 12 + 300);
    assert_whole(data, 28 + 300, true, "0.0.0.0:0");
    binary(data, 0x21, 0x21, 36, 36);
    memcpy(data + 16, "\x20\x01\x0d\xb8", 4);
    data[31] = 5;
    memcpy(data + 48, "\x18\xeb\x00\x01", 4);
    assert_whole(data, 52, true, "[2001:db8::5]:6379");
    binary(data, 0x21, 0x31, 216, 216);
    memcpy(data + 16, "/run/client.sock", 16);
    assert_whole(data, 232, true, "unix");
    assert_whole(data, binary(data, 0x21, 0x31, 216 + 100, 216 + 100), true, "unix");
    assert_whole(data, binary(data, 0x20, 0x00, 0, 0), false, "-");
    assert_whole(data, binary(data, 0x20, 0x11, 12, 12), false, "-");
    assert_whole(data, binary(data, 0x20, 0x00, 40, 40), false, "-");
    assert_whole(data, binary(data, 0x21, 0x00, 0, 0), true, "-");
    assert_whole(data, binary(data, 0x21, 0x00, 500, 500), true, "-");
}

Test(proxy_header, faulty_binary)
{
    char data[1024];

    assert_bad(data, binary(data, 0x11, 0x11, 12, 12), "version or command");
    assert_bad(data, binary(data, 0x22, 0x11, 12, 12), "version or command");
    assert_bad(data, binary(data, 0x2f, 0x11, 12, 12), "version or command");
    assert_bad(data, binary(data, 0x21, 0x12, 12, 12), "another protocol");
    assert_bad(data, binary(data, 0x21, 0x41, 12, 12), "another protocol");
    assert_bad(data, binary(data, 0x21, 0x10, 12, 12), "another protocol");
    assert_bad(data, binary(data, 0x21, 0x01, 12, 12), "another protocol");
    assert_bad(data, binary(data, 0x21, 0x11, 11, 12), "shorter than its addresses");
    assert_bad(data, binary(data, 0x21, 0x21, 35, 36), "shorter than its addresses");
    assert_bad(data, binary(data, 0x21, 0x31, 215, 216), "shorter than its addresses");
    assert_bad(data, binary(data, 0x21, 0x11, 0, 0), "shorter than its addresses");
    binary(data, 0x11, 0x11, 12, 12);
    assert_bad(data, 13, "version or command");
    data[11] = 'x';
    assert_bad(data, 12, "something else");
}
