#include "process/handover_line.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Bytes that wait, from which on the line is full. */
#define FULL ((size_t)1024 * 1024)

struct handover_packet {
    STAILQ_ENTRY(handover_packet) next;
    int fd;
    size_t length;
    char bytes[];
};

/* Room for a control message with one descriptor. */
union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

bool handover_line_open(struct handover_line *line, int fd)
{
    char *room = malloc(HANDOVER_MESSAGE_MAX);

    if (room == NULL) {
        return false;
    }
    *line = (struct handover_line){.fd = fd, .room = room};
    STAILQ_INIT(&line->packets);
    return true;
}

static void drop_packets(struct handover_line *line)
{
    while (!STAILQ_EMPTY(&line->packets)) {
        struct handover_packet *packet = STAILQ_FIRST(&line->packets);
        STAILQ_REMOVE_HEAD(&line->packets, next);
        free(packet);
    }
    line->queued = 0;
}

void handover_line_close(struct handover_line *line)
{
    if (!handover_line_is_open(line)) {
        return;
    }
    if (line->is_watched) {
        event_del(&line->readable);
        event_del(&line->writable);
    }
    drop_packets(line);
    close(line->fd);
    free(line->room);
    *line = (struct handover_line){.fd = -1};
}

bool handover_line_is_open(const struct handover_line *line)
{
    return line->room != NULL;
}

/* ---- sending ---- */

