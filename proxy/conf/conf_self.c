/*
 * Which addresses lead to Headgate itself, and which ones beyond this machine, as far as can be told without asking a
 * name server: numbers, "localhost" and the machine's own name. All are compared as IPv6, IPv4 within it as
 * ::ffff:a.b.c.d (RFC 4291, 2.5.5.2).
 */
#include "conf/conf_private.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <libgen.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOST_ADDRESSES_MAX 64
#define NAME_MAX_BYTES 256

/* Numbers of a host. */
struct numbers {
    struct in6_addr items[HOST_ADDRESSES_MAX];
    size_t count;
};

static struct in6_addr mapped(const void *ipv4)
{
    struct in6_addr address = {0};

    memset(&address.s6_addr[10], 0xff, 2);
    memcpy(&address.s6_addr[12], ipv4, 4);
    return address;
}

/* False: it is of another family. */
static bool number_of(const struct sockaddr *from, struct in6_addr *address)
{
    if (from != NULL && from->sa_family == AF_INET) {
        *address = mapped(&((const struct sockaddr_in *)(const void *)from)->sin_addr);
        return true;
    }
    if (from != NULL && from->sa_family == AF_INET6) {
        *address = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
        return true;
    }
    return false;
}

static void add_number(struct numbers *numbers, const struct in6_addr *address)
{
    if (numbers->count < HOST_ADDRESSES_MAX) {
        numbers->items[numbers->count++] = *address;
    }
}

/* A number in all the spellings that the system takes for one, when Headgate connects as well: 0x7f000001 and 127.1 are
 * 127.0.0.1. Nothing is added for what is a name. */
static void add_text(struct numbers *numbers, const char *text)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    struct in6_addr address;

    if (getaddrinfo(text, NULL, &hints, &found) != 0) {
        return;
    }
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        if (number_of(at->ai_addr, &address)) {
            add_number(numbers, &address);
        }
    }
    freeaddrinfo(found);
}

/* Those of the machine's interfaces. */
static void add_interfaces(struct numbers *numbers)
{
    struct ifaddrs *interfaces = NULL;
    struct in6_addr address;

    if (getifaddrs(&interfaces) != 0) {
        return;
    }
    for (const struct ifaddrs *at = interfaces; at != NULL; at = at->ifa_next) {
        if (number_of(at->ifa_addr, &address)) {
            add_number(numbers, &address);
        }
    }
    freeifaddrs(interfaces);
}

/* How long a name is without the dot that may end it, which says that it is whole (RFC 1034, 3.1). */
static size_t name_length(const char *host)
{
    size_t length = strlen(host);

    return length > 1 && host[length - 1] == '.' ? length - 1 : length;
}

static bool is_name(const char *host, const char *name, size_t name_bytes)
{
    return name_length(host) == name_bytes && strncasecmp(host, name, name_bytes) == 0;
}

static bool is_localhost(const char *host)
{
    static const char suffix[] = ".localhost";
    size_t length = name_length(host), end = sizeof suffix - 1;

    return is_name(host, suffix + 1, end - 1) || (length > end && strncasecmp(host + length - end, suffix, end) == 0);
}

/* The machine's name, whole or up to its first dot. */
static bool is_own_name(const char *host)
{
    char name[NAME_MAX_BYTES] = "";

    if (gethostname(name, sizeof name - 1) != 0 || *name == '\0') {
        return false;
    }
    return is_name(host, name, name_length(name)) || is_name(host, name, strcspn(name, "."));
}

/* None of a name that only others know. */
static struct numbers numbers_of(const char *host)
{
    struct numbers numbers = {.count = 0};

    if (is_localhost(host)) {
        add_text(&numbers, "127.0.0.1");
        add_text(&numbers, "::1");
    } else {
        add_text(&numbers, host);
    }
    if (numbers.count == 0 && is_own_name(host)) {
        /* Which of the machine's addresses that is shows at start; it meets those who listen on all of them. */
        add_text(&numbers, "127.0.1.1");
    }
    return numbers;
}

static bool is_any_ipv4(const struct in6_addr *address)
{
    static const uint8_t none[4];

    return IN6_IS_ADDR_V4MAPPED(address) && memcmp(&address->s6_addr[12], none, 4) == 0;
}

