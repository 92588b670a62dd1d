/*
 * Rules that are decided in Redis, for all sidecars together, by scripts on Redis' own clock.
 *
 * exact: each request is on hold until Redis has answered for it. While a call for a subject is under way, further
 * requests of the subject gather, and the next call asks for all of them together: Redis decides on each, in the order
 * in which they came, as if each had asked. leased: a call fetches permits, which are spent here until they expire.
 * Either way a refusal says for how long, and until then nothing is asked.
 *
 * Never more than the limit: Redis counts leased permits as spent at the end of their time (the scripts' hold), and
 * they are not spent later, as their time is counted from before the call.
 */
#include "limit_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A log has a member for each permit; larger limits have slots. */
#define LOG_LIMIT_MAX 128
/* A batch is at most this part of the limit, so that the other sidecars get something. */
#define BATCH_PART 8
#define BATCH_FIRST 16
/* The next batch is fetched when this part of the last is left. */
#define REFILL_PART 4
/* How soon a worker looks whether the permits that another one fetches have come. */
#define OTHERS_FETCH_US 1000
/* See age_bound(). */
#define RETURN_MARGIN_US 1000000

enum state_kind { STATE_LOG, STATE_SLOTS, STATE_FUNNEL };

static const char *const kind_names[] = {[STATE_LOG] = "log", [STATE_SLOTS] = "slots", [STATE_FUNNEL] = "funnel"};

/* ---- what is asked ---- */

static enum state_kind kind_of(const struct limit_rule *rule)
{
    if (rule->meter.algorithm == LIMIT_FUNNEL) {
        return STATE_FUNNEL;
    }
    bool few = rule->meter.most <= LOG_LIMIT_MAX && rule->cost == LIMIT_COST_ONE;
    return few && rule->accuracy == LIMIT_EXACT ? STATE_LOG : STATE_SLOTS;
}

/* Room for "hist:slots:", a rule, ":" and a subject. */
#define KEY_MAX (16 + CONF_RULE_NAME_MAX + LIMIT_SUBJECT_MAX)

/* The state of a subject in Redis. It is known without the rule, which may go while a call is under way. */
struct state {
    enum state_kind kind;
    int64_t window_us;
    struct conf_rate leak;
    size_t key_length;
    char key[KEY_MAX];
};

static struct state state_of(const struct limit_rule *rule, struct slice subject)
{
    struct state state = {.kind = kind_of(rule), .window_us = rule->meter.window.length_us, .leak = rule->leak};
    int length = snprintf(state.key, KEY_MAX, "hist:%s:%s:", kind_names[state.kind], rule->name);

    memcpy(state.key + length, subject.data, subject.length);
    state.key_length = (size_t)length + subject.length;
    return state;
}

/* A script under way. */
struct limit_call {
    struct limit_call *next, *previous;
    struct limit *limit;
    struct limit_rule *rule;       /* NULL once it was detached, and then so is the subject */
    struct limit_subject *subject; /* pinned */
    struct limit_place *places;    /* who waits for it, in the order in which they came … */
    struct limit_place **places_end;
    struct limit_call *successor; /* … and for those who came since it was sent; NULL: nobody did */
    struct state state;
    uint64_t number;
    int64_t least;
    int64_t wanted;
    int64_t spent; /* of what it will be granted: by requests that on_error admitted meanwhile */
    int64_t sent_us;
    uint64_t resets; /* of the subject, when it was sent */
    bool leased;
    bool asked_aside; /* by a rule that observes: its answer is counted */
};

#define NUMBER_MAX 24
#define ID_MAX 48

/* Arguments of a script, with room for their texts. */
struct arguments {
    size_t count;
    struct slice slices[POLICY_SCRIPT_ARGUMENTS_MAX];
    char numbers[POLICY_SCRIPT_ARGUMENTS_MAX][NUMBER_MAX];
    char id[ID_MAX];
};

static void add_slice(struct arguments *arguments, struct slice slice)
{
    arguments->slices[arguments->count++] = slice;
}

static void add_number(struct arguments *arguments, int64_t number)
{
    char *text = arguments->numbers[arguments->count];
    int length = snprintf(text, NUMBER_MAX, "%" PRId64, number);

    add_slice(arguments, (struct slice){text, (size_t)length});
}

