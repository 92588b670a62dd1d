#include "topology/replica_watch.h"

#include "base/log.h"
#include "topology/contact.h"
#include "topology/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_US ((int64_t)500000)
/* Offsets of the master that are remembered; their times span max_lag. */
#define MARKS 64

/* What a replica says of itself. */
enum finding {
    FINDING_NOTHING, /* it does not answer, or has not yet */
    FINDING_LINKED,  /* it has its master */
    FINDING_UNLINKED,
    FINDING_OTHER, /* it is no replica */
    FINDING_UNSAID /* Headgate may not ask */
};

struct replica {
    struct replica_watch *watch;
    struct place place;
    int64_t listed_offset; /* by its master's word */
    bool is_listed;
    struct resolver *resolver;
    struct contact *contact;
    struct connection_target target; /* where it was connected to last */
    bool was_connected;
    bool is_ready;
    int64_t next_us; /* when to connect again */
    enum finding finding;
    int64_t offset; /* by its own */
    bool is_fit;    /* as workers were told, and as it was logged */
    bool is_told;
    struct replica_tally *tally;
};

/* All that the master had by that offset, it had by that time. */
struct mark {
    int64_t offset;
    int64_t us;
};

struct replica_watch {
    struct reactor *reactor;
    struct replica_watch_settings settings;
    struct replica *replicas[REPLICAS_MAX];
    size_t count;
    struct mark marks[MARKS]; /* a ring; the newest is before `next` */
    size_t mark_count;
    size_t next;
    struct replica_list *list; /* that was told; NULL: none was */
};

static bool is_wanted(const struct replica_watch *watch)
{
    return conf_reads_replicas(watch->settings.conf);
}

int64_t replica_watch_interval(const struct conf *conf)
{
    int64_t needed = conf_reads_replicas(conf) ? conf->max_lag / 4 : conf->sentinel_check;

    return needed < conf->sentinel_check ? needed : conf->sentinel_check;
}

/* ---- how far behind ---- */

static struct mark *newest(struct replica_watch *watch)
{
    return watch->mark_count > 0 ? &watch->marks[(watch->next + MARKS - 1) % MARKS] : NULL;
}

/* Marks are far enough from each other to reach back over max_lag: the newest moves on until it is. */
static void remember(struct replica_watch *watch, int64_t offset, int64_t us)
{
    int64_t apart = clock_ms_to_us(watch->settings.conf->max_lag) / (MARKS - 8);
    struct mark *last = newest(watch);
    bool goes_back = last != NULL && offset < last->offset;

    if (goes_back) {
        watch->mark_count = 0;
    }
    const struct mark *before = watch->mark_count > 1 ? &watch->marks[(watch->next + MARKS - 2) % MARKS] : NULL;
    if (!goes_back && last != NULL && (last->offset == offset || (before != NULL && last->us - before->us < apart))) {
        *last = (struct mark){offset, us};
        return;
    }
    watch->marks[watch->next] = (struct mark){offset, us};
    watch->next = (watch->next + 1) % MARKS;
    watch->mark_count += watch->mark_count < MARKS;
}

/* At most so far behind it is; -1: that is not known. */
static int64_t lag_us(const struct replica_watch *watch, const struct replica *replica, int64_t now_us)
{
    for (size_t i = 1; i <= watch->mark_count; i++) {
        const struct mark *mark = &watch->marks[(watch->next + MARKS - i) % MARKS];
        if (mark->offset <= replica->offset) {
            return now_us - mark->us;
        }
    }
    return -1;
}

static bool is_near(const struct replica_watch *watch, const struct replica *replica, int64_t now_us)
{
    int64_t lag = lag_us(watch, replica, now_us);

    return lag >= 0 && lag <= clock_ms_to_us(watch->settings.conf->max_lag);
}

static bool is_fit(const struct replica_watch *watch, const struct replica *replica, int64_t now_us)
{
    return replica->is_listed && replica->finding == FINDING_LINKED && is_near(watch, replica, now_us);
}

/* ---- telling ---- */

