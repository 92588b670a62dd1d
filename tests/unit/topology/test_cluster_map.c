/* Maps of slots out of replies to CLUSTER SLOTS: of every version, of every kind of endpoint, and of liars. */
#include "topology/cluster_map.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Parts of replies. The ids are those of Redis: 40 letters. */
#define ID(letter)                                                                                                     \
    "$40\r\n" letter letter letter letter letter letter letter letter letter letter letter letter letter letter letter \
        letter letter letter letter letter letter letter letter letter letter letter letter letter letter letter       \
            letter letter letter letter letter letter letter letter letter letter "\r\n"
#define NODE(host, port, letter) "*4\r\n" host port ID(letter) "*0\r\n"
#define LOCAL "$9\r\n127.0.0.1\r\n"
#define RANGE(count, first, last) "*" #count "\r\n:" #first "\r\n:" #last "\r\n"

static const char three_masters[] = "*3\r\n"                                          /**/
    RANGE(4, 0, 5460) NODE(LOCAL, ":7000\r\n", "a") NODE(LOCAL, ":7003\r\n", "d")     /**/
    RANGE(4, 5461, 10922) NODE(LOCAL, ":7001\r\n", "b") NODE(LOCAL, ":7004\r\n", "e") /**/
    RANGE(3, 10923, 16383) NODE(LOCAL, ":7002\r\n", "c");

static struct cluster_map *parse(const char *reply)
{
    char why[CLUSTER_WHY_MAX];
    struct cluster_map *map = cluster_map_parse(slice_of(reply), "asked.example", why);

    cr_assert_not_null(map, "%s: %s", why, reply);
    return map;
}

static const struct cluster_node *owner(const struct cluster_map *map, int slot)
{
    return map->owner[slot] == CLUSTER_NOBODY ? NULL : &map->nodes[map->owner[slot]];
}

Test(cluster_map, masters_replicas_and_slots)
{
    struct cluster_map *map = parse(three_masters);

    cr_assert_eq(map->node_count, 5);
    cr_assert_eq(map->master_count, 3);
    cr_assert_eq(map->uncovered, 0);
    cr_assert_eq(owner(map, 0)->port, 7000);
    cr_assert_eq(owner(map, 5460)->port, 7000);
    cr_assert_eq(owner(map, 5461)->port, 7001);
    cr_assert_eq(owner(map, 16383)->port, 7002);
    cr_assert_eq(owner(map, 0)->slot_count, 5461);
    cr_assert_eq(owner(map, 0)->id[0], 'a');
    cr_assert_eq(strlen(owner(map, 0)->id), 40);
    const struct cluster_node *replica = &map->nodes[cluster_map_find(map, "127.0.0.1", 7004)];
    cr_assert_not(replica->is_master);
    cr_assert_eq(map->nodes[replica->master].port, 7001);
    cr_assert_eq(replica->slot_count, 0);
    cr_assert_eq(replica->targets.count, 1);
    cr_assert_eq(cluster_map_find(map, "127.0.0.1", 7005), CLUSTER_NOBODY);
    cluster_map_release(map);
}

Test(cluster_map, a_node_may_have_many_ranges)
{
    struct cluster_map *map = parse("*3\r\n" RANGE(3, 0, 99) NODE(LOCAL, ":7000\r\n", "a") RANGE(3, 100, 100) NODE(
        LOCAL, ":7001\r\n", "b") RANGE(3, 200, 16383) NODE(LOCAL, ":7000\r\n", "a"));

    cr_assert_eq(map->node_count, 2);
    cr_assert_eq(map->uncovered, 99);
    cr_assert_eq(owner(map, 300), owner(map, 5));
    cr_assert_null(owner(map, 101));
    cr_assert_eq(owner(map, 5)->slot_count, 100 + 16184);
    cluster_map_release(map);
}

static void expect_host(const char *node, const char *host)
{
    char reply[512];

    snprintf(reply, sizeof(reply), "*1\r\n" RANGE(3, 0, 16383) "%s", node);
    struct cluster_map *map = parse(reply);
    cr_expect_str_eq(owner(map, 0)->host, host, "%s", node);
    cluster_map_release(map);
}