/* A name for the permits of a call that no other call has. */
static void add_id(struct arguments *arguments, const struct limit *limit, uint64_t number)
{
    int length = snprintf(arguments->id, ID_MAX, "%016" PRIx64 "-%" PRIu64, limit->process_id, number);

    add_slice(arguments, (struct slice){arguments->id, (size_t)length});
}

static struct slice subject_name(const struct limit_subject *subject)
{
    return (struct slice){subject->name, subject->length};
}

static void run(struct limit *limit, const char *script, const struct arguments *arguments, policy_script_done *done,
                void *context)
{
    const struct policy_script call = {
        .script = script_find(script),
        .arguments = arguments->slices,
        .argument_count = arguments->count,
        .key_count = 1,
        .done = done,
        .context = context,
    };

    policy_count(&limit->counters[LIMIT_COUNTER_SCRIPT_CALLS], 1);
    limit->host->run_script(limit->host->context, &call);
}

/* ---- calls ---- */

static void call_add(struct limit *limit, struct limit_call *call)
{
    call->limit = limit;
    call->number = ++limit->call_count;
    call->next = limit->calls;
    if (call->next != NULL) {
        call->next->previous = call;
    }
    limit->calls = call;
}

/* Lets go of rule, subject and places. */
static void call_detach(struct limit_call *call)
{
    limit_locks locks = call->subject != NULL ? limit_subject_locks(call->subject) : 0;

    for (struct limit_place *place = call->places; place != NULL; place = place->next_in_call) {
        place->call = NULL;
        place->held->asked--;
    }
    call->places = NULL;
    call->places_end = &call->places;
    if (call->subject == NULL) {
        return;
    }
    limit_share_lock(call->limit->share, locks);
    if (call->subject->remote != NULL && call->subject->remote->fetch == call) {
        call->subject->remote->fetch = NULL;
    }
    limit_share_unlock(call->limit->share, locks);
    limit_subject_unpin(call->limit->share, call->subject);
    call->subject = NULL;
    call->rule = NULL;
}

static void call_free(struct limit_call *call)
{
    call_detach(call);
    if (call->previous != NULL) {
        call->previous->next = call->next;
    } else {
        call->limit->calls = call->next;
    }
    if (call->next != NULL) {
        call->next->previous = call->previous;
    }
    free(call);
}

void limit_global_detach(struct limit *limit)
{
    for (struct limit_call *call = limit->calls; call != NULL; call = call->next) {
        call_detach(call);
    }
}

/* ---- answers ---- */

static void returned(void *context, const struct policy_script_reply *reply)
{
    (void)context;
    (void)reply;
    /* What could not be given back is counted as spent: there is less than the limit, never more. */
}

/* Permits that a call was granted. */
struct grant {
    uint64_t call;
    int64_t asked_us; /* when the call was sent */
    int64_t first;    /* its number among the permits of the call, from 1 on */
    int64_t count;
};

/* How long the permits' asking may be ago when Redis gets them back; rather more than less, or others' would be taken
 * for them. */
static int64_t age_bound(const struct state *state, int64_t age_us)
{
    int64_t margin_us = state->window_us / 4;

    return age_us + (margin_us < RETURN_MARGIN_US ? margin_us : RETURN_MARGIN_US);
}

/* Of a funnel: what may have leaked out of it meanwhile is not given back, unless that is next to nothing: a hundredth
 * of a drop would cost a request its place. */
static int64_t funnel_age(const struct state *state, int64_t age_us)
{
    return (double)age_us * (double)state->leak.amount * 100 < (double)state->leak.period_us ? 0 : age_us;
}

static void give_back(struct limit *limit, const struct state *state, struct grant grant)
{
    int64_t age_us = limit->host->now_us(limit->host->context) - grant.asked_us;
    struct arguments arguments = {0};

    add_slice(&arguments, (struct slice){state->key, state->key_length});
    add_slice(&arguments, (struct slice){kind_names[state->kind], strlen(kind_names[state->kind])});
    add_number(&arguments, grant.count);
    switch (state->kind) {
    case STATE_LOG:
        add_id(&arguments, limit, grant.call);
        add_number(&arguments, grant.first);
        break;
    case STATE_SLOTS:
        add_number(&arguments, age_bound(state, age_us));
        add_number(&arguments, state->window_us);
        break;
    case STATE_FUNNEL:
        add_number(&arguments, funnel_age(state, age_us));
        add_number(&arguments, state->leak.amount);
        add_number(&arguments, state->leak.period_us);
        break;
    }
    run(limit, "limit_return", &arguments, returned, NULL);
}

