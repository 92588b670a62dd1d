/*
 * Requests that a node has not executed, as it said itself: MOVED, ASK, TRYAGAIN, CLUSTERDOWN, LOADING. They are sent
 * again, in their place among the client's replies.
 *
 *   error ─► taken out of its run, held ─► all else of the client is answered ─► sent again, in the client's order
 *
 * Two things must never be: that a request is executed twice, and that two requests for one key are executed in another
 * order than the client's. For the first, only errors count that Redis itself gives before it executes anything; those
 * of scripts could be anybody's words: the node is asked about the first key by a question of Headgate's own, and only
 * what it says to that is believed. For the second, what is held is sent only when
 * nothing else of the client is under way; until then, and until it is answered, the client sends nothing new. And what
 * was sent behind it to the same node is watched: if one of these with a key of a held request was executed after all
 * (the slot came back in between), it was so before the other, which then must not be sent any more, and is answered by
 * Redis' error.
 */
#include "client/client_cluster_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So often one request is sent on at most. */
#define REDIRECTS_MAX 16
/* From so many on there are pauses between them, in case two nodes send it to each other. */
#define REDIRECTS_AT_ONCE 3
/* The pause before a node is asked again that could not serve a request for now. */
#define PAUSE_US ((int64_t)25000)

static const char asking[] = "*1\r\n$6\r\nASKING\r\n";

/* One request. */
struct held {
    TAILQ_ENTRY(held) of_client;
    struct run *run; /* of this request alone; it is in the client's queue */
    struct slice request;
    struct client_keys keys;
    char *error;       /* that it was answered by last, with CR LF */
    bool is_held;      /* it is on no lane */
    bool is_overtaken; /* another one with one of its keys was executed before it */
    bool asks;         /* with ASKING, at `there` */
    bool pauses;       /* before it is sent */
    bool is_doubtful;  /* the error may be a script's: `asked` is to be asked … */
    bool is_refuted;   /* … and has not said so; or no other node can do it: the error is the reply */
    bool was_asked;    /* with ASKING, as the request was */
    const struct cluster_way *asked;
    struct run *question; /* under way; NULL: none is */
    uint32_t redirects;
    int64_t since_us; /* when it was redirected first */
    struct cluster_redirect there;
    char bytes[]; /* the request */
};

/* Those of a client, in the order of the requests. */
struct client_redirects {
    struct client *client;
    TAILQ_HEAD(held_list, held) requests;
    struct held *recent; /* the last that was redirected: the next one most often is close behind it; NULL: none */
    uint32_t held;       /* of them are held */
    bool paused;         /* the timer is set */
    struct reactor_task task;
    struct event timer;
};

/* ---- what an error means ---- */

enum redirect { REDIRECT_NONE, REDIRECT_MOVED, REDIRECT_ASK, REDIRECT_LATER };

/* Whether the error is certainly of Redis, and says that nothing was done. */
static bool is_believed(const struct client *client, const struct run *run)
{
    const struct expected_reply *expected = run->expected;
    const struct session *session = &client->session;

    /* What has a lane of its own there may be anybody's words, too. */
    bool has_own_lane = run->spread != NULL && run->lane->use == LANE_EXCLUSIVE;

    if (session->passthrough || session->unsure || session->split || has_own_lane) {
        return false;
    }
    return expected == NULL ||
           (expected->kind != EXPECT_SCRIPT && expected->kind != EXPECT_UNKNOWN && expected->kind != EXPECT_EXEC);
}

/* Whether it can be found out: of a script of its own, that has keys. */
static bool is_provable(const struct client *client, const struct run *run, enum redirect kind)
{
    const struct expected_reply *expected = run->expected;
    const struct session *session = &client->session;

    return kind != REDIRECT_LATER && expected != NULL && expected->kind == EXPECT_SCRIPT && run->spread == NULL &&
           !session->passthrough && !session->unsure && !session->split && client->exclusive == run->lane;
}

