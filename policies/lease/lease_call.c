/* The scripts that are run for a lease, and what their replies say of it. */
#include "lease/lease_private.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the scripts reply first; the second is the time to live in ms. */
enum code {
    CODE_OTHER_TYPE = -4,
    CODE_SHORTENED = -3,
    CODE_PERSISTED = -2,
    CODE_TAKEN = -1,
    CODE_GONE = 0,
    CODE_DONE = 1,
    CODE_DEFERRED = 2
};

/* How much a time to live may differ from what is expected: the times of a request on its way are in it. */
#define SLACK_LEAST_US INT64_C(50000)
#define FAILURE_PATIENCE_LEAST_US INT64_C(100000)
#define FAILURE_PATIENCE_MOST_US INT64_C(1000000)
/* How long what is under way may explain that a lock is gone. */
#define MISSED_PATIENCE_US INT64_C(1000000)
/* An expectation that nothing contradicts. */
#define ANY_SLACK_MS (INT64_C(1) << 53)

struct lease_call {
    struct lease_worker *worker;
    lease_call_done *done;
    struct lease *lease;
    enum lease_script_operation operation;
    uint64_t tick;
    uint64_t sequence; /* of the request that took the lease */
    uint64_t proved;
    uint64_t asked; /* the last number of a request by then */
    int64_t sent_us;
    int64_t lease_us;  /* RENEW: what it gets */
    int64_t scored_us; /* RENEW of a semaphore: the time that the new score stands for */
    double score;
    int64_t database;
    const struct script *script;
    size_t key_count;
    size_t argument_count;
    struct slice arguments[POLICY_SCRIPT_ARGUMENTS_MAX];
    char *end; /* of what is written in bytes */
    char bytes[];
};

/* ---- making up ---- */

/* Numbers and scores of one call. */
#define NUMBERS_MAX ((size_t)256)
/* ":rwlock_timeout:" and a number. */
#define HOLD_SUFFIX_MAX ((size_t)32)

static bool is_hash(const struct lease *lease)
{
    return lease->kind == LEASE_HASH || lease->kind == LEASE_READ_LOCK;
}

static const char *script_name(const struct lease *lease, enum lease_script_operation operation)
{
    if (operation == LEASE_OPERATION_HEAL) {
        return "lease_heal";
    }
    if (operation == LEASE_OPERATION_RELEASE) {
        return lease_kind_is_semaphore(lease->kind) ? "lease_release_zset"
               : is_hash(lease)                     ? "lease_release_hash"
                                                    : "lease_release";
    }
    return lease_kind_is_semaphore(lease->kind) ? "lease_renew_zset"
           : is_hash(lease)                     ? "lease_renew_hash"
                                                : "lease_renew_string";
}

static void add_text(struct lease_call *call, struct slice text)
{
    if (text.length > 0) {
        memcpy(call->end, text.data, text.length);
    }
    call->arguments[call->argument_count++] = (struct slice){call->end, text.length};
    call->end += text.length;
}

static void add_number(struct lease_call *call, int64_t number)
{
    int length = snprintf(call->end, 24, "%" PRId64, number);

    call->arguments[call->argument_count++] = (struct slice){call->end, (size_t)length};
    call->end += length;
}

static void add_score(struct lease_call *call, double score)
{
    size_t length = lease_score_write(call->end, score);

    call->arguments[call->argument_count++] = (struct slice){call->end, length};
    call->end += length;
}

static void write(struct lease_call *call, const char *data, size_t length)
{
    if (length > 0) {
        memcpy(call->end, data, length);
        call->end += length;
    }
}

/* Redisson's names for the holds of a reader: {name}:owner:rwlock_timeout:n, and without braces if the name has some.
 */
static void add_holds(struct lease_call *call, const struct lease *lease)
{
    const struct lease_key *key = lease->members[0].key;
    size_t brace = key->length > 0 && memchr(key->name, '{', key->length) != NULL ? 0 : 1;

    for (uint32_t n = 1; n <= lease->holds; n++) {
        const char *start = call->end;
        write(call, "{", brace);
        write(call, key->name, key->length);
        write(call, "}", brace);
        write(call, ":", 1);
        write(call, lease->token.data, lease->token.length);
        call->end += snprintf(call->end, HOLD_SUFFIX_MAX, ":rwlock_timeout:%" PRIu32, n);
        call->arguments[call->argument_count++] = (struct slice){start, (size_t)(call->end - start)};
    }
}

