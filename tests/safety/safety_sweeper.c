#include "safety_sweeper.h"

#include "safety_judge.h"
#include "safety_model.h"
#include "safety_section.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLACK_US 1000000
#define HEAL_US 1000000
#define AGAIN_US 200000
#define FINISH_US 30000000
#define US_PER_MS 1000

void sweeper_init(struct sweeper *sweeper, struct shared *shared)
{
    *sweeper = (struct sweeper){.shared = shared, .checked_us = calloc(LEFTOVERS_MAX, sizeof(int64_t))};
    if (sweeper->checked_us == NULL)
        abort();
}

static void disconnect(struct sweeper *sweeper)
{
    if (sweeper->redis != NULL)
        redisFree(sweeper->redis);
    sweeper->redis = NULL;
}

void sweeper_free(struct sweeper *sweeper)
{
    disconnect(sweeper);
    free(sweeper->checked_us);
}

/* NULL if Redis is away. */
__attribute__((format(printf, 2, 3))) static redisReply *ask(struct sweeper *sweeper, const char *format, ...)
{
    va_list arguments;
    if (sweeper->redis == NULL)
        sweeper->redis = redisConnect("127.0.0.1", sweeper->shared->redis_port);
    if (sweeper->redis == NULL || sweeper->redis->err != 0) {
        disconnect(sweeper);
        return NULL;
    }
    va_start(arguments, format);
    redisReply *reply = redisvCommand(sweeper->redis, format, arguments);
    va_end(arguments);
    if (reply == NULL)
        disconnect(sweeper);
    return reply;
}

bool sweeper_load_scripts(struct sweeper *sweeper)
{
    bool loaded = true;
    for (size_t at = 0; section_script(at) != NULL; at++) {
        redisReply *reply = ask(sweeper, "SCRIPT LOAD %s", section_script(at));
        loaded = loaded && reply != NULL && reply->type == REDIS_REPLY_STRING;
        freeReplyObject(reply);
    }
    return loaded;
}

bool sweeper_sync_observer(struct sweeper *sweeper)
{
    unsigned before = atomic_load(&sweeper->shared->marks);
    redisReply *reply = ask(sweeper, "ECHO %s", OBSERVER_MARK);
    bool sent = reply != NULL;
    freeReplyObject(reply);
    for (int64_t end = now_us() + FINISH_US; sent && now_us() < end; usleep(1000))
        if (atomic_load(&sweeper->shared->marks) != before)
            return true;
    return false;
}

/* ---- one token ---- */

enum finding { FINDING_GONE, FINDING_THERE, FINDING_UNKNOWN };

static enum finding find_permit(struct sweeper *sweeper, const struct lock *lock, const char *token)
{
    redisReply *reply = ask(sweeper, "ZSCORE %s %s", lock->key, token);
    redisReply *time = ask(sweeper, "TIME");
    enum finding finding = FINDING_UNKNOWN;
    if (reply != NULL && time != NULL && time->type == REDIS_REPLY_ARRAY && time->elements == 2) {
        double lease = (double)lock->lease_us / 1e6;
        bool there =
            reply->type == REDIS_REPLY_STRING && strtod(reply->str, NULL) + lease > strtod(time->element[0]->str, NULL);
        finding = there ? FINDING_THERE : FINDING_GONE;
    }
    freeReplyObject(reply);
    freeReplyObject(time);
    return finding;
}

static enum finding find_token(struct sweeper *sweeper, const struct leftover *leftover)
{
    const struct lock *lock = &sweeper->shared->locks[leftover->lock];
    enum finding finding = FINDING_UNKNOWN;
    if (lock->kind == KIND_SEMAPHORE)
        return find_permit(sweeper, lock, leftover->token);
    redisReply *reply = lock->kind == KIND_HASH ? ask(sweeper, "HEXISTS %s %s", lock->key, leftover->token)
                                                : ask(sweeper, "GET %s", lock->key);
    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER)
        finding = reply->integer != 0 ? FINDING_THERE : FINDING_GONE;
    else if (reply != NULL)
        finding = reply->type == REDIS_REPLY_STRING && strcmp(reply->str, leftover->token) == 0 ? FINDING_THERE
                                                                                                : FINDING_GONE;
    freeReplyObject(reply);
    return finding;
}

static int64_t due_us(const struct sweeper *sweeper, const struct leftover *leftover)
{
    const struct lock *lock = &sweeper->shared->locks[leftover->lock];
    int64_t from = leftover->since_us;
    if (leftover->reason == LEFTOVER_MAX_HOLD)
        return from + (int64_t)lock->rule->max_hold_ms * US_PER_MS + SLACK_US;
    int64_t life = lock->lease_us + (int64_t)lock->rule->grace_ms * US_PER_MS + SLACK_US;
    int64_t trouble = judge_last_trouble(sweeper->shared, leftover->headgate, from + life);
    from = trouble > from ? trouble : from;
    return from + life + (lock->kind == KIND_SETNX ? HEAL_US : 0);
}

