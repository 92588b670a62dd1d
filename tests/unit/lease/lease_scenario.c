#include "lease_scenario.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RELEASE "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 %s %s"
#define EXTEND "EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 %s %s 3000"
/* Of node-redlock, with a key that is named twice. */
#define TAKE_TWICE "EVALSHA e5a322e2634ef59a516e8ea150cb085afafee684 2 %1$s %1$s %2$s 3000"
#define LOCK "EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 %s 3000 %s"
#define UNLOCK "EVALSHA 3ffe249c16dee540ac8ab32e39bd408626b9aff7 2 %s c 0 3000 %s"

void scenario_trace(const struct scenario *scenario, const char *format, ...)
{
    va_list arguments;

    if (scenario->traced) {
        fprintf(stderr, "%lld ", (long long)(scenario->host->now_us - FAKE_FIRST_US) / MS);
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        fputc('\n', stderr);
    }
}

uint32_t scenario_below(struct scenario *scenario, uint32_t limit)
{
    return next_random(&scenario->random) % limit;
}

bool scenario_chance(struct scenario *scenario, uint32_t of)
{
    return scenario_below(scenario, of) == 0;
}

int scenario_owner_of(int token)
{
    return token / (MODEL_TOKENS / OWNERS);
}

static bool forces(enum act act)
{
    return act == ACT_DEL || act == ACT_EXEC_DEL;
}

static bool releases(enum act act)
{
    return forces(act) || act == ACT_RELEASE || act == ACT_UNLOCK || act == ACT_ZREM;
}

static bool takes(enum act act)
{
    return act == ACT_SET_NX || act == ACT_SETNX || act == ACT_LOCK || act == ACT_EXEC_TAKE;
}

static bool names_twice(const struct move *move)
{
    return move->act == ACT_SET_NX && move->sequence % 2 == 0;
}

/* ---- requests ---- */

static void text_of(const struct move *move, char *text, size_t size)
{
    static const char *const formats[] = {
        [ACT_SET_NX] = "SET %s %s NX PX 3000",
        [ACT_SETNX] = "SETNX %s %s",
        [ACT_EXPIRE] = "PEXPIRE %s 3000",
        [ACT_EXTEND] = EXTEND,
        [ACT_RELEASE] = RELEASE,
        [ACT_DEL] = "DEL %s",
        [ACT_EXEC_TAKE] = "SET %s %s NX PX 3000",
        [ACT_EXEC_DEL] = "DEL %s",
        [ACT_LOCK] = LOCK,
        [ACT_UNLOCK] = UNLOCK,
        [ACT_ZREM] = "ZREM %s %s",
    };
    const char *key = model_key_name(move->key);

    if (move->act == ACT_SWEEP) {
        snprintf(text, size, "ZREMRANGEBYSCORE %s -inf %.3f", key, move->score);
    } else if (move->act == ACT_ZADD) {
        snprintf(text, size, "ZADD %s %.3f %s", key, move->score, model_token_name(move->token));
    } else {
        /* Formats of one argument pass over the other. */
        snprintf(text, size, names_twice(move) ? TAKE_TWICE : formats[move->act], key, model_token_name(move->token));
    }
}

static void note_sent(struct scenario *scenario, const struct move *move)
{
    for (int token = 0; token < MODEL_TOKENS; token++) {
        struct claim *claim = &scenario->claims[move->key][token];
        if (releases(move->act) && (forces(move->act) || token == move->token)) {
            claim->is_held = false;
            /* One that was forwarded when nothing was known of such a lock is not waited for. */
            claim->releases_sent += move->passed;
        }
    }
}

static void send_move(struct scenario *scenario, struct actor *actor, struct move move)
{
    struct fake_client *client = actor->client;
    bool queued = move.act == ACT_EXEC_TAKE || move.act == ACT_EXEC_DEL;
    size_t before = client->request_count;
    char text[200];

    if (actor->count == PIPELINE_MAX) {
        return;
    }
    move.sequence = ++scenario->sequence;
    move.sent_us = scenario->host->now_us;
    text_of(&move, text, sizeof text);
    if (queued) {
        fake_send(client, "MULTI");
    }
    fake_send(client, text);
    if (queued) {
        fake_send(client, "EXEC");
    }
    move.passed = client->request_count > before;
    actor->moves[actor->count++] = move;
    note_sent(scenario, &move);
    scenario_trace(scenario, "c%llu w%zu sends #%llu %s%s", (unsigned long long)client->view.id, client->worker,
                   (unsigned long long)move.sequence, text, move.passed ? "" : " (not passed)");
}

