/*
 * Clients: accepted connections. This is what the worker and the admin port see of them.
 */
#ifndef HEADGATE_CLIENT_H
#define HEADGATE_CLIENT_H

#include "net/admission.h"
#include "policy/chain.h"
#include "topology/cluster_way.h"
#include "topology/replica_ways.h"
#include "upstream/server_info.h"

struct client;

/* What all clients of a worker have in common. Times in ms, sizes in bytes. */
struct client_settings {
    bool session_pool; /* pool = session: each client has an exclusive lane for life */
    enum conf_maintenance_notifications maintenance_notifications;
    int64_t drain_timeout;
    bool splits;             /* cross_slot = split: requests with keys in several slots of a cluster are taken apart */
    enum conf_reads reads;   /* who answers what only reads, unless a policy says otherwise … */
    bool reads_replicas;     /* … which may be a replica for some of it … */
    int64_t read_own_writes; /* … but for the master for so long after a write of its client */
    int64_t idle_timeout;
    int64_t upstream_wait;
    uint64_t output_limit; /* 0: none */
    uint32_t pipeline_limit;
    uint64_t max_request;
    uint64_t cut_through;
    int64_t auth_timeout;
    int64_t client_id_timeout;      /* 0: none */
    const char *upstream_text;      /* for error replies */
    struct connection_security tls; /* of clients that speak it; its context may be none */
    /* Of servers that policies have for themselves, but for target, credentials and where lanes are counted. */
    struct upstream_settings servers;
    int64_t resolve_every; /* how often their names are looked up */
};

struct client_service;

/* What a worker lends to its clients; all of it must outlive them. */
struct client_parts {
    struct reactor *reactor;
    struct run_pool *runs;
    struct upstream *upstream;
    struct cluster_ways *cluster;  /* to the nodes; NULL: there is one Redis, at the upstream */
    struct replica_ways *replicas; /* of the master at the upstream; NULL: none can be known */
    struct control *control;
    struct server_info *server_info;
    const struct chain_roster *policies;
    size_t worker;               /* its number, from 0 */
    const char *host_name;       /* of this sidecar; NULL or empty: the machine's */
    const char *server_name;     /* of the [server:NAME]; NULL or empty: that of [headgate] */
    struct admission *admission; /* whom the configuration knows and lets in; needed at the start only */
};

/* Copies parts and settings; rules are needed within the call only. NULL when memory is short. */
struct client_service *client_service_new(const struct client_parts *parts, const struct client_settings *settings,
                                          const struct conf_rule *rules);
/* Ends the scripts that policies have run on servers of their own; later ones fail. Those on the Redis of the clients
 * end with their upstream. Both come before client_service_free(). */
void client_service_end_scripts(struct client_service *service);
/* Clients of identities come with none of their credentials any more: there are no clients, and their upstream goes. */
void client_service_leave_admission(struct client_service *service);
/* All clients must have been closed. */
void client_service_free(struct client_service *service);
/* Frees half of the memory that is kept for what will be measured, if that is for more than so many runs. Whether it
 * did.
 */
bool client_service_trim(struct client_service *service, size_t kept);
/* rules and admission are needed within the call only. */
void client_service_reconfigure(struct client_service *service, const struct client_settings *settings,
                                const struct conf_rule *rules, struct admission *admission);
/* On the worker's thread: brings the policies' gauges, and the counters of their servers, up to date. */
void client_service_update_gauges(struct client_service *service);
/* How long requests took, as far as it is measured; see struct policy_observer. */
bool client_service_tell_durations(struct client_service *service, uint32_t *at, policy_durations_told *told,
                                   void *context);
/* A counter of the policy at this place of the list. From any thread. */
uint64_t client_service_policy_counter(const struct client_service *service, size_t policy, size_t counter);

/* How an admin query to a policy was answered. text is valid within the call. */
typedef void client_answered(void *context, enum policy_answer kind, struct slice text);

