#include "topology/replica_ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* One that was lost, or could not serve, is left alone for so long. */
#define FAILED_PAUSE_US ((int64_t)1000000)

static const char why_none[] = "no replica is fit to be read from";
static const char why_gone[] = "the replica is not read from any more";

/* ---- ways ---- */

static void now_ready(void *context)
{
    (void)context;
}

static struct upstream_settings settings_of(struct replica_ways *ways, const struct replica_way *way)
{
    struct upstream_settings settings = ways->settings;

    if (way->number > 0) {
        settings.lane.target_text = way->text;
        settings.lane.host = way->host;
    }
    settings.lane.wants_master = false;
    settings.lane.follows = true;
    settings.lane.gives_back = true;
    settings.access_check = 0;
    settings.spares = 0;
    settings.changes = NULL;
    settings.is_aside = true;
    settings.first_lane_id += (uint64_t)++ways->made << 48;
    return settings;
}

/* A connection was lost, or none can be made. */
static void on_lost(void *context, const char *why, uint64_t requests)
{
    struct replica_way *way = context;

    (void)why;
    (void)requests;
    way->failed_us = clock_now_us();
}

static struct replica_way *way_new(struct replica_ways *ways, size_t number, const char *host, uint16_t port)
{
    struct replica_way *way = calloc(1, sizeof *way);

