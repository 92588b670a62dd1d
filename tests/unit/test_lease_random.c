/*
 * The lease policy against a model of Redis, under what clients do at random: they take, extend and release locks of
 * three kinds, in pipelines and transactions, over two workers; tokens are shared by the connections of an owner, and
 * used for many locks. Requests are executed, and replies and answers come, in any order that connections allow;
 * connections break, clients go, and scripts fail for a while. The same seed always plays the same.
 *
 * What must hold whatever happens is in the functions whose names begin with must_.
 */
#include "lease_model.h"
#include "lease_stage.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Plays of 200 s each. */
#define SEEDS 60
#define OWNERS 3
#define CLIENTS_MAX 8
#define PIPELINE_MAX 6
#define STEP_MS INT64_C(20)
/* Redis executes requests and scripts within this time, and replies within it again. */
#define PATIENCE_US (INT64_C(100) * MS)
#define LEASE_MS INT64_C(3000)
#define MAX_HOLD_MS INT64_C(15000)
#define GRACE_MS INT64_C(1000)
#define SLACK_US (INT64_C(1000) * MS)
#define RULES "[lease:all]\nkeys = *\nttl = 3s\nmax_hold = 15s\ngrace = 1s\n"

#define RELEASE "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 %s %s"
#define EXTEND "EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 %s %s 3000"
#define LOCK "EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 %s 3000 %s"
#define UNLOCK "EVALSHA 3ffe249c16dee540ac8ab32e39bd408626b9aff7 2 %s c 0 3000 %s"

enum act {
    ACT_SET_NX,
    ACT_SETNX,
    ACT_EXPIRE,
    ACT_EXTEND,
    ACT_RELEASE,
    ACT_DEL,
    ACT_EXEC_TAKE,
    ACT_EXEC_DEL,
    ACT_LOCK,
    ACT_UNLOCK,
    ACT_SWEEP,
    ACT_ZADD,
    ACT_ZREM
};

/* A request that a client has sent. */
struct move {
    enum act act;
    size_t key;
    int token;
    double score;
    uint64_t sequence;
    int64_t sent_us;
    bool passed;   /* the policy waits for its reply */
    bool executed; /* … and the reply is: */
    int answer;    /* 1 yes, 0 no, -1 not the owner */
};

struct actor {
    struct stage_client *client;
    int owner;
    struct move moves[PIPELINE_MAX]; /* the oldest first */
    size_t count;
    int64_t swept_us; /* what its last sweep took for now */
};

/* What is known of a token and a key. */
struct claim {
    bool is_held;           /* a reply said so, nobody has sent a release since, and the owner was there all the time */
    bool is_known;          /* Redis has said that it is held, and not that it was released */
    bool is_given_up;       /* the answer to a release was lost */
    uint64_t answered;      /* when its owner was told so, */
    uint64_t taker;         /* the client that was */
    uint64_t released;      /* the last release that came about behind that */
    unsigned releases_sent; /* and not answered */
    int64_t over_us;        /* when it ran out last */
};

struct owner {
    size_t connections;
    int64_t gone_us;
};

struct play {
    uint32_t seed;
    uint32_t random;
    bool traced;
    struct stage *stage;
    struct model model;
    uint32_t calm; /* the greater, the less happens */
    struct actor actors[CLIENTS_MAX];
    struct owner owners[OWNERS];
    struct claim claims[MODEL_KEYS][MODEL_TOKENS];
    uint64_t sequence;
    int64_t outage_us; /* scripts fail until then */
    size_t calls_in_step;
    size_t renewals;
    size_t releases;
};

/* What happens, for who looks into a seed: LEASE_SEED=17 LEASE_TRACE=1 test_lease_random. */
__attribute__((format(printf, 2, 3))) static void trace(const struct play *play, const char *format, ...)
{
    va_list arguments;

    if (play->traced) {
        fprintf(stderr, "%lld ", (long long)(play->stage->now_us - STAGE_FIRST_US) / MS);
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        fputc('\n', stderr);
    }
}

