/* Words as Redis understands them: option words end at a NUL, numbers do not. */
#include "resp/word.h"

#include <criterion/criterion.h>

#define SLICE(text) ((struct slice){text, sizeof(text) - 1})

Test(word, is_the_word_in_any_case)
{
    cr_assert(word_is(SLICE("AUTH"), "auth"));
    cr_assert(word_is(SLICE("aUtH"), "auth"));
    cr_assert_not(word_is(SLICE("AUT"), "auth"));
    cr_assert_not(word_is(SLICE("AUTH2"), "auth"));
    cr_assert_not(word_is(SLICE(""), "auth"));
    cr_assert_not(word_is((struct slice){NULL, 0}, "auth"));
    cr_assert_not(word_is(SLICE("AUTH "), "auth"));
}

Test(word, ends_at_a_nul)
{
    cr_assert(word_is(SLICE("AUTH\0"), "auth"));
    cr_assert(word_is(SLICE("auth\0anything"), "auth"));
    cr_assert_not(word_is(SLICE("AU\0TH"), "auth"));
    cr_assert_not(word_is(SLICE("\0AUTH"), "auth"));
    cr_assert_not(word_is(SLICE("AUT\0"), "auth"));
}

Test(word, what_is_before_a_nul)
{
    cr_assert_eq(word_before_nul(SLICE("ab\0c")).length, 2);
    cr_assert_eq(word_before_nul(SLICE("abc")).length, 3);
    cr_assert_eq(word_before_nul((struct slice){NULL, 0}).length, 0);
    cr_assert(word_has_nul(SLICE("ab\0c")));
    cr_assert_not(word_has_nul(SLICE("abc")));
    cr_assert_not(word_has_nul((struct slice){NULL, 0}));
}

Test(word, numbers_are_as_strict_as_in_redis)
{
    const struct {
        struct slice text;
        bool is;
        int64_t value;
    } cases[] = {
        {SLICE("0"), true, 0},
        {SLICE("3"), true, 3},
        {SLICE("-1"), true, -1},
        {SLICE("9223372036854775807"), true, INT64_MAX},
        {SLICE("-9223372036854775808"), true, INT64_MIN},
        {SLICE("9223372036854775808"), false, 0},
        {SLICE("-9223372036854775809"), false, 0},
        {SLICE("3\0"), false, 0},
        {SLICE("3\0x"), false, 0},
        {SLICE("03"), false, 0},
        {SLICE("+3"), false, 0},
        {SLICE(" 3"), false, 0},
        {SLICE("3 "), false, 0},
        {SLICE("-0"), false, 0},
        {SLICE("-"), false, 0},
        {SLICE(""), false, 0},
        {SLICE("3a"), false, 0},
        {SLICE("0x3"), false, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t value = 0;
        cr_assert_eq(word_integer(cases[i].text, &value), cases[i].is, "case %zu", i);
        cr_assert_eq(value, cases[i].value, "case %zu", i);
    }
}
