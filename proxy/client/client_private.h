/*
 * What the files that make up a client share:
 *
 *   client.c            all clients of a worker: accepting, time-outs, reports
 *   client_life.c       how a client ends, and who it is until then
 *   client_hangup.c     clients that go away while they wait
 *   client_drain.c      … that are closed at the end
 *   client_moving.c     … that want to be told when they are to go elsewhere
 *   client_identity.c   who a client is to the configuration
 *   client_admission.c  … whether it may come, and its way to other credentials
 *   client_tls.c        clients that speak TLS, or should
 *   client_stray.c      … that begin with TLS, or with a PROXY header, where there is none
 *   client_input.c      bytes in: reading, framing
 *   client_arrival.c    … when they came
 *   client_strangers.c  … what Redis reads of clients that have not authenticated
 *   client_request.c    a request's way: looked up, admitted by the policies, then …
 *   client_route.c      … where it goes, and …
 *   client_send.c       … sent there, with its neighbours
 *   client_reads.c      … or to a replica
 *   client_stream.c     requests that are too long to be held
 *   client_lookup.c     which command a name stands for
 *   client_name.c       names that Redis might understand otherwise than Headgate
 *   client_policy.c     what policies are told
 *   client_gate.c       what a client waits for, and how long policies hold it
 *   client_answer.c     answers of Headgate's own
 *   client_measure.c    how long requests take
 *   client_reply.c      bytes out: replies in request order, writing, back pressure
 *   client_late.c       … of several nodes, written together
 *   client_memory.c     what is held for a client, and what is done when memory is short
 *
 * The connection to Redis is in client_session_private.h, what policies may ask for in client_host_private.h, and
 * clusters in client_cluster_private.h.
 */
#ifndef HEADGATE_CLIENT_PRIVATE_H
#define HEADGATE_CLIENT_PRIVATE_H

#include "client/client_session_private.h"

/* Has the output written, and requests taken, at the end of this loop iteration. */
static inline void client_want_flush(struct client *client)
{
    if (client->state != CLIENT_CLOSED) {
        reactor_at_turn_end(client->service->reactor, REACTOR_STAGE_CLIENTS, &client->flush);
    }
}

/* ---- client_life.c ---- */

/* Stops taking requests; closes when those under way are answered and the answers written. */
void client_finish(struct client *client);
/* That has come of the long request amid which it finishes, if it does: `command` is empty when all of it has. Half of
 * it may be on its lane, which nobody else may get: so it is `streaming` for ever. */
void client_pass_over(struct client *client, const char *data, size_t length);
/* The same as client_finish(), for a client that was refused what its next requests may count on: see
 * session_is_presumed(). */
void client_finish_presuming(struct client *client);
/* Stops taking requests; forgets what is under way; closes when the output is written. why is logged at debug level. */
void client_end(struct client *client, const char *why);
/* What lines of the log say of the client; the texts are its own. */
struct log_subject client_log_subject(const struct client *client);
/* A line about it; then as printf. */
#define client_log(client, level, ...)                                                                                 \
    (log_enabled(level)                                                                                                \
         ? log_write_about(level, (const struct log_subject[]){client_log_subject(client)}, "client", __VA_ARGS__)     \
         : (void)0)
/* Ends a client that Redis would not have any more: its credentials are refused, and no connection is left to it. */
void client_close_refused(struct client *client);
/*
 * The client's connection was reset. What it had sent before is carried out, as the end of its own side may have come
 * just before: the client stays without a connection, for a short while. If Redis may never be done with it, or if
 * there is nothing, it is closed now. why is logged then.
 */
void client_was_reset(struct client *client, const char *why);
/* Closes now. */
void client_close(struct client *client, const char *why);
/* The same; always false. */
bool client_out_of_memory(struct client *client);
/* The client's user or name is (or may be) another one: the policies are told. */
void client_tell_identity(struct client *client);
/* Gives the client another name (empty: none). False when memory is short. */
bool client_rename(struct client *client, struct slice name);
/* Replaces *place, of the client, by a copy of the text; an empty text means none. False when memory is short. */
bool client_keep_text(struct client *client, char **place, struct slice text);
struct expected_reply *expected_reply_take(struct client_service *service, enum expected_reply_kind kind);
void expected_reply_give(struct client_service *service, struct expected_reply *expected);
/* With its texts. Bytes. */
size_t expected_reply_size(const struct expected_reply *expected);
/* Frees those that are kept for later. */
void expected_reply_trim(struct client_service *service);

