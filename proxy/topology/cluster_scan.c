#include "topology/cluster_scan.h"

#include "resp/resp_element.h"

#include <inttypes.h>
#include <stdio.h>

/* Beyond, there is no room for the slot: far more than any node's table has. */
#define NODE_CURSOR_END (UINT64_MAX / CLUSTER_SLOTS)

/* As Redis does (strtoul), but for signs and blanks, which no server has given out. */
static bool read_unsigned(struct slice text, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || *number > (UINT64_MAX - 9) / 10) {
            return false;
        }
        *number = *number * 10 + (uint64_t)(text.data[i] - '0');
    }
    return text.length > 0;
}

static void find_lowest(const struct cluster_map *map, int32_t lowest[CLUSTER_NODES_MAX])
{
    for (size_t i = 0; i < map->node_count; i++) {
        lowest[i] = CLUSTER_NOBODY;
    }
    for (int32_t slot = CLUSTER_SLOTS - 1; slot >= 0; slot--) {
        if (map->owner[slot] != CLUSTER_NOBODY) {
            lowest[map->owner[slot]] = slot;
        }
    }
}

/* The lowest slot, from that one on, which is the lowest of its owner; CLUSTER_NOBODY: all have had their turn. */
static int32_t next_turn(const struct cluster_map *map, int32_t from)
{
    int32_t lowest[CLUSTER_NODES_MAX];
    int32_t next = CLUSTER_NOBODY;

    find_lowest(map, lowest);
    for (size_t i = 0; i < map->node_count; i++) {
        if (lowest[i] >= from && (next == CLUSTER_NOBODY || lowest[i] < next)) {
            next = lowest[i];
        }
    }
    return next;
}

bool cluster_scan_read(const struct cluster_map *map, struct slice text, struct cluster_cursor *cursor)
{
    uint64_t number;

    if (!read_unsigned(text, &number)) {
        return false;
    }
    cursor->slot = (uint16_t)(number % CLUSTER_SLOTS);
    cursor->node = number / CLUSTER_SLOTS;
    /* At the very beginning, and where nobody has the slot any more. */
    if (number == 0 || map->owner[cursor->slot] == CLUSTER_NOBODY) {
        int32_t next = next_turn(map, cursor->slot);
        if (next == CLUSTER_NOBODY) {
            next = next_turn(map, 0);
        }
        cursor->slot = (uint16_t)next;
        cursor->node = 0;
    }
    return true;
}

static void write_argument(FILE *out, struct slice argument)
{
    fprintf(out, "$%zu\r\n", argument.length);
    fwrite(argument.data, 1, argument.length, out);
    fputs("\r\n", out);
}

static void write_number(FILE *out, uint64_t number)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, number);

    write_argument(out, (struct slice){digits, (size_t)length});
}

void cluster_scan_write_request(const struct cluster_cursor *cursor, struct slice frame, FILE *out)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument;
    uint32_t count = walk.left;

    fprintf(out, "*%u\r\n", count);
    for (uint32_t i = 0; i < count && resp_walk_next(&walk, &argument); i++) {
        if (i == 1) {
            write_number(out, cursor->node);
        } else {
            write_argument(out, argument);
        }
    }
}

/* The cursor behind one that a node has answered. False: there is no room for it. */
static bool lead_on(const struct cluster_map *map, const struct cluster_cursor *cursor, uint64_t answered,
                    uint64_t *next)
{
    if (answered > 0) {
        *next = answered * CLUSTER_SLOTS + cursor->slot;
        return answered < NODE_CURSOR_END;
    }
    int32_t turn = next_turn(map, cursor->slot + 1);
    *next = turn == CLUSTER_NOBODY ? 0 : (uint64_t)turn;
    return true;
}

void cluster_scan_write_reply(const struct cluster_map *map, const struct cluster_cursor *cursor, struct slice reply,
                              FILE *out)
{
    struct slice rest = reply;
    struct resp_element pair;
    struct slice text;
    uint64_t answered, next;

    if (!resp_element_next(&rest, &pair) || pair.type != '*' || pair.count != 2 ||
        !resp_element_next_text(&pair.inside, &text) || !read_unsigned(text, &answered)) {
        fwrite(reply.data, 1, reply.length, out);
        return;
    }
    if (!lead_on(map, cursor, answered, &next)) {
        fputs("-ERR the cursor of the node is too large\r\n", out);
        return;
    }
    fputs("*2\r\n", out);
    write_number(out, next);
    fwrite(pair.inside.data, 1, pair.inside.length, out);
}
