/* The framing of replies. tests/fuzz/fuzz_resp_reply.c cuts them everywhere, with hiredis' reader beside it. */
#include "cut_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- feeding ---- */

static enum resp_status feed(void *reply, const char *bytes, size_t length, size_t *taken)
{
    return resp_reply_feed(reply, bytes, length, taken);
}

static enum resp_status feed_whole(struct resp_reply *reply, struct slice bytes)
{
    size_t total;

    return feed_in_pieces(feed, reply, bytes, bytes.length, bytes.length, &total);
}

/* ---- what is sound ---- */

struct sound {
    struct slice frame;
    char type;
    int64_t integer;
};

static const struct sound sound[] = {
    {TEXT("+OK\r\n"), '+', 0},
    {TEXT("+\r\n"), '+', 0},
    {TEXT("+QUEUED\r\n"), '+', 0},
    {TEXT("+a\rb\nc\r\r\n"), '+', 0},
    {TEXT("-ERR unknown command\r\n"), '-', 0},
    {TEXT(":0\r\n"), ':', 0},
    {TEXT(":1\r\n"), ':', 1},
    {TEXT(":-1\r\n"), ':', -1},
    {TEXT(":1234567890123\r\n"), ':', 1234567890123},
    {TEXT(":9223372036854775807\r\n"), ':', INT64_MAX},
    {TEXT(":-9223372036854775808\r\n"), ':', INT64_MIN},
    {TEXT("$-1\r\n"), '$', 0},
    {TEXT("$0\r\n\r\n"), '$', 0},
    {TEXT("$5\r\nhello\r\n"), '$', 0},
    {TEXT("$11\r\n\r\n$3\r\n\0*1\r\n\r\n"), '$', 0},
    {TEXT("*-1\r\n"), '*', 0},
    {TEXT("*0\r\n"), '*', 0},
    {TEXT("*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:7\r\n"), '*', 7},
    {TEXT("*3\r\n*2\r\n:1\r\n*0\r\n*-1\r\n*1\r\n*1\r\n$-1\r\n"), '*', 1},
    {TEXT("*2\r\n-ERR inner\r\n+OK\r\n"), '*', 0},
    {TEXT("_\r\n"), '_', 0},
    {TEXT("#t\r\n"), '#', 0},
    {TEXT("#f\r\n"), '#', 0},
    {TEXT(",3.25\r\n"), ',', 0},
    {TEXT(",-inf\r\n"), ',', 0},
    {TEXT("(3492890328409238509324850943850943825024385\r\n"), '(', 0},
    {TEXT("!10\r\nSYNTAX bad\r\n"), '!', 0},
    {TEXT("=8\r\ntxt:text\r\n"), '=', 0},
    {TEXT("%0\r\n"), '%', 0},
    {TEXT("%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:2\r\n_\r\n"), '%', 2},
    {TEXT("~2\r\n#t\r\n,1\r\n"), '~', 0},
    {TEXT(">3\r\n+message\r\n+ch\r\n$2\r\nhi\r\n"), '>', 0},
    {TEXT("*2\r\n>1\r\n+push\r\n:4\r\n"), '*', 4},
    {TEXT("|0\r\n+OK\r\n"), '+', 0},
    {TEXT("|1\r\n+ttl\r\n:10\r\n$2\r\nhi\r\n"), '$', 10},
    {TEXT("|1\r\n+a\r\n*2\r\n:1\r\n:2\r\n*1\r\n:3\r\n"), '*', 3},
    {TEXT("|1\r\n+a\r\n+b\r\n|1\r\n+c\r\n+d\r\n%1\r\n+e\r\n+f\r\n"), '%', 0},
    {TEXT("|1\r\n|1\r\n+x\r\n+y\r\n+a\r\n%1\r\n+p\r\n+q\r\n~1\r\n_\r\n"), '~', 0},
    {TEXT("*2\r\n|1\r\n+a\r\n:5\r\n:6\r\n$1\r\nx\r\n"), '*', 6},
};
#define SOUND_COUNT (sizeof(sound) / sizeof(sound[0]))

Test(resp_reply, takes_sound_frames)
{
    for (size_t i = 0; i < SOUND_COUNT; i++) {
        struct resp_reply whole = {.keep_head = true};

        cr_assert_eq(feed_whole(&whole, sound[i].frame), RESP_DONE, "%s", sound[i].frame.data);
        cr_assert_eq(whole.size, sound[i].frame.length, "size of %s", sound[i].frame.data);
        cr_assert_eq(whole.type, sound[i].type, "type of %s is %c", sound[i].frame.data, whole.type);
        cr_assert_eq(whole.integer, sound[i].integer, "integer of %s", sound[i].frame.data);
    }
}

/* ---- the head ---- */

