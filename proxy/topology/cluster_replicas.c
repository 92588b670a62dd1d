#include "topology/cluster_replicas.h"

#include "topology/contact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

#define TICK_US 50000
#define RETRY_US ((int64_t)500000)

/* One master. */
struct group {
    LIST_ENTRY(group) of_all;
    struct cluster_replicas *all;
    char host[CLUSTER_HOST_MAX];
    uint16_t port;
    struct connection_target target;
    struct contact *contact; /* NULL: it is not connected */
    bool is_ready;
    bool is_named; /* by the map */
    int64_t next_us;
    int64_t asked_us;
    struct replica_watch *watch;
};

struct cluster_replicas {
    struct reactor *reactor;
    struct cluster_replicas_settings settings;
    LIST_HEAD(, group) groups;
    struct event timer;
};

/* ---- one master ---- */

static void gone(struct group *group)
{
    contact_free(group->contact);
    group->contact = NULL;
    group->is_ready = false;
    group->next_us = reactor_now(group->all->reactor) + RETRY_US;
}

static void on_closed(void *context, const char *why)
{
    struct group *group = context;

    (void)why;
    group->contact = NULL;
    gone(group);
}

static void on_ready(void *context)
{
    struct group *group = context;

    group->is_ready = true;
    group->next_us = 0;
}

/* One that is no master any more tells nothing: its replicas are another one's by now, or will be. */
static void on_answer(void *context, const redisReply *reply)
{
    struct group *group = context;
    bool is_master = reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
                     reply->element[0]->type == REDIS_REPLY_STRING && strcmp(reply->element[0]->str, "master") == 0;

    if (is_master) {
        replica_watch_hear(group->watch, group->asked_us, reply);
    } else if (reply->type == REDIS_REPLY_ARRAY) {
        replica_watch_forget(group->watch);
    }
}

static const struct contact_events events = {.ready = on_ready, .answer = on_answer, .closed = on_closed};

static void connect_now(struct group *group)
{
    const struct conf *conf = group->all->settings.conf;
    const struct contact_settings settings = {
        .target = &group->target,
        .tls = conf->upstream.tls ? conf->tls_upstream : NULL,
        .host = group->host,
        .user = conf->upstream_user,
        .password = conf->upstream_password,
        .timeout_ms = conf->sentinel_timeout,
        .tuning = {.keepalive_ms = conf->tcp_keepalive, .user_timeout_ms = conf->tcp_user_timeout},
    };

    group->contact = contact_new(group->all->reactor, &settings, &events, group);
    if (group->contact == NULL) {
        gone(group);
    }
}

static void ask(struct group *group, int64_t now_us)
{
    static const char *const role[] = {"ROLE"};

    if (contact_owed(group->contact) == 0) {
        group->asked_us = now_us;
        group->next_us = now_us + clock_ms_to_us(replica_watch_interval(group->all->settings.conf));
        contact_ask(group->contact, 1, role);
    }
}

static void tick(struct group *group)
{
    int64_t now_us = reactor_now(group->all->reactor);

    if (group->contact == NULL && now_us >= group->next_us) {
        connect_now(group);
    } else if (group->is_ready && now_us >= group->next_us) {
        ask(group, now_us);
    }
    replica_watch_tick(group->watch);
}

/* ---- all of them ---- */

static void on_list(void *context, struct replica_list *list)
{
    const struct group *group = context;
    const struct cluster_replicas_settings *settings = &group->all->settings;

    settings->changed(settings->context, group->host, group->port, list);
}

static const char *refuse(void *context, const struct sockaddr *address)
{
    const struct group *group = context;
    const struct cluster_replicas_settings *settings = &group->all->settings;

    return settings->refuses(settings->context, address);
}

static void group_free(struct group *group)
{
    LIST_REMOVE(group, of_all);
    contact_free(group->contact);
    replica_watch_free(group->watch);
    free(group);
}

static struct group *find(const struct cluster_replicas *replicas, const struct cluster_node *node)
{
    struct group *group;

