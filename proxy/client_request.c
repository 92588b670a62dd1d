/*
 * Bytes in. Whole requests that nothing has to change are gathered into batches, and each batch goes to the lane as one
 * range of bytes; anything else is looked at on its own, in this order: policies, what the session needs, lane, send.
 *
 * A request that has to wait (for earlier ones to be answered, for a lane, for a policy) stays at the head of the input
 * with everything behind it, so a client's requests take effect in the order in which they were sent.
 */
#include "client_private.h"

#include "log.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Requests that can be put to the policies together. */
struct group {
    uint32_t number;               /* of chain_group() */
    uint32_t count;                /* 0: there is no group */
    const struct command *command; /* of the first, and so the next two */
    struct slice frame;
    uint32_t requests_before; /* in the batch */
};

/* Whole ordinary requests that lie one behind the other and were not sent yet. */
struct batch {
    const char *data;
    size_t length;
    uint32_t requests;
    struct lane *lane;
    struct group group; /* those at its end that the policies have yet to admit */
};

/* ---- sending ---- */

static bool out_of_memory(struct client *client)
{
    client_close(client, "out of memory");
    return false;
}

static bool may_extend(const struct client *client, const struct lane *lane)
{
    const struct run *run = client->last;

    return run != NULL && run == lane->last && run->observation == NULL && run->policy_record == NULL &&
           run->first_byte + run->length == lane->appended && run->requests < UINT32_MAX / 2;
}

static void sent_to(struct client *client, struct lane *lane, uint32_t requests)
{
    client->last_lane_id = lane->id;
    stats_add(client->service->reactor->stats, STATS_REQUESTS_FORWARDED, requests);
}

/* Sends a run of its own. observation and record may be NULL; they are the run's from here on. */
static bool send_run(struct client *client, struct lane *lane, const char *data, size_t length, uint32_t requests,
                     struct observation *observation, struct chain_record *record)
{
    struct run *run = run_take(client->service->runs);

    if (run == NULL) {
        return out_of_memory(client);
    }
    run->receiver = &client_run_receiver;
    run->owner = client;
    run->requests = requests;
    run->observation = observation;
    run->policy_record = record;
    if (!lane_send(lane, run, data, length)) {
        run_give(client->service->runs, run);
        return out_of_memory(client);
    }
    client_queue_run(client, run);
    client->sent_runs++;
    client->lane_in_use = lane;
    sent_to(client, lane, requests);
    return true;
}

static bool send_plain(struct client *client, struct lane *lane, const char *data, size_t length, uint32_t requests)
{
    if (!may_extend(client, lane)) {
        return send_run(client, lane, data, length, requests, NULL, NULL);
    }
    if (!lane_extend(lane, data, length, requests)) {
        return out_of_memory(client);
    }
    client->in_flight += requests;
    sent_to(client, lane, requests);
    return true;
}

static bool batch_send(struct client *client, struct batch *batch)
{
    bool sent = true;

    if (batch->requests > 0) {
        stats_add(client->service->reactor->stats, STATS_REQUESTS, batch->requests);
        sent = send_plain(client, batch->lane, batch->data, batch->length, batch->requests);
    }
    *batch = (struct batch){0};
    return sent;
}

/* ---- the lane for a request ---- */

static bool wait_for(struct client *client, enum client_wait what)
{
    client->wait = what;
    client->wait_since_us = reactor_now(client->service->reactor);
    return false;
}

static bool is_paused(struct client_service *service)
{
    return service->paused_until_us != 0 && reactor_now(service->reactor) < service->paused_until_us;
}

static bool needs_exclusive(const struct client *client)
{
    return client->service->settings.session_pool || client->profile->needs_password || client->heavy > 0 ||
           client->output_congested || is_paused(client->service);
}

/* Scripts have a lane for themselves. What follows one of the client's own may as well follow it on its lane. */
static struct lane *shared_lane(const struct client *client, bool script)
{
    if (!script && client->lane_in_use != NULL && upstream_is_script_lane(client->lane_in_use)) {
        return client->lane_in_use;
    }
    return script ? upstream_script_lane(client->profile) : upstream_shared_lane(client->profile, client->place);
}

