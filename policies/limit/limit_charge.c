/* What a request is charged with. */
#include "limit/limit_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what hangs from a client ---- */

void limit_give_up_seats(struct limit *limit, struct limit_client *client)
{
    for (size_t i = 0; client->seats != NULL && i < limit->rule_count; i++) {
        if (client->seats[i].bucket != NULL) {
            limit_bucket_unpin(limit->share, client->seats[i].bucket);
        }
    }
    free(client->seats);
    client->seats = NULL;
}

static struct limit_client *add_client(struct limit *limit)
{
    struct limit_client *client = calloc(1, sizeof *client);

    if (client != NULL) {
        LIST_INSERT_HEAD(&limit->clients, client, of_limit);
    }
    return client;
}

void limit_remove_client(struct limit *limit, struct limit_client *client)
{
    limit_give_up_seats(limit, client);
    LIST_REMOVE(client, of_limit);
    free(client);
}

/* The seats of the client as it is now; NULL when memory is short. */
static struct limit_seat *take_seats(struct limit *limit, const struct policy_request *request)
{
    struct limit_client *client = *request->attachment;

    if (client == NULL) {
        client = add_client(limit);
        *request->attachment = client;
    }
    if (client == NULL || (client->seats != NULL && client->identity == request->client->identity)) {
        return client != NULL ? client->seats : NULL;
    }
    limit_give_up_seats(limit, client);
    client->seats = calloc(limit->rule_count, sizeof *client->seats);
    client->identity = request->client->identity;
    for (size_t i = 0; client->seats != NULL && i < limit->rule_count; i++) {
        client->seats[i].excepted = match_clients_is(limit->rules[i].except, request->client);
    }
    return client->seats;
}

/* ---- charges ---- */

/* False when memory is short. */
static bool add_charge(struct limit *limit, struct limit_charge charge)
{
    if (limit->charge_count == limit->charge_room) {
        size_t room = limit->charge_room > 0 ? limit->charge_room * 2 : 16;
        struct limit_charge *charges = realloc(limit->charges, room * sizeof *charges);
        if (charges == NULL) {
            return false;
        }
        limit->charges = charges;
        limit->charge_room = room;
    }
    limit->charges[limit->charge_count++] = charge;
    return true;
}

static struct limit_bucket *pin_bucket(struct limit *limit, struct limit_rule *rule, struct slice name, int64_t now_us)
{
    struct limit_bucket *bucket = limit_bucket_pin(limit->share, rule->member.bucket_table, name, now_us);

    if (bucket != NULL && !limit_bucket_is_tracked(bucket)) {
        policy_count(&limit->counters[LIMIT_COUNTER_UNTRACKED], 1);
    }
    return bucket;
}

static int64_t cost_in_bytes(const struct policy_request *request, bool *is_open)
{
    uint64_t bytes;

    *is_open = !match_request_bytes(request, &bytes);
    return (int64_t)bytes;
}

/* Redis is asked about so many different keys of one request at most: each takes some KiB until it has answered. Beyond
 * that on_error decides on what was seen so far. */
#define ASKED_MAX ((size_t)1000)

/* The keys of a request as a rule sees them. */
struct key_search {
    struct limit *limit;
    struct limit_rule *rule;
    int64_t now_us;
    int64_t cost; /* of each bucket, unless keys are counted */
    bool is_cost_open;
    int64_t found;               /* keys that are meant */
    size_t first, merge_at;      /* charges: the first of the rule, and with how many in all they are merged */
    bool is_over, out_of_memory; /* the search was ended: by ASKED_MAX, or by this */
    size_t name_length;          /* of the client's part of the name */
    char name[LIMIT_BUCKET_MAX];
};

static int by_bucket(const void *left, const void *right)
{
    uintptr_t a = (uintptr_t)((const struct limit_charge *)left)->bucket;
    uintptr_t b = (uintptr_t)((const struct limit_charge *)right)->bucket;

    return (a > b) - (a < b);
}

/* A bucket that several keys of the request stand for is charged once, or with the number of these keys. */
static void merge_charges(struct limit *limit, size_t first, bool add)
{
    size_t kept = first;

    qsort(limit->charges + first, limit->charge_count - first, sizeof limit->charges[0], by_bucket);
    for (size_t i = first + 1; i < limit->charge_count; i++) {
        struct limit_charge *charge = &limit->charges[i];
        if (by_bucket(charge, &limit->charges[kept]) == 0) {
            limit->charges[kept].cost += add ? charge->cost : 0;
            limit_bucket_unpin(limit->share, charge->bucket);
        } else {
            limit->charges[++kept] = *charge;
        }
    }
    limit->charge_count = kept + 1;
}

