/*
 * Connections with TLS. Until the handshake is done they are with the handshaker, and nothing is watched, whatever is
 * wanted. Then the socket's events come here first. libevent does not know of plain bytes that wait inside, so whatever
 * is left of a read is announced as long as reading is wanted.
 */
#include "net/connection_private.h"

#include "event/handshaker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct connection_secure {
    struct connection *connection; /* whose it is */
    struct tls *tls;
    struct handshake *handshake; /* NULL: it is over */
    connection_callback *readable;
    connection_callback *writable;
    void *context;
    bool watches_read;
    bool watches_write;
};

/* ---- what is watched ---- */

static void watch(struct connection *connection)
{
    struct connection_secure *secure = connection->secure;
    enum tls_state state = tls_state(secure->tls);
    bool waits = state != TLS_FAILED && tls_wants_write(secure->tls);
    bool reads = state == TLS_OPEN && connection->reading;
    bool writes = waits || (state == TLS_OPEN && connection->writing);

    if (secure->watches_read != reads) {
        connection_watch_event(&connection->read_event, &secure->watches_read, reads);
    }
    if (secure->watches_write != writes) {
        connection_watch_event(&connection->write_event, &secure->watches_write, writes);
    }
}

/* Of one that has failed the socket tells nobody any more: whoever wants anything of it is told. */
static void announce_input(struct connection *connection)
{
    struct connection_secure *secure = connection->secure;
    enum tls_state state = tls_state(secure->tls);

    if (connection->reading && tls_has_input(secure->tls)) {
        event_active(&connection->read_event, EV_READ, 1);
    } else if (connection->writing && state == TLS_FAILED) {
        event_active(&connection->write_event, EV_WRITE, 1);
    }
}

/* Somebody has to find out. */
static void announce_failure(struct connection *connection)
{
    if (connection->reading) {
        event_active(&connection->read_event, EV_READ, 1);
    } else {
        event_active(&connection->write_event, EV_WRITE, 1);
    }
}

void connection_secure_watch(struct connection *connection)
{
    if (connection->secure->handshake == NULL) {
        watch(connection);
        announce_input(connection);
    }
}

/* ---- the handshake ---- */

/* Whoever is above learns that the handshake is done, even if nothing has come behind it. */
static void announce_end(struct connection *connection)
{
    if (connection->reading) {
        event_active(&connection->read_event, EV_READ, 1);
    }
}

static void on_handshake(void *context)
{
    struct connection_secure *secure = context;
    struct connection *connection = secure->connection;

    secure->handshake = NULL;
    watch(connection);
    if (tls_state(secure->tls) == TLS_FAILED) {
        announce_failure(connection);
    } else {
        announce_end(connection);
    }
}

/* ---- events ---- */

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    const struct connection *connection = context;
    const struct connection_secure *secure = connection->secure;

    secure->readable(fd, what, secure->context);
}

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    struct connection *connection = context;
    struct connection_secure *secure = connection->secure;
    bool waits = tls_state(secure->tls) != TLS_FAILED && tls_wants_write(secure->tls);

    if (waits && !tls_flush(secure->tls)) {
        tls_fail(secure->tls, TLS_FAILURE_OTHER, strerror(errno));
        watch(connection);
        announce_failure(connection);
        return;
    }
    if ((waits && tls_wants_write(secure->tls)) || (tls_state(secure->tls) == TLS_OPEN && !connection->writing)) {
        watch(connection);
        return;
    }
    secure->writable(fd, what, secure->context);
}

static void assign(struct connection *connection)
{
    struct event_base *base = connection->reactor->base;

    event_assign(&connection->read_event, base, connection->fd, EV_READ | EV_PERSIST, on_readable, connection);
    event_assign(&connection->write_event, base, connection->fd, EV_WRITE | EV_PERSIST, on_writable, connection);
}

/* ---- life ---- */

static bool has_wire(struct reactor *reactor)
{
    if (reactor->wire == NULL) {
        reactor->wire = tls_wire_new(&reactor->buffers);
    }
    return reactor->wire != NULL;
}

bool connection_prepare_security(struct reactor *reactor, bool is_client)
{
    struct handshaker **handshaker = &reactor->handshakers[is_client];

    if (has_wire(reactor) && *handshaker == NULL) {
        *handshaker = handshaker_new(reactor, is_client);
    }
    return *handshaker != NULL;
}

static struct connection_secure *make(struct connection *connection, const struct connection_security *security)
{
    struct connection_secure *secure = calloc(1, sizeof *secure);

