/* Connections with TLS in an event loop: what is inside them, and no longer in the socket. tests/fuzz/fuzz_tls.c has
 * what becomes of bytes on their way. */
#include "net/connection.h"

#include "../tls/tls_files.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The server's side, and the other one without a loop. */
struct line {
    struct tls_files files;
    struct tls_context *server, *client;
    struct stats stats;
    struct reactor reactor;
    struct event *tick; /* a turn does not last longer */
    struct connection connection;
    struct tls_wire *wire;
    struct tls *peer;
    int peer_fd;
    size_t most; /* it is read until so much is there */
    char got[64];
    size_t got_length;
    unsigned calls;
};

/* Each call reads three bytes. */
static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct line *line = context;
    ssize_t done = connection_read(&line->connection, line->got + line->got_length, 3);

    (void)fd;
    (void)what;
    line->calls++;
    line->got_length += done > 0 ? (size_t)done : 0;
    connection_want_read(&line->connection, line->got_length < line->most);
}

static void on_nothing(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context;
}

static void begin_line(struct line *line, int64_t timeout_ms)
{
    const struct timeval tick = {.tv_usec = 2000};
    struct tls_settings server = tls_files_settings(true), client = tls_files_settings(false);
    int fds[2];

    *line = (struct line){.most = sizeof line->got};
    tls_files_open(&line->files);
    struct tls_identity identity = tls_files_server(&line->files);
    server.certificate = identity.path;
    client.ca = line->files.ca;
    line->server = tls_files_context(&server);
    line->client = tls_files_context(&client);
    cr_assert(reactor_init(&line->reactor, &line->stats));
    line->tick = event_new(line->reactor.base, -1, EV_PERSIST, on_nothing, NULL);
    cr_assert_eq(event_add(line->tick, &tick), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    line->wire = tls_wire_new(&line->reactor.buffers);
    line->peer = tls_new(line->client, line->wire, fds[1], "localhost");
    line->peer_fd = fds[1];
    connection_open(&line->connection, &line->reactor, fds[0], on_readable, on_nothing, line);
    const struct connection_security security = {.context = line->server, .timeout_ms = timeout_ms};
    cr_assert(connection_secure(&line->connection, &security));
    connection_want_read(&line->connection, true);
}

/* Whoever reads has heard that the handshake is done. */
static void open_line(struct line *line)
{
    begin_line(line, 0);
    while (connection_secrecy(&line->connection) == CONNECTION_SECURING || tls_state(line->peer) == TLS_HANDSHAKE) {
        (void)tls_handshake(line->peer);
        cr_assert(reactor_turn(&line->reactor));
    }
    cr_assert_eq(connection_secrecy(&line->connection), CONNECTION_SECURE);
    while (line->calls == 0) {
        cr_assert(reactor_turn(&line->reactor));
    }
}

static void close_line(struct line *line)
{
    connection_close(&line->connection);
    tls_free(line->peer);
    tls_wire_free(line->wire);
    close(line->peer_fd);
    event_free(line->tick);
    reactor_free(&line->reactor);
    tls_context_release(line->server);
    tls_context_release(line->client);
    tls_files_close(&line->files);
}

static void expect_to_get(struct line *line, const char *text)
{
    for (int i = 0; i < 5000 && line->got_length < strlen(text); i++) {
        cr_assert(reactor_turn(&line->reactor));
    }
    cr_expect_eq(line->got_length, strlen(text));
    cr_expect_eq(memcmp(line->got, text, line->got_length), 0, "%.*s", (int)line->got_length, line->got);
}

Test(connection_secure, a_handshake_that_is_not_done_in_time_is_told, .timeout = 60)
{
    struct line line;

    begin_line(&line, 20);
    while (line.calls == 0) {
        cr_assert(reactor_turn(&line.reactor));
    }
    cr_expect_eq(connection_secrecy(&line.connection), CONNECTION_INSECURE);
    cr_expect_not_null(strstr(connection_why(&line.connection), "tls_handshake_timeout"));
    close_line(&line);
}

Test(connection_secure, what_is_left_of_a_read_is_announced_though_the_socket_is_silent, .timeout = 60)
{
    struct line line;

    open_line(&line);
    cr_assert_eq(tls_write(line.peer, "one two ", 8), 8);
    cr_assert_eq(tls_write(line.peer, "three", 5), 5);
    expect_to_get(&line, "one two three");
    close_line(&line);
}

Test(connection_secure, what_waits_goes_with_it_to_another_holder, .timeout = 60)
{
    struct line line, holder = {.most = sizeof holder.got};

    open_line(&line);
    line.most = 3;
    cr_assert_eq(tls_write(line.peer, "one two", 7), 7);
    expect_to_get(&line, "one");
    cr_assert(connection_has_input(&line.connection));
    connection_move(&holder.connection, &line.connection, on_readable, on_nothing, &holder);
    connection_want_read(&holder.connection, true);
    for (int i = 0; i < 5000 && holder.got_length < 4; i++) {
        cr_assert(reactor_turn(&line.reactor));
    }
    cr_expect_eq(holder.got_length, 4);
    cr_expect_eq(memcmp(holder.got, " two", 4), 0);
    cr_expect_not(connection_is_open(&line.connection));
    connection_close(&holder.connection);
    close_line(&line);
}