/* False when memory is short. */
static bool charge_part(struct key_search *search, struct slice counted)
{
    size_t length = limit_name_key(search->name, search->name_length, counted);
    struct limit_bucket *bucket =
        pin_bucket(search->limit, search->rule, (struct slice){search->name, length}, search->now_us);
    struct limit_charge charge = {.rule = search->rule,
                                  .bucket = bucket,
                                  .cost = search->cost,
                                  .is_cost_open = search->is_cost_open,
                                  .pinned = true};
    search->found++;
    if (bucket == NULL || !add_charge(search->limit, charge)) {
        search->out_of_memory = true;
        if (bucket != NULL) {
            limit_bucket_unpin(search->limit->share, bucket);
        }
    }
    if (search->limit->charge_count == search->merge_at) {
        merge_charges(search->limit, search->first, search->rule->cost == LIMIT_COST_KEYS);
        search->is_over =
            search->rule->scope == LIMIT_GLOBAL && search->limit->charge_count > search->first + ASKED_MAX;
        search->merge_at = search->first + 2 * (search->limit->charge_count - search->first) + 1024;
    }
    return !search->out_of_memory && !search->is_over;
}

static bool charge_key(void *context, struct slice key, uint32_t argument_index)
{
    struct key_search *search = context;
    struct slice counted;

    (void)argument_index;
    return !match_keys_part(search->rule->keys, key, &counted) || charge_part(search, counted);
}

static bool count_key(void *context, struct slice key, uint32_t argument_index)
{
    struct key_search *search = context;

    (void)argument_index;
    search->found += match_keys_is(search->rule->keys, key);
    return true;
}

/* Whole users share one limit then, which nobody has asked for: it is said once. */
static void warn_of_untold(struct limit *limit, const struct limit_rule *rule, const struct policy_peer *peer)
{
    char who[64] = "processes that cannot be told", text[512];

    if (!limit_bucket_table_is_first_untold(rule->member.bucket_table, peer->has_uid)) {
        return;
    }
    if (peer->has_uid) {
        snprintf(who, sizeof who, "all of user %lu that cannot be told", (unsigned long)peer->uid);
    }
    snprintf(text, sizeof text,
             "per = process, but the process of a client cannot be told (%s): %s share one limit; use a Unix socket, "
             "run as that user, or see \"Processes and users of this machine\" in docs/limits.md",
             peer->why, who);
    limit->host->warn(limit->host->context, rule->name, text);
}

/* The name of the client's bucket; *settled is set to false if it is not known yet, but stands for it until then. */
static size_t name_client(struct limit *limit, const struct limit_rule *rule, const struct policy_request *request,
                          char name[LIMIT_BUCKET_MAX], bool *settled)
{
    const struct policy_host *host = limit->host;
    struct policy_peer peer = {.has_uid = false};

    *settled = !limit_name_wants_peer(rule) || host->find_peer(host->context, request->client->connection,
                                                               rule->per.process, &peer) == POLICY_PEER_TOLD;
    if (*settled && limit_name_lacks_process(rule, request->client, &peer)) {
        warn_of_untold(limit, rule, &peer);
    }
    return limit_name_client(rule, request->client, &peer, host->host_name, name);
}

/* False when memory is short. */
static bool charge_keys(struct limit *limit, struct limit_rule *rule, const struct policy_request *request)
{
    struct key_search search = {.limit = limit, .rule = rule, .now_us = request->now_us, .cost = 1};

    search.first = limit->charge_count;
    search.merge_at = search.first + 1024;
    if (rule->cost == LIMIT_COST_BYTES) {
        search.cost = cost_in_bytes(request, &search.is_cost_open);
    }
    bool settled;
    search.name_length = name_client(limit, rule, request, search.name, &settled);
    limit->awaits_keys = !match_visit_keys(request, charge_key, &search) || limit->awaits_keys;
    if (limit->charge_count > search.first + 1) {
        merge_charges(limit, search.first, rule->cost == LIMIT_COST_KEYS);
    }
    for (size_t i = search.first; search.is_over && i < limit->charge_count; i++) {
        limit->charges[i].is_not_asked = true;
    }
    return !search.out_of_memory;
}

/* How many keys a long request has, if its head tells; 0: it does not. */
static int64_t keys_announced(const struct policy_request *request)
{
    const struct command *command = request->command;

    if (command == NULL || command->keys != COMMAND_KEYS_RANGE || command->first_key == 0) {
        return 0;
    }
    int64_t last = command->last_key + (command->last_key < 0 ? (int64_t)request->argument_count : 0);
    return last < command->first_key ? 0 : (last - command->first_key) / command->key_step + 1;
}

/* What the request costs by the rule; 0: the rule does not mean it. *is_open: it may be more in the end; and if that is
 * because of its keys, limit->awaits_keys is set. */
