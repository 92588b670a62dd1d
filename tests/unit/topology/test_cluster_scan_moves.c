/*
 * SCAN while slots move, nodes fail over, and new ones come, as chance has it: what stays is found, and the scan ends.
 *
 * Nodes are played. Each has a table of buckets, in which a key has another place at each node; a call gives one
 * bucket. Two Headgates take turns, which hear of changes at other times.
 */
#include "../../rig/rig_random.h"
#include "topology/cluster_scan.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MASTERS_MAX 64
#define BUCKETS 4
/* Keys are in these slots only: so many, at equal distances. */
#define KEYS 256
#define SLOT_OF(key) ((key) * (CLUSTER_SLOTS / KEYS))
#define HEADGATES 2
#define ROUNDS 200

struct headgate {
    struct cluster_map *map;
};

struct world {
    uint64_t chance;
    int64_t now_us;
    size_t node_count;
    int16_t owner[CLUSTER_SLOTS]; /* as it is */
    struct headgate headgates[HEADGATES];
    bool is_found[KEYS];
};

static uint64_t draw(struct world *world, uint64_t bound)
{
    return next_random(&world->chance) % bound;
}

/* ---- maps ---- */

static struct cluster_map *map_of(const struct world *world)
{
    struct cluster_map *map = calloc(1, sizeof(*map));

    map->nodes = calloc(MASTERS_MAX, sizeof(*map->nodes));
    map->node_count = world->node_count;
    map->master_count = world->node_count;
    memcpy(map->owner, world->owner, sizeof(map->owner));
    for (size_t i = 0; i < map->node_count; i++) {
        /* The low ten bits of their CRC16 differ. */
        snprintf(map->nodes[i].id, sizeof(map->nodes[i].id), "node-%zu", i);
        snprintf(map->nodes[i].host, sizeof(map->nodes[i].host), "host");
        map->nodes[i].port = (uint16_t)(i + 1);
        map->nodes[i].is_master = true;
    }
    atomic_init(&map->references, 1);
    return map;
}

static void hear(struct world *world, struct headgate *headgate)
{
    struct cluster_map *map = map_of(world);

    cluster_map_note_changes(map, headgate->map, world->now_us);
    cluster_map_release(headgate->map);
    headgate->map = map;
}

static void all_hear(struct world *world)
{
    for (size_t i = 0; i < HEADGATES; i++)
        hear(world, &world->headgates[i]);
}

/* ---- what happens ---- */

static void give(struct world *world, size_t first, size_t last, size_t to)
{
    for (size_t slot = first; slot <= last && slot < CLUSTER_SLOTS; slot++)
        world->owner[slot] = (int16_t)to;
}

/* Often neighbours of what somebody has, as redis-cli moves slots one by one. */
static void move_slots(struct world *world)
{
    size_t first = draw(world, CLUSTER_SLOTS);

    give(world, first, first + draw(world, draw(world, 4) == 0 ? 4000 : 80), draw(world, world->node_count));
}

static void extend_run(struct world *world)
{
    size_t slot = draw(world, CLUSTER_SLOTS);
    int16_t owner = world->owner[slot];

    while (slot < CLUSTER_SLOTS && world->owner[slot] == owner)
        slot++;
    give(world, slot, slot + draw(world, 100), (size_t)owner);
}

static void fail_over(struct world *world)
{
    int16_t from = world->owner[draw(world, CLUSTER_SLOTS)];
    int16_t to = (int16_t)world->node_count++;

    for (size_t slot = 0; slot < CLUSTER_SLOTS; slot++)
        world->owner[slot] = world->owner[slot] == from ? to : world->owner[slot];
}

static void happen(struct world *world)
{
    switch (world->node_count < MASTERS_MAX ? draw(world, 8) : draw(world, 6)) {
    case 6:
        fail_over(world);
        break;
    case 7: /* a new node takes the lowest slots */
        give(world, 0, draw(world, 3000), world->node_count++);
        break;
    case 4:
    case 5:
        extend_run(world);
        break;
    default:
        move_slots(world);
    }
}

/* ---- a scan ---- */

static size_t bucket_of(size_t key, int16_t node)
{
    return (size_t)(((uint64_t)key + 1) * (uint64_t)(2 * node + 3) * 0x9e3779b97f4a7c15U >> 40) % BUCKETS;
}

/* What the node answers: its cursors are 1 … BUCKETS - 1, times a number that makes some of them wide. */
static uint64_t ask(struct world *world, int16_t node, uint64_t cursor, uint64_t unit)
{
    uint64_t bucket = cursor / unit % BUCKETS;

    for (size_t key = 0; key < KEYS; key++)
        if (world->owner[SLOT_OF(key)] == node && bucket_of(key, node) == bucket)
            world->is_found[key] = true;
    return bucket + 1 < BUCKETS ? (bucket + 1) * unit : 0;
}

