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

/* Without memory the total lacks it. */
static void add_to_total(struct latency_operation *operation, const struct latency_minute *minute)
{
    if (operation->total == NULL) {
        operation->total = calloc(1, sizeof *operation->total);
    }
    if (operation->total != NULL) {
        latency_minute_add_to(minute, operation->total);
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

void latency_operation_clear(struct latency_operation *operation)
{
    latency_operation_forget(operation, NULL);
    while (operation->first != NULL) {
        free(take_first(operation));
    }
    free(operation->total);
}
