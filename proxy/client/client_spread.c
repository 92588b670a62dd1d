/*
 * Requests that several nodes of a cluster have to be asked, or one in other words: one run for each part, which lie
 * one behind the other among the client's, and one behind them, which has the reply that is made of theirs.
 *
 *   KEYS *  ─►  part at A, part at B, part at C, the whole  ─►  the whole is first: the replies are merged, and go out
 *
 * A part is a request as any other: it waits, is redirected, is lost as these are. Parts go over shared lanes, so that
 * they keep their order among the client's requests of each slot; but what must not share a lane (scripts) has one of
 * its own at each node, which goes back to the pool behind a fence. If that node is gone before the part was sent, and
 * another one has its slots, the part goes there.
 */
#include "client/client_cluster_private.h"

#include "topology/cluster_merge.h"
#include "topology/cluster_scan.h"
#include "topology/cluster_shown.h"
#include "topology/cluster_split.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

/* While somebody scans, the map is asked for as often: a scan goes by what has changed. */
#define SCAN_MAP_AGE_US ((int64_t)1000000)

/* One part. */
struct part {
    struct lane *lane; /* of its own; NULL: it has none, or no more. The first member: lanes know it */
    struct spread *spread;
    const struct cluster_way *way; /* of the lane of its own; NULL: home */
    int32_t slot;                  /* one that the node there had; CLUSTER_NOBODY: it had none */
    struct buffer reply;           /* whole; empty: it was not taken yet */
};

struct spread {
    struct client_service *service;
    struct client *client; /* it goes before its client does */
    uint32_t references;   /* runs */
    const struct cluster_plan *plan;
    struct cluster_split *split; /* NULL: it is not taken apart */
    bool is_scan;
    struct cluster_cursor cursor;    /* where SCAN goes on */
    struct expected_reply *expected; /* what the reply as a whole will mean; NULL: nothing */
    bool waits;                      /* it is a WAIT, of what the client has written … */
    bool is_gone;                    /* … of which nobody knows any more what became of a part */
    uint32_t count;
    uint32_t most;      /* that there is room for */
    size_t kept;        /* bytes of all this that are counted for the client, beside the replies */
    struct part *parts; /* they do not move: lanes know them */
};

/* ---- life ---- */

/* NULL when memory is short. */
static struct spread *spread_new(struct client *client, const struct cluster_plan *plan)
{
    struct spread *spread = calloc(1, sizeof *spread);

    if (spread != NULL) {
        spread->service = client->service;
        spread->client = client;
        spread->plan = plan;
    }
    return spread;
}

static void give_lane_back(struct part *part, bool clean)
{
    struct lane *lane = part->lane;

    part->lane = NULL;
    if (lane != NULL) {
        lane->needs_fence = true;
        upstream_release_exclusive(lane, clean);
    }
}

static void drop_replies(struct spread *spread)
{
    for (uint32_t i = 0; i < spread->count; i++) {
        client_clear_text(spread->client, &spread->parts[i].reply);
    }
}

static void end(struct spread *spread)
{
    for (uint32_t i = 0; i < spread->count; i++) {
        give_lane_back(&spread->parts[i], false);
    }
    drop_replies(spread);
    client_uncount_kept(spread->client, spread->kept);
    if (spread->split != NULL) {
        cluster_split_free(spread->split);
    }
    if (spread->expected != NULL) {
        expected_reply_give(spread->service, spread->expected);
    }
    free(spread->parts);
    free(spread);
}

void client_spread_free(void *of, uint32_t place)
{
    struct spread *spread = of;

    (void)place;
    if (--spread->references == 0) {
        end(spread);
    }
}

/* ---- lanes of parts ---- */

void client_spread_release(struct run *run)
{
    struct spread *spread = run->spread;

    if (spread != NULL) {
        give_lane_back(&spread->parts[run->part], true);
    }
}

void client_spread_lost(struct run *run)
{
    struct spread *spread = run->spread;
    struct part *part = spread != NULL ? &spread->parts[run->part] : NULL;

    if (part == NULL || part->lane == NULL) {
        return;
    }
    if (part->lane->state == LANE_CLOSED) {
        part->lane = NULL;
    } else {
        /* It never came to be, and would go on trying. */
        give_lane_back(part, false);
    }
}

/* Whether another part is for that node. */
static bool is_asked(const struct spread *spread, const struct cluster_way *way)
{
    bool is = false;

    for (uint32_t i = 0; i < spread->count && !is; i++) {
        is = spread->parts[i].way == way;
    }
    return is;
}

