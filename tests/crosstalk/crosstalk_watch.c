#include "crosstalk_watch.h"

#include "rig_buffer.h"
#include "rig_reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND_US ((int64_t)1000000)
#define PAUSE_US SECOND_US
#define READ_SIZE ((size_t)64 * 1024)
/* What each worker may keep beside one connection for each client: those that are shared, and spare ones, for each
 * user, database and RESP version. */
#define SPARE_CONNECTIONS 1000
/* What Headgate may hold beside so much for each connection. The address sanitizer keeps up to 256 MiB of freed memory
 * by itself. */
#define MEMORY_BASE ((uint64_t)512 << 20)
#define MEMORY_EACH ((uint64_t)2 << 20)

/* A canary: how it is put, asked for, and found well. What kills it is forbidden. */
struct canary {
    const char *what;
    const char *put;
    const char *ask;
    const char *well;
};

/* The digest is that of the script. */
static const struct canary canaries[] = {
    {"keys were removed", "SET canary sings\r\n", "GET canary\r\n", "$5\r\nsings\r\n"},
    {"the configuration was changed", "CONFIG SET slowlog-max-len 128\r\n", "CONFIG GET slowlog-max-len\r\n",
     "*2\r\n$15\r\nslowlog-max-len\r\n$3\r\n128\r\n"},
    {"a user was made", "PING\r\n", "ACL GETUSER intruder\r\n", "$-1\r\n"},
    {"a user was removed", "PING\r\n", "ACL DRYRUN crosstalk1 PING\r\n", "+OK\r\n"},
    {"scripts were removed", "SCRIPT LOAD \"return 'canary'\"\r\n",
     "SCRIPT EXISTS 8ad17056127415305e413dca0275af24eb4f9243\r\n", "*1\r\n:1\r\n"},
    {"Redis became a replica", "PING\r\n", "ROLE\r\n", "*3\r\n$6\r\nmaster\r\n"},
};

#define CANARY_COUNT (sizeof canaries / sizeof *canaries)

/* Asks Redis on a connection of its own; the whole answer goes to the buffer. */
static bool ask(const struct watch *watch, const char *command, struct buffer *answer)
{
    int fd = process_connect(watch->servers->redis.port.number);
    bool whole = false;
    if (fd < 0)
        return false;
    ssize_t got = send(fd, command, strlen(command), MSG_NOSIGNAL);
    while (got > 0 && !whole) {
        got = recv(fd, buffer_reserve(answer, READ_SIZE), READ_SIZE, 0);
        if (got > 0)
            buffer_commit(answer, (size_t)got);
        size_t length = reply_measure(buffer_head(answer), buffer_length(answer));
        whole = length > 0 && length != SIZE_MAX;
    }
    close(fd);
    return whole;
}

/* ---- canaries ---- */

static bool put_canaries(struct watch *watch)
{
    watch->epoch = atomic_load(&watch->run->epoch);
    for (size_t at = 0; at < CANARY_COUNT; at++) {
        struct buffer answer = {0};
        bool put = ask(watch, canaries[at].put, &answer) && buffer_head(&answer)[0] != '-';
        buffer_free(&answer);
        if (!put)
            return false;
    }
    return true;
}

static void look_at_canary(struct watch *watch, const struct canary *canary)
{
    struct buffer answer = {0};
    bool told = ask(watch, canary->ask, &answer);
    bool well = buffer_length(&answer) >= strlen(canary->well) &&
                memcmp(buffer_head(&answer), canary->well, strlen(canary->well)) == 0;
    if (told)
        watch->heard_us = now_us();
    if (told && !well)
        run_violation(watch->run, "what is forbidden was done: %s: %.*s", canary->what,
                      (int)(buffer_length(&answer) < 200 ? buffer_length(&answer) : 200), buffer_head(&answer));
    buffer_free(&answer);
}

/* ---- connections ---- */

/* The ids of the connections that Headgate shares between clients are told to the attackers. */
static void tell_lanes(struct run *run, const char *list, const char *end)
{
    uint32_t count = 0;
    for (const char *line = list; line < end && count < LANES_TOLD; line++) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((next != NULL ? next : end) - line);
        const char *id = memmem(line, length, "id=", 3);
        if (id != NULL && memmem(line, length, " name=headgate ", 15) != NULL)
            atomic_store(&run->lanes[count++], (unsigned)strtoul(id + 3, NULL, 10));
        line += length;
    }
    atomic_store(&run->lane_count, count);
}

static void look_at_connections(struct watch *watch)
{
    struct run *run = watch->run;
    struct buffer list = {0};
    uint64_t bound = run->options.clients + run->options.attackers + run->options.threads * SPARE_CONNECTIONS;
    uint64_t count = 0;
    if (ask(watch, "CLIENT LIST\r\n", &list)) {
        const char *end = buffer_head(&list) + buffer_length(&list);
        for (const char *at = buffer_head(&list); (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
            count++;
        tell_lanes(run, buffer_head(&list), end);
    }
    buffer_free(&list);
    watch->connections_max = count > watch->connections_max ? count : watch->connections_max;
    if (count > bound)
        run_violation(run, "%" PRIu64 " connections to Redis, of %" PRIu64 " at most", count, bound);
}

/* ---- memory ---- */

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

static void look_at_memory(struct watch *watch)
{
    const struct options *options = &watch->run->options;
    if (options->headgate == NULL)
        return;
    uint64_t bound = MEMORY_BASE + (options->clients + options->attackers) * MEMORY_EACH;
    uint64_t bytes = resident_bytes(watch->servers->headgate.pid);
    watch->memory_max = bytes > watch->memory_max ? bytes : watch->memory_max;
    if (bytes > bound)
        run_violation(watch->run, "headgate holds %" PRIu64 " MiB, of %" PRIu64 " at most", bytes >> 20, bound >> 20);
}

/* ---- steps ---- */

bool watch_start(struct watch *watch, struct run *run, const struct servers *servers)
{
    *watch = (struct watch){.run = run, .servers = servers, .heard_us = now_us()};
    return put_canaries(watch);
}

void watch_step(struct watch *watch)
{
    int64_t now = now_us();
    if (now < watch->next_us)
        return;
    watch->next_us = now + PAUSE_US;
    watch_look(watch);
}

void watch_look(struct watch *watch)
{
    watch->looks++;
    look_at_memory(watch);
    look_at_connections(watch);
    /* Redis was killed and has lost everything. */
    if (watch->epoch != atomic_load(&watch->run->epoch)) {
        if (!put_canaries(watch))
            run_violation(watch->run, "Redis does not take canaries");
        watch->heard_us = now_us();
        return;
    }
    for (size_t at = 0; at < CANARY_COUNT; at++)
        look_at_canary(watch, &canaries[at]);
    if (now_us() > watch->heard_us + (int64_t)watch->run->options.patience * SECOND_US)
        run_violation(watch->run, "Redis itself does not answer");
}

void watch_print(const struct watch *watch)
{
    printf("  watched: %" PRIu64 " times, at most %" PRIu64 " connections to Redis, %" PRIu64
           " MiB resident; slowest answer %.1f s\n",
           watch->looks, watch->connections_max, watch->memory_max >> 20,
           (double)atomic_load(&watch->run->slowest_us) / 1e6);
}
