/*
 * What the lanes of a client's subscriptions say: messages, which are the client's as they are; confirmations of what
 * it has asked for; those of what was asked for again, which nobody hears; and that a node has dropped a shard channel,
 * which is then asked for elsewhere. All of them are pushes, as these lanes speak RESP3.
 *
 * Who has shard channels at several nodes hears how many it has in all, as from one Redis.
 */
#include "client/client_subscriber_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what a push is ---- */

struct push {
    struct slice frame;
    char kind; /* of the subscription that it is about: 'c', 'p' or 's'; '\0': it is a message, or something else */
    bool is_end;
    bool has_name;
    struct slice name;
    int64_t count;
};

/* "$<length>\r\n<bytes>\r\n". The frame is sound: the framer has seen its end. False: it is something else. */
static bool take_bulk(struct slice *rest, struct slice *bulk)
{
    size_t at = 1, length = 0;

    if (rest->length == 0 || rest->data[0] != '$') {
        return false;
    }
    for (; at < rest->length && rest->data[at] >= '0' && rest->data[at] <= '9'; at++) {
        length = 10 * length + (size_t)(rest->data[at] - '0');
    }
    if (length > rest->length || at + length + 4 > rest->length) {
        return false;
    }
    *bulk = (struct slice){rest->data + at + 2, length};
    rest->data += at + length + 4;
    rest->length -= at + length + 4;
    return true;
}

static void read_kind(struct push *push, struct slice word)
{
    static const struct {
        const char *word;
        char kind;
        bool is_end;
    } kinds[] = {{"subscribe", 'c', false},  {"psubscribe", 'p', false},  {"ssubscribe", 's', false},
                 {"unsubscribe", 'c', true}, {"punsubscribe", 'p', true}, {"sunsubscribe", 's', true}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (slice_is(word, kinds[i].word)) {
            push->kind = kinds[i].kind;
            push->is_end = kinds[i].is_end;
        }
    }
}

/* Whether the last line is a number, as in all that Redis says of subscriptions. */
static bool ends_in_count(struct slice frame)
{
    size_t at = frame.length > 2 ? frame.length - 2 : 0;

    while (at > 0 && frame.data[at - 1] != ':' && frame.data[at - 1] != '\n') {
        at--;
    }
    return at > 0 && frame.data[at - 1] == ':';
}

/* count: the last integer in it. */
static struct push read_push(struct slice frame, int64_t count)
{
    static const char beginning[] = ">3\r\n";
    struct push push = {.frame = frame, .count = count};
    struct slice rest, word;

    if (slice_begins(frame, beginning) && ends_in_count(frame)) {
        rest = (struct slice){frame.data + sizeof beginning - 1, frame.length - (sizeof beginning - 1)};
        if (take_bulk(&rest, &word)) {
            read_kind(&push, word);
        }
        push.has_name = push.kind != '\0' && take_bulk(&rest, &push.name);
    }
    return push;
}

/* ---- confirmations ---- */

static int64_t *count_of(struct subscriber_lane *at, char kind)
{
    return kind == 'c' ? &at->channels : kind == 'p' ? &at->patterns : &at->shards;
}

/* Redis counts channels and patterns together. */
static void note_count(struct subscriber_lane *at, const struct push *push)
{
    int64_t others = push->kind == 'c' ? at->patterns : push->kind == 'p' ? at->channels : 0;

    *count_of(at, push->kind) = push->count - others;
}

static void note_name(struct subscriber_lane *at, const struct push *push)
{
    struct client_channel_list *names = &at->subscriber->names;

    client_subscriber_found(at->subscriber, push->kind, push->name);
    if (push->has_name && push->is_end) {
        client_channel_list_forget(names, push->kind, push->name);
    } else if (push->has_name) {
        client_channel_list_keep(names, push->kind, push->name, at->number);
    }
}

/* Bytes of the reply to a request of the client. */
static void put(struct client *client, struct run *run, struct slice bytes)
{
    if (client->first == run) {
        client_output(client, bytes.data, bytes.length, false);
    } else if (client->state != CLIENT_CLOSED && !client_add_text(client, run, bytes.data, bytes.length)) {
        (void)client_out_of_memory(client);
    }
}