static uint32_t below(struct play *play, uint32_t limit)
{
    return next_random(&play->random) % limit;
}

static bool chance(struct play *play, uint32_t of)
{
    return below(play, of) == 0;
}

static int owner_of(int token)
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

/* Called for each script that the policy sends. */
static void must_not_rival_a_release(void *context, const struct stage_call *call)
{
    struct play *play = context;
    size_t key = model_key_of(call->arguments[0]);
    int token = model_token_of(call->arguments[call->key_count]);
    const struct claim *claim = &play->claims[key][token];

    play->calls_in_step++;
    trace(play, "w%zu script %s %s %s %s %s", call->worker, call->script, call->arguments[0], call->arguments[1],
          call->argument_count > 2 ? call->arguments[2] : "", call->argument_count > 3 ? call->arguments[3] : "");
    play->renewals += is_renewal(call);
    cr_assert_eq(claim->releases_sent, 0u, "seed %u: %s %s for %s while it is being released", play->seed, call->script,
                 model_key_name(key), model_token_name(token));
    /* Checks and healing prove the ownership, and prolong nothing. */
    cr_assert(!is_renewal(call) || claim->is_known, "seed %u: %s %s for %s after it was released", play->seed,
              call->script, model_key_name(key), model_token_name(token));
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
            const struct owner *owner = &play->owners[owner_of(token)];
            bool is_its = key->type == MODEL_STRING ? key->token == token : key->holds[token] > 0;
            int64_t most_us = (LEASE_MS + GRACE_MS) * MS + 2 * SLACK_US;
            bool is_late = owner->connections == 0 && play->stage->now_us > owner->gone_us + most_us;
            cr_assert(!(is_its && is_late && play->stage->now_us > play->outage_us + most_us),
                      "seed %u: %s is there, and its owner %d gone since %lld ms", play->seed, model_key_name(i),
                      owner_of(token), (long long)((play->stage->now_us - owner->gone_us) / MS));
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
        snprintf(text, size, formats[move->act], key, model_token_name(move->token));
    }
}

static void note_sent(struct play *play, const struct move *move)
{
    for (int token = 0; token < MODEL_TOKENS; token++) {
        struct claim *claim = &play->claims[move->key][token];
        if (releases(move->act) && (forces(move->act) || token == move->token)) {
            claim->is_held = false;
            /* One that was forwarded when nothing was known of such a lock is not waited for. */
            claim->releases_sent += move->passed;
        }
    }
}

static void send_move(struct play *play, struct actor *actor, struct move move)
{
    struct stage_client *client = actor->client;
    bool queued = move.act == ACT_EXEC_TAKE || move.act == ACT_EXEC_DEL;
    size_t before = client->request_count;
    char text[200];

    if (actor->count == PIPELINE_MAX) {
        return;
    }
    move.sequence = ++play->sequence;
    move.sent_us = play->stage->now_us;
    text_of(&move, text, sizeof text);
    if (queued) {
        stage_send(client, "MULTI");
    }
    stage_send(client, text);
    if (queued) {
        stage_send(client, "EXEC");
    }
    move.passed = client->request_count > before;
    actor->moves[actor->count++] = move;
    note_sent(play, &move);
    trace(play, "c%llu w%zu sends #%llu %s%s", (unsigned long long)client->view.id, client->worker,
          (unsigned long long)move.sequence, text, move.passed ? "" : " (not passed)");
}

static double wall_s(const struct play *play)
{
    return (double)(play->stage->wall_us + play->stage->now_us) / 1e6;
}

