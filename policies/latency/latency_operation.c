#include "latency/latency_operation.h"

#include <stdlib.h>

void latency_lose(struct latency_lost *lost, uint64_t requests)
{
    lost->minutes++;
    lost->requests += requests;
}

static struct latency_minute *take_first(struct latency_operation *operation)
{
    struct latency_minute *first = operation->first;

    operation->first = first->next;
    operation->waiting--;
    return first;
}

/* Where the pointer to the minute of that number is; to NULL, behind the last, if none waits. */
static struct latency_minute **find_minute(struct latency_operation *operation, int64_t minute)
{
    struct latency_minute **at = &operation->first;

    while (*at != NULL && (*at)->minute != minute) {
        at = &(*at)->next;
    }
    return at;
}

/* One minute of two. NULL when memory is short. */
static struct latency_minute *seal_both(const struct latency_minute *one, const struct latency_minute *other)
{
    struct latency_figures figures = {0};

    latency_minute_add_to(one, &figures);
    latency_minute_add_to(other, &figures);
    return latency_minute_seal(other->minute, &figures);
}

/* Makes one minute of two, in the place of the one that waits. */
static void join(struct latency_minute **at, struct latency_minute *minute, struct latency_lost *lost)
{
    struct latency_minute *both = seal_both(*at, minute);

    if (both == NULL) {
        latency_lose(lost, minute->count);
    } else {
        both->next = (*at)->next;
        free(*at);
        *at = both;
    }
    free(minute);
}

/* NULL when memory is short. */
static struct latency_figures *total_of(struct latency_operation *operation)
{
    if (operation->total == NULL) {
        operation->total = calloc(1, sizeof *operation->total);
    }
    return operation->total;
}

/* Without memory the total lacks it. What another process is not told for want of memory, it never knows. */
static void add_to_total(struct latency_operation *operation, const struct latency_minute *minute)
{
    static const struct latency_minute nothing;
    struct latency_figures *total = total_of(operation);

    if (total == NULL) {
        return;
    }
    latency_minute_add_to(minute, total);
    struct latency_minute *untold = seal_both(operation->untold != NULL ? operation->untold : &nothing, minute);
    if (untold != NULL) {
        free(operation->untold);
        operation->untold = untold;
    }
}

void latency_operation_add(struct latency_operation *operation, struct latency_minute *minute, uint32_t keep,
                           struct latency_lost *lost)
{
    struct latency_minute **at = find_minute(operation, minute->minute);

    add_to_total(operation, minute);
    if (*at != NULL) {
        join(at, minute, lost);
        return;
    }
    *at = minute;
    operation->waiting++;
    latency_operation_keep(operation, keep, lost);
}

void latency_operation_keep(struct latency_operation *operation, uint32_t keep, struct latency_lost *lost)
{
    while (operation->waiting > keep) {
        struct latency_minute *oldest = take_first(operation);
        latency_lose(lost, oldest->count);
        free(oldest);
    }
}

bool latency_operation_freeze(struct latency_operation *operation)
{
    struct latency_frozen *frozen = &operation->frozen;

    while (frozen->count < LATENCY_FLUSH_MINUTES && operation->first != NULL) {
        frozen->minutes[frozen->count++] = take_first(operation);
    }
    return frozen->count > 0;
}

void latency_operation_forget(struct latency_operation *operation, struct latency_lost *lost)
{
    struct latency_frozen *frozen = &operation->frozen;

    while (frozen->count > 0) {
        struct latency_minute *minute = frozen->minutes[--frozen->count];
        if (lost != NULL) {
            latency_lose(lost, minute->count);
        }
        free(minute);
    }
}

void latency_operation_hear(struct latency_operation *operation, const struct latency_figures *figures)
{
    struct latency_figures *total = total_of(operation);

    if (total != NULL) {
        latency_histogram_merge(&total->histogram, &figures->histogram);
        total->errors += figures->errors;
        total->bytes_in += figures->bytes_in;
        total->bytes_out += figures->bytes_out;
    }
}

bool latency_operation_told(const struct latency_operation *operation, struct latency_figures *figures)
{
    const struct latency_minute *untold = operation->untold;

    if (operation->total == NULL || operation->total->histogram.count == 0) {
        return false;
    }
    *figures = *operation->total;
    if (untold != NULL) {
        latency_minute_take_from(untold, figures);
    }
    return figures->histogram.count > 0;
}

void latency_operation_clear(struct latency_operation *operation)
{
    latency_operation_forget(operation, NULL);
    while (operation->first != NULL) {
        free(take_first(operation));
    }
    free(operation->total);
    free(operation->untold);
}
