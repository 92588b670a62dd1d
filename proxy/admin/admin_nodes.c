/* NODES: what is known of the nodes of Redis, one line each. The table says what a line has. */
#include "admin/admin_private.h"

#include <inttypes.h>
#include <string.h>

struct field {
    const char *name;
    void (*add)(struct admin_text *text, const struct node *node);
};

static void add_role(struct admin_text *text, const struct node *node)
{
    admin_text_add(text, "%s", node->role);
}

static void add_address(struct admin_text *text, const struct node *node)
{
    admin_text_add(text, "%s", node->address);
}

static void add_state(struct admin_text *text, const struct node *node)
{
    admin_text_add(text, "%s", node->state);
}

/* What is not known is left empty. */
static void add_number(struct admin_text *text, int64_t number)
{
    if (number >= 0) {
        admin_text_add(text, "%" PRId64, number);
    }
}

static void add_lanes(struct admin_text *text, const struct node *node)
{
    add_number(text, node->lanes);
}

static void add_since(struct admin_text *text, const struct node *node)
{
    add_number(text, node->since_us >= 0 ? node->since_us / 1000000 : -1);
}

static void add_offset(struct admin_text *text, const struct node *node)
{
    add_number(text, node->offset);
}

static void add_says(struct admin_text *text, const struct node *node)
{
    admin_text_add(text, "%s", node->says);
}

static void add_slots(struct admin_text *text, const struct node *node)
{
    add_number(text, node->slots);
}

/* In ms. */
static void add_lag(struct admin_text *text, const struct node *node)
{
    add_number(text, node->lag_us >= 0 ? node->lag_us / 1000 : -1);
}

static void add_reads(struct admin_text *text, const struct node *node)
{
    add_number(text, node->reads);
}

static const struct field fields[] = {
    {"role", add_role},     {"address", add_address}, {"state", add_state}, {"lanes", add_lanes}, {"since", add_since},
    {"offset", add_offset}, {"says", add_says},       {"slots", add_slots}, {"lag", add_lag},     {"reads", add_reads},
};

struct lines {
    struct admin_text *text;
    const char *server; /* that they are of; NULL: there is one only */
};

static void add_node(void *context, const struct node *node)
{
    const struct lines *lines = context;

    if (lines->server != NULL) {
        admin_text_add(lines->text, "server=%s ", lines->server);
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        admin_text_add(lines->text, i > 0 ? " %s=" : "%s=", fields[i].name);
        fields[i].add(lines->text, node);
    }
    admin_text_add(lines->text, "\n");
}

/* The one that there is without a topology. */
static void add_single(struct lines *lines, const struct server *server, int64_t lanes)
{
    bool is_up = worker_pool_stat(&server->worker_pool, STATS_UPSTREAM_UP) > 0;
    struct node node = node_of("server", server->conf->upstream.text, is_up ? "up" : "down");

    node.lanes = lanes;
    add_node(lines, &node);
}

/* A replica of a cluster, and what is known of it by who reads from it. */
struct replica_search {
    struct lines *lines;
    const struct cluster_replicas *replicas;
    const struct node *listed;
    bool is_found;
};

static void add_if_same(void *context, const struct node *known)
{
    struct replica_search *search = context;

    if (!search->is_found && strcmp(known->address, search->listed->address) == 0) {
        struct node node = *known;
        node.says = search->listed->says;
        node.since_us = search->listed->since_us;
        search->is_found = true;
        add_node(search->lines, &node);
    }
}

static void add_listed(void *context, const struct node *node)
{
    struct replica_search *search = context;

    search->listed = node;
    search->is_found = false;
    if (strcmp(node->role, "replica") == 0) {
        cluster_replicas_visit(search->replicas, add_if_same, search);
    }
    if (!search->is_found) {
        add_node(search->lines, node);
    }
}

static void add_nodes(struct lines *lines, const struct server *server)
{
    const struct worker_pool *worker_pool = &server->worker_pool;
    int64_t lanes = (int64_t)(worker_pool_stat(worker_pool, STATS_LANES_SHARED) +
                              worker_pool_stat(worker_pool, STATS_LANES_EXCLUSIVE));

    if (worker_pool->sentinels != NULL) {
        sentinel_visit_nodes(worker_pool->sentinels, lanes, add_node, lines);
    } else if (worker_pool->watch != NULL) {
        struct replica_search search = {.lines = lines, .replicas = worker_pool->replicas};
        cluster_watch_visit_nodes(worker_pool->watch, add_listed, &search);
    } else {
        add_single(lines, server, lanes);
    }
}

void admin_run_nodes(struct session_entry *session, size_t count, const struct slice *arguments)
{
    struct admin_text text;

    (void)count;
    (void)arguments;
    if (!admin_text_open(&text)) {
        admin_reply_error(session, "ERR out of memory");
        return;
    }
    for (size_t i = session->scope.first; i < session->scope.end; i++) {
        const struct server *server = &session->admin->servers->list[i];
        struct lines lines = {.text = &text, .server = admin_names_servers(session) ? server->name : NULL};
        add_nodes(&lines, server);
    }
    admin_reply_lines(session, &text);
    admin_text_close(&text);
}
