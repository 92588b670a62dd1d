/*
 * What workers tell, gathered: from worker to worker, each of which lets its clients have a turn between two parts. One
 * gathering is under way at a time, for all who wait; and what is newer than SNAPSHOT_US is not gathered anew. So it
 * costs the workers the same however many ask, and however often.
 */
#include "http/http_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* How long a snapshot serves those who ask. µs. */
#define SNAPSHOT_US ((int64_t)500000)
/* Clients that a worker looks at in one loop iteration, and in all for one snapshot. */
#define CLIENTS_PER_TURN 2048
#define CLIENTS_PER_WORKER ((size_t)20000)

const struct http_verb http_verbs[HTTP_VERBS] = {
    {"limits", {"LIMITS"}},    {"leases", {"LEASES", "*", "100"}}, {"slow", {"SLOWLOG", "25"}},
    {"big", {"BIGLOG", "25"}}, {"hot_keys", {"HOTKEYS"}},          {"events", {"EVENTS"}},
};

/* What is gathered of each worker, in this order; the verbs of one of them. */
enum step { STEP_FACTS, STEP_DURATIONS, STEP_CLIENTS, STEP_LANES, STEP_VERBS, STEPS };

struct http_gathering {
    struct message message;
    struct http *http;
    struct http_snapshot *snapshot;
    size_t server;
    size_t worker; /* of that server */
    enum step step;
    bool more; /* the step goes on */
    uint32_t operation_at;
    uint64_t after; /* this client */
    size_t clients_visited;
    size_t verb;
};

static const struct worker_pool *worker_pool_of(const struct http_gathering *gathering)
{
    return &gathering->http->servers->list[gathering->server].worker_pool;
}

static struct http_part *part_of(const struct http_gathering *gathering)
{
    return &gathering->snapshot->parts[gathering->server];
}

static bool is_last_worker(const struct http_gathering *gathering)
{
    return gathering->worker + 1 == worker_pool_of(gathering)->count;
}

/* ---- memory ---- */

static void free_part(struct http_part *part)
{
    for (size_t i = 0; i < part->operation_count; i++) {
        free(part->operations[i].name);
        free(part->operations[i].buckets);
    }
    free(part->operations);
    for (size_t i = 0; i < HTTP_VERBS; i++) {
        text_free(&part->answers[i]);
    }
}

void http_snapshot_free(struct http_snapshot *snapshot)
{
    if (snapshot == NULL) {
        return;
    }
    for (size_t i = 0; i < snapshot->part_count; i++) {
        free_part(&snapshot->parts[i]);
    }
    for (size_t i = 0; i < HTTP_FORMS; i++) {
        http_text_drop(snapshot->texts[i]);
    }
    free(snapshot);
}

static void copy_name(char to[HTTP_NAME_SIZE], const char *from)
{
    snprintf(to, HTTP_NAME_SIZE, "%s", from);
}

/* ---- clients ---- */

/* Those come first of whom most is kept, then those with most under way, then those who sent something last. */
static bool is_busier(const struct client_report *report, const struct http_client_row *row)
{
    size_t bytes = report->input_bytes + report->output_bytes, other_bytes = row->input_bytes + row->output_bytes;

    if (bytes != other_bytes) {
        return bytes > other_bytes;
    }
    return report->in_flight != row->in_flight ? report->in_flight > row->in_flight : report->idle_us < row->idle_us;
}

static void fill_client(struct http_client_row *row, const struct client_report *report,
                        const struct http_gathering *gathering)
{
    row->id = report->id;
    row->server = gathering->server;
    row->worker = gathering->worker;
    copy_name(row->address, report->address);
    copy_name(row->name, report->name);
    copy_name(row->user, report->user);
    copy_name(row->identity, report->identity);
    copy_name(row->lane, report->lane);
    row->database = report->database;
    row->resp = report->resp;
    row->age_us = report->age_us;
    row->idle_us = report->idle_us;
    row->in_flight = report->in_flight;
    row->input_bytes = report->input_bytes;
    row->output_bytes = report->output_bytes;
}

