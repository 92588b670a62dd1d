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
 *   crosstalk --self-test                                           a fault proxy: every kind of fault must be found
 *
 * With --attackers there are clients among them that send whatever might disturb the others. Then nothing is excused:
 * no client may be closed, each request is answered in time, what is forbidden is not done, and Headgate stays within
 * bounds of memory and of connections to Redis.
 *
 * Parts: crosstalk_run (phases of a run), _loop (threads), _client (connections), _workload, _units_data, _units_state
 * and _send (what is sent), _tls, _secrets, _rotation (TLS, and what is exchanged), _expect and _verify (what must come
 * back), _text (identities), _chaos, _servers, _fault_proxy, _figures, _attacker, _attacks, _attacks_raw and _watch
 * (attackers, and what they bring about); of tests/rig: _buffer, _reply, _process, _options.
 */
#include "crosstalk_attacks.h"
#include "crosstalk_fault_proxy.h"
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

#define CLIENTS_MIN 8
#define CHAOS_SECONDS_MIN 30 /* what chaos broke is given time before the end */
#define SELF_TEST_CLIENTS 32
#define SELF_TEST_REQUESTS 150000
#define SELF_TEST_ATTACKERS 12
#define SELF_TEST_PATIENCE 5

static const char usage[] =
    "usage: crosstalk --headgate PATH | --direct | --self-test\n"
    "  --clients N      concurrent clients (300)\n"
    "  --requests N     requests to send (2000000)\n"
    "  --seconds N      the run ends within; no new load after two thirds of it (600)\n"
    "  --threads N      workers of Headgate (4)\n"
    "  --pool POOL      shared or session (shared)\n"
    "  --loops N        threads that drive the clients (2)\n"
    "  --seed N         of what is random (from the clock)\n"
    "  --chaos WHAT     none or all (none); all needs --seconds 30 or more\n"
    "  --attackers N    clients that try to disturb the others (0)\n"
    "  --attacks LIST   their kinds, with commas between (all); ! before the list: all but those\n"
    "  --patience N     seconds in which each request is answered, among attackers (20)\n"
    "  --trace FILE     all that attackers send: time, attacker, port, bytes; Headgate logs all, too\n"
    "  --tls            clients and Headgate speak TLS to each other, Headgate and Redis, too; attackers do not\n"
    "  --rotate         with --tls: certificates, keys, authorities and passwords are exchanged all the time\n"
    "  --limits         with rate limits that hold requests, but refuse none\n";

enum option_code {
    OPTION_HEADGATE,
    OPTION_DIRECT,
    OPTION_SELF_TEST,
    OPTION_CLIENTS,
    OPTION_REQUESTS,
    OPTION_SECONDS,
    OPTION_THREADS,
    OPTION_POOL,
    OPTION_LOOPS,
    OPTION_SEED,
    OPTION_CHAOS,
    OPTION_ATTACKERS,
    OPTION_ATTACKS,
    OPTION_PATIENCE,
    OPTION_TRACE,
    OPTION_TLS,
    OPTION_ROTATE,
    OPTION_LIMITS
};

static const struct option long_options[] = {{"headgate", required_argument, NULL, OPTION_HEADGATE},
                                             {"direct", no_argument, NULL, OPTION_DIRECT},
                                             {"self-test", no_argument, NULL, OPTION_SELF_TEST},
                                             {"clients", required_argument, NULL, OPTION_CLIENTS},
                                             {"requests", required_argument, NULL, OPTION_REQUESTS},
                                             {"seconds", required_argument, NULL, OPTION_SECONDS},
                                             {"threads", required_argument, NULL, OPTION_THREADS},
                                             {"pool", required_argument, NULL, OPTION_POOL},
                                             {"loops", required_argument, NULL, OPTION_LOOPS},
                                             {"seed", required_argument, NULL, OPTION_SEED},
                                             {"chaos", required_argument, NULL, OPTION_CHAOS},
                                             {"attackers", required_argument, NULL, OPTION_ATTACKERS},
                                             {"attacks", required_argument, NULL, OPTION_ATTACKS},
                                             {"patience", required_argument, NULL, OPTION_PATIENCE},
                                             {"trace", required_argument, NULL, OPTION_TRACE},
                                             {"tls", no_argument, NULL, OPTION_TLS},
                                             {"rotate", no_argument, NULL, OPTION_ROTATE},
                                             {"limits", no_argument, NULL, OPTION_LIMITS},
                                             {0}};

