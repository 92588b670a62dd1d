#include "crosstalk_servers.h"

#include "crosstalk_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_US (20 * (int64_t)1000000)
#define END_US (30 * (int64_t)1000000)
#define POLL_US 5000

static const char *const file_names[] = {"redis.conf", "redis.log", "headgate.ini", "headgate.log"};

static void file_path(const struct servers *servers, const char *name, char *path)
{
    snprintf(path, SERVERS_PATH_MAX, "%s/%s", servers->directory, name);
}

static bool port_take(struct port *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1;
    port->reservation = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (port->reservation < 0)
        return false;
    setsockopt(port->reservation, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(port->reservation, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(port->reservation, (struct sockaddr *)&address, &size) != 0)
        return false;
    port->number = ntohs(address.sin_port);
    return true;
}

static void port_release(struct port *port)
{
    if (port->reservation >= 0)
        close(port->reservation);
    port->reservation = -1;
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

/* The child dies with the thread that started it: only the main thread, which outlives the others, may call this. */
static pid_t process_start(const char *const *arguments, const char *log)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (out >= 0) {
        dup2(out, STDOUT_FILENO);
        dup2(out, STDERR_FILENO);
    }
    execvp(arguments[0], (char *const *)(uintptr_t)arguments);
    _exit(127);
}

/* Waits for the end of a process; false if it has not come in time. */
static bool process_wait(pid_t pid, int64_t limit_us, int *status)
{
    for (int64_t end = now_us() + limit_us; now_us() < end; usleep(POLL_US))
        if (waitpid(pid, status, WNOHANG) == pid)
            return true;
    return false;
}

static void process_kill(pid_t *pid)
{
    int status;
    if (*pid <= 0)
        return;
    kill(*pid, SIGKILL);
    waitpid(*pid, &status, 0);
    *pid = 0;
}

int servers_connect(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 2};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool ask(uint16_t port, const char *command, const char *answer)
{
    char got[256] = "";
    int fd = servers_connect(port);
    if (fd < 0)
        return false;
    bool right = send(fd, command, strlen(command), MSG_NOSIGNAL) == (ssize_t)strlen(command) &&
                 recv(fd, got, sizeof got - 1, 0) > 0 && strncmp(got, answer, strlen(answer)) == 0;
    close(fd);
    return right;
}

bool servers_ask_redis(const struct servers *servers, const char *command, const char *answer)
{
    return ask(servers->redis_port.number, command, answer);
}

/* Until the server answers a PING, or its process ends. */
static bool wait_for_pong(const char *name, pid_t *pid, uint16_t port)
{
    int status;
    for (int64_t end = now_us() + START_US; now_us() < end; usleep(POLL_US)) {
        if (waitpid(*pid, &status, WNOHANG) == *pid) {
            *pid = 0;
            fprintf(stderr, "crosstalk: %s ended at start (status %#x)\n", name, (unsigned)status);
            return false;
        }
        if (ask(port, "PING\r\n", "+PONG\r\n"))
            return true;
    }
    fprintf(stderr, "crosstalk: %s does not answer\n", name);
    return false;
}

static bool write_redis_conf(const struct servers *servers)
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
    return fclose(file) == 0;
}

bool servers_start_redis(struct servers *servers)
{
    char configuration[SERVERS_PATH_MAX];
    char log[SERVERS_PATH_MAX];
    if (!write_redis_conf(servers)) {
        fprintf(stderr, "crosstalk: redis.conf: %s\n", strerror(errno));
        return false;
    }
    file_path(servers, "redis.conf", configuration);
    file_path(servers, "redis.log", log);
    servers->redis = process_start((const char *const[]){"redis-server", configuration, NULL}, log);
    return servers->redis > 0 && wait_for_pong("redis-server", &servers->redis, servers->redis_port.number);
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
    fprintf(file, "threads = %u\npool = %s\n", options->threads, options->pool);
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
    return servers->headgate > 0 && wait_for_pong("headgate", &servers->headgate, servers->listen_port.number);
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

static bool log_is_clean(const struct servers *servers)
{
    static const char *const signs[] = {"AddressSanitizer",  "ThreadSanitizer", "LeakSanitizer",
                                        "UndefinedBehavior", "runtime error:",  "Assertion"};
    char path[SERVERS_PATH_MAX];
    char line[4096];
    bool clean = true;
    file_path(servers, "headgate.log", path);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    while (clean && fgets(line, sizeof line, file) != NULL)
        for (size_t at = 0; at < sizeof signs / sizeof *signs; at++)
            if (strstr(line, signs[at]) != NULL)
                clean = false;
    fclose(file);
    if (!clean)
        fprintf(stderr, "crosstalk: in headgate's log: %s", line);
    return clean;
}

bool servers_end_headgate(struct servers *servers)
{
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
    return log_is_clean(servers) && status == 0;
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
