#include "safety_observer.h"

#include "rig_buffer.h"
#include "safety_model.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES ((size_t)256 * 1024)
#define RETRY_US 2000

struct observer {
    struct shared *shared;
    struct model *model;
    struct buffer in;
    FILE *trace;
};

static bool is_stopped(const struct observer *observer)
{
    return atomic_load(&observer->shared->phase) == PHASE_STOP;
}

static void take_line(struct observer *observer, char *text, size_t length)
{
    struct monitor_line line;
    if (observer->trace != NULL)
        fprintf(observer->trace, "%.*s\n", (int)length, text);
    if (length == 3 && memcmp(text, "+OK", 3) == 0) {
        atomic_fetch_add(&observer->shared->observed, 1);
        return;
    }
    shared_count(observer->shared, FIGURE_MONITORED);
    if (monitor_parse(text, length, &line))
        model_take(observer->model, &line);
    else
        shared_violation(observer->shared, BREACH_TEST, "a line of MONITOR that is none: %.*s", (int)length, text);
}

static void take_lines(struct observer *observer)
{
    char *end;
    while ((end = memchr(buffer_head(&observer->in), '\n', buffer_length(&observer->in))) != NULL) {
        char *start = observer->in.data + observer->in.start;
        size_t length = (size_t)(end - start);
        take_line(observer, start, length > 0 && start[length - 1] == '\r' ? length - 1 : length);
        buffer_consume(&observer->in, length + 1);
        if (buffer_length(&observer->in) == 0)
            return;
    }
}

/* Until Redis ends. */
static void observe(struct observer *observer, int fd)
{
    model_clear(observer->model);
    atomic_store(&observer->shared->marks, 0);
    buffer_free(&observer->in);
    if (send(fd, "MONITOR\r\n", 9, MSG_NOSIGNAL) != 9)
        return;
    while (!is_stopped(observer)) {
        ssize_t got = recv(fd, buffer_reserve(&observer->in, READ_BYTES), READ_BYTES, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return;
        if (got < 0)
            continue;
        buffer_commit(&observer->in, (size_t)got);
        take_lines(observer);
    }
}

static void observer_run(struct observer *observer)
{
    while (!is_stopped(observer)) {
        int fd = process_connect(observer->shared->redis_port);
        if (fd >= 0) {
            observe(observer, fd);
            close(fd);
        }
        usleep(RETRY_US);
    }
}

pid_t observer_start(struct shared *shared)
{
    char path[sizeof shared->directory + 32];
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct observer observer = {.shared = shared, .model = model_new(shared)};
    snprintf(path, sizeof path, "%s/monitor.log", shared->directory);
    if (shared->options.trace)
        observer.trace = fopen(path, "w");
    observer_run(&observer);
    if (observer.trace != NULL)
        fclose(observer.trace);
    buffer_free(&observer.in);
    model_free(observer.model);
    _exit(0);
}
