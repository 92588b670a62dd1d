#include "safety_section.h"

#include "safety_worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LONG_ONE_IN 400
#define LONG_PERMIT_ONE_IN 40
#define BEYOND_MAX_HOLD_ONE_IN 6 /* of the long ones, where the rule has a bound that can be waited for */
#define CRASH_ONE_IN 1500
#define VIA_ONE_IN 10
#define RETAKE_ONE_IN 16
#define FAULT_ONE_IN 200
#define WAITABLE_MS 5000
#define AGAIN_US 20000
#define LATE_DEL_US 3000000 /* longer than chaos keeps a request from being forwarded */
#define US_PER_MS 1000

/* What the clients' libraries send; Headgate knows the first three by their digests and the last by its form. */
static const struct {
    const char *digest;
    const char *text;
} scripts[] = {
    {"c3f8721cbb97f72bc19e972846bd7aaf91901658", "\n        local token = redis.call('get', KEYS[1])\n"
                                                 "        if not token or token ~= ARGV[1] then\n"
                                                 "            return 0\n        end\n"
                                                 "        redis.call('del', KEYS[1])\n        return 1\n    "},
    {"149c5a8bf18676fd99e9e6e24923bd64d9b62f94",
     "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then "
     "redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; "
     "return redis.call('pttl', KEYS[1]);"},
    {"3ffe249c16dee540ac8ab32e39bd408626b9aff7",
     "if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; "
     "local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); "
     "if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); return 0; "
     "else redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]); return 1; end; return nil;"},
    {"", "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"},
};
enum script { SCRIPT_RELEASE, SCRIPT_HASH_LOCK, SCRIPT_HASH_UNLOCK, SCRIPT_SENT };

/* Compares nothing, as no script of Headgate may be. */
static const char rogue_script[] = "return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

const char *section_script(size_t index)
{
    return index < sizeof scripts / sizeof *scripts ? scripts[index].text : NULL;
}

bool section_is_own_script(const char *text, size_t length)
{
    for (size_t at = 0; at < sizeof scripts / sizeof *scripts; at++) {
        const char *name = scripts[at].digest[0] != '\0' ? scripts[at].digest : scripts[at].text;
        if (strlen(name) == length && memcmp(name, text, length) == 0)
            return true;
    }
    return false;
}

static struct worker *worker_of(const struct slot *slot)
{
    return slot->home->worker;
}

static struct shared *shared_of(const struct slot *slot)
{
    return slot->home->worker->shared;
}

static const struct lock *lock_of(const struct slot *slot)
{
    return &shared_of(slot)->locks[slot->hold->lock];
}

static bool has_headgate(const struct slot *slot)
{
    return shared_of(slot)->options.headgate != NULL;
}

/* ---- the door: who is inside, by the clients' own belief ---- */

static void enter(struct slot *slot, int64_t now)
{
    struct hold *hold = slot->hold;
    struct shared *shared = shared_of(slot);
    struct door *door = &shared->doors[hold->lock];
    hold->state = SLOT_HOLDING;
    hold->granted_us = now;
    atomic_store(&hold->place, PLACE_ENTERING);
    bool is_overlap = door_enter(door, lock_of(slot)->limit, &hold->overlaps);
    atomic_store(&hold->place, PLACE_INSIDE);
    /* Only the first is told: what comes after it follows from it. */
    bool early = now < atomic_load(&door->kept_until_us) && now < atomic_exchange(&door->kept_until_us, 0);
    if ((!is_overlap && !early) || atomic_load(&door->spoiled))
        return;
    if (!is_overlap)
        atomic_fetch_add(&door->count, DOOR_OVERLAP);
    struct note note = shared_note_of(is_overlap ? NOTE_OVERLAP : NOTE_EARLY, hold, now_us());
    note.lost = client_is_cut(slot->home);
    shared_note(shared, &note);
}

/* True if somebody noted meanwhile that too many were inside. */
static bool leave(struct slot *slot)
{
    struct hold *hold = slot->hold;
    struct shared *shared = shared_of(slot);
    atomic_store(&hold->place, PLACE_LEAVING);
    unsigned overlaps = door_leave(&shared->doors[hold->lock]);
    atomic_store(&hold->place, PLACE_OUTSIDE);
    if (overlaps == hold->overlaps)
        return false;
    struct note note = shared_note_of(NOTE_END, hold, now_us());
    note.lost = client_is_cut(slot->home);
    shared_note(shared, &note);
    return true;
}

