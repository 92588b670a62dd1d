#include "process/descriptors.h"

#include "base/log.h"
#include "base/places.h"

#include <fcntl.h>
#include <sys/resource.h>

/* So many at most are open beside clients and lanes. */
#define OTHERS_MOST 4096
/* By so many may those that are kept for operators and probes be more when the limit is raised. */
#define KEPT_MORE 256

/* Of all servers together. */
struct needs {
    size_t clients;
    size_t lanes; /* no client's: the first, opened ahead, and to ask Redis, at each node that is named; to sentinels */
};

static struct needs needs_of(const struct conf *conf)
{
    struct needs needs = {0};

    for (size_t i = 0; i < conf_server_count(conf); i++) {
        const struct conf *server = conf_server_at(conf, i);
        size_t lanes = (size_t)(server->threads * (1 + server->exclusive_ready + 1));
        needs.clients += (size_t)server->max_clients;
        needs.lanes += lanes * (server->upstream.seed_count + 1);
    }
    return needs;
}

void descriptors_raise(const struct conf *conf)
{
    const struct needs needs = needs_of(conf);
    rlim_t wanted = 2 * needs.clients + needs.lanes + OTHERS_MOST;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= wanted ? wanted : limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

size_t descriptors_in_use(void)
{
    size_t count = 0;

    for (int fd = 0; fd < OTHERS_MOST; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

void descriptors_fit(struct servers *servers, const struct conf *conf, size_t in_use)
{
    const struct needs needs = needs_of(conf);
    size_t limit = (size_t)places_limit(), least = servers->count;
    /* Operators and probes may have low numbers, too. */
    size_t kept = (size_t)(places_limit() - places_for_all()) + 2 * places_of_port();
    size_t others = in_use + needs.lanes + kept;
    size_t fit = limit > others + 2 * least ? (limit - others) / 2 : least;

    uint64_t before = servers_stat(servers, 0, servers->count, STATS_CLIENTS_MAX);
    servers_bound_clients(servers, fit < needs.clients ? fit : needs.clients);
    if (fit < needs.clients && servers_stat(servers, 0, servers->count, STATS_CLIENTS_MAX) != before) {
        log_warning("main",
                    "ulimit -n is %zu: max_clients is lowered from %zu to %zu, as each client may need a connection of "
                    "its own to Redis, and %zu are for Headgate itself; %zu would be enough",
                    limit, needs.clients, fit, others, others + 2 * needs.clients + KEPT_MORE);
    }
}
