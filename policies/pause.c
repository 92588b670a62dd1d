/*
 * PAUSE and RESUME on the admin port: clients are held, not refused, so that Redis can be restarted, moved or looked at
 * in peace. What is under way goes on. Without PAUSE no command is wanted, so that nobody pays for it.
 *
 * Verbs are put to one worker's instance. It notes down what is to be in an object that all instances share; each finds
 * that at its next tick, follows it, and says so. Then the verb is answered: from OK on, no worker sends what is held.
 *
 * While one process takes over from another they tell each other what was ordered, with the time of the order, as both
 * may be asked: the last order counts.
 */
#include "base/percent.h"
#include "policy/policy.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

/* As many ms as PAUSE can be told. */
#define PAUSE_MS_MAX ((int64_t)86400000)
/* For so long at most a request is held before it is asked about again. */
#define HOLD_US ((int64_t)3600000000)
/* Questions that wait for all workers. */
#define QUESTIONS_MAX 8

enum pause_scope { PAUSE_NONE, PAUSE_WRITES, PAUSE_ALL };

/* Written by the one instance that is asked; read by all. */
struct pause_shared {
    _Atomic int scope;           /* enum pause_scope */
    _Atomic int64_t until_us;    /* INT64_MAX: until RESUME */
    _Atomic uint32_t generation; /* of the two above: another one with each change, and written behind them */
    int64_t ordered_us;          /* when the last order was given, here or in another process; 0: there was none */
    int64_t untold_us;           /* that of one that other processes do not know of; 0: they know */
    size_t threads;
    _Atomic uint32_t acknowledged[]; /* by the number of a worker: the generation that it follows */
};

/* A request that is on hold; its ticket. */
struct held {
    LIST_ENTRY(held) of_pause;
    void *holder;
};

struct pause {
    const struct policy_host *host;
    struct pause_shared *shared;
    _Atomic uint64_t *counters;
    enum pause_scope scope; /* that this worker follows */
    int64_t until_us;
    uint32_t generation;
    bool is_draining; /* the process ends: nobody is held any more */
    bool is_changed;  /* since the last tick: who is held is asked about again at the next one */
    LIST_HEAD(, held) held;
    size_t held_count;
    struct admin_query *questions[QUESTIONS_MAX]; /* that are answered when all workers have followed */
    size_t question_count;
};

enum pause_counter { PAUSE_ACTIVE, PAUSE_HELD, PAUSE_HELD_TOTAL };

static const struct policy_counter pause_counters[] = {
    [PAUSE_ACTIVE] = {"pause_active", STATS_GAUGE, "1 while clients are held by PAUSE"},
    [PAUSE_HELD] = {"pause_held", STATS_GAUGE, "clients whose next request is held by PAUSE now"},
    [PAUSE_HELD_TOTAL] = {"pause_held_total", STATS_COUNTER, "requests that were held by PAUSE"},
};

/* ---- what is held ---- */

static bool is_script(const struct command *command)
{
    size_t length = strlen(command->name);

    return command->kind == COMMAND_EVAL && strcmp(command->name + length - 3, "_ro") != 0;
}

/* Scripts may write, EXEC may have writes in it, and what is not known may do anything. Redis' CLIENT PAUSE … WRITE
 * holds PUBLISH, SPUBLISH and PFCOUNT, too, as replicas hear of them. */
static bool may_write(const struct command *command)
{
    static const char *const others[] = {"publish", "spublish", "pfcount"};
    bool is_one = command == NULL || is_script(command) || command->kind == COMMAND_EXEC ||
                  (command->categories & CATEGORY_WRITE) != 0;

    for (size_t i = 0; !is_one && i < sizeof others / sizeof others[0]; i++) {
        is_one = strcmp(command->name, others[i]) == 0;
    }
    return is_one;
}

static bool pause_wants(void *instance, const struct command *command)
{
    const struct pause *pause = instance;

    return pause->scope == PAUSE_ALL || (pause->scope == PAUSE_WRITES && may_write(command));
}

/* All that it wants. */
static bool pause_concerns(void *instance, const struct policy_glance *glance)
{
    (void)instance;
    (void)glance;
    return true;
}

