#include "rig_process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_US (20 * (int64_t)1000000)
#define POLL_US 5000

bool port_take(struct port *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
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

void port_release(struct port *port)
{
    if (port->reservation >= 0)
        close(port->reservation);
    port->reservation = -1;
}

pid_t process_start(const char *const *arguments, const char *log)
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

bool process_wait(pid_t pid, int64_t limit_us, int *status)
{
    for (int64_t end = now_us() + limit_us; now_us() < end; usleep(POLL_US))
        if (waitpid(pid, status, WNOHANG) == pid)
            return true;
    return false;
}

void process_kill(pid_t *pid)
{
    int status;
    if (*pid <= 0)
        return;
    kill(*pid, SIGKILL);
    waitpid(*pid, &status, 0);
    *pid = 0;
}

bool process_wait_for_pong(const char *name, pid_t *pid, uint16_t port)
{
    int status;
    for (int64_t end = now_us() + START_US; now_us() < end; usleep(POLL_US)) {
        if (waitpid(*pid, &status, WNOHANG) == *pid) {
            *pid = 0;
            fprintf(stderr, "%s ended at start (status %#x)\n", name, (unsigned)status);
            return false;
        }
        if (process_ask(port, "PING\r\n", "+PONG\r\n"))
            return true;
    }
    fprintf(stderr, "%s does not answer\n", name);
    return false;
}

bool process_log_is_clean(const char *log)
{
    static const char *const signs[] = {"AddressSanitizer",  "ThreadSanitizer", "LeakSanitizer",
                                        "UndefinedBehavior", "runtime error:",  "Assertion"};
    char line[4096];
    bool clean = true;
    FILE *file = fopen(log, "r");
    if (file == NULL) {
        fprintf(stderr, "%s: %s\n", log, strerror(errno));
        return false;
    }
    while (clean && fgets(line, sizeof line, file) != NULL)
        for (size_t at = 0; at < sizeof signs / sizeof *signs; at++)
            if (strstr(line, signs[at]) != NULL)
                clean = false;
    fclose(file);
    if (!clean)
        fprintf(stderr, "in %s: %s", log, line);
    return clean;
}

int process_connect(uint16_t port)
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

bool process_ask(uint16_t port, const char *command, const char *answer)
{
    char got[256] = "";
    int fd = process_connect(port);
    if (fd < 0)
        return false;
    bool right = send(fd, command, strlen(command), MSG_NOSIGNAL) == (ssize_t)strlen(command) &&
                 recv(fd, got, sizeof got - 1, 0) > 0 && strncmp(got, answer, strlen(answer)) == 0;
    close(fd);
    return right;
}