/* ---- taking ---- */

static void name_token(struct slot *slot)
{
    struct worker *worker = worker_of(slot);
    struct hold *hold = slot->hold;
    int length = snprintf(hold->token, sizeof hold->token, "w%ug%ux%us%u", worker->number, worker->generation,
                          slot->home->connections, hold->slot);
    if (!slot->reuses_token)
        snprintf(hold->token + length, sizeof hold->token - (size_t)length, "n%" PRIu32, hold->serial);
}

static void ask_for_permit(struct slot *slot, const struct lock *lock)
{
    struct timespec wall;
    char now[40];
    char bound[40];
    clock_gettime(CLOCK_REALTIME, &wall);
    /* Clocks differ: some are ahead, some behind. */
    double skew = (double)lock->lease_us / 1e6 / SKEW_PART * ((double)(slot->hold->slot % 3) - 1);
    double seconds = (double)wall.tv_sec + (double)wall.tv_nsec / 1e9 + skew;
    snprintf(now, sizeof now, "%.6f", seconds);
    snprintf(bound, sizeof bound, "%.6f", seconds - (double)lock->lease_us / 1e6);
    client_ask(slot->home, slot, QUESTION_NOTHING, 1, "MULTI");
    client_ask(slot->home, slot, QUESTION_NOTHING, 4, "ZREMRANGEBYSCORE", lock->key, "-inf", bound);
    client_ask(slot->home, slot, QUESTION_NOTHING, 4, "ZADD", lock->key, now, slot->hold->token);
    client_ask(slot->home, slot, QUESTION_NOTHING, 3, "ZRANK", lock->key, slot->hold->token);
    client_ask(slot->home, slot, QUESTION_EXEC_PERMIT, 1, "EXEC");
}

static void ask_for(struct slot *slot, unsigned number, int64_t now)
{
    struct hold *hold = slot->hold;
    char lease[24];
    hold->lock = number;
    hold->serial++;
    hold->headgate = slot->home->headgate;
    hold->asked_us = now;
    hold->state = SLOT_ASKING;
    name_token(slot);
    const struct lock *lock = lock_of(slot);
    snprintf(lease, sizeof lease, "%" PRId64, lock->lease_us / US_PER_MS);
    switch (lock->kind) {
    case KIND_SETNX:
        client_ask(slot->home, slot, QUESTION_ACQUIRE, 3, "SETNX", lock->key, hold->token);
        break;
    case KIND_HASH:
        client_ask(slot->home, slot, QUESTION_ACQUIRE, 6, "EVALSHA", scripts[SCRIPT_HASH_LOCK].digest, "1", lock->key,
                   lease, hold->token);
        break;
    case KIND_SEMAPHORE:
        ask_for_permit(slot, lock);
        break;
    default:
        client_ask(slot->home, slot, QUESTION_ACQUIRE, 6, "SET", lock->key, hold->token, "NX", "PX", lease);
        break;
    }
}

static void ask(struct slot *slot, int64_t now)
{
    static const enum lock_kind shared_kinds[] = {KIND_SCRIPT, KIND_SCRIPT, KIND_DEL, KIND_SETNX, KIND_HASH};
    struct worker *worker = worker_of(slot);
    enum lock_kind kind = slot->only;
    if (kind == KIND_COUNT)
        kind = shared_kinds[worker_random(worker) % (sizeof shared_kinds / sizeof *shared_kinds)];
    ask_for(slot, locks_pick(kind, worker_random(worker)), now);
}

