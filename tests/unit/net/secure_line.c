#include "secure_line.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TICK_MS 2
#define TURNS_MOST 5000

static void note_failure(struct line *line)
{
    if (line->why[0] == '\0') {
        snprintf(line->why, sizeof line->why, "%s", connection_why(&line->connection));
    }
}

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct line *line = context;
    ssize_t done = connection_read(&line->connection, line->got + line->got_length, line->room);

    (void)fd;
    (void)what;
    line->reads++;
    if (done > 0) {
        line->got_length += (size_t)done;
        connection_want_read(&line->connection, line->enough == 0 || line->got_length < line->enough);
        return;
    }
    line->last = done;
    if (done == CONNECTION_BROKEN) {
        note_failure(line);
    }
    if (done != CONNECTION_AGAIN) {
        connection_want_read(&line->connection, false);
    }
}

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    struct line *line = context;

    (void)fd;
    (void)what;
    line->writes++;
    if (line->to_send_length == 0) {
        connection_want_write(&line->connection, false);
        return;
    }
    ssize_t done = connection_write(&line->connection, line->to_send, line->to_send_length);
    if (done == CONNECTION_BROKEN) {
        note_failure(line);
        connection_want_write(&line->connection, false);
    } else if (done > 0) {
        line->to_send += done;
        line->to_send_length -= (size_t)done;
    }
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context;
}

/* ---- life ---- */

static void open_peer(struct line *line)
{
    line->peer_context = SSL_CTX_new(TLS_client_method());
    line->peer = SSL_new(line->peer_context);
    SSL_set_bio(line->peer, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(line->peer);
}

static void open_loop(struct line *line)
{
    const struct timeval tick = {.tv_usec = TICK_MS * 1000L};

    line->stats = calloc(1, sizeof *line->stats);
    cr_assert(reactor_init(&line->reactor, line->stats));
    line->tick = event_new(line->reactor.base, -1, EV_PERSIST, on_tick, NULL);
    cr_assert_eq(event_add(line->tick, &tick), 0);
}

void line_open(struct line *line, int64_t timeout_ms)
{
    struct tls_settings settings = tls_files_settings(true);
    int fds[2];

    memset(line, 0, sizeof *line);
    tls_files_open(&line->files);
    struct tls_identity identity = tls_files_server(&line->files);
    settings.certificate = identity.path;
    line->context = tls_files_context(&settings);
    line->got = malloc(LINE_ROOM);
    line->room = (size_t)64 * 1024;
    open_loop(line);
    open_peer(line);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    line->peer_fd = fds[1];
    connection_open(&line->connection, &line->reactor, fds[0], on_readable, on_writable, line);
    const struct connection_security security = {.context = line->context, .timeout_ms = timeout_ms};
    cr_assert(connection_secure(&line->connection, &security));
    connection_want_read(&line->connection, true);
}

void line_open_secure(struct line *line)
{
    line_open(line, 0);
    while (connection_secrecy(&line->connection) == CONNECTION_SECURING) {
        line_peer_shake_hands(line);
        line_deliver(line);
        line_turn(line);
    }
    cr_assert_eq(connection_secrecy(&line->connection), CONNECTION_SECURE);
    line_peer_shake_hands(line);
    cr_assert_eq(SSL_is_init_finished(line->peer), 1);
}

void line_close(struct line *line)
{
    connection_close(&line->connection);
    SSL_free(line->peer);
    SSL_CTX_free(line->peer_context);
    if (line->peer_fd >= 0) {
        close(line->peer_fd);
    }
    event_free(line->tick);
    reactor_free(&line->reactor);
    free(line->stats);
    free(line->got);
    tls_context_release(line->context);
    tls_files_close(&line->files);
}

/* ---- time ---- */

void line_turn(struct line *line)
{
    for (int i = 0; i < 5; i++) {
        cr_assert(reactor_turn(&line->reactor));
    }
}

void line_await_handshake(struct line *line)
{
    while (connection_secrecy(&line->connection) == CONNECTION_SECURING) {
        line_turn(line);
    }
    line_turn(line);
}

bool line_await(struct line *line, size_t length)
{
    for (int i = 0; i < TURNS_MOST && line->got_length < length; i++) {
        cr_assert(reactor_turn(&line->reactor));
    }
    return line->got_length >= length;
}

/* ---- the peer ---- */

/* What the socket has goes to the peer's memory. */
static void fetch(struct line *line)
{
    char data[16 * 1024];
    ssize_t got = recv(line->peer_fd, data, sizeof data, 0);

    while (got > 0) {
        cr_assert_eq(BIO_write(SSL_get_rbio(line->peer), data, (int)got), (int)got);
        got = recv(line->peer_fd, data, sizeof data, 0);
    }
}

void line_peer_shake_hands(struct line *line)
{
    fetch(line);
    (void)SSL_do_handshake(line->peer);
}

size_t line_take(struct line *line, char *data, size_t size)
{
    int taken = BIO_read(SSL_get_wbio(line->peer), data, (int)size);

    return taken > 0 ? (size_t)taken : 0;
}

size_t line_seal(struct line *line, const char *plain, size_t length, char *data, size_t size)
{
    cr_assert_eq(SSL_write(line->peer, plain, (int)length), (int)length);
    return line_take(line, data, size);
}

void line_put(struct line *line, const char *data, size_t length)
{
    cr_assert_eq(send(line->peer_fd, data, length, MSG_NOSIGNAL), (ssize_t)length);
}

void line_deliver(struct line *line)
{
    char data[4096];

    for (size_t length = line_take(line, data, sizeof data); length > 0; length = line_take(line, data, sizeof data)) {
        line_put(line, data, length);
    }
}

size_t line_open_at_peer(struct line *line, char *data, size_t size)
{
    size_t got = 0;
    int length;

    fetch(line);
    while (got < size && (length = SSL_read(line->peer, data + got, (int)(size - got))) > 0) {
        got += (size_t)length;
    }
    return got;
}
