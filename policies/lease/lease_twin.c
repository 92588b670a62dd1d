/*
 * What becomes of leases while one process takes over from another. What was taken by way of the old one stays with it,
 * and is renewed by it, as long as its owner has connections there. When the last of them has gone, the owner may have
 * connections to the new one, or come back there: so the leases of owners that are the same to both (processes, users,
 * clients with names) are given to the new one, which goes on as if they had been taken there by a connection that has
 * just closed.
 *
 *   lease RULE KIND STATE DATABASE LEASE ACQUIRED EXPIRES HOLDS OWNER SHOWN PID STARTED UID TOKEN KEY …
 *   permit SCORE UNIT RANKED COMPANION, and the rest as above
 *
 * Times are in µs of the clock that both have; UID is one more than that, and 0 if it is not known. Of all connections
 * of a user PID is 0, and STARTED its hash. A permit's score
 * was right when its lease would have begun that ends as it is said.
 */
#include "base/percent.h"
#include "lease/lease_private.h"

#include <inttypes.h>
#include <string.h>

/* How long a word that there is another process holds. It comes ten times a second. */
#define BESIDE_US ((int64_t)3000000)
/* Half of what there is room for: the last lease may take more than is left … */
#define TOLD_AT_ONCE (POLICY_TWIN_TEXT_MAX / 2)
/* … which is so much, of what its texts may have in all. Others stay where they are. */
#define TEXTS_MAX (POLICY_TWIN_TEXT_MAX / 8)

