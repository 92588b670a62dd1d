/*
 * The lease policy against a model of Redis, under what clients do at random: they take, extend and release locks of
 * three kinds, in pipelines and transactions, over two workers; tokens are shared by the connections of an owner, and
 * used for many locks. Requests are executed, and replies and answers come, in any order that connections allow;
 * connections break, clients go, and scripts fail for a while. The same seed always plays the same.
 *
 * What must hold whatever happens is in the functions whose names begin with must_.
 */
#include "lease_play.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Plays of 200 s each. */
#define SEEDS 60
#define STEP_MS INT64_C(20)
#define MAX_HOLD_MS INT64_C(15000)
#define GRACE_MS INT64_C(1000)
#define SLACK_US (INT64_C(1000) * MS)
#define RULES "[lease:all]\nkeys = *\nttl = 3s\nmax_hold = 15s\ngrace = 1s\nwatchdog =\nowner = client\n"

/* ---- what must hold ---- */

static bool is_renewal(const struct stage_call *call)
{
    const char *const *rest = (const char *const *)&call->arguments[call->key_count];

    if (strncmp(call->script, "lease_renew", 11) != 0) {
        return false;
    }
    return strcmp(call->script, "lease_renew_zset") == 0 ? strtod(rest[1], NULL) > strtod(rest[2], NULL)
                                                         : strtod(rest[1], NULL) > 1;
}

static void must_leave_the_grace(struct play *play, const struct stage_call *call, size_t key, int token)
{
    const struct owner *owner = &play->owners[play_owner_of(token)];
    bool is_release = strncmp(call->script, "lease_release", 13) == 0;
    bool is_over = owner->connections == 0 && play->stage->now_us >= owner->gone_us + GRACE_MS * MS;

    play->farewells += is_release;
    cr_assert(!is_release || is_over, "seed %u: %s of %s is released, and its owner %d could still come back",
              play->seed, model_key_name(key), model_token_name(token), play_owner_of(token));
}

static void must_not_rival_a_release(struct play *play, const struct stage_call *call, size_t key, int token)
{
    const struct claim *claim = &play->claims[key][token];

    play->renewals += is_renewal(call);
    cr_assert_eq(claim->releases_sent, 0u, "seed %u: %s %s for %s while it is being released", play->seed, call->script,
                 model_key_name(key), model_token_name(token));
    /* Checks and healing prove the ownership, and prolong nothing. */
    cr_assert(!is_renewal(call) || claim->is_known, "seed %u: %s %s for %s after it was released", play->seed,
              call->script, model_key_name(key), model_token_name(token));
}

/* Called for each script that the policy sends. */
static void judge_call(void *context, const struct stage_call *call)
{
    struct play *play = context;
    size_t key = model_key_of(call->arguments[0]);
    int token = model_token_of(call->arguments[call->key_count]);

    play->calls_in_step++;
    play_trace(play, "w%zu script %s %s %s %s %s", call->worker, call->script, call->arguments[0], call->arguments[1],
               call->argument_count > 2 ? call->arguments[2] : "", call->argument_count > 3 ? call->arguments[3] : "");
    must_not_rival_a_release(play, call, key, token);
    must_leave_the_grace(play, call, key, token);
}

/* Called by the model for each lock that runs out. */
static void must_not_expire_under_its_owner(void *context, size_t key, int token)
{
    struct play *play = context;
    struct claim *claim = &play->claims[key][token];
    bool is_young = play->stage->now_us < play->model.keys[key].taken_us[token] + (MAX_HOLD_MS - LEASE_MS) * MS;

    cr_assert(!(claim->is_held && is_young), "seed %u: %s expired, which %s holds", play->seed, model_key_name(key),
              model_token_name(token));
    claim->is_held = false;
    claim->over_us = play->stage->now_us;
}

static void must_end_with_its_owner(const struct play *play)
{
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        const struct model_key *key = &play->model.keys[i];
        for (int token = 0; token < MODEL_TOKENS && key->exists && key->type != MODEL_ZSET; token++) {
            const struct owner *owner = &play->owners[play_owner_of(token)];
            bool is_its = key->type == MODEL_STRING ? key->token == token : key->holds[token] > 0;
            int64_t most_us = (LEASE_MS + GRACE_MS) * MS + 2 * SLACK_US;
            bool is_late = owner->connections == 0 && play->stage->now_us > owner->gone_us + most_us;
            cr_assert(!(is_its && is_late && play->stage->now_us > play->outage_us + most_us),
                      "seed %u: %s is there, and its owner %d gone since %lld ms", play->seed, model_key_name(i),
                      play_owner_of(token), (long long)((play->stage->now_us - owner->gone_us) / MS));
        }
    }
}

