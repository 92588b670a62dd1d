/*
 * Fuzzes what nodes of a Redis Cluster say of it. What must hold for all bytes:
 * - a map that is made of them does not contradict itself;
 * - it equals itself, and nothing of it lies beyond its nodes;
 * - a redirect that is read names a slot and a port that can be;
 * - what is made of such replies to one command is a whole reply, in the least memory that the sanitizer lets pass.
 */
#include "base/text.h"
#include "resp/resp_element.h"
#include "topology/cluster_map.h"
#include "topology/cluster_merge.h"
#include "topology/cluster_scan.h"

#include "fuzz_cut.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_nodes(const struct cluster_map *map)
{
    size_t masters = 0;

    require(map->node_count > 0 && map->node_count <= CLUSTER_NODES_MAX);
    for (size_t i = 0; i < map->node_count; i++) {
        const struct cluster_node *node = &map->nodes[i];
        require(node->port > 0 && node->host[0] != '\0' && strlen(node->host) < CLUSTER_HOST_MAX);
        require(node->master >= 0 && (size_t)node->master < map->node_count);
        require(map->nodes[node->master].is_master);
        require(node->is_master || node->slot_count == 0);
        require(node->is_master == ((size_t)node->master == i));
        require(cluster_map_find(map, node->host, node->port) == (int16_t)i);
        masters += node->slot_count > 0;
    }
    require(map->master_count == masters);
}

static void check_slots(const struct cluster_map *map)
{
    size_t owned = 0, given = 0;

    for (size_t i = 0; i < CLUSTER_SLOTS; i++) {
        int16_t owner = map->owner[i];
        require(owner == CLUSTER_NOBODY || (owner >= 0 && (size_t)owner < map->node_count));
        require(owner == CLUSTER_NOBODY || map->nodes[owner].is_master);
        owned += owner != CLUSTER_NOBODY;
    }
    for (size_t i = 0; i < map->node_count; i++) {
        given += map->nodes[i].slot_count;
    }
    require(owned == given && owned + map->uncovered == CLUSTER_SLOTS);
}

static void check_whole(const struct text_stream *out)
{
    struct resp_reply reply = {.size = 0};
    size_t taken = 0;

    require(out->length > 0);
    require(resp_reply_feed(&reply, out->bytes, out->length, &taken) == RESP_DONE && taken == out->length);
}

/* Two nodes answer: the one so, the other the same or a plain integer. */
static void check_merging(struct slice reply, struct slice other)
{
    const struct slice replies[] = {reply, other, reply};

    for (enum cluster_merge how = CLUSTER_MERGE_NONE; how <= CLUSTER_MERGE_CHOICE; how++) {
        struct text_stream out;
        require(text_open(&out));
        cluster_merge(how, replies, 3, reply.length, out.out);
        require(text_close(&out));
        check_whole(&out);
        text_free(&out);
    }
}

static void check_scanning(const struct cluster_map *map, struct slice reply)
{
    struct cluster_cursor cursor;
    struct text_stream out;

    require(cluster_scan_read(map, 1, slice_of("5"), &cursor));
    require(text_open(&out));
    cluster_scan_write_reply(map, 1, &cursor, reply, out.out);
    require(text_close(&out));
    check_whole(&out);
    text_free(&out);
}

static void check_replies(const char *data, size_t size)
{
    struct resp_reply reply = {.size = 0};
    struct cluster_map *map = calloc(1, sizeof *map);
    struct cluster_node node = {.id = "it", .port = 1, .is_master = true};
    size_t taken = 0;

    require(map != NULL);
    map->nodes = &node;
    map->node_count = 1;
    if (size > 0 && resp_reply_feed(&reply, data, size, &taken) == RESP_DONE) {
        struct slice whole = {data, taken};
        check_merging(whole, whole);
        check_merging(whole, slice_of(":1\r\n"));
        check_merging(slice_of("*1\r\n:1\r\n"), whole);
        check_scanning(map, whole);
    }
    free(map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[CLUSTER_WHY_MAX];
    char *piece = malloc(size > 0 ? size : 1);
    struct cluster_redirect redirect;

    require(piece != NULL);
    memcpy(piece, data, size);
    struct cluster_map *map = cluster_map_parse((struct slice){piece, size}, "127.0.0.1", why);
    if (cluster_redirect_parse((struct slice){piece, size}, &redirect)) {
        require(redirect.slot < CLUSTER_SLOTS && redirect.port > 0 && strlen(redirect.host) < CLUSTER_HOST_MAX);
    }
    check_replies(piece, size);
    if (map != NULL) {
        struct slice rest = {piece, size};
        struct resp_element slots;
        require(resp_element_next(&rest, &slots));
        cluster_map_add_masters(map, rest);
    }
    free(piece);
    if (map == NULL) {
        require(why[0] != '\0');
        return 0;
    }
    check_nodes(map);
    check_slots(map);
    require(cluster_map_equal(map, map) && cluster_map_related(map, map));
    cluster_map_release(map);
    return 0;
}
