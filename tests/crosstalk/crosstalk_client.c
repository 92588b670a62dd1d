#include "crosstalk_client.h"

#include "crosstalk_attacker.h"
#include "crosstalk_verify.h"
#include "crosstalk_workload.h"
#include "rig_reply.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIPELINE_MAX 64
#define OUTSTANDING_MAX 128
#define READ_SIZE ((size_t)32 * 1024)
#define READS_A_TURN 8
#define SECOND_US ((int64_t)1000000)
#define RECONNECT_US 20000
#define SEND_PAUSE_US 3000
#define READ_PAUSE_US 200000
#define STALL_US (30 * SECOND_US)
/* Whether every request is still answered cannot be told after an excused error: no longer wait than this. */
#define DEGRADED_US 200000

/* One in so many pipelines … */
#define ENDING_ONE_IN 100
#define CHUNK_ONE_IN 16
#define READ_PAUSE_ONE_IN 300
#define FAULT_ONE_IN 1000

uint32_t client_random(struct client *client, uint32_t bound)
{
    client->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t mixed = client->random;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((mixed ^ (mixed >> 31)) % bound);
}

void client_init(struct client *client, struct run *run, struct figures *figures, int epoll, uint32_t index)
{
    client->run = run;
    client->figures = figures;
    client->epoll = epoll;
    client->index = index;
    client->random = run->options.seed * UINT64_C(1000003) + index;
    client->fd = -1;
}

void client_free(struct client *client)
{
    if (client->tls != NULL)
        SSL_free(client->tls);
    SSL_SESSION_free(client->session_before);
    if (client->fd >= 0)
        close(client->fd);
    buffer_free(&client->in);
    buffer_free(&client->out);
    expect_free(&client->expected);
}

void client_new_generation(struct client *client)
{
    struct session *session = &client->session;
    client->epoch = atomic_load(&client->run->epoch);
    atomic_fetch_add(&client->generation, 1);
    memset(session->slots, 0, sizeof session->slots);
    memset(session->counters, 0, sizeof session->counters);
    memset(session->list_clean, 0, sizeof session->list_clean);
    memset(session->marked, 0, sizeof session->marked);
}

unsigned client_home_user(const struct client *client)
{
    return client->run->options.rotate ? USERS - 1 : 0;
}

/* ---- opening and closing ---- */

static void client_end_tls(struct client *client)
{
    SSL_SESSION *session;
    if (client->tls == NULL)
        return;
    session = tls_end(client->tls);
    client->tls = NULL;
    if (session == NULL)
        return;
    SSL_SESSION_free(client->session_before);
    client->session_before = session;
}

/* The one place where a connection ends. */
static void client_close(struct client *client)
{
    expect_clear(&client->expected);
    client_end_tls(client);
    close(client->fd);
    client->fd = -1;
    client->link = LINK_NONE;
    client->ending = ENDING_NONE;
    client->degraded = false;
    client->final_sent = false;
    client->connect_us = now_us() + client_random(client, RECONNECT_US);
    buffer_consume(&client->in, buffer_length(&client->in));
    buffer_consume(&client->out, buffer_length(&client->out));
}

static void client_end(struct client *client)
{
    if (client->ending == ENDING_RESET) {
        struct linger linger = {.l_onoff = 1, .l_linger = 0};
        setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    }
    client_close(client);
}

static void client_closed_by_peer(struct client *client)
{
    bool asked_for = client->ending == ENDING_HALF || (client->ending == ENDING_QUIT && client->expected.count == 0);
    if (asked_for) {
        client_end(client);
        return;
    }
    if (!run_excused(client->run) && run_phase(client->run) != PHASE_STOP) {
        char expected[512];
        verify_describe(client, expected);
        run_violation(client->run, "client %" PRIu32 ", generation %" PRIu32 ": closed by the peer, expected: %s",
                      client->index, client_generation(client), expected);
    }
    client->figures->closed_by_peer++;
    client_close(client);
}

