/* What is asked of several servers: what they have in sum, and each by itself. */
#include "admin/admin_private.h"

#include <inttypes.h>

static const struct server *server_at(const struct session_entry *session, size_t index)
{
    return &session->admin->servers->list[index];
}

uint64_t admin_stat(const struct session_entry *session, enum stats_id id)
{
    return servers_stat(session->admin->servers, session->scope.first, session->scope.end, id);
}

uint64_t admin_policy_counter(const struct session_entry *session, size_t policy, size_t counter)
{
    return servers_policy_counter(session->admin->servers, session->scope.first, session->scope.end, policy, counter);
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