/* What Redis said of the subject before is void: there is more now. */
static void forget_answers(struct limit *limit, struct limit_subject *subject)
{
    limit_locks locks = limit_subject_locks(subject);

    limit_share_lock(limit->share, locks);
    if (subject->remote != NULL) {
        subject->remote->resets++;
        subject->remote->refused_until_us = 0;
    }
    limit_share_unlock(limit->share, locks);
}

static void add_lot(struct limit_remote *remote, int64_t permits, int64_t until_us)
{
    struct limit_lot lot = {permits, until_us};

    if (remote->lots[0].permits == 0) {
        remote->lots[0] = lot;
    } else if (remote->lots[1].permits == 0) {
        remote->lots[1] = lot;
    } else {
        /* There is no third: what both have lives as long as the one that ends first. */
        remote->lots[1].permits += permits;
        remote->lots[1].until_us = remote->lots[1].until_us < until_us ? remote->lots[1].until_us : until_us;
    }
}

/* What Redis said is kept with the subject, which is locked. */
static void note_answer(struct limit_call *call, int64_t granted, int64_t wait_us, int64_t now_us)
{
    struct limit_subject *subject = call->subject;
    struct limit_remote *remote = subject->remote;
    int64_t until_us = now_us;

    if (remote == NULL || remote->resets != call->resets) {
        return;
    }
    if (granted == 0) {
        until_us = remote->refused_until_us = now_us + wait_us;
        remote->refused_cost = call->least;
    } else if (call->leased) {
        until_us = call->sent_us + limit_rule_hold_us(call->rule);
        /* Requests that on_error admitted meanwhile have spent some of it. */
        add_lot(remote, call->spent < granted ? granted - call->spent : 0, until_us);
    }
    if (subject->keep_until_us < until_us) {
        subject->keep_until_us = until_us;
    }
}

static void warn(struct limit *limit, const struct limit_rule *rule, const char *error, int64_t now_us)
{
    if (limit_ledger_may_warn(rule->member.ledger, now_us)) {
        limit->host->warn(limit->host->context, rule->name, error);
    }
}

static void settle_place(struct limit_call *call, struct limit_place *place, enum limit_place_state state)
{
    struct limit *limit = call->limit;

    place->state = state;
    place->call = NULL;
    place->held->asked--;
    if (place->held->asked == 0) {
        limit->host->resume(limit->host->context, place->held->holder);
    }
}

static struct limit_place *take_places(struct limit_call *call)
{
    struct limit_place *places = call->places;

    call->places = NULL;
    call->places_end = &call->places;
    return places;
}

/* Tells all places what has come of the call. */
static void settle_places(struct limit_call *call, enum limit_place_state state)
{
    struct limit_place *place = take_places(call);

    while (place != NULL) {
        struct limit_place *next = place->next_in_call;
        settle_place(call, place, state);
        place = next;
    }
}

/* Deals out what was granted, first come first served. Who gets nothing though something was granted asks again, as it
 * was not said when there will be more. */
static void deal_out(struct limit_call *call, int64_t granted, int64_t refused_until_us)
{
    int64_t spent = call->spent < granted ? call->spent : granted;
    struct grant rest = {.call = call->number, .asked_us = call->sent_us, .first = 1 + spent, .count = granted - spent};
    struct limit_place *place = take_places(call);

    while (place != NULL) {
        struct limit_place *next = place->next_in_call;
        bool enough = rest.count >= place->cost;
        bool is_refused = granted == 0 && place->cost >= call->least;
        if (enough) {
            place->grant_call = rest.call;
            place->grant_asked_us = rest.asked_us;
            place->grant_first = rest.first;
            rest.first += place->cost;
            rest.count -= place->cost;
        }
        place->refused_until_us = refused_until_us;
        settle_place(call, place,
                     enough       ? LIMIT_PLACE_GRANTED
                     : is_refused ? LIMIT_PLACE_REFUSED
                                  : LIMIT_PLACE_FETCHED);
        place = next;
    }
    if (rest.count > 0) {
        /* Who asked for it has left, or did not wait so long. */
        give_back(call->limit, &call->state, rest);
        forget_answers(call->limit, call->subject);
    }
}

