/* The world: its sockets, its turns, its beginning and its end. */
#include "client_lane.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Rounds in which everything must have come to rest. */
#define ROUNDS 600

void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

uint8_t next_byte(struct steps *script)
{
    if (script->left == 0) {
        return 0;
    }
    script->left--;
    return *script->next++;
}

/* ---- sockets ---- */

void make_address(struct sockaddr_un *address, socklen_t *length)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* In the abstract name space: no file is left behind. */
    int name = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "headgate-fuzz-%ld", (long)getpid());
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)name);
}

int listen_at(const struct sockaddr_un *address, socklen_t length)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    require(fd >= 0 && bind(fd, (const struct sockaddr *)address, length) == 0 && listen(fd, LANES) == 0);
    return fd;
}

bool receive(struct world *world, int fd, struct bytes *bytes)
{
    static char room[64 * 1024];

    for (;;) {
        ssize_t got = recv(fd, room, sizeof room, 0);
        if (got <= 0) {
            return got != 0 && (errno == EAGAIN || errno == EINTR);
        }
        bytes_add(bytes, room, (size_t)got);
        world->moved += (uint64_t)got;
    }
}

void transmit(struct world *world, int fd, struct bytes *bytes, size_t limit)
{
    size_t length = limit > 0 && limit < bytes->length ? limit : bytes->length;
    ssize_t done = length > 0 ? send(fd, bytes->data, length, MSG_NOSIGNAL) : 0;

    if (done > 0) {
        bytes_drop(bytes, (size_t)done);
        world->moved += (uint64_t)done;
    }
}

/* ---- turns ---- */

void world_turn(struct world *world)
{
    world->now_us += 1000;
    world->reactor.now_us = world->now_us;
    reactor_settle_stage(&world->reactor, REACTOR_STAGE_HELD);
    require(event_base_loop(world->reactor.base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
    reactor_settle(&world->reactor);
    world->broken -= world->broken > 0;
    accept_lanes(world);
    lanes_read(world);
    for (size_t i = 0; i < CLIENTS; i++) {
        peer_read(world, &world->peers[i]);
    }
}

void world_tick(struct world *world, int64_t passed_us)
{
    world->now_us += passed_us;
    world->reactor.now_us = world->now_us;
    upstream_tick(world->upstream);
    client_service_tick(world->service);
    reactor_settle(&world->reactor);
}

void round_of_all(struct world *world)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        struct peer *peer = &world->peers[i];
        peer->stalled = false;
        if (peer->fd >= 0) {
            transmit(world, peer->fd, &peer->to_send, 0);
        }
    }
    world_turn(world);
    for (size_t i = 0; i < LANES; i++) {
        model_unblock(&world->lanes[i].model);
        lane_take(world, &world->lanes[i], 0);
        lane_write(world, &world->lanes[i], 0);
    }
}

void come_to_rest(struct world *world)
{
    int quiet = 0;

    for (int rounds = 0; quiet < 5; rounds++) {
        uint64_t before = world->moved;
        require(rounds < ROUNDS);
        round_of_all(world);
        quiet = world->moved == before ? quiet + 1 : 0;
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        peer_check(world, &world->peers[i], true);
    }
}

/* ---- the world ---- */

static void on_ready(void *context)
{
    struct world *world = context;

    server_info_again(world->server_info);
}

void world_start(struct world *world, int listener, const struct sockaddr_un *address, socklen_t length, uint8_t flags)
{
    struct upstream_settings upstream = {
        .lane = {.target_text = "model", .connect_timeout = 3600000, .stats = &world->stats},
        .shared_lanes = (flags & 1) + 1,
        .wait = 86400000,
        .wait_requests = 100000,
        .exclusive_idle = 4,
        .lane_idle_timeout = 60000,
        .user = "",
        .password = "",
        .serves_clients = true,
    };
    struct connection_targets targets = {.count = 1, .items = {{.length = length}}};
    const struct client_settings clients = {
        .session_pool = (flags & 2) != 0,
        .upstream_wait = 86400000,
        .pipeline_limit = (flags & 4) != 0 ? 3 : 64,
        .max_request = 1 << 20,
        .cut_through = 1024,
        .upstream_text = "model",
    };

    memcpy(&targets.items[0].address, address, sizeof *address);
    /* Never behind the clock by which a server counts as near: requests are held. */
    *world = (struct world){.listener = listener, .now_us = clock_now_us(), .heavy_left = 6};
    world->small_sockets = (flags & 8) != 0;
    for (size_t i = 0; i < LANES; i++) {
        world->lanes[i].fd = -1;
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        world->peers[i].fd = -1;
    }
    require(reactor_init(&world->reactor, &world->stats));
    world->reactor.now_us = world->now_us;
    world->upstream = upstream_new(&world->reactor, &world->runs, &upstream, on_ready, world);
    upstream_set_targets(world->upstream, &targets);
    world->control = control_new(&world->reactor, &world->runs, world->upstream);
    world->server_info = server_info_new(world->control);
    require(chain_roster_open(&world->roster, (flags & 16) != 0 ? meter_policies : ledger_policies, 1));
    const struct conf conf = {.listener_terms = {.allow = (char[]){""}, .refuse = (char[]){""}}};
    struct admission *admission = admission_new(&conf);
    const struct client_parts parts = {
        .reactor = &world->reactor,
        .runs = &world->runs,
        .upstream = world->upstream,
        .control = world->control,
        .server_info = world->server_info,
        .policies = &world->roster,
        .admission = admission,
    };
    world->service = client_service_new(&parts, &clients, NULL);
    admission_release(admission);
    require(world->service != NULL);
    upstream_warm_up(world->upstream);
}

void world_stop(struct world *world)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        peer_forget(world, &world->peers[i]);
    }
    client_service_close_all(world->service, "the script has ended");
    do {
        reactor_settle(&world->reactor);
    } while (reactor_settle_stage(&world->reactor, REACTOR_STAGE_HELD));
    client_service_end_scripts(world->service);
    client_service_leave_admission(world->service);
    upstream_free(world->upstream);
    client_service_free(world->service);
    server_info_free(world->server_info);
    control_free(world->control);
    require(world->reactor.buffers.bytes_lent == 0);
    run_pool_trim(&world->runs, 0);
    reactor_free(&world->reactor);
    accept_lanes(world);
    for (size_t i = 0; i < LANES; i++) {
        lane_forget(&world->lanes[i]);
    }
}