/* The lane for requests that need nothing special, or NULL if that cannot be said without a closer look. */
static struct lane *plain_lane(struct client *client)
{
    const struct session *session = &client->session;
    struct lane *lane = client->exclusive;

    if (session->tunnel || session->silent || session->silent_next) {
        return NULL;
    }
    if (lane != NULL) {
        /* With nothing under way it may be time to leave it. */
        return client->lane_in_use == lane && !lane_is_congested(lane) ? lane : NULL;
    }
    if (needs_exclusive(client)) {
        return NULL;
    }
    lane = shared_lane(client, false);
    if (lane == NULL || (client->lane_in_use != NULL && client->lane_in_use != lane) || lane_is_congested(lane) ||
        !upstream_may_wait(client->service->upstream, lane)) {
        return NULL;
    }
    return lane;
}

/* Makes sure that the client has an exclusive lane. False: it has to wait, or is closed. */
static bool enter_exclusive(struct client *client, const struct session_plan *plan)
{
    if (client->exclusive != NULL) {
        return true;
    }
    if (client->lane_in_use != NULL && !(plan->own_writes && session_may_take_home_lane(client))) {
        return wait_for(client, CLIENT_WAIT_QUIET);
    }
    return session_take_lane(client, plan) || out_of_memory(client);
}

/* The lane for this request in *lane. False: the client has to wait, or is closed. */
static bool choose_lane(struct client *client, const struct session_plan *plan, struct lane **lane)
{
    bool exclusive = plan->exclusive || needs_exclusive(client);

    if (!exclusive && client->exclusive != NULL && client->first == NULL && session_is_clean(client)) {
        session_leave_lane(client);
    }
    if (exclusive || client->exclusive != NULL) {
        if (!enter_exclusive(client, plan)) {
            return false;
        }
        *lane = client->exclusive;
        if (lane_is_congested(*lane)) {
            return wait_for(client, CLIENT_WAIT_LANE);
        }
        return true;
    }
    *lane = shared_lane(client, plan->script);
    if (*lane == NULL) {
        return out_of_memory(client);
    }
    if (client->lane_in_use != NULL && client->lane_in_use != *lane) {
        return wait_for(client, CLIENT_WAIT_QUIET);
    }
    if (lane_is_congested(*lane)) {
        lane_await(*lane, &client->lane_waiter);
        return wait_for(client, CLIENT_WAIT_LANE);
    }
    return true;
}

/* ---- policies ---- */

/*
 * Gives Redis a command that it cannot accept in place of the refused one, where the lack of one would be noticed: the
 * transaction that it would have been part of has to fail, and CLIENT REPLY SKIP has to find something to skip. The
 * client sees the refusal instead of Redis' complaint.
 */
static bool send_stand_in(struct client *client)
{
    static const char bad_arity[] = "*1\r\n$3\r\nGET\r\n";
    const struct session *session = &client->session;

    if (client->exclusive == NULL || !(session->sent_transaction || session->silent_next)) {
        return true;
    }
    if (session->silent || session->silent_next) {
        return lane_send_silent(client->exclusive, bad_arity, sizeof bad_arity - 1);
    }
    return upstream_send_hidden(client->exclusive, bad_arity, sizeof bad_arity - 1, false);
}

static void end_record(struct client *client, enum policy_outcome outcome)
{
    struct policy_client view = client_policy_view(client);

    chain_end(client->service->chain, client->held, &view, outcome, (struct slice){0}, 0,
              reactor_now(client->service->reactor));
    client->held = NULL;
}

static void refuse(struct client *client, const struct policy_decision *decision)
{
    bool silent = client->session.silent || client->session.silent_next;
    struct chain_record *record = client->held;

    client->held = NULL;
    if (client->session.tunnel) {
        client->held = record;
        client_end(client, "a policy refused a request where no answer has a place");
        return;
    }
    if (!send_stand_in(client)) {
        out_of_memory(client);
        return;
    }
    client->session.silent_next = false;
    if (silent) {
        client->held = record;
        end_record(client, POLICY_OUTCOME_LOCAL);
    } else if (!client_answer(client, decision->text, decision->length, record)) {
        out_of_memory(client);
    }
}

