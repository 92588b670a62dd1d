#include "limit/limit_name.h"

#include "base/siphash.h"

#include <arpa/inet.h>
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Long names are cut; a digest of the whole keeps them apart. */
#define PART_MAX 64
#define DIGEST_DIGITS 32

/* What the number of a connection and the name of an identity take, which are short. */
#define CONNECTION_MAX (sizeof "\nconnection:" + 20)
#define IDENTITY_MAX (sizeof "\nidentity:" + CONF_RULE_NAME_MAX)
/* What a key cannot do without: its digest. */
#define KEY_LEAST (sizeof "\nkey:#" + DIGEST_DIGITS)

/* All but these and the key take no more than PART_MAX each, and a key what is left. */
static_assert(6 * PART_MAX + CONNECTION_MAX + IDENTITY_MAX + KEY_LEAST <= LIMIT_BUCKET_MAX,
              "no room for all parts of a bucket's name");

/* Of 128 bits, so that nobody comes upon two texts of one digest; with known keys, so that all sidecars agree. */
static void write_digest(char digits[DIGEST_DIGITS + 1], struct slice text)
{
    static const struct siphash_key keys[2] = {{{1, 2}}, {{3, 4}}};

    snprintf(digits, DIGEST_DIGITS + 1, "%016" PRIx64 "%016" PRIx64, siphash(&keys[0], text.data, text.length),
             siphash(&keys[1], text.data, text.length));
}

/* Appends "kind:text" behind a line end, which no user and no name can hold, in room bytes at most. */
static size_t add_part(char *name, size_t length, size_t room, const char *kind, struct slice text)
{
    char digits[DIGEST_DIGITS + 1];
    size_t head = strlen(kind) + (length > 0) + 1;

    if (length > 0) {
        name[length++] = '\n';
    }
    memcpy(name + length, kind, strlen(kind));
    length += strlen(kind);
    name[length++] = ':';
    /* A part that fills its room is always a cut one: so no short text can pass for a long one. */
    if (head + text.length >= room) {
        write_digest(digits, text);
        size_t kept = room - head - DIGEST_DIGITS - 1;
        memcpy(name + length, text.data, kept);
        name[length + kept] = '#';
        memcpy(name + length + kept + 1, digits, DIGEST_DIGITS);
        return length + kept + 1 + DIGEST_DIGITS;
    }
    memcpy(name + length, text.data, text.length);
    return length + text.length;
}

static void keep_bits(uint8_t *address, size_t bytes, unsigned int bits)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned int left = bits > 8 * i ? bits - (unsigned int)(8 * i) : 0;
        address[i] &= (uint8_t)(left >= 8 ? 0xff : 0xff00 >> left);
    }
}

/* The network of the client's address, as text: "10.1.0.0/16", "::1", "unix". */
static void write_network(unsigned int ipv4_bits, unsigned int ipv6_bits, const struct sockaddr_storage *from,
                          char *text, size_t size)
{
    const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)(const void *)from;
    const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)(const void *)from;
    uint8_t address[16];
    bool mapped = from->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&ipv6->sin6_addr);
    bool is_ipv4 = from->ss_family == AF_INET || mapped;
    unsigned int bits = is_ipv4 ? ipv4_bits : ipv6_bits;

    if (from->ss_family != AF_INET && from->ss_family != AF_INET6) {
        snprintf(text, size, "unix");
        return;
    }
    if (is_ipv4) {
        memcpy(address, mapped ? (const uint8_t *)&ipv6->sin6_addr + 12 : (const uint8_t *)&ipv4->sin_addr, 4);
    } else {
        memcpy(address, &ipv6->sin6_addr, 16);
    }
    keep_bits(address, is_ipv4 ? 4 : 16, bits);
    (void)inet_ntop(is_ipv4 ? AF_INET : AF_INET6, address, text, (socklen_t)size);
    if (bits < (is_ipv4 ? 32U : 128U)) {
        size_t length = strlen(text);
        snprintf(text + length, size - length, "/%u", bits);
    }
}

bool limit_name_wants_peer(const struct limit_rule *rule)
{
    return rule->per.process || rule->per.uid;
}

/* Bytes of "HOST/PID/STARTED", or of a host before an address. */
#define WHO_MAX (CONF_HOST_NAME_MAX + 64)

/* Sidecars that count together must not take processes of different machines for one. */
static size_t write_host(const struct limit_rule *rule, const char *host, char text[WHO_MAX])
{
    return rule->scope == LIMIT_GLOBAL ? (size_t)snprintf(text, WHO_MAX, "%.*s/", CONF_HOST_NAME_MAX, host) : 0;
}

/* What stands before an address of this machine, so that it does not read as that of another one; before a uid. */
#define UNTOLD "untold"
#define OF_USER "uid"

static bool is_of_this_machine(const struct sockaddr_storage *from)
{
    char address[INET6_ADDRSTRLEN];

    write_network(32, 128, from, address, sizeof address);
    return strcmp(address, "unix") == 0 || strcmp(address, "::1") == 0 || strncmp(address, "127.", 4) == 0;
}

/* Who has no process or user that can be told is known by its address, which may be everybody's on this machine. */
static void write_stranger(const struct limit_rule *rule, const struct policy_client *client, const char *host,
                           char text[WHO_MAX])
{
    char address[INET6_ADDRSTRLEN];

    write_network(32, 128, client->address, address, sizeof address);
    bool is_local = is_of_this_machine(client->address);
    size_t length = is_local ? write_host(rule, host, text) : 0;
    snprintf(text + length, WHO_MAX - length, "%s%s", is_local ? UNTOLD "/" : "", address);
}