Test(cluster_map, endpoints_of_every_kind)
{
    expect_host("*2\r\n" LOCAL ":7000\r\n", "127.0.0.1");
    expect_host("*3\r\n" LOCAL ":7000\r\n" ID("a"), "127.0.0.1");
    expect_host("*4\r\n$3\r\n::1\r\n:7000\r\n" ID("a") "*0\r\n", "::1");
    expect_host("*4\r\n$8\r\nredis-1a\r\n:7000\r\n" ID("a") "*2\r\n$2\r\nip\r\n" LOCAL, "redis-1a");
    expect_host("*4\r\n$8\r\nredis-1a\r\n:7000\r\n" ID("a") "%1\r\n$2\r\nip\r\n" LOCAL, "redis-1a");
    /* The node does not know itself yet, or may not tell. */
    expect_host("*4\r\n$0\r\n\r\n:7000\r\n" ID("a") "*0\r\n", "asked.example");
    expect_host("*4\r\n$-1\r\n:7000\r\n" ID("a") "*2\r\n$2\r\nip\r\n" LOCAL, "asked.example");
    expect_host("*4\r\n_\r\n:7000\r\n" ID("a") "%1\r\n$2\r\nip\r\n" LOCAL, "asked.example");
    /* Names are preferred, and it has none. */
    expect_host("*4\r\n$1\r\n?\r\n:7000\r\n" ID("a") "*2\r\n$2\r\nip\r\n" LOCAL, "127.0.0.1");
}

Test(cluster_map, masters_without_slots)
{
    static const char lines[] = "x 127.0.0.1:7000@17000,n.example myself,master - 0 0 1 connected 0-16383\n"
                                "y ::1:7001@17001,m.example,shard-id=z master - 0 0 2 connected\n"
                                "a :7003@17003 master -\na\n\na 127.0.0.1:0@0 noaddr,master -\n"
                                "a 127.0.0.1:7003@17003 handshake -\na 127.0.0.1:7003@17003 slave x\n"
                                "a 127.0.0.1:7003@17003 master,fail -\na 127.0.0.1:7000@17000,n.example master -\n"
                                "x 127.0.0.1:7003@17003 master -\nz 127.0.0.1:7002 master,fail? -";
    static const char *const hosts[] = {LOCAL, "$9\r\nn.example\r\n"};
    char slots[128], nodes[sizeof(lines) + 32];

    for (size_t by_name = 0; by_name < COUNT_OF(hosts); by_name++) {
        snprintf(slots, sizeof(slots), "*1\r\n" RANGE(3, 0, 16383) "*3\r\n%s:7000\r\n$1\r\nx\r\n", hosts[by_name]);
        snprintf(nodes, sizeof(nodes), "$%zu\r\n%s\r\n", strlen(lines), lines);
        struct cluster_map *map = parse(slots);
        cluster_map_add_masters(map, slice_of(nodes));
        cr_assert(map->node_count == 3 && map->master_count == 1);
        cr_expect_str_eq(map->nodes[1].host, by_name ? "m.example" : "::1");
        cr_expect_str_eq(map->nodes[2].host, "127.0.0.1");
        cr_expect(map->nodes[2].port == 7002 && map->nodes[2].is_master && map->nodes[2].master == 2);
        cluster_map_release(map);
    }
}

