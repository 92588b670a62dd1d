/* Networks, as options name them: an address, or as many of its bits as count. */
#ifndef HEADGATE_SUBNET_H
#define HEADGATE_SUBNET_H

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define SUBNET_ADDRESS_BYTES 16

struct subnet {
    uint8_t address[SUBNET_ADDRESS_BYTES]; /* IPv6; IPv4 as ::ffff:a.b.c.d */
    unsigned int prefix;                   /* bits of it that count */
};

/* text: ADDRESS or ADDRESS/BITS. False if it is neither. */
bool subnet_parse(struct subnet *subnet, struct slice text);
/* Whether the address is one of the network; one of a Unix socket is of none. */
bool subnet_has(const struct subnet *subnet, const struct sockaddr_storage *address);
/* Whether it has all addresses of IPv4, or all of IPv6. */
bool subnet_is_all(const struct subnet *subnet);

#endif
