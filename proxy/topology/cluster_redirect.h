/* What a node of Redis Cluster says of a request that belongs elsewhere: "-MOVED 3999 127.0.0.1:6381", "-ASK …". */
#ifndef HEADGATE_CLUSTER_REDIRECT_H
#define HEADGATE_CLUSTER_REDIRECT_H

#include "topology/cluster_slot.h"

/* Of a host as text with its NUL, in bytes: that of a name in DNS, and some. */
#define CLUSTER_HOST_MAX 256

struct cluster_redirect {
    bool ask;        /* for this request only; else for the slot from now on */
    bool is_unknown; /* the node does not tell where: "?" in place of a host, as that has no name. The map must know */
    uint16_t slot;
    uint16_t port;
    char host[CLUSTER_HOST_MAX]; /* "": that of the node that has answered */
};

/* Reads an error of a node: with or without the '-' before it and CR LF behind it. False: it is none of these two, or
 * makes no sense; then *redirect is not changed. */
bool cluster_redirect_parse(struct slice error_line, struct cluster_redirect *redirect);

/* The same of "host:port" alone; the host may be an IPv6 address, as it is: "::1:7000". */
bool cluster_redirect_read_endpoint(struct slice endpoint, struct cluster_redirect *redirect);
/* The part before that byte, or all; *rest is what lies behind it. */
struct slice cluster_redirect_take_part(struct slice *rest, char end);

/* Whether it is shorter than CLUSTER_HOST_MAX, and of what stands in names and addresses: it goes to logs, and to the
 * resolver. "" is one. */
bool cluster_redirect_is_host(struct slice host);

#endif