static void client_arm(struct client *client, bool output, int64_t now)
{
    uint32_t wanted = (now >= client->read_us ? EPOLLIN : 0U) | (output ? EPOLLOUT : 0U);
    if (wanted == client->armed)
        return;
    struct epoll_event event = {.events = wanted, .data.ptr = client};
    epoll_ctl(client->epoll, EPOLL_CTL_MOD, client->fd, &event);
    client->armed = wanted;
}

static void client_connect(struct client *client, int64_t now)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(client->run->client_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (client->fd < 0) {
        run_violation(client->run, "client %" PRIu32 ": no socket: %s", client->index, strerror(errno));
        return;
    }
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* Its outcome, whatever it is, comes as an event. */
    (void)connect(client->fd, (struct sockaddr *)&address, sizeof address);
    client->armed = EPOLLIN | EPOLLOUT;
    struct epoll_event event = {.events = client->armed, .data.ptr = client};
    epoll_ctl(client->epoll, EPOLL_CTL_ADD, client->fd, &event);
    client->link = LINK_CONNECTING;
    client->progress_us = now;
}

static void client_connect_failed(struct client *client, int error)
{
    /* Headgate has to accept clients even while Redis is away. */
    if (client->run->options.headgate != NULL || !run_excused(client->run))
        run_violation(client->run, "client %" PRIu32 ": cannot connect: %s", client->index, strerror(error));
    client->figures->closed_by_peer++;
    client_close(client);
}

static void client_connected(struct client *client)
{
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        client_connect_failed(client, error);
        return;
    }
    if (client->run->options.tls)
        client->tls = tls_start(client->run->tls, client->fd, client->session_before);
    client->link = LINK_OPEN;
    client->figures->connections++;
    client->session = (struct session){.resp = 2, .user = client_home_user(client)};
    client->known_id = 0;
    client->id_changes = 0;
    client->listening = false;
    client->chunk = 0;
    client->send_us = 0;
    client->read_us = 0;
    client_new_generation(client);
}

/* ---- sending ---- */

static size_t send_limit(const struct client *client)
{
    size_t limit = buffer_length(&client->out);
    bool cut = client->ending >= ENDING_AT_ONCE && client->ending <= ENDING_HALF;
    if (cut && client->ending_left < limit)
        limit = client->ending_left;
    if (client->chunk > 0 && client->chunk < limit)
        limit = client->chunk;
    return limit;
}

/* By TLS, one time it is said that nothing more will come, another the socket is closed for that, or both. */
static void client_end_output(struct client *client)
{
    uint32_t way = client_random(client, 3);
    if (client->tls != NULL && way > 0)
        tls_end_output(client->tls);
    if (client->tls == NULL || way < 2)
        shutdown(client->fd, SHUT_WR);
}

/* What was to be sent before the end has been sent. */
static void client_sent_before_end(struct client *client)
{
    if (client->ending == ENDING_HALF)
        client_end_output(client);
    else
        client_end(client);
}

static ssize_t client_send(const struct client *client, const void *data, size_t length)
{
    return client->tls != NULL ? tls_send(client->tls, data, length) : send(client->fd, data, length, MSG_NOSIGNAL);
}

static ssize_t client_recv(const struct client *client, void *room, size_t size)
{
    return client->tls != NULL ? tls_recv(client->tls, room, size) : recv(client->fd, room, size, 0);
}

static void client_flush(struct client *client, int64_t now)
{
    size_t limit = send_limit(client);
    bool cut = client->ending >= ENDING_AT_ONCE && client->ending <= ENDING_HALF;
    if (buffer_length(&client->out) == 0 || now < client->send_us)
        return;
    ssize_t sent = limit > 0 ? client_send(client, buffer_head(&client->out), limit) : 0;
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        /* What the peer said before it closed may still be there to read; reading finds the end. */
        buffer_consume(&client->out, buffer_length(&client->out));
        client->read_us = 0;
        client_arm(client, false, now);
        return;
    }
    size_t taken = sent > 0 ? (size_t)sent : 0;
    client->progress_us = now;
    if (client->chunk > 0 && taken == limit) {
        client->chunk = 0;
        client->send_us = now + client_random(client, SEND_PAUSE_US);
    }
    buffer_consume(&client->out, taken);
    client->ending_left -= cut ? taken : 0;
    client_arm(client, taken < limit, now);
    if (cut && client->ending_left == 0)
        client_sent_before_end(client);
}

