/*
 * confirm = n: the owner of a lock hears that it has it when n replicas have it, too; a failover to one of these does
 * not lose it. Redis' reply is withheld meanwhile.
 *
 *   taken ─► lease_touch.lua and WAIT ─► enough ─────────────────────────────────────► "taken", and on file
 *                                    └─► too few, too late, gone ─► lease_release.lua ─► "another has it"
 *
 * Until the owner is told the request counts as under way, as any whose reply has not come: nothing is sent for the
 * lease, and releases that come meanwhile are seen.
 */
#include "lease/lease_effect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each has a connection to Redis of its own as long as replicas are waited for; the others wait their turn. */
#define CONFIRMING_MAX 64
/* How much longer than it waits Redis may take to say so, or to give a lock back. */
#define PATIENCE_US INT64_C(1000000)
#define WARNING_US INT64_C(1000000)

enum step { STEP_QUEUED, STEP_CONFIRMING, STEP_GIVING_BACK };

struct lease_confirmation {
    TAILQ_ENTRY(lease_confirmation) of_worker;
    struct lease_worker *worker;
    struct lease_request *request; /* NULL: its owner was told, or is gone */
    void *withheld;
    struct policy_reply reply; /* that Redis gave */
    char head[RESP_HEAD_KEPT];
    enum step step;
    uint32_t calls; /* scripts under way */
    int64_t until_us;
};

/* ---- what an owner is told that has not got it ---- */

static const struct {
    enum lease_reply taken; /* the reply to who has got it */
    struct slice text;      /* … and to who has not; empty: nil */
} refusals[] = {
    {LEASE_REPLY_OK, {"", 0}},
    {LEASE_REPLY_TRUTH, {"", 0}},
    {LEASE_REPLY_ONE, {":0\r\n", 4}},
    {LEASE_REPLY_ALL_KEYS, {":0\r\n", 4}},
    {LEASE_REPLY_NO_ERROR, {"-ERR ERROR\r\n", 12}},
};

#define REFUSALS (sizeof refusals / sizeof refusals[0])

static size_t refusal_of(const struct lease_shape *shape)
{
    size_t i = 0;

    while (i < REFUSALS && refusals[i].taken != shape->reply) {
        i++;
    }
    return i;
}

bool lease_confirm_is_possible(const struct lease_shape *shape)
{
    bool is_one_lock = shape->kind == LEASE_STRINGS || (shape->kind == LEASE_STRING && shape->key_count == 1);

    return is_one_lock && refusal_of(shape) < REFUSALS;
}

static struct slice text_of_refusal(const struct lease_request *request)
{
    return refusals[refusal_of(&request->shape)].text;
}

/* ---- ends ---- */

static void begin_next(struct lease_worker *worker);

static void forget(struct lease_confirmation *confirmation)
{
    struct lease_worker *worker = confirmation->worker;

    TAILQ_REMOVE(&worker->confirmations, confirmation, of_worker);
    worker->confirming -= confirmation->step != STEP_QUEUED;
    free(confirmation);
    begin_next(worker);
}

/* The request ends as if Redis had replied so; nobody else may have been told before. */
static void end_request(struct lease_confirmation *confirmation, enum policy_outcome outcome, struct slice head)
{
    struct lease_request *request = confirmation->request;

    confirmation->request = NULL;
    confirmation->reply.outcome = outcome;
    confirmation->reply.head = head;
    confirmation->reply.now_us = lease_now(confirmation->worker);
    lease_request_end(confirmation->worker, request, &confirmation->reply);
}

/* The owner is told by that text. */
static void tell(struct lease_confirmation *confirmation, struct slice text)
{
    const struct policy_host *host = confirmation->worker->host;
    void *withheld = confirmation->withheld;

    if (confirmation->calls == 0) {
        forget(confirmation);
    }
    /* Last, as what follows from it is anybody's. */
    host->give_reply(host->context, withheld, text);
}

static void tell_taken(struct lease_confirmation *confirmation)
{
    lease_count(confirmation->worker, LEASE_COUNTER_CONFIRMED);
    end_request(confirmation, POLICY_OUTCOME_REPLY, confirmation->reply.head);
    tell(confirmation, (struct slice){0});
}