/* What Redis only queues is let through: it is EXEC that waits. */
static bool is_only_queued(const struct policy_request *request)
{
    return request->in_transaction && (request->command == NULL || request->command->kind != COMMAND_EXEC);
}

/* Forgets that it was held; nothing for a request that was not. */
static void let_go(struct pause *pause, uint64_t *ticket)
{
    struct held *held = (struct held *)(uintptr_t)*ticket;

    if (held != NULL) {
        LIST_REMOVE(held, of_pause);
        pause->held_count--;
        free(held);
        *ticket = 0;
    }
}

static enum policy_verdict hold(struct pause *pause, const struct policy_request *request,
                                struct policy_decision *decision)
{
    struct held *held = (struct held *)(uintptr_t)*request->ticket;

    if (held == NULL) {
        held = malloc(sizeof *held);
        if (held == NULL) {
            decision->length = (size_t)snprintf(decision->text, sizeof decision->text,
                                                "-ERR out of memory while clients are held\r\n");
            return POLICY_REPLY;
        }
        held->holder = request->holder;
        LIST_INSERT_HEAD(&pause->held, held, of_pause);
        pause->held_count++;
        *request->ticket = (uint64_t)(uintptr_t)held;
        policy_count(&pause->counters[PAUSE_HELD_TOTAL], 1);
    }
    decision->hold_until_us = request->now_us + HOLD_US < pause->until_us ? request->now_us + HOLD_US : pause->until_us;
    decision->drops_who_leaves = true;
    return POLICY_HOLD;
}

static enum policy_verdict pause_request(void *instance, const struct policy_request *request,
                                         struct policy_decision *decision)
{
    struct pause *pause = instance;
    bool is_held = pause_wants(pause, request->command) && request->now_us < pause->until_us;

    if (is_held && !is_only_queued(request)) {
        return hold(pause, request, decision);
    }
    let_go(pause, request->ticket);
    return POLICY_ADMIT;
}

/* Of a request that was held, and whose client has gone. */
static void pause_reply(void *instance, const struct policy_reply *reply)
{
    uint64_t ticket = reply->ticket;

    let_go(instance, &ticket);
}

/* ---- following ---- */

static void set_scope(struct pause *pause, enum pause_scope scope, int64_t until_us)
{
    enum pause_scope before = pause->scope;

    pause->scope = pause->is_draining ? PAUSE_NONE : scope;
    pause->until_us = until_us;
    if (pause->scope != before) {
        pause->host->reconsider(pause->host->context);
    }
    pause->is_changed = true;
}

static void follow(struct pause *pause)
{
    uint32_t generation = atomic_load_explicit(&pause->shared->generation, memory_order_acquire);

    if (generation != pause->generation) {
        pause->generation = generation;
        set_scope(pause, (enum pause_scope)atomic_load(&pause->shared->scope), atomic_load(&pause->shared->until_us));
        atomic_store(&pause->shared->acknowledged[pause->host->worker], generation);
    }
}

static bool all_have_followed(const struct pause *pause)
{
    bool all = true;

    for (size_t i = 0; i < pause->shared->threads; i++) {
        all = all && atomic_load(&pause->shared->acknowledged[i]) == pause->generation;
    }
    return all;
}

static void answer_questions(struct pause *pause)
{
    if (pause->question_count == 0 || !all_have_followed(pause)) {
        return;
    }
    for (size_t i = 0; i < pause->question_count; i++) {
        pause->host->answer(pause->host->context, pause->questions[i], POLICY_ANSWER_OK, (struct slice){0});
    }
    pause->question_count = 0;
}

static void pause_tick(void *instance, int64_t now_us)
{
    struct pause *pause = instance;
    struct held *held;

    /* A tick behind the order: a connection of which Redis has let go before it has been read from by then. */
    LIST_FOREACH(held, &pause->held, of_pause)
    {
        if (pause->is_changed) {
            pause->host->resume(pause->host->context, held->holder);
        }
    }
    pause->is_changed = false;
    follow(pause);
    if (pause->scope != PAUSE_NONE && now_us >= pause->until_us) {
        if (pause->host->worker == 0) {
            pause->host->inform(pause->host->context, "PAUSE", "its time is over: clients go on");
        }
        set_scope(pause, PAUSE_NONE, pause->until_us);
    }
    answer_questions(pause);
}

