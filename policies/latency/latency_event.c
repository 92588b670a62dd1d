/*
 * What happened: how often goes to [counters], and what to [events], logs in Redis with the newest in a list and how
 * many there were in each hour. Each worker gathers messages and hands them to the shared logs at each tick; worker 0
 * sends them.
 */
#include "latency/latency_private.h"

#include <assert.h>
#include <inttypes.h>

#define KEYS 6
/* Lines of the list; messages of a sorted set; and for how many seconds all of it is kept. */
#define LENGTH "100"
#define MESSAGES_MAX "1000"
#define KEEP_S "604800"
/* Arguments of the script: keys, those for all messages, and those of each. */
#define GENERAL 5
#define OF_EACH 3

/* Any argument is shorter than a key. */
#define CALL_SIZE ((KEYS + GENERAL + OF_EACH * LATENCY_MESSAGES) * LATENCY_KEY_SIZE)

static_assert(KEYS + GENERAL + LATENCY_MESSAGES * OF_EACH <= POLICY_SCRIPT_ARGUMENTS_MAX, "too many messages");

/* Names and severities, as keys have them. */
static const char *const log_names[] = {
    [LATENCY_LOG_SLOW] = "slow:warning",
    [LATENCY_LOG_REFUSALS] = "refusals:info",
    [LATENCY_LOG_LOST_LEASES] = "lost_leases:error",
    [LATENCY_LOG_UPSTREAM_LOSSES] = "upstream_losses:error",
    [LATENCY_LOG_LOST_REQUESTS] = "lost_requests:error",
};

/* Where what happens is counted and logged; LATENCY_LOGS: nowhere. */
static const struct {
    enum latency_tallied tally;
    enum latency_logged log;
} kinds[POLICY_EVENTS] = {
    [POLICY_REFUSED] = {LATENCY_TALLY_REFUSALS, LATENCY_LOG_REFUSALS},
    [POLICY_LEASE_TAKEN] = {LATENCY_TALLY_LEASES, LATENCY_LOGS},
    [POLICY_LEASE_LOST] = {LATENCY_TALLY_LOST_LEASES, LATENCY_LOG_LOST_LEASES},
    [POLICY_UPSTREAM_LOST] = {LATENCY_TALLY_UPSTREAM_LOSSES, LATENCY_LOG_UPSTREAM_LOSSES},
    [POLICY_REQUEST_LOST] = {LATENCY_TALLY_LOST_REQUESTS, LATENCY_LOG_LOST_REQUESTS},
};

/* ---- what happens ---- */

static void gather(struct latency *latency, enum latency_logged log, const char *text, uint64_t times)
{
    latency_message_add(&latency->logged[log], text, times, 0);
    latency->has_logged = true;
}

void latency_event(struct latency *latency, uint32_t operation)
{
    gather(latency, LATENCY_LOG_SLOW, latency_share_operation(latency->share, operation)->named.name, 1);
}

bool latency_listens(void *instance)
{
    const struct latency *latency = instance;

    return latency->settings.enabled && (latency->settings.counters || latency->settings.events);
}

void latency_policy_event(void *instance, const struct policy_event *event)
{
    struct latency *latency = instance;
    enum latency_logged log = kinds[event->kind].log;
    char text[LATENCY_MESSAGE_MAX + 1];

    latency->tallied[kinds[event->kind].tally] += event->count;
    if (latency->settings.events && log != LATENCY_LOGS) {
        latency_message_write(event->source, event->rule, event->what, text);
        gather(latency, log, text, event->count);
    }
}

void latency_events_collect(struct latency *latency)
{
    struct latency_share *share = latency->share;
    int64_t second = latency_now(latency) / LATENCY_US_PER_S;
    int64_t unix_s = (latency_now(latency) + latency->wall_offset_us) / LATENCY_US_PER_S;

    if (!latency->has_logged) {
        return;
    }
    latency->has_logged = false;
    pthread_mutex_lock(&share->lock);
    for (int i = 0; i < LATENCY_LOGS; i++) {
        latency_recent_note(&share->recent, (enum latency_logged)i, &latency->logged[i], unix_s);
        latency_message_move(&share->logs[i].waiting, &latency->logged[i], second);
    }
    pthread_mutex_unlock(&share->lock);
}

/* ---- to Redis ---- */

static bool freeze(struct latency_entry *entry)
{
    struct latency_log *log = (struct latency_log *)(void *)entry;

    log->frozen = log->waiting;
    log->waiting.length = 0;
    return log->frozen.length > 0;
}

