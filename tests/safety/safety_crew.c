#include "safety_crew.h"

#include "safety_worker.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#define LATE_DEL_US 3000000 /* longer than chaos keeps a request from being forwarded */

bool crew_start(struct crew *crew, struct shared *shared)
{
    *crew = (struct crew){.shared = shared};
    for (unsigned number = 0; number < shared->options.workers; number++) {
        crew->workers[number] = worker_start(shared, number, 0);
        if (crew->workers[number] < 0)
            return false;
    }
    return true;
}

void crew_pause(struct crew *crew, unsigned number, int64_t until_us)
{
    if (crew->workers[number] <= 0 || crew->paused_until_us[number] != 0)
        return;
    crew->paused_since_us[number] = now_us();
    kill(crew->workers[number], SIGSTOP);
    crew->paused_until_us[number] = until_us;
    shared_count(crew->shared, FIGURE_PAUSES);
}

void crew_resume(struct crew *crew, bool all)
{
    for (unsigned number = 0; number < WORKERS_MAX; number++) {
        if (crew->paused_until_us[number] == 0 || (!all && now_us() < crew->paused_until_us[number]))
            continue;
        kill(crew->workers[number], SIGCONT);
        crew->paused_until_us[number] = 0;
    }
}

static void record_inside(struct shared *shared, struct hold *hold, int64_t died_us)
{
    struct door *door = &shared->doors[hold->lock];
    const struct lock *lock = &shared->locks[hold->lock];
    int place = atomic_load(&hold->place);
    if (place == PLACE_ENTERING || place == PLACE_LEAVING) {
        shared_count(shared, FIGURE_SPOILED);
        atomic_store(&door->spoiled, true);
    }
    if (place == PLACE_INSIDE) {
        bool disputed = door_overlaps(door) != hold->overlaps;
        struct note note = shared_note_of(NOTE_END, hold, now_us());
        if (disputed)
            shared_note(shared, &note);
        else if (lock->rule->release && lock->limit == 1)
            shared_keep(shared, hold, died_us);
        door_leave(door);
    }
    atomic_store(&hold->place, PLACE_OUTSIDE);
}

/* What the slot of a dead process had under way. */
static void record_death(struct shared *shared, struct hold *hold, int64_t died_us)
{
    record_inside(shared, hold, died_us);
    if (hold->state == SLOT_IDLE)
        return;
    shared_leave_over(shared, hold->state == SLOT_ASKING ? LEFTOVER_UNANSWERED : LEFTOVER_CRASH, hold, died_us);
    if (shared->locks[hold->lock].kind == KIND_DEL && hold->state != SLOT_HOLDING) {
        struct note note = shared_note_of(NOTE_LATE_DEL, hold, died_us + LATE_DEL_US);
        shared_note(shared, &note);
    }
    hold->state = SLOT_IDLE;
}

/* A worker notes by itself for how long it did not run, but for one that dies before it runs again. */
static void record_pause(struct crew *crew, unsigned number, int64_t died_us)
{
    if (crew->paused_until_us[number] == 0)
        return;
    struct trouble *trouble = shared_trouble(crew->shared, TROUBLE_LATE, number, crew->paused_since_us[number]);
    if (trouble != NULL)
        atomic_store(&trouble->end_us, died_us);
    crew->paused_until_us[number] = 0;
}

bool crew_replace(struct crew *crew, unsigned number)
{
    int64_t died_us = now_us();
    record_pause(crew, number, died_us);
    process_kill(&crew->workers[number]);
    shared_count(crew->shared, FIGURE_KILLS);
    for (unsigned at = 0; at < SLOTS_PER_WORKER; at++)
        record_death(crew->shared, &crew->shared->holds[number * SLOTS_PER_WORKER + at], died_us);
    crew->workers[number] = worker_start(crew->shared, number, ++crew->generations[number]);
    return crew->workers[number] > 0;
}

bool crew_is_well(struct crew *crew)
{
    for (unsigned number = 0; number < WORKERS_MAX; number++) {
        int status;
        if (crew->workers[number] <= 0 || waitpid(crew->workers[number], &status, WNOHANG) != crew->workers[number])
            continue;
        crew->workers[number] = 0;
        if (status == 0 && atomic_load(&crew->shared->phase) == PHASE_DRAIN)
            continue;
        fprintf(stderr, "safety: worker %u ended by itself (status %#x)\n", number, (unsigned)status);
        return false;
    }
    return true;
}

bool crew_has_ended(const struct crew *crew)
{
    for (unsigned number = 0; number < WORKERS_MAX; number++)
        if (crew->workers[number] > 0)
            return false;
    return true;
}

void crew_free(struct crew *crew)
{
    for (unsigned number = 0; number < WORKERS_MAX; number++)
        process_kill(&crew->workers[number]);
}