Test(cluster_map, what_cannot_be_is_refused_with_a_reason)
{
    static const char *const replies[] = {
        "",
        "*0\r\n",
        "*-1\r\n",
        "+OK\r\n",
        ":1\r\n",
        "$-1\r\n",
        "*1\r\n",
        "x",
        "-ERR This instance has cluster support disabled\r\n",
        "*1\r\n*0\r\n",
        "*1\r\n" RANGE(2, 0, 1),
        "*1\r\n:1\r\n",
        "*1\r\n" RANGE(3, 0, 16384) NODE(LOCAL, ":7000\r\n", "a"),
        "*1\r\n" RANGE(3, -1, 5) NODE(LOCAL, ":7000\r\n", "a"),
        "*1\r\n" RANGE(3, 5, 4) NODE(LOCAL, ":7000\r\n", "a"),
        "*1\r\n*3\r\n+0\r\n+1\r\n" NODE(LOCAL, ":7000\r\n", "a"),
        "*1\r\n" RANGE(3, 0, 1) "*1\r\n" LOCAL,
        "*1\r\n" RANGE(3, 0, 1) "+node\r\n",
        "*1\r\n" RANGE(3, 0, 1) NODE(LOCAL, ":0\r\n", "a"),
        "*1\r\n" RANGE(3, 0, 1) NODE(LOCAL, ":65536\r\n", "a"),
        "*1\r\n" RANGE(3, 0, 1) NODE(LOCAL, "$4\r\n7000\r\n", "a"),
        "*1\r\n" RANGE(3, 0, 1) NODE("$1\r\n?\r\n", ":7000\r\n", "a"),
        "*1\r\n" RANGE(3, 0, 1) NODE("$3\r\na b\r\n", ":7000\r\n", "a"),
        "*1\r\n" RANGE(3, 0, 1) NODE("*1\r\n" LOCAL, ":7000\r\n", "a"),
        "*1\r\n" RANGE(3, 0, 1) "*3\r\n" LOCAL ":7000\r\n$41\r\n01234567890123456789012345678901234567890\r\n",
        "*1\r\n" RANGE(3, 0, 1) "*4\r\n" LOCAL ":7000\r\n" ID("a") ":1\r\n",
        /* One slot of two nodes. */
        "*2\r\n" RANGE(3, 0, 5) NODE(LOCAL, ":7000\r\n", "a") RANGE(3, 5, 9) NODE(LOCAL, ":7001\r\n", "b"),
        "*2\r\n" RANGE(3, 0, 5) NODE(LOCAL, ":7000\r\n", "a") RANGE(3, 0, 5) NODE(LOCAL, ":7000\r\n", "a"),
        /* One address of two nodes, one node at two addresses. */
        "*2\r\n" RANGE(3, 0, 5) NODE(LOCAL, ":7000\r\n", "a") RANGE(3, 6, 9) NODE(LOCAL, ":7000\r\n", "b"),
        "*2\r\n" RANGE(3, 0, 5) NODE(LOCAL, ":7000\r\n", "a") RANGE(3, 6, 9) NODE(LOCAL, ":7001\r\n", "a"),
        /* A master that is a replica, its own or another's; a replica of two. */
        "*1\r\n" RANGE(4, 0, 5) NODE(LOCAL, ":7000\r\n", "a") NODE(LOCAL, ":7000\r\n", "a"),
        "*2\r\n" RANGE(4, 0, 5) NODE(LOCAL, ":7000\r\n", "a") NODE(LOCAL, ":7001\r\n", "b") RANGE(3, 6, 9)
            NODE(LOCAL, ":7001\r\n", "b"),
        "*2\r\n" RANGE(4, 0, 5) NODE(LOCAL, ":7000\r\n", "a") NODE(LOCAL, ":7002\r\n", "c") RANGE(4, 6, 9)
            NODE(LOCAL, ":7001\r\n", "b") NODE(LOCAL, ":7002\r\n", "c"),
    };

    for (size_t i = 0; i < COUNT_OF(replies); i++) {
        char why[CLUSTER_WHY_MAX] = "";
        struct cluster_map *map = cluster_map_parse(slice_of(replies[i]), "asked.example", why);
        cr_expect_null(map, "%s", replies[i]);
        cr_expect_neq(why[0], '\0', "%s", replies[i]);
        cluster_map_release(map);
    }
}

Test(cluster_map, a_list_of_nodes_without_end_is_refused)
{
    static const char node[] = "*2\r\n$1\r\nb\r\n:1\r\n";
    static char reply[64 + 65536 * sizeof node];
    char *end = reply + sprintf(reply, "*1\r\n*65539\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n"), why[CLUSTER_WHY_MAX];

    for (size_t i = 0; i < 65536; i++, end += sizeof node - 1) {
        memcpy(end, node, sizeof node);
    }
    cr_assert_null(cluster_map_parse(slice_of(reply), "asked.example", why));
    cr_expect_str_eq(why, "it names nodes more often than can be");
}

Test(cluster_map, has_a_bound)
{
    size_t room = (CLUSTER_NODES_MAX + 2) * 128;
    char *reply = malloc(room), why[CLUSTER_WHY_MAX];

    for (int nodes = CLUSTER_NODES_MAX; nodes <= CLUSTER_NODES_MAX + 1; nodes++) {
        size_t length = (size_t)snprintf(reply, room, "*%d\r\n", nodes);
        for (int i = 0; i < nodes; i++)
            length += (size_t)snprintf(reply + length, room - length,
                                       "*3\r\n:%d\r\n:%d\r\n*3\r\n" LOCAL ":%d\r\n$4\r\n%04d\r\n", i, i, i + 1, i);
        struct cluster_map *map = cluster_map_parse((struct slice){reply, length}, "", why);
        cr_assert_eq(map != NULL, nodes <= CLUSTER_NODES_MAX);
        cluster_map_release(map);
    }
    free(reply);
}

