/* One connection to the admin port: requests in, answers out. */
#include "admin/admin_private.h"

#include "base/places.h"

#include <stdlib.h>

/* Answers of policies that go on, or are waited for: the other sessions are for who wants to know something now. */
#define HELD_MAX (places_of_port() * 3 / 4)

/* A request to the admin port is a few words. Bytes. */
#define REQUEST_MAX ((size_t)16384)
/* What a slow reader may leave unread before nothing more is done for it. Bytes. */
#define OUTPUT_MARK ((size_t)1024 * 1024)
/* The same two for who has not given the password yet: of the longest password there is room for each byte escaped. */
#define REQUEST_MAX_UNTRUSTED ((size_t)5120)
#define OUTPUT_MARK_UNTRUSTED ((size_t)4096)

/* ---- the end of a session ---- */

static void session_free(struct session_entry *session)
{
    admin_audit_end(session, "who asked was gone before the answer");
    LIST_REMOVE(session, of_admin);
    session->admin->session_count--;
    free(session);
}

void admin_session_close(struct session_entry *session)
{
    if (session->closed) {
        return;
    }
    connection_close(&session->connection);
    buffer_clear(&session->admin->reactor->buffers, &session->input);
    evbuffer_free(session->output);
    session->output = NULL;
    session->closed = true;
    if (!session->gathering) {
        session_free(session);
    }
}

/* ---- requests ---- */

static size_t request_max(const struct session_entry *session)
{
    return admin_guard_is_trusted(session) ? REQUEST_MAX : REQUEST_MAX_UNTRUSTED;
}

static size_t output_mark(const struct session_entry *session)
{
    return admin_guard_is_trusted(session) ? OUTPUT_MARK : OUTPUT_MARK_UNTRUSTED;
}

/* A browser can be made to send a request of HTTP with words of ours in it, by anybody whose page it shows. */
static void cut_off(struct session_entry *session)
{
    uint64_t suppressed;

    session->failed = true;
    if (log_limiter_take(&session->admin->strangers, clock_now_us(), &suppressed)) {
        log_warning("admin", "closing the connection of %s, which is no Redis client: possibly an attack by a browser",
                    session->address_text);
    }
}

/* frame: a whole multibulk command. */
static void run_multibulk(struct session_entry *session, struct slice frame)
{
    struct slice arguments[ADMIN_WORDS_MAX + 1];
    struct resp_walk walk = resp_walk_start(frame);
    size_t count = 0;

    while (count <= ADMIN_WORDS_MAX && resp_walk_next(&walk, &arguments[count])) {
        count++;
    }
    if (count > 0 && admin_guard_is_foreign_name(arguments[0])) {
        cut_off(session);
    } else if (count > ADMIN_WORDS_MAX) {
        admin_reply_error(session, "ERR too many arguments; HELP lists the verbs");
    } else if (count > 0) {
        admin_run(session, count, arguments);
    }
}

static void run_inline(struct session_entry *session, struct slice line)
{
    size_t needed = resp_inline_to_multibulk(line, NULL, 0);

    if (admin_guard_is_foreign_line(line)) {
        cut_off(session);
        return;
    }
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
    } else if (needed > 0) {
        session->failed = true;
    }
}

static void answer_fault(struct session_entry *session, enum resp_status status)
{
    char fault[160];

    if (status == RESP_FAULT) {
        admin_reply_bytes(session, fault, resp_command_fault_text(&session->command, fault, sizeof fault));
    } else {
        admin_reply_error(session, "ERR Protocol error: request too long for the admin port");
    }
    session->last = true;
}

/* A whole request at the head of the input. */
static void run_request(struct session_entry *session)
{
    struct slice frame = {buffer_head(&session->input), (size_t)session->command.size};
    bool is_inline = resp_command_is_inline(&session->command);
    bool is_empty = session->command.argument_count == 0;

    resp_command_reset(&session->command);
    if (!is_empty) {
        (is_inline ? run_inline : run_multibulk)(session, frame);
    }
    buffer_consume(&session->admin->reactor->buffers, &session->input, frame.length);
}