static void add_keys(struct lease_call *call, const struct lease *lease)
{
    for (size_t i = 0; i < lease->key_count; i++) {
        const struct lease_key *key = lease->members[i].key;
        add_text(call, (struct slice){key->name, key->length});
    }
    if (lease->kind == LEASE_READ_LOCK) {
        add_holds(call, lease);
    }
    call->key_count = call->argument_count;
}

static int64_t slack_us(const struct lease *lease)
{
    int64_t part = lease->lease_us / LEASE_SLACK_PART;

    return part > SLACK_LEAST_US ? part : SLACK_LEAST_US;
}

static int64_t to_ms(int64_t time_us)
{
    return time_us / 1000;
}

/*
 * The lease and, of a semaphore, the score that a renewal gives: never beyond the deadline, and never a lower one.
 *
 * Who asks for its rank is put behind those with a lower score. The score of a permit that is renewed to now would be
 * higher than that of a newcomer whose clock is a little behind, or who has read it a little before: it would get the
 * permit, too. So the score stays as old as it may: as far from now as from those that are swept up.
 */
static void reckon_renewal(struct lease_call *call, const struct lease *lease)
{
    int64_t left = lease_deadline_us(lease) - call->sent_us;
    int64_t most = lease->ranked ? lease->lease_us - lease_margin_us(lease) : lease->lease_us;
    int64_t present = lease->expires_us - call->sent_us;

    call->lease_us = most < left ? most : left;
    if (lease->ranked && call->lease_us < present) {
        call->lease_us = present;
    }
    call->scored_us = call->sent_us - (lease->lease_us - call->lease_us);
    call->score = lease_score_later(&lease->score, call->scored_us - lease->scored_us);
}

static void add_renewal(struct lease_call *call, const struct lease *lease)
{
    reckon_renewal(call, lease);
    int64_t lease_ms = to_ms(call->lease_us) > 0 ? to_ms(call->lease_us) : 1;
    if (lease_kind_is_semaphore(lease->kind)) {
        add_score(call, call->score);
        add_score(call, lease->score.value);
        add_number(call, lease_ms);
    } else {
        /* The last renewal before the process ends is for those, too, that somebody else has extended. */
        bool is_any = call->worker->last_round || lease->state == LEASE_DOUBTFUL;
        int64_t above_us = is_any ? LEASE_MS_MAX * 1000 : lease->vague_us;
        add_number(call, lease_ms);
        add_number(call, to_ms(lease->expires_us + above_us / 2 - call->sent_us));
        add_number(call, to_ms(slack_us(lease) + above_us / 2));
    }
}

/* The same scripts, so that they change nothing. */
static void add_check(struct lease_call *call, const struct lease *lease)
{
    if (lease_kind_is_semaphore(lease->kind)) {
        add_score(call, lease->score.value);
        add_score(call, lease->score.value);
        add_number(call, 1);
    } else {
        add_number(call, 1);
        add_number(call, 0);
        add_number(call, ANY_SLACK_MS);
    }
}

/* What the lock is like if its owner has not come back to it. */
static void add_farewell(struct lease_call *call, const struct lease *lease)
{
    int64_t most_ms = to_ms(lease->expires_us + lease->vague_us + SLACK_LEAST_US - call->sent_us);

    if (!lease_kind_is_semaphore(lease->kind)) {
        add_number(call, most_ms > 0 ? most_ms : 0);
    } else if (lease->score.guessed) {
        add_text(call, (struct slice){"", 0});
    } else {
        add_score(call, lease->score.value);
    }
}

static size_t bytes_of(const struct lease *lease)
{
    size_t bytes = NUMBERS_MAX + lease->token.length + (lease->companion != NULL ? strlen(lease->companion) : 0);

    for (size_t i = 0; i < lease->key_count; i++) {
        bytes += lease->members[i].key->length;
    }
    size_t hold = lease->members[0].key->length + lease->token.length + HOLD_SUFFIX_MAX + 3;
    return lease->kind == LEASE_READ_LOCK ? bytes + hold * lease->holds : bytes;
}

