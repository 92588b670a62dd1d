#include "port.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Where descriptors that are handed over begin. */
#define FIRST_INHERITED 3

/* ---- sockets that are handed over ---- */

static size_t number_in(const char *name)
{
    const char *text = getenv(name);
    char *end = NULL;
    unsigned long number = text != NULL ? strtoul(text, &end, 10) : 0;

    return end != NULL && end != text && *end == '\0' ? number : 0;
}

struct port_source port_source_of_process(bool takes_over)
{
    struct port_source source = {.takes_over = takes_over, .inherited_from = FIRST_INHERITED};

    size_t announced = number_in("LISTEN_PID") == (size_t)getpid() ? number_in("LISTEN_FDS") : 0;
    size_t most = announced < PORT_INHERITED_MAX ? announced : PORT_INHERITED_MAX;
    while (source.inherited_count < most &&
           fcntl(source.inherited_from + (int)source.inherited_count, F_SETFD, FD_CLOEXEC) == 0) {
        source.inherited_count++;
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return source;
}

static bool listens(int fd)
{
    int accepts = 0;
    socklen_t length = sizeof accepts;

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &length) == 0 && accepts != 0;
}

static bool own_address(int fd, struct connection_target *own)
{
    memset(own, 0, sizeof *own);
    own->length = sizeof own->address;
    return getsockname(fd, (struct sockaddr *)&own->address, &own->length) == 0;
}

/* Of a Unix address only the path counts: its length may be told with or without what follows it. */
static bool is_same_address(const struct connection_target *a, const struct connection_target *b)
{
    if (a->address.ss_family != b->address.ss_family) {
        return false;
    }
    if (a->address.ss_family == AF_UNIX) {
        return strcmp(((const struct sockaddr_un *)&a->address)->sun_path,
                      ((const struct sockaddr_un *)&b->address)->sun_path) == 0;
    }
    return a->length == b->length && memcmp(&a->address, &b->address, a->length) == 0;
}