/* How long the section lasts, µs; long ones outlive the lease. */
static int64_t choose_length(struct slot *slot)
{
    struct worker *worker = worker_of(slot);
    const struct lock *lock = lock_of(slot);
    bool somebody_renews = has_headgate(slot) || shared_of(slot)->options.fault == FAULT_NO_RENEWAL;
    unsigned one_in = lock->kind == KIND_SEMAPHORE ? LONG_PERMIT_ONE_IN : LONG_ONE_IN;
    slot->lengthy = somebody_renews && lock->rule->watched && worker_one_in(worker, one_in);
    if (!slot->lengthy)
        return 0;
    shared_count(shared_of(slot), FIGURE_LONG);
    if (shared_of(slot)->options.exact || lock->rule->max_hold_ms > WAITABLE_MS ||
        !worker_one_in(worker, BEYOND_MAX_HOLD_ONE_IN))
        return lock->lease_us * (int64_t)(12 + worker_random(worker) % 11) / 10;
    /* A token that is used again may rightly be found in the lock later. */
    if (!slot->reuses_token)
        shared_leave_over(shared_of(slot), LEFTOVER_MAX_HOLD, slot->hold, slot->hold->granted_us);
    return ((int64_t)lock->rule->max_hold_ms + 800) * US_PER_MS;
}

static void send_rogue_script(struct slot *slot)
{
    client_ask(slot->home, slot, QUESTION_NOTHING, 6, "EVAL", rogue_script, "1", lock_of(slot)->key, slot->hold->token,
               "1000");
}

static void granted(struct slot *slot, int64_t now)
{
    struct worker *worker = worker_of(slot);
    const struct lock *lock = lock_of(slot);
    char lease[24];
    atomic_fetch_sub_explicit(&worker->shared->sections_left, 1, memory_order_relaxed);
    if (lock->rule->watched)
        shared_count(worker->shared, FIGURE_GRANTED);
    enter(slot, now);
    slot->act_us = now + choose_length(slot);
    /* What is not given a time to live by its client is healed by Headgate. */
    if (lock->kind == KIND_SETNX && !(has_headgate(slot) && worker_one_in(worker, 4))) {
        snprintf(lease, sizeof lease, "%" PRId64, lock->lease_us / US_PER_MS);
        client_ask(slot->home, slot, QUESTION_EXPIRE, 3, "PEXPIRE", lock->key, lease);
    }
    if (worker->shared->options.fault == FAULT_UNWATCHED && !lock->rule->watched && worker_one_in(worker, FAULT_ONE_IN))
        send_rogue_script(slot);
}

static void refused(struct slot *slot, int64_t now)
{
    struct worker *worker = worker_of(slot);
    shared_count(worker->shared, FIGURE_REFUSED);
    if (lock_of(slot)->kind == KIND_SEMAPHORE)
        client_ask(slot->home, slot, QUESTION_NOTHING, 3, "ZREM", lock_of(slot)->key, slot->hold->token);
    if (worker->shared->options.fault == FAULT_INTRUDER && worker_one_in(worker, FAULT_ONE_IN)) {
        enter(slot, now);
        slot->act_us = now;
        return;
    }
    slot->hold->state = SLOT_IDLE;
    slot->act_us = now;
}

/* ---- releasing ---- */

static void send_release(struct slot *slot, struct client *client, int64_t now)
{
    const struct hold *hold = &slot->released;
    const struct lock *lock = &shared_of(slot)->locks[hold->lock];
    char channel[KEY_MAX + 32];
    slot->again = false;
    slot->via = client;
    slot->release_us = now;
    switch (lock->kind) {
    case KIND_DEL:
        client_ask(client, slot, QUESTION_RELEASE, 2, "DEL", lock->key);
        break;
    case KIND_WATCH:
        client_ask(client, slot, QUESTION_NOTHING, 2, "WATCH", lock->key);
        client_ask(client, slot, QUESTION_OWNER, 2, "GET", lock->key);
        break;
    case KIND_HASH:
        snprintf(channel, sizeof channel, "redisson_lock__channel:{%s}", lock->key);
        client_ask(client, slot, QUESTION_RELEASE, 8, "EVALSHA", scripts[SCRIPT_HASH_UNLOCK].digest, "2", lock->key,
                   channel, "0", "1000", hold->token);
        break;
    case KIND_SEMAPHORE:
        client_ask(client, slot, QUESTION_RELEASE, 3, "ZREM", lock->key, hold->token);
        break;
    default:
        if (lock->kind == KIND_SCRIPT && hold->slot % 2 == 1)
            client_ask(client, slot, QUESTION_RELEASE, 5, "EVAL", scripts[SCRIPT_SENT].text, "1", lock->key,
                       hold->token);
        else
            client_ask(client, slot, QUESTION_RELEASE, 5, "EVALSHA", scripts[SCRIPT_RELEASE].digest, "1", lock->key,
                       hold->token);
        break;
    }
}