    if (secure == NULL || !connection_prepare_security(connection->reactor, security->host == NULL)) {
        free(secure);
        return NULL;
    }
    secure->tls = tls_new(security->context, connection->reactor->wire, connection->fd, security->host);
    if (secure->tls == NULL) {
        free(secure);
        return NULL;
    }
    secure->connection = connection;
    secure->readable = event_get_callback(&connection->read_event);
    secure->writable = event_get_callback(&connection->write_event);
    secure->context = event_get_callback_arg(&connection->read_event);
    return secure;
}

static bool begin_handshake(struct connection_secure *secure, const struct connection_security *security)
{
    const struct connection *connection = secure->connection;
    const struct handshake_order order = {
        .tls = secure->tls,
        .fd = connection->fd,
        .begins = security->host != NULL,
        .timeout_ms = security->timeout_ms,
        .most = security->most,
        .ended = on_handshake,
        .context = secure,
    };

    secure->handshake = handshaker_begin(connection->reactor->handshakers[!order.begins], &order);
    return secure->handshake != NULL;
}

bool connection_secure(struct connection *connection, const struct connection_security *security)
{
    struct connection_secure *secure = make(connection, security);

    if (secure == NULL) {
        return false;
    }
    if (!begin_handshake(secure, security)) {
        tls_free(secure->tls);
        free(secure);
        return false;
    }
    event_del(&connection->read_event);
    event_del(&connection->write_event);
    connection->secure = secure;
    assign(connection);
    return true;
}

static void forget_events(struct connection *connection)
{
    event_del(&connection->read_event);
    event_del(&connection->write_event);
    connection->secure->watches_read = false;
    connection->secure->watches_write = false;
}

void connection_secure_close(struct connection *connection)
{
    forget_events(connection);
    connection->reading = false;
    connection->writing = false;
    if (connection->secure->handshake != NULL) {
        handshaker_drop(connection->secure->handshake);
        connection->fd = -1;
    } else {
        tls_free(connection->secure->tls);
    }
    free(connection->secure);
    connection->secure = NULL;
}

void connection_secure_move(struct connection *to, struct connection *from, connection_callback *readable,
                            connection_callback *writable, void *context)
{
    forget_events(from);
    to->secure = from->secure;
    to->secure->connection = to;
    from->secure = NULL;
    to->secure->readable = readable;
    to->secure->writable = writable;
    to->secure->context = context;
    assign(to);
    connection_secure_watch(to);
}

enum connection_secrecy connection_secrecy(const struct connection *connection)
{
    const struct connection_secure *secure = connection->secure;

    if (secure == NULL) {
        return CONNECTION_PLAIN;
    }
    if (secure->handshake != NULL) {
        return CONNECTION_SECURING;
    }
    return tls_state(secure->tls) == TLS_OPEN ? CONNECTION_SECURE : CONNECTION_INSECURE;
}

const struct tls *connection_tls(const struct connection *connection)
{
    const struct connection_secure *secure = connection->secure;

    return secure != NULL && secure->handshake == NULL ? secure->tls : NULL;
}

/* ---- reading and writing ---- */

static ssize_t result_of(struct connection *connection, ssize_t done)
{
    watch(connection);
    if (done == TLS_BROKEN) {
        errno = EPROTO;
        return CONNECTION_BROKEN;
    }
    return done == TLS_AGAIN ? CONNECTION_AGAIN : done;
}

ssize_t connection_secure_read(struct connection *connection, char *data, size_t size)
{
    if (connection->secure->handshake != NULL) {
        return CONNECTION_AGAIN;
    }
    ssize_t got = tls_read(connection->secure->tls, data, size);
    ssize_t result = result_of(connection, got);

    if (got > 0) {
        /* Behind what was read may be a failure; what is not watched any more would not be announced before. */
        announce_input(connection);
    }
    return result;
}

ssize_t connection_secure_write(struct connection *connection, const char *data, size_t size)
{
    if (connection->secure->handshake != NULL) {
        return CONNECTION_AGAIN;
    }
    ssize_t result = result_of(connection, tls_write(connection->secure->tls, data, size));

    if (result > 0 && tls_state(connection->secure->tls) == TLS_FAILED) {
        announce_input(connection);
    }
    return result;
}

void connection_secure_end(struct connection *connection)
{
    if (connection->secure->handshake != NULL) {
        shutdown(connection->fd, SHUT_WR);
        return;
    }
    tls_end_output(connection->secure->tls);
    watch(connection);
}
