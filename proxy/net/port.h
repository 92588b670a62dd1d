/*
 * Sockets that listen, for clients and for operators: opened here, handed over by who started the process (as systemd
 * does, see sd_listen_fds(3)), or opened beside those of a Headgate that is to go, so that a restart refuses nobody.
 *
 * An address is taken by one process: a second one is told so by the kernel. Only who says that it takes over shares
 * it, and only with a process of the same user; all who connect from then on are the new one's. A Unix socket is taken
 * over from Headgate only, as far as can be seen.
 *
 * Who takes over opens all of its sockets first, and serves then: of one that cannot be opened nobody notices anything.
 */
#ifndef HEADGATE_PORT_H
#define HEADGATE_PORT_H

#include "net/connection.h"

#define PORT_INHERITED_MAX 64

/* Where the sockets of a process come from. */
struct port_source {
    bool takes_over;        /* an address may be in use by a Headgate that will be ended */
    int inherited_from;     /* descriptors from here … */
    size_t inherited_count; /* … so many */
    bool has_owner;         /* sockets are to be of another user, who we are about to become */
    uid_t owner;
    gid_t owner_group;
    uint64_t inherited_used; /* a bit for each that an address was found for */
};

struct port {
    int fd; /* -1: none */
    bool is_inherited;
    int backlog;
    char *place;  /* where the Unix socket is to be, which is beside it as yet; else NULL */
    char *path;   /* of a Unix socket that was made here; else NULL */
    dev_t device; /* … by which it is known to be still the one that was made here */
    ino_t inode;
};

/* Reads what the environment says of sockets that are handed over, and takes it out of the environment. To be called
 * before anything else is opened, so that no other descriptor is taken for one of them. */
struct port_source port_source_of_process(bool takes_over);
/* Calls report with the address of each that nobody has wanted, and closes it. */
void port_source_close_unused(struct port_source *source, void (*report)(const char *address));

/* Opens the socket; who connects is kept waiting or refused until port_serve(). False with errno set. A left-over Unix
 * socket that nobody listens on is replaced. Logs whose socket is left alone. */
bool port_open(struct port *port, struct port_source *source, const struct connection_target *target, int backlog,
               mode_t unix_mode);
/* Listens at the address from now on, and takes it over. False with errno set. */
bool port_serve(struct port *port);
/* Whether another process serves there, too: so it has taken the address over. To be called before port_hide(). */
bool port_has_successor(const struct port *port);
/* To be called before the last look at who has connected: nobody can come by the file any more. */
void port_hide(struct port *port);
/* Hides and closes it. */
void port_close(struct port *port);

#endif
