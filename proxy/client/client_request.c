/*
 * Bytes in. Whole requests that nothing has to change are gathered into batches, and each batch goes to the lane as one
 * range of bytes; anything else is looked at on its own, in this order: policies, what the session needs, lane, send.
 *
 * A request that has to wait (for earlier ones to be answered, for a lane, for a policy) stays at the head of the input
 * with everything behind it, so a client's requests take effect in the order in which they were sent.
 */
#include "client/client_private.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* ---- one request at a time ---- */

static void answer_here(struct client *client, const struct session_plan *plan)
{
    struct chain_record *record = client->held;

    client->held = NULL;
    if (client->session.silent || client->session.silent_next) {
        client->held = record;
        client->session.silent_next = false;
        client_end_record(client, POLICY_OUTCOME_LOCAL);
    } else if (!client_answer(client, plan->text, strlen(plan->text), record)) {
        client_out_of_memory(client);
        return;
    }
    if (plan->last) {
        client_finish(client);
    }
}

/* Once it is certain that the client is within MULTI: EXEC may have been refused, or MULTI. */
static enum client_outcome refuse(struct client *client, const char *text)
{
    struct policy_decision decision;

    if (client->sent_runs > 0) {
        (void)client_wait_for(client, CLIENT_WAIT_QUIET);
        return CLIENT_WAITS;
    }
    decision.length = (size_t)snprintf(decision.text, sizeof decision.text, "%s", text);
    client_refuse(client, &decision);
    return CLIENT_TAKEN;
}

static bool answer_unreachable(struct client *client, const struct lane *lane)
{
    struct session_plan plan = {0};

    snprintf(plan.text, sizeof plan.text, "-ERR headgate: no connection to Redis at %.80s: %.120s\r\n",
             client->service->settings.upstream_text,
             lane->why[0] != '\0' ? lane->why : "too many requests wait for it already");
    stats_add(client->service->reactor->stats, STATS_REQUESTS_UNREACHABLE, 1);
    answer_here(client, &plan);
    return true;
}

static bool settles_identity(const struct client *client, const struct session_plan *plan)
{
    const struct observation *observation = plan->observation;

    return observation != NULL && chain_wants_any(client->service->chain) &&
           (observation->kind == OBSERVE_PROFILE || observation->kind == OBSERVE_NAME ||
            (observation->kind == OBSERVE_UNKNOWN && !observation->is_absent));
}

/* Sends what the plan says, or leaves the client waiting. */
static enum client_outcome carry_out(struct client *client, struct session_plan *plan, struct slice bytes)
{
    struct lane *lane;

    if (plan->answer == SESSION_CLOSE) {
        session_drop_plan(client, plan);
        client_end(client, plan->text);
        return CLIENT_TAKEN;
    }
    if (plan->answer == SESSION_REFUSE) {
        session_drop_plan(client, plan);
        return refuse(client, plan->text);
    }
    if (plan->answer == SESSION_LATER) {
        session_drop_plan(client, plan);
        (void)client_wait_for(client, CLIENT_WAIT_QUIET);
        return CLIENT_WAITS;
    }
    if (plan->answer == SESSION_ANSWER_HERE) {
        answer_here(client, plan);
        return CLIENT_TAKEN;
    }
    if (client_login_was_given_up(client)) {
        session_drop_plan(client, plan);
        answer_unreachable(client, client->exclusive);
        client_login_end(client);
        return CLIENT_TAKEN;
    }
    if (!client_choose_lane(client, plan, &lane)) {
        session_drop_plan(client, plan);
        return CLIENT_WAITS;
    }
    if (client->exclusive == NULL && !upstream_may_wait(client->service->upstream, lane)) {
        session_drop_plan(client, plan);
        answer_unreachable(client, lane);
        return CLIENT_TAKEN;
    }
    bool barrier = plan->barrier || settles_identity(client, plan);
    if (!client_forward(client, lane, bytes, plan)) {
        return CLIENT_TAKEN;
    }
    if (barrier && client->sent_runs > 0) {
        client->wait = CLIENT_WAIT_QUIET;
    }
    if (plan->last) {
        client_finish(client);
    }
    return CLIENT_TAKEN;
}

