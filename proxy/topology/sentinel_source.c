/*
 * One sentinel. Two contacts, as one that has subscribed can ask nothing: the first asks where the master is, the other
 * hears what is announced. Whatever is announced of this master has it asked anew; +switch-master says the address
 * itself. If one of the two is lost, both are made anew.
 */
#include "topology/sentinel_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_US ((int64_t)500000)
#define SWITCH "+switch-master"

/* By which addresses are copied and freed. */
static const struct conf_option address_option = {.name = "upstream", .type = CONF_ADDRESS};

static void connect_now(struct source *source);

/* ---- gone and come back ---- */

static void forget(struct source *source)
{
    contact_free(source->asked);
    contact_free(source->heard);
    source->asked = NULL;
    source->heard = NULL;
    source->is_asked_ready = false;
    source->is_heard_ready = false;
    source->ask_again = false;
    source->opinion = OPINION_NONE;
}

static void is_gone(struct source *source, const char *why)
{
    struct sentinel_watch *watch = source->watch;

    if (!source->is_down) {
        log_warning("sentinel", "sentinel %s does not answer: %s; trying again", source->address.text, why);
    }
    source->is_down = true;
    source->retry_us = reactor_now(watch->reactor) + RETRY_US;
    forget(source);
    lookup_soon(source->lookup);
    sentinel_decide(watch);
}

static void on_asked_closed(void *context, const char *why)
{
    struct source *source = context;

    source->asked = NULL;
    is_gone(source, why);
}

static void on_heard_closed(void *context, const char *why)
{
    struct source *source = context;

    source->heard = NULL;
    is_gone(source, why);
}

/* ---- what it answers ---- */

void sentinel_source_ask(struct source *source)
{
    const char *const question[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", source->watch->upstream.master};

    if (!source->is_asked_ready) {
        return;
    }
    source->ask_again = contact_owed(source->asked) > 0;
    if (!source->ask_again) {
        source->asked_us = reactor_now(source->watch->reactor);
        contact_ask(source->asked, 3, question);
    }
}

static void on_asked_ready(void *context)
{
    struct source *source = context;

    source->is_asked_ready = true;
    sentinel_source_ask(source);
}

static void take_place(struct source *source, const struct place *place)
{
    bool is_new = source->opinion != OPINION_PLACE || !place_equal(&source->place, place);
    char text[PLACE_TEXT_MAX];
    uint64_t suppressed;

    if (is_new && log_limiter_take(&source->said, reactor_now(source->watch->reactor), &suppressed)) {
        place_text(place, text);
        log_info("sentinel", "sentinel %s says that the master %s is at %s", source->address.text,
                 source->watch->upstream.master, text);
    }
    source->is_down = false;
    source->opinion = OPINION_PLACE;
    source->place = *place;
    sentinel_decide(source->watch);
}

static void take_nobody(struct source *source)
{
    uint64_t suppressed;

    if (source->opinion != OPINION_NOBODY &&
        log_limiter_take(&source->said, reactor_now(source->watch->reactor), &suppressed)) {
        log_warning("sentinel", "sentinel %s knows no master of the name %s", source->address.text,
                    source->watch->upstream.master);
    }
    source->is_down = false;
    source->opinion = OPINION_NOBODY;
    sentinel_decide(source->watch);
}

/* The contact is not to be used any more, as a server that answers so is no sentinel, or wants another password. */
static void take_error(struct source *source, const char *error)
{
    char why[200];

    snprintf(why, sizeof why, "it says %s", error);
    is_gone(source, why);
}

static bool is_nobody(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_NIL ||
           (reply->type == REDIS_REPLY_ERROR &&
            (strncmp(reply->str, "IDONTKNOW", 9) == 0 || strncmp(reply->str, "ERR No such master", 18) == 0));
}

static void on_answer(void *context, const redisReply *reply)
{
    struct source *source = context;
    struct place place;

    if (is_nobody(reply)) {
        take_nobody(source);
    } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
               place_take(reply->element[0], reply->element[1], &place)) {
        /* What was announced since it was asked is later than what it answers. */
        if (!source->ask_again) {
            take_place(source, &place);
        }
    } else {
        take_error(source, reply->type == REDIS_REPLY_ERROR ? reply->str : "what is no address");
        return;
    }
    if (source->ask_again) {
        sentinel_source_ask(source);
    }
}

/* ---- what it announces ---- */

/* Whatever may come with a change of the master, so that it is asked when that is under way. */
static const char *const channels[] = {"SUBSCRIBE",     SWITCH,   "+promoted-slave", "+config-update-from",
                                       "+failover-end", "+odown", "-odown",          "+reboot"};

static void on_heard_ready(void *context)
{
    struct source *source = context;

    source->pinged_us = reactor_now(source->watch->reactor);
    contact_ask(source->heard, sizeof channels / sizeof channels[0], channels);
}

