/*
 * Minutes on their way to Redis. In each round of `flush` seconds every worker moves what it has of each operation into
 * the shared object, and worker 0 sends it from there: some operations at each tick, so that neither the process nor
 * Redis has all of them to do at once. An operation has one call under way at most; what is not acknowledged goes again
 * in the next round, under the same number.
 */
#include "latency/latency_private.h"

#include <inttypes.h>

/* Redis is told the name of an operation this often, and keeps it for a little longer than what was measured. It may
 * have come back without it, or not have taken it, and REPORT * goes by it. */
#define LIST_INTERVAL_S INT64_C(60)
#define NAMES_IN_CALL 32
/* A call takes two minutes at most. Of operations with more the rest goes in calls beside the rounds, so many at a
 * tick. */
#define CATCH_UP_CALLS(operations) (8 + (operations) / 128)

struct latency_layout latency_layout_of(const struct latency *latency)
{
    return (struct latency_layout){
        .prefix = latency->settings.prefix,
        .braces = latency->settings.braces,
        .process = latency->share->process,
        .retention_s = latency->settings.retention_s,
        /* Longer than Redis is likely to be out of reach. */
        .remember_s = LATENCY_REMEMBER_S,
    };
}

/* ---- which operations there are ---- */

static void listed(void *context, const struct policy_script_reply *reply)
{
    struct latency *latency = context;

    latency->calls--;
    latency->listing = false;
    if (reply->error != NULL) {
        latency_count(latency, LATENCY_COUNTER_FLUSH_FAILURES);
        latency_warn(latency, "the list of interfaces was not written", reply->error);
    }
}

/* The next name that is due, all by turns. It counts as told, and is told anew after a while, whatever becomes of this
 * call. */
static const char *take_name(struct latency *latency)
{
    struct latency_operation *operation = STAILQ_FIRST(&latency->to_list);

    STAILQ_REMOVE_HEAD(&latency->to_list, to_list);
    operation->is_to_list = false;
    operation->listed_us = latency_now(latency);
    return operation->named.name;
}

static void list_some(struct latency *latency)
{
    struct latency_call *call = &latency->call;

    if (STAILQ_EMPTY(&latency->to_list) || latency->listing ||
        !latency_call_start(call, (2 + NAMES_IN_CALL) * LATENCY_KEY_SIZE)) {
        return;
    }
    latency->listing = true;
    latency_call_key(call, LATENCY_LIST_KEY, latency->settings.prefix);
    latency_call_add(call, "%" PRId64, latency->settings.retention_s + 2 * LIST_INTERVAL_S);
    for (int i = 0; i < NAMES_IN_CALL && !STAILQ_EMPTY(&latency->to_list); i++) {
        latency_call_add(call, "%s", take_name(latency));
    }
    latency_run(latency, "latency_list", call->arguments, call->argument_count, call->key_count, listed, latency);
}

static void note_to_list(struct latency *latency, struct latency_operation *operation)
{
    int64_t age_us = latency_now(latency) - operation->listed_us;

    if (!operation->is_to_list && (operation->listed_us == 0 || age_us >= LIST_INTERVAL_S * LATENCY_US_PER_S)) {
        operation->is_to_list = true;
        STAILQ_INSERT_TAIL(&latency->to_list, operation, to_list);
    }
}

void latency_list_anew(struct latency *latency)
{
    bool has_any = latency->sketch != NULL && latency->host->worker == LATENCY_FLUSHER;
    uint32_t count = has_any ? latency_share_count(latency->share) : 0;

    for (uint32_t i = 0; i < count; i++) {
        latency_share_operation(latency->share, i)->listed_us = 0;
    }
}

/* ---- flushing ---- */

static void set_behind(struct latency *latency, struct latency_operation *operation, bool is_behind)
{
    if (is_behind && !operation->is_behind) {
        TAILQ_INSERT_TAIL(&latency->behind, operation, behind);
    } else if (!is_behind && operation->is_behind) {
        TAILQ_REMOVE(&latency->behind, operation, behind);
    }
    operation->is_behind = is_behind;
}

