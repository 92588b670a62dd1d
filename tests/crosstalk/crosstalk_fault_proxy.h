/*
 * A proxy that is wrong on purpose, for the self-test: it gives each client a connection to Redis of its own and, once
 * in many replies, commits the one fault that it was told to. With FAULT_NONE it is right.
 */
#ifndef CROSSTALK_FAULT_PROXY_H
#define CROSSTALK_FAULT_PROXY_H

#include "crosstalk_run.h"

#include <stdint.h>

struct fault_proxy;

/* Listens on a free port of 127.0.0.1, which goes to *port, and serves from a thread. NULL: it cannot. */
struct fault_proxy *fault_proxy_start(enum fault fault, uint16_t redis_port, uint64_t seed, uint16_t *port);

/* Returns how many faults were committed. */
unsigned fault_proxy_stop(struct fault_proxy *proxy);

const char *fault_name(enum fault fault);

#endif
