/* Connections with TLS in an event loop, with another side that does what it should not, or bit by bit. */
#include "secure_line.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RECORD 20000

static void expect_got(const struct line *line, const char *expected)
{
    cr_expect_eq(line->got_length, strlen(expected), "%zu bytes", line->got_length);
    cr_expect(strncmp(line->got, expected, line->got_length) == 0, "%.*s", (int)line->got_length, line->got);
}

/* ---- reading ---- */

Test(connection_secure, what_is_left_of_a_read_is_announced_though_the_socket_is_silent)
{
    struct line line;
    char data[RECORD];

    line_open_secure(&line);
    line.room = 3;
    size_t length = line_seal(&line, "one two ", 8, data, sizeof data);
    length += line_seal(&line, "three", 5, data + length, sizeof data - length);
    line_put(&line, data, length);
    cr_expect(line_await(&line, 13));
    expect_got(&line, "one two three");
    line_close(&line);
}

Test(connection_secure, half_a_record_and_the_end)
{
    struct line line;
    char data[RECORD];

    line_open_secure(&line);
    size_t length = line_seal(&line, "whole", 5, data, sizeof data);
    length += line_seal(&line, "half", 4, data + length, sizeof data - length);
    line_put(&line, data, length - 1);
    shutdown(line.peer_fd, SHUT_WR);
    line_turn(&line);
    expect_got(&line, "whole");
    cr_expect_eq(line.last, 0);
    cr_expect(tls_is_truncated(connection_tls(&line.connection)));
    line_close(&line);
}

static void expect_broken(const struct line *line)
{
    expect_got(line, "good");
    cr_expect_eq(line->last, CONNECTION_BROKEN);
    cr_expect_eq(connection_secrecy(&line->connection), CONNECTION_INSECURE);
    cr_expect_neq(line->why[0], '\0');
}

/* A good record and one of which a bit was changed, cut at that place. */
static void break_record(size_t cut)
{
    struct line line;
    char data[RECORD];

    line_open_secure(&line);
    size_t good = line_seal(&line, "good", 4, data, sizeof data);
    size_t length = good + line_seal(&line, "evil", 4, data + good, sizeof data - good);
    data[length - 1] = (char)(data[length - 1] ^ 1);
    line_put(&line, data, cut < length ? cut : length);
    line_turn(&line);
    if (cut < length) {
        line_put(&line, data + cut, length - cut);
        line_turn(&line);
    }
    expect_broken(&line);
    cr_expect_eq(connection_write(&line.connection, "x", 1), CONNECTION_BROKEN);
    line_close(&line);
}

Test(connection_secure, a_bad_record_in_pieces)
{
    for (size_t cut = 1; cut < 52; cut += 10) {
        break_record(cut);
    }
}

/* ---- writing ---- */

static char *random_bytes(size_t length)
{
    char *bytes = malloc(length);

    cr_assert_not_null(bytes);
    for (size_t i = 0; i < length; i++) {
        bytes[i] = (char)(i * 2654435761U >> 24);
    }
    return bytes;
}

static void begin_to_send(struct line *line, const char *bytes, size_t length)
{
    line->to_send = bytes;
    line->to_send_length = length;
    connection_want_write(&line->connection, true);
}

/* Until the peer has all of it. */
static void expect_to_arrive(struct line *line, const char *bytes, size_t length)
{
    char *arrived = malloc(length + 1);
    size_t got = 0;

    for (int i = 0; i < 5000 && got < length; i++) {
        got += line_open_at_peer(line, arrived + got, length + 1 - got);
        cr_assert(reactor_turn(&line->reactor));
    }
    cr_expect_eq(got, length);
    cr_expect_eq(memcmp(arrived, bytes, length), 0);
    cr_expect_eq(line->to_send_length, 0);
    free(arrived);
}

