#include "net/peer.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

/* How two sockets are connected: by which address it is listened, and by which connected. */
struct way {
    const char *name;
    bool listens_v6;
    bool connects_v6; /* by a mapped address if it listens by IPv4 */
};

static const struct way ways[] = {
    {"IPv4", false, false},
    {"IPv6", true, true},
    {"a mapped address", false, true},
};

/* A connection over loopback whose far end is a process of its own, which may be another user's. */
struct line {
    int listener;
    int near; /* -1: none was accepted */
    pid_t child;
    int orders; /* a byte: close the socket; the end: go */
};

static struct sockaddr_storage loopback(bool v6, bool mapped, in_port_t port, socklen_t *length)
{
    struct sockaddr_storage address = {0};

    if (v6) {
        struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        if (mapped) {
            in6.sin6_addr = (struct in6_addr){{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}};
        }
        memcpy(&address, &in6, sizeof in6);
        *length = sizeof in6;
    } else {
        const struct sockaddr_in in = {
            .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        memcpy(&address, &in, sizeof in);
        *length = sizeof in;
    }
    return address;
}

static in_port_t port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;

    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    return address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                        : ((struct sockaddr_in6 *)&address)->sin6_port;
}

static _Noreturn void far_end(const struct way *way, in_port_t port, uid_t uid, int orders)
{
    socklen_t length;
    struct sockaddr_storage to = loopback(way->connects_v6, way->connects_v6 && !way->listens_v6, port, &length);
    char order;

    if (setuid(uid) != 0) {
        _exit(1);
    }
    int fd = socket(way->connects_v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, length) != 0) {
        _exit(2);
    }
    if (read(orders, &order, 1) == 1) {
        close(fd);
        (void)!read(orders, &order, 1);
    }
    _exit(0);
}

static struct line open_line(const struct way *way, uid_t uid)
{
    struct line line;
    socklen_t length;
    struct sockaddr_storage own = loopback(way->listens_v6, false, 0, &length);
    int pipes[2];

    line.listener = socket(way->listens_v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(line.listener, (struct sockaddr *)&own, length), 0);
    cr_assert_eq(listen(line.listener, 1), 0);
    cr_assert_eq(pipe(pipes), 0);
    line.child = fork();
    if (line.child == 0) {
        close(pipes[1]);
        far_end(way, port_of(line.listener), uid, pipes[0]);
    }
    close(pipes[0]);
    line.orders = pipes[1];
    line.near = accept(line.listener, NULL, NULL);
    cr_assert_geq(line.near, 0);
    return line;
}

static void close_line(struct line *line)
{
    int status;

    close(line->orders);
    cr_assert_eq(waitpid(line->child, &status, 0), line->child);
    cr_expect_eq(status, 0);
    close(line->near);
    close(line->listener);
}

static void expect_peer(const struct way *way, enum peer_source source, uid_t uid)
{
    struct line line = open_line(way, uid);
    struct peer peer;
    const char *why = NULL;

    cr_expect(peer_find_tcp(line.near, source, &peer, &why), "by %s, source %d: %s", way->name, source, why);
    cr_expect_eq(peer.uid, uid, "by %s, source %d: %u", way->name, source, peer.uid);
    cr_expect_neq(peer.inode, 0);
    close_line(&line);
}

Test(peer, tells_the_user_at_the_other_end)
{
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        for (enum peer_source source = PEER_BY_QUESTION; source <= PEER_BY_TABLE; source++) {
            expect_peer(&ways[i], source, getuid());
            if (getuid() == 0) {
                expect_peer(&ways[i], source, NOBODY);
            }
        }
    }
}

static void expect_gone(const struct way *way, enum peer_source source)
{
    struct line line = open_line(way, getuid());
    struct peer peer;
    const char *why = NULL;
    char byte = 'x';

    cr_assert_eq(write(line.orders, &byte, 1), 1);
    cr_assert_eq(read(line.near, &byte, 1), 0, "it was closed");
    cr_expect_not(peer_find_tcp(line.near, source, &peer, &why), "by %s, source %d: user %u", way->name, source,
                  peer.uid);
    cr_expect_not_null(why);
    close_line(&line);
}

Test(peer, does_not_take_a_closed_socket_for_one_of_root)
{
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        expect_gone(&ways[i], PEER_BY_QUESTION);
        expect_gone(&ways[i], PEER_BY_TABLE);
    }
}
