#include "safety_judge.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CHAIN_US 3000000

/* A holder and the time in which it has to have kept its lock. */
struct tenure {
    const struct note *note;
    const struct lock *lock;
    int64_t until_us;
};

static unsigned count_of(const atomic_uint *count, unsigned limit)
{
    unsigned value = atomic_load(count);
    return value < limit ? value : limit;
}

const char *judge_verdict_name(enum verdict verdict)
{
    static const char *const names[] = {"violation",      "Redis restarted", "Headgate stopped or killed",
                                        "stall",          "client late",     "max_hold",
                                        "no rule for it", "late DEL",        "semaphore's own race"};
    return names[verdict];
}

static bool is_during(const struct trouble *trouble, enum trouble_kind kind, int64_t begin_us, int64_t end_us)
{
    return atomic_load(&trouble->ready) && trouble->kind == kind && trouble->begin_us <= end_us &&
           atomic_load(&trouble->end_us) >= begin_us;
}

static bool had_trouble(const struct shared *shared, const struct tenure *tenure, enum trouble_kind kind, unsigned who,
                        int64_t least_us)
{
    unsigned count = count_of(&shared->trouble_count, TROUBLES_MAX);
    for (unsigned at = 0; at < count; at++) {
        const struct trouble *trouble = &shared->troubles[at];
        if (is_during(trouble, kind, tenure->note->asked_us, tenure->until_us) &&
            (kind == TROUBLE_RESTART || trouble->who == who) &&
            atomic_load(&trouble->end_us) - trouble->begin_us >= least_us)
            return true;
    }
    return false;
}

static bool is_same_section(const struct note *one, const struct note *other)
{
    return one->slot == other->slot && one->serial == other->serial;
}

/* When what a late DEL began was over. */
static int64_t chain_end_us(const struct shared *shared, const struct note *del)
{
    unsigned count = count_of(&shared->note_count, NOTES_MAX);
    int64_t end = del->end_us + CHAIN_US;
    for (unsigned at = 0; at < count; at++) {
        const struct note *loss = &shared->notes[at];
        if (atomic_load(&loss->ready) && loss->kind == NOTE_LOSS && loss->lock == del->lock &&
            loss->end_us >= del->end_us && loss->end_us < end)
            end = loss->end_us;
    }
    return end;
}

static bool met_late_del(const struct shared *shared, const struct tenure *tenure)
{
    unsigned count = count_of(&shared->note_count, NOTES_MAX);
    for (unsigned at = 0; at < count; at++) {
        const struct note *del = &shared->notes[at];
        if (atomic_load(&del->ready) && del->kind == NOTE_LATE_DEL && del->lock == tenure->note->lock &&
            !is_same_section(del, tenure->note) && del->asked_us <= tenure->until_us &&
            (del->end_us >= tenure->note->asked_us || chain_end_us(shared, del) >= tenure->until_us))
            return true;
    }
    return false;
}

static bool is_over_admitted(const struct shared *shared, uint64_t token)
{
    unsigned count = count_of(&shared->over_admitted_count, OVER_ADMITTED_MAX);
    for (unsigned at = 0; at < count; at++)
        if (atomic_load(&shared->over_admitted[at]) == token)
            return true;
    return false;
}

/*
 * Less than this cannot make a lease end. Of a semaphore, permits are swept up by others' clocks, and renewed when
 * their scores are a third of the lease from that: what the clocks differ by is gone of it.
 */
static int64_t least_stall_us(const struct lock *lock)
{
    return lock->limit > 1 ? lock->lease_us / 3 - 2 * lock->lease_us / SKEW_PART : lock->lease_us / 4;
}

/* The time of a permit is its client's: whether that did not run between reading its clock and sending the request. */
static bool was_sent_late(const struct shared *shared, const struct tenure *tenure)
{
    unsigned count = count_of(&shared->trouble_count, TROUBLES_MAX);
    int64_t asked_us = tenure->note->asked_us;
    bool late = false;
    for (unsigned at = 0; at < count; at++) {
        const struct trouble *trouble = &shared->troubles[at];
        late = late || (is_during(trouble, TROUBLE_LATE, asked_us, asked_us) &&
                        trouble->who == tenure->note->slot / SLOTS_PER_WORKER &&
                        atomic_load(&trouble->end_us) - asked_us >= least_stall_us(tenure->lock));
    }
    return late && tenure->lock->limit > 1;
}

/* Whether its connection was closed, which a client that did not run could not notice. One that was killed before it
 * ran again could not even say so; that its Headgate had been killed is known all the same. */
static bool was_cut_off(const struct shared *shared, const struct tenure *tenure)
{
    return tenure->note->lost || had_trouble(shared, tenure, TROUBLE_KILLED, tenure->note->headgate, 0);
}

/* Why the holder may have lost its lock. */
static enum verdict judge_tenure(const struct shared *shared, const struct tenure *tenure)
{
    const struct note *note = tenure->note;
    const struct rule *rule = tenure->lock->rule;
    int64_t held_us = tenure->until_us - note->asked_us;
    if (!rule->watched)
        return held_us >= tenure->lock->lease_us                    ? VERDICT_UNWATCHED
               : had_trouble(shared, tenure, TROUBLE_RESTART, 0, 0) ? VERDICT_RESTART
               : met_late_del(shared, tenure)                       ? VERDICT_LATE_DEL
                                                                    : VERDICT_VIOLATION;
    if (had_trouble(shared, tenure, TROUBLE_RESTART, 0, 0))
        return VERDICT_RESTART;
    if (had_trouble(shared, tenure, TROUBLE_AWAY, note->headgate, least_stall_us(tenure->lock)))
        return VERDICT_AWAY;
    if (had_trouble(shared, tenure, TROUBLE_STALL, note->headgate, least_stall_us(tenure->lock)))
        return VERDICT_STALL;
    /* At its end a permit is swept up as soon as another's clock says so: one is behind, and the other ahead. */
    int64_t skew_us = tenure->lock->limit > 1 ? 2 * tenure->lock->lease_us / SKEW_PART : 0;
    if (held_us >= (int64_t)rule->max_hold_ms * 1000 - skew_us)
        return VERDICT_MAX_HOLD;
    if (was_cut_off(shared, tenure) && had_trouble(shared, tenure, TROUBLE_LATE, note->slot / SLOTS_PER_WORKER, 0))
        return VERDICT_LATE;
    if (was_sent_late(shared, tenure))
        return VERDICT_LATE;
    if (met_late_del(shared, tenure))
        return VERDICT_LATE_DEL;
    return tenure->lock->limit > 1 && is_over_admitted(shared, note->token) ? VERDICT_RACE : VERDICT_VIOLATION;
}

