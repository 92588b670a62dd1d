/* What is asked of several servers: what they have in sum, and each by itself. */
#include "admin/admin_private.h"

#include "tls/tls_context.h"

#include <inttypes.h>

static const struct server *server_at(const struct session_entry *session, size_t index)
{
    return &session->admin->servers->list[index];
}

/* What holds for all only if it holds for each; what runs out first; and reloads, which all servers have together. A
 * sum says nothing of these. */
static bool is_least(enum stats_id id)
{
    return id == STATS_UPSTREAM_UP || id == STATS_TLS_CERTIFICATE_DAYS || id == STATS_UPSTREAM_CERTIFICATE_DAYS ||
           id == STATS_RELOADS || id == STATS_RELOAD_FAILURES || id == STATS_RELOAD_FAILED || id == STATS_LAST_RELOAD;
}

static bool expires(const struct tls_context *context)
{
    return context != NULL && tls_context_expires(context) != 0;
}

/* Certificates that a server does not have count no days. */
static bool has_value(const struct server *server, enum stats_id id)
{
    return (id != STATS_TLS_CERTIFICATE_DAYS || expires(server->conf->tls_clients)) &&
           (id != STATS_UPSTREAM_CERTIFICATE_DAYS || expires(server->conf->tls_upstream));
}

static uint64_t least_stat(const struct session_entry *session, enum stats_id id)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = session->scope.first; i < session->scope.end; i++) {
        uint64_t one = worker_pool_stat(&server_at(session, i)->worker_pool, id);
        least = has_value(server_at(session, i), id) && one < least ? one : least;
    }
    return least == UINT64_MAX ? 0 : least;
}

uint64_t admin_stat(const struct session_entry *session, enum stats_id id)
{
    uint64_t sum = 0;

    if (is_least(id)) {
        return least_stat(session, id);
    }
    for (size_t i = session->scope.first; i < session->scope.end; i++) {
        sum += worker_pool_stat(&server_at(session, i)->worker_pool, id);
    }
    return sum;
}

uint64_t admin_policy_counter(const struct session_entry *session, size_t policy, size_t counter)
{
    uint64_t sum = 0;

    for (size_t i = session->scope.first; i < session->scope.end; i++) {
        sum += worker_pool_policy_counter(&server_at(session, i)->worker_pool, policy, counter);
    }
    return sum;
}

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
    admin_reply_gathered(session, &text);
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
