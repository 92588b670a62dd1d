/* The lanes' far ends, each with a Redis of its own. */
#include "client_lane.h"

#include <sys/socket.h>
#include <unistd.h>

void lane_forget(struct redis_lane *lane)
{
    if (lane->fd >= 0) {
        close(lane->fd);
    }
    bytes_free(&lane->arrived);
    model_free(&lane->model);
    *lane = (struct redis_lane){.fd = -1};
}

void break_lane(struct world *world, struct redis_lane *lane)
{
    if (lane->fd < 0) {
        return;
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        world->peers[i].excused = true;
    }
    /* One turn for what it sent before, and one for its end. */
    world->broken = 3;
    world->moved++;
    lane_forget(lane);
}

void accept_lanes(struct world *world)
{
    for (size_t i = 0; i < LANES; i++) {
        struct redis_lane *lane = &world->lanes[i];
        if (lane->fd >= 0) {
            continue;
        }
        lane->fd = accept4(world->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (lane->fd < 0) {
            return;
        }
        model_init(&lane->model, false);
        world->moved++;
    }
}

void lane_take(struct world *world, struct redis_lane *lane, size_t limit)
{
    size_t length = limit > 0 && limit < lane->arrived.length ? limit : lane->arrived.length;

    if (length > 0) {
        model_feed(&lane->model, lane->arrived.data, length);
        bytes_drop(&lane->arrived, length);
        world->moved += length;
    }
}

void lane_write(struct world *world, struct redis_lane *lane, size_t limit)
{
    if (lane->fd < 0) {
        return;
    }
    transmit(world, lane->fd, &lane->model.output, limit);
    bool served = lane->model.output.length == 0;
    bool ended = lane->ended && (lane->arrived.length == 0 || lane->model.blocked);
    if (served && (lane->model.closing || ended)) {
        lane_forget(lane);
        world->moved++;
    }
}

void lanes_read(struct world *world)
{
    for (size_t i = 0; i < LANES; i++) {
        struct redis_lane *lane = &world->lanes[i];
        if (lane->fd >= 0 && !lane->ended) {
            lane->ended = !receive(world, lane->fd, &lane->arrived);
        }
    }
}

void step_garbage(struct world *world, struct redis_lane *lane, struct steps *script)
{
    size_t length = next_byte(script);

    if (length > script->left) {
        length = script->left;
    }
    if (lane->fd >= 0) {
        world->garbage = true;
        bytes_add(&lane->model.output, (const char *)script->next, length);
    }
    script->next += length;
    script->left -= length;
}
