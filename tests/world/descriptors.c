/* Waiting for descriptors, and calls that may block: what is not ready is waited for before the kernel is asked. */
#include "preload.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>

#define DESCRIPTORS 65536
#define FIRST_PORT 33000
#define PORTS 27000

/* Of epoll instances: the thread + 1 that they are registered for at READY_FD. */
static uint16_t registered[DESCRIPTORS];
static enum { NOT_KNOWN, SOCKET, NO_SOCKET } kinds[DESCRIPTORS];

/* Something may be under way on loopback. */
static void soil(void)
{
    if (is_inside()) {
        world->is_dirty = true;
    }
}

static int interrupted(void)
{
    errno = EINTR;
    return -1;
}

/* ---- epoll, poll, select ---- */

static void register_epoll(int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = TICKET(self, own()->generation, fd)};
    int operation = registered[fd] != 0 ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    if (registered[fd] != self + 1 && kernel(SYS_epoll_ctl, READY_FD, operation, fd, &event) != 0 && errno == EEXIST) {
        kernel(SYS_epoll_ctl, READY_FD, EPOLL_CTL_MOD, fd, &event);
    }
    registered[fd] = (uint16_t)(self + 1);
}

static int epoll_until(int fd, struct epoll_event *events, int most, int64_t deadline)
{
    register_epoll(fd);
    for (;;) {
        own()->watched = fd;
        bool is_interrupted = give_way(WAIT_READY, deadline);
        int count = (int)kernel(SYS_epoll_wait, fd, events, most, 0);
        if (count != 0 || world->now >= deadline) {
            return count;
        }
        if (is_interrupted) {
            return interrupted();
        }
    }
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    if (!is_inside()) {
        return (int)kernel(SYS_epoll_wait, fd, events, most, timeout_ms);
    }
    return epoll_until(fd, events, most, after(timeout_ms < 0 ? -1 : timeout_ms * (SECOND / 1000)));
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout_ms, const sigset_t *mask)
{
    (void)mask;
    return epoll_wait(fd, events, most, timeout_ms);
}

EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int most, const struct timespec *timeout,
                        const sigset_t *mask)
{
    if (!is_inside()) {
        return (int)kernel(SYS_epoll_pwait2, fd, events, most, timeout, mask, 8);
    }
    return epoll_until(fd, events, most, after(timeout == NULL ? -1 : ns_of(timeout)));
}

/* Registers them at READY_FD, or takes them off. False: one of them cannot be, and none is. */
static bool watch(const struct pollfd *fds, nfds_t count, bool begin)
{
    for (nfds_t i = 0; i < count; i++) {
        struct epoll_event event = {.events = (uint32_t)(unsigned short)fds[i].events,
                                    .data.u64 = TICKET(self, own()->generation, WATCHES_ALL)};
        if (fds[i].fd >= 0 &&
            kernel(SYS_epoll_ctl, READY_FD, begin ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fds[i].fd, &event) != 0 && begin) {
            (void)watch(fds, i, false);
            return false;
        }
    }
    return true;
}

static int poll_until(struct pollfd *fds, nfds_t count, int64_t deadline)
{
    for (;;) {
        int ready = (int)kernel(SYS_poll, fds, count, 0);
        if (ready != 0 || world->now >= deadline) {
            return ready;
        }
        bool is_watched = watch(fds, count, true);
        own()->watched = WATCHES_ALL;
        own()->tried = world->progress;
        bool is_interrupted = give_way(is_watched ? WAIT_READY : WAIT_CHANGE, deadline);
        if (is_watched) {
            (void)watch(fds, count, false);
        }
        if (is_interrupted) {
            return interrupted();
        }
    }
}

EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    if (!is_inside()) {
        return (int)kernel(SYS_poll, fds, count, timeout_ms);
    }
    world->now += timeout_ms == 0 ? world->look_ns : 0;
    return poll_until(fds, count, after(timeout_ms < 0 ? -1 : timeout_ms * (SECOND / 1000)));
}

EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t size)
{
    (void)size;
    return poll(fds, count, timeout_ms);
}

EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    if (!is_inside()) {
        return REAL(ppoll)(fds, count, timeout, mask);
    }
    return poll_until(fds, count, after(timeout == NULL ? -1 : ns_of(timeout)));
}

