#include "safety_run.h"

#include "safety_chaos.h"
#include "safety_counts.h"
#include "safety_figures.h"
#include "safety_judge.h"
#include "safety_observer.h"
#include "safety_prober.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURN_US 3000
#define SECOND_US ((int64_t)1000000)
#define DRAIN_US (60 * SECOND_US)
#define END_US (60 * SECOND_US)

struct rig {
    struct shared *shared;
    struct servers servers;
    struct sweeper sweeper;
    struct crew crew;
    struct chaos chaos;
    pid_t observer;
    pid_t prober;
    int64_t start_us;
    int64_t load_us; /* how long there was load */
};

static bool rig_start(struct rig *rig)
{
    struct shared *shared = rig->shared;
    if (!servers_prepare(&rig->servers, shared, &rig->sweeper))
        return false;
    rig->observer = observer_start(shared);
    if (rig->observer < 0 || !servers_start_redis(&rig->servers))
        return false;
    for (unsigned number = 0; shared->options.headgate != NULL && number < shared->options.headgates; number++)
        if (!servers_start_headgate(&rig->servers, number))
            return false;
    rig->prober = prober_start(shared);
    return rig->prober >= 0 && crew_start(&rig->crew, shared);
}

/* One turn of waiting: false when the run has to end. */
static bool rig_wait(struct rig *rig)
{
    int status;
    usleep(TURN_US);
    sweeper_step(&rig->sweeper);
    if (!servers_headgates_live(&rig->servers) || !crew_is_well(&rig->crew))
        shared_violation(rig->shared, BREACH_TEST, "what must not end has ended");
    if (waitpid(rig->observer, &status, WNOHANG) == rig->observer ||
        waitpid(rig->prober, &status, WNOHANG) == rig->prober)
        shared_violation(rig->shared, BREACH_TEST, "the observer or the prober has ended (status %#x)",
                         (unsigned)status);
    return atomic_load(&rig->shared->violations) == 0;
}

static void rig_load(struct rig *rig)
{
    const struct options *options = &rig->shared->options;
    rig->start_us = now_us();
    chaos_init(&rig->chaos, rig->shared, &rig->crew, &rig->servers);
    while (rig_wait(rig)) {
        if (atomic_load(&rig->shared->sections_left) <= 0 ||
            now_us() > rig->start_us + (int64_t)options->seconds * SECOND_US)
            break;
        if (options->chaos && !chaos_step(&rig->chaos))
            shared_violation(rig->shared, BREACH_TEST, "what was ended does not start again");
    }
    chaos_end(&rig->chaos);
    rig->load_us = now_us() - rig->start_us;
}

/* Sections end as they began; then nothing may be left. */
static void rig_drain(struct rig *rig)
{
    int64_t end = now_us() + DRAIN_US;
    atomic_store(&rig->shared->phase, PHASE_DRAIN);
    while (!crew_has_ended(&rig->crew) && now_us() < end)
        if (!rig_wait(rig))
            return;
    if (!crew_has_ended(&rig->crew))
        shared_violation(rig->shared, BREACH_TEST, "clients wait for something that does not come");
    sweeper_finish(&rig->sweeper);
    if (!sweeper_sync_observer(&rig->sweeper))
        shared_violation(rig->shared, BREACH_TEST, "the observer does not keep up");
}

static void rig_end(struct rig *rig)
{
    int status;
    crew_free(&rig->crew);
    if (!servers_end_headgates(&rig->servers))
        shared_violation(rig->shared, BREACH_TEST, "a Headgate did not end well");
    atomic_store(&rig->shared->phase, PHASE_STOP);
    if (rig->prober > 0 && !process_wait(rig->prober, END_US, &status))
        process_kill(&rig->prober);
    if (rig->observer > 0 && !process_wait(rig->observer, END_US, &status))
        process_kill(&rig->observer);
}

/* Whether enough of what matters was seen for the outcome to say something. */
static bool rig_showed_enough(const struct rig *rig)
{
    const struct shared *shared = rig->shared;
    bool enough = shared_figure(shared, FIGURE_MONITORED) > 0;
    if (shared->options.headgate != NULL)
        enough = enough && shared_figure(shared, FIGURE_RENEWALS) > 0 &&
                 shared_figure(shared, FIGURE_LONG_KEPT) * 5 >= shared_figure(shared, FIGURE_LONG);
    if (!enough)
        fprintf(stderr, "safety: too little was seen, or too much excused\n");
    return enough;
}

static int rig_run(struct rig *rig)
{
    uint64_t verdicts[VERDICT_COUNT] = {0};
    bool started = rig_start(rig);
    if (started) {
        rig_load(rig);
        rig_drain(rig);
        if (rig->shared->options.exact)
            counts_judge(rig->shared, &rig->servers);
    }
    rig_end(rig);
    if (!started)
        return 2;
    judge_all(rig->shared, verdicts);
    figures_print(rig->shared, verdicts, (double)rig->load_us / 1e6);
    if (atomic_load(&rig->shared->violations) > 0)
        return 1;
    return rig_showed_enough(rig) ? 0 : 2;
}

int run_execute(const struct options *options, unsigned breaches[BREACH_COUNT])
{
    struct rig rig = {.shared = shared_create(options)};
    if (rig.shared == NULL) {
        fprintf(stderr, "safety: no memory\n");
        return 2;
    }
    sweeper_init(&rig.sweeper, rig.shared);
    int result = rig_run(&rig);
    servers_free(&rig.servers, (result != 0 || options->trace) && options->fault == FAULT_NONE);
    for (int breach = 0; breaches != NULL && breach < BREACH_COUNT; breach++)
        breaches[breach] = atomic_load(&rig.shared->breaches[breach]);
    sweeper_free(&rig.sweeper);
    shared_free(rig.shared);
    return result;
}
