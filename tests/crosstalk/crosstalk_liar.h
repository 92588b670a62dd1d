/*
 * A proxy that is wrong on purpose, for the self-test: it gives each client a connection to Redis of its own and, once
 * in many replies, commits the one fault that it was told to. With FAULT_NONE it is right.
 */
#ifndef CROSSTALK_LIAR_H
#define CROSSTALK_LIAR_H

#include "crosstalk_run.h"

#include <stdint.h>

struct liar;

/* Listens on a free port of 127.0.0.1, which goes to *port, and serves from a thread. NULL: it cannot. */
struct liar *liar_start(enum fault fault, uint16_t redis_port, uint64_t seed, uint16_t *port);

/* Returns how many faults were committed. */
unsigned liar_stop(struct liar *liar);

const char *fault_name(enum fault fault);

#endif
