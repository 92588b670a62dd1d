/* Lines of verbs as JSON: whatever is in them, what comes out is JSON, and shows it. */
#include "http/http_private.h"

#include "base/json.h"

#include <criterion/criterion.h>
#include <stdlib.h>
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

static void assert_lines(const char *lines, const char *expected)
{
    assert_lines_of(NULL, lines, expected);
}

Test(http_json, lines_say_which_server_they_are_about)
{
    assert_lines_of("cache", "", "[]");
    assert_lines_of("cache", "a=1\nb=2\n", "[{\"server\":\"cache\",\"a\":1},\n{\"server\":\"cache\",\"b\":2}]");
    assert_lines_of("7", "# more\n\n", "[{\"server\":\"7\",\"note\":\"more\"},\n{\"server\":\"7\"}]");
}

Test(http_json, lines_are_objects)
{
    assert_lines("", "[]");
    assert_lines("a=1 b=two\n", "[{\"a\":1,\"b\":\"two\"}]");
    assert_lines("a=1\nb=2\n", "[{\"a\":1},\n{\"b\":2}]");
    assert_lines("a=1", "[{\"a\":1}]");
    assert_lines("# and 3 more\n", "[{\"note\":\"and 3 more\"}]");
    assert_lines("#\n", "[{\"note\":\"\"}]");
}

Test(http_json, only_what_is_a_number_is_one)
{
    assert_lines("a=-1 b=0 c=0.5 d=-0.25", "[{\"a\":-1,\"b\":0,\"c\":0.5,\"d\":-0.25}]");
    assert_lines("a=01 b=1. c=.5 d=- e=1.2.3 f=1e3", "[{\"a\":\"01\",\"b\":\"1.\",\"c\":\".5\",\"d\":\"-\","
                                                     "\"e\":\"1.2.3\",\"f\":\"1e3\"}]");
    assert_lines("a=123456789012345 b=1234567890123456", "[{\"a\":123456789012345,\"b\":\"1234567890123456\"}]");
    assert_lines("a=\"1\"", "[{\"a\":\"1\"}]");
}

Test(http_json, quotes_hold_a_value_together)
{
    assert_lines("a=\"x y=z\" b=1", "[{\"a\":\"x y=z\",\"b\":1}]");
    assert_lines("a=\"say \\\"hi\\\"\" b=1", "[{\"a\":\"say \\\\\\\"hi\\\\\\\"\",\"b\":1}]");
    assert_lines("command=\"GET\" \"k\" b=1", "[{\"command\":\"\\\"GET\\\" \\\"k\\\"\",\"b\":1}]");
    assert_lines("a=\"\" b=", "[{\"a\":\"\",\"b\":\"\"}]");
    assert_lines("a=\"open", "[{\"a\":\"\\\"open\"}]");
    assert_lines("a=\"", "[{\"a\":\"\\\"\"}]");
    assert_lines("a=\"\\", "[{\"a\":\"\\\"\\\\\"}]");
}

Test(http_json, what_has_no_name_goes_on_or_is_text)
{
    assert_lines("word", "[{\"text\":\"word\"}]");
    assert_lines("two words a=1", "[{\"text\":\"two words\",\"a\":1}]");
    assert_lines("a=1 more b=2", "[{\"a\":\"1 more\",\"b\":2}]");
    assert_lines("A=1 =2", "[{\"text\":\"A=1 =2\"}]");
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

Test(http_json, strings)
{
    struct text_stream text;
    static const char nasty[] = "\"\\<\0\xff";

    cr_assert(text_open(&text));
    json_string(text.out, nasty, sizeof nasty - 1);
    fputc('\0', text.out);
    cr_assert(text_close(&text));
    cr_expect_str_eq(text.bytes, "\"\\\"\\\\\\u003c\\\\x00\\\\xff\"");
    text_free(&text);
}