/*
 * A node has lost slots, and the part was not sent to it yet. If it has none any more, the part is for who has taken
 * over; if that has a part of its own, it is answered by an error, as a part on a shared lane is. What WAIT is about is
 * at nobody then.
 */
static void on_reroute(void *owner)
{
    struct part *part = owner;
    struct spread *spread = part->spread;
    struct client *client = spread->client;
    const struct cluster_ways *ways = client->service->cluster;

    if (part->way == NULL || cluster_way_is_master(ways, part->way)) {
        return;
    }
    const struct cluster_way *way = part->slot != CLUSTER_NOBODY ? cluster_way_of(ways, (uint16_t)part->slot) : NULL;
    bool goes_on = !spread->waits && way != NULL && !is_asked(spread, way);
    struct profile *there = goes_on ? client_profile_at(client, way) : NULL;
    if (there != NULL) {
        part->way = way;
        client_written_goes(client, way);
        upstream_carry_exclusive(part->lane, there);
        return;
    }
    if (spread->waits) {
        spread->is_gone = true;
        client_written_begin_anew(client);
    }
    lane_close(part->lane, "the node is gone, and was not reached before");
}

static const struct lane_owner part_owner = {
    .bytes = lane_unheard_bytes,
    .frame = lane_unheard_frame,
    .broken = lane_unheard_broken,
    .reroute = on_reroute,
};

/* The lane for a part. NULL when memory is short. */
static struct lane *part_lane(struct client *client, struct part *part, const struct cluster_way *way, bool own)
{
    struct profile *profile = client_profile_at(client, way);

    if (profile == NULL || !own) {
        return profile != NULL ? upstream_shared_lane(profile) : NULL;
    }
    part->way = way;
    part->slot = way != NULL ? cluster_way_slot(client->service->cluster, way) : CLUSTER_NOBODY;
    part->lane = upstream_take_exclusive(profile, false, &part_owner, part);
    return part->lane;
}

/* ---- sending ---- */

/* A run of the spread, at the end of the client's. NULL when memory is short. */
static struct run *add_run(struct client *client, struct spread *spread)
{
    struct run *run = run_take(client->service->runs);

    if (run != NULL) {
        run->receiver = &client_spread_receiver;
        run->owner = client;
        run->requests = 1;
        run->spread = spread;
        run->part = (uint16_t)spread->count;
        spread->references++;
    }
    return run;
}

/* False when memory is short. */
static bool send_part(struct client *client, struct spread *spread, const struct cluster_way *way, struct slice frame,
                      bool own)
{
    struct run *run = spread->count < spread->most ? add_run(client, spread) : NULL;

    if (run == NULL) {
        return false;
    }
    spread->parts[spread->count].spread = spread;
    struct lane *lane = part_lane(client, &spread->parts[spread->count], way, own);
    spread->count++;
    bool is_behind = lane != NULL && (!spread->waits || session_write_nothing(client, lane));
    if (!is_behind || !lane_send(lane, run, frame.data, frame.length)) {
        run->spread = NULL;
        spread->references--;
        run_give(client->service->runs, run);
        return false;
    }
    client->sent_runs++;
    client->at_replicas = false;
    client->lane_in_use = lane;
    client->last_lane_id = lane->id;
    client->last_way = way != NULL ? way->number + 1 : 0;
    client_note_written(client, client_command_of(client->service, frame), way);
    stats_add(client->service->reactor->stats, STATS_REQUESTS_FORWARDED, 1);
    client_queue_run(client, run);
    return true;
}

/* The run that has the reply of the whole. False when memory is short. */
static bool add_whole(struct client *client, struct spread *spread, struct slice frame, struct chain_record *record)
{
    struct run *run = add_run(client, spread);

    if (run == NULL) {
        return false;
    }
    if (client->note.taken) {
        /* Short of memory it is not measured. */
        (void)client_measure_sent(client, frame);
        (void)client_measure_run(client, run);
    }
    run->answered = 1;
    run->policy_record = record;
    client_queue_run(client, run);
    return true;
}

/* Whether that node is asked. */
static bool is_meant(const struct client *client, const struct spread *spread, const struct cluster_way *way)
{
    return spread->waits ? client_wrote_at(client, way) : way != NULL && way->is_known;
}