/* What is part of a transaction cannot be sent elsewhere without the rest of it. */
static bool is_free(const struct client *client, const struct run *run)
{
    const struct session *session = &client->session;
    const struct expected_reply *expected = run->expected;

    return !session->sent_transaction && !session->known_transaction && !session->silent && !session->silent_next &&
           !client->streaming && (expected == NULL || !expected->in_transaction);
}

/* Whether it is for one node and no other, as each has its own part of the whole. */
static bool is_for_node(const struct client *client, const struct run *run, struct slice request)
{
    return run->spread != NULL && !client_keys_of(client_command_of(client->service, request), request).has_key;
}

/* Whether it can be kept as a text. No Redis says such a thing otherwise. */
static bool is_text(struct slice error)
{
    return error.length > 2 && memcmp(error.data + error.length - 2, "\r\n", 2) == 0 &&
           memchr(error.data, '\0', error.length) == NULL;
}

static enum redirect kind_of(struct slice error, struct cluster_redirect *there)
{
    if (!is_text(error)) {
        return REDIRECT_NONE;
    }
    if (cluster_redirect_parse(error, there)) {
        return there->ask ? REDIRECT_ASK : REDIRECT_MOVED;
    }
    bool is_later = slice_begins(error, "-TRYAGAIN ") || slice_begins(error, "-CLUSTERDOWN ") ||
                    slice_begins(error, "-LOADING ") || slice_begins(error, "-MASTERDOWN ");
    return is_later ? REDIRECT_LATER : REDIRECT_NONE;
}

/* ---- the list ---- */

static void resolve_task(struct reactor_task *task);

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct client_redirects *redirects = context;

    (void)fd;
    (void)what;
    redirects->paused = false;
    client_redirect_check(redirects->client);
}

static struct client_redirects *list_of(struct client *client)
{
    struct client_redirects *redirects = client->redirects;

    if (redirects == NULL) {
        redirects = calloc(1, sizeof *redirects);
        if (redirects == NULL) {
            return NULL;
        }
        redirects->client = client;
        redirects->task.run = resolve_task;
        TAILQ_INIT(&redirects->requests);
        evtimer_assign(&redirects->timer, client->service->reactor->base, on_timer, redirects);
        client->redirects = redirects;
    }
    return redirects;
}

static void held_free(struct held *held)
{
    if (held->question != NULL) {
        /* Its answer is for nobody. */
        held->question->receiver = NULL;
        held->question->owner = NULL;
    }
    free(held->error);
    free(held);
}

void client_redirect_forget(struct client *client)
{
    struct client_redirects *redirects = client->redirects;

    if (redirects == NULL) {
        return;
    }
    while (!TAILQ_EMPTY(&redirects->requests)) {
        struct held *held = TAILQ_FIRST(&redirects->requests);
        TAILQ_REMOVE(&redirects->requests, held, of_client);
        held_free(held);
    }
    event_del(&redirects->timer);
    reactor_cancel(client->service->reactor, REACTOR_STAGE_CLIENTS, &redirects->task);
    client->redirects = NULL;
    free(redirects);
}

/* From that one on. */
static struct held *find_from(struct held *held, const struct run *run)
{
    while (held != NULL && held->run != run) {
        held = TAILQ_NEXT(held, of_client);
    }
    return held;
}

/* NULL: it was not redirected. Nodes answer in the order in which they were asked: one is close behind the other. */
static struct held *find(const struct client *client, const struct run *run)
{
    struct client_redirects *redirects = client->redirects;

    if (redirects == NULL || !run->redirected) {
        return NULL;
    }
    struct held *held = find_from(redirects->recent, run);
    held = held != NULL ? held : find_from(TAILQ_FIRST(&redirects->requests), run);
    redirects->recent = held;
    return held;
}

