/* Requests over several slots: taken apart, and their replies put together as from one server. */
#include "base/text.h"
#include "topology/cluster_split.h"

#include "../command/command_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static struct cluster_split *split_request(struct line *line, const char *text)
{
    split(line, text);
    return cluster_split_new(find(line->argv[0]), (struct slice){line->frame, line->frame_length});
}

static void expect_part(const struct cluster_split *parts, size_t place, const char *text)
{
    struct cluster_split_part part = cluster_split_part(parts, place);
    struct line expected;

    split(&expected, text);
    cr_expect(slice_equal(part.frame, (struct slice){expected.frame, expected.frame_length}), "%.*s",
              (int)part.frame.length, part.frame.data);
    cr_expect_eq(part.slot, cluster_slot_of(slice_of(expected.argv[1])));
}

static void expect_reply(const struct cluster_split *parts, const char *expected)
{
    struct text_stream out;

    cr_assert(text_open(&out));
    cluster_split_write(parts, out.out);
    cr_assert(text_close(&out));
    cr_expect(slice_equal((struct slice){out.bytes, out.length}, slice_of(expected)), "%.*s", (int)out.length,
              out.bytes);
    text_free(&out);
}

static void take(struct cluster_split *parts, size_t place, const char *reply)
{
    cluster_split_take(parts, place, slice_of(reply));
}

Test(cluster_split, parts_have_the_keys_of_their_slot_in_order)
{
    struct line line;
    struct cluster_split *parts = split_request(&line, "MSET foo 1 bar 2 {foo}2 3 baz 4 bar \"\" foo 6");

    cr_assert_eq(cluster_split_count(parts), 3);
    expect_part(parts, 0, "MSET foo 1 {foo}2 3 foo 6");
    expect_part(parts, 1, "MSET bar 2 bar \"\"");
    expect_part(parts, 2, "MSET baz 4");
    take(parts, 2, "+OK\r\n");
    take(parts, 0, "+OK\r\n");
    take(parts, 1, "+OK\r\n");
    expect_reply(parts, "+OK\r\n");
    cluster_split_free(parts);
}

Test(cluster_split, values_come_in_the_order_of_the_keys)
{
    struct line line;
    struct cluster_split *parts = split_request(&line, "mget foo bar {foo}2 foo none");

    cr_assert_eq(cluster_split_count(parts), 3);
    expect_part(parts, 0, "mget foo {foo}2 foo");
    take(parts, 1, "*1\r\n$1\r\nb\r\n");
    take(parts, 2, "*1\r\n$-1\r\n");
    take(parts, 0, "*3\r\n$1\r\n1\r\n_\r\n$2\r\n\r\n\r\n");
    expect_reply(parts, "*5\r\n$1\r\n1\r\n$1\r\nb\r\n_\r\n$2\r\n\r\n\r\n$-1\r\n");
    cluster_split_free(parts);
}

static void expect_failure(const char *first, const char *second, const char *expected)
{
    struct line line;
    struct cluster_split *parts = split_request(&line, first[0] == ':' ? "DEL foo bar" : "MGET foo bar");

    take(parts, 1, second);
    take(parts, 0, first);
    expect_reply(parts, expected);
    cluster_split_free(parts);
}

#define MISFIT "-ERR the nodes of the cluster have answered what does not fit together\r\n"

Test(cluster_split, the_first_error_is_the_reply)
{
    expect_failure("*1\r\n$1\r\na\r\n", "-LOADING x\r\n", "-LOADING x\r\n");
    expect_failure("-NOPERM x\r\n", "-LOADING x\r\n", "-NOPERM x\r\n");
    expect_failure("*1\r\n$1\r\na\r\n", "*2\r\n$1\r\na\r\n$1\r\na\r\n", MISFIT);
    expect_failure("*1\r\n$1\r\na\r\n", "*-1\r\n", MISFIT);
    expect_failure("*1\r\n$1\r\na\r\n", "+OK\r\n", MISFIT);
    expect_failure(":1\r\n", ":9223372036854775807\r\n", MISFIT);
}

Test(cluster_split, what_redis_would_refuse_is_not_split)
{
    struct line line;

    cr_assert_null(split_request(&line, "MSET foo 1 bar"));
    cr_assert_null(split_request(&line, "MGET"));
    cr_assert_null(split_request(&line, "GET foo"));
}

/* Each key once, in the part of its slot, whatever there is. */
static bool expect_slot(void *context, struct slice key, uint32_t argument_index)
{
    const uint16_t *slot = context;

    (void)argument_index;
    cr_assert_eq(cluster_slot_of(key), *slot);
    return true;
}

Test(cluster_split, many_keys)
{
    size_t keys = 40000, room = keys * 32 + 64;
    char *frame = malloc(room);
    size_t length = (size_t)sprintf(frame, "*%zu\r\n$3\r\nDEL\r\n", keys + 1), found = 0;

    for (size_t i = 0; i < keys; i++)
        length += (size_t)sprintf(frame + length, "$6\r\n%06zu\r\n", i);
    struct cluster_split *parts = cluster_split_new(find("del"), (struct slice){frame, length});
    free(frame);
    cr_assert_gt(cluster_split_count(parts), 10000);
    for (size_t i = 0; i < cluster_split_count(parts); i++) {
        struct cluster_split_part part = cluster_split_part(parts, i);
        command_visit_keys(find("del"), part.frame, expect_slot, &part.slot);
        found += resp_walk_start(part.frame).left - 1;
    }
    cr_assert_eq(found, keys);
    cluster_split_free(parts);
}
