#include "process/handover_share.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/percent.h"
#include "base/text.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often the other process is told what is new. */
#define ROUND_US 100000
/* … unless that takes long: then a round is followed by so many times its own time without one, up to this. */
#define REST_TIMES 10
#define REST_MOST_US 1000000
/* In so many rounds it is told how many clients there are. */
#define CLIENTS_ROUNDS 10
/* With a full line, a policy is asked again so much later. */
#define REST_US 5000
/* How often it is looked whether a worker has answered, by who has nothing else to do. */
#define WAIT_MS 10
/* How long is waited for policies to hear what another process has said, at most. */
#define HEARING_US 5000000

/* Something that a policy is asked, or told. It belongs to a worker until it is answered. */
struct handover_errand {
    struct message message;
    struct handover_share *share;
    size_t server;
    size_t policy;
    bool is_all;
    struct client_admin_query query;
    struct slice arguments[3];
    enum policy_answer kind;
    char cursor[24];
    size_t length; /* of the text that was said, or is to be heard */
    char *text;
};

/* ---- errands to workers ---- */

static const struct policy_twin *twin_of(const struct handover_share *share, size_t policy)
{
    return share->servers->list[0].worker_pool.policies.list[policy]->twin;
}

static size_t roster_size(const struct handover_share *share)
{
    return share->servers->list[0].worker_pool.policies.count;
}

static struct worker *first_worker(const struct handover_share *share, size_t server)
{
    return share->servers->list[server].worker_pool.workers[0];
}

static void errand_free(struct handover_errand *errand)
{
    free(errand->text);
    free(errand);
}

/* On the worker's thread. */
static void run_errand(struct message *message)
{
    struct handover_errand *errand = (struct handover_errand *)(void *)message;

    client_service_ask_policy(worker_clients(first_worker(errand->share, errand->server)), &errand->query);
}

static void send_errand(struct handover_errand *errand, const struct policy_verb *verb, client_answered *answered)
{
    errand->message.run = run_errand;
    errand->query = (struct client_admin_query){.policy = errand->policy,
                                                .verb = verb,
                                                .count = verb->most,
                                                .arguments = errand->arguments,
                                                .answered = answered,
                                                .context = errand};
    worker_post(first_worker(errand->share, errand->server), &errand->message);
}

/* ---- telling ---- */

static void go_on(struct handover_errand *errand);
static bool begin_all(struct handover_share *share, void (*told_all)(void *context));

static void end_round(struct handover_errand *errand)
{
    struct handover_share *share = errand->share;
    void (*told_all)(void *context) = errand->is_all ? share->told_all : NULL;
    void (*awaited)(void *context) = share->awaited;
    int64_t now_us = clock_now_us(), rest_us = (now_us - share->begun_us) * REST_TIMES;

    share->is_asking = false;
    share->rested_us = now_us + (rest_us < REST_MOST_US ? rest_us : REST_MOST_US);
    share->told_all = NULL;
    share->awaited = NULL;
    handover_line_hold(share->predecessor, false);
    errand_free(errand);
    if (told_all != NULL) {
        share->is_told = true;
        told_all(share->context);
    }
    if (awaited != NULL && share->is_open) {
        (void)begin_all(share, awaited);
    }
}

static void send_policy(struct handover_share *share, struct handover_line *line, size_t server, size_t policy,
                        struct slice text)
{
    struct text_stream body;

    if (!text_open(&body)) {
        return;
    }
    fprintf(body.out, "%s\n%s\n", share->servers->list[server].name,
            share->servers->list[server].worker_pool.policies.list[policy]->name);
    (void)fwrite(text.data, 1, text.length, body.out);
    if (text_close(&body)) {
        (void)handover_line_send(line, "POLICY", (struct slice){body.bytes, body.length}, -1);
    }
    text_free(&body);
}