/* ---- client_identity.c ---- */

/* Finds its identity by what is known of it now. */
void client_find_identity(struct client *client);
/* The same, and whether the configuration lets it in. */
bool client_is_let_in(struct client *client);
/* The name of its identity; "" for none. */
static inline const char *client_identity_name(const struct client *client)
{
    return client->who != NULL ? client->who->name : "";
}

/* The profile with which a client of its identity comes; referenced for the caller. */
struct profile *client_arrival_profile(const struct client *client);
/* Goes by that admission from now on. */
void client_service_admit(struct client_service *service, struct admission *admission);

/* ---- client_admission.c ---- */

/* Its handshake is done, and nothing of it was read yet: who it is is known now. False: it is not let in, and hears so,
 * or was closed. */
bool client_now_known(struct client *client);
/* Ten times a second, if has_moves: clients whose credentials are other ones now. */
void client_service_move(struct client_service *service);

/* ---- client_measure.c: all of it only where requests are measured ---- */

/* Notes the request at hand, unless it was noted already, as long as it is now: when it came, and under which tag. */
void client_note(struct client *client, const struct request *request);

/* It has neither been sent nor answered so that it counts. */
static inline void client_note_end(struct client *client)
{
    client->note.taken = false;
}

/* It waits, and where it lay may be used otherwise. */
static inline void client_note_aside(struct client *client)
{
    client->note.frame = (struct slice){0};
}

/* It is sent by itself, as that frame, and its reply will come. False when memory is short. */
bool client_measure_sent(struct client *client, struct slice frame);
/* The same as one of a batch that will be sent: it joins the part, or begins another. False when memory is short. */
bool client_measure_batched(struct client *client, struct client_part *part, struct slice frame);
/* The same of one that came then under that tag, without being noted, if the part does not take it: it begins another,
 * or is one by itself. False when memory is short. */
bool client_measure_begins(struct client *client, struct client_part *part, int64_t received_us, uint32_t tag,
                           struct slice frame);
/* The same without being noted, if no policy is asked about it or shown it. False: it is to be noted. */
bool client_measure_plain(struct client *client, struct client_part *part, const struct chain_interest *interest,
                          struct slice frame);

/* Whether such a request is of the part, to which it is added then. */
static inline bool client_part_takes(struct client_part *part, int64_t received_us, uint32_t tag, size_t length)
{
    if (part->count == 0 || part->tag != tag || part->received_us != received_us || length > part->longest ||
        part->length > CLIENT_PART_MAX) {
        return false;
    }
    part->length += length;
    part->count++;
    return true;
}

/* Whether all that is measured of a request is told by its command and by when it was framed; it counts as looked at.
 */
static inline bool client_measure_passes(struct client *client, const struct chain_interest *interest)
{
    struct client_service *service = client->service;
    bool passes = !client->note.taken && interest->tag != POLICY_TAG_ASK && service->until_spot != 1;

    service->until_spot -= passes;
    return passes;
}

/* The same as client_measure_plain(), if the part goes on: all but the first requests of a pipeline come here. */
static inline bool client_measure_joins(struct client *client, struct client_part *part,
                                        const struct chain_interest *interest, size_t length)
{
    struct client_service *service = client->service;

    if (client->note.taken || interest->wanted != 0 || service->until_spot == 1 ||
        !client_part_takes(part, client->framed_us, interest->tag, length)) {
        return false;
    }
    service->until_spot--;
    return true;
}

/* Closes a part: what it says is kept. False when memory is short. */
bool client_measure_part(struct client *client, struct client_part *part);
bool client_measure_join(struct client *client, struct run *run);

/* What was measured since the last run is that run's. False when memory is short. */
static inline bool client_measure_run(struct client *client, struct run *run)
{
    if (client->waiting_spans == NULL) {
        return true;
    }
    if (run->spans != NULL) {
        return client_measure_join(client, run);
    }
    run->spans = client->waiting_spans;
    client->waiting_spans = NULL;
    return true;
}

/* All that is kept of those that were not answered or not written yet. Bytes. */
size_t client_measure_kept(const struct client *client);
/* The rest of the long one that goes out has come by now: it has so many bytes. */
void client_measure_grown(struct client *client, uint64_t bytes);
/* Of a run with spans: how many replies to its next requests may be told of together if they have ended by then, and
 * what they were. */
