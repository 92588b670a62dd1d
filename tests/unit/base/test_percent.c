/* Bytes as words of lines, and back. */
#include "base/percent.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static char *written(struct slice bytes)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    size_t told = percent_write(out, bytes);

    fclose(out);
    cr_assert_eq(told, size);
    return text;
}

Test(percent, all_bytes_come_back)
{
    char bytes[256], back[256];
    size_t length;

    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)i;
    }
    char *text = written((struct slice){bytes, sizeof bytes});
    cr_assert_null(strpbrk(text, " \n"));
    cr_assert(percent_read(slice_of(text), back, sizeof back, &length));
    cr_assert_eq(length, sizeof bytes);
    cr_assert_arr_eq(back, bytes, sizeof bytes);
    cr_assert_not(percent_read(slice_of(text), back, sizeof back - 1, &length), "no room");
    free(text);
}

Test(percent, what_is_no_word)
{
    static const char *const wrong[] = {"", "%4", "%4g", "a%", "%%", "%g1", "ab%1"};
    char back[16];
    size_t length;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cr_assert_not(percent_read(slice_of(wrong[i]), back, sizeof back, &length), "%s", wrong[i]);
    }
}

Test(percent, what_is_no_number)
{
    static const char *const wrong[] = {"", "-1", "9223372036854775808", "1x", " 1", "x"};
    int64_t number;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct slice text = slice_of(wrong[i]);
        cr_assert_not(percent_take_number(&text, &number), "%s", wrong[i]);
    }
}