/* What is shown of both kinds of permits is one name. */
static const struct {
    enum lease_kind kind;
    const char *name;
} kinds[] = {
    {LEASE_STRING, "string"},
    {LEASE_STRINGS, "strings"},
    {LEASE_HASH, "hash"},
    {LEASE_READ_LOCK, "read-lock"},
    {LEASE_SEMAPHORE_BY_START, "by-start"},
    {LEASE_SEMAPHORE_BY_EXPIRY, "by-expiry"},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* ---- giving ---- */

static size_t texts_of(const struct lease *lease)
{
    size_t length = lease->token.length + lease_taker(lease)->length;

    for (size_t i = 0; i < lease->key_count; i++) {
        length += lease->members[i].key->length;
    }
    return length;
}

static bool has_left(const struct lease_worker *worker, const struct lease_owner *owner)
{
    return owner->connections == 0 && (owner->gone_us != 0 || lease_registry_is_draining(worker->registry));
}

/* Whether its taker is the same to another process, and none of its owners has a connection here. */
static bool has_common_owner(const struct lease_worker *worker, const struct lease *lease)
{
    const struct lease_owner *taker = lease_taker(lease);
    bool lives = lease_owner_lives(worker, taker);
    const struct lease_share *share;

    LIST_FOREACH(share, &lease->shares, of_lease)
    {
        lives = lives && has_left(worker, share->owner);
    }
    return lives && !taker->is_alone;
}

/* It is known that there is a permit, and what its score is. */
static bool is_sure(const struct lease *lease)
{
    return !lease_kind_is_semaphore(lease->kind) || (lease->confirmed && !lease->trial && !lease->score.guessed);
}

/* Whether another process is about to be given the lease. */
static bool is_to_be_given(const struct lease_worker *worker, const struct lease *lease)
{
    bool is_settled = lease->state == LEASE_HELD || lease->state == LEASE_SELF || lease->state == LEASE_EXHAUSTED;

    return lease_registry_gives_away(worker->registry, lease_now(worker)) && lease_taker(lease) != NULL && is_settled &&
           is_sure(lease) && !lease->calling && lease->suspected == 0 && texts_of(lease) <= TEXTS_MAX &&
           !lease_registry_is_touched(worker->registry, lease) && has_common_owner(worker, lease);
}

static void write_word(FILE *out, struct slice text)
{
    fputc(' ', out);
    (void)percent_write(out, text);
}

/* What it takes, at most: a byte of a text may become three. */
static size_t size_of(const struct lease *lease)
{
    return 3 * texts_of(lease) + lease->key_count + 512;
}

static void write_score(FILE *out, const struct lease *lease)
{
    char text[LEASE_SCORE_TEXT_MAX];
    size_t length = lease_score_write(text, lease->score.value);

    write_word(out, (struct slice){text, length});
    fprintf(out, " %" PRId64 " %d", lease->score.unit_us, lease->ranked ? 1 : 0);
    write_word(out, slice_of(lease->companion != NULL ? lease->companion : ""));
}

static const char *kind_word(enum lease_kind kind)
{
    size_t i = 0;

    while (i + 1 < KINDS && kinds[i].kind != kind) {
        i++;
    }
    return kinds[i].name;
}

static void write_lease(FILE *out, const struct lease *lease)
{
    const struct lease_owner *owner = lease_taker(lease);
    bool is_permit = lease_kind_is_semaphore(lease->kind);

    fputs(is_permit ? "permit" : "lease", out);
    if (is_permit) {
        write_score(out, lease);
    }
    write_word(out, slice_of(lease->terms.rule));
    write_word(out, slice_of(kind_word(lease->kind)));
    fprintf(out, " %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRIu32, (int)lease->state,
            lease->members[0].key->database, lease->lease_us, lease->acquired_us, lease->expires_us, lease->holds);
    write_word(out, (struct slice){owner->name, owner->length});
    fprintf(out, " %zu %" PRId64 " %" PRIu64 " %" PRIu64, owner->shown, owner->process.pid,
            owner->process.pid != 0 ? owner->process.started : owner->user,
            owner->process.has_uid ? (uint64_t)owner->process.uid + 1 : 0);
    write_word(out, lease->token);
    for (size_t i = 0; i < lease->key_count; i++) {
        write_word(out, (struct slice){lease->members[i].key->name, lease->members[i].key->length});
    }
    fputc('\n', out);
}

/* Whether there may be more. */
static bool give(struct lease_worker *worker, FILE *out)
{
    struct lease *lease = lease_registry_first(worker->registry);
    size_t size = 0;

    while (lease != NULL && size < TOLD_AT_ONCE) {
        struct lease *next = LIST_NEXT(lease, of_all);
        if (is_to_be_given(worker, lease)) {
            size += size_of(lease);
            write_lease(out, lease);
            lease_tally_add(lease->terms.tally, LEASE_TALLY_HELD, lease->confirmed ? UINT64_MAX : 0);
            lease_registry_remove(worker->registry, lease, LEASE_REASON_NONE);
        }
        lease = next;
    }
    return lease != NULL;
}

enum policy_answer lease_verb_tell(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct lease_worker *worker = instance;
    struct text_stream text;
    bool gives = slice_is(arguments[1], "NEWS"), has_more = false;

    (void)count;
    if (!text_open(&text)) {
        return POLICY_ANSWER_ERROR;
    }
    lease_registry_lock(worker->registry);
    /* Who leaves from now on may come to the new process, although that does not serve as yet. */
    bool will_give = gives || slice_is(arguments[1], "ALL");
    lease_registry_set_beside(worker->registry, lease_now(worker) + BESIDE_US, will_give);
    has_more = gives && give(worker, text.out);
    lease_registry_unlock(worker->registry);
    /* What could not be written is not renewed any more, and ends with its lease. */
    bool is_whole = text_close(&text);
    fprintf(answer, "%d\n", has_more ? 1 : 0);
    if (is_whole) {
        (void)fwrite(text.bytes, 1, text.length, answer);
    }
    text_free(&text);
    return POLICY_ANSWER_TEXT;
}

/* ---- taking ---- */

/* A line that was read, with its texts in memory of its own. */
struct given {
    const struct lease_rule *rule;
    enum lease_kind kind;
    int64_t state, database, lease_us, acquired_us, expires_us, holds, shown;
    struct policy_peer process;
    struct slice owner, token, keys[LEASE_KEYS_MAX];
    size_t key_count;
    struct lease_score score; /* of a permit */
    int64_t ranked;
    const char *companion;
    size_t used;
    char texts[TEXTS_MAX];
};

static bool read_text(struct given *given, struct slice *line, struct slice *text)
{
    struct slice word;
    size_t length;
    char *place = given->texts + given->used;

    if (!percent_take_word(line, &word) || !percent_read(word, place, sizeof given->texts - given->used, &length)) {
        return false;
    }
    *text = (struct slice){place, length};
    given->used += length;
    return true;
}

static const struct lease_rule *find_rule(const struct lease_worker *worker, struct slice name)
{
    for (size_t i = 0; i < worker->rule_count; i++) {
        if (slice_is(name, worker->rules[i].terms.rule)) {
            return &worker->rules[i];
        }
    }
    return NULL;
}

static bool read_kind(struct given *given, struct slice name)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (slice_is(name, kinds[i].name)) {
            given->kind = kinds[i].kind;
            return true;
        }
    }
    return false;
}

static bool read_process(struct given *given, struct slice *line)
{
    int64_t started, uid;

    if (!percent_take_number(line, &given->process.pid) || !percent_take_number(line, &started) ||
        !percent_take_number(line, &uid)) {
        return false;
    }
    given->process.started = (uint64_t)started;
    given->process.has_uid = uid > 0;
    given->process.uid = uid > 0 ? (uid_t)(uid - 1) : 0;
    return true;
}

static bool is_sound(const struct given *given, int64_t now_us)
{
    bool is_settled = given->state == LEASE_HELD || given->state == LEASE_SELF || given->state == LEASE_EXHAUSTED;

    return is_settled && given->rule != NULL && given->key_count > 0 && given->lease_us > 0 &&
           given->acquired_us <= now_us && given->expires_us > now_us &&
           given->expires_us - now_us <= given->lease_us && given->holds < (int64_t)LEASE_KEYS_MAX &&
           given->owner.length > 0 && given->shown <= (int64_t)given->owner.length &&
           (given->kind == LEASE_STRINGS || given->key_count == 1);
}