/* "4711/8812133", as numbers are used again: the process and when it was started; with scope = global
 * "web1/4711/8812133"; "uid/1000" for who hides it; "10.0.0.7" on another machine. */
static void write_process(const struct limit_rule *rule, const struct policy_client *client,
                          const struct policy_peer *peer, const char *host, char text[WHO_MAX])
{
    if (peer->pid == 0 && !peer->has_uid) {
        write_stranger(rule, client, host, text);
        return;
    }
    size_t length = write_host(rule, host, text);
    if (peer->pid == 0) {
        snprintf(text + length, WHO_MAX - length, OF_USER "/%lu", (unsigned long)peer->uid);
    } else {
        snprintf(text + length, WHO_MAX - length, "%" PRId64 "/%" PRIu64, peer->pid, peer->started);
    }
}

static void write_uid(const struct limit_rule *rule, const struct policy_client *client, const struct policy_peer *peer,
                      const char *host, char text[WHO_MAX])
{
    if (peer->has_uid) {
        snprintf(text, WHO_MAX, "%lu", (unsigned long)peer->uid);
    } else {
        write_stranger(rule, client, host, text);
    }
}

static size_t name_peer(const struct limit_rule *rule, const struct policy_client *client,
                        const struct policy_peer *peer, const char *host, char *name, size_t length)
{
    char text[WHO_MAX];

    if (rule->per.process) {
        write_process(rule, client, peer, host, text);
        length = add_part(name, length, PART_MAX, "process", slice_of(text));
    }
    if (rule->per.uid) {
        write_uid(rule, client, peer, host, text);
        length = add_part(name, length, PART_MAX, "uid", slice_of(text));
    }
    if (rule->per.host) {
        length = add_part(name, length, PART_MAX, "host", slice_of(host));
    }
    return length;
}

bool limit_name_lacks_process(const struct limit_rule *rule, const struct policy_client *client,
                              const struct policy_peer *peer)
{
    return rule->per.process && peer->pid == 0 && (peer->has_uid || is_of_this_machine(client->address));
}

/* Where the last two parts of "HOST/uid/1000" begin; NULL if there are fewer. */
static const char *last_two_parts(struct slice who)
{
    size_t at = who.length, bars = 0;

    while (at > 0) {
        bars += who.data[at - 1] == '/';
        if (bars == 2) {
            break;
        }
        at--;
    }
    return bars > 0 ? who.data + at : NULL;
}

size_t limit_name_write_sharers(const struct limit_rule *rule, struct slice bucket, char text[LIMIT_SHARERS_MAX])
{
    static const char kind[] = "process:", of_user[] = OF_USER "/", untold[] = UNTOLD "/";

    if (!rule->per.process || bucket.length < sizeof kind || memcmp(bucket.data, kind, sizeof kind - 1) != 0) {
        return 0;
    }
    const char *line_end = memchr(bucket.data, '\n', bucket.length);
    const char *end = line_end != NULL ? line_end : bucket.data + bucket.length;
    const char *begin = bucket.data + sizeof kind - 1;
    const char *who = last_two_parts((struct slice){begin, (size_t)(end - begin)});
    size_t length = who != NULL ? (size_t)(end - who) : 0;
    int written = 0;

    if (length >= sizeof of_user && memcmp(who, of_user, sizeof of_user - 1) == 0) {
        size_t digits = length - (sizeof of_user - 1);
        written = snprintf(text, LIMIT_SHARERS_MAX, " (those of user %.*s as one)", (int)(digits < 20 ? digits : 20),
                           who + sizeof of_user - 1);
    } else if (length >= sizeof untold && memcmp(who, untold, sizeof untold - 1) == 0) {
        written = snprintf(text, LIMIT_SHARERS_MAX, " (those that cannot be told as one)");
    }
    return (size_t)written;
}

size_t limit_name_client(const struct limit_rule *rule, const struct policy_client *client,
                         const struct policy_peer *peer, const char *host, char name[LIMIT_BUCKET_MAX])
{
    char text[INET6_ADDRSTRLEN + 8];
    size_t length = name_peer(rule, client, peer, host, name, 0);

    if (rule->per.ip) {
        write_network(rule->per.ipv4_bits, rule->per.ipv6_bits, client->address, text, sizeof text);
        length = add_part(name, length, PART_MAX, "ip", slice_of(text));
    }
    if (rule->per.user) {
        length = add_part(name, length, PART_MAX, "user", slice_of(client->user));
    }
    if (rule->per.name) {
        length = add_part(name, length, PART_MAX, "name", slice_of(client->name));
    }
    if (rule->per.identity) {
        length = add_part(name, length, PART_MAX, "identity", slice_of(client->identity_name));
    }
    if (rule->per.connection) {
        snprintf(text, sizeof text, "%" PRIu64, client->id);
        length = add_part(name, length, PART_MAX, "connection", slice_of(text));
    }
    if (length == 0 && !rule->per.key) {
        memcpy(name, "all", 3);
        length = 3;
    }
    return length;
}

size_t limit_name_key(char name[LIMIT_BUCKET_MAX], size_t length, struct slice key)
{
    return add_part(name, length, LIMIT_BUCKET_MAX - length, "key", key);
}
