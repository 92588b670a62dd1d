#include "trace/trace_table.h"

#include <stdlib.h>
#include <string.h>

struct trace_table {
    struct table by_hash;
    size_t used;
    uint64_t counts[TRACE_TABLE_ROWS]; /* of the rows: the least is looked for among these */
    struct trace_row rows[TRACE_TABLE_ROWS];
};

struct trace_table *trace_table_new(void)
{
    struct trace_table *table = malloc(sizeof *table);

    if (table == NULL) {
        return NULL;
    }
    table->by_hash = (struct table){0};
    table->used = 0;
    if (!table_open(&table->by_hash, TRACE_TABLE_ROWS)) {
        free(table);
        return NULL;
    }
    return table;
}

void trace_table_free(struct trace_table *table)
{
    if (table != NULL) {
        table_close(&table->by_hash);
        free(table);
    }
}

struct trace_row *trace_table_find(const struct trace_table *table, uint64_t hash)
{
    return (struct trace_row *)(void *)table_first(&table->by_hash, hash);
}

static size_t least_row(const struct trace_table *table)
{
    size_t least = 0;

    for (size_t i = 1; i < TRACE_TABLE_ROWS; i++) {
        least = table->counts[i] < table->counts[least] ? i : least;
    }
    return least;
}

/* A row for what is not in the table. */
static struct trace_row *take_row(struct trace_table *table, uint64_t hash)
{
    uint64_t count = 0;
    size_t place = table->used;

    if (table->used < TRACE_TABLE_ROWS) {
        table->used++;
    } else {
        place = least_row(table);
        count = table->counts[place];
        table_remove(&table->by_hash, &table->rows[place].node);
    }
    struct trace_row *row = &table->rows[place];
    *row = (struct trace_row){.count = count, .error = count};
    /* There is memory for all of them. */
    (void)table_add(&table->by_hash, &row->node, hash);
    return row;
}

struct trace_row *trace_table_count(struct trace_table *table, uint64_t hash, uint64_t times)
{
    struct trace_row *row = trace_table_find(table, hash);

    if (row == NULL) {
        row = take_row(table, hash);
    }
    row->count += times;
    table->counts[row - table->rows] = row->count;
    return row;
}

void trace_table_merge(struct trace_table *into, const struct trace_table *from)
{
    for (size_t i = 0; i < from->used; i++) {
        const struct trace_row *other = &from->rows[i];
        struct trace_row *row = trace_table_count(into, other->node.hash, other->count);
        row->error += other->error;
        row->bytes_in += other->bytes_in;
        row->bytes_out += other->bytes_out;
        row->redis_us += other->redis_us;
        memcpy(row->label, other->label, sizeof row->label);
    }
}

size_t trace_table_sort(const struct trace_table *table, int (*compare)(const void *a, const void *b),
                        const struct trace_row **rows)
{
    for (size_t i = 0; i < table->used; i++) {
        rows[i] = &table->rows[i];
    }
    qsort(rows, table->used, sizeof(*rows), compare);
    return table->used;
}
