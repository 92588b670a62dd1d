#include "worker/listener.h"

#include "base/log.h"
#include "base/places.h"
#include "conf/conf_table.h"
#include "conf/networks.h"
#include "worker/reception.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

/* Accepted in one go; the rest waits for the next loop iteration. */
#define ACCEPT_BURST 64
/* Accepted at the end, whoever else goes on to connect. */
#define ACCEPT_LAST 65536
/* With no descriptor to accept clients, the next look at them comes so much later. µs. */
#define REST_US 50000

struct place {
    struct listener *listener;
    struct port port;
    size_t number;   /* of the listener in the configuration: conf_listener_at() */
    bool tls;        /* who connects there speaks it */
    bool is_proxied; /* … and the PROXY protocol ahead of all */
    struct event event;
    struct event rest; /* until it fires, nothing is accepted */
};

struct listener {
    struct reactor *reactor;
    struct worker_pool *worker_pool;
    struct connection_tuning tuning;
    size_t max_clients; /* in force */
    struct log_limiter refusals;
    struct log_limiter proxy_refusals;
    struct reception *reception; /* NULL: no listener has the PROXY protocol */
    size_t number_count;
    struct networks **proxies; /* by the number of a listener: who is believed */
    struct log_limiter denials;
    size_t count;
    struct place places[];
};

/* Who speaks TLS would take the text for garbage: Redis just closes, too, as a handshake is more than it would do. */
static void refuse(struct listener *listener, int fd, bool tls, const char *why)
{
    static const char text[] = "-ERR max number of clients reached\r\n";
    uint64_t suppressed;
    ssize_t done = tls ? 0 : send(fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT);

    (void)done;
    listener->worker_pool->clients_refused++;
    if (log_limiter_take(&listener->refusals, clock_now_us(), &suppressed)) {
        struct sockaddr_storage address = {0};
        socklen_t length = sizeof address;
        char who[64];
        getpeername(fd, (struct sockaddr *)&address, &length);
        connection_peer_text(&address, who, sizeof who);
        log_write_about(LOG_LEVEL_WARNING, &(const struct log_subject){.client = who}, "listener",
                        "refused client %s: %s (%llu more since the last line)", who, why,
                        (unsigned long long)suppressed);
    }
    close(fd);
}

/* Descriptors are short, of the process or of the machine: clients wait, or the kernel would report them at once. */
static void rest(struct place *place, int reason)
{
    const struct timeval delay = {.tv_usec = REST_US};
    uint64_t suppressed;

    if (log_limiter_take(&place->listener->refusals, clock_now_us(), &suppressed)) {
        log_error("listener", "clients wait to be accepted: %s (%llu more since the last line)", strerror(reason),
                  (unsigned long long)suppressed);
    }
    if (event_add(&place->rest, &delay) == 0) {
        event_del(&place->event);
    }
}

static void on_rested(evutil_socket_t fd, short what, void *context)
{
    struct place *place = context;

    (void)fd;
    (void)what;
    event_add(&place->event, NULL);
}

/* ---- who is let in ---- */

/* Before it counts as a client: who is not let in takes no place from those who are. False: it was closed. */
static bool is_let_in(struct listener *listener, int fd, const struct client_origin *origin)
{
    const struct admission_visitor visitor = {
        .address = &origin->address,
        .is_proxied = origin->is_proxied,
        .tls = origin->tls,
        .listener = origin->listener,
    };
    char text[64];
    const char *identity;
    uint64_t suppressed;

    if (admission_receive(listener->worker_pool->admission, fd, &visitor, &identity)) {
        return true;
    }
    listener->worker_pool->clients_denied++;
    if (log_limiter_take(&listener->denials, clock_now_us(), &suppressed)) {
        connection_peer_text(&origin->address, text, sizeof text);
        log_write_about(
            LOG_LEVEL_WARNING, &(const struct log_subject){.client = text}, "listener",
            "refused client %s, identity %s: allow and refuse do not let it in (%llu more since the last line)", text,
            identity, (unsigned long long)suppressed);
    }
    return false;
}

/* ---- the PROXY protocol ---- */

