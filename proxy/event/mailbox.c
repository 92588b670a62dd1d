#include "event/mailbox.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct letter *take_all(struct mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    struct letter *letters = mailbox->first;
    mailbox->first = NULL;
    mailbox->last = NULL;
    pthread_mutex_unlock(&mailbox->lock);
    return letters;
}

void mailbox_run(struct mailbox *mailbox)
{
    struct letter *letter = take_all(mailbox);

    while (letter != NULL) {
        struct letter *next = letter->next;
        letter->run(letter);
        letter = next;
    }
}

static void read_letters(evutil_socket_t fd, short what, void *context)
{
    struct mailbox *mailbox = context;
    uint64_t count;

    (void)what;
    /* Reset before the letters are taken: one that comes meanwhile makes it readable again. */
    ssize_t got = read(fd, &count, sizeof count);
    (void)got;
    mailbox_run(mailbox);
}

bool mailbox_open(struct mailbox *mailbox, struct reactor *reactor)
{
    mailbox->first = NULL;
    mailbox->last = NULL;
    mailbox->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (mailbox->fd < 0) {
        return false;
    }
    pthread_mutex_init(&mailbox->lock, NULL);
    event_assign(&mailbox->event, reactor->base, mailbox->fd, EV_READ | EV_PERSIST, read_letters, mailbox);
    if (event_add(&mailbox->event, NULL) != 0) {
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

void mailbox_post(struct mailbox *mailbox, struct letter *letter)
{
    const uint64_t one = 1;

    letter->next = NULL;
    pthread_mutex_lock(&mailbox->lock);
    bool was_empty = mailbox->first == NULL;
    if (was_empty) {
        mailbox->first = letter;
    } else {
        mailbox->last->next = letter;
    }
    mailbox->last = letter;
    pthread_mutex_unlock(&mailbox->lock);
    if (was_empty) {
        /* Cannot fail but by overflow, and then it is readable anyway. */
        ssize_t done = write(mailbox->fd, &one, sizeof one);
        (void)done;
    }
}
