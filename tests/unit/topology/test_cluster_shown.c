/* Headgate as the one node of a cluster: what CLUSTER says, read back as a client would read it. */
#include "base/text.h"
#include "topology/cluster_shown.h"

#include "../command/command_fixture.h"

#include <criterion/criterion.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    struct cluster_identity identity;
    struct cluster_map *map;
    struct cluster_shown shown;
} world;

static void setup(void)
{
    char why[CLUSTER_WHY_MAX];

    world.map = cluster_map_parse(slice_of("*1\r\n*3\r\n:0\r\n:16382\r\n*2\r\n$1\r\nc\r\n:3\r\n"), "", why);
    world.map->epoch = 12;
    world.identity = cluster_shown_identity("headgate");
    world.shown = (struct cluster_shown){
        .identity = &world.identity, .host = "10.1.2.3", .port = 7777, .resp = 2, .map = world.map};
}

static void teardown(void)
{
    cluster_map_release(world.map);
}

static char *answer(const char *text)
{
    struct text_stream out;
    struct line line;

    split(&line, text);
    cr_assert(text_open(&out));
    cluster_shown_write(&world.shown, find(line.argv[0]), (struct slice){line.frame, line.frame_length}, out.out);
    cr_assert(text_close(&out));
    char *reply = strndup(out.bytes, out.length);
    text_free(&out);
    return reply;
}

static void expect(const char *text, const char *expected)
{
    char *reply = answer(text);

    cr_expect_str_eq(reply, expected, "%s: %s", text, reply);
    free(reply);
}

static void expect_within(const char *text, const char *expected)
{
    char *reply = answer(text);

    cr_expect_not_null(strstr(reply, expected), "%s: %s", text, reply);
    free(reply);
}

/* As hiredis reads it; all of it, and nothing else. */
static redisReply *read_back(const char *text)
{
    redisReader *reader = redisReaderCreate();
    char *reply = answer(text);
    void *parsed = NULL, *further = NULL;

    cr_assert_eq(redisReaderFeed(reader, reply, strlen(reply)), REDIS_OK);
    cr_assert_eq(redisReaderGetReply(reader, &parsed), REDIS_OK, "%s", reply);
    cr_assert_not_null(parsed, "%s", reply);
    cr_assert_eq(redisReaderGetReply(reader, &further), REDIS_OK);
    cr_assert_null(further);
    redisReaderFree(reader);
    free(reply);
    return parsed;
}

TestSuite(cluster_shown, .init = setup, .fini = teardown);

Test(cluster_shown, its_map_can_be_read_as_that_of_any_node)
{
    char why[CLUSTER_WHY_MAX];

    for (int resp = 2; resp <= 3; resp++) {
        world.shown.resp = resp;
        char *reply = answer("cluster slots");
        struct cluster_map *map = cluster_map_parse(slice_of(reply), "", why);
        cr_assert_not_null(map, "%s", why);
        cr_assert_eq(map->uncovered, 0);
        cr_assert_eq(map->node_count, 1);
        cluster_map_release(map);
        free(reply);
    }
}

Test(cluster_shown, shards)
{
    redisReply *reply = read_back("CLUSTER SHARDS");
    const redisReply *shard = reply->element[0];

    cr_assert_eq(shard->elements, 4);
    cr_assert_eq(shard->element[1]->elements, 2);
    cr_assert_eq(shard->element[3]->element[0]->elements, 14);
    freeReplyObject(reply);
    expect_within("CLUSTER SHARDS", "$4\r\nport\r\n:7777\r\n");
    world.shown.tls = true;
    expect_within("CLUSTER SHARDS", "$8\r\ntls-port\r\n:7777\r\n");
    world.shown.resp = 3;
    expect_within("CLUSTER SHARDS", "*1\r\n%2\r\n$5\r\nslots\r\n");
}

Test(cluster_shown, texts)
{
    char line[256];

    snprintf(line, sizeof(line), "%s 10.1.2.3:7777@0 myself,master - 0 0 12 connected 0-16383\n", world.identity.id);
    redisReply *reply = read_back("CLUSTER NODES");
    cr_assert_str_eq(reply->str, line);
    freeReplyObject(reply);
    expect_within("CLUSTER INFO", "cluster_state:ok\r\ncluster_slots_assigned:16383\r\n");
    world.shown.resp = 3;
    expect_within("CLUSTER NODES", "\r\ntxt:");
    expect_within("CLUSTER INFO", "\r\ntxt:cluster_enabled:1\r\n");
}

Test(cluster_shown, before_anything_is_known)
{
    world.shown.map = NULL;
    expect("CLUSTER SLOTS", "*0\r\n");
    expect_within("CLUSTER INFO", "cluster_state:fail\r\n");
    expect_within("CLUSTER NODES", " connected\n");
    freeReplyObject(read_back("CLUSTER SHARDS"));
}

Test(cluster_shown, the_rest)
{
    expect("CLUSTER KEYSLOT foo", ":12182\r\n");
    expect("CLUSTER REPLICAS x", "*0\r\n");
    expect("CLUSTER LINKS", "*0\r\n");
    expect("ASKING", "+OK\r\n");
    expect("READONLY", "+OK\r\n");
    expect("READWRITE", "+OK\r\n");
    expect("CLUSTER KEYSLOT", "-ERR wrong number of arguments for 'cluster|keyslot' command\r\n");
    expect("cluster MyId x", "-ERR wrong number of arguments for 'cluster|myid' command\r\n");
    expect("READONLY x", "-ERR wrong number of arguments for 'readonly' command\r\n");
}