static void hold_until(struct client *client, int64_t until_us)
{
    int64_t delay = until_us - reactor_now(client->service->reactor);
    struct timeval wait = {0};

    if (delay > 0) {
        wait.tv_sec = delay / 1000000;
        wait.tv_usec = delay % 1000000;
    }
    client->wait = CLIENT_WAIT_POLICY;
    client->hold_timer_set = true;
    event_add(&client->hold_timer, &wait);
}

/* What policies are told of any request. */
static struct policy_request describe(struct client *client, const struct policy_client *view,
                                      const struct command *command, struct slice frame)
{
    int64_t now = reactor_now(client->service->reactor);

    return (struct policy_request){
        .client = view,
        .command = command,
        .frame = frame,
        .in_transaction = client->session.sent_transaction,
        .received_us = now,
        .now_us = now,
        .holder = client,
    };
}

/* The name, or what has come of it: a name can be long, too. */
static struct slice name_so_far(const struct resp_command *framed, struct slice frame)
{
    const struct resp_argument *name = &framed->arguments[0];
    uint64_t here = frame.length > name->offset ? frame.length - name->offset : 0;

    return (struct slice){frame.data + name->offset, (size_t)(name->length < here ? name->length : here)};
}

/* Asks the policies. */
static enum policy_verdict ask_policies(struct client *client, const struct command *command,
                                        const struct resp_command *framed, struct slice frame,
                                        struct policy_decision *decision)
{
    struct policy_client view = client_policy_view(client);
    struct policy_request request = describe(client, &view, command, frame);

    request.name = name_so_far(framed, frame);
    request.partial = frame.length < framed->size || resp_command_arguments_seen(framed) < framed->argument_count;
    request.argument_count = framed->argument_count;
    client->ask_each -= client->ask_each > 0;
    client->admitted = false;
    enum policy_verdict verdict = chain_ask(client->service->chain, &request, decision, &client->held);
    client->admitted = verdict == POLICY_PASS;
    return verdict;
}

/* How a request ended up. */
enum outcome { OUTCOME_TAKEN, OUTCOME_WAITS };

/* Does what the policies decided on a request that they did not pass. */
static enum outcome obey(struct client *client, enum policy_verdict verdict, const struct policy_decision *decision)
{
    if (verdict == POLICY_HOLD) {
        hold_until(client, decision->hold_until_us);
        return OUTCOME_WAITS;
    }
    if (verdict == POLICY_REPLY) {
        refuse(client, decision);
    } else {
        log_info("client", "a policy closes client %s: %.*s", client->address_text, (int)decision->length,
                 decision->text);
        client_end(client, "closed by a policy");
    }
    return OUTCOME_TAKEN;
}

/* Asks the policies, unless they have passed it already or do not care. True: go on with the request; *outcome is set
 * otherwise. */
static bool admit(struct client *client, const struct command *command, const struct resp_command *framed,
                  struct slice frame, enum outcome *outcome)
{
    struct policy_decision decision;

    if (client->admitted || !chain_wants(client->service->chain, command)) {
        return true;
    }
    enum policy_verdict verdict = ask_policies(client, command, framed, frame, &decision);
    if (verdict != POLICY_PASS) {
        *outcome = obey(client, verdict, &decision);
    }
    return verdict == POLICY_PASS;
}

/* ---- one request at a time ---- */

