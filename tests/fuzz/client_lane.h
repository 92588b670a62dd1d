/*
 * What the files of fuzz_client_lane.c share: the world, which is Headgate in this process, its clients, and the lanes'
 * far ends, each with a Redis of its own (redis_model.c).
 */
#ifndef HEADGATE_TESTS_CLIENT_LANE_H
#define HEADGATE_TESTS_CLIENT_LANE_H

#include "client/client.h"
#include "redis_model.h"
#include "upstream/control.h"

#include "policy/policy.h"

#include <sys/un.h>

#define CLIENTS 4
#define LANES 48

struct steps {
    const uint8_t *next;
    size_t left;
};

struct peer {
    int fd; /* the far end of Headgate's connection; -1: none */
    uint32_t serial;
    uint32_t requests;
    struct bytes to_send;
    struct bytes received;
    struct model reference; /* Redis without Headgate */
    bool wild;              /* sent anything at all: the reference knows nothing */
    bool excused;           /* may be closed, or may lose what is under way */
    bool stalled;           /* does not read */
    bool subscribed;        /* was, at some time */
    bool transacted;        /* has sent MULTI */
    bool tunnelled;         /* may be a passthrough */
    bool ended;             /* has closed its writing half */
};

struct redis_lane {
    int fd;
    struct bytes arrived; /* not yet taken */
    struct model model;
    bool ended;
};

struct world {
    struct reactor reactor;
    struct stats stats;
    struct run_pool runs;
    struct upstream *upstream;
    struct control *control;
    struct chain_roster roster;
    struct server_info *server_info;
    struct client_service *service;
    int listener;
    int64_t now_us;
    uint64_t last_client_id;
    uint64_t moved; /* bytes and events, to see whether anything still happens */
    uint32_t heavy_left;
    bool small_sockets;
    int broken;   /* a lane is, and Headgate sees it within so many turns: who comes now may be given it */
    bool garbage; /* Redis lied: nothing can be said about what clients get */
    struct peer peers[CLIENTS];
    struct redis_lane lanes[LANES];
};

/* ---- client_lane_world.c ---- */

/* Ends the process, which is a finding, unless it holds. */
void require(bool holds);
/* 0 when the script has ended. */
uint8_t next_byte(struct steps *script);

/* Where Redis listens. */
void make_address(struct sockaddr_un *address, socklen_t *length);
int listen_at(const struct sockaddr_un *address, socklen_t length);
/* Appends what there is. False at the end of the stream. */
bool receive(struct world *world, int fd, struct bytes *bytes);
/* Sends at most limit bytes (0: all), as far as the socket takes them. */
void transmit(struct world *world, int fd, struct bytes *bytes, size_t limit);

/* flags: how Headgate is set. */
void world_start(struct world *world, int listener, const struct sockaddr_un *address, socklen_t length, uint8_t flags);
/* Closes everything, and requires that all of it was given back. */
void world_stop(struct world *world);
void world_turn(struct world *world);
void world_tick(struct world *world, int64_t passed_us);
/* Everybody does what there is to do. */
void round_of_all(struct world *world);
/* Rounds until nothing happens any more; then every client has all that it was owed. */
void come_to_rest(struct world *world);

/* ---- client_lane_peer.c ---- */

/* Requires that the client got what its reference says; at_rest: all of it. */
void peer_check(const struct world *world, const struct peer *peer, bool at_rest);
/* Closes the connection, if there is one. */
void peer_forget(struct world *world, struct peer *peer);
void peer_read(struct world *world, struct peer *peer);
void step_request(struct world *world, struct peer *peer, struct steps *script);
void step_raw(struct world *world, struct peer *peer, struct steps *script);
void step_end_input(struct peer *peer);

/* ---- client_lane_redis.c ---- */

void accept_lanes(struct world *world);
void lanes_read(struct world *world);
/* Redis takes so many bytes of what came (0: all), and answers what is whole. */
void lane_take(struct world *world, struct redis_lane *lane, size_t limit);
void lane_write(struct world *world, struct redis_lane *lane, size_t limit);
void lane_forget(struct redis_lane *lane);
/* Any client may have had something under way on it. */
void break_lane(struct world *world, struct redis_lane *lane);
void step_garbage(struct world *world, struct redis_lane *lane, struct steps *script);

/* ---- client_lane_policy.c ---- */

/* One policy, and NULL; the second one measures. */
extern const struct policy *const ledger_policies[];
extern const struct policy *const meter_policies[];

#endif
