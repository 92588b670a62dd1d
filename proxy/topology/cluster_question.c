#include "topology/cluster_question.h"

#include "net/resolver.h"
#include "resp/resp_element.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* What a cluster of as many nodes as may be, each of its slots for itself, would say, and more. Bytes. */
#define REPLY_MAX ((size_t)8 << 20)
/* Slots, info and nodes; AUTH's is one more. */
#define REPLIES_MOST 4

struct cluster_question {
    struct reactor *reactor;
    struct cluster_access access;
    char host[CLUSTER_HOST_MAX];
    uint16_t port;
    cluster_question_callback *done;
    void *context;
    struct resolver *resolver; /* NULL: none is under way */
    struct connection_targets targets;
    size_t next; /* the place of the target to be tried next */
    struct connection connection;
    bool is_asked; /* the connection stands, and the commands were written */
    struct buffer replies;
    size_t reply_count;
    size_t ends[REPLIES_MOST]; /* of each reply that has come, in replies */
    struct resp_reply framer;
    struct event timer;
    char why[CLUSTER_WHY_MAX]; /* why the last target failed */
};

static void try_next(struct cluster_question *question);

/* ---- the end ---- */

static void question_free(struct cluster_question *question)
{
    if (question->resolver != NULL) {
        resolver_cancel(question->resolver);
    }
    connection_close(&question->connection);
    event_del(&question->timer);
    buffer_clear(&question->reactor->buffers, &question->replies);
    free(question);
}

static void finish(struct cluster_question *question, struct cluster_map *map, const char *why)
{
    const struct cluster_answer answer = {.host = question->host, .port = question->port, .map = map, .why = why};

    question->done(question->context, &answer);
    cluster_map_release(map);
    question_free(question);
}

/* Of this target; another one may do better. */
static void target_failed(struct cluster_question *question, const char *why)
{
    if (question->why != why) {
        snprintf(question->why, sizeof question->why, "%s", why);
    }
    connection_close(&question->connection);
    try_next(question);
}

/* ---- the answer ---- */

static bool has_credentials(const struct cluster_question *question)
{
    return question->access.password[0] != '\0';
}

static size_t replies_expected(const struct cluster_question *question)
{
    return has_credentials(question) ? REPLIES_MOST : REPLIES_MOST - 1;
}

static struct slice reply_at(const struct cluster_question *question, size_t place)
{
    size_t start = place > 0 ? question->ends[place - 1] : 0;

    return (struct slice){buffer_head(&question->replies) + start, question->ends[place] - start};
}

/* The digits at the beginning of what does not end in a NUL. */
static uint64_t read_digits(const char *data, size_t length)
{
    uint64_t value = 0;

    for (size_t i = 0; i < length && data[i] >= '0' && data[i] <= '9'; i++) {
        value = value * 10 + (uint64_t)(data[i] - '0');
    }
    return value;
}

/* The value of a field of CLUSTER INFO; 0: it has none. */
static uint64_t read_field(struct slice info, const char *name)
{
    size_t length = strlen(name);

    while (info.length > 0) {
        const char *end = memchr(info.data, '\n', info.length);
        size_t line = end != NULL ? (size_t)(end - info.data) : info.length;
        if (line > length && slice_begins(info, name) && info.data[length] == ':') {
            return read_digits(info.data + length + 1, line - length - 1);
        }
        line += end != NULL;
        info = (struct slice){info.data + line, info.length - line};
    }
    return 0;
}

static void read_info(struct cluster_map *map, struct slice reply)
{
    struct slice info;

    if (resp_element_next_text(&reply, &info)) {
        map->epoch = read_field(info, "cluster_current_epoch");
    }
}

static void take_answer(struct cluster_question *question)
{
    bool has_auth = has_credentials(question);
    size_t first = has_auth;
    struct slice auth = reply_at(question, 0);
    char why[CLUSTER_WHY_MAX];

    if (has_auth && auth.data[0] == '-') {
        int length = (int)(auth.length - 3 < 100 ? auth.length - 3 : 100);
        snprintf(why, sizeof why, "it answers AUTH by \"%.*s\"", length, auth.data + 1);
        finish(question, NULL, why);
        return;
    }
    struct cluster_map *map = cluster_map_parse(reply_at(question, first), question->host, why);
    if (map != NULL) {
        read_info(map, reply_at(question, first + 1));
        cluster_map_add_masters(map, reply_at(question, first + 2));
    }
    finish(question, map, why);
}

