/* Which of the maps that nodes have told is to be believed. */
#ifndef HEADGATE_CLUSTER_CHOICE_H
#define HEADGATE_CLUSTER_CHOICE_H

#include "topology/cluster_map.h"

/* The most answers of one round. */
#define CLUSTER_CHOICE_MAX 32

struct cluster_choice {
    struct cluster_map *maps[CLUSTER_CHOICE_MAX]; /* in the order in which they came */
    size_t count;
};

/* How a map stands to the one that is in force. */
enum cluster_standing {
    CLUSTER_STANDING_SOUND,
    CLUSTER_STANDING_BEHIND,  /* of an older epoch: the node has not heard yet, or is cut off */
    CLUSTER_STANDING_STRANGER /* of another cluster */
};

/* current: NULL if none is in force. */
enum cluster_standing cluster_choice_standing(const struct cluster_map *map, const struct cluster_map *current);

/*
 * The one to believe, of those of that standing: that of the highest epoch; of several, what most say; then the one
 * that leaves fewest slots to nobody; then the one that came first. NULL: there is none.
 */
struct cluster_map *cluster_choice_best(const struct cluster_choice *choice, const struct cluster_map *current,
                                        enum cluster_standing standing);

#endif