/* Sends on what the policy has said, but for the first line, which is the number to go on with. */
static void send_text(const struct handover_errand *errand, struct slice text)
{
    struct handover_share *share = errand->share;
    bool is_for_successor = twin_of(share, errand->policy)->is_for_successor;

    if (text.length == 0 || (!errand->is_all && is_for_successor && !share->has_successor)) {
        return;
    }
    if (errand->is_all || share->has_successor || share->is_told) {
        send_policy(share, share->successor, errand->server, errand->policy, text);
    }
    if (!errand->is_all && !is_for_successor) {
        send_policy(share, share->predecessor, errand->server, errand->policy, text);
    }
}

static void take_answer(struct message *message)
{
    struct handover_errand *errand = (struct handover_errand *)(void *)message;
    const char *end = errand->kind == POLICY_ANSWER_TEXT ? memchr(errand->text, '\n', errand->length) : NULL;
    size_t digits = end != NULL ? (size_t)(end - errand->text) : 0;
    size_t room = sizeof errand->cursor;

    if (end != NULL) {
        send_text(errand, (struct slice){end + 1, errand->length - digits - 1});
    }
    (void)snprintf(errand->cursor, room, "%.*s", (int)(digits < room ? digits : room - 1), errand->text);
    if (digits == 0 || strcmp(errand->cursor, "0") == 0) {
        errand->policy++;
        (void)snprintf(errand->cursor, room, "0");
    }
    go_on(errand);
}

/* On the worker's thread. */
static void answered(void *context, enum policy_answer kind, struct slice text)
{
    struct handover_errand *errand = context;

    free(errand->text);
    errand->text = malloc(text.length + 1);
    errand->kind = errand->text != NULL ? kind : POLICY_ANSWER_ERROR;
    errand->length = errand->text != NULL ? text.length : 0;
    if (errand->length > 0) {
        memcpy(errand->text, text.data, text.length);
    }
    errand->message.run = take_answer;
    mailbox_post(&errand->share->mailbox, &errand->message);
}

/* To the next policy that has something to say, from this one on. False: there is none. */
static bool find_next(struct handover_errand *errand)
{
    const struct handover_share *share = errand->share;

    for (; errand->server < share->servers->count; errand->server++, errand->policy = 0) {
        for (; errand->policy < roster_size(share); errand->policy++) {
            if (twin_of(share, errand->policy) != NULL) {
                return true;
            }
        }
    }
    return false;
}

/* Whether the round is to end before all have been asked. */
static bool is_over(const struct handover_errand *errand)
{
    const struct handover_share *share = errand->share;

    return !share->is_open || (errand->is_all && share->told_all == NULL);
}

/* What the policy is asked for. */
static const char *what_of(const struct handover_errand *errand)
{
    const struct handover_share *share = errand->share;
    bool is_beside = twin_of(share, errand->policy)->is_for_successor && !share->has_successor;

    if (errand->is_all || (is_beside && share->is_told)) {
        return "ALL";
    }
    return is_beside ? "BESIDE" : "NEWS";
}

static void go_on_later(evutil_socket_t fd, short what, void *context)
{
    struct handover_share *share = context;
    struct handover_errand *errand = share->resting;

    (void)fd;
    (void)what;
    share->resting = NULL;
    go_on(errand);
}

static void go_on(struct handover_errand *errand)
{
    const struct timeval rest = {.tv_usec = REST_US};
    struct handover_share *share = errand->share;

    if (is_over(errand) || !find_next(errand)) {
        end_round(errand);
        return;
    }
    if (handover_line_is_full(share->successor) || handover_line_is_full(share->predecessor)) {
        share->resting = errand;
        (void)event_add(&share->rest, &rest);
        return;
    }
    errand->arguments[0] = slice_of("TELL");
    errand->arguments[1] = slice_of(what_of(errand));
    errand->arguments[2] = slice_of(errand->cursor);
    send_errand(errand, &twin_of(share, errand->policy)->tell, answered);
}

static bool begin_round(struct handover_share *share, bool is_all)
{
    struct handover_errand *errand = calloc(1, sizeof *errand);

    if (errand == NULL) {
        return false;
    }
    *errand = (struct handover_errand){.share = share, .is_all = is_all, .cursor = "0"};
    share->is_asking = true;
    share->begun_us = clock_now_us();
    go_on(errand);
    return true;
}