/* Takes the bytes of replies that have come in; false: they are none. */
static bool frame_replies(struct cluster_question *question, const char *data, size_t length)
{
    while (length > 0) {
        size_t taken = 0;
        size_t expected = replies_expected(question);
        if (question->reply_count == expected) {
            return false;
        }
        enum resp_status status = resp_reply_feed(&question->framer, data, length, &taken);
        if (status == RESP_FAULT || !buffer_append(&question->reactor->buffers, &question->replies, data, taken) ||
            buffer_length(&question->replies) > REPLY_MAX) {
            return false;
        }
        if (status == RESP_DONE) {
            question->ends[question->reply_count++] = buffer_length(&question->replies);
            resp_reply_reset(&question->framer);
        }
        data += taken;
        length -= taken;
    }
    return true;
}

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct cluster_question *question = context;
    struct reactor *reactor = question->reactor;
    ssize_t length = connection_read(&question->connection, reactor->scratch, REACTOR_SCRATCH_SIZE);

    (void)fd;
    (void)what;
    if (length == CONNECTION_AGAIN) {
        return;
    }
    if (length <= 0) {
        target_failed(question, length == 0 ? "it has closed the connection" : connection_why(&question->connection));
    } else if (!frame_replies(question, reactor->scratch, (size_t)length)) {
        target_failed(question, "what it answers is no Redis' answer");
    } else if (question->reply_count == replies_expected(question)) {
        take_answer(question);
    }
}

/* ---- the question ---- */

static size_t write_argument(char *out, size_t room, const char *argument)
{
    return (size_t)snprintf(out, room, "$%zu\r\n%s\r\n", strlen(argument), argument);
}

/* Returns the length; more than room: it does not fit. */
static size_t write_auth(const struct cluster_question *question, char *out, size_t room)
{
    const char *arguments[] = {"AUTH", question->access.user, question->access.password};
    bool has_user = question->access.user[0] != '\0';
    size_t length = (size_t)snprintf(out, room, "*%d\r\n", has_user ? 3 : 2);

    for (size_t i = 0; i < 3 && length < room; i++) {
        if (i != 1 || has_user) {
            length += write_argument(out + length, room - length, arguments[i]);
        }
    }
    return length;
}

static void ask(struct cluster_question *question)
{
    static const char questions[] = "*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n*2\r\n$7\r\nCLUSTER\r\n$4\r\nINFO\r\n"
                                    "*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n";
    char text[4096];
    size_t length = has_credentials(question) ? write_auth(question, text, sizeof text) : 0;

    if (length + sizeof questions > sizeof text) {
        target_failed(question, "the password is too long");
        return;
    }
    memcpy(text + length, questions, sizeof questions - 1);
    length += sizeof questions - 1;
    question->is_asked = true;
    connection_want_write(&question->connection, false);
    connection_want_read(&question->connection, true);
    /* A fresh socket takes so little whole, or it is broken. */
    if (connection_write(&question->connection, text, length) != (ssize_t)length) {
        target_failed(question, "the question could not be written");
    }
}

static void begin_tls(struct cluster_question *question)
{
    const struct connection_security security = {.context = question->access.tls, .host = question->host};

    if (!connection_secure(&question->connection, &security)) {
        target_failed(question, "there is no memory for TLS, or no name that its certificate could have");
    }
}

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    struct cluster_question *question = context;
    enum connection_secrecy secrecy = connection_secrecy(&question->connection);
    int outcome = secrecy == CONNECTION_PLAIN ? connection_outcome(fd) : 0;
    char why[CLUSTER_WHY_MAX];

    (void)what;
    if (secrecy == CONNECTION_INSECURE) {
        snprintf(why, sizeof why, "TLS: %s", connection_why(&question->connection));
        target_failed(question, why);
    } else if (outcome != 0) {
        target_failed(question, strerror(outcome));
    } else if (question->access.tls != NULL && secrecy == CONNECTION_PLAIN) {
        begin_tls(question);
    } else if (!question->is_asked) {
        ask(question);
    }
}

