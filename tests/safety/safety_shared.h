/*
 * What all processes of one run share, in memory that outlives each of them: who is inside which lock, what went
 * wrong and when, and what the judge has to look into.
 *
 * Lists only grow. A place is taken by an atomic count and filled by whoever took it, and then it is ready; a process
 * that is killed in between leaves a place that is never ready. All times are now_us().
 */
#ifndef SAFETY_SHARED_H
#define SAFETY_SHARED_H

#include "safety_locks.h"

#include "rig_process.h"

#include <stdatomic.h>

#define WORKERS_MAX 8u
#define HEADGATES_MAX 3u
#define SLOTS_PER_WORKER 192u
#define SLOTS_MAX (WORKERS_MAX * SLOTS_PER_WORKER)
#define TOKEN_MAX 40
#define TROUBLES_MAX 65536u
#define NOTES_MAX 65536u
#define LEFTOVERS_MAX 262144u
#define OVER_ADMITTED_MAX 65536u
#define FOR_EVER INT64_MAX

enum fault {
    FAULT_NONE,
    FAULT_INTRUDER,   /* a client that was refused enters */
    FAULT_NO_RENEWAL, /* nobody renews, though sections last longer than leases */
    FAULT_ROGUE,      /* a script gives time to live to a lock that was released */
    FAULT_UNWATCHED,  /* a lock that no rule names is renewed */
    FAULT_LEFT,       /* who dies leaves a lock with a long time to live */
    FAULT_COUNT
};

struct options {
    const char *headgate; /* path of the program under test; NULL: clients speak to Redis itself */
    int64_t sections;
    unsigned seconds; /* load ends after so long */
    unsigned headgates;
    unsigned workers;
    unsigned clients; /* of each worker */
    unsigned threads; /* of each Headgate */
    uint64_t seed;
    bool chaos;
    bool trace; /* keep the stream of MONITOR */
    bool exact; /* nothing that a client or another Headgate keeps from Headgate's counts: they have to agree */
    bool quiet; /* violations are counted, not told */
    enum fault fault;
};

/* What a violation is of. */
enum breach {
    BREACH_EXCLUSION, /* too many inside, or a live holder's lock lost */
    BREACH_RENEWAL,   /* a renewal of what was released, or of what no rule names */
    BREACH_LEFT,      /* a lock left behind */
    BREACH_COUNTS,    /* what Headgate counts is not what its clients did */
    BREACH_TEST,      /* something that the test relies on */
    BREACH_COUNT
};

enum phase { PHASE_LOAD, PHASE_DRAIN, PHASE_STOP };

/* What can make a lease end under a holder that lives. */
enum trouble_kind {
    TROUBLE_RESTART, /* Redis was killed, and came back with nothing */
    TROUBLE_AWAY,    /* chaos stopped or killed a Headgate: who is its number */
    TROUBLE_KILLED,  /* … killed it: at that moment it forgot its leases, and its connections were closed */
    TROUBLE_STALL,   /* a Headgate, or Redis behind it, left the prober waiting: who is its number */
    TROUBLE_LATE     /* a worker did not run: who is its number */
};

struct trouble {
    atomic_bool ready;
    enum trouble_kind kind;
    unsigned who;
    int64_t begin_us;
    _Atomic int64_t end_us; /* FOR_EVER while it lasts */
};

enum note_kind {
    NOTE_OVERLAP, /* who was granted a lock found too many inside */
    NOTE_EARLY,   /* or found it kept for one that had died just before */
    NOTE_LOSS,    /* who wanted to release what it held was told that it held nothing */
    NOTE_END,     /* somebody was inside, in a time in which another noted an overlap */
    NOTE_LATE_DEL /* a DEL that compares nothing may have hit what was no longer the sender's */
};

struct note {
    atomic_bool ready;
    enum note_kind kind;
    unsigned lock;
    unsigned slot;
    uint32_t serial;
    unsigned headgate;
    uint64_t token;     /* hashed */
    int64_t asked_us;   /* the request that was granted was sent; of NOTE_LATE_DEL the DEL */
    int64_t granted_us; /* the reply was read, or others of the same turn */
    int64_t end_us;     /* NOTE_END: left; NOTE_LOSS: told so; NOTE_LATE_DEL: answered, or FOR_EVER; else: found so */
    bool lost;          /* its connection had been closed by then, known to it or not */
    bool counted;       /* the judge's */
};

enum leftover_reason {
    LEFTOVER_CRASH,      /* it had been granted, and its owner's connection was closed */
    LEFTOVER_UNANSWERED, /* the same, but the reply to the request for it had not been read */
    LEFTOVER_MAX_HOLD    /* its owner lives, but holds it for longer than the rule allows */
};

/* A token that must not be found in a lock any more when its time has come. */
struct leftover {
    atomic_bool ready;
    bool done; /* the sweeper's */
    enum leftover_reason reason;
    unsigned lock;
    unsigned headgate;
    int64_t since_us;
    char token[TOKEN_MAX];
};

/* Where a slot is on its way through the door of a lock. A count is not certain of one that was killed in between. */
enum place { PLACE_OUTSIDE, PLACE_ENTERING, PLACE_INSIDE, PLACE_LEAVING };

enum slot_state { SLOT_IDLE, SLOT_ASKING, SLOT_HOLDING, SLOT_RELEASING };

