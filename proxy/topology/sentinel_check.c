/*
 * The server that the sentinels name: it is asked itself, by ROLE, as Headgate's own user. Only then it is believed to
 * be the master; and it is asked again and again, as it may cease to be one. Where the user may not use ROLE, HELLO
 * tells the same; where Redis wants a password that Headgate does not have, nobody can tell, and the sentinels' word
 * has to do.
 */
#include "topology/sentinel_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between two questions to a server that is about to become a master, or cannot be reached. */
#define SOON_US ((int64_t)50000)
#define RETRY_US ((int64_t)200000)

static void ask(struct sentinel_watch *watch);

static bool is_current(const struct sentinel_watch *watch)
{
    return place_equal(&watch->check.place, &watch->place);
}

static void say_once(struct sentinel_watch *watch, const char *why)
{
    char text[PLACE_TEXT_MAX];

    if (!watch->check.told) {
        place_text(&watch->check.place, text);
        log_warning("sentinel", "the sentinels say that %s is the master %s, and it is not to be had: %s; asking again",
                    text, watch->upstream.master, why);
    }
    watch->check.told = true;
}

/* ---- what it says ---- */

static void failed(struct sentinel_watch *watch, const char *why)
{
    struct check *check = &watch->check;

    say_once(watch, why);
    contact_free(check->contact);
    check->contact = NULL;
    check->is_ready = false;
    check->asks_hello = false;
    check->finding = CHECK_NOTHING;
    check->next_us = reactor_now(watch->reactor) + RETRY_US;
    if (!is_current(watch)) {
        sentinel_unnamed(watch);
    }
}

static void on_closed(void *context, const char *why)
{
    struct sentinel_watch *watch = context;
    bool was_current = is_current(watch) && watch->check.finding == CHECK_MASTER;

    watch->check.contact = NULL;
    failed(watch, why);
    sentinel_decide(watch);
    if (was_current) {
        sentinel_suspect(watch);
    }
}

static void is_master(struct sentinel_watch *watch, enum check_finding finding)
{
    struct check *check = &watch->check;

    check->finding = finding;
    check->told = false;
    check->next_us = reactor_now(watch->reactor) + clock_ms_to_us(replica_watch_interval(watch->settings.conf));
    sentinel_found(watch, contact_target(check->contact));
}

static void is_no_master(struct sentinel_watch *watch, const char *role)
{
    struct check *check = &watch->check;
    char why[160];

    check->finding = CHECK_NO_MASTER;
    check->next_us = reactor_now(watch->reactor) + SOON_US;
    if (is_current(watch)) {
        sentinel_lost(watch);
    } else {
        sentinel_unnamed(watch);
    }
    snprintf(why, sizeof why, "it says of itself that it is %.80s", role);
    say_once(watch, why);
}

static bool is_text(const redisReply *reply, const char *text)
{
    return reply->type == REDIS_REPLY_STRING && strcmp(reply->str, text) == 0;
}

static void take_role(struct sentinel_watch *watch, const redisReply *reply)
{
    const redisReply *role = reply->element[0];

    if (is_text(role, "master")) {
        is_master(watch, CHECK_MASTER);
        replica_watch_hear(watch->replicas, watch->check.asked_us, reply);
    } else {
        is_no_master(watch, role->type == REDIS_REPLY_STRING ? role->str : "none");
    }
}

/* Names and values one behind the other. */
static void take_hello(struct sentinel_watch *watch, const redisReply *reply)
{
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const redisReply *value = reply->element[i + 1];
        if (is_text(reply->element[i], "role") && is_text(value, "master")) {
            is_master(watch, CHECK_MASTER);
            return;
        }
        if (is_text(reply->element[i], "role")) {
            is_no_master(watch, value->type == REDIS_REPLY_STRING ? value->str : "none");
            return;
        }
    }
    failed(watch, "it does not tell whether it is a master");
}

static void take_error(struct sentinel_watch *watch, const char *error)
{
    struct check *check = &watch->check;
    bool wants_password = strncmp(error, "NOAUTH", 6) == 0 && *watch->settings.conf->upstream_password == '\0';
    bool is_refused = strncmp(error, "NOPERM", 6) == 0 || strncmp(error, "ERR unknown command", 19) == 0;

    if (wants_password || (is_refused && check->asks_hello)) {
        if (check->finding != CHECK_UNSAID) {
            log_warning("sentinel",
                        "the sentinels are believed without a look: the server does not say whether it is a "
                        "master (%s); upstream_user and upstream_password would be asked as",
                        error);
        }
        is_master(watch, CHECK_UNSAID);
    } else if (is_refused) {
        check->asks_hello = true;
        ask(watch);
    } else {
        failed(watch, error);
    }
}

