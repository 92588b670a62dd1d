/* The process that was started by another one, and takes over from it. */
#include "process/handover_private.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long the old process may take for each word of its own. ms. It is on the same machine. */
#define PATIENCE_MS 30000

/* ---- its sockets ---- */

static bool is_line(int fd)
{
    int type = 0, domain = 0;
    socklen_t length = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

static bool take_port(struct port_source *source, const struct handover_message *message)
{
    struct port_inherited inherited = {.fd = message->fd};
    char text[sizeof inherited.file.path + 96];
    uint64_t device, inode;
    int is_kept, path = 0;

    (void)snprintf(text, sizeof text, "%.*s", (int)message->body.length, message->body.data);
    if (message->fd < 0 || sscanf(text, "%d %" SCNu64 " %" SCNu64 " %n", &is_kept, &device, &inode, &path) != 3 ||
        path == 0) {
        return false;
    }
    inherited.is_kept = is_kept != 0;
    inherited.file.device = (dev_t)device;
    inherited.file.inode = (ino_t)inode;
    (void)snprintf(inherited.file.path, sizeof inherited.file.path, "%s", text + path);
    return port_source_add(source, &inherited);
}

/* NULL, or what is wrong. */
static const char *take_offer(struct handover *handover, struct port_source *source)
{
    struct handover_message message;
    bool is_known = false;

    while (handover_line_read(&handover->predecessor, &message, PATIENCE_MS) == HANDOVER_SAID) {
        if (slice_is(message.word, HANDOVER_PORT) && !take_port(source, &message)) {
            return "the process to take over from has handed over what is no socket";
        }
        if (slice_is(message.word, "HELLO")) {
            is_known = slice_is(message.body, HANDOVER_VERSION);
        } else if (slice_is(message.word, HANDOVER_GUARDED)) {
            handover->has_guard = true;
        } else if (slice_is(message.word, "PORTS")) {
            return is_known ? NULL : "the process to take over from speaks another version of the hand-over";
        }
    }
    return "the process to take over from has gone, or says nothing";
}

bool handover_of_process(struct handover *handover, const char *program, const char *conf_path,
                         struct port_source *source)
{
    const char *text = getenv(HANDOVER_VARIABLE);
    int fd = text != NULL ? atoi(text) : -1;

    *handover = (struct handover){.program = program, .conf_path = conf_path};
    if (text == NULL) {
        return true;
    }
    unsetenv(HANDOVER_VARIABLE);
    if (fd <= STDERR_FILENO || !is_line(fd) || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0 || !handover_line_open(&handover->predecessor, fd)) {
        fprintf(stderr, "headgate: %s is set, but names no hand-over; it is for Headgate itself to set\n",
                HANDOVER_VARIABLE);
        return false;
    }
    const char *problem = take_offer(handover, source);
    if (problem != NULL) {
        fprintf(stderr, "headgate: no upgrade: %s\n", problem);
        handover_fail(handover, problem);
        return false;
    }
    log_copy_errors(fd, "FAULT\n");
    return true;
}

void handover_fail(struct handover *handover, const char *why)
{
    (void)handover_line_send(&handover->predecessor, "FAULT", slice_of(why), -1);
}

/* ---- what it knows ---- */

/* One digit for each of its sockets. NULL when memory is short. */
static char *write_taken(const struct port_source *source)
{
    char *taken = malloc(source->inherited_count + 1);

    for (size_t i = 0; taken != NULL && i < source->inherited_count; i++) {
        taken[i] = source->inherited[i].is_used ? '1' : '0';
    }
    if (taken != NULL) {
        taken[source->inherited_count] = '\0';
    }
    return taken;
}

/* Until it has said all. Should it end meanwhile, nobody serves: this one does, with what it has heard. But if the one
 * had another one before it, that one serves again. */
static bool hear_all(struct handover *handover)
{
    struct handover_message message;
    enum handover_reading reading = handover_line_read(&handover->predecessor, &message, PATIENCE_MS);

    while (reading == HANDOVER_SAID && !slice_is(message.word, "STATE")) {
        handover_share_hear(&handover->share, &message, true);
        reading = handover_line_read(&handover->predecessor, &message, PATIENCE_MS);
    }
    if (reading == HANDOVER_SILENT) {
        log_error("upgrade", "the process to take over from has stopped speaking");
        return false;
    }
    if (reading == HANDOVER_ENDED && handover->has_guard) {
        log_error("upgrade", "the process to take over from has crashed, and the one before it serves again");
        return false;
    }
    if (reading == HANDOVER_ENDED) {
        log_warning("upgrade", "the process to take over from has ended by itself");
        log_copy_errors(-1, "");
        handover_line_close(&handover->predecessor);
    }
    handover_share_settle(&handover->share);
    return true;
}

bool handover_take(struct handover *handover, const struct port_source *source)
{
    struct port *port;

    if (!handover_has_predecessor(handover)) {
        return true;
    }
    char *taken = write_taken(source);
    if (taken == NULL) {
        log_error("upgrade", "out of memory");
        return false;
    }
    (void)handover_line_send(&handover->predecessor, "READY", slice_of(taken), -1);
    free(taken);
    if (!hear_all(handover)) {
        return false;
    }
    LIST_FOREACH(port, handover->ports, of_source)
    {
        port_own(port);
    }
    return true;
}

/* ---- from then on ---- */

static void become_service(struct handover *handover)
{
    if (handover->awaits_service) {
        handover->awaits_service = false;
        handover->host.is_service(handover->host.context);
    }
}

static void on_said(void *context, const struct handover_message *message)
{
    struct handover *handover = context;

    if (slice_is(message->word, "MAIN")) {
        become_service(handover);
    } else {
        handover_share_hear(&handover->share, message, true);
    }
}

static void on_ended(void *context)
{
    struct handover *handover = context;

    log_info("upgrade", "the process before this one has ended");
    handover->has_guard = false;
    handover_line_close(&handover->predecessor);
    become_service(handover);
}

static void count_upgrade(const struct handover *handover)
{
    for (size_t i = 0; i < handover->servers->count; i++) {
        stats_add(&handover->servers->list[i].stats, STATS_UPGRADES, 1);
    }
}

void handover_serves(struct handover *handover)
{
    const struct handover_listener listener = {.said = on_said, .ended = on_ended, .context = handover};

    log_copy_errors(-1, "");
    if (!handover_has_predecessor(handover)) {
        handover->host.is_service(handover->host.context);
        return;
    }
    count_upgrade(handover);
    handover->awaits_service = true;
    handover->has_guard = handover_line_send(&handover->predecessor, "SERVING", (struct slice){"", 0}, -1);
    if (!handover_line_watch(&handover->predecessor, handover->reactor, &listener)) {
        log_error("upgrade", "out of memory: nothing more is heard of the process before this one");
        on_ended(handover);
        return;
    }
    handover_share_begin(&handover->share);
}
