#include "base/subnet.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* The address of IPv4 within IPv6 (RFC 4291, 2.5.5.2). */
static void map_ipv4(const void *ipv4, uint8_t address[SUBNET_ADDRESS_BYTES])
{
    memset(address, 0, SUBNET_ADDRESS_BYTES);
    memset(address + 10, 0xff, 2);
    memcpy(address + 12, ipv4, 4);
}

static bool read_prefix(const char *text, unsigned int most, unsigned int *prefix)
{
    char *end;
    unsigned long bits = strtoul(text, &end, 10);

    *prefix = (unsigned int)bits;
    return *text >= '0' && *text <= '9' && *end == '\0' && bits <= most;
}

bool subnet_parse(struct subnet *subnet, struct slice text)
{
    char copy[64];
    uint8_t ipv4[4];
    unsigned int prefix = 0;

    if (text.length >= sizeof copy || memchr(text.data, '\0', text.length) != NULL) {
        return false;
    }
    memcpy(copy, text.data, text.length);
    copy[text.length] = '\0';
    char *slash = strchr(copy, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    if (inet_pton(AF_INET, copy, ipv4) == 1) {
        bool sound = slash == NULL || read_prefix(slash + 1, 32, &prefix);
        map_ipv4(ipv4, subnet->address);
        subnet->prefix = 96 + (slash != NULL ? prefix : 32);
        return sound;
    }
    bool sound =
        inet_pton(AF_INET6, copy, subnet->address) == 1 && (slash == NULL || read_prefix(slash + 1, 128, &prefix));
    subnet->prefix = slash != NULL ? prefix : 128;
    return sound;
}

bool subnet_has(const struct subnet *subnet, const struct sockaddr_storage *from)
{
    const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)(const void *)from;
    const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)(const void *)from;
    uint8_t address[SUBNET_ADDRESS_BYTES];
    unsigned int whole = subnet->prefix / 8, rest = subnet->prefix % 8;

    if (from->ss_family == AF_INET) {
        map_ipv4(&ipv4->sin_addr, address);
    } else if (from->ss_family == AF_INET6) {
        memcpy(address, &ipv6->sin6_addr, SUBNET_ADDRESS_BYTES);
    } else {
        return false;
    }
    if (memcmp(address, subnet->address, whole) != 0) {
        return false;
    }
    return rest == 0 || (address[whole] ^ subnet->address[whole]) >> (8 - rest) == 0;
}

bool subnet_is_all(const struct subnet *subnet)
{
    uint8_t ipv4[SUBNET_ADDRESS_BYTES];
    const uint8_t any[4] = {0};

    map_ipv4(any, ipv4);
    return subnet->prefix == 0 || (subnet->prefix == 96 && memcmp(subnet->address, ipv4, 12) == 0);
}
