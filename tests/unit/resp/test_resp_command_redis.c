/* The framing of commands: the word of a real Redis on what is wrong and what is not. */
#include "framer_fixture.h"

#include "../command/server_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Sends the bytes on a fresh connection and reads all that comes until Redis closes. Returns the length. */
static size_t ask_redis(struct slice bytes, char *reply, size_t size)
{
    redisContext *connection = server_connect();
    size_t length = 0;
    ssize_t got;

    cr_assert_eq(send(connection->fd, bytes.data, bytes.length, MSG_NOSIGNAL), (ssize_t)bytes.length, "send");
    while ((got = recv(connection->fd, reply + length, size - 1 - length, 0)) > 0) {
        length += (size_t)got;
    }
    cr_assert(got == 0 || errno == ECONNRESET, "Redis does not close: %s", strerror(errno));
    reply[length] = '\0';
    redisFree(connection);
    return length;
}

/* ---- what it says ---- */

static void assert_same_fault(struct slice bytes)
{
    struct resp_command command = {0};
    char ours[128];
    char theirs[256];
    size_t length;

    cr_assert_eq(feed_whole(&command, bytes), RESP_FAULT, "%.40s", bytes.data);
    length = resp_command_fault_text(&command, ours, sizeof(ours));
    cr_assert_eq(length, strlen(ours), "length of %s", ours);
    ask_redis(bytes, theirs, sizeof(theirs));
    cr_assert_str_eq(ours, theirs, "%.40s", bytes.data);
}

Test(resp_command_redis, faults_read_as_those_of_redis, .init = server_start, .fini = server_stop)
{
    for (size_t i = 0; i < unsound_count; i++) {
        if (unsound[i].fault != RESP_COMMAND_BAD_TERMINATOR) {
            assert_same_fault(unsound[i].bytes);
        }
    }
    for (size_t i = 0; i < endless_count; i++) {
        struct slice line = long_line(endless[i].before, endless[i].line, RESP_LINE_MAX + 1);

        assert_same_fault(line);
        free((char *)(uintptr_t)line.data);
    }
}

Test(resp_command_redis, redis_skips_what_has_nothing_to_run, .init = server_start, .fini = server_stop)
{
    struct slice bytes = TEXT("*0\r\n*-1\r\n*-9223372036854775808\r\n\r\n\n \t\v\f\r \r\nQUIT\r\n");
    char reply[256];

    ask_redis(bytes, reply, sizeof(reply));
    cr_assert_str_eq(reply, "+OK\r\n", "%s", reply);
}

static size_t ask_and_quit(struct slice command, char *reply, size_t size)
{
    char bytes[1024];

    cr_assert(command.length + 6 <= sizeof(bytes), "room for QUIT");
    memcpy(bytes, command.data, command.length);
    memcpy(bytes + command.length, "QUIT\r\n", 6);
    return ask_redis((struct slice){bytes, command.length + 6}, reply, size);
}

/* What Redis answers to the inline command it must answer to our multibulk form of it. */
static void assert_same_quoting(struct slice line)
{
    struct resp_command command = {.fault = RESP_COMMAND_BAD_QUOTES};
    char multibulk[1024];
    char ours[2048];
    char theirs[2048];
    size_t length = resp_inline_to_multibulk(line, multibulk, sizeof(multibulk));
    size_t got = ask_and_quit(line, theirs, sizeof(theirs));

    if (length == SIZE_MAX) {
        cr_assert_eq(resp_command_fault_text(&command, ours, sizeof(ours)), got, "%s gets %s", line.data, theirs);
    } else {
        cr_assert(length <= sizeof(multibulk), "%s takes %zu bytes", line.data, length);
        cr_assert_eq(ask_and_quit((struct slice){multibulk, length}, ours, sizeof(ours)), got, "%s", line.data);
    }
    cr_assert_eq(memcmp(ours, theirs, got), 0, "%s: %s is not %s", line.data, ours, theirs);
}

/* A line of what matters to quoting, in an order that nobody would think of. */
static size_t odd_line(char *line, uint32_t *seed)
{
    static const char bytes[] = "\"\"\"'''\\\\\\  \t\v\f\rxx04Fanrtb$";
    size_t length = (size_t)sprintf(line, "EVAL 'return ARGV' 0 ");
    size_t end = length + 3 + *seed % 20;

    for (; length < end; length++) {
        *seed = *seed * 1664525 + 1013904223;
        line[length] = bytes[(*seed >> 16) % (sizeof(bytes) - 1)];
    }
    line[length] = '\n';
    line[length + 1] = '\0';
    return length + 1;
}

Test(resp_command_redis, odd_quotes_mean_what_they_mean_to_redis, .init = server_start, .fini = server_stop)
{
    uint32_t seed = 7;
    char line[64];

    for (int i = 0; i < 1000; i++) {
        size_t length = odd_line(line, &seed);

        assert_same_quoting((struct slice){line, length});
    }
}
