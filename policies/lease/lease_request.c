/*
 * What a request is about to do to leases: written down before it is forwarded, so that nothing is renewed while it may
 * release something, and so that its reply can be told what it means.
 *
 * Within MULTI requests are kept until EXEC is forwarded, which is when they can come about.
 */
#include "base/fnv.h"
#include "lease/lease_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the request is ---- */

/* What is looked at, and what has been found out. */
struct reading {
    struct lease_worker *worker;
    struct lease_client *client;
    const struct policy_request *request;
    struct lease_shape shape;
    const struct lease_rule *rule; /* of the first key */
    int64_t lease_us;
    struct lease_score score;
};

static const struct lease_script *look_up_script(void *context, struct slice digest)
{
    const struct lease_worker *worker = context;

    return lease_registry_script(worker->registry, digest);
}

/* Remembers a text that is none of a known script, but means something. */
static void learn(struct lease_worker *worker, const struct lease_client *client, const struct policy_request *request)
{
    char digest[LEASE_DIGEST_LENGTH + 1];
    struct slice text;

    if (!lease_shape_text(request->command, request->frame, &text)) {
        return;
    }
    const struct lease_script *script = lease_shape_learn(text);
    if (script != NULL && script->digest == NULL) {
        lease_shape_digest(text, digest);
        lease_registry_lock(worker->registry);
        lease_registry_learn(worker->registry, digest, script, client->user);
        lease_registry_unlock(worker->registry);
    }
}

/* The score of a script that says its lease, too. */
static bool read_script_score(struct reading *reading, double value, int64_t wall_us)
{
    static const int64_t units[] = {
        [LEASE_SCORE_SECONDS] = 1000000, [LEASE_SCORE_MILLISECONDS] = 1000, [LEASE_SCORE_MICROSECONDS] = 1};
    enum lease_score_unit said = reading->rule->unit;

    reading->score = (struct lease_score){
        .value = value,
        .unit_us = said != LEASE_SCORE_UNIT_AUTO ? units[said] : lease_score_unit(value, wall_us),
        .kind = reading->shape.kind,
        .lease_us = reading->lease_us,
    };
    return reading->score.unit_us > 0 && reading->lease_us > 0;
}

static const double *reaped_before(const struct reading *reading, uint64_t key_hash)
{
    const struct lease_reap *reap = &reading->client->reap;

    return reap->known && reap->key_hash == key_hash ? &reap->bound : NULL;
}

/* Not for finding anything by: a wrong bound makes no more than a wrong lease. */
static uint64_t hash_name(struct slice name)
{
    return fnv(name.data, name.length);
}

/* Redis itself reckons the score: what it is like is known, and Redis will say the rest. */
static bool guess_score(struct reading *reading, int64_t wall_us)
{
    bool expires = reading->shape.kind == LEASE_SEMAPHORE_BY_EXPIRY;
    double guess_ms = (double)(wall_us + (expires ? reading->lease_us : 0)) / 1000;
    bool is_sound = read_script_score(reading, guess_ms, wall_us);

    reading->score.unit_us = 1000;
    reading->score.guessed = true;
    return is_sound;
}

/* False: it is no time, or not what the rule speaks of. */
static bool read_score(struct reading *reading)
{
    const struct policy_host *host = reading->worker->host;
    struct lease_shape *shape = &reading->shape;
    int64_t wall_us = host->wall_us(host->context);
    double value;

    if (shape->script != NULL && shape->script->score == 0) {
        return guess_score(reading, wall_us);
    }
    if (!lease_score_read(shape->score, &value)) {
        return false;
    }
    if (shape->action != LEASE_SCORE) {
        return read_script_score(reading, value, wall_us);
    }
    const double *reaped = reaped_before(reading, hash_name(shape->key));
    bool told = lease_score_tell(&reading->score, reading->rule, value, reaped, wall_us);
    /* It belongs to the ZADD behind it: of a later one it would make a longer lease each time. */
    reading->client->reap.known = reading->client->reap.known && reaped == NULL;
    if (!told) {
        return false;
    }
    shape->kind = reading->score.kind;
    reading->lease_us = reading->score.lease_us;
    return true;
}

static void remember_reap(const struct reading *reading)
{
    struct lease_reap *reap = &reading->client->reap;

    reap->known = lease_score_read(reading->shape.score, &reap->bound);
    reap->key_hash = hash_name(reading->shape.key);
}