/* To all masters, or to those that the client has written to; without a map to the home node. */
static bool send_to_all(struct client *client, struct spread *spread, struct slice frame, bool own)
{
    const struct cluster_ways *ways = client->service->cluster;
    bool sent = true;

    for (size_t i = 0; i < ways->count && sent; i++) {
        if (ways->ways[i] != NULL && is_meant(client, spread, ways->ways[i])) {
            sent = send_part(client, spread, ways->ways[i], frame, own);
        }
    }
    if (sent && is_meant(client, spread, NULL)) {
        sent = send_part(client, spread, NULL, frame, own);
    }
    return sent && (spread->count > 0 || send_part(client, spread, NULL, frame, own));
}

static bool send_split(struct client *client, struct spread *spread)
{
    bool sent = true;

    for (size_t i = 0; i < cluster_split_count(spread->split) && sent; i++) {
        struct cluster_split_part part = cluster_split_part(spread->split, i);
        sent = send_part(client, spread, cluster_way_of(client->service->cluster, part.slot), part.frame, false);
    }
    return sent;
}

/* To the slot's owner by the map, by which the cursor was read: it means nothing to another node, also where a redirect
 * has said since that the slot is there. */
static bool send_scan(struct client *client, struct spread *spread, struct slice frame)
{
    struct cluster_ways *ways = client->service->cluster;
    const struct cluster_node *node = &ways->map->nodes[ways->map->owner[spread->cursor.slot]];
    const struct cluster_way *way = cluster_way_at(ways, node->host, node->port);
    struct text_stream text;

    if (way == NULL || !text_open(&text)) {
        return false;
    }
    if (clock_now_us() - ways->wanted_us >= SCAN_MAP_AGE_US) {
        cluster_ways_want_map(ways);
    }
    cluster_scan_write_request(&spread->cursor, frame, text.out);
    bool sent = text_close(&text) && send_part(client, spread, way, (struct slice){text.bytes, text.length}, false);
    text_free(&text);
    return sent;
}

/* ---- what Headgate answers ---- */

/* Where the client has come to. */
static void find_own_address(const struct client *client, char host[INET6_ADDRSTRLEN], uint16_t *port)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    const struct sockaddr_in *ip4 = (const struct sockaddr_in *)(const void *)&address;
    const struct sockaddr_in6 *ip6 = (const struct sockaddr_in6 *)(const void *)&address;

    host[0] = '\0';
    *port = 0;
    if (getsockname(client->connection.fd, (struct sockaddr *)(void *)&address, &length) != 0) {
        return;
    }
    if (address.ss_family == AF_INET) {
        (void)inet_ntop(AF_INET, &ip4->sin_addr, host, INET6_ADDRSTRLEN);
        *port = ntohs(ip4->sin_port);
    } else if (address.ss_family == AF_INET6) {
        bool is_mapped = IN6_IS_ADDR_V4MAPPED(&ip6->sin6_addr);
        (void)inet_ntop(is_mapped ? AF_INET : AF_INET6, &ip6->sin6_addr.s6_addr[is_mapped ? 12 : 0], host,
                        INET6_ADDRSTRLEN);
        *port = ntohs(ip6->sin6_port);
    }
}

static enum client_outcome answer(struct client *client, struct slice text)
{
    struct chain_record *record = client->held;

    client->held = NULL;
    if (!client_answer(client, text.data, text.length, record)) {
        client_out_of_memory(client);
    }
    return CLIENT_TAKEN;
}

static enum client_outcome answer_here(struct client *client, const struct request *request)
{
    const struct cluster_identity identity = cluster_shown_identity(client->service->settings.upstream_text);
    struct cluster_shown shown = {.identity = &identity, .tls = client->is_secure};
    char host[INET6_ADDRSTRLEN];
    struct text_stream text;

    find_own_address(client, host, &shown.port);
    shown.host = host;
    shown.resp = client->profile->resp;
    shown.map = client->service->cluster->map;
    if (!text_open(&text)) {
        client_out_of_memory(client);
        return CLIENT_TAKEN;
    }
    cluster_shown_write(&shown, client_command_of(client->service, request->sent), request->sent, text.out);
    if (text_close(&text)) {
        (void)answer(client, (struct slice){text.bytes, text.length});
    } else {
        client_out_of_memory(client);
    }
    text_free(&text);
    return CLIENT_TAKEN;
}

/* ---- the way of such a request ---- */

static struct slice second_argument(struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice argument = {0};

    (void)(resp_walk_skip(&walk, 1) && resp_walk_next(&walk, &argument));
    return argument;
}

