#include "admin/admin_private.h"

#include "base/places.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* With no descriptor left, the next look at who wants to connect comes so much later. µs. */
#define REST_US 50000

/* ---- listening ---- */

static void refuse(struct admin *admin, int fd, const char *why)
{
    uint64_t suppressed;

    admin_count_refused(admin);
    if (log_limiter_take(&admin->refusals, clock_now_us(), &suppressed)) {
        struct sockaddr_storage address = {0};
        socklen_t length = sizeof address;
        char who[64];
        getpeername(fd, (struct sockaddr *)&address, &length);
        connection_peer_text(&address, who, sizeof who);
        log_warning("admin", "refused the connection of %s: %s (%llu more since the last line)", who, why,
                    (unsigned long long)suppressed);
    }
    close(fd);
}

static bool has_tls(const struct admin *admin, const struct evconnlistener *listener)
{
    size_t place = 0;

    while (admin->listeners[place] != listener) {
        place++;
    }
    return admin->tls[place];
}

static void on_connection(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int length,
                          void *context)
{
    struct admin *admin = context;
    struct sockaddr_storage from = {0};

    if (length > 0) {
        memcpy(&from, address, (size_t)length < sizeof from ? (size_t)length : sizeof from);
    }
    if (admin->session_count >= places_of_port() && !admin_session_make_room(admin)) {
        refuse(admin, fd, "something is gathered for all of those that may be open");
    } else if (admin_session_open(admin, fd, &from, has_tls(admin, listener)) == NULL) {
        refuse(admin, fd, "out of memory");
    }
}

/* Those that are closed stay so. */
static void switch_listeners(const struct admin *admin, bool accepts)
{
    for (size_t i = 0; i < admin->listener_count; i++) {
        if (admin->listeners[i] != NULL && accepts) {
            evconnlistener_enable(admin->listeners[i]);
        } else if (admin->listeners[i] != NULL) {
            evconnlistener_disable(admin->listeners[i]);
        }
    }
}

/* Descriptors have run out. Without a pause, the kernel would report the same connection again and again. */
static void on_accept_error(struct evconnlistener *listener, void *context)
{
    const struct timeval rest = {.tv_usec = REST_US};
    struct admin *admin = context;

    (void)listener;
    if (event_add(&admin->rest, &rest) != 0) {
        return;
    }
    switch_listeners(admin, false);
}

static void on_rested(evutil_socket_t fd, short what, void *context)
{
    struct admin *admin = context;

    (void)fd;
    (void)what;
    switch_listeners(admin, true);
}

static bool open_port(void *context, struct port_source *source, const struct conf_address *address,
                      const struct connection_target *target)
{
    struct admin *admin = context;
    size_t place = admin->listener_count;

    if (!port_open(&admin->ports[place], source, target, 16, S_IRWXU)) {
        return false;
    }
    admin->listeners[place] =
        evconnlistener_new(admin->reactor->base, on_connection, admin, 0, 0, admin->ports[place].fd);
    if (admin->listeners[place] == NULL) {
        port_close(&admin->ports[place]);
        errno = ENOMEM;
        return false;
    }
    evconnlistener_set_error_cb(admin->listeners[place], on_accept_error);
    admin->tls[place] = address->tls;
    admin->listener_count++;
    return true;
}

struct admin *admin_open(struct reactor *reactor, struct servers *servers, const struct conf *conf,
                         const struct admin_host *host, struct port_source *source)
{
    struct admin *admin = calloc(1, sizeof *admin);

    if (admin == NULL) {
        return NULL;
    }
    admin->reactor = reactor;
    admin->servers = servers;
    admin->host = *host;
    admin->started_us = clock_now_us();
    admin->started_s = clock_wall_us() / 1000000;
    evtimer_assign(&admin->rest, reactor->base, on_rested, admin);
    if (!mailbox_open(&admin->mailbox, reactor)) {
        log_error("admin", "cannot open the mailbox: %s", strerror(errno));
        free(admin);
        return NULL;
    }
    if (!port_open_all(source, &conf->admin, "admin", open_port, admin)) {
        admin_close(admin);
        return NULL;
    }
    return admin;
}

bool admin_serve(struct admin *admin)
{
    bool serves = true;

    for (size_t i = 0; i < admin->listener_count; i++) {
        serves = serves && port_serve(&admin->ports[i]);
    }
    if (!serves) {
        log_error("admin", "cannot serve at an address of admin: %s", strerror(errno));
    }
    return serves;
}

static void stop_at(struct admin *admin, size_t place)
{
    if (admin->listeners[place] != NULL) {
        evconnlistener_free(admin->listeners[place]);
        admin->listeners[place] = NULL;
        port_close(&admin->ports[place]);
    }
}

void admin_stop_listening(struct admin *admin)
{
    event_del(&admin->rest);
    for (size_t i = 0; i < admin->listener_count; i++) {
        stop_at(admin, i);
    }
    admin->listener_count = 0;
}

void admin_leave_listening(struct admin *admin)
{
    event_del(&admin->rest);
    switch_listeners(admin, false);
    for (size_t i = 0; i < admin->listener_count; i++) {
        if (!admin->ports[i].is_left) {
            stop_at(admin, i);
        }
    }
}

void admin_resume_listening(struct admin *admin)
{
    switch_listeners(admin, true);
}

void admin_close(struct admin *admin)
{
    admin_stop_listening(admin);
    admin->ending = true;
    mailbox_run(&admin->mailbox);
    admin_config_end(admin);
    admin_streams_end(admin);
    while (!LIST_EMPTY(&admin->sessions)) {
        struct session_entry *session = LIST_FIRST(&admin->sessions);
        /* All answers have come: none is closed but still there. */
        assert(!session->gathering);
        admin_session_write_rest(session);
        admin_session_close(session);
    }
    mailbox_close(&admin->mailbox);
    admin_free_bases(admin);
    free(admin);
}