/* What was said before it goes out before it. */
static void put_confirmation(struct client *client, struct run *run, const struct push *push, int64_t total)
{
    struct slice head = push->frame;
    char count[32];

    client_subscriber_deliver(client);
    if (total == push->count) {
        put(client, run, push->frame);
        return;
    }
    while (head.data[head.length - 1] != ':') {
        head.length--;
    }
    int length = snprintf(count, sizeof count, "%" PRId64 "\r\n", total);
    put(client, run, head);
    if (run->receiver != NULL) {
        put(client, run, (struct slice){count, (size_t)length});
    }
}

/* The number that the client is told: of shard channels on all lanes. */
static int64_t total_of(const struct subscriber_lane *at, const struct expected_reply *expected,
                        const struct push *push)
{
    const struct client_subscriber *subscriber = at->subscriber;

    if (push->kind != 's') {
        return push->count;
    }
    if (expected->has_others) {
        return push->count + expected->others;
    }
    return subscriber->names.is_whole ? client_channel_list_count(&subscriber->names, 's')
                                      : push->count + client_subscriber_other_shards(subscriber, at);
}

static bool has_argument(struct slice request, struct slice name)
{
    struct resp_walk walk = resp_walk_start(request);
    struct slice argument;
    bool found = false;

    while (!found && resp_walk_next(&walk, &argument)) {
        found = slice_equal(argument, name);
    }
    return found;
}

/* Whether it is what the request has asked for: while that is under way, a node may drop other shard channels. */
static bool confirms(const struct run *run, const struct push *push)
{
    const struct expected_reply *expected = run->expected;
    bool is_end = expected->kind == EXPECT_UNSUBSCRIBE;

    if (push->kind != expected->channel_kind || push->is_end != is_end) {
        return false;
    }
    return push->kind != 's' || !is_end || expected->is_of_all || !push->has_name ||
           has_argument(lane_request_at_hand(run->lane, run), push->name);
}

/* ---- what nobody has asked for ---- */

static void fail(struct subscriber_lane *at)
{
    lane_fail(at->lane, "Redis has confirmed what nobody has asked for");
}

/* The client hears of it only if its names are not all known. */
static void take_drop(struct subscriber_lane *at, const struct push *push)
{
    struct client_subscriber *subscriber = at->subscriber;
    const struct client_channel_list *names = &subscriber->names;
    size_t place = client_channel_list_find(names, 's', push->name);

    note_count(at, push);
    if (place < names->used) {
        struct client_channel channel = client_channel_list_at(names, place);
        if (channel.state == CLIENT_CHANNEL_HELD && channel.place == at->number) {
            client_subscriber_lose(subscriber, place);
        }
    } else if (!names->is_whole) {
        client_subscriber_push(subscriber, push->frame);
    }
}

/* Of nothing that the client has asked for. */
static void take_other(struct subscriber_lane *at, const struct push *push)
{
    if (push->kind == '\0') {
        client_subscriber_push(at->subscriber, push->frame);
    } else if (push->kind == 's' && push->is_end && push->has_name) {
        take_drop(at, push);
    } else if (push->kind == 's' && push->is_end) {
        /* The node has dropped them all while the client was just ending them. */
        note_count(at, push);
    } else {
        fail(at);
    }
}

/* ---- what the client has asked for ---- */

/* SUNSUBSCRIBE of some: what the node drops just then looks the same as its confirmations, and the request may be sent
 * elsewhere instead. */
static bool is_ambiguous(const struct subscriber_lane *at, const struct expected_reply *expected)
{
    return expected->channel_kind == 's' && expected->kind == EXPECT_UNSUBSCRIBE && !expected->is_of_all &&
           at->subscriber->names.is_whole;
}

