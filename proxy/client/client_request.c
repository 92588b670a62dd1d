/*
 * A request's way: framed (client_input.c) ─► looked up ─► admitted by the policies ─► routed ─► sent. What waits,
 * waits here; what is decided on the way is in struct request.
 *
 * Requests that nothing has to change, and of whose replies nothing is to be known, go with their neighbours: the
 * batch, which client_send.c sends as one range of bytes. Those that differ in nothing that a policy looks at are put
 * to it together, as the group behind the batch, when something else follows.
 */
#include "client/client_cluster_private.h"

#include "base/log.h"
#include "resp/word.h"

/* ---- looking up ---- */

static struct slice name_of(const struct request *request)
{
    return session_kept_argument(request->framed, request->frame.data, 0);
}

/* Gates that look at keys leave most requests to others. Within MULTI they count what is queued, and what is asked
 * about one by one is put to all. Not inlined: where there are no such gates, it is not to take registers. */
__attribute__((noinline)) static void glance(const struct client *client, struct request *request)
{
    if (client->ask_each == 0 && !client->session.sent_transaction) {
        request->interest = chain_glance(client->service->chain, request->interest, request->command, request->framed,
                                         request->frame.data, client->attachments);
    }
}

/* Finds the command if it is known by that name. Pipelines repeat themselves. */
static void find_by_name(struct client *client, struct request *request)
{
    struct client_batch *batch = request->batch;
    struct slice name = name_of(request);

    if (name.length == 0 || !slice_equal(batch->name, name)) {
        batch->name = name;
        batch->command = command_find(name);
    }
    request->command = batch->command;
    if (request->command != NULL) {
        request->interest = client_interest(client->service, request->command);
        request->is_plain = request->command->kind == COMMAND_ORDINARY && request->interest->translator == 0 &&
                            !client->admitted && client->held == NULL;
        if (request->interest->glances != 0 && request->is_plain) {
            glance(client, request);
        }
    }
}

/* The same, if Redis has to be asked about the name. False: the client waits. */
static bool find_by_asking(struct client *client, struct request *request)
{
    /* Redis may be waiting for them in the debugger of scripts, and tell nothing until they have come. */
    bool is_needed = !client->session.passthrough || !session_may_debug(client);

    if (request->command == NULL && is_needed && !client_find_command(client, name_of(request), &request->command)) {
        return false;
    }
    request->interest = client_interest(client->service, request->command);
    return true;
}

/* ---- what they decided ---- */

/* CLIENT CACHING. Without it Redis would not tell when what is read next changes, whatever the client believes. */
static bool is_caching(const struct request *request)
{
    return request->command != NULL && request->command->kind == COMMAND_CLIENT &&
           request->framed->argument_count > 1 &&
           word_is(session_kept_argument(request->framed, request->frame.data, 1), "caching");
}

/* Does what the policies decided on a request that they did not pass. */
static enum client_outcome obey(struct client *client, const struct request *request, enum policy_verdict verdict,
                                const struct policy_decision *decision)
{
    if (verdict == POLICY_HOLD && !client_hold_until(client, decision->hold_until_us)) {
        client_out_of_memory(client);
        return CLIENT_TAKEN;
    }
    if (verdict == POLICY_HOLD || verdict == POLICY_WHOLE) {
        client->dropped_if_gone = verdict == POLICY_HOLD && decision->drops_who_leaves;
        return CLIENT_WAITS;
    }
    if (verdict == POLICY_REPLY) {
        bool ends = is_caching(request);
        client_refuse(client, decision);
        if (ends) {
            client_finish(client);
        }
    } else {
        client_log(client, LOG_LEVEL_INFO, "a policy closes client %s: %.*s", client->address_text,
                   (int)decision->length, decision->text);
        client_end(client, "closed by a policy");
    }
    return CLIENT_TAKEN;
}

/* ---- admitting ---- */

/* Asks the policies; client->held and client->admitted are set. */
static enum policy_verdict ask_policies(struct client *client, const struct request *asked,
                                        struct policy_decision *decision)
{
    struct policy_client view = client_policy_view(client);
    struct policy_request request = client_describe(client, &view, asked);

    client->ask_each -= client->ask_each > 0;
    client->admitted = false;
    enum policy_verdict verdict = chain_ask(client->service->chain, &request, decision, &client->held);
    client->admitted = verdict == POLICY_PASS;
    client->foreseen = 0;
    if (verdict == POLICY_WHOLE) {
        client->gathering = true;
        (void)resp_command_foresee(asked->framed, &client->foreseen);
    }
    return verdict;
}

bool client_admit(struct client *client, struct request *request, enum client_outcome *outcome)
{
    struct policy_decision decision;

    if (client->admitted || request->interest->wanted == 0) {
        return true;
    }
    enum policy_verdict verdict = ask_policies(client, request, &decision);
    if (verdict == POLICY_PASS) {
        return true;
    }
    *outcome = client_batch_send(client, request->batch) ? obey(client, request, verdict, &decision) : CLIENT_TAKEN;
    return false;
}