static void answer_here(struct client *client, const struct session_plan *plan)
{
    struct chain_record *record = client->held;

    client->held = NULL;
    if (client->session.silent || client->session.silent_next) {
        client->held = record;
        client->session.silent_next = false;
        end_record(client, POLICY_OUTCOME_LOCAL);
    } else if (!client_answer(client, plan->text, strlen(plan->text), record)) {
        out_of_memory(client);
        return;
    }
    if (plan->last) {
        client_finish(client);
    }
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

static bool send_silently(struct client *client, struct lane *lane, struct slice bytes)
{
    end_record(client, POLICY_OUTCOME_OWNERLESS);
    if (!lane_send_silent(lane, bytes.data, bytes.length)) {
        return out_of_memory(client);
    }
    sent_to(client, lane, 1);
    return true;
}

/* Whether Redis' answer to this request cannot be waited for. */
static bool has_no_answer(const struct client *client, const struct session_plan *plan)
{
    enum observation_kind kind = plan->observation != NULL ? plan->observation->kind : OBSERVE_NOTHING;

    if (kind == OBSERVE_REPLY_ON || (kind == OBSERVE_RESET && !client->session.silent_next)) {
        return false;
    }
    return plan->silent || client->session.silent || client->session.silent_next || client->session.tunnel;
}

/* Whether Redis' answer to this request says who the client is: what follows is for the policies to judge by it. */
static bool settles_identity(const struct client *client, const struct session_plan *plan)
{
    enum observation_kind kind = plan->observation != NULL ? plan->observation->kind : OBSERVE_NOTHING;

    return (kind == OBSERVE_PROFILE || kind == OBSERVE_NAME) && chain_wants_any(client->service->chain);
}

static bool forward(struct client *client, struct lane *lane, struct slice bytes, struct session_plan *plan)
{
    bool sent;

    if (has_no_answer(client, plan) || plan->raw) {
        if (plan->observation != NULL) {
            observation_give(client->service, plan->observation);
            plan->observation = NULL;
        }
        sent = send_silently(client, lane, bytes);
    } else if (plan->observation == NULL && client->held == NULL) {
        sent = send_plain(client, lane, bytes.data, bytes.length, 1);
    } else {
        if (plan->observation == NULL) {
            plan->observation = observation_take(client->service, OBSERVE_NOTHING);
        }
        sent = plan->observation != NULL &&
               send_run(client, lane, bytes.data, bytes.length, 1, plan->observation, client->held);
        client->held = NULL;
    }
    if (sent) {
        session_request_sent(client, plan);
    }
    return sent;
}

static void drop_plan(struct client *client, struct session_plan *plan)
{
    if (plan->observation != NULL) {
        observation_give(client->service, plan->observation);
        plan->observation = NULL;
    }
}

/* Sends what the plan says, or leaves the client waiting. */
static enum outcome carry_out(struct client *client, struct session_plan *plan, struct slice bytes)
{
    struct lane *lane;

    if (plan->answer == SESSION_CLOSE) {
        client_end(client, "spoke HTTP");
        return OUTCOME_TAKEN;
    }
    if (plan->answer == SESSION_ANSWER_HERE) {
        answer_here(client, plan);
        return OUTCOME_TAKEN;
    }
    if (!choose_lane(client, plan, &lane)) {
        drop_plan(client, plan);
        return OUTCOME_WAITS;
    }
    if (client->exclusive == NULL && !upstream_may_wait(client->service->upstream, lane)) {
        drop_plan(client, plan);
        answer_unreachable(client, lane);
        return OUTCOME_TAKEN;
    }
    bool barrier = plan->barrier || settles_identity(client, plan);
    if (!forward(client, lane, bytes, plan)) {
        return OUTCOME_TAKEN;
    }
    if (barrier && client->sent_runs > 0) {
        client->wait = CLIENT_WAIT_QUIET;
    }
    if (plan->last) {
        client_finish(client);
    }
    return OUTCOME_TAKEN;
}

static struct slice name_of(const struct resp_command *framed, const char *frame)
{
    return (struct slice){frame + framed->arguments[0].offset, (size_t)framed->arguments[0].length};
}

/* A whole command that the policies have admitted, as Redis is to get it. */
static enum outcome take_admitted(struct client *client, const struct command *command,
                                  const struct resp_command *framed, const char *frame)
{
    struct session_plan plan;

    if (command == NULL) {
        command = learn_find(client->service->learn, name_of(framed, frame));
    }
    if (!session_plan_request(client, command, framed, frame, &plan)) {
        drop_plan(client, &plan);
        out_of_memory(client);
        return OUTCOME_TAKEN;
    }
    return carry_out(client, &plan, (struct slice){frame, (size_t)framed->size});
}

/* The same, if a policy may say something else to Redis. */
static enum outcome take_translatable(struct client *client, const struct command *command,
                                      const struct resp_command *framed, const char *frame)
{
    static const enum policy_server_has server_has[] = {
        [LEARN_UNKNOWN] = POLICY_SERVER_UNKNOWN,
        [LEARN_HAS] = POLICY_SERVER_HAS,
        [LEARN_LACKS] = POLICY_SERVER_LACKS,
    };
    struct policy_client view = client_policy_view(client);
    struct slice bytes = {frame, (size_t)framed->size};
    struct policy_request request = describe(client, &view, command, bytes);
    struct resp_command translated = {0};
    struct policy_decision decision;
    size_t taken;

    request.name = name_of(framed, frame);
    request.argument_count = framed->argument_count;
    enum policy_server_has server = server_has[learn_server_has(client->service->learn, request.name)];
    switch (chain_translate(client->service->chain, &request, server, &bytes, &decision)) {
    case POLICY_AS_IT_IS:
        break;
    case POLICY_TRANSLATED:
        (void)resp_command_feed(&translated, bytes.data, bytes.length, UINT64_MAX, &taken);
        return take_admitted(client, command_find(name_of(&translated, bytes.data)), &translated, bytes.data);
    case POLICY_ANSWERED:
        refuse(client, &decision);
        return OUTCOME_TAKEN;
    }
    return take_admitted(client, command, framed, frame);
}

/* A whole command in multibulk form. */
static enum outcome take_multibulk(struct client *client, const struct resp_command *framed, const char *frame)
{
    struct slice bytes = {frame, (size_t)framed->size};
    const struct command *command = command_find(name_of(framed, frame));
    enum outcome outcome;

    if (!admit(client, command, framed, bytes, &outcome)) {
        return outcome;
    }
    if (chain_translates(client->service->chain, command)) {
        return take_translatable(client, command, framed, frame);
    }
    return take_admitted(client, command, framed, frame);
}

static void protocol_error(struct client *client)
{
    char text[160];
    size_t length = resp_command_fault_text(&client->command, text, sizeof text);

    log_info("client", "closing client %s: %.*s", client->address_text, (int)length - 2, text);
    stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_PROTOCOL, 1);
    if (!client->session.silent && !client->session.silent_next && !client_answer(client, text, length, NULL)) {
        out_of_memory(client);
        return;
    }
    client_finish(client);
}