static void must_have_an_end(const struct play *play)
{
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        const struct model_key *key = &play->model.keys[i];
        bool is_endless = key->exists && key->type != MODEL_ZSET && key->expires_us == 0;
        int64_t since_us = key->endless_us > play->outage_us ? key->endless_us : play->outage_us;
        cr_assert(!(is_endless && play->stage->now_us > since_us + 3 * SLACK_US), "seed %u: %s has no time to live",
                  play->seed, model_key_name(i));
    }
}

static void must_not_live_beyond_max_hold(const struct play *play, size_t place, int token, int64_t before_us)
{
    const struct model_key *key = &play->model.keys[place];
    int64_t most_us = key->since_us[token] + MAX_HOLD_MS * MS + SLACK_US;
    /* A lease that was given up then is found again by the next request that speaks of it. */
    bool after_outage = play->outage_us != 0 && play->stage->now_us < play->outage_us + MAX_HOLD_MS * MS;

    cr_assert(key->type == MODEL_ZSET || after_outage || key->expires_us <= before_us || key->expires_us <= most_us,
              "seed %u: %s was renewed beyond max_hold", play->seed, model_key_name(place));
}

/* ---- connections ---- */

static void join(struct play *play, struct actor *actor)
{
    char name[16];

    actor->owner = (int)play_below(play, OWNERS);
    snprintf(name, sizeof name, "app%d", actor->owner);
    actor->client = stage_join(play->stage, play_below(play, 2), "10.0.0.1", name);
    play->owners[actor->owner].connections++;
}

static void forget_claims(struct play *play, int owner)
{
    for (size_t key = 0; key < MODEL_KEYS; key++) {
        for (int token = 0; token < MODEL_TOKENS; token++) {
            if (play_owner_of(token) == owner || owner < 0) {
                play->claims[key][token].is_held = false;
            }
        }
    }
}

/* What it has sent is executed: its connections to Redis stay. */
static void leave(struct play *play, struct actor *actor)
{
    struct owner *owner = &play->owners[actor->owner];

    play_trace(play, "c%llu leaves", (unsigned long long)actor->client->view.id);
    while (play_execute_next(play, actor)) {
    }
    play_end_moves(play, actor);
    if (--owner->connections == 0) {
        owner->gone_us = play->stage->now_us;
        forget_claims(play, actor->owner);
    }
    stage_leave(actor->client);
    actor->client = NULL;
}

/* Its connection to Redis breaks. */
static void lose(struct play *play, struct actor *actor)
{
    play_trace(play, "c%llu loses", (unsigned long long)actor->client->view.id);
    while (!play_chance(play, 2) && play_execute_next(play, actor)) {
    }
    play_end_moves(play, actor);
    while (actor->client->request_count > 0) {
        stage_lose(actor->client);
    }
}

/* ---- scripts ---- */

static void run_next_script(struct play *play)
{
    struct stage_call *call = play->stage->calls;
    int64_t reply[4] = {0};
    size_t key = model_key_of(call->arguments[0]);
    int64_t before_us = play->model.keys[key].expires_us;

    if (play->stage->now_us < play->outage_us) {
        if (play_chance(play, 2)) {
            (void)model_run_script(&play->model, call->script, call->arguments, reply);
        }
        stage_fail(play->stage, "connection lost");
        return;
    }
    size_t count = model_run_script(&play->model, call->script, call->arguments, reply);
    int token = model_token_of(call->arguments[call->key_count]);
    if (is_renewal(call)) {
        must_not_live_beyond_max_hold(play, key, token, before_us);
    } else if (count > 1 && (reply[0] > 0 || reply[0] == -2)) {
        /* Redis was asked, and has it. */
        play->claims[key][token].is_known = true;
        play->claims[key][token].known_us = play->stage->now_us;
    }
    play_trace(play, "w%zu answer %s %s: %lld %lld", call->worker, call->arguments[0], call->arguments[1],
               (long long)reply[0], (long long)reply[1]);
    stage_answer_with(play->stage, reply, count);
}

/* ---- time ---- */

/* Much at once, and then time for what has been taken to run out. */
static uint32_t calm_of(const struct play *play)
{
    bool is_busy = play->stage->now_us / (500 * MS) % 10 == 0;

    return is_busy ? 1 : play->calm;
}