static void send_something(struct play *play, struct actor *actor)
{
    static const enum act of_strings[] = {ACT_SET_NX,  ACT_SET_NX,  ACT_SETNX, ACT_EXTEND,    ACT_RELEASE,
                                          ACT_RELEASE, ACT_RELEASE, ACT_DEL,   ACT_EXEC_TAKE, ACT_EXEC_DEL};
    static const enum act of_hashes[] = {ACT_LOCK, ACT_LOCK, ACT_UNLOCK, ACT_UNLOCK, ACT_UNLOCK, ACT_DEL};
    struct move move = {.key = below(play, MODEL_KEYS), .token = actor->owner * 2 + (int)below(play, 2)};
    enum model_type type = play->model.keys[move.key].type;

    if (type == MODEL_STRING) {
        move.act = of_strings[below(play, sizeof of_strings / sizeof of_strings[0])];
        send_move(play, actor, move);
        if (move.act == ACT_SETNX && chance(play, 2)) {
            move.act = chance(play, 3) ? ACT_RELEASE : ACT_EXPIRE;
            send_move(play, actor, move);
        }
    } else if (type == MODEL_HASH) {
        move.act = of_hashes[below(play, sizeof of_hashes / sizeof of_hashes[0])];
        send_move(play, actor, move);
    } else if (chance(play, 2)) {
        move.act = ACT_ZREM;
        send_move(play, actor, move);
    } else {
        move.act = ACT_SWEEP;
        move.score = wall_s(play) - (double)LEASE_MS / 1000;
        send_move(play, actor, move);
        move.act = ACT_ZADD;
        move.score = wall_s(play);
        send_move(play, actor, move);
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

static bool execute_next(struct play *play, struct actor *actor)
{
    for (size_t i = 0; i < actor->count; i++) {
        struct move *move = &actor->moves[i];
        if (!move->executed) {
            move->answer = execute(&play->model, move);
            move->executed = true;
            trace(play, "c%llu executes #%llu: %d", (unsigned long long)actor->client->view.id,
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
        return move->answer == 1 ? "+OK\r\n" : "$-1\r\n";
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
static bool goes_on(const struct play *play, const struct claim *claim, size_t key, int token)
{
    return play->model.keys[key].type != MODEL_ZSET && claim->releases_sent == 0 && claim->is_known &&
           !claim->is_given_up && model_holds(&play->model, key, token) &&
           play->owners[owner_of(token)].connections > 0 && play->stage->now_us > play->outage_us;
}

static void note_released(struct play *play, const struct move *move, uint64_t client, bool answered)
{
    for (int token = 0; token < MODEL_TOKENS; token++) {
        struct claim *claim = &play->claims[move->key][token];
        if (!forces(move->act) && token != move->token) {
            continue;
        }
        claim->releases_sent -= move->passed;
        claim->is_given_up = claim->is_given_up || !answered;
        /* What EXEC says is not looked into. */
        bool is_yes = answered && move->passed && move->answer == 1 && move->act != ACT_EXEC_DEL;
        /* What several connections have under way at the same time is executed in any order. */
        if (is_yes && (move->sequence > claim->answered || client == claim->taker)) {
            claim->is_known = false;
            claim->released = move->sequence > claim->released ? move->sequence : claim->released;
        }
        claim->is_held = claim->is_held || goes_on(play, claim, move->key, token);
    }
}

static void note_granted(struct play *play, const struct move *move, uint64_t client)
{
    struct claim *claim = &play->claims[move->key][move->token];
    bool tells = move->act != ACT_EXPIRE && move->act != ACT_SWEEP && move->act != ACT_EXEC_TAKE;

    if (!tells || (move->answer != 1 && move->act != ACT_ZADD)) {
        return;
    }
    /* Not of permits: one that is added again by what was to refresh it counts as lost. */
    bool takes = move->act == ACT_SET_NX || move->act == ACT_SETNX || move->act == ACT_LOCK;
    if (move->sequence > claim->released) {
        claim->is_known = true;
        claim->is_given_up = false;
        claim->answered = ++play->sequence;
        claim->taker = client;
    }
    bool was_released = claim->releases_sent > 0 || move->sequence <= claim->released;
    /* What is taken again as it runs out may as well have been taken once more just before: that does not count anew.
     */
    bool is_new = play->stage->now_us > claim->over_us + 4 * PATIENCE_US;
    bool is_watched = play->owners[owner_of(move->token)].connections > 0 && play->stage->now_us > play->outage_us;
    claim->is_held = claim->is_held || (takes && !was_released && is_new && is_watched);
}

/* The next reply, if Redis has it. */
static bool deliver_next(struct play *play, struct actor *actor)
{
    if (actor->count == 0 || !actor->moves[0].executed) {
        return false;
    }
    struct move move = take_first(actor);
    trace(play, "c%llu hears #%llu: %d", (unsigned long long)actor->client->view.id, (unsigned long long)move.sequence,
          move.answer);
    if (releases(move.act)) {
        note_released(play, &move, actor->client->view.id, true);
        play->releases += move.answer == 1;
    } else {
        note_granted(play, &move, actor->client->view.id);
    }
    if (move.passed) {
        stage_hear(actor->client, head_of(&move));
    }
    return true;
}

/* ---- connections ---- */

static void join(struct play *play, struct actor *actor)
{
    char name[16];

    actor->owner = (int)below(play, OWNERS);
    snprintf(name, sizeof name, "app%d", actor->owner);
    actor->client = stage_join(play->stage, below(play, 2), "10.0.0.1", name);
    play->owners[actor->owner].connections++;
}

static void forget_claims(struct play *play, int owner)
{
    for (size_t key = 0; key < MODEL_KEYS; key++) {
        for (int token = 0; token < MODEL_TOKENS; token++) {
            if (owner_of(token) == owner || owner < 0) {
                play->claims[key][token].is_held = false;
            }
        }
    }
}

static void end_moves(struct play *play, struct actor *actor)
{
    while (actor->count > 0) {
        struct move move = take_first(actor);
        if (releases(move.act)) {
            note_released(play, &move, actor->client->view.id, false);
        }
    }
}

/* What it has sent is executed: its connections to Redis stay. */
static void leave(struct play *play, struct actor *actor)
{
    struct owner *owner = &play->owners[actor->owner];

    trace(play, "c%llu leaves", (unsigned long long)actor->client->view.id);
    while (execute_next(play, actor)) {
    }
    end_moves(play, actor);
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
    trace(play, "c%llu loses", (unsigned long long)actor->client->view.id);
    while (!chance(play, 2) && execute_next(play, actor)) {
    }
    end_moves(play, actor);
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
        if (chance(play, 2)) {
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
    }
    trace(play, "w%zu answer %s %s: %lld %lld", call->worker, call->arguments[0], call->arguments[1],
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
    struct actor *actor = &play->actors[below(play, CLIENTS_MAX)];

    if (actor->client == NULL) {
        if (chance(play, 20)) {
            join(play, actor);
        }
    } else if (chance(play, 200 * calm)) {
        leave(play, actor);
    } else if (chance(play, 200 * calm)) {
        lose(play, actor);
    } else if (chance(play, 10 * calm)) {
        send_something(play, actor);
    } else if (chance(play, 2)) {
        (void)execute_next(play, actor);
    } else {
        (void)deliver_next(play, actor);
    }
    if (play->stage->calls != NULL && chance(play, 3)) {
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
            (void)execute_next(play, actor);
            (void)deliver_next(play, actor);
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
        if (chance(play, 2000)) {
            play->outage_us = play->stage->now_us + below(play, 5000) * MS;
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
    play->stage->on_call = must_not_rival_a_release;
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
    stage_free(play->stage);
    free(play);
}

Test(lease_random, whatever_clients_do)
{
    const char *only = getenv("LEASE_SEED");
    uint32_t first = only != NULL ? (uint32_t)strtoul(only, NULL, 10) : 1;
    uint32_t last = only != NULL ? first : SEEDS;

    for (uint32_t seed = first; seed <= last; seed++) {
        play_one(seed);
    }
}