static struct slice name_of(const struct resp_command *framed, const char *frame)
{
    return (struct slice){frame + framed->arguments[0].offset, (size_t)framed->arguments[0].length};
}

/* A whole command that the policies have admitted, and the bytes in which Redis is to get it. */
static enum client_outcome take_admitted(struct client *client, const struct command *command,
                                         const struct resp_command *framed, const char *frame, struct slice sent)
{
    struct session_plan plan;

    if (command == NULL) {
        command = learn_find(client->service->learn, name_of(framed, frame));
    }
    if (client_name_is_hidden(command, framed, (struct slice){frame, (size_t)framed->size})) {
        client_refuse_name(client, command, framed, (struct slice){frame, (size_t)framed->size});
        return CLIENT_TAKEN;
    }
    if (!session_plan_request(client, command, framed, frame, &plan)) {
        session_drop_plan(client, &plan);
        client_out_of_memory(client);
        return CLIENT_TAKEN;
    }
    plan.exclusive = plan.exclusive || client->gathering;
    return carry_out(client, &plan, sent);
}

/* The same, if a policy may say something else to Redis. */
static enum client_outcome take_translatable(struct client *client, const struct command *command,
                                             const struct resp_command *framed, const char *frame, struct slice sent)
{
    static const enum policy_server_has server_has[] = {
        [LEARN_UNKNOWN] = POLICY_SERVER_UNKNOWN,
        [LEARN_HAS] = POLICY_SERVER_HAS,
        [LEARN_LACKS] = POLICY_SERVER_LACKS,
    };
    struct policy_client view = client_policy_view(client);
    struct slice bytes = {frame, (size_t)framed->size};
    struct policy_request request = client_describe(client, &view, command, framed, bytes);
    struct resp_command translated = {0};
    struct policy_decision decision;
    size_t taken;

    enum policy_server_has server = server_has[learn_server_has(client->service->learn, request.name)];
    switch (chain_translate(client->service->chain, &request, server, &bytes, &decision)) {
    case POLICY_AS_IT_IS:
        break;
    case POLICY_TRANSLATED:
        (void)resp_command_feed(&translated, bytes.data, bytes.length, UINT64_MAX, &taken);
        /* It is a script of Headgate's own, whose errors are known: it needs no lane of its own. */
        return take_admitted(client, command, &translated, bytes.data, bytes);
    case POLICY_ANSWERED:
        client_refuse(client, &decision);
        return CLIENT_TAKEN;
    }
    return take_admitted(client, command, framed, frame, sent);
}

/* A whole command in multibulk form, and the bytes in which Redis is to get it if nothing else is put in its place. */
static enum client_outcome take_multibulk(struct client *client, const struct resp_command *framed, const char *frame,
                                          struct slice sent)
{
    struct slice bytes = {frame, (size_t)framed->size};
    const struct command *command;
    enum client_outcome outcome;

    if (!client_find_command(client, name_of(framed, frame), &command)) {
        return CLIENT_WAITS;
    }
    const struct chain_interest *interest = chain_interest(client->service->chain, command);
    if (client->service->reactor->measures) {
        client_note(client, command, interest, framed, bytes);
    }
    if (!client_admit(client, command, framed, bytes, &outcome)) {
        return outcome;
    }
    if (interest->translator != 0) {
        return take_translatable(client, command, framed, frame, sent);
    }
    return take_admitted(client, command, framed, frame, sent);
}

void client_protocol_error(struct client *client)
{
    char text[160];
    size_t length = resp_command_fault_text(&client->command, text, sizeof text);

    log_info("client", "closing client %s: %.*s", client->address_text, (int)length - 2, text);
    stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_PROTOCOL, 1);
    if (!client->session.silent && !client->session.silent_next && !client_answer(client, text, length, NULL)) {
        client_out_of_memory(client);
        return;
    }
    client_finish(client);
}

/*
 * An empty line, or "*0". Redis does nothing, but what CLIENT REPLY SKIP said is over then. On a shared lane there is
 * no such state, and Redis need not hear of it.
 */
static enum client_outcome take_nothing(struct client *client)
{
    static const char nothing[] = "*0\r\n";