static void refuse_proxy(struct listener *listener, const struct client_origin *peer, const char *why)
{
    char text[64];
    uint64_t suppressed;

    listener->worker_pool->proxies_refused++;
    connection_peer_text(&peer->address, text, sizeof text);
    if (log_limiter_take(&listener->proxy_refusals, clock_now_us(), &suppressed)) {
        log_write_about(LOG_LEVEL_WARNING, &(const struct log_subject){.client = text}, "listener",
                        "closed client %s where the PROXY protocol is required: %s (%llu more since the last line)",
                        text, why, (unsigned long long)suppressed);
    }
}

static void on_header(void *context, int fd, const struct client_origin *origin)
{
    struct listener *listener = context;

    listener->worker_pool->clients_proxied += origin->is_proxied ? 1 : 0;
    if (is_let_in(listener, fd, origin)) {
        worker_pool_give_client(listener->worker_pool, fd, origin);
    }
}

static void on_no_header(void *context, const struct client_origin *peer, const char *why)
{
    refuse_proxy(context, peer, why);
}

/* Says nothing to who is no proxy: it may be asked for nothing but a header, and has heard nothing of Redis yet. */
static void receive(struct listener *listener, int fd, const struct client_origin *origin)
{
    if (networks_have(listener->proxies[origin->listener], &origin->address)) {
        reception_take(listener->reception, fd, origin);
    } else {
        close(fd);
        refuse_proxy(listener, origin, "it is not in proxy_from");
    }
}

/* Replaces whom is believed by what conf says. That nobody is can only be meant for after a restart, as the protocol is
 * to be given up, too. */
static void follow_proxies(struct listener *listener, const struct conf *conf)
{
    char problem[CONF_PROBLEM_MAX];

    for (size_t i = 0; i < listener->number_count; i++) {
        const char *text = conf_listener_at(conf, i).terms->proxy_from;
        if (*text != '\0' || listener->proxies[i] == NULL) {
            networks_free(listener->proxies[i]);
            listener->proxies[i] = networks_compile(text, problem);
            assert(listener->proxies[i] != NULL);
        }
    }
}

/* ---- who connects ---- */

static size_t client_count_now(const struct listener *listener)
{
    return worker_pool_clients(listener->worker_pool) + listener_waiting(listener);
}

/* False when there is nothing more to accept now. */
static bool accept_one(struct place *place)
{
    struct listener *listener = place->listener;
    struct client_origin origin = {.listener = place->number, .tls = place->tls};
    socklen_t length = sizeof origin.address;
    int fd = accept4(place->port.fd, (struct sockaddr *)&origin.address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) {
        int reason = errno;
        if (reason == EMFILE || reason == ENFILE) {
            rest(place, reason);
        }
        return reason == EINTR || reason == ECONNABORTED;
    }
    if (!place->is_proxied && !is_let_in(listener, fd, &origin)) {
        return true;
    }
    int beyond = fd - places_for_all();
    bool is_last = beyond >= (int)places_of_port();
    if (is_last || client_count_now(listener) >= listener->max_clients) {
        refuse(listener, fd, place->tls,
               is_last ? "no file descriptors left; raise ulimit -n" : "max_clients are connected");
        return true;
    }
    if (beyond >= 0) {
        rest(place, EMFILE); /* idle lanes make room meanwhile */
    }
    connection_tune(fd, &listener->tuning);
    if (place->is_proxied) {
        receive(listener, fd, &origin);
    } else {
        worker_pool_give_client(listener->worker_pool, fd, &origin);
    }
    return true;
}

static void on_connection(evutil_socket_t fd, short what, void *context)
{
    struct place *place = context;

    (void)fd;
    (void)what;
    for (int i = 0; i < ACCEPT_BURST && accept_one(place) && !evtimer_pending(&place->rest, NULL); i++) {
    }
}

struct opening {
    struct listener *listener;
    const struct conf *conf;
    size_t number;
};

static bool open_place(void *context, struct port_source *source, const struct conf_address *address,
                       const struct connection_target *target)
{
    const struct opening *opening = context;
    struct listener *listener = opening->listener;
    const struct conf *conf = opening->conf;
    struct place *place = &listener->places[listener->count];

    if (!port_open(&place->port, source, target, (int)conf->backlog, (mode_t)conf->unix_socket_mode)) {
        return false;
    }
    place->listener = listener;
    place->number = opening->number;
    place->tls = address->tls;
    place->is_proxied = conf_listener_at(conf, place->number).terms->proxy_protocol == CONF_PROXY_PROTOCOL_REQUIRED;
    event_assign(&place->event, listener->reactor->base, place->port.fd, EV_READ | EV_PERSIST, on_connection, place);
    evtimer_assign(&place->rest, listener->reactor->base, on_rested, place);
    event_add(&place->event, NULL);
    listener->count++;
    return true;
}

