#include "topology/cluster_scan.h"

#include "resp/resp_element.h"
#include "topology/cluster_slot.h"

#include <inttypes.h>
#include <stdio.h>

/*
 * A cursor as a number, from its lowest bit: the slot (14), whether it is wide (1), the mark of the slot's owner, the
 * length of the run, the cursor of the node. It has 63 bits, as many clients read it as a signed number. Those that
 * read it as a double are well served up to 2^22 of the node.
 */
#define SLOT_BITS 14

struct form {
    unsigned int mark_bits;
    unsigned int run_bits;
    unsigned int node_bits;
};

static const struct form forms[2] = {
    {10, 6, 32}, {4, 0, 44}, /* wide */
};

static uint64_t low_bits(uint64_t number, unsigned int count)
{
    return number & (((uint64_t)1 << count) - 1);
}

/* ---- lengths of runs, rounded down ---- */

/* Of all slots. */
#define RUN_CODE_MOST 52

static uint16_t run_of_code(unsigned int code)
{
    return (uint16_t)(code < 4 ? code + 1 : (4 + code % 4) << (code / 4 - 1));
}

static unsigned int code_of_run(uint16_t run)
{
    unsigned int code = RUN_CODE_MOST;

    while (code > 0 && run_of_code(code) > run) {
        code--;
    }
    return code;
}

/* ---- numbers ---- */

/* False: there is no room for the cursor of the node. */
static bool write_cursor(const struct cluster_cursor *cursor, uint64_t *number)
{
    uint64_t is_wide = cursor->node >> forms[0].node_bits > 0;
    const struct form *form = &forms[is_wide];
    uint64_t high = cursor->node;

    if (cursor->node >> form->node_bits > 0) {
        return false;
    }
    high = form->run_bits > 0 ? high << form->run_bits | code_of_run(cursor->run) : high;
    high = high << form->mark_bits | low_bits(cursor->mark, form->mark_bits);
    *number = (high << 1 | is_wide) << SLOT_BITS | cursor->slot;
    return true;
}

/* The mark is not compared yet. */
static struct cluster_cursor read_cursor(uint64_t number, const struct form **form)
{
    struct cluster_cursor cursor = {.slot = (uint16_t)low_bits(number, SLOT_BITS)};
    uint64_t high = number >> SLOT_BITS;

    *form = &forms[high & 1];
    high >>= 1;
    cursor.mark = (uint16_t)low_bits(high, (*form)->mark_bits);
    high >>= (*form)->mark_bits;
    if ((*form)->run_bits > 0) {
        uint64_t code = low_bits(high, (*form)->run_bits);
        cursor.run = run_of_code(code < RUN_CODE_MOST ? (unsigned int)code : RUN_CODE_MOST);
    }
    cursor.node = high >> (*form)->run_bits;
    return cursor;
}

/* As Redis does (strtoul), but for signs and blanks, which no server has given out, and for what has more than 63 bits.
 */
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

/* ---- turns ---- */

static uint16_t mark_of(const struct cluster_map *map, int16_t owner)
{
    char address[CLUSTER_TEXT_MAX];
    const struct cluster_node *node = &map->nodes[owner];

    if (node->id[0] != '\0') {
        return cluster_slot_of(slice_of(node->id));
    }
    cluster_map_address_text(node->host, node->port, address);
    return cluster_slot_of(slice_of(address));
}

static bool is_new(const struct cluster_map *map, size_t slot, int64_t now_us)
{
    return map->changed_us[slot] > 0 && now_us - map->changed_us[slot] < CLUSTER_SCAN_MEMORY_US;
}

/* The first slot, from that one on, that needs a turn; CLUSTER_NOBODY: none does. */
static int32_t next_turn(const struct cluster_map *map, int64_t now_us, uint32_t from)
{
    bool is_scanned[CLUSTER_NODES_MAX] = {false};

    for (uint32_t slot = 0; slot < from; slot++) {
        if (map->owner[slot] != CLUSTER_NOBODY && !is_new(map, slot, now_us)) {
            is_scanned[map->owner[slot]] = true;
        }
    }
    for (uint32_t slot = from; slot < CLUSTER_SLOTS; slot++) {
        int16_t owner = map->owner[slot];
        if (owner != CLUSTER_NOBODY && (is_new(map, slot, now_us) || !is_scanned[owner])) {
            return (int32_t)slot;
        }
    }
    return CLUSTER_NOBODY;
}