/* What has no time to live gets that of its rule, and does not live beyond the longest hold. */
static int64_t ttl_ms(const struct lease_call *call, const struct lease *lease)
{
    int64_t left_us = lease_deadline_us(lease) - call->sent_us;
    int64_t ttl_us = lease->terms.ttl_us < left_us ? lease->terms.ttl_us : left_us;

    return to_ms(ttl_us) > 0 ? to_ms(ttl_us) : 1;
}

static void add_script_operation(struct lease_call *call, const struct lease *lease)
{
    switch (call->operation) {
    case LEASE_OPERATION_RENEW:
        add_renewal(call, lease);
        break;
    case LEASE_OPERATION_CHECK:
        add_check(call, lease);
        break;
    case LEASE_OPERATION_HEAL:
        add_number(call, ttl_ms(call, lease));
        break;
    case LEASE_OPERATION_RELEASE:
        add_farewell(call, lease);
        break;
    }
}

struct lease_call *lease_call_prepare(struct lease_worker *worker, struct lease *lease,
                                      enum lease_script_operation operation)
{
    struct lease_call *call = malloc(sizeof *call + bytes_of(lease));

    if (call == NULL) {
        return NULL;
    }
    call->worker = worker;
    call->lease = lease;
    call->operation = operation;
    call->sequence = lease->sequence;
    call->proved = lease->proved;
    call->asked = lease_registry_last(worker->registry);
    call->sent_us = lease_now(worker);
    call->database = lease->members[0].key->database;
    call->script = script_find(script_name(lease, operation));
    call->argument_count = 0;
    call->end = call->bytes;
    add_keys(call, lease);
    add_text(call, lease->token);
    add_script_operation(call, lease);
    if (lease->companion != NULL) {
        add_text(call, slice_of(lease->companion));
    }
    lease->calling = true;
    lease->called_us = call->sent_us;
    worker->calls++;
    worker->fresh_calls++;
    call->tick = worker->ticks;
    return call;
}

/* ---- replies; the registry is locked ---- */

/* Nothing is known yet: it is tried again until the lease must be over. */
static void fail(struct lease_worker *worker, struct lease *lease)
{
    int64_t now = lease_now(worker);
    int64_t patience = lease->lease_us / 8;

    lease->failures++;
    lease->reason = LEASE_REASON_FAILED;
    lease_count(worker, LEASE_COUNTER_FAILURES);
    if (lease->state != LEASE_UNHEALED && lease->lease_us > 0 && now >= lease->expires_us + lease->vague_us) {
        lease_end(worker, lease, LEASE_REASON_UNREACHABLE);
        return;
    }
    patience = patience < FAILURE_PATIENCE_LEAST_US ? FAILURE_PATIENCE_LEAST_US : patience;
    lease->retry_us = now + (patience > FAILURE_PATIENCE_MOST_US ? FAILURE_PATIENCE_MOST_US : patience);
}

/* Whether nobody can say what has ended it: a script that is not known, or a release that is not answered. */
static bool is_unseen(const struct lease_worker *worker, const struct lease *lease)
{
    return lease_is_suspect(worker, lease) || lease_registry_is_releasing(worker->registry, lease);
}

/* Whether what is under way may be the owner's own release, of which the answer is about to come and tells more. */
static bool may_be_told(struct lease_worker *worker, struct lease *lease)
{
    int64_t now = lease_now(worker);

    lease->missed_us = lease->missed_us != 0 ? lease->missed_us : now;
    return lease_registry_is_touched(worker->registry, lease) && now - lease->missed_us < MISSED_PATIENCE_US;
}

