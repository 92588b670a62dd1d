/*
 * Which nodes of a cluster a client has written to. WAIT is about all of its writes: it is asked at each of these
 * nodes, over a connection on which something was said after them, and the least of what they say is the answer.
 *
 * Nobody knows when a WAIT was enough for a node, as the next one may want more replicas: what was written to stays. If
 * one of them is no master any more, nobody knows what became of what was written there: the answer is none, once.
 */
#include "client/client_cluster_private.h"

/* One bit for each way; the last two are for all others, and for home. */
#define WAY_BITS 62
#define OTHERS ((uint64_t)1 << 62)
#define HOME ((uint64_t)1 << 63)

static uint64_t bit_of(const struct cluster_way *way)
{
    if (way == NULL) {
        return HOME;
    }
    return way->number < WAY_BITS ? (uint64_t)1 << way->number : OTHERS;
}

/* Without keys it is home that has it, which most often is no write, unless it is a script. */
static bool may_write(const struct command *command, const struct cluster_way *way)
{
    uint32_t harmless = CATEGORY_READ | CATEGORY_CONNECTION | CATEGORY_PUBSUB | CATEGORY_TRANSACTION | CATEGORY_ADMIN;

    if (command != NULL && ((command->categories & CATEGORY_WRITE) != 0 || command->kind == COMMAND_EVAL)) {
        return true;
    }
    return way != NULL && (command == NULL || (command->categories & harmless) == 0);
}

static void note(struct client *client, uint64_t bits)
{
    if (client->written == 0) {
        client->written_freed = client->service->cluster->freed;
    }
    client->written |= bits;
}

void client_note_written(struct client *client, const struct command *command, const struct cluster_way *way)
{
    if (may_write(command, way)) {
        note(client, bit_of(way));
    }
}

void client_written_goes(struct client *client, const struct cluster_way *way)
{
    if (client->written != 0) {
        note(client, bit_of(way));
    }
}

bool client_wrote_at(const struct client *client, const struct cluster_way *way)
{
    return (client->written & bit_of(way)) != 0;
}

bool client_wrote_elsewhere(const struct client *client, const struct cluster_way *way)
{
    return (client->written & (~bit_of(way) | OTHERS)) != 0;
}

bool client_written_is_gone(const struct client *client)
{
    const struct cluster_ways *ways = client->service->cluster;
    bool is_gone = client->written != 0 && client->written_freed != ways->freed;

    for (size_t i = 0; i < ways->count && i < WAY_BITS && !is_gone; i++) {
        bool is_meant = (client->written & (uint64_t)1 << i) != 0;
        is_gone = is_meant && (ways->ways[i] == NULL || !cluster_way_is_master(ways, ways->ways[i]));
    }
    return is_gone;
}

void client_written_begin_anew(struct client *client)
{
    const struct cluster_ways *ways = client->service->cluster;

    client->written = 0;
    for (size_t i = 0; i < ways->count; i++) {
        if (ways->ways[i] != NULL && cluster_way_is_master(ways, ways->ways[i])) {
            note(client, bit_of(ways->ways[i]));
        }
    }
}
