#include "crosstalk_run.h"

#include "crosstalk_attacker.h"
#include "crosstalk_chaos.h"
#include "crosstalk_fault_proxy.h"
#include "crosstalk_figures.h"
#include "crosstalk_loop.h"
#include "crosstalk_rotation.h"
#include "crosstalk_servers.h"
#include "crosstalk_verify.h"
#include "crosstalk_watch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOPS_MAX 16
#define VIOLATIONS_SHOWN 5
#define TURN_US 5000
#define SECOND_US ((int64_t)1000000)
#define FINAL_US (40 * SECOND_US)
/* Fewer would not tell that what is old can go. */
#define ROTATIONS_LEAST 3

/* Everything of one run that only the main thread touches. */
struct rig {
    struct servers servers;
    struct chaos chaos;
    struct rotation rotation;
    struct fault_proxy *fault_proxy;
    struct watch watch;
    struct attackers attackers;
    struct loop loops[LOOPS_MAX];
    unsigned loops_started;
    int64_t start_us;
    int64_t load_us; /* how long the load lasted */
};

void run_violation(struct run *run, const char *format, ...)
{
    if (atomic_fetch_add(&run->violations, 1) < VIOLATIONS_SHOWN) {
        char text[4096];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        fprintf(stderr, "VIOLATION (seed %" PRIu64 ") %s\n", run->options.seed, text);
    }
    atomic_store(&run->phase, PHASE_STOP);
}

static bool rig_start_attackers(struct rig *rig, struct run *run)
{
    return run->options.attackers == 0 ||
           (watch_start(&rig->watch, run, &rig->servers) && attackers_start(&rig->attackers, run, run->options.trace));
}

static bool rig_choose_client_port(const struct rig *rig, struct run *run)
{
    const struct servers *servers = &rig->servers;
    run->client_port = run->port;
    if (!run->options.tls)
        return true;
    run->client_port =
        run->options.headgate != NULL ? servers->headgate_tls_port.number : servers->redis_tls_port.number;
    return rotation_equip_clients(run, &servers->secrets);
}

static bool rig_start(struct rig *rig, struct run *run)
{
    const struct options *options = &run->options;
    if (!servers_prepare(&rig->servers, options) || !servers_start_redis(&rig->servers, options))
        return false;
    run->port = rig->servers.redis.port.number;
    if (options->headgate != NULL) {
        if (!servers_start_headgate(&rig->servers, options))
            return false;
        run->port = rig->servers.headgate.port.number;
    }
    if (options->through_fault_proxy) {
        rig->fault_proxy = fault_proxy_start(options->fault, rig->servers.redis.port.number, options->seed, &run->port);
        if (rig->fault_proxy == NULL)
            return false;
    }
    if (!rig_choose_client_port(rig, run))
        return false;
    for (; rig->loops_started < options->loops; rig->loops_started++)
        if (!loop_start(&rig->loops[rig->loops_started], run, rig->loops_started))
            return false;
    return rig_start_attackers(rig, run);
}

/* One turn of waiting: false when the run has to end. */
static bool rig_wait(struct rig *rig, struct run *run)
{
    usleep(TURN_US);
    if (run_phase(run) == PHASE_STOP)
        return false;
    if (run->options.headgate != NULL && !servers_headgate_lives(&rig->servers))
        run_violation(run, "headgate ended by itself");
    else if (now_us() > rig->start_us + (int64_t)run->options.seconds * SECOND_US)
        run_violation(run, "the run did not end within %u s", run->options.seconds);
    else if (run->options.attackers > 0)
        watch_step(&rig->watch);
    return run_phase(run) != PHASE_STOP;
}

/* Sends load until enough requests were sent, or too little time is left for the rest of the run. */
static void rig_load(struct rig *rig, struct run *run)
{
    int64_t limit = (int64_t)run->options.seconds * SECOND_US * 2 / 3;
    while (rig_wait(rig, run)) {
        if (atomic_load(&run->requests_left) <= 0 || now_us() > rig->start_us + limit)
            break;
        if (run->options.chaos && !chaos_step(&rig->chaos))
            run_violation(run, "redis-server does not start again");
        if (run->options.rotate && !rotation_step(&rig->rotation))
            run_violation(run, "the secrets could not be exchanged");
    }
    rig->load_us = now_us() - rig->start_us;
    if (run->options.rotate && run_phase(run) != PHASE_STOP && rig->rotation.done < ROTATIONS_LEAST)
        run_violation(run, "the secrets were exchanged only %u times: more --requests or --seconds",
                      rig->rotation.done);
}

