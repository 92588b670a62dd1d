/*
 * The busiest of something, in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of
 * Frequent and Top-k Elements in Data Streams). What is not in the table takes the place of the row counted least, with
 * its count, which may be too much and is therefore the new one's error. Whatever makes up more than
 * 1/TRACE_TABLE_ROWS of all is in the table. What else is summed in a row is of what was counted since it is there.
 */
#ifndef HEADGATE_TRACE_TABLE_H
#define HEADGATE_TRACE_TABLE_H

#include "base/table.h"

#define TRACE_TABLE_ROWS 512
#define TRACE_LABEL_MAX 480

struct trace_row {
    struct table_node node; /* the hash is that of what it counts */
    uint64_t count;
    uint64_t error;
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t redis_us;
    char label[TRACE_LABEL_MAX]; /* the caller's; "" when it is new */
};

struct trace_table;

/* NULL when memory is short. */
struct trace_table *trace_table_new(void);
void trace_table_free(struct trace_table *table);

/* Counts it so often, 1 or more, and gives its row, which is valid until the next call. The hash is to be one with a
 * secret key. */
struct trace_row *trace_table_count(struct trace_table *table, uint64_t hash, uint64_t times);
/* NULL: it is not, or not any more, in the table. */
struct trace_row *trace_table_find(const struct trace_table *table, uint64_t hash);
/* Adds what another one has counted. */
void trace_table_merge(struct trace_table *into, const struct trace_table *from);
/* The rows, sorted: the first comes first. rows has room for TRACE_TABLE_ROWS. Returns how many there are. */
size_t trace_table_sort(const struct trace_table *table, int (*compare)(const void *a, const void *b),
                        const struct trace_row **rows);

#endif
