/* The framing of commands, and the word of a real Redis on what is wrong and what is not.
 * tests/fuzz/fuzz_resp_command.c cuts them everywhere, and walks over them. */
#include "../command/server_fixture.h"
#include "cut_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BULK_MAX ((uint64_t)512 * 1024 * 1024)

/* ---- feeding ---- */

static enum resp_status feed(void *command, const char *bytes, size_t length, size_t *taken)
{
    return resp_command_feed(command, bytes, length, BULK_MAX, taken);
}

static enum resp_status feed_whole(struct resp_command *command, struct slice bytes)
{
    size_t total;

    return feed_in_pieces(feed, command, bytes, bytes.length, bytes.length, &total);
}

/* ---- frames that are unsound ---- */

/* With semicolons between them. */
static const struct {
    enum resp_command_fault fault;
    const char *frames;
} unsound[] = {
    {RESP_COMMAND_BAD_COUNT,
     "*\r\n;*-\r\n;*-0\r\n;*--1\r\n;*+1\r\n;* 1\r\n;*1 \r\n;*01\r\n;*00\r\n;*1\n\r\n;*three\r\n;*2147483648\r\n;"
     "*9223372036854775808\r\n;*-9223372036854775809\r\n;*18446744073709551617\r\n"},
    {RESP_COMMAND_BAD_LENGTH,
     "*1\r\n$\r\n;*1\r\n$-1\r\n;*1\r\n$+4\r\nPING\r\n;*1\r\n$04\r\nPING\r\n;*1\r\n$4x\r\nPING\r\n;"
     "*1\r\n$536870913\r\n;*1\r\n$18446744073709551620\r\nPING\r\n;*2\r\n$4\r\nECHO\r\n$x\r\n"},
    {RESP_COMMAND_NO_BULK,
     "*1\r\n:4\r\nPING\r\n;*1\r\n\r\n$4\r\nPING\r\n;*1\r\n\n\r\n;*2\r\n$4\r\nECHO\r\n*1\r\n;*1\r\n\377\r\n"},
    {RESP_COMMAND_BAD_TERMINATOR,
     "*1\rX$4\r\nPING\r\n;*0\r\r;*1\r\n$4\r\rPING\r\n;*1\r\n$4\r\nPINGx\n;*1\r\n$4\r\nPING\rx;*1\r\n$4\r\nPING\n\r;"
     "*1\r\n$3\r\nPING\r\n"},
};

/* Lines that go on and on: what is before each, and how it begins. */
static const struct {
    struct slice before, line;
    enum resp_command_fault fault;
} endless[] = {
    {TEXT(""), TEXT("*1"), RESP_COMMAND_LONG_COUNT},
    {TEXT(""), TEXT("*1\0\r\n"), RESP_COMMAND_LONG_COUNT},
    {TEXT("*1\r\n"), TEXT("$1"), RESP_COMMAND_LONG_LENGTH},
    {TEXT("*1\r\n"), TEXT("$4\0\r\nPING\r\n"), RESP_COMMAND_LONG_LENGTH},
    {TEXT(""), TEXT("PING"), RESP_COMMAND_LONG_INLINE},
    {TEXT(""), TEXT("PING\0\r\nPING\r\n"), RESP_COMMAND_LONG_INLINE},
};
#define ENDLESS_COUNT (sizeof endless / sizeof endless[0])

/* What is before the line, and the line with so many 'A' behind it that it has that length. The caller frees it. */
static struct slice long_line(struct slice before, struct slice line, size_t line_length)
{
    size_t length = before.length + line_length;
    char *bytes = malloc(length + 1);

    cr_assert_not_null(bytes, "out of memory");
    memcpy(bytes, before.data, before.length);
    memset(bytes + before.length, 'A', line_length);
    memcpy(bytes + before.length, line.data, line.length);
    bytes[length] = '\0';
    return (struct slice){bytes, length};
}

/* ---- what is sound ---- */

Test(resp_command, takes_a_bulk_as_long_as_allowed)
{
    struct slice frame = TEXT("*1\r\n$10\r\n0123456789\r\n");

    for (uint64_t bulk_max = 9; bulk_max <= 10; bulk_max++) {
        for (size_t cut = 0; cut <= 7; cut++) {
            struct resp_command command = {0};
            size_t taken = 0;
            enum resp_status status = resp_command_feed(&command, frame.data, cut, bulk_max, &taken);

            cr_assert_eq(status, RESP_MORE, "cut at %zu", cut);
            status = resp_command_feed(&command, frame.data + cut, frame.length - cut, bulk_max, &taken);
            cr_assert_eq(status, bulk_max == 10 ? RESP_DONE : RESP_FAULT, "cut at %zu", cut);
        }
    }
}