static void drop(struct client *client, struct held *held)
{
    struct client_redirects *redirects = client->redirects;
    struct held *next = TAILQ_NEXT(held, of_client);

    TAILQ_REMOVE(&redirects->requests, held, of_client);
    redirects->recent = redirects->recent != held ? redirects->recent : next;
    held->run->redirected = false;
    redirects->held -= held->is_held;
    held_free(held);
    if (TAILQ_EMPTY(&redirects->requests)) {
        client_redirect_forget(client);
    }
}

void client_redirect_ended(struct client *client, const struct run *run)
{
    struct held *held = find(client, run);

    if (held != NULL) {
        drop(client, held);
    }
}

/* Whether it comes behind that one in the client's queue; *last is the last of the list that comes before it then. */
static bool is_behind(struct held *before, const struct held *held, struct held **last)
{
    struct held *next = TAILQ_NEXT(before, of_client);
    const struct run *run = before->run;

    for (*last = before; run != NULL && run != held->run; run = run->client_next) {
        if (next != NULL && run == next->run) {
            *last = next;
            next = TAILQ_NEXT(next, of_client);
        }
    }
    return run != NULL;
}

/* Keeps the list in the order of the client's requests. Those that are redirected for the first time come in this order
 * but for several nodes. */
static void insert(struct client *client, struct held *held)
{
    struct client_redirects *redirects = client->redirects;
    struct held *first = TAILQ_FIRST(&redirects->requests);
    struct held *before;

    if ((redirects->recent != NULL && is_behind(redirects->recent, held, &before)) ||
        (first != NULL && is_behind(first, held, &before))) {
        TAILQ_INSERT_AFTER(&redirects->requests, before, held, of_client);
    } else {
        TAILQ_INSERT_HEAD(&redirects->requests, held, of_client);
    }
}

/* A copy of what is to be sent again. NULL when memory is short. */
static struct held *held_new(struct client *client, struct slice request)
{
    struct held *held = malloc(sizeof *held + request.length);

    if (held == NULL || list_of(client) == NULL) {
        free(held);
        return NULL;
    }
    *held = (struct held){.since_us = reactor_now(client->service->reactor)};
    memcpy(held->bytes, request.data, request.length);
    held->request = (struct slice){held->bytes, request.length};
    held->keys = client_keys_of(client_command_of(client->service, held->request), held->request);
    return held;
}

/* ---- taking requests over ---- */

/* Those behind the first that is redirected are looked at when they are answered. */
static void watch_followers(const struct client *client, struct run *run)
{
    for (; run != NULL && !run->watched; run = run->lane_next) {
        run->watched = run->owner == client && run->receiver != NULL && run->receiver->passed != NULL;
    }
}

/* The run's next request is held. False when memory is short: the client was closed. */
static bool hold(struct client *client, struct run *run, struct slice error, struct slice request, struct held **into)
{
    struct held *held = find(client, run);
    bool is_new = held == NULL;

    if (is_new) {
        held = held_new(client, request);
    }
    char *copy = held != NULL ? strndup(error.data, error.length) : NULL;
    if (copy == NULL) {
        if (is_new) {
            free(held);
        }
        return client_out_of_memory(client);
    }
    free(held->error);
    held->error = copy;
    const struct held *before = is_new ? client->redirects->recent : TAILQ_PREV(held, held_list, of_client);
    struct run *taken = client_take_out(client, run, before != NULL ? before->run : NULL);
    if (taken == NULL) {
        if (is_new) {
            held_free(held);
        }
        return false;
    }
    held->run = taken;
    run->redirected = false;
    taken->redirected = true;
    held->is_held = true;
    client->redirects->held++;
    if (is_new) {
        insert(client, held);
    }
    client->redirects->recent = held;
    *into = held;
    return true;
}

static bool is_over(const struct client *client, const struct held *held)
{
    int64_t patience = clock_ms_to_us(client->service->settings.upstream_wait);

    return held != NULL &&
           (held->redirects >= REDIRECTS_MAX || reactor_now(client->service->reactor) - held->since_us >= patience);
}

