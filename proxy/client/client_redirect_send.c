/*
 * Sends what is held: when nothing else of the client is under way, in the client's order, each where it belongs by
 * then; of one slot one at a time, as nodes that share a slot would be asked at once by two. If the error may be a
 * script's own words, the node is asked first.
 */
#include "client/client_redirect_private.h"
#include "client/client_subscriber_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The pause before a node is asked again that could not serve a request for now. */
#define PAUSE_US ((int64_t)25000)

static const char asking[] = "*1\r\n$6\r\nASKING\r\n";

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
    if (cluster_redirect_parse(error, &there)) {
        held->awaits_map = cluster_way_redirect(client->service->cluster, held->asked, &there) == NULL;
        held->there = there;
        held->owner = cluster_way_of(client->service->cluster, there.slot);
        held->asks = there.ask && !held->awaits_map;
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
    struct lane *lane = profile != NULL ? upstream_shared_lane(profile) : NULL;
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
static const struct cluster_way *destination_of(struct client *client, struct held *held)
{
    struct cluster_ways *ways = client->service->cluster;

    if (held->asks) {
        return cluster_way_redirect(ways, NULL, &held->there);
    }
    return held->keys.has_key ? cluster_way_of(ways, held->keys.slot) : NULL;
}

/* The exclusive lane at that node: the one that the client has, unless its stream was ended, or another. NULL: it
 * cannot leave the one that it has, or memory was short, and it was closed. */
static struct lane *exclusive_lane(struct client *client, const struct cluster_way *way)
{
    const struct session_route route = {.exclusive = true, .identity = true, .way = way};

    if (client->exclusive_way == way && !client->exclusive->ending) {
        return client->exclusive;
    }
    if (!session_may_leave_node(client)) {
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
    struct lane *lane = profile != NULL ? upstream_shared_lane(profile) : NULL;
    if (lane == NULL) {
        client_out_of_memory(client);
    }
    return lane;
}

/* It is answered by its error. */
static void give_up(struct client *client, struct held *held)
{
    struct run *run = held->run;
    char *error = held->error;

    stats_add(client->service->reactor->stats, STATS_REDIRECTS_ENDED, 1);
    held->error = NULL;
    client_redirect_drop(client, held);
    client_answer_taken(client, run, slice_of(error));
    free(error);
}

/* True: it is under way now. */
static bool send_again(struct client *client, struct held *held)
{
    if (held->is_overtaken || held->is_refuted) {
        give_up(client, held);
        return false;
    }
    const struct cluster_way *way = destination_of(client, held);
    bool is_subscription = held->run->receiver == &client_subscriber_receiver;
    bool may_be_read = client->exclusive == NULL && !is_subscription;
    struct lane *lane = may_be_read ? client_reads_again_at(client, way, held->request) : NULL;
    client->at_replicas = lane != NULL;
    if (lane == NULL) {
        lane = is_subscription ? client_subscriber_lane_to(client, way) : lane_to(client, way);
    }
    if (client->state == CLIENT_CLOSED) {
        return false;
    }
    if (lane == NULL) {
        give_up(client, held);
        return false;
    }
    held->is_held = false;
    client->redirects->held--;
    client->lane_in_use = lane;
    client->last_lane_id = lane->id;
    client_note_written(client, client_command_of(client->service, held->request), way);
    if ((held->asks && !upstream_send_hidden(lane, asking, sizeof asking - 1, false)) ||
        !lane_send(lane, held->run, held->request.data, held->request.length)) {
        return client_out_of_memory(client);
    }
    return true;
}

/* The client has one lane of its own at a time, which is left when what was sent on it is answered: then the next ones
 * are sent. */
static bool has_other_lane(struct client *client, struct held *held)
{
    const struct client_redirects *redirects = client->redirects;
    bool is_answered_here = held->is_overtaken || held->is_refuted;

    return client->exclusive != NULL && held->is_held && !is_answered_here && client->sent_runs > redirects->held &&
           destination_of(client, held) != client->exclusive_way;
}

/* Whether the map still does not say where it goes. It is not sent to the same node meanwhile: if the error was not
 * Redis' own, it may have been executed. A slot that has another owner by now has moved, whatever that is called. */
static bool awaits_map(struct client *client, struct held *held)
{
    struct cluster_ways *ways = client->service->cluster;

    if (!held->awaits_map) {
        return false;
    }
    bool has_moved = !held->there.ask && cluster_way_of(ways, held->there.slot) != held->owner;
    bool is_found = has_moved || cluster_way_redirect(ways, NULL, &held->there) != NULL;
    held->asks = is_found && held->there.ask;
    held->redirects += is_found;
    held->is_overtaken = held->is_overtaken || (!is_found && client_redirect_is_over(client, held));
    held->awaits_map = !is_found && !held->is_overtaken;
    return held->awaits_map;
}

/* One of them is to wait. True: they all do, as they are sent in order. */
static bool pauses(struct client_redirects *redirects)
{
    const struct timeval pause = {.tv_usec = PAUSE_US};
    bool is_due = false;
    struct held *held;

    TAILQ_FOREACH(held, &redirects->requests, of_client)
    {
        is_due = is_due || (held->is_held && (held->pauses || awaits_map(redirects->client, held)));
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

/* The client has closed its writing half, and the lane's stream was ended: Redis closes that lane, as it has answered.
 */
static void leave_ended_lane(struct client *client)
{
    if (client->exclusive != NULL && client->exclusive->ending) {
        (void)exclusive_lane(client, client->exclusive_way);
    }
}

static void resolve_task(struct reactor_task *task)
{
    struct client_redirects *redirects =
        (struct client_redirects *)(void *)((char *)task - offsetof(struct client_redirects, task));
    struct client *client = redirects->client;

    if (client->sent_runs > redirects->held) {
        return;
    }
    leave_ended_lane(client);
    if (client->state == CLIENT_CLOSED || pauses(redirects) || asks(redirects)) {
        return;
    }
    /* Of each slot, and of what has none. The list goes with the last of them that is answered here, or with all that
     * the client has under way. */
    bool is_sent[CLUSTER_SLOTS + 1] = {false};
    struct held *held = TAILQ_FIRST(&redirects->requests);
    while (held != NULL && client->redirects == redirects && !has_other_lane(client, held)) {
        struct held *next = TAILQ_NEXT(held, of_client);
        bool *of_slot = &is_sent[held->keys.has_key ? held->keys.slot : CLUSTER_SLOTS];
        if (held->is_held && !*of_slot) {
            *of_slot = send_again(client, held);
        }
        held = next;
    }
    if (client->redirects == redirects) {
        client_redirect_check(client);
    }
}

bool client_redirect_holds(const struct client *client)
{
    const struct client_redirects *redirects = client->redirects;

    return redirects != NULL && redirects->held > 0 && client->sent_runs == redirects->held;
}

void client_redirect_check(struct client *client)
{
    struct client_redirects *redirects = client->redirects;

    if (redirects != NULL && redirects->held > 0 && !redirects->paused && client->sent_runs == redirects->held) {
        reactor_at_turn_end(client->service->reactor, REACTOR_STAGE_CLIENTS, &redirects->task);
    }
}

/* ---- the list ---- */

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct client_redirects *redirects = context;

    (void)fd;
    (void)what;
    redirects->paused = false;
    client_redirect_check(redirects->client);
}

bool client_redirect_open(struct client *client)
{
    struct client_redirects *redirects = client->redirects;

    if (redirects == NULL) {
        redirects = calloc(1, sizeof *redirects);
        if (redirects == NULL) {
            return false;
        }
        redirects->client = client;
        redirects->task.run = resolve_task;
        TAILQ_INIT(&redirects->requests);
        evtimer_assign(&redirects->timer, client->service->reactor->base, on_timer, redirects);
        client->redirects = redirects;
    }
    return true;
}
