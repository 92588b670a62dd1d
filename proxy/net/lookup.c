#include "net/lookup.h"

#include "base/log.h"
#include "conf/conf_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between the beginnings of two lookups, whoever asks; and, at most, after one that failed. */
#define PAUSE_US ((int64_t)500000)
#define AGAIN_US ((int64_t)1000000)

struct lookup {
    struct reactor *reactor;
    struct conf_address address;
    bool is_name;
    struct connection_targets targets;
    int64_t interval_us;
    int64_t begun_us;
    bool is_wanted;            /* somebody asked since the last one began */
    bool failed;               /* the last one; it was said */
    struct resolver *resolver; /* NULL: none is under way */
    struct event timer;        /* of the next one */
    lookup_callback *changed;
    lookup_refusal *refuses;
    void *context;
    struct stats *stats;
};

/* By which the address is copied and freed. */
static const struct conf_option address_option = {.name = "upstream", .type = CONF_ADDRESS};

static void begin(struct lookup *lookup);

/* ---- when ---- */

/* The time of the next one; 0: none is due. */
static int64_t next_us(const struct lookup *lookup)
{
    int64_t wait = lookup->interval_us;

    if (lookup->failed && (wait == 0 || wait > AGAIN_US)) {
        wait = AGAIN_US;
    }
    if (lookup->is_wanted && (wait == 0 || wait > PAUSE_US)) {
        wait = PAUSE_US;
    }
    return wait > 0 ? lookup->begun_us + wait : 0;
}

static void arm(struct lookup *lookup)
{
    int64_t at = next_us(lookup);

    event_del(&lookup->timer);
    if (lookup->resolver != NULL || !lookup->is_name || at == 0) {
        return;
    }
    int64_t delay = at - clock_now_us();
    delay = delay > 0 ? delay : 0;
    const struct timeval wait = {.tv_sec = delay / 1000000, .tv_usec = delay % 1000000};
    event_add(&lookup->timer, &wait);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    begin(context);
}

/* ---- what was found ---- */

static void write_targets(const struct connection_targets *targets, char *text, size_t size)
{
    size_t length = 0;

    text[0] = '\0';
    for (size_t i = 0; i < targets->count && length < size - 1; i++) {
        char one[64];
        connection_peer_text(&targets->items[i].address, one, sizeof one);
        int written = snprintf(text + length, size - length, "%s%s", i > 0 ? ", " : "", one);
        length += written > 0 ? (size_t)written : 0;
    }
}

/* Those that are not among others. */
static struct connection_targets targets_without(const struct connection_targets *targets,
                                                 const struct connection_targets *others)
{
    struct connection_targets rest = {.count = 0};

    for (size_t i = 0; i < targets->count; i++) {
        if (connection_targets_find(others, &targets->items[i]) == others->count) {
            rest.items[rest.count++] = targets->items[i];
        }
    }
    return rest;
}

static void say_change(const struct lookup *lookup, const struct connection_targets *found)
{
    struct connection_targets gone = targets_without(&lookup->targets, found);
    char left[256], now[256];

    write_targets(&gone, left, sizeof left);
    write_targets(found, now, sizeof now);
    if (lookup->targets.count == 0) {
        log_info("lookup", "%s is at %s", lookup->address.text, now);
    } else if (gone.count == 0) {
        log_info("lookup", "%s is at %s now", lookup->address.text, now);
    } else {
        log_info("lookup", "%s is at %s now, and no more at %s; connections to what it has left are replaced",
                 lookup->address.text, now, left);
    }
}

static void take_failure(struct lookup *lookup, const char *why)
{
    bool is_news = lookup->targets.count == 0 && lookup->targets.why != why;

    stats_add(lookup->stats, STATS_LOOKUPS_FAILED, 1);
    if (!lookup->failed) {
        log_warning("lookup", "cannot look up %s: %s; %s", lookup->address.text, why,
                    lookup->targets.count > 0 ? "going on with the addresses that are known" : "trying again");
    }
    lookup->failed = true;
    if (is_news) {
        lookup->targets.why = why;
        lookup->changed(lookup->context, &lookup->targets);
    }
}

static void take_answer(struct lookup *lookup, const struct connection_targets *found)
{
    if (lookup->failed) {
        log_info("lookup", "%s can be looked up again", lookup->address.text);
    }
    lookup->failed = false;
    if (!connection_targets_equal(&lookup->targets, found)) {
        say_change(lookup, found);
        lookup->targets = *found;
        lookup->changed(lookup->context, &lookup->targets);
    }
}

/* Those of the addresses that will do. */
static struct connection_targets sift(const struct lookup *lookup, const struct connection_targets *found)
{
    struct connection_targets kept = {.why = found->why};

    for (size_t i = 0; i < found->count; i++) {
        const struct sockaddr *address = (const struct sockaddr *)&found->items[i].address;
        const char *why = lookup->refuses != NULL ? lookup->refuses(lookup->context, address) : NULL;
        if (why == NULL) {
            kept.items[kept.count++] = found->items[i];
        } else {
            kept.why = why;
        }
    }
    return kept;
}

static void on_resolved(void *context, const struct connection_targets *found)
{
    struct lookup *lookup = context;
    struct connection_targets kept = sift(lookup, found);

    lookup->resolver = NULL;
    if (kept.count > 0) {
        take_answer(lookup, &kept);
    } else {
        take_failure(lookup, kept.why);
    }
    arm(lookup);
}

static void begin(struct lookup *lookup)
{
    lookup->begun_us = clock_now_us();
    lookup->is_wanted = false;
    stats_add(lookup->stats, STATS_LOOKUPS, 1);
    lookup->resolver = resolver_start(lookup->reactor, &lookup->address, on_resolved, lookup);
    if (lookup->resolver == NULL) {
        take_failure(lookup, "no thread or descriptor for it");
        arm(lookup);
    }
}

/* ---- life ---- */

struct lookup *lookup_new(struct reactor *reactor, const struct lookup_settings *settings)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);

    if (lookup == NULL) {
        return NULL;
    }
    lookup->reactor = reactor;
    conf_value_copy(&address_option, &lookup->address, settings->address);
    lookup->interval_us = clock_ms_to_us(settings->interval);
    lookup->changed = settings->changed;
    lookup->refuses = settings->refuses;
    lookup->context = settings->context;
    lookup->stats = settings->stats;
    evtimer_assign(&lookup->timer, reactor->base, on_timer, lookup);
    lookup->is_name = !connection_resolve_numeric(&lookup->address, &lookup->targets);
    if (lookup->is_name) {
        lookup->targets.why = NULL;
        begin(lookup);
    }
    return lookup;
}

void lookup_free(struct lookup *lookup)
{
    if (lookup->resolver != NULL) {
        resolver_cancel(lookup->resolver);
    }
    event_del(&lookup->timer);
    conf_value_free(&address_option, &lookup->address);
    free(lookup);
}

const struct connection_targets *lookup_targets(const struct lookup *lookup)
{
    return &lookup->targets;
}

bool lookup_is_needed(const struct lookup *lookup)
{
    return lookup->is_name;
}

void lookup_set_interval(struct lookup *lookup, int64_t interval_ms)
{
    lookup->interval_us = clock_ms_to_us(interval_ms);
    arm(lookup);
}

void lookup_soon(struct lookup *lookup)
{
    if (lookup->is_name && !lookup->is_wanted) {
        lookup->is_wanted = true;
        arm(lookup);
    }
}