/* Whether what takes or extends a lock is of one that is watched. */
static bool is_watched(struct reading *reading)
{
    const struct lease_shape *shape = &reading->shape;

    if (reading->rule == NULL || !lease_rule_watches(reading->rule, shape->kind) ||
        lease_rule_care(reading->rule, shape->script, reading->lease_us / 1000) == LEASE_CARE_NEVER ||
        shape->key_count > LEASE_KEYS_MAX) {
        return false;
    }
    if (lease_kind_is_semaphore(shape->kind)) {
        return read_score(reading);
    }
    /* Only strings are taken without a lease; one that is over leaves nothing. */
    bool is_string = shape->kind == LEASE_STRING || shape->kind == LEASE_STRINGS;
    return reading->lease_us > 0 || (is_string && shape->expires_unit == LEASE_UNIT_NONE);
}

/* That the request will meet. */
static int64_t database_of(const struct reading *reading)
{
    const struct lease_client *client = reading->client;

    return client->queued_selects ? client->queued_database : reading->request->client->database;
}

static bool takes_or_extends(const struct lease_shape *shape)
{
    return shape->action == LEASE_ACQUIRE || shape->action == LEASE_SCORE || shape->action == LEASE_EXTEND;
}

/* ---- what it touches ---- */

/* Goes through what a request may change: pairs of a key and a token, where one of both may be the same for all. */
struct pairs {
    struct resp_walk keys;
    struct resp_walk tokens;
    uint32_t key_step;
    struct slice key;
    struct slice token; /* data NULL: any */
    uint32_t left;
    bool many_keys;
    bool many_tokens;
};

static struct pairs pairs_of(const struct lease_shape *shape)
{
    bool by_token = shape->action != LEASE_FORCE_RELEASE && shape->action != LEASE_EXPIRE &&
                    shape->action != LEASE_UNSEEN && shape->action != LEASE_WRITE;
    uint32_t tokens = by_token ? shape->token_count : 0;

    return (struct pairs){
        .keys = shape->keys,
        .tokens = shape->tokens,
        .key_step = shape->key_step,
        .token = {by_token ? "" : NULL, 0},
        .left = shape->key_count > tokens ? shape->key_count : tokens,
        .many_keys = shape->key_count > 1,
        .many_tokens = tokens > 1,
    };
}

static bool next_pair(struct pairs *pairs)
{
    bool is_first = pairs->key.data == NULL;

    if (pairs->left == 0) {
        return false;
    }
    pairs->left--;
    if ((is_first || pairs->many_keys) && !lease_shape_next_key(&pairs->keys, pairs->key_step, &pairs->key)) {
        return false;
    }
    bool wants_token = pairs->token.data != NULL && (is_first || pairs->many_tokens);
    return !wants_token || resp_walk_next(&pairs->tokens, &pairs->token);
}

/* Whether the lease on this key may be one that is on file, or is about to be. */
static bool concerns(const struct reading *reading, struct slice key)
{
    if (key.length > LEASE_TEXT_MAX || lease_rule_of(reading->worker, key) == NULL) {
        return false;
    }
    return reading->request->in_transaction ||
           lease_registry_expects(reading->worker->registry, database_of(reading), key);
}

/* Its key may be another than that of the ZADD before it. */
static bool is_rank_of_transaction(const struct reading *reading)
{
    return reading->shape.action == LEASE_RANK && reading->request->in_transaction;
}

static bool is_target(const struct reading *reading, const struct pairs *pair)
{
    if (pair->token.length > LEASE_TEXT_MAX) {
        return false;
    }
    bool counts_anyway = takes_or_extends(&reading->shape) || is_rank_of_transaction(reading);
    return counts_anyway ? pair->key.length <= LEASE_TEXT_MAX : concerns(reading, pair->key);
}

static char *keep(char *at, struct slice *kept, struct slice text)
{
    if (text.length > 0) {
        memcpy(at, text.data, text.length);
    }
    *kept = (struct slice){at, text.length};
    return at + text.length;
}

/* Counts the targets and their bytes; the registry is locked. */
static size_t count_targets(const struct reading *reading, size_t *bytes)
{
    struct pairs pairs = pairs_of(&reading->shape);
    size_t count = 0;

    *bytes = 0;
    while (next_pair(&pairs)) {
        if (is_target(reading, &pairs)) {
            count++;
            *bytes += pairs.key.length + pairs.token.length;
        }
    }
    return count;
}

