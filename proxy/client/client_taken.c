/*
 * Runs that are taken out of others, as a node has sent their request elsewhere; and who hears of the replies where
 * there is a cluster. Both do what client_reply.c does, and some more.
 */
#include "client/client_cluster_private.h"

/* Where that run is linked to, from there on; NULL in it: it is not there. */
static struct run **link_to(struct run **from, const struct run *run)
{
    while (*from != NULL && *from != run) {
        from = &(*from)->client_next;
    }
    return from;
}

/* near: where to look first; NULL: from the beginning. */
static void insert_before(struct client *client, struct run *run, const struct run *place, struct run *near)
{
    struct run **link = link_to(near != NULL ? &near->client_next : &client->first, place);

    if (*link == NULL) {
        link = link_to(&client->first, place);
    }
    run->client_next = *link;
    *link = run;
    run->kept = (uint16_t)sizeof *run;
    client->kept += run->kept;
}

/* A part of a run, for which nothing was counted yet but the run as a whole. */
static struct run *new_part(struct client *client, const struct run *run, uint32_t requests, struct run *near)
{
    struct run *part = run_take(client->service->runs);

    if (part != NULL) {
        part->receiver = run->receiver;
        part->owner = client;
        part->measured = run->measured;
        part->requests = requests;
        insert_before(client, part, run, near);
    }
    return part;
}

struct run *client_take_out(struct client *client, struct run *run, struct run *near)
{
    struct run *before = run->answered > 0 ? new_part(client, run, run->answered, near) : NULL;
    struct run *taken =
        run->answered == 0 || before != NULL ? new_part(client, run, 1, before != NULL ? before : near) : NULL;

    if (taken == NULL) {
        client_out_of_memory(client);
        return NULL;
    }
    if (before != NULL) {
        before->answered = before->requests;
        before->text = run->text;
        run->text = (struct buffer){0};
    }
    taken->spread = run->spread;
    taken->part = run->part;
    run->spread = NULL;
    taken->expected = run->expected;
    taken->policy_record = run->policy_record;
    uint16_t kept = taken->kept;
    taken->kept = run->kept;
    run->kept = kept;
    run->expected = NULL;
    run->policy_record = NULL;
    client_withheld_follow(taken);
    client->sent_runs++;
    client_push_ended(client);
    return client->state != CLIENT_CLOSED ? taken : NULL;
}

void client_end_taken(struct client *client)
{
    client_left_lane(client);
    if (!client_is_within_push(client)) {
        client_push_ended(client);
    }
    client_want_flush(client);
}

void client_answer_taken(struct client *client, struct run *run, struct slice error)
{
    struct resp_reply reply = {.keep_head = true};
    size_t taken;

    (void)resp_reply_feed(&reply, error.data, error.length, &taken);
    if (run->expected != NULL) {
        (void)session_reply(client, run->expected, &reply);
    }
    if (client->state == CLIENT_CLOSED) {
        return;
    }
    if (run->measured) {
        client_measure_lost(client, 1);
    }
    run->reply_bytes = error.length;
    client_withheld_let_go(run);
    client_end_policies(client, run, POLICY_OUTCOME_REPLY, &reply);
    run->answered = 1;
    if (!client_add_text(client, run, error.data, error.length)) {
        client_close(client, "out of memory");
        return;
    }
    client_end_taken(client);
}

/* ---- who hears of replies ---- */

static void on_bytes(struct run *run, const char *data, size_t length)
{
    client_run_receiver.bytes(run, data, length);
}

static bool on_reply(struct run *run, const struct resp_reply *reply)
{
    return client_run_receiver.reply(run, reply);
}

static struct run_tally on_tally(const struct run *run, int64_t read_us)
{
    return client_run_receiver.tally(run, read_us);
}

static void on_measured(struct run *run, const struct run_tally *tally, int64_t read_us)
{
    client_run_receiver.measured(run, tally, read_us);
}

static void on_cluster_answered(struct run *run)
{
    struct client *client = run->owner;

    client_redirect_ended(client, run);
    client_reads_answered(client);
    client_run_receiver.answered(run);
    client_redirect_check(client);
}

static void on_cluster_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct client *client = run->owner;

    client_redirect_ended(client, run);
    client_run_receiver.lost(run, loss, why);
    client_redirect_check(client);
}

const struct run_receiver client_cluster_receiver = {
    .bytes = on_bytes,
    .reply = on_reply,
    .tally = on_tally,
    .measured = on_measured,
    .answered = on_cluster_answered,
    .lost = on_cluster_lost,
    .redirected = client_redirected,
    .passed = client_passed,
    .returned = client_returned,
};

/* What nodes say to a part waits until all have answered. */
static void on_spread_bytes(struct run *run, const char *data, size_t length)
{
    struct client *client = run->owner;

    if (!client_add_text(client, run, data, length)) {
        client_close(client, "out of memory");
    }
}

/* The end of a push on the client's own lane is waited for. */
static void on_spread_answered(struct run *run)
{
    struct client *client = run->owner;

    client_spread_release(run);
    if (!client_is_within_push(client)) {
        on_cluster_answered(run);
        return;
    }
    client_redirect_ended(client, run);
    client_end_taken(client);
    client_redirect_check(client);
}

static void on_spread_lost(struct run *run, enum run_loss loss, const char *why)
{
    client_spread_lost(run);
    on_cluster_lost(run, loss, why);
}

const struct run_receiver client_spread_receiver = {
    .bytes = on_spread_bytes,
    .reply = on_reply,
    .tally = on_tally,
    .measured = on_measured,
    .answered = on_spread_answered,
    .lost = on_spread_lost,
    .redirected = client_redirected,
    .passed = client_passed,
    .returned = client_returned,
};