Test(resp_command, skips_a_bulk_longer_than_32_bits)
{
    static char chunk[1 << 20];
    struct slice header = TEXT("*1\r\n$5368709120\r\n");
    struct resp_command command = {0};
    size_t taken;

    cr_assert_eq(resp_command_feed(&command, header.data, header.length, UINT64_MAX, &taken), RESP_MORE, "header");
    for (size_t i = 0; i < 5120; i++) {
        cr_assert_eq(resp_command_feed(&command, chunk, sizeof(chunk), UINT64_MAX, &taken), RESP_MORE, "chunk");
        cr_assert_eq(taken, sizeof(chunk), "chunk %zu", i);
    }
    cr_assert_eq(resp_command_feed(&command, "\r\n+", 3, UINT64_MAX, &taken), RESP_DONE, "end");
    cr_assert_eq(taken, 2, "only the end is taken");
    cr_assert_eq(command.arguments[0].length, UINT64_C(5368709120), "length of the argument");
    cr_assert_eq(command.size, UINT64_C(5368709120) + header.length + 2, "size of the frame");
}

/* ---- what is not ---- */

static void each_unsound(void (*judge)(const char *frame, enum resp_command_fault fault))
{
    for (size_t i = 0; i < sizeof unsound / sizeof unsound[0]; i++) {
        char *copy = strdup(unsound[i].frames), *rest = copy;
        for (char *frame = strsep(&rest, ";"); frame != NULL; frame = strsep(&rest, ";")) {
            judge(frame, unsound[i].fault);
        }
        free(copy);
    }
}

Test(resp_command, refuses_lines_without_end)
{
    static const size_t pieces[] = {1, 7, 4096, RESP_LINE_MAX, 2 * RESP_LINE_MAX};

    for (size_t i = 0; i < ENDLESS_COUNT; i++) {
        struct slice enough = long_line(endless[i].before, endless[i].line, RESP_LINE_MAX);
        struct slice more = long_line(endless[i].before, endless[i].line, RESP_LINE_MAX + 1);

        for (size_t j = 0; j < sizeof(pieces) / sizeof(pieces[0]); j++) {
            struct resp_command command = {0};
            size_t total;

            cr_assert_eq(feed_in_pieces(feed, &command, enough, pieces[j], pieces[j], &total), RESP_MORE, "line %zu",
                         i);
            resp_command_reset(&command);
            cr_assert_eq(feed_in_pieces(feed, &command, more, pieces[j], pieces[j], &total), RESP_FAULT, "line %zu", i);
            cr_assert_eq(command.fault, endless[i].fault, "line %zu is fault %d", i, (int)command.fault);
        }
        free((char *)(uintptr_t)enough.data);
        free((char *)(uintptr_t)more.data);
    }
}

Test(resp_command, takes_the_longest_inline_command)
{
    struct slice line = long_line(SLICE(""), SLICE("PING "), RESP_LINE_MAX + 1);
    char *bytes = (char *)(uintptr_t)line.data;
    struct resp_command command = {0};
    size_t total;

    bytes[RESP_LINE_MAX] = '\n';
    cr_assert_eq(feed_in_pieces(feed, &command, line, line.length, 1, &total), RESP_DONE, "in one piece");
    resp_command_reset(&command);
    cr_assert_eq(feed_in_pieces(feed, &command, line, RESP_LINE_MAX, 1, &total), RESP_DONE, "LF by itself");
    cr_assert_eq(command.size, RESP_LINE_MAX + 1, "all of it");
    free(bytes);
}

/* ---- inline commands ---- */

Test(resp_command, writes_inline_commands_as_multibulk)
{
    static const struct {
        struct slice line;
        struct slice multibulk;
    } cases[] = {
        {TEXT("PING\r\n"), TEXT("*1\r\n$4\r\nPING\r\n")},
        {TEXT("PING"), TEXT("*1\r\n$4\r\nPING\r\n")},
        {TEXT(" SET\tk 'it\\'s' \n"), TEXT("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nit's\r\n")},
        {TEXT("ECHO \"\\x41\\n\\\"\"\n"), TEXT("*2\r\n$4\r\nECHO\r\n$3\r\nA\n\"\r\n")},
        {TEXT("ECHO a\"b c\"\n"), TEXT("*2\r\n$4\r\nECHO\r\n$4\r\nab c\r\n")},
        {TEXT("\"\" ''\n"), TEXT("*2\r\n$0\r\n\r\n$0\r\n\r\n")},
    };
    char out[128];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t length = cases[i].multibulk.length;

        cr_assert_eq(resp_inline_to_multibulk(cases[i].line, NULL, 0), length, "length of %s", cases[i].line.data);
        memset(out, '#', sizeof(out));
        cr_assert_eq(resp_inline_to_multibulk(cases[i].line, out, length), length, "%s", cases[i].line.data);
        cr_assert_eq(memcmp(out, cases[i].multibulk.data, length), 0, "%s", cases[i].line.data);
        cr_assert_eq(out[length], '#', "written behind the end");
    }
}

/* ---- what Redis says ---- */

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

static void expect_as_told(const char *frame, enum resp_command_fault fault)
{
    if (fault != RESP_COMMAND_BAD_TERMINATOR) {
        assert_same_fault(slice_of(frame));
    }
}

Test(resp_command_redis, faults_read_as_those_of_redis, .init = server_start, .fini = server_stop)
{
    each_unsound(expect_as_told);
    for (size_t i = 0; i < ENDLESS_COUNT; i++) {
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
