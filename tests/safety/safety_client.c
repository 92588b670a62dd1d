#include "safety_client.h"

#include "safety_section.h"
#include "safety_worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 65536
#define RETRY_US 50000
#define ROOM 8u /* no section has more requests out at once */

void client_close(struct client *client, int64_t now)
{
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
    client->link = LINK_DOWN;
    client->retry_us = now + RETRY_US;
    client->pending_first = 0;
    client->pending_count = 0;
    client->writable_wanted = false;
    buffer_free(&client->in);
    buffer_free(&client->out);
}

static void client_lose(struct client *client, int64_t now)
{
    if (client->link == LINK_UP) {
        shared_count(client->worker->shared, FIGURE_CLOSED);
        section_connection_lost(client, now);
    }
    client_close(client, now);
}

static void client_watch(struct client *client, bool writable, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | (writable ? (unsigned)EPOLLOUT : 0), .data.ptr = client};
    client->writable_wanted = writable;
    epoll_ctl(client->worker->epoll, operation, client->fd, &event);
}

void client_connect(struct client *client, int64_t now)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(client->worker->shared->headgate_ports[client->headgate]),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (client->fd < 0) {
        client->retry_us = now + RETRY_US;
        return;
    }
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(client->fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS) {
        client_close(client, now);
        return;
    }
    client->link = LINK_CONNECTING;
    client->connections++;
    client_watch(client, true, EPOLL_CTL_ADD);
}

bool client_is_cut(const struct client *client)
{
    struct pollfd polled = {.fd = client->fd, .events = POLLRDHUP};
    return client->fd < 0 || (poll(&polled, 1, 0) > 0 && (polled.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0);
}

bool client_has_room(const struct client *client)
{
    return client->link == LINK_UP && client->pending_count + ROOM <= CLIENT_PENDING;
}

static void put_word(struct buffer *out, const char *word)
{
    size_t length = strlen(word);
    char *to = buffer_reserve(out, length + 32);
    int head = snprintf(to, 32, "$%zu\r\n", length);
    memcpy(to + head, word, length);
    memcpy(to + head + length, "\r\n", 2);
    buffer_commit(out, (size_t)head + length + 2);
}

void client_ask(struct client *client, struct slot *slot, enum question question, unsigned count, ...)
{
    char head[32];
    va_list words;
    buffer_append(&client->out, head, (size_t)snprintf(head, sizeof head, "*%u\r\n", count));
    va_start(words, count);
    for (unsigned at = 0; at < count; at++)
        put_word(&client->out, va_arg(words, const char *));
    va_end(words);
    unsigned place = (client->pending_first + client->pending_count++) % CLIENT_PENDING;
    client->pending[place] = (struct pending){.slot = slot, .serial = slot->hold->serial, .question = question};
}

static void reply_parse(const char *data, size_t length, struct reply *reply)
{
    struct cursor cursor = {data, data + length};
    reply->count = 0;
    token_next(&cursor, &reply->head);
    if (reply->head.type != '*' || reply->head.null || reply->head.number > REPLY_ITEMS)
        return;
    while (reply->count < reply->head.number && token_next(&cursor, &reply->items[reply->count]) == TOKEN_WHOLE)
        reply->count++;
}

/* False if the connection is no more. */
static bool client_take_reply(struct client *client, int64_t now)
{
    size_t length = reply_measure(buffer_head(&client->in), buffer_length(&client->in));
    if (length == 0)
        return false;
    if (length == SIZE_MAX || client->pending_count == 0) {
        shared_violation(client->worker->shared, BREACH_TEST, "a reply that answers nothing, or is none");
        client_lose(client, now);
        return false;
    }
    struct pending pending = client->pending[client->pending_first];
    struct reply reply;
    client->pending_first = (client->pending_first + 1) % CLIENT_PENDING;
    client->pending_count--;
    reply_parse(buffer_head(&client->in), length, &reply);
    section_reply(pending.slot, pending.serial, pending.question, &reply, now);
    if (client->link != LINK_UP)
        return false;
    buffer_consume(&client->in, length);
    return buffer_length(&client->in) > 0;
}

static void client_read(struct client *client, int64_t now)
{
    ssize_t got;
    do {
        got = recv(client->fd, buffer_reserve(&client->in, READ_BYTES), READ_BYTES, 0);
        if (got > 0)
            buffer_commit(&client->in, (size_t)got);
    } while (got == READ_BYTES);
    while (buffer_length(&client->in) > 0 && client_take_reply(client, now))
        ;
    if (client->link == LINK_UP && (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)))
        client_lose(client, now);
}

void client_flush(struct client *client, int64_t now)
{
    while (client->link == LINK_UP && buffer_length(&client->out) > 0) {
        ssize_t sent = send(client->fd, buffer_head(&client->out), buffer_length(&client->out), MSG_NOSIGNAL);
        if (sent > 0) {
            buffer_consume(&client->out, (size_t)sent);
        } else if (errno == EAGAIN) {
            if (!client->writable_wanted)
                client_watch(client, true, EPOLL_CTL_MOD);
            return;
        } else if (errno != EINTR) {
            client_lose(client, now);
        }
    }
}

static void client_connected(struct client *client, int64_t now)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        client_close(client, now);
        return;
    }
    client->link = LINK_UP;
    shared_count(client->worker->shared, FIGURE_CONNECTIONS);
}

void client_event(struct client *client, unsigned events, int64_t now)
{
    if (client->link == LINK_CONNECTING)
        client_connected(client, now);
    if (client->link == LINK_UP && client->writable_wanted && (events & EPOLLOUT) != 0)
        client_watch(client, false, EPOLL_CTL_MOD);
    if (client->link == LINK_UP && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
        client_read(client, now);
}
