#include "worker/listener.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

/* Accepted in one go; the rest waits for the next loop iteration. */
#define ACCEPT_BURST 64
/* Accepted at the end, whoever else goes on to connect. */
#define ACCEPT_LAST 65536
/* With not even a descriptor to refuse clients, the next look at them comes so much later. µs. */
#define REST_US 50000

struct place {
    struct listener *listener;
    struct port port;
    bool tls; /* who connects there speaks it */
    struct event event;
    struct event rest; /* until it fires, nothing is accepted */
};

struct listener {
    struct reactor *reactor;
    struct worker_pool *worker_pool;
    struct connection_tuning tuning;
    size_t max_clients;
    int spare_fd; /* given up for a moment to refuse a client when descriptors have run out; -1: none */
    struct log_limiter refusals;
    size_t count;
    struct place places[CONF_ADDRESSES_MAX];
};

/* Who speaks TLS would take the text for garbage: Redis just closes, too, as a handshake is more than it would do. */
static void refuse(struct listener *listener, int fd, bool tls, const char *why)
{
    static const char text[] = "-ERR max number of clients reached\r\n";
    uint64_t suppressed;
    ssize_t done = tls ? 0 : send(fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT);

    (void)done;
    close(fd);
    listener->worker_pool->clients_refused++;
    if (log_limiter_take(&listener->refusals, clock_now_us(), &suppressed)) {
        log_warning("listener", "refused a client: %s (%llu more since the last line)", why,
                    (unsigned long long)suppressed);
    }
}

/*
 * Descriptors have run out: the client that waits is let in by the spare one, told, and shown out. Another thread may
 * be faster than we are, to the spare one or to a new one in its stead; then the clients wait for a moment, as the
 * kernel would otherwise report them again and again.
 */
static void refuse_without_descriptor(struct place *place)
{
    const struct timeval rest = {.tv_usec = REST_US};
    struct listener *listener = place->listener;
    int fd = -1;

    if (listener->spare_fd >= 0) {
        close(listener->spare_fd);
        fd = accept4(place->port.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
    if (fd >= 0) {
        refuse(listener, fd, place->tls, "no file descriptors left; raise ulimit -n or lower max_clients");
    } else {
        if (event_add(&place->rest, &rest) == 0) {
            event_del(&place->event);
        }
    }
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_rested(evutil_socket_t fd, short what, void *context)
{
    struct place *place = context;

    (void)fd;
    (void)what;
    event_add(&place->event, NULL);
}

/* False when there is nothing more to accept now. */
static bool accept_one(struct place *place)
{
    struct listener *listener = place->listener;
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    int fd = accept4(place->port.fd, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) {
            refuse_without_descriptor(place);
        }
        return errno == EINTR || errno == ECONNABORTED;
    }
    if (worker_pool_clients(listener->worker_pool) >= listener->max_clients) {
        refuse(listener, fd, place->tls, "max_clients are connected");
        return true;
    }
    connection_tune(fd, &listener->tuning);
    worker_pool_give_client(listener->worker_pool, fd, &address, place->tls);
    return true;
}

static void on_connection(evutil_socket_t fd, short what, void *context)
{
    struct place *place = context;

    (void)fd;
    (void)what;
    for (int i = 0; i < ACCEPT_BURST && accept_one(place); i++) {
    }
}

static bool open_place(struct listener *listener, const struct conf *conf, const struct conf_address *address,
                       struct port_source *source)
{
    struct place *place = &listener->places[listener->count];
    struct connection_targets targets;

    if (!connection_resolve(address, &targets)) {
        log_error("listener", "cannot listen on %s: %s", address->text, targets.why);
        return false;
    }
    if (!port_open(&place->port, source, &targets.items[0], (int)conf->backlog, (mode_t)conf->unix_socket_mode)) {
        log_error("listener", "cannot listen on %s: %s", address->text, strerror(errno));
        return false;
    }
    place->listener = listener;
    place->tls = address->tls;
    event_assign(&place->event, listener->reactor->base, place->port.fd, EV_READ | EV_PERSIST, on_connection, place);
    evtimer_assign(&place->rest, listener->reactor->base, on_rested, place);
    event_add(&place->event, NULL);
    listener->count++;
    return true;
}

struct listener *listener_open(struct reactor *reactor, struct worker_pool *worker_pool, const struct conf *conf,
                               struct port_source *source)
{
    struct listener *listener = calloc(1, sizeof *listener);
    bool opened = listener != NULL;

    if (listener == NULL) {
        return NULL;
    }
    listener->reactor = reactor;
    listener->worker_pool = worker_pool;
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    listener_reconfigure(listener, conf);
    for (size_t i = 0; i < conf->listen.count; i++) {
        opened = open_place(listener, conf, &conf->listen.items[i], source) && opened;
    }
    if (!opened) {
        listener_close(listener);
        return NULL;
    }
    return listener;
}

bool listener_serve(struct listener *listener)
{
    bool serves = true;

    for (size_t i = 0; i < listener->count; i++) {
        serves = serves && port_serve(&listener->places[i].port);
    }
    if (!serves) {
        log_error("listener", "cannot serve at an address of listen: %s", strerror(errno));
    }
    return serves;
}

void listener_reconfigure(struct listener *listener, const struct conf *conf)
{
    listener->tuning = (struct connection_tuning){
        .keepalive_ms = conf->tcp_keepalive,
        .user_timeout_ms = conf->client_tcp_user_timeout,
    };
    listener->max_clients = (size_t)conf->max_clients;
}

/* The kernel would reset who has connected and was not accepted. */
static void close_place(struct place *place)
{
    port_hide(&place->port);
    for (int i = 0; !place->port.is_inherited && i < ACCEPT_LAST && accept_one(place); i++) {
    }
    port_close(&place->port);
}

void listener_close(struct listener *listener)
{
    for (size_t i = 0; i < listener->count; i++) {
        struct place *place = &listener->places[i];
        event_del(&place->event);
        close_place(place);
        event_del(&place->rest);
    }
    if (listener->spare_fd >= 0) {
        close(listener->spare_fd);
    }
    free(listener);
}
