/* What the service manager hears. */
#include "process/supervisor.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How often it is told of clients and Redis, if there is something new. */
#define STATUS_INTERVAL_US ((int64_t)5000000)
/* How soon that is said again which the manager did not take. */
#define RETRY_US 100000
/* So many questions to the workers within the time that the manager waits. */
#define QUESTIONS 4

/* A question to a worker, which sends it back. */
struct question {
    struct message message;
    struct supervisor *supervisor;
    struct worker *worker;
};

struct supervisor_group {
    struct supervisor_group *next;
    const struct worker_pool *worker_pool;
    size_t count;
    struct question questions[];
};

void supervisor_open(struct supervisor *supervisor)
{
    *supervisor = (struct supervisor){.notify = notify_of_process()};
}

/* ---- whether workers are alive ---- */

static void on_answer(struct message *message)
{
    struct supervisor *supervisor = ((struct question *)(void *)message)->supervisor;

    if (--supervisor->awaited == 0) {
        notify_send(&supervisor->notify, "WATCHDOG=1");
    }
}

/* On the worker's thread. */
static void answer(struct message *message)
{
    struct question *question = (struct question *)(void *)message;

    message->run = on_answer;
    mailbox_post(question->supervisor->mailbox, message);
}

/* Nobody is asked again before all have answered: then the manager hears nothing. */
static void ask_workers(struct supervisor *supervisor)
{
    if (supervisor->notify.watchdog_us == 0 || supervisor->awaited > 0) {
        return;
    }
    for (struct supervisor_group *group = supervisor->groups; group != NULL; group = group->next) {
        supervisor->awaited += group->count;
    }
    for (struct supervisor_group *group = supervisor->groups; group != NULL; group = group->next) {
        for (size_t i = 0; i < group->count; i++) {
            group->questions[i].message.run = answer;
            worker_post(group->questions[i].worker, &group->questions[i].message);
        }
    }
}

/* ---- status ---- */

static void find_status(const struct supervisor *supervisor, char *text, size_t size)
{
    size_t clients = 0;
    bool is_up = true;

    for (const struct supervisor_group *group = supervisor->groups; group != NULL; group = group->next) {
        clients += worker_pool_clients(group->worker_pool);
        is_up = is_up && worker_pool_stat(group->worker_pool, STATS_UPSTREAM_UP) != 0;
    }
    snprintf(text, size, "%zu clients; Redis %s", clients,
             is_up ? "can be reached" : "was not reached yet, or is gone");
}

static void tell_status(struct supervisor *supervisor)
{
    char text[sizeof supervisor->status];

    find_status(supervisor, text, sizeof text);
    if (strcmp(text, supervisor->status) != 0) {
        memcpy(supervisor->status, text, sizeof text);
        notify_send(&supervisor->notify, "STATUS=%s", text);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    tell_status(context);
    ask_workers(context);
}

/* ---- states ---- */

/* Whoever waits for these words would wait for ever, or end the service. */
static void settle(struct supervisor *supervisor)
{
    const struct timeval later = {.tv_usec = RETRY_US};
    void (*said)(void *context) = supervisor->said;

    if (!notify_settle(&supervisor->notify)) {
        (void)event_add(&supervisor->retry, &later);
    } else if (said != NULL) {
        supervisor->said = NULL;
        said(supervisor->context);
    }
}

static void on_retry(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    settle(context);
}

static bool start_timer(struct supervisor *supervisor, struct reactor *reactor)
{
    int64_t every_us = supervisor->notify.watchdog_us / QUESTIONS;

    every_us = every_us == 0 || every_us > STATUS_INTERVAL_US ? STATUS_INTERVAL_US : every_us;
    supervisor->interval =
        (struct timeval){.tv_sec = (time_t)(every_us / 1000000), .tv_usec = (suseconds_t)(every_us % 1000000)};
    evtimer_assign(&supervisor->retry, reactor->base, on_retry, supervisor);
    event_assign(&supervisor->timer, reactor->base, -1, EV_PERSIST, on_timer, supervisor);
    supervisor->is_timed = event_add(&supervisor->timer, &supervisor->interval) == 0;
    return supervisor->is_timed;
}

bool supervisor_watch(struct supervisor *supervisor, struct reactor *reactor, struct mailbox *mailbox,
                      const struct worker_pool *worker_pool)
{
    if (!notify_is_on(&supervisor->notify)) {
        return true;
    }
    struct supervisor_group *group = calloc(1, sizeof *group + worker_pool->count * sizeof group->questions[0]);
    if (group == NULL) {
        return false;
    }
    group->worker_pool = worker_pool;
    group->count = worker_pool->count;
    for (size_t i = 0; i < group->count; i++) {
        group->questions[i] = (struct question){.supervisor = supervisor, .worker = worker_pool->workers[i]};
    }
    group->next = supervisor->groups;
    supervisor->groups = group;
    supervisor->mailbox = mailbox;
    return supervisor->is_timed || start_timer(supervisor, reactor);
}

void supervisor_ready(struct supervisor *supervisor)
{
    if (notify_is_on(&supervisor->notify)) {
        find_status(supervisor, supervisor->status, sizeof supervisor->status);
        notify_owe(&supervisor->notify, "READY=1\nSTATUS=%s", supervisor->status);
        settle(supervisor);
    }
}

void supervisor_reloading(struct supervisor *supervisor)
{
    struct timespec now;

    /* The manager compares it with a time of its own: so it is the clock itself. */
    clock_gettime(CLOCK_MONOTONIC, &now);
    notify_owe(&supervisor->notify, "RELOADING=1\nMONOTONIC_USEC=%" PRId64 "\nSTATUS=reading the configuration",
               (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    settle(supervisor);
}

void supervisor_stopping(struct supervisor *supervisor, int64_t patience_us)
{
    notify_owe(&supervisor->notify, "STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=%" PRId64, patience_us);
    settle(supervisor);
}

void supervisor_hand_over(struct supervisor *supervisor, pid_t process, void (*said)(void *context), void *context)
{
    notify_owe(&supervisor->notify, "MAINPID=%ld", (long)process);
    supervisor->notify.is_quiet = true;
    supervisor->said = said;
    supervisor->context = context;
    settle(supervisor);
    if (supervisor->is_timed) {
        event_del(&supervisor->timer);
    }
}

void supervisor_take_back(struct supervisor *supervisor)
{
    supervisor->notify.is_quiet = false;
    supervisor->said = NULL;
    notify_owe(&supervisor->notify, "MAINPID=%ld", (long)getpid());
    supervisor_ready(supervisor);
    if (supervisor->is_timed) {
        (void)event_add(&supervisor->timer, &supervisor->interval);
    }
}

void supervisor_close(struct supervisor *supervisor)
{
    if (supervisor->is_timed) {
        event_del(&supervisor->timer);
        event_del(&supervisor->retry);
    }
    while (supervisor->groups != NULL) {
        struct supervisor_group *group = supervisor->groups;
        supervisor->groups = group->next;
        free(group);
    }
    notify_close(&supervisor->notify);
}
