/* Answers: texts that several share, lines, and what is told of a snapshot. */
#include "http/http_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ---- */

struct http_text *http_text_new(char *bytes, size_t length)
{
    struct http_text *text = malloc(sizeof *text);

    if (text == NULL) {
        free(bytes);
        return NULL;
    }
    *text = (struct http_text){.users = 1, .length = length, .bytes = bytes};
    return text;
}

void http_text_drop(struct http_text *text)
{
    if (text != NULL && --text->users == 0) {
        free(text->bytes);
        free(text);
    }
}

static void on_text_written(const void *bytes, size_t length, void *context)
{
    (void)bytes;
    (void)length;
    http_text_drop(context);
}

/* ---- answers ---- */

static bool is_head(const struct evhttp_request *request)
{
    return evhttp_request_get_command(request) == EVHTTP_REQ_HEAD;
}

struct http_connection *http_connection_of(struct http *http, struct evhttp_request *request)
{
    struct evhttp_connection *owner = evhttp_request_get_connection(request);
    const struct bufferevent *stream = owner != NULL ? evhttp_connection_get_bufferevent(owner) : NULL;
    struct http_connection *connection;

    LIST_FOREACH(connection, &http->connections, of_http)
    {
        if (connection->stream == stream) {
            return connection;
        }
    }
    return NULL;
}

static void on_complete(struct evhttp_request *request, void *context)
{
    struct http *http = context;
    struct http_connection *connection = http_connection_of(http, request);

    if (connection != NULL) {
        connection->since_us = clock_now_us();
        connection->is_answered = false;
        /* It may be about to be closed. */
        event_active(&http->sweep_soon, EV_TIMEOUT, 1);
    }
}

/* What all answers say: that nobody keeps them, takes them for something else, or shows them within a page of his. */
static void add_headers(struct evhttp_request *request, const char *type, size_t length)
{
    static const char *const headers[][2] = {
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
    };
    struct evkeyvalq *out = evhttp_request_get_output_headers(request);
    char number[32];

    evhttp_add_header(out, "Content-Type", type);
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        evhttp_add_header(out, headers[i][0], headers[i][1]);
    }
    if (evhttp_find_header(out, "Content-Security-Policy") == NULL) {
        evhttp_add_header(out, "Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
    }
    /* evhttp would send the body to HEAD, too, or none of its length. */
    snprintf(number, sizeof number, "%zu", length);
    evhttp_add_header(out, "Content-Length", number);
}

static const char *reason_of(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    default:
        return "Service Unavailable";
    }
}

void http_reply(struct http *http, struct evhttp_request *request, int status, const char *type, struct http_text *text)
{
    struct evbuffer *body = evbuffer_new();

    evhttp_request_set_on_complete_cb(request, on_complete, http);
    add_headers(request, type, text != NULL ? text->length : 0);
    if (http->is_left || (status != 200 && status != 503)) {
        /* Who is not understood, or not wanted, is not listened to any longer; nor who had better ask another process.
         */
        evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
    }
    if (body == NULL || text == NULL || is_head(request)) {
        http_text_drop(text);
    } else if (evbuffer_add_reference(body, text->bytes, text->length, on_text_written, text) != 0) {
        http_text_drop(text);
    }
    evhttp_send_reply(request, status, reason_of(status), body);
    if (body != NULL) {
        evbuffer_free(body);
    }
}

void http_reply_text(struct http *http, struct evhttp_request *request, const char *type, struct http_text *text)
{
    text->users++;
    http_reply(http, request, 200, type, text);
}

void http_reply_line(struct http *http, struct evhttp_request *request, int status, const char *line)
{
    size_t length = strlen(line);
    char *bytes = malloc(length + 2);
    struct http_text *text = NULL;

    if (bytes != NULL) {
        memcpy(bytes, line, length);
        memcpy(bytes + length, "\n", 2);
        text = http_text_new(bytes, length + 1);
    }
    http_reply(http, request, status, "text/plain; charset=utf-8", text);
}

/* ---- from snapshots ---- */

static const char *type_of(enum http_form form)
{
    static const char *const types[] = {
        [HTTP_FORM_JSON] = "application/json",
        [HTTP_FORM_PROMETHEUS] = "text/plain; version=0.0.4; charset=utf-8",
        [HTTP_FORM_OPENMETRICS] = "application/openmetrics-text; version=1.0.0; charset=utf-8",
    };

    return types[form];
}

static struct http_text *write_form(struct http *http, struct http_snapshot *snapshot, enum http_form form)
{
    struct text_stream stream;

    if (snapshot->is_lost || !text_open(&stream)) {
        return NULL;
    }
    if (form == HTTP_FORM_JSON) {
        http_stats_write(http, snapshot, stream.out);
    } else {
        http_metrics_write(http, snapshot, form == HTTP_FORM_OPENMETRICS, stream.out);
    }
    if (!text_close(&stream)) {
        text_free(&stream);
        return NULL;
    }
    return http_text_new(stream.bytes, stream.length);
}

void http_reply_waiting(struct http *http, struct http_waiting *waiting, struct http_snapshot *snapshot)
{
    struct http_text **text = snapshot != NULL ? &snapshot->texts[waiting->form] : NULL;

    if (text == NULL) {
        http_reply_line(http, waiting->request, 503, "Headgate is ending");
    } else {
        *text = *text != NULL ? *text : write_form(http, snapshot, waiting->form);
        if (*text != NULL) {
            http_reply_text(http, waiting->request, type_of(waiting->form), *text);
        } else {
            http_reply_line(http, waiting->request, 503, "out of memory");
        }
    }
    free(waiting);
}