/* As the scripts that are known have it; NULL: none of them has. */
static const char *find_companion(struct slice name)
{
    const struct lease_script *script = lease_shape_script(0);

    for (size_t i = 1; script != NULL; i++) {
        if (script->companion != NULL && slice_is(name, script->companion)) {
            return script->companion;
        }
        script = lease_shape_script(i);
    }
    return NULL;
}

/* What stands ahead of a permit. */
static bool read_score(struct given *given, struct slice *line)
{
    struct slice value, companion;

    if (!read_text(given, line, &value) || !lease_score_read(value, &given->score.value) ||
        !percent_take_number(line, &given->score.unit_us) || given->score.unit_us == 0 ||
        !percent_take_number(line, &given->ranked) || !read_text(given, line, &companion)) {
        return false;
    }
    given->companion = find_companion(companion);
    return companion.length == 0 || given->companion != NULL;
}

static bool read_lease(const struct lease_worker *worker, struct given *given, struct slice line)
{
    struct slice rule, kind;

    bool has_head = read_text(given, &line, &rule) && read_text(given, &line, &kind) && read_kind(given, kind) &&
                    percent_take_number(&line, &given->state) && percent_take_number(&line, &given->database) &&
                    percent_take_number(&line, &given->lease_us) && percent_take_number(&line, &given->acquired_us) &&
                    percent_take_number(&line, &given->expires_us) && percent_take_number(&line, &given->holds);
    if (!has_head || !read_text(given, &line, &given->owner) || !percent_take_number(&line, &given->shown) ||
        !read_process(given, &line) || !read_text(given, &line, &given->token)) {
        return false;
    }
    given->rule = find_rule(worker, rule);
    while (line.length > 0) {
        if (given->key_count == LEASE_KEYS_MAX || !read_text(given, &line, &given->keys[given->key_count])) {
            return false;
        }
        given->key_count++;
    }
    return is_sound(given, lease_now(worker));
}

/* A line without its first word. */
static bool read_given(const struct lease_worker *worker, struct given *given, bool is_permit, struct slice line)
{
    *given = (struct given){.used = 0};
    return (!is_permit || read_score(given, &line)) && read_lease(worker, given, line) &&
           lease_kind_is_semaphore(given->kind) == is_permit;
}

static struct lease_owner *join(const struct lease_worker *worker, const struct given *given)
{
    uint64_t user = given->process.pid == 0 ? given->process.started : 0;

    return lease_registry_join_process(worker->registry, given->owner, (size_t)given->shown, &given->process, user);
}

/* The registry is locked. Without memory the lock is not renewed any more. */
static void take(struct lease_worker *worker, const struct given *given)
{
    struct lease_registry *registry = worker->registry;

    if (lease_registry_find(registry, given->database, given->keys[0], given->token) != NULL) {
        return;
    }
    struct lease_owner *owner = join(worker, given);
    struct lease *lease =
        owner != NULL ? lease_registry_add(registry, given->database, given->keys, given->key_count, given->token)
                      : NULL;
    if (lease != NULL) {
        lease->terms = given->rule->terms;
        lease->kind = given->kind;
        lease->worker = worker->host->worker;
        lease->sequence = lease->granted = lease_registry_sequence(registry);
        lease->confirmed = true;
        lease->holds = (uint32_t)given->holds;
        lease->lease_us = given->lease_us;
        lease->acquired_us = given->acquired_us;
        lease->expires_us = given->expires_us;
        lease->score = given->score;
        lease->score.kind = given->kind;
        lease->score.lease_us = given->lease_us;
        lease->scored_us = given->expires_us - given->lease_us;
        lease->ranked = given->ranked != 0;
        lease->companion = given->companion;
        lease_tally_add(lease->terms.tally, LEASE_TALLY_HELD, 1);
        lease_move(lease, (enum lease_state)given->state);
        (void)lease_own(lease, owner);
        lease_registry_take_over(registry, lease, lease_weight(lease));
        lease_schedule(worker, lease);
    }
    if (owner != NULL) {
        lease_owner_leave(worker, owner);
    }
}

enum policy_answer lease_verb_hear(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct lease_worker *worker = instance;
    struct slice text = arguments[1], line, kind;
    struct given given;

    (void)count;
    (void)answer;
    lease_registry_lock(worker->registry);
    while (percent_take_line(&text, &line)) {
        bool has_kind = percent_take_word(&line, &kind), is_permit = has_kind && slice_is(kind, "permit");
        if ((is_permit || (has_kind && slice_is(kind, "lease"))) && read_given(worker, &given, is_permit, line)) {
            take(worker, &given);
        }
    }
    lease_registry_unlock(worker->registry);
    return POLICY_ANSWER_OK;
}
