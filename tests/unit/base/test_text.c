#include "base/text.h"

#include <criterion/criterion.h>
#include <string.h>

Test(text, holds_what_was_written)
{
    struct text_stream text;

    cr_assert(text_open(&text));
    for (int i = 0; i < 10000; i++) {
        fprintf(text.out, "%04d,", i);
    }
    cr_assert(text_close(&text));
    cr_assert_eq(text.length, 50000);
    cr_expect_eq(memcmp(text.bytes, "0000,0001,", 10), 0);
    cr_expect_eq(memcmp(text.bytes + 49990, "9998,9999,", 10), 0);
    text_free(&text);
}

Test(text, may_be_empty_or_left)
{
    struct text_stream text;

    cr_assert(text_open(&text));
    cr_expect(text_close(&text));
    cr_expect_eq(text.length, 0);
    text_free(&text);
    cr_assert(text_open(&text));
    fputs("left", text.out);
    text_free(&text);
    cr_expect_null(text.bytes);
}
