/* Lines of verbs as JSON: whatever is in them, what comes out is JSON, and shows it. */
#include "http/http_private.h"

#include <criterion/criterion.h>
#include <string.h>

static void assert_lines_of(const char *server, const char *lines, const char *expected)
{
    struct text_stream text;

    cr_assert(text_open(&text));
    fputc('[', text.out);
    http_json_lines(text.out, server, lines, strlen(lines));
    fputc(']', text.out);
    cr_assert(text_close(&text));
    cr_expect_eq(text.length, strlen(expected), "%.*s", (int)text.length, text.bytes);
    cr_expect_eq(memcmp(text.bytes, expected, text.length), 0, "%.*s", (int)text.length, text.bytes);
    text_free(&text);
}

static const struct {
    const char *server, *lines, *expected;
} cases[] = {
    {"cache", "", "[]"},
    {"cache", "a=1\nb=2\n", "[{\"server\":\"cache\",\"a\":1},\n{\"server\":\"cache\",\"b\":2}]"},
    {"7", "# more\n\n", "[{\"server\":\"7\",\"note\":\"more\"},\n{\"server\":\"7\"}]"},
    {NULL, "a=1 b=two\n", "[{\"a\":1,\"b\":\"two\"}]"},
    {NULL, "a=1", "[{\"a\":1}]"},
    {NULL, "#\n", "[{\"note\":\"\"}]"},
    /* Only what is a number is one. */
    {NULL, "a=-1 b=0 c=0.5 d=-0.25", "[{\"a\":-1,\"b\":0,\"c\":0.5,\"d\":-0.25}]"},
    {NULL, "a=01 b=1. c=.5 d=-", "[{\"a\":\"01\",\"b\":\"1.\",\"c\":\".5\",\"d\":\"-\"}]"},
    {NULL, "e=1.2.3 f=1e3", "[{\"e\":\"1.2.3\",\"f\":\"1e3\"}]"},
    {NULL, "a=123456789012345 b=1234567890123456", "[{\"a\":123456789012345,\"b\":\"1234567890123456\"}]"},
    {NULL, "a=\"1\"", "[{\"a\":\"1\"}]"},
    /* Quotes hold a value together. */
    {NULL, "a=\"x y=z\" b=1", "[{\"a\":\"x y=z\",\"b\":1}]"},
    {NULL, "a=\"say \\\"hi\\\"\" b=1", "[{\"a\":\"say \\\\\\\"hi\\\\\\\"\",\"b\":1}]"},
    {NULL, "command=\"GET\" \"k\" b=1", "[{\"command\":\"\\\"GET\\\" \\\"k\\\"\",\"b\":1}]"},
    {NULL, "a=\"\" b=", "[{\"a\":\"\",\"b\":\"\"}]"},
    {NULL, "a=\"open", "[{\"a\":\"\\\"open\"}]"},
    {NULL, "a=\"\\", "[{\"a\":\"\\\"\\\\\"}]"},
    /* What has no name goes on, or is text. */
    {NULL, "two words a=1", "[{\"text\":\"two words\",\"a\":1}]"},
    {NULL, "a=1 more b=2", "[{\"a\":\"1 more\",\"b\":2}]"},
    {NULL, "A=1 =2", "[{\"text\":\"A=1 =2\"}]"},
};

Test(http_json, lines)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_lines_of(cases[i].server, cases[i].lines, cases[i].expected);
    }
}

Test(http_json, no_byte_breaks_it)
{
    char line[600] = "a=";

    for (int byte = 1; byte < 256; byte++) {
        line[1 + byte] = byte == '\n' || byte == ' ' ? '_' : (char)byte;
    }
    struct text_stream text;
    cr_assert(text_open(&text));
    http_json_lines(text.out, NULL, line, strlen(line));
    cr_assert(text_close(&text));
    for (size_t i = 0; i < text.length; i++) {
        unsigned char byte = (unsigned char)text.bytes[i];
        cr_expect(byte >= ' ' && byte < 0x7f && byte != '<' && byte != '>' && byte != '&', "%02x", byte);
    }
    cr_expect_not_null(strstr(text.bytes, "\\\\x01") != NULL ? text.bytes : NULL);
    text_free(&text);
}
