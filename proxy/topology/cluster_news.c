#include "topology/cluster_news.h"

#include "base/log.h"

/* Of moves of slots, each from one node to another; what goes beyond is summed up. */
#define LINES_MAX 16

static const char *text_of(const struct cluster_map *map, int16_t place, char text[CLUSTER_TEXT_MAX])
{
    if (place == CLUSTER_NOBODY) {
        return "nobody";
    }
    cluster_map_address_text(map->nodes[place].host, map->nodes[place].port, text);
    return text;
}

static const char *role_of(const struct cluster_node *node)
{
    return node->is_master ? "a master" : "a replica";
}

static void tell_nodes(const struct cluster_map *before, const struct cluster_map *now)
{
    char text[CLUSTER_TEXT_MAX];

    for (size_t i = 0; i < now->node_count; i++) {
        const struct cluster_node *node = &now->nodes[i];
        int16_t place = cluster_map_find(before, node->host, node->port);
        if (place == CLUSTER_NOBODY) {
            log_info("cluster", "%s has come, as %s", text_of(now, (int16_t)i, text), role_of(node));
        } else if (before->nodes[place].is_master != node->is_master) {
            log_info("cluster", "%s is %s now", text_of(now, (int16_t)i, text), role_of(node));
        }
    }
    for (size_t i = 0; i < before->node_count; i++) {
        const struct cluster_node *node = &before->nodes[i];
        if (cluster_map_find(now, node->host, node->port) == CLUSTER_NOBODY) {
            log_info("cluster", "%s is gone, which was %s", text_of(before, (int16_t)i, text), role_of(node));
        }
    }
}

/* A node of a map as a place of another one, or as a number beyond those for one that is not in it. */
static int32_t place_in(const struct cluster_map *other, const struct cluster_map *map, int16_t place)
{
    if (place == CLUSTER_NOBODY) {
        return CLUSTER_NOBODY;
    }
    int16_t found = cluster_map_find(other, map->nodes[place].host, map->nodes[place].port);
    return found != CLUSTER_NOBODY ? found : CLUSTER_NODES_MAX + place;
}

struct move {
    int16_t from; /* of the map before */
    int16_t to;   /* of the map now */
    uint16_t first;
    uint16_t last;
    uint32_t count;
};

static void tell_move(const struct cluster_map *before, const struct cluster_map *now, const struct move *move)
{
    char from[CLUSTER_TEXT_MAX], to[CLUSTER_TEXT_MAX];

    log_info("cluster", "%u slot%s between %u and %u went from %s to %s", (unsigned int)move->count,
             move->count == 1 ? "" : "s", (unsigned int)move->first, (unsigned int)move->last,
             text_of(before, move->from, from), text_of(now, move->to, to));
}

static struct move *find_move(struct move *moves, size_t *count, int16_t from, int16_t to)
{
    for (size_t i = 0; i < *count; i++) {
        if (moves[i].from == from && moves[i].to == to) {
            return &moves[i];
        }
    }
    if (*count == LINES_MAX) {
        return NULL;
    }
    moves[*count] = (struct move){.from = from, .to = to};
    return &moves[(*count)++];
}

static void tell_slots(const struct cluster_map *before, const struct cluster_map *now)
{
    struct move moves[LINES_MAX];
    size_t count = 0, further = 0;
    /* Of the last slot: most have the same owners as their neighbour. */
    int32_t owned_before = CLUSTER_NOBODY;
    int16_t owner_before = CLUSTER_NOBODY;

    for (uint16_t slot = 0; slot < CLUSTER_SLOTS; slot++) {
        if (before->owner[slot] != owner_before) {
            owner_before = before->owner[slot];
            owned_before = place_in(now, before, owner_before);
        }
        if (owned_before == now->owner[slot]) {
            continue;
        }
        struct move *move = find_move(moves, &count, owner_before, now->owner[slot]);
        if (move == NULL) {
            further++;
            continue;
        }
        move->first = move->count == 0 ? slot : move->first;
        move->last = slot;
        move->count++;
    }
    for (size_t i = 0; i < count; i++) {
        tell_move(before, now, &moves[i]);
    }
    if (further > 0) {
        log_info("cluster", "%zu further slots went elsewhere", further);
    }
}

void cluster_news_tell(const char *upstream, const struct cluster_map *before, const struct cluster_map *now)
{
    if (before == NULL) {
        log_info("cluster", "%s has %zu nodes, %zu of them masters with slots; epoch %llu", upstream, now->node_count,
                 now->master_count, (unsigned long long)now->epoch);
    } else {
        tell_nodes(before, now);
        tell_slots(before, now);
    }
    if (now->uncovered > 0 && (before == NULL || before->uncovered != now->uncovered)) {
        log_warning("cluster", "%zu slots of %s have no node: requests for their keys are refused", now->uncovered,
                    upstream);
    } else if (now->uncovered == 0 && before != NULL && before->uncovered > 0) {
        log_info("cluster", "all slots of %s have a node again", upstream);
    }
}
