#include "topology/cluster_choice.h"

enum cluster_standing cluster_choice_standing(const struct cluster_map *map, const struct cluster_map *current)
{
    if (current == NULL) {
        return CLUSTER_STANDING_SOUND;
    }
    if (!cluster_map_related(map, current)) {
        return CLUSTER_STANDING_STRANGER;
    }
    return map->epoch < current->epoch ? CLUSTER_STANDING_BEHIND : CLUSTER_STANDING_SOUND;
}

/* How many say the same as this one. */
static size_t support(const struct cluster_choice *choice, const struct cluster_map *map)
{
    size_t found = 0;

    for (size_t i = 0; i < choice->count; i++) {
        found += choice->maps[i]->epoch == map->epoch && cluster_map_equal(choice->maps[i], map);
    }
    return found;
}

static bool is_better(const struct cluster_choice *choice, const struct cluster_map *map,
                      const struct cluster_map *than)
{
    if (map->epoch != than->epoch) {
        return map->epoch > than->epoch;
    }
    size_t says = support(choice, map), said = support(choice, than);
    return says != said ? says > said : map->uncovered < than->uncovered;
}

/* While none is in force epochs of different clusters mean nothing beside each other: of these, the cluster of which
 * most nodes have answered. */
static size_t relatives(const struct cluster_choice *choice, const struct cluster_map *map)
{
    size_t found = 0;

    for (size_t i = 0; i < choice->count; i++) {
        found += cluster_map_related(choice->maps[i], map);
    }
    return found;
}

static bool is_of_better_cluster(const struct cluster_choice *choice, const struct cluster_map *map,
                                 const struct cluster_map *than)
{
    if (!cluster_map_related(map, than)) {
        return relatives(choice, map) > relatives(choice, than);
    }
    return is_better(choice, map, than);
}

struct cluster_map *cluster_choice_best(const struct cluster_choice *choice, const struct cluster_map *current,
                                        enum cluster_standing standing)
{
    struct cluster_map *best = NULL;

    for (size_t i = 0; i < choice->count; i++) {
        struct cluster_map *map = choice->maps[i];
        if (cluster_choice_standing(map, current) == standing &&
            (best == NULL || is_of_better_cluster(choice, map, best))) {
            best = map;
        }
    }
    return best;
}
