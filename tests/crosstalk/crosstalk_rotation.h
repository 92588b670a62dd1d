/*
 * All secrets are exchanged, now and then, while clients are at work: the authorities, certificates and keys of Redis,
 * of Headgate towards both sides and of clients, and the passwords that Headgate has. Run by the main thread. Nothing
 * is excused meanwhile: no client may be closed, and no request may fail.
 */
#ifndef CROSSTALK_ROTATION_H
#define CROSSTALK_ROTATION_H

#include "crosstalk_run.h"
#include "crosstalk_servers.h"

struct rotation {
    struct run *run;
    struct servers *servers;
    int64_t next_us;
    unsigned done;
};

void rotation_init(struct rotation *rotation, struct run *run, struct servers *servers);

/* Clients use the present secrets from now on. False, told on standard error, if they cannot. */
bool rotation_equip_clients(struct run *run, const struct secrets *secrets);

/* Exchanges all if it is due; blocks for as long as that takes. False, told on standard error, if somebody does not
 * take what is new. */
bool rotation_step(struct rotation *rotation);

#endif
