#include "net/connection_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <unistd.h>

void connection_open(struct connection *connection, struct reactor *reactor, int fd, connection_callback *readable,
                     connection_callback *writable, void *context)
{
    connection->reactor = reactor;
    connection->fd = fd;
    connection->reading = false;
    connection->writing = false;
    connection->secure = NULL;
    event_assign(&connection->read_event, reactor->base, fd, EV_READ | EV_PERSIST, readable, context);
    event_assign(&connection->write_event, reactor->base, fd, EV_WRITE | EV_PERSIST, writable, context);
}

void connection_close(struct connection *connection)
{
    if (connection->fd < 0) {
        return;
    }
    if (connection->secure != NULL) {
        connection_secure_close(connection);
    } else {
        connection_want_read(connection, false);
        connection_want_write(connection, false);
    }
    if (connection->fd >= 0) {
        close(connection->fd);
        connection->fd = -1;
    }
}

void connection_move(struct connection *to, struct connection *from, connection_callback *readable,
                     connection_callback *writable, void *context)
{
    connection_want_read(from, false);
    connection_want_write(from, false);
    connection_open(to, from->reactor, from->fd, readable, writable, context);
    if (from->secure != NULL) {
        connection_secure_move(to, from, readable, writable, context);
    }
    from->fd = -1;
}

/* There is no memory to watch the socket, and without that nobody would hear of it again. It counts as broken: the
 * callback finds its end, unless there is still something to be read, after which it is asked for anew. */
static void break_off(struct event *event)
{
    shutdown(event_get_fd(event), SHUT_RDWR);
    event_active(event, event_get_events(event) & (EV_READ | EV_WRITE), 1);
}

void connection_watch_event(struct event *event, bool *current, bool wanted)
{
    if (wanted && event_add(event, NULL) != 0) {
        break_off(event);
        return;
    }
    *current = wanted;
    if (!wanted) {
        event_del(event);
    }
}

void connection_watch(struct connection *connection, short what, bool wanted)
{
    bool reads = what == EV_READ;
    bool *current = reads ? &connection->reading : &connection->writing;

    if (connection->secure == NULL) {
        connection_watch_event(reads ? &connection->read_event : &connection->write_event, current, wanted);
        return;
    }
    *current = wanted;
    connection_secure_watch(connection);
}

static ssize_t io_result(ssize_t done)
{
    if (done >= 0) {
        return done;
    }
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? CONNECTION_AGAIN : CONNECTION_BROKEN;
}

ssize_t connection_read(struct connection *connection, char *data, size_t size)
{
    if (connection->secure != NULL) {
        return connection_secure_read(connection, data, size);
    }
    return io_result(recv(connection->fd, data, size, 0));
}

ssize_t connection_write(struct connection *connection, const char *data, size_t size)
{
    if (connection->secure != NULL) {
        return connection_secure_write(connection, data, size);
    }
    return io_result(send(connection->fd, data, size, MSG_NOSIGNAL));
}

void connection_end_output(struct connection *connection)
{
    if (connection->secure != NULL) {
        connection_secure_end(connection);
    } else {
        shutdown(connection->fd, SHUT_WR);
    }
}

const char *connection_why(const struct connection *connection)
{
    const struct tls *tls = connection_tls(connection);

    return tls != NULL && tls_state(tls) == TLS_FAILED ? tls_why(tls) : strerror(errno);
}

bool connection_has_input(const struct connection *connection)
{
    const struct tls *tls = connection_tls(connection);
    int waiting = 0;

    if (tls != NULL && tls_state(tls) == TLS_OPEN && tls_has_input(tls)) {
        return true;
    }
    return ioctl(connection->fd, FIONREAD, &waiting) == 0 && waiting > 0;
}

ssize_t connection_pull(struct connection *from, struct connection *to, size_t most, size_t *left)
{
    *left = 0;
    if (from->secure != NULL || to->secure != NULL) {
        return 0;
    }
    return io_result(splice_move(&from->reactor->splice, from->fd, to->fd, most, left));
}

void connection_find_ends(struct connection *const connections[], size_t count, enum connection_end ends[])
{
    struct pollfd asked[CONNECTION_ENDS_MAX];

    for (size_t i = 0; i < count; i++) {
        asked[i] = (struct pollfd){.fd = connections[i]->fd, .events = POLLRDHUP};
        ends[i] = CONNECTION_GOES_ON;
    }
    if (poll(asked, (nfds_t)count, 0) <= 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if ((asked[i].revents & POLLERR) != 0) {
            ends[i] = CONNECTION_RESET;
        } else if ((asked[i].revents & (POLLRDHUP | POLLHUP)) != 0) {
            ends[i] = CONNECTION_HALF_CLOSED;
        }
    }
}

static void set_number(int fd, int level, int option, int64_t value)
{
    int number = value > INT32_MAX ? INT32_MAX : (int)value;

    /* A kernel that lacks an option only loses the refinement. */
    (void)setsockopt(fd, level, option, &number, sizeof number);
}

