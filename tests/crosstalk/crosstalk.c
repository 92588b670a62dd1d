/*
 * The cross-talk test: no reply may reach the wrong client.
 *
 * README. Starts a redis-server of its own and Headgate in front of it, and drives hundreds of clients with random
 * pipelines whose replies carry the client's identity. Every reply is checked: type, identity, order, protocol version.
 * Disconnects at any point, killed lanes and a restarted Redis are part of it (--chaos all). At the end nothing may be
 * missing and every client must still work. Exit status: 0 no violation, 1 violations (told on standard error with the
 * logs' directory), 2 the test could not be done.
 *
 *   crosstalk --headgate build/headgate --chaos all --seconds 120   the test
 *   crosstalk --direct                                              clients at Redis itself: the checker is right
 *   crosstalk --self-test                                           replies are falsified: every fault must be found
 *
 * With --attackers there are clients among them that send whatever might disturb the others. Then nothing is excused:
 * no client may be closed, each request is answered in time, what is forbidden is not done, and Headgate stays within
 * bounds of memory.
 *
 * Parts: crosstalk_run (phases of a run, threads, chaos), _client (connections), _workload and _send (what is sent),
 * _tls, _expect and _verify (what must come back), _text (identities), _servers, _attacker, _attacks and _watch
 * (attackers, and what they bring about); of tests/rig: _buffer, _reply, _process, _options.
 */
#include "crosstalk_run.h"
#include "rig_options.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHAOS_SECONDS_MIN 30 /* what chaos broke is given time before the end */

static const char usage[] =
    "usage: crosstalk --headgate PATH | --direct | --self-test\n"
    "  --clients N      concurrent clients (300)\n"
    "  --requests N     requests to send (2000000)\n"
    "  --seconds N      no new load after two thirds of it (600)\n"
    "  --threads N      workers of Headgate (4)\n"
    "  --pool POOL      shared or session (shared)\n"
    "  --seed N         of what is random (from the clock)\n"
    "  --chaos WHAT     none or all (none); all needs --seconds 30 or more\n"
    "  --attackers N    clients that try to disturb the others (0)\n"
    "  --tls            clients and Headgate speak TLS to each other, Headgate and Redis, too; attackers do not\n"
    "  --rotate         with --tls: certificates, keys and passwords are read anew all the time\n"
    "  --limits         with rate limits that hold requests, but refuse none\n";

enum {
    HEADGATE,
    CLIENTS,
    REQUESTS,
    SECONDS,
    THREADS,
    POOL,
    SEED,
    CHAOS,
    ATTACKERS,
    DIRECT,
    SELF_TEST,
    TLS,
    ROTATE,
    LIMITS
};

static const struct option long_options[] = {{"headgate", required_argument, NULL, HEADGATE},
                                             {"clients", required_argument, NULL, CLIENTS},
                                             {"requests", required_argument, NULL, REQUESTS},
                                             {"seconds", required_argument, NULL, SECONDS},
                                             {"threads", required_argument, NULL, THREADS},
                                             {"pool", required_argument, NULL, POOL},
                                             {"seed", required_argument, NULL, SEED},
                                             {"chaos", required_argument, NULL, CHAOS},
                                             {"attackers", required_argument, NULL, ATTACKERS},
                                             {"direct", no_argument, NULL, DIRECT},
                                             {"self-test", no_argument, NULL, SELF_TEST},
                                             {"tls", no_argument, NULL, TLS},
                                             {"rotate", no_argument, NULL, ROTATE},
                                             {"limits", no_argument, NULL, LIMITS},
                                             {0}};

static uint64_t number(const char *given, uint64_t otherwise, uint64_t low, uint64_t high)
{
    return given != NULL ? options_number(usage, given, low, high) : otherwise;
}

static struct options parse_options(int count, char **arguments)
{
    const char *given[LIMITS + 1] = {0};
    int option;
    while ((option = getopt_long(count, arguments, "", long_options, NULL)) != -1) {
        if (option == '?')
            options_fail(usage);
        given[option] = optarg != NULL ? optarg : "";
    }
    struct options options = {
        .headgate = given[HEADGATE],
        .clients = (uint32_t)number(given[CLIENTS], 300, 8, 20000),
        .requests = (int64_t)number(given[REQUESTS], 2000000, 1, INT64_MAX / 2),
        .seconds = (unsigned)number(given[SECONDS], 600, 1, 1000000),
        .threads = (unsigned)number(given[THREADS], 4, 1, 64),
        .pool = options_word(usage, given[POOL] != NULL ? given[POOL] : "shared", "shared", "session"),
        .seed = number(given[SEED], (uint64_t)now_us(), 0, UINT64_MAX),
        .chaos = given[CHAOS] != NULL && *options_word(usage, given[CHAOS], "none", "all") == 'a',
        .attackers = (uint32_t)number(given[ATTACKERS], 0, 0, 5000),
        .tls = given[TLS] != NULL,
        .rotate = given[ROTATE] != NULL,
        .limits = given[LIMITS] != NULL,
        .self_test = given[SELF_TEST] != NULL,
    };
    bool alone = (options.headgate != NULL) + (given[DIRECT] != NULL) + options.self_test == 1;
    if (!alone || optind != count || (options.chaos && options.seconds < CHAOS_SECONDS_MIN) ||
        (options.tls && options.self_test) ||
        (options.rotate && (!options.tls || options.headgate == NULL || options.chaos)))
        options_fail(usage);
    return options;
}

/* In a process of its own, which may fail in any way. Its words are only shown when they matter. */
static int run_quietly(const struct options *options)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return 2;
    if (pid > 0)
        return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 2;
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (options->fault != FAULT_NONE && nowhere >= 0) {
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
    }
    exit(run_execute(options));
}

/* Clients at Redis must pass; each fault must be found. */
static int self_test(struct options options)
{
    static const char *const names[FAULT_COUNT] = {"none",   "other", "reorder", "drop",  "duplicate",
                                                   "refuse", "close", "leak",    "delay", "wipe"};
    int result = 0;
    options.clients = 32;
    options.requests = 150000;
    options.chaos = false;
    options.attackers = 12;
    for (int fault = FAULT_NONE; fault < FAULT_COUNT; fault++) {
        options.fault = (enum fault)fault;
        int outcome = run_quietly(&options);
        bool right = outcome == (fault == FAULT_NONE ? 0 : 1);
        printf("self-test, fault %s: %s (%d)\n", names[fault], right ? "as it must be" : "WRONG", outcome);
        if (!right)
            result = 1;
    }
    return result;
}

static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int count, char **arguments)
{
    struct options options = parse_options(count, arguments);
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    if (options.self_test)
        return self_test(options);
    printf("crosstalk: %s, %" PRIu32 " clients, %" PRId64 " requests, seed %" PRIu64 "\n",
           options.headgate != NULL ? options.pool : "direct", options.clients, options.requests, options.seed);
    int result = run_execute(&options);
    printf("crosstalk: %s\n", result == 0 ? "no violation" : "FAILED");
    return result;
}