/* What the process before this one says meanwhile would be in what is told, or not: it is heard afterwards. */
static bool begin_all(struct handover_share *share, void (*told_all)(void *context))
{
    share->told_all = told_all;
    handover_line_hold(share->predecessor, true);
    if (!begin_round(share, true)) {
        share->told_all = NULL;
        handover_line_hold(share->predecessor, false);
        return false;
    }
    return true;
}

static void tell_clients(const struct handover_share *share)
{
    char number[24];
    size_t clients = servers_clients(share->servers) + share->before;

    (void)snprintf(number, sizeof number, "%zu", clients);
    if (!handover_line_is_full(share->successor)) {
        (void)handover_line_send(share->successor, "CLIENTS", slice_of(number), -1);
    }
}

bool handover_share_tell_all(struct handover_share *share, void (*told_all)(void *context), void *context)
{
    tell_clients(share);
    share->context = context;
    if (share->is_asking) {
        share->awaited = told_all;
        return true;
    }
    return begin_all(share, told_all);
}

bool handover_share_is_busy(const struct handover_share *share)
{
    return share->is_asking || share->successor->queued > 0;
}

/* Until the round is over, or time is. */
static void await_round(struct handover_share *share, int64_t until_us)
{
    while (share->is_asking && clock_now_us() < until_us) {
        struct pollfd waiting = {.fd = share->mailbox.fd, .events = POLLIN};
        (void)poll(&waiting, 1, WAIT_MS);
        mailbox_run(&share->mailbox);
        if (share->resting != NULL) {
            handover_line_flush(share->successor, WAIT_MS);
            event_del(&share->rest);
            go_on_later(-1, 0, share);
        }
    }
}

void handover_share_say_all(struct handover_share *share, int patience_ms)
{
    int64_t until_us = clock_now_us() + clock_ms_to_us(patience_ms);

    event_del(&share->timer);
    await_round(share, until_us);
    if (!share->is_asking && begin_round(share, false)) {
        await_round(share, until_us);
    }
    tell_clients(share);
    handover_line_flush(share->successor, patience_ms);
}

void handover_share_lose_successor(struct handover_share *share)
{
    share->has_successor = false;
    share->is_told = false;
}

void handover_share_forget(struct handover_share *share)
{
    share->told_all = NULL;
    share->awaited = NULL;
    handover_share_lose_successor(share);
}

/* ---- hearing ---- */

static void hear_clients(struct handover_share *share, struct slice text)
{
    int64_t number;

    if (percent_take_number(&text, &number)) {
        share->before = (uint64_t)number;
        for (size_t i = 0; i < share->servers->count; i++) {
            stats_set(&share->servers->list[i].stats, STATS_PREDECESSOR_CLIENTS, share->before);
        }
    }
}

static void forget_errand(struct message *message)
{
    struct handover_errand *errand = (struct handover_errand *)(void *)message;

    errand->share->hearing--;
    errand_free(errand);
}

/* On the worker's thread. */
static void heard(void *context, enum policy_answer kind, struct slice text)
{
    struct handover_errand *errand = context;

    (void)kind;
    (void)text;
    errand->message.run = forget_errand;
    mailbox_post(&errand->share->mailbox, &errand->message);
}

/* What there is no memory for is lost: then the two know less of each other. */
static void tell_policy(struct handover_share *share, size_t server, size_t policy, struct slice text)
{
    struct handover_errand *errand = calloc(1, sizeof *errand);
    char *copy = malloc(text.length + 1);

    if (errand == NULL || copy == NULL) {
        free(errand);
        free(copy);
        return;
    }
    memcpy(copy, text.data, text.length);
    *errand = (struct handover_errand){
        .share = share, .server = server, .policy = policy, .text = copy, .length = text.length};
    errand->arguments[0] = slice_of("HEAR");
    errand->arguments[1] = (struct slice){copy, text.length};
    share->hearing++;
    send_errand(errand, &twin_of(share, policy)->hear, heard);
}

