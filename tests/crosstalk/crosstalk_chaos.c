#include "crosstalk_chaos.h"

#include "rig_random.h"

#include <signal.h>
#include <unistd.h>

#define LASTING_US ((int64_t)3600 * 1000000)
#define GRACE_US (5 * (int64_t)1000000)
#define PAUSE_MIN_US 200000
#define PAUSE_RANGE_US 1000000
#define STOP_US 200000
#define DOWN_RANGE_US 500000

static uint32_t chaos_random(struct chaos *chaos, uint32_t bound)
{
    return (uint32_t)(next_random(&chaos->random) % bound);
}

static int64_t next_pause(struct chaos *chaos)
{
    return PAUSE_MIN_US + chaos_random(chaos, PAUSE_RANGE_US);
}

void chaos_init(struct chaos *chaos, struct run *run, struct servers *servers)
{
    *chaos = (struct chaos){.run = run, .servers = servers, .random = run->options.seed};
    chaos->next_us = now_us() + next_pause(chaos);
}

static bool kill_connections(struct chaos *chaos)
{
    (void)servers_ask_redis(chaos->servers, "CLIENT KILL TYPE normal\r\n", ":");
    return true;
}

static bool kill_subscribers(struct chaos *chaos)
{
    (void)servers_ask_redis(chaos->servers, "CLIENT KILL TYPE pubsub\r\n", ":");
    return true;
}

static bool stop_redis(struct chaos *chaos)
{
    kill(chaos->servers->redis.pid, SIGSTOP);
    usleep(STOP_US);
    kill(chaos->servers->redis.pid, SIGCONT);
    return true;
}

static bool restart_redis(struct chaos *chaos)
{
    atomic_fetch_add(&chaos->run->epoch, 1);
    servers_kill_redis(chaos->servers);
    usleep(chaos_random(chaos, DOWN_RANGE_US));
    if (!servers_start_redis(chaos->servers, &chaos->run->options))
        return false;
    atomic_fetch_add(&chaos->run->epoch, 1);
    return true;
}

bool chaos_step(struct chaos *chaos)
{
    /* Each kind of fault comes round even in a short run. */
    static bool (*const faults[])(struct chaos * chaos) = {kill_connections, stop_redis,       kill_connections,
                                                           restart_redis,    kill_subscribers, kill_connections};
    if (now_us() < chaos->next_us)
        return true;
    atomic_store(&chaos->run->excused_until_us, now_us() + LASTING_US);
    bool done = faults[chaos->turn++ % (sizeof faults / sizeof *faults)](chaos);
    atomic_store(&chaos->run->excused_until_us, now_us() + GRACE_US);
    chaos->next_us = now_us() + next_pause(chaos);
    return done;
}
