/*
 * Two mailboxes: orders go to the thread, results come back. What is dropped while it is under way comes back, too, to
 * be closed; if its result was on the way already, the result is passed over.
 */
#include "event/handshaker.h"

#include "event/mailbox.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Added to what the owner has if it gives way: of a core that both want, the thread gets a tenth. */
#define NICENESS 10
/* For the thread: more than an event loop and two mailboxes have. */
#define DESCRIPTORS_NEEDED 12

struct handshaker {
    struct reactor *owner;
    struct mailbox results; /* the owner's */
    size_t under_way;       /* of the owner's counting */
    /* The thread's. */
    pthread_t thread;
    struct reactor reactor;
    struct stats stats; /* nobody reads them */
    struct mailbox orders;
    struct message stop;
    bool stopping;
    bool gives_way;
};

struct handshake {
    struct handshaker *handshaker;
    struct handshake_order order;
    int64_t until_us; /* 0: no limit */
    bool is_dropped;  /* the owner's */
    struct message begin;
    struct message drop;
    struct message result;
    struct message dropped;
    /* The thread's. */
    bool is_over;
    struct event readable;
    struct event writable;
    struct event timer;
};

#define HANDSHAKE_OF(message, member)                                                                                  \
    ((struct handshake *)(void *)((char *)(message)-offsetof(struct handshake, member)))

/* ---- on the thread ---- */

/* It is the owner's again as soon as a message says so. */
static void let_go(struct handshake *handshake)
{
    event_del(&handshake->readable);
    event_del(&handshake->writable);
    event_del(&handshake->timer);
    tls_detach(handshake->order.tls);
    handshake->is_over = true;
}

static void end(struct handshake *handshake)
{
    let_go(handshake);
    mailbox_post(&handshake->handshaker->results, &handshake->result);
}

static void set_watched(struct handshake *handshake, struct event *event, bool wanted)
{
    if (!wanted) {
        event_del(event);
    } else if (event_add(event, NULL) != 0) {
        tls_fail(handshake->order.tls, TLS_FAILURE_OTHER, "out of memory");
    }
}

/* The owner gets nothing that waits for the socket: who does not read the last flight is not done. */
static void go_on(struct handshake *handshake)
{
    struct tls *tls = handshake->order.tls;
    bool waits = tls_wants_write(tls);

    if (tls_state(tls) != TLS_FAILED) {
        set_watched(handshake, &handshake->readable, tls_state(tls) == TLS_HANDSHAKE);
        set_watched(handshake, &handshake->writable, waits);
    }
    if (tls_state(tls) == TLS_FAILED || (tls_state(tls) == TLS_OPEN && !waits)) {
        end(handshake);
    }
}

/* Others wait for the next loop iteration, in which the kernel tells of them again. */
static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct handshake *handshake = context;
    struct reactor *reactor = &handshake->handshaker->reactor;

    (void)fd;
    (void)what;
    if (handshake->order.most > 0 && reactor->handshakes >= handshake->order.most) {
        return;
    }
    reactor->handshakes += handshake->order.most > 0 ? 1 : 0;
    (void)tls_handshake(handshake->order.tls);
    go_on(handshake);
}

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    struct handshake *handshake = context;

    (void)fd;
    (void)what;
    if (!tls_flush(handshake->order.tls)) {
        tls_fail(handshake->order.tls, TLS_FAILURE_OTHER, strerror(errno));
    }
    go_on(handshake);
}

static void on_timeout(evutil_socket_t fd, short what, void *context)
{
    struct handshake *handshake = context;

    (void)fd;
    (void)what;
    tls_fail(handshake->order.tls, TLS_FAILURE_TIMEOUT, "the handshake was not done within tls_handshake_timeout");
    end(handshake);
}

static void set_timer(struct handshake *handshake)
{
    int64_t left_us = handshake->until_us - clock_now_us();
    left_us = left_us > 0 ? left_us : 0;
    const struct timeval delay = {.tv_sec = left_us / 1000000, .tv_usec = left_us % 1000000};

    if (handshake->until_us > 0 && event_add(&handshake->timer, &delay) != 0) {
        tls_fail(handshake->order.tls, TLS_FAILURE_OTHER, "out of memory");
    }
}

static void on_begin(struct message *message)
{
    struct handshake *handshake = HANDSHAKE_OF(message, begin);
    const struct handshake_order *order = &handshake->order;
    struct reactor *reactor = &handshake->handshaker->reactor;

    event_assign(&handshake->readable, reactor->base, order->fd, EV_READ | EV_PERSIST, on_readable, handshake);
    event_assign(&handshake->writable, reactor->base, order->fd, EV_WRITE | EV_PERSIST, on_writable, handshake);
    evtimer_assign(&handshake->timer, reactor->base, on_timeout, handshake);
    tls_attach(order->tls, reactor->wire);
    set_timer(handshake);
    if (order->begins) {
        (void)tls_handshake(order->tls);
    }
    go_on(handshake);
}

