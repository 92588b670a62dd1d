/*
 * Ids of clients in pool = shared (directory.h). Who asks for its id is told one of Headgate's, and needs no lane for
 * that but for the time of the request. Who names others by such ids (CLIENT KILL, UNBLOCK, TRACKING … REDIRECT) is
 * understood.
 *
 * Each such request is an inquiry. It begins when nothing of its client is under way, and nothing follows until it
 * ends. Redis is sent the request as it is, by Headgate itself, on the client's own lane, and its reply is read whole.
 * It knows no such id: so its reply shows, without any harm, whether the user may do this and whether the request is
 * well formed. If not, that reply is the client's. Only if Redis did not find the client, it is looked for here, and
 * Redis is sent the same with the id of its connection in place. In a reply an id is put in place of another only if it
 * was that of the connection, as HELLO had told it before.
 */
#include "client/client_inquiry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So long it is waited until a client that is named has a connection, or has ended. */
#define PATIENCE_US ((int64_t)3 * 1000000)
/* A client that is to be killed takes and leaves connections meanwhile: it is looked for so often. */
#define ATTEMPTS_MOST 8

/* ---- the lane that is the client's alone ---- */

bool client_ids_lane_taken(struct client *client)
{
    if (client->entry == NULL) {
        return true;
    }
    client_ids_lane_known(client);
    return client_knows_lane(client) || client->profile->needs_password || upstream_learn_id(client->exclusive);
}

void client_ids_lane_known(struct client *client)
{
    if (client->entry != NULL && client_knows_lane(client)) {
        directory_enter(client_directory(client), client->entry, client->exclusive->redis_id);
    }
}

bool client_ids_lane_left(struct client *client)
{
    return client->entry != NULL && directory_leave(client_directory(client), client->entry);
}

/* Others may name it by its id from now on. False when memory is short. */
static bool enter(struct client *client)
{
    if (client->entry == NULL) {
        client->entry = directory_add(client_directory(client), client_own_id(client), client->service, client);
        client_ids_lane_known(client);
    }
    return client->entry != NULL;
}

/* Whether the request that is at hand will be answered as soon as it was carried out. */
static bool is_answered(const struct client *client)
{
    const struct session *session = &client->session;

    return !session->sent_transaction && !session->tunnel && !session->silent && !session->silent_next &&
           !client->gathering && !client->profile->needs_password;
}

/* Whether the client may have had Redis say what looks like the reply. Of an id of its own it could deceive itself
 * only; of others it could seem to have rights that it has not. */
static bool may_be_forged(const struct session *session)
{
    return session->split || session->scripts > 0 || session->unsure || session->unproven || session->was_silent;
}

/* A subscriber of RESP2 may be sent messages that look like any reply; Redis takes no such request of it. */
static bool is_subscribed(const struct client *client)
{
    return client->exclusive != NULL && client->exclusive->expects_pushes && client->profile->resp == 2;
}

/* ---- Redis is asked ---- */

static struct client_inquiry *inquiry_of(const struct run *run)
{
    return run->owner;
}

static void wake(struct client *client)
{
    if (client->wait == CLIENT_WAIT_ID) {
        client->wait = CLIENT_WAIT_NOTHING;
    }
    client_want_flush(client);
}

static void inquiry_bytes(struct run *run, const char *data, size_t length)
{
    struct client_inquiry *inquiry = inquiry_of(run);
    struct client *client = inquiry->client;

    if (!buffer_append(&client->service->reactor->buffers, &inquiry->reply, data, length)) {
        client_close(client, "out of memory");
    }
}

static bool inquiry_reply(struct run *run, const struct resp_reply *reply)
{
    struct lane *lane = run->lane;

    if (reply->type == '>') {
        (void)lane->owner_events->frame(lane->owner, reply);
        return false;
    }
    return true;
}

static void inquiry_answered(struct run *run)
{
    struct client_inquiry *inquiry = inquiry_of(run);

    inquiry->run = NULL;
    inquiry->state = INQUIRY_ANSWERED;
    run_give(inquiry->client->service->runs, run);
    wake(inquiry->client);
}

static bool set_reply(struct client_inquiry *inquiry, const char *text, size_t length)
{
    struct buffer_pool *buffers = &inquiry->client->service->reactor->buffers;

    buffer_clear(buffers, &inquiry->reply);
    return buffer_append(buffers, &inquiry->reply, text, length);
}

