#include "net/proxy_header.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

/* Of version 1, with its CR LF. */
#define LINE_MAX_BYTES 107
#define BINARY_FIXED 16
#define SIGNATURE_BYTES 12

static const char line_start[] = "PROXY ";
static const char signature[] = "\r\n\r\n\0\r\nQUIT\n";

static enum proxy_header_result bad(struct proxy_header *header, const char *why)
{
    header->why = why;
    return PROXY_HEADER_BAD;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- version 1 ---- */

/* A word of the line, behind one blank; words are taken from left to right. */
struct line {
    const char *at;
    const char *end;
};

static bool next_word(struct line *line, char word[INET6_ADDRSTRLEN])
{
    const char *blank = memchr(line->at, ' ', (size_t)(line->end - line->at));
    size_t length = (size_t)((blank != NULL ? blank : line->end) - line->at);

    if (length == 0 || length >= INET6_ADDRSTRLEN || memchr(line->at, '\0', length) != NULL) {
        return false;
    }
    memcpy(word, line->at, length);
    word[length] = '\0';
    line->at += length + (blank != NULL ? 1 : 0);
    return blank == NULL || line->at < line->end;
}

/* Without a sign, blanks or zeros ahead. */
static bool read_port(const char *text, in_port_t *port)
{
    uint32_t value = 0;
    size_t length = strspn(text, "0123456789");

    if (length == 0 || length > 5 || text[length] != '\0' || (text[0] == '0' && length > 1)) {
        return false;
    }
    for (; *text != '\0'; text++) {
        value = value * 10 + (uint32_t)(*text - '0');
    }
    *port = htons((uint16_t)value);
    return value <= UINT16_MAX;
}

static bool take_address(int family, const char *text, struct sockaddr_storage *address)
{
    struct sockaddr_in *ipv4 = (struct sockaddr_in *)(void *)address;
    struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *)(void *)address;

    address->ss_family = (sa_family_t)family;
    return inet_pton(family, text, family == AF_INET ? (void *)&ipv4->sin_addr : (void *)&ipv6->sin6_addr) == 1;
}

/* Where the client connected is checked, and forgotten. */
static bool take_addresses(int family, struct line line, struct sockaddr_storage *address)
{
    char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN], from_port[INET6_ADDRSTRLEN], to_port[INET6_ADDRSTRLEN];
    struct sockaddr_storage other = {0};
    in_port_t port, other_port;

    if (!next_word(&line, from) || !next_word(&line, to) || !next_word(&line, from_port) ||
        !next_word(&line, to_port) || line.at != line.end || line.end[-1] == ' ') {
        return false;
    }
    if (!take_address(family, from, address) || !take_address(family, to, &other) || !read_port(from_port, &port) ||
        !read_port(to_port, &other_port)) {
        return false;
    }
    if (family == AF_INET) {
        ((struct sockaddr_in *)(void *)address)->sin_port = port;
    } else {
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = port;
    }
    return true;
}

static bool has_protocol(const struct line *line, const char *protocol)
{
    size_t length = strlen(protocol);

    return (size_t)(line->end - line->at) > length && memcmp(line->at, protocol, length) == 0 &&
           line->at[length] == ' ';
}

/* line: what stands between "PROXY " and the line's end. */
static enum proxy_header_result take_line(struct line line, struct proxy_header *header)
{
    static const char unknown[] = "UNKNOWN";
    size_t length = (size_t)(line.end - line.at);
    bool is_ipv4 = has_protocol(&line, "TCP4"), is_ipv6 = has_protocol(&line, "TCP6");

    header->is_proxied = true;
    if (length >= sizeof unknown - 1 && memcmp(line.at, unknown, sizeof unknown - 1) == 0 &&
        (length == sizeof unknown - 1 || line.at[sizeof unknown - 1] == ' ')) {
        return PROXY_HEADER_WHOLE;
    }
    if (!is_ipv4 && !is_ipv6) {
        return bad(header, "a PROXY line with neither TCP4, TCP6 nor UNKNOWN");
    }
    line.at += sizeof "TCP4 " - 1;
    header->has_address = take_addresses(is_ipv4 ? AF_INET : AF_INET6, line, &header->address);
    return header->has_address ? PROXY_HEADER_WHOLE : bad(header, "a PROXY line with faulty addresses or ports");
}

static enum proxy_header_result parse_line(const char *data, size_t length, struct proxy_header *header)
{
    const char *end = memmem(data, least(length, LINE_MAX_BYTES), "\r\n", 2);