struct run_tally client_measure_tally(const struct client *client, const struct run *run, int64_t answered_us);
void client_measure_replies(struct client *client, struct run *run, const struct run_tally *tally, int64_t answered_us);
/* So many of a run's requests, from the next on, will have none. */
void client_measure_lost(struct client *client, struct run *run, uint32_t requests);
/* What was answered of the run is another now, ahead of it: so are the samples of that. */
void client_measure_answered(struct client *client, struct run *run, struct run *before);
/* The next request of the run is that of another now, which is new. False when memory is short. */
bool client_measure_taken(struct client *client, struct run *run, struct run *taken);
void client_measure_come(struct client *client, struct spans *spans);

/* The run is the client's first now: its replies go out. */
static inline void client_measure_first(struct client *client, const struct run *run)
{
    if (run->spans != NULL) {
        client_measure_come(client, run->spans);
    }
}

void client_measure_give(struct client *client, struct spans *spans);

/* Nothing more is told of the run's requests. */
static inline void client_measure_end(struct client *client, struct run *run)
{
    if (run->spans != NULL) {
        client_measure_give(client, run->spans);
        run->spans = NULL;
    }
}

/* The request at hand was answered by Headgate. */
void client_measure_local(struct client *client, bool is_error, size_t length);
/* All replies up to now were written to the client, or never will be. */
void client_measure_written(struct client *client, bool is_written);
/* The request at hand, and those that were not sent yet, will not be. */
void client_measure_forget(struct client *client);

/* ---- client_gate.c: the only way to another enum client_wait ---- */

/* Puts the next request off; always false. */
bool client_wait_for(struct client *client, enum client_wait what);
/* The same until that lane takes bytes (again), or is not to be used any more. */
bool client_wait_for_lane(struct client *client, struct lane *lane);
/* The same in a passthrough whose lane is full, before policies are asked: a refusal takes room there, too. Whether it
 * waits. */
bool client_waits_to_pass(struct client *client);
/* What the client waited for has come, if it did wait for that. Whether it did. */
static inline bool client_wait_is_over(struct client *client, enum client_wait what)
{
    bool waited = client->wait == what;

    if (waited) {
        client->wait = CLIENT_WAIT_NOTHING;
    }
    return waited;
}

/* Waits for a policy until then, or until client_end_hold(). False when memory is short. */
bool client_hold_until(struct client *client, int64_t until_us);
/* Lets the request that a policy holds be asked about again. */
void client_end_hold(struct client *client);
/* The request that was held is not taken any more. */
void client_stop_hold_timer(struct client *client);
/* Whether it cannot use shared lanes now, whatever its requests are. */
static inline bool client_needs_exclusive(const struct client *client)
{
    return client->service->settings.session_pool || client->profile->needs_password || client->heavy > 0 ||
           client->output_congested ||
           (client->service->paused_until_us != 0 &&
            reactor_now(client->service->reactor) < client->service->paused_until_us);
}

/* Whether requests are taken now, behind so many in a batch: what is in the input then is the beginning of one. */
static inline bool client_may_take(const struct client *client, uint32_t batched)
{
    return client->state == CLIENT_OPEN && client->wait == CLIENT_WAIT_NOTHING &&
           (client->streaming || client->exclusive != NULL ||
            client->in_flight + batched < client->service->settings.pipeline_limit || client_needs_exclusive(client));
}

/* Whether the socket should be read; to be called after whatever may have changed it. */
void client_update_reading(struct client *client);
/* To be called when more, or less, is kept of the requests under way, or when that matters more, or less. */
void client_check_room(struct client *client);

/* ---- client_hangup.c ---- */

/*
 * The client has closed its writing half, or all, and requests wait that cannot be sent yet. If Redis may never answer
 * those that are under way, it is told of the end as it would be without Headgate. Harmless if there is nothing to do.
 */
void client_hung_up(struct client *client);
/* Clients that are not read at the moment: in which of them to look for an end. count is 0 at first. */
struct client_unread {
    struct connection *connections[CONNECTION_ENDS_MAX];
    size_t count;
};
/* Looks for the client's end, if it is not read; at the latest with client_find_hangups(). */
void client_watch_unread(struct client_unread *unread, struct client *client);
void client_find_hangups(struct client_unread *unread);

/* ---- client_tls.c ---- */

/* The client is to speak TLS. False (and the client is closed) when memory is short. */
bool client_begin_tls(struct client *client);
/* To be called until the client is_secure, when something has come of its handshake. False: that is not done yet, or
 * has failed, and the client was closed, or is not let in. */
bool client_now_secure(struct client *client);
/* The client is being closed. */
void client_end_tls(struct client *client);