EXPORT int select(int count, fd_set *restrict in, fd_set *restrict out, fd_set *restrict odd,
                  struct timeval *restrict timeout)
{
    if (!is_inside()) {
        return (int)kernel(SYS_select, count, in, out, odd, timeout);
    }
    int64_t deadline = after(timeout == NULL ? -1 : timeout->tv_sec * SECOND + timeout->tv_usec * 1000);
    fd_set *sets[3] = {in, out, odd}, wanted[3];
    for (int i = 0; i < 3; i++) {
        wanted[i] = sets[i] != NULL ? *sets[i] : (fd_set){0};
    }
    for (;;) {
        for (int i = 0; i < 3 && sets[i] != NULL; i++) {
            *sets[i] = wanted[i];
        }
        int ready = (int)kernel(SYS_select, count, in, out, odd, &(struct timeval){0});
        if (ready != 0 || world->now >= deadline) {
            return ready;
        }
        own()->tried = world->progress;
        if (give_way(WAIT_CHANGE, deadline)) {
            return interrupted();
        }
    }
}

/* ---- reading ---- */

static bool is_blocking(int fd)
{
    long flags = kernel(SYS_fcntl, fd, F_GETFL);

    return flags >= 0 && (flags & O_NONBLOCK) == 0;
}

/* Sockets of netlink are answered by the kernel at once. */
static bool is_socket(int fd)
{
    struct stat stat;
    int domain = AF_NETLINK;

    if (fd < 0 || fd >= DESCRIPTORS) {
        return false;
    }
    if (kinds[fd] == NOT_KNOWN) {
        bool is = fstat(fd, &stat) == 0 && S_ISSOCK(stat.st_mode) &&
                  getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &(socklen_t){sizeof domain}) == 0;
        kinds[fd] = is && domain != AF_NETLINK ? SOCKET : NO_SOCKET;
    }
    return kinds[fd] == SOCKET;
}

/* As long as the socket's own time-out allows. False: it is not ready; errno is set. */
static bool await_ready(int fd, short events)
{
    struct pollfd asked = {.fd = fd, .events = events};
    struct timeval patience = {0};

    if (is_socket(fd)) {
        (void)getsockopt(fd, SOL_SOCKET, events == POLLIN ? SO_RCVTIMEO : SO_SNDTIMEO, &patience,
                         &(socklen_t){sizeof patience});
    }
    int64_t ns = patience.tv_sec * SECOND + patience.tv_usec * 1000;
    int ready = poll_until(&asked, 1, after(ns > 0 ? ns : -1));
    errno = ready == 0 ? EAGAIN : errno;
    return ready > 0;
}

static bool may_read(int fd, int flags)
{
    return !is_inside() || (flags & MSG_DONTWAIT) != 0 || !is_blocking(fd) || await_ready(fd, POLLIN);
}

EXPORT ssize_t read(int fd, void *buffer, size_t size)
{
    return may_read(fd, 0) ? kernel(SYS_read, fd, buffer, size) : -1;
}

EXPORT ssize_t __read_chk(int fd, void *buffer, size_t size, size_t room)
{
    (void)room;
    return read(fd, buffer, size);
}

EXPORT ssize_t readv(int fd, const struct iovec *parts, int count)
{
    return may_read(fd, 0) ? kernel(SYS_readv, fd, parts, count) : -1;
}

EXPORT ssize_t recvfrom(int fd, void *restrict buffer, size_t size, int flags, struct sockaddr *restrict from,
                        socklen_t *restrict length)
{
    return may_read(fd, flags) ? kernel(SYS_recvfrom, fd, buffer, size, flags, from, length) : -1;
}

EXPORT ssize_t recv(int fd, void *buffer, size_t size, int flags)
{
    return recvfrom(fd, buffer, size, flags, NULL, NULL);
}

EXPORT ssize_t __recv_chk(int fd, void *buffer, size_t size, size_t room, int flags)
{
    (void)room;
    return recvfrom(fd, buffer, size, flags, NULL, NULL);
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    return may_read(fd, flags) ? kernel(SYS_recvmsg, fd, message, flags) : -1;
}

