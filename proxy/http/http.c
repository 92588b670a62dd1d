#include "http/http_private.h"

#include "base/places.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How long a connection may take to bring a whole request, from its beginning or its last answer on, however busily it
 * sends. µs. */
#define REQUEST_PATIENCE_US ((int64_t)10000000)
/* … and to take an answer. */
#define ANSWER_PATIENCE_US ((int64_t)30000000)
/* A second time limit, of evhttp, for what neither sends nor takes anything. s. */
#define SILENCE_S 30
#define HEADERS_MAX ((ev_ssize_t)16384)
/* No request that is answered has a body. */
#define BODY_MAX ((ev_ssize_t)4096)
/* What is read ahead of a client that sends while it is answered; more than a request's headers. */
#define INPUT_MAX ((size_t)65536)
#define BACKLOG 64

/* ---- connections ---- */

/* evhttp takes its callbacks off a stream when it lets go of it. */
static bool is_abandoned(const struct http_connection *connection)
{
    bufferevent_data_cb on_read = NULL, on_write = NULL;
    bufferevent_event_cb on_event = NULL;

    bufferevent_getcb(connection->stream, &on_read, &on_write, &on_event, NULL);
    return on_read == NULL && on_write == NULL && on_event == NULL;
}

static bool is_overdue(const struct http_connection *connection, int64_t now_us)
{
    int64_t patience_us = connection->is_answered ? ANSWER_PATIENCE_US : REQUEST_PATIENCE_US;

    return connection->is_doomed || now_us - connection->since_us > patience_us;
}

static void forget(struct http *http, struct http_connection *connection)
{
    LIST_REMOVE(connection, of_http);
    http->connection_count--;
    bufferevent_decref(connection->stream);
    free(connection);
}

static void switch_listeners(const struct http *http)
{
    bool accepts = !http->is_resting && !http->is_left;

    for (size_t i = 0; i < http->port_count; i++) {
        if (http->bound[i] != NULL && accepts) {
            evconnlistener_enable(http->listeners[i]);
        } else if (http->bound[i] != NULL) {
            evconnlistener_disable(http->listeners[i]);
        }
    }
}

static void rest(struct http *http, bool rests)
{
    http->is_resting = rests;
    switch_listeners(http);
}

static void forget_abandoned(struct http *http)
{
    struct http_connection *connection = LIST_FIRST(&http->connections);

    while (connection != NULL) {
        struct http_connection *next = LIST_NEXT(connection, of_http);
        if (is_abandoned(connection)) {
            forget(http, connection);
        }
        connection = next;
    }
}

/* Frees what evhttp has let go, and ends what is overdue: evhttp sees that nothing more comes, and lets go of it. */
static void sweep(struct http *http)
{
    struct http_connection *connection;
    int64_t now_us = clock_now_us();

    forget_abandoned(http);
    LIST_FOREACH(connection, &http->connections, of_http)
    {
        if (is_overdue(connection, now_us)) {
            (void)shutdown(bufferevent_getfd(connection->stream), SHUT_RDWR);
        }
    }
    if (http->connection_count < places_of_port()) {
        rest(http, false);
    }
    if (http->connection_count == 0) {
        /* Nobody asks, so far. */
        http_snapshot_free(http->snapshot);
        http->snapshot = NULL;
    }
}

static void on_sweep(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    sweep(context);
}

/* Dooms what has waited for a request, or for its answer to be taken, for longest: who has just come is listened to,
 * which may be a probe. If all are doomed, nobody more is accepted for now. */
static void make_room(struct http *http)
{
    struct http_connection *connection, *oldest = NULL;
    uint64_t suppressed;

    /* Later ones in the list have come earlier. */
    LIST_FOREACH(connection, &http->connections, of_http)
    {
        if (!connection->is_doomed && (oldest == NULL || connection->since_us <= oldest->since_us)) {
            oldest = connection;
        }
    }
    if (oldest != NULL) {
        if (log_limiter_take(&http->evictions, clock_now_us(), &suppressed)) {
            log_warning("http",
                        "ended a connection for another one, as too many are open (%llu more since the last line)",
                        (unsigned long long)suppressed);
        }
        oldest->is_doomed = true;
        event_active(&http->sweep_soon, EV_TIMEOUT, 1);
    } else {
        rest(http, true);
    }
}

/* evhttp has accepted a connection, and asks for what it is to read and write by. */
static struct bufferevent *on_accepted(struct event_base *base, void *context)
{
    struct http *http = context;
    struct http_connection *connection = calloc(1, sizeof *connection);
    /* The descriptor is closed with the stream, not before: libevent must not know it any more when it is given anew.
     */
    struct bufferevent *stream = connection != NULL ? bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE) : NULL;

    if (stream == NULL) {
        free(connection);
        return NULL;
    }
    bufferevent_setwatermark(stream, EV_READ, 0, INPUT_MAX);
    bufferevent_incref(stream);
    if (http->connection_count >= places_of_port()) {
        forget_abandoned(http);
    }
    if (http->connection_count >= places_of_port()) {
        make_room(http);
    }
    connection->stream = stream;
    connection->since_us = clock_now_us();
    LIST_INSERT_HEAD(&http->connections, connection, of_http);
    http->connection_count++;
    return stream;
}

/* Descriptors have run out. Until the next sweep, as the kernel would report the same connection again and again.
 * context is evhttp's, which has put it in the place of ours. */
