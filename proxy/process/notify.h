/*
 * What is told to the service manager that has started the process, by the protocol of sd_notify(3): one datagram of
 * lines NAME=value to the socket that the environment names. Without such a socket nothing is told.
 */
#ifndef HEADGATE_NOTIFY_H
#define HEADGATE_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
    int fd;        /* -1: nobody listens */
    bool is_quiet; /* another process speaks in place of this one */
    struct sockaddr_un address;
    socklen_t address_length;
    char owed[1024];     /* what must arrive, and was not taken yet */
    int64_t watchdog_us; /* how long the manager waits for a WATCHDOG=1 before it ends the process; 0: it does not */
};

/* Reads what the environment says, and takes it out of the environment. */
struct notify notify_of_process(void);
void notify_close(struct notify *notify);

/* What the environment of a process has to say for it to take over from this one: two lines NAME=value, each empty if
 * it is not needed. */
#define NOTIFY_LINE_MAX 160
void notify_write_environment(const struct notify *notify, char address[NOTIFY_LINE_MAX],
                              char watchdog[NOTIFY_LINE_MAX]);

bool notify_is_on(const struct notify *notify);

/* Sends one message, never waiting for anybody. What cannot be sent is lost: the manager will say so. */
void notify_send(const struct notify *notify, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same of what must arrive: it is owed until notify_settle() has sent it, with what else is owed in one message. */
void notify_owe(struct notify *notify, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* False: the manager does not take it now, so try again. */
bool notify_settle(struct notify *notify);

#endif