/* ---- where ---- */

static const char *refusal_of(const struct cluster_question *question, const struct connection_target *target)
{
    return question->access.refuses == NULL
               ? NULL
               : question->access.refuses(question->access.context, (const struct sockaddr *)&target->address);
}

/* False: why says it. */
static bool connect_to(struct cluster_question *question, const struct connection_target *target)
{
    const char *refusal = refusal_of(question, target);
    int fd = refusal == NULL ? connection_start(target, INT_MAX) : -1;

    if (fd < 0) {
        snprintf(question->why, sizeof question->why, "%s", refusal != NULL ? refusal : strerror(errno));
        return false;
    }
    question->is_asked = false;
    question->reply_count = 0;
    buffer_clear(&question->reactor->buffers, &question->replies);
    resp_reply_reset(&question->framer);
    connection_open(&question->connection, question->reactor, fd, on_readable, on_writable, question);
    connection_want_write(&question->connection, true);
    return true;
}

static void try_next(struct cluster_question *question)
{
    bool is_connecting = false;

    while (!is_connecting && question->next < question->targets.count) {
        is_connecting = connect_to(question, &question->targets.items[question->next++]);
    }
    if (!is_connecting) {
        finish(question, NULL, question->why);
    }
}

static void on_resolved(void *context, const struct connection_targets *targets)
{
    struct cluster_question *question = context;

    question->resolver = NULL;
    question->targets = *targets;
    snprintf(question->why, sizeof question->why, "%s", targets->count > 0 ? "" : targets->why);
    try_next(question);
}

/* Also begins what needs no looking up, from within the event loop. */
static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct cluster_question *question = context;
    bool begins = question->targets.count > 0 && question->next == 0;
    char why[CLUSTER_WHY_MAX];

    (void)fd;
    (void)what;
    const struct timeval patience = {.tv_sec = question->access.timeout_ms / 1000,
                                     .tv_usec = question->access.timeout_ms % 1000 * 1000};
    if (begins) {
        event_add(&question->timer, &patience);
        try_next(question);
        return;
    }
    snprintf(why, sizeof why, "%s within connect_timeout",
             question->resolver != NULL                                        ? "its name was not looked up"
             : connection_is_open(&question->connection) && question->is_asked ? "no answer"
                                                                               : "no connection");
    finish(question, NULL, why);
}

/* False with nothing under way. */
static bool begin(struct cluster_question *question)
{
    const struct conf_address address = {.host = question->host, .port = question->port};
    struct timeval wait = {.tv_sec = 0};

    if (!connection_resolve_numeric(&address, &question->targets)) {
        question->targets.count = 0;
        question->resolver = resolver_start(question->reactor, &address, on_resolved, question);
        wait.tv_sec = question->access.timeout_ms / 1000;
        wait.tv_usec = question->access.timeout_ms % 1000 * 1000;
    }
    bool is_begun = question->targets.count > 0 || question->resolver != NULL;
    if (is_begun) {
        event_add(&question->timer, &wait);
    }
    return is_begun;
}

struct cluster_question *cluster_question_ask(struct reactor *reactor, const struct cluster_access *access,
                                              const char *host, uint16_t port, cluster_question_callback *done,
                                              void *context)
{
    struct cluster_question *question = calloc(1, sizeof *question);

    if (question == NULL) {
        return NULL;
    }
    question->reactor = reactor;
    question->access = *access;
    snprintf(question->host, sizeof question->host, "%s", host);
    question->port = port;
    question->done = done;
    question->context = context;
    question->connection.fd = -1;
    evtimer_assign(&question->timer, reactor->base, on_timer, question);
    if (!begin(question)) {
        free(question);
        return NULL;
    }
    return question;
}

void cluster_question_cancel(struct cluster_question *question)
{
    question_free(question);
}
