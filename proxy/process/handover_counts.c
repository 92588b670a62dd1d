#include "process/handover_counts.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

static void table_free(const struct servers *servers, uint64_t **table)
{
    for (size_t i = 0; table != NULL && i < servers->count; i++) {
        free(table[i]);
    }
    free(table);
}

/* NULL when memory is short. */
static uint64_t **table_new(const struct servers *servers)
{
    size_t counters = servers_counter_count(servers);
    uint64_t **table = calloc(servers->count, sizeof table[0]);
    bool has_memory = table != NULL;

    for (size_t i = 0; has_memory && i < servers->count; i++) {
        table[i] = calloc(counters, sizeof table[0][0]);
        has_memory = table[i] != NULL;
    }
    if (!has_memory) {
        table_free(servers, table);
        return NULL;
    }
    return table;
}

bool handover_counts_open(struct handover_counts *counts, struct servers *servers)
{
    counts->servers = servers;
    counts->told = table_new(servers);
    counts->told_back = table_new(servers);
    if (counts->told == NULL || counts->told_back == NULL) {
        handover_counts_close(counts);
        return false;
    }
    return true;
}

void handover_counts_close(struct handover_counts *counts)
{
    handover_counts_bound(counts, false, false);
    table_free(counts->servers, counts->told);
    table_free(counts->servers, counts->told_back);
    counts->told = NULL;
    counts->told_back = NULL;
}

void handover_counts_forget(const struct handover_counts *counts)
{
    for (size_t i = 0; i < counts->servers->count; i++) {
        memset(counts->told[i], 0, servers_counter_count(counts->servers) * sizeof(uint64_t));
    }
}

void handover_counts_bound(const struct handover_counts *counts, bool by_successor, bool by_predecessor)
{
    for (size_t i = 0; i < counts->servers->count; i++) {
        const uint64_t **known = counts->servers->list[i].known;
        known[0] = by_successor ? counts->told[i] : NULL;
        known[1] = by_predecessor ? counts->told_back[i] : NULL;
    }
}

/* ---- telling ---- */

static void write_counter(FILE *out, const char *name, enum stats_kind kind, uint64_t value, uint64_t *told)
{
    if (kind == STATS_COUNTER && value > *told) {
        fprintf(out, "%s %" PRIu64 "\n", name, value - *told);
        *told = value;
    }
}

static void write_counters(const struct servers *servers, size_t server, uint64_t *told, FILE *out)
{
    const struct chain_roster *policies = &servers->list[server].worker_pool.policies;

    fprintf(out, "%s\n", servers->list[server].name);
    for (enum stats_id id = 0; id < STATS_COUNT; id++) {
        write_counter(out, stats_describe(id)->name, stats_describe(id)->kind,
                      servers_stat(servers, server, server + 1, id), told++);
    }
    for (size_t i = 0; i < policies->count; i++) {
        for (size_t n = 0; n < policies->list[i]->counter_count; n++) {
            const struct policy_counter *counter = &policies->list[i]->counters[n];
            write_counter(out, counter->name, counter->kind, servers_policy_counter(servers, server, server + 1, i, n),
                          told++);
        }
    }
}

void handover_counts_tell(const struct handover_counts *counts, struct handover_line *line, uint64_t **told)
{
    for (size_t i = 0; i < counts->servers->count; i++) {
        struct text_stream body;
        if (!text_open(&body)) {
            return;
        }
        write_counters(counts->servers, i, told[i], body.out);
        if (text_close(&body)) {
            (void)handover_line_send(line, "COUNTED", (struct slice){body.bytes, body.length}, -1);
        }
        text_free(&body);
    }
}

/* ---- hearing ---- */

bool handover_take_line(struct slice *text, struct slice *line)
{
    const char *end = text->length > 0 ? memchr(text->data, '\n', text->length) : NULL;

    if (end == NULL) {
        return false;
    }
    *line = (struct slice){text->data, (size_t)(end - text->data)};
    *text = (struct slice){end + 1, text->length - line->length - 1};
    return true;
}

bool handover_read_number(struct slice text, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || i == 18) {
            return false;
        }
        *number = *number * 10 + (uint64_t)(text.data[i] - '0');
    }
    return text.length > 0;
}

struct server *handover_take_server(const struct servers *servers, struct slice *text)
{
    struct slice name;

    return handover_take_line(text, &name) ? (struct server *)(uintptr_t)servers_find(servers, name) : NULL;
}

void handover_counts_hear(const struct handover_counts *counts, struct slice text, uint64_t **told)
{
    struct server *server = handover_take_server(counts->servers, &text);
    struct slice line;

    while (server != NULL && handover_take_line(&text, &line)) {
        const char *blank = memchr(line.data, ' ', line.length);
        size_t length = blank != NULL ? (size_t)(blank - line.data) : line.length;
        uint64_t amount;
        size_t place;
        if (blank != NULL && handover_read_number((struct slice){blank + 1, line.length - length - 1}, &amount) &&
            servers_add_earlier(server, (struct slice){line.data, length}, amount, &place)) {
            told[server - counts->servers->list][place] += amount;
        }
    }
}