/* What WAIT, or WAITAOF, is answered where nobody knows of any replica that has what was written. */
static const char *none_of(const struct cluster_plan *plan)
{
    return plan->merge == CLUSTER_MERGE_EACH ? "*2\r\n:0\r\n:0\r\n" : ":0\r\n";
}

/* True: it is not sent, but answered, as *text says. */
static bool prepare(struct client *client, const struct request *request, const struct session_route *route,
                    struct spread *spread, const char **text)
{
    const struct cluster_map *map = client->service->cluster->map;

    if (route->splits) {
        spread->split = cluster_split_new(client_command_of(client->service, request->sent), request->sent);
        *text = CLUSTER_CROSSSLOT;
        return spread->split == NULL;
    }
    if (spread->waits && client_written_is_gone(client)) {
        client_written_begin_anew(client);
        *text = none_of(route->plan);
        return true;
    }
    if (route->plan->where != CLUSTER_CURSOR) {
        return false;
    }
    *text = map == NULL || map->master_count == 0 ? "-CLUSTERDOWN Hash slot not served\r\n" : CLUSTER_SCAN_INVALID;
    if (map == NULL || map->master_count == 0 ||
        !cluster_scan_read(map, clock_now_us(), second_argument(request->sent), &spread->cursor)) {
        return true;
    }
    spread->is_scan = true;
    return false;
}

static bool send_parts(struct client *client, const struct request *request, const struct session_route *route,
                       struct spread *spread)
{
    size_t most = spread->split != NULL ? cluster_split_count(spread->split) : client->service->cluster->count + 1;

    spread->parts = calloc(most, sizeof *spread->parts);
    if (spread->parts == NULL) {
        return false;
    }
    spread->most = (uint32_t)most;
    spread->kept = sizeof *spread + most * sizeof *spread->parts;
    spread->kept += spread->split != NULL ? cluster_split_size(spread->split) : 0;
    client_count_kept(client, spread->kept);
    if (spread->split != NULL) {
        return send_split(client, spread);
    }
    return spread->is_scan ? send_scan(client, spread, request->sent)
                           : send_to_all(client, spread, request->sent, route->exclusive);
}

/* Only what concerns all of Headgate is of interest: parts are on no lane of the client. */
static void keep_expected(struct client *client, struct session_route *route, struct spread *spread)
{
    struct expected_reply *expected = route->expected;

    if (expected != NULL && (expected->kind == EXPECT_ACCESS || expected->kind == EXPECT_PAUSE)) {
        spread->expected = expected;
        route->expected = NULL;
    }
    session_drop_route(client, route);
}

static enum client_outcome waits(struct client *client, struct session_route *route)
{
    session_drop_route(client, route);
    (void)client_wait_for(client, CLIENT_WAIT_QUIET);
    return CLIENT_WAITS;
}

enum client_outcome client_spread(struct client *client, const struct request *request, struct session_route *route)
{
    const struct cluster_ways *ways = client->service->cluster;
    const char *text;

    if (cluster_ways_wait(ways)) {
        return waits(client, route);
    }
    if (route->plan != NULL && route->plan->where == CLUSTER_HERE) {
        session_drop_route(client, route);
        return answer_here(client, request);
    }
    if (client_cluster_has_to_wait(client, NULL) || (client->exclusive != NULL && client->sent_runs > 0)) {
        return waits(client, route);
    }
    struct spread *spread = spread_new(client, route->plan);
    if (spread == NULL) {
        session_drop_route(client, route);
        client_out_of_memory(client);
        return CLIENT_TAKEN;
    }
    spread->waits = route->own_writes;
    if (prepare(client, request, route, spread, &text)) {
        session_drop_route(client, route);
        end(spread);
        return answer(client, slice_of(text));
    }
    keep_expected(client, route, spread);
    client->routed_changes = *ways->changes;
    spread->references++;
    bool sent = send_parts(client, request, route, spread);
    struct chain_record *record = client->held;
    client->held = NULL;
    sent = sent && add_whole(client, spread, request->sent, record);
    if (!sent) {
        client->held = record;
    }
    client_note_end(client);
    client_spread_free(spread, 0);
    if (!sent) {
        client_out_of_memory(client);
    } else if (route->own_writes) {
        /* Redis takes nothing from who waits. */
        client->waits_for_nodes = true;
        (void)client_wait_for(client, CLIENT_WAIT_QUIET);
    }
    return CLIENT_TAKEN;
}