EXPORT int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict length, int flags)
{
    return may_read(fd, 0) ? (int)kernel(SYS_accept4, fd, address, length, flags) : -1;
}

EXPORT int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict length)
{
    return accept4(fd, address, length, 0);
}

/* stdio reads by itself: what it has no bytes of is waited for first. */
static void await_stream(FILE *stream)
{
    if (is_inside() && stream->_IO_read_ptr == stream->_IO_read_end && fileno(stream) >= 0) {
        (void)may_read(fileno(stream), 0);
    }
}

/* Its parameters as they are declared, and as they are passed on. */
#define READS(type, name, declared, passed)                                                                            \
    EXPORT type name declared                                                                                          \
    {                                                                                                                  \
        await_stream(stream);                                                                                          \
        return REAL(name) passed;                                                                                      \
    }
extern int __uflow(FILE *stream);
READS(int, __uflow, (FILE * stream), (stream))
READS(int, fgetc, (FILE * stream), (stream))
READS(char *, fgets, (char *restrict text, int size, FILE *restrict stream), (text, size, stream))
READS(char *, fgets_unlocked, (char *restrict text, int size, FILE *restrict stream), (text, size, stream))
READS(size_t, fread, (void *restrict data, size_t size, size_t count, FILE *restrict stream),
      (data, size, count, stream))
READS(size_t, fread_unlocked, (void *restrict data, size_t size, size_t count, FILE *restrict stream),
      (data, size, count, stream))

READS(ssize_t, getdelim, (char **restrict text, size_t *restrict size, int end, FILE *restrict stream),
      (text, size, end, stream))

EXPORT ssize_t getline(char **restrict text, size_t *restrict size, FILE *restrict stream)
{
    return getdelim(text, size, '\n', stream);
}

/* ---- writing ---- */

EXPORT ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length)
{
    bool waits = is_inside() && (flags & MSG_DONTWAIT) == 0 && is_blocking(fd);
    size_t done = 0;

    maybe_yield();
    do {
        ssize_t count = kernel(SYS_sendto, fd, (const char *)data + done, size - done,
                               flags | (waits ? MSG_DONTWAIT : 0), to, length);
        soil();
        if (count < 0 && (!waits || errno != EAGAIN || !await_ready(fd, POLLOUT))) {
            return done > 0 ? (ssize_t)done : -1;
        }
        done += count > 0 ? (size_t)count : 0;
    } while (waits && done < size);
    return (ssize_t)done;
}

EXPORT ssize_t send(int fd, const void *data, size_t size, int flags)
{
    return sendto(fd, data, size, flags, NULL, 0);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    bool waits = is_inside() && (flags & MSG_DONTWAIT) == 0 && is_blocking(fd);
    ssize_t count;

    do {
        count = kernel(SYS_sendmsg, fd, message, flags | (waits ? MSG_DONTWAIT : 0));
        soil();
    } while (count < 0 && errno == EAGAIN && waits && await_ready(fd, POLLOUT));
    return count;
}

EXPORT ssize_t write(int fd, const void *data, size_t size)
{
    if (is_inside() && is_socket(fd)) {
        return sendto(fd, data, size, 0, NULL, 0);
    }
    if (!is_inside() || !is_blocking(fd)) {
        return kernel(SYS_write, fd, data, size);
    }
    size_t done = 0;
    do { /* a pipe takes so much when it is ready */
        size_t part = size - done < PIPE_BUF ? size - done : PIPE_BUF;
        ssize_t count = await_ready(fd, POLLOUT) ? kernel(SYS_write, fd, (const char *)data + done, part) : -1;
        if (count < 0) {
            return done > 0 ? (ssize_t)done : -1;
        }
        done += (size_t)count;
    } while (done < size);
    return (ssize_t)done;
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
    if (is_inside() && is_socket(fd)) {
        return sendmsg(fd, &(struct msghdr){.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count}, 0);
    }
    return kernel(SYS_writev, fd, parts, count);
}

EXPORT ssize_t splice(int from, off64_t *from_at, int to, off64_t *to_at, size_t length, unsigned flags)
{
    soil();
    return kernel(SYS_splice, from, from_at, to, to_at, length, flags);
}

