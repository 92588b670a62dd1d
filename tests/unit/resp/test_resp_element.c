/* Elements of whole replies: what is in them, and that they end where the framer says. */
#include "resp/resp_element.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct resp_element only(const char *reply)
{
    struct slice rest = slice_of(reply);
    struct resp_element element;

    cr_assert(resp_element_next(&rest, &element), "%s", reply);
    cr_assert_eq(rest.length, 0, "%s", reply);
    return element;
}

static void expect_text(const char *reply, char type, const char *text)
{
    struct resp_element element = only(reply);

    cr_expect_eq(element.type, type, "%s", reply);
    cr_expect(slice_is(element.text, text), "%s", reply);
    cr_expect_not(element.is_null, "%s", reply);
}

Test(resp_element, texts_and_numbers)
{
    expect_text("+OK\r\n", '+', "OK");
    expect_text("-ERR a\rb\r\n", '-', "ERR a\rb");
    expect_text("$3\r\na\r\n\r\n", '$', "a\r\n");
    expect_text("$0\r\n\r\n", '$', "");
    expect_text("=5\r\ntxt:a\r\n", '=', "txt:a");
    expect_text("!3\r\nERR\r\n", '!', "ERR");
    expect_text("#t\r\n", '#', "t");
    expect_text(",1.5\r\n", ',', "1.5");
    expect_text("(123456789012345678901\r\n", '(', "123456789012345678901");
    cr_assert_eq(only(":-9223372036854775808\r\n").integer, INT64_MIN);
    cr_assert_eq(only(":42\r\n").integer, 42);
}

Test(resp_element, nulls)
{
    cr_assert(only("$-1\r\n").is_null);
    cr_assert(only("*-1\r\n").is_null);
    cr_assert(only("_\r\n").is_null);
    cr_assert_not(only("*0\r\n").is_null);
}

Test(resp_element, aggregates_are_walked)
{
    struct resp_element list = only("*3\r\n:1\r\n%1\r\n+a\r\n*1\r\n:2\r\n$1\r\nx\r\n"), map;
    struct slice rest = list.inside, text;
    int64_t number;

    cr_assert_eq(list.count, 3);
    cr_assert(resp_element_next_integer(&rest, &number) && number == 1);
    cr_assert(resp_element_next_list(&rest, 2, &map) && map.count == 2);
    cr_assert(resp_element_next_text(&rest, &text) && slice_is(text, "x"));
    cr_assert_not(resp_element_next(&rest, &map));
    rest = only("~1\r\n:1\r\n").inside;
    cr_assert_not(resp_element_next_text(&rest, &text));
    rest = list.inside;
    cr_assert_not(resp_element_next_list(&rest, 0, &map));
    rest = only("*1\r\n$-1\r\n").inside;
    cr_assert_not(resp_element_next_text(&rest, &text));
}

Test(resp_element, attributes_are_passed_over)
{
    struct resp_element element = only("|1\r\n+a\r\n|1\r\n:1\r\n:2\r\n:3\r\n|1\r\n+x\r\n+y\r\n:7\r\n");

    cr_assert_eq(element.type, ':');
    cr_assert_eq(element.integer, 7);
    cr_assert(slice_is(element.whole, ":7\r\n"));
}

Test(resp_element, what_is_not_whole_is_none)
{
    static const char whole[] = "*2\r\n|1\r\n+a\r\n:1\r\n%1\r\n$1\r\na\r\n=5\r\ntxt:a\r\n!3\r\nERR\r\n";
    struct resp_element element;

    for (size_t length = 0; length < sizeof(whole) - 1; length++) {
        char *piece = malloc(length + 1);
        memcpy(piece, whole, length);
        struct slice rest = {piece, length};
        cr_assert_not(resp_element_next(&rest, &element), "%zu", length);
        cr_assert_eq(rest.data, piece);
        free(piece);
    }
    cr_assert_eq(only(whole).count, 2);
}

/* A stack would not last. */
Test(resp_element, depth_costs_no_stack)
{
    size_t levels = 100000;
    char *bytes = malloc(levels * 4 + 4);

    for (size_t i = 0; i < levels; i++)
        memcpy(bytes + 4 * i, "|1\r\n", 4);
    struct slice rest = {bytes, levels * 4};
    struct resp_element element;
    cr_assert_not(resp_element_next(&rest, &element));
    for (size_t i = 0; i < levels; i++)
        memcpy(bytes + 4 * i, "*1\r\n", 4);
    memcpy(bytes + 4 * levels, "*0\r\n", 4);
    rest.length += 4;
    cr_assert(resp_element_next(&rest, &element));
    free(bytes);
}