/* ---- client_stray.c ---- */

/* Whether to look, with what a client has sent first, for what does not belong there: all that is ordinary does not
 * begin so. */
static inline bool client_may_be_stray(const struct client *client, const char *data)
{
    return data[0] != '*' && client->active_us == client->connected_us && !client->streaming;
}

/* True: it speaks TLS where there is none, or sends the header of a proxy where none is taken, and was closed. */
bool client_refuse_stray(struct client *client, const char *data, size_t length);

/* ---- client_drain.c ---- */

/* While the process drains: closes the client if it is time to. Now and then, as long as it is OPEN. */
void client_drain(struct client *client, int64_t now_us);

/* ---- client_moving.c ---- */

/* CLIENT MAINT_NOTIFICATIONS, between two replies, outside MULTI. False: it is not to be had here. */
bool client_take_maintenance(struct client *client, const struct resp_command *framed, const char *frame);
/* While the process drains: whether the client has time to go elsewhere by itself; it is told so at the first call. */
bool client_may_move(struct client *client, int64_t now_us);
/* Before that, while another process serves: tells it so once, if this is a good time. Now and then, as long as it is
 * OPEN. */
void client_offer_move(struct client *client, int64_t now_us);
/* How many may be told so at one tick, so that they do not all come at once to where they go. */
uint32_t client_offers_at_once(const struct client_service *service);

/* ---- client_policy.c ---- */

/* What policies are told of a client. */
struct policy_client client_policy_view(struct client *client);
/* What policies are told of a request. */
struct policy_request client_describe(struct client *client, const struct policy_client *view,
                                      const struct request *asked);
/* Tells the policies what became of the request at hand, if they want to know. */
void client_end_record(struct client *client, enum policy_outcome outcome);

/* ---- client_input.c ---- */

/* The task of a client in the stage of clients: writes what there is for it, and takes more of its input. */
void client_flush_task(struct reactor_task *task);
/* The callback of a client's connection. */
void client_readable(evutil_socket_t fd, short what, void *context);
/* Takes the requests of the client's input; to be called when what they waited for has come. */
void client_resume(struct client *client);

/* ---- client_request.c ---- */

/* The requests of the batch, with those that are still to be admitted. */
static inline uint32_t client_batch_count(const struct client_batch *batch)
{
    return batch->requests + batch->group.count;
}

/* What the policies want of a command (NULL: an unknown one). */
static inline const struct chain_interest *client_interest(const struct client_service *service,
                                                           const struct command *command)
{
    return &service->interests[command != NULL ? command_index(command) : command_count()];
}

/* Takes the whole request at data, which was framed. */
enum client_outcome client_take_whole(struct client *client, struct client_batch *batch, const char *data);
/* Puts the group behind the batch to the policies: those that they admit belong to the batch, the others are refused.
 * Harmless without one. WAITS is never given. */
enum client_outcome client_end_group(struct client *client, struct client_batch *batch);
/* Puts a request to the policies, unless they have passed it already or do not care. True: go on with it; *outcome is
 * set otherwise. */
bool client_admit(struct client *client, struct request *request, enum client_outcome *outcome);

/* ---- client_strangers.c ---- */

/* How Redis refuses what has come of the request, by a length in it, from a client that has not authenticated. */
enum resp_command_fault client_strangers_fault(const struct client *client);
/* Whether Redis would not read this whole command, in multibulk form, as the client has not authenticated. */
bool client_is_beyond_strangers(const struct client *client, const struct resp_command *framed, struct slice frame);

/* ---- client_stream.c ---- */

/* Whether the command that is under way is one of those. */
bool client_is_long(const struct client *client);
/*
 * Begins to send it: on an exclusive lane, as it comes. Some commands are held whole all the same. frame: all that came
 * of it. True: that was taken; false: not now, or not at all.
 */
bool client_begin_stream(struct client *client, struct client_batch *batch, const char *frame);
/* Whether the beginning of a request was kept before it was known that Redis wants a password of the client. */
bool client_has_beginning_to_refuse(const struct client *client);
/* Sends on what has come of it, or throws it away. Returns the bytes taken. */
size_t client_continue_stream(struct client *client, const char *data, size_t length);
/* Redis was away for too long: the long request that waits is answered so, and the rest of it is thrown away. */
void client_give_up_stream(struct client *client);

/* ---- client_lookup.c ---- */

/* The command of a whole name in *command, NULL if it is not known (client->lookup says more then). False: Redis is
 * asked, and the client waits. */
