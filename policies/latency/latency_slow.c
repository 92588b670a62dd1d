#include "latency/latency_slow.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define US_PER_S 1000000

struct latency_slow_log {
    size_t most;
    size_t count;
    uint64_t next_id;
    struct latency_slow_entry *entries[]; /* that of an id is at id modulo most, with its texts behind it */
};

struct latency_slow_log *latency_slow_log_new(size_t most)
{
    assert(most >= 1);
    struct latency_slow_log *log = calloc(1, sizeof *log + most * sizeof log->entries[0]);
    if (log != NULL) {
        log->most = most;
    }
    return log;
}

void latency_slow_log_free(struct latency_slow_log *log)
{
    if (log != NULL) {
        latency_slow_log_reset(log);
        free(log);
    }
}

void latency_slow_log_reset(struct latency_slow_log *log)
{
    for (size_t i = 0; i < log->most; i++) {
        free(log->entries[i]);
        log->entries[i] = NULL;
    }
    log->count = 0;
}

static struct slice cut(struct slice text, size_t most)
{
    text.length = text.length < most ? text.length : most;
    return text;
}

static struct slice copy(char **end, struct slice text)
{
    struct slice copied = {*end, text.length};

    if (text.length > 0) {
        memcpy(*end, text.data, text.length);
    }
    *end += text.length;
    return copied;
}

static struct latency_slow_entry *entry_copy(const struct latency_slow_entry *entry)
{
    struct slice address = cut(entry->address, LATENCY_SLOW_TEXT_MAX);
    struct slice name = cut(entry->name, LATENCY_SLOW_TEXT_MAX);
    struct slice user = cut(entry->user, LATENCY_SLOW_TEXT_MAX);
    struct latency_slow_entry *kept =
        malloc(sizeof *kept + address.length + name.length + user.length + entry->excerpt.length);

    if (kept == NULL) {
        return NULL;
    }
    char *end = (char *)(kept + 1);
    *kept = *entry;
    kept->address = copy(&end, address);
    kept->name = copy(&end, name);
    kept->user = copy(&end, user);
    kept->excerpt = copy(&end, entry->excerpt);
    return kept;
}

bool latency_slow_log_add(struct latency_slow_log *log, const struct latency_slow_entry *entry)
{
    assert(entry->excerpt.length <= LATENCY_EXCERPT_MAX);
    struct latency_slow_entry *kept = entry_copy(entry);
    if (kept == NULL) {
        return false;
    }
    struct latency_slow_entry **place = &log->entries[log->next_id % log->most];
    free(*place);
    *place = kept;
    kept->id = log->next_id++;
    log->count += log->count < log->most;
    return true;
}

static void print_entry(const struct latency_slow_entry *entry, FILE *out)
{
    fprintf(out, "id=%" PRIu64 " time=%" PRId64 ".%06" PRId64, entry->id, entry->unix_us / US_PER_S,
            entry->unix_us % US_PER_S);
    fprintf(out, " queued_us=%" PRId64 " redis_us=%" PRId64 " writing_us=%" PRId64, entry->queued_us, entry->redis_us,
            entry->writing_us);
    fprintf(out, " bytes_in=%" PRIu64 " bytes_out=%" PRIu64 " address=", entry->bytes_in, entry->bytes_out);
    latency_excerpt_print_text(entry->address, out);
    fputs(" name=", out);
    latency_excerpt_print_text(entry->name, out);
    fputs(" user=", out);
    latency_excerpt_print_text(entry->user, out);
    fputs(" command=", out);
    latency_excerpt_print(entry->excerpt, out);
    fputc('\n', out);
}

size_t latency_slow_log_print(const struct latency_slow_log *log, uint64_t *before, size_t most, FILE *out)
{
    uint64_t newer = log->next_id > *before ? log->next_id - *before : 0;
    size_t printed = 0;

    for (uint64_t i = newer; i < log->count && printed < most; i++, printed++) {
        const struct latency_slow_entry *entry = log->entries[(log->next_id - 1 - i) % log->most];
        print_entry(entry, out);
        *before = entry->id;
    }
    return printed;
}
