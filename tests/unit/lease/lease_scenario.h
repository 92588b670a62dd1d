/*
 * Clients that take, extend and release locks at random, in pipelines and transactions, on the host of the lease
 * policy and before a model of Redis; and what can be known of each lock from what they have sent and heard.
 */
#ifndef HEADGATE_TESTS_LEASE_SCENARIO_H
#define HEADGATE_TESTS_LEASE_SCENARIO_H

#include "lease_host.h"
#include "lease_model.h"

#define OWNERS 3
#define CLIENTS_MAX 8
#define PIPELINE_MAX 6
/* Redis executes requests and scripts within this time, and replies within it again. */
#define PATIENCE_US (INT64_C(100) * MS)
#define LEASE_MS INT64_C(3000)

enum act {
    ACT_SET_NX,
    ACT_SETNX,
    ACT_EXPIRE,
    ACT_EXTEND,
    ACT_RELEASE,
    ACT_DEL,
    ACT_EXEC_TAKE,
    ACT_EXEC_DEL,
    ACT_LOCK,
    ACT_UNLOCK,
    ACT_SWEEP,
    ACT_ZADD,
    ACT_ZREM
};

/* A request that a client has sent. */
struct move {
    enum act act;
    size_t key;
    int token;
    double score;
    uint64_t sequence;
    int64_t sent_us;
    bool passed;   /* the policy waits for its reply */
    bool executed; /* … and the reply is: */
    int answer;    /* 1 yes, 0 no, -1 not the owner */
};

struct actor {
    struct fake_client *client;
    int owner;
    struct move moves[PIPELINE_MAX]; /* the oldest first */
    size_t count;
    int64_t swept_us; /* what its last sweep took for now */
};

/* What is known of a token and a key. */
struct claim {
    bool is_held;           /* a reply said so, nobody has sent a release since, and the owner was there all the time */
    bool is_known;          /* Redis has said that it is held, and not that it was released */
    int64_t known_us;       /* when Redis has said so last */
    bool is_given_up;       /* the answer to a release was lost */
    uint64_t answered;      /* when its owner was told so, */
    uint64_t taker;         /* the client that was */
    uint64_t released;      /* the last release that came about behind that */
    unsigned releases_sent; /* and not answered */
    int64_t over_us;        /* when it ran out last */
};

struct owner {
    size_t connections;
    int64_t gone_us;
};

struct scenario {
    uint32_t seed;
    uint32_t random;
    bool traced;
    bool is_bounded; /* by max_leases: some of what is taken is not watched */
    struct fake_host *host;
    struct model model;
    uint32_t calm; /* the greater, the less happens */
    struct actor actors[CLIENTS_MAX];
    struct owner owners[OWNERS];
    struct claim claims[MODEL_KEYS][MODEL_TOKENS];
    bool unheard[MODEL_KEYS]; /* the answer to the SETNX that took it was lost: it may live for ever */
    uint64_t sequence;
    int64_t outage_us; /* scripts fail until then */
    size_t calls_in_step;
    size_t renewals;
    size_t releases;
    size_t farewells; /* locks that the policy released for owners that were gone */
};

/* What happens, for who looks into a seed: LEASE_SEED=17 LEASE_TRACE=1 test_lease_random. */
void scenario_trace(const struct scenario *scenario, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* At random, but always the same with a seed: a number below the limit, and one in so many. */
uint32_t scenario_below(struct scenario *scenario, uint32_t limit);
bool scenario_chance(struct scenario *scenario, uint32_t of);
/* Who uses the token. */
int scenario_owner_of(int token);

/* The actor, which must have a client, sends one request at random, or two that belong together. */
void scenario_send_something(struct scenario *scenario, struct actor *actor);
/* The model executes the actor's next request; false: there is none. */
bool scenario_execute_next(struct scenario *scenario, struct actor *actor);
/* The actor's client hears the next reply; false: there is none yet. */
bool scenario_deliver_next(struct scenario *scenario, struct actor *actor);
/* What the actor has under way will not be answered. */
void scenario_end_moves(struct scenario *scenario, struct actor *actor);

#endif
