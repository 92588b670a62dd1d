#include "topology/cluster_way.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A node that is in no map and has no slots is left when nobody has been sent there for so long. */
#define LEAVE_PATIENCE_US ((int64_t)10 * 1000000)
/* How long a node may take to answer that has no slots any more: one that was told to step down answers at once, and
 * one that hangs never would. */
#define SILENT_US ((int64_t)2000000)
/* A newer map is not asked for more often than that. */
#define WANT_PAUSE_US ((int64_t)50000)
/* What is not the node that should be there is spoken of again after this. */
#define STRANGER_AGAIN_US ((int64_t)60000000)

static const char why_gone[] = "the node is no master of the cluster any more";
static const char why_other[] = "another node of the cluster has its address now";

/* ---- who nodes are ---- */

/* NULL: the map has nobody there. */
static const struct cluster_node *node_at(const struct cluster_ways *ways, const char *text)
{
    char address[CLUSTER_TEXT_MAX];

    for (size_t i = 0; ways->map != NULL && i < ways->map->node_count; i++) {
        const struct cluster_node *node = &ways->map->nodes[i];
        cluster_map_address_text(node->host, node->port, address);
        if (strcasecmp(address, text) == 0) {
            return node;
        }
    }
    return NULL;
}

static void note_stranger(struct cluster_ways *ways, const char *text, struct slice id)
{
    int64_t now = reactor_now(ways->reactor);

    cluster_ways_want_map(ways);
    if (ways->stranger_us == 0 || now - ways->stranger_us >= STRANGER_AGAIN_US) {
        ways->stranger_us = now;
        log_warning("cluster",
                    "what answers at %s (%.*s) is not the node of the cluster that should be there: it is sent nothing",
                    text, id.length > 0 ? (int)id.length : 7, id.length > 0 ? id.data : "no node");
    }
}

/* Of lane_settings: masters and replicas. An address that the map has no more is being left. */
static bool may_have_id(void *context, const char *text, struct slice id)
{
    struct cluster_ways *ways = context;
    const struct cluster_node *node = node_at(ways, text);
    bool is_other = node != NULL && node->id[0] != '\0' && !slice_is(id, node->id);

    if (is_other) {
        note_stranger(ways, text, id);
    }
    return !is_other;
}

static bool is_in_map(const struct cluster_map *map, struct slice id)
{
    bool is_there = false;

    for (size_t i = 0; !is_there && i < map->node_count; i++) {
        const char *known = map->nodes[i].id;
        is_there = known[0] == '\0' || slice_is(id, known);
    }
    return is_there;
}

bool cluster_ways_have_id(struct cluster_ways *ways, const char *text, struct slice id)
{
    bool is_there = ways->map == NULL || is_in_map(ways->map, id);

    if (!is_there) {
        note_stranger(ways, text, id);
    }
    return is_there;
}

/* ---- ways ---- */

static void now_ready(void *context)
{
    (void)context;
}

static struct upstream_settings settings_of(struct cluster_ways *ways, const struct cluster_way *way)
{
    struct upstream_settings settings = ways->settings;

    settings.lane.target_text = way->text;
    settings.lane.host = way->host;
    settings.lane.follows = true;
    settings.lane.may_have_id = may_have_id;
    settings.lane.id_context = ways;
    settings.access_check = 0;
    settings.changes = ways->changes;
    settings.first_lane_id = (uint64_t)++ways->made << 32;
    return settings;
}

static void on_connecting(void *context)
{
    cluster_ways_want_map(context);
}

static void on_lost(void *context, const char *why, uint64_t requests)
{
    struct cluster_ways *ways = context;

    cluster_ways_want_map(ways);
    ways->lost(ways->context, why, requests);
}

/* False when memory is short. */
static bool make_room(struct cluster_ways *ways, size_t count)
{
    struct cluster_way **longer =
        count > ways->count ? realloc(ways->ways, count * sizeof(struct cluster_way *)) : ways->ways;

    if (longer == NULL) {
        return false;
    }
    ways->ways = longer;
    for (; ways->count < count; ways->count++) {
        ways->ways[ways->count] = NULL;
    }
    return true;
}

/* A place for one more; SIZE_MAX when memory is short, or when there are too many. */
static size_t free_number(struct cluster_ways *ways)
{
    for (size_t i = 0; i < ways->count; i++) {
        if (ways->ways[i] == NULL) {
            return i;
        }
    }
    bool has_room = ways->count < CLUSTER_NODES_MAX && make_room(ways, ways->count + 1);

    return has_room ? ways->count - 1 : SIZE_MAX;
}