static void add_client(void *context, const struct client_report *report)
{
    struct http_gathering *gathering = context;
    struct http_snapshot *snapshot = gathering->snapshot;
    size_t place = snapshot->clients_shown;

    gathering->clients_visited++;
    while (place > 0 && is_busier(report, &snapshot->clients[place - 1])) {
        place--;
    }
    if (place == HTTP_ROWS_MAX) {
        return;
    }
    snapshot->clients_shown += snapshot->clients_shown < HTTP_ROWS_MAX;
    memmove(&snapshot->clients[place + 1], &snapshot->clients[place],
            (snapshot->clients_shown - place - 1) * sizeof snapshot->clients[0]);
    fill_client(&snapshot->clients[place], report, gathering);
}

static bool collect_clients(struct http_gathering *gathering, struct worker *worker)
{
    gathering->after = client_visit(worker_clients(worker), gathering->after, CLIENTS_PER_TURN, add_client, gathering);
    bool more = gathering->after != 0 && gathering->clients_visited < CLIENTS_PER_WORKER;
    if (!more) {
        gathering->snapshot->client_count += client_count(worker_clients(worker));
        gathering->after = 0;
        gathering->clients_visited = 0;
    }
    return more;
}

/* ---- lanes ---- */

static void fill_lane(struct http_lane_row *row, struct lane *lane, const struct http_gathering *gathering)
{
    const struct profile *profile = lane_profile(lane);

    row->id = lane->id;
    row->server = gathering->server;
    row->worker = gathering->worker;
    copy_name(row->use, lane_use_name(lane->use));
    copy_name(row->state, lane_state_name(lane->state));
    copy_name(row->user, profile_user(profile));
    row->database = profile->database;
    row->resp = profile->resp;
    row->waiting = lane->requests_waiting;
    row->output_bytes = buffer_length(&lane->output);
    row->idle_us = clock_now_us() - lane->used_us;
    row->failures = lane->failures;
}

static void add_lane(void *context, struct lane *lane)
{
    struct http_gathering *gathering = context;
    struct http_snapshot *snapshot = gathering->snapshot;
    size_t place = snapshot->lanes_shown;

    snapshot->lane_count++;
    while (place > 0 && snapshot->lanes[place - 1].waiting < lane->requests_waiting) {
        place--;
    }
    if (place == HTTP_ROWS_MAX) {
        return;
    }
    snapshot->lanes_shown += snapshot->lanes_shown < HTTP_ROWS_MAX;
    memmove(&snapshot->lanes[place + 1], &snapshot->lanes[place],
            (snapshot->lanes_shown - place - 1) * sizeof snapshot->lanes[0]);
    fill_lane(&snapshot->lanes[place], lane, gathering);
}

/* ---- durations ---- */

static bool add_buckets(struct http_operation *operation, const uint64_t *buckets)
{
    size_t count = 0;

    for (size_t i = 0; i < POLICY_DURATION_BUCKETS; i++) {
        count += buckets[i] != 0;
    }
    operation->buckets = malloc((count > 0 ? count : 1) * sizeof operation->buckets[0]);
    if (operation->buckets == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < POLICY_DURATION_BUCKETS; i++) {
        if (buckets[i] != 0) {
            operation->buckets[operation->bucket_count++] = (struct http_bucket){i, buckets[i]};
        }
    }
    return true;
}

static bool make_room(struct http_part *part)
{
    size_t room = part->operation_room > 0 ? 2 * part->operation_room : 64;

    if (part->operation_count < part->operation_room) {
        return true;
    }
    struct http_operation *operations = realloc(part->operations, room * sizeof operations[0]);
    if (operations == NULL) {
        return false;
    }
    part->operations = operations;
    part->operation_room = room;
    return true;
}

static void add_durations(void *context, const struct policy_durations *durations)
{
    struct http_gathering *gathering = context;
    struct http_part *part = part_of(gathering);

    if (!make_room(part)) {
        gathering->snapshot->is_lost = true;
        return;
    }
    struct http_operation *operation = &part->operations[part->operation_count++];
    *operation = (struct http_operation){
        .number = durations->number,
        .name = strdup(durations->operation),
        .count = durations->count,
        .errors = durations->errors,
        .sum_us = durations->sum_us,
        .min_us = durations->min_us,
        .max_us = durations->max_us,
        .request_bytes = durations->request_bytes,
        .reply_bytes = durations->reply_bytes,
    };
    if (operation->name == NULL || !add_buckets(operation, durations->buckets)) {
        gathering->snapshot->is_lost = true;
    }
}

