/*
 * What the files of HTTP share:
 *
 *   http.c           listening; connections, and how long they may stay
 *   http_request.c   what is asked for
 *   http_reply.c     answers
 *   http_guard.c     who is not answered: other sites, wrong names, wrong passwords
 *   http_snapshot.c  what workers tell, gathered
 *   http_metrics.c   a snapshot as text for Prometheus
 *   http_stats.c     … as JSON
 *   http_json.c      the lines of verbs as JSON
 *   http_page.c      the page
 *
 *   request ─► guard ─► snapshot (one at a time for all who ask) ─► text, made once, which all answers share
 */
#ifndef HEADGATE_HTTP_PRIVATE_H
#define HEADGATE_HTTP_PRIVATE_H

#include "http/http.h"

#include "base/log.h"
#include "base/text.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <sys/queue.h>

/* ---- connections ---- */

struct http_connection {
    LIST_ENTRY(http_connection) of_http;
    struct bufferevent *stream; /* ours as well as evhttp's, which may have let go of it */
    int64_t since_us;           /* when it was opened, or its last answer was out, or a request was whole */
    bool is_answered;           /* a request of it is being answered */
    bool is_doomed;             /* to be ended by the next sweep */
};

/* ---- texts ---- */

/* A text that several answers are made of; freed with the last of them. */
struct http_text {
    size_t users;
    size_t length;
    char *bytes;
};

enum http_form { HTTP_FORM_JSON, HTTP_FORM_PROMETHEUS, HTTP_FORM_OPENMETRICS, HTTP_FORMS };

/* ---- what workers tell ---- */

/* Clients and lanes that are shown, of all. */
#define HTTP_ROWS_MAX 50
#define HTTP_NAME_SIZE 80

struct http_client_row {
    uint64_t id;
    size_t server; /* its place in the list */
    size_t worker;
    char address[HTTP_NAME_SIZE];
    char name[HTTP_NAME_SIZE];
    char user[HTTP_NAME_SIZE];
    char identity[HTTP_NAME_SIZE];
    char lane[HTTP_NAME_SIZE];
    int64_t database;
    int resp;
    int64_t age_us;
    int64_t idle_us;
    uint32_t in_flight;
    size_t input_bytes;
    size_t output_bytes;
};

struct http_lane_row {
    uint64_t id;
    size_t server;
    size_t worker;
    char use[HTTP_NAME_SIZE];
    char state[HTTP_NAME_SIZE];
    char user[HTTP_NAME_SIZE];
    int64_t database;
    int resp;
    uint64_t waiting;
    size_t output_bytes;
    int64_t idle_us;
    unsigned failures;
};

struct http_bucket {
    uint32_t index; /* of policy_durations */
    uint64_t count;
};

/* What struct policy_durations says, kept. */
struct http_operation {
    uint32_t number;
    char *name;
    uint64_t count;
    uint64_t errors;
    uint64_t sum_us;
    uint64_t min_us;
    uint64_t max_us;
    uint64_t request_bytes;
    uint64_t reply_bytes;
    struct http_bucket *buckets; /* that are not empty */
    size_t bucket_count;
};

/* What verbs of policies answer that are shown, in the order of http_verbs. */
#define HTTP_VERBS 6

struct http_verb {
    const char *field; /* of the JSON */
    const char *words[3];
};

extern const struct http_verb http_verbs[HTTP_VERBS];

/* What the workers of one server have told. */
struct http_part {
    struct worker_facts facts;
    struct http_operation *operations;
    size_t operation_count;
    size_t operation_room;
    struct text_stream answers[HTTP_VERBS]; /* bytes NULL: there is none, or memory was short */
    bool is_refused[HTTP_VERBS];            /* the answer is an error */
};

/* What all workers have told. It belongs to the worker whose turn it is while it is gathered, and to the main thread
 * then. */
struct http_snapshot {
    bool is_whole; /* with what only JSON has: clients, lanes, verbs */
    bool is_lost;  /* memory was short: something is missing */
    int64_t at_us;
    size_t client_count;
    size_t clients_shown;
    struct http_client_row clients[HTTP_ROWS_MAX];
    size_t lane_count;
    size_t lanes_shown;
    struct http_lane_row lanes[HTTP_ROWS_MAX];
    struct http_text *texts[HTTP_FORMS]; /* made when they are first asked for */
    size_t part_count;
    struct http_part parts[]; /* one for each server, in their order */
};

struct http_gathering;

/* Somebody who waits for a snapshot. */
struct http_waiting {
    STAILQ_ENTRY(http_waiting) next;
    struct evhttp_request *request;
    enum http_form form;
};

/* How often each operation had been asked for, by its number, in the last JSON that was written. */
struct http_counts {
    uint64_t *list;
    size_t room;
};