static int64_t ask_life(struct sweeper *sweeper, const char *key)
{
    redisReply *reply = ask(sweeper, "PTTL %s", key);
    int64_t life = reply != NULL && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -2;
    freeReplyObject(reply);
    return life;
}

/* The token is there though its time is over. */
static void judge_found(struct sweeper *sweeper, const struct leftover *leftover, int64_t now)
{
    static const char *const reasons[] = {"its owner died", "its owner died, unanswered", "it is held beyond max_hold"};
    const struct lock *lock = &sweeper->shared->locks[leftover->lock];
    int64_t life = ask_life(sweeper, lock->key);
    bool nobody_knows = leftover->reason == LEFTOVER_UNANSWERED ||
                        judge_was_away(sweeper->shared, leftover->headgate, leftover->since_us - 2 * HEAL_US);
    if (lock->kind == KIND_SETNX && life == -1 && nobody_knows) {
        shared_count(sweeper->shared, FIGURE_SWEPT_UNANSWERED);
        freeReplyObject(ask(sweeper, "DEL %s", lock->key));
        return;
    }
    if (life == -2)
        return;
    shared_violation(sweeper->shared, BREACH_LEFT,
                     "%s is left behind with %s, %" PRId64 " ms after %s; it lives for %" PRId64 " ms", lock->key,
                     leftover->token, (now - leftover->since_us) / US_PER_MS, reasons[leftover->reason], life);
}

/* False if it has to be looked at again. */
static bool sweep(struct sweeper *sweeper, unsigned at, int64_t now)
{
    struct leftover *leftover = &sweeper->shared->leftovers[at];
    int64_t due = due_us(sweeper, leftover);
    if (now < due) {
        sweeper->checked_us[at] = due;
        return false;
    }
    enum finding finding = find_token(sweeper, leftover);
    if (finding == FINDING_UNKNOWN)
        return false;
    /* A trouble may have become known meanwhile. */
    if (finding == FINDING_THERE && now_us() < due_us(sweeper, leftover))
        return false;
    if (finding == FINDING_THERE)
        judge_found(sweeper, leftover, now);
    shared_count(sweeper->shared, FIGURE_SWEPT);
    return true;
}

void sweeper_step(struct sweeper *sweeper)
{
    unsigned count = atomic_load(&sweeper->shared->leftover_count);
    int64_t now = now_us();
    for (unsigned at = sweeper->first; at < count && at < LEFTOVERS_MAX; at++) {
        struct leftover *leftover = &sweeper->shared->leftovers[at];
        if (leftover->done || !atomic_load(&leftover->ready) || now < sweeper->checked_us[at])
            continue;
        sweeper->checked_us[at] = now + AGAIN_US;
        leftover->done = sweep(sweeper, at, now);
    }
    while (sweeper->first < count && sweeper->first < LEFTOVERS_MAX && sweeper->shared->leftovers[sweeper->first].done)
        sweeper->first++;
}

/* ---- the end ---- */

/* How many locks there are; -1 if Redis does not say. Permits that are over may stay: the next one that asks reaps. */
static int count_locks(struct sweeper *sweeper, bool tell)
{
    int there = 0;
    for (unsigned number = 0; number < sweeper->shared->lock_count; number++) {
        const struct lock *lock = &sweeper->shared->locks[number];
        if (lock->kind == KIND_SEMAPHORE) {
            redisReply *time = ask(sweeper, "TIME");
            double now = time != NULL && time->type == REDIS_REPLY_ARRAY ? strtod(time->element[0]->str, NULL) : 0;
            freeReplyObject(ask(sweeper, "ZREMRANGEBYSCORE %s -inf %f", lock->key, now - (double)lock->lease_us / 1e6));
            freeReplyObject(time);
        }
        redisReply *reply = ask(sweeper, "EXISTS %s", lock->key);
        if (reply == NULL)
            return -1;
        if (reply->integer != 0 && tell)
            shared_violation(sweeper->shared, BREACH_LEFT,
                             "%s is there when all clients are gone; it lives for %" PRId64 " ms", lock->key,
                             ask_life(sweeper, lock->key));
        there += reply->integer != 0 ? 1 : 0;
        freeReplyObject(reply);
    }
    return there;
}

void sweeper_finish(struct sweeper *sweeper)
{
    int64_t over = now_us() + locks_longest_us(sweeper->shared->options.exact) + SLACK_US;
    int64_t end = now_us() + FINISH_US;
    while (now_us() < end && sweeper->first < atomic_load(&sweeper->shared->leftover_count)) {
        sweeper_step(sweeper);
        /* A place whose process was killed while it was filled never is ready. */
        if (sweeper->first < LEFTOVERS_MAX && !atomic_load(&sweeper->shared->leftovers[sweeper->first].ready))
            sweeper->shared->leftovers[sweeper->first].done = true;
        usleep(AGAIN_US / 10);
    }
    while (now_us() < over && count_locks(sweeper, false) != 0)
        usleep(AGAIN_US / 10);
    count_locks(sweeper, true);
}