bool client_redirected(struct run *run, struct slice error, struct slice request)
{
    struct client *client = run->owner;
    struct cluster_ways *ways = client->service->cluster;
    struct cluster_redirect there;
    enum redirect kind = kind_of(error, &there);
    const struct held *before = find(client, run);
    struct held *held;

    if (kind == REDIRECT_NONE) {
        return false;
    }
    cluster_ways_want_map(ways);
    bool is_doubtful = !is_believed(client, run);
    if ((is_doubtful && !is_provable(client, run, kind)) || is_for_node(client, run, request)) {
        return false;
    }
    const struct cluster_way *from = cluster_way_by_upstream(ways, lane_profile(run->lane)->upstream);
    bool is_unknown = false;
    if (kind != REDIRECT_LATER && !is_doubtful) {
        is_unknown = cluster_way_redirect(ways, from, &there) == NULL;
    }
    if (!is_free(client, run) || is_over(client, before)) {
        stats_add(client->service->reactor->stats, STATS_REDIRECTS_ENDED, before != NULL);
        return false;
    }
    watch_followers(client, run);
    stats_add(client->service->reactor->stats, STATS_REDIRECTS, 1);
    /* An error of a script may go on in further lines. */
    run->lane->needs_fence = run->lane->needs_fence || is_doubtful;
    if (!hold(client, run, error, request, &held)) {
        return true;
    }
    held->redirects += kind != REDIRECT_LATER && !is_unknown;
    held->was_asked = held->asks;
    held->asks = kind == REDIRECT_ASK && !is_unknown;
    held->pauses = kind == REDIRECT_LATER || is_unknown || held->redirects >= REDIRECTS_AT_ONCE;
    held->there = there;
    held->is_doubtful = is_doubtful;
    held->is_refuted = false;
    held->asked = from;
    client_redirect_check(client);
    return true;
}

/* The next whole request of those; empty: there is none. */
static struct slice next_request(struct slice *requests)
{
    struct resp_command command = {0};
    size_t taken = 0;
    bool is_whole = requests->length > 0 &&
                    resp_command_feed(&command, requests->data, requests->length, UINT64_MAX, &taken) == RESP_DONE;
    struct slice request = {requests->data, is_whole ? taken : 0};

    requests->data += request.length;
    requests->length -= request.length;
    return request;
}

void client_returned(struct run *run, struct slice requests)
{
    static const char why[] = "-ERR headgate: the node that had this slot is gone, and was not reached before\r\n";
    struct client *client = run->owner;
    struct held *held;

    while (run->requests > 0) {
        struct slice request = next_request(&requests);
        if (!hold(client, run, (struct slice){why, sizeof why - 1}, request, &held)) {
            return;
        }
        run->requests -= run->answered + 1;
        run->answered = 0;
        held->asks = false;
        held->is_refuted = is_for_node(client, held->run, held->request) || is_over(client, held);
    }
    client_end_taken(client);
    if (client->state != CLIENT_CLOSED) {
        client_redirect_check(client);
    }
}

/* ---- what was executed meanwhile ---- */

struct key_search {
    struct slice key;
    bool found;
};

static bool is_that_key(void *context, struct slice key, uint32_t index)
{
    struct key_search *search = context;

    (void)index;
    search->found = slice_equal(search->key, key);
    return !search->found;
}

/* Whether it may have that key at all: most are of other slots. */
static bool may_have(const struct held *held, uint16_t slot)
{
    return held->is_held && !held->is_overtaken &&
           (!held->keys.has_key || held->keys.is_split || held->keys.slot == slot);
}

static bool overtake(void *context, struct slice key, uint32_t index)
{
    const struct client *client = context;
    uint16_t slot = cluster_slot_of(key);
    struct held *held;

    (void)index;
    TAILQ_FOREACH(held, &client->redirects->requests, of_client)
    {
        struct key_search search = {.key = key};
        if (may_have(held, slot)) {
            const struct command *command = client_command_of(client->service, held->request);
            command_visit_keys(command, held->request, is_that_key, &search);
            held->is_overtaken = search.found;
        }
    }
    return true;
}