/* Bytes that the kernel takes of a connection beyond what is on its way. */
#define UNSENT_MAX (256 * 1024)

void connection_tune(int fd, const struct connection_tuning *tuning)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;

    if (getsockname(fd, (struct sockaddr *)&own, &length) != 0 || own.ss_family == AF_UNIX) {
        return;
    }
    set_number(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    /* What the other end does not read waits where it is counted, and not by megabytes in the kernel. */
    set_number(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_MAX);
    if (tuning->keepalive_ms > 0) {
        int64_t seconds = tuning->keepalive_ms >= 1000 ? tuning->keepalive_ms / 1000 : 1;
        set_number(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        set_number(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
        set_number(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds >= 3 ? seconds / 3 : 1);
        set_number(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    }
    if (tuning->user_timeout_ms > 0) {
        set_number(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, tuning->user_timeout_ms);
    }
}

static bool resolve_unix(const char *path, struct connection_targets *targets)
{
    struct sockaddr_un *address = (struct sockaddr_un *)&targets->items[0].address;

    if (strlen(path) >= sizeof address->sun_path) {
        targets->why = "the path is too long for a Unix socket";
        return false;
    }
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, strlen(path) + 1);
    targets->items[0].length = sizeof *address;
    targets->count = 1;
    return true;
}

static bool is_same_target(const struct connection_target *a, const struct connection_target *b)
{
    return a->length == b->length && memcmp(&a->address, &b->address, a->length) == 0;
}

size_t connection_targets_find(const struct connection_targets *targets, const struct connection_target *target)
{
    size_t place = 0;

    while (place < targets->count && !is_same_target(&targets->items[place], target)) {
        place++;
    }
    return place;
}

bool connection_targets_equal(const struct connection_targets *a, const struct connection_targets *b)
{
    bool equal = a->count == b->count;

    for (size_t i = 0; equal && i < a->count; i++) {
        equal = connection_targets_find(b, &a->items[i]) < b->count;
    }
    return equal;
}

/* A name may stand for an address twice: localhost does with many systems. */
static void add_target(struct connection_targets *targets, const struct addrinfo *found)
{
    struct connection_target target;

    memset(&target, 0, sizeof target);
    memcpy(&target.address, found->ai_addr, found->ai_addrlen);
    target.length = found->ai_addrlen;
    if (targets->count < CONNECTION_TARGETS_MAX && connection_targets_find(targets, &target) == targets->count) {
        targets->items[targets->count++] = target;
    }
}

/* flags: of getaddrinfo(). */
static bool resolve(const struct conf_address *address, int flags, struct connection_targets *targets)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    struct addrinfo *found = NULL;
    char port[8];

    memset(targets, 0, sizeof *targets);
    if (address->path != NULL) {
        return resolve_unix(address->path, targets);
    }
    snprintf(port, sizeof port, "%u", (unsigned)address->port);
    int status = getaddrinfo(address->host, port, &hints, &found);
    if (status != 0) {
        targets->why = gai_strerror(status);
        return false;
    }
    for (const struct addrinfo *one = found; one != NULL; one = one->ai_next) {
        add_target(targets, one);
    }
    freeaddrinfo(found);
    targets->why = targets->count == 0 ? "the name has no address" : NULL;
    return targets->count > 0;
}

bool connection_resolve(const struct conf_address *address, struct connection_targets *targets)
{
    return resolve(address, 0, targets);
}

bool connection_resolve_numeric(const struct conf_address *address, struct connection_targets *targets)
{
    return resolve(address, AI_NUMERICHOST, targets);
}

int connection_start(const struct connection_target *target, int end)
{
    int fd = socket(target->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    if (fd >= end) {
        close(fd);
        errno = EMFILE;
        return -1;
    }
    if (connect(fd, (const struct sockaddr *)&target->address, target->length) != 0 && errno != EINPROGRESS) {
        int reason = errno;
        close(fd);
        errno = reason;
        return -1;
    }
    return fd;
}

static bool is_connected_to_itself(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_length = sizeof own, peer_length = sizeof peer;

    return getsockname(fd, (struct sockaddr *)&own, &own_length) == 0 && own.ss_family != AF_UNIX &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_length) == 0 && own_length == peer_length &&
           memcmp(&own, &peer, own_length) == 0;
}

int connection_outcome(int fd)
{
    int outcome = 0;
    socklen_t length = sizeof outcome;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &outcome, &length) != 0) {
        return errno;
    }
    return outcome == 0 && is_connected_to_itself(fd) ? ECONNREFUSED : outcome;
}

void connection_peer_text(const struct sockaddr_storage *address, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%u", host, (unsigned)ntohs(in->sin_port));
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%u", host, (unsigned)ntohs(in6->sin6_port));
    } else {
        snprintf(text, size, "unix");
    }
}