static void act_at_random(struct play *play)
{
    uint32_t calm = calm_of(play);
    struct actor *actor = &play->actors[play_below(play, CLIENTS_MAX)];

    if (actor->client == NULL) {
        if (play_chance(play, 20)) {
            join(play, actor);
        }
    } else if (play_chance(play, 200 * calm)) {
        leave(play, actor);
    } else if (play_chance(play, 200 * calm)) {
        lose(play, actor);
    } else if (play_chance(play, 10 * calm)) {
        play_send_something(play, actor);
    } else if (play_chance(play, 2)) {
        (void)play_execute_next(play, actor);
    } else {
        (void)play_deliver_next(play, actor);
    }
    if (play->stage->calls != NULL && play_chance(play, 3)) {
        run_next_script(play);
    }
}

/* What has taken its time is over. */
static void hurry(struct play *play)
{
    int64_t now_us = play->stage->now_us;

    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct actor *actor = &play->actors[i];
        while (actor->count > 0 && now_us - actor->moves[0].sent_us > 2 * PATIENCE_US) {
            (void)play_execute_next(play, actor);
            (void)play_deliver_next(play, actor);
        }
    }
    while (play->stage->calls != NULL && now_us - play->stage->calls->sent_us > PATIENCE_US) {
        run_next_script(play);
    }
}

static void pass(struct play *play)
{
    play->calls_in_step = 0;
    stage_pass(play->stage, STEP_MS);
    cr_assert_leq(play->calls_in_step, (size_t)(MODEL_KEYS * MODEL_TOKENS), "seed %u", play->seed);
    model_set_time(&play->model, play->stage->now_us);
    hurry(play);
    must_end_with_its_owner(play);
    must_have_an_end(play);
    if (play->outage_us == 0 || play->stage->now_us > play->outage_us + 20 * SLACK_US) {
        if (play_chance(play, 2000)) {
            play->outage_us = play->stage->now_us + play_below(play, 5000) * MS;
            forget_claims(play, -1);
        }
    }
}

static struct play *play_new(uint32_t seed)
{
    struct play *play = calloc(1, sizeof *play);

    play->seed = seed;
    play->random = seed;
    play->traced = getenv("LEASE_TRACE") != NULL;
    play->calm = 1 + seed % 3 * 20;
    play->stage = stage_new(seed % 2 == 0 ? RULES "on_owner_gone = release\n" : RULES, 2);
    play->stage->on_call = judge_call;
    play->stage->on_call_context = play;
    play->model.on_expiry = must_not_expire_under_its_owner;
    play->model.context = play;
    model_init(&play->model);
    model_set_time(&play->model, play->stage->now_us);
    return play;
}

/* All go; nothing may be left. */
static void must_be_empty_at_the_end(struct play *play)
{
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        if (play->actors[i].client != NULL) {
            leave(play, &play->actors[i]);
        }
    }
    for (int64_t ms = 0; ms < 30000; ms += STEP_MS) {
        pass(play);
    }
    cr_assert(stage_lists(play->stage, NULL), "seed %u", play->seed);
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        cr_assert(!play->model.keys[i].exists || play->model.keys[i].type == MODEL_ZSET, "seed %u: %s", play->seed,
                  model_key_name(i));
    }
}

static void play_one(uint32_t seed)
{
    struct play *play = play_new(seed);

    for (int step = 0; step < 10000; step++) {
        for (int i = 0; i < 20; i++) {
            act_at_random(play);
        }
        pass(play);
    }
    must_be_empty_at_the_end(play);
    /* It was worth the while. */
    cr_assert_gt(play->renewals, (size_t)30, "seed %u", play->seed);
    cr_assert_gt(play->releases, (size_t)30, "seed %u", play->seed);
    cr_assert(seed % 2 != 0 || play->farewells > 0, "seed %u", play->seed);
    stage_free(play->stage);
    free(play);
}

Test(lease_random, whatever_clients_do)
{
    const char *only = getenv("LEASE_SEED");
    const char *count = getenv("LEASE_SEEDS");
    uint32_t first = only != NULL ? (uint32_t)strtoul(only, NULL, 10) : 1;
    uint32_t last = only != NULL ? first : count != NULL ? (uint32_t)strtoul(count, NULL, 10) : SEEDS;

    cr_assert(first > 0 && last >= first, "LEASE_SEED and LEASE_SEEDS are numbers from 1 on");
    for (uint32_t seed = first; seed <= last; seed++) {
        play_one(seed);
    }
}