static const char *state_of(const struct replica_watch *watch, const struct replica *replica, int64_t now_us)
{
    static const char *const states[] = {[FINDING_NOTHING] = "down",
                                         [FINDING_LINKED] = "up",
                                         [FINDING_UNLINKED] = "unlinked",
                                         [FINDING_OTHER] = "no-replica",
                                         [FINDING_UNSAID] = "unsaid"};
    bool is_behind = replica->finding == FINDING_LINKED && !is_near(watch, replica, now_us);

    return !is_wanted(watch) ? "up" : is_behind ? "behind" : states[replica->finding];
}

static void say(struct replica_watch *watch, struct replica *replica, bool fit, int64_t now_us)
{
    char text[PLACE_TEXT_MAX];

    place_text(&replica->place, text);
    if (fit) {
        log_info("replicas", "replica %s is fit to be read from", text);
    } else if (replica->is_told) {
        log_warning("replicas", "replica %s is not read from: it is %s", text,
                    replica->is_listed ? state_of(watch, replica, now_us) : "none of its master's any more");
    }
    replica->is_told = true;
}

static void add_entry(struct replica_list *list, const struct replica *replica)
{
    struct replica_entry *entry = &list->entries[list->count++];

    snprintf(entry->host, sizeof entry->host, "%s", replica->place.host);
    entry->port = replica->place.port;
    entry->target = replica->target;
    entry->is_fit = replica->is_fit;
    entry->is_up = replica->finding != FINDING_NOTHING;
    entry->tally = replica_tally_reference(replica->tally);
}

/* If memory is short, it is tried again at the next tick. */
static bool tell(struct replica_watch *watch)
{
    struct replica_list *list = replica_list_new();

    if (list == NULL) {
        return false;
    }
    for (size_t i = 0; i < watch->count; i++) {
        if (watch->replicas[i]->was_connected && watch->replicas[i]->is_listed) {
            add_entry(list, watch->replicas[i]);
        }
    }
    replica_list_release(watch->list);
    watch->list = list;
    watch->settings.changed(watch->settings.context, list);
    return true;
}

static bool says_the_same(const struct replica_list *list, const struct replica *replica)
{
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        const struct replica_entry *entry = &list->entries[i];
        if (entry->tally == replica->tally) {
            return entry->is_fit == replica->is_fit && entry->is_up == (replica->finding != FINDING_NOTHING) &&
                   memcmp(&entry->target, &replica->target, sizeof entry->target) == 0;
        }
    }
    return !replica->was_connected;
}

/* Tells of what is another than was told last. */
static void review(struct replica_watch *watch)
{
    int64_t now_us = reactor_now(watch->reactor);
    size_t told = 0;
    bool is_same = true;

    for (size_t i = 0; i < watch->count; i++) {
        struct replica *replica = watch->replicas[i];
        bool fit = is_wanted(watch) && is_fit(watch, replica, now_us);
        if (fit != replica->is_fit) {
            say(watch, replica, fit, now_us);
        }
        replica->is_fit = fit;
        told += replica->was_connected;
        is_same = is_same && says_the_same(watch->list, replica);
    }
    if (!is_same || told != (watch->list != NULL ? watch->list->count : 0)) {
        (void)tell(watch);
    }
}

/* ---- what a replica says ---- */

static void ask(struct replica *replica)
{
    static const char *const role[] = {"ROLE"};

    if (replica->is_ready && contact_owed(replica->contact) == 0) {
        contact_ask(replica->contact, 1, role);
    }
}

static void gone(struct replica *replica)
{
    contact_free(replica->contact);
    replica->contact = NULL;
    replica->is_ready = false;
    replica->finding = FINDING_NOTHING;
    replica->next_us = reactor_now(replica->watch->reactor) + RETRY_US;
}

static void on_closed(void *context, const char *why)
{
    struct replica *replica = context;

    (void)why;
    replica->contact = NULL;
    gone(replica);
    review(replica->watch);
}

static void on_ready(void *context)
{
    struct replica *replica = context;

    replica->is_ready = true;
    ask(replica);
}