/* Nothing of it was sent: the client may go on. */
static void answer_unsent(struct client_inquiry *inquiry, const char *why)
{
    struct client *client = inquiry->client;
    char text[384];
    int length = why[0] == '-' ? snprintf(text, sizeof text, "%s\r\n", why)
                               : snprintf(text, sizeof text, "-ERR headgate: no connection to Redis at %.80s: %s\r\n",
                                          client->service->settings.upstream_text, why);

    stats_add(client->service->reactor->stats, STATS_REQUESTS_UNREACHABLE, 1);
    if (!set_reply(inquiry, text, (size_t)length)) {
        client_close(client, "out of memory");
        return;
    }
    inquiry->state = INQUIRY_ANSWERED;
    wake(client);
}

static void inquiry_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct client_inquiry *inquiry = inquiry_of(run);
    struct client *client = inquiry->client;

    inquiry->run = NULL;
    run_give(client->service->runs, run);
    if (client->state == CLIENT_CLOSED) {
        return;
    }
    if (loss == RUN_LOST) {
        stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_LOST, 1);
        client_end(client, why);
    } else if (upstream_is_refused(client->profile)) {
        client_close_refused(client);
    } else {
        answer_unsent(inquiry, why);
    }
}

static const struct run_receiver inquiry_receiver = {
    .bytes = inquiry_bytes,
    .reply = inquiry_reply,
    .answered = inquiry_answered,
    .lost = inquiry_lost,
};

/* Sends it on the client's own lane. False when memory is short: the client was closed. */
static bool send_inquiry(struct client_inquiry *inquiry, struct slice bytes)
{
    struct client *client = inquiry->client;
    struct run *run = run_take(client->service->runs);

    if (run == NULL) {
        return client_out_of_memory(client);
    }
    buffer_clear(&client->service->reactor->buffers, &inquiry->reply);
    run->receiver = &inquiry_receiver;
    run->owner = inquiry;
    run->observation = inquiry;
    run->requests = 1;
    if (!lane_send(client->exclusive, run, bytes.data, bytes.length)) {
        run_give(client->service->runs, run);
        return client_out_of_memory(client);
    }
    inquiry->run = run;
    inquiry->state = INQUIRY_SENT;
    (void)client_wait_for(client, CLIENT_WAIT_ID);
    return true;
}

/* The request with the id of a connection in place of the one it names; NULL when memory is short. */
static struct buffer *translate(const struct client_inquiry *inquiry, struct slice frame, int64_t connection)
{
    struct client_service *service = inquiry->client->service;
    struct buffer *made = &service->translated;
    char digits[24], argument[48];

    snprintf(digits, sizeof digits, "%" PRId64, connection);
    snprintf(argument, sizeof argument, "$%zu\r\n%s\r\n", strlen(digits), digits);
    buffer_clear(&service->reactor->buffers, made);
    bool is_made = buffer_append(&service->reactor->buffers, made, frame.data, inquiry->named_at) &&
                   buffer_append(&service->reactor->buffers, made, argument, strlen(argument)) &&
                   buffer_append(&service->reactor->buffers, made, frame.data + inquiry->named_end,
                                 frame.length - inquiry->named_end);
    return is_made ? made : NULL;
}

static bool send_translated(struct client_inquiry *inquiry, struct slice frame, int64_t connection)
{
    struct client *client = inquiry->client;
    struct buffer *made = translate(inquiry, frame, connection);

    inquiry->connection = connection;
    inquiry->attempts++;
    bool is_sent = made != NULL ? send_inquiry(inquiry, (struct slice){buffer_head(made), buffer_length(made)})
                                : client_out_of_memory(client);
    buffer_clear(&client->service->reactor->buffers, &client->service->translated);
    return is_sent;
}

/* ---- how an inquiry ends ---- */

void client_ids_end(struct client *client)
{
    struct client_inquiry *inquiry = client->inquiry;

    if (inquiry == NULL) {
        return;
    }
    client->inquiry = NULL;
    if (inquiry->run != NULL) {
        inquiry->run->lane->untidy = true;
        inquiry->run->receiver = NULL;
        inquiry->run->owner = NULL;
        inquiry->run->observation = NULL;
    }
    buffer_clear(&client->service->reactor->buffers, &inquiry->reply);
    free(inquiry);
}