/* ---- sockets ---- */

/* Nothing of Nagle's waits for the kernel's own clock. */
EXPORT int socket(int domain, int type, int protocol)
{
    int fd = (int)kernel(SYS_socket, domain, type, protocol);

    if (world != NULL && fd >= 0 && (domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    }
    return fd;
}

static bool lacks_port(const struct sockaddr *address, socklen_t length)
{
    bool is_inet =
        length >= sizeof(struct sockaddr_in) && (address->sa_family == AF_INET || address->sa_family == AF_INET6);

    /* Both have it at the same place. */
    return is_inet && ((const struct sockaddr_in *)(const void *)address)->sin_port == 0;
}

/* Ports that the kernel would choose are given out in order. */
static int bind_next(int fd, const struct sockaddr *address, socklen_t length)
{
    struct sockaddr_storage wanted;
    int status = -1;

    memcpy(&wanted, address, length);
    for (int tries = 0; status != 0 && (tries == 0 || errno == EADDRINUSE) && tries < PORTS; tries++) {
        ((struct sockaddr_in *)(void *)&wanted)->sin_port = htons((uint16_t)(FIRST_PORT + world->ports++ % PORTS));
        status = (int)kernel(SYS_bind, fd, &wanted, length);
    }
    return status;
}

EXPORT int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    return is_inside() && lacks_port(address, length) ? bind_next(fd, address, length)
                                                      : (int)kernel(SYS_bind, fd, address, length);
}

EXPORT int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    struct sockaddr_storage own_address = {0};
    socklen_t size = sizeof own_address;
    struct sockaddr *bound = (struct sockaddr *)&own_address;

    soil();
    if (is_inside() && getsockname(fd, bound, &size) == 0 && lacks_port(bound, size)) {
        (void)bind_next(fd, bound, size);
    }
    int status = (int)kernel(SYS_connect, fd, address, length), why = errno;
    if (is_inside()) { /* who accepts has a chance to: a full queue is waited for in real time */
        (void)give_way(WAIT_TURN, NEVER);
    }
    errno = why;
    return status;
}

EXPORT int shutdown(int fd, int how)
{
    soil();
    return (int)kernel(SYS_shutdown, fd, how);
}

/* stdio writes by itself, too: so much has room in a pipe. */
EXPORT int pipe2(int fds[2], int flags)
{
    int status = (int)kernel(SYS_pipe2, fds, flags);

    if (world != NULL && status == 0) {
        (void)kernel(SYS_fcntl, fds[1], F_SETPIPE_SZ, 1 << 20);
    }
    return status;
}

EXPORT int pipe(int fds[2])
{
    return pipe2(fds, 0);
}

/* ---- descriptors come and go ---- */

static void forget(int fd)
{
    if (fd >= 0 && fd < DESCRIPTORS) {
        kinds[fd] = NOT_KNOWN;
        registered[fd] = 0;
    }
}

static bool is_of_world(int fd)
{
    return world != NULL && fd >= READY_FD && fd <= WORLD_FD;
}

EXPORT int close(int fd)
{
    if (is_of_world(fd)) {
        return 0;
    }
    forget(fd);
    soil();
    return (int)kernel(SYS_close, fd);
}

EXPORT int dup2(int from, int to)
{
    forget(to);
    return (int)kernel(SYS_dup2, from, to);
}

EXPORT int dup3(int from, int to, int flags)
{
    forget(to);
    return (int)kernel(SYS_dup3, from, to, flags);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
    for (unsigned fd = first; fd <= last && fd < DESCRIPTORS; fd++) {
        forget((int)fd);
    }
    soil();
    if (world == NULL || first > WORLD_FD || last < READY_FD) {
        return (int)kernel(SYS_close_range, first, last, flags);
    }
    int below = first < READY_FD ? (int)kernel(SYS_close_range, first, READY_FD - 1, flags) : 0;
    int above = last > WORLD_FD ? (int)kernel(SYS_close_range, WORLD_FD + 1, last, flags) : 0;
    return below | above;
}

EXPORT void closefrom(int first)
{
    (void)close_range((unsigned)first, ~0U, 0);
}
