/*
 * The lease policy against a model of Redis, under what clients do at random: they take, extend and release locks of
 * three kinds, in pipelines and transactions, over two workers; tokens are shared by the connections of an owner, and
 * used for many locks. With some seeds max_leases has room for ten of them. Requests are executed, and replies and
 * answers come, in any order that connections allow; connections break, clients go, and scripts fail for a while. The
 * same seed always runs the same.
 *
 * What must hold whatever happens is in the functions whose names begin with must_.
 */
#include "lease_scenario.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Scenarios of 200 s each. */
#define SEEDS 30
#define STEP_MS INT64_C(20)
#define MAX_HOLD_MS INT64_C(15000)
#define GRACE_MS INT64_C(1000)
#define SLACK_US (INT64_C(1000) * MS)
#define RULES "[lease:all]\nkeys = *\nttl = 3s\nmax_hold = 15s\ngrace = 1s\nwatchdog =\nowner = client\n"
#define BOUND "renew = 1/30\n[lease]\nmax_leases = 1000\n"
/* Of each lease then, which is renewed with every tick. */
#define WEIGHT 100

/* ---- what must hold ---- */

static bool is_renewal(const struct fake_call *call)
{
    const char *const *rest = (const char *const *)&call->arguments[call->key_count];

    if (strncmp(call->script, "lease_renew", 11) != 0) {
        return false;
    }
    return strcmp(call->script, "lease_renew_zset") == 0 ? strtod(rest[1], NULL) > strtod(rest[2], NULL)
                                                         : strtod(rest[1], NULL) > 1;
}

static void must_leave_the_grace(struct scenario *scenario, const struct fake_call *call, size_t key, int token)
{
    const struct owner *owner = &scenario->owners[scenario_owner_of(token)];
    bool is_release = strncmp(call->script, "lease_release", 13) == 0;
    bool is_over = owner->connections == 0 && scenario->host->now_us >= owner->gone_us + GRACE_MS * MS;

    scenario->farewells += is_release;
    cr_assert(!is_release || is_over, "seed %u: %s of %s is released, and its owner %d could still come back",
              scenario->seed, model_key_name(key), model_token_name(token), scenario_owner_of(token));
}

static void must_not_rival_a_release(struct scenario *scenario, const struct fake_call *call, size_t key, int token)
{
    const struct claim *claim = &scenario->claims[key][token];

    /* A release puts off what is due for as long as the lease bears it. */
    int64_t left_us = scenario->model.keys[key].expires_us - scenario->host->now_us;
    bool is_urgent = left_us <= LEASE_MS * MS / 3 + 2 * SLACK_US || strncmp(call->script, "lease_release", 13) == 0;

    scenario->renewals += is_renewal(call);
    cr_assert(claim->releases_sent == 0 || is_urgent, "seed %u: %s %s for %s while it is being released",
              scenario->seed, call->script, model_key_name(key), model_token_name(token));
    /* Checks and healing prove the ownership, and prolong nothing. */
    cr_assert(!is_renewal(call) || claim->is_known, "seed %u: %s %s for %s after it was released", scenario->seed,
              call->script, model_key_name(key), model_token_name(token));
}

/* Called for each script that the policy sends. */
static void judge_call(void *context, const struct fake_call *call)
{
    struct scenario *scenario = context;
    size_t key = model_key_of(call->arguments[0]);
    int token = model_token_of(call->arguments[call->key_count]);

    scenario->calls_in_step++;
    scenario_trace(scenario, "w%zu script %s %s %s %s %s", call->worker, call->script, call->arguments[0],
                   call->arguments[1], call->argument_count > 2 ? call->arguments[2] : "",
                   call->argument_count > 3 ? call->arguments[3] : "");
    must_not_rival_a_release(scenario, call, key, token);
    must_leave_the_grace(scenario, call, key, token);
}