/* Who is held could not end otherwise. */
static bool pause_drain(void *instance, size_t clients)
{
    struct pause *pause = instance;

    (void)clients;
    if (!pause->is_draining) {
        pause->is_draining = true;
        set_scope(pause, PAUSE_NONE, pause->until_us);
    }
    return true;
}

/* ---- verbs ---- */

static void answer_error(struct pause *pause, struct admin_query *admin_query, const char *text)
{
    pause->host->answer(pause->host->context, admin_query, POLICY_ANSWER_ERROR, (struct slice){text, strlen(text)});
}

/* Has all workers follow. at_us: when it was ordered. */
static void order(struct pause *pause, enum pause_scope scope, int64_t until_us, int64_t at_us)
{
    pause->shared->ordered_us = at_us;
    atomic_store(&pause->shared->scope, scope);
    atomic_store(&pause->shared->until_us, until_us);
    atomic_store_explicit(&pause->shared->generation, pause->generation + 1, memory_order_release);
    follow(pause);
}

/* The same, by a verb of this process, which is answered when they have. */
static void order_and_tell(struct pause *pause, struct admin_query *admin_query, enum pause_scope scope,
                           int64_t until_us, int64_t at_us)
{
    if (pause->question_count == QUESTIONS_MAX) {
        answer_error(pause, admin_query, "too many at once; try again");
        return;
    }
    pause->questions[pause->question_count++] = admin_query;
    pause->shared->untold_us = at_us;
    order(pause, scope, until_us, at_us);
    answer_questions(pause);
}

/* PAUSE [WRITE] [ms], in either order. False: it is none. */
static bool read_pause(size_t count, const struct slice *arguments, enum pause_scope *scope, int64_t *ms)
{
    bool has_scope = false, has_ms = false, is_sound = true;

    *scope = PAUSE_ALL;
    *ms = 0;
    for (size_t i = 1; i < count && is_sound; i++) {
        if (!has_scope && (word_is(arguments[i], "write") || word_is(arguments[i], "all"))) {
            has_scope = true;
            *scope = word_is(arguments[i], "write") ? PAUSE_WRITES : PAUSE_ALL;
        } else {
            is_sound = !has_ms && word_integer(arguments[i], ms) && *ms > 0 && *ms <= PAUSE_MS_MAX;
            has_ms = true;
        }
    }
    return is_sound;
}

static void ask_pause(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    struct pause *pause = instance;
    enum pause_scope scope;
    int64_t ms;

    if (!read_pause(count, arguments, &scope, &ms)) {
        answer_error(pause, admin_query, "usage: PAUSE [WRITE] [ms], with 1 to 86400000 ms");
        return;
    }
    int64_t now_us = pause->host->now_us(pause->host->context);
    order_and_tell(pause, admin_query, scope, ms > 0 ? now_us + ms * 1000 : INT64_MAX, now_us);
}

static void ask_resume(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    struct pause *pause = instance;
    int64_t now_us = pause->host->now_us(pause->host->context);

    (void)count;
    (void)arguments;
    order_and_tell(pause, admin_query, PAUSE_NONE, INT64_MAX, now_us);
}

static const struct policy_verb pause_verbs[] = {
    {.name = "PAUSE",
     .least = 1,
     .most = 3,
     .usage = "PAUSE [WRITE] [ms]",
     .example = "PAUSE WRITE 5000",
     .help = "holds clients' requests, or those that may write, for so long or until RESUME",
     .effect = POLICY_VERB_CHANGES,
     .ask = ask_pause},
    {.name = "RESUME",
     .least = 1,
     .most = 1,
     .usage = "RESUME",
     .example = "RESUME",
     .help = "ends PAUSE: what was held goes on",
     .effect = POLICY_VERB_CHANGES,
     .ask = ask_resume},
};

/* ---- another process ---- */

