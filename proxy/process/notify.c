/* Words to the service manager. */
#include "process/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of a message. */
#define MESSAGE_BYTES 512

/* A path, or with "@" in place of a NUL a name that no file has. False: it is no name of a socket. */
static bool set_address(struct notify *notify, const char *name)
{
    size_t length = strlen(name);

    if ((*name != '/' && *name != '@') || length < 2 || length >= sizeof notify->address.sun_path) {
        return false;
    }
    notify->address.sun_family = AF_UNIX;
    memcpy(notify->address.sun_path, name, length + 1);
    notify->address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (*name == '@') {
        notify->address.sun_path[0] = '\0';
    } else {
        notify->address_length++;
    }
    return true;
}

static int64_t number_in(const char *name)
{
    const char *text = getenv(name);
    char *end;

    if (text == NULL || *text < '0' || *text > '9') {
        return 0;
    }
    errno = 0;
    long long number = strtoll(text, &end, 10);
    return *end == '\0' && errno == 0 ? number : 0;
}

/* What is for another process was inherited by mistake. */
static int64_t find_watchdog(void)
{
    bool is_ours = getenv("WATCHDOG_PID") == NULL || number_in("WATCHDOG_PID") == (int64_t)getpid();

    return is_ours ? number_in("WATCHDOG_USEC") : 0;
}

struct notify notify_of_process(void)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct notify notify = {.fd = -1};

    if (name != NULL && set_address(&notify, name)) {
        notify.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        notify.watchdog_us = find_watchdog();
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_PID");
    unsetenv("WATCHDOG_USEC");
    return notify;
}

void notify_close(struct notify *notify)
{
    if (notify->fd >= 0) {
        close(notify->fd);
        notify->fd = -1;
    }
}

void notify_write_environment(const struct notify *notify, char address[NOTIFY_LINE_MAX],
                              char watchdog[NOTIFY_LINE_MAX])
{
    const char *path = notify->address.sun_path;

    *address = *watchdog = '\0';
    if (!notify_is_on(notify)) {
        return;
    }
    (void)snprintf(address, NOTIFY_LINE_MAX, "NOTIFY_SOCKET=%s%s", *path == '\0' ? "@" : "",
                   *path == '\0' ? path + 1 : path);
    if (notify->watchdog_us > 0) {
        (void)snprintf(watchdog, NOTIFY_LINE_MAX, "WATCHDOG_USEC=%" PRId64, notify->watchdog_us);
    }
}

bool notify_is_on(const struct notify *notify)
{
    return notify->fd >= 0;
}

static bool send_text(const struct notify *notify, const char *text)
{
    return sendto(notify->fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&notify->address,
                  notify->address_length) >= 0;
}

void notify_send(const struct notify *notify, const char *format, ...)
{
    char message[MESSAGE_BYTES];
    va_list arguments;

    if (notify->fd >= 0 && !notify->is_quiet) {
        va_start(arguments, format);
        (void)vsnprintf(message, sizeof message, format, arguments);
        va_end(arguments);
        (void)send_text(notify, message);
    }
}

/* The newest first: of several values a manager takes that. What has no room any more is of one that has not listened
 * for long. */
void notify_owe(struct notify *notify, const char *format, ...)
{
    char before[sizeof notify->owed];
    va_list arguments;

    if (notify->fd < 0 || notify->is_quiet) {
        return;
    }
    strcpy(before, notify->owed);
    va_start(arguments, format);
    (void)vsnprintf(notify->owed, MESSAGE_BYTES, format, arguments);
    va_end(arguments);
    size_t length = strlen(notify->owed);
    if (*before != '\0' && length + 1 + strlen(before) < sizeof notify->owed) {
        notify->owed[length] = '\n';
        strcpy(notify->owed + length + 1, before);
    }
}

bool notify_settle(struct notify *notify)
{
    bool is_settled = *notify->owed == '\0' || send_text(notify, notify->owed) ||
                      (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM && errno != EINTR);

    if (is_settled) {
        *notify->owed = '\0';
    }
    return is_settled;
}