/* Called by the model for each lock that runs out. */
static void must_not_expire_under_its_owner(void *context, size_t key, int token)
{
    struct scenario *scenario = context;
    struct claim *claim = &scenario->claims[key][token];
    bool is_young = scenario->host->now_us < scenario->model.keys[key].taken_us[token] + (MAX_HOLD_MS - LEASE_MS) * MS;

    cr_assert(scenario->is_bounded || !(claim->is_held && is_young), "seed %u: %s expired, which %s holds",
              scenario->seed, model_key_name(key), model_token_name(token));
    claim->is_held = false;
    claim->over_us = scenario->host->now_us;
}

static void must_end_with_its_owner(const struct scenario *scenario)
{
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        const struct model_key *key = &scenario->model.keys[i];
        bool may_stay = key->type == MODEL_ZSET || scenario->unheard[i];
        for (int token = 0; token < MODEL_TOKENS && key->exists && !may_stay; token++) {
            const struct owner *owner = &scenario->owners[scenario_owner_of(token)];
            bool is_its = key->type == MODEL_STRING ? key->token == token : key->holds[token] > 0;
            int64_t most_us = (LEASE_MS + GRACE_MS) * MS + 2 * SLACK_US;
            bool is_late = owner->connections == 0 && scenario->host->now_us > owner->gone_us + most_us;
            cr_assert(!(is_its && is_late && scenario->host->now_us > scenario->outage_us + most_us),
                      "seed %u: %s is there, and its owner %d gone since %lld ms", scenario->seed, model_key_name(i),
                      scenario_owner_of(token), (long long)((scenario->host->now_us - owner->gone_us) / MS));
        }
    }
}

static void must_have_an_end(const struct scenario *scenario)
{
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        const struct model_key *key = &scenario->model.keys[i];
        bool is_endless = key->exists && key->type != MODEL_ZSET && key->expires_us == 0 && !scenario->unheard[i];
        int64_t since_us = key->endless_us > scenario->outage_us ? key->endless_us : scenario->outage_us;
        cr_assert(!(is_endless && scenario->host->now_us > since_us + 3 * SLACK_US), "seed %u: %s has no time to live",
                  scenario->seed, model_key_name(i));
    }
}

static void must_weigh_what_is_on_file(const struct scenario *scenario)
{
    uint64_t weight = fake_counter(scenario->host, "lease_weight"), held = fake_counter(scenario->host, "lease_held");

    cr_assert(!scenario->is_bounded || (weight == WEIGHT * held && weight <= 1000), "seed %u: %u leases weigh %u",
              scenario->seed, (unsigned)held, (unsigned)weight);
    cr_assert((weight == 0) == (held == 0), "seed %u: %u leases weigh %u", scenario->seed, (unsigned)held,
              (unsigned)weight);
}

static void must_not_live_beyond_max_hold(const struct scenario *scenario, size_t place, int token, int64_t before_us)
{
    const struct model_key *key = &scenario->model.keys[place];
    int64_t most_us = key->since_us[token] + MAX_HOLD_MS * MS + SLACK_US;
    /* A lease that was given up then is found again by the next request that speaks of it. */
    bool after_outage = scenario->outage_us != 0 && scenario->host->now_us < scenario->outage_us + MAX_HOLD_MS * MS;

    cr_assert(key->type == MODEL_ZSET || after_outage || key->expires_us <= before_us || key->expires_us <= most_us,
              "seed %u: %s was renewed beyond max_hold", scenario->seed, model_key_name(place));
}

/* ---- connections ---- */

static void join(struct scenario *scenario, struct actor *actor)
{
    char name[16];

    actor->owner = (int)scenario_below(scenario, OWNERS);
    snprintf(name, sizeof name, "app%d", actor->owner);
    actor->client = fake_join(scenario->host, scenario_below(scenario, 2), "10.0.0.1", name);
    scenario->owners[actor->owner].connections++;
}

static void forget_claims(struct scenario *scenario, int owner)
{
    for (size_t key = 0; key < MODEL_KEYS; key++) {
        for (int token = 0; token < MODEL_TOKENS; token++) {
            if (scenario_owner_of(token) == owner || owner < 0) {
                scenario->claims[key][token].is_held = false;
            }
        }
    }
}

