#include "crosstalk_servers.h"

#include "crosstalk_attacks.h"
#include "crosstalk_client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_US (30 * (int64_t)1000000)

static const char *const file_names[] = {"redis.conf", "redis.log", "headgate.ini", "headgate.log"};

static void file_path(const struct servers *servers, const char *name, char *path)
{
    snprintf(path, SERVERS_PATH_MAX, "%s/%s", servers->directory, name);
}

bool servers_prepare(struct servers *servers)
{
    const char *base = getenv("TMPDIR");
    *servers =
        (struct servers){.redis_port.reservation = -1, .listen_port.reservation = -1, .admin_port.reservation = -1};
    snprintf(servers->directory, sizeof servers->directory, "%s/crosstalk-XXXXXX", base != NULL ? base : P_tmpdir);
    if (mkdtemp(servers->directory) == NULL) {
        fprintf(stderr, "crosstalk: %s: %s\n", servers->directory, strerror(errno));
        servers->directory[0] = '\0';
        return false;
    }
    if (port_take(&servers->redis_port) && port_take(&servers->listen_port) && port_take(&servers->admin_port))
        return true;
    fprintf(stderr, "crosstalk: no free port: %s\n", strerror(errno));
    return false;
}

bool servers_ask_redis(const struct servers *servers, const char *command, const char *answer)
{
    return process_ask(servers->redis_port.number, command, answer);
}

/* Whether SCRIPT DEBUG goes no further than Headgate, even if Redis and rules allow it. */
static bool refuses_debugger(const struct options *options)
{
    return options->headgate != NULL && strcmp(options->pool, "shared") == 0;
}

/* The attackers' own user has what an ordinary user has; two commands have other names than Headgate knows. */
static void write_attacker_conf(FILE *file, const struct options *options)
{
    fprintf(file,
            "user " ATTACKER_USER " on >" ATTACKER_PASSWORD
            " ~evil:* &evil* +@all -@admin -@dangerous -script|flush -script|kill -function%s\n",
            refuses_debugger(options) ? "" : " -script|debug");
    fputs("rename-command OBJECT KOBJECT\nrename-command SSUBSCRIBE KSSUBSCRIBE\n", file);
}

static bool write_redis_conf(const struct servers *servers, const struct options *options)
{
    char path[SERVERS_PATH_MAX];
    file_path(servers, "redis.conf", path);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    fprintf(file, "bind 127.0.0.1\nport %u\nsave \"\"\nappendonly no\ndir %s\n", (unsigned)servers->redis_port.number,
            servers->directory);
    fprintf(file, "client-output-buffer-limit pubsub 0 0 0\n");
    for (unsigned user = 1; user < USERS; user++)
        fprintf(file, "user %s on >%s ~u%u:* ~mb:* ~life:* &* +@all\n", user_names[user], user_passwords[user], user);
    if (options->attackers > 0)
        write_attacker_conf(file, options);
    return fclose(file) == 0;
}

bool servers_start_redis(struct servers *servers, const struct options *options)
{
    char configuration[SERVERS_PATH_MAX];
    char log[SERVERS_PATH_MAX];
    if (!write_redis_conf(servers, options)) {
        fprintf(stderr, "crosstalk: redis.conf: %s\n", strerror(errno));
        return false;
    }
    file_path(servers, "redis.conf", configuration);
    file_path(servers, "redis.log", log);
    servers->redis = process_start((const char *const[]){"redis-server", configuration, NULL}, log);
    return servers->redis > 0 && process_wait_for_pong("redis-server", &servers->redis, servers->redis_port.number);
}

void servers_kill_redis(struct servers *servers)
{
    process_kill(&servers->redis);
}

/* Of every kind that holds requests: while Redis decides on them, while permits are fetched, and until their turn. */
static const char limit_rules[] = "[limit:asked]\n"
                                  "commands = get incr mget\n"
                                  "per = all\n"
                                  "limit = 1000000000\n"
                                  "window = 60s\n"
                                  "scope = global\n"
                                  "[limit:leased]\n"
                                  "commands = @write !incr\n"
                                  "per = key\n"
                                  "limit = 1000000\n"
                                  "window = 10s\n"
                                  "scope = global\n"
                                  "accuracy = leased\n"
                                  "[limit:delayed]\n"
                                  "commands = echo set\n"
                                  "per = all\n"
                                  "algorithm = funnel\n"
                                  "capacity = 50\n"
                                  "leak = 20000/s\n"
                                  "action = delay\n"
                                  "max_delay = 10m\n"
                                  "[limit:counted]\n"
                                  "per = ip+user\n"
                                  "limit = 1000000000\n"
                                  "window = 1s\n";