/* ---- groups ---- */

/* Whether the policies are asked about it together with others. */
static bool is_of_group(const struct client *client, const struct request *request)
{
    return request->interest->group != 0 && client->ask_each == 0;
}

/* Whether the group behind the batch ends before the request: that goes another way, or is of another group. */
static bool ends_group(const struct client *client, const struct request *request)
{
    const struct client_group *group = &request->batch->group;

    if (group->count == 0) {
        return false;
    }
    bool is_other = request->is_plain && request->interest->wanted != 0 &&
                    (!is_of_group(client, request) || request->interest->group != group->first.interest->group);
    return !request->is_plain || is_other || group->count == CLIENT_GROUP_MAX;
}

/* Adds the request to the group, or begins one. */
static void join_group(struct client *client, const struct request *request)
{
    struct client_group *group = &request->batch->group;

    if (group->count == 0) {
        group->framed = *request->framed;
        group->first = *request;
        group->first.framed = &group->framed;
        group->asked = 0;
    }
    struct client_member *member = &group->members[group->count++];
    member->command = request->command;
    member->length = request->frame.length;
    member->received_us = client->note.taken ? client->note.received_us : client->framed_us;
    member->tag = client->note.taken ? client->note.tag : request->interest->tag;
    member->is_asked = request->interest->wanted != 0;
    group->asked += member->is_asked;
    client_note_end(client);
}