/* What it has sent is executed: its connections to Redis stay. */
static void leave(struct scenario *scenario, struct actor *actor)
{
    struct owner *owner = &scenario->owners[actor->owner];

    scenario_trace(scenario, "c%llu leaves", (unsigned long long)actor->client->view.id);
    while (scenario_execute_next(scenario, actor)) {
    }
    scenario_end_moves(scenario, actor);
    if (--owner->connections == 0) {
        owner->gone_us = scenario->host->now_us;
        forget_claims(scenario, actor->owner);
    }
    fake_leave(actor->client);
    actor->client = NULL;
}

/* Its connection to Redis breaks. */
static void lose(struct scenario *scenario, struct actor *actor)
{
    scenario_trace(scenario, "c%llu loses", (unsigned long long)actor->client->view.id);
    while (!scenario_chance(scenario, 2) && scenario_execute_next(scenario, actor)) {
    }
    scenario_end_moves(scenario, actor);
    while (actor->client->request_count > 0) {
        fake_lose(actor->client);
    }
}

/* ---- scripts ---- */

static void run_next_script(struct scenario *scenario)
{
    struct fake_call *call = scenario->host->calls;
    int64_t reply[4] = {0};
    size_t key = model_key_of(call->arguments[0]);
    int64_t before_us = scenario->model.keys[key].expires_us;

    if (scenario->host->now_us < scenario->outage_us) {
        if (scenario_chance(scenario, 2)) {
            (void)model_run_script(&scenario->model, call->script, call->arguments, reply);
        }
        fake_fail(scenario->host, "connection lost");
        return;
    }
    size_t count = model_run_script(&scenario->model, call->script, call->arguments, reply);
    int token = model_token_of(call->arguments[call->key_count]);
    if (is_renewal(call)) {
        must_not_live_beyond_max_hold(scenario, key, token, before_us);
    } else if (count > 1 && (reply[0] > 0 || reply[0] == -2)) {
        /* Redis was asked, and has it. */
        scenario->claims[key][token].is_known = true;
        scenario->claims[key][token].known_us = scenario->host->now_us;
    }
    scenario_trace(scenario, "w%zu answer %s %s: %lld %lld", call->worker, call->arguments[0], call->arguments[1],
                   (long long)reply[0], (long long)reply[1]);
    fake_answer_with(scenario->host, reply, count);
}

/* ---- time ---- */

/* Much at once, and then time for what has been taken to run out. */
static uint32_t calm_of(const struct scenario *scenario)
{
    bool is_busy = scenario->host->now_us / (500 * MS) % 10 == 0;

    return is_busy ? 1 : scenario->calm;
}

static void act_at_random(struct scenario *scenario)
{
    uint32_t calm = calm_of(scenario);
    struct actor *actor = &scenario->actors[scenario_below(scenario, CLIENTS_MAX)];

    if (actor->client == NULL) {
        if (scenario_chance(scenario, 20)) {
            join(scenario, actor);
        }
    } else if (scenario_chance(scenario, 200 * calm)) {
        leave(scenario, actor);
    } else if (scenario_chance(scenario, 200 * calm)) {
        lose(scenario, actor);
    } else if (scenario_chance(scenario, 10 * calm)) {
        scenario_send_something(scenario, actor);
    } else if (scenario_chance(scenario, 2)) {
        (void)scenario_execute_next(scenario, actor);
    } else {
        (void)scenario_deliver_next(scenario, actor);
    }
    if (scenario->host->calls != NULL && scenario_chance(scenario, 3)) {
        run_next_script(scenario);
    }
}

/* What has taken its time is over. */
static void hurry(struct scenario *scenario)
{
    int64_t now_us = scenario->host->now_us;

    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct actor *actor = &scenario->actors[i];
        while (actor->count > 0 && now_us - actor->moves[0].sent_us > 2 * PATIENCE_US) {
            (void)scenario_execute_next(scenario, actor);
            (void)scenario_deliver_next(scenario, actor);
        }
    }
    while (scenario->host->calls != NULL && now_us - scenario->host->calls->sent_us > PATIENCE_US) {
        run_next_script(scenario);
    }
}

