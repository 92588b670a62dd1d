/*
 * What is served by HTTP: /metrics for Prometheus, /live and /ready for whoever looks after the process, /stats.json,
 * and a page for people, all of it to look at only. It lives on the main thread, by evhttp of libevent, and gets what
 * workers know by messages, a little at a time, and at most some times a second however many ask.
 */
#ifndef HEADGATE_HTTP_H
#define HEADGATE_HTTP_H

#include "net/port.h"
#include "worker/servers.h"

struct http;

/* How the process is. */
struct http_process {
    bool is_draining;
    int64_t reloaded_s;     /* when the configuration was read last and taken over, Unix time; at first the start */
    bool reload_has_failed; /* the last time that it was read */
};

/* What is asked of the process. */
struct http_host {
    /* The configuration in force; valid until the next loop iteration. */
    const struct conf *(*conf)(void *context);
    struct http_process (*process)(void *context);
    void *context;
};

/* Opens all of conf->http, for http_serve(). NULL with one logged line for each address that cannot be used. source is
 * needed within the call only. */
struct http *http_open(struct reactor *reactor, const struct servers *servers, const struct conf *conf,
                       const struct http_host *host, struct port_source *source);
/* Takes its addresses over from who serves there (port.h). False with one logged line. */
bool http_serve(struct http *http);
/* The process drains. Who asks is still answered, so that /ready can say so; but sockets that are handed over are left
 * to the next process at once. */
void http_drain(struct http *http);
/* Leaves all of its addresses to others at once; connections that there are stay until they are answered once more. */
void http_stop_listening(struct http *http);
/* The same, but the sockets that another process has taken over are kept, for http_resume_listening(). */
void http_leave_listening(struct http *http);
void http_resume_listening(struct http *http);
/* Closes all connections. The workers must send nothing more: stop the worker pool first. */
void http_close(struct http *http);

#endif