Test(connection_secure, the_last_byte_is_not_done_before_the_kernel_has_all)
{
    struct line line;
    size_t length = (size_t)1024 * 1024, done = 0;
    char *bytes = random_bytes(length);

    line_open_secure(&line);
    for (ssize_t now = 1; now > 0 && done<length; done += now> 0 ? (size_t)now : 0) {
        now = connection_write(&line.connection, bytes + done, length - done);
    }
    cr_assert_lt(done, length);
    cr_expect_eq(connection_write(&line.connection, bytes + done, 1), CONNECTION_AGAIN);
    begin_to_send(&line, bytes + done, length - done);
    expect_to_arrive(&line, bytes, length);
    line_close(&line);
    free(bytes);
}

Test(connection_secure, new_keys_while_the_socket_is_full)
{
    struct line line;
    const size_t length = (size_t)2 * 1024 * 1024;
    char *bytes = random_bytes(length);

    line_open_secure(&line);
    begin_to_send(&line, bytes, length);
    line_turn(&line);
    cr_assert_gt(line.to_send_length, 0);
    cr_assert_eq(SSL_key_update(line.peer, SSL_KEY_UPDATE_REQUESTED), 1);
    cr_assert_eq(SSL_do_handshake(line.peer), 1);
    cr_assert_eq(SSL_write(line.peer, "meanwhile", 9), 9);
    line_deliver(&line);
    cr_expect(line_await(&line, 9), "it is read though nothing can be written");
    expect_got(&line, "meanwhile");
    expect_to_arrive(&line, bytes, length);
    line_close(&line);
    free(bytes);
}

Test(connection_secure, our_end_comes_behind_what_waits)
{
    struct line line;
    const size_t length = (size_t)1024 * 1024;
    char *bytes = random_bytes(length), *arrived = malloc(length);
    size_t done = 0, got = 0;

    line_open_secure(&line);
    for (ssize_t now = 1; now > 0 && done<length; done += now> 0 ? (size_t)now : 0) {
        now = connection_write(&line.connection, bytes + done, length - done);
    }
    cr_assert_lt(done, length);
    connection_end_output(&line.connection);
    for (int i = 0; i < 5000 && SSL_get_shutdown(line.peer) == 0; i++) {
        got += line_open_at_peer(&line, arrived + got, length - got);
        cr_assert(reactor_turn(&line.reactor));
    }
    cr_expect_eq(SSL_get_shutdown(line.peer), SSL_RECEIVED_SHUTDOWN);
    cr_expect_geq(got, done, "what was done has arrived");
    cr_expect_eq(memcmp(arrived, bytes, got), 0);
    cr_assert_eq(SSL_write(line.peer, "still here", 10), 10);
    line_deliver(&line);
    cr_expect(line_await(&line, 10), "the other side may go on");
    line_close(&line);
    free(arrived);
    free(bytes);
}

/* ---- another holder ---- */

struct holder {
    struct connection connection;
    char got[64];
    size_t got_length;
};

static void on_readable_by_holder(evutil_socket_t fd, short what, void *context)
{
    struct holder *holder = context;
    ssize_t done =
        connection_read(&holder->connection, holder->got + holder->got_length, sizeof holder->got - holder->got_length);

    (void)fd;
    (void)what;
    holder->got_length += done > 0 ? (size_t)done : 0;
}

static void on_writable_by_holder(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context;
}

Test(connection_secure, what_waits_goes_with_it_to_another_holder)
{
    static const char all[] = "one two";
    struct line line;
    struct holder holder = {.got_length = 0};

    line_open_secure(&line);
    line.room = line.enough = 3;
    cr_assert_eq(SSL_write(line.peer, all, 7), 7);
    line_deliver(&line);
    line_turn(&line);
    expect_got(&line, "one");
    connection_move(&holder.connection, &line.connection, on_readable_by_holder, on_writable_by_holder, &holder);
    connection_want_read(&holder.connection, true);
    for (int i = 0; i < 5000 && holder.got_length < 4; i++) {
        cr_assert(reactor_turn(&line.reactor));
    }
    cr_expect_eq(holder.got_length, (size_t)4);
    cr_expect_eq(memcmp(holder.got, all + 3, holder.got_length), 0);
    cr_expect_not(connection_is_open(&line.connection));
    connection_close(&holder.connection);
    line_close(&line);
}