void client_ids_forget(struct client *client)
{
    if (client->entry != NULL) {
        directory_remove(client_directory(client), client->entry);
        client->entry = NULL;
    }
}

static void answer(struct client *client, struct slice text)
{
    struct chain_record *record = client->held;

    client->held = NULL;
    if (!client_answer(client, text.data, text.length, record)) {
        (void)client_out_of_memory(client);
    }
}

static bool asks_for_id(const struct client_inquiry *inquiry)
{
    return inquiry->kind == INQUIRY_ID || inquiry->kind == INQUIRY_INFO;
}

/* The reply, as it is to be read by the client, is the answer. */
static void pass_on(struct client_inquiry *inquiry)
{
    struct client *client = inquiry->client;
    struct slice reply = {buffer_head(&inquiry->reply), buffer_length(&inquiry->reply)};
    struct buffer made = {0};

    bool is_made = client_inquiry_rewrite(inquiry, reply, &made);
    bool is_rewritten = buffer_length(&made) > 0;
    if (asks_for_id(inquiry) && !is_rewritten && reply.data[0] != '-') {
        /* It is told the id of its lane, which it keeps then. */
        client->session.sticky = true;
    }
    if (!is_made || (asks_for_id(inquiry) && is_rewritten && !enter(client))) {
        (void)client_out_of_memory(client);
    } else {
        answer(client, is_rewritten ? (struct slice){buffer_head(&made), buffer_length(&made)} : reply);
    }
    buffer_clear(&client->service->reactor->buffers, &made);
    client_ids_end(client);
}

/* ---- clients that are named ---- */

static bool reply_is(const struct client_inquiry *inquiry, const char *text)
{
    size_t length = strlen(text);

    return buffer_length(&inquiry->reply) >= length && memcmp(buffer_head(&inquiry->reply), text, length) == 0;
}

static bool settle_unblock(struct client_inquiry *inquiry, struct slice frame)
{
    if (inquiry->named != 0 && inquiry->connection == 0 && reply_is(inquiry, ":0\r\n")) {
        struct directory_finding found =
            directory_find(client_directory(inquiry->client), inquiry->named, DIRECTORY_NAME);
        if (found.connection != 0) {
            return send_translated(inquiry, frame, found.connection);
        }
    }
    pass_on(inquiry);
    return true;
}

/* It has no connection of its own that Redis could close, or Redis has closed that, which it may have left since. */
static void kill_here(struct client_inquiry *inquiry, const struct directory_finding *found)
{
    struct client *client = inquiry->client;

    if (found->thread != client->service) {
        /* It is answered when that is done. */
        inquiry->state = INQUIRY_ENDS;
        inquiry->since_us = reactor_now(client->service->reactor);
        (void)client_wait_for(client, CLIENT_WAIT_ID);
        return;
    }
    client_close(found->client, "CLIENT KILL");
    if (set_reply(inquiry, ":1\r\n", 4)) {
        pass_on(inquiry);
    } else {
        (void)client_out_of_memory(client);
    }
}

/* Whom Redis has found is closed here, too: it may have left that connection before it saw the end of it. */
static void end_killed(struct client_inquiry *inquiry)
{
    struct directory_finding found =
        directory_find(client_directory(inquiry->client), inquiry->named, DIRECTORY_END_IT);

    if (found.is_there) {
        kill_here(inquiry, &found);
    } else {
        pass_on(inquiry);
    }
}

static void look_for_target(struct client_inquiry *inquiry, struct slice frame, bool may_end)
{
    struct directory_finding found = directory_find(client_directory(inquiry->client), inquiry->named,
                                                    may_end ? DIRECTORY_NAME_OR_END : DIRECTORY_NAME);

    if (found.connection != 0 && found.connection != inquiry->connection) {
        (void)send_translated(inquiry, frame, found.connection);
    } else if (found.is_there && found.connection == 0 && may_end) {
        kill_here(inquiry, &found);
    } else {
        pass_on(inquiry);
    }
}

