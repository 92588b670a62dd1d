/*
 * What is a violation of mutual exclusion, and what the rules of leases excuse. Pure: it reads lists only.
 *
 * A client is inside from when it has read that the lock was granted until just before it sends the release. Who enters
 * notes an overlap when more are inside than the lock's limit, or when a dead holder's lock is given away before its
 * grace has passed. Who releases notes a loss when the lock was not its own any more: a live holder's lease ended. Each
 * of these is a violation unless for the one who lost, between its request and that moment, one of these is on record:
 *
 *   RESTART    Redis was killed and came back with nothing
 *   AWAY       chaos stopped or killed its Headgate for a quarter of the lease or longer
 *   STALL      requests through its Headgate went unanswered for a quarter of the lease or longer (the prober): less
 *              cannot make a lease end, which is renewed at a third and lives on for two. Of a permit: for what is left
 *              of a third of the lease when clocks differ as much as they do here, see least_stall_us()
 *   LATE       its connection was closed already, and its process had not run for a while meanwhile: it could not know
 *              yet. Or it stood still for as long in the turn in which it asked for a permit, which it gives its own
 *              time: that may have been over when it was sent. A pause alone excuses nothing:
 *              Headgate renews for who is stopped
 *   MAX_HOLD   it was inside for as long as the rule allows
 *   UNWATCHED  no rule names the lock, and the lease that it asked for had passed
 *   LATE_DEL   another client's DEL, which compares nothing, may have been executed meanwhile: its connection was lost
 *              while it was under way, or it was answered late. Who loses its lock by it sends a DEL, too, which may
 *              hit the next: until the first that hits nothing, or CHAIN_US later, whoever holds the lock is excused
 *   RACE       one of the permits inside was one too many by the semaphore's own algorithm: see safety_model.c
 *
 * No other time is allowed for anywhere. A paused client, a lost lane, a release that is repeated or goes another way
 * excuse nothing. A holder that is killed leaves at that moment by the judge's count; where its rule says release, it
 * is inside until its grace has passed.
 */
#ifndef SAFETY_JUDGE_H
#define SAFETY_JUDGE_H

#include "safety_shared.h"

enum verdict {
    VERDICT_VIOLATION,
    VERDICT_RESTART,
    VERDICT_AWAY,
    VERDICT_STALL,
    VERDICT_LATE,
    VERDICT_MAX_HOLD,
    VERDICT_UNWATCHED,
    VERDICT_LATE_DEL,
    VERDICT_RACE,
    VERDICT_COUNT
};

/* On a note of an overlap, an early grant or a loss, when nothing is added to the lists any more. *loser is the note of
 * who lost its lock, if that is excused. */
enum verdict judge_note(const struct shared *shared, const struct note *note, const struct note **loser);
const char *judge_verdict_name(enum verdict verdict);

/* Judges all notes. verdicts counts the sections that lost their lock, by why that is excused. Violations are told. */
void judge_all(struct shared *shared, uint64_t verdicts[VERDICT_COUNT]);

/* When the last trouble of that Headgate, or of Redis, that began before the time was over; 0 if there was none. */
int64_t judge_last_trouble(const struct shared *shared, unsigned headgate, int64_t before_us);
/* Whether chaos stopped or killed that Headgate, or Redis, at some time from then on. */
bool judge_was_away(const struct shared *shared, unsigned headgate, int64_t since_us);

#endif