bool client_find_command(struct client *client, struct slice name, const struct command **command);

/* ---- client_name.c: frame is the whole command in multibulk form, or what has come of it ---- */

/* Whether enough of the name has come to judge it. */
bool client_name_is_there(const struct resp_command *framed, struct slice frame);
/* Whether the name, or that of a subcommand, has a NUL in it: it must not reach Redis. command: NULL if unknown. */
bool client_name_is_hidden(const struct command *command, const struct resp_command *framed, struct slice frame);
/* Answers as Redis does when it does not find the name. */
void client_refuse_name(struct client *client, const struct command *command, const struct resp_command *framed,
                        struct slice frame);

/* ---- client_answer.c ---- */

/* Answers the request at hand with a policy's text. */
void client_refuse(struct client *client, const struct policy_decision *decision);
/* Answers it with the route's text. */
void client_answer_route(struct client *client, const struct session_route *route);
/* Answers it with the error that Redis is away. */
void client_answer_unreachable(struct client *client, const struct lane *lane);
/* Answers with the fault that was found in the command, and takes no more requests. */
void client_protocol_error(struct client *client);

/* ---- client_route.c ---- */

/* The lane for requests that need nothing special, or NULL if that cannot be said without a closer look. */
struct lane *client_plain_lane(struct client *client);
/* The lane for this request in *lane. False: the client has to wait, or is closed. */
bool client_choose_lane(struct client *client, const struct session_route *route, struct lane **lane);
/* A whole request that the policies have admitted: has it sent, or answered. */
enum client_outcome client_route(struct client *client, const struct request *request);

/* ---- client_send.c ---- */

/* Sends the request at hand, of whose reply nothing is to be known, and which was not noted yet. False when memory is
 * short. */
bool client_send_short(struct client *client, struct lane *lane, const struct request *request);
/* Sends the request at hand, or its beginning. False when memory is short. */
bool client_forward(struct client *client, struct lane *lane, const struct request *request,
                    struct session_route *route);
/* There are none: all that matters of such a batch is set, as most of it is large and seldom used. */
static inline void client_batch_empty(struct client_batch *batch)
{
    batch->requests = 0;
    batch->length = 0;
    batch->name = (struct slice){0};
    batch->group.count = 0;
    batch->part.count = 0;
}

/* Adds the next request. False when memory is short: the client was closed. */
static inline bool client_batch_add(struct client *client, struct client_batch *batch, struct slice frame)
{
    if (client->note.taken && !client_measure_batched(client, &batch->part, frame)) {
        return client_out_of_memory(client);
    }
    batch->length += frame.length;
    batch->requests++;
    return true;
}

/* Sends the batch and empties it; the group behind it is left as it is. False when memory is short: the client was
 * closed. */
bool client_batch_send(struct client *client, struct client_batch *batch);

/* ---- client_reads.c: all of it only where there may be replicas ---- */

/* By whom a command may be answered. */
enum client_reading {
    CLIENT_READING_NONE,     /* it may write: by the master */
    CLIENT_READING_HARMLESS, /* by the master; it writes nothing */
    CLIENT_READING_ANYWHERE  /* by a replica, too */
};

/* Of each command of the table, by its place. NULL when memory is short. */
uint8_t *client_readings(void);
/* What the configuration says of reading may be another now. */
void client_reads_reconfigure(struct client_service *service);
/* The short way of most requests, to the master or a replica. False: there is more to be looked at. */
bool client_reads_take(struct client *client, const struct request *request);
/* Says in the route whether a replica may answer. */
void client_reads_route(struct client *client, const struct command *command, const struct request *request,
                        struct session_route *route);
/* The shared lane for the route in *lane. False: the client has to wait, or is closed. */
bool client_reads_lane(struct client *client, const struct session_route *route, struct lane **lane);
/* A request goes to the master, by any lane: it may write, unless the route says otherwise. */
static inline void client_reads_note(struct client *client, const struct session_route *route)
{
    client->wrote = client->wrote || (client->service->reads && !(route->reads || route->harmless));
}
/* A run of the client is answered, and leaves its lane: it may have written. */
void client_reads_answered(struct client *client);
/* Who answers a request of a command of that reading: the master what may not be read elsewhere, else who the server's
 * option says, or a policy. */
enum conf_reads client_reads_by(struct client *client, const struct request *request, enum client_reading reading);
/* Whether the client's next request has to wait: it may be answered by others than those under way, were it to go over
 * that lane. */