static void settle_kill(struct client_inquiry *inquiry, struct slice frame)
{
    struct client *client = inquiry->client;
    bool is_itself = inquiry->named == client_own_id(client);

    if (is_itself && inquiry->connection != 0) {
        /* Its lane may be about to be closed: nobody else gets that, and the client ends with it. */
        client->session.sticky = true;
    }
    if (inquiry->is_done) {
        pass_on(inquiry);
    } else if (inquiry->connection != 0 && reply_is(inquiry, ":1\r\n") && !is_itself) {
        end_killed(inquiry);
    } else if (reply_is(inquiry, ":0\r\n") && inquiry->attempts < ATTEMPTS_MOST) {
        look_for_target(inquiry, frame, inquiry->names_only && !is_itself);
    } else {
        pass_on(inquiry);
    }
}

static bool may_take_lane(const struct client *client)
{
    return client->state == CLIENT_OPEN && client->first == NULL && !client->streaming &&
           client->wait == CLIENT_WAIT_NOTHING && buffer_length(&client->input) == 0;
}

/* A lane for life. It hears something at once: before, it would get no messages. */
static bool take_lane(struct client *client)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    const struct session_plan plan = {.exclusive = true, .identity = true};

    return session_take_lane(client, &plan) && upstream_send_hidden(client->exclusive, ping, sizeof ping - 1, false);
}

/* Somebody wants it to have a lane for life. */
static void keep_lane(struct client *client)
{
    if (client->exclusive == NULL && !may_take_lane(client)) {
        return;
    }
    if (client->exclusive == NULL && !take_lane(client)) {
        (void)client_out_of_memory(client);
        return;
    }
    client->session.sticky = true;
    directory_keep(client_directory(client), client->entry);
}

static bool is_to_be_found(const struct client_inquiry *inquiry)
{
    static const char unknown[] = "-ERR The client ID you want redirect to does not exist";

    return inquiry->state == INQUIRY_KEEPS || reply_is(inquiry, unknown);
}

static bool is_patient(const struct client_inquiry *inquiry)
{
    return reactor_now(inquiry->client->service->reactor) - inquiry->since_us < PATIENCE_US;
}

/* The same as directory_find(); a client of this thread does at once what is asked of it. */
static struct directory_finding find_kept(struct client *client, int64_t id)
{
    struct directory_finding found = directory_find(client_directory(client), id, DIRECTORY_KEEP);

    if (found.is_there && !found.kept && found.thread == client->service) {
        keep_lane(found.client);
        found = directory_find(client_directory(client), id, DIRECTORY_KEEP);
    }
    return found;
}

/* True: *sent is to be sent as the client's request, and *redirection is what comes of it. */
static bool settle_tracking(struct client_inquiry *inquiry, struct slice frame, struct slice *sent,
                            struct redirection *redirection)
{
    struct client *client = inquiry->client;
    struct directory_finding found = {.is_there = false};

    if (inquiry->state == INQUIRY_ANSWERED) {
        inquiry->since_us = reactor_now(client->service->reactor);
    }
    if (is_to_be_found(inquiry)) {
        found = find_kept(client, inquiry->named);
    }
    if (!found.is_there || !is_patient(inquiry)) {
        pass_on(inquiry);
        return false;
    }
    if (!found.kept || found.connection == 0) {
        inquiry->state = INQUIRY_KEEPS;
        (void)client_wait_for(client, CLIENT_WAIT_ID);
        return false;
    }
    const struct buffer *made = translate(inquiry, frame, found.connection);
    if (made == NULL) {
        return client_out_of_memory(client);
    }
    *sent = (struct slice){buffer_head(made), buffer_length(made)};
    *redirection = (struct redirection){.id = inquiry->named, .connection = found.connection};
    client_ids_end(client);
    return true;
}

/* ---- all together ---- */

static bool start(struct client *client, const struct client_inquiry *read)
{
    client->inquiry = malloc(sizeof *client->inquiry);
    if (client->inquiry == NULL) {
        return client_out_of_memory(client);
    }
    *client->inquiry = *read;
    client->inquiry->client = client;
    client->inquiry->since_us = reactor_now(client->service->reactor);
    bool learns = asks_for_id(read) && client->exclusive->redis_id == 0;
    return !learns || upstream_learn_id(client->exclusive) || client_out_of_memory(client);
}

