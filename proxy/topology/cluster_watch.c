#include "topology/cluster_watch.h"

#include "base/log.h"
#include "base/siphash.h"
#include "net/resolver.h"
#include "topology/cluster_choice.h"
#include "topology/cluster_news.h"
#include "topology/cluster_question.h"

#include <stdio.h>
#include <stdlib.h>

/* Between the beginnings of two rounds, whoever asks. */
#define PAUSE_US ((int64_t)100000)
/* The first pause after a round in which nobody had anything of use to say; it doubles, up to reconnect_max. */
#define AGAIN_US ((int64_t)100000)
/* Without a reason. Each pause is another one by up to a quarter, so that many Headgates do not ask at once. */
#define REFRESH_US ((int64_t)10000000)
/* Asked at once. */
#define QUESTIONS_MOST 4
/* How long the others that are being asked have, once one has answered. */
#define GRACE_US ((int64_t)200000)
/* If all that answer for so long are behind, or of another cluster, that is not a node's error any more. */
#define PATIENCE_US ((int64_t)10000000)
/* The same stranger is spoken of again after this. */
#define STRANGER_AGAIN_US ((int64_t)600000000)
/* Of known nodes that are asked in one round, beside the seeds. */
#define NODES_MOST 24
#define CANDIDATES_MOST (NODES_MOST + CONF_SEEDS_MAX)

struct candidate {
    char host[CLUSTER_HOST_MAX];
    uint16_t port;
    bool is_seed;
};

struct asked {
    struct cluster_watch *watch;
    struct cluster_question *question; /* NULL: free */
    bool is_seed;
};

/* A name of a node that is being looked up. */
struct naming {
    struct cluster_watch *watch;
    struct resolver *resolver; /* NULL: done */
    size_t node;               /* its place in the map */
};

struct cluster_watch {
    struct reactor *reactor;
    struct cluster_watch_settings settings;
    struct cluster_watch_facts facts;
    struct cluster_map *map;         /* in force; NULL: none yet */
    struct event timer;              /* of the next round, or of the grace of this one */
    int64_t begun_us;                /* of the last round */
    bool is_wanted;                  /* somebody asked since it began */
    bool is_asking;                  /* a round is under way: questions … */
    bool is_naming;                  /* … or names of what was chosen */
    unsigned int failures;           /* rounds in a row without anything of use */
    int64_t doubtful_us;             /* since then all answers were behind or strange; 0: they are not */
    char stranger[CLUSTER_TEXT_MAX]; /* of whom was spoken last … */
    int64_t stranger_us;             /* … and when */
    struct siphash_key chance;       /* of what is left to it, by the number of the round */
    bool seed_is_strange;            /* one of the strangers of this round is a seed */
    struct candidate candidates[CANDIDATES_MOST];
    size_t candidate_count;
    size_t next;
    struct asked asked[QUESTIONS_MOST];
    struct cluster_choice choice;
    char why[CLUSTER_WHY_MAX + CLUSTER_TEXT_MAX]; /* the last candidate of this round that said nothing of use */
    struct cluster_map *chosen;                   /* whose names are being looked up */
    struct naming *namings;
    size_t naming_count;
    size_t namings_left;
};

static void ask_further(struct cluster_watch *watch);
static void end_questions(struct cluster_watch *watch);

static const char *upstream_text(const struct cluster_watch *watch)
{
    return watch->settings.conf->upstream.text;
}

/* ---- when ---- */

/* Anything below bound, another one in each round and each process. */
static uint64_t by_chance(const struct cluster_watch *watch, uint64_t bound)
{
    return siphash(&watch->chance, (const char *)&watch->facts.rounds, sizeof watch->facts.rounds) % bound;
}

/* Up to a quarter more or less. */
static int64_t jittered(const struct cluster_watch *watch, int64_t wait_us)
{
    return wait_us - wait_us / 4 + (int64_t)by_chance(watch, (uint64_t)wait_us / 2);
}

static int64_t pause_after_failure(const struct cluster_watch *watch)
{
    int64_t most = clock_ms_to_us(watch->settings.conf->reconnect_max);
    int64_t wait = AGAIN_US << (watch->failures < 10 ? watch->failures - 1 : 9);

    return wait < most ? wait : most;
}

