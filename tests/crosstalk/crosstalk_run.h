/*
 * What all parts of one run share: what was asked for, its present phase, when faults are to be expected, and the place
 * where a violation is told. Everything that changes is atomic; each client belongs to one loop thread.
 */
#ifndef CROSSTALK_RUN_H
#define CROSSTALK_RUN_H

#include "crosstalk_secrets.h"
#include "rig_process.h"

#include <openssl/types.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The deliberate faults of the self-test's proxy. */
enum fault {
    FAULT_NONE,
    FAULT_SWAP,      /* two clients get each other's reply */
    FAULT_REORDER,   /* two replies of one client change places */
    FAULT_DROP,      /* a reply is lost */
    FAULT_DUPLICATE, /* a reply comes twice */
    FAULT_CORRUPT,   /* a digit of a reply is another */
    FAULT_REFUSE,    /* a reply is replaced by an error though nothing is wrong */
    FAULT_CLOSE,     /* a connection is closed though nothing is wrong */
    FAULT_LEAK,      /* an attacker is given a client's reply, too */
    FAULT_DELAY,     /* replies come too late */
    FAULT_WIPE,      /* what is forbidden is done */
    FAULT_COUNT
};

struct options {
    const char *headgate; /* path of the program under test; NULL: clients speak to Redis, or to the fault proxy */
    const char *pool;
    uint32_t clients;
    int64_t requests;
    unsigned seconds; /* the whole run ends within */
    unsigned threads; /* of Headgate */
    unsigned loops;   /* threads that drive the clients */
    uint64_t seed;
    bool chaos;
    uint32_t attackers; /* clients that try to disturb the others */
    uint64_t attacks;   /* the kinds of attacks, as a set of bits (crosstalk_attacks.h) */
    const char *trace;  /* the file for all that attackers send; NULL: none */
    unsigned patience;  /* seconds in which each request has to be answered, among attackers */
    bool tls;           /* clients and Headgate, Headgate and Redis speak TLS; attackers and the run itself do not */
    bool rotate;        /* all secrets of TLS and of users are exchanged all the time; with tls */
    bool limits;        /* Headgate has rules that hold requests and ask Redis about them, but refuse none */
    bool self_test;
    bool through_fault_proxy; /* clients speak to the fault proxy */
    enum fault fault;
};

enum phase {
    PHASE_LOAD,   /* clients send */
    PHASE_SETTLE, /* the load was sent; what chaos broke is given time */
    PHASE_FINAL,  /* no fault is tolerated; each client must have every reply, and work */
    PHASE_STOP
};

struct client;

#define LANES_TOLD 64

struct run {
    struct options options;
    uint16_t port;                      /* of 127.0.0.1, for attackers */
    uint16_t client_port;               /* the same for clients */
    pthread_mutex_t tls_mutex;          /* of what follows */
    SSL_CTX *tls[SECRETS_CLIENT_KINDS]; /* of clients; NULL: plain */
    struct client *clients;
    atomic_int phase;
    atomic_llong requests_left;
    /* Goes up before Redis is killed and again when it is back: whatever was stored under an older value may be gone.
     */
    atomic_uint epoch;
    /* Monotonic µs until which closed connections and errors of a missing Redis are excused. */
    atomic_llong excused_until_us;
    atomic_uint violations;
    atomic_uint finished; /* clients that passed the final check */
    atomic_llong slowest_us;
    /* Ids that connections to Redis have which clients share, for attackers. */
    atomic_uint lanes[LANES_TOLD];
    atomic_uint lane_count;
};

static inline enum phase run_phase(const struct run *run)
{
    return (enum phase)atomic_load_explicit(&run->phase, memory_order_relaxed);
}

static inline bool run_excused(const struct run *run)
{
    return now_us() < atomic_load(&run->excused_until_us);
}

/* Tells a violation on standard error (the first few) and ends the run. */
void run_violation(struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Does a whole run. 0: no violation; 1: there were some; 2: it could not be done. */
int run_execute(const struct options *options);

#endif
