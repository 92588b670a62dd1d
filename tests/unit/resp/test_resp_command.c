/* The framing of commands. tests/fuzz/fuzz_resp_command.c cuts them everywhere, and walks over them. */
#include "framer_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is sound ---- */

struct sound {
    struct slice frame;
    uint32_t arguments;
    bool is_inline;
};

static const struct sound sound[] = {
    {TEXT("*1\r\n$4\r\nPING\r\n"), 1, false},
    {TEXT("*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"), 2, false},
    {TEXT("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$0\r\n\r\n"), 3, false},
    {TEXT("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$11\r\n\r\n$3\r\n\0*1\r\n\r\n"), 3, false},
    {TEXT("*6\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$1\r\n1\r\n$2\r\n22\r\n$3\r\n333\r\n$1\r\n\r\r\n"), 6, false},
    {TEXT("*1\r\n$0\r\n\r\n"), 1, false},
    {TEXT("*0\r\n"), 0, false},
    {TEXT("*-1\r\n"), 0, false},
    {TEXT("*-9223372036854775808\r\n"), 0, false},
    {TEXT("PING\r\n"), 1, true},
    {TEXT("PING\n"), 1, true},
    {TEXT("  SET key \"a b\" \r\n"), 1, true},
    {TEXT("$3\r\n"), 1, true},
    {TEXT("\"\"\n"), 1, true},
    {TEXT("\n"), 0, true},
    {TEXT("\r\n"), 0, true},
    {TEXT(" \t\v\f\r \r\n"), 0, true},
};
#define SOUND_COUNT (sizeof(sound) / sizeof(sound[0]))

Test(resp_command, takes_sound_frames)
{
    for (size_t i = 0; i < SOUND_COUNT; i++) {
        struct resp_command whole = {0};

        cr_assert_eq(feed_whole(&whole, sound[i].frame), RESP_DONE, "%s", sound[i].frame.data);
        cr_assert_eq(whole.size, sound[i].frame.length, "size of %s", sound[i].frame.data);
        cr_assert_eq(whole.argument_count, sound[i].arguments, "arguments of %s", sound[i].frame.data);
        cr_assert_eq(resp_command_arguments_seen(&whole), sound[i].arguments, "seen of %s", sound[i].frame.data);
        cr_assert_eq(resp_command_is_inline(&whole), sound[i].is_inline, "form of %s", sound[i].frame.data);
    }
}

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

Test(resp_command, refuses_unsound_frames)
{
    for (size_t i = 0; i < unsound_count; i++) {
        struct resp_command whole = {0};
        size_t taken;

        cr_assert_eq(feed_whole(&whole, unsound[i].bytes), RESP_FAULT, "%s", unsound[i].bytes.data);
        cr_assert_eq(whole.fault, unsound[i].fault, "%s is fault %d", unsound[i].bytes.data, (int)whole.fault);
        cr_assert_eq(feed_piece(&whole, SLICE("*1\r\n$4\r\nPING\r\n"), &taken), RESP_FAULT, "a fault is for good");
        cr_assert_eq(taken, 0, "and takes nothing");
    }
}

Test(resp_command, refuses_lines_without_end)
{
    static const size_t pieces[] = {1, 7, 4096, RESP_LINE_MAX, 2 * RESP_LINE_MAX};

    for (size_t i = 0; i < endless_count; i++) {
        struct slice enough = long_line(endless[i].before, endless[i].line, RESP_LINE_MAX);
        struct slice more = long_line(endless[i].before, endless[i].line, RESP_LINE_MAX + 1);

        for (size_t j = 0; j < sizeof(pieces) / sizeof(pieces[0]); j++) {
            struct resp_command command = {0};
            size_t total;

            cr_assert_eq(feed_cut(&command, enough, pieces[j], pieces[j], &total), RESP_MORE, "line %zu", i);
            resp_command_reset(&command);
            cr_assert_eq(feed_cut(&command, more, pieces[j], pieces[j], &total), RESP_FAULT, "line %zu", i);
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
    cr_assert_eq(feed_cut(&command, line, line.length, 1, &total), RESP_DONE, "in one piece");
    resp_command_reset(&command);
    cr_assert_eq(feed_cut(&command, line, RESP_LINE_MAX, 1, &total), RESP_DONE, "LF by itself");
    cr_assert_eq(command.size, RESP_LINE_MAX + 1, "all of it");
    free(bytes);
}

Test(resp_command, an_unexpected_nul_does_not_end_the_text)
{
    struct resp_command command = {0};
    char text[128];

    cr_assert_eq(feed_whole(&command, SLICE("*1\r\n\0")), RESP_FAULT, "no '$'");
    cr_assert_eq(resp_command_fault_text(&command, text, sizeof(text)), strlen(text), "length");
    cr_assert_str_eq(text, "-ERR Protocol error: expected '$', got ' '\r\n", "%s", text);
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