static void count_aside(struct limit_call *call, bool granted)
{
    if (granted) {
        limit_count(call->limit, call->rule, LIMIT_ADMITTED, LIMIT_COUNTER_ADMITTED, 1);
    } else {
        limit_count(call->limit, call->rule, LIMIT_OBSERVED, LIMIT_COUNTER_OBSERVED, 1);
    }
}

static void answered(struct limit_call *call, const int64_t *integers, int64_t now_us)
{
    limit_locks locks = limit_subject_locks(call->subject);

    limit_share_lock(call->limit->share, locks);
    note_answer(call, integers[0], integers[1], now_us);
    limit_share_unlock(call->limit->share, locks);
    if (call->leased) {
        settle_places(call, LIMIT_PLACE_FETCHED);
    } else if (call->asked_aside) {
        count_aside(call, integers[0] > 0);
    } else {
        deal_out(call, integers[0], now_us + integers[1]);
    }
}

/* The rule went while the call was under way, and who asked asks by another one. */
static void give_back_all(struct limit_call *call, int64_t granted)
{
    if (granted > 0) {
        give_back(call->limit, &call->state, (struct grant){call->number, call->sent_us, 1, granted});
    }
}

static void send_successor(struct limit_call *call);

static void done(void *context, const struct policy_script_reply *reply)
{
    struct limit_call *call = context;
    struct limit *limit = call->limit;
    int64_t now_us = limit->host->now_us(limit->host->context);

    if (call->rule != NULL && reply->error == NULL && reply->count == 2) {
        answered(call, reply->integers, now_us);
    } else if (call->rule == NULL && reply->error == NULL && reply->count == 2 && !call->leased) {
        give_back_all(call, reply->integers[0]);
    } else if (call->rule != NULL) {
        warn(limit, call->rule, reply->error != NULL ? reply->error : "the script's reply is too short", now_us);
        settle_places(call, LIMIT_PLACE_FAILED);
    }
    send_successor(call);
    call_free(call);
}

/* ---- asking ---- */

static void send_call(struct limit *limit, struct limit_call *call)
{
    static const char *const scripts[] = {
        [STATE_LOG] = "limit_log", [STATE_SLOTS] = "limit_slots", [STATE_FUNNEL] = "limit_funnel"};
    const struct limit_rule *rule = call->rule;
    enum state_kind kind = call->state.kind;
    struct arguments arguments = {0};

    add_slice(&arguments, (struct slice){call->state.key, call->state.key_length});
    add_number(&arguments, rule->meter.most);
    if (kind == STATE_FUNNEL) {
        add_number(&arguments, rule->leak.amount);
        add_number(&arguments, rule->leak.period_us);
    } else {
        add_number(&arguments, rule->meter.window.length_us);
    }
    add_number(&arguments, call->wanted);
    add_number(&arguments, call->least);
    add_number(&arguments, limit_rule_hold_us(rule));
    if (kind == STATE_LOG) {
        add_id(&arguments, limit, call->number);
    }
    run(limit, scripts[kind], &arguments, done, call);
}

static int64_t batch_most(const struct limit_rule *rule)
{
    return rule->meter.most >= BATCH_PART ? rule->meter.most / BATCH_PART : 1;
}

static int64_t first_batch(const struct limit_rule *rule)
{
    return batch_most(rule) < BATCH_FIRST ? batch_most(rule) : BATCH_FIRST;
}

/* NULL when memory is short. */
static struct limit_call *call_new(struct limit *limit, struct limit_rule *rule, struct limit_subject *subject,
                                   int64_t cost, int64_t now_us)
{
    struct limit_call *call = calloc(1, sizeof *call);
    limit_locks locks = limit_subject_locks(subject);

    if (call == NULL) {
        return NULL;
    }
    *call = (struct limit_call){.rule = rule,
                                .subject = subject,
                                .state = state_of(rule, subject_name(subject)),
                                .least = cost,
                                .wanted = cost,
                                .sent_us = now_us,
                                .leased = rule->accuracy == LIMIT_LEASED};
    call->places_end = &call->places;
    call_add(limit, call);
    limit_share_lock(limit->share, locks);
    subject->pins++;
    if (subject->remote == NULL) {
        subject->remote = calloc(1, sizeof *subject->remote);
    }
    if (subject->remote != NULL && call->leased) {
        struct limit_remote *remote = subject->remote;
        remote->batch = remote->batch == 0 ? first_batch(rule) : remote->batch;
        call->wanted = remote->batch > cost ? remote->batch : cost;
    }
    call->resets = subject->remote != NULL ? subject->remote->resets : 0;
    if (subject->remote != NULL && subject->remote->fetch == NULL) {
        subject->remote->fetch = call;
        subject->remote->fetch_worker = limit->host->worker;
    }
    limit_share_unlock(limit->share, locks);
    return call;
}

