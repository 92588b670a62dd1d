#include "safety_self_test.h"

#include "safety_cases.h"
#include "safety_run.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECTIONS 30000
#define NOT_DONE 100 /* an exit status that is no set of breaches */

/* Every fault must be found for what it is; what follows from it may be found, too. */
static const struct {
    enum fault fault;
    const char *name;
    enum breach breach;
} faults[] = {{FAULT_NONE, "none", BREACH_COUNT},
              {FAULT_INTRUDER, "a client that was refused enters", BREACH_EXCLUSION},
              {FAULT_NO_RENEWAL, "nobody renews", BREACH_EXCLUSION},
              {FAULT_ROGUE, "a released lock is renewed", BREACH_RENEWAL},
              {FAULT_UNWATCHED, "a lock without a rule is renewed", BREACH_RENEWAL},
              {FAULT_LEFT, "a lock is left behind", BREACH_LEFT}};

static int breach_set(const struct options *options)
{
    unsigned breaches[BREACH_COUNT];
    int set = 0;
    if (run_execute(options, breaches) > 1)
        return NOT_DONE;
    for (int breach = 0; breach < BREACH_COUNT; breach++)
        set |= breaches[breach] > 0 ? 1 << breach : 0;
    return set;
}

/* In a process of its own. Returns the set of breaches. What a fault has it say is not shown. */
static int run_apart(const struct options *options)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return NOT_DONE;
    if (pid > 0)
        return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : NOT_DONE;
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (options->fault != FAULT_NONE && !options->trace && nowhere >= 0) {
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
    }
    exit(breach_set(options));
}

int self_test_run(struct options options)
{
    int result = cases_run() ? 0 : 1;
    options.sections = SECTIONS;
    for (size_t at = 0; at < sizeof faults / sizeof *faults; at++) {
        options.fault = faults[at].fault;
        int outcome = run_apart(&options);
        bool right =
            faults[at].breach == BREACH_COUNT
                ? outcome == 0
                : outcome != NOT_DONE && (outcome & 1 << faults[at].breach) != 0 && (outcome & 1 << BREACH_TEST) == 0;
        printf("self-test, fault: %s: %s (%d)\n", faults[at].name, right ? "as it must be" : "WRONG", outcome);
        if (!right)
            result = 1;
    }
    return result;
}