    if (way == NULL) {
        return NULL;
    }
    way->number = number;
    way->port = port;
    snprintf(way->host, sizeof way->host, "%s", host);
    snprintf(way->text, sizeof way->text, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", way->host, port);
    struct upstream_settings settings = settings_of(ways, way);
    way->upstream = upstream_new(ways->reactor, ways->runs, &settings, now_ready, ways);
    if (way->upstream == NULL) {
        free(way);
        return NULL;
    }
    upstream_tell_losses(way->upstream, on_lost, way);
    ways->ways[number] = way;
    return way;
}

static void tell_reads(struct replica_way *way)
{
    if (way->reads > 0) {
        atomic_fetch_add_explicit(&way->tally->reads, way->reads, memory_order_relaxed);
        way->reads = 0;
    }
}

static void way_free(struct replica_ways *ways, struct replica_way *way)
{
    ways->ways[way->number] = NULL;
    upstream_leave_node(ways->home, way->number);
    upstream_free(way->upstream);
    tell_reads(way);
    replica_tally_release(way->tally);
    free(way);
}

struct replica_way *replica_way_by_upstream(const struct replica_ways *ways, const struct upstream *upstream)
{
    for (size_t i = 0; i <= REPLICAS_MAX; i++) {
        if (ways->ways[i] != NULL && ways->ways[i]->upstream == upstream) {
            return ways->ways[i];
        }
    }
    return NULL;
}

/* ---- whom a client reads from ---- */

static bool serves(const struct replica_ways *ways, const struct replica_way *way, struct profile *profile)
{
    bool has_failed = way->failed_us != 0 && reactor_now(ways->reactor) - way->failed_us < FAILED_PAUSE_US;

    if (!way->is_fit || has_failed) {
        return false;
    }
    const struct profile *there = replica_way_profile(way, profile);
    if (there == NULL || there->needs_password || upstream_is_refused(there)) {
        return false;
    }
    const struct lane *lane = upstream_first_lane(there);
    bool is_coming =
        lane != NULL && (lane->state == LANE_READY ||
                         (lane->failures == 0 && lane->state != LANE_BACKOFF && lane->state != LANE_CLOSED));
    return lane == NULL || (is_coming && !lane->giving_back);
}

/* Each client draws for each replica, so that those of one that goes are shared out, and nobody else changes. */
static uint64_t draw(uint64_t id, size_t number)
{
    uint64_t value = (id + 1) * 0x9e3779b97f4a7c15U + number * 0xbf58476d1ce4e5b9U;

    value ^= value >> 31;
    value *= 0x94d049bb133111ebU;
    return value ^ (value >> 29);
}

struct replica_way *replica_way_choose(const struct replica_ways *ways, size_t number, struct profile *profile,
                                       uint64_t id)
{
    struct replica_way *best = NULL;
    uint64_t most = 0;

    if (number > 0 && ways->ways[number] != NULL && serves(ways, ways->ways[number], profile)) {
        return ways->ways[number];
    }
    for (size_t i = 1; i <= REPLICAS_MAX; i++) {
        uint64_t chance = draw(id, i);
        if (ways->ways[i] != NULL && (best == NULL || chance > most) && serves(ways, ways->ways[i], profile)) {
            best = ways->ways[i];
            most = chance;
        }
    }
    return best;
}

/* ---- lists ---- */

static struct replica_way *find(const struct replica_ways *ways, const struct replica_entry *entry)
{
    for (size_t i = 1; i <= REPLICAS_MAX; i++) {
        struct replica_way *way = ways->ways[i];
        if (way != NULL && way->port == entry->port && strcasecmp(way->host, entry->host) == 0) {
            return way;
        }
    }
    return NULL;
}

static struct replica_way *add(struct replica_ways *ways, const struct replica_entry *entry)
{
    for (size_t i = 1; i <= REPLICAS_MAX; i++) {
        if (ways->ways[i] == NULL) {
            return way_new(ways, i, entry->host, entry->port);
        }
    }
    return NULL;
}

/* Its lanes are closed, and what waits for an answer there goes to others. */
static void leave(struct replica_way *way)
{
    upstream_close_lanes(way->upstream, why_gone);
}

static void follow_entry(struct replica_ways *ways, const struct replica_entry *entry)
{
    struct replica_way *way = find(ways, entry);
    const struct connection_targets targets = {.count = 1, .items = {entry->target}};

    if (way == NULL) {
        way = add(ways, entry);
    }
    if (way == NULL) {
        return;
    }
    if (way->tally != entry->tally) {
        tell_reads(way);
        replica_tally_release(way->tally);
        way->tally = replica_tally_reference(entry->tally);
    }
    bool was_fit = way->is_fit;
    way->is_listed = true;
    way->is_fit = entry->is_fit;
    if (!was_fit && way->is_fit) {
        way->failed_us = 0;
    }
    upstream_set_targets(way->upstream, &targets);
    if (!entry->is_up) {
        leave(way);
    }
}

static bool has_fit(const struct replica_ways *ways)
{
    int64_t now_us = reactor_now(ways->reactor);
    bool has = false;

    for (size_t i = 1; i <= REPLICAS_MAX; i++) {
        const struct replica_way *way = ways->ways[i];
        has =
            has || (way != NULL && way->is_fit && (way->failed_us == 0 || now_us - way->failed_us >= FAILED_PAUSE_US));
    }
    return has;
}

void replica_ways_follow(struct replica_ways *ways, const struct replica_list *list)
{
    for (size_t i = 1; i <= REPLICAS_MAX; i++) {
        if (ways->ways[i] != NULL) {
            ways->ways[i]->is_listed = false;
        }
    }
    for (size_t i = 0; i < list->count; i++) {
        follow_entry(ways, &list->entries[i]);
    }
    for (size_t i = 1; i <= REPLICAS_MAX; i++) {
        struct replica_way *way = ways->ways[i];
        if (way != NULL && !way->is_listed) {
            way->is_fit = false;
            leave(way);
        }
    }
    if (has_fit(ways)) {
        upstream_give_back(ways->ways[0]->upstream, why_none);
    }
}

/* ---- time ---- */

static void give_back_waiting(void *context, struct lane *lane)
{
    (void)context;
    if (lane->use == LANE_SHARED && lane->state == LANE_BACKOFF && lane->first != NULL) {
        lane_give_back(lane, lane->why);
    }
}

void replica_ways_tick(struct replica_ways *ways)
{
    for (size_t i = 0; i <= REPLICAS_MAX; i++) {
        struct replica_way *way = ways->ways[i];
        if (way == NULL) {
            continue;
        }
        tell_reads(way);
        upstream_tick(way->upstream);
        if (way->number > 0) {
            upstream_visit_lanes(way->upstream, give_back_waiting, NULL);
        }
        if (way->number > 0 && !way->is_listed && upstream_has_no_lanes(way->upstream)) {
            way_free(ways, way);
        }
    }
    if (has_fit(ways)) {
        upstream_give_back(ways->ways[0]->upstream, why_none);
    }
}

/* ---- life ---- */

struct replica_ways *replica_ways_new(struct reactor *reactor, struct run_pool *runs, struct upstream *home,
                                      const struct upstream_settings *settings)
{
    const struct connection_targets nowhere = {.count = 0, .why = why_none};
    struct replica_ways *ways = calloc(1, sizeof *ways);

    if (ways == NULL) {
        return NULL;
    }
    ways->reactor = reactor;
    ways->runs = runs;
    ways->home = home;
    ways->settings = *settings;
    struct replica_way *way = way_new(ways, 0, "", 0);
    if (way == NULL) {
        free(ways);
        return NULL;
    }
    upstream_set_targets(way->upstream, &nowhere);
    return ways;
}

void replica_ways_free(struct replica_ways *ways)
{
    for (size_t i = 0; i <= REPLICAS_MAX; i++) {
        if (ways->ways[i] != NULL) {
            way_free(ways, ways->ways[i]);
        }
    }
    free(ways);
}

void replica_ways_reconfigure(struct replica_ways *ways, const struct upstream_settings *settings)
{
    ways->settings = *settings;
    for (size_t i = 0; i <= REPLICAS_MAX; i++) {
        if (ways->ways[i] != NULL) {
            struct upstream_settings own = settings_of(ways, ways->ways[i]);
            upstream_reconfigure(ways->ways[i]->upstream, &own);
        }
    }
}