/* An admin query to a policy. */
struct client_admin_query {
    size_t policy;                  /* its place in the list */
    const struct policy_verb *verb; /* one of its own */
    size_t count;
    const struct slice *arguments; /* with the verb; needed within the call only */
    client_answered *answered;
    void *context; /* of answered */
};

/* Puts an admin query to a policy, on the worker's thread. answered is called exactly once on the same thread, possibly
 * before this returns; or by client_service_free(). */
void client_service_ask_policy(struct client_service *service, const struct client_admin_query *admin_query);

/* The policies of its clients, on the worker's thread. */
struct chain *client_service_chain(struct client_service *service);

/* Where a client comes from. */
struct client_origin {
    struct sockaddr_storage address; /* its own, whoever has passed it on */
    bool is_proxied;                 /* somebody has: what the kernel knows of the other end is not of the client */
    bool tls;                        /* it came where TLS is spoken */
    size_t listener;                 /* where it came: conf_listener_at() */
};

/* Takes over an accepted, tuned, non-blocking socket. False (and the socket closed) when memory is short. */
bool client_accept(struct client_service *service, int fd, const struct client_origin *origin, uint64_t id);

/* A connection to Redis was lost, and so many requests with it; or none can be made: the policies are told. why is one
 * line for a person. */
void client_service_upstream_lost(struct client_service *service, const char *why, uint64_t requests);

/* Where the nodes of the cluster are is known now, or is not waited for any more. */
void client_service_map_came(struct client_service *service);

/* A shared lane cannot be made any more, as Redis refuses its credentials: who uses it is closed. */
void client_service_refused(struct client_service *service, const struct lane *lane);

size_t client_count(const struct client_service *service);
/* Ten times a second: idle time-outs, policies' ticks. */
void client_service_tick(struct client_service *service);
/* After each loop iteration: sees to it that memory_limit holds. True if clients were closed. */
bool client_service_relieve(struct client_service *service);

/* From now on each client is closed as soon as it has no request under way. move: the number by which those who asked
 * for it are told first that another process is where they came, and are given time to go there (client_moving.c); 0:
 * nobody is, or is any more, if this is called again. */
void client_service_drain(struct client_service *service, uint64_t move);
/* Another process has taken over, and this one stays for the clients that it has: those who asked for it are told so by
 * that number, some at each tick, and may go there when they like. 0: it is gone, and whoever was told is to be told of
 * the next one anew. */
void client_service_offer_move(struct client_service *service, uint64_t move);
/* Whether a drain has come to its end, and the policies have done what they had to do first. From any thread. */
bool client_service_is_settled(const struct client_service *service);
/* Whether that waits for a policy whose server was never reached. From any thread. */
bool client_service_waits_in_vain(const struct client_service *service);
/* Closes all at once. */
void client_service_close_all(struct client_service *service, const char *why);

/* One line about a client, as CLIENTS shows it. */
struct client_report {
    uint64_t id;
    const char *address;
    const struct sockaddr_storage *peer_address;
    const char *name;
    const char *user;
    const char *identity; /* "" for none */
    int64_t database;
    int resp;
    int64_t age_us;
    int64_t idle_us;
    const char *lane; /* "shared", or why it has an exclusive lane */
    uint32_t in_flight;
    size_t input_bytes;
    size_t output_bytes;
};

/* The same as client_visit(), but that each client of which chooses() says so is closed at once, as by CLIENT KILL:
 * what it has sent is carried out or not, and nobody is answered. */
uint64_t client_kill(struct client_service *service, uint64_t after, size_t count,
                     bool (*chooses)(void *context, const struct client_report *report), void *context);

/* Visits at most count clients, the newest first, beginning with the first whose id is below after (0: the newest).
 * Returns the last id visited, to go on from, or 0 when there are no more. */
uint64_t client_visit(struct client_service *service, uint64_t after, size_t count,
                      void (*visit)(void *context, const struct client_report *report), void *context);

#endif
