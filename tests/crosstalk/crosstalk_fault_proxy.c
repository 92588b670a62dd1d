#include "crosstalk_fault_proxy.h"

#include "crosstalk_attacker.h"
#include "crosstalk_servers.h"
#include "rig_buffer.h"
#include "rig_random.h"
#include "rig_reply.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIRS_MAX 128
#define READ_SIZE ((size_t)64 * 1024)
#define FAULT_ONE_IN 1000
#define DELAY_US (10 * (int64_t)1000000) /* longer than the patience of the self-test */

/* A client and its connection to Redis. */
struct pair {
    bool used;
    bool attacker;
    int64_t held_us; /* nothing is passed on before */
    int client;
    int server;
    struct buffer up;       /* for Redis */
    struct buffer received; /* from Redis, not looked at yet */
    struct buffer down;     /* for the client */
    bool client_ended;
    bool server_ended;
};

struct fault_proxy {
    enum fault fault;
    uint16_t redis_port;
    uint64_t random;
    int listener;
    unsigned committed;
    atomic_bool stop;
    pthread_t thread;
    struct pair pairs[PAIRS_MAX];
};

const char *fault_name(enum fault fault)
{
    static const char *const names[] = {
        [FAULT_NONE] = "none",     [FAULT_SWAP] = "swap",           [FAULT_REORDER] = "reorder",
        [FAULT_DROP] = "drop",     [FAULT_DUPLICATE] = "duplicate", [FAULT_CORRUPT] = "corrupt",
        [FAULT_REFUSE] = "refuse", [FAULT_CLOSE] = "close",         [FAULT_LEAK] = "leak",
        [FAULT_DELAY] = "delay",   [FAULT_WIPE] = "wipe",
    };
    return names[fault];
}

static void pair_close(struct pair *pair)
{
    close(pair->client);
    close(pair->server);
    buffer_free(&pair->up);
    buffer_free(&pair->received);
    buffer_free(&pair->down);
    *pair = (struct pair){0};
}

/* ---- the faults ---- */

static size_t frame_length(const struct pair *pair)
{
    if (!pair->used || buffer_length(&pair->received) == 0 || now_us() < pair->held_us)
        return 0;
    size_t length = reply_measure(buffer_head(&pair->received), buffer_length(&pair->received));
    return length == SIZE_MAX ? 0 : length;
}

static void frame_pass(struct pair *from, struct pair *to, size_t length)
{
    buffer_append(&to->down, buffer_head(&from->received), length);
    buffer_consume(&from->received, length);
}

/* Another pair whose next reply is there, and is not the same. */
static struct pair *other_pair(struct fault_proxy *proxy, const struct pair *pair, size_t length)
{
    for (size_t at = 0; at < PAIRS_MAX; at++) {
        struct pair *other = &proxy->pairs[at];
        size_t other_length = frame_length(other);
        if (other == pair || other_length == 0)
            continue;
        if (other_length != length || memcmp(buffer_head(&other->received), buffer_head(&pair->received), length) != 0)
            return other;
    }
    return NULL;
}

static bool commit_swap(struct fault_proxy *proxy, struct pair *pair, size_t length)
{
    struct pair *other = other_pair(proxy, pair, length);
    if (other == NULL)
        return false;
    frame_pass(other, pair, frame_length(other));
    frame_pass(pair, other, length);
    return true;
}

static bool commit_reorder(struct pair *pair, size_t length)
{
    const char *first = buffer_head(&pair->received);
    size_t left = buffer_length(&pair->received) - length;
    size_t second = left > 0 ? reply_measure(first + length, left) : 0;
    if (second == 0 || second == SIZE_MAX || (second == length && memcmp(first, first + length, length) == 0))
        return false;
    buffer_append(&pair->down, first + length, second);
    buffer_append(&pair->down, first, length);
    buffer_consume(&pair->received, length + second);
    return true;
}

