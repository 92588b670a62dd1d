/* LEASES and LEASE on the admin port. */
#include "lease/lease_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Lines of one answer. */
#define LINES_MAX 1000
#define GLOB_MAX 1024
/* So long a script may be under way without a word. */
#define UNANSWERED_US INT64_C(1000000)

static const char *state_name(const struct lease_worker *worker, const struct lease *lease, int64_t now)
{
    static const char *const names[] = {
        [LEASE_UNHEALED] = "unhealed", [LEASE_DOUBTFUL] = "checking",  [LEASE_HELD] = "held",
        [LEASE_SELF] = "self",         [LEASE_EXHAUSTED] = "max-hold", [LEASE_ENDED] = "ended",
    };

    if (lease->calling && now - lease->called_us > UNANSWERED_US) {
        return "unanswered";
    }
    if (lease_registry_is_releasing(worker->registry, lease)) {
        return "releasing";
    }
    return lease_is_ownerless(lease) ? "ownerless" : names[lease->state];
}

static int64_t ms_until(int64_t then_us, int64_t now_us)
{
    return (then_us - now_us) / 1000;
}

static void write_line(const struct lease_worker *worker, const struct lease *lease, int64_t now, FILE *answer)
{
    const struct lease_key *key = lease->members[0].key;
    char name[LEASE_QUOTED_MAX], owner[LEASE_QUOTED_MAX];
    bool is_watched = lease->watch.is_set;

    lease_quote(name, (struct slice){key->name, key->length});
    lease_quote(owner, lease_shown_owner(lease));
    fprintf(answer,
            "key=%s db=%" PRId64 " kind=%s rule=%s owner=%s state=%s held=%.3f lease=%" PRId64 " left=%" PRId64
            " next=%" PRId64 " renewals=%" PRIu64 " deferred=%" PRIu64 " failures=%" PRIu64 " reason=\"%s\"\n",
            name, key->database, lease_kind_name(lease->kind), lease->terms.rule, owner, state_name(worker, lease, now),
            (double)(now - lease->acquired_us) / 1e6, lease->lease_us / 1000, ms_until(lease->expires_us, now),
            is_watched && lease->watch.due_us > now ? ms_until(lease->watch.due_us, now) : 0, lease->renewals,
            lease->deferrals, lease->failures, lease_reason_name(lease->reason));
}

/* A glob that is sound, as text; false, and the answer is an error, if it is not. */
static bool read_glob(struct slice argument, char glob[GLOB_MAX], FILE *answer)
{
    char problem[CONF_PROBLEM_MAX];

    if (argument.length >= GLOB_MAX || memchr(argument.data, '\0', argument.length) != NULL) {
        fprintf(answer, "the glob is too long, or no text");
        return false;
    }
    if (!glob_check(argument, problem)) {
        fprintf(answer, "the glob %s", problem);
        return false;
    }
    memcpy(glob, argument.data, argument.length);
    glob[argument.length] = '\0';
    return true;
}

static bool read_most(struct slice word, size_t *most)
{
    int64_t value = 0;
    bool is_number = word_integer(word, &value) && value >= 0 && value <= LINES_MAX;

    *most = (size_t)value;
    return is_number;
}

enum policy_answer lease_verb_leases(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct lease_worker *worker = instance;
    char glob[GLOB_MAX] = "*";
    int64_t now = lease_now(worker);
    size_t lines = 0, more = 0, most = LINES_MAX;

    if (count >= 2 && !read_glob(arguments[1], glob, answer)) {
        return POLICY_ANSWER_ERROR;
    }
    if (count == 3 && !read_most(arguments[2], &most)) {
        fprintf(answer, "expected a number of leases up to %d behind the glob", LINES_MAX);
        return POLICY_ANSWER_ERROR;
    }
    lease_registry_lock(worker->registry);
    const struct lease *lease = lease_registry_first(worker->registry);
    for (; lease != NULL; lease = LIST_NEXT(lease, of_all)) {
        const struct lease_key *key = lease->members[0].key;
        if (!glob_match(glob, (struct slice){key->name, key->length})) {
            continue;
        }
        if (lines < most) {
            write_line(worker, lease, now, answer);
            lines++;
        } else {
            more++;
        }
    }
    lease_registry_unlock(worker->registry);
    if (more > 0) {
        fprintf(answer, "# and %zu more\n", more);
    }
    return POLICY_ANSWER_TEXT;
}

/* Ends the watch over all leases with that key. How many there were. */
static size_t drop(struct lease_worker *worker, struct slice name)
{
    struct lease *lease = lease_registry_first(worker->registry);
    size_t dropped = 0;

    while (lease != NULL) {
        struct lease *next = LIST_NEXT(lease, of_all);
        bool is_meant = false;
        for (size_t i = 0; i < lease->key_count; i++) {
            const struct lease_key *key = lease->members[i].key;
            is_meant = is_meant || slice_equal(name, (struct slice){key->name, key->length});
        }
        if (is_meant) {
            lease_end(worker, lease, LEASE_REASON_DROPPED);
            dropped++;
        }
        lease = next;
    }
    return dropped;
}

enum policy_answer lease_verb_lease(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct lease_worker *worker = instance;

    (void)count;
    if (!slice_is_word(arguments[1], "drop")) {
        fprintf(answer, "LEASE knows DROP only: LEASE DROP key");
        return POLICY_ANSWER_ERROR;
    }
    lease_registry_lock(worker->registry);
    size_t dropped = drop(worker, arguments[2]);
    lease_registry_unlock(worker->registry);
    if (dropped == 0) {
        fprintf(answer, "no lease with that key is on file");
        return POLICY_ANSWER_ERROR;
    }
    return POLICY_ANSWER_OK;
}