/* The descriptor that listens there, now in use; -1: there is none. */
static int take_inherited(struct port_source *source, const struct connection_target *target)
{
    for (size_t i = 0; i < source->inherited_count; i++) {
        int fd = source->inherited_from + (int)i;
        struct connection_target own;
        bool is_used = (source->inherited_used >> i & 1) != 0;
        if (!is_used && listens(fd) && own_address(fd, &own) && is_same_address(&own, target)) {
            source->inherited_used |= UINT64_C(1) << i;
            (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
            return fd;
        }
    }
    return -1;
}

static void write_address(const struct connection_target *own, char *text, size_t size)
{
    if (own->address.ss_family == AF_UNIX) {
        snprintf(text, size, "unix:%s", ((const struct sockaddr_un *)&own->address)->sun_path);
    } else {
        connection_peer_text(&own->address, text, size);
    }
}

void port_source_close_unused(struct port_source *source, void (*report)(const char *address))
{
    for (size_t i = 0; i < source->inherited_count; i++) {
        int fd = source->inherited_from + (int)i;
        struct connection_target own;
        char text[sizeof(struct sockaddr_un) + 8] = "?";
        if ((source->inherited_used >> i & 1) == 0) {
            if (own_address(fd, &own)) {
                write_address(&own, text, sizeof text);
            }
            report(text);
            close(fd);
        }
    }
    source->inherited_count = 0;
}

/* ---- sockets that are opened here ---- */

static void set_flag(int fd, int level, int option)
{
    const int on = 1;

    (void)setsockopt(fd, level, option, &on, sizeof on);
}

/* A Unix socket file survives its process. It may be removed only when nobody answers on it. */
static void remove_dead_socket(const struct connection_target *target)
{
    const struct sockaddr_un *address = (const struct sockaddr_un *)&target->address;
    struct stat status;

    if (lstat(address->sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) {
        return;
    }
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (probe < 0) {
        return;
    }
    if (connect(probe, (const struct sockaddr *)address, target->length) != 0 && errno == ECONNREFUSED) {
        unlink(address->sun_path);
    }
    close(probe);
}

static bool remember_file(struct port *port, const char *path)
{
    struct stat status;

    port->path = strdup(path);
    if (port->path == NULL || lstat(path, &status) != 0) {
        return false;
    }
    port->device = status.st_dev;
    port->inode = status.st_ino;
    return true;
}

static bool listen_at(struct port *port, const struct sockaddr_un *address, int backlog, mode_t mode)
{
    return bind(port->fd, (const struct sockaddr *)address, sizeof *address) == 0 &&
           chmod(address->sun_path, mode) == 0 && listen(port->fd, backlog) == 0;
}

/* The file takes the place of the one that is there in one step: who connects reaches the one or the other. */
static bool listen_in_place_of(struct port *port, const struct sockaddr_un *address, int backlog, mode_t mode)
{
    struct sockaddr_un beside = {.sun_family = AF_UNIX};
    int length = snprintf(beside.sun_path, sizeof beside.sun_path, "%.*s.%ld", (int)sizeof beside.sun_path - 1,
                          address->sun_path, (long)getpid());

    if (length < 0 || (size_t)length >= sizeof beside.sun_path) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (!listen_at(port, &beside, backlog, mode) || rename(beside.sun_path, address->sun_path) != 0) {
        int reason = errno;
        unlink(beside.sun_path);
        errno = reason;
        return false;
    }
    return true;
}

static bool open_unix(struct port *port, const struct port_source *source, const struct connection_target *target,
                      int backlog, mode_t mode)
{
    const struct sockaddr_un *address = (const struct sockaddr_un *)&target->address;
    struct stat status;
    bool replaces = source->takes_over && lstat(address->sun_path, &status) == 0 && S_ISSOCK(status.st_mode);

    if (!replaces) {
        remove_dead_socket(target);
    }
    return (replaces ? listen_in_place_of(port, address, backlog, mode) : listen_at(port, address, backlog, mode)) &&
           remember_file(port, address->sun_path);
}

/*
 * All who connect from now on are this socket's, the second of those at the address. So the process that was there
 * first can close its own without losing who has just connected. Where the kernel does not take it, it deals them out
 * to both.
 */
static void attract_all(int fd)
{
    struct sock_filter always_second = {.code = BPF_RET | BPF_K, .k = 1};
    const struct sock_fprog program = {.len = 1, .filter = &always_second};

    (void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}

/* Without SO_REUSEPORT, bind() succeeds only if nobody else is there, and with it, if who is there has it set, too, and
 * is of the same user. So each sets it, but not before it listens: two that start at once do not share it. */
static bool open_tcp(struct port *port, const struct port_source *source, const struct connection_target *target,
                     int backlog)
{
    set_flag(port->fd, SOL_SOCKET, SO_REUSEADDR);
    if (target->address.ss_family == AF_INET6) {
        set_flag(port->fd, IPPROTO_IPV6, IPV6_V6ONLY);
    }
    if (source->takes_over) {
        set_flag(port->fd, SOL_SOCKET, SO_REUSEPORT);
    }
    if (bind(port->fd, (const struct sockaddr *)&target->address, target->length) != 0) {
        return false;
    }
    if (listen(port->fd, backlog) != 0) {
        return false;
    }
    set_flag(port->fd, SOL_SOCKET, SO_REUSEPORT);
    if (source->takes_over) {
        attract_all(port->fd);
    }
    return true;
}

bool port_open(struct port *port, struct port_source *source, const struct connection_target *target, int backlog,
               mode_t unix_mode)
{
    *port = (struct port){.fd = take_inherited(source, target)};
    port->is_inherited = port->fd >= 0;
    if (port->is_inherited) {
        return true;
    }
    port->fd = socket(target->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool is_unix = target->address.ss_family == AF_UNIX;
    bool opened = port->fd >= 0 && (is_unix ? open_unix(port, source, target, backlog, unix_mode)
                                            : open_tcp(port, source, target, backlog));
    if (!opened) {
        int reason = errno;
        port_close(port);
        errno = reason;
    }
    return opened;
}

void port_hide(struct port *port)
{
    struct stat status;

    if (port->path != NULL && lstat(port->path, &status) == 0 && status.st_dev == port->device &&
        status.st_ino == port->inode) {
        unlink(port->path);
    }
    free(port->path);
    port->path = NULL;
}

void port_close(struct port *port)
{
    port_hide(port);
    if (port->fd >= 0) {
        close(port->fd);
    }
    port->fd = -1;
}
