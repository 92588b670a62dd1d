/*
 * A worker's ways to other servers of the process, for keys that rules send there: one upstream for each, with the
 * credentials, TLS and times of that server, of which it is no part otherwise. Once made, a way stays to the end.
 */
#ifndef HEADGATE_WORKER_ROUTES_H
#define HEADGATE_WORKER_ROUTES_H

#include "worker/worker_cluster.h"

/* Whether any rule of the server sends keys elsewhere. */
bool worker_routes_are_wanted(const struct conf *conf);
/* Makes the ways that rules want and that are not there yet, and has all go by the configuration. settings: of the home
 * upstream. The clients, once there are any, go by them. False when memory is short. */
bool worker_routes_follow(struct worker_cluster *cluster, const struct worker_cluster_parts *parts,
                          const struct conf *conf, const struct upstream_settings *settings);
/* Once the ways are freed. */
void worker_routes_close(struct worker_cluster *cluster);

#endif