    if (end == NULL) {
        return length < LINE_MAX_BYTES ? PROXY_HEADER_PARTIAL : bad(header, "a PROXY line of more than 107 bytes");
    }
    if ((size_t)(end - data) < sizeof line_start - 1) {
        return bad(header, "a PROXY line that ends too early");
    }
    header->length = (size_t)(end - data) + 2;
    return take_line((struct line){data + sizeof line_start - 1, end}, header);
}

/* ---- version 2 ---- */

/* The bytes of addresses and ports, and where the source's port lies. */
struct family {
    unsigned char code;
    sa_family_t family;
    size_t bytes;
};

static const struct family families[] = {
    {0x11, AF_INET, 12},
    {0x21, AF_INET6, 36},
    {0x31, AF_UNIX, 216},
};

static void take_binary_address(const char *data, sa_family_t family, struct sockaddr_storage *address)
{
    struct sockaddr_in *ipv4 = (struct sockaddr_in *)(void *)address;
    struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *)(void *)address;

    address->ss_family = family;
    if (family == AF_INET) {
        memcpy(&ipv4->sin_addr, data, 4);
        memcpy(&ipv4->sin_port, data + 8, 2);
    } else if (family == AF_INET6) {
        memcpy(&ipv6->sin6_addr, data, 16);
        memcpy(&ipv6->sin6_port, data + 32, 2);
    }
}

static const struct family *find_family(unsigned char code)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (families[i].code == code) {
            return &families[i];
        }
    }
    return NULL;
}

/* data: BINARY_FIXED bytes and what came behind them. */
static enum proxy_header_result take_family(const char *data, size_t length, struct proxy_header *header)
{
    unsigned char code = (unsigned char)data[13];
    const struct family *family = find_family(code);

    if (code == 0) {
        return PROXY_HEADER_WHOLE;
    }
    if (family == NULL) {
        return bad(header, "a PROXY header for another protocol than TCP and Unix sockets");
    }
    if (header->length < BINARY_FIXED + family->bytes) {
        return bad(header, "a PROXY header that is shorter than its addresses");
    }
    if (length < BINARY_FIXED + family->bytes) {
        return PROXY_HEADER_PARTIAL;
    }
    header->has_address = true;
    take_binary_address(data + BINARY_FIXED, family->family, &header->address);
    return PROXY_HEADER_WHOLE;
}

static enum proxy_header_result parse_binary(const char *data, size_t length, struct proxy_header *header)
{
    unsigned char command;

    if (length > SIGNATURE_BYTES &&
        ((unsigned char)data[SIGNATURE_BYTES] >> 4 != 2 || ((unsigned char)data[SIGNATURE_BYTES] & 0xf) > 1)) {
        return bad(header, "a PROXY header of an unknown version or command");
    }
    if (length < BINARY_FIXED) {
        return PROXY_HEADER_PARTIAL;
    }
    command = (unsigned char)data[SIGNATURE_BYTES] & 0xf;
    header->length = BINARY_FIXED + ((size_t)(unsigned char)data[14] << 8 | (unsigned char)data[15]);
    if (command == 0) {
        return PROXY_HEADER_WHOLE;
    }
    header->is_proxied = true;
    return take_family(data, length, header);
}

/* ---- either ---- */

/* What it may be instead, as far as its first byte tells. */
static const char *guess(const char *data)
{
    switch (data[0]) {
    case 0x16:
        return "TLS without a PROXY header ahead";
    case '*':
        return "a Redis request without a PROXY header ahead";
    default:
        return "something else than a PROXY header";
    }
}

static bool begins_with(const char *data, size_t length, const char *start, size_t start_length)
{
    return length >= start_length && memcmp(data, start, start_length) == 0;
}

bool proxy_header_begins(const char *data, size_t length)
{
    static const char *const lines[] = {"PROXY TCP4 ", "PROXY TCP6 ", "PROXY UNKNOWN"};
    bool begins = begins_with(data, length, signature, SIGNATURE_BYTES);

    for (size_t i = 0; !begins && i < sizeof lines / sizeof lines[0]; i++) {
        begins = begins_with(data, length, lines[i], strlen(lines[i]));
    }
    return begins;
}

enum proxy_header_result proxy_header_parse(const char *data, size_t length, struct proxy_header *header)
{
    *header = (struct proxy_header){.length = 0};
    if (length == 0) {
        return PROXY_HEADER_PARTIAL;
    }
    if (memcmp(data, line_start, least(length, sizeof line_start - 1)) == 0) {
        return parse_line(data, length, header);
    }
    if (memcmp(data, signature, least(length, SIGNATURE_BYTES)) == 0) {
        return parse_binary(data, length, header);
    }
    return bad(header, guess(data));
}
