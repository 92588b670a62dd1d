#include "safety_servers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 320
#define END_US (30 * (int64_t)1000000)
#define OBSERVED_US (20 * (int64_t)1000000)
#define FIRST_HOST 2u /* 127.0.0.2 is where the first Headgate reaches Redis */

static void file_path(const struct servers *servers, char path[PATH_BYTES], const char *name)
{
    snprintf(path, PATH_BYTES, "%s/%s", servers->shared->directory, name);
}

static void numbered_path(const struct servers *servers, char path[PATH_BYTES], unsigned number, const char *kind)
{
    snprintf(path, PATH_BYTES, "%s/headgate-%u.%s", servers->shared->directory, number, kind);
}

static bool take_ports(struct servers *servers)
{
    bool taken = port_take(&servers->redis_port);
    for (unsigned number = 0; number < HEADGATES_MAX && taken; number++)
        taken = port_take(&servers->ports[number]) && port_take(&servers->admin_ports[number]);
    return taken;
}

bool servers_prepare(struct servers *servers, struct shared *shared, struct sweeper *sweeper)
{
    const char *base = getenv("TMPDIR");
    *servers = (struct servers){.shared = shared, .sweeper = sweeper, .redis_port.reservation = -1};
    for (unsigned number = 0; number < HEADGATES_MAX; number++)
        servers->ports[number].reservation = servers->admin_ports[number].reservation = -1;
    snprintf(shared->directory, sizeof shared->directory, "%s/safety-XXXXXX", base != NULL ? base : P_tmpdir);
    if (mkdtemp(shared->directory) == NULL) {
        fprintf(stderr, "safety: %s: %s\n", shared->directory, strerror(errno));
        shared->directory[0] = '\0';
        return false;
    }
    if (!take_ports(servers)) {
        fprintf(stderr, "safety: no free port: %s\n", strerror(errno));
        return false;
    }
    shared->redis_port = servers->redis_port.number;
    for (unsigned number = 0; number < HEADGATES_MAX; number++)
        shared->headgate_ports[number] =
            shared->options.headgate != NULL ? servers->ports[number].number : shared->redis_port;
    return true;
}

/* ---- Redis ---- */

static bool write_redis_conf(const struct servers *servers)
{
    char path[PATH_BYTES];
    file_path(servers, path, "redis.conf");
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    fprintf(file, "bind 127.0.0.1\nprotected-mode no\nport %u\nsave \"\"\nappendonly no\ndir %s\n",
            (unsigned)servers->redis_port.number, servers->shared->directory);
    return fclose(file) == 0;
}

static bool wait_for_observer(const struct shared *shared, unsigned before)
{
    for (int64_t end = now_us() + OBSERVED_US; now_us() < end; usleep(1000))
        if (atomic_load(&shared->observed) != before)
            return true;
    fprintf(stderr, "safety: the observer does not reach Redis\n");
    return false;
}

static bool open_to_headgates(const struct servers *servers)
{
    return process_ask(servers->redis_port.number, "CONFIG SET bind \"127.0.0.1 127.0.0.2 127.0.0.3 127.0.0.4\"\r\n",
                       "+OK");
}

bool servers_start_redis(struct servers *servers)
{
    unsigned observed = atomic_load(&servers->shared->observed);
    char configuration[PATH_BYTES];
    char log[PATH_BYTES];
    if (!write_redis_conf(servers)) {
        fprintf(stderr, "safety: redis.conf: %s\n", strerror(errno));
        return false;
    }
    file_path(servers, configuration, "redis.conf");
    file_path(servers, log, "redis.log");
    servers->redis = process_start((const char *const[]){"redis-server", configuration, NULL}, log);
    if (servers->redis <= 0 || !process_wait_for_pong("redis-server", &servers->redis, servers->redis_port.number) ||
        !wait_for_observer(servers->shared, observed))
        return false;
    if (sweeper_load_scripts(servers->sweeper) && open_to_headgates(servers))
        return true;
    /* The first connection of before was still there. */
    return sweeper_load_scripts(servers->sweeper) && open_to_headgates(servers);
}

void servers_kill_redis(struct servers *servers)
{
    process_kill(&servers->redis);
}

