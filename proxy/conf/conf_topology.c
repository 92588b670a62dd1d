/*
 * Addresses that name those who know where the servers are: sentinel://[user:password@]host[:port],host[:port]/master
 * and cluster://[user:password@]host[:port],host[:port]; sentinels:// and clusters:// for TLS. User and password are
 * those of the servers.
 */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>

#define SCHEME_END "://"

struct scheme {
    const char *name;
    enum conf_topology topology;
    bool tls;
    const char *default_port;
};

static const struct scheme schemes[] = {
    {"sentinel", CONF_TOPOLOGY_SENTINEL, false, "26379"},
    {"sentinels", CONF_TOPOLOGY_SENTINEL, true, "26379"},
    {"cluster", CONF_TOPOLOGY_CLUSTER, false, "6379"},
    {"clusters", CONF_TOPOLOGY_CLUSTER, true, "6379"},
};

/* NULL: it is another URL, or none. */
static const struct scheme *scheme_of(const char *text)
{
    const struct scheme *found = NULL;

    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        found = conf_is_scheme(text, schemes[i].name) ? &schemes[i] : found;
    }
    return found;
}

bool conf_is_topology(const char *text)
{
    return scheme_of(text) != NULL;
}

/* ---- seeds ---- */

static bool has_seed(const struct conf_address *address, const struct conf_address *seed)
{
    for (size_t i = 0; i < address->seed_count; i++) {
        if (conf_address_equal(&address->seeds[i], seed)) {
            return true;
        }
    }
    return false;
}

static bool add_seed(struct conf_address *address, const char *text, size_t length, const char *default_port,
                     char *problem)
{
    struct conf_address seed = {.database = -1};

    if (length == 0 || *text == ':') {
        return conf_wrong(problem, "has no host between its commas");
    }
    if (address->seed_count == CONF_SEEDS_MAX) {
        return conf_wrong(problem, "names more than %d hosts", CONF_SEEDS_MAX);
    }
    char *copy = conf_copy(text, length);
    bool parsed = conf_host_parse(copy, default_port, &seed, problem);
    free(copy);
    if (!parsed) {
        return false;
    }
    seed.text = conf_format(strchr(seed.host, ':') != NULL ? "[%s]:%u" : "%s:%u", seed.host, seed.port);
    if (has_seed(address, &seed)) {
        conf_wrong(problem, "names %.120s twice", seed.text);
        conf_address_free(&seed);
        return false;
    }
    address->seeds[address->seed_count++] = seed;
    return true;
}

static bool take_seeds(const char *text, size_t length, const char *default_port, struct conf_address *address,
                       char *problem)
{
    const char *end = text + length;

    address->seeds = conf_alloc(NULL, CONF_SEEDS_MAX * sizeof *address->seeds);
    while (true) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma != NULL ? comma : end;
        if (!add_seed(address, text, (size_t)(stop - text), default_port, problem)) {
            return false;
        }
        if (comma == NULL) {
            return true;
        }
        text = comma + 1;
    }
}

bool conf_topology_equal(const struct conf_address *a, const struct conf_address *b)
{
    bool same_master =
        (a->master == NULL) == (b->master == NULL) && (a->master == NULL || strcmp(a->master, b->master) == 0);

    if (a->topology != b->topology || a->seed_count != b->seed_count || !same_master) {
        return false;
    }
    for (size_t i = 0; i < a->seed_count; i++) {
        if (!has_seed(b, &a->seeds[i])) {
            return false;
        }
    }
    return true;
}

/* ---- the part behind ---- */

static bool take_master(const char *path, struct conf_address *address, char *problem)
{
    size_t length = *path == '/' ? strlen(path + 1) : 0;

    if (length == 0) {
        return conf_wrong(problem, "has no name of a master behind its hosts, as in sentinel://host/mymaster");
    }
    if (strpbrk(path + 1, "/?#") != NULL) {
        return conf_wrong(problem, "has more behind the master's name, which means nothing here");
    }
    address->master = conf_url_decode(path + 1, length);
    if (address->master == NULL) {
        return conf_wrong(problem, "has a %% in the master's name that no two hexadecimal digits follow, or %%00");
    }
    return strlen(address->master) <= CONF_MASTER_MAX ||
           conf_wrong(problem, "has a master's name of %zu bytes, more than %d", strlen(address->master),
                      CONF_MASTER_MAX);
}

/* A cluster has database 0 alone. */
static bool is_empty_path(const char *path, char *problem)
{
    return *path == '\0' || strcmp(path, "/") == 0 || strcmp(path, "/0") == 0 ||
           conf_wrong(problem, "has something behind its hosts, which means nothing here: a cluster has no database "
                               "but 0");
}

bool conf_topology_parse(const char *text, struct conf_address *address, char problem[CONF_PROBLEM_MAX])
{
    const struct scheme *scheme = scheme_of(text);
    const char *authority = strstr(text, SCHEME_END) + sizeof SCHEME_END - 1;
    size_t length = strcspn(authority, "/?#");
    const char *at = memrchr(authority, '@', length), *path = authority + length;
    const char *hosts = at != NULL ? at + 1 : authority;

    address->topology = scheme->topology;
    address->tls = scheme->tls;
    if (strchr(path, '@') != NULL) {
        return conf_wrong(problem, "has a path before its @; within a password / is written %%2F, ? %%3F and # %%23");
    }
    if (at != NULL && !conf_userinfo_parse(authority, (size_t)(at - authority), address, problem)) {
        return false;
    }
    if (!take_seeds(hosts, (size_t)(path - hosts), scheme->default_port, address, problem)) {
        return false;
    }
    if (!(scheme->topology == CONF_TOPOLOGY_SENTINEL ? take_master(path, address, problem)
                                                     : is_empty_path(path, problem))) {
        return false;
    }
    address->text = conf_format("%.*s%s", (int)(authority - text), text, hosts);
    return true;
}