/* Adds a member, which lies at frame, to the batch. False when memory is short: the client was closed. */
static bool keep_member(struct client *client, struct client_batch *batch, const struct client_member *member,
                        const char *frame)
{
    struct slice bytes = {frame, member->length};

    if (batch->requests == 0) {
        batch->data = frame;
    }
    if (!client_part_takes(&batch->part, member->received_us, member->tag, member->length) &&
        client->service->reactor->measures &&
        !client_measure_begins(client, &batch->part, member->received_us, member->tag, bytes)) {
        return client_out_of_memory(client);
    }
    batch->length += member->length;
    batch->requests++;
    return true;
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

/* Refuses one instead. False when memory is short. */
static bool refuse_member(struct client *client, struct client_batch *batch, const struct client_member *member,
                          const char *frame, const struct policy_decision *decision)
{
    if (!client_batch_send(client, batch)) {
        return false;
    }
    chain_refused(client->service->chain, member->command, decision);
    note_again(client, member, (struct slice){frame, member->length});
    client_refuse(client, decision);
    client_note_end(client);
    stats_add(client->service->reactor->stats, STATS_REQUESTS, 1);
    return client->state == CLIENT_OPEN;
}

enum client_outcome client_end_group(struct client *client, struct client_batch *batch)
{
    struct client_group *group = &batch->group;
    struct policy_decision decision;
    bool goes_on = true;

    if (group->count == 0 || client->state == CLIENT_CLOSED) {
        return CLIENT_TAKEN;
    }
    struct policy_client view = client_policy_view(client);
    struct policy_request request = client_describe(client, &view, &group->first);
    uint32_t admitted = chain_admit(client->service->chain, &request, group->asked, &decision);
    uint32_t others = group->asked - admitted;
    const char *frame = group->first.frame.data;
    for (uint32_t i = 0; i < group->count && goes_on; i++) {
        const struct client_member *member = &group->members[i];
        bool is_admitted = !member->is_asked || admitted > 0;
        if (!is_admitted && decision.length == 0) {
            client->ask_each = others;
            group->count = 0;
            return CLIENT_TAKEN_IN_PART;
        }
        goes_on = is_admitted ? keep_member(client, batch, member, frame)
                              : refuse_member(client, batch, member, frame, &decision);
        admitted -= member->is_asked && is_admitted;
        frame += member->length;
    }
    group->count = 0;
    return CLIENT_TAKEN;
}

/* ---- the way ---- */

/* Notes what is measured of it, unless it can be counted with those before it, or a member of a group tells it. */
static void note(struct client *client, const struct request *request, bool joins_group)
{
    struct client_part *part = &request->batch->part;
    bool may_join = request->is_plain && !joins_group;

    if (joins_group && client_measure_passes(client, request->interest)) {
        return;
    }
    if (may_join && (client_measure_joins(client, part, request->interest, request->frame.length) ||
                     client_measure_plain(client, part, request->interest, request->frame))) {
        return;
    }
    client_note(client, request);
}

/* A request whose command was looked up. */
static enum client_outcome take(struct client *client, struct request *request)
{
    bool joins_group = request->is_plain && (request->batch->group.count > 0 || is_of_group(client, request));
    enum client_outcome outcome;

    if (client->service->reactor->measures) {
        note(client, request, joins_group);
    } else {
        /* What waited may have been noted before a reload. */
        client_note_end(client);
    }
    if (joins_group) {
        join_group(client, request);
        request->is_batched = true;
        return CLIENT_TAKEN;
    }
    if (!client_admit(client, request, &outcome)) {
        return outcome;
    }
    if (request->is_plain && client->held == NULL) {
        request->is_batched = client_batch_add(client, request->batch, request->frame);
        return CLIENT_TAKEN;
    }
    return client_batch_send(client, request->batch) ? client_route(client, request) : CLIENT_TAKEN;
}

/* An empty line, or "*0". Redis does nothing, but what CLIENT REPLY SKIP said is over then. */
static void take_nothing(struct client *client)
{
    static const char nothing[] = "*0\r\n";

    if (client->session.passthrough && !lane_send_silent(client->exclusive, nothing, sizeof nothing - 1)) {
        client_out_of_memory(client);
    }
}

/* Inline commands are for people; they are rewritten as multibulk, so that only one form reaches Redis. */
static enum client_outcome take_inline(struct client *client, struct request *request)
{
    struct client_service *service = client->service;
    struct slice line = request->frame;
    struct resp_command framed = {0};
    size_t needed = resp_inline_to_multibulk(line, NULL, 0);
    size_t taken;

    if (needed == 0) {
        take_nothing(client);
        return CLIENT_TAKEN;
    }
    if (needed == SIZE_MAX) {
        client->command.fault = RESP_COMMAND_BAD_QUOTES;
        client_protocol_error(client);
        return CLIENT_TAKEN;
    }
    buffer_clear(&service->reactor->buffers, &service->inline_command);
    char *room = buffer_reserve(&service->reactor->buffers, &service->inline_command, needed);
    if (room == NULL) {
        client_out_of_memory(client);
        return CLIENT_TAKEN;
    }
    (void)resp_inline_to_multibulk(line, room, needed);
    (void)resp_command_feed(&framed, room, needed, UINT64_MAX, &taken);
    request->framed = &framed;
    request->frame = (struct slice){room, needed};
    /* Redis bounds lines of clients that have not authenticated in all only; in multibulk form it is refused. */
    request->sent = client_is_beyond_strangers(client, &framed, request->frame) ? line : request->frame;
    enum client_outcome outcome = find_by_asking(client, request) ? take(client, request) : CLIENT_WAITS;
    buffer_clear(&service->reactor->buffers, &service->inline_command);
    return outcome;
}

/* One that goes by itself, behind the batch. */
static enum client_outcome take_alone(struct client *client, struct request *request)
{
    request->is_plain = false;
    if (!client_batch_send(client, request->batch)) {
        return CLIENT_TAKEN;
    }
    if (client_waits_to_pass(client)) {
        return CLIENT_WAITS;
    }
    if (request->framed->argument_count == 0) {
        take_nothing(client);
        return CLIENT_TAKEN;
    }
    if (resp_command_is_inline(request->framed)) {
        return take_inline(client, request);
    }
    return find_by_asking(client, request) ? take(client, request) : CLIENT_WAITS;
}

/* It was dealt with, or waits where it is. */
static enum client_outcome end_whole(struct client *client, const struct request *request, enum client_outcome outcome)
{
    client->command_whole = outcome == CLIENT_WAITS;
    if (outcome == CLIENT_TAKEN) {
        if (!request->is_batched) {
            stats_add(client->service->reactor->stats, STATS_REQUESTS, client->command.argument_count > 0);
            client->asked = CLIENT_ASKED_NOT;
        }
        client->admitted = false;
        client->gathering = false;
        client->lookup = CLIENT_LOOKUP_NONE;
        client_note_end(client);
        resp_command_reset(&client->command);
    }
    return outcome;
}

/* Whether the request at data can go with the batch, or begin one: there is a lane for it. */
static bool has_lane(struct client *client, struct client_batch *batch, const char *data)
{
    if (client_batch_count(batch) == 0) {
        batch->lane = client_plain_lane(client);
        batch->data = data;
    }
    return batch->lane != NULL;
}

/* Most that there is no lane for without a closer look are for the node of their only key, in a cluster, and behind
 * sentinels for the master or one replica. */
static bool take_shortly(struct client *client, struct request *request)
{
    return client->service->cluster == NULL ? client_reads_take(client, request) : client_cluster_take(client, request);
}

static enum client_outcome take_otherwise(struct client *client, struct request *request)
{
    bool is_taken = request->is_plain && client->service->looks_further && take_shortly(client, request);

    return is_taken ? CLIENT_TAKEN : take_alone(client, request);
}

enum client_outcome client_take_whole(struct client *client, struct client_batch *batch, const char *data)
{
    struct slice frame = {data, (size_t)client->command.size};
    struct request request = {.batch = batch, .framed = &client->command, .frame = frame, .sent = frame};

    if (client->command.argument_count > 0 && !resp_command_is_inline(&client->command)) {
        find_by_name(client, &request);
    }
    if (ends_group(client, &request)) {
        if (client_end_group(client, batch) == CLIENT_TAKEN_IN_PART) {
            return CLIENT_TAKEN_IN_PART;
        }
        if (!client_may_take(client, 0)) {
            return end_whole(client, &request, CLIENT_WAITS);
        }
    }
    bool is_plain = request.is_plain && has_lane(client, batch, data);
    return end_whole(client, &request, is_plain ? take(client, &request) : take_otherwise(client, &request));
}
