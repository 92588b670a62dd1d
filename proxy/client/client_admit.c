/* Requests before the policies: what they are told of one, and what becomes of it when they do not pass it. */
#include "client/client_private.h"

#include "base/log.h"

/* ---- what they are told ---- */

/* The name, or what has come of it: a name can be long, too. */
static struct slice name_so_far(const struct resp_command *framed, struct slice frame)
{
    const struct resp_argument *name = &framed->arguments[0];
    uint64_t here = frame.length > name->offset ? frame.length - name->offset : 0;

    return (struct slice){frame.data + name->offset, (size_t)(name->length < here ? name->length : here)};
}

struct policy_request client_describe(struct client *client, const struct policy_client *view,
                                      const struct command *command, const struct resp_command *framed,
                                      struct slice frame)
{
    int64_t now = reactor_now(client->service->reactor);
    struct slice name = name_so_far(framed, frame);

    return (struct policy_request){
        .client = view,
        .command = command,
        .learned = command == NULL ? learn_find(client->service->learn, name) : NULL,
        .name = name,
        .frame = frame,
        .partial = resp_command_arguments_seen(framed) < framed->argument_count,
        .framed = framed,
        .in_transaction = client->session.sent_transaction,
        .argument_count = framed->argument_count,
        .received_us = now,
        .now_us = now,
        .holder = client,
    };
}

enum policy_verdict client_ask_policies(struct client *client, const struct command *command,
                                        const struct resp_command *framed, struct slice frame,
                                        struct policy_decision *decision)
{
    struct policy_client view = client_policy_view(client);
    struct policy_request request = client_describe(client, &view, command, framed, frame);

    client->ask_each -= client->ask_each > 0;
    client->admitted = false;
    enum policy_verdict verdict = chain_ask(client->service->chain, &request, decision, &client->held);
    client->admitted = verdict == POLICY_PASS;
    client->foreseen = 0;
    if (verdict == POLICY_WHOLE) {
        client->gathering = true;
        (void)resp_command_foresee(framed, &client->foreseen);
    }
    return verdict;
}

/* ---- what they decided ---- */

static bool needs_stand_in(const struct client *client)
{
    return client->exclusive != NULL && (client->session.sent_transaction || client->session.silent_next);
}

/*
 * Gives Redis a command that it cannot accept in place of the refused one, where the lack of one would be noticed: the
 * transaction that it would have been part of has to fail, and CLIENT REPLY SKIP has to find something to skip. The
 * client sees the refusal instead of Redis' complaint.
 */
static bool send_stand_in(struct client *client)
{
    static const char bad_arity[] = "*1\r\n$3\r\nGET\r\n";
    const struct session *session = &client->session;

    if (!needs_stand_in(client)) {
        return true;
    }
    if (session->silent || session->silent_next) {
        return lane_send_silent(client->exclusive, bad_arity, sizeof bad_arity - 1);
    }
    return upstream_send_hidden(client->exclusive, bad_arity, sizeof bad_arity - 1, false);
}

void client_end_record(struct client *client, enum policy_outcome outcome)
{
    struct policy_client view = client_policy_view(client);

    chain_end(client->service->chain, client->held, &view, outcome, (struct slice){0}, 0,
              reactor_now(client->service->reactor));
    client->held = NULL;
}

void client_refuse(struct client *client, const struct policy_decision *decision)
{
    bool silent = client->session.silent || client->session.silent_next;
    struct chain_record *record = client->held;

    client->held = NULL;
    if (client->session.tunnel) {
        client->held = record;
        client_end(client, "a policy refused a request where no answer has a place");
        return;
    }
    if (silent && needs_stand_in(client) && lane_is_congested(client->exclusive)) {
        /* No answer of its own waits here that would hold the client up. */
        client->held = record;
        client_end(client, "refused requests whose answers nobody wants wait for Redis");
        return;
    }
    if (!send_stand_in(client)) {
        client_out_of_memory(client);
        return;
    }
    client->session.silent_next = false;
    if (silent) {
        client->held = record;
        client_end_record(client, POLICY_OUTCOME_LOCAL);
    } else if (!client_answer(client, decision->text, decision->length, record)) {
        client_out_of_memory(client);
    }
}

/* False: the client was closed. */
static bool hold_until(struct client *client, int64_t until_us)
{
    int64_t delay = until_us - reactor_now(client->service->reactor);
    struct timeval wait = {0};

    if (delay > 0) {
        wait.tv_sec = delay / 1000000;
        wait.tv_usec = delay % 1000000;
    }
    client->wait = CLIENT_WAIT_POLICY;
    client->hold_timer_set = true;
    return event_add(&client->hold_timer, &wait) == 0 || client_out_of_memory(client);
}

enum client_outcome client_obey(struct client *client, enum policy_verdict verdict,
                                const struct policy_decision *decision)
{
    if (verdict == POLICY_HOLD && !hold_until(client, decision->hold_until_us)) {
        return CLIENT_TAKEN;
    }
    if (verdict == POLICY_HOLD || verdict == POLICY_WHOLE) {
        return CLIENT_WAITS;
    }
    if (verdict == POLICY_REPLY) {
        client_refuse(client, decision);
    } else {
        log_info("client", "a policy closes client %s: %.*s", client->address_text, (int)decision->length,
                 decision->text);
        client_end(client, "closed by a policy");
    }
    return CLIENT_TAKEN;
}

bool client_admit(struct client *client, const struct command *command, const struct resp_command *framed,
                  struct slice frame, enum client_outcome *outcome)
{
    struct policy_decision decision;

    if (client->admitted || chain_interest(client->service->chain, command)->wanted == 0) {
        return true;
    }
    enum policy_verdict verdict = client_ask_policies(client, command, framed, frame, &decision);
    if (verdict != POLICY_PASS) {
        *outcome = client_obey(client, verdict, &decision);
    }
    return verdict == POLICY_PASS;
}
