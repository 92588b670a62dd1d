#include "topology/contact.h"

#include "resp/resp.h"
#include "tls/tls_context.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The longest answer. A sentinel that watches many masters tells of one at a time. */
#define ANSWER_MAX ((size_t)256 * 1024)

struct contact {
    struct reactor *reactor;
    const struct contact_events *events;
    void *context;
    struct connection connection;
    struct connection_target target;
    struct tls_context *tls;
    char *host;
    struct event timer;
    int64_t timeout_us;
    struct buffer output;
    struct buffer answer;    /* the one that is coming in */
    struct resp_reply frame; /* … as far as it has come */
    size_t owed;
    bool is_open;      /* connected, with TLS if it is to have that */
    bool is_logged_in; /* … and ready() was called */
    bool is_logging_in;
    bool is_busy;  /* a call is under way, after which it is freed … */
    bool is_freed; /* … if so */
};

static void destroy(struct contact *contact)
{
    event_del(&contact->timer);
    connection_close(&contact->connection);
    buffer_clear(&contact->reactor->buffers, &contact->output);
    buffer_clear(&contact->reactor->buffers, &contact->answer);
    tls_context_release(contact->tls);
    free(contact->host);
    free(contact);
}

void contact_free(struct contact *contact)
{
    if (contact == NULL) {
        return;
    }
    contact->is_freed = true;
    if (!contact->is_busy) {
        destroy(contact);
    }
}

size_t contact_owed(const struct contact *contact)
{
    return contact->owed;
}

const struct connection_target *contact_target(const struct contact *contact)
{
    return &contact->target;
}

/* The last call. */
static void fail(struct contact *contact, const char *why)
{
    char copy[256];

    if (contact->is_freed) {
        return;
    }
    /* What TLS has to say goes with the connection. */
    snprintf(copy, sizeof copy, "%s", why);
    contact->is_freed = true;
    contact->events->closed(contact->context, copy);
}

/* ---- time ---- */

static void set_timer(struct contact *contact)
{
    const struct timeval wait = {.tv_sec = contact->timeout_us / 1000000, .tv_usec = contact->timeout_us % 1000000};

    event_add(&contact->timer, &wait);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct contact *contact = context;

    (void)fd;
    (void)what;
    contact->is_busy = true;
    fail(contact, contact->is_open ? "no answer in time" : "no connection in time");
    destroy(contact);
}

/* ---- bytes out ---- */

static void flush(struct contact *contact)
{
    while (buffer_length(&contact->output) > 0) {
        ssize_t written =
            connection_write(&contact->connection, buffer_head(&contact->output), buffer_length(&contact->output));
        if (written == CONNECTION_BROKEN) {
            fail(contact, connection_why(&contact->connection));
            return;
        }
        if (written <= 0) {
            break;
        }
        buffer_consume(&contact->reactor->buffers, &contact->output, (size_t)written);
    }
    connection_want_write(&contact->connection, buffer_length(&contact->output) > 0);
}

static bool append(struct contact *contact, const char *text, size_t length)
{
    return buffer_append(&contact->reactor->buffers, &contact->output, text, length);
}

