/*
 * Verbs of policies whose answer goes on for a while. Each worker is asked in turn to open a stream, some times a
 * second for what has come since, and to close it; one message goes from one to the next:
 *
 *   open … open ─► read … read ─► (a pause) ─► read … ─► close … close ─► the end
 *
 * Lines that who asked does not take are lost, and counted: those that the workers have no room for until they are
 * fetched, and those beyond what may wait for the socket. The session is busy until the end, and outlives its
 * connection until then.
 */
#include "admin/admin_private.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>

/* Between two rounds of reading. µs. */
#define ROUND_US 100000
/* So many looks after the beginning it is sure whether who asked had said all at once. */
#define FIRST_LOOKS 10
/* So many looks after the beginning it answers who can no longer be seen to leave. */
#define LAST_LOOK 100
/* What a slow reader may leave unread before lines are lost. Bytes. */
#define UNREAD_MAX ((size_t)256 * 1024)
/* The most that is gathered for one answer. Bytes. */
#define GATHERED_MAX ((size_t)8 * 1024 * 1024)

enum phase { PHASE_OPEN, PHASE_READ, PHASE_CLOSE };

/* One worker, and its stream. */
struct leg {
    struct worker *worker;
    const struct server *server;
    void *opened; /* NULL: it is not open */
};

struct admin_stream {
    struct message message;
    LIST_ENTRY(admin_stream) of_admin;
    struct session_entry *session;
    size_t policy;
    const struct policy_stream *stream;
    struct event pause;
    enum phase phase;
    size_t at;     /* the leg that is asked */
    bool has_room; /* for the lines of the leg that is asked */
    bool goes_on;  /* one of them said so in this round */
    bool has_failed;
    bool awaits_end; /* who asked sends no more, and waits for the answer */
    unsigned looks;  /* for whether it has gone */
    bool is_sampled; /* who reads line by line was told so */
    uint64_t lines_left;
    uint64_t lines;
    struct policy_stream_told told;
    struct text_stream text;  /* of one leg */
    struct admin_text answer; /* gathered */
    size_t count;
    struct slice arguments[ADMIN_ARGUMENTS_MAX]; /* within memory */
    char *memory;
    size_t leg_count;
    struct leg legs[];
};

static struct leg *leg_of(struct admin_stream *stream)
{
    return &stream->legs[stream->at];
}

static void stream_free(struct admin_stream *stream)
{
    LIST_REMOVE(stream, of_admin);
    event_del(&stream->pause);
    text_free(&stream->text);
    admin_text_close(&stream->answer);
    free(stream->memory);
    free(stream);
}

/* ---- what is told ---- */

static void tell_line(struct admin_stream *stream, const char *server, const char *line, size_t length)
{
    struct session_entry *session = stream->session;
    const char *ahead = server != NULL ? "server=" : "", *blank = server != NULL ? " " : "";

    if (stream->stream->gathers) {
        admin_text_add(&stream->answer, "%s%s%s%.*s\n", ahead, server != NULL ? server : "", blank, (int)length, line);
    } else {
        admin_reply_bytes(session, "+", 1);
        admin_reply_bytes(session, ahead, strlen(ahead));
        admin_reply_bytes(session, server != NULL ? server : "", server != NULL ? strlen(server) : 0);
        admin_reply_bytes(session, blank, strlen(blank));
        admin_reply_shown(session, (struct slice){line, length});
        admin_reply_bytes(session, "\r\n", 2);
    }
}

/* The lines of one leg, as many as may be told. */
static void tell_lines(struct admin_stream *stream, const char *text, size_t length)
{
    const char *server = admin_names_servers(stream->session) ? leg_of(stream)->server->name : NULL;
    while (length > 0 && stream->lines_left > 0) {
        const char *line_end = memchr(text, '\n', length);
        tell_line(stream, server, text, (size_t)(line_end - text));
        stream->lines_left--;
        stream->lines++;
        length -= (size_t)(line_end + 1 - text);
        text = line_end + 1;
    }
}

/* The last line: whether it is whole. */
static void tell_end(struct admin_stream *stream)
{
    const struct policy_stream_told *told = &stream->told;
    char line[120];
    int length = snprintf(line, sizeof line, "end=1 lines=%" PRIu64 " lost=%" PRIu64, stream->lines, told->lost);

    if (told->unseen_us > 0) {
        length += snprintf(line + length, sizeof line - (size_t)length, " watched=%.2f%%",
                           100 * (1 - (double)told->unseen_us / (double)told->passed_us));
    }
    tell_line(stream, NULL, line, (size_t)length);
}

/* Who reads line by line may not wait for the last one. */
static void tell_sampling(struct admin_stream *stream)
{
    static const char line[] = "sampled=1";

    if (!stream->stream->gathers && !stream->is_sampled && stream->told.unseen_us > 0) {
        stream->is_sampled = true;
        tell_line(stream, NULL, line, sizeof line - 1);
    }
}

