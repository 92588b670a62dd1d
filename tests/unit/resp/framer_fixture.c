#include "framer_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- feeding ---- */

static enum resp_status feed(void *command, const char *bytes, size_t length, size_t *taken)
{
    return resp_command_feed(command, bytes, length, BULK_MAX, taken);
}

enum resp_status feed_piece(struct resp_command *command, struct slice piece, size_t *taken)
{
    return feed_one_piece(feed, command, piece, taken);
}

enum resp_status feed_cut(struct resp_command *command, struct slice bytes, size_t first, size_t further, size_t *total)
{
    return feed_in_pieces(feed, command, bytes, first, further, total);
}

enum resp_status feed_whole(struct resp_command *command, struct slice bytes)
{
    size_t total;

    return feed_cut(command, bytes, bytes.length, bytes.length, &total);
}

/* ---- frames that are unsound ---- */

const struct unsound unsound[] = {
    {TEXT("*\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*-\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*-0\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*--1\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*+1\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("* 1\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*1 \r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*01\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*00\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*1\n\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*three\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*2147483648\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*9223372036854775808\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*-9223372036854775809\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*18446744073709551617\r\n"), RESP_COMMAND_BAD_COUNT},
    {TEXT("*1\r\n$\r\n"), RESP_COMMAND_BAD_LENGTH},
    {TEXT("*1\r\n$-1\r\n"), RESP_COMMAND_BAD_LENGTH},
    {TEXT("*1\r\n$+4\r\nPING\r\n"), RESP_COMMAND_BAD_LENGTH},
    {TEXT("*1\r\n$04\r\nPING\r\n"), RESP_COMMAND_BAD_LENGTH},
    {TEXT("*1\r\n$4x\r\nPING\r\n"), RESP_COMMAND_BAD_LENGTH},
    {TEXT("*1\r\n$536870913\r\n"), RESP_COMMAND_BAD_LENGTH},
    {TEXT("*1\r\n$18446744073709551620\r\nPING\r\n"), RESP_COMMAND_BAD_LENGTH},
    {TEXT("*2\r\n$4\r\nECHO\r\n$x\r\n"), RESP_COMMAND_BAD_LENGTH},
    {TEXT("*1\r\n:4\r\nPING\r\n"), RESP_COMMAND_NO_BULK},
    {TEXT("*1\r\n\r\n$4\r\nPING\r\n"), RESP_COMMAND_NO_BULK},
    {TEXT("*1\r\n\n\r\n"), RESP_COMMAND_NO_BULK},
    {TEXT("*2\r\n$4\r\nECHO\r\n*1\r\n"), RESP_COMMAND_NO_BULK},
    {TEXT("*1\r\n\377\r\n"), RESP_COMMAND_NO_BULK},
    {TEXT("*1\rX$4\r\nPING\r\n"), RESP_COMMAND_BAD_TERMINATOR},
    {TEXT("*0\r\r"), RESP_COMMAND_BAD_TERMINATOR},
    {TEXT("*1\r\n$4\r\rPING\r\n"), RESP_COMMAND_BAD_TERMINATOR},
    {TEXT("*1\r\n$4\r\nPINGx\n"), RESP_COMMAND_BAD_TERMINATOR},
    {TEXT("*1\r\n$4\r\nPING\rx"), RESP_COMMAND_BAD_TERMINATOR},
    {TEXT("*1\r\n$4\r\nPING\n\r"), RESP_COMMAND_BAD_TERMINATOR},
    {TEXT("*1\r\n$3\r\nPING\r\n"), RESP_COMMAND_BAD_TERMINATOR},
};
const size_t unsound_count = sizeof unsound / sizeof unsound[0];

const struct endless endless[] = {
    {TEXT(""), TEXT("*1"), RESP_COMMAND_LONG_COUNT},
    {TEXT(""), TEXT("*1\0\r\n"), RESP_COMMAND_LONG_COUNT},
    {TEXT("*1\r\n"), TEXT("$1"), RESP_COMMAND_LONG_LENGTH},
    {TEXT("*1\r\n"), TEXT("$4\0\r\nPING\r\n"), RESP_COMMAND_LONG_LENGTH},
    {TEXT(""), TEXT("PING"), RESP_COMMAND_LONG_INLINE},
    {TEXT(""), TEXT("PING\0\r\nPING\r\n"), RESP_COMMAND_LONG_INLINE},
};
const size_t endless_count = sizeof endless / sizeof endless[0];

struct slice long_line(struct slice before, struct slice line, size_t line_length)
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
