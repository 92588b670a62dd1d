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

/* The group is left as it is. */
static bool send_settled(struct client *client, struct client_batch *batch)
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
    batch->requests = 0;
    batch->length = 0;
    batch->part.count = 0;
    return sent;
}

bool client_batch_send(struct client *client, struct client_batch *batch)
{
    bool sent = send_settled(client, batch);

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

/* Adds the whole command behind the batch to the group, or begins one. */
static void join_group(struct client *client, struct client_batch *batch, const struct client_plain *plain,
                       struct slice frame)
{
    struct client_group *group = &batch->group;

    if (group->count == 0) {
        group->number = plain->interest->group;
        group->asked = 0;
        group->framed = client->command;
        group->frame = frame;
    }
    struct client_member *member = &group->members[group->count++];
    member->command = plain->command;
    member->length = frame.length;
    member->received_us = client->note.received_us;
    member->tag = client->note.tag;
    member->is_asked = plain->interest->wanted != 0;
    group->asked += member->is_asked;
    client_note_end(client);
}

/* Notes a member as it was noted when it joined. */
static void note_again(struct client *client, const struct client_member *member, struct slice frame)
{
    if (client->service->reactor->measures) {
        client->note = (struct client_note){.taken = true,
                                            .tag = member->tag,
                                            .received_us = member->received_us,
                                            .request_bytes = frame.length,
                                            .frame = frame};
    }
}

/* The first members, up to the first that is asked about beyond those admitted, belong to the batch. Returns how many
 * these are; the client may have been closed. */
static uint32_t keep_admitted(struct client *client, struct client_batch *batch, uint32_t admitted)
{
    const struct client_group *group = &batch->group;
    uint32_t kept = 0;

    for (; kept < group->count && (admitted > 0 || !group->members[kept].is_asked); kept++) {
        const struct client_member *member = &group->members[kept];
        struct slice frame = {batch->data + batch->length, member->length};
        admitted -= member->is_asked;
        if (client->service->reactor->measures) {
            note_again(client, member, frame);
            if (!client_measure_batched(client, &batch->part, frame)) {
                (void)client_out_of_memory(client);
                return kept;
            }
        }
        batch->length += member->length;
        batch->requests++;
    }
    return kept;
}

/* Refuses the members from that one on, up to the first that no policy wants. Returns which that is. */
static uint32_t refuse_alike(struct client *client, struct client_batch *batch, uint32_t first, const char *frame,
                             const struct policy_decision *decision)
{
    const struct client_group *group = &batch->group;
    uint32_t next = first;

    for (; next < group->count && group->members[next].is_asked && client->state == CLIENT_OPEN; next++) {
        const struct client_member *member = &group->members[next];
        chain_refused(client->service->chain, member->command, decision);
        note_again(client, member, (struct slice){frame, member->length});
        client_refuse(client, decision);
        client_note_end(client);
        stats_add(client->service->reactor->stats, STATS_REQUESTS, 1);
        frame += member->length;
    }
    batch->data = frame;
    return next;
}

bool client_batch_settle(struct client *client, struct client_batch *batch)
{
    struct client_group *group = &batch->group;
    struct policy_decision decision;

    if (group->count == 0 || client->state == CLIENT_CLOSED) {
        return true;
    }
    struct policy_client view = client_policy_view(client);
    struct policy_request request =
        client_describe(client, &view, group->members[0].command, &group->framed, group->frame);
    uint32_t admitted = chain_admit(client->service->chain, &request, group->asked, &decision);
    uint32_t done = keep_admitted(client, batch, admitted);
    if (admitted < group->asked && decision.length > 0) {
        const char *frame = batch->data + batch->length;
        done = send_settled(client, batch) ? refuse_alike(client, batch, done, frame, &decision) : done;
    } else {
        client->ask_each = group->asked - admitted;
    }
    bool is_settled = done == group->count;
    group->count = 0;
    return is_settled;
}

/* The group that the request may join, with those at the end of the batch if they are of it; 0: none. */
static uint32_t group_of(const struct client *client, const struct client_plain *plain)
{
    return client->ask_each == 0 ? plain->interest->group : 0;
}

bool client_batch_is_parted(const struct client *client, const struct client_batch *batch,
                            const struct client_plain *plain)
{
    return batch->group.count > 0 && (plain->command == NULL || batch->group.count == CLIENT_GROUP_MAX ||
                                      (plain->interest->wanted != 0 && group_of(client, plain) != batch->group.number));
}

bool client_batch_join(struct client *client, struct client_batch *batch, const struct client_plain *plain,
                       const char *frame, enum policy_verdict *verdict, struct policy_decision *decision)
{
    struct slice bytes = {frame, (size_t)client->command.size};

    *verdict = POLICY_PASS;
    if (plain->command == NULL) {
        return false;
    }
    if (client_batch_count(batch) == 0) {
        batch->lane = client_plain_lane(client);
        batch->data = frame;
        if (batch->lane == NULL) {
            return false;
        }
    }
    bool measures = client->service->reactor->measures;
    bool joins_group = batch->group.count > 0 || group_of(client, plain) != 0;
    bool notes =
        measures && (joins_group || (!client_measure_joins(client, &batch->part, plain->interest, bytes.length) &&
                                     !client_measure_plain(client, &batch->part, plain->interest, bytes)));
    if (notes) {
        client_note(client, plain->command, plain->interest, &client->command, bytes);
    }
    if (joins_group) {
        join_group(client, batch, plain, bytes);
        return true;
    }
    if (plain->interest->wanted != 0) {
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