static void expect_equal(const char *a, const char *b, bool equal, bool related)
{
    struct cluster_map *first = parse(a), *second = parse(b);

    cr_expect_eq(cluster_map_equal(first, second), equal, "%s%s", a, b);
    cr_expect_eq(cluster_map_equal(second, first), equal, "%s%s", b, a);
    cr_expect_eq(cluster_map_related(first, second), related, "%s%s", a, b);
    cr_expect_eq(cluster_map_related(second, first), related, "%s%s", b, a);
    cluster_map_release(first);
    cluster_map_release(second);
}

#define ALL(host, port, letter) "*1\r\n" RANGE(3, 0, 16383) NODE(host, port, letter)

Test(cluster_map, two_of_them)
{
    static const char other_order[] = "*3\r\n" /**/
        RANGE(3, 10923, 16383) NODE(LOCAL, ":7002\r\n", "c") RANGE(4, 5461, 10922) NODE(LOCAL, ":7001\r\n", "b")
            NODE(LOCAL, ":7004\r\n", "e") RANGE(4, 0, 5460) NODE(LOCAL, ":7000\r\n", "a") NODE(LOCAL, ":7003\r\n", "d");

    expect_equal(three_masters, three_masters, true, true);
    expect_equal(three_masters, other_order, true, true);
    expect_equal(three_masters, ALL(LOCAL, ":7000\r\n", "a"), false, true);
    expect_equal(ALL(LOCAL, ":7000\r\n", "a"), ALL(LOCAL, ":7001\r\n", "a"), false, true);
    expect_equal(ALL(LOCAL, ":7000\r\n", "a"), ALL(LOCAL, ":7000\r\n", "b"), false, false);
    expect_equal("*1\r\n" RANGE(3, 0, 5) NODE(LOCAL, ":7000\r\n", "a"),
                 "*1\r\n" RANGE(3, 0, 6) NODE(LOCAL, ":7000\r\n", "a"), false, true);
    /* A failover. */
    expect_equal("*1\r\n" RANGE(4, 0, 5) NODE(LOCAL, ":1\r\n", "a") NODE(LOCAL, ":2\r\n", "b"),
                 "*1\r\n" RANGE(4, 0, 5) NODE(LOCAL, ":2\r\n", "b") NODE(LOCAL, ":1\r\n", "a"), false, true);
}

/* By their ids: another address does not make another owner, nor the same address the same one. */
Test(cluster_map, since_when_slots_have_their_owners)
{
    static const char later[] = "*3\r\n"                                                  /**/
        RANGE(4, 0, 5460) NODE(LOCAL, ":7009\r\n", "a") NODE(LOCAL, ":7000\r\n", "d")     /**/
        RANGE(4, 5461, 10999) NODE(LOCAL, ":7001\r\n", "b") NODE(LOCAL, ":7004\r\n", "e") /**/
        RANGE(3, 11000, 16382) NODE(LOCAL, ":7002\r\n", "f");
    struct cluster_map *first = parse(three_masters), *second = parse(later), *third = parse(three_masters);

    cluster_map_note_changes(first, NULL, 5);
    cluster_map_note_changes(second, first, 7);
    cluster_map_note_changes(third, second, 9);
    cr_assert_eq(first->changed_us[0], 0);
    cr_assert_eq(second->changed_us[0], 0, "at another address");
    cr_assert_eq(second->changed_us[10922], 0);
    cr_assert_eq(second->changed_us[10923], 7, "it has moved");
    cr_assert_eq(second->changed_us[11000], 7, "another node at the address");
    cr_assert_eq(second->changed_us[16383], 7, "nobody has it any more");
    cr_assert_eq(third->changed_us[0], 0);
    cr_assert_eq(third->changed_us[10923], 9, "and back");
    cr_assert_eq(third->changed_us[16383], 9);
    cluster_map_note_changes(second, third, 11);
    cluster_map_note_changes(third, third, 13);
    cr_assert_eq(third->changed_us[10923], 9, "nothing has changed");
    cluster_map_release(first);
    cluster_map_release(second);
    cluster_map_release(third);
}
