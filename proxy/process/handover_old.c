/* The process that starts another one, and leaves its sockets to it. */
#include "process/handover_private.h"

#include "base/log.h"
#include "conf/conf_table.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long a process that has closed its end of the line has to end, so that it can be said how it did. */
#define ENDING_US 1000000
/* The same for one that has come to serve: as long as it is there, it accepts, so there is time. */
#define SERVING_ENDING_US ((int64_t)60000000)
/* How often it is looked whether it has. */
#define LOOK_US 1000
/* What is kept of the faults that the new process tells of. Bytes. */
#define FAULTS_MAX 4096
#define WHY_MAX (FAULTS_MAX + 256)

/* ---- the end of an upgrade that failed ---- */

static void forget_child(struct handover *handover)
{
    event_del(&handover->patience);
    handover_line_close(&handover->successor);
    free(handover->taken);
    free(handover->faults);
    handover->taken = NULL;
    handover->faults = NULL;
    handover->child = 0;
}

/* Ends it, if it has not ended. Its status as of wait(). */
static int end_child(const struct handover *handover)
{
    int status = 0;

    if (waitpid(handover->child, &status, WNOHANG) == 0) {
        (void)kill(handover->child, SIGKILL);
        while (waitpid(handover->child, &status, 0) < 0 && errno == EINTR) {
        }
    }
    return status;
}

static void tell(struct handover *handover, const char *why)
{
    handover_done *done = handover->done;

    handover->done = NULL;
    if (done != NULL) {
        done(handover->done_context, why);
    }
}

static void count_failure(const struct handover *handover)
{
    for (size_t i = 0; i < handover->servers->count; i++) {
        stats_add(&handover->servers->list[i].stats, STATS_UPGRADE_FAILURES, 1);
    }
}

/* The new process is gone. */
static void fail(struct handover *handover, const char *why)
{
    char text[WHY_MAX];

    (void)snprintf(text, sizeof text, "%s%s%s", why, handover->faults != NULL ? ":\n" : "",
                   handover->faults != NULL ? handover->faults : "");
    log_error("upgrade", "the upgrade failed, and nothing was changed: %s", text);
    handover->phase = HANDOVER_NONE;
    handover_share_forget(&handover->share);
    forget_child(handover);
    count_failure(handover);
    tell(handover, text);
}

void handover_abandon(struct handover *handover, const char *why)
{
    if (handover->phase == HANDOVER_STARTING || handover->phase == HANDOVER_TELLING) {
        (void)end_child(handover);
        fail(handover, why);
    }
}

static void fail_by_status(struct handover *handover, int status)
{
    char why[96];

    if (WIFSIGNALED(status)) {
        (void)snprintf(why, sizeof why, "the new process was ended by signal %d before it served", WTERMSIG(status));
    } else {
        (void)snprintf(why, sizeof why, "the new process ended with status %d before it served", WEXITSTATUS(status));
    }
    fail(handover, why);
}

/* ---- guarding ---- */

void handover_release(struct handover *handover)
{
    handover->is_guard = false;
    if (handover->has_guard) {
        handover->has_guard = false;
        (void)handover_line_send(&handover->predecessor, HANDOVER_RELEASE, (struct slice){"", 0}, -1);
    }
}

/* ---- an upgrade that goes on ---- */

static void on_told_all(void *context)
{
    struct handover *handover = context;

    (void)handover_line_send(&handover->successor, "STATE", (struct slice){"", 0}, -1);
}

/* It has opened all that it wants to open, and has started its workers. */
static void take_ready(struct handover *handover, struct slice taken)
{
    if (handover->phase != HANDOVER_STARTING) {
        return;
    }
    handover->phase = HANDOVER_TELLING;
    handover->taken = strndup(taken.data, taken.length);
    if (handover->taken == NULL || !handover_share_tell_all(&handover->share, on_told_all, handover)) {
        handover_abandon(handover, "out of memory");
    }
}

/* The sockets that the new process listens on are left to it; those that it does not have are closed in the usual way.
 */
static void leave_ports(const struct handover *handover)
{
    const char *taken = handover->taken;
    struct port *port;

    LIST_FOREACH(port, handover->ports, of_source)
    {
        if (*taken == '1') {
            port_leave(port);
        }
        taken += *taken != '\0';
    }
}

static void on_handed_over(void *context)
{
    struct handover *handover = context;

    (void)handover_line_send(&handover->successor, "MAIN", (struct slice){"", 0}, -1);
}

