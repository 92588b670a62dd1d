/*
 * Which process is at the other end of a connection, as far as the kernel tells: for a Unix socket, who connected it;
 * for TCP, whose the socket is that is connected to ours, if it is one of this machine (or container). The kernel is
 * asked for that one socket (sock_diag), or if that is not to be had, its table is read (/proc/net). Needs no
 * privileges.
 */
#ifndef HEADGATE_PEER_H
#define HEADGATE_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct peer {
    uid_t uid;            /* of the user who made its socket */
    uint64_t inode;       /* of its socket, by which its process is found (peer_process.h); 0 for a Unix socket */
    pid_t pid;            /* of a Unix socket: who connected it; 0: that process cannot be seen from here */
    int64_t connected_us; /* the connection was there by then, by clock_now_us(); 0: not known. The caller's to set */
};

/* How to look. */
enum peer_source {
    PEER_BY_QUESTION, /* one question to the kernel */
    PEER_BY_TABLE     /* all sockets there are */
};

/* Who is at the other end of fd. False, with *why set to a constant text, if that cannot be told: it is on another
 * machine, is gone, or the kernel does not say. Takes some µs, and some ms where only the table is to be had. */
bool peer_find(int fd, struct peer *peer, const char **why);

/* The same for a TCP socket, by one of the sources. */
bool peer_find_tcp(int fd, enum peer_source source, struct peer *peer, const char **why);

#endif