/* Inline commands are for people; they are rewritten as multibulk, so that only one form reaches Redis. */
static enum outcome take_inline(struct client *client, const char *frame)
{
    struct client_service *service = client->service;
    struct slice line = {frame, (size_t)client->command.size};
    struct resp_command framed = {0};
    size_t needed = resp_inline_to_multibulk(line, NULL, 0);
    size_t taken;

    if (needed == 0) {
        return OUTCOME_TAKEN;
    }
    if (needed == SIZE_MAX) {
        client->command.fault = RESP_COMMAND_BAD_QUOTES;
        protocol_error(client);
        return OUTCOME_TAKEN;
    }
    buffer_clear(&service->reactor->buffers, &service->inline_command);
    char *room = buffer_reserve(&service->reactor->buffers, &service->inline_command, needed);
    if (room == NULL) {
        out_of_memory(client);
        return OUTCOME_TAKEN;
    }
    (void)resp_inline_to_multibulk(line, room, needed);
    (void)resp_command_feed(&framed, room, needed, UINT64_MAX, &taken);
    enum outcome outcome = take_multibulk(client, &framed, room);
    buffer_clear(&service->reactor->buffers, &service->inline_command);
    return outcome;
}

/* A whole command was dealt with, or waits where it is. */
static enum outcome settle_whole(struct client *client, enum outcome outcome)
{
    client->command_whole = outcome == OUTCOME_WAITS;
    if (outcome == OUTCOME_TAKEN) {
        stats_add(client->service->reactor->stats, STATS_REQUESTS, client->command.argument_count > 0);
        client->admitted = false;
        resp_command_reset(&client->command);
    }
    return outcome;
}

