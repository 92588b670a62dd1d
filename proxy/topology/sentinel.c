#include "topology/sentinel_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_US 50000

/* By which addresses are copied and freed. */
static const struct conf_option address_option = {.name = "upstream", .type = CONF_ADDRESS, .takes_topology = true};

static bool is_known(const struct sentinel_watch *watch)
{
    return *watch->place.host != '\0';
}

/* ---- what the sentinels say together ---- */

static size_t count_opinions(const struct sentinel_watch *watch, enum opinion opinion)
{
    size_t count = 0;

    for (size_t i = 0; i < watch->source_count; i++) {
        count += watch->sources[i].opinion == opinion;
    }
    return count;
}

/* How many say so. */
static size_t count_votes(const struct sentinel_watch *watch, const struct place *place)
{
    size_t count = 0;

    for (size_t i = 0; i < watch->source_count; i++) {
        const struct source *source = &watch->sources[i];
        count += source->opinion == OPINION_PLACE && place_equal(&source->place, place);
    }
    return count;
}

/* The place that more than half of so many name; NULL: there is none. */
static const struct place *find_majority(const struct sentinel_watch *watch, size_t all)
{
    for (size_t i = 0; i < watch->source_count; i++) {
        const struct source *source = &watch->sources[i];
        if (source->opinion == OPINION_PLACE && count_votes(watch, &source->place) * 2 > all) {
            return &source->place;
        }
    }
    return NULL;
}

/* Whether one may still be about to answer. */
static bool is_awaited(const struct sentinel_watch *watch)
{
    bool is = false;

    for (size_t i = 0; i < watch->source_count; i++) {
        is = is || (watch->sources[i].opinion == OPINION_NONE && !watch->sources[i].is_down);
    }
    return is;
}

/* The place that most sentinels name; of those that answer, once it is known of each whether it does. So it is not the
 * first that is believed. */
static const struct place *find_wanted(const struct sentinel_watch *watch)
{
    return find_majority(watch, is_awaited(watch) ? watch->source_count : count_opinions(watch, OPINION_PLACE));
}

/* A master that answers as such is not left by the word of a few, be the others away: no failover goes without most
 * sentinels. */
static bool is_overruled(const struct sentinel_watch *watch, const struct place *place)
{
    const struct check *check = &watch->check;
    bool is_well = is_known(watch) && check->finding == CHECK_MASTER && place_equal(&check->place, &watch->place);

    return is_well && count_votes(watch, place) * 2 <= watch->source_count;
}

static void say_disagreement(struct sentinel_watch *watch)
{
    bool disagree = count_opinions(watch, OPINION_PLACE) > 0 && !is_awaited(watch) && find_wanted(watch) == NULL;

    if (disagree && !watch->disagreement_told) {
        log_warning("sentinel", "the sentinels do not agree where the master %s is: %s", watch->upstream.master,
                    is_known(watch) ? "going on with the one that is known" : "asking again");
    }
    watch->disagreement_told = disagree;
}

/* Why there is no master; NULL: it is too early to say. A constant text. */
static const char *find_reason(const struct sentinel_watch *watch)
{
    bool all_down = true;

    for (size_t i = 0; i < watch->source_count; i++) {
        all_down = all_down && watch->sources[i].is_down;
    }
    if (count_opinions(watch, OPINION_PLACE) > 0) {
        if (find_wanted(watch) == NULL) {
            return is_awaited(watch) ? NULL : "the sentinels do not agree where it is";
        }
        return watch->check.finding == CHECK_NO_MASTER ? "the server that the sentinels name is no master"
               : watch->check.told                     ? "the server that the sentinels name does not answer"
                                                       : NULL;
    }
    if (count_opinions(watch, OPINION_NOBODY) > 0) {
        return "the sentinels know no master of that name";
    }
    return all_down ? "no sentinel answers" : NULL;
}

static void tell_moved(struct sentinel_watch *watch)
{
    watch->settings.moved(watch->settings.context, &watch->master);
}

