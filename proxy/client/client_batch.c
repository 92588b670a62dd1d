/*
 * Batches: whole requests that lie one behind the other, that nothing has to change and of whose replies nothing is to
 * be known, go to the lane as one range of bytes. Those at its end that differ in nothing that a policy looks at are
 * its group, which is put to the policy as one when something else follows.
 */
#include "client/client_private.h"

#include <string.h>

void client_batch_empty(struct client_batch *batch)
{
    batch->requests = 0;
    batch->length = 0;
    batch->name = (struct slice){0};
    batch->group.count = 0;
    batch->part.count = 0;
}

bool client_batch_send(struct client *client, struct client_batch *batch)
{
    bool sent = client->state != CLIENT_CLOSED;

    if (!sent) {
        /* Memory was short: nothing of it was sent, and nobody would take the replies. */
    } else if (batch->requests > 0 && !client_measure_part(client, &batch->part)) {
        sent = client_out_of_memory(client);
    } else if (batch->requests > 0) {
        stats_add(client->service->reactor->stats, STATS_REQUESTS, batch->requests);
        sent = client_send_plain(client, batch->lane, batch->data, batch->length, batch->requests);
    }
    client_batch_empty(batch);
    return sent;
}

/* Pipelines repeat themselves. */
static const struct command *find_command(struct client_batch *batch, struct slice name)
{
    if (name.length == 0 || !slice_equal(batch->name, name)) {
        batch->name = name;
        batch->command = command_find(name);
    }
    return batch->command;
}

struct client_plain client_plain_request(const struct client *client, struct client_batch *batch, const char *frame)
{
    const struct resp_command *framed = &client->command;

    if (framed->argument_count == 0 || resp_command_is_inline(framed) || client->admitted || client->held != NULL) {
        return (struct client_plain){0};
    }
    const struct resp_argument *name = &framed->arguments[0];
    const struct command *command = find_command(batch, (struct slice){frame + name->offset, (size_t)name->length});
    if (command == NULL || command->kind != COMMAND_ORDINARY) {
        return (struct client_plain){0};
    }
    const struct chain_interest *interest = chain_interest(client->service->chain, command);
    return (struct client_plain){interest->translator == 0 ? command : NULL, interest};
}

/* Counts the whole command at the end of the batch as one of its group. A new group begins a part, as it may yet be
 * taken back. False when memory is short. */
static bool join_group(struct client *client, struct client_batch *batch, uint32_t number,
                       const struct command *command, struct slice frame)
{
    if (batch->group.count == 0) {
        if (!client_measure_part(client, &batch->part)) {
            return false;
        }
        batch->group = (struct client_group){.number = number,
                                             .command = command,
                                             .framed = client->command,
                                             .frame = frame,
                                             .requests_before = batch->requests,
                                             .measured_before = client_measured(client)};
    }
    batch->group.count++;
    return true;
}

bool client_batch_settle(struct client *client, struct client_batch *batch)
{
    struct client_group *group = &batch->group;

    if (group->count == 0 || client->state == CLIENT_CLOSED) {
        return true;
    }
    struct policy_client view = client_policy_view(client);
    struct policy_request request = client_describe(client, &view, group->command, &group->framed, group->frame);
    bool admitted = chain_admit(client->service->chain, &request, group->count);
    if (!admitted) {
        client->ask_each = group->count;
        batch->length = (size_t)(group->frame.data - batch->data);
        batch->requests = group->requests_before;
        batch->part.count = 0;
        client_unmeasure(client, group->measured_before);
    }
    group->count = 0;
    return admitted;
}

/* The group that the request may join, with those at the end of the batch if they are of it; 0: none. */
static uint32_t group_of(const struct client *client, const struct client_plain *plain)
{
    return client->ask_each == 0 ? plain->interest->group : 0;
}

bool client_batch_is_parted(const struct client *client, const struct client_batch *batch,
                            const struct client_plain *plain)
{
    return batch->group.count > 0 &&
           (plain->command == NULL || (plain->interest->wanted != 0 && group_of(client, plain) != batch->group.number));
}

bool client_batch_join(struct client *client, struct client_batch *batch, const struct client_plain *plain,
                       const char *frame, enum policy_verdict *verdict, struct policy_decision *decision)
{
    struct slice bytes = {frame, (size_t)client->command.size};

    *verdict = POLICY_PASS;
    if (plain->command == NULL) {
        return false;
    }
    if (batch->requests == 0) {
        batch->lane = client_plain_lane(client);
        batch->data = frame;
        if (batch->lane == NULL) {
            return false;
        }
    }
    bool measures = client->service->reactor->measures;
    bool notes = measures && !client_measure_joins(client, &batch->part, plain->interest, bytes.length) &&
                 !client_measure_plain(client, &batch->part, plain->interest, bytes);
    if (notes) {
        client_note(client, plain->command, plain->interest, &client->command, bytes);
    }
    uint32_t group = group_of(client, plain);
    if (group != 0 && !join_group(client, batch, group, plain->command, bytes)) {
        return client_out_of_memory(client);
    }
    if (group == 0 && plain->interest->wanted != 0) {
        *verdict = client_ask_policies(client, plain->command, &client->command, bytes, decision);
        if (*verdict != POLICY_PASS || client->held != NULL) {
            return false;
        }
        client->admitted = false;
    }
    if (notes && !client_measure_batched(client, &batch->part, bytes)) {
        return client_out_of_memory(client);
    }
    batch->length += bytes.length;
    batch->requests++;
    return true;
}