/* [slave, host, port, state, offset] */
static void take_role(struct replica *replica, const redisReply *reply)
{
    const redisReply *role = reply->elements > 0 ? reply->element[0] : NULL;
    bool is_replica = reply->elements >= 5 && role->type == REDIS_REPLY_STRING && strcmp(role->str, "slave") == 0 &&
                      reply->element[3]->type == REDIS_REPLY_STRING && reply->element[4]->type == REDIS_REPLY_INTEGER;

    if (!is_replica) {
        replica->finding = FINDING_OTHER;
        return;
    }
    replica->finding = strcmp(reply->element[3]->str, "connected") == 0 ? FINDING_LINKED : FINDING_UNLINKED;
    replica->offset = reply->element[4]->integer;
}

static void on_answer(void *context, const redisReply *reply)
{
    struct replica *replica = context;

    if (reply->type == REDIS_REPLY_ARRAY) {
        take_role(replica, reply);
    } else if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "LOADING", 7) != 0) {
        replica->finding = FINDING_UNSAID;
    } else {
        replica->finding = FINDING_UNLINKED;
    }
    review(replica->watch);
}

static const struct contact_events events = {.ready = on_ready, .answer = on_answer, .closed = on_closed};

/* ---- connecting ---- */

static void connect_to(struct replica *replica, const struct connection_target *target)
{
    const struct replica_watch_settings *settings = &replica->watch->settings;
    const struct conf *conf = settings->conf;
    const struct contact_settings of_contact = {
        .target = target,
        .tls = conf->upstream.tls ? conf->tls_upstream : NULL,
        .host = replica->place.host,
        .user = conf->upstream_user,
        .password = conf->upstream_password,
        .timeout_ms = conf->sentinel_timeout,
        .tuning = {.keepalive_ms = conf->tcp_keepalive, .user_timeout_ms = conf->tcp_user_timeout},
    };

    if (settings->refuses(settings->context, (const struct sockaddr *)&target->address) == NULL) {
        replica->contact = contact_new(replica->watch->reactor, &of_contact, &events, replica);
    }
    if (replica->contact == NULL) {
        gone(replica);
        return;
    }
    replica->target = *target;
    replica->was_connected = true;
}

static void on_resolved(void *context, const struct connection_targets *targets)
{
    struct replica *replica = context;

    replica->resolver = NULL;
    if (targets->count > 0) {
        connect_to(replica, &targets->items[0]);
    } else {
        gone(replica);
    }
}

static void connect_now(struct replica *replica)
{
    struct conf_address address = {
        .host = replica->place.host, .port = replica->place.port, .text = replica->place.host};
    struct connection_targets targets;

    if (connection_resolve_numeric(&address, &targets) && targets.count > 0) {
        connect_to(replica, &targets.items[0]);
        return;
    }
    replica->resolver = resolver_start(replica->watch->reactor, &address, on_resolved, replica);
    if (replica->resolver == NULL) {
        gone(replica);
    }
}

static void leave(struct replica *replica)
{
    if (replica->resolver != NULL) {
        resolver_cancel(replica->resolver);
        replica->resolver = NULL;
    }
    if (replica->contact != NULL) {
        gone(replica);
    }
}

static void replica_free(struct replica *replica)
{
    leave(replica);
    replica_tally_release(replica->tally);
    free(replica);
}

/* ---- what the master says ---- */

static struct replica *find(const struct replica_watch *watch, const struct place *place)
{
    for (size_t i = 0; i < watch->count; i++) {
        if (place_equal(&watch->replicas[i]->place, place)) {
            return watch->replicas[i];
        }
    }
    return NULL;
}

static struct replica *add(struct replica_watch *watch, const struct place *place)
{
    struct replica *replica = watch->count < REPLICAS_MAX ? calloc(1, sizeof *replica) : NULL;

    if (replica == NULL) {
        return NULL;
    }
    replica->tally = replica_tally_new();
    if (replica->tally == NULL) {
        free(replica);
        return NULL;
    }
    replica->watch = watch;
    replica->place = *place;
    watch->replicas[watch->count++] = replica;
    return replica;
}

static void take_listed(struct replica_watch *watch, const redisReply *one)
{
    struct place place;

    if (one->type != REDIS_REPLY_ARRAY || one->elements < 3 || one->element[2]->type != REDIS_REPLY_STRING ||
        !place_take(one->element[0], one->element[1], &place)) {
        return;
    }
    struct replica *replica = find(watch, &place);
    if (replica == NULL) {
        replica = add(watch, &place);
    }
    if (replica != NULL) {
        replica->is_listed = true;
        replica->listed_offset = strtoll(one->element[2]->str, NULL, 10);
    }
}