/* False with errno set. */
static bool send_packet(const struct handover_line *line, const struct handover_packet *packet)
{
    struct iovec piece = {.iov_base = (void *)(uintptr_t)packet->bytes, .iov_len = packet->length};
    struct msghdr head = {.msg_iov = &piece, .msg_iovlen = 1};
    union control control = {.bytes = {0}};

    if (packet->fd >= 0) {
        head.msg_control = control.bytes;
        head.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&head);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &packet->fd, sizeof(int));
    }
    return sendmsg(line->fd, &head, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

/* Sends what the socket takes. To a process that is gone nothing can be said any more: reading tells of that. */
static void send_packets(struct handover_line *line)
{
    while (!STAILQ_EMPTY(&line->packets)) {
        struct handover_packet *packet = STAILQ_FIRST(&line->packets);
        if (!send_packet(line, packet)) {
            if (errno != EAGAIN && errno != ENOBUFS && errno != EINTR) {
                drop_packets(line);
            }
            return;
        }
        STAILQ_REMOVE_HEAD(&line->packets, next);
        line->queued -= packet->length;
        free(packet);
    }
}

static void go_on_sending(struct handover_line *line)
{
    send_packets(line);
    if (!line->is_watched) {
        return;
    }
    if (STAILQ_EMPTY(&line->packets)) {
        event_del(&line->writable);
    } else {
        event_add(&line->writable, NULL);
    }
}

bool handover_line_send(struct handover_line *line, const char *word, struct slice body, int fd)
{
    size_t word_length = strlen(word), length = word_length + 1 + body.length;

    if (!handover_line_is_open(line) || length > HANDOVER_MESSAGE_MAX) {
        return false;
    }
    struct handover_packet *packet = malloc(sizeof *packet + length);
    if (packet == NULL) {
        return false;
    }
    packet->fd = fd;
    packet->length = length;
    memcpy(packet->bytes, word, word_length);
    packet->bytes[word_length] = '\n';
    if (body.length > 0) {
        memcpy(packet->bytes + word_length + 1, body.data, body.length);
    }
    STAILQ_INSERT_TAIL(&line->packets, packet, next);
    line->queued += length;
    go_on_sending(line);
    return true;
}

bool handover_line_is_full(const struct handover_line *line)
{
    return line->queued >= FULL;
}

void handover_line_flush(struct handover_line *line, int patience_ms)
{
    int64_t until_us = clock_now_us() + clock_ms_to_us(patience_ms);

    while (handover_line_is_open(line) && !STAILQ_EMPTY(&line->packets) && clock_now_us() < until_us) {
        struct pollfd waiting = {.fd = line->fd, .events = POLLOUT};
        (void)poll(&waiting, 1, (int)((until_us - clock_now_us()) / 1000) + 1);
        go_on_sending(line);
    }
}

/* ---- hearing ---- */

/* The descriptor that came along; -1: none. There is room for one, and the kernel closes others. */
static int take_descriptor(struct msghdr *head)
{
    const struct cmsghdr *part = CMSG_FIRSTHDR(head);
    int fd = -1;

    if (part != NULL && part->cmsg_type == SCM_RIGHTS && part->cmsg_len == CMSG_LEN(sizeof fd)) {
        memcpy(&fd, CMSG_DATA(part), sizeof fd);
    }
    return fd;
}

/* What is no word and a line's end ahead of a body has an empty word, which nobody knows. */
static void split(struct handover_message *message, const char *bytes, size_t length)
{
    const char *end = memchr(bytes, '\n', length < HANDOVER_WORD_MAX + 1 ? length : HANDOVER_WORD_MAX + 1);
    size_t word_length = end != NULL ? (size_t)(end - bytes) : 0;
    size_t taken = end != NULL ? word_length + 1 : 0;

    message->word = (struct slice){bytes, word_length};
    message->body = (struct slice){bytes + taken, length - taken};
}

static enum handover_reading receive(struct handover_line *line, struct handover_message *message)
{
    struct iovec piece = {.iov_base = line->room, .iov_len = HANDOVER_MESSAGE_MAX};
    union control control;
    struct msghdr head = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t length = recvmsg(line->fd, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (length < 0 && (errno == EAGAIN || errno == EINTR)) {
        return HANDOVER_SILENT;
    }
    if (length <= 0) {
        return HANDOVER_ENDED;
    }
    message->fd = take_descriptor(&head);
    /* What was cut is none of ours: its word is not looked at. */
    split(message, line->room, (head.msg_flags & MSG_TRUNC) != 0 ? 0 : (size_t)length);
    if (message->fd >= 0 && !slice_is(message->word, HANDOVER_PORT)) {
        close(message->fd);
        message->fd = -1;
    }
    return HANDOVER_SAID;
}

enum handover_reading handover_line_read(struct handover_line *line, struct handover_message *message, int patience_ms)
{
    int64_t until_us = clock_now_us() + clock_ms_to_us(patience_ms);
    enum handover_reading reading = receive(line, message);

    while (reading == HANDOVER_SILENT && clock_now_us() < until_us) {
        struct pollfd waiting = {.fd = line->fd, .events = POLLIN};
        (void)poll(&waiting, 1, (int)((until_us - clock_now_us()) / 1000) + 1);
        reading = receive(line, message);
    }
    return reading;
}

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct handover_line *line = context;
    struct handover_message message;

    (void)fd;
    (void)what;
    switch (receive(line, &message)) {
    case HANDOVER_SAID:
        line->listener.said(line->listener.context, &message);
        break;
    case HANDOVER_ENDED:
        event_del(&line->readable);
        line->listener.ended(line->listener.context);
        break;
    case HANDOVER_SILENT:
        break;
    }
}

void handover_line_hold(struct handover_line *line, bool holds)
{
    if (!line->is_watched) {
        return;
    }
    if (holds) {
        event_del(&line->readable);
    } else {
        (void)event_add(&line->readable, NULL);
    }
}

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    go_on_sending(context);
}

bool handover_line_watch(struct handover_line *line, struct reactor *reactor, const struct handover_listener *listener)
{
    line->listener = *listener;
    event_assign(&line->readable, reactor->base, line->fd, EV_READ | EV_PERSIST, on_readable, line);
    event_assign(&line->writable, reactor->base, line->fd, EV_WRITE | EV_PERSIST, on_writable, line);
    line->is_watched = event_add(&line->readable, NULL) == 0;
    if (line->is_watched) {
        go_on_sending(line);
    }
    return line->is_watched;
}
