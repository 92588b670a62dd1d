/* Who hears of the replies where there is a cluster: as client_reply.c, and some more. */
#include "client/client_cluster_private.h"

static void on_cluster_answered(struct run *run)
{
    struct client *client = run->owner;

    client_redirect_ended(client, run);
    client_reads_answered(client);
    if (client->subscriber != NULL) {
        /* Behind this reply, and before the next one begins. */
        client_subscriber_deliver(client);
    }
    client_run_answered(run);
    client_redirect_check(client);
}

static void on_cluster_lost(struct run *run, enum run_loss loss, const char *why)
{
    struct client *client = run->owner;

    client_redirect_ended(client, run);
    client_run_lost(run, loss, why);
    client_redirect_check(client);
}

const struct run_receiver client_cluster_receiver = {
    .bytes = client_run_bytes,
    .reply = client_run_reply,
    .tally = client_run_tally,
    .measured = client_run_measured,
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
    .reply = client_run_reply,
    .tally = client_run_tally,
    .measured = client_run_measured,
    .answered = on_spread_answered,
    .lost = on_spread_lost,
    .redirected = client_redirected,
    .passed = client_passed,
    .returned = client_returned,
};
