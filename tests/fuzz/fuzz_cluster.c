/*
 * Fuzzes what nodes of a Redis Cluster say of it. What must hold for all bytes:
 * - a map that is made of them does not contradict itself;
 * - it equals itself, and nothing of it lies beyond its nodes;
 * - a redirect that is read names a slot and a port that can be.
 */
#include "topology/cluster_map.h"

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
        require(node->is_master == (node->slot_count > 0));
        require(node->is_master == ((size_t)node->master == i));
        require(cluster_map_find(map, node->host, node->port) == (int16_t)i);
        masters += node->is_master;
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
