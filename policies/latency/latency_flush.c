/*
 * Minutes on their way to Redis. In each round of `flush` seconds every worker moves what it has of each interface into
 * the shared object, and worker 0 sends it from there: some interfaces at each tick, so that neither the process nor
 * Redis has all of them to do at once. An interface has one call under way at most; what is not acknowledged goes again
 * in the next round, under the same number.
 */
#include "latency/latency_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Redis is told the name of an interface this often, and keeps it for a little longer than what was measured. It may
 * have come back without it, or not have taken it, and REPORT * goes by it. */
#define LIST_INTERVAL_S INT64_C(60)
#define NAMES_IN_CALL 32
/* A call takes two minutes at most. Of interfaces with more the rest goes in calls beside the rounds, so many at a
 * tick. */
#define CATCH_UP_CALLS(interfaces) (8 + (interfaces) / 128)

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

size_t latency_list_key(const struct latency *latency, char key[LATENCY_KEY_SIZE])
{
    return (size_t)snprintf(key, LATENCY_KEY_SIZE, "%s_interfaces", latency->settings.prefix);
}

/* ---- which interfaces there are ---- */

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

/* Names that are due, by turns, as all may be due again before the last has been told. They count as told, and are told
 * anew after a while, whatever becomes of this call. */
static size_t take_names(struct latency *latency, struct slice *names)
{
    struct latency_share *share = latency->share;
    int64_t now = latency_now(latency);
    size_t count = 0;

    pthread_mutex_lock(&share->lock);
    while (latency->to_list > 0 && count < NAMES_IN_CALL) {
        struct latency_flight *flight = &latency->flights[latency->list_at];
        if (flight->to_list) {
            /* It stays where it is. */
            names[count++] = slice_of(latency_interfaces_name(share->interfaces, latency->list_at));
            flight->to_list = false;
            flight->listed_us = now;
            latency->to_list--;
        }
        latency->list_at = (latency->list_at + 1) % latency_interfaces_count(share->interfaces);
    }
    pthread_mutex_unlock(&share->lock);
    return count;
}

static void list_some(struct latency *latency)
{
    struct slice arguments[2 + NAMES_IN_CALL];
    char key[LATENCY_KEY_SIZE], keep[24];

    if (latency->to_list == 0 || latency->listing) {
        return;
    }
    latency->listing = true;
    arguments[0] = (struct slice){key, latency_list_key(latency, key)};
    int64_t keep_s = latency->settings.retention_s + 2 * LIST_INTERVAL_S;
    arguments[1] = (struct slice){keep, (size_t)snprintf(keep, sizeof keep, "%lld", (long long)keep_s)};
    size_t count = take_names(latency, arguments + 2);
    latency_run(latency, "latency_list", arguments, 2 + count, 1, listed, latency);
}

static void note_to_list(struct latency *latency, struct latency_flight *flight)
{
    int64_t age_us = latency_now(latency) - flight->listed_us;

    if (!flight->to_list && (flight->listed_us == 0 || age_us >= LIST_INTERVAL_S * LATENCY_US_PER_S)) {
        flight->to_list = true;
        latency->to_list++;
    }
}

void latency_list_anew(struct latency *latency)
{
    uint32_t count = latency->flights != NULL ? latency_share_count(latency->share) : 0;

    for (uint32_t i = 0; i < count; i++) {
        latency->flights[i].listed_us = 0;
    }
}

/* ---- flushing ---- */

static void set_behind(struct latency *latency, struct latency_flight *flight, bool is_behind)
{
    latency->behind += is_behind && !flight->is_behind;
    latency->behind -= !is_behind && flight->is_behind;
    flight->is_behind = is_behind;
}

