/*
 * Between OpenSSL and sockets, one for each thread: the bytes of one read of a socket, which OpenSSL eats record by
 * record, and those that it makes, which are written to the socket in one go. Empty whenever no call is at work with
 * it, so that an idle connection has no memory here.
 */
#ifndef HEADGATE_TLS_WIRE_H
#define HEADGATE_TLS_WIRE_H

#include "base/buffer.h"

struct tls_wire;

/* The pool, of the same thread, has what sockets do not take, and must outlive it. NULL when memory is short. */
struct tls_wire *tls_wire_new(struct buffer_pool *pool);
void tls_wire_free(struct tls_wire *wire);

#endif
