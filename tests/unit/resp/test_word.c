/* Words as Redis understands them: option words end at a NUL, numbers do not. */
#include "resp/word.h"

#include <criterion/criterion.h>
#include <stdlib.h>

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
    static const char *const numbers[] = {"0", "3", "-1", "9223372036854775807", "-9223372036854775808"};
    const struct slice others[] = {
        SLICE("9223372036854775808"),
        SLICE("-9223372036854775809"),
        SLICE("3\0"),
        SLICE("3\0x"),
        SLICE("03"),
        SLICE("+3"),
        SLICE(" 3"),
        SLICE("3 "),
        SLICE("-0"),
        SLICE("-"),
        SLICE(""),
        SLICE("3a"),
        SLICE("0x3"),
    };
    int64_t value;

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        cr_assert(word_integer(slice_of(numbers[i]), &value) && value == strtoll(numbers[i], NULL, 10));
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        value = 0;
        cr_assert(!word_integer(others[i], &value) && value == 0, "case %zu", i);
    }
}