static void write_messages(const struct latency_message_list *list, int64_t second, struct latency_call *call)
{
    for (size_t i = 0; i < list->length; i++) {
        const struct latency_message *message = &list->messages[i];
        latency_call_add(call, "%s", message->text);
        latency_call_add(call, "%" PRIu64, message->times);
        latency_call_add(call, "%" PRId64, latency_age_s(second, message->second));
    }
}

static bool write_call(struct latency *latency, const struct latency_entry *entry, struct latency_call *call)
{
    static const char *const parts[KEYS - 1][2] = {
        {"recent", ""}, {"common", ""}, {"common", ":start"}, {"common", ":last"}, {"common", ":pstart"}};
    const struct latency_log *log = (const struct latency_log *)(const void *)entry;
    const char *name = log_names[log - latency->share->logs], *prefix = latency->settings.events_prefix;

    if (!latency_call_start(call, CALL_SIZE)) {
        return false;
    }
    latency_call_key(call, "%srecent:%s:by:%s", prefix, name, latency->share->process);
    for (size_t i = 0; i < KEYS - 1; i++) {
        latency_call_key(call, "%s%s:%s%s", prefix, parts[i][0], name, parts[i][1]);
    }
    latency_call_add(call, "%" PRIu64, entry->number);
    latency_call_add(call, "%" PRId64, LATENCY_REMEMBER_S);
    latency_call_add(call, "%s", LENGTH);
    latency_call_add(call, "%s", MESSAGES_MAX);
    latency_call_add(call, "%s", KEEP_S);
    write_messages(&log->frozen, latency_now(latency) / LATENCY_US_PER_S, call);
    return true;
}

static const struct latency_entry_kind kind = {
    .script = "event_log",
    .trouble = "events were not logged",
    .lost = "events were not logged",
    .freeze = freeze,
    .write = write_call,
};

bool latency_events_send(struct latency *latency)
{
    bool nothing_waits = true;

    for (int i = 0; latency->settings.events && i < LATENCY_LOGS; i++) {
        nothing_waits &= latency_outbox_send(latency, &latency->share->logs[i].entry, &kind);
    }
    return nothing_waits;
}

/* ---- RECENT and COMMON ---- */

static bool print_recent(const struct policy_script_reply *reply, FILE *out)
{
    if (reply->error != NULL) {
        return false;
    }
    for (size_t i = 0; i < reply->count; i++) {
        latency_excerpt_print_text(reply->texts[i], out);
        fputc('\n', out);
    }
    return true;
}

/* Each second text is how often the first one came. */
static bool print_common(const struct policy_script_reply *reply, FILE *out)
{
    if (reply->error != NULL) {
        return false;
    }
    for (size_t i = 0; i + 1 < reply->count; i += 2) {
        const struct slice *texts = reply->texts + i;
        fprintf(out, "count=%.*s event=", (int)texts[1].length, texts[1].data != NULL ? texts[1].data : "");
        latency_excerpt_print_text(texts[0], out);
        fputc('\n', out);
    }
    return true;
}

static void ask(struct latency *latency, struct admin_query *admin_query, const struct slice *arguments,
                const char *what, const struct latency_query *query)
{
    char key[LATENCY_KEY_SIZE];

    if (!latency->settings.events) {
        latency_answer_error(latency, admin_query, "no events are logged; see [events] enabled");
        return;
    }
    if (arguments[1].length > LATENCY_NAME_MAX || arguments[2].length > CONF_RULE_NAME_MAX) {
        latency_answer_error(latency, admin_query, "expected a name and a severity, such as slow warning");
        return;
    }
    int length = snprintf(key, sizeof key, "%s%s:%.*s:%.*s", latency->settings.events_prefix, what,
                          (int)arguments[1].length, arguments[1].data, (int)arguments[2].length, arguments[2].data);
    latency_ask(latency, admin_query, query, (struct slice){key, (size_t)length}, LENGTH);
}

void latency_verb_recent(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    static const struct latency_query query = {"event_recent", "Redis did not tell the events", print_recent};

    (void)count;
    ask(instance, admin_query, arguments, "recent", &query);
}

void latency_verb_common(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    static const struct latency_query query = {"event_common", "Redis did not tell the events", print_common};

    (void)count;
    ask(instance, admin_query, arguments, "common", &query);
}