static bool append_command(struct contact *contact, size_t count, const char *const *arguments)
{
    char head[32];
    bool kept = append(contact, head, (size_t)snprintf(head, sizeof head, "*%zu\r\n", count));

    for (size_t i = 0; i < count && kept; i++) {
        size_t length = strlen(arguments[i]);
        kept = append(contact, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", length)) &&
               append(contact, arguments[i], length) && append(contact, "\r\n", 2);
    }
    return kept;
}

/* If there is no memory for it, nothing is sent, and the time for the answer passes. */
void contact_ask(struct contact *contact, size_t count, const char *const *arguments)
{
    size_t before = buffer_length(&contact->output);

    if (!append_command(contact, count, arguments)) {
        buffer_truncate(&contact->output, before);
    }
    if (contact->owed == 0) {
        set_timer(contact);
    }
    contact->owed++;
    if (contact->is_open) {
        connection_want_write(&contact->connection, true);
    }
}

/* ---- answers ---- */

static void begin_session(struct contact *contact)
{
    contact->is_logged_in = true;
    contact->events->ready(contact->context);
}

static void take_login(struct contact *contact, const redisReply *reply)
{
    char why[200];

    contact->is_logging_in = false;
    if (reply->type != REDIS_REPLY_ERROR) {
        begin_session(contact);
        return;
    }
    snprintf(why, sizeof why, "it does not take the password: %s", reply->str);
    fail(contact, why);
}

static void take_answer(struct contact *contact, const redisReply *reply)
{
    contact->owed -= contact->owed > 0 ? 1 : 0;
    event_del(&contact->timer);
    if (contact->owed > 0) {
        set_timer(contact);
    }
    if (contact->is_logging_in) {
        take_login(contact, reply);
    } else {
        contact->events->answer(contact->context, reply);
    }
}

static void parse_answer(struct contact *contact)
{
    redisReader *reader = redisReaderCreate();
    void *parsed = NULL;
    bool is_read =
        reader != NULL &&
        redisReaderFeed(reader, buffer_head(&contact->answer), buffer_length(&contact->answer)) == REDIS_OK &&
        redisReaderGetReply(reader, &parsed) == REDIS_OK && parsed != NULL;

    buffer_clear(&contact->reactor->buffers, &contact->answer);
    if (is_read) {
        take_answer(contact, parsed);
        freeReplyObject(parsed);
    } else {
        fail(contact, "its answer could not be read");
    }
    if (reader != NULL) {
        redisReaderFree(reader);
    }
}

static void take_bytes(struct contact *contact, const char *data, size_t length)
{
    while (length > 0 && !contact->is_freed) {
        size_t taken;
        enum resp_status status = resp_reply_feed(&contact->frame, data, length, &taken);
        if (status == RESP_FAULT) {
            fail(contact, "what it answers is not RESP");
        } else if (contact->frame.size > ANSWER_MAX) {
            fail(contact, "its answer is too long");
        } else if (!buffer_append(&contact->reactor->buffers, &contact->answer, data, taken)) {
            fail(contact, "out of memory");
        } else if (status == RESP_DONE) {
            resp_reply_reset(&contact->frame);
            parse_answer(contact);
        }
        data += taken;
        length -= taken;
    }
}

static void read_some(struct contact *contact)
{
    ssize_t got = connection_read(&contact->connection, contact->reactor->scratch, REACTOR_SCRATCH_SIZE);

    if (got > 0) {
        take_bytes(contact, contact->reactor->scratch, (size_t)got);
    } else if (got != CONNECTION_AGAIN) {
        fail(contact, got == 0 ? "it closed the connection" : connection_why(&contact->connection));
    }
}

/* ---- connecting ---- */

static void now_open(struct contact *contact)
{
    contact->is_open = true;
    event_del(&contact->timer);
    connection_want_read(&contact->connection, true);
    if (contact->is_logging_in) {
        set_timer(contact);
        flush(contact);
    } else {
        begin_session(contact);
    }
}

static void begin_tls(struct contact *contact)
{
    const struct connection_security security = {.context = contact->tls, .host = contact->host};

    if (!connection_secure(&contact->connection, &security)) {
        fail(contact, "there is no memory for TLS, or no name that its certificate could have");
    }
}

static void go_on_connecting(struct contact *contact)
{
    enum connection_secrecy secrecy = connection_secrecy(&contact->connection);
    int outcome = secrecy == CONNECTION_PLAIN ? connection_outcome(contact->connection.fd) : 0;
    char why[200];

    if (secrecy == CONNECTION_INSECURE) {
        snprintf(why, sizeof why, "TLS: %s", connection_why(&contact->connection));
        fail(contact, why);
    } else if (outcome != 0) {
        fail(contact, strerror(outcome));
    } else if (contact->tls != NULL && secrecy == CONNECTION_PLAIN) {
        begin_tls(contact);
    } else if (secrecy != CONNECTION_SECURING) {
        now_open(contact);
    }
}

static void end_call(struct contact *contact)
{
    contact->is_busy = false;
    if (contact->is_freed) {
        destroy(contact);
    } else if (contact->is_open) {
        contact->is_busy = true;
        flush(contact);
        contact->is_busy = false;
        if (contact->is_freed) {
            destroy(contact);
        }
    }
}

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct contact *contact = context;

    (void)fd;
    (void)what;
    contact->is_busy = true;
    read_some(contact);
    end_call(contact);
}

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    struct contact *contact = context;

    (void)fd;
    (void)what;
    contact->is_busy = true;
    if (!contact->is_open) {
        go_on_connecting(contact);
    }
    end_call(contact);
}

/* False when memory is short. */
static bool prepare_login(struct contact *contact, const struct contact_settings *settings)
{
    const char *const arguments[] = {"AUTH", settings->user, settings->password};
    const char *const alone[] = {"AUTH", settings->password};

    if (*settings->password == '\0') {
        return true;
    }
    contact->is_logging_in = true;
    contact->owed = 1;
    return *settings->user != '\0' ? append_command(contact, 3, arguments) : append_command(contact, 2, alone);
}

struct contact *contact_new(struct reactor *reactor, const struct contact_settings *settings,
                            const struct contact_events *events, void *context)
{
    int fd = connection_start(settings->target, INT_MAX);
    struct contact *contact = fd >= 0 ? calloc(1, sizeof *contact) : NULL;

    if (contact == NULL) {
        if (fd >= 0) {
            evutil_closesocket(fd);
        }
        return NULL;
    }
    contact->reactor = reactor;
    contact->events = events;
    contact->context = context;
    contact->target = *settings->target;
    contact->tls = tls_context_hold(settings->tls);
    contact->host = settings->host != NULL ? strdup(settings->host) : NULL;
    contact->timeout_us = clock_ms_to_us(settings->timeout_ms);
    connection_tune(fd, &settings->tuning);
    connection_open(&contact->connection, reactor, fd, on_readable, on_writable, contact);
    evtimer_assign(&contact->timer, reactor->base, on_timer, contact);
    if ((settings->host != NULL && contact->host == NULL) || !prepare_login(contact, settings)) {
        destroy(contact);
        return NULL;
    }
    connection_want_write(&contact->connection, true);
    set_timer(contact);
    return contact;
}
