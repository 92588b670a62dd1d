/*
 * What all parts of one run share: what was asked for, its present phase, when faults are to be expected, and the place
 * where a violation is told. Everything that changes is atomic; each client belongs to one loop thread.
 */
#ifndef CROSSTALK_RUN_H
#define CROSSTALK_RUN_H

#include "rig_process.h"

#include <openssl/types.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The deliberate faults of the self-test: what the judges are told in place of what came. */
enum fault {
    FAULT_NONE,
    FAULT_OTHER,     /* another client's reply */
    FAULT_REORDER,   /* two replies of one client change places */
    FAULT_DROP,      /* a reply is lost */
    FAULT_DUPLICATE, /* a reply comes twice */
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
    uint64_t seed;
    bool chaos;
    uint32_t attackers; /* clients that try to disturb the others */
    bool tls;           /* clients and Headgate, Headgate and Redis speak TLS; attackers and the run itself do not */
    bool rotate;        /* certificates, keys and passwords are read anew all the time; with tls */
    bool limits;        /* Headgate has rules that hold requests and ask Redis about them, but refuse none */
    bool self_test;
    enum fault fault;
};

enum phase {
    PHASE_LOAD,   /* clients send */
    PHASE_SETTLE, /* the load was sent; what chaos broke is given time */
    PHASE_FINAL,  /* no fault is tolerated; each client must have every reply, and work */
    PHASE_STOP
};

struct client;

struct run {
    struct options options;
    uint16_t port;        /* of 127.0.0.1, for attackers */
    uint16_t client_port; /* the same for clients */
    SSL_CTX *tls;         /* of clients; NULL: plain */
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
