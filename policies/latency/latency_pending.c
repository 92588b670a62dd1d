#include "latency/latency_pending.h"

#include "latency/latency_reserve.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct open_minute {
    int64_t minute;
    struct latency_figures figures; /* empty: nothing was recorded since it was sealed */
};

struct waiting {
    struct open_minute *open;      /* made when something is recorded first */
    struct latency_figures *total; /* of what was moved here; made then */
    struct latency_minute *first;  /* sealed, in the order in which they were opened */
    struct latency_minute *last;
    uint32_t count;
    struct latency_snapshot snapshot; /* number 0: none is out */
};

struct latency_pending {
    uint32_t interfaces;
    uint32_t used; /* those from here on have never had anything */
    uint32_t keep;
    uint64_t number; /* of the last snapshot */
    struct latency_lost lost;
    struct waiting *waiting; /* reserved, as most are never used */
};

/* ---- sealed minutes ---- */

static void lose(struct latency_pending *pending, uint64_t requests)
{
    pending->lost.minutes++;
    pending->lost.requests += requests;
}

static struct latency_minute *take_first(struct waiting *waiting)
{
    struct latency_minute *first = waiting->first;

    waiting->first = first->next;
    if (waiting->first == NULL) {
        waiting->last = NULL;
    }
    waiting->count--;
    first->next = NULL;
    return first;
}

static void append(struct waiting *waiting, struct latency_minute *minute)
{
    if (waiting->last == NULL) {
        waiting->first = minute;
    } else {
        waiting->last->next = minute;
    }
    waiting->last = minute;
    waiting->count++;
}

/* Where the pointer to the minute of that number is; to NULL if none waits. */
static struct latency_minute **find_minute(struct waiting *waiting, int64_t minute)
{
    struct latency_minute **at = &waiting->first;

    while (*at != NULL && (*at)->minute != minute) {
        at = &(*at)->next;
    }
    return at;
}

/* Puts one that has all of the old one's figures in its place. */
static void replace(struct waiting *waiting, struct latency_minute **at, struct latency_minute *minute)
{
    struct latency_minute *old = *at;

    minute->next = old->next;
    *at = minute;
    if (waiting->last == old) {
        waiting->last = minute;
    }
    free(old);
}

/* One sealed minute of two, in the place of the one that waits. */
static void join(struct latency_pending *pending, struct waiting *waiting, struct latency_minute **at,
                 struct latency_minute *minute)
{
    struct latency_figures figures = {0};

    latency_minute_add_to(*at, &figures);
    latency_minute_add_to(minute, &figures);
    struct latency_minute *both = latency_minute_seal(minute->minute, &figures);
    if (both == NULL) {
        lose(pending, minute->count);
    } else {
        replace(waiting, at, both);
    }
    free(minute);
}

static void drop_beyond(struct latency_pending *pending, struct waiting *waiting)
{
    while (waiting->count > pending->keep) {
        struct latency_minute *oldest = take_first(waiting);
        lose(pending, oldest->count);
        free(oldest);
    }
}

/* Has a sealed minute wait; takes it. */
static void add_sealed(struct latency_pending *pending, struct waiting *waiting, struct latency_minute *minute)
{
    struct latency_minute **same = find_minute(waiting, minute->minute);

    if (*same != NULL) {
        join(pending, waiting, same, minute);
        return;
    }
    append(waiting, minute);
    drop_beyond(pending, waiting);
}

/* What is open waits, too; nothing is open then. */
static void seal_open(struct latency_pending *pending, struct waiting *waiting)
{
    struct open_minute *open = waiting->open;
    uint64_t requests = open == NULL ? 0 : open->figures.histogram.count;

    if (requests == 0) {
        return;
    }
    struct latency_minute *sealed = latency_minute_seal(open->minute, &open->figures);
    memset(&open->figures, 0, sizeof open->figures);
    if (sealed == NULL) {
        lose(pending, requests);
        return;
    }
    add_sealed(pending, waiting, sealed);
}

/* ---- recording ---- */

struct latency_pending *latency_pending_new(uint32_t interfaces, uint32_t keep)
{
    assert(interfaces >= 1 && keep >= 1);
    struct latency_pending *pending = calloc(1, sizeof *pending);
    if (pending == NULL) {
        return NULL;
    }
    pending->interfaces = interfaces;
    pending->keep = keep;
    pending->waiting = latency_reserve_new(interfaces * sizeof pending->waiting[0]);
    if (pending->waiting == NULL) {
        free(pending);
        return NULL;
    }
    return pending;
}

static void clear_snapshot(struct waiting *waiting)
{
    for (size_t i = 0; i < waiting->snapshot.count; i++) {
        free(waiting->snapshot.minutes[i]);
    }
    waiting->snapshot = (struct latency_snapshot){0};
}

void latency_pending_free(struct latency_pending *pending)
{
    if (pending == NULL) {
        return;
    }
    for (uint32_t i = 0; i < pending->used; i++) {
        struct waiting *waiting = &pending->waiting[i];
        while (waiting->first != NULL) {
            free(take_first(waiting));
        }
        clear_snapshot(waiting);
        free(waiting->open);
        free(waiting->total);
    }
    latency_reserve_free(pending->waiting, pending->interfaces * sizeof pending->waiting[0]);
    free(pending);
}

