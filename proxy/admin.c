#include "admin_private.h"

#include "log.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SESSIONS_MAX 64
/* A request to the admin port is a few words. Bytes. */
#define REQUEST_MAX 16384
/* What a slow reader may leave unread before nothing more is done for it. Bytes. */
#define OUTPUT_MARK ((size_t)1024 * 1024)
/* With no descriptor left, the next look at who wants to connect comes so much later. µs. */
#define REST_US 50000

/* ---- replies ---- */

void admin_reply_text(struct session_entry *session, const char *text, size_t length)
{
    struct evbuffer *output = bufferevent_get_output(session->stream);

    evbuffer_add_printf(output, "$%zu\r\n", length);
    evbuffer_add(output, text, length);
    evbuffer_add(output, "\r\n", 2);
}

void admin_reply_evbuffer(struct session_entry *session, struct evbuffer *text)
{
    struct evbuffer *output = bufferevent_get_output(session->stream);

    evbuffer_add_printf(output, "$%zu\r\n", evbuffer_get_length(text));
    evbuffer_add_buffer(output, text);
    evbuffer_add(output, "\r\n", 2);
}

void admin_reply_status(struct session_entry *session, const char *text)
{
    evbuffer_add_printf(bufferevent_get_output(session->stream), "+%s\r\n", text);
}

void admin_reply_error(struct session_entry *session, const char *text)
{
    evbuffer_add_printf(bufferevent_get_output(session->stream), "-%s\r\n", text);
}

/* ---- sessions ---- */

static void session_free(struct session_entry *session)
{
    struct session_entry **link = &session->admin->sessions;

    while (*link != session) {
        link = &(*link)->next;
    }
    *link = session->next;
    session->admin->session_count--;
    free(session);
}

static void session_close(struct session_entry *session)
{
    bufferevent_free(session->stream);
    session->stream = NULL;
    session->closed = true;
    if (!session->gathering) {
        session_free(session);
    }
}

/* ---- requests ---- */

/* frame: a whole multibulk command. */
static void run_multibulk(struct session_entry *session, struct slice frame)
{
    struct slice arguments[ADMIN_ARGUMENTS_MAX + 1];
    struct resp_walk walk = resp_walk_start(frame);
    size_t count = 0;

    while (count <= ADMIN_ARGUMENTS_MAX && resp_walk_next(&walk, &arguments[count])) {
        count++;
    }
    if (count > ADMIN_ARGUMENTS_MAX) {
        admin_reply_error(session, "ERR too many arguments; HELP lists the verbs");
    } else if (count > 0) {
        admin_run(session, count, arguments);
    }
}

static void run_inline(struct session_entry *session, struct slice line)
{
    size_t needed = resp_inline_to_multibulk(line, NULL, 0);

    if (needed == SIZE_MAX) {
        admin_reply_error(session, "ERR Protocol error: unbalanced quotes in request");
        session->last = true;
        return;
    }
    char *frame = needed > 0 ? malloc(needed) : NULL;
    if (frame != NULL) {
        (void)resp_inline_to_multibulk(line, frame, needed);
        run_multibulk(session, (struct slice){frame, needed});
        free(frame);
    }
}

/* Takes one request out of the input. False when there is none, or when nothing more is to be taken now. */
static bool request_take(struct session_entry *session)
{
    struct evbuffer *input = bufferevent_get_input(session->stream);
    size_t length = evbuffer_get_length(input);
    size_t scanned = (size_t)session->command.size;
    size_t taken;
    char fault[160];

    if (length == scanned) {
        return false;
    }
    const char *data = (const char *)evbuffer_pullup(input, -1);
    enum resp_status status =
        resp_command_feed(&session->command, data + scanned, length - scanned, REQUEST_MAX, &taken);
    if (status == RESP_FAULT || session->command.size > REQUEST_MAX) {
        size_t size = resp_command_fault_text(&session->command, fault, sizeof fault);
        if (status == RESP_FAULT) {
            evbuffer_add(bufferevent_get_output(session->stream), fault, size);
        } else {
            admin_reply_error(session, "ERR Protocol error: request too long for the admin port");
        }
        session->last = true;
        return false;
    }
    if (status == RESP_MORE) {
        return false;
    }
    struct slice frame = {data, (size_t)session->command.size};
    bool is_inline = resp_command_is_inline(&session->command);
    bool empty = session->command.argument_count == 0;
    resp_command_reset(&session->command);
    if (!empty) {
        (is_inline ? run_inline : run_multibulk)(session, frame);
    }
    evbuffer_drain(input, frame.length);
    return !session->gathering && !session->last;
}

static void requests_take(struct session_entry *session)
{
    struct evbuffer *output = bufferevent_get_output(session->stream);

    while (evbuffer_get_length(output) < OUTPUT_MARK && request_take(session)) {
    }
    if (session->last) {
        bufferevent_disable(session->stream, EV_READ);
        if (evbuffer_get_length(output) == 0) {
            session_close(session);
        }
    }
}

void admin_session_pause(struct session_entry *session)
{
    session->gathering = true;
    bufferevent_disable(session->stream, EV_READ);
}

