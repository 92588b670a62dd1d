/* What is asked for. */
#include "http/http_private.h"

#include <string.h>

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
        http_reply(http, request, 200, "application/json", text);
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