static void keep_targets(const struct reading *reading, struct lease_request *kept)
{
    struct pairs pairs = pairs_of(&reading->shape);
    char *at = (char *)&kept->targets[kept->target_count];
    size_t count = 0;

    while (count < kept->target_count && next_pair(&pairs)) {
        struct lease_target *target = &kept->targets[count];
        if (!is_target(reading, &pairs)) {
            continue;
        }
        *target = (struct lease_target){.touch = {.releases = lease_action_releases(reading->shape.action)}};
        at = keep(at, &target->key, pairs.key);
        if (pairs.token.data != NULL) {
            at = keep(at, &target->touch.token, pairs.token);
        }
        count++;
    }
}

/* Whether there is room for it. If not it is as without memory. What is short weighs nothing by itself: how many there
 * are is bounded with what else is kept of a client's requests; what MULTI has queued is weighed together. */
static bool has_room(const struct reading *reading, size_t *weight, size_t bytes)
{
    struct lease_worker *worker = reading->worker;
    struct lease_client *client = reading->client;
    bool queues = reading->request->in_transaction;
    size_t all = queues ? client->queued_bytes + bytes : bytes;
    bool fits = lease_registry_weigh_request(worker->registry, &client->weight,
                                             queues ? &client->queued_weight : weight, all / 1024);

    client->queued_bytes = queues && fits ? all : client->queued_bytes;

    if (!fits) {
        lease_warn_of_bound(worker, reading->rule != NULL ? reading->rule->terms.rule : lease_section.name,
                            reading->shape.key, lease_owner_shown(reading->client));
    }
    return fits;
}

/* What is to be kept of the request, or NULL if it is of no interest (or there is no room for it). */
static struct lease_request *keep_request(const struct reading *reading)
{
    const struct lease_shape *shape = &reading->shape;
    size_t bytes = 0;
    size_t count = shape->every_key ? 0 : count_targets(reading, &bytes);
    struct lease_request *kept;

    bool suspects_all =
        shape->undeclared && (reading->request->in_transaction || !lease_registry_is_empty(reading->worker->registry));
    if (count == 0 && !shape->every_key && !suspects_all) {
        return NULL;
    }
    size_t size = sizeof *kept + count * sizeof kept->targets[0] + bytes, weight = 0;
    kept = has_room(reading, &weight, size) ? malloc(size) : NULL;
    if (kept == NULL) {
        (void)lease_registry_weigh_request(reading->worker->registry, &reading->client->weight, &weight, 0);
        return NULL;
    }
    *kept = (struct lease_request){
        .client = reading->client,
        .shape = *shape,
        .database = database_of(reading),
        .lease_us = reading->lease_us,
        .score = reading->score,
        .in_transaction = reading->request->in_transaction,
        .place = reading->client->queued_place,
        .selects = reading->client->queued_selects,
        .select_place = reading->client->select_place,
        .flushes = shape->every_key,
        .suspects_all = suspects_all,
        .target_count = count,
        .weight = weight,
    };
    if (reading->rule != NULL) {
        kept->terms = reading->rule->terms;
        kept->care = lease_rule_care(reading->rule, shape->script, reading->lease_us / 1000);
    }
    keep_targets(reading, kept);
    return kept;
}

/* ---- forwarding ---- */

/* From now on it may come about. The registry is locked. */
static void write_down(struct lease_worker *worker, struct lease_request *request, int64_t now_us)
{
    request->sequence = lease_registry_sequence(worker->registry);
    request->sent_us = now_us;
    if (request->suspects_all) {
        lease_registry_begin_unseen(worker->registry, request->database);
    }
    for (size_t i = 0; i < request->target_count; i++) {
        struct lease_target *target = &request->targets[i];
        target->touch.sequence = request->sequence;
        lease_registry_touch(worker->registry, &target->touch, request->database, target->key);
    }
}

static void queue(struct lease_client *client, struct lease_request *request)
{
    request->next = client->queued;
    client->queued = request;
}

static void begin_queue(struct lease_client *client)
{
    client->queued_place = 0;
    client->queued_bytes = 0;
    client->queued_weight = 0;
    client->queued_selects = false;
}

void lease_request_forget(struct lease_worker *worker, struct lease_client *client)
{
    if (client->queued_weight > 0) {
        lease_registry_lock(worker->registry);
        (void)lease_registry_weigh_request(worker->registry, &client->weight, &client->queued_weight, 0);
        lease_registry_unlock(worker->registry);
    }
    while (client->queued != NULL) {
        struct lease_request *request = client->queued;
        client->queued = request->next;
        free(request);
    }
    begin_queue(client);
}

/* In the order in which they will come about. */
static struct lease_request *take_queued(struct lease_client *client)
{
    struct lease_request *first = NULL;