static double wall_s(const struct scenario *scenario)
{
    return (double)(scenario->host->wall_us + scenario->host->now_us) / 1e6;
}

void scenario_send_something(struct scenario *scenario, struct actor *actor)
{
    static const enum act of_strings[] = {ACT_SET_NX,  ACT_SET_NX,  ACT_SETNX, ACT_EXTEND,    ACT_RELEASE,
                                          ACT_RELEASE, ACT_RELEASE, ACT_DEL,   ACT_EXEC_TAKE, ACT_EXEC_DEL};
    static const enum act of_hashes[] = {ACT_LOCK, ACT_LOCK, ACT_UNLOCK, ACT_UNLOCK, ACT_UNLOCK, ACT_DEL};
    struct move move = {.key = scenario_below(scenario, MODEL_KEYS),
                        .token = actor->owner * 2 + (int)scenario_below(scenario, 2)};
    enum model_type type = scenario->model.keys[move.key].type;

    if (type == MODEL_STRING) {
        move.act = of_strings[scenario_below(scenario, sizeof of_strings / sizeof of_strings[0])];
        send_move(scenario, actor, move);
        if (move.act == ACT_SETNX && scenario_chance(scenario, 2)) {
            move.act = scenario_chance(scenario, 3) ? ACT_RELEASE : ACT_EXPIRE;
            send_move(scenario, actor, move);
        }
    } else if (type == MODEL_HASH) {
        move.act = of_hashes[scenario_below(scenario, sizeof of_hashes / sizeof of_hashes[0])];
        send_move(scenario, actor, move);
    } else if (scenario_chance(scenario, 2)) {
        move.act = ACT_ZREM;
        send_move(scenario, actor, move);
    } else {
        move.act = ACT_SWEEP;
        move.score = wall_s(scenario) - (double)LEASE_MS / 1000;
        send_move(scenario, actor, move);
        move.act = ACT_ZADD;
        move.score = wall_s(scenario);
        send_move(scenario, actor, move);
    }
}

/* ---- execution ---- */

static int execute(struct model *model, const struct move *move)
{
    switch (move->act) {
    case ACT_SET_NX:
    case ACT_EXEC_TAKE:
        return model_take_string(model, move->key, move->token, LEASE_MS);
    case ACT_SETNX:
        return model_take_string(model, move->key, move->token, 0);
    case ACT_EXPIRE:
        return model_expire(model, move->key, LEASE_MS);
    case ACT_EXTEND:
        return model_extend_string(model, move->key, move->token, LEASE_MS);
    case ACT_RELEASE:
        return model_release_string(model, move->key, move->token);
    case ACT_DEL:
    case ACT_EXEC_DEL:
        return model_delete(model, move->key);
    case ACT_LOCK:
        return model_take_hash(model, move->key, move->token, LEASE_MS);
    case ACT_UNLOCK:
        return model_release_hash(model, move->key, move->token, LEASE_MS);
    case ACT_SWEEP:
        model_sweep_up(model, move->key, move->score);
        return 1;
    case ACT_ZADD:
        return model_add_permit(model, move->key, move->token, move->score);
    case ACT_ZREM:
        return model_remove_permit(model, move->key, move->token);
    }
    return 0;
}

bool scenario_execute_next(struct scenario *scenario, struct actor *actor)
{
    for (size_t i = 0; i < actor->count; i++) {
        struct move *move = &actor->moves[i];
        if (!move->executed) {
            move->answer = execute(&scenario->model, move);
            move->executed = true;
            scenario->unheard[move->key] &=
                scenario->model.keys[move->key].exists && !(move->answer == 1 && takes(move->act));
            scenario_trace(scenario, "c%llu executes #%llu: %d", (unsigned long long)actor->client->view.id,
                           (unsigned long long)move->sequence, move->answer);
            return true;
        }
    }
    return false;
}

/* ---- replies ---- */

static const char *head_of(const struct move *move)
{
    switch (move->act) {
    case ACT_SET_NX:
        return names_twice(move) ? move->answer == 1 ? ":2\r\n" : ":0\r\n" : move->answer == 1 ? "+OK\r\n" : "$-1\r\n";
    case ACT_LOCK:
        return move->answer == 1 ? "$-1\r\n" : ":1234\r\n";
    case ACT_EXEC_TAKE:
        return move->answer == 1 ? "*1\r\n+OK\r\n" : "*1\r\n$-1\r\n";
    case ACT_EXEC_DEL:
        return move->answer == 1 ? "*1\r\n:1\r\n" : "*1\r\n:0\r\n";
    default:
        return move->answer == 1 ? ":1\r\n" : move->answer == 0 ? ":0\r\n" : "$-1\r\n";
    }
}