/* How many slots, from that one on, have one owner. */
static uint16_t run_length(const struct cluster_map *map, uint16_t slot)
{
    uint32_t end = slot;

    while (end < CLUSTER_SLOTS && map->owner[end] == map->owner[slot]) {
        end++;
    }
    return (uint16_t)(end - slot);
}

static void begin_turn(const struct cluster_map *map, uint16_t slot, struct cluster_cursor *cursor)
{
    *cursor = (struct cluster_cursor){.slot = slot};
    cursor->mark = mark_of(map, map->owner[slot]);
    cursor->run = run_length(map, slot);
}

/* The next turn from that slot on. If there is none any more, somebody is asked all the same, as it is the node that
 * knows whether the client may. */
static void begin_next_turn(const struct cluster_map *map, int64_t now_us, uint16_t from, struct cluster_cursor *cursor)
{
    int32_t turn = next_turn(map, now_us, from);
    int32_t slot = turn != CLUSTER_NOBODY ? turn : next_turn(map, now_us, 0);

    begin_turn(map, (uint16_t)slot, cursor);
    cursor->is_over = turn == CLUSTER_NOBODY;
}

bool cluster_scan_read(const struct cluster_map *map, int64_t now_us, struct slice text, struct cluster_cursor *cursor)
{
    const struct form *form;
    uint64_t number;

    if (!read_unsigned(text, &number) || number > INT64_MAX) {
        return false;
    }
    *cursor = read_cursor(number, &form);
    int16_t owner = map->owner[cursor->slot];
    if (number == 0 || owner == CLUSTER_NOBODY) {
        begin_next_turn(map, now_us, cursor->slot, cursor);
    } else if (cursor->node == 0 || cursor->mark != low_bits(mark_of(map, owner), form->mark_bits)) {
        /* Not the next turn from there on: whoever has written the cursor may know more of that slot. */
        begin_turn(map, cursor->slot, cursor);
    } else {
        cursor->mark = mark_of(map, owner);
    }
    return true;
}

/* ---- requests and replies ---- */

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

/* The first slot that the turn does not speak for, now that it is over. */
static uint32_t end_of_turn(const struct cluster_map *map, const struct cluster_cursor *cursor)
{
    uint32_t slot = cursor->slot;
    bool is_covered;

    do {
        slot++;
        /* Where there was no room for the length: what has been the owner's for longer than the slot of the turn. */
        is_covered = slot < CLUSTER_SLOTS && map->owner[slot] == map->owner[cursor->slot] &&
                     (cursor->run > 0 ? slot < cursor->slot + (uint32_t)cursor->run
                                      : map->changed_us[slot] <= map->changed_us[cursor->slot]);
    } while (is_covered);
    return slot;
}

/* The cursor behind one that a node has answered. False: there is no room for it. */
static bool lead_on(const struct cluster_map *map, int64_t now_us, const struct cluster_cursor *cursor,
                    uint64_t answered, uint64_t *next)
{
    struct cluster_cursor further = *cursor;
    int16_t owner = map->owner[cursor->slot];

    *next = 0;
    if (cursor->is_over) {
        return true;
    }
    if (owner == CLUSTER_NOBODY || mark_of(map, owner) != cursor->mark) {
        /* Another node has the slot by now. (The run is there so that it is not the number 0.) */
        further = (struct cluster_cursor){.slot = cursor->slot, .run = 2};
        return write_cursor(&further, next);
    }
    if (cursor->run > run_length(map, cursor->slot)) {
        further.run = run_length(map, cursor->slot);
    }
    further.node = answered;
    if (answered > 0) {
        return write_cursor(&further, next);
    }
    int32_t turn = next_turn(map, now_us, end_of_turn(map, &further));
    *next = turn == CLUSTER_NOBODY ? 0 : (uint64_t)turn;
    return true;
}

void cluster_scan_write_reply(const struct cluster_map *map, int64_t now_us, const struct cluster_cursor *cursor,
                              struct slice reply, FILE *out)
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
    if (!lead_on(map, now_us, cursor, answered, &next)) {
        fputs("-ERR the cursor of the node is too large\r\n", out);
        return;
    }
    fputs("*2\r\n", out);
    write_number(out, next);
    fwrite(pair.inside.data, 1, pair.inside.length, out);
}
