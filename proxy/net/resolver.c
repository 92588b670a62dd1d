#include "net/resolver.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Held by the event loop and by the thread: who is done with it last frees it, as nobody can hurry the system's
 * resolver up. */
struct resolver {
    _Atomic int holders;
    _Atomic bool is_done; /* what follows is there */
    struct connection_targets targets;
    struct conf_address address;
    int fd; /* readable once it is done */
    struct event event;
    resolver_callback *callback;
    void *context;
};

static void release(struct resolver *resolver)
{
    if (atomic_fetch_sub(&resolver->holders, 1) == 1) {
        close(resolver->fd);
        free(resolver->address.host);
        free(resolver->address.path);
        free(resolver);
    }
}

/* On its own thread. */
static void *look_up(void *argument)
{
    const uint64_t one = 1;
    struct resolver *resolver = argument;

    (void)connection_resolve(&resolver->address, &resolver->targets);
    atomic_store(&resolver->is_done, true);
    ssize_t done = write(resolver->fd, &one, sizeof one);
    (void)done;
    release(resolver);
    return NULL;
}

static void on_done(evutil_socket_t fd, short what, void *context)
{
    struct resolver *resolver = context;

    (void)fd;
    (void)what;
    assert(atomic_load(&resolver->is_done));
    resolver->callback(resolver->context, &resolver->targets);
    release(resolver);
}

/* 0, or the number of an error. The thread is nobody's to wait for, and takes no signals. */
static int start_thread(struct resolver *resolver)
{
    sigset_t all, before;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&thread, NULL, look_up, resolver);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == 0) {
        pthread_detach(thread);
    }
    return status;
}

static bool copy_address(struct conf_address *to, const struct conf_address *from)
{
    to->host = from->host != NULL ? strdup(from->host) : NULL;
    to->path = from->path != NULL ? strdup(from->path) : NULL;
    to->port = from->port;
    return (to->host != NULL) == (from->host != NULL) && (to->path != NULL) == (from->path != NULL);
}

struct resolver *resolver_start(struct reactor *reactor, const struct conf_address *address,
                                resolver_callback *callback, void *context)
{
    struct resolver *resolver = calloc(1, sizeof *resolver);

    if (resolver == NULL) {
        return NULL;
    }
    resolver->callback = callback;
    resolver->context = context;
    resolver->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int status = resolver->fd < 0 ? errno : !copy_address(&resolver->address, address) ? ENOMEM : 0;
    /* Before the thread can be done with its part. */
    resolver->holders = 2;
    if (status == 0) {
        event_assign(&resolver->event, reactor->base, resolver->fd, EV_READ, on_done, resolver);
        status = event_add(&resolver->event, NULL) == 0 ? start_thread(resolver) : ENOMEM;
        if (status != 0) {
            event_del(&resolver->event);
        }
    }
    if (status != 0) {
        resolver->holders = 1;
        release(resolver);
        errno = status;
        return NULL;
    }
    return resolver;
}

void resolver_cancel(struct resolver *resolver)
{
    event_del(&resolver->event);
    release(resolver);
}