static struct move take_first(struct actor *actor)
{
    struct move first = actor->moves[0];

    actor->count--;
    memmove(actor->moves, actor->moves + 1, actor->count * sizeof first);
    return first;
}

/* A release that is answered and was none: the owner has it still, and Redis is asked. */
static bool goes_on(const struct scenario *scenario, const struct claim *claim, size_t key, int token)
{
    const struct model_key *lock = &scenario->model.keys[key];
    /* It may be held anew since, and that answer be lost; or have been given up in an outage. */
    bool is_known =
        claim->is_known && claim->known_us >= lock->taken_us[token] && claim->known_us >= scenario->outage_us;

    return lock->type != MODEL_ZSET && claim->releases_sent == 0 && is_known && !claim->is_given_up &&
           model_holds(&scenario->model, key, token) && scenario->owners[scenario_owner_of(token)].connections > 0 &&
           scenario->host->now_us > scenario->outage_us;
}

static void note_released(struct scenario *scenario, const struct move *move, uint64_t client, bool answered)
{
    for (int token = 0; token < MODEL_TOKENS; token++) {
        struct claim *claim = &scenario->claims[move->key][token];
        if (!forces(move->act) && token != move->token) {
            continue;
        }
        claim->releases_sent -= move->passed;
        claim->is_given_up = claim->is_given_up || !answered;
        bool is_yes = answered && move->passed && move->answer == 1;
        /* What several connections have under way at the same time is executed in any order. */
        if (is_yes && (move->sequence > claim->answered || client == claim->taker)) {
            claim->is_known = false;
            claim->released = move->sequence > claim->released ? move->sequence : claim->released;
        }
        claim->is_held = claim->is_held || goes_on(scenario, claim, move->key, token);
    }
}

static void note_granted(struct scenario *scenario, const struct move *move, uint64_t client)
{
    struct claim *claim = &scenario->claims[move->key][move->token];
    bool tells = move->act != ACT_EXPIRE && move->act != ACT_SWEEP;

    if (!tells || (move->answer != 1 && move->act != ACT_ZADD)) {
        return;
    }
    /* Not of permits: one that is added again by what was to refresh it counts as lost. */
    if (move->sequence > claim->released) {
        claim->is_known = true;
        claim->known_us = scenario->host->now_us;
        claim->is_given_up = false;
        claim->answered = ++scenario->sequence;
        claim->taker = client;
    }
    bool was_released = claim->releases_sent > 0 || move->sequence <= claim->released;
    /* What is taken again as it runs out may as well have been taken once more just before: that does not count anew.
     */
    bool is_new = scenario->host->now_us > claim->over_us + 4 * PATIENCE_US;
    bool is_watched = scenario->owners[scenario_owner_of(move->token)].connections > 0 &&
                      scenario->host->now_us > scenario->outage_us;
    /* One that was sent before, unseen as there was nothing to release, may have been executed behind it. */
    bool is_there = model_holds(&scenario->model, move->key, move->token);
    claim->is_held = claim->is_held || (takes(move->act) && !was_released && is_there && is_new && is_watched);
}

/* The next reply, if Redis has it. */
bool scenario_deliver_next(struct scenario *scenario, struct actor *actor)
{
    if (actor->count == 0 || !actor->moves[0].executed) {
        return false;
    }
    struct move move = take_first(actor);
    scenario_trace(scenario, "c%llu hears #%llu: %d", (unsigned long long)actor->client->view.id,
                   (unsigned long long)move.sequence, move.answer);
    if (releases(move.act)) {
        note_released(scenario, &move, actor->client->view.id, true);
        scenario->releases += move.answer == 1;
    } else {
        note_granted(scenario, &move, actor->client->view.id);
    }
    if (move.passed) {
        fake_hear(actor->client, head_of(&move));
    }
    return true;
}

void scenario_end_moves(struct scenario *scenario, struct actor *actor)
{
    while (actor->count > 0) {
        struct move move = take_first(actor);
        if (releases(move.act)) {
            note_released(scenario, &move, actor->client->view.id, false);
        }
        scenario->unheard[move.key] |= move.act == ACT_SETNX && move.executed && move.answer == 1;
    }
}