/* From the last address to the first: whoever can connect to that one finds all others in place. False with one logged
 * line for each that cannot be opened. */
static bool open_places(struct listener *listener, const struct conf *conf, struct port_source *source)
{
    bool opened = true;

    for (size_t i = listener->number_count; i-- > 0;) {
        struct opening opening = {.listener = listener, .conf = conf, .number = i};
        opened = port_open_all(source, conf_listener_at(conf, i).listen, "listener", open_place, &opening) && opened;
    }
    return opened;
}

static bool open_reception(struct listener *listener)
{
    const struct reception_host host = {.arrived = on_header, .refused = on_no_header, .context = listener};
    bool is_needed = false;

    for (size_t i = 0; i < listener->count; i++) {
        is_needed = is_needed || listener->places[i].is_proxied;
    }
    listener->reception = is_needed ? reception_new(listener->reactor, &host) : NULL;
    return !is_needed || listener->reception != NULL;
}

static struct listener *listener_new(const struct conf *conf)
{
    size_t numbers = conf_listener_count(conf), places = 0;

    for (size_t i = 0; i < numbers; i++) {
        places += conf_listener_at(conf, i).listen->count * CONNECTION_TARGETS_MAX;
    }
    struct listener *listener = calloc(1, sizeof *listener + places * sizeof listener->places[0]);
    if (listener == NULL) {
        return NULL;
    }
    listener->number_count = numbers;
    listener->proxies = conf_alloc(NULL, numbers * sizeof(struct networks *));
    memset(listener->proxies, 0, numbers * sizeof(struct networks *));
    return listener;
}

struct listener *listener_open(struct reactor *reactor, struct worker_pool *worker_pool, const struct conf *conf,
                               struct port_source *source)
{
    struct listener *listener = listener_new(conf);

    if (listener == NULL) {
        return NULL;
    }
    listener->reactor = reactor;
    listener->worker_pool = worker_pool;
    listener_reconfigure(listener, conf);
    if (!open_places(listener, conf, source) || !open_reception(listener)) {
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
    follow_proxies(listener, conf);
}

void listener_bound(struct listener *listener, size_t most)
{
    listener->max_clients = most;
}

/* The kernel would reset who has connected and was not accepted. */
static void close_place(struct place *place)
{
    port_hide(&place->port);
    bool has_workers = place->listener->worker_pool->count > 0;
    for (int i = 0; has_workers && !place->port.is_inherited && i < ACCEPT_LAST && accept_one(place); i++) {
    }
    port_close(&place->port);
}

void listener_stop(struct listener *listener)
{
    for (size_t i = 0; i < listener->count; i++) {
        struct place *place = &listener->places[i];
        event_del(&place->event);
        close_place(place);
        event_del(&place->rest);
    }
    listener->count = 0;
}

void listener_leave(struct listener *listener)
{
    for (size_t i = 0; i < listener->count; i++) {
        struct place *place = &listener->places[i];
        event_del(&place->event);
        if (!place->port.is_left) {
            close_place(place);
        }
        event_del(&place->rest);
    }
}

void listener_resume(struct listener *listener)
{
    for (size_t i = 0; i < listener->count; i++) {
        struct place *place = &listener->places[i];
        if (place->port.fd >= 0) {
            event_add(&place->event, NULL);
        }
    }
}

void listener_hasten(struct listener *listener)
{
    if (listener->reception != NULL) {
        reception_hasten(listener->reception);
    }
}

bool listener_has_successor(const struct listener *listener)
{
    bool has = listener->count > 0;

    for (size_t i = 0; i < listener->count && has; i++) {
        const struct port *port = &listener->places[i].port;
        has = port->fd < 0 || port_has_successor(port);
    }
    return has;
}

size_t listener_waiting(const struct listener *listener)
{
    return listener->reception != NULL ? reception_count(listener->reception) : 0;
}

void listener_close(struct listener *listener)
{
    listener_stop(listener);
    reception_free(listener->reception);
    for (size_t i = 0; i < listener->number_count; i++) {
        networks_free(listener->proxies[i]);
    }
    free(listener->proxies);
    free(listener);
}