static struct cluster_way *way_new(struct cluster_ways *ways, const char *host, uint16_t port,
                                   const struct connection_targets *targets)
{
    size_t number = free_number(ways);
    struct cluster_way *way = number != SIZE_MAX ? calloc(1, sizeof *way) : NULL;

    if (way == NULL) {
        return NULL;
    }
    way->number = number;
    way->port = port;
    way->targets = *targets;
    way->used_us = reactor_now(ways->reactor);
    snprintf(way->host, sizeof way->host, "%s", host);
    snprintf(way->text, sizeof way->text, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", way->host, port);
    struct upstream_settings settings = settings_of(ways, way);
    way->upstream = upstream_new(ways->reactor, ways->runs, &settings, now_ready, ways);
    if (way->upstream == NULL) {
        free(way);
        return NULL;
    }
    upstream_set_targets(way->upstream, targets);
    upstream_tell_losses(way->upstream, on_lost, ways);
    upstream_tell_connecting(way->upstream, on_connecting, ways);
    ways->ways[number] = way;
    return way;
}

static void way_free(struct cluster_ways *ways, struct cluster_way *way)
{
    if (way->replicas != NULL) {
        replica_ways_free(way->replicas);
    }
    ways->ways[way->number] = NULL;
    ways->freed++;
    upstream_leave_node(ways->home, way->number);
    upstream_free(way->upstream);
    free(way);
}

struct cluster_way *cluster_way_at(const struct cluster_ways *ways, const char *host, uint16_t port)
{
    for (size_t i = 0; i < ways->count; i++) {
        struct cluster_way *way = ways->ways[i];
        if (way != NULL && way->port == port && strcasecmp(way->host, host) == 0) {
            return way;
        }
    }
    return NULL;
}

struct cluster_way *cluster_way_by_upstream(const struct cluster_ways *ways, const struct upstream *upstream)
{
    for (size_t i = 0; i < ways->count; i++) {
        if (ways->ways[i] != NULL && ways->ways[i]->upstream == upstream) {
            return ways->ways[i];
        }
    }
    return NULL;
}

/* Somebody is sent there again. */
static void use(const struct cluster_ways *ways, struct cluster_way *way)
{
    way->used_us = reactor_now(ways->reactor);
    if (way->is_left) {
        way->is_left = false;
        upstream_set_targets(way->upstream, &way->targets);
    }
}

/* It loses a slot; before: CLUSTER_NOBODY is nobody. */
static void note_lost(struct cluster_ways *ways, int16_t before)
{
    if (before != CLUSTER_NOBODY && ways->ways[before] != NULL) {
        ways->ways[before]->has_lost = true;
    }
}

/* ---- redirects ---- */

/* The node that the map has at that address. Before the first map, when it was waited for too long, a seed: somebody
 * may not be let know who has which slots. No other address is believed, as the error may be of a module's making,
 * which says what a client has told it to say; and whoever is there would be told passwords. False: it is none. */
static bool find_node(const struct cluster_ways *ways, const char *host, uint16_t port,
                      struct connection_targets *targets)
{
    if (ways->map == NULL) {
        return ways->gave_up && ways->find_seed(ways->context, host, port, targets);
    }
    int16_t place = cluster_map_find(ways->map, host, port);
    if (place == CLUSTER_NOBODY) {
        return false;
    }
    *targets = ways->map->nodes[place].targets;
    const struct sockaddr *first = (const struct sockaddr *)(const void *)&targets->items[0].address;
    return targets->count == 0 || !ways->is_own(ways->context, first);
}

static struct cluster_way *meet(struct cluster_ways *ways, const char *host, uint16_t port)
{
    struct connection_targets targets;
    bool is_node = find_node(ways, host, port, &targets);
    struct cluster_way *way = is_node ? cluster_way_at(ways, host, port) : NULL;

    if (way == NULL) {
        return is_node ? way_new(ways, host, port, &targets) : NULL;
    }
    if (way->targets.count == 0 && targets.count > 0) {
        /* Its name was found out since. */
        way->targets = targets;
        upstream_set_targets(way->upstream, &targets);
    }
    use(ways, way);
    return way;
}

struct cluster_way *cluster_way_redirect(struct cluster_ways *ways, const struct cluster_way *from,
                                         struct cluster_redirect *redirect)
{
    if (redirect->host[0] == '\0' && !redirect->is_unknown && from != NULL) {
        memcpy(redirect->host, from->host, sizeof redirect->host);
    }
    struct cluster_way *way = meet(ways, redirect->host, redirect->port);
    if (way == NULL || !redirect->ask) {
        cluster_ways_want_map(ways);
    }
    if (way != NULL && !redirect->ask && ways->owner[redirect->slot] != (int16_t)way->number) {
        note_lost(ways, ways->owner[redirect->slot]);
        ways->owner[redirect->slot] = (int16_t)way->number;
        ++*ways->changes;
    }
    return way;
}

/* ---- maps ---- */

void cluster_ways_want_map(struct cluster_ways *ways)
{
    int64_t now = reactor_now(ways->reactor);

    if (now - ways->wanted_us >= WANT_PAUSE_US) {
        ways->wanted_us = now;
        ways->want_map(ways->context);
    }
}

/* The node at the end of the lane is not that one: it has gone. */
static void fail_other(void *context, struct lane *lane)
{
    const struct cluster_node *node = context;
    bool is_told = lane->state == LANE_READY && lane->link.has_node_id && node->id[0] != '\0';

    if (is_told && strcmp(lane->link.node_id, node->id) != 0) {
        lane_fail(lane, why_other);
    }
}

/* The way to a node of the map; NULL when memory is short. */
static struct cluster_way *follow_node(struct cluster_ways *ways, struct cluster_node *node)
{
    struct cluster_way *way = cluster_way_at(ways, node->host, node->port);

    if (way == NULL) {
        way = way_new(ways, node->host, node->port, &node->targets);
    } else if (node->targets.count > 0) {
        way->targets = node->targets;
        way->is_left = false;
        upstream_set_targets(way->upstream, &node->targets);
    }
    if (way != NULL) {
        upstream_visit_lanes(way->upstream, fail_other, node);
        way->is_known = true;
        way->used_us = reactor_now(ways->reactor);
    }
    return way;
}

/* Requests that wait for a node with fewer slots than before may have to go elsewhere. */
static void give_back(struct cluster_ways *ways)
{
    for (size_t i = 0; i < ways->count; i++) {
        if (ways->ways[i] != NULL && ways->ways[i]->has_lost) {
            ways->ways[i]->has_lost = false;
            upstream_give_back(ways->ways[i]->upstream, why_gone);
        }
    }
}

static void follow_slots(struct cluster_ways *ways, const struct cluster_map *map, const int16_t *numbers)
{
    bool is_other = false;

    for (size_t slot = 0; slot < CLUSTER_SLOTS; slot++) {
        int16_t before = ways->owner[slot];
        int16_t owner = map->owner[slot] != CLUSTER_NOBODY ? numbers[map->owner[slot]] : CLUSTER_NOBODY;
        if (owner != before) {
            ways->owner[slot] = owner;
            is_other = true;
            note_lost(ways, before);
        }
    }
    *ways->changes += is_other;
    give_back(ways);
}

/* So that what needs no certain node is asked of one that is there. */
static void follow_home(struct cluster_ways *ways, const struct cluster_map *map)
{
    struct connection_targets targets = {.count = 0};

    for (size_t i = 0; i < map->node_count && targets.count < CONNECTION_TARGETS_MAX; i++) {
        const struct cluster_node *node = &map->nodes[i];
        if (node->is_master && node->slot_count > 0 && node->targets.count > 0) {
            targets.items[targets.count++] = node->targets.items[0];
        }
    }
    if (targets.count > 0) {
        upstream_set_targets(ways->home, &targets);
    }
}

/* Retired lanes are at what may be a node without slots, and end by themselves. */
static void fail_stranger(void *context, struct lane *lane)
{
    struct cluster_ways *ways = context;
    bool is_meant = lane->state == LANE_READY && lane->link.retired_us == 0 && lane->link.has_node_id;

    if (is_meant && !is_in_map(ways->map, slice_of(lane->link.node_id))) {
        stats_add(lane->settings->stats, STATS_UPSTREAM_STRANGERS, 1);
        note_stranger(ways, lane->settings->target_text, slice_of(lane->link.node_id));
        lane_fail(lane, why_other);
    }
}

void cluster_ways_follow(struct cluster_ways *ways, struct cluster_map *map)
{
    struct cluster_map *before = ways->map;
    int16_t numbers[CLUSTER_NODES_MAX];

    ways->map = cluster_map_reference(map);
    cluster_map_release(before);
    for (size_t i = 0; i < ways->count; i++) {
        if (ways->ways[i] != NULL) {
            ways->ways[i]->is_known = false;
        }
    }
    for (size_t i = 0; i < map->node_count; i++) {
        struct cluster_node *node = &map->nodes[i];
        struct cluster_way *way = node->is_master && node->slot_count > 0 ? follow_node(ways, node) : NULL;
        numbers[i] = way != NULL ? (int16_t)way->number : CLUSTER_NOBODY;
    }
    follow_slots(ways, map, numbers);
    follow_home(ways, map);
    if (before == NULL) {
        /* Until now nobody knew which nodes there are. */
        upstream_visit_lanes(ways->home, fail_stranger, ways);
        ways->map_came(ways->context);
    }
}

/* ---- life ---- */

struct cluster_ways *cluster_ways_new(const struct cluster_ways_parts *parts, const struct upstream_settings *settings)
{
    struct cluster_ways *ways = calloc(1, sizeof *ways);

    if (ways == NULL) {
        return NULL;
    }
    ways->reactor = parts->reactor;
    ways->runs = parts->runs;
    ways->home = parts->home;
    ways->changes = parts->changes;
    ways->want_map = parts->want_map;
    ways->map_came = parts->map_came;
    ways->made_us = reactor_now(parts->reactor);
    ways->lost = parts->lost;
    ways->is_own = parts->is_own;
    ways->find_seed = parts->find_seed;
    ways->context = parts->context;
    ways->settings = *settings;
    upstream_tell_connecting(parts->home, on_connecting, ways);
    for (size_t slot = 0; slot < CLUSTER_SLOTS; slot++) {
        ways->owner[slot] = CLUSTER_NOBODY;
    }
    return ways;
}

void cluster_ways_free(struct cluster_ways *ways)
{
    upstream_tell_connecting(ways->home, NULL, NULL);
    for (size_t i = 0; i < ways->count; i++) {
        if (ways->ways[i] != NULL) {
            way_free(ways, ways->ways[i]);
        }
    }
    cluster_map_release(ways->map);
    free(ways->ways);
    free(ways);
}

void cluster_ways_reconfigure(struct cluster_ways *ways, const struct upstream_settings *settings)
{
    ways->settings = *settings;
    for (size_t i = 0; i < ways->count; i++) {
        if (ways->ways[i] != NULL) {
            struct upstream_settings own = settings_of(ways, ways->ways[i]);
            upstream_reconfigure(ways->ways[i]->upstream, &own);
            if (ways->ways[i]->replicas != NULL) {
                own.says_readonly = true;
                replica_ways_reconfigure(ways->ways[i]->replicas, &own);
            }
        }
    }
}

void cluster_ways_follow_replicas(struct cluster_ways *ways, const char *host, uint16_t port,
                                  const struct replica_list *list)
{
    struct cluster_way *way = cluster_way_at(ways, host, port);

    if (way != NULL && way->replicas == NULL) {
        struct upstream_settings settings = settings_of(ways, way);
        settings.says_readonly = true;
        way->replicas = replica_ways_new(ways->reactor, ways->runs, way->upstream, &settings);
    }
    if (way != NULL && way->replicas != NULL) {
        replica_ways_follow(way->replicas, list);
    }
}

int32_t cluster_way_slot(const struct cluster_ways *ways, const struct cluster_way *way)
{
    int32_t slot = 0;

    while (slot < CLUSTER_SLOTS && ways->owner[slot] != (int16_t)way->number) {
        slot++;
    }
    return slot < CLUSTER_SLOTS ? slot : CLUSTER_NOBODY;
}

bool cluster_way_is_master(const struct cluster_ways *ways, const struct cluster_way *way)
{
    return way->is_known || cluster_way_slot(ways, way) != CLUSTER_NOBODY;
}

/* A node that no map has, and that nobody is sent to: its lanes go as those do to an address that Redis has left. */
static void tend_unknown(struct cluster_ways *ways, struct cluster_way *way)
{
    struct connection_targets nowhere = {.count = 0, .why = why_gone};

    bool is_used = reactor_now(ways->reactor) - way->used_us < LEAVE_PATIENCE_US;

    if (cluster_way_slot(ways, way) != CLUSTER_NOBODY) {
        return;
    }
    upstream_give_up_silent(way->upstream, false, SILENT_US);
    if (is_used) {
        return;
    }
    if (upstream_has_no_lanes(way->upstream)) {
        way_free(ways, way);
    } else if (!way->is_left) {
        way->is_left = true;
        upstream_give_back(way->upstream, why_gone);
        upstream_set_targets(way->upstream, &nowhere);
    }
}

/* Nobody has told of the cluster for too long. */
static void give_up(struct cluster_ways *ways)
{
    if (cluster_ways_wait(ways) && reactor_now(ways->reactor) - ways->made_us >= clock_ms_to_us(ways->settings.wait)) {
        ways->gave_up = true;
        ways->map_came(ways->context);
    }
}

void cluster_ways_tick(struct cluster_ways *ways)
{
    give_up(ways);
    upstream_give_up_silent(ways->home, true, SILENT_US);
    for (size_t i = 0; i < ways->count; i++) {
        struct cluster_way *way = ways->ways[i];
        if (way != NULL) {
            upstream_tick(way->upstream);
            if (way->replicas != NULL) {
                replica_ways_tick(way->replicas);
            }
            if (!way->is_known) {
                tend_unknown(ways, way);
            }
        }
    }
}