static enum outcome take_whole(struct client *client, const char *frame)
{
    enum outcome outcome = OUTCOME_TAKEN;

    if (client->command.argument_count > 0) {
        outcome = resp_command_is_inline(&client->command) ? take_inline(client, frame)
                                                           : take_multibulk(client, &client->command, frame);
    }
    return settle_whole(client, outcome);
}

/* ---- long requests ---- */

/* The command whose name has been read, if any. */
static const struct command *command_so_far(const struct client *client, const char *frame)
{
    const struct resp_argument *name = &client->command.arguments[0];

    if (resp_command_arguments_seen(&client->command) == 0) {
        return NULL;
    }
    return command_find((struct slice){frame + name->offset, (size_t)name->length});
}

/* What Redis refuses by the header alone from a client that has not authenticated: it has to see the header at once. */
static bool is_too_long_without_password(const struct client *client)
{
    return client->profile->needs_password &&
           (client->command.argument_count > 10 || client->command.payload_left > (uint64_t)16 * 1024);
}

static bool is_long(const struct client *client)
{
    uint64_t limit = client->service->settings.cut_through;

    return !resp_command_is_inline(&client->command) &&
           (client->command.size > limit || client->command.payload_left > limit ||
            is_too_long_without_password(client));
}

/* Whether the session has to understand the command, or a policy may say something else in its place. */
static bool has_to_be_whole(const struct client *client, const struct command *command)
{
    struct slice name = {command->name, strlen(command->name)};

    if (chain_translates(client->service->chain, command)) {
        return learn_server_has(client->service->learn, name) != LEARN_HAS;
    }
    return command->kind != COMMAND_ORDINARY && command->kind != COMMAND_EVAL;
}

/*
 * Begins to send a request that is too long to be held: on an exclusive lane, as it comes. Some commands are held whole
 * all the same. False: not now, or not at all.
 */
static bool begin_stream(struct client *client, const char *frame)
{
    const struct command *command = command_so_far(client, frame);
    struct slice bytes = {frame, (size_t)client->command.size};
    struct session_plan plan = {.answer = SESSION_FORWARD, .exclusive = true};
    enum outcome outcome;

    if (command != NULL && has_to_be_whole(client, command)) {
        if (client->command.size > client->service->settings.max_request) {
            client_end(client, "a request of that kind cannot be so long");
        }
        return false;
    }
    if (!admit(client, command, &client->command, bytes, &outcome)) {
        /* If it was refused, the rest of it is thrown away as it comes. */
        client->discarding = outcome == OUTCOME_TAKEN && client->state == CLIENT_OPEN;
        client->streaming = client->discarding;
        stats_add(client->service->reactor->stats, STATS_REQUESTS, client->discarding ? 1 : 0);
        return client->streaming;
    }
    struct lane *lane;
    if (!choose_lane(client, &plan, &lane)) {
        return false;
    }
    if (lane->state != LANE_READY) {
        return wait_for(client, CLIENT_WAIT_LANE);
    }
    if (command == NULL && !client->session.tunnel) {
        plan.observation = observation_take(client->service, OBSERVE_UNKNOWN);
    }
    client->streaming = forward(client, lane, bytes, &plan);
    stats_add(client->service->reactor->stats, STATS_REQUESTS, 1);
    client->admitted = false;
    return client->streaming;
}

