/*
 * [latency]: how long requests take, on record in Redis by the minute; and the logs and hot keys beside it.
 */
#include "latency/latency_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct policy_counter counter_table[] = {
    [LATENCY_COUNTER_SAMPLES] = {"latency_samples_total", STATS_COUNTER, "requests measured"},
    [LATENCY_COUNTER_FLUSHES] = {"latency_flushes_total", STATS_COUNTER,
                                 "flushes that Redis has taken: one for each interface with something new"},
    [LATENCY_COUNTER_FLUSH_FAILURES] =
        {"latency_flush_failures_total", STATS_COUNTER,
         "flushes, and calls for counters, events and the list of interfaces, that it did not"
         " take; they are repeated, or given up"},
    [LATENCY_COUNTER_LOST_REQUESTS] = {"latency_lost_requests_total", STATS_COUNTER,
                                       "requests measured whose figures were dropped before Redis had them"},
    [LATENCY_COUNTER_LOST_MINUTES] = {"latency_lost_minutes_total", STATS_COUNTER,
                                      "minutes dropped so, of each interface apart"},
    [LATENCY_COUNTER_NO_ROOM] = {"latency_no_room_total", STATS_COUNTER,
                                 "times that an interface found no room and was sent to \"other\""},
    [LATENCY_COUNTER_WAITING] = {"latency_minutes_waiting", STATS_GAUGE,
                                 "minutes that are not in Redis yet, of each interface apart"},
    [LATENCY_COUNTER_OPERATIONS] = {"latency_interfaces", STATS_GAUGE, "interfaces there are"},
};

static_assert(sizeof counter_table / sizeof counter_table[0] == LATENCY_COUNTERS, "a counter is missing");

static const struct policy_verb verb_table[] = {
    {.name = "LATENCY",
     .least = 1,
     .most = 2,
     .usage = "LATENCY [interface]",
     .example = "LATENCY",
     .help = "how long requests took since the start",
     .ask = latency_verb_latency},
    {.name = "REPORT",
     .least = 2,
     .most = 8,
     .usage = "REPORT interface or * [FROM time] [TO time] [BY minute]",
     .example = "REPORT * FROM -1h BY minute",
     .help = "how long requests took by what is on record in Redis, of all sidecars",
     .ask = latency_verb_report},
    {.name = "SLOWLOG",
     .least = 1,
     .most = 4,
     .usage = "SLOWLOG [count [BEFORE id] or RESET]",
     .example = "SLOWLOG 10",
     .help = "the newest slow requests",
     .effect = POLICY_VERB_CHANGES_ON_RESET,
     .run = latency_verb_slowlog},
    {.name = "BIGLOG",
     .least = 1,
     .most = 4,
     .usage = "BIGLOG [count [BEFORE id] or RESET]",
     .example = "BIGLOG 10",
     .help = "the newest large requests, or with large replies",
     .effect = POLICY_VERB_CHANGES_ON_RESET,
     .run = latency_verb_biglog},
    {.name = "HOTKEYS",
     .least = 1,
     .most = 2,
     .usage = "HOTKEYS [RESET]",
     .example = "HOTKEYS",
     .help = "the keys asked for most",
     .effect = POLICY_VERB_CHANGES_ON_RESET,
     .run = latency_verb_hotkeys},
    {.name = "COUNTER",
     .least = 3,
     .most = 3,
     .usage = "COUNTER name precision",
     .example = "COUNTER requests 60",
     .help = "requests, errors, slow, refusals, leases, lost_leases, upstream_losses or lost_requests, of all sidecars,"
             " in slices of 1, 5, 60, 300, 3600, 18000 or 86400 seconds",
     .ask = latency_verb_counter},
    {.name = "RECENT",
     .least = 3,
     .most = 3,
     .usage = "RECENT name severity",
     .example = "RECENT slow warning",
     .help = "the last ones of slow warning, refusals info, lost_leases error, upstream_losses error or lost_requests"
             " error, of all sidecars",
     .ask = latency_verb_recent},
    {.name = "COMMON",
     .least = 3,
     .most = 3,
     .usage = "COMMON name severity",
     .example = "COMMON slow warning",
     .help = "those of the last hour with any, the most frequent first",
     .ask = latency_verb_common},
    {.name = "EVENTS",
     .least = 1,
     .most = 1,
     .usage = "EVENTS",
     .example = "EVENTS",
     .help = "what happened last, by this process alone: each different event once, with how often it came",
     .run = latency_verb_events},
};