    while (client->queued != NULL) {
        struct lease_request *request = client->queued;
        client->queued = request->next;
        request->next = first;
        request->of = client->queued_place;
        first = request;
    }
    if (first != NULL) {
        first->weight = client->queued_weight;
        client->queued_weight = 0;
    }
    return first;
}

/* Of a transaction that changes nothing but that what was WATCHed is so no more. NULL when memory is short. */
static struct lease_request *empty_request(struct lease_client *client)
{
    struct lease_request *request = malloc(sizeof *request);

    if (request != NULL) {
        *request = (struct lease_request){.client = client, .in_transaction = true};
    }
    return request;
}

static enum policy_verdict begin_transaction(struct lease_worker *worker, struct lease_client *client,
                                             const struct policy_request *request)
{
    struct lease_request *first = take_queued(client);

    lease_request_forget(worker, client);
    if (first == NULL && !LIST_EMPTY(&client->guards)) {
        first = empty_request(client);
    }
    if (first == NULL) {
        return POLICY_ADMIT;
    }
    lease_registry_lock(worker->registry);
    for (struct lease_request *queued = first; queued != NULL; queued = queued->next) {
        write_down(worker, queued, request->now_us);
    }
    lease_registry_unlock(worker->registry);
    *request->ticket = (uint64_t)(uintptr_t)first;
    return POLICY_PASS;
}

static enum policy_verdict begin_one(struct reading *reading)
{
    const struct policy_request *request = reading->request;
    bool queues = request->in_transaction;

    lease_registry_lock(reading->worker->registry);
    struct lease_request *kept = keep_request(reading);
    if (kept != NULL && !queues) {
        write_down(reading->worker, kept, request->now_us);
    }
    lease_registry_unlock(reading->worker->registry);
    if (kept == NULL) {
        return POLICY_ADMIT;
    }
    if (queues) {
        queue(reading->client, kept);
        return POLICY_ADMIT;
    }
    *request->ticket = (uint64_t)(uintptr_t)kept;
    return POLICY_PASS;
}

/* Whether a rule names one of the keys. */
static bool names_a_lock(const struct reading *reading)
{
    struct resp_walk keys = reading->shape.keys;
    struct slice key;

    while (lease_shape_next_key(&keys, reading->shape.key_step, &key)) {
        if (key.length <= LEASE_TEXT_MAX && lease_rule_of(reading->worker, key) != NULL) {
            return true;
        }
    }
    return false;
}

/* Whether the request may have to do with a lock that is watched; not a word of the registry yet. */
static bool is_of_interest(struct reading *reading)
{
    struct lease_shape *shape = &reading->shape;

    if (shape->action == LEASE_NOTHING || database_of(reading) < 0) {
        return false;
    }
    if (shape->every_key) {
        return true;
    }
    if (is_rank_of_transaction(reading)) {
        return reading->client->queued != NULL;
    }
    if (shape->action == LEASE_UNSEEN) {
        return shape->undeclared || names_a_lock(reading);
    }
    reading->rule = lease_rule_of(reading->worker, shape->key);
    if (shape->action == LEASE_REAP) {
        if (reading->rule != NULL) {
            remember_reap(reading);
        }
        return false;
    }
    if (takes_or_extends(shape)) {
        return is_watched(reading);
    }
    return reading->rule != NULL || shape->key_count > 1;
}

/* Most requests are of one key that no rule names: that is told first, as it is all that they cost. */
static bool is_elsewhere(const struct lease_worker *worker, const struct policy_request *request)
{
    const struct command *command = request->command;
    struct resp_walk arguments;
    struct slice key;

    return command->first_key == 1 && command->last_key == 1 && lease_shape_begin(&arguments, request->frame) &&
           resp_walk_next(&arguments, &key) && lease_rule_of(worker, key) == NULL &&
           !(request->in_transaction && strcmp(command->name, "zrank") == 0);
}