/* Sends on what has come of a long request, or throws it away. Returns the bytes taken. */
static size_t continue_stream(struct client *client, const char *data, size_t length)
{
    struct lane *lane = client->exclusive;
    size_t taken;
    enum resp_status status =
        resp_command_feed(&client->command, data, length, client->service->settings.max_request, &taken);

    if (status == RESP_FAULT) {
        /* Redis has a part of it and would take what comes next for the rest: only closing is safe. */
        if (!client->discarding) {
            lane_fail(lane, "the client broke off a request");
        }
        protocol_error(client);
        return length;
    }
    if (!client->discarding && !lane_send_silent(lane, data, taken)) {
        out_of_memory(client);
        return length;
    }
    if (status == RESP_DONE) {
        client->streaming = false;
        client->discarding = false;
        resp_command_reset(&client->command);
    } else if (!client->discarding && lane_is_congested(lane)) {
        (void)wait_for(client, CLIENT_WAIT_LANE);
    }
    return taken;
}

/* ---- the loop ---- */

static bool may_take(const struct client *client, const struct batch *batch)
{
    bool has_place = client->exclusive != NULL || needs_exclusive(client) ||
                     client->in_flight + batch->requests < client->service->settings.pipeline_limit;

    return client->state == CLIENT_OPEN && client->wait == CLIENT_WAIT_NOTHING && (client->streaming || has_place);
}

bool client_may_take(const struct client *client)
{
    return may_take(client, &(struct batch){0});
}

/* The command, if it can go with the batch without a closer look but for that of the policies; else NULL. */
static const struct command *plain_command(const struct client *client, const char *frame)
{
    const struct resp_command *framed = &client->command;

    if (framed->argument_count == 0 || resp_command_is_inline(framed) || client->admitted || client->held != NULL) {
        return NULL;
    }
    const struct command *command =
        command_find((struct slice){frame + framed->arguments[0].offset, (size_t)framed->arguments[0].length});
    bool plain = command != NULL && command->kind == COMMAND_ORDINARY && (command->categories & CATEGORY_ADMIN) == 0;
    return plain ? command : NULL;
}

/* Counts the whole command at the end of the batch as one of its group. */
static void join_group(struct batch *batch, uint32_t number, const struct command *command, struct slice frame)
{
    if (batch->group.count == 0) {
        batch->group =
            (struct group){.number = number, .command = command, .frame = frame, .requests_before = batch->requests};
    }
    batch->group.count++;
}

/*
 * Puts the group at the end of the batch to the policies. False: they want to be asked about each of its requests,
 * which are taken out of the batch again.
 */
static bool settle_group(struct client *client, struct batch *batch)
{
    struct group *group = &batch->group;

    if (group->count == 0) {
        return true;
    }
    struct policy_client view = client_policy_view(client);
    struct policy_request request = describe(client, &view, group->command, group->frame);
    bool admitted = chain_admit(client->service->chain, &request, group->count);
    if (!admitted) {
        client->ask_each = group->count;
        batch->length = (size_t)(group->frame.data - batch->data);
        batch->requests = group->requests_before;
    }
    group->count = 0;
    return admitted;
}

/* The group that the command may join, with those at the end of the batch if they are of it; 0: none. */
static uint32_t group_of(const struct client *client, const struct command *command)
{
    bool may = command != NULL && client->ask_each == 0;

    return may ? chain_group(client->service->chain, command) : 0;
}

/*
 * Adds the whole command (NULL: it cannot go with a batch) if nothing is to be known of its reply. *verdict is what the
 * policies decided on it: PASS also if none was asked, or none yet. Any other one is for after the batch.
 */
static bool join_batch(struct client *client, struct batch *batch, const struct command *command, const char *frame,
                       enum policy_verdict *verdict, struct policy_decision *decision)
{
    struct slice bytes = {frame, (size_t)client->command.size};
    uint32_t group = group_of(client, command);

    *verdict = POLICY_PASS;
    if (command == NULL) {
        return false;
    }
    if (batch->requests == 0) {
        batch->lane = plain_lane(client);
        batch->data = frame;
        if (batch->lane == NULL) {
            return false;
        }
    }
    if (chain_translates(client->service->chain, command)) {
        return false;
    }
    if (group != 0) {
        join_group(batch, group, command, bytes);
    } else if (chain_wants(client->service->chain, command)) {
        *verdict = ask_policies(client, command, &client->command, bytes, decision);
        if (*verdict != POLICY_PASS || client->held != NULL) {
            return false;
        }
        client->admitted = false;
    }
    batch->length += bytes.length;
    batch->requests++;
    return true;
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
    return *status == RESP_DONE;
}