static void wait_for_call(struct limit_place *place, struct limit_call *call)
{
    place->call = call;
    place->next_in_call = NULL;
    place->held->asked++;
    *call->places_end = place;
    call->places_end = &place->next_in_call;
}

/* What this worker asks for the subject already; *others: another one does. */
static struct limit_call *find_call(struct limit *limit, const struct limit_place *place, bool *others)
{
    limit_locks locks = limit_subject_locks(place->subject);

    limit_share_lock(limit->share, locks);
    const struct limit_remote *remote = place->subject->remote;
    struct limit_call *call = remote != NULL ? remote->fetch : NULL;
    *others = call != NULL && remote->fetch_worker != limit->host->worker;
    limit_share_unlock(limit->share, locks);
    return *others ? NULL : call;
}

/* Waits for permits that are on their way. */
static void wait_for_fetch(struct limit_place *place, struct limit_call *call, bool others)
{
    if (others) {
        place->state = LIMIT_PLACE_FETCHED;
    } else {
        wait_for_call(place, call);
    }
}

/* A new call for the place, which is sent now, or after the one that is under way. */
static void ask_anew(struct limit *limit, struct limit_place *place, struct limit_call *under_way, int64_t now_us)
{
    struct limit_call *call = call_new(limit, place->rule, place->subject, place->cost, now_us);

    if (call == NULL) {
        place->state = LIMIT_PLACE_FAILED;
        return;
    }
    wait_for_call(place, call);
    if (under_way != NULL) {
        under_way->successor = call;
    } else {
        send_call(limit, call);
    }
}

static void ask_for(struct limit *limit, struct limit_place *place, int64_t now_us)
{
    bool others;
    struct limit_call *call = find_call(limit, place, &others);

    if (place->rule->accuracy == LIMIT_LEASED && (call != NULL || others)) {
        wait_for_fetch(place, call, others);
    } else if (call != NULL && call->successor != NULL) {
        wait_for_call(place, call->successor);
    } else {
        ask_anew(limit, place, call, now_us);
    }
}

/* It is the one that others of this worker wait behind from now on. */
static void take_over(struct limit_call *call, const struct limit_call *before)
{
    limit_locks locks = limit_subject_locks(call->subject);
    struct limit_remote *remote = call->subject->remote;

    limit_share_lock(call->limit->share, locks);
    call->resets = remote != NULL ? remote->resets : 0;
    if (remote != NULL && (remote->fetch == before || remote->fetch == NULL)) {
        remote->fetch = call;
        remote->fetch_worker = call->limit->host->worker;
    }
    limit_share_unlock(call->limit->share, locks);
}

/* Sends what has gathered while the call was under way. */
static void send_successor(struct limit_call *call)
{
    struct limit_call *next = call->successor;

    call->successor = NULL;
    if (next == NULL) {
        return;
    }
    if (next->rule == NULL || (next->places == NULL && next->spent == 0)) {
        /* The rules are others now, or all have left. */
        call_free(next);
        return;
    }
    take_over(next, call);
    next->least = next->places != NULL ? next->places->cost : 1;
    next->wanted = next->spent;
    for (const struct limit_place *place = next->places; place != NULL; place = place->next_in_call) {
        next->wanted += place->cost;
    }
    next->sent_us = next->limit->host->now_us(next->limit->host->context);
    send_call(next->limit, next);
}

/* When to look at the place again at the latest; INT64_MAX: it waits for nothing. */
static int64_t look_again_at(const struct limit_place *place, int64_t now_us)
{
    if (place->state == LIMIT_PLACE_ASKED) {
        return place->deadline_us;
    }
    return place->state == LIMIT_PLACE_FETCHED ? now_us + OTHERS_FETCH_US : INT64_MAX;
}

