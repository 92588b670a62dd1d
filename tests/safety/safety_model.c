#include "safety_model.h"

#include "safety_section.h"

#include <stdlib.h>
#include <string.h>

/* Clocks are read at different times. */
#define TOLERANCE_S 0.03

struct permit {
    char token[TOKEN_MAX];
    double asked; /* the score that its client gave it */
    double score; /* that it has now */
    bool granted;
};

struct claims {
    uint64_t *tokens; /* hashed */
    size_t count;
    size_t capacity;
    struct permit *permits; /* of a semaphore, which needs no tokens */
    size_t permit_count;
    size_t permit_capacity;
};

struct model {
    struct shared *shared;
    struct claims claims[LOCKS_MAX];
    /* The script that was called last: what Lua does is its doing. */
    bool script_own;
    char script_token[TOKEN_MAX];
};

static void *grow(void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity > 0 ? *capacity * 2 : 64;
    array = realloc(array, *capacity * size);
    if (array == NULL)
        abort();
    return array;
}

struct model *model_new(struct shared *shared)
{
    struct model *model = calloc(1, sizeof *model);
    if (model == NULL)
        abort();
    model->shared = shared;
    return model;
}

void model_free(struct model *model)
{
    for (size_t at = 0; at < LOCKS_MAX; at++) {
        free(model->claims[at].tokens);
        free(model->claims[at].permits);
    }
    free(model);
}

void model_clear(struct model *model)
{
    for (size_t at = 0; at < LOCKS_MAX; at++) {
        model->claims[at].count = 0;
        model->claims[at].permit_count = 0;
    }
}

/* ---- words ---- */

static int lock_at(const struct monitor_line *line, unsigned at)
{
    return at < line->count ? locks_find(line->words[at].data, line->words[at].length) : -1;
}

/* False if the word is not there or too long for a token. */
static bool copy_word(const struct monitor_line *line, unsigned at, char token[TOKEN_MAX])
{
    token[0] = '\0';
    if (at >= line->count || line->words[at].length >= TOKEN_MAX)
        return false;
    memcpy(token, line->words[at].data, line->words[at].length);
    token[line->words[at].length] = '\0';
    return true;
}

static double number_at(const struct monitor_line *line, unsigned at)
{
    char text[TOKEN_MAX];
    return copy_word(line, at, text) ? strtod(text, NULL) : 0;
}

/* ---- claims ---- */

static struct permit *find_permit(struct claims *claims, const char *token)
{
    for (size_t at = 0; at < claims->permit_count; at++)
        if (strcmp(claims->permits[at].token, token) == 0)
            return &claims->permits[at];
    return NULL;
}

static void remove_permit(struct claims *claims, struct permit *permit)
{
    *permit = claims->permits[--claims->permit_count];
}

static bool is_claimed(struct model *model, int lock, const char *token)
{
    struct claims *claims = &model->claims[lock];
    uint64_t hash = shared_hash(token, strlen(token));
    if (model->shared->locks[lock].kind == KIND_SEMAPHORE)
        return find_permit(claims, token) != NULL;
    for (size_t at = claims->count; at-- > 0;)
        if (claims->tokens[at] == hash)
            return true;
    return false;
}

static void claim(struct model *model, int lock, const char *token)
{
    struct claims *claims = &model->claims[lock];
    claims->tokens = grow(claims->tokens, claims->count, &claims->capacity, sizeof *claims->tokens);
    claims->tokens[claims->count++] = shared_hash(token, strlen(token));
}

static void disclaim(struct model *model, int lock, const char *token)
{
    struct claims *claims = &model->claims[lock];
    uint64_t hash = shared_hash(token, strlen(token));
    size_t kept = 0;
    for (size_t at = 0; at < claims->count; at++)
        if (claims->tokens[at] != hash)
            claims->tokens[kept++] = claims->tokens[at];
    claims->count = kept;
}

/* ---- semaphores ---- */

static void add_permit(struct claims *claims, const char *token, double score)
{
    struct permit *permit = find_permit(claims, token);
    if (permit == NULL) {
        claims->permits = grow(claims->permits, claims->permit_count, &claims->permit_capacity, sizeof *permit);
        permit = &claims->permits[claims->permit_count++];
        memcpy(permit->token, token, TOKEN_MAX);
        permit->granted = false;
    }
    permit->asked = score;
    permit->score = score;
}

static void reap(struct claims *claims, double bound)
{
    for (size_t at = claims->permit_count; at-- > 0;)
        if (claims->permits[at].score <= bound)
            remove_permit(claims, &claims->permits[at]);
}

/*
 * By the scores that their clients gave them, all permits there are come before this one: it is inside because renewals
 * have moved them behind it. They may not come within a third of the lease of now; this one's clock may be behind, and
 * the holders' ahead, and what it has sent may have been on its way for so long that it would have to be excused.
 */
static void judge_renewals(struct model *model, int lock, const struct permit *own, double time)
{
    const struct lock *it = &model->shared->locks[lock];
    double lease = (double)it->lease_us / 1e6;
    if (time - own->asked + lease / SKEW_PART < lease / 3 - TOLERANCE_S)
        shared_violation(model->shared, BREACH_RENEWAL, "%s is granted to %s, %.3f s old, as renewals made way for it",
                         it->key, own->token, time - own->asked);
}

/* The client takes itself for admitted if its rank is below the limit. That may be one too many: its clock was read
 * before one that is inside was admitted or renewed, and it comes later. It is the algorithm's own, and known of it. */