static void on_answer(void *context, const redisReply *reply)
{
    struct sentinel_watch *watch = context;

    if (reply->type == REDIS_REPLY_ERROR) {
        take_error(watch, reply->str);
    } else if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
        failed(watch, "it does not tell whether it is a master");
    } else if (watch->check.asks_hello) {
        take_hello(watch, reply);
    } else {
        take_role(watch, reply);
    }
    sentinel_decide(watch);
}

/* ---- asking ---- */

static void ask(struct sentinel_watch *watch)
{
    static const char *const role[] = {"ROLE"}, *const hello[] = {"HELLO", "2"};
    struct check *check = &watch->check;

    check->asked_us = reactor_now(watch->reactor);
    if (check->asks_hello) {
        contact_ask(check->contact, 2, hello);
    } else {
        contact_ask(check->contact, 1, role);
    }
}

void sentinel_check_ask(struct sentinel_watch *watch)
{
    if (watch->check.is_ready && contact_owed(watch->check.contact) == 0) {
        ask(watch);
    }
}

static void on_ready(void *context)
{
    struct sentinel_watch *watch = context;

    watch->check.is_ready = true;
    ask(watch);
}

static const struct contact_events events = {.ready = on_ready, .answer = on_answer, .closed = on_closed};

/* ---- connecting ---- */

static void connect_to(struct sentinel_watch *watch, const struct connection_target *target)
{
    const struct sentinel_settings *settings = &watch->settings;
    const struct conf *conf = settings->conf;
    const char *refusal = settings->refuses(settings->context, (const struct sockaddr *)&target->address);
    const struct contact_settings of_contact = {
        .target = target,
        .tls = conf->upstream.tls ? conf->tls_upstream : NULL,
        .host = watch->check.place.host,
        .user = conf->upstream_user,
        .password = conf->upstream_password,
        .timeout_ms = conf->sentinel_timeout,
        .tuning = {.keepalive_ms = conf->tcp_keepalive, .user_timeout_ms = conf->tcp_user_timeout},
    };

    if (refusal != NULL) {
        failed(watch, refusal);
        return;
    }
    watch->check.contact = contact_new(watch->reactor, &of_contact, &events, watch);
    if (watch->check.contact == NULL) {
        failed(watch, "there is no way there, or no memory or descriptor for a connection");
    }
}

static void on_resolved(void *context, const struct connection_targets *targets)
{
    struct sentinel_watch *watch = context;

    watch->check.resolver = NULL;
    if (targets->count > 0) {
        connect_to(watch, &targets->items[0]);
    } else {
        failed(watch, targets->why);
    }
}

static void connect_now(struct sentinel_watch *watch)
{
    struct check *check = &watch->check;
    struct conf_address address = {.host = check->place.host, .port = check->place.port, .text = check->place.host};
    struct connection_targets targets;

    if (connection_resolve_numeric(&address, &targets)) {
        connect_to(watch, &targets.items[0]);
        return;
    }
    check->resolver = resolver_start(watch->reactor, &address, on_resolved, watch);
    if (check->resolver == NULL) {
        failed(watch, "there is no thread or descriptor to look its name up");
    }
}

void sentinel_check_end(struct sentinel_watch *watch)
{
    struct check *check = &watch->check;

    if (check->resolver != NULL) {
        resolver_cancel(check->resolver);
    }
    contact_free(check->contact);
    *check = (struct check){.finding = CHECK_NOTHING};
}

void sentinel_check_begin(struct sentinel_watch *watch, const struct place *place)
{
    sentinel_check_end(watch);
    watch->check.place = *place;
    connect_now(watch);
}

void sentinel_check_tick(struct sentinel_watch *watch, int64_t now_us)
{
    struct check *check = &watch->check;

    if (*check->place.host == '\0' || now_us < check->next_us) {
        return;
    }
    if (check->contact == NULL && check->resolver == NULL) {
        connect_now(watch);
    } else if (check->is_ready) {
        sentinel_check_ask(watch);
    }
}
