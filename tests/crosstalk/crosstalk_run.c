#include "crosstalk_run.h"

#include "crosstalk_attacker.h"
#include "crosstalk_client.h"
#include "crosstalk_servers.h"
#include "crosstalk_verify.h"
#include "rig_random.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LOOPS 2
#define EVENTS_MAX 64
#define TICK_US 1000
#define ROTATION_US 500000
#define ROTATIONS_LEAST 3
#define PAUSE_MIN_US 200000
#define STOP_US 200000
#define DOWN_RANGE_US 500000
#define VIOLATIONS_SHOWN 5
#define TURN_US 5000
#define SECOND_US ((int64_t)1000000)
#define FINAL_US (40 * SECOND_US)

/* A thread, and every LOOPS-th client. */
struct loop {
    struct run *run;
    unsigned number;
    int epoll;
    pthread_t thread;
    struct figures figures;
};

/* Everything of one run that only the main thread touches. */
struct rig {
    struct servers servers;
    uint64_t chaos_random;
    unsigned chaos_turn;
    int64_t next_chaos_us;
    int64_t next_rotation_us;
    unsigned rotations;
    struct watch watch;
    struct attackers attackers;
    struct loop loops[LOOPS];
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

static void *loop_run(void *context)
{
    struct loop *loop = context;
    struct epoll_event events[EVENTS_MAX];
    int64_t next_tick = 0;
    while (run_phase(loop->run) != PHASE_STOP) {
        int count = epoll_wait(loop->epoll, events, EVENTS_MAX, 1);
        for (int at = 0; at < count; at++)
            client_event(events[at].data.ptr, events[at].events);
        int64_t now = now_us();
        if (now < next_tick)
            continue;
        next_tick = now + TICK_US;
        for (uint32_t index = loop->number; index < loop->run->options.clients; index += LOOPS)
            client_tick(&loop->run->clients[index], now);
    }
    return NULL;
}

static bool loop_start(struct loop *loop, struct run *run, unsigned number)
{
    *loop = (struct loop){.run = run, .number = number, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    if (loop->epoll < 0)
        return false;
    for (uint32_t index = number; index < run->options.clients; index += LOOPS)
        client_init(&run->clients[index], run, &loop->figures, loop->epoll, index);
    return pthread_create(&loop->thread, NULL, loop_run, loop) == 0;
}

static bool rig_start_attackers(struct rig *rig, struct run *run)
{
    return run->options.attackers == 0 ||
           (watch_start(&rig->watch, run, &rig->servers) && attackers_start(&rig->attackers, run));
}

static bool rig_choose_client_port(const struct rig *rig, struct run *run)
{
    const struct servers *servers = &rig->servers;
    run->client_port = run->port;
    if (!run->options.tls)
        return true;
    run->client_port =
        run->options.headgate != NULL ? servers->headgate_tls_port.number : servers->redis_tls_port.number;
    char ca[FILE_PATH_MAX], certificate[FILE_PATH_MAX], key[FILE_PATH_MAX];
    directory_file(servers->directory, "ca.pem", ca);
    directory_file(servers->directory, "client.pem", certificate);
    directory_file(servers->directory, "client.key", key);
    run->tls = tls_context_new(ca, run->options.rotate ? certificate : NULL, key);
    return run->tls != NULL;
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
    if (!rig_choose_client_port(rig, run))
        return false;
    for (; rig->loops_started < LOOPS; rig->loops_started++)
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
    else if (run->options.attackers > 0 && now_us() >= rig->watch.next_us)
        watch_look(&rig->watch);
    return run_phase(run) != PHASE_STOP;
}

static bool restart_redis(struct rig *rig, struct run *run)
{
    atomic_fetch_add(&run->epoch, 1);
    servers_kill_redis(&rig->servers);
    usleep((useconds_t)(next_random(&rig->chaos_random) % DOWN_RANGE_US));
    bool started = servers_start_redis(&rig->servers, &run->options);
    atomic_fetch_add(&run->epoch, 1);
    return started;
}

/* Does the next fault if it is due; each kind comes round even in a short run. While it lasts, and for a while after,
 * the run excuses what follows from it. False if Redis does not come back. */
static bool chaos_step(struct rig *rig, struct run *run)
{
    static const char faults[] = "kskrpk";
    bool done = true;
    if (now_us() < rig->next_chaos_us)
        return true;
    atomic_store(&run->excused_until_us, now_us() + 3600 * SECOND_US);
    switch (faults[rig->chaos_turn++ % strlen(faults)]) {
    case 's':
        kill(rig->servers.redis.pid, SIGSTOP);
        usleep(STOP_US);
        kill(rig->servers.redis.pid, SIGCONT);
        break;
    case 'r':
        done = restart_redis(rig, run);
        break;
    case 'p':
        (void)servers_ask_redis(&rig->servers, "CLIENT KILL TYPE pubsub\r\n", ":");
        break;
    default:
        (void)servers_ask_redis(&rig->servers, "CLIENT KILL TYPE normal\r\n", ":");
    }
    atomic_store(&run->excused_until_us, now_us() + 5 * SECOND_US);
    rig->next_chaos_us = now_us() + PAUSE_MIN_US + (int64_t)(next_random(&rig->chaos_random) % SECOND_US);
    return done;
}

/* On a busy machine it takes its time, and who asks waits for two seconds only. */
static bool rotate(struct rig *rig)
{
    if (now_us() < rig->next_rotation_us)
        return true;
    bool done = servers_renew_tls(&rig->servers);
    for (int64_t limit = now_us() + PATIENCE_US; done && now_us() < limit; usleep(TURN_US))
        if (servers_ask_headgate(&rig->servers, "RELOAD\r\n", "+OK")) {
            rig->next_rotation_us = now_us() + ROTATION_US;
            rig->rotations++;
            return true;
        }
    return false;
}

/* Sends load until enough requests were sent, or too little time is left for the rest of the run. */
static void rig_load(struct rig *rig, struct run *run)
{
    int64_t limit = (int64_t)run->options.seconds * SECOND_US * 2 / 3;
    while (rig_wait(rig, run)) {
        if (atomic_load(&run->requests_left) <= 0 || now_us() > rig->start_us + limit)
            break;
        if (run->options.chaos && !chaos_step(rig, run))
            run_violation(run, "redis-server does not start again");
        if (run->options.rotate && !rotate(rig))
            run_violation(run, "the secrets could not be exchanged");
    }
    rig->load_us = now_us() - rig->start_us;
    if (run->options.rotate && run_phase(run) != PHASE_STOP && rig->rotations < ROTATIONS_LEAST)
        run_violation(run, "the secrets were exchanged only %u times: more --seconds", rig->rotations);
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
        pthread_join(rig->loops[at].thread, NULL);
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
}

static void figures_print(const struct figures *figures, double seconds)
{
    printf("  %.1f s, %" PRIu64 " requests, %" PRIu64 " replies verified, %" PRIu64 " only in part, %" PRIu64
           " pushes, %" PRIu64 " connections, %" PRIu64 " of them closed or refused (excused)\n",
           seconds, figures->requests, figures->verified, figures->resynced, figures->pushes, figures->connections,
           figures->closed_by_peer);
}

static int rig_run(struct rig *rig, struct run *run)
{
    rig->start_us = now_us();
    rig->chaos_random = run->options.seed;
    rig->next_chaos_us = now_us() + SECOND_US;
    bool started = rig_start(rig, run);
    if (started) {
        rig_load(rig, run);
        rig_final(rig, run);
    }
    rig_join(rig, run);
    if (started && atomic_load(&run->violations) == 0)
        check_finished(run);
    for (unsigned at = 0; started && at < LOOPS; at++)
        figures_print(&rig->loops[at].figures, (double)rig->load_us / 1e6);
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
        run->clients = calloc(options->clients, sizeof *run->clients);
        atomic_store(&run->requests_left, options->requests);
        if (run->clients != NULL) {
            for (uint32_t index = 0; index < options->clients; index++)
                run->clients[index].fd = -1;
            result = rig_run(rig, run);
            servers_free(&rig->servers, result != 0 && options->fault == FAULT_NONE);
        }
        SSL_CTX_free(run->tls);
        free(run->clients);
    }
    free(run);
    free(rig);
    return result;
}