/* ---- generating ---- */

static void choose_ending(struct client *client)
{
    if (client_random(client, ENDING_ONE_IN) != 0)
        return;
    client->ending = (enum ending)(ENDING_DRAINED + client_random(client, ENDING_QUIT));
    client->ending_left = buffer_length(&client->out);
    if (client->ending == ENDING_HALFWAY || client->ending == ENDING_RESET)
        client->ending_left = client_random(client, (uint32_t)client->ending_left);
    if (client->ending == ENDING_QUIT)
        workload_quit(client);
}

static void choose_pauses(struct client *client, int64_t now)
{
    if (client_random(client, CHUNK_ONE_IN) == 0)
        client->chunk = 1 + client_random(client, (uint32_t)buffer_length(&client->out));
    if (client_random(client, READ_PAUSE_ONE_IN) == 0)
        client->read_us = now + client_random(client, READ_PAUSE_US);
}

static void client_load(struct client *client, int64_t now)
{
    /* Mostly, the next pipeline goes out before the last is answered. */
    if (client->expected.count > client_random(client, OUTSTANDING_MAX))
        return;
    unsigned commands = 1 + client_random(client, PIPELINE_MAX);
    if (atomic_fetch_sub(&client->run->requests_left, commands) <= 0)
        return;
    workload_pipeline(client, commands);
    choose_ending(client);
    choose_pauses(client, now);
    client_flush(client, now);
}

static void client_final(struct client *client, int64_t now)
{
    if (client->expected.count > 0 || client->finished)
        return;
    if (client->final_sent) {
        client->finished = true;
        atomic_fetch_add(&client->run->finished, 1);
        return;
    }
    workload_final(client);
    client->final_sent = true;
    client_flush(client, now);
}

/* Whatever this client can do now, with nothing left to send. */
static void client_advance(struct client *client, int64_t now)
{
    bool idle = client->expected.count == 0;
    if (client->degraded && (idle || now > client->progress_us + DEGRADED_US)) {
        client->ending = ENDING_NONE;
        client_end(client);
        return;
    }
    if (client->ending == ENDING_DRAINED && idle)
        client_end(client);
    if (client->link != LINK_OPEN || client->ending != ENDING_NONE || client->degraded)
        return;
    if (atomic_load(&client->run->epoch) != client->epoch) {
        if (!idle)
            return;
        client_new_generation(client);
    }
    if (run_phase(client->run) == PHASE_LOAD)
        client_load(client, now);
    else if (run_phase(client->run) == PHASE_FINAL)
        client_final(client, now);
}

/* ---- receiving ---- */

/* The deliberate faults of the self-test, on one whole reply. False if this one cannot have it. */
static bool commit_fault(struct client *client, size_t length)
{
    static const char refusal[] = "-ERR headgate: Redis is not there\r\n";
    char *frame = buffer_reserve(&client->in, 0) - buffer_length(&client->in);
    char *identity = memmem(frame, length, "xt:", 3);
    size_t left = buffer_length(&client->in) - length;
    size_t second = left > 0 ? reply_measure(frame + length, left) : 0;
    switch (client->run->options.fault) {
    case FAULT_OTHER:
        if (identity != NULL)
            identity[3] = identity[3] == '9' ? '1' : (char)(identity[3] + 1);
        return false;
    case FAULT_REORDER:
        if (second == 0 || second == SIZE_MAX || (second == length && memcmp(frame, frame + length, length) == 0))
            return false;
        verify_frame(client, frame + length, second);
        verify_frame(client, frame, length);
        buffer_consume(&client->in, length + second);
        return true;
    case FAULT_DUPLICATE:
        verify_frame(client, frame, length);
        return false;
    case FAULT_REFUSE:
        verify_frame(client, refusal, sizeof refusal - 1);
        buffer_consume(&client->in, length);
        return true;
    case FAULT_DROP:
        buffer_consume(&client->in, length);
        return true;
    case FAULT_CLOSE:
        client_closed_by_peer(client);
        return true;
    default:
        return false;
    }
}