/* Takes one request out of the input. False when there is none, or when nothing more is to be taken now. */
static bool request_take(struct session_entry *session)
{
    struct slice input = {buffer_head(&session->input), buffer_length(&session->input)};
    size_t scanned = (size_t)session->command.size;
    size_t most = request_max(session);
    size_t taken;

    if (input.length == scanned) {
        return false;
    }
    if (admin_guard_is_binary(input)) {
        cut_off(session);
        return false;
    }
    enum resp_status status =
        resp_command_feed(&session->command, input.data + scanned, input.length - scanned, most, &taken);
    if (status == RESP_FAULT || session->command.size > most) {
        answer_fault(session, status);
        return false;
    }
    if (status == RESP_MORE) {
        return false;
    }
    run_request(session);
    return !session->gathering && !session->last && !session->failed;
}

/* ---- going on ---- */

/* False: it is broken. */
static bool write_output(struct session_entry *session)
{
    ssize_t written = 1;

    while (written > 0 && evbuffer_get_length(session->output) > 0) {
        struct evbuffer_iovec piece;
        (void)evbuffer_peek(session->output, -1, NULL, &piece, 1);
        written = connection_write(&session->connection, piece.iov_base, piece.iov_len);
        if (written > 0) {
            session->moved_us = clock_now_us();
            (void)evbuffer_drain(session->output, (size_t)written);
        }
    }
    return written != CONNECTION_BROKEN;
}

static void take_requests(struct session_entry *session)
{
    while (!session->gathering && !session->last && !session->failed &&
           evbuffer_get_length(session->output) < output_mark(session) && request_take(session)) {
    }
}

/* Does what can be done now: takes requests, writes answers. The session may be void afterwards. */
static void go_on(struct session_entry *session)
{
    size_t waiting;

    /* What was written makes room for further answers. */
    do {
        take_requests(session);
        waiting = evbuffer_get_length(session->output);
        if (session->failed || !write_output(session)) {
            admin_session_close(session);
            return;
        }
    } while (waiting >= output_mark(session) && evbuffer_get_length(session->output) == 0);
    bool is_written = evbuffer_get_length(session->output) == 0;
    if (is_written && !session->gathering && (session->last || session->input_ended)) {
        admin_session_close(session);
        return;
    }
    connection_want_write(&session->connection, !is_written);
    connection_want_read(&session->connection, !session->gathering && !session->last && !session->input_ended &&
                                                   evbuffer_get_length(session->output) < output_mark(session));
}

void admin_session_pause(struct session_entry *session)
{
    session->gathering = true;
}

bool admin_session_hold(struct session_entry *session)
{
    if (session->admin->held_count >= HELD_MAX) {
        admin_count_refused(session->admin);
        admin_reply_error(session, "ERR too many connections wait for answers that take time; try again");
        return false;
    }
    session->admin->held_count++;
    session->is_held = true;
    admin_session_pause(session);
    return true;
}

void admin_session_resume(struct session_entry *session)
{
    session->admin->held_count -= session->is_held ? 1 : 0;
    session->is_held = false;
    session->gathering = false;
    session->moved_us = clock_now_us();
    if (session->closed) {
        session_free(session);
    } else if (!session->admin->ending) {
        go_on(session);
    }
}

void admin_session_flush(struct session_entry *session)
{
    if (!session->closed) {
        go_on(session);
    }
}

