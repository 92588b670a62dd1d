/*
 * What is held for a client, and what is done when memory is short.
 *
 * All workers count what they hold in one account, which memory_limit bounds. Beyond three quarters of it, clients that
 * do not read their replies, and for whom much is held, are not read from, either. Beyond all of it, or when that has
 * not helped for some seconds, those for whom most is held are closed: much at once, less when all workers have had the
 * time to tell who has most. What waits for a Redis that does not read is not the clients', and is bounded by itself.
 */
#include "client/client_cluster_private.h"
#include "client/client_moves_private.h"

/* Memory is short beyond so many quarters of memory_limit. */
#define SHORT 3
#define ALL 4
/* Much is this part of memory_limit, or more. */
#define MUCH 64
/* Less is nobody's fault. Bytes. */
#define LITTLE ((size_t)4096)
/* Workers look at their clients at least as often; more often only for much. µs. */
#define PATIENCE_US ((int64_t)200000)
#define INTERVAL_US ((int64_t)10000)
/* So long memory may be short. µs. */
#define SHORT_PATIENCE_US ((int64_t)5000000)

/* Bytes that are held for it, wherever they wait: its lane has them for nobody else. */
static size_t held_for(const struct client *client)
{
    const struct lane *lane = client->exclusive;
    size_t held = client->input.capacity + client->output.capacity + client->arrivals.capacity + client->kept.records +
                  client->kept.texts + client_measure_kept(client) + client_subscriber_kept(client);

    if (client->channels != NULL) {
        held += client->channels->dropped.capacity;
    }
    held += client->name != NULL ? strlen(client->name) : 0;
    return lane != NULL ? held + lane->output.capacity + lane->sent.capacity + lane->unread.capacity : held;
}

static void close_one(struct client *client, size_t held)
{
    client_log(client, LOG_LEVEL_WARNING, "closing client %s: %zu bytes are held for it, and memory_limit is reached",
               client->address_text, held);
    stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_MEMORY, 1);
    client_close(client, "memory_limit");
    buffer_pool_empty(&client->service->reactor->buffers);
}

/* The most that is held for one; *all: for all of them. */
static size_t find_most(const struct client_service *service, size_t *all)
{
    const struct client *client;
    size_t most = 0;

    *all = 0;
    LIST_FOREACH(client, &service->clients, of_service)
    {
        size_t held = held_for(client);
        most = held > most ? held : most;
        *all += held;
    }
    return most;
}

/* Those for whom so much is held, until no more than so many quarters are used. */
static void close_holders(struct client_service *service, size_t least, uint64_t quarters)
{
    struct memory *memory = service->reactor->buffers.memory;
    struct client *client = LIST_FIRST(&service->clients), *next;

    for (; client != NULL && memory_is_beyond(memory, quarters); client = next) {
        size_t held = held_for(client);
        next = LIST_NEXT(client, of_service);
        if (held >= least) {
            close_one(client, held);
        }
    }
}

/* Whether clients of this worker are to be closed, the one with most first. */
static bool is_ours(const struct client_service *service, size_t most, size_t all, int64_t since_us)
{
    const struct buffer_pool *buffers = &service->reactor->buffers;
    uint64_t others = atomic_load_explicit(&buffers->memory->most, memory_order_relaxed);

    if (most > others) {
        atomic_store_explicit(&buffers->memory->most, most, memory_order_relaxed);
    }
    if (most < LITTLE || all < buffers->bytes_lent / 2) {
        return false;
    }
    return most >= service->much_held || (since_us >= PATIENCE_US && most >= others / 2);
}

/* Memory was short for so long. */
static bool relieve(struct client_service *service, int64_t since_us)
{
    struct buffer_pool *buffers = &service->reactor->buffers;
    uint64_t quarters = since_us >= SHORT_PATIENCE_US ? SHORT : ALL;
    bool closed = false, goes_on = true;

    buffer_pool_empty(buffers);
    while (goes_on && memory_is_beyond(buffers->memory, quarters)) {
        size_t all, most = find_most(service, &all);
        goes_on = is_ours(service, most, all, since_us);
        if (goes_on) {
            close_holders(service, most / 2, quarters);
            atomic_store_explicit(&buffers->memory->most, find_most(service, &all), memory_order_relaxed);
            closed = true;
        }
    }
    return closed;
}

/* What is kept for later beside buffers is counted nowhere. */
static void drop_spares(struct client_service *service)
{
    run_pool_trim(service->runs, 0);
    spans_pool_trim(&service->spans, 0);
    expected_reply_trim(service);
}

static void change_reading(struct client_service *service, bool is_short)
{
    struct memory *memory = service->reactor->buffers.memory;
    struct client *client;

    service->much_held = is_short ? memory_limit_of(memory) / MUCH : 0;
    service->short_since_us = reactor_now(service->reactor);
    if (!is_short) {
        atomic_store_explicit(&memory->most, 0, memory_order_relaxed);
    }
    LIST_FOREACH(client, &service->clients, of_service)
    {
        client_check_room(client);
    }
}

bool client_service_relieve(struct client_service *service)
{
    struct memory *memory = service->reactor->buffers.memory;

    buffer_pool_tell(&service->reactor->buffers);
    bool is_short = memory_is_beyond(memory, SHORT);
    if (is_short != (service->much_held > 0)) {
        change_reading(service, is_short);
        service->relieved_us = 0;
    }
    if (!is_short) {
        return false;
    }
    int64_t now_us = reactor_now(service->reactor);
    if (now_us - service->relieved_us < INTERVAL_US) {
        return false;
    }
    service->relieved_us = now_us;
    drop_spares(service);
    return relieve(service, now_us - service->short_since_us);
}