bool servers_cut_lanes(const struct servers *servers, unsigned number)
{
    char command[80];
    snprintf(command, sizeof command, "CLIENT KILL LADDR 127.0.0.%u:%u\r\n", FIRST_HOST + number,
             (unsigned)servers->redis_port.number);
    return process_ask(servers->redis_port.number, command, ":");
}

/* ---- Headgates ---- */

static bool write_headgate_ini(const struct servers *servers, unsigned number)
{
    char path[PATH_BYTES];
    numbered_path(servers, path, number, "ini");
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    fprintf(file, "[headgate]\nlisten = 127.0.0.1:%u\nadmin = 127.0.0.1:%u\nupstream = 127.0.0.%u:%u\nthreads = %u\n",
            (unsigned)servers->ports[number].number, (unsigned)servers->admin_ports[number].number, FIRST_HOST + number,
            (unsigned)servers->redis_port.number, servers->shared->options.threads);
    locks_write_rules(file, servers->shared->options.exact);
    return fclose(file) == 0;
}

bool servers_start_headgate(struct servers *servers, unsigned number)
{
    char configuration[PATH_BYTES];
    char log[PATH_BYTES];
    if (!write_headgate_ini(servers, number)) {
        fprintf(stderr, "safety: headgate.ini: %s\n", strerror(errno));
        return false;
    }
    numbered_path(servers, configuration, number, "ini");
    numbered_path(servers, log, number, "log");
    servers->headgates[number] =
        process_start((const char *const[]){servers->shared->options.headgate, "-c", configuration, NULL}, log);
    return servers->headgates[number] > 0 &&
           process_wait_for_pong("headgate", &servers->headgates[number], servers->ports[number].number);
}

void servers_kill_headgate(struct servers *servers, unsigned number)
{
    process_kill(&servers->headgates[number]);
}

bool servers_headgates_live(struct servers *servers)
{
    for (unsigned number = 0; number < HEADGATES_MAX; number++) {
        int status;
        if (servers->headgates[number] <= 0 ||
            waitpid(servers->headgates[number], &status, WNOHANG) != servers->headgates[number])
            continue;
        fprintf(stderr, "safety: headgate %u ended by itself (status %#x)\n", number, (unsigned)status);
        servers->headgates[number] = 0;
        return false;
    }
    return true;
}

static bool end_headgate(struct servers *servers, unsigned number)
{
    char log[PATH_BYTES];
    int status = 0;
    kill(servers->headgates[number], SIGTERM);
    if (!process_wait(servers->headgates[number], END_US, &status)) {
        fprintf(stderr, "safety: headgate %u does not end on SIGTERM\n", number);
        return false;
    }
    servers->headgates[number] = 0;
    if (status != 0)
        fprintf(stderr, "safety: headgate %u ended on SIGTERM with status %#x\n", number, (unsigned)status);
    numbered_path(servers, log, number, "log");
    return process_log_is_clean(log) && status == 0;
}

bool servers_end_headgates(struct servers *servers)
{
    bool well = true;
    for (unsigned number = 0; number < HEADGATES_MAX; number++)
        if (servers->headgates[number] > 0)
            well = end_headgate(servers, number) && well;
    return well;
}

/* ---- the end ---- */

static void remove_files(const struct servers *servers)
{
    static const char *const names[] = {"redis.conf", "redis.log", "monitor.log"};
    char path[PATH_BYTES];
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        file_path(servers, path, names[at]);
        unlink(path);
    }
    for (unsigned number = 0; number < HEADGATES_MAX; number++) {
        numbered_path(servers, path, number, "ini");
        unlink(path);
        numbered_path(servers, path, number, "log");
        unlink(path);
    }
    rmdir(servers->shared->directory);
}

void servers_free(struct servers *servers, bool keep)
{
    for (unsigned number = 0; number < HEADGATES_MAX; number++) {
        process_kill(&servers->headgates[number]);
        port_release(&servers->ports[number]);
        port_release(&servers->admin_ports[number]);
    }
    process_kill(&servers->redis);
    port_release(&servers->redis_port);
    if (servers->shared->directory[0] == '\0')
        return;
    if (keep)
        fprintf(stderr, "safety: logs are kept in %s\n", servers->shared->directory);
    else
        remove_files(servers);
}