static void warn(struct lease_confirmation *confirmation, const char *why)
{
    struct lease_worker *worker = confirmation->worker;
    const struct lease_target *target = &confirmation->request->targets[0];
    int64_t now = lease_now(worker);
    char key[LEASE_QUOTED_MAX], line[LEASE_QUOTED_MAX + 300];

    lease_count(worker, LEASE_COUNTER_UNCONFIRMED);
    if (worker->unconfirmed_warned_us != 0 && now - worker->unconfirmed_warned_us < WARNING_US) {
        return;
    }
    worker->unconfirmed_warned_us = now;
    lease_quote(key, target->key);
    snprintf(line, sizeof line, "not confirmed by %" PRIu32 " replicas, and given back: %s (%.160s)",
             confirmation->request->terms.confirm, key, why);
    worker->host->warn(worker->host->context, confirmation->request->terms.rule, line);
}

/* Leases that the token had before: its owner has been told that it has it no more. */
static void end_former(struct lease_worker *worker, const struct lease_request *request)
{
    lease_registry_lock(worker->registry);
    for (size_t i = 0; i < request->target_count; i++) {
        const struct lease_target *target = &request->targets[i];
        struct lease *lease =
            lease_registry_find(worker->registry, request->database, target->key, target->touch.token);
        if (lease != NULL) {
            lease_end(worker, lease, LEASE_REASON_RELEASED);
        }
    }
    lease_registry_unlock(worker->registry);
}

/* is_gone: Redis has said that it has it no more. Else it ends with its lease, or is healed if it has none. */
static void tell_refused(struct lease_confirmation *confirmation, bool is_gone)
{
    struct lease_request *request = confirmation->request;
    struct slice text = text_of_refusal(request);

    if (is_gone) {
        end_former(confirmation->worker, request);
        end_request(confirmation, POLICY_OUTCOME_LOCAL, (struct slice){0});
    } else {
        request->is_given_up = true;
        end_request(confirmation, POLICY_OUTCOME_LOST, (struct slice){0});
    }
    tell(confirmation, (struct slice){text.length > 0 ? text.data : "", text.length});
}

/* ---- scripts ---- */

static void run_script(struct lease_confirmation *confirmation, const char *name, policy_script_done *done,
                       int64_t wait_us)
{
    const struct policy_host *host = confirmation->worker->host;
    const struct lease_request *request = confirmation->request;
    struct slice arguments[LEASE_KEYS_MAX + 1];

    for (size_t i = 0; i < request->target_count; i++) {
        arguments[i] = request->targets[i].key;
    }
    arguments[request->target_count] = request->targets[0].touch.token;
    const struct policy_script script = {
        .script = script_find(name),
        .arguments = arguments,
        .argument_count = request->target_count + 1,
        .key_count = request->target_count,
        .database = request->database,
        .replicas = wait_us > 0 ? request->terms.confirm : 0,
        .replicas_ms = wait_us > 1000 ? wait_us / 1000 : 1,
        .done = done,
        .context = confirmation,
    };
    confirmation->calls++;
    confirmation->until_us = lease_now(confirmation->worker) + wait_us + PATIENCE_US;
    host->run_script(host->context, &script);
}

/* False: the owner has heard, or is gone, and that was the last that was waited for. */
static bool call_ended(struct lease_confirmation *confirmation)
{
    confirmation->calls--;
    if (confirmation->request == NULL && confirmation->calls == 0) {
        forget(confirmation);
        return false;
    }
    return confirmation->request != NULL;
}

static void on_given_back(void *context, const struct policy_script_reply *reply)
{
    struct lease_confirmation *confirmation = context;

    if (call_ended(confirmation)) {
        tell_refused(confirmation, policy_script_gave_integers(reply, 1));
    }
}

static void give_back(struct lease_confirmation *confirmation, const char *why)
{
    struct lease_worker *worker = confirmation->worker;

    warn(confirmation, why);
    worker->confirming += confirmation->step == STEP_QUEUED;
    confirmation->step = STEP_GIVING_BACK;
    run_script(confirmation, "lease_release", on_given_back, 0);
}

static void on_confirmed(void *context, const struct policy_script_reply *reply)
{
    struct lease_confirmation *confirmation = context;

    if (!call_ended(confirmation) || confirmation->step == STEP_GIVING_BACK) {
        return;
    }
    bool is_sound = policy_script_gave_integers(reply, 1);
    if (is_sound && reply->integers[0] >= confirmation->request->terms.confirm) {
        tell_taken(confirmation);
        return;
    }
    char why[64];
    snprintf(why, sizeof why, "%" PRId64 " have it", is_sound ? reply->integers[0] : 0);
    give_back(confirmation, reply->error != NULL ? reply->error : why);
}