/* Somebody else has ended it. */
static void lose(struct lease_worker *worker, struct lease *lease, int64_t code)
{
    static const enum lease_reason reasons[] = {
        [-CODE_GONE] = LEASE_REASON_GONE,
        [-CODE_TAKEN] = LEASE_REASON_TAKEN,
        [-CODE_PERSISTED] = LEASE_REASON_PERSISTED,
        [-CODE_SHORTENED] = LEASE_REASON_SHORTENED,
        [-CODE_OTHER_TYPE] = LEASE_REASON_OTHER_TYPE,
    };

    if (may_be_told(worker, lease)) {
        lease->retry_us =
            lease_latest(lease_now(worker) + LEASE_WHEEL_STEP_US, lease_early_us(worker->registry, lease));
        return;
    }
    bool is_away = code == CODE_GONE || code == CODE_TAKEN;
    enum lease_reason reason = lease->after_release                  ? LEASE_REASON_RELEASED
                               : is_away && is_unseen(worker, lease) ? LEASE_REASON_UNSEEN
                                                                     : reasons[-code];
    lease_end(worker, lease, reason);
}

/* A time to live in µs. Clients may set any that Redis can hold: none is taken for longer than a lease can be. */
static int64_t life_in_us(int64_t life_ms)
{
    return (life_ms < 0 ? 0 : life_ms > LEASE_MS_MAX ? LEASE_MS_MAX : life_ms) * 1000;
}

/* Redis has it, for so long from when the script ran. */
static void hold(const struct lease_call *call, const struct policy_script_reply *reply)
{
    struct lease *lease = call->lease;
    int64_t life_us = life_in_us(reply->integers[1]);

    lease->expires_us = call->sent_us + life_us;
    lease->vague_us = lease_now(call->worker) - call->sent_us;
    lease->proved_over_us = reply->since_us;
    lease->lease_us = lease->lease_us > 0 ? lease->lease_us : life_us;
}

/* Whether what is expected was told by the same run of the server: a connection leads to one run, and this one did when
 * that was asked for, too. A run of before may have had what did not reach a replica, or a disk. */
static bool is_of_same_run(const struct lease *lease, const struct policy_script_reply *reply)
{
    return lease->proved_over_us != 0 ? reply->since_us == lease->proved_over_us : reply->since_us < lease->proved_us;
}

/* It is looked at again now. */
static void look_again(struct lease *lease, int64_t now_us)
{
    lease->retry_us = now_us;
    lease->called_us = 0;
}

/* The score is another one: the owner has set it. It cannot stand for a time that is still to come. */
static void take_score(struct lease *lease, const struct policy_script_reply *reply, int64_t now_us)
{
    uint64_t bits = (uint64_t)reply->integers[2] << 32 | (uint64_t)reply->integers[3];
    double value;

    memcpy(&value, &bits, sizeof value);
    if (!lease->score.guessed) {
        int64_t then = lease->scored_us + lease_score_distance(&lease->score, value);
        lease->scored_us = then < now_us ? then : now_us;
    }
    lease->score.value = value;
    lease->score.guessed = false;
    lease->expires_us = lease->scored_us + lease->lease_us;
}

/* Takes what Redis tells of its end, or of its score. */
static void take_end(const struct lease_call *call, const struct policy_script_reply *reply)
{
    if (!lease_kind_is_semaphore(call->lease->kind)) {
        hold(call, reply);
    } else if (reply->count == 4) {
        take_score(call->lease, reply, lease_now(call->worker));
    }
}

static void defer(const struct lease_call *call, const struct policy_script_reply *reply)
{
    take_end(call, reply);
    call->lease->deferrals++;
    call->lease->reason = LEASE_REASON_DEFERRED;
    lease_count(call->worker, LEASE_COUNTER_DEFERRED);
}

static void renewed(const struct lease_call *call, const struct policy_script_reply *reply)
{
    struct lease *lease = call->lease;

    if (lease_kind_is_semaphore(lease->kind)) {
        lease->score.value = call->score;
        lease->scored_us = call->scored_us;
        lease->expires_us = call->sent_us + call->lease_us;
    } else {
        hold(call, reply);
    }
    lease->renewals++;
    lease->reason = LEASE_REASON_RENEWED;
    lease_count(call->worker, LEASE_COUNTER_RENEWALS);
    lease_tally_add(lease->terms.tally, LEASE_TALLY_RENEWALS, 1);
}

