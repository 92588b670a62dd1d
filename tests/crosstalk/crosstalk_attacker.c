#include "crosstalk_attacker.h"

#include "crosstalk_attacks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE ((size_t)32 * 1024)
#define TURN_MS 1
#define MOVES_MAX 10
#define PIPELINE_MAX 4
#define RECONNECT_US 20000
#define CHUNK_ONE_IN 8
#define CHUNK_MAX 500
#define PAUSE_US 5000
#define LONG_PAUSE_US 40000
#define LINGER_US 500000
/* An identity begins with so many bytes, which may come in two parts. */
#define SIGN_LENGTH 4
#define SHOWN 200

/* ---- connections ---- */

static void attacker_close(struct attacker *attacker)
{
    close(attacker->fd);
    attacker->fd = -1;
    attacker->next_us = now_us() + attacker_random(attacker, RECONNECT_US);
    buffer_consume(&attacker->out, buffer_length(&attacker->out));
    buffer_consume(&attacker->in, buffer_length(&attacker->in));
}

static bool connect_from_own_address(struct attacker *attacker)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(ATTACKER_ADDRESS)};
    struct sockaddr_in peer = {
        .sin_family = AF_INET, .sin_port = htons(attacker->run->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    attacker->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (attacker->fd < 0)
        return false;
    setsockopt(attacker->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(attacker->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    /* While it is not connected, nothing can be sent, and no more than that is needed here. */
    return bind(attacker->fd, (struct sockaddr *)&own, sizeof own) == 0 &&
           (connect(attacker->fd, (struct sockaddr *)&peer, sizeof peer) == 0 || errno == EINPROGRESS);
}

static void attacker_connect(struct attacker *attacker)
{
    bool own_user = attacker->index % 2 == 1;
    if (!connect_from_own_address(attacker)) {
        if (attacker->fd >= 0)
            attacker_close(attacker);
        return;
    }
    attacker->moves = attacker_random(attacker, MOVES_MAX + 1);
    attacker->ending = ATTACKER_STAYS;
    attacker->end_us = 0;
    attacker->chunk = attacker_random(attacker, CHUNK_ONE_IN) == 0 ? 1 + attacker_random(attacker, CHUNK_MAX) : 0;
    attacker->deaf = false;
    attacker->sees_all = false;
    if (own_user && attacker_random(attacker, 8) > 0)
        put_login(attacker);
}

/* ---- ending ---- */

static void attacker_reset(struct attacker *attacker)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(attacker->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    attacker_close(attacker);
}

/* All that was to be sent has been sent. */
static void attacker_end(struct attacker *attacker, int64_t now)
{
    attacker->end_us = now + attacker_random(attacker, LINGER_US);
    switch (attacker->ending) {
    case ATTACKER_CLOSES:
        attacker_close(attacker);
        return;
    case ATTACKER_RESETS:
        attacker_reset(attacker);
        return;
    case ATTACKER_HALF_CLOSES:
        shutdown(attacker->fd, SHUT_WR);
        return;
    default:
        return;
    }
}

static void choose_ending(struct attacker *attacker)
{
    if (attacker->ending == ATTACKER_STAYS)
        attacker->ending = (enum attacker_ending)(1 + attacker_random(attacker, ATTACKER_ENDINGS - 1));
    if (attacker->ending == ATTACKER_QUITS)
        put_quit(attacker);
    attacker->end_us = 0;
}

/* ---- sending ---- */

/* True when nothing is left to be sent. */
static bool attacker_flush(struct attacker *attacker)
{
    size_t length = buffer_length(&attacker->out);
    size_t limit = attacker->chunk > 0 && attacker->chunk < length ? attacker->chunk : length;
    if (length == 0)
        return true;
    ssize_t sent = send(attacker->fd, buffer_head(&attacker->out), limit, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        attacker_close(attacker);
        return false;
    }
    if (sent <= 0)
        return false;
    buffer_consume(&attacker->out, (size_t)sent);
    return (size_t)sent == length;
}

static void choose_pause(struct attacker *attacker, int64_t now)
{
    uint32_t drawn = attacker_random(attacker, 10);
    if (now < attacker->next_us)
        return;
    attacker->next_us = now + (drawn < 3   ? 0
                               : drawn < 8 ? attacker_random(attacker, PAUSE_US)
                                           : attacker_random(attacker, LONG_PAUSE_US));
}

static void attacker_move(struct attacker *attacker, int64_t now)
{
    for (uint32_t left = 1 + attacker_random(attacker, PIPELINE_MAX); left > 0 && attacker->moves > 0; left--) {
        attacker->moves--;
        attack_any(attacker);
    }
    choose_pause(attacker, now);
    if (attacker->moves == 0)
        choose_ending(attacker);
}

/* What this attacker can do now. */
static void attacker_advance(struct attacker *attacker, int64_t now)
{
    if (attacker->fd < 0 && now >= attacker->next_us)
        attacker_connect(attacker);
    if (attacker->fd < 0 || !attacker_flush(attacker))
        return;
    if (attacker->end_us > 0) {
        if (now >= attacker->end_us)
            attacker_close(attacker);
    } else if (attacker->ending != ATTACKER_STAYS) {
        if (now >= attacker->next_us)
            attacker_end(attacker, now);
    } else if (now >= attacker->next_us) {
        attacker_move(attacker, now);
        (void)attacker_flush(attacker);
    }
}

/* ---- receiving ---- */

static const char *find_identity(const char *data, size_t length)
{
    const char *end = data + length;
    for (const char *at = data; (at = memchr(at, 'x', (size_t)(end - at))) != NULL; at++)
        if (end - at >= SIGN_LENGTH && (at[1] == 't' || at[1] == 'm') && at[2] == ':' && at[3] >= '0' && at[3] <= '9')
            return at;
    return NULL;
}

/* Nothing that is another's comes here, unless this attacker asked Redis for it. */
static void attacker_judge(struct attacker *attacker)
{
    size_t length = buffer_length(&attacker->in);
    const char *data = buffer_head(&attacker->in);
    const char *identity = attacker->sees_all ? NULL : find_identity(data, length);
    if (identity != NULL) {
        size_t shown = (size_t)(data + length - identity);
        run_violation(attacker->run, "attacker %" PRIu32 " was sent what is another's: %.*s", attacker->index,
                      (int)(shown < SHOWN ? shown : SHOWN), identity);
    }
    if (length >= SIGN_LENGTH)
        buffer_consume(&attacker->in, length - (SIGN_LENGTH - 1));
}

static void attacker_read(struct attacker *attacker)
{
    char *room = buffer_reserve(&attacker->in, READ_SIZE);
    ssize_t got = recv(attacker->fd, room, READ_SIZE, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        attacker_close(attacker);
        return;
    }
    buffer_commit(&attacker->in, (size_t)got);
    if (attacker->run->options.fault == FAULT_LEAK)
        buffer_append(&attacker->in, "xt:1:1;", 7);
    attacker_judge(attacker);
}

/* ---- the thread ---- */

static struct pollfd attacker_poll(const struct attacker *attacker)
{
    bool writes = buffer_length(&attacker->out) > 0 && attacker->chunk == 0;
    return (struct pollfd){.fd = attacker->deaf && !writes ? -1 : attacker->fd,
                           .events = (short)((attacker->deaf ? 0 : POLLIN) | (writes ? POLLOUT : 0))};
}

static void *attackers_run(void *context)
{
    struct attackers *attackers = context;
    uint32_t count = attackers->run->options.attackers;
    struct pollfd *polled = calloc(count, sizeof *polled);
    if (polled == NULL)
        abort();
    while (run_phase(attackers->run) != PHASE_STOP) {
        for (uint32_t at = 0; at < count; at++)
            polled[at] = attacker_poll(&attackers->all[at]);
        poll(polled, count, TURN_MS);
        int64_t now = now_us();
        for (uint32_t at = 0; at < count; at++) {
            if ((polled[at].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
                attacker_read(&attackers->all[at]);
            attacker_advance(&attackers->all[at], now);
        }
    }
    free(polled);
    return NULL;
}

bool attackers_start(struct attackers *attackers, struct run *run)
{
    uint32_t count = run->options.attackers;
    attackers->run = run;
    attackers->all = calloc(count, sizeof *attackers->all);
    if (attackers->all == NULL)
        return false;
    for (uint32_t at = 0; at < count; at++)
        attackers->all[at] =
            (struct attacker){.run = run, .index = at, .random = run->options.seed * UINT64_C(1000003) + at, .fd = -1};
    attackers->started = pthread_create(&attackers->thread, NULL, attackers_run, attackers) == 0;
    return attackers->started;
}

void attackers_join(struct attackers *attackers)
{
    if (attackers->started)
        pthread_join(attackers->thread, NULL);
    attackers->started = false;
}

void attackers_free(struct attackers *attackers)
{
    for (uint32_t at = 0; attackers->all != NULL && at < attackers->run->options.attackers; at++) {
        if (attackers->all[at].fd >= 0)
            close(attackers->all[at].fd);
        buffer_free(&attackers->all[at].in);
        buffer_free(&attackers->all[at].out);
    }
    free(attackers->all);
    attackers->all = NULL;
}