static bool is_one_of(const struct command *command, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strcmp(command->name, *names) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether a rule names its first key, and what is behind that is short enough to be a token. */
static bool may_take(const struct reading *reading)
{
    struct resp_walk arguments;
    struct slice key, token;
    uint64_t length;

    return lease_shape_begin(&arguments, reading->request->frame) && resp_walk_next(&arguments, &key) &&
           lease_rule_of(reading->worker, key) != NULL && resp_walk_part(&arguments, &token, &length) &&
           length <= LEASE_TEXT_MAX;
}

/*
 * A long request that is forwarded as it comes. What removes many keys is waited for, as a lock may be the last of
 * them, and so is what may take one. What sets a lock's key to a long value ends the lock, whatever else it is: Redis
 * is asked. A long script may have done so to any. For the rest it is as with a release that comes by another way: the
 * script for renewals finds out.
 */
static enum policy_verdict begin_partial(struct reading *reading)
{
    static const char *const removals[] = {"del", "unlink", "zrem", NULL};
    static const char *const scripts[] = {"eval", "evalsha", "fcall", NULL};
    const struct command *command = reading->request->command;
    struct lease_shape *shape = &reading->shape;

    if (is_one_of(command, removals) || (strncmp(command->name, "set", 3) == 0 && may_take(reading))) {
        return POLICY_WHOLE;
    }
    if (is_one_of(command, scripts)) {
        *shape = (struct lease_shape){.action = LEASE_UNSEEN, .undeclared = true};
        return begin_one(reading);
    }
    if (command->first_key != 1 || command->last_key != 1 ||
        !lease_shape_begin(&shape->keys, reading->request->frame) || shape->keys.left == 0) {
        return POLICY_ADMIT;
    }
    shape->keys.left = 1;
    shape->key_step = 1;
    shape->key_count = 1;
    shape->action = LEASE_FORCE_RELEASE;
    return begin_one(reading);
}

static int64_t lease_of(const struct lease_worker *worker, const struct lease_shape *shape)
{
    const struct policy_host *host = worker->host;
    bool is_date = shape->expires_unit != LEASE_UNIT_NONE;

    return lease_shape_ms(shape, is_date ? host->redis_us(host->context) / 1000 : 0) * 1000;
}

bool lease_request_concerns(const struct lease_worker *worker, const struct policy_glance *glance)
{
    const struct lease_client *client = glance->attachment;

    /* What was queued is given up with the next request outside of MULTI, whatever it is. */
    return client != NULL &&
           (client->queued != NULL || client->queued_place > 0 || lease_rule_of(worker, glance->key) != NULL);
}

/* What follows in the transaction meets another database. */
static void select_in_transaction(struct lease_client *client, const struct policy_request *request)
{
    struct resp_walk arguments;
    struct slice text;

    if (request->in_transaction && lease_shape_begin(&arguments, request->frame) && resp_walk_next(&arguments, &text) &&
        word_integer(text, &client->queued_database)) {
        client->queued_selects = true;
        client->select_place = client->queued_place;
    }
}

/* Of any command but EXEC. */
static enum policy_verdict begin_other(struct lease_worker *worker, struct lease_client *client,
                                       const struct policy_request *request, struct policy_decision *decision)
{
    enum command_kind kind = request->command->kind;

    if (kind == COMMAND_WATCH && !request->in_transaction) {
        return request->partial ? POLICY_WHOLE : lease_guard_begin(worker, client, request, decision);
    }
    if (kind == COMMAND_DISCARD || kind == COMMAND_RESET || (kind == COMMAND_UNWATCH && !request->in_transaction)) {
        lease_guard_end(worker, client, UINT64_MAX);
        return POLICY_ADMIT;
    }
    if (kind == COMMAND_SELECT) {
        select_in_transaction(client, request);
        return POLICY_ADMIT;
    }
    if (is_elsewhere(worker, request)) {
        return POLICY_ADMIT;
    }
    struct reading reading = {.worker = worker, .client = client, .request = request};
    if (request->partial) {
        return begin_partial(&reading);
    }
    learn(worker, client, request);
    lease_shape_read(&reading.shape, request->command, request->frame, look_up_script, worker);
    reading.lease_us = lease_of(worker, &reading.shape);
    if (reading.shape.action == LEASE_EXPIRE && reading.lease_us == 0) {
        /* A date that is past deletes the key, and one that is too far away leaves nothing to renew. */
        reading.shape.action = LEASE_FORCE_RELEASE;
    }
    if (!is_of_interest(&reading)) {
        return POLICY_ADMIT;
    }
    return begin_one(&reading);
}

enum policy_verdict lease_request_begin(struct lease_worker *worker, const struct policy_request *request,
                                        struct policy_decision *decision)
{
    struct lease_client *client = *request->attachment;
    enum command_kind kind = request->command->kind;

    if (client == NULL) {
        return POLICY_ADMIT;
    }
    if (!request->in_transaction || kind == COMMAND_DISCARD) {
        /* What was queued was given up. */
        lease_request_forget(worker, client);
    }
    if (kind == COMMAND_EXEC && request->in_transaction) {
        return begin_transaction(worker, client, request);
    }
    enum policy_verdict verdict = begin_other(worker, client, request, decision);
    /* A long one that is waited for comes again. */
    client->queued_place += request->in_transaction && verdict != POLICY_WHOLE;
    return verdict;
}
