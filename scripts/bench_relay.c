/*
 * Forwards connections to a local server and delays what crosses them, each direction by so long:
 * bench_relay PORT SERVER_PORT NANOSECONDS (scripts/bench --away). The delay is the same for all, so that what was read
 * first is due first: one queue is enough. Reading never waits for writing; what a full socket does not take holds up
 * the rest. What is closed is so at both ends, at once.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, READ_MAX = 64 * 1024, EARLY = 20 * 1000, SECOND = 1000 * 1000 * 1000 };

struct chunk {
    STAILQ_ENTRY(chunk) entry;
    struct end *to;
    int64_t due;
    size_t size, sent;
    char bytes[];
};

STAILQ_HEAD(chunks, chunk);

/* Of a connection. It is not freed, as chunks and events may still name it; there are few. */
struct end {
    int fd; /* -1: closed */
    struct end *other;
};

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

/* Gives the nanoseconds to wait, which may be below 0: then epoll_pwait2() fails at once. */
static int64_t write_due(struct chunks *delayed)
{
    struct chunk *chunk;

    while ((chunk = STAILQ_FIRST(delayed)) != NULL && chunk->due <= now() + EARLY) {
        ssize_t sent = write(chunk->to->fd, chunk->bytes + chunk->sent, chunk->size - chunk->sent);
        chunk->sent += sent > 0 ? (size_t)sent : 0;
        if (chunk->sent < chunk->size && (sent >= 0 || errno == EAGAIN)) {
            return EARLY;
        }
        STAILQ_REMOVE_HEAD(delayed, entry);
        free(chunk);
    }
    return chunk != NULL ? chunk->due - now() : SECOND;
}

static void read_all(struct end *end, struct chunks *delayed, int64_t delay)
{
    static char input[READ_MAX];
    ssize_t size;

    while ((size = read(end->fd, input, sizeof(input))) > 0) {
        struct chunk *chunk = malloc(sizeof(*chunk) + (size_t)size);
        *chunk = (struct chunk){.to = end->other, .due = now() + delay, .size = (size_t)size};
        memcpy(chunk->bytes, input, (size_t)size);
        STAILQ_INSERT_TAIL(delayed, chunk, entry);
    }
    if (end->fd >= 0 && (size == 0 || errno != EAGAIN)) {
        close(end->fd);
        close(end->other->fd);
        end->fd = end->other->fd = -1;
    }
}

static void accept_one(int epoll, int listener, const struct sockaddr_in *server)
{
    struct end *ends = calloc(2, sizeof(*ends));

    ends[0].fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    ends[1].fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(ends[1].fd, (const struct sockaddr *)server, sizeof(*server));
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = &ends[i]};
        ends[i].other = &ends[1 - i];
        setsockopt(ends[i].fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        epoll_ctl(epoll, EPOLL_CTL_ADD, ends[i].fd, &event);
    }
}

int main(int argc, char **argv)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    struct epoll_event events[EVENTS], arrival = {.events = EPOLLIN};
    struct chunks delayed = STAILQ_HEAD_INITIALIZER(delayed);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1);
    address.sin_port = htons((uint16_t)atoi(argv[1]));
    if (argc != 4 || bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(listener, 1024) != 0) {
        return 1;
    }
    address.sin_port = htons((uint16_t)atoi(argv[2]));
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &arrival);
    for (;;) {
        int64_t wait = write_due(&delayed);
        struct timespec until = {.tv_sec = wait / SECOND, .tv_nsec = wait % SECOND};
        int count = epoll_pwait2(epoll, events, EVENTS, &until, NULL);
        for (int i = 0; i < count; i++) {
            events[i].data.ptr != NULL ? read_all(events[i].data.ptr, &delayed, atoll(argv[3]))
                                       : accept_one(epoll, listener, &address);
        }
    }
}