/* Whether the section was inside when the note was made by another: it came after it was granted, which its clock says,
 * and before the other found too many. */
static bool was_inside(const struct note *other, const struct note *note)
{
    return atomic_load(&other->ready) && other->kind == NOTE_END && other->lock == note->lock &&
           !is_same_section(other, note) && other->granted_us <= note->end_us && other->end_us >= note->granted_us;
}

/* Who was inside with the one that noted it: one of them may have lost the lock before. */
static enum verdict judge_others(const struct shared *shared, const struct note *note, const struct note **loser)
{
    unsigned count = count_of(&shared->note_count, NOTES_MAX);
    for (unsigned at = 0; at < count; at++) {
        if (!was_inside(&shared->notes[at], note))
            continue;
        struct tenure tenure = {&shared->notes[at], &shared->locks[note->lock], note->granted_us};
        enum verdict verdict = judge_tenure(shared, &tenure);
        *loser = tenure.note;
        if (verdict != VERDICT_VIOLATION)
            return verdict;
    }
    return VERDICT_VIOLATION;
}

enum verdict judge_note(const struct shared *shared, const struct note *note, const struct note **loser)
{
    struct tenure own = {note, &shared->locks[note->lock], note->end_us};
    enum verdict verdict = judge_tenure(shared, &own);
    *loser = note;
    return verdict == VERDICT_VIOLATION && note->kind != NOTE_LOSS ? judge_others(shared, note, loser) : verdict;
}

/* Appends who is meant, and when it was there. */
static int describe(char *text, size_t size, const char *who, const struct note *note)
{
    return snprintf(text, size,
                    "; %s slot %u, section %" PRIu32 ", Headgate %u: asked %" PRId64 ", granted %" PRId64
                    ", until %" PRId64,
                    who, note->slot, note->serial, note->headgate, note->asked_us, note->granted_us, note->end_us);
}

static void tell(struct shared *shared, const struct note *note)
{
    const char *what = note->kind == NOTE_OVERLAP ? "was granted while others were inside"
                       : note->kind == NOTE_EARLY ? "was granted within the grace of a dead holder"
                                                  : "was lost by its live holder";
    unsigned count = count_of(&shared->note_count, NOTES_MAX);
    char text[1024];
    size_t length = (size_t)describe(text, sizeof text, "noted by", note);
    for (unsigned at = 0; at < count && note->kind != NOTE_LOSS && length < sizeof text / 2; at++)
        if (was_inside(&shared->notes[at], note))
            length += (size_t)describe(text + length, sizeof text - length, "inside", &shared->notes[at]);
    shared_violation(shared, BREACH_EXCLUSION, "%s %s%s", shared->locks[note->lock].key, what, text);
}

void judge_all(struct shared *shared, uint64_t verdicts[VERDICT_COUNT])
{
    unsigned count = count_of(&shared->note_count, NOTES_MAX);
    for (unsigned at = 0; at < count; at++) {
        const struct note *note = &shared->notes[at];
        const struct note *loser;
        if (!atomic_load(&note->ready) || note->kind == NOTE_END || note->kind == NOTE_LATE_DEL ||
            atomic_load(&shared->doors[note->lock].spoiled))
            continue;
        enum verdict verdict = judge_note(shared, note, &loser);
        if (verdict == VERDICT_VIOLATION) {
            verdicts[verdict]++;
            tell(shared, note);
        } else if (!shared->notes[loser - shared->notes].counted) {
            /* Many may find the same one inside that has lost its lock. */
            shared->notes[loser - shared->notes].counted = true;
            verdicts[verdict]++;
        }
    }
}

int64_t judge_last_trouble(const struct shared *shared, unsigned headgate, int64_t before_us)
{
    unsigned count = count_of(&shared->trouble_count, TROUBLES_MAX);
    int64_t last = 0;
    for (unsigned at = 0; at < count; at++) {
        const struct trouble *trouble = &shared->troubles[at];
        bool counts = trouble->kind == TROUBLE_RESTART || (trouble->kind != TROUBLE_LATE && trouble->who == headgate);
        int64_t end = atomic_load(&trouble->end_us);
        if (atomic_load(&trouble->ready) && counts && trouble->begin_us < before_us && end > last && end != FOR_EVER)
            last = end;
    }
    return last;
}

bool judge_was_away(const struct shared *shared, unsigned headgate, int64_t since_us)
{
    unsigned count = count_of(&shared->trouble_count, TROUBLES_MAX);
    for (unsigned at = 0; at < count; at++) {
        const struct trouble *trouble = &shared->troubles[at];
        bool counts = trouble->kind == TROUBLE_RESTART || (trouble->kind == TROUBLE_AWAY && trouble->who == headgate);
        if (atomic_load(&trouble->ready) && counts && atomic_load(&trouble->end_us) >= since_us)
            return true;
    }
    return false;
}