static bool write_headgate_ini(const struct servers *servers, const struct options *options)
{
    char path[SERVERS_PATH_MAX];
    file_path(servers, "headgate.ini", path);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    fprintf(file, "[headgate]\nlisten = 127.0.0.1:%u\nadmin = 127.0.0.1:%u\nupstream = 127.0.0.1:%u\n",
            (unsigned)servers->listen_port.number, (unsigned)servers->admin_port.number,
            (unsigned)servers->redis_port.number);
    /* Short, so that clients go back to shared lanes in the midst of everything. */
    fprintf(file, "threads = %u\npool = %s\nclient_id_timeout = 200ms\n", options->threads, options->pool);
    fputs(options->trace != NULL ? "log_level = debug\n" : "", file);
    if (options->attackers > 0)
        /* They open more connections than a busy machine makes in the usual time, and no error is excused here. */
        fprintf(file, "client_output_limit = 16mb\nupstream_wait = 60s\n" ATTACKER_RULE "%s",
                refuses_debugger(options) ? "" : ATTACKER_RULE_OF_SESSIONS);
    fputs(options->limits ? limit_rules : "", file);
    return fclose(file) == 0;
}

bool servers_start_headgate(struct servers *servers, const struct options *options)
{
    char configuration[SERVERS_PATH_MAX];
    char log[SERVERS_PATH_MAX];
    if (!write_headgate_ini(servers, options)) {
        fprintf(stderr, "crosstalk: headgate.ini: %s\n", strerror(errno));
        return false;
    }
    file_path(servers, "headgate.ini", configuration);
    file_path(servers, "headgate.log", log);
    /* Whether Headgate binds beside a reservation is its own affair. */
    port_release(&servers->listen_port);
    port_release(&servers->admin_port);
    servers->headgate = process_start((const char *const[]){options->headgate, "-c", configuration, NULL}, log);
    return servers->headgate > 0 && process_wait_for_pong("headgate", &servers->headgate, servers->listen_port.number);
}

bool servers_headgate_lives(struct servers *servers)
{
    int status;
    if (servers->headgate <= 0 || waitpid(servers->headgate, &status, WNOHANG) != servers->headgate)
        return servers->headgate > 0;
    fprintf(stderr, "crosstalk: headgate ended by itself (status %#x)\n", (unsigned)status);
    servers->headgate = 0;
    return false;
}

bool servers_end_headgate(struct servers *servers)
{
    char log[SERVERS_PATH_MAX];
    int status;
    if (servers->headgate <= 0)
        return false;
    kill(servers->headgate, SIGTERM);
    if (!process_wait(servers->headgate, END_US, &status)) {
        fprintf(stderr, "crosstalk: headgate does not end on SIGTERM\n");
        process_kill(&servers->headgate);
        return false;
    }
    servers->headgate = 0;
    if (status != 0)
        fprintf(stderr, "crosstalk: headgate ended on SIGTERM with status %#x\n", (unsigned)status);
    file_path(servers, "headgate.log", log);
    return process_log_is_clean(log) && status == 0;
}

void servers_free(struct servers *servers, bool keep)
{
    process_kill(&servers->headgate);
    process_kill(&servers->redis);
    port_release(&servers->redis_port);
    port_release(&servers->listen_port);
    port_release(&servers->admin_port);
    if (servers->directory[0] == '\0')
        return;
    if (keep) {
        fprintf(stderr, "crosstalk: logs are kept in %s\n", servers->directory);
        return;
    }
    for (size_t at = 0; at < sizeof file_names / sizeof *file_names; at++) {
        char path[SERVERS_PATH_MAX];
        file_path(servers, file_names[at], path);
        unlink(path);
    }
    rmdir(servers->directory);
}