static struct latency_operation *operation_of(const struct latency_entry *entry)
{
    return (struct latency_operation *)((uintptr_t)entry - offsetof(struct latency_operation, entry));
}

static bool freeze(struct latency_entry *entry)
{
    return latency_operation_freeze(operation_of(entry));
}

static bool write_call(struct latency *latency, const struct latency_entry *entry, struct latency_call *call)
{
    const struct latency_operation *operation = operation_of(entry);
    struct latency_layout layout = latency_layout_of(latency);

    return latency_call_flush(call, &layout, operation->named.name, entry->number, &operation->frozen);
}

static void forget(struct latency *latency, struct latency_entry *entry, bool is_lost)
{
    struct latency_operation *operation = operation_of(entry);

    latency_operation_forget(operation, is_lost ? &latency->share->lost : NULL);
    if (!is_lost) {
        latency_count(latency, LATENCY_COUNTER_FLUSHES);
        note_to_list(latency, operation);
        set_behind(latency, operation, operation->first != NULL);
    }
}

static const struct latency_entry_kind kind = {
    .script = "latency_flush",
    .trouble = "Redis does not take the figures",
    .lost = "minutes are lost",
    .freeze = freeze,
    .write = write_call,
    .forget = forget,
};

/* On worker 0: true if nothing waits of it. */
static bool move_and_flush(struct latency *latency, uint32_t number)
{
    latency_share_move(latency, number);
    if (latency->host->worker != LATENCY_FLUSHER) {
        return true;
    }
    struct latency_operation *operation = latency_share_operation(latency->share, number);
    set_behind(latency, operation, false);
    return latency_outbox_send(latency, &operation->entry, &kind);
}

/* Flushes more of some that are behind, as flushes are far apart or Redis was away. */
static void catch_up(struct latency *latency, uint32_t count)
{
    for (uint32_t calls = CATCH_UP_CALLS(count); calls > 0 && !TAILQ_EMPTY(&latency->behind); calls--) {
        (void)move_and_flush(latency, TAILQ_FIRST(&latency->behind)->named.number);
    }
}

void latency_flush_some(struct latency *latency, int64_t now_us)
{
    int64_t period_us = latency->settings.flush_us, passed_us = now_us - latency->round_begun_us;
    uint32_t count = latency_share_count(latency->share);
    uint32_t until = passed_us >= period_us ? count : (uint32_t)(count * passed_us / period_us);

    while (latency->round_at < until) {
        (void)move_and_flush(latency, latency->round_at++);
    }
    if (passed_us >= period_us) {
        latency->round_begun_us = now_us;
        latency->round_at = 0;
    }
    if (latency->host->worker == LATENCY_FLUSHER) {
        catch_up(latency, count);
        list_some(latency);
    }
}

/* ---- the end ---- */

static bool have_all_drained(struct latency_share *share)
{
    bool all = true;

    pthread_mutex_lock(&share->lock);
    for (size_t i = 0; i < share->threads; i++) {
        all = all && share->seats[i].drained;
    }
    pthread_mutex_unlock(&share->lock);
    return all;
}

bool latency_flush_rest(struct latency *latency, size_t clients)
{
    struct latency_share *share = latency->share;

    if (clients > 0) {
        return false;
    }
    latency_share_move_all(latency);
    latency_counters_collect(latency);
    latency_events_collect(latency);
    pthread_mutex_lock(&share->lock);
    share->seats[latency->host->worker].drained = true;
    pthread_mutex_unlock(&share->lock);
    if (latency->host->worker != LATENCY_FLUSHER) {
        return true;
    }
    if (!have_all_drained(share)) {
        return false;
    }
    uint32_t count = latency_share_count(latency->share);
    bool nothing_waits = true;
    for (uint32_t i = 0; i < count; i++) {
        nothing_waits &= move_and_flush(latency, i);
    }
    list_some(latency);
    nothing_waits &= latency_counters_send(latency);
    nothing_waits &= latency_events_send(latency);
    return nothing_waits && STAILQ_EMPTY(&latency->to_list) && !latency->listing;
}