/* While the call was on its way, the time to live went on: what is left is no less than it has to be by now. */
static bool is_only_late(const struct lease_call *call, const struct policy_script_reply *reply, int64_t now_us)
{
    return now_us > call->sent_us &&
           life_in_us(reply->integers[1]) + slack_us(call->lease) >= call->lease->expires_us - now_us;
}

/* A lock that was taken by SETNX has no time to live until it is given one, be that by a SETNX whose answer was lost,
 * or where that it was given one has not arrived. */
static bool is_unhealed(const struct lease *lease, const struct policy_script_reply *reply)
{
    bool may_be = lease->was_endless && (lease->state == LEASE_HELD || lease->state == LEASE_DOUBTFUL);

    return reply->integers[0] == CODE_PERSISTED && (lease->lease_us == 0 || (may_be && !is_of_same_run(lease, reply)));
}

/* It is there, and it will end if nobody renews it. */
static void keep(struct lease_worker *worker, struct lease *lease)
{
    if (lease->abandoned) {
        lease_end(worker, lease, LEASE_REASON_RELEASED);
    } else {
        lease_move(lease, LEASE_HELD);
    }
}

static void end_renewal(const struct lease_call *call, const struct policy_script_reply *reply)
{
    struct lease *lease = call->lease;
    int64_t code = reply->integers[0];
    int64_t now = lease_now(call->worker);

    if (code == CODE_DONE || code == CODE_DEFERRED) {
        if (code == CODE_DONE) {
            renewed(call, reply);
        } else {
            defer(call, reply);
        }
        if (lease->state == LEASE_DOUBTFUL) {
            keep(call->worker, lease);
        }
    } else if (code == CODE_SHORTENED && (is_only_late(call, reply, now) || !is_of_same_run(lease, reply))) {
        hold(call, reply);
        look_again(lease, now);
    } else if (is_unhealed(lease, reply)) {
        lease_move(lease, LEASE_UNHEALED);
    } else {
        lose(call->worker, lease, code);
    }
}

/* What the owner has made shorter is not made longer again. False: it is too short to be kept. */
static bool follow_owner(const struct lease_call *call, const struct policy_script_reply *reply)
{
    struct lease *lease = call->lease;
    int64_t life_us = life_in_us(reply->integers[1]);

    if (lease->after_release && lease->lease_us > 0 && !lease_kind_is_semaphore(lease->kind) &&
        lease_is_shorter(lease, call->sent_us + life_us)) {
        lease->lease_us = life_us;
        return life_us >= LEASE_LEAST_US;
    }
    return true;
}

static void end_check(const struct lease_call *call, const struct policy_script_reply *reply)
{
    struct lease *lease = call->lease;
    int64_t code = reply->integers[0];

    if (is_unhealed(lease, reply)) {
        /* What has no end, and was not seen to be taken, may be anybody's who has chosen the same value. */
        if (lease->confirmed) {
            lease_move(lease, LEASE_UNHEALED);
        } else {
            lease_end(call->worker, lease, LEASE_REASON_NONE);
        }
        return;
    }
    if (code != CODE_DONE && code != CODE_DEFERRED) {
        lose(call->worker, lease, code);
        return;
    }
    if (!follow_owner(call, reply)) {
        lease_end(call->worker, lease, LEASE_REASON_RELEASED);
        return;
    }
    take_end(call, reply);
    lease->after_release = false;
    if (lease_kind_is_semaphore(lease->kind) && lease->expires_us <= lease_now(call->worker)) {
        /* It is over, and nobody has swept it up yet. */
        lose(call->worker, lease, CODE_GONE);
    } else if (lease->state == LEASE_DOUBTFUL) {
        if (!lease->trial) {
            lease_count_taken(call->worker, lease);
        }
        keep(call->worker, lease);
        if (lease->state == LEASE_HELD &&
            lease_renewal_due_us(call->worker->registry, lease) <= lease_now(call->worker)) {
            /* Before something else brings it into doubt. */
            look_again(lease, lease_now(call->worker));
        }
    }
}

