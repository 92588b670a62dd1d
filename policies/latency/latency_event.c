/*
 * What happened: how often goes to [counters], and what to [events], logs in Redis with the newest in a list and how
 * many there were in each hour. Each worker gathers messages and hands them to the shared logs at each tick; worker 0
 * sends them.
 */
#include "latency/latency_private.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define KEYS 6
#define NUMBER_SIZE 24
/* Lines of the list; messages of a sorted set; and for how many seconds all of it is kept. */
#define LENGTH "100"
#define MESSAGES_MAX "1000"
#define KEEP_S "604800"
/* Arguments of the script: keys, those for all messages, and those of each. */
#define GENERAL 5
#define OF_EACH 3

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
} kinds[POLICY_HAPPENINGS] = {
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

void latency_event(struct latency *latency, uint32_t interface)
{
    pthread_mutex_lock(&latency->share->lock);
    /* It stays where it is. */
    const char *name = latency_interfaces_name(latency->share->interfaces, interface);
    pthread_mutex_unlock(&latency->share->lock);
    gather(latency, LATENCY_LOG_SLOW, name, 1);
}

bool latency_listens(void *instance)
{
    const struct latency *latency = instance;

    return latency->settings.enabled && (latency->settings.counters || latency->settings.events);
}

void latency_happening(void *instance, const struct policy_happening *happening)
{
    struct latency *latency = instance;
    enum latency_logged log = kinds[happening->kind].log;
    char text[LATENCY_MESSAGE_MAX + 1];

    latency->tallied[kinds[happening->kind].tally] += happening->count;
    if (latency->settings.events && log != LATENCY_LOGS) {
        latency_message_write(happening->source, happening->rule, happening->what, text);
        gather(latency, log, text, happening->count);
    }
}

static void hand_over(struct latency *latency)
{
    struct latency_share *share = latency->share;
    int64_t second = latency_now(latency) / LATENCY_US_PER_S;

    if (!latency->has_logged) {
        return;
    }
    latency->has_logged = false;
    pthread_mutex_lock(&share->log_lock);
    for (int i = 0; i < LATENCY_LOGS; i++) {
        latency_message_move(&share->logs[i].waiting, &latency->logged[i], second);
    }
    pthread_mutex_unlock(&share->log_lock);
}

/* ---- to Redis ---- */

static void acknowledge(struct latency_share *share, size_t log)
{
    pthread_mutex_lock(&share->log_lock);
    share->logs[log].snapshot.length = 0;
    pthread_mutex_unlock(&share->log_lock);
}

static const struct latency_parcel_kind log_parcel = {
    .script = "event_log",
    .key_count = KEYS,
    .trouble = "events were not logged",
    .acknowledge = acknowledge,
};

/* The snapshot that is out, or a new one; its number, or 0 if there is nothing. */
static uint64_t take(struct latency *latency, enum latency_logged which, struct latency_message_list *list)
{
    struct latency_log *log = &latency->share->logs[which];

    pthread_mutex_lock(&latency->share->log_lock);
    if (log->snapshot.length == 0 && log->waiting.length > 0) {
        log->snapshot = log->waiting;
        log->waiting.length = 0;
        log->number++;
    }
    *list = log->snapshot;
    uint64_t number = log->number;
    pthread_mutex_unlock(&latency->share->log_lock);
    return list->length > 0 ? number : 0;
}

static size_t write_keys(const struct latency *latency, const char *name, char keys[KEYS][LATENCY_KEY_SIZE],
                         struct slice *arguments)
{
    static const char *const parts[KEYS][2] = {{"recent", ":by:"},   {"recent", ""},      {"common", ""},
                                               {"common", ":start"}, {"common", ":last"}, {"common", ":pstart"}};

    for (size_t i = 0; i < KEYS; i++) {
        snprintf(keys[i], LATENCY_KEY_SIZE, "%s%s:%s%s%s", latency->settings.events_prefix, parts[i][0], name,
                 parts[i][1], i == 0 ? latency->share->process : "");
        arguments[i] = slice_of(keys[i]);
    }
    return KEYS;
}

static void send_log(struct latency *latency, enum latency_logged log, const struct latency_message_list *list,
                     uint64_t number)
{
    char keys[KEYS][LATENCY_KEY_SIZE], numbers[2][NUMBER_SIZE], times[LATENCY_MESSAGES][NUMBER_SIZE],
        ages[LATENCY_MESSAGES][NUMBER_SIZE];
    struct slice arguments[KEYS + GENERAL + OF_EACH * LATENCY_MESSAGES];
    struct latency_parcel *parcel = &latency->log_parcels[log];
    size_t count = write_keys(latency, log_names[log], keys, arguments);
    int64_t second = latency_now(latency) / LATENCY_US_PER_S;

    snprintf(numbers[0], NUMBER_SIZE, "%" PRIu64, number);
    snprintf(numbers[1], NUMBER_SIZE, "%" PRId64, LATENCY_REMEMBER_S);
    const char *const general[GENERAL] = {numbers[0], numbers[1], LENGTH, MESSAGES_MAX, KEEP_S};
    for (size_t i = 0; i < GENERAL; i++) {
        arguments[count++] = slice_of(general[i]);
    }
    for (size_t i = 0; i < list->length; i++) {
        snprintf(times[i], NUMBER_SIZE, "%" PRIu64, list->messages[i].times);
        snprintf(ages[i], NUMBER_SIZE, "%" PRId64, latency_age_s(second, list->messages[i].second));
        arguments[count++] = slice_of(list->messages[i].text);
        arguments[count++] = slice_of(times[i]);
        arguments[count++] = slice_of(ages[i]);
    }
    *parcel = (struct latency_parcel){.latency = latency, .kind = &log_parcel, .which = log};
    latency_send(parcel, arguments, count);
}

/* Nothing of it has to go to Redis, or is on its way there. */
static bool is_empty(const struct latency *latency, enum latency_logged which)
{
    const struct latency_log *log = &latency->share->logs[which];

    pthread_mutex_lock(&latency->share->log_lock);
    bool empty = log->waiting.length == 0 && log->snapshot.length == 0;
    pthread_mutex_unlock(&latency->share->log_lock);
    return empty;
}

bool latency_events_go(struct latency *latency, bool now)
{
    struct latency_message_list list;
    bool have_gone = true;

    hand_over(latency);
    if (!latency->settings.events || latency->host->worker != LATENCY_FLUSHER) {
        return true;
    }
    for (int i = 0; i < LATENCY_LOGS; i++) {
        enum latency_logged log = (enum latency_logged)i;
        uint64_t number = now && !latency->log_parcels[i].is_under_way ? take(latency, log, &list) : 0;
        if (number > 0) {
            send_log(latency, log, &list, number);
        }
        have_gone = have_gone && is_empty(latency, log);
    }
    return have_gone;
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

static void ask(struct latency *latency, struct policy_question *question, const struct slice *arguments,
                const char *what, const struct latency_query *query)
{
    char key[LATENCY_KEY_SIZE];

    if (!latency->settings.events) {
        latency_answer_error(latency, question, "no events are logged; see [events] enabled");
        return;
    }
    if (arguments[1].length > LATENCY_NAME_MAX || arguments[2].length > CONF_RULE_NAME_MAX) {
        latency_answer_error(latency, question, "expected a name and a severity, such as slow warning");
        return;
    }
    int length = snprintf(key, sizeof key, "%s%s:%.*s:%.*s", latency->settings.events_prefix, what,
                          (int)arguments[1].length, arguments[1].data, (int)arguments[2].length, arguments[2].data);
    latency_ask(latency, question, query, (struct slice){key, (size_t)length}, LENGTH);
}

void latency_verb_recent(void *instance, struct policy_question *question, size_t count, const struct slice *arguments)
{
    static const struct latency_query query = {"event_recent", "Redis did not tell the events", print_recent};

    (void)count;
    ask(instance, question, arguments, "recent", &query);
}

void latency_verb_common(void *instance, struct policy_question *question, size_t count, const struct slice *arguments)
{
    static const struct latency_query query = {"event_common", "Redis did not tell the events", print_common};

    (void)count;
    ask(instance, question, arguments, "common", &query);
}
