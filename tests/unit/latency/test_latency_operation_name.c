/* Operations: names made safe for keys without mixing any two, and a table that is bounded. */
#include "../../rig/rig_random.h"
#include "latency/latency_operation_name.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_safe(struct slice name, const char *expected)
{
    char safe[LATENCY_NAME_MAX + 1];

    cr_assert_eq(latency_operation_safe_name(name, safe), strlen(expected));
    cr_assert_str_eq(safe, expected);
}

Test(latency_operation_name, ordinary_names_stay_as_they_are)
{
    assert_safe(slice_of("get"), "get");
    assert_safe(slice_of("config|set"), "config|set");
    assert_safe(slice_of("orders_2024-11:eu.west/1"), "orders_2024-11:eu.west/1");
    assert_safe(slice_of("!\"#$&'()*+,-./:;<=>?@[\\]^_`|"), "!\"#$&'()*+,-./:;<=>?@[\\]^_`|");
}

Test(latency_operation_name, what_keys_must_not_have_is_escaped)
{
    assert_safe(slice_of(""), "%");
    assert_safe(slice_of("%"), "%25");
    assert_safe(slice_of("{a}b"), "%7Ba%7Db");
    assert_safe(slice_of("two words"), "two%20words");
    assert_safe(slice_of("line\r\nline"), "line%0D%0Aline");
    assert_safe(slice_of("a~b"), "a%7Eb");
    assert_safe(slice_of("h\xc3\xa9"), "h%C3%A9");
    assert_safe((struct slice){"a\0b", 3}, "a%00b");
    assert_safe(slice_of("\x7f\x1b"), "%7F%1B");
}

#define NAMES 20000

static int compare(const void *left, const void *right)
{
    return strcmp(left, right);
}

/* Names that differ little: of few different bytes, escaped ones among them, around the length at which they are cut.
 */
Test(latency_operation_name, different_names_stay_different)
{
    static char names[NAMES][120], safe[NAMES][LATENCY_NAME_MAX + 1];
    static const char bytes[] = "aA0%{}~ \n2B";
    uint64_t state = 88172645463325252;
    int different = 0, kept_apart = 0;

    for (int i = 0; i < NAMES; i++) {
        size_t length = i % 3 == 0 ? (size_t)(i % 9) : (size_t)(50 + i % 69);
        memset(names[i], 'x', length);
        for (size_t at = i % 3 == 0 ? 0 : length - 4; at < length; at++) {
            names[i][at] = bytes[next_random(&state) % (sizeof bytes - 1)];
        }
        size_t told = latency_operation_safe_name(slice_of(names[i]), safe[i]);
        cr_assert_eq(told, strlen(safe[i]));
        cr_assert(told >= 1 && told <= LATENCY_NAME_MAX);
        cr_assert_eq(strpbrk(safe[i], "{} \n"), NULL);
    }
    qsort(names, NAMES, sizeof names[0], compare);
    qsort(safe, NAMES, sizeof safe[0], compare);
    for (int i = 1; i < NAMES; i++) {
        different += strcmp(names[i - 1], names[i]) != 0;
        kept_apart += strcmp(safe[i - 1], safe[i]) != 0;
    }
    cr_assert_gt(different, NAMES / 4);
    cr_assert_eq(kept_apart, different);
}

Test(latency_operation_name, the_rest_goes_to_other)
{
    struct latency_operation_names *operations = latency_operation_names_new(3, sizeof(struct latency_operation_name));

    cr_assert_eq(latency_operation_names_add(operations, slice_of("get")), 1);
    cr_assert_eq(latency_operation_names_add(operations, slice_of("set")), 2);
    cr_assert_eq(latency_operation_names_add(operations, slice_of("del")), LATENCY_OTHER);
    cr_assert_eq(latency_operation_names_add(operations, slice_of("del")), LATENCY_OTHER);
    cr_assert_eq(latency_operation_names_add(operations, slice_of("set")), 2);
    cr_assert_eq(latency_operation_names_add(operations, slice_of("other")), LATENCY_OTHER);
    cr_assert_eq(operations->refused, 2);
    cr_assert_eq(operations->count, 3);
    latency_operation_names_free(operations);

    operations = latency_operation_names_new(1, sizeof(struct latency_operation_name));
    cr_assert_eq(latency_operation_names_add(operations, slice_of("get")), LATENCY_OTHER);
    cr_assert_eq(operations->count, 1);
    latency_operation_names_free(operations);
    latency_operation_names_free(NULL);
}