static int64_t cost_of(struct limit *limit, struct limit_rule *rule, const struct policy_request *request,
                       bool *is_open)
{
    struct key_search search = {.rule = rule};

    *is_open = false;
    if (rule->cost == LIMIT_COST_KEYS) {
        int64_t announced = request->partial && match_keys_all(rule->keys) ? keys_announced(request) : 0;
        if (announced > 0 && (request->command->categories & CATEGORY_PUBSUB) == 0) {
            return announced;
        }
        limit->awaits_keys = !match_visit_keys(request, count_key, &search) || limit->awaits_keys;
        return search.found;
    }
    enum match_answer answer = match_keys_any(rule->keys, request);
    limit->awaits_keys = limit->awaits_keys || answer == MATCH_OPEN;
    if (answer != MATCH_YES) {
        return 0;
    }
    return rule->cost == LIMIT_COST_BYTES ? cost_in_bytes(request, is_open) : 1;
}

/* False when memory is short. */
static bool charge_client(struct limit *limit, struct limit_rule *rule, struct limit_seat *seat,
                          const struct policy_request *request)
{
    struct limit_charge charge = {.rule = rule, .bucket = seat->bucket};

    charge.cost = cost_of(limit, rule, request, &charge.is_cost_open);
    if (charge.cost > 0 && charge.bucket == NULL) {
        char name[LIMIT_BUCKET_MAX];
        bool settled;
        size_t length = name_client(limit, rule, request, name, &settled);
        charge.bucket = pin_bucket(limit, rule, (struct slice){name, length}, request->now_us);
        if (charge.bucket == NULL) {
            return false;
        }
        /* A client without room looks for it again the next time, and so does one whose process is still looked for. */
        charge.pinned = !limit_bucket_is_tracked(charge.bucket) || !settled;
        seat->bucket = charge.pinned ? NULL : charge.bucket;
    }
    return charge.cost == 0 || add_charge(limit, charge);
}

bool limit_awaits_peer(struct limit *limit, const struct policy_request *request)
{
    const struct policy_host *host = limit->host;
    const struct limit_client *client = *request->attachment;
    size_t command = request->command != NULL ? command_index(request->command) : command_count();
    bool has_seats = client != NULL && client->seats != NULL && client->identity == request->client->identity;
    struct policy_peer peer;

    for (size_t i = limit->starts[command]; i < limit->starts[command + 1]; i++) {
        const struct limit_rule *rule = &limit->rules[limit->numbers[i]];
        const struct limit_seat *seat = has_seats ? &client->seats[limit->numbers[i]] : NULL;
        bool is_settled = seat != NULL && (seat->bucket != NULL || seat->excepted);
        bool is_meant = rule->per.process && !is_settled && match_commands_request(rule->commands, request) &&
                        match_keys_any(rule->keys, request);
        if (is_meant && host->find_peer(host->context, request->client->connection, true, &peer) == POLICY_PEER_LATER) {
            return true;
        }
    }
    return false;
}

/* Finds what the request is to be charged with. False when memory is short. */
static bool find_charges(struct limit *limit, const struct policy_request *request)
{
    size_t command = request->command != NULL ? command_index(request->command) : command_count();
    struct limit_seat *seats = take_seats(limit, request);
    bool found = seats != NULL;

    for (size_t i = limit->starts[command]; found && i < limit->starts[command + 1]; i++) {
        struct limit_rule *rule = &limit->rules[limit->numbers[i]];
        struct limit_seat *seat = &seats[limit->numbers[i]];
        if (!seat->excepted && match_commands_request(rule->commands, request)) {
            found = rule->per.key ? charge_keys(limit, rule, request) : charge_client(limit, rule, seat, request);
        }
    }
    return found;
}

void limit_drop_charges(struct limit *limit)
{
    for (size_t i = 0; i < limit->charge_count; i++) {
        if (limit->charges[i].pinned) {
            limit_bucket_unpin(limit->share, limit->charges[i].bucket);
        }
    }
    limit->charge_count = 0;
    limit->awaits_keys = false;
}

static limit_locks locks_of_charges(const struct limit *limit)
{
    limit_locks locks = 0;

    for (size_t i = 0; i < limit->charge_count; i++) {
        locks |= limit_bucket_locks(limit->charges[i].bucket);
    }
    return locks;
}

/* Whether the charges can be relied on. A bucket that was revoked is looked for anew. */
static bool are_charges_valid(const struct limit *limit)
{
    for (size_t i = 0; i < limit->charge_count; i++) {
        if (limit->charges[i].bucket->revoked) {
            return false;
        }
    }
    return true;
}

/* Finds the charges and locks them. False, and nothing is locked, when memory is short. */
bool limit_lock_charges(struct limit *limit, const struct policy_request *request, limit_locks *locks)
{
    for (;;) {
        if (!find_charges(limit, request)) {
            return false;
        }
        *locks = locks_of_charges(limit);
        limit_share_lock(limit->share, *locks);
        if (are_charges_valid(limit)) {
            return true;
        }
        limit_share_unlock(limit->share, *locks);
        limit_drop_charges(limit);
        limit_give_up_seats(limit, *request->attachment);
    }
}
