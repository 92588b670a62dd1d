#include "worker/crew.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

/* Redis has moved, or was found. */
static void on_targets(void *context, const struct connection_targets *targets)
{
    struct crew *crew = context;

    for (size_t i = 0; i < crew->count; i++) {
        worker_set_targets(crew->workers[i], targets);
    }
}

/* A name that leads to Headgate would have it connect to itself until descriptors are gone. */
static const char *refuse_own(void *context, const struct sockaddr *address)
{
    const struct crew *crew = context;

    return conf_own_address(crew->conf, address) != NULL ? "it leads to Headgate itself" : NULL;
}

/* What workers need, but for themselves. False with errno set and nothing left open. */
static bool open_parts(struct crew *crew, struct reactor *reactor, const struct conf *conf,
                       const struct policy *const *policies)
{
    const struct lookup_settings settings = {
        .address = &conf->upstream,
        .interval = conf->resolve_every,
        .changed = on_targets,
        .refuses = refuse_own,
        .context = crew,
        .stats = reactor->stats,
    };
    size_t count = (size_t)conf->threads;

    crew->workers = calloc(count, sizeof(struct worker *));
    if (crew->workers == NULL || !workgroup_open(&crew->group, count)) {
        free(crew->workers);
        errno = ENOMEM;
        return false;
    }
    if (!chain_roster_open(&crew->policies, policies, count)) {
        workgroup_close(&crew->group);
        free(crew->workers);
        errno = ENOMEM;
        return false;
    }
    if (!mailbox_open(&crew->mailbox, reactor)) {
        int reason = errno;
        workgroup_close(&crew->group);
        chain_roster_close(&crew->policies);
        free(crew->workers);
        errno = reason;
        return false;
    }
    crew->lookup = lookup_new(reactor, &settings);
    if (crew->lookup == NULL) {
        crew_stop(crew);
        errno = ENOMEM;
    }
    return crew->lookup != NULL;
}

bool crew_start(struct crew *crew, struct reactor *reactor, const struct conf *conf,
                const struct policy *const *policies)
{
    size_t count = (size_t)conf->threads;

    /* Initialises the C library's allocator while there is one thread. Under a sanitizer nobody else does, and workers
     * that trim would all do it at once. */
    (void)malloc_trim(0);
    *crew = (struct crew){.stats = reactor->stats, .conf = conf};
    if (!open_parts(crew, reactor, conf, policies)) {
        return false;
    }
    const struct worker_parts parts = {
        .lookup = crew->lookup,
        .mailbox = &crew->mailbox,
        .policies = &crew->policies,
        .group = &crew->group,
    };
    for (; crew->count < count; crew->count++) {
        crew->workers[crew->count] = worker_start(crew->count, conf, &parts);
        if (crew->workers[crew->count] == NULL) {
            int reason = errno;
            crew_stop(crew);
            errno = reason;
            return false;
        }
    }
    return true;
}

void crew_stop(struct crew *crew)
{
    if (crew->workers == NULL) {
        return;
    }
    while (crew->count > 0) {
        worker_stop(crew->workers[--crew->count]);
    }
    /* What they have left there is for nobody, but is to be freed. */
    mailbox_run(&crew->mailbox);
    mailbox_close(&crew->mailbox);
    if (crew->lookup != NULL) {
        lookup_free(crew->lookup);
    }
    workgroup_close(&crew->group);
    chain_roster_close(&crew->policies);
    free(crew->workers);
    crew->workers = NULL;
}

void crew_reconfigure(struct crew *crew, const struct conf *conf)
{
    crew->conf = conf;
    lookup_set_interval(crew->lookup, conf->resolve_every);
    lookup_soon(crew->lookup);
}

void crew_drain(struct crew *crew)
{
    for (size_t i = 0; i < crew->count; i++) {
        worker_drain(crew->workers[i]);
    }
}

bool crew_is_settled(const struct crew *crew)
{
    bool settled = true;

    for (size_t i = 0; i < crew->count; i++) {
        settled = settled && worker_is_settled(crew->workers[i]);
    }
    return settled;
}

bool crew_waits_in_vain(const struct crew *crew)
{
    bool in_vain = true;

    for (size_t i = 0; i < crew->count; i++) {
        in_vain = in_vain && (worker_is_settled(crew->workers[i]) || worker_waits_in_vain(crew->workers[i]));
    }
    return in_vain;
}

void crew_close_clients(struct crew *crew)
{
    for (size_t i = 0; i < crew->count; i++) {
        worker_close_clients(crew->workers[i]);
    }
}

/* What holds only if it holds for every worker. */
static uint64_t stat_of_all(const struct crew *crew, enum stats_id id)
{
    uint64_t least = 1;

    for (size_t i = 0; i < crew->count; i++) {
        uint64_t one = stats_get(worker_stats(crew->workers[i]), id);
        least = one < least ? one : least;
    }
    return least;
}

uint64_t crew_stat(const struct crew *crew, enum stats_id id)
{
    /* The main thread counts nothing but lookups; what it does besides is no worker's turn. */
    bool is_of_main = id == STATS_LOOKUPS || id == STATS_LOOKUPS_FAILED;
    uint64_t sum = id == STATS_CLIENTS_REFUSED ? crew->clients_refused : is_of_main ? stats_get(crew->stats, id) : 0;

    if (id == STATS_UPSTREAM_UP) {
        return stat_of_all(crew, id);
    }

    for (size_t i = 0; i < crew->count; i++) {
        sum += stats_get(worker_stats(crew->workers[i]), id);
    }
    return sum;
}

uint64_t crew_policy_counter(const struct crew *crew, size_t policy, size_t counter)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < crew->count; i++) {
        sum += worker_policy_counter(crew->workers[i], policy, counter);
    }
    return sum;
}

size_t crew_clients(const struct crew *crew)
{
    uint64_t closed = crew_stat(crew, STATS_CLIENTS_ACCEPTED) - crew_stat(crew, STATS_CLIENTS_CONNECTED);

    return crew->clients_given > closed ? (size_t)(crew->clients_given - closed) : 0;
}

static struct worker *least_loaded(const struct crew *crew)
{
    /* Beginning at another one each time spreads a burst that the gauges do not show yet. */
    size_t start = (size_t)(crew->clients_given % crew->count);
    struct worker *best = crew->workers[start];

    for (size_t i = 1; i < crew->count; i++) {
        struct worker *worker = crew->workers[(start + i) % crew->count];
        if (stats_get(worker_stats(worker), STATS_CLIENTS_CONNECTED) <
            stats_get(worker_stats(best), STATS_CLIENTS_CONNECTED)) {
            best = worker;
        }
    }
    return best;
}

void crew_give_client(struct crew *crew, int fd, const struct sockaddr_storage *address)
{
    struct worker *worker = least_loaded(crew);

    if (worker_give_client(worker, fd, address, crew->clients_given + 1)) {
        crew->clients_given++;
    } else {
        crew->clients_refused++;
    }
}