    if (client->exclusive == NULL || !(client->session.silent_next || client->session.tunnel)) {
        return CLIENT_TAKEN;
    }
    if (lane_is_congested(client->exclusive)) {
        (void)client_wait_for(client, CLIENT_WAIT_LANE);
        return CLIENT_WAITS;
    }
    client->session.silent_next = false;
    if (!lane_send_silent(client->exclusive, nothing, sizeof nothing - 1)) {
        client_out_of_memory(client);
    }
    return CLIENT_TAKEN;
}

/* Inline commands are for people; they are rewritten as multibulk, so that only one form reaches Redis. */
static enum client_outcome take_inline(struct client *client, const char *frame)
{
    struct client_service *service = client->service;
    struct slice line = {frame, (size_t)client->command.size};
    struct resp_command framed = {0};
    size_t needed = resp_inline_to_multibulk(line, NULL, 0);
    size_t taken;

    if (needed == 0) {
        return take_nothing(client);
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
    struct slice sent = {room, needed};
    if (client_is_beyond_strangers(client, &framed, sent)) {
        /* Redis bounds lines of clients that have not authenticated in all only; in multibulk form it is refused. */
        sent = line;
    }
    enum client_outcome outcome = take_multibulk(client, &framed, room, sent);
    buffer_clear(&service->reactor->buffers, &service->inline_command);
    return outcome;
}

/* A whole command was dealt with, or waits where it is. */
static enum client_outcome settle_whole(struct client *client, enum client_outcome outcome)
{
    client->command_whole = outcome == CLIENT_WAITS;
    if (outcome == CLIENT_TAKEN) {
        stats_add(client->service->reactor->stats, STATS_REQUESTS, client->command.argument_count > 0);
        client->admitted = false;
        client->gathering = false;
        client->lookup = CLIENT_LOOKUP_NONE;
        client_note_end(client);
        resp_command_reset(&client->command);
    }
    return outcome;
}

static enum client_outcome take_whole(struct client *client, const char *frame)
{
    enum client_outcome outcome = CLIENT_TAKEN;

