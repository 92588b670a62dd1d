/*
 * [events]: which interfaces had slow requests, in Redis: the newest in a list, and how many in each hour. They are
 * gathered by interface until worker 0 sends them.
 */
#include "latency_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FLUSHER 0
#define NAME "slow"
#define SEVERITY "warning"
#define KEYS 6
#define KEY_SIZE 256
#define NUMBER_SIZE 24
/* Lines of the list; messages of a sorted set; and for how many seconds all of it is kept. */
#define LENGTH "100"
#define MESSAGES_MAX "1000"
#define KEEP_S "604800"

static struct slice slice_of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

void latency_event(struct latency *latency, uint32_t interface)
{
    struct latency_event_list *list = &latency->share->events.waiting;
    size_t at = 0;

    pthread_mutex_lock(&latency->share->log_lock);
    while (at < list->length && list->interfaces[at] != interface) {
        at++;
    }
    if (at == LATENCY_EVENTS) {
        list->interfaces[--at] = LATENCY_OTHER;
    } else if (at == list->length) {
        list->interfaces[list->length] = interface;
        list->times[list->length++] = 0;
    }
    list->times[at]++;
    pthread_mutex_unlock(&latency->share->log_lock);
}

/* ---- to Redis ---- */

static void logged(void *context, const struct policy_script_reply *reply)
{
    struct latency *latency = context;
    enum latency_flush_end end = latency_flush_ended(reply);

    latency->calls--;
    latency->logs_events = false;
    if (end != LATENCY_FLUSH_AGAIN) {
        pthread_mutex_lock(&latency->share->log_lock);
        latency->share->events.snapshot.length = 0;
        pthread_mutex_unlock(&latency->share->log_lock);
    }
    if (end != LATENCY_FLUSH_DONE) {
        latency_warn(latency, "events were not logged", reply->error);
    }
}

/* The snapshot that is out, or a new one; its number, or 0 if there is nothing. */
static uint64_t take(struct latency *latency, struct latency_event_list *list)
{
    struct latency_events *events = &latency->share->events;

    pthread_mutex_lock(&latency->share->log_lock);
    if (events->snapshot.length == 0 && events->waiting.length > 0) {
        events->snapshot = events->waiting;
        events->waiting.length = 0;
        events->number++;
    }
    *list = events->snapshot;
    uint64_t number = events->number;
    pthread_mutex_unlock(&latency->share->log_lock);
    return list->length > 0 ? number : 0;
}

static void send_events(struct latency *latency, const struct latency_event_list *list, uint64_t number)
{
    static const char *const names[KEYS] = {"recent:" NAME ":" SEVERITY ":by:",  "recent:" NAME ":" SEVERITY,
                                            "common:" NAME ":" SEVERITY,         "common:" NAME ":" SEVERITY ":start",
                                            "common:" NAME ":" SEVERITY ":last", "common:" NAME ":" SEVERITY ":pstart"};
    char keys[KEYS][KEY_SIZE], numbers[2][NUMBER_SIZE], times[LATENCY_EVENTS][NUMBER_SIZE];
    const char *prefix = latency->settings.events_prefix;
    struct slice arguments[KEYS + 5 + 2 * LATENCY_EVENTS];
    size_t count = 0;

    for (size_t i = 0; i < KEYS; i++) {
        snprintf(keys[i], KEY_SIZE, "%s%s%s", prefix, names[i], i == 0 ? latency->share->process : "");
        arguments[count++] = slice_of(keys[i]);
    }
    snprintf(numbers[0], NUMBER_SIZE, "%" PRIu64, number);
    snprintf(numbers[1], NUMBER_SIZE, "%" PRId64, LATENCY_REMEMBER_S);
    const char *const rest[] = {numbers[0], numbers[1], LENGTH, MESSAGES_MAX, KEEP_S};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
        arguments[count++] = slice_of(rest[i]);
    }
    for (size_t i = 0; i < list->length; i++) {
        pthread_mutex_lock(&latency->share->lock);
        arguments[count++] = slice_of(latency_interfaces_name(latency->share->interfaces, list->interfaces[i]));
        pthread_mutex_unlock(&latency->share->lock);
        snprintf(times[i], NUMBER_SIZE, "%" PRIu64, list->times[i]);
        arguments[count++] = slice_of(times[i]);
    }
    latency->logs_events = true;
    latency_run(latency, "event_log", arguments, count, KEYS, logged, latency);
}

bool latency_events_go(struct latency *latency)
{
    struct latency_event_list list;

    if (!latency->settings.events || latency->host->worker != FLUSHER) {
        return true;
    }
    if (latency->logs_events) {
        return false;
    }
    uint64_t number = take(latency, &list);
    if (number > 0) {
        send_events(latency, &list, number);
    }
    return number == 0;
}

/* ---- RECENT and COMMON ---- */

struct question {
    struct latency *latency;
    struct policy_question *question;
    bool with_counts; /* each second text is how often the first one came */
};

static void print_reply(const struct question *asked, const struct policy_script_reply *reply, FILE *out)
{
    size_t step = asked->with_counts ? 2 : 1;

    for (size_t i = 0; i + step <= reply->count; i += step) {
        const struct slice *texts = reply->texts + i;
        if (asked->with_counts) {
            fprintf(out, "count=%.*s event=", (int)texts[1].length, texts[1].data != NULL ? texts[1].data : "");
        }
        latency_excerpt_print_text(texts[0], out);
        fputc('\n', out);
    }
}

static void answer(void *context, const struct policy_script_reply *reply)
{
    struct question *asked = context;
    struct latency *latency = asked->latency;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    latency->calls--;
    if (out != NULL) {
        print_reply(asked, reply, out);
    }
    if (out == NULL || fclose(out) != 0) {
        latency_answer_error(latency, asked->question, "out of memory");
    } else if (reply->error != NULL) {
        latency_answer_error(latency, asked->question, "Redis did not tell the events");
    } else {
        latency->host->answer(latency->host->context, asked->question, POLICY_ANSWER_TEXT,
                              (struct slice){text, length});
    }
    free(text);
    free(asked);
}

static void ask(struct latency *latency, struct policy_question *question, const struct slice *arguments,
                const char *what, const char *script)
{
    char key[KEY_SIZE];

    if (!latency->settings.events) {
        latency_answer_error(latency, question, "no events are logged; see [events] enabled");
        return;
    }
    if (arguments[1].length > LATENCY_NAME_MAX || arguments[2].length > CONF_RULE_NAME_MAX) {
        latency_answer_error(latency, question, "expected a name and a severity, such as " NAME " " SEVERITY);
        return;
    }
    struct question *asked = malloc(sizeof *asked);
    if (asked == NULL) {
        latency_answer_error(latency, question, "out of memory");
        return;
    }
    *asked = (struct question){latency, question, strcmp(script, "event_common") == 0};
    int length = snprintf(key, sizeof key, "%s%s:%.*s:%.*s", latency->settings.events_prefix, what,
                          (int)arguments[1].length, arguments[1].data, (int)arguments[2].length, arguments[2].data);
    const struct slice call[] = {{key, (size_t)length}, slice_of(LENGTH)};
    latency_run(latency, script, call, 2, 1, answer, asked);
}

void latency_verb_recent(void *instance, struct policy_question *question, size_t count, const struct slice *arguments)
{
    (void)count;
    ask(instance, question, arguments, "recent", "event_recent");
}

void latency_verb_common(void *instance, struct policy_question *question, size_t count, const struct slice *arguments)
{
    (void)count;
    ask(instance, question, arguments, "common", "event_common");
}