/* In between the node has answered, and what it says is worked out by the newest map. */
static uint64_t call(struct world *world, struct headgate *headgate, uint64_t number, uint64_t unit,
                     void (*meanwhile)(struct world *world))
{
    struct cluster_cursor cursor;
    char digits[24], *reply;
    size_t length;

    snprintf(digits, sizeof(digits), "%" PRIu64, number);
    cr_assert(cluster_scan_read(headgate->map, world->now_us, slice_of(digits), &cursor));
    uint64_t answered = ask(world, headgate->map->owner[cursor.slot], cursor.node, unit);
    if (meanwhile != NULL)
        meanwhile(world);
    char text[64], node[24];
    snprintf(node, sizeof(node), "%" PRIu64, answered);
    snprintf(text, sizeof(text), "*2\r\n$%zu\r\n%s\r\n*0\r\n", strlen(node), node);
    FILE *out = open_memstream(&reply, &length);
    cluster_scan_write_reply(headgate->map, world->now_us, &cursor, slice_of(text), out);
    fclose(out);
    cr_assert_eq(memcmp(reply, "*2\r\n$", 5), 0, "%s", reply);
    uint64_t next = strtoull(strstr(reply + 4, "\r\n") + 2, NULL, 10);
    free(reply);
    return next;
}

static void set_up(struct world *world, uint64_t seed, size_t masters)
{
    *world = (struct world){.chance = seed * 0x9e3779b97f4a7c15U + 1, .now_us = 10 * CLUSTER_SCAN_MEMORY_US};
    world->node_count = masters;
    for (size_t slot = 0; slot < CLUSTER_SLOTS; slot++)
        world->owner[slot] = (int16_t)(slot * masters / CLUSTER_SLOTS);
    all_hear(world);
}

static void tear_down(struct world *world)
{
    for (size_t i = 0; i < HEADGATES; i++)
        cluster_map_release(world->headgates[i].map);
}

static void expect_all_found(const struct world *world, uint64_t seed)
{
    for (size_t key = 0; key < KEYS; key++)
        cr_assert(world->is_found[key], "seed %" PRIu64 ": the key of slot %zu", seed, SLOT_OF(key));
}

/* Something happens, and both hear of it before anything else does: the one a moment after the other. */
static void happen_and_hear(struct world *world)
{
    happen(world);
    world->now_us += 1000;
    hear(world, &world->headgates[0]);
    world->now_us += 1000;
    hear(world, &world->headgates[1]);
}

/* What has happened within the last two hours: while the scan goes on, some of it becomes old. */
static void have_a_past(struct world *world)
{
    for (uint64_t i = draw(world, 6); i > 0; i--) {
        happen_and_hear(world);
        world->now_us += (int64_t)draw(world, 2 * CLUSTER_SCAN_MEMORY_US / 5);
    }
}

/* Returns the number of calls. */
static size_t scan(struct world *world, size_t changes, uint64_t unit, int64_t most_us)
{
    /* Each slot has a turn at most, and begins again when something changes. */
    size_t calls = 0, most = BUCKETS * (CLUSTER_SLOTS + changes + 1);
    int64_t begun_us = world->now_us;
    uint64_t number = 0;

    do {
        bool happens = changes > 0 && draw(world, 3) == 0;
        bool meanwhile = happens && draw(world, 2) == 0;
        changes -= happens;
        number =
            call(world, &world->headgates[draw(world, HEADGATES)], number, unit, meanwhile ? happen_and_hear : NULL);
        if (happens && !meanwhile)
            happen_and_hear(world);
        if (world->now_us - begun_us < most_us)
            world->now_us += (int64_t)draw(world, (uint64_t)most_us / 20);
        cr_assert_lt(++calls, most);
    } while (number != 0);
    return calls;
}

Test(cluster_scan_moves, what_stays_is_found)
{
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        struct world world;
        set_up(&world, seed, 2 + seed % 5);
        have_a_past(&world);
        /* The last steps of time and of happenings still fit into the hour. */
        (void)scan(&world, draw(&world, 15), 1 + seed % 7, CLUSTER_SCAN_MEMORY_US / 10 * 9);
        expect_all_found(&world, seed);
        tear_down(&world);
    }
}

/* One Headgate only, as those that know different times do not always agree on what a turn has covered. */
Test(cluster_scan_moves, what_stays_is_found_with_wide_cursors)
{
    for (uint64_t seed = 1; seed <= ROUNDS / 4; seed++) {
        struct world world;
        set_up(&world, seed, 2 + seed % 5);
        have_a_past(&world);
        (void)scan(&world, 0, (uint64_t)1 << 33, CLUSTER_SCAN_MEMORY_US / 10 * 9);
        expect_all_found(&world, seed);
        tear_down(&world);
    }
}

Test(cluster_scan_moves, without_changes_each_node_is_scanned_once)
{
    struct world world;

    set_up(&world, 7, 5);
    have_a_past(&world);
    for (size_t i = 0; i < 20; i++)
        happen_and_hear(&world);
    world.now_us += CLUSTER_SCAN_MEMORY_US;
    size_t owners = 0;
    bool owns[MASTERS_MAX] = {false};
    for (size_t slot = 0; slot < CLUSTER_SLOTS; slot++) {
        owners += !owns[world.owner[slot]];
        owns[world.owner[slot]] = true;
    }
    cr_assert_eq(scan(&world, 0, 1, 1000000), owners * BUCKETS);
    expect_all_found(&world, 7);
    tear_down(&world);
}

/* As after a failover: the length of its run is rounded down to two bits behind the first. */
Test(cluster_scan_moves, a_run_that_changed_hands_costs_a_few_turns)
{
    struct world world;

    set_up(&world, 7, 3);
    give(&world, 0, CLUSTER_SLOTS / 3 - 1, world.node_count++);
    all_hear(&world);
    size_t calls = scan(&world, 0, 1, 1000000);
    cr_assert_leq(calls, (2 + 5) * BUCKETS, "%zu", calls);
    expect_all_found(&world, 7);
    tear_down(&world);
}
