/*
 * The header of the PROXY protocol, versions 1 and 2, with which a proxy says whom it has passed on, ahead of all that
 * this client sends. As HAProxy's doc/proxy-protocol.txt has it. Looks at bytes only.
 *
 * Version 2 may have further parts behind the addresses (TLVs, a checksum among them): they are skipped, and believed
 * in nothing.
 */
#ifndef HEADGATE_PROXY_HEADER_H
#define HEADGATE_PROXY_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* So many bytes of any header are enough to say all of it: version 2 with the addresses of Unix sockets. */
#define PROXY_HEADER_ENOUGH 232

enum proxy_header_result {
    PROXY_HEADER_PARTIAL, /* sound as far as it came; fewer bytes than PROXY_HEADER_ENOUGH */
    PROXY_HEADER_WHOLE,
    PROXY_HEADER_BAD
};

struct proxy_header {
    size_t length;                   /* of all of it, what is skipped included: more than was given, perhaps */
    bool is_proxied;                 /* somebody was passed on; else the proxy speaks for itself */
    bool has_address;                /* … and it is said who */
    struct sockaddr_storage address; /* zero bytes where it is not told; AF_UNIX without a path */
    const char *why;                 /* of a bad one: a constant text */
};

/* Whether that is how a header of either version begins, and nothing that Redis would understand. */
bool proxy_header_begins(const char *data, size_t length);

enum proxy_header_result proxy_header_parse(const char *data, size_t length, struct proxy_header *header);

#endif