static void flushed(void *context, const struct policy_script_reply *reply)
{
    struct latency_flight *flight = context;
    struct latency *latency = flight->latency;
    struct latency_share *share = latency->share;
    enum latency_flush_end end = latency_flush_ended(reply);
    bool has_more = false;

    latency->calls--;
    pthread_mutex_lock(&share->lock);
    if (end == LATENCY_FLUSH_DONE) {
        (void)latency_pending_acknowledge(share->pending, flight->interface, flight->number);
        has_more = latency_pending_has_more(share->pending, flight->interface);
    } else if (end == LATENCY_FLUSH_NEVER) {
        (void)latency_pending_give_up(share->pending, flight->interface, flight->number);
    }
    pthread_mutex_unlock(&share->lock);
    flight->number = 0;
    set_behind(latency, flight, has_more);
    if (end == LATENCY_FLUSH_DONE) {
        latency_count(latency, LATENCY_COUNTER_FLUSHES);
        note_to_list(latency, flight);
    } else {
        latency_count(latency, LATENCY_COUNTER_FLUSH_FAILURES);
        latency_warn(latency, end == LATENCY_FLUSH_NEVER ? "minutes are lost" : "Redis does not take the figures",
                     latency_flush_problem(reply));
    }
}

/* Makes up the call for what waits of the interface; false if there is nothing. The lock is held. */
static bool prepare(struct latency *latency, uint32_t interface)
{
    struct latency_share *share = latency->share;
    struct latency_flight *flight = &latency->flights[interface];
    struct latency_layout layout = latency_layout_of(latency);
    const struct latency_snapshot *snapshot = latency_pending_take(share->pending, interface);

    if (snapshot == NULL) {
        return false;
    }
    const char *name = latency_interfaces_name(share->interfaces, interface);
    if (!latency_call_flush(&latency->call, &layout, name, snapshot)) {
        return false;
    }
    flight->latency = latency;
    flight->interface = interface;
    flight->number = snapshot->number;
    return true;
}

static void move_and_flush(struct latency *latency, uint32_t interface)
{
    struct latency_share *share = latency->share;
    bool flushes = latency->host->worker == LATENCY_FLUSHER && latency->flights[interface].number == 0;

    pthread_mutex_lock(&share->lock);
    latency_pending_move(share->pending, latency->pending, interface);
    flushes = flushes && prepare(latency, interface);
    pthread_mutex_unlock(&share->lock);
    if (flushes) {
        const struct latency_call *call = &latency->call;
        latency_run(latency, "latency_flush", call->arguments, call->argument_count, call->key_count, flushed,
                    &latency->flights[interface]);
    }
}

/* Flushes more of some interfaces that are behind, as flushes are far apart or Redis was away. */
static void catch_up(struct latency *latency, uint32_t count)
{
    uint32_t calls = CATCH_UP_CALLS(count);

    for (uint32_t looked_at = 0; latency->behind > 0 && calls > 0 && looked_at < count; looked_at++) {
        latency->behind_at = latency->behind_at + 1 < count ? latency->behind_at + 1 : 0;
        struct latency_flight *flight = &latency->flights[latency->behind_at];
        if (flight->is_behind && flight->number == 0) {
            set_behind(latency, flight, false);
            move_and_flush(latency, latency->behind_at);
            calls--;
        }
    }
}

void latency_flush_some(struct latency *latency, int64_t now_us)
{
    int64_t period_us = latency->settings.flush_us, passed_us = now_us - latency->round_begun_us;
    uint32_t count = latency_share_count(latency->share);
    uint32_t until = passed_us >= period_us ? count : (uint32_t)(count * passed_us / period_us);

    while (latency->round_at < until) {
        move_and_flush(latency, latency->round_at++);
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
    for (uint32_t i = 0; i < count; i++) {
        move_and_flush(latency, i);
    }
    list_some(latency);
    bool have_counters_gone = latency_counters_send(latency), have_events_gone = latency_events_send(latency);
    pthread_mutex_lock(&share->lock);
    bool is_done = latency_pending_is_empty(share->pending) && have_counters_gone && have_events_gone;
    pthread_mutex_unlock(&share->lock);
    return is_done && latency->to_list == 0 && !latency->listing;
}