/* "mymaster 10.0.0.1 6379 10.0.0.2 6379": the name, where it was and where it is. False: it is of another master. */
static bool read_switch(const struct source *source, const char *text, struct place *place)
{
    char name[CONF_MASTER_MAX + 1], host[PLACE_HOST_MAX], port[8];
    bool is_read = sscanf(text, "%128s %*s %*s %253s %7s", name, host, port) == 3;

    if (!is_read || strcmp(name, source->watch->upstream.master) != 0) {
        return false;
    }
    const redisReply host_reply = {.type = REDIS_REPLY_STRING, .str = host, .len = strlen(host)};
    const redisReply port_reply = {.type = REDIS_REPLY_STRING, .str = port, .len = strlen(port)};
    return place_take(&host_reply, &port_reply, place);
}

static void on_message(struct source *source, const char *channel, const char *text)
{
    struct place place;
    bool is_switch = strcmp(channel, SWITCH) == 0;

    if (is_switch && read_switch(source, text, &place)) {
        take_place(source, &place);
        /* The others know, or are about to. */
        sentinel_suspect(source->watch);
    } else if (!is_switch && strstr(text, source->watch->upstream.master) != NULL) {
        sentinel_suspect(source->watch);
    }
}

static void on_heard(void *context, const redisReply *reply)
{
    struct source *source = context;
    bool is_array = reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
                    reply->element[0]->type == REDIS_REPLY_STRING && reply->element[1]->type == REDIS_REPLY_STRING;

    if (reply->type == REDIS_REPLY_ERROR) {
        take_error(source, reply->str);
    } else if (is_array && strcmp(reply->element[0]->str, "subscribe") == 0 && !source->is_heard_ready) {
        /* Nothing may have happened unheard between the first question and now. */
        source->is_heard_ready = true;
        sentinel_source_ask(source);
    } else if (is_array && strcmp(reply->element[0]->str, "message") == 0 &&
               reply->element[2]->type == REDIS_REPLY_STRING) {
        on_message(source, reply->element[1]->str, reply->element[2]->str);
    }
}

/* ---- connecting ---- */

static const struct contact_events asked_events = {
    .ready = on_asked_ready,
    .answer = on_answer,
    .closed = on_asked_closed,
};
static const struct contact_events heard_events = {
    .ready = on_heard_ready,
    .answer = on_heard,
    .closed = on_heard_closed,
};

static void connect_now(struct source *source)
{
    const struct sentinel_watch *watch = source->watch;
    const struct conf *conf = watch->settings.conf;
    const struct connection_targets *targets = lookup_targets(source->lookup);

    if (targets->count == 0) {
        if (targets->why != NULL) {
            is_gone(source, targets->why);
        }
        return;
    }
    const struct contact_settings settings = {
        .target = &targets->items[source->next_target++ % targets->count],
        .tls = conf->upstream.tls ? conf->tls_upstream : NULL,
        .host = source->address.host,
        .user = conf->sentinel_user,
        .password = conf->sentinel_password,
        .timeout_ms = conf->sentinel_timeout,
        .tuning = {.keepalive_ms = conf->tcp_keepalive, .user_timeout_ms = conf->tcp_user_timeout},
    };
    source->asked = contact_new(watch->reactor, &settings, &asked_events, source);
    source->heard = contact_new(watch->reactor, &settings, &heard_events, source);
    if (source->asked == NULL || source->heard == NULL) {
        is_gone(source, "there is no memory or descriptor for a connection");
    }
}

/* One that hears nothing for long is asked whether it is there. */
static void ping(struct source *source, int64_t now_us)
{
    static const char *const question[] = {"PING"};

    if (source->is_heard_ready && contact_owed(source->heard) == 0) {
        source->pinged_us = now_us;
        contact_ask(source->heard, 1, question);
    }
}

void sentinel_source_tick(struct source *source, int64_t now_us)
{
    int64_t interval_us = clock_ms_to_us(source->watch->settings.conf->sentinel_check);

    if (source->asked == NULL) {
        if (now_us >= source->retry_us) {
            connect_now(source);
        }
        return;
    }
    if (now_us - source->asked_us >= interval_us) {
        sentinel_source_ask(source);
    }
    if (now_us - source->pinged_us >= interval_us) {
        ping(source, now_us);
    }
}

/* ---- life ---- */

/* Where the sentinel is has changed, or is known at last. */
static void on_targets(void *context, const struct connection_targets *targets)
{
    struct source *source = context;

    (void)targets;
    if (source->asked == NULL) {
        source->retry_us = 0;
    }
}

/* As with all of a configuration, the program ends when memory is short. */
void sentinel_source_open(struct source *source, struct sentinel_watch *watch, const struct conf_address *address)
{
    const struct lookup_settings settings = {
        .address = address,
        .interval = watch->settings.conf->resolve_every,
        .changed = on_targets,
        .context = source,
        .stats = watch->settings.stats,
    };

    *source = (struct source){.watch = watch};
    conf_value_copy(&address_option, &source->address, address);
    source->lookup = lookup_new(watch->reactor, &settings);
    if (source->lookup == NULL) {
        abort();
    }
}

void sentinel_source_close(struct source *source)
{
    forget(source);
    lookup_free(source->lookup);
    conf_value_free(&address_option, &source->address);
}