/* No longer than for half of the lease, of which something is to be left. */
static int64_t wait_of(const struct lease_request *request)
{
    int64_t most = request->lease_us / 2, wait = request->terms.confirm_wait_us;

    return most > 0 && most < wait ? most : wait;
}

static void begin(struct lease_confirmation *confirmation)
{
    confirmation->step = STEP_CONFIRMING;
    confirmation->worker->confirming++;
    run_script(confirmation, "lease_touch", on_confirmed, wait_of(confirmation->request));
}

static struct lease_confirmation *first_queued(const struct lease_worker *worker)
{
    struct lease_confirmation *confirmation = TAILQ_FIRST(&worker->confirmations);

    while (confirmation != NULL && confirmation->step != STEP_QUEUED) {
        confirmation = TAILQ_NEXT(confirmation, of_worker);
    }
    return confirmation;
}

static void begin_next(struct lease_worker *worker)
{
    struct lease_confirmation *next = first_queued(worker);

    while (next != NULL && worker->confirming < CONFIRMING_MAX) {
        begin(next);
        next = first_queued(worker);
    }
}

/* ---- what the policy tells ---- */

bool lease_confirm_begin(struct lease_worker *worker, struct lease_request *request, const struct policy_reply *reply)
{
    const struct policy_host *host = worker->host;

    if (lease_outcome_of(request, reply, lease_outcome_head(request, reply)) != LEASE_OUTCOME_YES) {
        host->give_reply(host->context, reply->withheld, (struct slice){0});
        return false;
    }
    struct lease_confirmation *confirmation = malloc(sizeof *confirmation);
    if (confirmation == NULL) {
        /* It ends with its lease. */
        struct policy_reply lost = *reply;
        struct slice text = text_of_refusal(request);
        lost.outcome = POLICY_OUTCOME_LOST;
        request->is_given_up = true;
        lease_request_end(worker, request, &lost);
        host->give_reply(host->context, reply->withheld, (struct slice){text.data, text.length});
        return true;
    }
    *confirmation = (struct lease_confirmation){
        .worker = worker, .request = request, .withheld = reply->withheld, .reply = *reply, .step = STEP_QUEUED};
    memcpy(confirmation->head, reply->head.data, reply->head.length);
    confirmation->reply.head.data = confirmation->head;
    confirmation->reply.client = NULL;
    confirmation->until_us = lease_now(worker) + wait_of(request) + PATIENCE_US;
    TAILQ_INSERT_TAIL(&worker->confirmations, confirmation, of_worker);
    begin_next(worker);
    return true;
}

void lease_confirm_leave(struct lease_worker *worker, const struct lease_client *client)
{
    const struct policy_host *host = worker->host;
    struct lease_confirmation *confirmation = TAILQ_FIRST(&worker->confirmations);

    while (confirmation != NULL) {
        struct lease_confirmation *next = TAILQ_NEXT(confirmation, of_worker);
        if (confirmation->request != NULL && confirmation->request->client == client) {
            void *withheld = confirmation->withheld;
            end_request(confirmation, POLICY_OUTCOME_OWNERLESS, (struct slice){0});
            if (confirmation->calls == 0) {
                TAILQ_REMOVE(&worker->confirmations, confirmation, of_worker);
                worker->confirming -= confirmation->step != STEP_QUEUED;
                free(confirmation);
            }
            host->give_reply(host->context, withheld, (struct slice){0});
        }
        confirmation = next;
    }
    begin_next(worker);
}

static struct lease_confirmation *first_late(const struct lease_worker *worker)
{
    struct lease_confirmation *confirmation = TAILQ_FIRST(&worker->confirmations);
    int64_t now = lease_now(worker);

    while (confirmation != NULL && (confirmation->request == NULL || now < confirmation->until_us)) {
        confirmation = TAILQ_NEXT(confirmation, of_worker);
    }
    return confirmation;
}

void lease_confirm_tick(struct lease_worker *worker)
{
    struct lease_confirmation *late = first_late(worker);

    while (late != NULL) {
        if (late->step == STEP_GIVING_BACK) {
            tell_refused(late, false);
        } else {
            give_back(late, "Redis has not answered in time");
        }
        late = first_late(worker);
    }
}