static void client_take_frames(struct client *client)
{
    while (buffer_length(&client->in) > 0) {
        size_t length = reply_measure(buffer_head(&client->in), buffer_length(&client->in));
        if (length == 0)
            return;
        if (length == SIZE_MAX) {
            run_violation(client->run, "client %" PRIu32 ": not RESP: %.*s", client->index,
                          (int)(buffer_length(&client->in) < 200 ? buffer_length(&client->in) : 200),
                          buffer_head(&client->in));
            client_close(client);
            return;
        }
        if (client->run->options.fault != FAULT_NONE && client_random(client, FAULT_ONE_IN) == 0 &&
            commit_fault(client, length))
            continue;
        verify_frame(client, buffer_head(&client->in), length);
        buffer_consume(&client->in, length);
    }
}

static void client_read(struct client *client, int64_t now)
{
    for (int turn = 0; turn < READS_A_TURN && client->link == LINK_OPEN; turn++) {
        char *room = buffer_reserve(&client->in, READ_SIZE);
        ssize_t got = client_recv(client, room, READ_SIZE);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            client_closed_by_peer(client);
            return;
        }
        client->progress_us = now;
        buffer_commit(&client->in, (size_t)got);
        client_take_frames(client);
        /* One record is had at a time; what is left unread is in the socket, as none is as long as the room. */
        if ((size_t)got < READ_SIZE && client->tls == NULL)
            return;
    }
}

void client_event(struct client *client, uint32_t events)
{
    int64_t now = now_us();
    if (client->link == LINK_CONNECTING)
        client_connected(client);
    if (client->link == LINK_OPEN && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
        client_read(client, now);
    if (client->link == LINK_OPEN)
        client_flush(client, now);
    if (client->link == LINK_OPEN && buffer_length(&client->out) == 0)
        client_advance(client, now);
    if (client->link == LINK_OPEN && buffer_length(&client->out) == 0)
        client_arm(client, false, now);
}

/* ---- time ---- */

/* Among attackers, no reply may take so long, be there others before it or not. */
static int64_t client_patience(const struct client *client)
{
    const struct options *options = &client->run->options;
    return options->attackers > 0 ? PATIENCE_US : STALL_US;
}

static void client_check_stall(struct client *client, int64_t now)
{
    bool waiting = client->link == LINK_CONNECTING || client->expected.count > 0 || client->ending != ENDING_NONE;
    if (!waiting || now < client->read_us || run_excused(client->run)) {
        client->progress_us = now;
        return;
    }
    if (now < client->progress_us + client_patience(client))
        return;
    char expected[512];
    verify_describe(client, expected);
    run_violation(client->run,
                  "client %" PRIu32 ", generation %" PRIu32 ": nothing for %" PRId64
                  " s (ending %d, %zu bytes to send, link %d), "
                  "expected: %s",
                  client->index, client_generation(client), client_patience(client) / SECOND_US, (int)client->ending,
                  buffer_length(&client->out), (int)client->link, expected);
    client->progress_us = now;
}

void client_tick(struct client *client, int64_t now)
{
    if (client->link == LINK_NONE && now >= client->connect_us)
        client_connect(client, now);
    if (client->link == LINK_OPEN) {
        client_arm(client, (client->armed & EPOLLOUT) != 0, now);
        if ((client->armed & EPOLLOUT) == 0)
            client_flush(client, now);
    }
    if (client->link == LINK_OPEN && buffer_length(&client->out) == 0)
        client_advance(client, now);
    if (now > client->progress_us + DEGRADED_US)
        client_check_stall(client, now);
}