void client_passed(struct run *run, struct slice request)
{
    struct client *client = run->owner;
    const struct command *command = client_command_of(client->service, request);

    if (client->redirects != NULL && client->redirects->held > 0 && command != NULL) {
        command_visit_keys(command, request, overtake, client);
    }
}

/* ---- questions about what scripts have said ---- */

static void on_question_bytes(struct run *run, const char *data, size_t length)
{
    (void)run;
    (void)data;
    (void)length;
}

/* What EXISTS is answered by, no script has said. */
static bool on_question_redirected(struct run *run, struct slice error, struct slice request)
{
    struct held *held = run->owner;
    struct client *client = held->run->owner;
    struct cluster_redirect there;

    (void)request;
    if (cluster_redirect_parse(error, &there) &&
        cluster_way_redirect(client->service->cluster, held->asked, &there) != NULL) {
        held->there = there;
        held->asks = there.ask;
        held->is_refuted = false;
    }
    return false;
}

static void end_question(struct run *run)
{
    struct held *held = run->owner;
    struct client *client = held->run->owner;

    held->question = NULL;
    run_give(client->service->runs, run);
    client_redirect_check(client);
}

static void on_question_lost(struct run *run, enum run_loss loss, const char *why)
{
    (void)loss;
    (void)why;
    end_question(run);
}

static const struct run_receiver question_receiver = {
    .bytes = on_question_bytes,
    .answered = end_question,
    .lost = on_question_lost,
    .redirected = on_question_redirected,
};

static bool take_first(void *context, struct slice key, uint32_t index)
{
    struct slice *first = context;

    (void)index;
    *first = key;
    return false;
}

static struct slice exists(struct slice key, char *text, size_t size)
{
    int length = snprintf(text, size, "*2\r\n$6\r\nEXISTS\r\n$%zu\r\n", key.length);

    memcpy(text + length, key.data, key.length);
    memcpy(text + (size_t)length + key.length, "\r\n", 2);
    return (struct slice){text, (size_t)length + key.length + 2};
}

/* Asks the node that has answered whether the first key is there. Until it has said otherwise, the error is the
 * script's. False: it has no key, or memory is short. */
static bool ask(struct client *client, struct held *held)
{
    const struct command *command = client_command_of(client->service, held->request);
    struct slice key = {0};

    held->is_refuted = true;
    if (command != NULL) {
        command_visit_keys(command, held->request, take_first, &key);
    }
    size_t size = key.length + 64;
    char *text = key.data != NULL ? malloc(size) : NULL;
    struct profile *profile = text != NULL ? client_profile_at(client, held->asked) : NULL;
    struct lane *lane = profile != NULL ? upstream_shared_lane(profile, client->place) : NULL;
    struct run *run = lane != NULL ? run_take(client->service->runs) : NULL;
    if (run != NULL) {
        run->receiver = &question_receiver;
        run->owner = held;
        run->requests = 1;
        struct slice question = exists(key, text, size);
        if ((!held->was_asked || upstream_send_hidden(lane, asking, sizeof asking - 1, false)) &&
            lane_send(lane, run, question.data, question.length)) {
            held->question = run;
        } else {
            run_give(client->service->runs, run);
        }
    }
    free(text);
    return held->question != NULL;
}

/* ---- sending them ---- */

/* Where it belongs now; NULL: home. */
static const struct cluster_way *destination_of(struct client *client, const struct held *held)
{
    struct cluster_ways *ways = client->service->cluster;

    if (held->asks) {
        return cluster_way_redirect(ways, NULL, &held->there);
    }
    return held->keys.has_key ? cluster_way_of(ways, held->keys.slot) : NULL;
}

/* The exclusive lane at that node: the one that the client has, or another. NULL: it cannot leave the one that it has,
 * or memory was short, and it was closed. */
static struct lane *exclusive_lane(struct client *client, const struct cluster_way *way)
{
    const struct session_route route = {.exclusive = true, .identity = true, .way = way};

