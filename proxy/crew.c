#include "crew.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

bool crew_start(struct crew *crew, const struct conf *conf, const struct connection_target *target,
                const struct policy *const *policies)
{
    size_t count = (size_t)conf->threads;

    /* Initialises the C library's allocator while there is one thread. Under a sanitizer nobody else does, and workers
     * that trim would all do it at once. */
    (void)malloc_trim(0);
    *crew = (struct crew){.workers = calloc(count, sizeof(struct worker *))};
    if (crew->workers == NULL) {
        return false;
    }
    if (!workgroup_open(&crew->group, count)) {
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
    for (; crew->count < count; crew->count++) {
        crew->workers[crew->count] = worker_start(crew->count, conf, target, &crew->policies, &crew->group);
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
    while (crew->count > 0) {
        worker_stop(crew->workers[--crew->count]);
    }
    workgroup_close(&crew->group);
    chain_roster_close(&crew->policies);
    free(crew->workers);
    crew->workers = NULL;
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

void crew_close_clients(struct crew *crew)
{
    for (size_t i = 0; i < crew->count; i++) {
        worker_close_clients(crew->workers[i]);
    }
}

uint64_t crew_stat(const struct crew *crew, enum stats_id id)
{
    uint64_t sum = id == STATS_CLIENTS_REFUSED ? crew->clients_refused : 0;

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