void latency_pending_keep(struct latency_pending *pending, uint32_t keep)
{
    assert(keep >= 1);
    pending->keep = keep;
    for (uint32_t i = 0; i < pending->used; i++) {
        drop_beyond(pending, &pending->waiting[i]);
    }
}

static struct waiting *waiting_of(struct latency_pending *pending, uint32_t interface)
{
    assert(interface < pending->interfaces);
    pending->used = interface < pending->used ? pending->used : interface + 1;
    return &pending->waiting[interface];
}

void latency_pending_record(struct latency_pending *pending, uint32_t interface, int64_t minute,
                            const struct latency_sample *sample)
{
    struct waiting *waiting = waiting_of(pending, interface);

    if (waiting->open == NULL) {
        waiting->open = calloc(1, sizeof *waiting->open);
    }
    if (waiting->open == NULL) {
        lose(pending, sample->count);
        return;
    }
    struct latency_figures *figures = &waiting->open->figures;
    if (waiting->open->minute != minute) {
        seal_open(pending, waiting);
        waiting->open->minute = minute;
    }
    latency_histogram_record(&figures->histogram, sample->us, sample->count);
    figures->errors += sample->errors;
    figures->bytes_in += sample->bytes_in;
    figures->bytes_out += sample->bytes_out;
}

/* Without memory the total lacks it. */
static void add_to_total(struct waiting *waiting, const struct latency_minute *minute)
{
    if (waiting->total == NULL) {
        waiting->total = calloc(1, sizeof *waiting->total);
    }
    if (waiting->total != NULL) {
        latency_minute_add_to(minute, waiting->total);
    }
}

void latency_pending_move(struct latency_pending *into, struct latency_pending *from, uint32_t interface)
{
    struct waiting *source = waiting_of(from, interface), *target = waiting_of(into, interface);

    assert(into != from);
    seal_open(from, source);
    while (source->first != NULL) {
        struct latency_minute *minute = take_first(source);
        add_to_total(target, minute);
        add_sealed(into, target, minute);
    }
}

/* ---- flushing ---- */

static bool fill_snapshot(struct latency_snapshot *snapshot, struct waiting *waiting)
{
    while (snapshot->count < LATENCY_SNAPSHOT_MINUTES && waiting->first != NULL) {
        snapshot->minutes[snapshot->count++] = take_first(waiting);
    }
    return snapshot->count == LATENCY_SNAPSHOT_MINUTES;
}

const struct latency_snapshot *latency_pending_take(struct latency_pending *pending, uint32_t interface)
{
    struct waiting *waiting = waiting_of(pending, interface);
    struct latency_snapshot *snapshot = &waiting->snapshot;

    if (snapshot->number != 0) {
        return snapshot;
    }
    /* The open minute joins one of its number that waits. Otherwise what waits leaves first, to make room for it. */
    if (waiting->open != NULL && *find_minute(waiting, waiting->open->minute) != NULL) {
        seal_open(pending, waiting);
    }
    if (!fill_snapshot(snapshot, waiting)) {
        seal_open(pending, waiting);
        (void)fill_snapshot(snapshot, waiting);
    }
    if (snapshot->count == 0) {
        return NULL;
    }
    snapshot->number = ++pending->number;
    return snapshot;
}

bool latency_pending_acknowledge(struct latency_pending *pending, uint32_t interface, uint64_t number)
{
    struct waiting *waiting = waiting_of(pending, interface);

    if (number == 0 || waiting->snapshot.number != number) {
        return false;
    }
    clear_snapshot(waiting);
    return true;
}

bool latency_pending_give_up(struct latency_pending *pending, uint32_t interface, uint64_t number)
{
    const struct latency_snapshot *snapshot = &waiting_of(pending, interface)->snapshot;

    if (number == 0 || snapshot->number != number) {
        return false;
    }
    for (size_t i = 0; i < snapshot->count; i++) {
        lose(pending, snapshot->minutes[i]->count);
    }
    return latency_pending_acknowledge(pending, interface, number);
}

/* ---- what there is ---- */

bool latency_pending_has_more(const struct latency_pending *pending, uint32_t interface)
{
    assert(interface < pending->interfaces);
    return pending->waiting[interface].count > 0;
}

uint64_t latency_pending_minutes(const struct latency_pending *pending)
{
    uint64_t minutes = 0;

    for (uint32_t i = 0; i < pending->used; i++) {
        const struct waiting *waiting = &pending->waiting[i];
        minutes += waiting->count + waiting->snapshot.count;
        minutes += waiting->open != NULL && waiting->open->figures.histogram.count > 0;
    }
    return minutes;
}

bool latency_pending_is_empty(const struct latency_pending *pending)
{
    return latency_pending_minutes(pending) == 0;
}

struct latency_lost latency_pending_lost(const struct latency_pending *pending)
{
    return pending->lost;
}

void latency_pending_total(const struct latency_pending *pending, uint32_t interface, struct latency_figures *figures)
{
    assert(interface < pending->interfaces);
    const struct latency_figures *total = pending->waiting[interface].total;

    if (total != NULL) {
        latency_figures_add(figures, total);
    }
}