static bool hear_policy(struct handover_share *share, struct slice text)
{
    struct slice server_name, name;

    if (!percent_take_line(&text, &server_name) || !percent_take_line(&text, &name)) {
        return false;
    }
    const struct server *server = servers_find(share->servers, server_name);
    for (size_t i = 0; server != NULL && i < roster_size(share); i++) {
        if (twin_of(share, i) != NULL && slice_is(name, server->worker_pool.policies.list[i]->name)) {
            tell_policy(share, (size_t)(server - share->servers->list), i, text);
            return !twin_of(share, i)->is_for_successor;
        }
    }
    return false;
}

void handover_share_hear(struct handover_share *share, const struct handover_message *message, bool is_predecessor)
{
    if (slice_is(message->word, "POLICY")) {
        /* With one before it and one behind it, each of these hears of the other, too. */
        bool is_for_all = hear_policy(share, message->body);
        if (is_for_all && (!is_predecessor || share->has_successor || share->is_told)) {
            (void)handover_line_send(is_predecessor ? share->successor : share->predecessor, "POLICY", message->body,
                                     -1);
        }
    } else if (is_predecessor && slice_is(message->word, "CLIENTS")) {
        hear_clients(share, message->body);
    } else if (!share->has_warned) {
        share->has_warned = true;
        log_warning("upgrade", "the other process is of another version, and says what is not understood here: that "
                               "much of what it knows is lost");
    }
}

/* ---- waiting ---- */

void handover_share_settle(struct handover_share *share)
{
    int64_t until_us = clock_now_us() + HEARING_US;

    while (share->hearing > 0 && clock_now_us() < until_us) {
        struct pollfd waiting = {.fd = share->mailbox.fd, .events = POLLIN};
        (void)poll(&waiting, 1, WAIT_MS);
        mailbox_run(&share->mailbox);
    }
}

/* ---- life ---- */

static bool has_other(const struct handover_share *share)
{
    return share->has_successor || handover_line_is_open(share->predecessor);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct handover_share *share = context;

    (void)fd;
    (void)what;
    if (!has_other(share)) {
        event_del(&share->timer);
        hear_clients(share, slice_of("0"));
        return;
    }
    if (!handover_line_is_open(share->predecessor)) {
        hear_clients(share, slice_of("0"));
    }
    if (!share->is_asking && clock_now_us() >= share->rested_us) {
        (void)begin_round(share, false);
    }
    if (++share->rounds % CLIENTS_ROUNDS == 0) {
        tell_clients(share);
    }
}

void handover_share_begin(struct handover_share *share)
{
    const struct timeval interval = {.tv_usec = ROUND_US};

    if (!event_pending(&share->timer, EV_TIMEOUT, NULL)) {
        (void)event_add(&share->timer, &interval);
    }
    /* At once: what clients do in the first moment is to be told, too. */
    if (!share->is_asking) {
        (void)begin_round(share, false);
    }
}

void handover_share_begin_successor(struct handover_share *share)
{
    share->has_successor = true;
    tell_clients(share);
    handover_share_begin(share);
}

bool handover_share_open(struct handover_share *share, struct reactor *reactor, struct servers *servers,
                         struct handover_line *predecessor, struct handover_line *successor)
{
    *share = (struct handover_share){
        .reactor = reactor, .servers = servers, .predecessor = predecessor, .successor = successor};
    event_assign(&share->rest, reactor->base, -1, 0, go_on_later, share);
    event_assign(&share->timer, reactor->base, -1, EV_PERSIST, on_timer, share);
    share->is_open = true;
    if (!mailbox_open(&share->mailbox, reactor)) {
        share->mailbox.fd = -1;
        handover_share_close(share);
        return false;
    }
    return true;
}

void handover_share_close(struct handover_share *share)
{
    if (!share->is_open) {
        return;
    }
    share->is_open = false;
    share->told_all = NULL;
    event_del(&share->timer);
    event_del(&share->rest);
    if (share->resting != NULL) {
        errand_free(share->resting);
    }
    if (share->mailbox.fd >= 0) {
        mailbox_run(&share->mailbox);
        mailbox_close(&share->mailbox);
    }
}
