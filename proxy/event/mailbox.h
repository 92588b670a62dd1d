/*
 * Messages between threads: the only way in which they reach each other. A message is a function to run on the thread
 * that owns the mailbox, at its next loop iteration.
 */
#ifndef HEADGATE_MAILBOX_H
#define HEADGATE_MAILBOX_H

#include "event/reactor.h"

#include <event2/event_struct.h>
#include <pthread.h>

/* Embedded in what it carries. Belongs to the receiver from mailbox_post() on. */
struct message {
    STAILQ_ENTRY(message) next;
    void (*run)(struct message *message);
};

struct mailbox {
    pthread_mutex_t lock;
    STAILQ_HEAD(message_queue, message) messages;
    int fd; /* an eventfd, readable while there are messages */
    struct event event;
};

/* False when the system refuses a descriptor. */
bool mailbox_open(struct mailbox *mailbox, struct reactor *reactor);
void mailbox_close(struct mailbox *mailbox);
/* Runs the messages that are there, for an owner whose event loop turns no more. */
void mailbox_run(struct mailbox *mailbox);
/* From any thread. */
void mailbox_post(struct mailbox *mailbox, struct message *message);

#endif