/* What was said once stays until there is something else to say. */
static void follow_reason(struct sentinel_watch *watch)
{
    const char *why = is_known(watch) ? NULL : find_reason(watch);

    if (why != NULL && why != watch->master.targets.why) {
        watch->master.targets.why = why;
        tell_moved(watch);
    }
}

void sentinel_decide(struct sentinel_watch *watch)
{
    const struct place *wanted = find_wanted(watch);

    if (wanted != NULL && !place_equal(wanted, &watch->check.place) && !is_overruled(watch, wanted)) {
        const struct place copy = *wanted;
        sentinel_check_begin(watch, &copy);
    }
    stats_set(watch->settings.stats, STATS_SENTINELS_UP, count_opinions(watch, OPINION_PLACE));
    say_disagreement(watch);
    follow_reason(watch);
}

/* ---- what the server says ---- */

static void say_found(const struct sentinel_watch *watch, const struct place *before)
{
    char now[PLACE_TEXT_MAX], then[PLACE_TEXT_MAX];

    place_text(&watch->place, now);
    place_text(before, then);
    if (*before->host == '\0') {
        log_info("sentinel", "the master %s is at %s", watch->upstream.master, now);
    } else {
        log_warning("sentinel",
                    "the master %s is at %s now, and no more at %s: all connections to that one are given up",
                    watch->upstream.master, now, then);
    }
}

void sentinel_found(struct sentinel_watch *watch, const struct connection_target *target)
{
    const struct place before = watch->place;
    struct connection_targets *targets = &watch->master.targets;
    bool is_there = targets->count == 1 && is_known(watch) && place_equal(&before, &watch->check.place) &&
                    connection_targets_find(targets, target) == 0;

    if (is_there) {
        return;
    }
    watch->place = watch->check.place;
    *targets = (struct connection_targets){.count = 1, .items = {*target}};
    watch->master.host = watch->place.host;
    watch->since_us = reactor_now(watch->reactor);
    if (watch->ever_found) {
        watch->changes++;
        stats_add(watch->settings.stats, STATS_TOPOLOGY_CHANGES, 1);
    }
    watch->ever_found = true;
    replica_watch_forget(watch->replicas);
    say_found(watch, &before);
    tell_moved(watch);
}

/* There is no master from now on. */
static void forget_place(struct sentinel_watch *watch, const char *why)
{
    watch->place = (struct place){.port = 0};
    watch->master.targets = (struct connection_targets){.why = why};
    watch->master.host = "";
    replica_watch_forget(watch->replicas);
    tell_moved(watch);
}

void sentinel_lost(struct sentinel_watch *watch)
{
    char text[PLACE_TEXT_MAX];

    place_text(&watch->place, text);
    log_warning("sentinel", "%s is no master any more by its own word: all connections to it are given up", text);
    forget_place(watch, "the server that the sentinels name is no master");
    sentinel_suspect(watch);
}

/* What is written there is lost, whatever that server says: it has been replaced. */
void sentinel_unnamed(struct sentinel_watch *watch)
{
    char text[PLACE_TEXT_MAX];

    if (!is_known(watch)) {
        return;
    }
    place_text(&watch->place, text);
    log_warning("sentinel", "%s is no master any more by the word of the sentinels: all connections to it are given up",
                text);
    forget_place(watch, watch->check.finding == CHECK_NO_MASTER ? "the server that the sentinels name is no master"
                                                                : "the server that the sentinels name does not answer");
}

void sentinel_suspect(struct sentinel_watch *watch)
{
    for (size_t i = 0; i < watch->source_count; i++) {
        sentinel_source_ask(&watch->sources[i]);
    }
    sentinel_check_ask(watch);
}

const struct sentinel_master *sentinel_master(const struct sentinel_watch *watch)
{
    return &watch->master;
}

/* ---- telling ---- */

