/* What the workers have in common. */
#include "base/siphash.h"
#include "latency/latency_private.h"

#include <inttypes.h>
#include <stdlib.h>

/* Of all operations, so much is left to names that clients choose: they cannot take the room of those of the rules. */
#define FREE_TEXT_PART 2

void *latency_share_new(size_t threads)
{
    struct latency_share *share = calloc(1, sizeof *share + threads * sizeof share->seats[0]);

    if (share == NULL) {
        return NULL;
    }
    struct siphash_key unique = siphash_random_key();
    snprintf(share->process, sizeof share->process, "%016" PRIx64 "%016" PRIx64, unique.words[0], unique.words[1]);
    share->threads = threads;
    pthread_mutex_init(&share->lock, NULL);
    pthread_mutex_init(&share->log_lock, NULL);
    return share;
}

void latency_share_free(void *shared)
{
    struct latency_share *share = shared;

    for (size_t i = 0; i < share->threads; i++) {
        latency_sketch_free(share->seats[i].sketch);
    }
    for (uint32_t i = 0; share->operations != NULL && i < share->operations->count; i++) {
        latency_operation_clear(latency_share_at(share, i));
    }
    latency_operation_names_free(share->operations);
    latency_slow_log_free(share->slow);
    latency_slow_log_free(share->big);
    pthread_mutex_destroy(&share->lock);
    pthread_mutex_destroy(&share->log_lock);
    free(share);
}

/* The operation of that name, unless no more that clients choose may be added: then LATENCY_OTHER. The lock is held. */
static uint32_t find_or_add(struct latency_share *share, struct slice name, bool free_text)
{
    char safe[LATENCY_NAME_MAX + 1];
    struct slice safe_name = {safe, latency_operation_safe_name(name, safe)};
    uint32_t operation;

    if (latency_operation_names_find(share->operations, safe_name, &operation)) {
        return operation;
    }
    if (free_text && share->free_texts >= share->most_free_texts) {
        share->free_texts_refused++;
        return LATENCY_OTHER;
    }
    operation = latency_operation_names_add(share->operations, name);
    share->free_texts += free_text && operation != LATENCY_OTHER;
    return operation;
}

/* The lock is held. */
static void keep(struct latency_share *share, uint32_t minutes)
{
    share->keep = minutes;
    for (uint32_t i = 0; i < share->operations->count; i++) {
        latency_operation_keep(latency_share_at(share, i), minutes, &share->lost);
    }
}

bool latency_share_enable(struct latency_share *share, const struct latency_settings *settings)
{
    pthread_mutex_lock(&share->lock);
    if (share->operations == NULL) {
        share->operations = latency_operation_names_new(settings->max_interfaces, sizeof(struct latency_operation));
    }
    bool is_made = share->operations != NULL;
    if (is_made) {
        share->operations->most = settings->max_interfaces;
        keep(share, settings->keep);
        share->most_free_texts = settings->max_interfaces / FREE_TEXT_PART;
    }
    pthread_mutex_unlock(&share->lock);
    return is_made;
}

static bool resize(struct latency_slow_log **log, uint32_t *length, uint32_t wanted)
{
    if (*length == wanted) {
        return true;
    }
    struct latency_slow_log *fresh = latency_slow_log_new(wanted);
    if (fresh == NULL) {
        return false;
    }
    latency_slow_log_free(*log);
    *log = fresh;
    *length = wanted;
    return true;
}

bool latency_share_resize_logs(struct latency_share *share, const struct latency_settings *settings)
{
    pthread_mutex_lock(&share->log_lock);
    bool resized = resize(&share->slow, &share->slow_length, settings->slow_length) &&
                   resize(&share->big, &share->big_length, settings->big_length);
    pthread_mutex_unlock(&share->log_lock);
    return resized;
}

uint32_t latency_share_operation_number(struct latency_share *share, struct slice name, bool free_text)
{
    pthread_mutex_lock(&share->lock);
    uint32_t operation = find_or_add(share, name, free_text);
    pthread_mutex_unlock(&share->lock);
    return operation;
}

uint32_t latency_share_count(struct latency_share *share)
{
    pthread_mutex_lock(&share->lock);
    uint32_t count = share->operations->count;
    pthread_mutex_unlock(&share->lock);
    return count;
}

struct latency_operation *latency_share_operation(struct latency_share *share, uint32_t number)
{
    pthread_mutex_lock(&share->lock);
    struct latency_operation *operation = latency_share_at(share, number);
    pthread_mutex_unlock(&share->lock);
    return operation;
}

bool latency_share_total(struct latency_share *share, uint32_t number, struct latency_figures *figures)
{
    pthread_mutex_lock(&share->lock);
    const struct latency_figures *total = latency_share_at(share, number)->total;
    if (total != NULL) {
        *figures = *total;
    }
    pthread_mutex_unlock(&share->lock);
    return total != NULL;
}

void latency_share_move(struct latency *latency, uint32_t number)
{
    struct latency_share *share = latency->share;
    struct latency_open *open = number < latency->open_room ? latency->open[number] : NULL;
    uint64_t requests = open != NULL ? open->figures.histogram.count : 0;

    if (requests == 0) {
        return;
    }
    struct latency_minute *minute = latency_minute_seal(open->minute, &open->figures);
    memset(&open->figures, 0, sizeof open->figures);
    pthread_mutex_lock(&share->lock);
    if (minute != NULL) {
        latency_operation_add(latency_share_at(share, number), minute, share->keep, &share->lost);
    } else {
        latency_lose(&share->lost, requests);
    }
    pthread_mutex_unlock(&share->lock);
}

void latency_share_move_all(struct latency *latency)
{
    for (uint32_t i = 0; i < latency->open_room; i++) {
        latency_share_move(latency, i);
    }
}

void latency_share_move_some(struct latency *latency)
{
    struct latency_share *share = latency->share;
    struct latency_seat *seat = &share->seats[latency->host->worker];
    uint32_t left = latency_share_slice(latency->open_room);

    pthread_mutex_lock(&share->lock);
    if (latency->moving == 0 && seat->moved < share->wanted) {
        latency->moving = share->wanted;
        latency->move_at = 0;
    }
    pthread_mutex_unlock(&share->lock);
    for (; latency->moving > 0 && left > 0 && latency->move_at < latency->open_room; left--) {
        latency_share_move(latency, latency->move_at++);
    }
    if (latency->moving > 0 && latency->move_at == latency->open_room) {
        pthread_mutex_lock(&share->lock);
        seat->moved = latency->moving;
        pthread_mutex_unlock(&share->lock);
        latency->moving = 0;
    }
}