int64_t limit_global_ask(struct limit *limit, struct limit_held *held, int64_t now_us)
{
    int64_t until_us = INT64_MAX;
    bool asked = false;

    for (size_t i = 0; i < held->count; i++) {
        struct limit_place *place = &held->places[i];
        asked = asked || place->state == LIMIT_PLACE_ASKED;
        if (place->state == LIMIT_PLACE_ASKED && place->call == NULL) {
            ask_for(limit, place, now_us);
        }
        int64_t look_us = look_again_at(place, now_us);
        until_us = look_us < until_us ? look_us : until_us;
    }
    if (!asked) {
        return 0;
    }
    /* Without a call under way, all was answered before this returned. */
    return until_us != INT64_MAX ? until_us : now_us;
}

void limit_global_ask_aside(struct limit *limit, int64_t now_us)
{
    for (size_t i = 0; i < limit->charge_count; i++) {
        struct limit_charge *charge = &limit->charges[i];
        if (!charge->asks_aside) {
            continue;
        }
        struct limit_call *call = call_new(limit, charge->rule, charge->subject, charge->cost, now_us);
        if (call != NULL) {
            call->asked_aside = charge->rule->action == LIMIT_OBSERVE;
            send_call(limit, call);
        }
    }
}

static void return_grant(struct limit *limit, struct limit_place *place)
{
    if (place->state == LIMIT_PLACE_GRANTED) {
        struct grant grant = {place->grant_call, place->grant_asked_us, place->grant_first, place->cost};
        struct state state = state_of(place->rule, subject_name(place->subject));
        give_back(limit, &state, grant);
        forget_answers(limit, place->subject);
        place->state = LIMIT_PLACE_EMPTY;
    }
}

void limit_global_return_grants(struct limit *limit, struct limit_held *held)
{
    for (size_t i = 0; i < held->count; i++) {
        return_grant(limit, &held->places[i]);
    }
}

void limit_global_leave(struct limit *limit, struct limit_place *place)
{
    struct limit_call *call = place->call;

    return_grant(limit, place);
    if (call == NULL) {
        return;
    }
    struct limit_place **link = &call->places;
    while (*link != place) {
        link = &(*link)->next_in_call;
    }
    *link = place->next_in_call;
    if (*link == NULL) {
        call->places_end = link;
    }
    place->call = NULL;
    place->held->asked--;
}

/* ---- judging and charging: the subject is locked ---- */

/* Drops what has expired. A batch of which much was left was too large. */
static void drop_expired_lots(struct limit_remote *remote, int64_t now_us)
{
    for (size_t i = 0; i < 2; i++) {
        struct limit_lot *lot = &remote->lots[i];
        if (lot->permits > 0 && lot->until_us <= now_us) {
            remote->batch = lot->permits > remote->batch / 2 && remote->batch > 1 ? remote->batch / 2 : remote->batch;
            lot->permits = 0;
        }
    }
    if (remote->lots[0].permits == 0) {
        remote->lots[0] = remote->lots[1];
        remote->lots[1] = (struct limit_lot){0};
    }
}

static int64_t permits_left(const struct limit_remote *remote)
{
    return remote->lots[0].permits + remote->lots[1].permits;
}

static void judge_failure(struct limit *limit, struct limit_charge *charge, int64_t now_us)
{
    const struct limit_rule *rule = charge->rule;

    warn(limit, rule, "Redis does not decide in time", now_us);
    charge->undecided = true;
    charge->wait_us = 0;
    if (rule->on_error == LIMIT_ON_ERROR_DENY) {
        charge->wait_us = rule->decision_timeout_us;
    } else if (rule->on_error == LIMIT_ON_ERROR_LOCAL) {
        charge->wait_us = limit_meter_wait(&rule->meter, &charge->subject->state, now_us, charge->cost);
    }
}

