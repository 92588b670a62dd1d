/*
 * When the bytes of a client's input came. What waits behind a request that has to wait is measured from then on, and
 * not from when something was read last. A mark stands for what was read within a ms; the more of them there are, the
 * farther they are apart, so that they stay few however long a client waits.
 */
#include "client/client_private.h"

#include <string.h>

/* After each so many marks the distance doubles. */
#define MARKS_OF_A_DISTANCE 64
#define DOUBLINGS_MAX 20

/* Bytes that were read one after the other. */
struct mark {
    uint64_t end; /* where the last of them ends, counted from the client's first */
    int64_t first_us;
    int64_t last_us;
};

static size_t count_marks(const struct client *client)
{
    return buffer_length(&client->arrivals) / sizeof(struct mark);
}

static struct mark *mark_at(const struct client *client, size_t index)
{
    return (struct mark *)(void *)(client->arrivals.data + client->arrivals.start) + index;
}

static int64_t distance_us(size_t count)
{
    size_t doublings = count / MARKS_OF_A_DISTANCE;

    return clock_ms_to_us(1) << (doublings < DOUBLINGS_MAX ? doublings : DOUBLINGS_MAX);
}

void client_arrived(struct client *client)
{
    uint64_t end = client->input_passed + buffer_length(&client->input);
    const struct mark mark = {end, client->read_us, client->read_us};
    size_t count = count_marks(client);
    struct mark *last = count > 0 ? mark_at(client, count - 1) : NULL;

    if (last != NULL && client->read_us - last->first_us < distance_us(count)) {
        last->end = end;
        last->last_us = client->read_us;
        return;
    }
    /* Without memory these bytes count as if they had come with those behind them. */
    (void)buffer_append(&client->service->reactor->buffers, &client->arrivals, (const char *)&mark, sizeof mark);
}

void client_input_passed(struct client *client, size_t length)
{
    client->input_passed += length;
    client->arrival = 0;
    while (count_marks(client) > 0 && mark_at(client, 0)->end <= client->input_passed) {
        buffer_consume(&client->service->reactor->buffers, &client->arrivals, sizeof(struct mark));
    }
}

int64_t client_arrival_of(struct client *client, const char *end)
{
    uint64_t position = client->input_passed + (size_t)(end - buffer_head(&client->input));
    size_t count = count_marks(client);

    /* Requests come in order, but for those that are looked at again. */
    if (client->arrival > 0 && mark_at(client, client->arrival - 1)->end >= position) {
        client->arrival = 0;
    }
    while (client->arrival < count && mark_at(client, client->arrival)->end < position) {
        client->arrival++;
    }
    return client->arrival < count ? mark_at(client, client->arrival)->last_us : client->read_us;
}