static void take_serving(struct handover *handover)
{
    if (handover->phase != HANDOVER_TELLING) {
        return;
    }
    event_del(&handover->patience);
    handover->phase = HANDOVER_GIVEN;
    /* The one before this one need not guard it any more: the new one has a guard in this one. */
    handover_release(handover);
    handover->is_guard = true;
    log_info("upgrade", "process %ld serves from now on; this one goes on with the clients that it has",
             (long)handover->child);
    leave_ports(handover);
    supervisor_hand_over(handover->supervisor, handover->child, on_handed_over, handover);
    handover_share_begin_successor(&handover->share);
    handover->host.given(handover->host.context);
    tell(handover, NULL);
}

static void keep_fault(struct handover *handover, struct slice fault)
{
    size_t before = handover->faults != NULL ? strlen(handover->faults) : 0;
    size_t room = before < FAULTS_MAX ? FAULTS_MAX - before : 0;
    size_t length = fault.length < room ? fault.length : room;
    char *longer = room > 0 ? realloc(handover->faults, before + length + 2) : NULL;

    if (longer == NULL) {
        return;
    }
    (void)snprintf(longer + before, length + 2, "%.*s\n", (int)length, fault.data);
    handover->faults = longer;
}

static void on_said(void *context, const struct handover_message *message)
{
    struct handover *handover = context;
    const struct handover_host *host = &handover->host;

    if (slice_is(message->word, "READY")) {
        take_ready(handover, message->body);
    } else if (slice_is(message->word, "SERVING")) {
        take_serving(handover);
    } else if (slice_is(message->word, "FAULT")) {
        keep_fault(handover, message->body);
    } else if (handover->phase != HANDOVER_GIVEN) {
        log_debug("upgrade", "the new process says what is not expected yet");
    } else if (slice_is(message->word, HANDOVER_RELEASE)) {
        handover_release(handover);
        host->release(host->context);
    } else if (slice_is(message->word, HANDOVER_DRAIN)) {
        host->drain(host->context);
    } else if (slice_is(message->word, HANDOVER_END)) {
        servers_lose_successor(handover->servers);
        host->drain(host->context);
    } else if (slice_is(message->word, HANDOVER_RELOAD)) {
        host->reload(host->context);
    } else if (slice_is(message->word, HANDOVER_REOPEN)) {
        host->reopen_log(host->context);
    } else {
        handover_share_hear(&handover->share, message, false);
    }
}

/* ---- the new process is gone ---- */

static void take_back(struct handover *handover)
{
    struct port *port;

    log_error("upgrade", "the process that had taken over, %ld, has crashed: this one serves again",
              (long)handover->child);
    LIST_FOREACH(port, handover->ports, of_source)
    {
        port_take_back(port);
    }
    handover->is_guard = false;
    handover->phase = HANDOVER_NONE;
    handover_share_forget(&handover->share);
    forget_child(handover);
    count_failure(handover);
    handover->host.taken_back(handover->host.context);
    supervisor_take_back(handover->supervisor);
}

/* Who closes its line is about to end. As long as it has not, it may have clients: two at one socket would share them.
 */
static void look_for_end(struct handover *handover)
{
    const struct timeval pause = {.tv_usec = LOOK_US};
    bool is_gone = waitpid(handover->child, NULL, WNOHANG) != 0;

    if (!is_gone && clock_now_us() < handover->ending_us && event_add(&handover->patience, &pause) == 0) {
        return;
    }
    if (is_gone && handover->is_guard) {
        take_back(handover);
        return;
    }
    if (is_gone) {
        log_warning("upgrade", "the process that had taken over has ended; this one goes on with its clients");
    } else {
        log_error("upgrade",
                  "the process that has taken over, %ld, speaks no more, and goes on: nothing more is told "
                  "to it",
                  (long)handover->child);
    }
    handover_release(handover);
    handover->host.release(handover->host.context);
}

static void lose_successor(struct handover *handover)
{
    handover_share_lose_successor(&handover->share);
    servers_lose_successor(handover->servers);
    handover_line_close(&handover->successor);
    handover->ending_us = clock_now_us() + SERVING_ENDING_US;
    look_for_end(handover);
}

static void on_ended(void *context)
{
    const struct timeval patience = {.tv_sec = ENDING_US / 1000000};
    struct handover *handover = context;

    if (handover->phase == HANDOVER_GIVEN) {
        lose_successor(handover);
    } else {
        int status;
        if (waitpid(handover->child, &status, WNOHANG) == handover->child) {
            fail_by_status(handover, status);
        } else {
            (void)event_add(&handover->patience, &patience);
        }
    }
}

/* ---- one that takes too long ---- */

/* Whether the new process serves, as it may have said a moment ago: who serves must not be ended. */
static bool has_come_to_serve(struct handover *handover)
{
    struct handover_message message;

    while (handover->phase != HANDOVER_NONE && handover->phase != HANDOVER_GIVEN &&
           handover_line_read(&handover->successor, &message, 0) == HANDOVER_SAID) {
        on_said(handover, &message);
    }
    return handover->phase == HANDOVER_GIVEN;
}