static bool commit_corrupt(struct pair *pair, size_t length)
{
    const char *frame = buffer_head(&pair->received);
    const char *identity = memmem(frame, length, "xt:", 3);
    if (identity == NULL || identity + 3 >= frame + length)
        return false;
    size_t place = (size_t)(identity + 3 - frame);
    char wrong = identity[3] == '9' ? '1' : (char)(identity[3] + 1);
    buffer_append(&pair->down, frame, place);
    buffer_append(&pair->down, &wrong, 1);
    buffer_append(&pair->down, frame + place + 1, length - place - 1);
    buffer_consume(&pair->received, length);
    return true;
}

static bool commit_refuse(struct pair *pair, size_t length)
{
    static const char error[] = "-ERR headgate: Redis is not there\r\n";
    buffer_append(&pair->down, error, sizeof error - 1);
    buffer_consume(&pair->received, length);
    return true;
}

/* To an attacker, in which it is not found by being one too many. */
static bool commit_leak(struct fault_proxy *proxy, struct pair *pair, size_t length)
{
    const char *frame = buffer_head(&pair->received);
    if (pair->attacker || memmem(frame, length, "xt:", 3) == NULL)
        return false;
    for (size_t at = 0; at < PAIRS_MAX; at++) {
        struct pair *other = &proxy->pairs[at];
        if (!other->used || !other->attacker)
            continue;
        buffer_append(&other->down, frame, length);
        frame_pass(pair, pair, length);
        return true;
    }
    return false;
}

static bool commit_delay(struct pair *pair)
{
    if (pair->attacker)
        return false;
    pair->held_us = now_us() + DELAY_US;
    return true;
}

/* False if the fault cannot be committed on this reply, which then still waits. */
static bool commit(struct fault_proxy *proxy, struct pair *pair, size_t length)
{
    switch (proxy->fault) {
    case FAULT_SWAP:
        return commit_swap(proxy, pair, length);
    case FAULT_REORDER:
        return commit_reorder(pair, length);
    case FAULT_DROP:
        buffer_consume(&pair->received, length);
        return true;
    case FAULT_DUPLICATE:
        buffer_append(&pair->down, buffer_head(&pair->received), length);
        frame_pass(pair, pair, length);
        return true;
    case FAULT_CORRUPT:
        return commit_corrupt(pair, length);
    case FAULT_REFUSE:
        return commit_refuse(pair, length);
    case FAULT_CLOSE:
        pair_close(pair);
        return true;
    case FAULT_LEAK:
        return commit_leak(proxy, pair, length);
    case FAULT_DELAY:
        return commit_delay(pair);
    case FAULT_WIPE:
        return process_ask(proxy->redis_port, "DEL canary\r\n", ":1");
    default:
        return false;
    }
}

static bool fault_is_due(struct fault_proxy *proxy)
{
    bool is_turn = next_random(&proxy->random) % FAULT_ONE_IN == 0;

    return proxy->fault != FAULT_NONE && is_turn;
}

static void pair_take_frames(struct fault_proxy *proxy, struct pair *pair)
{
    for (size_t length = frame_length(pair); length > 0; length = frame_length(pair)) {
        if (fault_is_due(proxy) && commit(proxy, pair, length))
            proxy->committed++;
        else
            frame_pass(pair, pair, length);
    }
}

/* ---- passing bytes ---- */

