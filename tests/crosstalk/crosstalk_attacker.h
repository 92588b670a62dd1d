/*
 * Attackers: unprivileged users of the same Redis who send whatever might disturb others, for as long as the run lasts.
 *
 * They come from an address of their own, 127.0.0.2. Half of them are users of their own (ACL), the others the default
 * user, and so share lanes with the clients that are judged. What they are answered is not judged but for one thing:
 * nothing that is another client's may be in it. What they do to others is seen by those; and about once a second the
 * main thread looks whether what is forbidden was done (canaries), and at Headgate's memory.
 */
#ifndef CROSSTALK_ATTACKER_H
#define CROSSTALK_ATTACKER_H

#include "crosstalk_run.h"
#include "crosstalk_servers.h"
#include "rig_buffer.h"

#include <pthread.h>

#define ATTACKER_ADDRESS "127.0.0.2"
#define PATIENCE_US ((int64_t)20000000) /* in which each request has to be answered */

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

struct attacker {
    struct run *run;
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
    pthread_t thread;
    bool started;
};

/* False: it cannot be done. */
bool attackers_start(struct attackers *attackers, struct run *run);
/* Waits until the thread has seen PHASE_STOP. The connections stay open until attackers_free(). */
void attackers_join(struct attackers *attackers);
void attackers_free(struct attackers *attackers);

struct watch {
    struct run *run;
    const struct servers *servers;
    unsigned epoch; /* of the run, in which the canaries were put */
    int64_t next_us;
    int64_t heard_us; /* when Redis answered last */
};

/* Puts the canaries; false if Redis does not take them. */
bool watch_start(struct watch *watch, struct run *run, const struct servers *servers);
/* Looks at once. What is wrong is a violation. */
void watch_look(struct watch *watch);

#endif
