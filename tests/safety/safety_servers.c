#include "safety_servers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OBSERVED_US (20 * (int64_t)1000000)
#define FIRST_HOST 2u /* 127.0.0.2 is where the first Headgate reaches Redis */

static const char test[] = "safety";

static bool take_ports(struct servers *servers)
{
    bool taken = server_prepare(&servers->redis, test, "redis");
    for (unsigned number = 0; number < HEADGATES_MAX; number++) {
        char name[16];
        snprintf(name, sizeof name, "headgate-%u", number);
        servers->admin_ports[number].reservation = -1;
        taken = server_prepare(&servers->headgates[number], test, name) && taken;
        taken = taken && port_take(&servers->admin_ports[number]);
    }
    return taken;
}

bool servers_prepare(struct servers *servers, struct shared *shared, struct sweeper *sweeper)
{
    *servers = (struct servers){.shared = shared, .sweeper = sweeper};
    shared->directory[0] = '\0';
    if (!take_ports(servers)) {
        fprintf(stderr, "safety: no free port: %s\n", strerror(errno));
        return false;
    }
    shared->redis_port = servers->redis.port.number;
    for (unsigned number = 0; number < HEADGATES_MAX; number++)
        shared->headgate_ports[number] =
            shared->options.headgate != NULL ? servers->headgates[number].port.number : shared->redis_port;
    return directory_make(shared->directory, test);
}

/* ---- Redis ---- */

static void configure_redis(FILE *file, const void *context)
{
    const struct servers *servers = context;
    fprintf(file, "bind 127.0.0.1\nprotected-mode no\nport %u\nsave \"\"\nappendonly no\ndir %s\n",
            (unsigned)servers->redis.port.number, servers->shared->directory);
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
    return process_ask(servers->redis.port.number, "CONFIG SET bind \"127.0.0.1 127.0.0.2 127.0.0.3 127.0.0.4\"\r\n",
                       "+OK");
}

bool servers_start_redis(struct servers *servers)
{
    unsigned observed = atomic_load(&servers->shared->observed);
    if (!server_start(&servers->redis, servers->shared->directory, "redis-server", NULL, configure_redis, servers) ||
        !wait_for_observer(servers->shared, observed))
        return false;
    if (sweeper_load_scripts(servers->sweeper) && open_to_headgates(servers))
        return true;
    /* The first connection of before was still there. */
    return sweeper_load_scripts(servers->sweeper) && open_to_headgates(servers);
}

void servers_kill_redis(struct servers *servers)
{
    server_kill(&servers->redis);
}

bool servers_cut_lanes(const struct servers *servers, unsigned number)
{
    char command[80];
    snprintf(command, sizeof command, "CLIENT KILL LADDR 127.0.0.%u:%u\r\n", FIRST_HOST + number,
             (unsigned)servers->redis.port.number);
    return process_ask(servers->redis.port.number, command, ":");
}

/* ---- Headgates ---- */

/* Which of them is configured. */
struct wanted {
    const struct servers *servers;
    unsigned number;
};

static void configure_headgate(FILE *file, const void *context)
{
    const struct servers *servers = ((const struct wanted *)context)->servers;
    unsigned number = ((const struct wanted *)context)->number;
    fprintf(file, "[headgate]\nlisten = 127.0.0.1:%u\nadmin = 127.0.0.1:%u\nupstream = 127.0.0.%u:%u\nthreads = %u\n",
            (unsigned)servers->headgates[number].port.number, (unsigned)servers->admin_ports[number].number,
            FIRST_HOST + number, (unsigned)servers->redis.port.number, servers->shared->options.threads);
    locks_write_rules(file, servers->shared->options.exact);
}

bool servers_start_headgate(struct servers *servers, unsigned number)
{
    return server_start(&servers->headgates[number], servers->shared->directory, servers->shared->options.headgate,
                        "-c", configure_headgate, &(struct wanted){servers, number});
}

void servers_kill_headgate(struct servers *servers, unsigned number)
{
    server_kill(&servers->headgates[number]);
}

bool servers_headgates_live(struct servers *servers)
{
    bool live = true;
    for (unsigned number = 0; number < HEADGATES_MAX && live; number++)
        live = server_has_not_ended(&servers->headgates[number]);
    return live;
}

bool servers_end_headgates(struct servers *servers)
{
    bool well = true;
    for (unsigned number = 0; number < HEADGATES_MAX; number++)
        if (servers->headgates[number].pid > 0)
            well = server_end(&servers->headgates[number], servers->shared->directory) && well;
    return well;
}

void servers_free(struct servers *servers, bool keep)
{
    for (unsigned number = 0; number < HEADGATES_MAX; number++) {
        server_free(&servers->headgates[number]);
        port_release(&servers->admin_ports[number]);
    }
    server_free(&servers->redis);
    directory_leave(servers->shared->directory, test, keep);
}
