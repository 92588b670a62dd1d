/*
 * Attackers: unprivileged users of the same Redis who send whatever might disturb others, for as long as the run lasts.
 *
 * They come from an address of their own, 127.0.0.2. Half of them are users of their own (ACL), the others the default
 * user, and so share lanes with the clients that are judged. What they are answered is not judged but for one thing:
 * nothing that is another client's may be in it. What they do to others is seen by those, and by crosstalk_watch.
 */
#ifndef CROSSTALK_ATTACKER_H
#define CROSSTALK_ATTACKER_H

#include "crosstalk_run.h"
#include "rig_buffer.h"

#include <pthread.h>
#include <stdio.h>

#define ATTACKER_ADDRESS "127.0.0.2"
#define ATTACKS_MAX 64

/* How a connection of an attacker ends. */
enum attacker_ending {
    ATTACKER_STAYS,
    ATTACKER_CLOSES,
    ATTACKER_RESETS,
    ATTACKER_HALF_CLOSES, /* and reads on for a while */
    ATTACKER_QUITS,
    ATTACKER_LINGERS, /* does nothing for a while, then closes */
    ATTACKER_ENDINGS
};

struct attacker_figures {
    uint64_t connections;
    uint64_t closed_by_peer;
    uint64_t sent;
    uint64_t received;
    uint64_t attacks[ATTACKS_MAX];
};

struct attacker {
    struct run *run;
    struct attacker_figures *figures;
    FILE *trace; /* what is sent is told there; NULL: nowhere */
    uint32_t index;
    uint64_t random;
    int fd; /* -1: none */
    struct buffer out;
    struct buffer in;
    unsigned moves;  /* still to come on this connection */
    int64_t next_us; /* nothing new is sent before */
    int64_t end_us;  /* of a connection that is ending */
    enum attacker_ending ending;
    size_t chunk;  /* bytes that one write takes; 0: all */
    bool deaf;     /* does not read */
    bool sees_all; /* asked for what others send or are called (MONITOR, CLIENT LIST) */
};

struct attackers {
    struct run *run;
    struct attacker *all;
    struct attacker_figures figures; /* to be read after attackers_join() */
    FILE *trace;
    pthread_t thread;
    bool started;
};

/* trace: the path of a file for all that is sent; NULL: none. False: it cannot be done. */
bool attackers_start(struct attackers *attackers, struct run *run, const char *trace);
/* Waits until the thread has seen PHASE_STOP. The connections stay open until attackers_free(). */
void attackers_join(struct attackers *attackers);
void attackers_free(struct attackers *attackers);
void attackers_print(const struct attackers *attackers);

#endif