static void set_timer(struct cluster_watch *watch, int64_t delay_us)
{
    delay_us = delay_us > 0 ? delay_us : 0;
    const struct timeval wait = {.tv_sec = delay_us / 1000000, .tv_usec = delay_us % 1000000};

    event_add(&watch->timer, &wait);
}

/* No round is under way. */
static void arm(struct cluster_watch *watch)
{
    int64_t wait = watch->failures > 0 ? pause_after_failure(watch) : jittered(watch, REFRESH_US);

    if (watch->is_wanted && watch->failures == 0) {
        wait = PAUSE_US;
    }
    set_timer(watch, watch->begun_us + wait - clock_now_us());
}

/* ---- whom to ask ---- */

static bool has_candidate(const struct cluster_watch *watch, const char *host, uint16_t port)
{
    for (size_t i = 0; i < watch->candidate_count; i++) {
        if (watch->candidates[i].port == port && strcasecmp(watch->candidates[i].host, host) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_seed(const struct cluster_watch *watch, const char *host, uint16_t port)
{
    const struct conf_address *upstream = &watch->settings.conf->upstream;

    for (size_t i = 0; i < upstream->seed_count; i++) {
        if (upstream->seeds[i].port == port && strcasecmp(upstream->seeds[i].host, host) == 0) {
            return true;
        }
    }
    return false;
}

static void add_candidate(struct cluster_watch *watch, const char *host, uint16_t port)
{
    struct candidate *candidate = &watch->candidates[watch->candidate_count];

    if (watch->candidate_count < CANDIDATES_MOST && !has_candidate(watch, host, port)) {
        snprintf(candidate->host, sizeof candidate->host, "%s", host);
        candidate->port = port;
        candidate->is_seed = is_seed(watch, host, port);
        watch->candidate_count++;
    }
}

/* Masters first, in an order that begins somewhere else each time: they are told of changes by what changes. */
static void add_nodes(struct cluster_watch *watch, bool masters)
{
    const struct cluster_map *map = watch->map;
    size_t first = by_chance(watch, map->node_count);

    for (size_t i = 0; i < map->node_count && watch->candidate_count < NODES_MOST; i++) {
        const struct cluster_node *node = &map->nodes[(first + i) % map->node_count];
        if (node->is_master == masters) {
            add_candidate(watch, node->host, node->port);
        }
    }
}

static void list_candidates(struct cluster_watch *watch)
{
    const struct conf_address *upstream = &watch->settings.conf->upstream;

    watch->candidate_count = 0;
    watch->next = 0;
    if (watch->map != NULL) {
        add_nodes(watch, true);
        add_nodes(watch, false);
    }
    for (size_t i = 0; i < upstream->seed_count; i++) {
        add_candidate(watch, upstream->seeds[i].host, upstream->seeds[i].port);
    }
}

/* ---- what was found ---- */

static void forget_answers(struct cluster_watch *watch)
{
    for (size_t i = 0; i < watch->choice.count; i++) {
        cluster_map_release(watch->choice.maps[i]);
    }
    watch->choice.count = 0;
}

static void end_round(struct cluster_watch *watch)
{
    watch->is_asking = false;
    watch->is_naming = false;
    arm(watch);
}

static bool has_same_targets(const struct cluster_map *a, const struct cluster_map *b)
{
    for (size_t i = 0; i < a->node_count; i++) {
        int16_t other = cluster_map_find(b, a->nodes[i].host, a->nodes[i].port);
        if (other == CLUSTER_NOBODY || !connection_targets_equal(&a->nodes[i].targets, &b->nodes[other].targets)) {
            return false;
        }
    }
    return true;
}

/* A resolver that fails takes nothing away. */
static void keep_known_targets(struct cluster_watch *watch, struct cluster_map *map)
{
    for (size_t i = 0; watch->map != NULL && i < map->node_count; i++) {
        struct cluster_node *node = &map->nodes[i];
        int16_t before = cluster_map_find(watch->map, node->host, node->port);
        if (node->targets.count == 0 && before != CLUSTER_NOBODY) {
            node->targets = watch->map->nodes[before].targets;
        }
    }
}

/* Since when each node is what it is: as long as it was before, or from now on. */
static void note_roles(const struct cluster_watch *watch, struct cluster_map *map)
{
    for (size_t i = 0; i < map->node_count; i++) {
        struct cluster_node *node = &map->nodes[i];
        int16_t place = watch->map != NULL ? cluster_map_find(watch->map, node->host, node->port) : CLUSTER_NOBODY;
        const struct cluster_node *before = place != CLUSTER_NOBODY ? &watch->map->nodes[place] : NULL;
        bool goes_on = before != NULL && before->is_master == node->is_master;
        node->since_us = goes_on ? before->since_us : clock_now_us();
    }
}

/* The names of what was chosen are known, as far as they can be. */
static void put_in_force(struct cluster_watch *watch)
{
    struct cluster_map *map = watch->chosen;
    struct cluster_map *before = watch->map;

    watch->chosen = NULL;
    keep_known_targets(watch, map);
    note_roles(watch, map);
    cluster_map_note_changes(map, before, clock_now_us());
    bool is_news = before == NULL || !cluster_map_equal(map, before);
    if (is_news) {
        cluster_news_tell(upstream_text(watch), before, map);
    }
    if (is_news || !has_same_targets(map, before)) {
        map->version = ++watch->facts.changes;
        watch->map = map;
        watch->settings.changed(watch->settings.context, map);
    } else {
        /* Only the epoch may be another one: nobody else needs to know. */
        map->version = before->version;
        watch->map = map;
    }
    cluster_map_release(before);
    end_round(watch);
}

/* ---- names of nodes ---- */

static void end_namings(struct cluster_watch *watch)
{
    for (size_t i = 0; i < watch->naming_count; i++) {
        if (watch->namings[i].resolver != NULL) {
            resolver_cancel(watch->namings[i].resolver);
        }
    }
    free(watch->namings);
    watch->namings = NULL;
    watch->naming_count = 0;
    watch->namings_left = 0;
}

static void on_named(void *context, const struct connection_targets *targets)
{
    struct naming *naming = context;
    struct cluster_watch *watch = naming->watch;

    naming->resolver = NULL;
    watch->chosen->nodes[naming->node].targets = *targets;
    if (--watch->namings_left == 0) {
        event_del(&watch->timer);
        end_namings(watch);
        put_in_force(watch);
    }
}

static size_t count_names(const struct cluster_map *map)
{
    size_t names = 0;

    for (size_t i = 0; i < map->node_count; i++) {
        names += map->nodes[i].targets.count == 0;
    }
    return names;
}

static void begin_namings(struct cluster_watch *watch)
{
    struct cluster_map *map = watch->chosen;

    for (size_t i = 0; i < map->node_count; i++) {
        const struct cluster_node *node = &map->nodes[i];
        if (node->targets.count > 0) {
            continue;
        }
        struct conf_address address = {.host = (char *)(uintptr_t)node->host, .port = node->port};
        struct naming *naming = &watch->namings[watch->naming_count++];
        *naming = (struct naming){.watch = watch, .node = i};
        naming->resolver = resolver_start(watch->reactor, &address, on_named, naming);
        watch->namings_left += naming->resolver != NULL;
    }
}

/* Nodes that the cluster names are looked up each time, as their names may lead elsewhere. */
static void find_names(struct cluster_watch *watch)
{
    size_t names = count_names(watch->chosen);

    watch->is_asking = false;
    watch->is_naming = true;
    watch->namings = names > 0 ? calloc(names, sizeof *watch->namings) : NULL;
    if (watch->namings != NULL) {
        begin_namings(watch);
    }
    if (watch->namings_left > 0) {
        set_timer(watch, clock_ms_to_us(watch->settings.conf->connect_timeout));
        return;
    }
    end_namings(watch);
    put_in_force(watch);
}

/* ---- the end of the questions ---- */

static void round_failed(struct cluster_watch *watch, const char *why)
{
    bool is_news = watch->failures++ == 0;

    watch->facts.failed++;
    snprintf(watch->facts.why, sizeof watch->facts.why, "%s", why);
    if (is_news) {
        log_warning("cluster", "no node of %s could say who has which slots: %s; %s", upstream_text(watch), why,
                    watch->map != NULL ? "going on with what is known" : "trying again");
    }
    end_round(watch);
}

static void believe(struct cluster_watch *watch, struct cluster_map *map)
{
    if (watch->failures > 0) {
        log_info("cluster", "nodes of %s answer again", upstream_text(watch));
    }
    watch->failures = 0;
    watch->doubtful_us = 0;
    watch->facts.why[0] = '\0';
    watch->chosen = cluster_map_reference(map);
    forget_answers(watch);
    find_names(watch);
}

/* Nobody says anything sound, but some do say something: it becomes true if that does not end. */
static void doubt(struct cluster_watch *watch, struct cluster_map *map, enum cluster_standing standing)
{
    int64_t now = clock_now_us();
    bool may_be = standing == CLUSTER_STANDING_BEHIND || watch->seed_is_strange;

    watch->doubtful_us = watch->doubtful_us == 0 ? now : watch->doubtful_us;
    if (may_be && now - watch->doubtful_us >= PATIENCE_US) {
        log_warning(
            "cluster", "%s: %s", upstream_text(watch),
            standing == CLUSTER_STANDING_STRANGER
                ? "nobody speaks of the cluster that was known any more, but of another one, which takes its place"
                : "the epoch went back, and stays there");
        believe(watch, map);
        return;
    }
    forget_answers(watch);
    round_failed(watch, standing == CLUSTER_STANDING_STRANGER ? "those who answer are nodes of another cluster"
                                                              : "those who answer have heard less than is known");
}

static void choose(struct cluster_watch *watch)
{
    struct cluster_map *best = cluster_choice_best(&watch->choice, watch->map, CLUSTER_STANDING_SOUND);
    struct cluster_map *behind = cluster_choice_best(&watch->choice, watch->map, CLUSTER_STANDING_BEHIND);
    struct cluster_map *stranger = cluster_choice_best(&watch->choice, watch->map, CLUSTER_STANDING_STRANGER);

    end_questions(watch);
    event_del(&watch->timer);
    if (best != NULL) {
        believe(watch, best);
    } else if (behind != NULL) {
        doubt(watch, behind, CLUSTER_STANDING_BEHIND);
    } else if (stranger != NULL) {
        doubt(watch, stranger, CLUSTER_STANDING_STRANGER);
    } else {
        round_failed(watch, watch->why);
    }
}

/* ---- questions ---- */

static void end_questions(struct cluster_watch *watch)
{
    for (size_t i = 0; i < QUESTIONS_MOST; i++) {
        if (watch->asked[i].question != NULL) {
            cluster_question_cancel(watch->asked[i].question);
            watch->asked[i].question = NULL;
        }
    }
}

static size_t questions_under_way(const struct cluster_watch *watch)
{
    size_t count = 0;

    for (size_t i = 0; i < QUESTIONS_MOST; i++) {
        count += watch->asked[i].question != NULL;
    }
    return count;
}

static void say_stranger(struct cluster_watch *watch, const struct cluster_answer *answer)
{
    char text[CLUSTER_TEXT_MAX];

    cluster_map_address_text(answer->host, answer->port, text);
    watch->facts.strangers++;
    if (strcmp(watch->stranger, text) != 0 || clock_now_us() - watch->stranger_us > STRANGER_AGAIN_US) {
        memcpy(watch->stranger, text, sizeof text);
        watch->stranger_us = clock_now_us();
        log_warning("cluster", "%s is a node of another cluster than %s: it is not believed", text,
                    upstream_text(watch));
    }
}

static void note_answer(struct cluster_watch *watch, const struct asked *asked, const struct cluster_answer *answer)
{
    char text[CLUSTER_TEXT_MAX];

    if (answer->map == NULL) {
        cluster_map_address_text(answer->host, answer->port, text);
        snprintf(watch->why, sizeof watch->why, "%s: %s", text, answer->why);
        log_debug("cluster", "%s", watch->why);
        return;
    }
    if (cluster_choice_standing(answer->map, watch->map) == CLUSTER_STANDING_STRANGER) {
        watch->seed_is_strange = watch->seed_is_strange || asked->is_seed;
        say_stranger(watch, answer);
    }
    if (watch->choice.count < CLUSTER_CHOICE_MAX) {
        watch->choice.maps[watch->choice.count++] = cluster_map_reference(answer->map);
    }
}

static void on_answer(void *context, const struct cluster_answer *answer)
{
    struct asked *asked = context;
    struct cluster_watch *watch = asked->watch;

    asked->question = NULL;
    note_answer(watch, asked, answer);
    bool has_sound = cluster_choice_best(&watch->choice, watch->map, CLUSTER_STANDING_SOUND) != NULL;
    if (has_sound && !evtimer_pending(&watch->timer, NULL)) {
        set_timer(watch, GRACE_US);
    }
    if (!has_sound) {
        ask_further(watch);
    }
    if (questions_under_way(watch) == 0) {
        choose(watch);
    }
}

/* Asks the next ones, as many as may be asked at once. */
static void ask_further(struct cluster_watch *watch)
{
    const struct conf *conf = watch->settings.conf;
    const struct cluster_access access = {
        .tls = conf->upstream.tls ? conf->tls_upstream : NULL,
        .user = conf->upstream_user,
        .password = conf->upstream_password,
        .timeout_ms = conf->connect_timeout,
        .refuses = watch->settings.refuses,
        .context = watch->settings.context,
    };

    for (size_t i = 0; i < QUESTIONS_MOST; i++) {
        struct asked *asked = &watch->asked[i];
        while (asked->question == NULL && watch->next < watch->candidate_count) {
            const struct candidate *candidate = &watch->candidates[watch->next++];
            asked->is_seed = candidate->is_seed;
            asked->question =
                cluster_question_ask(watch->reactor, &access, candidate->host, candidate->port, on_answer, asked);
        }
    }
}

static void begin_round(struct cluster_watch *watch)
{
    watch->begun_us = clock_now_us();
    watch->is_wanted = false;
    watch->is_asking = true;
    watch->seed_is_strange = false;
    watch->facts.rounds++;
    snprintf(watch->why, sizeof watch->why, "memory is short");
    list_candidates(watch);
    ask_further(watch);
    if (questions_under_way(watch) == 0) {
        choose(watch);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct cluster_watch *watch = context;

    (void)fd;
    (void)what;
    if (watch->is_asking) {
        choose(watch);
    } else if (watch->is_naming) {
        end_namings(watch);
        put_in_force(watch);
    } else {
        begin_round(watch);
    }
}

/* ---- life ---- */

struct cluster_watch *cluster_watch_new(struct reactor *reactor, const struct cluster_watch_settings *settings)
{
    struct cluster_watch *watch = calloc(1, sizeof *watch);

    if (watch == NULL) {
        return NULL;
    }
    watch->reactor = reactor;
    watch->settings = *settings;
    watch->chance = siphash_random_key();
    for (size_t i = 0; i < QUESTIONS_MOST; i++) {
        watch->asked[i].watch = watch;
    }
    evtimer_assign(&watch->timer, reactor->base, on_timer, watch);
    begin_round(watch);
    return watch;
}

void cluster_watch_free(struct cluster_watch *watch)
{
    end_questions(watch);
    end_namings(watch);
    event_del(&watch->timer);
    forget_answers(watch);
    cluster_map_release(watch->chosen);
    cluster_map_release(watch->map);
    free(watch);
}

void cluster_watch_reconfigure(struct cluster_watch *watch, const struct conf *conf)
{
    if (watch->is_asking) {
        /* What the old configuration has is no longer there. */
        end_questions(watch);
        forget_answers(watch);
        end_round(watch);
    }
    watch->settings.conf = conf;
    cluster_watch_soon(watch);
}

void cluster_watch_soon(struct cluster_watch *watch)
{
    if (!watch->is_wanted) {
        watch->is_wanted = true;
        if (!watch->is_asking && !watch->is_naming) {
            arm(watch);
        }
    }
}

const struct cluster_watch_facts *cluster_watch_tell(const struct cluster_watch *watch)
{
    return &watch->facts;
}

void cluster_watch_visit_nodes(const struct cluster_watch *watch, node_visit *visit, void *context)
{
    const struct cluster_map *map = watch->map;
    char address[CLUSTER_TEXT_MAX], master[CLUSTER_TEXT_MAX];

    for (size_t i = 0; map != NULL && i < map->node_count; i++) {
        const struct cluster_node *of = &map->nodes[map->nodes[i].master];
        const struct cluster_node *node = &map->nodes[i];
        cluster_map_address_text(node->host, node->port, address);
        cluster_map_address_text(of->host, of->port, master);
        struct node told = node_of(node->is_master ? "master" : "replica", address, "listed");
        told.says = node->is_master ? "" : master;
        told.since_us = clock_now_us() - node->since_us;
        told.slots = node->is_master ? node->slot_count : -1;
        visit(context, &told);
    }
}
