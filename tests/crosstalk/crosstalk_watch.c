#include "crosstalk_attacker.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define SECOND_US ((int64_t)1000000)
/* What Headgate may hold beside so much for each connection. The address sanitizer keeps up to 256 MiB of freed memory
 * by itself. */
#define MEMORY_BASE ((uint64_t)512 << 20)
#define MEMORY_EACH ((uint64_t)2 << 20)

/* A canary: how it is put, asked for, and found well. What kills it is forbidden. */
static const struct canary {
    const char *what;
    const char *put;
    const char *ask;
    const char *well;
} canaries[] = {
    {"keys were removed", "SET canary sings\r\n", "GET canary\r\n", "$5\r\nsings\r\n"},
    {"the configuration was changed", "CONFIG SET slowlog-max-len 128\r\n", "CONFIG GET slowlog-max-len\r\n",
     "*2\r\n$15\r\nslowlog-max-len\r\n$3\r\n128\r\n"},
    {"a user was made", "PING\r\n", "ACL GETUSER intruder\r\n", "$-1\r\n"},
    {"a user was removed", "PING\r\n", "ACL DRYRUN crosstalk1 PING\r\n", "+OK\r\n"},
    /* The digest is that of the script. */
    {"scripts were removed", "SCRIPT LOAD \"return 'canary'\"\r\n",
     "SCRIPT EXISTS 8ad17056127415305e413dca0275af24eb4f9243\r\n", "*1\r\n:1\r\n"},
    {"Redis became a replica", "PING\r\n", "ROLE\r\n", "*3\r\n$6\r\nmaster\r\n"},
};

#define CANARY_COUNT (sizeof canaries / sizeof *canaries)

static bool put_canaries(struct watch *watch)
{
    bool put = true;
    watch->epoch = atomic_load(&watch->run->epoch);
    for (size_t at = 0; at < CANARY_COUNT; at++)
        put = servers_ask_redis(watch->servers, canaries[at].put, "") && put;
    return put;
}

static uint64_t resident_bytes(pid_t pid)
{
    char path[64];
    unsigned long total = 0;
    unsigned long resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%lu %lu", &total, &resident) != 2)
        resident = 0;
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void look_at_memory(const struct watch *watch)
{
    const struct options *options = &watch->run->options;
    uint64_t bound = MEMORY_BASE + (options->clients + options->attackers) * MEMORY_EACH;
    uint64_t bytes = options->headgate != NULL ? resident_bytes(watch->servers->headgate.pid) : 0;
    if (bytes > bound)
        run_violation(watch->run, "headgate holds %" PRIu64 " MiB, of %" PRIu64 " at most", bytes >> 20, bound >> 20);
}

/* That nothing is answered is no finding, unless it lasts. */
static void look_at_canary(struct watch *watch, const struct canary *canary)
{
    if (servers_ask_redis(watch->servers, canary->ask, canary->well))
        watch->heard_us = now_us();
    else if (servers_ask_redis(watch->servers, canary->ask, "") &&
             !servers_ask_redis(watch->servers, canary->ask, canary->well))
        run_violation(watch->run, "what is forbidden was done: %s", canary->what);
}

bool watch_start(struct watch *watch, struct run *run, const struct servers *servers)
{
    *watch = (struct watch){.run = run, .servers = servers, .heard_us = now_us()};
    return put_canaries(watch);
}

void watch_look(struct watch *watch)
{
    watch->next_us = now_us() + SECOND_US;
    look_at_memory(watch);
    if (watch->run->options.fault == FAULT_WIPE)
        servers_ask_redis(watch->servers, "DEL canary\r\n", ":");
    /* Redis was killed and has lost everything. */
    if (watch->epoch != atomic_load(&watch->run->epoch)) {
        if (!put_canaries(watch))
            run_violation(watch->run, "Redis does not take canaries");
        watch->heard_us = now_us();
        return;
    }
    for (size_t at = 0; at < CANARY_COUNT; at++)
        look_at_canary(watch, &canaries[at]);
    if (now_us() > watch->heard_us + PATIENCE_US)
        run_violation(watch->run, "Redis itself does not answer");
}