/* ---- configuration ---- */

static bool make_own(struct latency *latency)
{
    struct latency_share *share = latency->share;
    struct latency_seat *seat = &share->seats[latency->host->worker];

    latency->sketch = latency_sketch_new(LATENCY_HOT_KEYS);
    if (latency->sketch == NULL) {
        return false;
    }
    pthread_mutex_lock(&share->log_lock);
    seat->sketch = latency->sketch;
    pthread_mutex_unlock(&share->log_lock);
    latency->round_begun_us = latency_now(latency);
    latency->logged_us = latency->round_begun_us;
    return true;
}

static bool enable(struct latency *latency)
{
    struct latency_share *share = latency->share;
    const struct latency_settings *settings = &latency->settings;

    if (!latency_share_enable(share, settings) || !latency_share_resize_logs(share, settings) ||
        (latency->sketch == NULL && !make_own(latency)) || !latency_names_make(latency)) {
        return false;
    }
    latency_read_clock(latency, latency_now(latency));
    return true;
}

/* Switched off, what was measured so far goes where it was to go. */
static void keep_destination(struct latency_settings *settings, const struct latency_settings *old)
{
    memcpy(settings->prefix, old->prefix, sizeof settings->prefix);
    settings->braces = old->braces;
    settings->log_braces = old->log_braces;
    settings->database = old->database;
    settings->flush_us = old->flush_us;
    settings->retention_s = old->retention_s;
}

/* What waits goes there, too. What is under way may end where it is going: it is sent again only when it has ended. */
static void change_destination(struct latency *latency, const struct latency_settings *old,
                               const struct conf_rule *list)
{
    const struct policy_host *host = latency->host;
    const struct policy_server_settings wanted = latency_server_settings(list);
    struct policy_server *server = host->change_server(host->context, latency->server, &wanted);

    if (server != latency->server || latency->settings.database != old->database ||
        strcmp(latency->settings.prefix, old->prefix) != 0) {
        latency_list_anew(latency);
    }
    latency->server = server;
}

static bool latency_reload(void *instance, const struct conf_rule *list)
{
    struct latency *latency = instance;
    struct latency_settings old = latency->settings;

    const struct latency_place place = {latency->host->server_name, latency->host->is_cluster};
    latency_settings_make(&latency->settings, list, &place);
    if (!latency->settings.enabled && old.flush_us > 0) {
        keep_destination(&latency->settings, &old);
    } else {
        change_destination(latency, &old, list);
    }
    latency_settings_clear(&old);
    if (latency->settings.enabled && !enable(latency)) {
        latency->settings.enabled = false;
        return false;
    }
    return true;
}

/* ---- hooks ---- */

static void log_now_and_then(struct latency *latency, int64_t now_us)
{
    latency_counters_collect(latency);
    latency_events_collect(latency);
    if (now_us - latency->logged_us >= latency->settings.flush_us) {
        latency->logged_us = now_us;
        if (latency->host->worker == LATENCY_FLUSHER) {
            (void)latency_counters_send(latency);
            (void)latency_events_send(latency);
        }
    }
}

static void latency_tick(void *instance, int64_t now_us)
{
    struct latency *latency = instance;

    if (latency->sketch == NULL) {
        return;
    }
    latency_read_clock(latency, now_us);
    latency_share_move_some(latency);
    latency_answer_waits(latency, false);
    if (latency->settings.flush_us > 0) {
        latency_flush_some(latency, now_us);
        log_now_and_then(latency, now_us);
    }
}