static void on_drop(struct message *message)
{
    struct handshake *handshake = HANDSHAKE_OF(message, drop);

    if (!handshake->is_over) {
        /* What waits for the socket is for nobody. */
        tls_fail(handshake->order.tls, TLS_FAILURE_OTHER, "nobody wants it any more");
        let_go(handshake);
    }
    mailbox_post(&handshake->handshaker->results, &handshake->dropped);
}

static void on_stop(struct message *message)
{
    struct handshaker *handshaker = (struct handshaker *)(void *)((char *)message - offsetof(struct handshaker, stop));

    handshaker->stopping = true;
}

static void *run(void *context)
{
    struct handshaker *handshaker = context;

    if (handshaker->gives_way) {
        /* Linux has a priority for each thread. */
        (void)!nice(NICENESS);
    }
    while (!handshaker->stopping && reactor_turn(&handshaker->reactor)) {
    }
    return NULL;
}

/* ---- on the owner's thread ---- */

static void take_back(struct handshake *handshake)
{
    handshake->handshaker->under_way--;
    tls_attach(handshake->order.tls, handshake->handshaker->owner->wire);
}

static void on_result(struct message *message)
{
    struct handshake *handshake = HANDSHAKE_OF(message, result);
    const struct handshake_order order = handshake->order;

    if (handshake->is_dropped) {
        /* It comes again, as dropped: until then the thread may look at it. */
        return;
    }
    take_back(handshake);
    free(handshake);
    order.ended(order.context);
}

static void on_dropped(struct message *message)
{
    struct handshake *handshake = HANDSHAKE_OF(message, dropped);

    take_back(handshake);
    tls_free(handshake->order.tls);
    close(handshake->order.fd);
    free(handshake);
}

struct handshake *handshaker_begin(struct handshaker *handshaker, const struct handshake_order *order)
{
    struct handshake *handshake = calloc(1, sizeof *handshake);

    if (handshake == NULL) {
        return NULL;
    }
    handshake->handshaker = handshaker;
    handshake->order = *order;
    handshake->until_us = order->timeout_ms > 0 ? clock_now_us() + clock_ms_to_us(order->timeout_ms) : 0;
    handshake->begin.run = on_begin;
    handshake->drop.run = on_drop;
    handshake->result.run = on_result;
    handshake->dropped.run = on_dropped;
    tls_detach(order->tls);
    handshaker->under_way++;
    mailbox_post(&handshaker->orders, &handshake->begin);
    return handshake;
}

void handshaker_drop(struct handshake *handshake)
{
    handshake->is_dropped = true;
    mailbox_post(&handshake->handshaker->orders, &handshake->drop);
}

/* ---- life ---- */

/* libevent ends the process if it gets none for a new event loop. */
static bool has_descriptors(void)
{
    int taken[DESCRIPTORS_NEEDED];
    size_t count = 0;

    while (count < DESCRIPTORS_NEEDED && (taken[count] = eventfd(0, EFD_CLOEXEC)) >= 0) {
        count++;
    }
    for (size_t i = 0; i < count; i++) {
        close(taken[i]);
    }
    return count == DESCRIPTORS_NEEDED;
}

/* Signals are the main thread's. */
static bool start(struct handshaker *handshaker)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&handshaker->thread, NULL, run, handshaker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == 0) {
        pthread_setname_np(handshaker->thread, "handshakes");
    }
    return status == 0;
}

/* What the thread needs. False with nothing left open. */
static bool open_reactor(struct handshaker *handshaker)
{
    struct reactor *reactor = &handshaker->reactor;

    if (!reactor_init(reactor, &handshaker->stats)) {
        return false;
    }
    reactor->wire = tls_wire_new(&reactor->buffers);
    if (reactor->wire == NULL || !mailbox_open(&handshaker->orders, reactor)) {
        reactor_free(reactor);
        return false;
    }
    return true;
}

static void close_reactor(struct handshaker *handshaker)
{
    mailbox_close(&handshaker->orders);
    reactor_free(&handshaker->reactor);
}

struct handshaker *handshaker_new(struct reactor *owner, bool gives_way)
{
    struct handshaker *handshaker = calloc(1, sizeof *handshaker);

    if (handshaker == NULL || !has_descriptors() || !open_reactor(handshaker)) {
        free(handshaker);
        return NULL;
    }
    handshaker->owner = owner;
    handshaker->gives_way = gives_way;
    handshaker->stop.run = on_stop;
    if (mailbox_open(&handshaker->results, owner)) {
        if (start(handshaker)) {
            return handshaker;
        }
        mailbox_close(&handshaker->results);
    }
    close_reactor(handshaker);
    free(handshaker);
    return NULL;
}

void handshaker_free(struct handshaker *handshaker)
{
    if (handshaker == NULL) {
        return;
    }
    mailbox_post(&handshaker->orders, &handshaker->stop);
    pthread_join(handshaker->thread, NULL);
    mailbox_run(&handshaker->results);
    assert(handshaker->under_way == 0);
    mailbox_close(&handshaker->results);
    close_reactor(handshaker);
    free(handshaker);
}
