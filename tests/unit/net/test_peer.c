#include "net/peer.h"

#include "../../support/address.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

/* How two sockets are connected: by which address it is listened, and by which connected. */
struct way {
    const char *listens, *connects;
};

static const struct way ways[] = {
    {"127.0.0.1", "127.0.0.1"},
    {"::1", "::1"},
    {"127.0.0.1", "::ffff:127.0.0.1"},
};

/* A connection over loopback whose far end is a process of its own, which may be another user's. */
struct line {
    int listener;
    int near; /* -1: none was accepted */
    pid_t child;
    int orders; /* a byte: close the socket; the end: go */
};

static _Noreturn void far_end(const struct way *way, in_port_t port, uid_t uid, int orders)
{
    struct sockaddr_storage to = address_of(way->connects);
    char order;

    /* It stands at the same place of both kinds. */
    ((struct sockaddr_in *)&to)->sin_port = port;
    if (setuid(uid) != 0) {
        _exit(1);
    }
    int fd = socket(to.ss_family, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
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
    struct sockaddr_storage own = address_of(way->listens);
    socklen_t length = sizeof own;
    int pipes[2];

    line.listener = socket(own.ss_family, SOCK_STREAM, 0);
    cr_assert_eq(bind(line.listener, (struct sockaddr *)&own, length), 0);
    cr_assert_eq(getsockname(line.listener, (struct sockaddr *)&own, &length), 0);
    cr_assert_eq(listen(line.listener, 1), 0);
    cr_assert_eq(pipe(pipes), 0);
    line.child = fork();
    if (line.child == 0) {
        close(pipes[1]);
        far_end(way, ((struct sockaddr_in *)&own)->sin_port, uid, pipes[0]);
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

    cr_expect(peer_find_tcp(line.near, source, &peer, &why), "by %s, source %d: %s", way->connects, source, why);
    cr_expect_eq(peer.uid, uid, "by %s, source %d: %u", way->connects, source, peer.uid);
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
    cr_expect_not(peer_find_tcp(line.near, source, &peer, &why), "by %s, source %d: user %u", way->connects, source,
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
