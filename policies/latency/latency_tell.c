/* What this process tells of itself, without Redis: how long requests took, for metrics; and EVENTS. */
#include "latency/latency_private.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* Operations in one call, each of which takes some µs while clients wait. */
#define OPERATIONS_AT_ONCE 32

static_assert(POLICY_DURATION_BUCKETS == LATENCY_BUCKETS && POLICY_DURATION_STEPS == 1 << LATENCY_SCALE &&
                  LATENCY_INDEX_MIN == -1,
              "the contract's buckets are those of the histograms");

/* ---- durations ---- */

static void tell(struct latency_share *share, uint32_t number, policy_durations_told *told, void *context)
{
    struct latency_figures figures;

    if (latency_share_total(share, number, &figures)) {
        const struct policy_durations durations = {
            .number = number,
            .operation = latency_share_operation(share, number)->named.name,
            .count = figures.histogram.count,
            .errors = figures.errors,
            .sum_us = figures.histogram.sum_us,
            .min_us = figures.histogram.min_us,
            .max_us = figures.histogram.max_us,
            .request_bytes = figures.bytes_in,
            .reply_bytes = figures.bytes_out,
            .buckets = figures.histogram.buckets,
        };
        told(context, &durations);
    }
}

bool latency_tell_durations(void *instance, uint32_t *at, policy_durations_told *told, void *context)
{
    struct latency *latency = instance;

    if (latency->sketch == NULL) {
        return false;
    }
    uint32_t count = latency_share_count(latency->share);
    uint32_t end = count - *at > OPERATIONS_AT_ONCE ? *at + OPERATIONS_AT_ONCE : count;
    for (; *at < end; (*at)++) {
        latency_share_move(latency, *at);
        if (told != NULL) {
            tell(latency->share, *at, told, context);
        }
    }
    return end < count;
}

/* ---- EVENTS ---- */

static size_t find(const struct latency_recent *recent, enum latency_logged log, const char *text)
{
    size_t at = 0;

    while (at < recent->count && (recent->events[at].log != log || strcmp(recent->events[at].text, text) != 0)) {
        at++;
    }
    return at;
}

static void note(struct latency_recent *recent, enum latency_logged log, const struct latency_message *message,
                 int64_t unix_s)
{
    size_t at = find(recent, log, message->text);
    struct latency_recent_event event = {.log = log};

    if (at < recent->count) {
        event.times = recent->events[at].times;
    } else if (recent->count < LATENCY_RECENT_MAX) {
        recent->count++;
    } else {
        at--;
    }
    event.times += message->times;
    event.unix_s = unix_s;
    memcpy(event.text, message->text, sizeof event.text);
    memmove(&recent->events[1], &recent->events[0], at * sizeof recent->events[0]);
    recent->events[0] = event;
}

void latency_recent_note(struct latency_recent *recent, enum latency_logged log,
                         const struct latency_message_list *messages, int64_t unix_s)
{
    for (size_t i = 0; i < messages->length; i++) {
        note(recent, log, &messages->messages[i], unix_s);
    }
}

static void print(const struct latency_recent_event *event, FILE *out)
{
    static const char *const kinds[] = {
        [LATENCY_LOG_SLOW] = "kind=slow severity=warning",
        [LATENCY_LOG_REFUSALS] = "kind=refusals severity=info",
        [LATENCY_LOG_LOST_LEASES] = "kind=lost_leases severity=error",
        [LATENCY_LOG_UPSTREAM_LOSSES] = "kind=upstream_losses severity=error",
        [LATENCY_LOG_LOST_REQUESTS] = "kind=lost_requests severity=error",
    };

    fprintf(out, "time=%" PRId64 " %s count=%" PRIu64 " event=", event->unix_s, kinds[event->log], event->times);
    latency_excerpt_print_text(slice_of(event->text), out);
    fputc('\n', out);
}

enum policy_answer latency_verb_events(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct latency *latency = instance;
    struct latency_recent recent;

    (void)count;
    (void)arguments;
    if (!latency->settings.events) {
        fputs("no events are logged; see [events] enabled", answer);
        return POLICY_ANSWER_ERROR;
    }
    pthread_mutex_lock(&latency->share->lock);
    recent = latency->share->recent;
    pthread_mutex_unlock(&latency->share->lock);
    for (size_t i = 0; i < recent.count; i++) {
        print(&recent.events[i], answer);
    }
    return POLICY_ANSWER_TEXT;
}