/* Begins an inquiry about the request, or has it wait. */
static void begin(struct client *client, const struct client_inquiry *read, struct slice frame)
{
    /* In CLIENT INFO Headgate itself puts what the client said of itself. */
    const struct session_plan plan = {.exclusive = true, .identity = read->kind == INQUIRY_TRACKING};

    if (client->sent_runs > 0) {
        (void)client_wait_for(client, CLIENT_WAIT_QUIET);
    } else if (!client_enter_exclusive(client, &plan)) {
        return;
    } else if (lane_is_congested(client->exclusive)) {
        (void)client_wait_for(client, CLIENT_WAIT_LANE);
    } else if (start(client, read)) {
        (void)send_inquiry(client->inquiry, frame);
    }
}

/* Goes on with it. True: the request is to be sent as the client's own. */
static bool settle(struct client_inquiry *inquiry, struct slice frame, struct slice *sent,
                   struct redirection *redirection)
{
    switch (inquiry->kind) {
    case INQUIRY_TRACKING:
        return settle_tracking(inquiry, frame, sent, redirection);
    case INQUIRY_KILL:
        settle_kill(inquiry, frame);
        return false;
    case INQUIRY_UNBLOCK:
        (void)settle_unblock(inquiry, frame);
        return false;
    case INQUIRY_ID:
    case INQUIRY_INFO:
    case INQUIRY_REDIRECTION:
        pass_on(inquiry);
        return false;
    }
    return false;
}

/* What is under way may still be anything: it is answered first. */
static bool is_for_inquiry(const struct client *client, const struct client_inquiry *read)
{
    if (!is_answered(client) || (asks_for_id(read) && client->told_by_lane)) {
        return false;
    }
    bool is_about_itself = asks_for_id(read) || read->kind == INQUIRY_REDIRECTION;
    return client->sent_runs > 0 || (!is_subscribed(client) && (is_about_itself || !may_be_forged(&client->session)));
}

bool client_ids_take(struct client *client, const struct resp_command *framed, struct slice frame, struct slice *sent,
                     struct redirection *redirection, enum client_outcome *outcome)
{
    struct client_inquiry read = {.kind = INQUIRY_ID};

    if (client->inquiry == NULL) {
        bool has_ids = client_directory(client) != NULL && !client->service->settings.session_pool &&
                       framed->size <= REQUEST_MOST && framed->argument_count <= ARGUMENTS_MOST &&
                       client_inquiry_read(client, &read, framed, frame);
        if (!has_ids || !is_for_inquiry(client, &read)) {
            client->told_by_lane = client->told_by_lane || (has_ids && asks_for_id(&read) && client->entry == NULL);
            return false;
        }
        begin(client, &read, frame);
        *outcome = client->state == CLIENT_CLOSED ? CLIENT_TAKEN : CLIENT_WAITS;
        return true;
    }
    if (settle(client->inquiry, frame, sent, redirection)) {
        return false;
    }
    *outcome = client->inquiry != NULL ? CLIENT_WAITS : CLIENT_TAKEN;
    return true;
}

/* ---- what others ask of the client ---- */

static void heed(struct client *client)
{
    if (directory_ends(client_directory(client), client->entry)) {
        client_close(client, "CLIENT KILL");
    } else {
        keep_lane(client);
    }
}

/* Whether what it waits for has come, or has been waited for in vain. */
static bool has_come(struct client_inquiry *inquiry)
{
    struct directory *directory = client_directory(inquiry->client);

    if (inquiry->state == INQUIRY_KEEPS) {
        struct directory_finding found = directory_find(directory, inquiry->named, DIRECTORY_KEEP);
        return !found.is_there || (found.kept && found.connection != 0) || !is_patient(inquiry);
    }
    if (inquiry->state != INQUIRY_ENDS) {
        return false;
    }
    struct directory_finding found = directory_find(directory, inquiry->named, DIRECTORY_NAME);
    return !found.is_there || !is_patient(inquiry);
}

void client_ids_tick(struct client *client)
{
    if (client->entry != NULL && atomic_load_explicit(&client->entry->is_asked, memory_order_relaxed)) {
        heed(client);
    }
    struct client_inquiry *inquiry = client->inquiry;
    if (inquiry == NULL || client->state == CLIENT_CLOSED || !has_come(inquiry)) {
        return;
    }
    if (inquiry->state == INQUIRY_ENDS) {
        inquiry->state = INQUIRY_ANSWERED;
        inquiry->is_done = true;
        if (!set_reply(inquiry, ":1\r\n", 4)) {
            (void)client_out_of_memory(client);
            return;
        }
    }
    wake(client);
}
