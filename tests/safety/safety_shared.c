#include "safety_shared.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define VIOLATIONS_SHOWN 10

/* Without a Headgate nobody renews: an honest client must then not be so slow that its lease ends. */
static int shared_lease_factor(const struct options *options)
{
    bool ends_matter = options->fault == FAULT_NO_RENEWAL || options->fault == FAULT_LEFT;
    return options->headgate == NULL && !ends_matter ? 20 : 1;
}

struct shared *shared_create(const struct options *options)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared == MAP_FAILED)
        return NULL;
    shared->options = *options;
    atomic_store(&shared->sections_left, options->sections);
    shared->lock_count = locks_count();
    for (unsigned number = 0; number < shared->lock_count; number++) {
        locks_describe(number, options->exact, &shared->locks[number]);
        shared->locks[number].lease_us *= shared_lease_factor(options);
    }
    for (unsigned slot = 0; slot < SLOTS_MAX; slot++)
        shared->holds[slot].slot = slot;
    return shared;
}

void shared_free(struct shared *shared)
{
    munmap(shared, sizeof *shared);
}

void shared_violation(struct shared *shared, enum breach breach, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    atomic_fetch_add(&shared->breaches[breach], 1);
    if (atomic_fetch_add(&shared->violations, 1) >= VIOLATIONS_SHOWN || shared->options.quiet)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "VIOLATION (seed %" PRIu64 ", at %" PRId64 " us) %s\n", shared->options.seed, now_us(), text);
}

struct trouble *shared_trouble(struct shared *shared, enum trouble_kind kind, unsigned who, int64_t begin_us)
{
    unsigned place = atomic_fetch_add(&shared->trouble_count, 1);
    if (place >= TROUBLES_MAX) {
        shared_violation(shared, BREACH_TEST, "more troubles than can be judged");
        return NULL;
    }
    struct trouble *trouble = &shared->troubles[place];
    trouble->kind = kind;
    trouble->who = who;
    trouble->begin_us = begin_us;
    atomic_store(&trouble->end_us, FOR_EVER);
    atomic_store(&trouble->ready, true);
    return trouble;
}

unsigned door_overlaps(const struct door *door)
{
    return (unsigned)(atomic_load(&door->count) / DOOR_OVERLAP);
}

bool door_enter(struct door *door, int limit, unsigned *overlaps)
{
    unsigned long long before = atomic_load(&door->count);
    unsigned long long after;
    bool is_overlap;
    do {
        is_overlap = before % DOOR_OVERLAP >= (unsigned long long)limit;
        after = before + 1 + (is_overlap ? DOOR_OVERLAP : 0);
    } while (!atomic_compare_exchange_weak(&door->count, &before, after));
    *overlaps = (unsigned)(before / DOOR_OVERLAP);
    return is_overlap;
}

unsigned door_leave(struct door *door)
{
    return (unsigned)(atomic_fetch_sub(&door->count, 1) / DOOR_OVERLAP);
}

struct note shared_note_of(enum note_kind kind, const struct hold *hold, int64_t end_us)
{
    return (struct note){.kind = kind,
                         .lock = hold->lock,
                         .slot = hold->slot,
                         .serial = hold->serial,
                         .headgate = hold->headgate,
                         .token = shared_hash(hold->token, strlen(hold->token)),
                         .asked_us = hold->asked_us,
                         .granted_us = hold->granted_us,
                         .end_us = end_us};
}

void shared_note(struct shared *shared, const struct note *note)
{
    unsigned place = atomic_fetch_add(&shared->note_count, 1);
    if (place >= NOTES_MAX) {
        shared_violation(shared, BREACH_TEST, "more overlaps and losses than can be judged");
        return;
    }
    struct note *to = &shared->notes[place];
    to->kind = note->kind;
    to->lock = note->lock;
    to->slot = note->slot;
    to->serial = note->serial;
    to->headgate = note->headgate;
    to->token = note->token;
    to->asked_us = note->asked_us;
    to->granted_us = note->granted_us;
    to->end_us = note->end_us;
    to->lost = note->lost;
    atomic_store(&to->ready, true);
}

void shared_keep(struct shared *shared, const struct hold *hold, int64_t died_us)
{
    int64_t grace_us = (int64_t)shared->locks[hold->lock].rule->grace_ms * 1000;
    struct note note = shared_note_of(NOTE_END, hold, died_us + grace_us);
    atomic_store(&shared->doors[hold->lock].kept_until_us, note.end_us);
    shared_note(shared, &note);
}

void shared_leave_over(struct shared *shared, enum leftover_reason reason, const struct hold *hold, int64_t since_us)
{
    unsigned place = atomic_fetch_add(&shared->leftover_count, 1);
    if (place >= LEFTOVERS_MAX) {
        shared_violation(shared, BREACH_TEST, "more locks left behind than can be swept");
        return;
    }
    struct leftover *leftover = &shared->leftovers[place];
    leftover->reason = reason;
    leftover->lock = hold->lock;
    leftover->headgate = hold->headgate;
    leftover->since_us = since_us;
    memcpy(leftover->token, hold->token, sizeof leftover->token);
    atomic_store(&leftover->ready, true);
}

uint64_t shared_hash(const char *text, size_t length)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t at = 0; at < length; at++)
        hash = (hash ^ (unsigned char)text[at]) * UINT64_C(1099511628211);
    return hash != 0 ? hash : 1;
}