static void rank_permit(struct model *model, int lock, const char *token, double time)
{
    struct claims *claims = &model->claims[lock];
    struct permit *own = find_permit(claims, token);
    int rank = 0;
    int inside = 0;
    int older = 0;
    if (own == NULL)
        return;
    for (size_t at = 0; at < claims->permit_count; at++) {
        const struct permit *other = &claims->permits[at];
        bool before = other->score < own->score || (!(other->score > own->score) && strcmp(other->token, token) < 0);
        rank += before ? 1 : 0;
        inside += other != own && other->granted ? 1 : 0;
        older += other != own && other->granted && other->asked < own->asked ? 1 : 0;
    }
    own->granted = rank < model->shared->locks[lock].limit;
    if (!own->granted || inside < model->shared->locks[lock].limit)
        return;
    if (older >= model->shared->locks[lock].limit)
        judge_renewals(model, lock, own, time);
    unsigned place = atomic_fetch_add(&model->shared->over_admitted_count, 1);
    shared_count(model->shared, FIGURE_SEMAPHORE_RACES);
    if (place < OVER_ADMITTED_MAX)
        atomic_store(&model->shared->over_admitted[place], shared_hash(token, strlen(token)));
}

/* ---- commands ---- */

static void take_script_call(struct model *model, const struct monitor_line *line)
{
    double keys = number_at(line, 2);
    unsigned first = keys >= 0 && keys < MONITOR_WORDS ? 3 + (unsigned)keys : MONITOR_WORDS;
    int lock = lock_at(line, 3);
    model->script_own = line->count > 1 && section_is_own_script(line->words[1].data, line->words[1].length);
    copy_word(line, first, model->script_token);
    if (!model->script_own && lock >= 0 && !is_claimed(model, lock, model->script_token))
        shared_count(model->shared, FIGURE_RENEWALS_REFUSED);
}

static void take_client_command(struct model *model, const struct monitor_line *line)
{
    char token[TOKEN_MAX];
    int lock = lock_at(line, 1);
    if (monitor_is(line, 0, "EVALSHA") || monitor_is(line, 0, "EVAL")) {
        take_script_call(model, line);
    } else if (monitor_is(line, 0, "ECHO") && monitor_is(line, 1, OBSERVER_MARK)) {
        atomic_fetch_add(&model->shared->marks, 1);
    } else if (lock < 0) {
        return;
    } else if (monitor_is(line, 0, "SET") || monitor_is(line, 0, "SETNX")) {
        if (copy_word(line, 2, token))
            claim(model, lock, token);
    } else if (monitor_is(line, 0, "DEL")) {
        model->claims[lock].count = 0;
        model->claims[lock].permit_count = 0;
    } else if (monitor_is(line, 0, "ZREMRANGEBYSCORE")) {
        reap(&model->claims[lock], number_at(line, 3));
    } else if (monitor_is(line, 0, "ZADD") && copy_word(line, 3, token)) {
        add_permit(&model->claims[lock], token, number_at(line, 2));
    } else if (monitor_is(line, 0, "ZRANK") && copy_word(line, 2, token)) {
        rank_permit(model, lock, token, line->time);
    } else if (monitor_is(line, 0, "ZREM") && copy_word(line, 2, token)) {
        struct permit *permit = find_permit(&model->claims[lock], token);
        if (permit != NULL)
            remove_permit(&model->claims[lock], permit);
    }
}

static void take_renewal(struct model *model, int lock)
{
    const char *key = model->shared->locks[lock].key;
    if (!model->shared->locks[lock].rule->watched)
        shared_violation(model->shared, BREACH_RENEWAL, "%s is renewed for %s, but no rule names it", key,
                         model->script_token);
    else if (!is_claimed(model, lock, model->script_token))
        shared_violation(model->shared, BREACH_RENEWAL,
                         "%s is renewed for %s, which has not asked for it since it was released", key,
                         model->script_token);
    else
        shared_count(model->shared, FIGURE_RENEWALS);
}

/* What Headgate does for an owner that is gone. */
static void take_owner_release(struct model *model, int lock, const char *token)
{
    struct permit *permit = find_permit(&model->claims[lock], token);
    shared_count(model->shared, FIGURE_OWNER_RELEASES);
    if (permit != NULL)
        remove_permit(&model->claims[lock], permit);
    else
        disclaim(model, lock, token);
}

static void take_lua_command(struct model *model, const struct monitor_line *line)
{
    char token[TOKEN_MAX];
    int lock = lock_at(line, 1);
    if (lock < 0)
        return;
    if (monitor_is(line, 0, "DEL") || monitor_is(line, 0, "UNLINK")) {
        model->claims[lock].count = 0;
        model->claims[lock].permit_count = 0;
        if (!model->script_own)
            shared_count(model->shared, FIGURE_OWNER_RELEASES);
    } else if (model->script_own) {
        if (monitor_is(line, 0, "HINCRBY") && monitor_is(line, 3, "1") && copy_word(line, 2, token))
            claim(model, lock, token);
    } else if (monitor_is(line, 0, "HDEL") || monitor_is(line, 0, "ZREM")) {
        take_owner_release(model, lock, model->script_token);
    } else if (monitor_is(line, 0, "ZADD")) {
        take_renewal(model, lock);
        struct permit *permit = find_permit(&model->claims[lock], model->script_token);
        if (permit != NULL)
            permit->score = number_at(line, 3);
    } else if (monitor_is(line, 0, "PEXPIRE") || monitor_is(line, 0, "EXPIRE") || monitor_is(line, 0, "PEXPIREAT") ||
               monitor_is(line, 0, "SET")) {
        take_renewal(model, lock);
    }
}

void model_take(struct model *model, const struct monitor_line *line)
{
    if (line->lua)
        take_lua_command(model, line);
    else
        take_client_command(model, line);
}
