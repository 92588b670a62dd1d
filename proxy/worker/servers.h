/*
 * The servers of the process. Each is what a process with one server is: a configuration by itself, workers of its own
 * with their connections to one Redis and policies of their own, and the addresses where its clients come. They share
 * nothing but the main thread, so what befalls one is nothing to the others. Main thread only.
 */
#ifndef HEADGATE_SERVERS_H
#define HEADGATE_SERVERS_H

#include "worker/expiry.h"
#include "worker/listener.h"
#include "worker/worker_pool.h"

struct server {
    char name[CONF_RULE_NAME_MAX + 1]; /* as operators call it */
    const struct conf *conf;           /* in force */
    struct stats stats;                /* what the main thread counts of it */
    struct worker_pool worker_pool;
    struct listener *listener; /* NULL: not open yet */
    struct expiry expiry;      /* of its certificates */
};

struct servers {
    struct server *list;
    size_t count;
    bool is_draining;
    struct memory memory;   /* of all */
    uint64_t clients_given; /* of all, since the start: no two have clients of one number */
    uint64_t last_move;     /* the number that clients were told of last who may go elsewhere */
    bool has_successor;     /* another process was given all the sockets, which nothing else would tell */
};

/* Makes those of the configuration. False when memory is short. */
bool servers_new(struct servers *servers, const struct conf *process);
/* Frees what servers_new() made; what runs was ended by servers_stop(). Harmless if nothing was made. */
void servers_free(struct servers *servers);

/* Starts all workers. False with one logged line if some cannot be started. */
bool servers_start(struct servers *servers, struct reactor *reactor, const struct policy *const *policies);
/* Opens all addresses, for servers_serve(). False with one logged line for each that cannot be opened. */
bool servers_listen(struct servers *servers, struct reactor *reactor, struct port_source *source);
/* Takes the addresses over from who serves there. False with one logged line. */
bool servers_serve(struct servers *servers);
/* Closes all that is open and ends all workers. */
void servers_stop(struct servers *servers);

/* Another configuration with the same servers: done is called on the thread of each worker when it no longer uses the
 * one before. */
void servers_reconfigure(struct servers *servers, const struct conf *process, void (*done)(void *context),
                         void *context);
size_t servers_workers(const struct servers *servers);
/* So many clients may be connected at once, of all servers together; at least one of each. Each has its max_clients,
 * or, where that is too much, as many as the others that want more: one that is flooded takes nothing from them. */
void servers_bound_clients(struct servers *servers, size_t most);

/* Ends listening; clients stay. */
void servers_stop_listening(struct servers *servers);
/* The same, but the sockets that another process has taken over are kept, for servers_resume_listening(). */
void servers_leave_listening(struct servers *servers);
void servers_resume_listening(struct servers *servers);
/* Ends listening, and has each client closed when nothing of it is under way. Harmless if that was done before. */
void servers_drain(struct servers *servers);
/* The process that was given the sockets has proven itself: clients who asked for it are told to go there, while this
 * one goes on for all that it has. */
void servers_offer_move(struct servers *servers);
/* The process that was given the sockets serves no more: clients that were told to go there are not waited for. */
void servers_lose_successor(struct servers *servers);
/* Clients that are open, or on their way. */
size_t servers_clients(const struct servers *servers);
/* As worker_pool.h says it of one. */
bool servers_are_settled(const struct servers *servers);
bool servers_wait_in_vain(const struct servers *servers);
void servers_close_clients(struct servers *servers);

/* Whether all have it together: reloads. */
bool servers_share_stat(enum stats_id id);
/* What those from the first up to the end have together: the sum, or the least of what holds for all only if it holds
 * for each, of what runs out, and of what they share. */
uint64_t servers_stat(const struct servers *servers, size_t first, size_t end, enum stats_id id);
uint64_t servers_policy_counter(const struct servers *servers, size_t first, size_t end, size_t policy, size_t counter);

/* The one of that name; NULL: there is none. */
const struct server *servers_find(const struct servers *servers, struct slice name);

#endif
