#include "event/mailbox.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

void mailbox_run(struct mailbox *mailbox)
{
    struct message_queue messages = STAILQ_HEAD_INITIALIZER(messages);

    pthread_mutex_lock(&mailbox->lock);
    STAILQ_CONCAT(&messages, &mailbox->messages);
    pthread_mutex_unlock(&mailbox->lock);
    while (!STAILQ_EMPTY(&messages)) {
        struct message *message = STAILQ_FIRST(&messages);
        STAILQ_REMOVE_HEAD(&messages, next);
        message->run(message);
    }
}

static void read_messages(evutil_socket_t fd, short what, void *context)
{
    struct mailbox *mailbox = context;
    uint64_t count;

    (void)what;
    /* Reset before the messages are taken: one that comes meanwhile makes it readable again. */
    ssize_t got = read(fd, &count, sizeof count);
    (void)got;
    mailbox_run(mailbox);
}

bool mailbox_open(struct mailbox *mailbox, struct reactor *reactor)
{
    STAILQ_INIT(&mailbox->messages);
    mailbox->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (mailbox->fd < 0) {
        return false;
    }
    pthread_mutex_init(&mailbox->lock, NULL);
    event_assign(&mailbox->event, reactor->base, mailbox->fd, EV_READ | EV_PERSIST, read_messages, mailbox);
    if (!reactor_wakes_by(reactor, mailbox->fd) || event_add(&mailbox->event, NULL) != 0) {
        pthread_mutex_destroy(&mailbox->lock);
        close(mailbox->fd);
        errno = ENOMEM;
        return false;
    }
    return true;
}

void mailbox_close(struct mailbox *mailbox)
{
    event_del(&mailbox->event);
    close(mailbox->fd);
    pthread_mutex_destroy(&mailbox->lock);
}

void mailbox_post(struct mailbox *mailbox, struct message *message)
{
    const uint64_t one = 1;

    pthread_mutex_lock(&mailbox->lock);
    bool was_empty = STAILQ_EMPTY(&mailbox->messages);
    STAILQ_INSERT_TAIL(&mailbox->messages, message, next);
    pthread_mutex_unlock(&mailbox->lock);
    if (was_empty) {
        /* Cannot fail but by overflow, and then it is readable anyway. */
        ssize_t done = write(mailbox->fd, &one, sizeof one);
        (void)done;
    }
}
