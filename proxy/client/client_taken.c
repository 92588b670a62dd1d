/* Runs that are taken out of others, as a node has sent their request elsewhere. */
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
    run->kept = (uint32_t)sizeof *run;
    client_count_kept(client, run->kept);
}

/* A part of a run, for which nothing was counted yet but the run as a whole. */
static struct run *new_part(struct client *client, const struct run *run, uint32_t requests, struct run *near)
{
    struct run *part = run_take(client->service->runs);

    if (part != NULL) {
        part->receiver = run->receiver;
        part->owner = client;
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

    if (taken == NULL || !client_measure_taken(client, run, taken)) {
        client_out_of_memory(client);
        return NULL;
    }
    if (before != NULL) {
        before->answered = before->requests;
        before->text = run->text;
        run->text = (struct buffer){0};
        client_measure_answered(client, run, before);
    }
    taken->spread = run->spread;
    taken->part = run->part;
    run->spread = NULL;
    taken->expected = run->expected;
    taken->policy_record = run->policy_record;
    taken->may_block = run->may_block;
    uint32_t kept = taken->kept;
    taken->kept = run->kept;
    run->kept = kept;
    run->expected = NULL;
    run->policy_record = NULL;
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
    client_measure_lost(client, run, 1);
    run->reply_bytes = error.length;
    client_end_policies(client, run, POLICY_OUTCOME_REPLY, &reply);
    run->answered = 1;
    if (!client_add_text(client, run, error.data, error.length)) {
        client_close(client, "out of memory");
        return;
    }
    client_end_taken(client);
}