static uint64_t chosen_attacks(const char *list)
{
    bool others = list[0] == '!';
    uint64_t named = attacks_named(list + others);
    uint64_t chosen = others ? attacks_all() & ~named : named;
    if (named == 0 || chosen == 0)
        options_fail(usage);
    return chosen;
}

static void take_option(struct options *options, int option, const char *value)
{
    switch (option) {
    case OPTION_HEADGATE:
        options->headgate = value;
        break;
    case OPTION_DIRECT:
        break;
    case OPTION_SELF_TEST:
        options->self_test = true;
        break;
    case OPTION_CLIENTS:
        options->clients = (uint32_t)options_number(usage, value, CLIENTS_MIN, 20000);
        break;
    case OPTION_REQUESTS:
        options->requests = (int64_t)options_number(usage, value, 1, INT64_MAX / 2);
        break;
    case OPTION_SECONDS:
        options->seconds = (unsigned)options_number(usage, value, 1, 1000000);
        break;
    case OPTION_THREADS:
        options->threads = (unsigned)options_number(usage, value, 1, 64);
        break;
    case OPTION_POOL:
        options->pool = options_word(usage, value, "shared", "session");
        break;
    case OPTION_LOOPS:
        options->loops = (unsigned)options_number(usage, value, 1, 16);
        break;
    case OPTION_SEED:
        options->seed = options_number(usage, value, 0, UINT64_MAX);
        break;
    case OPTION_CHAOS:
        options->chaos = strcmp(options_word(usage, value, "none", "all"), "all") == 0;
        break;
    case OPTION_ATTACKERS:
        options->attackers = (uint32_t)options_number(usage, value, 0, 5000);
        break;
    case OPTION_ATTACKS:
        options->attacks = chosen_attacks(value);
        break;
    case OPTION_PATIENCE:
        options->patience = (unsigned)options_number(usage, value, 1, 1000);
        break;
    case OPTION_TRACE:
        options->trace = value;
        break;
    case OPTION_TLS:
        options->tls = true;
        break;
    case OPTION_ROTATE:
        options->rotate = true;
        break;
    case OPTION_LIMITS:
        options->limits = true;
        break;
    default:
        options_fail(usage);
    }
}

static struct options parse_options(int count, char **arguments)
{
    struct options options = {.pool = "shared",
                              .clients = 300,
                              .requests = 2000000,
                              .seconds = 600,
                              .threads = 4,
                              .loops = 2,
                              .attacks = attacks_all(),
                              .patience = 20,
                              .seed = (uint64_t)now_us()};
    bool direct = false;
    int option;
    while ((option = getopt_long(count, arguments, "", long_options, NULL)) != -1) {
        direct = direct || option == OPTION_DIRECT;
        take_option(&options, option, optarg);
    }
    if (options.chaos && options.seconds < CHAOS_SECONDS_MIN)
        options_fail(usage);
    if (options.tls && options.self_test)
        options_fail(usage);
    /* Redis would come back with the passwords of the beginning. */
    if (options.rotate && (!options.tls || options.headgate == NULL || options.chaos))
        options_fail(usage);
    if (optind != count || (options.headgate != NULL) + direct + options.self_test != 1)
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

/* The honest proxy must pass; each fault must be found. */
static int self_test(struct options options)
{
    int result = 0;
    options.through_fault_proxy = true;
    options.clients = SELF_TEST_CLIENTS;
    options.requests = SELF_TEST_REQUESTS;
    options.chaos = false;
    options.attackers = SELF_TEST_ATTACKERS;
    options.patience = SELF_TEST_PATIENCE;
    for (int fault = FAULT_NONE; fault < FAULT_COUNT; fault++) {
        options.fault = (enum fault)fault;
        int outcome = run_quietly(&options);
        bool right = outcome == (fault == FAULT_NONE ? 0 : 1);
        printf("self-test, fault %s: %s (%d)\n", fault_name(options.fault), right ? "as it must be" : "WRONG", outcome);
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
