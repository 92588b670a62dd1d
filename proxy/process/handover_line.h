/*
 * The line between a process and the one that takes over from it: messages of a word and a body, and sockets beside
 * them. It is a socket pair of which the new process has been given one end, so nobody else can speak on it; what comes
 * may still be of another version, and words that are not known are for the receiver to pass over. Main thread only.
 */
#ifndef HEADGATE_HANDOVER_LINE_H
#define HEADGATE_HANDOVER_LINE_H

#include "base/slice.h"
#include "event/reactor.h"

#include <event2/event_struct.h>
#include <stdbool.h>
#include <sys/queue.h>

/* Of the whole message. Bytes. */
#define HANDOVER_MESSAGE_MAX ((size_t)128 * 1024)
/* Of its word. */
#define HANDOVER_WORD_MAX 16

/* The word that a descriptor goes along with. */
#define HANDOVER_PORT "PORT"

/* Valid within the call. */
struct handover_message {
    struct slice word;
    struct slice body;
    int fd; /* with HANDOVER_PORT: the receiver's, to keep or close; -1: there is none */
};

/* What the owner of a line hears. Either may close the line. */
struct handover_listener {
    void (*said)(void *context, const struct handover_message *message);
    /* Nothing more comes: the other process has ended, or closed its end. */
    void (*ended)(void *context);
    void *context;
};

struct handover_packet;

struct handover_line {
    int fd; /* -1: closed */
    bool is_watched;
    struct event readable;
    struct event writable;
    STAILQ_HEAD(, handover_packet) packets; /* that the socket did not take yet */
    size_t queued;                          /* bytes of these */
    char *room;                             /* for one message */
    struct handover_listener listener;
};

enum handover_reading { HANDOVER_SAID, HANDOVER_ENDED, HANDOVER_SILENT };

/* Takes fd over. False when memory is short; fd is the caller's then. */
bool handover_line_open(struct handover_line *line, int fd);
/* Harmless if it is closed. */
void handover_line_close(struct handover_line *line);
bool handover_line_is_open(const struct handover_line *line);

/* Has the listener told of what comes, and sends what waits as soon as that can be done. False when memory is short. */
bool handover_line_watch(struct handover_line *line, struct reactor *reactor, const struct handover_listener *listener);

/* Leaves what comes unread, for who is told of it, or reads on. Harmless if it is closed, or not watched. */
void handover_line_hold(struct handover_line *line, bool holds);

/* word: up to HANDOVER_WORD_MAX bytes. fd: goes along, and must stay open until the message is sent; -1: none. Lost if
 * the other process is gone, if the message is too long, or if memory is short: false. */
bool handover_line_send(struct handover_line *line, const char *word, struct slice body, int fd);
/* Whether so much waits to be sent that more is better told later. */
bool handover_line_is_full(const struct handover_line *line);
/* Waits until all is sent, or so many ms are over. */
void handover_line_flush(struct handover_line *line, int patience_ms);

/* Waits for a message, for who has nothing else to do: up to so many ms. */
enum handover_reading handover_line_read(struct handover_line *line, struct handover_message *message, int patience_ms);

#endif