struct http {
    struct reactor *reactor;
    const struct servers *servers;
    struct http_host host;
    struct evhttp *server;
    struct port ports[PORT_OPEN_MAX];
    struct evhttp_bound_socket *bound[PORT_OPEN_MAX]; /* NULL: closed */
    struct evconnlistener *listeners[PORT_OPEN_MAX];
    size_t port_count;
    bool is_left;    /* another process has its addresses: who is answered is to come there from now on */
    bool is_resting; /* nothing is accepted until the next sweep */
    LIST_HEAD(, http_connection) connections;
    size_t connection_count;
    struct event sweep; /* every second, if there are addresses */
    struct event sweep_soon;
    int64_t started_us;
    int64_t started_s; /* Unix time */
    struct mailbox mailbox;
    bool is_ending;                   /* the workers are gone */
    struct http_gathering *gathering; /* NULL: none is under way */
    struct http_snapshot *snapshot;   /* the last one; NULL: none */
    STAILQ_HEAD(, http_waiting) waiting;
    struct http_text *page;
    char page_policy[512]; /* Content-Security-Policy */
    char machine[256];     /* the name of this machine */
    struct log_limiter refusals;
    struct log_limiter evictions;
    struct http_counts *counts_before; /* one for each server */
};

/* Whether what is told says which server it is about. */
static inline bool http_names_servers(const struct http *http)
{
    return http->servers->count > 1;
}

/* The roster of policies, which all servers have in common. */
static inline const struct chain_roster *http_policies(const struct http *http)
{
    return &http->servers->list[0].worker_pool.policies;
}

/* ---- http_request.c ---- */

void http_on_request(struct evhttp_request *request, void *context);

/* ---- http_reply.c ---- */

/* The connection of a request; NULL: it is gone. */
struct http_connection *http_connection_of(struct http *http, struct evhttp_request *request);
/* Answers by the text, whose use it takes over; NULL: by none. */
void http_reply(struct http *http, struct evhttp_request *request, int status, const char *type,
                struct http_text *text);
/* Sends the text, of which it takes a use. */
void http_reply_text(struct http *http, struct evhttp_request *request, const char *type, struct http_text *text);
/* One line, which may end. */
void http_reply_line(struct http *http, struct evhttp_request *request, int status, const char *line);
/* Answers who waits for the snapshot: it is there, or cannot be had. */
void http_reply_waiting(struct http *http, struct http_waiting *waiting, struct http_snapshot *snapshot);

/* NULL when memory is short. It takes the bytes, which are free()d with it. */
struct http_text *http_text_new(char *bytes, size_t length);
void http_text_drop(struct http_text *text);

/* ---- http_guard.c ---- */

/* Whether the request is to be answered. False: it was told why not. is_probe: /live and /ready, which need no
 * password. is_page: the page, to which others may link. */
bool http_guard_admits(struct http *http, struct evhttp_request *request, bool is_probe, bool is_page);

/* ---- http_snapshot.c ---- */

/* Has the request answered from a snapshot that is new enough. */
void http_snapshot_want(struct http *http, struct evhttp_request *request, enum http_form form);
void http_snapshot_free(struct http_snapshot *snapshot);
/* Who waits is told that the process ends. The workers are gone, and their messages were run. */
void http_snapshot_end(struct http *http);

/* ---- http_rules.c ---- */

struct http_rule {
    char name[CONF_RULE_NAME_MAX + 1];
    uint64_t values[POLICY_RULE_COUNTERS_MAX];
};

/* list is to be free()d. */
struct http_rules {
    struct http_rule *list;
    size_t count;
};

/* What each rule of that policy has counted before that server; none if memory is short. */
struct http_rules http_rules_of(const struct http *http, size_t server, size_t policy);

/* ---- http_metrics.c, http_stats.c ---- */

void http_metrics_write(const struct http *http, const struct http_snapshot *snapshot, bool openmetrics, FILE *out);
void http_stats_write(struct http *http, const struct http_snapshot *snapshot, FILE *out);
/* All counters with what they mean, as JSON. */
void http_stats_explain(const struct http *http, FILE *out);
/* Whether Redis can be reached, of all servers, and clients are served; why not, or "ready", is written to why. */
#define HTTP_WHY_SIZE 512
bool http_is_ready(const struct http *http, char why[HTTP_WHY_SIZE]);

/* ---- http_json.c ---- */

/* The lines of a verb's answer, "name=value name=\"value\" …", as objects with commas between them; lines that begin
 * with # as { "note": … }. server: what they are about, the first field of each; NULL: none. */
void http_json_lines(FILE *out, const char *server, const char *text, size_t length);

/* ---- http_page.c ---- */

/* Puts the page together. False when memory is short. */
bool http_page_make(struct http *http);

#endif