static void end_healing(const struct lease_call *call, const struct policy_script_reply *reply)
{
    struct lease *lease = call->lease;
    int64_t code = reply->integers[0];

    if (code != CODE_DONE && code != CODE_DEFERRED) {
        lose(call->worker, lease, code);
        return;
    }
    lease_count_taken(call->worker, lease);
    if (code == CODE_DONE) {
        lease_count(call->worker, LEASE_COUNTER_HEALED);
    }
    hold(call, reply);
    keep(call->worker, lease);
}

static bool is_sound(const struct lease_call *call, const struct policy_script_reply *reply)
{
    size_t least = call->operation == LEASE_OPERATION_RELEASE ? 1 : 2;

    return policy_script_gave_integers(reply, least) &&
           (call->operation == LEASE_OPERATION_RELEASE ||
            (reply->integers[0] >= CODE_OTHER_TYPE && reply->integers[0] <= CODE_DEFERRED));
}

/* Whether the owner had it when the script ran, with or without a time to live. */
static bool shows_it_held(const struct lease_call *call, const struct policy_script_reply *reply)
{
    return call->operation != LEASE_OPERATION_RELEASE &&
           (reply->integers[0] >= CODE_DONE || is_unhealed(call->lease, reply));
}

static void take_answer(const struct lease_call *call, const struct policy_script_reply *reply)
{
    struct lease *lease = call->lease;

    lease->retry_us = 0;
    if (call->operation == LEASE_OPERATION_RELEASE && is_sound(call, reply) && reply->integers[0] > 0 &&
        call->sequence == lease->sequence) {
        /* Whatever its owner has been told since, it is gone. */
        lease_end(call->worker, lease, LEASE_REASON_OWNER_GONE);
        return;
    }
    if (call->proved != lease->proved) {
        /* The owner has taken or extended it in the meantime, or may have released it. */
        return;
    }
    if (!is_sound(call, reply)) {
        fail(call->worker, lease);
        return;
    }
    if (shows_it_held(call, reply)) {
        lease->missed_us = 0;
        lease->suspected = call->asked >= lease->suspected ? 0 : lease->suspected;
        lease->shown = call->asked;
    }
    switch (call->operation) {
    case LEASE_OPERATION_RENEW:
        end_renewal(call, reply);
        break;
    case LEASE_OPERATION_CHECK:
        end_check(call, reply);
        break;
    case LEASE_OPERATION_HEAL:
        end_healing(call, reply);
        break;
    case LEASE_OPERATION_RELEASE:
        lease_end(call->worker, lease,
                  reply->integers[0] == 0 ? lease_reason_without_owner(call->worker, lease) : LEASE_REASON_OWNER_GONE);
        break;
    }
    bool is_given = call->operation != LEASE_OPERATION_CHECK && reply->integers[0] == CODE_DONE;
    if (call->worker->last_round && lease->state == LEASE_HELD && reply->integers[0] >= CODE_DONE && !is_given) {
        /* It is to have a whole lease when the process ends. */
        look_again(lease, lease_now(call->worker));
    }
}

static void on_done(void *context, const struct policy_script_reply *reply)
{
    struct lease_call *call = context;
    struct lease_worker *worker = call->worker;
    struct lease *lease = call->lease;
    lease_call_done *done = call->done;

    lease_registry_lock(worker->registry);
    worker->calls--;
    worker->fresh_calls -= call->tick == worker->ticks;
    /* It is not freed while the call ends, should it end with it. */
    if (lease->state != LEASE_ENDED) {
        take_answer(call, reply);
    }
    lease->calling = false;
    if (lease->state == LEASE_ENDED) {
        lease_free_ended(lease);
    } else {
        lease_schedule(worker, lease);
    }
    lease_registry_unlock(worker->registry);
    if (reply->error != NULL) {
        lease_warn_of_failure(worker, reply->error);
    }
    free(call);
    done(worker);
}

void lease_call_send(struct lease_call *call, lease_call_done *done)
{
    const struct policy_host *host = call->worker->host;

    call->done = done;
    const struct policy_script script = {
        .script = call->script,
        .arguments = call->arguments,
        .argument_count = call->argument_count,
        .key_count = call->key_count,
        .database = call->database,
        .done = on_done,
        .context = call,
    };

    host->run_script(host->context, &script);
}