/* ---- the end ---- */

static void reply_failure(struct admin_stream *stream)
{
    char line[400];
    bool has_text = stream->text.length > 0;

    snprintf(line, sizeof line, "ERR %.*s", has_text ? (int)stream->text.length : 13,
             has_text ? stream->text.bytes : "out of memory");
    admin_reply_error(stream->session, line);
}

static void end(struct admin_stream *stream)
{
    struct session_entry *session = stream->session;
    bool gathers = stream->stream->gathers;

    if (!session->closed && !stream->has_failed) {
        tell_end(stream);
        if (gathers) {
            admin_reply_lines(session, &stream->answer);
        }
        session->last = session->last || !gathers;
    }
    stream_free(stream);
    admin_session_resume(session);
}

void admin_streams_end(struct admin *admin)
{
    while (!LIST_EMPTY(&admin->streams)) {
        end(LIST_FIRST(&admin->streams));
    }
}

/* ---- rounds ---- */

static void on_worker(struct message *message);

static bool has_room(const struct admin_stream *stream)
{
    const struct session_entry *session = stream->session;

    return stream->stream->gathers || (!session->closed && evbuffer_get_length(session->output) < UNREAD_MAX);
}

static void ask_leg(struct admin_stream *stream)
{
    stream->has_room = has_room(stream);
    stream->message.run = on_worker;
    worker_post(leg_of(stream)->worker, &stream->message);
}

static void begin_round(struct admin_stream *stream, enum phase phase)
{
    stream->phase = phase;
    stream->at = 0;
    stream->goes_on = false;
    ask_leg(stream);
}

/* Whether somebody has the other end of a connection yet that sends no more. False: nobody has, or it is on another
 * machine, of which that cannot be found out. */
static bool is_held(const struct connection *connection)
{
    struct pollfd asked = {.fd = connection->fd};
    struct peer peer;
    const char *why;

    return poll(&asked, 1, 0) >= 0 && (asked.revents & POLLHUP) == 0 && peer_find(connection->fd, &peer, &why);
}

/* Of who is elsewhere nothing can be found out: a program that is ended does not end at once, as a rule, and none is
 * waited for for long. */
static bool is_waited_for(struct admin_stream *stream)
{
    if (is_held(&stream->session->connection)) {
        return true;
    }
    stream->awaits_end = stream->awaits_end || stream->looks < FIRST_LOOKS;
    return stream->awaits_end && stream->looks < LAST_LOOK;
}

/* Who has closed its half of the connection has gone, or has said all ("printf … | nc -N") and waits for the answer.
 * Who reads line by line is sent one: if nobody is there, the connection is reset. */
static bool is_half_gone(struct admin_stream *stream)
{
    static const char line[] = "input=ended";

    if (stream->stream->gathers) {
        return !is_waited_for(stream);
    }
    if (!stream->awaits_end) {
        stream->awaits_end = true;
        tell_line(stream, NULL, line, sizeof line - 1);
        admin_session_flush(stream->session);
    }
    return stream->session->closed;
}

static bool has_gone(struct admin_stream *stream)
{
    struct connection *connections[] = {&stream->session->connection};
    enum connection_end ends[1];

    if (stream->session->closed) {
        return true;
    }
    connection_find_ends(connections, 1, ends);
    bool is_gone = ends[0] == CONNECTION_RESET || (ends[0] == CONNECTION_HALF_CLOSED && is_half_gone(stream));
    stream->looks++;
    return is_gone;
}

static bool is_enough(const struct admin_stream *stream)
{
    return stream->lines_left == 0 ||
           (stream->stream->gathers && evbuffer_get_length(stream->answer.bytes) > GATHERED_MAX);
}

static void wait(struct admin_stream *stream)
{
    const struct timeval interval = {.tv_usec = ROUND_US};

    if (event_add(&stream->pause, &interval) != 0) {
        begin_round(stream, PHASE_CLOSE);
    }
}

static void on_pause_over(evutil_socket_t fd, short what, void *context)
{
    struct admin_stream *stream = context;

    (void)fd;
    (void)what;
    begin_round(stream, has_gone(stream) ? PHASE_CLOSE : PHASE_READ);
}

static void end_round(struct admin_stream *stream)
{
    struct session_entry *session = stream->session;

    if (stream->phase == PHASE_CLOSE) {
        end(stream);
        return;
    }
    if (stream->phase == PHASE_OPEN && !stream->stream->gathers && !session->closed) {
        admin_reply_status(session, "OK");
    }
    bool goes_on = (stream->phase == PHASE_OPEN || stream->goes_on) && !is_enough(stream);
    admin_session_flush(session);
    if (goes_on && !session->closed) {
        wait(stream);
    } else {
        begin_round(stream, PHASE_CLOSE);
    }
}