/* One section after the other; what others must know when the process that runs it is killed. */
struct hold {
    unsigned slot;
    enum slot_state state;
    atomic_int place; /* enum place */
    unsigned lock;
    uint32_t serial;
    unsigned headgate;
    unsigned overlaps; /* of the lock, when it was entered */
    int64_t asked_us;
    int64_t granted_us;
    char token[TOKEN_MAX];
};

/*
 * Who believes to be inside, judged without Redis: entered after the grant was read, left before the release is sent.
 * How many are inside, and how often somebody found too many, is one number: who leaves would otherwise not know of one
 * that has come, and has not yet noted that it found too many.
 */
struct door {
    atomic_ullong count;           /* DOOR_OVERLAP for each overlap, 1 for each that is inside */
    _Atomic int64_t kept_until_us; /* a dead holder's lock may not be granted before */
    atomic_bool spoiled;           /* its count is not certain */
};

#define DOOR_OVERLAP (1ULL << 32)

enum figure {
    FIGURE_SECTIONS, /* and one for each kind */
    FIGURE_SECTIONS_END = FIGURE_SECTIONS + KIND_COUNT - 1,
    FIGURE_GRANTED,  /* under a rule */
    FIGURE_RELEASED, /* of these, by a release that found it */
    FIGURE_MISSED,   /* … that did not */
    FIGURE_REFUSED,
    FIGURE_LONG,
    FIGURE_LONG_KEPT,
    FIGURE_OTHER_HEADGATE,
    FIGURE_RETAKEN,
    FIGURE_CRASHES,
    FIGURE_CLOSED,
    FIGURE_CONNECTIONS,
    FIGURE_ERRORS,
    FIGURE_KILLS,
    FIGURE_PAUSES,
    FIGURE_LANES,
    FIGURE_HEADGATE_STOPS,
    FIGURE_HEADGATE_KILLS,
    FIGURE_RESTARTS,
    FIGURE_STALLS,
    FIGURE_MONITORED,
    FIGURE_RENEWALS,
    FIGURE_RENEWALS_REFUSED,
    FIGURE_OWNER_RELEASES,
    FIGURE_SEMAPHORE_RACES,
    FIGURE_SWEPT,
    FIGURE_SWEPT_UNANSWERED,
    FIGURE_SPOILED,
    FIGURE_COUNT
};

struct shared {
    struct options options;
    uint16_t redis_port;
    uint16_t headgate_ports[HEADGATES_MAX]; /* Redis' own when there is no Headgate */
    char directory[256];
    atomic_int phase;
    atomic_llong sections_left;
    atomic_uint observed; /* so many Redis servers, one after the other, the observer has been on */
    atomic_uint marks;    /* OBSERVER_MARKs that the observer has read from the present one */
    atomic_uint violations;
    atomic_uint breaches[BREACH_COUNT]; /* violations by what they are of */
    atomic_ullong figures[FIGURE_COUNT];
    unsigned lock_count;
    struct lock locks[LOCKS_MAX];
    struct door doors[LOCKS_MAX];
    struct hold holds[SLOTS_MAX];
    atomic_uint trouble_count;
    struct trouble troubles[TROUBLES_MAX];
    atomic_uint note_count;
    struct note notes[NOTES_MAX];
    atomic_uint leftover_count;
    struct leftover leftovers[LEFTOVERS_MAX];
    /* Permits that the book's algorithm gave too many: the new one's clock was read before that of one inside. */
    atomic_uint over_admitted_count;
    _Atomic uint64_t over_admitted[OVER_ADMITTED_MAX];
};

/* NULL if there is no memory. */
struct shared *shared_create(const struct options *options);
void shared_free(struct shared *shared);

/* Tells a violation on standard error (the first few). */
void shared_violation(struct shared *shared, enum breach breach, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Begins a trouble; it lasts until its end is set. NULL when the list is full, which is a violation. */
struct trouble *shared_trouble(struct shared *shared, enum trouble_kind kind, unsigned who, int64_t begin_us);
/* All but ready and done are copied. A full list is a violation. */
void shared_note(struct shared *shared, const struct note *note);
void shared_leave_over(struct shared *shared, enum leftover_reason reason, const struct hold *hold, int64_t since_us);

/* Who was inside has died at that time: nobody may have its lock before the grace of the rule has passed. */
void shared_keep(struct shared *shared, const struct hold *hold, int64_t died_us);

/* The door's overlaps until now. */
unsigned door_overlaps(const struct door *door);
/* One more is inside. True if that is more than the limit, which is one overlap more. *overlaps: those before. */
bool door_enter(struct door *door, int limit, unsigned *overlaps);
/* One less. Returns the overlaps until then. */
unsigned door_leave(struct door *door);

/* A note on the section of that slot. */
struct note shared_note_of(enum note_kind kind, const struct hold *hold, int64_t end_us);

uint64_t shared_hash(const char *text, size_t length);

static inline void shared_count(struct shared *shared, enum figure figure)
{
    atomic_fetch_add_explicit(&shared->figures[figure], 1, memory_order_relaxed);
}

static inline uint64_t shared_figure(const struct shared *shared, enum figure figure)
{
    return atomic_load_explicit(&shared->figures[figure], memory_order_relaxed);
}

#endif
