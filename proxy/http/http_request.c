/* What is asked for, and answers. */
#include "http/http_private.h"

#include <inttypes.h>
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

static void reply(struct http *http, struct evhttp_request *request, int status, const char *type,
                  struct http_text *text)
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
    reply(http, request, 200, type, text);
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
    reply(http, request, status, "text/plain; charset=utf-8", text);
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

/* ---- what is asked for ---- */

static void answer_live(struct http *http, struct evhttp_request *request)
{
    http_reply_line(http, request, 200, "live");
}

static void answer_ready(struct http *http, struct evhttp_request *request)
{
    char why[HTTP_WHY_SIZE];
    bool is_ready = http_is_ready(http, why);

    http_reply_line(http, request, is_ready ? 200 : 503, why);
}

static void answer_metrics(struct http *http, struct evhttp_request *request)
{
    const char *accept = evhttp_find_header(evhttp_request_get_input_headers(request), "Accept");
    bool openmetrics = accept != NULL && strstr(accept, "application/openmetrics-text") != NULL;

    http_snapshot_want(http, request, openmetrics ? HTTP_FORM_OPENMETRICS : HTTP_FORM_PROMETHEUS);
}

static void answer_stats(struct http *http, struct evhttp_request *request)
{
    http_snapshot_want(http, request, HTTP_FORM_JSON);
}

static void answer_counters(struct http *http, struct evhttp_request *request)
{
    struct text_stream stream;

    if (!text_open(&stream)) {
        http_reply_line(http, request, 503, "out of memory");
        return;
    }
    http_stats_explain(http, stream.out);
    bool is_whole = text_close(&stream);
    struct http_text *text = is_whole ? http_text_new(stream.bytes, stream.length) : NULL;
    if (text != NULL) {
        reply(http, request, 200, "application/json", text);
    } else {
        if (!is_whole) {
            text_free(&stream);
        }
        http_reply_line(http, request, 503, "out of memory");
    }
}

static void answer_page(struct http *http, struct evhttp_request *request)
{
    evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Security-Policy", http->page_policy);
    http_reply_text(http, request, "text/html; charset=utf-8", http->page);
}

static const struct path {
    const char *path;
    void (*answer)(struct http *http, struct evhttp_request *request);
    bool is_probe;
    bool is_page;
} paths[] = {
    {"/", answer_page, false, true},
    {"/metrics", answer_metrics, false, false},
    {"/stats.json", answer_stats, false, false},
    {"/counters.json", answer_counters, false, false},
    {"/live", answer_live, true, false},
    {"/ready", answer_ready, true, false},
};

#define PATHS (sizeof paths / sizeof paths[0])

static const struct path *find_path(const struct evhttp_request *request)
{
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *asked = uri != NULL ? evhttp_uri_get_path(uri) : NULL;

    for (size_t i = 0; asked != NULL && i < PATHS; i++) {
        if (strcmp(paths[i].path, asked) == 0) {
            return &paths[i];
        }
    }
    return NULL;
}

static bool only_looks(struct http *http, struct evhttp_request *request)
{
    enum evhttp_cmd_type method = evhttp_request_get_command(request);

    if (method == EVHTTP_REQ_GET || method == EVHTTP_REQ_HEAD) {
        return true;
    }
    evhttp_add_header(evhttp_request_get_output_headers(request), "Allow", "GET, HEAD");
    http_reply_line(http, request, 405, "Nothing can be changed here: GET and HEAD only. The admin port takes orders");
    return false;
}

void http_on_request(struct evhttp_request *request, void *context)
{
    struct http *http = context;
    struct http_connection *connection = http_connection_of(http, request);
    const struct path *path = find_path(request);

    if (connection != NULL) {
        connection->is_answered = true;
        connection->since_us = clock_now_us();
    }
    if (!only_looks(http, request) ||
        !http_guard_admits(http, request, path != NULL && path->is_probe, path != NULL && path->is_page)) {
        return;
    }
    if (path == NULL) {
        http_reply_line(http, request, 404, "There is /, /metrics, /stats.json, /counters.json, /live and /ready");
    } else {
        path->answer(http, request);
    }
}
