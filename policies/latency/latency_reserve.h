/*
 * Memory for tables that have room for far more than is ordinarily used: zero, and the system gives a page of it when
 * it is touched first. Huge pages are declined, as one of them would be 2 MB for a table of which a few hundred bytes
 * are used.
 */
#ifndef HEADGATE_LATENCY_RESERVE_H
#define HEADGATE_LATENCY_RESERVE_H

#include <stddef.h>

/* So many bytes, 1 or more. NULL when memory is short. */
void *latency_reserve_new(size_t size);
/* memory: from latency_reserve_new() with the same size, or NULL. */
void latency_reserve_free(void *memory, size_t size);

#endif