    if (client->command.argument_count == 0) {
        outcome = take_nothing(client);
    } else {
        outcome =
            resp_command_is_inline(&client->command)
                ? take_inline(client, frame)
                : take_multibulk(client, &client->command, frame, (struct slice){frame, (size_t)client->command.size});
    }
    return settle_whole(client, outcome);
}

/* ---- the loop ---- */

static bool may_take(const struct client *client, uint32_t batched)
{
    bool has_place = client->exclusive != NULL || client_needs_exclusive(client) ||
                     client->in_flight + batched < client->service->settings.pipeline_limit;

    return client->state == CLIENT_OPEN && client->wait == CLIENT_WAIT_NOTHING && (client->streaming || has_place);
}

bool client_may_take(const struct client *client)
{
    return may_take(client, 0);
}

/* Frames what is there of the command at data. True: it is whole. */
static bool frame_command(struct client *client, const char *data, size_t length, enum resp_status *status)
{
    size_t scanned = (size_t)client->command.size;
    size_t taken;

    *status = RESP_MORE;
    if (client->command_whole) {
        *status = RESP_DONE;
    } else if (length > scanned) {
        *status = resp_command_feed(&client->command, data + scanned, length - scanned,
                                    client->service->settings.max_request, &taken);
    }
    bool is_late = *status == RESP_DONE && buffer_length(&client->arrivals) > 0;
    client->framed_us = is_late ? client_arrival_of(client, data + client->command.size) : client->read_us;
    return *status == RESP_DONE;
}

/* Where the bytes behind the batch begin, of which what was framed is forgotten. */
static size_t take_up_behind(struct client *client, const struct client_batch *batch, const char *data)
{
    resp_command_reset(&client->command);
    client->command_whole = false;
    return (size_t)(batch->data - data) + batch->length;
}

/* As client_take_requests(), but leaves a batch behind, and policies that have yet to admit its end. */
static size_t take_requests(struct client *client, struct client_batch *batch, const char *data, size_t done,
                            size_t length)
{
    struct policy_decision decision;
    enum policy_verdict verdict;
    enum resp_status status;

    while (done < length && may_take(client, client_batch_count(batch))) {
        const char *frame = data + done;
        if (client->streaming) {
            done += client_continue_stream(client, frame, length - done);
            continue;
        }
        if (!frame_command(client, frame, length - done, &status)) {
            if (!client_batch_settle(client, batch)) {
                done = take_up_behind(client, batch, data);
                continue;
            }
            if (!client_batch_send(client, batch)) {
                return length;
            }
            if (status == RESP_FAULT) {
                client_protocol_error(client);
            } else if (client_is_long(client) && may_take(client, 0) && client_begin_stream(client, frame)) {
                return length;
            }
            return done;
        }
        struct client_plain plain = client_plain_request(client, batch, frame);
        if (client_batch_is_parted(client, batch, &plain)) {
            if (!client_batch_settle(client, batch)) {
                done = take_up_behind(client, batch, data);
                continue;
            }
            if (!may_take(client, batch->requests)) {
                client->command_whole = true;
                return done;
            }
        }
        size_t size = (size_t)client->command.size;
        if (client_batch_join(client, batch, &plain, frame, &verdict, &decision)) {
            resp_command_reset(&client->command);
            client->command_whole = false;
        } else {
            if (!client_batch_send(client, batch)) {
                return length;
            }
            enum client_outcome outcome = verdict == POLICY_PASS
                                              ? take_whole(client, frame)
                                              : settle_whole(client, client_obey(client, verdict, &decision));
            if (outcome == CLIENT_WAITS) {
                return done;
            }
        }
        done += size;
    }
    return done;
}

size_t client_take_requests(struct client *client, const char *data, size_t length)
{
    struct client_batch batch;
    client_batch_empty(&batch);
    size_t done = take_requests(client, &batch, data, 0, length);

    while (!client_batch_settle(client, &batch)) {
        done = take_up_behind(client, &batch, data);
        done = take_requests(client, &batch, data, done, length);
    }
    done = client_batch_send(client, &batch) ? done : length;
    client_note_aside(client);
    return done;
}

/* All that had been sent before its stream was ended (client_hung_up()) is answered. What waits behind that is sent on
 * another lane, if that will do. */
static void leave_ended_lane(struct client *client)
{
    if (session_is_portable(client)) {
        session_leave_lane(client);
    } else {
        client_finish(client);
    }
}

/* Nothing is under way: the views of the session agree, and an exclusive lane that is clean can go. */
static void became_quiet(struct client *client)
{
    client->session.sent_transaction = client->session.known_transaction;
    if (client->wait == CLIENT_WAIT_QUIET) {
        client->wait = CLIENT_WAIT_NOTHING;
    }
    struct lane *lane = client->exclusive;
    if (lane != NULL && lane->ending) {
        leave_ended_lane(client);
        return;
    }
    /* An untidy one will not do for what comes next either: after RESET it lacks Headgate's credentials. */
    if (lane != NULL && lane->awaits_quiet) {
        return;
    }
    if (lane != NULL && lane->bare && lane->state == LANE_READY) {
        /* Its AUTH was refused. */
        session_leave_lane(client);
    } else if (lane != NULL && (buffer_length(&client->input) == 0 || lane->untidy || client->session.split) &&
               session_is_clean(client)) {
        session_leave_lane(client);
    }
}

static void finish_ended_input(struct client *client)
{
    if (!client->input_ended) {
        return;
    }
    if (!client_may_take(client)) {
        client_hung_up(client);
        return;
    }
    if (client->exclusive != NULL && client->first != NULL) {
        lane_end_output(client->exclusive);
    }
    client_finish(client);
}

void client_resume(struct client *client)
{
    if (client->state != CLIENT_OPEN) {
        return;
    }
    if (client->sent_runs == 0) {
        became_quiet(client);
    }
    if (buffer_length(&client->input) > 0 && client->wait == CLIENT_WAIT_NOTHING) {
        size_t done = client_take_requests(client, buffer_head(&client->input), buffer_length(&client->input));
        if (client->state != CLIENT_OPEN) {
            /* Nothing more is taken, and the input may be gone already. */
            return;
        }
        client_input_passed(client, done);
        buffer_consume(&client->service->reactor->buffers, &client->input, done);
    }
    if (client->state == CLIENT_OPEN) {
        finish_ended_input(client);
    }
}
