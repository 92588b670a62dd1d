#include "worker/reception.h"

#include "net/proxy_header.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

/* So long a header may take. What proxies send at once may be lost on its way, and come again after three seconds. */
#define PATIENCE_US ((int64_t)5000000)
/* … when the process is about to end. */
#define HASTE_US ((int64_t)500000)
/* What is skipped is read in pieces. */
#define SKIPPED_AT_ONCE 1024

struct visitor {
    TAILQ_ENTRY(visitor) of_reception;
    struct reception *reception;
    int fd;
    struct event event;
    int64_t until_us;
    struct client_origin origin; /* of the proxy, until its header says more */
    bool is_read;                /* nothing is missing but what is to be skipped … */
    size_t to_skip;              /* … so many bytes */
    size_t length;               /* of what was taken off the socket */
    char taken[PROXY_HEADER_ENOUGH];
};

TAILQ_HEAD(visitors, visitor);

struct reception {
    struct reactor *reactor;
    struct reception_host host;
    size_t count;
    struct visitors visitors; /* who came first is the first */
    struct event timer;       /* of the first */
};

/* ---- who waits ---- */

static void arm(struct reception *reception)
{
    const struct visitor *first = TAILQ_FIRST(&reception->visitors);

    if (first == NULL) {
        event_del(&reception->timer);
        return;
    }
    int64_t delay = first->until_us - clock_now_us();
    delay = delay > 0 ? delay : 0;
    const struct timeval wait = {.tv_sec = delay / 1000000, .tv_usec = delay % 1000000};
    event_add(&reception->timer, &wait);
}

/* The socket is the caller's. */
static void leave(struct visitor *visitor)
{
    struct reception *reception = visitor->reception;

    event_del(&visitor->event);
    TAILQ_REMOVE(&reception->visitors, visitor, of_reception);
    reception->count--;
    free(visitor);
}

static void refuse(struct visitor *visitor, const char *why)
{
    const struct reception_host *host = &visitor->reception->host;
    struct client_origin peer = visitor->origin;

    close(visitor->fd);
    leave(visitor);
    host->refused(host->context, &peer, why);
}

static void let_in(struct visitor *visitor)
{
    const struct reception_host *host = &visitor->reception->host;
    struct client_origin origin = visitor->origin;
    int fd = visitor->fd;

    leave(visitor);
    host->arrived(host->context, fd, &origin);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct reception *reception = context;
    int64_t now_us = clock_now_us();
    struct visitor *first;

    (void)fd;
    (void)what;
    while ((first = TAILQ_FIRST(&reception->visitors)) != NULL && first->until_us <= now_us) {
        refuse(first, "no whole PROXY header in time");
    }
    arm(reception);
}

/* ---- what they say ---- */

enum progress { WAITS, GOES_ON, IS_OVER };

/* What recv() has said of nothing. Who comes and goes without a word has only looked whether somebody is there. */
static enum progress end_or_wait(struct visitor *visitor, ssize_t got)
{
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return WAITS;
    }
    if (got == 0 && visitor->length == 0) {
        close(visitor->fd);
        leave(visitor);
        return IS_OVER;
    }
    refuse(visitor, got == 0 ? "the connection ended before a whole PROXY header" : "the connection broke");
    return IS_OVER;
}

static void take_header(struct visitor *visitor, const struct proxy_header *header)
{
    visitor->is_read = true;
    visitor->origin.is_proxied = header->is_proxied;
    if (header->has_address) {
        visitor->origin.address = header->address;
    }
}

/* Takes what was looked at off the socket, as far as it belongs to the header: all of one that is not whole. */
static enum progress read_header(struct visitor *visitor)
{
    struct proxy_header header;
    size_t before = visitor->length;
    ssize_t got = recv(visitor->fd, visitor->taken + before, sizeof visitor->taken - before, MSG_PEEK);

    if (got <= 0) {
        return end_or_wait(visitor, got);
    }
    enum proxy_header_result result = proxy_header_parse(visitor->taken, before + (size_t)got, &header);
    if (result == PROXY_HEADER_BAD) {
        refuse(visitor, header.why);
        return IS_OVER;
    }
    size_t there = before + (size_t)got;
    size_t wanted = result == PROXY_HEADER_WHOLE && header.length < there ? header.length : there;
    ssize_t taken = recv(visitor->fd, visitor->taken + before, wanted - before, 0);
    if (taken <= 0) {
        return end_or_wait(visitor, taken);
    }
    visitor->length = before + (size_t)taken;
    if (result == PROXY_HEADER_WHOLE && visitor->length == wanted) {
        take_header(visitor, &header);
        visitor->to_skip = header.length - wanted;
    }
    return GOES_ON;
}

static enum progress skip_rest(struct visitor *visitor)
{
    char scratch[SKIPPED_AT_ONCE];
    size_t most = visitor->to_skip < sizeof scratch ? visitor->to_skip : sizeof scratch;
    ssize_t got = recv(visitor->fd, scratch, most, 0);

    if (got <= 0) {
        return end_or_wait(visitor, got);
    }
    visitor->to_skip -= (size_t)got;
    return GOES_ON;
}

static void listen_to(struct visitor *visitor)
{
    enum progress progress = GOES_ON;

    while (progress == GOES_ON) {
        if (visitor->is_read && visitor->to_skip == 0) {
            let_in(visitor);
            return;
        }
        progress = visitor->is_read ? skip_rest(visitor) : read_header(visitor);
    }
}

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct visitor *visitor = context;

    (void)fd;
    (void)what;
    listen_to(visitor);
}

/* ---- life ---- */

struct reception *reception_new(struct reactor *reactor, const struct reception_host *host)
{
    struct reception *reception = calloc(1, sizeof *reception);

    if (reception != NULL) {
        reception->reactor = reactor;
        reception->host = *host;
        TAILQ_INIT(&reception->visitors);
        evtimer_assign(&reception->timer, reactor->base, on_timer, reception);
    }
    return reception;
}

void reception_free(struct reception *reception)
{
    if (reception == NULL) {
        return;
    }
    while (!TAILQ_EMPTY(&reception->visitors)) {
        struct visitor *visitor = TAILQ_FIRST(&reception->visitors);
        close(visitor->fd);
        leave(visitor);
    }
    event_del(&reception->timer);
    free(reception);
}

void reception_take(struct reception *reception, int fd, const struct client_origin *origin)
{
    struct visitor *visitor = calloc(1, sizeof *visitor);

    if (visitor == NULL) {
        close(fd);
        reception->host.refused(reception->host.context, origin, "memory is short");
        return;
    }
    visitor->reception = reception;
    visitor->fd = fd;
    visitor->origin = *origin;
    visitor->until_us = clock_now_us() + PATIENCE_US;
    event_assign(&visitor->event, reception->reactor->base, fd, EV_READ | EV_PERSIST, on_readable, visitor);
    TAILQ_INSERT_TAIL(&reception->visitors, visitor, of_reception);
    reception->count++;
    if (event_add(&visitor->event, NULL) != 0) {
        refuse(visitor, "memory is short");
        return;
    }
    if (TAILQ_FIRST(&reception->visitors) == visitor) {
        arm(reception);
    }
    listen_to(visitor);
}

void reception_hasten(struct reception *reception)
{
    int64_t latest_us = clock_now_us() + HASTE_US;
    struct visitor *visitor;

    TAILQ_FOREACH(visitor, &reception->visitors, of_reception)
    {
        visitor->until_us = visitor->until_us < latest_us ? visitor->until_us : latest_us;
    }
    arm(reception);
}

size_t reception_count(const struct reception *reception)
{
    return reception->count;
}