void admin_session_resume(struct session_entry *session)
{
    session->gathering = false;
    if (session->closed) {
        session_free(session);
    } else if (!session->admin->ending) {
        bufferevent_enable(session->stream, EV_READ);
        requests_take(session);
    }
}

static void on_read(struct bufferevent *stream, void *context)
{
    struct session_entry *session = context;

    (void)stream;
    if (!session->gathering && !session->last) {
        requests_take(session);
    }
}

static void on_written(struct bufferevent *stream, void *context)
{
    struct session_entry *session = context;

    (void)stream;
    if (session->last) {
        session_close(session);
    } else if (!session->gathering) {
        requests_take(session);
    }
}

static void on_event(struct bufferevent *stream, short what, void *context)
{
    (void)stream;
    if ((what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) != 0) {
        session_close(context);
    }
}

/* ---- listening ---- */

static void on_connection(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int length,
                          void *context)
{
    struct admin *admin = context;
    struct session_entry *session = admin->session_count < SESSIONS_MAX ? calloc(1, sizeof *session) : NULL;
    struct bufferevent *stream =
        session != NULL ? bufferevent_socket_new(admin->reactor->base, fd, BEV_OPT_CLOSE_ON_FREE) : NULL;

    (void)listener;
    (void)address;
    (void)length;
    if (stream == NULL) {
        log_warning("admin", "refused a connection: %d are open", SESSIONS_MAX);
        free(session);
        close(fd);
        return;
    }
    session->admin = admin;
    session->stream = stream;
    session->next = admin->sessions;
    admin->sessions = session;
    admin->session_count++;
    bufferevent_setwatermark(stream, EV_READ, 0, REQUEST_MAX * 2);
    bufferevent_setcb(stream, on_read, on_written, on_event, session);
    bufferevent_enable(stream, EV_READ | EV_WRITE);
}

/* Descriptors have run out. Without a pause, the kernel would report the same connection again and again. */
static void on_accept_error(struct evconnlistener *listener, void *context)
{
    const struct timeval rest = {.tv_usec = REST_US};
    struct admin *admin = context;

    (void)listener;
    for (size_t i = 0; i < admin->listener_count; i++) {
        evconnlistener_disable(admin->listeners[i]);
    }
    event_add(&admin->rest, &rest);
}

static void on_rested(evutil_socket_t fd, short what, void *context)
{
    struct admin *admin = context;

    (void)fd;
    (void)what;
    for (size_t i = 0; i < admin->listener_count; i++) {
        evconnlistener_enable(admin->listeners[i]);
    }
}

static bool open_address(struct admin *admin, const struct conf_address *address)
{
    struct connection_target target;
    const char *why = NULL;
    int fd = -1;

    if (connection_resolve(address, &target, &why)) {
        fd = connection_listen(&target, 16, S_IRWXU);
        why = strerror(errno);
    }
    struct evconnlistener *listener =
        fd >= 0 ? evconnlistener_new(admin->reactor->base, on_connection, admin, LEV_OPT_CLOSE_ON_FREE, 0, fd) : NULL;
    if (listener == NULL) {
        log_error("admin", "cannot listen on %s: %s", address->text, why);
        return false;
    }
    evconnlistener_set_error_cb(listener, on_accept_error);
    admin->unix_paths[admin->listener_count] = address->path != NULL ? strdup(address->path) : NULL;
    admin->listeners[admin->listener_count++] = listener;
    return true;
}

struct admin *admin_open(struct reactor *reactor, struct crew *crew, const struct conf *conf,
                         const struct admin_host *host)
{
    struct admin *admin = calloc(1, sizeof *admin);
    bool opened = true;

    if (admin == NULL) {
        return NULL;
    }
    admin->reactor = reactor;
    admin->crew = crew;
    admin->host = *host;
    admin->started_us = clock_now_us();
    evtimer_assign(&admin->rest, reactor->base, on_rested, admin);
    if (!mailbox_open(&admin->mailbox, reactor)) {
        log_error("admin", "cannot open the mailbox: %s", strerror(errno));
        free(admin);
        return NULL;
    }
    for (size_t i = 0; i < conf->admin.count; i++) {
        opened = open_address(admin, &conf->admin.items[i]) && opened;
    }
    if (!opened) {
        admin_close(admin);
        return NULL;
    }
    return admin;
}

/* There will be no turn that writes it. What the socket does not take is lost. */
static void write_rest(struct session_entry *session)
{
    struct evbuffer *output = bufferevent_get_output(session->stream);

    evbuffer_unfreeze(output, 1);
    (void)evbuffer_write(output, bufferevent_getfd(session->stream));
}

void admin_close(struct admin *admin)
{
    event_del(&admin->rest);
    while (admin->listener_count > 0) {
        evconnlistener_free(admin->listeners[--admin->listener_count]);
        if (admin->unix_paths[admin->listener_count] != NULL) {
            unlink(admin->unix_paths[admin->listener_count]);
            free(admin->unix_paths[admin->listener_count]);
        }
    }
    admin->ending = true;
    mailbox_run(&admin->mailbox);
    while (admin->sessions != NULL) {
        /* All answers have come: none is closed but still there. */
        assert(!admin->sessions->gathering);
        write_rest(admin->sessions);
        session_close(admin->sessions);
    }
    mailbox_close(&admin->mailbox);
    free(admin);
}