static inline bool client_reads_mixes(const struct client *client, const struct lane *lane, enum conf_reads by)
{
    return client->sent_runs > 0 && lane->settings->gives_back && client->reads_by != by;
}

/* In a cluster: the lane to a replica of the master there, for what only reads and may be answered by such; NULL: it
 * goes to the master. */
struct lane *client_reads_lane_at(struct client *client, const struct cluster_way *way, enum conf_reads by);
/* A request is sent there over that lane: it is counted if that leads to a replica. */
void client_reads_count_at(const struct client *client, const struct cluster_way *way, const struct lane *lane);
/* The same for a request that a replica has not served: it is read from another one only if no master may be. */
struct lane *client_reads_again_at(struct client *client, const struct cluster_way *way, struct slice request);
/* As client_run_receiver, where there may be replicas. */
extern const struct run_receiver client_reads_receiver;

/* ---- client_arrival.c ---- */

/* What was read just now is in the input, at its end. */
void client_arrived(struct client *client);
/* So many bytes are about to leave the head of the input. */
void client_input_passed(struct client *client, size_t length);
/* When the byte before that place in the input came, if there are arrivals: within a ms, or 3 % of the time since the
 * first of them. */
int64_t client_arrival_of(struct client *client, const char *end);

/* ---- client_reply.c ---- */

extern const struct run_receiver client_run_receiver;
/* What it consists of, see struct run_receiver: for those who do the same, and some more. */
void client_run_bytes(struct run *run, const char *data, size_t length);
bool client_run_reply(struct run *run, const struct resp_reply *reply);
struct run_tally client_run_tally(const struct run *run, int64_t read_us);
void client_run_measured(struct run *run, const struct run_tally *tally, int64_t read_us);
void client_run_answered(struct run *run);
void client_run_lost(struct run *run, enum run_loss loss, const char *why);

/* For what answers runs in another way: adds to what waits in the run for its turn; false when memory is short. */
bool client_add_text(struct client *client, struct run *run, const char *text, size_t length);
/* Drops what has waited, in a run or where it was put since. */
void client_clear_text(struct client *client, struct buffer *text);
/* So many bytes are kept of its requests under way, beside buffers; client_uncount_kept(): no more. */
static inline void client_count_kept(struct client *client, size_t bytes)
{
    client->kept.records += bytes;
    buffer_pool_count(&client->service->reactor->buffers, bytes);
}
static inline void client_uncount_kept(struct client *client, size_t bytes)
{
    client->kept.records -= bytes;
    buffer_pool_uncount(&client->service->reactor->buffers, bytes);
}
/* Whether more waits for it to read than client_output_limit lets it leave. Then it was closed. */
bool client_is_over_limit(struct client *client);
/* Whether a part of a push has gone out: nothing may come between it and the rest. */
bool client_is_within_push(const struct client *client);
/* The run has left its lane, one way or another. */
void client_left_lane(struct client *client);
/* Tells the policies that wanted to see the reply; reply may be NULL. */
void client_end_policies(struct client *client, struct run *run, enum policy_outcome outcome,
                         const struct resp_reply *reply);

/* Bytes for the client right now, behind everything given before. Borrowed bytes must stay valid until the client was
 * written in this stage of the loop iteration. */
void client_output(struct client *client, const char *data, size_t length, bool borrowed);
/* A push of Headgate's own, in its place behind the requests under way. False when memory is short. */
bool client_push(struct client *client, const char *text, size_t length);
/* An answer of Headgate's own, in its place behind the requests under way. False when memory is short. */
bool client_answer(struct client *client, const char *text, size_t length, struct chain_record *record);
/* Appends a run to the requests under way. */
void client_queue_run(struct client *client, struct run *run);
/* A push has gone out as a whole: answers that came meanwhile may follow. */
void client_push_ended(struct client *client);
/* Takes all runs off the client: those on a lane stay there ownerless. */
void client_drop_runs(struct client *client);
/* Copies what is borrowed behind the output. False when memory is short: the client was closed. */
bool client_keep_borrowed(struct client *client);
/* Writes what there is for the client. False: it was closed. */
bool client_write(struct client *client);

/* ---- client_memory.c ---- */

/* No more than this part of memory_limit waits for one client to read: as it is put together of what nodes have said,
 * it is there several times for a moment. */
#define CLIENT_MEMORY_SHARE 4

/* ---- client_late.c ---- */

/* As client_flush_task(), where several nodes answer a client: it may be put off for a moment. */
void client_late_task(struct reactor_task *task);

#endif