/* False: it has to wait, or is closed. */
static bool send_raw(struct client *client, const char *data, size_t length)
{
    if (lane_is_congested(client->exclusive)) {
        return wait_for(client, CLIENT_WAIT_LANE);
    }
    return lane_send_silent(client->exclusive, data, length) || out_of_memory(client);
}

/* Where the bytes behind the batch begin, of which what was framed is forgotten. */
static size_t take_up_behind(struct client *client, const struct batch *batch, const char *data)
{
    resp_command_reset(&client->command);
    return (size_t)(batch->data - data) + batch->length;
}

/* The command at hand goes another way than the batch, or belongs to another group than the end of it. */
static bool parts_group(const struct client *client, const struct batch *batch, const struct command *command)
{
    struct chain *chain = client->service->chain;

    return batch->group.count > 0 &&
           (command == NULL || chain_translates(chain, command) ||
            (chain_wants(chain, command) && group_of(client, command) != batch->group.number));
}

/* As client_take_requests(), but leaves a batch behind, and policies that have yet to admit its end. */
static size_t take_requests(struct client *client, struct batch *batch, const char *data, size_t done, size_t length)
{
    struct policy_decision decision;
    enum policy_verdict verdict;
    enum resp_status status;

    while (done < length && may_take(client, batch)) {
        const char *frame = data + done;
        if (client->session.raw) {
            return send_raw(client, frame, length - done) ? length : done;
        }
        if (client->streaming) {
            done += continue_stream(client, frame, length - done);
            continue;
        }
        if (!frame_command(client, frame, length - done, &status)) {
            if (!settle_group(client, batch)) {
                done = take_up_behind(client, batch, data);
                continue;
            }
            if (!batch_send(client, batch)) {
                return length;
            }
            if (status == RESP_FAULT) {
                protocol_error(client);
            } else if (is_long(client) && begin_stream(client, frame)) {
                return length;
            }
            return done;
        }
        const struct command *command = plain_command(client, frame);
        if (parts_group(client, batch, command) && !settle_group(client, batch)) {
            done = take_up_behind(client, batch, data);
            continue;
        }
        size_t size = (size_t)client->command.size;
        if (join_batch(client, batch, command, frame, &verdict, &decision)) {
            resp_command_reset(&client->command);
        } else {
            if (!batch_send(client, batch)) {
                return length;
            }
            enum outcome outcome = verdict == POLICY_PASS ? take_whole(client, frame)
                                                          : settle_whole(client, obey(client, verdict, &decision));
            if (outcome == OUTCOME_WAITS) {
                return done;
            }
        }
        done += size;
    }
    return done;
}

size_t client_take_requests(struct client *client, const char *data, size_t length)
{
    struct batch batch = {0};
    size_t done = take_requests(client, &batch, data, 0, length);

    while (!settle_group(client, &batch)) {
        done = take_up_behind(client, &batch, data);
        done = take_requests(client, &batch, data, done, length);
    }
    return batch_send(client, &batch) ? done : length;
}

/* Nothing is under way: the views of the session agree, and an exclusive lane that is clean can go. */
static void became_quiet(struct client *client)
{
    client->session.sent_transaction = client->session.known_transaction;
    if (client->wait == CLIENT_WAIT_QUIET) {
        client->wait = CLIENT_WAIT_NOTHING;
    }
    struct lane *lane = client->exclusive;
    /* An untidy one will not do for what comes next either: after RESET it lacks Headgate's credentials. */
    if (lane != NULL && (buffer_length(&client->input) == 0 || lane->untidy) && !lane->ending &&
        session_is_clean(client)) {
        session_leave_lane(client);
    }
}

static void finish_ended_input(struct client *client)
{
    if (!client->input_ended || !client_may_take(client)) {
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
        buffer_consume(&client->service->reactor->buffers, &client->input, done);
    }
    if (client->state == CLIENT_OPEN) {
        finish_ended_input(client);
    }
}