/* Only the last worker of a server tells; the others have what they know come together. */
static bool collect_durations(struct http_gathering *gathering, struct worker *worker)
{
    return client_service_tell_durations(worker_clients(worker), &gathering->operation_at,
                                         is_last_worker(gathering) ? add_durations : NULL, gathering);
}

/* ---- verbs ---- */

static void on_answered(void *context, enum policy_answer kind, struct slice text)
{
    struct http_gathering *gathering = context;
    struct http_part *part = part_of(gathering);
    struct text_stream *answer = &part->answers[gathering->verb];

    part->is_refused[gathering->verb] = kind == POLICY_ANSWER_ERROR;
    if (text_open(answer)) {
        fwrite(text.data, 1, text.length, answer->out);
        if (!text_close(answer)) {
            text_free(answer);
        }
    }
}

/* Only verbs that answer at once are asked. */
static void ask_policy(struct http_gathering *gathering, struct worker *worker, size_t policy,
                       const struct policy_verb *verb)
{
    const char *const *words = http_verbs[gathering->verb].words;
    struct slice arguments[3];
    size_t count = 0;

    while (count < 3 && words[count] != NULL) {
        arguments[count] = slice_of(words[count]);
        count++;
    }
    const struct client_admin_query query = {
        .policy = policy,
        .verb = verb,
        .count = count,
        .arguments = arguments,
        .answered = on_answered,
        .context = gathering,
    };
    assert(verb->run != NULL);
    client_service_ask_policy(worker_clients(worker), &query);
}

/* One in each loop iteration, where a policy has it. */
static bool collect_verb(struct http_gathering *gathering, struct worker *worker)
{
    const struct chain_roster *policies = http_policies(gathering->http);
    const char *name = http_verbs[gathering->verb].words[0];

    for (size_t i = 0; i < policies->count; i++) {
        for (size_t n = 0; n < policies->list[i]->verb_count; n++) {
            if (strcmp(policies->list[i]->verbs[n].name, name) == 0) {
                ask_policy(gathering, worker, i, &policies->list[i]->verbs[n]);
            }
        }
    }
    return ++gathering->verb < HTTP_VERBS;
}

/* ---- from worker to worker ---- */

static bool collect_facts(struct http_gathering *gathering, struct worker *worker)
{
    struct worker_facts facts = worker_tell(worker);
    struct http_part *part = part_of(gathering);

    client_service_update_gauges(worker_clients(worker));
    if (facts.redis_version > part->facts.redis_version) {
        part->facts = facts;
    }
    return false;
}

static bool collect_lanes(struct http_gathering *gathering, struct worker *worker)
{
    worker_visit_lanes(worker, add_lane, gathering);
    return false;
}

static bool collect(struct http_gathering *gathering, struct worker *worker)
{
    switch (gathering->step) {
    case STEP_FACTS:
        return collect_facts(gathering, worker);
    case STEP_DURATIONS:
        return collect_durations(gathering, worker);
    case STEP_CLIENTS:
        return collect_clients(gathering, worker);
    case STEP_LANES:
        return collect_lanes(gathering, worker);
    default:
        return collect_verb(gathering, worker);
    }
}

static void on_main(struct message *message);

static void on_worker(struct message *message)
{
    struct http_gathering *gathering = (struct http_gathering *)(void *)message;
    struct http *http = gathering->http;

    gathering->more = collect(gathering, worker_pool_of(gathering)->workers[gathering->worker]);
    message->run = on_main;
    mailbox_post(&http->mailbox, message);
}

static void go_on(struct http_gathering *gathering)
{
    gathering->message.run = on_worker;
    worker_post(worker_pool_of(gathering)->workers[gathering->worker], &gathering->message);
}

/* The step behind this one; what all workers of a server share is asked of the last. */
static enum step next_step(const struct http_gathering *gathering)
{
    if (gathering->step == STEP_DURATIONS && !gathering->snapshot->is_whole) {
        return STEPS;
    }
    return gathering->step == STEP_LANES && !is_last_worker(gathering) ? STEPS : gathering->step + 1;
}

