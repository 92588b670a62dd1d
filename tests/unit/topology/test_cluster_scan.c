/* SCAN over several masters: each is scanned to its end, in the order of their lowest slots, and what changes hands
 * meanwhile once more. Nodes are played: a table of buckets, in which a key has another place at each node. */
#include "base/text.h"
#include "topology/cluster_scan.h"

#include "../command/command_fixture.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define HOUR_US CLUSTER_SCAN_MEMORY_US
/* Far from 0, as that means "never". */
#define NOW (10 * HOUR_US)

/* Three masters; the second one in the reply has the lowest slots. */
static struct cluster_map *three_masters(void)
{
    char why[CLUSTER_WHY_MAX];
    struct cluster_map *map = cluster_map_parse(
        slice_of("*3\r\n*3\r\n:10000\r\n:16383\r\n*2\r\n$1\r\nc\r\n:3\r\n"
                 "*3\r\n:5\r\n:99\r\n*2\r\n$1\r\na\r\n:1\r\n*3\r\n:100\r\n:9999\r\n*2\r\n$1\r\nb\r\n:2\r\n"),
        "", why);

    cr_assert_not_null(map, "%s", why);
    return map;
}

static char *text_of(const struct cluster_map *map, const struct cluster_cursor *cursor, const char *reply)
{
    struct text_stream out;

    cr_assert(text_open(&out));
    cluster_scan_write_reply(map, NOW, cursor, slice_of(reply), out.out);
    cr_assert(text_close(&out));
    char *text = strndup(out.bytes, out.length);
    text_free(&out);
    return text;
}

/* The cursor that the client is given when the node answers that one. */
static uint64_t answered(const struct cluster_map *map, const struct cluster_cursor *cursor, uint64_t node)
{
    char reply[128], digits[24];

    snprintf(digits, sizeof(digits), "%" PRIu64, node);
    snprintf(reply, sizeof(reply), "*2\r\n$%zu\r\n%s\r\n*1\r\n$1\r\nk\r\n", strlen(digits), digits);
    char *text = text_of(map, cursor, reply);
    cr_assert_eq(memcmp(text, "*2\r\n$", 5), 0, "%s", text);
    uint64_t given = strtoull(strstr(text + 4, "\r\n") + 2, NULL, 10);
    cr_assert_not_null(strstr(text, "\r\n*1\r\n$1\r\nk\r\n"));
    free(text);
    return given;
}

static struct cluster_cursor read(const struct cluster_map *map, uint64_t number)
{
    struct cluster_cursor cursor;
    char digits[24];

    snprintf(digits, sizeof(digits), "%" PRIu64, number);
    cr_assert(cluster_scan_read(map, NOW, slice_of(digits), &cursor));
    return cursor;
}

Test(cluster_scan, a_slot_that_nobody_has_any_more_leads_on)
{
    struct cluster_map *map = three_masters();
    struct cluster_cursor cursor = read(map, 100);

    uint64_t number = answered(map, &cursor, 7);
    map->owner[100] = CLUSTER_NOBODY;
    cursor = read(map, number);
    cr_assert_eq(cursor.slot, 101);
    cr_assert_eq(cursor.node, 0);
    cr_assert_not(cursor.is_over);
    for (size_t slot = 100; slot < CLUSTER_SLOTS; slot++)
        map->owner[slot] = CLUSTER_NOBODY;
    cursor = read(map, number);
    cr_assert_eq(cursor.slot, 5, "somebody says whether the client may");
    cr_assert(cursor.is_over);
    cr_assert_eq(answered(map, &cursor, 7), 0);
    cluster_map_release(map);
}

Test(cluster_scan, cursors_are_positive_and_have_room)
{
    static const uint64_t nodes[] = {1, ((uint64_t)1 << 22) - 1, ((uint64_t)1 << 32) - 1, (uint64_t)1 << 32,
                                     ((uint64_t)1 << 44) - 1};
    struct cluster_map *map = three_masters();

    for (uint64_t number = 0; number != 10000; number = number == 0 ? 100 : 10000) {
        struct cluster_cursor cursor = read(map, number);
        for (size_t i = 0; i < COUNT_OF(nodes); i++) {
            uint64_t given = answered(map, &cursor, nodes[i]);
            cr_assert_leq(given, INT64_MAX);
            cr_assert(i > 1 || given < (uint64_t)1 << 53, "a double has room for it");
            cr_assert_eq(read(map, given).node, nodes[i]);
            cr_assert_eq(read(map, given).slot, cursor.slot);
        }
    }
    cluster_map_release(map);
}

Test(cluster_scan, any_number_leads_to_an_owner)
{
    struct cluster_map *map = three_masters();
    uint64_t number = 1;

    for (size_t i = 0; i < 4000; i++) {
        number = number * 6364136223846793005U + 1442695040888963407U;
        struct cluster_cursor cursor = read(map, number >> (1 + i % 63));
        cr_assert_neq(map->owner[cursor.slot], CLUSTER_NOBODY);
        cr_assert_leq(answered(map, &cursor, 0), INT64_MAX);
    }
    cluster_map_release(map);
}

Test(cluster_scan, what_is_no_cursor)
{
    static const char *const texts[] = {
        "", "x", "-1", "1x", " 1", "9223372036854775808", "18446744073709551615", "99999999999999999999", "0x10"};
    struct cluster_map *map = three_masters();
    struct cluster_cursor cursor;

    for (size_t i = 0; i < COUNT_OF(texts); i++)
        cr_expect_not(cluster_scan_read(map, NOW, slice_of(texts[i]), &cursor), "%s", texts[i]);
    cluster_map_release(map);
}

Test(cluster_scan, errors_go_through)
{
    struct cluster_map *map = three_masters();
    struct cluster_cursor cursor = read(map, 5);
    static const char *const replies[] = {"-NOPERM no\r\n", "*0\r\n", "*2\r\n$1\r\nx\r\n*0\r\n", "+OK\r\n"};

    for (size_t i = 0; i < COUNT_OF(replies); i++) {
        char *text = text_of(map, &cursor, replies[i]);
        cr_expect_str_eq(text, replies[i]);
        free(text);
    }
    char *text = text_of(map, &cursor, "*2\r\n$14\r\n17592186044416\r\n*0\r\n");
    cr_expect_eq(text[0], '-');
    free(text);
    cluster_map_release(map);
}
