/*
 * Replies that a policy gives: what Redis has said to a request is kept until the policy has made up its mind, and then
 * goes out as it is, or another text in its place.
 *
 *   reply ─► kept here ─► the policy's on_reply ─► … ─► client_give_reply() ─► the client, in its turn
 *
 * Meanwhile the run is on no lane, and has one request more than was answered: so it is not complete, and what is
 * behind it waits as it does for any reply. Requests behind it go on being sent and executed.
 */
#include "client/client_cluster_private.h"

#include <stdlib.h>

struct client_withheld {
    struct client *client; /* while there is a run */
    struct client_service *service;
    struct run *run;    /* NULL: it needs no reply any more */
    struct buffer text; /* what Redis has said */
    int resp;           /* that the client spoke when it asked */
    bool is_told;       /* the policy has heard, and owes the reply */
    bool is_kept;       /* the run has left its lane, and waits */
    bool is_given;      /* the run has its text */
};

static struct client_withheld *withheld_of(const struct run *run)
{
    const struct expected_reply *expected = run->expected;

    return expected != NULL ? expected->withheld : NULL;
}

static void clear_text(struct client_withheld *withheld)
{
    buffer_clear(&withheld->service->reactor->buffers, &withheld->text);
}

/* ---- what the lane tells ---- */

static void on_bytes(struct run *run, const char *data, size_t length)
{
    struct client_withheld *withheld = withheld_of(run);
    struct client *client = run->owner;

    if (withheld == NULL) {
        client->service->receiver->bytes(run, data, length);
    } else if (!buffer_append(&client->service->reactor->buffers, &withheld->text, data, length)) {
        client_close(client, "out of memory");
    }
}

/* What has come is no reply, but a message to a subscriber: it is not kept. */
static void let_pass(struct client *client, struct run *run, struct client_withheld *withheld)
{
    const char *text = buffer_head(&withheld->text);
    size_t length = buffer_length(&withheld->text);

    if (run->hushed) {
        /* Nobody wants it. */
    } else if (client->first == run) {
        client_output(client, text, length, false);
    } else if (length > 0 && !client_add_text(client, run, text, length)) {
        client_close(client, "out of memory");
    }
    clear_text(withheld);
}

static bool on_reply(struct run *run, const struct resp_reply *reply)
{
    struct client *client = run->owner;
    struct client_withheld *withheld = withheld_of(run);

    if (withheld != NULL) {
        withheld->is_told = run->policy_record != NULL;
    }
    bool answers = client->service->receiver->reply(run, reply);
    /* The client may have been closed, and what is withheld may be gone with it. */
    withheld = client->state != CLIENT_CLOSED && run->receiver != NULL ? withheld_of(run) : NULL;
    if (!answers && withheld != NULL) {
        withheld->is_told = false;
        let_pass(client, run, withheld);
    }
    return answers;
}

static void on_answered(struct run *run)
{
    struct client *client = run->owner;
    struct client_withheld *withheld = run->requests > 0 ? withheld_of(run) : NULL;

    if (withheld != NULL && withheld->is_told && !withheld->is_given) {
        withheld->is_kept = true;
        run->requests++;
        client->in_flight++;
    } else if (withheld != NULL && !withheld->is_given) {
        let_pass(client, run, withheld);
    }
    if (client->state != CLIENT_CLOSED) {
        client->service->receiver->answered(run);
    }
}

static void on_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct client *client = run->owner;

    client->service->receiver->lost(run, loss, why);
}

static const struct run_receiver receiver = {
    .bytes = on_bytes,
    .reply = on_reply,
    .tally = client_run_tally,
    .measured = client_run_measured,
    .answered = on_answered,
    .lost = on_lost,
};

static const struct run_receiver cluster_receiver = {
    .bytes = on_bytes,
    .reply = on_reply,
    .tally = client_run_tally,
    .measured = client_run_measured,
    .answered = on_answered,
    .lost = on_lost,
    .redirected = client_redirected,
    .passed = client_passed,
    .returned = client_returned,
};

/* ---- withholding, and giving ---- */

bool client_withhold(struct client *client, struct run *run)
{
    struct expected_reply *expected = run->expected;
    struct client_withheld *withheld = calloc(1, sizeof *withheld);

    if (withheld == NULL) {
        return client_out_of_memory(client);
    }
    withheld->client = client;
    withheld->service = client->service;
    withheld->run = run;
    client->withheld++;
    withheld->resp = client->profile->resp;
    expected->withheld = withheld;
    chain_withhold(run->policy_record, withheld);
    run->receiver = client->service->cluster != NULL ? &cluster_receiver : &receiver;
    return true;
}

/* The run may have been taken out of another since: see client_take_out(). */
void client_withheld_follow(struct run *run)
{
    struct client_withheld *withheld = withheld_of(run);

    if (withheld != NULL) {
        withheld->run = run;
    }
}

void client_withheld_drop(struct client_withheld *withheld)
{
    withheld->client->withheld--;
    withheld->client = NULL;
    withheld->run = NULL;
    clear_text(withheld);
    if (!withheld->is_told || withheld->is_given) {
        free(withheld);
    }
}

void client_withheld_let_go(struct run *run)
{
    if (withheld_of(run) != NULL) {
        chain_withhold(run->policy_record, NULL);
    }
}

static struct slice text_for(const struct client_withheld *withheld, struct slice given)
{
    if (given.data == NULL) {
        return (struct slice){buffer_head(&withheld->text), buffer_length(&withheld->text)};
    }
    if (given.length > 0) {
        return given;
    }
    return withheld->resp == 3 ? slice_of("_\r\n") : slice_of("$-1\r\n");
}

void client_give_reply(void *context, void *to_give, struct slice given)
{
    struct client_withheld *withheld = to_give;
    struct run *run = withheld->run;

    (void)context;
    withheld->is_given = true;
    if (run == NULL) {
        free(withheld);
        return;
    }
    struct client *client = run->owner;
    struct slice text = text_for(withheld, given);
    if (text.length > 0 && !client_add_text(client, run, text.data, text.length)) {
        client_close(client, "out of memory");
        return;
    }
    clear_text(withheld);
    if (!withheld->is_kept) {
        /* Within on_reply(): it goes out when the lane is done with it. */
        return;
    }
    run->requests--;
    client->in_flight--;
    if (!client_is_within_push(client)) {
        client_push_ended(client);
    }
    client_want_flush(client);
}