/* False: there is nothing more to gather. */
static bool advance(struct http_gathering *gathering)
{
    if (gathering->more) {
        return true;
    }
    gathering->step = next_step(gathering);
    if (gathering->step == STEPS) {
        gathering->step = STEP_FACTS;
        gathering->operation_at = 0;
        gathering->worker++;
    }
    if (gathering->worker == worker_pool_of(gathering)->count) {
        gathering->verb = 0;
        gathering->worker = 0;
        gathering->server++;
    }
    return gathering->server < gathering->http->servers->count;
}

/* ---- who waits ---- */

static bool serves(const struct http_snapshot *snapshot, enum http_form form)
{
    return snapshot != NULL && (snapshot->is_whole || form != HTTP_FORM_JSON);
}

static void reply_all(struct http *http, struct http_snapshot *snapshot)
{
    STAILQ_HEAD(, http_waiting) waiting = STAILQ_HEAD_INITIALIZER(waiting);

    STAILQ_CONCAT(&waiting, &http->waiting);
    while (!STAILQ_EMPTY(&waiting)) {
        struct http_waiting *first = STAILQ_FIRST(&waiting);
        STAILQ_REMOVE_HEAD(&waiting, next);
        if (snapshot == NULL || serves(snapshot, first->form)) {
            http_reply_waiting(http, first, snapshot);
        } else {
            STAILQ_INSERT_TAIL(&http->waiting, first, next);
        }
    }
}

/* For the one who has waited longest; and, as it is gathered anyway, for all. */
static void start(struct http *http)
{
    const struct http_waiting *waiting;
    struct http_gathering *gathering = calloc(1, sizeof *gathering);
    size_t count = http->servers->count;
    struct http_snapshot *snapshot = calloc(1, sizeof *snapshot + count * sizeof snapshot->parts[0]);

    if (gathering == NULL || snapshot == NULL) {
        free(gathering);
        free(snapshot);
        reply_all(http, NULL);
        return;
    }
    STAILQ_FOREACH(waiting, &http->waiting, next)
    {
        snapshot->is_whole = snapshot->is_whole || waiting->form == HTTP_FORM_JSON;
    }
    snapshot->part_count = count;
    gathering->http = http;
    gathering->snapshot = snapshot;
    http->gathering = gathering;
    go_on(gathering);
}

static void take(struct http *http, struct http_snapshot *snapshot)
{
    http_snapshot_free(http->snapshot);
    http->snapshot = snapshot;
    snapshot->at_us = clock_now_us();
    reply_all(http, snapshot);
}

static void on_main(struct message *message)
{
    struct http_gathering *gathering = (struct http_gathering *)(void *)message;
    struct http *http = gathering->http;

    if (!http->is_ending && advance(gathering)) {
        go_on(gathering);
        return;
    }
    struct http_snapshot *snapshot = gathering->snapshot;
    free(gathering);
    http->gathering = NULL;
    if (http->is_ending) {
        http_snapshot_free(snapshot);
        return;
    }
    take(http, snapshot);
    if (!STAILQ_EMPTY(&http->waiting)) {
        start(http);
    }
}

static bool is_new_enough(const struct http *http)
{
    return http->snapshot != NULL && clock_now_us() - http->snapshot->at_us < SNAPSHOT_US;
}

void http_snapshot_want(struct http *http, struct evhttp_request *request, enum http_form form)
{
    struct http_waiting *waiting = calloc(1, sizeof *waiting);

    if (waiting == NULL) {
        http_reply_line(http, request, 503, "out of memory");
        return;
    }
    waiting->request = request;
    waiting->form = form;
    if (is_new_enough(http) && serves(http->snapshot, form)) {
        http_reply_waiting(http, waiting, http->snapshot);
        return;
    }
    STAILQ_INSERT_TAIL(&http->waiting, waiting, next);
    if (http->gathering == NULL) {
        start(http);
    }
}

void http_snapshot_end(struct http *http)
{
    /* All messages have come back. */
    assert(http->gathering == NULL);
    reply_all(http, NULL);
    http_snapshot_free(http->snapshot);
    http->snapshot = NULL;
}
