/*
 * redis-server and the Headgates.
 *
 * Headgate n reaches Redis at an address of its own (127.0.0.2 and on), where Redis listens only once the observer sees
 * every command: none of them is missed. It also lets the connections of one Headgate be told from those of another.
 */
#ifndef SAFETY_SERVERS_H
#define SAFETY_SERVERS_H

#include "rig_servers.h"
#include "safety_shared.h"
#include "safety_sweeper.h"

struct servers {
    struct shared *shared;
    struct sweeper *sweeper; /* has the connection to Redis */
    struct server redis;
    struct server headgates[HEADGATES_MAX];
    struct port admin_ports[HEADGATES_MAX];
};

/* Each tells on standard error why it returns false. */
bool servers_prepare(struct servers *servers, struct shared *shared, struct sweeper *sweeper);
/* With the observer on it and the scripts of clients in it. */
bool servers_start_redis(struct servers *servers);
void servers_kill_redis(struct servers *servers);
bool servers_start_headgate(struct servers *servers, unsigned number);
void servers_kill_headgate(struct servers *servers, unsigned number);
bool servers_headgates_live(struct servers *servers);
/* True if all of them exit with 0 after SIGTERM, and no sanitizer wrote to their logs. */
bool servers_end_headgates(struct servers *servers);

/* Has Redis close all connections of that Headgate. */
bool servers_cut_lanes(const struct servers *servers, unsigned number);

/* Ends what still runs; removes the directory, unless it is to be kept. */
void servers_free(struct servers *servers, bool keep);

#endif
