/* Addresses as tests write them. */
#ifndef HEADGATE_TESTS_ADDRESS_H
#define HEADGATE_TESTS_ADDRESS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* Of IPv4 or IPv6; any other text is a Unix socket. */
static inline struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage address = {.ss_family = AF_UNIX};

    if (inet_pton(AF_INET, text, &((struct sockaddr_in *)(void *)&address)->sin_addr) == 1) {
        address.ss_family = AF_INET;
    } else if (inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)(void *)&address)->sin6_addr) == 1) {
        address.ss_family = AF_INET6;
    }
    return address;
}

#endif