/* All of its channels are gone from the node: that is confirmed as if it were by the request. */
static void confirm_ends(struct subscriber_lane *at, struct run *run)
{
    struct client_subscriber *subscriber = at->subscriber;
    struct resp_walk walk = resp_walk_start(lane_request_at_hand(run->lane, run));
    struct push push = {.kind = 's', .is_end = true, .has_name = true};
    char head[64], tail[32];

    (void)resp_walk_skip(&walk, 1);
    while (run->receiver != NULL && resp_walk_next(&walk, &push.name)) {
        note_name(at, &push);
        int head_length = snprintf(head, sizeof head, ">3\r\n$12\r\nsunsubscribe\r\n$%zu\r\n", push.name.length);
        int tail_length =
            snprintf(tail, sizeof tail, "\r\n:%" PRId64 "\r\n", client_channel_list_count(&subscriber->names, 's'));
        if (!client_add_text(subscriber->client, run, head, (size_t)head_length) ||
            !client_add_text(subscriber->client, run, push.name.data, push.name.length) ||
            !client_add_text(subscriber->client, run, tail, (size_t)tail_length)) {
            (void)client_out_of_memory(subscriber->client);
        }
    }
}

/* True: it was the last one. UNSUBSCRIBE from all is confirmed once for each, and once if there is none. */
static bool take_confirmation(struct subscriber_lane *at, struct run *run, const struct push *push)
{
    struct expected_reply *expected = run->expected;
    int64_t count = *count_of(at, push->kind);

    if (!expected->started && expected->confirmations == 0) {
        expected->confirmations = count > 1 ? (uint32_t)count : 1;
    }
    expected->started = true;
    expected->confirmations--;
    bool is_last = expected->confirmations == 0;
    if (!is_ambiguous(at, expected)) {
        note_count(at, push);
        note_name(at, push);
        put_confirmation(at->subscriber->client, run, push, total_of(at, expected, push));
        return is_last;
    }
    take_drop(at, push);
    if (is_last) {
        client_subscriber_deliver(at->subscriber->client);
        confirm_ends(at, run);
    }
    return is_last;
}

/* ---- the end of a frame ---- */

static struct slice gathered(const struct subscriber_lane *at)
{
    return (struct slice){buffer_head(&at->frame), buffer_length(&at->frame)};
}

static void forget_frame(struct subscriber_lane *at)
{
    buffer_clear(&at->subscriber->client->service->reactor->buffers, &at->frame);
}

static bool on_reply(struct run *run, const struct resp_reply *reply)
{
    struct client *client = run->owner;
    struct subscriber_lane *at = client_subscriber_find(client->subscriber, run->lane);
    const struct push push = read_push(gathered(at), session_confirmed_count(reply));
    bool is_error = reply->type != '>';
    bool is_last = is_error;

    if (!is_error && confirms(run, &push)) {
        is_last = take_confirmation(at, run, &push);
    } else if (!is_error) {
        take_other(at, &push);
    }
    forget_frame(at);
    /* A client that was closed just now has let go of its runs, and this one may have gone with its lane. */
    if (is_last && client->state != CLIENT_CLOSED && run->receiver != NULL) {
        client_end_policies(client, run, POLICY_OUTCOME_REPLY, reply);
    }
    return is_last;
}

/* An error, in place of a confirmation. */
static void on_bytes(struct run *run, const char *data, size_t length)
{
    struct client *client = run->owner;

    client_subscriber_deliver(client);
    if (run->receiver != NULL) {
        client_run_bytes(run, data, length);
    }
}

static void on_answered(struct run *run)
{
    struct client *client = run->owner;

    client_subscriber_tend_soon(client->subscriber);
    client_cluster_receiver.answered(run);
}

static void on_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct client *client = run->owner;

    client_subscriber_tend_soon(client->subscriber);
    client_cluster_receiver.lost(run, loss, why);
}

/* What looked like confirmations was what the node has dropped; those of the other node are counted anew. */
static bool on_redirected(struct run *run, struct slice error, struct slice request)
{
    struct expected_reply *expected = run->expected;
    struct resp_walk walk = resp_walk_start(request);

    if (expected->started && !expected->is_of_all && resp_walk_skip(&walk, 1)) {
        expected->confirmations = walk.left;
        expected->started = false;
    }
    return client_redirected(run, error, request);
}