/* A client of another Headgate, or the slot's own. A token that is used again stays with one Headgate: another cannot
 * know that what it watches was released and taken anew. */
static struct client *choose_way(struct slot *slot)
{
    struct worker *worker = worker_of(slot);
    if (slot->reuses_token || slot->only == KIND_WATCH || worker->shared->options.exact || !has_headgate(slot) ||
        !worker_one_in(worker, VIA_ONE_IN))
        return slot->home;
    struct client *other = &worker->clients[worker_random(worker) % worker->shared->options.clients];
    if (other->slot_count != CLIENT_SLOTS || other->headgate == slot->home->headgate || !client_has_room(other))
        return slot->home;
    shared_count(worker->shared, FIGURE_OTHER_HEADGATE);
    return other;
}

static void note_late_del(struct slot *slot, int64_t end_us)
{
    struct note note = shared_note_of(NOTE_LATE_DEL, &slot->released, end_us);
    note.asked_us = slot->release_us;
    if (shared_of(slot)->locks[slot->released.lock].kind == KIND_DEL)
        shared_note(shared_of(slot), &note);
}

/* A client that deletes without comparing had better be sure that it holds the lock still. */
static bool is_sure(const struct slot *slot, bool disputed, int64_t now)
{
    const struct hold *hold = slot->hold;
    const struct lock *lock = lock_of(slot);
    int64_t longest_ms = lock->rule->max_hold_ms - lock->rule->lease_ms;
    bool in_time = hold->granted_us - hold->asked_us <= lock->lease_us / 4 &&
                   (!lock->rule->watched || now - hold->asked_us < longest_ms * US_PER_MS);
    return lock->kind != KIND_DEL || !has_headgate(slot) || shared_of(slot)->options.exact ||
           (!disputed && in_time && !client_is_cut(slot->home));
}

/* Whether Redis may have lost what was granted then. */
static bool met_restart(const struct shared *shared, const struct hold *hold)
{
    unsigned count = atomic_load(&shared->trouble_count);
    bool met = false;

    for (unsigned at = 0; at < count && at < TROUBLES_MAX; at++) {
        const struct trouble *trouble = &shared->troubles[at];
        met = met || (atomic_load(&trouble->ready) && trouble->kind == TROUBLE_RESTART &&
                      atomic_load(&trouble->end_us) >= hold->asked_us);
    }
    return met;
}

/* The lock was found and released, or there was nothing any more. A DEL may have found the next holder's, which was
 * granted while it was under way: if it was so for long, or the lock was lost with Redis before. */
static void release_answered(struct slot *slot, bool found, int64_t now)
{
    struct shared *shared = shared_of(slot);
    struct hold *released = &slot->released;
    const struct lock *lock = &shared->locks[released->lock];
    bool late = now - slot->release_us > lock->lease_us / 4;
    if (lock->kind == KIND_DEL && (late || !slot->judged || met_restart(shared, released)))
        note_late_del(slot, now);
    if (lock->rule->watched && slot->judged)
        shared_count(shared, found ? FIGURE_RELEASED : FIGURE_MISSED);
    if (!found && slot->judged) {
        struct note note = shared_note_of(NOTE_LOSS, released, now);
        note.lost = client_is_cut(slot->home);
        shared_note(shared, &note);
    }
    if (found && slot->judged) {
        shared_count(shared, FIGURE_SECTIONS + (enum figure)lock->kind);
        if (slot->lengthy)
            shared_count(shared, FIGURE_LONG_KEPT);
    }
    slot->via = NULL;
    if (slot->retaking) {
        slot->retaking = false;
        return;
    }
    slot->hold->state = SLOT_IDLE;
    slot->act_us = now;
    if (shared->options.fault == FAULT_ROGUE && found && worker_one_in(worker_of(slot), FAULT_ONE_IN) &&
        slot->home->link == LINK_UP)
        send_rogue_script(slot);
}