static bool is_loopback(const struct in6_addr *address)
{
    return IN6_IS_ADDR_LOOPBACK(address) || (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
}

static bool is_of_this_machine(const struct in6_addr *address)
{
    struct numbers own = {.count = 0};

    if (is_loopback(address)) {
        return true;
    }
    add_interfaces(&own);
    for (size_t i = 0; i < own.count; i++) {
        if (memcmp(&own.items[i], address, sizeof *address) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether who connects to that address gets to who listens on this one; the ports are the same. To connect to no
 * address is to connect to loopback. */
static bool number_meets(const struct in6_addr *listener, const struct in6_addr *to)
{
    struct in6_addr loopback = IN6ADDR_LOOPBACK_INIT;
    const uint8_t ipv4_loopback[4] = {127, 0, 0, 1};
    struct in6_addr target = *to;

    if (is_any_ipv4(to)) {
        target = mapped(ipv4_loopback);
    } else if (IN6_IS_ADDR_UNSPECIFIED(to)) {
        target = loopback;
    }
    if (is_any_ipv4(listener)) {
        return IN6_IS_ADDR_V4MAPPED(&target) && is_of_this_machine(&target);
    }
    if (IN6_IS_ADDR_UNSPECIFIED(listener)) {
        return !IN6_IS_ADDR_V4MAPPED(&target) && is_of_this_machine(&target);
    }
    return memcmp(listener, &target, sizeof target) == 0;
}

static bool hosts_meet(const char *listener, const char *to)
{
    struct numbers listeners = numbers_of(listener), targets = numbers_of(to);

    for (size_t i = 0; i < listeners.count; i++) {
        for (size_t j = 0; j < targets.count; j++) {
            if (number_meets(&listeners.items[i], &targets.items[j])) {
                return true;
            }
        }
    }
    return is_name(listener, to, name_length(to));
}

/* ---- Unix sockets ---- */

/* The path without links, dots and doubled slashes in its directory; the caller frees it. */
static char *true_path(const char *path)
{
    char *copy = conf_copy(path, strlen(path));
    char *other = conf_copy(path, strlen(path));
    char *directory = realpath(dirname(copy), NULL);
    char *result = directory != NULL ? conf_format("%s/%s", directory, basename(other)) : conf_copy(path, strlen(path));

    free(directory);
    free(other);
    free(copy);
    return result;
}

static bool paths_meet(const char *a, const char *b)
{
    struct stat a_is, b_is;
    char *a_true = true_path(a), *b_true = true_path(b);
    bool same_file =
        stat(a, &a_is) == 0 && stat(b, &b_is) == 0 && a_is.st_dev == b_is.st_dev && a_is.st_ino == b_is.st_ino;
    bool meet = same_file || strcmp(a_true, b_true) == 0;

    free(a_true);
    free(b_true);
    return meet;
}

/* ---- addresses ---- */

bool conf_addresses_meet(const struct conf_address *listener, const struct conf_address *to)
{
    if (listener->path != NULL && to->path != NULL) {
        return paths_meet(listener->path, to->path);
    }
    return listener->host != NULL && to->host != NULL && listener->port == to->port &&
           hosts_meet(listener->host, to->host);
}

bool conf_address_is_beyond(const struct conf_address *address)
{
    if (address->host == NULL || is_localhost(address->host)) {
        return false;
    }
    struct numbers numbers = {.count = 0};
    add_text(&numbers, address->host);
    return numbers.count == 0 || !is_loopback(&numbers.items[0]);
}

static bool meets_socket(const struct conf_address *listener, const struct sockaddr *to)
{
    struct numbers listeners = numbers_of(listener->host);
    struct in6_addr target;
    uint16_t port = to->sa_family == AF_INET ? ((const struct sockaddr_in *)(const void *)to)->sin_port
                                             : ((const struct sockaddr_in6 *)(const void *)to)->sin6_port;

    if (!number_of(to, &target) || ntohs(port) != listener->port) {
        return false;
    }
    for (size_t i = 0; i < listeners.count; i++) {
        if (number_meets(&listeners.items[i], &target)) {
            return true;
        }
    }
    return false;
}

/* The text of the one of the list that leads there; NULL: none does. */
static const char *own_of(const struct conf_address_list *list, const struct sockaddr *to)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].host != NULL && meets_socket(&list->items[i], to)) {
            return list->items[i].text;
        }
    }
    return NULL;
}

const char *conf_own_address(const struct conf *conf, const struct sockaddr *to)
{
    size_t listeners = conf_process_listener_count(conf->process);

    if (to->sa_family != AF_INET && to->sa_family != AF_INET6) {
        return NULL;
    }
    const char *own = own_of(&conf->admin, to);
    own = own != NULL ? own : own_of(&conf->http, to);
    for (size_t i = 0; i < listeners && own == NULL; i++) {
        own = own_of(conf_process_listener_at(conf->process, i).listen, to);
    }
    return own;
}