/* A phase never follows PHASE_STOP, which a violation may have set meanwhile. */
static bool phase_advance(struct run *run, enum phase from, enum phase to)
{
    int expected = (int)from;
    return atomic_compare_exchange_strong(&run->phase, &expected, (int)to);
}

static void rig_final(struct rig *rig, struct run *run)
{
    if (!phase_advance(run, PHASE_LOAD, PHASE_SETTLE))
        return;
    while (run_excused(run))
        if (!rig_wait(rig, run))
            return;
    if (!phase_advance(run, PHASE_SETTLE, PHASE_FINAL))
        return;
    int64_t limit = now_us() + FINAL_US;
    while (atomic_load(&run->finished) < run->options.clients && now_us() < limit)
        if (!rig_wait(rig, run))
            return;
    if (run->options.attackers > 0)
        watch_look(&rig->watch);
}

static void check_finished(struct run *run)
{
    for (uint32_t index = 0; index < run->options.clients; index++) {
        const struct client *client = &run->clients[index];
        char expected[512];
        if (client->finished || atomic_load(&run->violations) >= VIOLATIONS_SHOWN)
            continue;
        verify_describe(client, expected);
        run_violation(run,
                      "client %" PRIu32 ": not finished (link %d, ending %d, %zu replies outstanding), expected: %s",
                      index, (int)client->link, (int)client->ending, client->expected.count, expected);
    }
}

static void rig_join(struct rig *rig, struct run *run)
{
    atomic_store(&run->phase, PHASE_STOP);
    for (unsigned at = 0; at < rig->loops_started; at++)
        loop_join(&rig->loops[at]);
    rig->loops_started = 0;
    attackers_join(&rig->attackers);
}

/* The clients' connections are still open: ending must not depend on them. */
static void rig_end(struct rig *rig, struct run *run)
{
    if (run->options.headgate != NULL && rig->servers.headgate.pid > 0 && !servers_end_headgate(&rig->servers))
        run_violation(run, "headgate did not end well");
    for (uint32_t index = 0; index < run->options.clients; index++)
        client_free(&run->clients[index]);
    attackers_free(&rig->attackers);
    if (rig->fault_proxy != NULL)
        printf("  %-34s %12u\n", "faults committed", fault_proxy_stop(rig->fault_proxy));
}

static int rig_run(struct rig *rig, struct run *run)
{
    struct figures sum = {0};
    rig->start_us = now_us();
    chaos_init(&rig->chaos, run, &rig->servers);
    rotation_init(&rig->rotation, run, &rig->servers);
    bool started = rig_start(rig, run);
    unsigned loops = rig->loops_started;
    if (started) {
        rig_load(rig, run);
        rig_final(rig, run);
    }
    rig_join(rig, run);
    if (started && atomic_load(&run->violations) == 0)
        check_finished(run);
    for (unsigned at = 0; at < loops; at++)
        figures_add(&sum, &rig->loops[at].figures);
    if (started)
        figures_print(&sum, &rig->chaos, (double)rig->load_us / 1e6);
    if (started && run->options.rotate)
        printf("  %-34s %12u\n", "all secrets exchanged", rig->rotation.done);
    if (started && run->options.attackers > 0) {
        attackers_print(&rig->attackers);
        watch_print(&rig->watch);
    }
    rig_end(rig, run);
    return !started ? 2 : atomic_load(&run->violations) > 0 ? 1 : 0;
}

int run_execute(const struct options *options)
{
    struct run *run = calloc(1, sizeof *run);
    struct rig *rig = calloc(1, sizeof *rig);
    int result = 2;
    if (run != NULL && rig != NULL) {
        run->options = *options;
        pthread_mutex_init(&run->tls_mutex, NULL);
        run->clients = calloc(options->clients, sizeof *run->clients);
        atomic_store(&run->requests_left, options->requests);
        if (run->clients != NULL && options->loops <= LOOPS_MAX) {
            for (uint32_t index = 0; index < options->clients; index++)
                run->clients[index].fd = -1;
            result = rig_run(rig, run);
            servers_free(&rig->servers, result != 0 && !options->through_fault_proxy);
        }
        for (unsigned kind = 0; kind < SECRETS_CLIENT_KINDS; kind++)
            SSL_CTX_free(run->tls[kind]);
        pthread_mutex_destroy(&run->tls_mutex);
        free(run->clients);
    }
    free(run);
    free(rig);
    return result;
}