Test(resp_reply, keeps_the_head)
{
    struct slice frame = TEXT("*2\r\n$60\r\n012345678901234567890123456789012345678901234567890123456789\r\n+end\r\n");

    for (size_t step = 1; step <= frame.length; step++) {
        struct resp_reply reply = {.keep_head = true};
        size_t total;

        cr_assert_eq(feed_in_pieces(feed, &reply, frame, step, step, &total), RESP_DONE, "in steps of %zu", step);
        cr_assert_eq(reply.head_length, RESP_HEAD_KEPT, "in steps of %zu", step);
        cr_assert_eq(memcmp(reply.head, frame.data, RESP_HEAD_KEPT), 0, "in steps of %zu", step);
    }
}

/* ---- what is large ---- */

Test(resp_reply, skips_a_bulk_of_4_gib_but_no_more)
{
    static char chunk[1 << 20];
    struct slice header = TEXT("$4294967296\r\n");
    struct resp_reply reply = {0};
    size_t taken;

    cr_assert_eq(feed_whole(&reply, header), RESP_MORE, "header");
    for (size_t i = 0; i < 4096; i++) {
        cr_assert_eq(resp_reply_feed(&reply, chunk, sizeof(chunk), &taken), RESP_MORE, "chunk %zu", i);
        cr_assert_eq(taken, sizeof(chunk), "chunk %zu", i);
    }
    cr_assert_eq(resp_reply_feed(&reply, "\r\n+", 3, &taken), RESP_DONE, "end");
    cr_assert_eq(taken, 2, "only the end is taken");
    cr_assert_eq(reply.size, UINT64_C(4294967296) + header.length + 2, "size");
    resp_reply_reset(&reply);
    cr_assert_eq(feed_whole(&reply, SLICE("$4294967297\r\n")), RESP_FAULT, "one byte more");
}

Test(resp_reply, follows_any_depth)
{
    struct resp_reply reply = {0};
    size_t taken;

    for (size_t i = 0; i < 100000; i++) {
        cr_assert_eq(resp_reply_feed(&reply, "*1\r\n", 4, &taken), RESP_MORE, "level %zu", i);
    }
    cr_assert_eq(resp_reply_feed(&reply, ":1\r\n:2\r\n", 8, &taken), RESP_DONE, "the one leaf");
    cr_assert_eq(taken, 4, "and nothing behind it");
}

/* Nests the header until the framer has enough of it; returns how often it did not. */
static size_t nest(struct slice header, size_t piece)
{
    struct resp_reply reply = {0};
    size_t total;
    size_t depth = 0;

    while (depth < 2000 && feed_in_pieces(feed, &reply, header, piece, piece, &total) == RESP_MORE) {
        depth++;
    }
    return depth;
}

Test(resp_reply, refuses_absurd_sums_of_elements)
{
    /* 2^40 elements are 512 times 2^31. */
    cr_assert_eq(nest(SLICE("*2147483647\r\n"), 1), 512, "arrays");
    cr_assert_eq(nest(SLICE("*2147483647\r\n"), 13), 512, "arrays, whole");
    cr_assert_eq(nest(SLICE("%2147483647\r\n"), 13), 256, "maps");
    cr_assert_eq(nest(SLICE("|2147483647\r\n"), 13), 256, "attributes");
    /* And nearly 1100 times 10^9, which is the most that the fast path counts. */
    cr_assert_eq(nest(SLICE("*999999999\r\n"), 1), 1099, "smaller arrays");
    cr_assert_eq(nest(SLICE("*999999999\r\n"), 12), 1099, "smaller arrays, whole");
}

/* ---- what is not sound ---- */

/* With semicolons between them. */
static const char unsound[] =
    "?;OK\r\n;\r\n;HTTP/1.1 400 Bad Request\r\n;:\r\n;:-\r\n;:+1\r\n;:01\r\n;:1.5\r\n;:1\rx;"
    ":9223372036854775808\r\n;:-9223372036854775809\r\n;:99999999999999999999\r\n;$\r\n;$-2\r\n;$-0\r\n;$?\r\n;"
    "$1x\r\n;$4294967297\r\n;$2\r\nhi!\n;$2\r\nhi\r!;$2\rxhi\r\n;$3\r\nhi\r\n+;$0\r\n\n\r;*-2\r\n;*?\r\n;"
    "*2147483648\r\n;*1\r\n?;*2\r\n+OK\r\nOK\r\n;!-1\r\n;=-1\r\n;~-1\r\n;%-1\r\n;%2147483648\r\n;>-1\r\n;|-1\r\n;"
    "|1\r\n+a\r\n+b\r\n.";

Test(resp_reply, refuses_unsound_frames_at_every_cut)
{
    char copy[sizeof unsound], *rest = memcpy(copy, unsound, sizeof unsound);

    for (char *frame = strsep(&rest, ";"); frame != NULL; frame = strsep(&rest, ";")) {
        struct slice bytes = slice_of(frame);
        for (size_t first = 1; first <= bytes.length; first++) {
            for (size_t further = 1; further <= bytes.length; further++) {
                struct resp_reply reply = {0};
                size_t total;
                cr_assert_eq(feed_in_pieces(feed, &reply, bytes, first, further, &total), RESP_FAULT, "%s cut at %zu",
                             frame, first);
            }
        }
    }
    struct resp_reply reply = {0};
    cr_assert_eq(feed_whole(&reply, SLICE("\0")), RESP_FAULT);
}