static void pass(struct scenario *scenario)
{
    scenario->calls_in_step = 0;
    fake_pass(scenario->host, STEP_MS);
    cr_assert_leq(scenario->calls_in_step, (size_t)(MODEL_KEYS * MODEL_TOKENS), "seed %u", scenario->seed);
    model_set_time(&scenario->model, scenario->host->now_us);
    hurry(scenario);
    must_weigh_what_is_on_file(scenario);
    if (!scenario->is_bounded) {
        must_end_with_its_owner(scenario);
        must_have_an_end(scenario);
    }
    if (scenario->outage_us == 0 || scenario->host->now_us > scenario->outage_us + 20 * SLACK_US) {
        if (scenario_chance(scenario, 2000)) {
            scenario->outage_us = scenario->host->now_us + scenario_below(scenario, 5000) * MS;
            forget_claims(scenario, -1);
        }
    }
}

static struct scenario *scenario_new(uint32_t seed)
{
    struct scenario *scenario = calloc(1, sizeof *scenario);
    char rules[300];

    scenario->seed = seed;
    scenario->random = seed;
    scenario->traced = getenv("LEASE_TRACE") != NULL;
    scenario->calm = 1 + seed % 3 * 20;
    scenario->is_bounded = seed % 3 == 0;
    snprintf(rules, sizeof rules, RULES "%s%s", seed % 2 == 0 ? "on_owner_gone = release\n" : "",
             scenario->is_bounded ? BOUND : "");
    scenario->host = lease_host_new(rules, 2);
    scenario->host->on_call = judge_call;
    scenario->host->on_call_context = scenario;
    scenario->model.on_expiry = must_not_expire_under_its_owner;
    scenario->model.context = scenario;
    model_init(&scenario->model);
    model_set_time(&scenario->model, scenario->host->now_us);
    return scenario;
}

/* All go; nothing may be left. */
static void must_be_empty_at_the_end(struct scenario *scenario)
{
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        if (scenario->actors[i].client != NULL) {
            leave(scenario, &scenario->actors[i]);
        }
    }
    for (int64_t ms = 0; ms < 30000; ms += STEP_MS) {
        pass(scenario);
    }
    cr_assert(lease_host_lists(scenario->host, NULL), "seed %u", scenario->seed);
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        cr_assert(scenario->is_bounded || !scenario->model.keys[i].exists ||
                      scenario->model.keys[i].type == MODEL_ZSET || scenario->unheard[i],
                  "seed %u: %s", scenario->seed, model_key_name(i));
    }
}

static void scenario_run(uint32_t seed)
{
    struct scenario *scenario = scenario_new(seed);

    for (int step = 0; step < 10000; step++) {
        for (int i = 0; i < 20; i++) {
            act_at_random(scenario);
        }
        pass(scenario);
    }
    must_be_empty_at_the_end(scenario);
    /* It was worth the while. */
    cr_assert_gt(scenario->renewals, (size_t)30, "seed %u", scenario->seed);
    cr_assert_gt(scenario->releases, (size_t)30, "seed %u", scenario->seed);
    cr_assert(seed % 2 != 0 || scenario->farewells > 0, "seed %u", scenario->seed);
    cr_assert_eq(fake_counter(scenario->host, "lease_unwatched_total") > 0, scenario->is_bounded, "seed %u", seed);
    lease_host_free(scenario->host);
    free(scenario);
}

Test(lease_random, whatever_clients_do)
{
    const char *only = getenv("LEASE_SEED");
    const char *count = getenv("LEASE_SEEDS");
    uint32_t first = only != NULL ? (uint32_t)strtoul(only, NULL, 10) : 1;
    uint32_t seeds = count != NULL ? (uint32_t)strtoul(count, NULL, 10) : only != NULL ? 1 : SEEDS;

    cr_assert(first > 0 && seeds > 0, "LEASE_SEED, the first, and LEASE_SEEDS, how many, are numbers from 1 on");
    for (uint32_t seed = first; seed < first + seeds; seed++) {
        scenario_run(seed);
    }
}