    LIST_FOREACH(group, &replicas->groups, of_all)
    {
        if (group->port == node->port && strcasecmp(group->host, node->host) == 0) {
            return group;
        }
    }
    return NULL;
}

static struct group *add(struct cluster_replicas *replicas, const struct cluster_node *node)
{
    struct group *group = calloc(1, sizeof *group);
    const struct replica_watch_settings settings = {
        .conf = replicas->settings.conf, .changed = on_list, .refuses = refuse, .context = group};

    if (group == NULL) {
        return NULL;
    }
    group->all = replicas;
    group->watch = replica_watch_new(replicas->reactor, &settings);
    if (group->watch == NULL) {
        free(group);
        return NULL;
    }
    snprintf(group->host, sizeof group->host, "%s", node->host);
    group->port = node->port;
    LIST_INSERT_HEAD(&replicas->groups, group, of_all);
    return group;
}

static void follow_node(struct cluster_replicas *replicas, const struct cluster_node *node)
{
    struct group *group = find(replicas, node);

    if (group == NULL) {
        group = add(replicas, node);
    }
    if (group != NULL) {
        group->is_named = true;
        group->target = node->targets.items[0];
    }
}

void cluster_replicas_follow(struct cluster_replicas *replicas, const struct cluster_map *map)
{
    struct group *group;

    LIST_FOREACH(group, &replicas->groups, of_all)
    {
        group->is_named = false;
    }
    for (size_t i = 0; i < map->node_count; i++) {
        const struct cluster_node *node = &map->nodes[i];
        if (node->is_master && node->slot_count > 0 && node->targets.count > 0) {
            follow_node(replicas, node);
        }
    }
    group = LIST_FIRST(&replicas->groups);
    while (group != NULL) {
        struct group *next = LIST_NEXT(group, of_all);
        if (!group->is_named) {
            replica_watch_forget(group->watch);
            group_free(group);
        }
        group = next;
    }
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct cluster_replicas *replicas = context;
    bool reads = conf_reads_replicas(replicas->settings.conf);
    struct group *group;

    (void)fd;
    (void)what;
    LIST_FOREACH(group, &replicas->groups, of_all)
    {
        if (reads) {
            tick(group);
        } else if (group->contact != NULL) {
            gone(group);
            replica_watch_forget(group->watch);
        }
    }
}

struct cluster_replicas *cluster_replicas_new(struct reactor *reactor, const struct cluster_replicas_settings *settings)
{
    const struct timeval interval = {.tv_usec = TICK_US};
    struct cluster_replicas *replicas = calloc(1, sizeof *replicas);

    if (replicas == NULL) {
        return NULL;
    }
    replicas->reactor = reactor;
    replicas->settings = *settings;
    LIST_INIT(&replicas->groups);
    event_assign(&replicas->timer, reactor->base, -1, EV_PERSIST, on_tick, replicas);
    if (event_add(&replicas->timer, &interval) != 0) {
        free(replicas);
        return NULL;
    }
    return replicas;
}

void cluster_replicas_free(struct cluster_replicas *replicas)
{
    if (replicas == NULL) {
        return;
    }
    event_del(&replicas->timer);
    while (!LIST_EMPTY(&replicas->groups)) {
        group_free(LIST_FIRST(&replicas->groups));
    }
    free(replicas);
}

void cluster_replicas_reconfigure(struct cluster_replicas *replicas, const struct conf *conf)
{
    const struct conf *before = replicas->settings.conf;
    bool is_other = strcmp(conf->upstream_user, before->upstream_user) != 0 ||
                    strcmp(conf->upstream_password, before->upstream_password) != 0;
    struct group *group;

    replicas->settings.conf = conf;
    LIST_FOREACH(group, &replicas->groups, of_all)
    {
        if (is_other && group->contact != NULL) {
            gone(group);
        }
        replica_watch_reconfigure(group->watch, conf);
    }
}

void cluster_replicas_visit(const struct cluster_replicas *replicas, node_visit *visit, void *context)
{
    const struct group *group;

    LIST_FOREACH(group, &replicas->groups, of_all)
    {
        replica_watch_visit(group->watch, visit, context);
    }
}
