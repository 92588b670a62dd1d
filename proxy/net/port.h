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

#include <sys/queue.h>
#include <sys/un.h>

/* The file of a Unix socket, by which it is known to be still the one that was made. */
struct port_file {
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path]; /* "": there is none, or it is not ours to remove */
    dev_t device;
    ino_t inode;
};

/* A socket that is handed over. */
struct port_inherited {
    int fd;
    bool is_kept; /* who handed it over keeps it, and with it those who wait there, when we close it */
    bool is_used; /* an address was found for it */
    struct port_file file;
};

LIST_HEAD(port_list, port);

/* Where the sockets of a process come from. */
struct port_source {
    bool takes_over;                  /* an address may be in use by a Headgate that will be ended */
    struct port_inherited *inherited; /* whoever is done with the source frees them */
    size_t inherited_count;
    bool has_owner; /* sockets are to be of another user, who we are about to become */
    uid_t owner;
    gid_t owner_group;
    struct port_list *ports; /* where those that are open are listed, which must outlive them; NULL: nowhere */
};

struct port {
    LIST_ENTRY(port) of_source; /* if is_listed */
    bool is_listed;
    int fd;            /* -1: none */
    bool is_inherited; /* somebody else has it, too: its file and who waits there are left alone at the end */
    bool may_be_owned; /* … until port_own() */
    bool is_left;      /* … from port_leave() on; before that it was as was_inherited says */
    bool was_inherited;
    int backlog;
    char *place;           /* where the Unix socket is to be, which is beside it as yet; else NULL */
    struct port_file file; /* that is removed at the end */
    struct port_file lent; /* … that is so from port_own() or port_take_back() on */
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
/* Has open() open a socket, by port_open(), at each address that one of the list stands for, from the last to the
 * first: a name may stand for several, IPv4 and IPv6. open(): false with errno set. False with one logged line of that
 * module for each of the list that cannot be opened. Of a name, those may be missing that the machine does not have;
 * and those are left out that the list has by themselves. */
typedef bool port_opener(void *context, struct port_source *source, const struct conf_address *address,
                         const struct connection_target *target);
bool port_open_all(struct port_source *source, const struct conf_address_list *list, const char *module,
                   port_opener *open, void *context);
/* Of one list. */
#define PORT_OPEN_MAX (CONF_ADDRESSES_MAX * CONNECTION_TARGETS_MAX)
/* Listens at the address from now on, and takes it over. False with errno set. */
bool port_serve(struct port *port);
/* Whether another process serves there, too: so it has taken the address over. To be called before port_hide(). */
bool port_has_successor(const struct port *port);
/* To be called before the last look at who has connected: nobody can come by the file any more. */
void port_hide(struct port *port);
/* Hides and closes it. */
void port_close(struct port *port);

/* Adds a socket that was handed over by other means. False when memory is short. */
bool port_source_add(struct port_source *source, const struct port_inherited *inherited);
/* What another process has to know of it to take it over. */
struct port_inherited port_tell(const struct port *port);
/* Whoever handed the socket over, and did not keep it, is about to close it: its file, and who waits there at the end,
 * are this process's from now on. */
void port_own(struct port *port);
/* The other way round: another process has it. */
void port_leave(struct port *port);
/* … and has it no more: it is as it was before. Harmless if it was not left. */
void port_take_back(struct port *port);

#endif
