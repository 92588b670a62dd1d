/* One reply out of several, in RESP2 and RESP3, and replies that do not fit together. */
#include "topology/cluster_merge.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define MISFIT "-ERR the nodes of the cluster have answered what does not fit together\r\n"
#define REPLIES_MOST 8

static char *merge_by(enum cluster_merge how, uint64_t choice, const char *const *texts)
{
    struct slice replies[REPLIES_MOST];
    struct text_stream out;
    size_t count = 0;

    for (; texts[count] != NULL; count++)
        replies[count] = slice_of(texts[count]);
    cr_assert(text_open(&out));
    cluster_merge(how, replies, count, choice, out.out);
    cr_assert(text_close(&out));
    char *merged = strndup(out.bytes, out.length);
    text_free(&out);
    return merged;
}

static void expect(enum cluster_merge how, const char *expected, const char *const *texts)
{
    char *merged = merge_by(how, 0, texts);

    cr_expect_str_eq(merged, expected, "%d of %s…", how, texts[0]);
    free(merged);
}

#define EXPECT(how, expected, ...) expect(CLUSTER_MERGE_##how, expected, (const char *const[]){__VA_ARGS__, NULL})

Test(cluster_merge, one_for_all)
{
    EXPECT(AGREED, "+OK\r\n", "+OK\r\n", "+OK\r\n");
    EXPECT(AGREED, "$3\r\nabc\r\n", "$3\r\nabc\r\n", "$3\r\nabc\r\n");
    EXPECT(AGREED, "-MISCONF no\r\n", "+OK\r\n", "-MISCONF no\r\n", "-ERR other\r\n");
    EXPECT(ANY, "+OK\r\n", "-NOTBUSY no\r\n", "+OK\r\n");
    EXPECT(ANY, "-NOTBUSY a\r\n", "-NOTBUSY a\r\n", "-NOTBUSY b\r\n");
}

Test(cluster_merge, integers)
{
    EXPECT(SUM, ":6\r\n", ":1\r\n", ":2\r\n", ":3\r\n");
    EXPECT(SUM, ":0\r\n", ":0\r\n");
    EXPECT(SUM, "-LOADING\r\n", ":1\r\n", "-LOADING\r\n");
    EXPECT(SUM, MISFIT, ":1\r\n", "+OK\r\n");
    EXPECT(SUM, MISFIT, ":9223372036854775807\r\n", ":1\r\n");
    EXPECT(LEAST, ":0\r\n", ":2\r\n", ":0\r\n", ":1\r\n");
    EXPECT(EACH, "*3\r\n:0\r\n:1\r\n:0\r\n", "*3\r\n:1\r\n:1\r\n:0\r\n", "*3\r\n:0\r\n:1\r\n:1\r\n");
    EXPECT(EACH, MISFIT, "*1\r\n:1\r\n", "*2\r\n:1\r\n:1\r\n");
    EXPECT(EACH, MISFIT, "*1\r\n:1\r\n", "*1\r\n+1\r\n");
    EXPECT(EACH, "*0\r\n", "*0\r\n", "*0\r\n");
}

Test(cluster_merge, lists)
{
    EXPECT(LIST, "*3\r\n$1\r\na\r\n$1\r\nb\r\n*1\r\n:1\r\n", "*1\r\n$1\r\na\r\n", "*0\r\n",
           "*2\r\n$1\r\nb\r\n*1\r\n:1\r\n");
    EXPECT(LIST, "~2\r\n$1\r\na\r\n$1\r\na\r\n", "~1\r\n$1\r\na\r\n", "~1\r\n$1\r\na\r\n");
    EXPECT(LIST, "+OK\r\n", "+OK\r\n", "+OK\r\n");
    EXPECT(LIST, "-NOPERM\r\n", "*0\r\n", "-NOPERM\r\n");
    EXPECT(UNION, "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n", "*2\r\n$1\r\nb\r\n$1\r\na\r\n",
           "*2\r\n$1\r\nc\r\n$1\r\nb\r\n");
    EXPECT(UNION, "*0\r\n", "*0\r\n", "*0\r\n");
    EXPECT(UNION, MISFIT, "*0\r\n", ":1\r\n");
}

Test(cluster_merge, counts)
{
    EXPECT(COUNTS, "*4\r\n$1\r\na\r\n:3\r\n$1\r\nb\r\n:0\r\n", "*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n:0\r\n",
           "*4\r\n$1\r\na\r\n:2\r\n$1\r\nb\r\n:0\r\n");
    EXPECT(COUNTS, MISFIT, "*2\r\n$1\r\na\r\n:1\r\n", "*2\r\n$1\r\nb\r\n:1\r\n");
    EXPECT(COUNTS, MISFIT, "*1\r\n$1\r\na\r\n", "*1\r\n$1\r\na\r\n");
    EXPECT(COUNTS, "*0\r\n", "*0\r\n", "*0\r\n");
}

Test(cluster_merge, texts)
{
    EXPECT(TEXT, "$4\r\na\nb\n\r\n", "$2\r\na\n\r\n", "$2\r\nb\n\r\n");
    EXPECT(TEXT, "=8\r\ntxt:a\nb\n\r\n", "=6\r\ntxt:a\n\r\n", "=6\r\ntxt:b\n\r\n");
    EXPECT(TEXT, MISFIT, "$1\r\na\r\n", "$-1\r\n");
}

Test(cluster_merge, a_choice)
{
    static const char *const keys[] = {"$-1\r\n", "$1\r\na\r\n", "_\r\n", "$1\r\nb\r\n", NULL};
    const char *const expected[] = {keys[1], keys[1], keys[3], keys[3]};

    for (uint64_t choice = 0; choice < 4; choice++) {
        char *merged = merge_by(CLUSTER_MERGE_CHOICE, choice, keys);
        cr_expect_str_eq(merged, expected[choice]);
        free(merged);
    }
    EXPECT(CHOICE, "$-1\r\n", "$-1\r\n", "$-1\r\n");
}

Test(cluster_merge, long_lists_take_no_ages)
{
    size_t count = 100000, room = count * 24 + 32;
    char *texts[3] = {malloc(room), malloc(room), NULL};

    for (size_t i = 0; i < 2; i++) {
        size_t length = (size_t)sprintf(texts[i], "*%zu\r\n", count);
        for (size_t j = 0; j < count; j += 2)
            length += (size_t)sprintf(texts[i] + length, "$7\r\nc%06zu\r\n:1\r\n", j);
    }
    for (enum cluster_merge how = CLUSTER_MERGE_LIST; how <= CLUSTER_MERGE_COUNTS; how++) {
        char *merged = merge_by(how, 0, (const char *const *)texts);
        cr_expect_neq(merged[0], '-', "%d", how);
        free(merged);
    }
    free(texts[0]);
    free(texts[1]);
}