/* False at the end of the stream. */
static bool receive(int fd, struct buffer *buffer)
{
    ssize_t got = recv(fd, buffer_reserve(buffer, READ_SIZE), READ_SIZE, MSG_DONTWAIT);
    if (got > 0)
        buffer_commit(buffer, (size_t)got);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static bool transmit(int fd, struct buffer *buffer)
{
    if (buffer_length(buffer) == 0)
        return true;
    ssize_t sent = send(fd, buffer_head(buffer), buffer_length(buffer), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0)
        buffer_consume(buffer, (size_t)sent);
    return sent >= 0 || errno == EAGAIN || errno == EINTR;
}

static void pair_receive(struct pair *pair, const struct pollfd *client, const struct pollfd *server)
{
    if (client->revents != 0 && !pair->client_ended)
        pair->client_ended = !receive(pair->client, &pair->up);
    if (server->revents != 0 && !pair->server_ended)
        pair->server_ended = !receive(pair->server, &pair->received);
}

static void pair_transmit(struct pair *pair)
{
    bool alive = transmit(pair->server, &pair->up) && transmit(pair->client, &pair->down);
    if (pair->client_ended && buffer_length(&pair->up) == 0)
        shutdown(pair->server, SHUT_WR);
    if (!alive || (pair->server_ended && buffer_length(&pair->down) == 0))
        pair_close(pair);
}

static bool is_attacker(int client)
{
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address;
    getpeername(client, (struct sockaddr *)&address, &size);
    return address.sin_addr.s_addr == inet_addr(ATTACKER_ADDRESS);
}

static void proxy_accept(struct fault_proxy *proxy)
{
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
    for (size_t at = 0; client >= 0 && at < PAIRS_MAX; at++) {
        struct pair *pair = &proxy->pairs[at];
        if (pair->used)
            continue;
        int server = process_connect(proxy->redis_port);
        if (server < 0)
            break;
        *pair = (struct pair){.used = true, .attacker = is_attacker(client), .client = client, .server = server};
        return;
    }
    if (client >= 0)
        close(client);
}

static void pair_poll(const struct pair *pair, struct pollfd *client, struct pollfd *server)
{
    *client = (struct pollfd){.fd = -1};
    *server = (struct pollfd){.fd = -1};
    if (!pair->used)
        return;
    if (!pair->client_ended || buffer_length(&pair->down) > 0)
        *client = (struct pollfd){
            .fd = pair->client,
            .events = (short)((pair->client_ended ? 0 : POLLIN) | (buffer_length(&pair->down) > 0 ? POLLOUT : 0))};
    if (!pair->server_ended)
        *server = (struct pollfd){.fd = pair->server,
                                  .events = (short)(POLLIN | (buffer_length(&pair->up) > 0 ? POLLOUT : 0))};
}

/* All receive before any reply is passed on, so that two clients' replies can be at hand together. */
static void proxy_turn(struct fault_proxy *proxy)
{
    struct pollfd polled[1 + 2 * PAIRS_MAX];
    polled[0] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
    for (size_t at = 0; at < PAIRS_MAX; at++)
        pair_poll(&proxy->pairs[at], &polled[1 + 2 * at], &polled[2 + 2 * at]);
    if (poll(polled, sizeof polled / sizeof *polled, 20) <= 0)
        return;
    for (size_t at = 0; at < PAIRS_MAX; at++)
        if (proxy->pairs[at].used)
            pair_receive(&proxy->pairs[at], &polled[1 + 2 * at], &polled[2 + 2 * at]);
    for (size_t at = 0; at < PAIRS_MAX; at++)
        pair_take_frames(proxy, &proxy->pairs[at]);
    for (size_t at = 0; at < PAIRS_MAX; at++)
        if (proxy->pairs[at].used)
            pair_transmit(&proxy->pairs[at]);
    if (polled[0].revents != 0)
        proxy_accept(proxy);
}

static void *proxy_run(void *context)
{
    struct fault_proxy *proxy = context;
    while (!atomic_load(&proxy->stop))
        proxy_turn(proxy);
    for (size_t at = 0; at < PAIRS_MAX; at++)
        if (proxy->pairs[at].used)
            pair_close(&proxy->pairs[at]);
    return NULL;
}

static int listen_anywhere(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, PAIRS_MAX) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &size) == 0) {
        *port = ntohs(address.sin_port);
        return fd;
    }
    close(fd);
    return -1;
}

struct fault_proxy *fault_proxy_start(enum fault fault, uint16_t redis_port, uint64_t seed, uint16_t *port)
{
    struct fault_proxy *proxy = calloc(1, sizeof *proxy);
    if (proxy == NULL)
        return NULL;
    proxy->fault = fault;
    proxy->redis_port = redis_port;
    proxy->random = seed;
    proxy->listener = listen_anywhere(port);
    if (proxy->listener >= 0 && pthread_create(&proxy->thread, NULL, proxy_run, proxy) == 0)
        return proxy;
    if (proxy->listener >= 0)
        close(proxy->listener);
    free(proxy);
    return NULL;
}

unsigned fault_proxy_stop(struct fault_proxy *proxy)
{
    atomic_store(&proxy->stop, true);
    pthread_join(proxy->thread, NULL);
    unsigned committed = proxy->committed;
    close(proxy->listener);
    free(proxy);
    return committed;
}
