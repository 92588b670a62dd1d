#include "safety_chaos.h"

#include "rig_random.h"

#include <signal.h>
#include <unistd.h>

#define WAIT_MIN_US 200000
#define WAIT_RANGE_US 1000000
#define PAUSE_MIN_US 200000
#define PAUSE_RANGE_US 1300000
#define DOWN_RANGE_US 300000

static uint32_t chaos_random(struct chaos *chaos, uint32_t bound)
{
    return (uint32_t)(next_random(&chaos->random) % bound);
}

static unsigned some_worker(struct chaos *chaos)
{
    return chaos_random(chaos, chaos->shared->options.workers);
}

static unsigned some_headgate(struct chaos *chaos)
{
    return chaos_random(chaos, chaos->shared->options.headgates);
}

static void end_trouble(struct trouble *trouble)
{
    if (trouble != NULL)
        atomic_store(&trouble->end_us, now_us());
}

static bool kill_worker(struct chaos *chaos)
{
    return crew_replace(chaos->crew, some_worker(chaos));
}

static bool pause_worker(struct chaos *chaos)
{
    crew_pause(chaos->crew, some_worker(chaos), now_us() + PAUSE_MIN_US + chaos_random(chaos, PAUSE_RANGE_US));
    return true;
}

static bool cut_lanes(struct chaos *chaos)
{
    if (servers_cut_lanes(chaos->servers, some_headgate(chaos)))
        shared_count(chaos->shared, FIGURE_LANES);
    return true;
}

static void resume_headgate(struct chaos *chaos)
{
    if (chaos->stop == NULL)
        return;
    kill(chaos->servers->headgates[chaos->stopped].pid, SIGCONT);
    end_trouble(chaos->stop);
    chaos->stop = NULL;
}

static bool stop_headgate(struct chaos *chaos)
{
    if (chaos->stop != NULL)
        return true;
    chaos->stopped = some_headgate(chaos);
    chaos->stop = shared_trouble(chaos->shared, TROUBLE_AWAY, chaos->stopped, now_us());
    kill(chaos->servers->headgates[chaos->stopped].pid, SIGSTOP);
    chaos->stop_until_us = now_us() + PAUSE_MIN_US + chaos_random(chaos, PAUSE_RANGE_US);
    shared_count(chaos->shared, FIGURE_HEADGATE_STOPS);
    return true;
}

static bool kill_headgate(struct chaos *chaos)
{
    unsigned number = some_headgate(chaos);
    if (chaos->stop != NULL && chaos->stopped == number)
        resume_headgate(chaos);
    struct trouble *trouble = shared_trouble(chaos->shared, TROUBLE_AWAY, number, now_us());
    end_trouble(shared_trouble(chaos->shared, TROUBLE_KILLED, number, now_us()));
    servers_kill_headgate(chaos->servers, number);
    bool back = servers_start_headgate(chaos->servers, number);
    end_trouble(trouble);
    shared_count(chaos->shared, FIGURE_HEADGATE_KILLS);
    return back;
}

static bool restart_redis(struct chaos *chaos)
{
    struct trouble *trouble = shared_trouble(chaos->shared, TROUBLE_RESTART, 0, now_us());
    servers_kill_redis(chaos->servers);
    usleep(chaos_random(chaos, DOWN_RANGE_US));
    bool back = servers_start_redis(chaos->servers);
    end_trouble(trouble);
    shared_count(chaos->shared, FIGURE_RESTARTS);
    return back;
}

void chaos_init(struct chaos *chaos, struct shared *shared, struct crew *crew, struct servers *servers)
{
    *chaos = (struct chaos){.shared = shared, .crew = crew, .servers = servers, .random = shared->options.seed};
    chaos->next_us = now_us() + WAIT_MIN_US;
}

bool chaos_step(struct chaos *chaos)
{
    /* Each kind of fault comes round even in a short run. */
    static bool (*const faults[])(struct chaos * chaos) = {kill_worker,  pause_worker,  cut_lanes,    pause_worker,
                                                           kill_worker,  stop_headgate, cut_lanes,    pause_worker,
                                                           kill_worker,  cut_lanes,     pause_worker, kill_headgate,
                                                           pause_worker, cut_lanes,     kill_worker,  restart_redis};
    int64_t now = now_us();
    crew_resume(chaos->crew, false);
    if (now >= chaos->stop_until_us)
        resume_headgate(chaos);
    if (now < chaos->next_us)
        return true;
    bool back = faults[chaos->turn++ % (sizeof faults / sizeof *faults)](chaos);
    chaos->next_us = now_us() + WAIT_MIN_US + chaos_random(chaos, WAIT_RANGE_US);
    return back;
}

void chaos_end(struct chaos *chaos)
{
    crew_resume(chaos->crew, true);
    resume_headgate(chaos);
}
