/* What the files of the sentinels share: see sentinel.h. */
#ifndef HEADGATE_SENTINEL_PRIVATE_H
#define HEADGATE_SENTINEL_PRIVATE_H

#include "base/log.h"
#include "conf/conf_table.h"
#include "topology/contact.h"
#include "topology/place.h"
#include "topology/replica_watch.h"
#include "topology/sentinel.h"

/* What a sentinel says. */
enum opinion {
    OPINION_NONE,   /* nothing, as it does not answer */
    OPINION_NOBODY, /* it knows no master of that name */
    OPINION_PLACE
};

/* One sentinel. */
struct source {
    struct sentinel_watch *watch;
    struct conf_address address;
    struct lookup *lookup; /* where it is */
    size_t next_target;
    struct contact *asked; /* for questions; NULL: it is not connected */
    struct contact *heard; /* what it announces */
    bool is_asked_ready;
    bool is_heard_ready;
    bool ask_again; /* once it has answered */
    bool is_down;   /* it was said */
    int64_t asked_us;
    int64_t pinged_us;
    int64_t retry_us; /* when to connect again */
    enum opinion opinion;
    struct place place;
    struct log_limiter said; /* for what it says of the master: it may say something else each time */
};

/* What the server that the sentinels name says of itself. */
enum check_finding {
    CHECK_NOTHING, /* it was not heard yet, or does not answer */
    CHECK_MASTER,
    CHECK_NO_MASTER,
    CHECK_UNSAID /* Headgate may not ask */
};

struct check {
    struct place place; /* of the server; none: there is nobody to ask */
    struct resolver *resolver;
    struct contact *contact;
    bool is_ready;
    bool asks_hello; /* in place of ROLE, which the user may not use */
    int64_t next_us; /* when to connect or ask again */
    enum check_finding finding;
    bool told; /* that it is no master, or does not answer */
    int64_t asked_us;
};

struct sentinel_watch {
    struct reactor *reactor;
    struct sentinel_settings settings;
    struct conf_address upstream; /* the seeds, and the name of the master */
    struct source *sources;
    size_t source_count;
    struct check check;
    struct replica_watch *replicas;
    struct place place; /* where the master is; none: it is not known */
    struct sentinel_master master;
    int64_t since_us; /* when it was found there */
    uint64_t changes; /* how often it was found somewhere else than before */
    bool ever_found;
    bool disagreement_told;
    struct event timer;
};

/* ---- sentinel.c ---- */

/* A sentinel has said something else, or is not to be had any more. */
void sentinel_decide(struct sentinel_watch *watch);
/* The server that was checked is a master (or is taken for one), at that address; or it says that it is none. */
void sentinel_found(struct sentinel_watch *watch, const struct connection_target *target);
void sentinel_lost(struct sentinel_watch *watch);
/* Most sentinels name another server, which is not to be had (yet). */
void sentinel_unnamed(struct sentinel_watch *watch);

/* ---- sentinel_source.c ---- */

void sentinel_source_open(struct source *source, struct sentinel_watch *watch, const struct conf_address *address);
void sentinel_source_close(struct source *source);
/* Asks now, or as soon as it has answered. */
void sentinel_source_ask(struct source *source);
void sentinel_source_tick(struct source *source, int64_t now_us);

/* ---- sentinel_check.c ---- */

/* That server is the one to check from now on. */
void sentinel_check_begin(struct sentinel_watch *watch, const struct place *place);
void sentinel_check_end(struct sentinel_watch *watch);
/* Asks now, if it has answered. */
void sentinel_check_ask(struct sentinel_watch *watch);
void sentinel_check_tick(struct sentinel_watch *watch, int64_t now_us);

#endif
