/* Samples: figures of the minute, the logs of slow and large requests, the hot keys. */
#include "latency/latency_private.h"

#include <stdlib.h>
#include <string.h>

#define KEYS_LOOKED_AT 32

void latency_read_clock(struct latency *latency, int64_t now_us)
{
    latency->wall_offset_us = latency->host->wall_us(latency->host->context) - now_us;
    latency->minute = latency_minute_of(now_us + latency->wall_offset_us);
    latency->minute_begins_us = latency->minute * LATENCY_US_PER_MINUTE - latency->wall_offset_us;
    latency->minute_ends_us = latency->minute_begins_us + LATENCY_US_PER_MINUTE;
}

/* The minute in which that moment of the monotonic clock lies. */
static int64_t minute_at(struct latency *latency, int64_t moment_us)
{
    if (moment_us >= latency->minute_ends_us) {
        latency_read_clock(latency, moment_us);
    }
    return moment_us >= latency->minute_begins_us ? latency->minute
                                                  : latency_minute_of(moment_us + latency->wall_offset_us);
}

static int64_t duration_us(const struct policy_sample *sample)
{
    return sample->answered_us > sample->received_us ? sample->answered_us - sample->received_us : 0;
}

/* ---- logs ---- */

static bool is_slow(const struct latency *latency, const struct policy_sample *sample)
{
    const struct latency_settings *settings = &latency->settings;

    return settings->slow_us > 0 && (sample->tag & LATENCY_TAG_BLOCKING) == 0 &&
           duration_us(sample) >= settings->slow_us;
}

static bool is_big(const struct latency *latency, const struct policy_sample *sample)
{
    const struct latency_settings *settings = &latency->settings;

    return (settings->big_request > 0 && sample->request_bytes >= settings->big_request) ||
           (settings->big_reply > 0 && sample->reply_bytes >= settings->big_reply);
}

struct policy_attention latency_attends(void *instance)
{
    const struct latency *latency = instance;
    const struct latency_settings *settings = &latency->settings;
    struct policy_attention attention = {.us = INT64_MAX, .bytes = UINT64_MAX};

    if (settings->slow_us > 0) {
        attention.us = settings->slow_us;
    }
    if (settings->big_request > 0) {
        attention.bytes = settings->big_request;
    }
    if (settings->big_reply > 0 && settings->big_reply < attention.bytes) {
        attention.bytes = settings->big_reply;
    }
    attention.heads = settings->enabled && (attention.us < INT64_MAX || attention.bytes < UINT64_MAX);
    return attention;
}

static struct slice text_of(const char *text)
{
    size_t length = 0;

    while (text != NULL && text[length] != '\0' && length < LATENCY_SLOW_TEXT_MAX) {
        length++;
    }
    return (struct slice){text, length};
}

static struct latency_slow_entry entry_of(const struct latency *latency, const struct policy_sample *sample)
{
    const struct policy_client *client = sample->client;
    int64_t sent_us = sample->is_local ? sample->answered_us : sample->sent_us;

    return (struct latency_slow_entry){
        .unix_us = sample->answered_us + latency->wall_offset_us,
        .queued_us = sent_us - sample->received_us,
        .redis_us = sample->answered_us - sent_us,
        .writing_us = sample->written_us > 0 ? sample->written_us - sample->answered_us : -1,
        .bytes_in = sample->request_bytes,
        .bytes_out = sample->reply_bytes,
        .address = text_of(client != NULL ? client->address_text : NULL),
        .name = text_of(client != NULL ? client->name : NULL),
        .user = text_of(client != NULL ? client->user : NULL),
    };
}

static enum latency_excerpt_scope scope_of(const struct latency *latency, struct slice name)
{
    if (command_find(name) == NULL && !latency_names_have_learned(&latency->names, name)) {
        return LATENCY_EXCERPT_NOTHING;
    }
    return latency->settings.shows_values ? LATENCY_EXCERPT_VALUES : LATENCY_EXCERPT_KEYS;
}