/* It is not known what became of the release: it is repeated, and then need not find anything. */
static void release_repeat(struct slot *slot, int64_t now)
{
    slot->via = NULL;
    slot->again = true;
    slot->judged = false;
    slot->act_us = now + AGAIN_US;
}

static void answer_owner(struct slot *slot, const struct reply *reply, int64_t now)
{
    if (!token_is(&reply->head, '$', slot->released.token)) {
        client_ask(slot->home, slot, QUESTION_NOTHING, 1, "UNWATCH");
        release_answered(slot, false, now);
        return;
    }
    client_ask(slot->home, slot, QUESTION_NOTHING, 1, "MULTI");
    client_ask(slot->home, slot, QUESTION_NOTHING, 2, "DEL", shared_of(slot)->locks[slot->released.lock].key);
    client_ask(slot->home, slot, QUESTION_EXEC_RELEASE, 1, "EXEC");
}

static void answer_exec(struct slot *slot, const struct reply *reply, int64_t now)
{
    if (reply->count == 1) {
        release_answered(slot, reply->items[0].number == 1, now);
        return;
    }
    /* Something touched the key meanwhile, maybe a renewal: what it holds is looked at again. */
    slot->again = true;
    slot->via = NULL;
    slot->act_us = now;
}

/* ---- the ends that are no release ---- */

/* The connection is gone or about to be closed; since when the owner is gone is not known if the peer did it. */
static void abandon(struct slot *slot, bool by_itself, int64_t now)
{
    struct shared *shared = shared_of(slot);
    struct hold *hold = slot->hold;
    const struct lock *lock = lock_of(slot);
    if (slot->retaking) {
        note_late_del(slot, now + LATE_DEL_US);
        shared_leave_over(shared, LEFTOVER_CRASH, &slot->released, now);
    }
    if (hold->state == SLOT_ASKING)
        shared_leave_over(shared, LEFTOVER_UNANSWERED, hold, now);
    if (hold->state == SLOT_HOLDING) {
        bool disputed = leave(slot);
        if (by_itself && lock->rule->release && lock->limit == 1 && !disputed)
            shared_keep(shared, hold, now);
        shared_leave_over(shared, LEFTOVER_CRASH, hold, now);
    }
    if (hold->state == SLOT_RELEASING) {
        if (slot->via != NULL || slot->again)
            note_late_del(slot, now + LATE_DEL_US);
        if (slot->via != NULL && slot->via != slot->home) {
            /* Its reply is still to come; but the lock has no owner any more, and may be gone by then. */
            slot->judged = false;
            return;
        }
        shared_leave_over(shared, LEFTOVER_CRASH, &slot->released, now);
    }
    slot->retaking = false;
    slot->again = false;
    slot->via = NULL;
    hold->state = SLOT_IDLE;
    slot->act_us = now;
}

static void abandon_all(struct client *client, bool by_itself, int64_t now)
{
    for (unsigned at = 0; at < client->pending_count; at++) {
        struct slot *slot = client->pending[(client->pending_first + at) % CLIENT_PENDING].slot;
        if (slot->home != client && slot->via == client)
            release_repeat(slot, now);
    }
    for (unsigned at = 0; at < client->slot_count; at++)
        abandon(&client->slots[at], by_itself, now);
}

void section_connection_lost(struct client *client, int64_t now)
{
    abandon_all(client, false, now);
}

/* The client goes with all that it holds. */
static void vanish(struct client *client, int64_t now)
{
    shared_count(client->worker->shared, FIGURE_CRASHES);
    /* If the peer has closed it already, the grace began then. */
    abandon_all(client, !client_is_cut(client), now);
    client_close(client, now);
}

static void crash(struct slot *slot, int64_t now)
{
    struct client *client = slot->home;
    if (shared_of(slot)->options.fault == FAULT_LEFT && lock_of(slot)->kind <= KIND_DEL) {
        client_ask(client, slot, QUESTION_NOTHING, 3, "PEXPIRE", lock_of(slot)->key, "60000");
        client_flush(client, now);
    }
    if (client->link != LINK_UP)
        return;
    vanish(client, now);
}

/* ---- from one step to the next ---- */

