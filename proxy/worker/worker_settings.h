/* What a configuration means for a worker's upstream and its clients. */
#ifndef HEADGATE_WORKER_SETTINGS_H
#define HEADGATE_WORKER_SETTINGS_H

#include "client/client.h"
#include "conf/conf.h"
#include "worker/worker_cluster.h"

/* Texts are those of conf. worker: its number. stats: where lanes are counted. cluster: used if the upstream is one. */
struct upstream_settings worker_upstream_settings(const struct conf *conf, size_t worker, struct stats *stats,
                                                  struct worker_cluster *cluster);
struct client_settings worker_client_settings(const struct conf *conf);

#endif
