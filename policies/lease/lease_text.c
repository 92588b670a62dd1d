/* What is said of leases: names, keys and owners as they are shown, warnings, events. */
#include "lease/lease_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SECOND_US INT64_C(1000000)
/* Losses that are logged in a second, as are ends of owners, and how often failures are. */
#define LINES_MAX 20
#define FAILURE_WARNING_US (60 * SECOND_US)

/* ---- names ---- */

const char *lease_reason_name(enum lease_reason reason)
{
    static const char *const names[] = {
        [LEASE_REASON_NONE] = "none",
        [LEASE_REASON_RENEWED] = "renewed",
        [LEASE_REASON_DEFERRED] = "deferred",
        [LEASE_REASON_FAILED] = "failed",
        [LEASE_REASON_RELEASED] = "released",
        [LEASE_REASON_UNSEEN] = "ended unseen",
        [LEASE_REASON_GONE] = "gone",
        [LEASE_REASON_TAKEN] = "taken by another",
        [LEASE_REASON_PERSISTED] = "made persistent",
        [LEASE_REASON_SHORTENED] = "shortened",
        [LEASE_REASON_OTHER_TYPE] = "of another type",
        [LEASE_REASON_UNREACHABLE] = "not renewed in time",
        [LEASE_REASON_OWNER_GONE] = "owner gone",
        [LEASE_REASON_MAX_HOLD] = "max_hold reached",
        [LEASE_REASON_DROPPED] = "dropped",
        [LEASE_REASON_BEYOND] = "beyond max_leases",
    };

    return names[reason];
}

const char *lease_kind_name(enum lease_kind kind)
{
    static const char *const names[] = {
        [LEASE_KIND_ANY] = "any",
        [LEASE_STRING] = "string",
        [LEASE_STRINGS] = "strings",
        [LEASE_HASH] = "hash",
        [LEASE_READ_LOCK] = "read-lock",
        [LEASE_SEMAPHORE_BY_START] = "semaphore",
        [LEASE_SEMAPHORE_BY_EXPIRY] = "semaphore",
    };

    return names[kind];
}

struct slice lease_shown_owner(const struct lease *lease)
{
    const struct lease_owner *taker = lease_taker(lease);

    return taker != NULL ? (struct slice){taker->name, taker->shown} : (struct slice){"nobody", 6};
}

static bool is_plain(struct slice text)
{
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] <= ' ' || text.data[i] > '~' || text.data[i] == '"' || text.data[i] == '\\') {
            return false;
        }
    }
    return text.length > 0 && text.length < LEASE_QUOTED_MAX;
}

void lease_quote(char quoted[LEASE_QUOTED_MAX], struct slice text)
{
    char *at = quoted;

    if (is_plain(text)) {
        memcpy(quoted, text.data, text.length);
        quoted[text.length] = '\0';
        return;
    }
    *at++ = '"';
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.data[i];
        /* Room for one more, the mark of a cut, the quote and the end. */
        if (at - quoted > LEASE_QUOTED_MAX - 12) {
            memcpy(at, "...", 3);
            at += 3;
            break;
        }
        if (c == '"' || c == '\\') {
            *at++ = '\\';
            *at++ = (char)c;
        } else if (c < ' ' || c > '~') {
            at += snprintf(at, 5, "\\x%02x", c);
        } else {
            *at++ = (char)c;
        }
    }
    *at++ = '"';
    *at = '\0';
}

/* ---- warnings ---- */

/* Whether one more may be logged in this second. */
static bool may_say(struct lease_lines *lines, int64_t now, uint32_t most)
{
    if (now - lines->since_us >= SECOND_US) {
        lines->since_us = now;
        lines->said = 0;
    }
    if (lines->said == most) {
        lines->unsaid++;
        return false;
    }
    lines->said++;
    return true;
}

typedef void logger(void *context, const char *rule, const char *text);

/* names: what the lines are about, in the plural. */
static void say(struct lease_worker *worker, struct lease_lines *lines, logger *log, const struct lease *lease,
                const char *what, const char *names)
{
    int64_t now = lease_now(worker);
    char key[LEASE_QUOTED_MAX], owner[LEASE_QUOTED_MAX], line[LEASE_QUOTED_MAX * 2 + 160];
    const struct lease_key *first = lease->members[0].key;

    if (!may_say(lines, now, LINES_MAX)) {
        return;
    }
    lease_quote(key, (struct slice){first->name, first->length});
    lease_quote(owner, lease_shown_owner(lease));
    snprintf(line, sizeof line, "%s: %s of %s, held for %" PRId64 " ms, with %" PRId64 " ms of its lease left", what,
             key, owner, (now - lease->acquired_us) / 1000, (lease->expires_us - now) / 1000);
    log(worker->host->context, lease->terms.rule, line);
    if (lines->unsaid > 0) {
        snprintf(line, sizeof line, "%" PRIu32 " %s before this one were not logged", lines->unsaid, names);
        lines->unsaid = 0;
        log(worker->host->context, lease->terms.rule, line);
    }
}

void lease_warn_of_loss(struct lease_worker *worker, const struct lease *lease, const char *what)
{
    say(worker, &worker->losses, worker->host->warn, lease, what, "losses");
}

void lease_inform_of_end(struct lease_worker *worker, const struct lease *lease)
{
    bool releases = lease->terms.farewell == LEASE_FAREWELL_RELEASE;

    say(worker, &worker->ends, worker->host->inform, lease,
        releases ? "owner gone, lock released" : "owner gone, lock not renewed any more", "ends of owners");
}

void lease_warn_of_bound(struct lease_worker *worker, const char *rule, struct slice key, struct slice owner)
{
    char shown_key[LEASE_QUOTED_MAX], shown_owner[LEASE_QUOTED_MAX], line[LEASE_QUOTED_MAX * 2 + 160];

    lease_count(worker, LEASE_COUNTER_UNWATCHED);
    if (!may_say(&worker->beyond, lease_now(worker), 1)) {
        return;
    }
    lease_quote(shown_key, key);
    lease_quote(shown_owner, owner);
    snprintf(line, sizeof line,
             "max_leases reached: %s of %s is not watched, nor were %" PRIu32 " before it that were not logged",
             shown_key, shown_owner, worker->beyond.unsaid);
    worker->beyond.unsaid = 0;
    worker->host->warn(worker->host->context, rule, line);
}

void lease_warn_of_failure(struct lease_worker *worker, const char *error)
{
    int64_t now = lease_now(worker);

    if (worker->failure_warned_us == 0 || now - worker->failure_warned_us >= FAILURE_WARNING_US) {
        worker->failure_warned_us = now;
        worker->host->warn(worker->host->context, "lease", error);
    }
}

void lease_tell(const struct lease_worker *worker, const struct lease *lease, enum policy_event_kind kind,
                uint32_t count, const char *what)
{
    const struct policy_event event = {
        .kind = kind, .count = count, .source = lease_section.name, .rule = lease->terms.rule, .what = what};

    policy_tell(worker->host, &event);
}
