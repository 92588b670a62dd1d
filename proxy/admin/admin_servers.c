/* What is asked of several servers: what they have in sum, and each by itself. */
#include "admin/admin_private.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct server *server_at(const struct session_entry *session, size_t index)
{
    return &session->admin->servers->list[index];
}

/* ---- what is counted, since RESETSTAT ---- */

/*
 * Workers go on counting, and so do metrics and the page: what a counter had when RESETSTAT was asked for is taken off
 * what the admin port tells, and nothing else.
 */
struct admin_base {
    int64_t since_s;
    uint64_t stats[STATS_COUNT];
    uint64_t counters[]; /* of the policies, one after the other */
};

static size_t counter_place(const struct chain_roster *policies, size_t policy, size_t counter)
{
    size_t place = counter;

    for (size_t i = 0; i < policy; i++) {
        place += policies->list[i]->counter_count;
    }
    return place;
}

static struct admin_base *new_base(const struct admin *admin, size_t server)
{
    const struct chain_roster *policies = admin_policies(admin);
    size_t count = counter_place(policies, policies->count, 0);
    struct admin_base *base = calloc(1, sizeof *base + count * sizeof base->counters[0]);

    if (base == NULL) {
        return NULL;
    }
    base->since_s = clock_wall_us() / 1000000;
    for (enum stats_id id = 0; id < STATS_COUNT; id++) {
        base->stats[id] = servers_stat(admin->servers, server, server + 1, id);
    }
    for (size_t i = 0; i < policies->count; i++) {
        for (size_t n = 0; n < policies->list[i]->counter_count; n++) {
            base->counters[counter_place(policies, i, n)] =
                servers_policy_counter(admin->servers, server, server + 1, i, n);
        }
    }
    return base;
}

bool admin_reset_counters(struct session_entry *session)
{
    struct admin *admin = session->admin;

    if (admin->bases == NULL) {
        admin->bases = calloc(admin->servers->count, sizeof admin->bases[0]);
    }
    for (size_t i = session->scope.first; admin->bases != NULL && i < session->scope.end; i++) {
        struct admin_base *base = new_base(admin, i);
        if (base == NULL) {
            return false;
        }
        free(admin->bases[i]);
        admin->bases[i] = base;
    }
    return admin->bases != NULL;
}

void admin_free_bases(struct admin *admin)
{
    for (size_t i = 0; admin->bases != NULL && i < admin->servers->count; i++) {
        free(admin->bases[i]);
    }
    free(admin->bases);
}

static const struct admin_base *base_of(const struct session_entry *session, size_t server)
{
    return session->admin->bases != NULL ? session->admin->bases[server] : NULL;
}

int64_t admin_counting_since(const struct session_entry *session)
{
    int64_t since_s = session->admin->started_s;

    for (size_t i = session->scope.first; i < session->scope.end; i++) {
        const struct admin_base *base = base_of(session, i);
        since_s = base != NULL && base->since_s > since_s ? base->since_s : since_s;
    }
    return since_s;
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

uint64_t admin_stat(const struct session_entry *session, enum stats_id id)
{
    bool is_shared = servers_share_stat(id);
    uint64_t value = servers_stat(session->admin->servers, session->scope.first, session->scope.end, id);

    for (size_t i = session->scope.first; i < session->scope.end && stats_describe(id)->kind == STATS_COUNTER; i++) {
        const struct admin_base *base = base_of(session, i);
        bool counts = base != NULL && (!is_shared || i == session->scope.first);
        value -= counts ? at_most(base->stats[id], value) : 0;
    }
    return value;
}

uint64_t admin_policy_counter(const struct session_entry *session, size_t policy, size_t counter)
{
    const struct chain_roster *policies = admin_policies(session->admin);
    bool grows = policies->list[policy]->counters[counter].kind == STATS_COUNTER;
    uint64_t value =
        servers_policy_counter(session->admin->servers, session->scope.first, session->scope.end, policy, counter);

    for (size_t i = session->scope.first; i < session->scope.end && grows; i++) {
        const struct admin_base *base = base_of(session, i);
        value -= base != NULL ? at_most(base->counters[counter_place(policies, policy, counter)], value) : 0;
    }
    return value;
}

/* ---- servers ---- */

static void add_facts(struct admin_text *text, const struct server *server, char separator)
{
    const struct worker_pool *worker_pool = &server->worker_pool;

    admin_text_add(
        text, "upstream=%s%cup=%" PRIu64 "%cclients=%" PRIu64 "%clanes=%" PRIu64 "%cthreads=%zu%cpool=%s",
        server->conf->upstream.text, separator, worker_pool_stat(worker_pool, STATS_UPSTREAM_UP), separator,
        worker_pool_stat(worker_pool, STATS_CLIENTS_CONNECTED), separator,
        worker_pool_stat(worker_pool, STATS_LANES_SHARED) + worker_pool_stat(worker_pool, STATS_LANES_EXCLUSIVE),
        separator, worker_pool->count, separator, server->conf->pool == CONF_POOL_SESSION ? "session" : "shared");
}

static void add_listens(struct admin_text *text, const struct conf *conf)
{
    const char *separator = "";

    for (size_t i = 0; i < conf_listener_count(conf); i++) {
        const struct conf_address_list *list = conf_listener_at(conf, i).listen;
        for (size_t k = 0; k < list->count; k++) {
            admin_text_add(text, "%s%s", separator, list->items[k].text);
            separator = ",";
        }
    }
}

void admin_tell_servers(struct session_entry *session)
{
    struct admin_text text;

    if (!admin_text_open(&text)) {
        admin_reply_error(session, "ERR out of memory");
        return;
    }
    for (size_t i = 0; i < session->admin->servers->count; i++) {
        const struct server *server = server_at(session, i);
        admin_text_add(&text, "server=%s listen=", server->name);
        add_listens(&text, server->conf);
        admin_text_add(&text, " ");
        add_facts(&text, server, ' ');
        admin_text_add(&text, "\n");
    }
    admin_reply_lines(session, &text);
    admin_text_close(&text);
}

void admin_add_servers(struct admin_text *text, const struct session_entry *session)
{
    admin_text_add(text, "servers:%zu\r\n", session->scope.end - session->scope.first);
    for (size_t i = session->scope.first; i < session->scope.end; i++) {
        admin_text_add(text, "server_%s:", server_at(session, i)->name);
        add_facts(text, server_at(session, i), ',');
        admin_text_add(text, "\r\n");
    }
}