static void finish(struct slot *slot, bool load, int64_t now)
{
    struct worker *worker = worker_of(slot);
    bool may_crash =
        (has_headgate(slot) && !worker->shared->options.exact) || worker->shared->options.fault == FAULT_LEFT;
    if (load && may_crash && worker_one_in(worker, CRASH_ONE_IN)) {
        crash(slot, now);
        return;
    }
    bool sure = is_sure(slot, leave(slot), now);
    slot->released = *slot->hold;
    slot->judged = true;
    slot->hold->state = SLOT_RELEASING;
    if (!sure) {
        vanish(slot->home, now);
        return;
    }
    send_release(slot, choose_way(slot), now);
    bool in_one_step = slot->only == KIND_COUNT && slot->via == slot->home;
    if (!load || !in_one_step || slot->lengthy || !worker_one_in(worker, RETAKE_ONE_IN))
        return;
    shared_count(worker->shared, FIGURE_RETAKEN);
    slot->retaking = true;
    ask_for(slot, slot->hold->lock, now);
}

/* A DEL that was lost may yet be executed: a second one could hit another's lock. */
static void release_again(struct slot *slot, int64_t now)
{
    if (lock_of(slot)->kind == KIND_DEL)
        vanish(slot->home, now);
    else
        send_release(slot, slot->home, now);
}

bool section_act(struct slot *slot, bool load, int64_t now)
{
    enum slot_state state = slot->hold->state;
    bool room = client_has_room(slot->home);
    if (state == SLOT_IDLE && !load)
        return false;
    if (now < slot->act_us || !room)
        return true;
    if (state == SLOT_IDLE)
        ask(slot, now);
    else if (state == SLOT_HOLDING && !slot->retaking)
        finish(slot, load, now);
    else if (state == SLOT_RELEASING && slot->again)
        release_again(slot, now);
    return true;
}

/* An error that is no answer: Redis is away, or Headgate does not reach it. What became of a request to take a lock is
 * not known then, and the client gives up. */
static void answer_error(struct slot *slot, enum question question, int64_t now)
{
    struct client *client = slot->home;
    bool release = question == QUESTION_RELEASE || question == QUESTION_OWNER || question == QUESTION_EXEC_RELEASE;
    shared_count(shared_of(slot), FIGURE_ERRORS);
    if (release && !slot->retaking) {
        release_repeat(slot, now);
    } else if (release || question == QUESTION_ACQUIRE || question == QUESTION_EXEC_PERMIT) {
        abandon_all(client, true, now);
        client_close(client, now);
    }
}

static void answer_acquire(struct slot *slot, const struct reply *reply, int64_t now)
{
    bool grant = token_is(&reply->head, '+', "OK") || (reply->head.type == ':' && reply->head.number == 1);
    if (lock_of(slot)->kind == KIND_HASH)
        grant = reply->head.null;
    if (grant)
        granted(slot, now);
    else
        refused(slot, now);
}

void section_reply(struct slot *slot, uint32_t serial, enum question question, const struct reply *reply, int64_t now)
{
    bool of_release = question == QUESTION_RELEASE || question == QUESTION_OWNER || question == QUESTION_EXEC_RELEASE;
    bool stale = of_release ? slot->via == NULL : slot->hold->serial != serial || slot->hold->state != SLOT_ASKING;
    if (reply->head.type == '-' && (question == QUESTION_NOTHING || question == QUESTION_EXPIRE || !stale)) {
        answer_error(slot, question, now);
        return;
    }
    if (stale || question == QUESTION_NOTHING || question == QUESTION_EXPIRE)
        return;
    switch (question) {
    case QUESTION_ACQUIRE:
        answer_acquire(slot, reply, now);
        break;
    case QUESTION_EXEC_PERMIT:
        if (reply->count == 3 && reply->items[2].type == ':' && reply->items[2].number < lock_of(slot)->limit)
            granted(slot, now);
        else
            refused(slot, now);
        break;
    case QUESTION_OWNER:
        answer_owner(slot, reply, now);
        break;
    case QUESTION_EXEC_RELEASE:
        answer_exec(slot, reply, now);
        break;
    default:
        release_answered(slot, reply->head.type == ':' && reply->head.number > 0, now);
        break;
    }
}