const struct run_receiver client_subscriber_receiver = {
    .bytes = on_bytes,
    .reply = on_reply,
    .tally = client_run_tally,
    .measured = client_run_measured,
    .answered = on_answered,
    .lost = on_lost,
    .redirected = on_redirected,
    .passed = client_passed,
    .returned = client_returned,
};

/* ---- what was asked for again ---- */

static void on_restore_bytes(struct run *run, const char *data, size_t length)
{
    client_subscriber_gather(run->owner, data, length);
}

/* True: it is the answer. */
static bool take_restored(struct subscriber_lane *at, const struct push *push)
{
    const struct client_channel_list *names = &at->subscriber->names;
    size_t place = client_subscriber_asked(at);
    bool is_it = place < names->used && !push->is_end && push->has_name &&
                 client_channel_list_at(names, place).kind == push->kind &&
                 slice_equal(client_channel_list_name(names, place), push->name);

    if (!is_it) {
        take_other(at, push);
        return false;
    }
    note_count(at, push);
    client_subscriber_regain(at, place);
    return true;
}

static bool on_restore_reply(struct run *run, const struct resp_reply *reply)
{
    struct subscriber_lane *at = run->owner;
    bool is_answer = true;

    if (reply->type == '>') {
        const struct push push = read_push(gathered(at), session_confirmed_count(reply));
        is_answer = take_restored(at, &push);
    } else {
        client_subscriber_not_regained(at, gathered(at));
    }
    forget_frame(at);
    return is_answer;
}

static void on_restore_answered(struct run *run)
{
    struct subscriber_lane *at = run->owner;

    run_give(at->subscriber->client->service->runs, run);
    client_subscriber_answered(at);
}

static void on_restore_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct subscriber_lane *at = run->owner;

    (void)loss;
    (void)why;
    run_give(at->subscriber->client->service->runs, run);
    client_subscriber_unasked(at);
}

const struct run_receiver client_subscriber_restore_receiver = {
    .bytes = on_restore_bytes,
    .reply = on_restore_reply,
    .answered = on_restore_answered,
    .lost = on_restore_lost,
};

/* ---- the owner ---- */

static void owner_bytes(void *owner, const char *data, size_t length)
{
    client_subscriber_gather(owner, data, length);
}

/* Nothing is under way, or something of Headgate's own. */
static bool owner_frame(void *owner, const struct resp_reply *reply)
{
    struct subscriber_lane *at = owner;

    if (reply->type == '>') {
        const struct push push = read_push(gathered(at), session_confirmed_count(reply));
        take_other(at, &push);
        forget_frame(at);
    } else if (resp_reply_starts(reply, "-MOVED ")) {
        /* To a SUNSUBSCRIBE of what the node was just dropping: what it said of that was taken for the answer. */
        forget_frame(at);
    } else {
        lane_fail(at->lane, "Redis has answered what nobody has asked");
    }
    return true;
}

/* What it had is asked for elsewhere. Its runs were told before: of a request of the client that was lost, that is over
 * by now. */
static void owner_broken(void *owner, const char *why)
{
    struct subscriber_lane *at = owner;
    struct client_subscriber *subscriber = at->subscriber;
    struct client *client = subscriber->client;

    if (at->lane == NULL) {
        return;
    }
    client_subscriber_lose_all(at);
    client_subscriber_drop(at, false);
    if (!subscriber->names.is_whole && client->state == CLIENT_OPEN) {
        stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_LOST, 1);
        client_end(client, why);
    }
}

/* All that waits goes to the node of the first of it that has a slot; that sends on what is not for it. */
static void owner_reroute(void *owner)
{
    struct subscriber_lane *at = owner;
    struct client *client = at->subscriber->client;
    const struct cluster_way *way = NULL;

    if (!client_cluster_find_waiting(client, at->lane, &way) || way == at->way) {
        return;
    }
    struct profile *there = client_profile_at(client, way);
    if (there != NULL) {
        at->way = way;
        upstream_carry_exclusive(at->lane, there);
    }
}

const struct lane_owner client_subscriber_owner = {
    .listens = true,
    .bytes = owner_bytes,
    .frame = owner_frame,
    .broken = owner_broken,
    .reroute = owner_reroute,
};