bool client_spread_hang_up(struct client *client)
{
    /* Nothing is taken behind it, so its last run is the client's. */
    const struct spread *spread = client->waits_for_nodes && client->last != NULL ? client->last->spread : NULL;

    if (spread == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < spread->count; i++) {
        struct lane *lane = spread->parts[i].lane;
        if (lane != NULL && lane_is_unreachable(lane)) {
            client_end(client, "it has gone while it waited for replicas");
            return true;
        }
        if (lane != NULL && !lane->ending) {
            lane_end_output(lane);
        }
    }
    return true;
}

/* ---- replies ---- */

static struct slice reply_of(const struct spread *spread, uint32_t place)
{
    const struct buffer *reply = &spread->parts[place].reply;

    return (struct slice){buffer_head(reply), buffer_length(reply)};
}

/* Whether WAIT was asked of a node that is no master any more, which is not known here yet. */
static bool has_stepped_down(const struct spread *spread)
{
    bool has = false;

    for (uint32_t i = 0; spread->waits && i < spread->count && !has; i++) {
        has = slice_begins(reply_of(spread, i), "-ERR WAIT cannot be used with replica") ||
              slice_begins(reply_of(spread, i), "-ERR WAITAOF cannot be used with replica");
    }
    return has;
}

static void write_whole(struct spread *spread, FILE *out)
{
    struct slice replies[CLUSTER_NODES_MAX + 1];

    if (spread->is_gone || has_stepped_down(spread)) {
        fputs(none_of(spread->plan), out);
    } else if (spread->split != NULL) {
        for (uint32_t i = 0; i < spread->count; i++) {
            cluster_split_take(spread->split, i, reply_of(spread, i));
        }
        cluster_split_write(spread->split, out);
    } else if (spread->is_scan) {
        cluster_scan_write_reply(spread->service->cluster->map, clock_now_us(), &spread->cursor, reply_of(spread, 0),
                                 out);
    } else {
        for (uint32_t i = 0; i < spread->count; i++) {
            replies[i] = reply_of(spread, i);
        }
        cluster_merge(spread->plan->merge, replies, spread->count, (uint64_t)clock_now_us(), out);
    }
}

/* Whether some nodes have done what others have not. */
static bool is_in_parts(const struct spread *spread)
{
    uint32_t errors = 0;

    for (uint32_t i = 0; i < spread->count; i++) {
        errors += slice_begins(reply_of(spread, i), "-");
    }
    return errors > 0 && errors < spread->count;
}

static void measure_whole(struct client *client, struct run *run, const struct resp_reply *reply)
{
    const struct run_tally tally = {.count = 1, .errors = reply->type == '-', .bytes = run->reply_bytes};

    if (run->spans != NULL) {
        client_measure_replies(client, run, &tally, reactor_read_time(client->service->reactor));
    }
}

/* What the reply as a whole means to Headgate, and to the policies. */
static void note_whole(struct client *client, struct run *run, struct slice text)
{
    struct spread *spread = run->spread;
    struct resp_reply reply = {.keep_head = true};
    size_t taken;

    bool is_read = resp_reply_feed(&reply, text.data, text.length, &taken) == RESP_DONE;
    if (spread->expected != NULL && is_read) {
        (void)session_reply(client, spread->expected, &reply);
    }
    if (client->state != CLIENT_CLOSED) {
        run->reply_bytes = text.length;
        measure_whole(client, run, &reply);
        client_end_policies(client, run, is_in_parts(spread) ? POLICY_OUTCOME_LOST : POLICY_OUTCOME_REPLY, &reply);
    }
}

bool client_spread_advance(struct client *client, struct run *run)
{
    struct spread *spread = run->spread;
    bool is_whole = run->part == spread->count;
    struct text_stream text;

    if (!is_whole) {
        if (run->lane != NULL || run->answered < run->requests) {
            return false;
        }
        spread->parts[run->part].reply = run->text;
        run->text = (struct buffer){0};
        return true;
    }
    if (!text_open(&text)) {
        return client_out_of_memory(client);
    }
    write_whole(spread, text.out);
    if (!text_close(&text)) {
        text_free(&text);
        return client_out_of_memory(client);
    }
    client->waits_for_nodes = false;
    note_whole(client, run, (struct slice){text.bytes, text.length});
    if (client->state == CLIENT_CLOSED) {
        text_free(&text);
        return false;
    }
    drop_replies(spread);
    client_output(client, text.bytes, text.length, false);
    text_free(&text);
    return client->state != CLIENT_CLOSED;
}
