/*
 * Letters between threads: the only way in which they reach each other. A letter is a function to run on the thread
 * that owns the mailbox, at its next turn.
 */
#ifndef HEADGATE_MAILBOX_H
#define HEADGATE_MAILBOX_H

#include "event/reactor.h"

#include <event2/event_struct.h>
#include <pthread.h>

/* Embedded in what it carries. Belongs to the receiver from mailbox_post() on. */
struct letter {
    STAILQ_ENTRY(letter) next;
    void (*run)(struct letter *letter);
};

struct mailbox {
    pthread_mutex_t lock;
    STAILQ_HEAD(letter_queue, letter) letters;
    int fd; /* an eventfd, readable while there are letters */
    struct event event;
};

/* False when the system refuses a descriptor. */
bool mailbox_open(struct mailbox *mailbox, struct reactor *reactor);
void mailbox_close(struct mailbox *mailbox);
/* Runs the letters that are there, for an owner whose event loop turns no more. */
void mailbox_run(struct mailbox *mailbox);
/* From any thread. */
void mailbox_post(struct mailbox *mailbox, struct letter *letter);

#endif