/* Those that the master did not name. */
static void drop_others(struct replica_watch *watch)
{
    int64_t now_us = reactor_now(watch->reactor);
    size_t kept = 0;

    for (size_t i = 0; i < watch->count; i++) {
        struct replica *replica = watch->replicas[i];
        if (replica->is_listed) {
            watch->replicas[kept++] = replica;
            continue;
        }
        if (replica->is_fit) {
            say(watch, replica, false, now_us);
        }
        replica_free(replica);
    }
    watch->count = kept;
}

void replica_watch_hear(struct replica_watch *watch, int64_t asked_us, const redisReply *role)
{
    bool is_whole = role->elements >= 3 && role->element[1]->type == REDIS_REPLY_INTEGER &&
                    role->element[2]->type == REDIS_REPLY_ARRAY;

    if (!is_whole) {
        return;
    }
    remember(watch, role->element[1]->integer, asked_us);
    for (size_t i = 0; i < watch->count; i++) {
        watch->replicas[i]->is_listed = false;
    }
    for (size_t i = 0; i < role->element[2]->elements; i++) {
        take_listed(watch, role->element[2]->element[i]);
    }
    drop_others(watch);
    for (size_t i = 0; i < watch->count && is_wanted(watch); i++) {
        ask(watch->replicas[i]);
    }
    replica_watch_tick(watch);
}

void replica_watch_forget(struct replica_watch *watch)
{
    watch->mark_count = 0;
    for (size_t i = 0; i < watch->count; i++) {
        watch->replicas[i]->is_listed = false;
    }
    drop_others(watch);
    review(watch);
}

void replica_watch_tick(struct replica_watch *watch)
{
    int64_t now_us = reactor_now(watch->reactor);

    for (size_t i = 0; i < watch->count; i++) {
        struct replica *replica = watch->replicas[i];
        bool is_away = replica->contact == NULL && replica->resolver == NULL;
        if (!is_wanted(watch)) {
            leave(replica);
        } else if (is_away && now_us >= replica->next_us) {
            connect_now(replica);
        }
    }
    review(watch);
}

/* ---- for operators ---- */

void replica_watch_visit(const struct replica_watch *watch, node_visit *visit, void *context)
{
    int64_t now_us = reactor_now(watch->reactor);
    char text[PLACE_TEXT_MAX];

    for (size_t i = 0; i < watch->count; i++) {
        const struct replica *replica = watch->replicas[i];
        bool is_linked = is_wanted(watch) && replica->finding == FINDING_LINKED;
        place_text(&replica->place, text);
        struct node node = node_of("replica", text, state_of(watch, replica, now_us));
        node.offset = replica->listed_offset;
        node.lag_us = is_linked ? lag_us(watch, replica, now_us) : -1;
        node.reads = is_wanted(watch) ? (int64_t)atomic_load(&replica->tally->reads) : -1;
        visit(context, &node);
    }
}

/* ---- life ---- */

struct replica_watch *replica_watch_new(struct reactor *reactor, const struct replica_watch_settings *settings)
{
    struct replica_watch *watch = calloc(1, sizeof *watch);

    if (watch != NULL) {
        watch->reactor = reactor;
        watch->settings = *settings;
    }
    return watch;
}

void replica_watch_free(struct replica_watch *watch)
{
    for (size_t i = 0; i < watch->count; i++) {
        replica_free(watch->replicas[i]);
    }
    replica_list_release(watch->list);
    free(watch);
}

void replica_watch_reconfigure(struct replica_watch *watch, const struct conf *conf)
{
    bool is_other = strcmp(conf->upstream_user, watch->settings.conf->upstream_user) != 0 ||
                    strcmp(conf->upstream_password, watch->settings.conf->upstream_password) != 0;

    watch->settings.conf = conf;
    for (size_t i = 0; i < watch->count && is_other; i++) {
        leave(watch->replicas[i]);
    }
    replica_watch_tick(watch);
}