/* "pause SCOPE UNTIL ORDERED", in µs of the clock that both have. One that begins is told what is in force. */
static enum policy_answer tell_twin(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    const struct pause *pause = instance;
    struct pause_shared *shared = pause->shared;
    bool is_all = slice_is(arguments[1], "ALL");
    /* One whose time is over is still noted down; one that a drain does not follow is in force. */
    bool is_active = atomic_load(&shared->scope) != PAUSE_NONE &&
                     pause->host->now_us(pause->host->context) < atomic_load(&shared->until_us);

    (void)count;
    fputs("0\n", answer);
    if (is_all ? is_active : shared->untold_us != 0) {
        fprintf(answer, "pause %d %" PRId64 " %" PRId64 "\n", atomic_load(&shared->scope),
                atomic_load(&shared->until_us), shared->ordered_us);
    }
    shared->untold_us = is_all ? shared->untold_us : 0;
    return POLICY_ANSWER_TEXT;
}

/* Answered when all workers follow; at once if many wait for that already, as an order must not be lost. */
static void hear_twin(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    struct pause *pause = instance;
    struct slice line = arguments[1], word;
    int64_t scope, until_us, ordered_us;

    (void)count;
    bool is_news = percent_take_word(&line, &word) && slice_is(word, "pause") && percent_take_number(&line, &scope) &&
                   scope <= PAUSE_ALL && percent_take_number(&line, &until_us) &&
                   percent_take_number(&line, &ordered_us) && ordered_us > pause->shared->ordered_us;
    if (is_news) {
        order(pause, (enum pause_scope)scope, until_us, ordered_us);
    }
    if (is_news && pause->question_count < QUESTIONS_MAX) {
        pause->questions[pause->question_count++] = admin_query;
        answer_questions(pause);
    } else {
        pause->host->answer(pause->host->context, admin_query, POLICY_ANSWER_OK, (struct slice){0});
    }
}

static const struct policy_twin pause_twin = {
    .tell = {.name = "TELL", .least = 3, .most = 3, .run = tell_twin},
    .hear = {.name = "HEAR", .least = 2, .most = 2, .ask = hear_twin},
};

/* ---- life ---- */

static void *pause_share(size_t threads)
{
    struct pause_shared *shared = calloc(1, sizeof *shared + threads * sizeof shared->acknowledged[0]);

    if (shared != NULL) {
        shared->until_us = INT64_MAX;
        shared->threads = threads;
    }
    return shared;
}

static void *pause_start(const struct policy_start *start)
{
    struct pause *pause = calloc(1, sizeof *pause);

    if (pause != NULL) {
        pause->host = start->host;
        pause->shared = start->shared;
        pause->counters = start->counters;
        pause->until_us = INT64_MAX;
    }
    return pause;
}

static void pause_stop(void *instance)
{
    struct pause *pause = instance;

    while (!LIST_EMPTY(&pause->held)) {
        struct held *held = LIST_FIRST(&pause->held);
        LIST_REMOVE(held, of_pause);
        free(held);
    }
    free(pause);
}

/* It is for the process, not for a worker, that it is active. */
static void pause_stats(void *instance)
{
    struct pause *pause = instance;
    bool is_active = pause->host->worker == 0 && pause->scope != PAUSE_NONE;

    atomic_store_explicit(&pause->counters[PAUSE_ACTIVE], is_active ? 1 : 0, memory_order_relaxed);
    atomic_store_explicit(&pause->counters[PAUSE_HELD], pause->held_count, memory_order_relaxed);
}

static const struct policy_gate pause_gate = {
    .ignores_clients = true,
    .is_asked_again = true,
    .wants = pause_wants,
    .on_request = pause_request,
    .on_reply = pause_reply,
    .concerns = pause_concerns,
};

const struct policy pause_policy = {
    .name = "pause",
    .gate = &pause_gate,
    .counter_section = "Pause",
    .counters = pause_counters,
    .counter_count = sizeof pause_counters / sizeof pause_counters[0],
    .verbs = pause_verbs,
    .verb_count = sizeof pause_verbs / sizeof pause_verbs[0],
    .share = pause_share,
    .unshare = free,
    .start = pause_start,
    .stop = pause_stop,
    .on_tick = pause_tick,
    .on_drain = pause_drain,
    .on_stats = pause_stats,
    .twin = &pause_twin,
};