/* Whether the place says what is to become of the charge. */
static bool judge_by_place(struct limit *limit, struct limit_charge *charge, int64_t now_us)
{
    struct limit_place *place = charge->place;

    switch (place->state) {
    case LIMIT_PLACE_GRANTED:
        charge->wait_us = 0;
        return true;
    case LIMIT_PLACE_ASKED:
        if (place->deadline_us > now_us) {
            charge->needs_answer = true;
            return true;
        }
        judge_failure(limit, charge, now_us);
        return true;
    case LIMIT_PLACE_FAILED:
        judge_failure(limit, charge, now_us);
        return true;
    case LIMIT_PLACE_REFUSED:
        charge->wait_us = place->refused_until_us - now_us;
        return charge->wait_us > 0;
    case LIMIT_PLACE_FETCHED:
        if (place->deadline_us > now_us) {
            return false;
        }
        judge_failure(limit, charge, now_us);
        return true;
    case LIMIT_PLACE_EMPTY:
    case LIMIT_PLACE_QUEUED:
        break;
    }
    return false;
}

void limit_global_judge(struct limit *limit, struct limit_charge *charge, int64_t now_us)
{
    struct limit_remote *remote = charge->subject->remote;
    bool observes = charge->rule->action == LIMIT_OBSERVE;

    charge->wait_us = 0;
    if (charge->place != NULL && judge_by_place(limit, charge, now_us)) {
        return;
    }
    if (charge->cost > charge->rule->meter.most) {
        charge->wait_us = LIMIT_NEVER;
        return;
    }
    if (remote != NULL) {
        drop_expired_lots(remote, now_us);
        /* Those of another worker, or of before a reload, are not for an exact rule. */
        if (charge->rule->accuracy == LIMIT_LEASED && permits_left(remote) >= charge->cost) {
            charge->wait_us = 0;
            return;
        }
        if (remote->refused_until_us > now_us && charge->cost >= remote->refused_cost) {
            charge->wait_us = remote->refused_until_us - now_us;
            return;
        }
    }
    charge->needs_answer = !observes;
    bool fetches = charge->rule->accuracy == LIMIT_LEASED && remote != NULL && remote->fetch != NULL;
    charge->asks_aside = observes && !fetches;
}

static void spend(struct limit_remote *remote, int64_t cost)
{
    for (size_t i = 0; i < 2 && cost > 0; i++) {
        int64_t spent = remote->lots[i].permits < cost ? remote->lots[i].permits : cost;
        remote->lots[i].permits -= spent;
        cost -= spent;
    }
}

/* Fetches ahead when little is left. A batch that did not last half of its time was too small. */
static bool wants_refill(const struct limit_rule *rule, struct limit_remote *remote, int64_t now_us)
{
    int64_t most = batch_most(rule);

    if (remote->fetch != NULL || remote->lots[1].permits > 0 || permits_left(remote) > remote->batch / REFILL_PART ||
        remote->refused_until_us > now_us) {
        return false;
    }
    if (remote->lots[0].until_us - now_us > limit_rule_hold_us(rule) / 2) {
        remote->batch = remote->batch * 2 < most ? remote->batch * 2 : most;
    }
    return true;
}

void limit_global_charge(struct limit_charge *charge, int64_t now_us)
{
    struct limit_rule *rule = charge->rule;
    struct limit_subject *subject = charge->subject;
    struct limit_remote *remote = subject->remote;
    bool granted = charge->place != NULL && charge->place->state == LIMIT_PLACE_GRANTED;

    if (granted) {
        charge->place->state = LIMIT_PLACE_EMPTY;
    } else if (charge->undecided && charge->place->call != NULL) {
        /* Redis may yet count it. */
        charge->place->call->spent += charge->cost;
    } else if (rule->accuracy == LIMIT_LEASED && remote != NULL && permits_left(remote) >= charge->cost) {
        spend(remote, charge->cost);
        charge->asks_aside = wants_refill(rule, remote, now_us);
    }
    if (rule->on_error == LIMIT_ON_ERROR_LOCAL &&
        limit_meter_wait(&rule->meter, &subject->state, now_us, charge->cost) == 0) {
        (void)limit_meter_charge(&rule->meter, &subject->state, now_us, charge->cost);
    }
}

/* ---- forgetting ---- */

void limit_global_forget(struct limit *limit, const struct limit_rule *rule, struct slice subject)
{
    struct state state = state_of(rule, subject);
    struct arguments arguments = {0};

    add_slice(&arguments, (struct slice){state.key, state.key_length});
    run(limit, "limit_forget", &arguments, returned, NULL);
}