static bool latency_drain(void *instance, size_t clients)
{
    struct latency *latency = instance;

    return latency->sketch == NULL || latency_flush_rest(latency, clients);
}

static void show(struct latency *latency, enum latency_counter counter, uint64_t value)
{
    atomic_store_explicit(&latency->counters[counter], value, memory_order_relaxed);
}

/* Minutes that this worker has, and has not moved. */
static uint64_t count_open(const struct latency *latency)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < latency->open_room; i++) {
        count += latency->open[i] != NULL && latency->open[i]->figures.histogram.count > 0;
    }
    return count;
}

/* What all workers share, one of them says. Returns how many minutes wait. */
static uint64_t show_shared(struct latency *latency, uint64_t *no_room)
{
    struct latency_share *share = latency->share;
    uint64_t waiting = 0;

    pthread_mutex_lock(&share->lock);
    for (uint32_t i = 0; i < share->operations->count; i++) {
        waiting += latency_share_at(share, i)->waiting + latency_share_at(share, i)->frozen.count;
    }
    *no_room += share->operations->refused + share->free_texts_refused;
    show(latency, LATENCY_COUNTER_LOST_MINUTES, share->lost.minutes);
    show(latency, LATENCY_COUNTER_LOST_REQUESTS, share->lost.requests);
    show(latency, LATENCY_COUNTER_OPERATIONS, share->operations->count);
    pthread_mutex_unlock(&share->lock);
    return waiting;
}

/* STATS adds up what the workers say. */
static void latency_stats(void *instance)
{
    struct latency *latency = instance;

    if (latency->sketch == NULL) {
        return;
    }
    uint64_t waiting = count_open(latency),
             no_room = latency->names.learned != NULL ? latency->names.learned->refused : 0;
    if (latency->host->worker == 0) {
        waiting += show_shared(latency, &no_room);
    }
    show(latency, LATENCY_COUNTER_NO_ROOM, no_room);
    show(latency, LATENCY_COUNTER_WAITING, waiting);
}

static void latency_stop(void *instance)
{
    struct latency *latency = instance;

    assert(latency->calls == 0);
    if (latency->sketch != NULL) {
        latency_answer_waits(latency, true);
    }
    latency_names_clear(&latency->names);
    latency_settings_clear(&latency->settings);
    for (uint32_t i = 0; i < latency->open_room; i++) {
        free(latency->open[i]);
    }
    free(latency->open);
    latency_call_clear(&latency->call);
    free(latency);
}

static void *latency_start(const struct policy_start *start)
{
    struct latency *latency = calloc(1, sizeof *latency);

    if (latency == NULL) {
        return NULL;
    }
    latency->share = start->shared;
    latency->host = start->host;
    latency->counters = start->counters;
    TAILQ_INIT(&latency->behind);
    STAILQ_INIT(&latency->to_list);
    if (!latency_reload(latency, start->rules)) {
        latency_stop(latency);
        return NULL;
    }
    return latency;
}

static const struct conf_section *const sections[] = {&latency_section, &latency_rule_section,
                                                      &latency_counters_section, &latency_events_section, NULL};

static const struct policy_observer latency_observer = {
    .tag = latency_tag,
    .measure = latency_measure,
    .attends = latency_attends,
    .on_sample = latency_sample,
    .on_written = latency_written,
    .on_spot = latency_spot,
    .tell_durations = latency_tell_durations,
    .listens = latency_listens,
    .on_event = latency_policy_event,
};

const struct policy latency_policy = {
    .name = "latency",
    .observer = &latency_observer,
    .sections = sections,
    .counter_section = "Latency",
    .counters = counter_table,
    .counter_count = sizeof counter_table / sizeof counter_table[0],
    .verbs = verb_table,
    .verb_count = sizeof verb_table / sizeof verb_table[0],
    .share = latency_share_new,
    .unshare = latency_share_free,
    .start = latency_start,
    .reload = latency_reload,
    .on_client = latency_client,
    .on_tick = latency_tick,
    .on_drain = latency_drain,
    .on_stats = latency_stats,
    .stop = latency_stop,
};