/* Time is over: for the new process to serve, or to end when it has closed the line. */
static void on_impatient(evutil_socket_t fd, short what, void *context)
{
    struct handover *handover = context;
    char why[96];

    (void)fd;
    (void)what;
    if (handover->phase == HANDOVER_GIVEN) {
        look_for_end(handover);
        return;
    }
    bool has_ended = !event_pending(&handover->successor.readable, EV_READ, NULL);
    if (!has_ended && (has_come_to_serve(handover) || handover->phase == HANDOVER_NONE)) {
        return;
    }
    int status = end_child(handover);
    if (has_ended) {
        fail_by_status(handover, status);
    } else {
        (void)snprintf(why, sizeof why,
                       "the new process did not come to serve within upgrade_start_timeout (%" PRId64 "ms)",
                       handover->host.conf(handover->host.context)->upgrade_start_timeout);
        fail(handover, why);
    }
}

/* ---- starting one ---- */

static void offer_port(struct handover *handover, const struct port *port)
{
    const struct port_inherited told = port_tell(port);
    char text[sizeof told.file.path + 96];
    int length = snprintf(text, sizeof text, "%d %" PRIu64 " %" PRIu64 " %s", told.is_kept, (uint64_t)told.file.device,
                          (uint64_t)told.file.inode, told.file.path);

    (void)handover_line_send(&handover->successor, HANDOVER_PORT, (struct slice){text, (size_t)length}, told.fd);
}

static void offer(struct handover *handover)
{
    const struct port *port;

    (void)handover_line_send(&handover->successor, "HELLO", slice_of(HANDOVER_VERSION), -1);
    if (handover->has_guard) {
        (void)handover_line_send(&handover->successor, HANDOVER_GUARDED, (struct slice){"", 0}, -1);
    }
    LIST_FOREACH(port, handover->ports, of_source)
    {
        offer_port(handover, port);
    }
    (void)handover_line_send(&handover->successor, "PORTS", (struct slice){"", 0}, -1);
}

/* NULL, or why there can be no upgrade now. */
static const char *find_obstacle(const struct handover *handover)
{
    if (handover->phase == HANDOVER_GIVEN) {
        return "another process has taken over already; ask that one";
    }
    if (handover->phase != HANDOVER_NONE) {
        return "an upgrade is under way";
    }
    if (handover->awaits_service) {
        return "the last upgrade is not over yet; try again";
    }
    if (getpid() == 1) {
        return "this process is the first of its container, which would end with it: replace the container";
    }
    return NULL;
}

/* False with errno set, and nothing is left open. */
static bool start_child(struct handover *handover)
{
    const struct handover_listener listener = {.said = on_said, .ended = on_ended, .context = handover};
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        return false;
    }
    handover->child = handover_start_program(handover, ends[1]);
    int error = errno;
    close(ends[1]);
    if (handover->child < 0) {
        close(ends[0]);
        errno = error;
        return false;
    }
    if (!handover_line_open(&handover->successor, ends[0])) {
        close(ends[0]);
        (void)end_child(handover);
        errno = ENOMEM;
        return false;
    }
    if (!handover_line_watch(&handover->successor, handover->reactor, &listener)) {
        (void)end_child(handover);
        handover_line_close(&handover->successor);
        errno = ENOMEM;
        return false;
    }
    return true;
}

static char *refuse(const struct handover *handover, char *why)
{
    log_error("upgrade", "no upgrade: %s", why);
    count_failure(handover);
    return why;
}

char *handover_start(struct handover *handover, handover_done *done, void *context)
{
    int64_t patience_ms = handover->host.conf(handover->host.context)->upgrade_start_timeout;
    const struct timeval patience = {.tv_sec = (time_t)(patience_ms / 1000),
                                     .tv_usec = (suseconds_t)(patience_ms % 1000 * 1000)};
    const char *obstacle = find_obstacle(handover);

    if (obstacle != NULL) {
        return refuse(handover, conf_format("%s", obstacle));
    }
    event_assign(&handover->patience, handover->reactor->base, -1, 0, on_impatient, handover);
    if (!start_child(handover)) {
        return refuse(handover, conf_format("cannot start %s: %s", handover->program, strerror(errno)));
    }
    handover->done = done;
    handover->done_context = context;
    handover->phase = HANDOVER_STARTING;
    log_info("upgrade", "process %ld was started as %s, to take over from this one", (long)handover->child,
             handover->program);
    (void)event_add(&handover->patience, &patience);
    offer(handover);
    return NULL;
}
