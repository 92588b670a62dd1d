/*
 * The safety test of leases: never two holders where the rules allow one, never a renewal after a release, never a lock
 * left behind for longer than its lease.
 *
 * README. Starts a redis-server of its own and several Headgates in front of it, and has client processes run short
 * critical sections on a few locks of every kind that Headgate watches, while client processes are killed and paused,
 * lanes cut, Headgates stopped and killed, and Redis killed and started with nothing. Three judges that know nothing of
 * Headgate or of each other:
 *
 *   safety_judge    who is inside, by the clients' own belief, counted in shared memory. Says what is excused, and when
 *   safety_model    renewals and releases in Redis' own order, from MONITOR. Excuses nothing
 *   safety_sweeper  what the dead leave behind
 *
 * Exit status: 0 no violation, 1 violations (told on standard error with the directory of the logs), 2 the test could
 * not be done or showed too little.
 *
 *   safety --headgate build/headgate --chaos all --sections 1000000   the test
 *   safety --headgate build/headgate --exact --sections 1000000       what Headgate counts is what clients did
 *   safety --direct                                                   clients at Redis itself: the judges are right
 *   safety --self-test                                                each kind of fault must be found
 *
 * Parts: safety_run (phases of a run), _worker (client processes), _client (connections), _section (what clients do),
 * _locks (locks and rules), _shared (what all know), _observer and _monitor (the stream of MONITOR), _prober (stalls),
 * _crew and _chaos (faults), _servers, _counts, _figures, _self_test.
 */
#include "rig_options.h"
#include "safety_run.h"
#include "safety_self_test.h"
#include "safety_worker.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: safety --headgate PATH | --direct | --self-test\n"
    "  --sections N     critical sections to run (1000000)\n"
    "  --seconds N      no new ones after so long; the run ends soon after (600)\n"
    "  --headgates N    1 to 3 (2)\n"
    "  --threads N      workers of each Headgate (1); the prober may miss that one of several is starved\n"
    "  --workers N      client processes (3)\n"
    "  --clients N      connections of each of them (32)\n"
    "  --seed N         of what is random (from the clock)\n"
    "  --chaos WHAT     none or all (none)\n"
    "  --exact          nothing is done behind Headgate's back; its counters have to agree with what clients did\n"
    "  --trace          keep the stream of MONITOR and the logs\n";

enum option_code {
    OPTION_HEADGATE,
    OPTION_DIRECT,
    OPTION_SELF_TEST,
    OPTION_SECTIONS,
    OPTION_SECONDS,
    OPTION_HEADGATES,
    OPTION_THREADS,
    OPTION_WORKERS,
    OPTION_CLIENTS,
    OPTION_SEED,
    OPTION_CHAOS,
    OPTION_EXACT,
    OPTION_TRACE
};

static const struct option long_options[] = {{"headgate", required_argument, NULL, OPTION_HEADGATE},
                                             {"direct", no_argument, NULL, OPTION_DIRECT},
                                             {"self-test", no_argument, NULL, OPTION_SELF_TEST},
                                             {"sections", required_argument, NULL, OPTION_SECTIONS},
                                             {"seconds", required_argument, NULL, OPTION_SECONDS},
                                             {"headgates", required_argument, NULL, OPTION_HEADGATES},
                                             {"threads", required_argument, NULL, OPTION_THREADS},
                                             {"workers", required_argument, NULL, OPTION_WORKERS},
                                             {"clients", required_argument, NULL, OPTION_CLIENTS},
                                             {"seed", required_argument, NULL, OPTION_SEED},
                                             {"chaos", required_argument, NULL, OPTION_CHAOS},
                                             {"exact", no_argument, NULL, OPTION_EXACT},
                                             {"trace", no_argument, NULL, OPTION_TRACE},
                                             {0}};

static void take_option(struct options *options, int option, const char *value)
{
    switch (option) {
    case OPTION_HEADGATE:
        options->headgate = value;
        break;
    case OPTION_SECTIONS:
        options->sections = (int64_t)options_number(usage, value, 1, INT64_MAX / 2);
        break;
    case OPTION_SECONDS:
        options->seconds = (unsigned)options_number(usage, value, 1, 1000000);
        break;
    case OPTION_HEADGATES:
        options->headgates = (unsigned)options_number(usage, value, 1, HEADGATES_MAX);
        break;
    case OPTION_THREADS:
        options->threads = (unsigned)options_number(usage, value, 1, 64);
        break;
    case OPTION_WORKERS:
        options->workers = (unsigned)options_number(usage, value, 1, WORKERS_MAX);
        break;
    case OPTION_CLIENTS:
        options->clients = (unsigned)options_number(usage, value, 8, WORKER_CLIENTS_MAX);
        break;
    case OPTION_SEED:
        options->seed = options_number(usage, value, 0, UINT64_MAX);
        break;
    case OPTION_CHAOS:
        options->chaos = strcmp(options_word(usage, value, "none", "all"), "all") == 0;
        break;
    case OPTION_EXACT:
        options->exact = true;
        break;
    case OPTION_TRACE:
        options->trace = true;
        break;
    default:
        options_fail(usage);
    }
}

static struct options parse_options(int count, char **arguments, bool *self_test)
{
    struct options options = {.sections = 1000000,
                              .seconds = 600,
                              .headgates = 2,
                              .threads = 1,
                              .workers = 3,
                              .clients = 32,
                              .seed = (uint64_t)now_us()};
    bool direct = false;
    int option;
    while ((option = getopt_long(count, arguments, "", long_options, NULL)) != -1) {
        if (option == OPTION_DIRECT)
            direct = true;
        else if (option == OPTION_SELF_TEST)
            *self_test = true;
        else
            take_option(&options, option, optarg);
    }
    if (optind != count || (options.headgate != NULL) + direct + *self_test != 1 ||
        ((options.chaos || options.exact) && options.headgate == NULL) || (options.chaos && options.exact))
        options_fail(usage);
    return options;
}

int main(int count, char **arguments)
{
    bool self_test = false;
    struct options options = parse_options(count, arguments, &self_test);
    signal(SIGPIPE, SIG_IGN);
    if (self_test)
        return self_test_run(options);
    printf("safety: %" PRId64 " sections, %u Headgates, %u client processes, seed %" PRIu64 "\n", options.sections,
           options.headgate != NULL ? options.headgates : 0, options.workers, options.seed);
    fflush(stdout);
    int result = run_execute(&options, NULL);
    printf("safety: %s\n", result == 0 ? "no violation" : "FAILED");
    return result;
}