void latency_written(void *instance, const struct policy_sample *sample)
{
    struct latency *latency = instance;
    struct latency_slow_entry entry = entry_of(latency, sample);
    char excerpt[LATENCY_EXCERPT_MAX];

    enum latency_excerpt_scope scope = scope_of(latency, latency_excerpt_name(sample->head));
    entry.excerpt = (struct slice){excerpt, latency_excerpt_make(sample->head, scope, excerpt)};
    /* Without memory an entry is missing. */
    pthread_mutex_lock(&latency->share->log_lock);
    if (is_slow(latency, sample)) {
        (void)latency_slow_log_add(latency->share->slow, &entry);
    }
    if (is_big(latency, sample)) {
        (void)latency_slow_log_add(latency->share->big, &entry);
    }
    pthread_mutex_unlock(&latency->share->log_lock);
}

/* ---- figures ---- */

/* False when memory is short. */
static bool make_room(struct latency *latency, uint32_t count)
{
    uint32_t room = latency->open_room > 0 ? latency->open_room : 64;

    while (room < count) {
        room *= 2;
    }
    struct latency_open **open = realloc(latency->open, room * sizeof(struct latency_open *));
    if (open == NULL) {
        return false;
    }
    memset(open + latency->open_room, 0, (room - latency->open_room) * sizeof(struct latency_open *));
    latency->open = open;
    latency->open_room = room;
    return true;
}

/* The open minute of an operation; NULL when memory is short. */
static struct latency_open *open_of(struct latency *latency, uint32_t operation)
{
    if (operation >= latency->open_room && !make_room(latency, operation + 1)) {
        return NULL;
    }
    if (latency->open[operation] == NULL) {
        latency->open[operation] = calloc(1, sizeof(struct latency_open));
    }
    return latency->open[operation];
}

static void lose(struct latency_share *share, uint64_t requests)
{
    pthread_mutex_lock(&share->lock);
    latency_lose(&share->lost, requests);
    pthread_mutex_unlock(&share->lock);
}

static void record(struct latency *latency, uint32_t operation, int64_t minute, const struct latency_sample *sample)
{
    struct latency_open *open = open_of(latency, operation);

    if (open == NULL) {
        lose(latency->share, sample->count);
        return;
    }
    if (open->minute != minute) {
        latency_share_move(latency, operation);
        open->minute = minute;
    }
    latency_figures_record(&open->figures, sample);
}

bool latency_sample(void *instance, const struct policy_sample *sample)
{
    struct latency *latency = instance;
    const struct latency_sample figures = {
        .us = (uint64_t)duration_us(sample),
        .count = sample->count,
        .errors = sample->errors,
        .bytes_in = sample->request_bytes,
        .bytes_out = sample->reply_bytes,
    };

    /* Switched off while the request was under way. */
    if (!latency->settings.enabled) {
        return false;
    }
    uint32_t operation = latency_tag_operation(latency, sample->tag);
    record(latency, operation, minute_at(latency, sample->answered_us), &figures);
    policy_count(&latency->counters[LATENCY_COUNTER_SAMPLES], sample->count);
    bool slow = is_slow(latency, sample);
    latency->tallied[LATENCY_TALLY_REQUESTS] += sample->count;
    latency->tallied[LATENCY_TALLY_ERRORS] += sample->errors;
    latency->tallied[LATENCY_TALLY_SLOW] += slow ? sample->count : 0;
    if (slow && latency->settings.events) {
        latency_event(latency, operation);
    }
    return slow || is_big(latency, sample);
}

/* ---- hot keys ---- */

/* A request may have a million keys: the first ones are looked at, and nobody has to wait. */
struct key_hunt {
    struct latency_sketch *sketch;
    size_t left;
};

static bool add_key(void *context, struct slice key, uint32_t argument_index)
{
    struct key_hunt *hunt = context;

    (void)argument_index;
    latency_sketch_add(hunt->sketch, key, POLICY_SPOT_INTERVAL);
    return --hunt->left > 0;
}

void latency_spot(void *instance, const struct policy_request *request)
{
    struct latency *latency = instance;
    struct key_hunt hunt = {latency->sketch, KEYS_LOOKED_AT};

    if (!latency->settings.enabled || !latency->settings.hot_keys || request->command == NULL) {
        return;
    }
    pthread_mutex_lock(&latency->share->log_lock);
    (void)match_visit_keys(request, add_key, &hunt);
    pthread_mutex_unlock(&latency->share->log_lock);
}
