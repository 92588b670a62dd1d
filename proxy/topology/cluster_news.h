/* Says in the log what is otherwise in a new map: who came and went, whose role changed, which slots went where. */
#ifndef HEADGATE_CLUSTER_NEWS_H
#define HEADGATE_CLUSTER_NEWS_H

#include "topology/cluster_map.h"

/* before: NULL if there was none. upstream: as the operator wrote it. */
void cluster_news_tell(const char *upstream, const struct cluster_map *before, const struct cluster_map *now);

#endif