    if (client->exclusive_way == way) {
        return client->exclusive;
    }
    if (!session_is_portable(client)) {
        return NULL;
    }
    session_leave_node(client);
    if (!session_take_lane(client, &route)) {
        client_out_of_memory(client);
        return NULL;
    }
    return client->exclusive;
}

static struct lane *lane_to(struct client *client, const struct cluster_way *way)
{
    if (client->exclusive != NULL) {
        return exclusive_lane(client, way);
    }
    struct profile *profile = client_profile_at(client, way);
    struct lane *lane = profile != NULL ? upstream_shared_lane(profile, client->place) : NULL;
    if (lane == NULL) {
        client_out_of_memory(client);
    }
    return lane;
}

static void give_up(struct client *client, struct held *held)
{
    struct run *run = held->run;
    char *error = held->error;

    held->error = NULL;
    stats_add(client->service->reactor->stats, STATS_REDIRECTS_ENDED, 1);
    drop(client, held);
    client_answer_taken(client, run, slice_of(error));
    free(error);
}

static void send_again(struct client *client, struct held *held)
{
    if (held->is_overtaken || held->is_refuted) {
        give_up(client, held);
        return;
    }
    const struct cluster_way *way = destination_of(client, held);
    struct lane *lane = client->exclusive == NULL ? client_reads_again_at(client, way, held->request) : NULL;
    client->at_replicas = lane != NULL;
    if (lane == NULL) {
        lane = lane_to(client, way);
    }
    if (client->state == CLIENT_CLOSED) {
        return;
    }
    if (lane == NULL) {
        give_up(client, held);
        return;
    }
    held->is_held = false;
    held->is_overtaken = false;
    client->redirects->held--;
    client->lane_in_use = lane;
    client->last_lane_id = lane->id;
    if ((held->asks && !upstream_send_hidden(lane, asking, sizeof asking - 1, false)) ||
        !lane_send(lane, held->run, held->request.data, held->request.length)) {
        client_out_of_memory(client);
    }
}

/* One of them is to wait. True: they all do, as they are sent in order. */
static bool pauses(struct client_redirects *redirects)
{
    const struct timeval pause = {.tv_usec = PAUSE_US};
    bool is_due = false;
    struct held *held;

    TAILQ_FOREACH(held, &redirects->requests, of_client)
    {
        is_due = is_due || (held->is_held && held->pauses);
        held->pauses = false;
    }
    redirects->paused = redirects->paused || (is_due && event_add(&redirects->timer, &pause) == 0);
    return redirects->paused;
}

/* Asks where it is doubtful. True: that is under way. */
static bool asks(struct client_redirects *redirects)
{
    bool is_asking = false;
    struct held *held;

    TAILQ_FOREACH(held, &redirects->requests, of_client)
    {
        if (held->is_held && held->is_doubtful) {
            held->is_doubtful = false;
            (void)ask(redirects->client, held);
        }
        is_asking = is_asking || held->question != NULL;
    }
    return is_asking;
}

static void resolve_task(struct reactor_task *task)
{
    struct client_redirects *redirects =
        (struct client_redirects *)(void *)((char *)task - offsetof(struct client_redirects, task));
    struct client *client = redirects->client;

    if (client->sent_runs > redirects->held || pauses(redirects) || asks(redirects)) {
        return;
    }
    /* The list goes with the last of them that is answered here. */
    struct held *held = TAILQ_FIRST(&redirects->requests);
    while (held != NULL && client->state != CLIENT_CLOSED) {
        struct held *next = TAILQ_NEXT(held, of_client);
        if (held->is_held) {
            send_again(client, held);
        }
        held = next;
    }
}

void client_redirect_check(struct client *client)
{
    struct client_redirects *redirects = client->redirects;

    if (redirects != NULL && redirects->held > 0 && !redirects->paused && client->sent_runs == redirects->held) {
        reactor_at_turn_end(client->service->reactor, REACTOR_STAGE_CLIENTS, &redirects->task);
    }
}