/* What the leg has brought. */
static void take_leg(struct admin_stream *stream)
{
    struct session_entry *session = stream->session;
    bool is_whole = stream->text.out != NULL && text_close(&stream->text);

    if (stream->phase == PHASE_READ && !session->closed && is_whole) {
        tell_lines(stream, stream->text.bytes, stream->text.length);
        tell_sampling(stream);
    } else if (stream->phase == PHASE_OPEN && leg_of(stream)->opened == NULL) {
        stream->has_failed = true;
        if (!session->closed) {
            reply_failure(stream);
        }
    }
    text_free(&stream->text);
}

static void on_main(struct message *message)
{
    struct admin_stream *stream = (struct admin_stream *)(void *)message;

    take_leg(stream);
    if (stream->session->admin->ending) {
        /* The workers are gone, and their streams with them. */
        end(stream);
        return;
    }
    if (stream->has_failed && stream->phase == PHASE_OPEN) {
        begin_round(stream, PHASE_CLOSE);
    } else if (++stream->at < stream->leg_count) {
        ask_leg(stream);
    } else {
        end_round(stream);
    }
}

/* ---- on the workers' threads ---- */

static void do_on_worker(struct admin_stream *stream, struct chain *chain)
{
    struct leg *leg = leg_of(stream);
    FILE *out = stream->text.out;

    if (out == NULL) {
        return;
    }
    if (stream->phase == PHASE_OPEN) {
        leg->opened = chain_open_stream(chain, stream->policy, stream->stream, stream->count, stream->arguments,
                                        &stream->lines_left, out);
    } else if (stream->phase == PHASE_READ) {
        FILE *text = stream->has_room ? out : NULL;
        bool goes_on = chain_read_stream(chain, stream->policy, stream->stream, leg->opened, text, &stream->told);
        stream->goes_on = goes_on || stream->goes_on;
    }
}

static void on_worker(struct message *message)
{
    struct admin_stream *stream = (struct admin_stream *)(void *)message;
    struct leg *leg = leg_of(stream);
    struct chain *chain = client_service_chain(worker_clients(leg->worker));

    (void)text_open(&stream->text);
    do_on_worker(stream, chain);
    if (stream->phase == PHASE_CLOSE && leg->opened != NULL) {
        chain_close_stream(chain, stream->policy, stream->stream, leg->opened);
        leg->opened = NULL;
    }
    message->run = on_main;
    mailbox_post(&stream->session->admin->mailbox, message);
}

/* ---- opening ---- */

static bool keep_arguments(struct admin_stream *stream, size_t count, const struct slice *arguments)
{
    size_t size = 1;

    for (size_t i = 0; i < count; i++) {
        size += arguments[i].length;
    }
    char *place = stream->memory = malloc(size);
    for (size_t i = 0; i < count && place != NULL; i++) {
        memcpy(place, arguments[i].data, arguments[i].length);
        stream->arguments[i] = (struct slice){place, arguments[i].length};
        place += arguments[i].length;
    }
    stream->count = count;
    return place != NULL;
}

static void add_legs(struct admin_stream *stream, const struct server *server)
{
    for (size_t i = 0; i < server->worker_pool.count; i++) {
        stream->legs[stream->leg_count++] = (struct leg){.worker = server->worker_pool.workers[i], .server = server};
    }
}

/* NULL when memory is short. */
static struct admin_stream *stream_new(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct server *servers = session->admin->servers->list;
    size_t legs = 0;

    for (size_t i = session->scope.first; i < session->scope.end; i++) {
        legs += servers[i].worker_pool.count;
    }
    struct admin_stream *stream = calloc(1, sizeof *stream + legs * sizeof stream->legs[0]);
    if (stream == NULL) {
        return NULL;
    }
    stream->session = session;
    evtimer_assign(&stream->pause, session->admin->reactor->base, on_pause_over, stream);
    LIST_INSERT_HEAD(&session->admin->streams, stream, of_admin);
    for (size_t i = session->scope.first; i < session->scope.end; i++) {
        add_legs(stream, &servers[i]);
    }
    if (!admin_text_open(&stream->answer) || !keep_arguments(stream, count, arguments)) {
        stream_free(stream);
        return NULL;
    }
    return stream;
}

void admin_open_stream(struct session_entry *session, size_t policy, const struct policy_verb *verb, size_t count,
                       const struct slice *arguments)
{
    struct admin_stream *stream = stream_new(session, count, arguments);

    if (stream == NULL) {
        admin_reply_error(session, "ERR out of memory");
        return;
    }
    if (!admin_session_hold(session)) {
        stream_free(stream);
        return;
    }
    stream->policy = policy;
    stream->stream = verb->stream;
    stream->lines_left = verb->stream->lines;
    begin_round(stream, PHASE_OPEN);
}