static void visit_master(const struct sentinel_watch *watch, int64_t lanes, node_visit *visit, void *context)
{
    static const char *const states[] = {
        [CHECK_NOTHING] = "down", [CHECK_MASTER] = "up", [CHECK_NO_MASTER] = "no-master", [CHECK_UNSAID] = "unsaid"};
    const struct check *check = &watch->check;
    bool is_checked = is_known(watch) && place_equal(&check->place, &watch->place);
    char text[PLACE_TEXT_MAX] = "";
    struct node node = node_of("master", text, is_checked ? states[check->finding] : "left");

    node.lanes = lanes;
    if (is_known(watch)) {
        place_text(&watch->place, text);
        node.since_us = clock_now_us() - watch->since_us;
    } else {
        node.state = "unknown";
    }
    visit(context, &node);
}

static void visit_source(const struct source *source, node_visit *visit, void *context)
{
    static const char *const states[] = {
        [OPINION_NONE] = "down", [OPINION_NOBODY] = "knows-no-master", [OPINION_PLACE] = "up"};
    char text[PLACE_TEXT_MAX] = "";
    struct node node = node_of("sentinel", source->address.text, states[source->opinion]);

    node.says = text;
    if (source->opinion == OPINION_PLACE) {
        place_text(&source->place, text);
    }
    visit(context, &node);
}

void sentinel_visit_nodes(const struct sentinel_watch *watch, int64_t lanes, node_visit *visit, void *context)
{
    visit_master(watch, lanes, visit, context);
    replica_watch_visit(watch->replicas, visit, context);
    for (size_t i = 0; i < watch->source_count; i++) {
        visit_source(&watch->sources[i], visit, context);
    }
}

/* ---- life ---- */

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct sentinel_watch *watch = context;
    int64_t now_us = reactor_now(watch->reactor);

    (void)fd;
    (void)what;
    for (size_t i = 0; i < watch->source_count; i++) {
        sentinel_source_tick(&watch->sources[i], now_us);
    }
    sentinel_check_tick(watch, now_us);
    replica_watch_tick(watch->replicas);
}

struct sentinel_watch *sentinel_new(struct reactor *reactor, const struct sentinel_settings *settings)
{
    const struct timeval tick = {.tv_sec = 0, .tv_usec = TICK_US};
    struct sentinel_watch *watch = calloc(1, sizeof *watch);

    if (watch == NULL) {
        return NULL;
    }
    const struct replica_watch_settings of_replicas = {
        .conf = settings->conf,
        .changed = settings->replicas,
        .refuses = settings->refuses,
        .context = settings->context,
    };
    watch->replicas = replica_watch_new(reactor, &of_replicas);
    if (watch->replicas == NULL) {
        free(watch);
        return NULL;
    }
    watch->reactor = reactor;
    watch->settings = *settings;
    watch->master.host = "";
    conf_value_copy(&address_option, &watch->upstream, &settings->conf->upstream);
    watch->sources = conf_alloc(NULL, watch->upstream.seed_count * sizeof *watch->sources);
    event_assign(&watch->timer, reactor->base, -1, EV_PERSIST, on_tick, watch);
    for (; watch->source_count < watch->upstream.seed_count; watch->source_count++) {
        sentinel_source_open(&watch->sources[watch->source_count], watch, &watch->upstream.seeds[watch->source_count]);
    }
    if (event_add(&watch->timer, &tick) != 0) {
        sentinel_free(watch);
        return NULL;
    }
    on_tick(-1, 0, watch);
    return watch;
}

void sentinel_free(struct sentinel_watch *watch)
{
    event_del(&watch->timer);
    sentinel_check_end(watch);
    replica_watch_free(watch->replicas);
    for (size_t i = 0; i < watch->source_count; i++) {
        sentinel_source_close(&watch->sources[i]);
    }
    free(watch->sources);
    conf_value_free(&address_option, &watch->upstream);
    free(watch);
}

void sentinel_reconfigure(struct sentinel_watch *watch, const struct conf *conf)
{
    watch->settings.conf = conf;
    replica_watch_reconfigure(watch->replicas, conf);
    for (size_t i = 0; i < watch->source_count; i++) {
        lookup_set_interval(watch->sources[i].lookup, conf->resolve_every);
    }
}