static void log_tls_failure(struct session_entry *session)
{
    uint64_t suppressed;

    if (connection_secrecy(&session->connection) == CONNECTION_INSECURE &&
        log_limiter_take(&session->admin->strangers, clock_now_us(), &suppressed)) {
        log_warning("admin", "no TLS with %s: %s", session->address_text, connection_why(&session->connection));
    }
}

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct session_entry *session = context;
    struct buffer_pool *pool = &session->admin->reactor->buffers;
    size_t size = request_max(session);
    char *room = buffer_reserve(pool, &session->input, size);

    (void)fd;
    (void)what;
    if (session->is_unmet) {
        admin_guard_meet(session);
    }
    ssize_t got = room != NULL ? connection_read(&session->connection, room, size) : CONNECTION_BROKEN;
    if (got == CONNECTION_BROKEN) {
        log_tls_failure(session);
        admin_session_close(session);
        return;
    }
    if (got > 0) {
        buffer_commit(&session->input, (size_t)got);
        session->moved_us = clock_now_us();
    } else if (buffer_length(&session->input) == 0) {
        buffer_clear(pool, &session->input);
    }
    session->input_ended = got == 0 || session->input_ended;
    go_on(session);
}

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    go_on(context);
}

void admin_session_write_rest(struct session_entry *session)
{
    (void)write_output(session);
}

/* ---- opening, and making room ---- */

static bool begin_tls(struct session_entry *session)
{
    const struct admin_host *host = &session->admin->host;
    const struct conf *conf = host->conf(host->context);
    const struct connection_security security = {.context = conf->tls_clients,
                                                 .timeout_ms = conf->tls_handshake_timeout};

    return conf->tls_clients != NULL && connection_secure(&session->connection, &security);
}

/* Its descriptor stays. */
static void session_discard(struct session_entry *session)
{
    if (session->output != NULL) {
        evbuffer_free(session->output);
    }
    free(session);
}

struct session_entry *admin_session_open(struct admin *admin, int fd, const struct sockaddr_storage *address, bool tls)
{
    struct session_entry *session = calloc(1, sizeof *session);

    if (session == NULL) {
        return NULL;
    }
    session->output = evbuffer_new();
    session->admin = admin;
    session->id = ++admin->sessions_given;
    session->resp = 2;
    /* An answer is written in several pieces: none is to wait until the one before it was acknowledged. */
    connection_tune(fd, &(struct connection_tuning){0});
    connection_open(&session->connection, admin->reactor, fd, on_readable, on_writable, session);
    if (session->output == NULL || (tls && !begin_tls(session))) {
        session_discard(session);
        return NULL;
    }
    session->is_unix = address->ss_family == AF_UNIX;
    session->moved_us = clock_now_us();
    connection_peer_text(address, session->address_text, sizeof session->address_text);
    admin_guard_meet(session);
    LIST_INSERT_HEAD(&admin->sessions, session, of_admin);
    admin->session_count++;
    connection_want_read(&session->connection, true);
    return session;
}

/* How much is known for its being an operator's. */
static int standing(const struct session_entry *session)
{
    bool is_known = session->has_peer || session->rights != ADMIN_RIGHTS_NONE;

    return !admin_guard_is_trusted(session) ? 0 : is_known ? 2 : 1;
}

/* Who is not let in goes first, then who is not known, then what has not moved for longer: half a request, and an
 * answer that is not read, are nothing that another one would have to wait for. */
static bool goes_before(const struct session_entry *session, const struct session_entry *other)
{
    int left = standing(session), right = standing(other);

    return left != right ? left < right : session->moved_us < other->moved_us;
}

bool admin_session_make_room(struct admin *admin)
{
    struct session_entry *found = NULL;
    uint64_t suppressed;

    for (struct session_entry *session = LIST_FIRST(&admin->sessions); session != NULL;
         session = LIST_NEXT(session, of_admin)) {
        if (!session->closed && !session->gathering && (found == NULL || goes_before(session, found))) {
            found = session;
        }
    }
    if (found == NULL) {
        return false;
    }
    admin_count_refused(admin);
    if (log_limiter_take(&admin->refusals, clock_now_us(), &suppressed)) {
        log_warning("admin",
                    "closed the connection of %s for another one, as too many are open (%llu more since the last line)",
                    found->address_text, (unsigned long long)suppressed);
    }
    admin_session_close(found);
    return true;
}