static void on_accept_error(struct evconnlistener *listener, void *context)
{
    (void)context;
    (void)evconnlistener_disable(listener);
}

/* ---- listening ---- */

static bool open_port(void *context, struct port_source *source, const struct conf_address *address,
                      const struct connection_target *target)
{
    struct http *http = context;
    size_t place = http->port_count;
    struct port *port = &http->ports[place];

    (void)address;
    if (!port_open(port, source, target, BACKLOG, S_IRWXU)) {
        return false;
    }
    struct evconnlistener *listener =
        evconnlistener_new(http->reactor->base, NULL, NULL, LEV_OPT_CLOSE_ON_EXEC, 0, port->fd);
    http->bound[place] = listener != NULL ? evhttp_bind_listener(http->server, listener) : NULL;
    if (http->bound[place] == NULL) {
        if (listener != NULL) {
            evconnlistener_free(listener);
        }
        port_close(port);
        errno = ENOMEM;
        return false;
    }
    evconnlistener_set_error_cb(listener, on_accept_error);
    http->listeners[place] = listener;
    http->port_count++;
    return true;
}

static bool make_server(struct http *http)
{
    static const struct timeval second = {.tv_sec = 1};

    http->server = evhttp_new(http->reactor->base);
    if (http->server == NULL || event_add(&http->sweep, &second) != 0) {
        return false;
    }
    evhttp_set_timeout(http->server, SILENCE_S);
    evhttp_set_max_headers_size(http->server, HEADERS_MAX);
    evhttp_set_max_body_size(http->server, BODY_MAX);
    /* All of them, so that we are the ones who say which. */
    evhttp_set_allowed_methods(http->server, UINT16_MAX);
    evhttp_set_gencb(http->server, http_on_request, http);
    evhttp_set_bevcb(http->server, on_accepted, http);
    return true;
}

/* is_used: there are addresses; else it is only there. */
static struct http *make(struct reactor *reactor, const struct servers *servers, const struct http_host *host,
                         bool is_used)
{
    struct http *http = calloc(1, sizeof *http);

    if (http == NULL) {
        return NULL;
    }
    http->reactor = reactor;
    http->servers = servers;
    http->host = *host;
    http->started_us = clock_now_us();
    http->started_s = (int64_t)time(NULL);
    STAILQ_INIT(&http->waiting);
    event_assign(&http->sweep, reactor->base, -1, EV_PERSIST, on_sweep, http);
    event_assign(&http->sweep_soon, reactor->base, -1, 0, on_sweep, http);
    if (gethostname(http->machine, sizeof http->machine - 1) != 0) {
        *http->machine = '\0';
    }
    if (!mailbox_open(&http->mailbox, reactor)) {
        log_error("http", "cannot open the mailbox: %s", strerror(errno));
        free(http);
        return NULL;
    }
    http->counts_before = calloc(servers->count, sizeof http->counts_before[0]);
    if (http->counts_before == NULL || (is_used && (!make_server(http) || !http_page_make(http)))) {
        log_error("http", "out of memory");
        http_close(http);
        return NULL;
    }
    return http;
}

struct http *http_open(struct reactor *reactor, const struct servers *servers, const struct conf *conf,
                       const struct http_host *host, struct port_source *source)
{
    struct http *http = make(reactor, servers, host, conf->http.count > 0);

    if (http != NULL && !port_open_all(source, &conf->http, "http", open_port, http)) {
        http_close(http);
        return NULL;
    }
    return http;
}

bool http_serve(struct http *http)
{
    bool serves = true;

    for (size_t i = 0; i < http->port_count; i++) {
        serves = serves && port_serve(&http->ports[i]);
    }
    if (!serves) {
        log_error("http", "cannot serve at an address of http: %s", strerror(errno));
    }
    return serves;
}

static void stop_listening(struct http *http, size_t place)
{
    if (http->bound[place] != NULL) {
        evhttp_del_accept_socket(http->server, http->bound[place]);
        http->bound[place] = NULL;
        port_close(&http->ports[place]);
    }
}

void http_drain(struct http *http)
{
    for (size_t i = 0; i < http->port_count; i++) {
        if (http->ports[i].is_inherited) {
            stop_listening(http, i);
        }
    }
}

void http_stop_listening(struct http *http)
{
    http->is_left = true;
    for (size_t i = 0; i < http->port_count; i++) {
        stop_listening(http, i);
    }
}

void http_leave_listening(struct http *http)
{
    http->is_left = true;
    switch_listeners(http);
    for (size_t i = 0; i < http->port_count; i++) {
        if (!http->ports[i].is_left) {
            stop_listening(http, i);
        }
    }
}

void http_resume_listening(struct http *http)
{
    http->is_left = false;
    switch_listeners(http);
}

void http_close(struct http *http)
{
    http->is_ending = true;
    mailbox_run(&http->mailbox);
    http_snapshot_end(http);
    http_stop_listening(http);
    if (http->server != NULL) {
        evhttp_free(http->server);
    }
    while (!LIST_EMPTY(&http->connections)) {
        forget(http, LIST_FIRST(&http->connections));
    }
    event_del(&http->sweep);
    event_del(&http->sweep_soon);
    mailbox_close(&http->mailbox);
    http_text_drop(http->page);
    for (size_t i = 0; http->counts_before != NULL && i < http->servers->count; i++) {
        free(http->counts_before[i].list);
    }
    free(http->counts_before);
    free(http);
}
