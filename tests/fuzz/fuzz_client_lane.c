/*
 * Fuzzes the whole way of a request: client, session, upstream, lane and back, in one process. The input is a script:
 * its first byte says how Headgate is set, and then each step says what a client sends, how much of it Redis takes and
 * answers, who closes, who does not read, and when the loop turns. Redis is redis_model.c, one model for each lane.
 *
 * What must hold:
 * - Beside each client runs a model of its own, fed with the same requests: what the client receives is the beginning
 *   of what that model answers, and all of it once everything has come to rest. Nobody else's reply, none lost, none
 *   doubled, none out of order, no database, user, name or subscription of anybody else.
 * - A client is closed only for a reason that the script gave.
 * - Whatever clients send (RAW), nobody gets what belongs to another. Whatever Redis sends (GARBAGE), nothing crashes.
 * - Every request that the policy passed or held is ended once; every byte of every buffer is given back.
 */
#include "base/log.h"
#include "client_lane.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS 400

/* ---- the script ---- */

enum step {
    STEP_REQUEST,
    STEP_REQUEST_NOW, /* … and the loop turns */
    STEP_SEND,        /* a part of what the client has to send */
    STEP_SEND_ALL,
    STEP_TURN,
    STEP_TAKE, /* Redis takes a part */
    STEP_TAKE_ALL,
    STEP_WRITE, /* Redis' answers go out, in part */
    STEP_WRITE_ALL,
    STEP_ROUND,
    STEP_UNBLOCK,
    STEP_PUBLISH,
    STEP_CLOSE_CLIENT,
    STEP_END_INPUT,
    STEP_STALL,
    STEP_TICK,
    STEP_BREAK,
    STEP_RAW,
    STEP_GARBAGE,
    STEP_REST,
    STEP_KINDS
};

static void step_client(struct world *world, enum step step, struct peer *peer, struct steps *script)
{
    switch (step) {
    case STEP_REQUEST:
        step_request(world, peer, script);
        break;
    case STEP_REQUEST_NOW:
        step_request(world, peer, script);
        transmit(world, peer->fd, &peer->to_send, 0);
        world_turn(world);
        break;
    case STEP_SEND:
        transmit(world, peer->fd, &peer->to_send, (size_t)next_byte(script) + 1);
        break;
    case STEP_SEND_ALL:
        transmit(world, peer->fd, &peer->to_send, 0);
        break;
    case STEP_CLOSE_CLIENT:
        peer_forget(world, peer);
        break;
    case STEP_END_INPUT:
        step_end_input(peer);
        break;
    case STEP_STALL:
        peer->stalled = !peer->stalled;
        break;
    default:
        step_raw(world, peer, script);
        break;
    }
}

static void step_lane(struct world *world, enum step step, struct redis_lane *lane, struct steps *script)
{
    switch (step) {
    case STEP_TAKE:
        lane_take(world, lane, (size_t)next_byte(script) + 1);
        break;
    case STEP_TAKE_ALL:
        lane_take(world, lane, 0);
        break;
    case STEP_WRITE:
        lane_write(world, lane, (size_t)next_byte(script) + 1);
        break;
    case STEP_WRITE_ALL:
        lane_write(world, lane, 0);
        break;
    case STEP_UNBLOCK:
        model_unblock(&lane->model);
        break;
    case STEP_PUBLISH:
        model_publish(&lane->model);
        break;
    case STEP_BREAK:
        break_lane(world, lane);
        break;
    default:
        step_garbage(world, lane, script);
        break;
    }
}

static void step(struct world *world, struct steps *script)
{
    enum step kind = next_byte(script) % STEP_KINDS;

    switch (kind) {
    case STEP_TURN:
        world_turn(world);
        break;
    case STEP_ROUND:
        round_of_all(world);
        break;
    case STEP_TICK:
        world_tick(world, (int64_t)next_byte(script) * 1000000);
        break;
    case STEP_REST:
        come_to_rest(world);
        break;
    case STEP_REQUEST:
    case STEP_REQUEST_NOW:
    case STEP_SEND:
    case STEP_SEND_ALL:
    case STEP_CLOSE_CLIENT:
    case STEP_END_INPUT:
    case STEP_STALL:
    case STEP_RAW:
        step_client(world, kind, &world->peers[next_byte(script) % CLIENTS], script);
        break;
    default:
        step_lane(world, kind, &world->lanes[next_byte(script) % LANES], script);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world world;
    struct steps script = {data, size};
    struct sockaddr_un address;
    socklen_t length;

    make_address(&address, &length);
    /* As headgate does: splice() knows no MSG_NOSIGNAL. */
    signal(SIGPIPE, SIG_IGN);
    /* Who looks into a finding names a file. */
    const char *log = getenv("HEADGATE_FUZZ_LOG");
    require(log != NULL ? log_open(log, LOG_LEVEL_DEBUG) : log_open("/dev/null", LOG_LEVEL_ERROR));
    int listener = listen_at(&address, length);
    world_start(&world, listener, &address, length, next_byte(&script));
    for (int steps = 0; steps < STEPS && script.left > 0; steps++) {
        step(&world, &script);
    }
    come_to_rest(&world);
    world_stop(&world);
    close(listener);
    log_close();
    return 0;
}
