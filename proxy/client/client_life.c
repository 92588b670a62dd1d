/* How a client ends: it finishes, ends or is closed; and who it is until then. */
#include "client/client_cluster_private.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

bool client_keep_text(struct client *client, char **place, struct slice text)
{
    struct buffer_pool *buffers = &client->service->reactor->buffers;
    char *copy = NULL;

    if (text.length > 0) {
        copy = strndup(text.data, text.length);
        if (copy == NULL) {
            return false;
        }
    }
    buffer_pool_uncount(buffers, *place != NULL ? strlen(*place) : 0);
    buffer_pool_count(buffers, copy != NULL ? strlen(copy) : 0);
    free(*place);
    *place = copy;
    return true;
}

/* ---- expected replies ---- */

struct expected_reply *expected_reply_take(struct client_service *service, enum expected_reply_kind kind)
{
    struct expected_reply *expected = service->free_expected_replies;

    if (expected != NULL) {
        service->free_expected_replies = expected->next_free;
    } else {
        expected = malloc(sizeof *expected);
    }
    if (expected != NULL) {
        *expected = (struct expected_reply){.kind = kind, .database = -1};
    }
    return expected;
}

void expected_reply_give(struct client_service *service, struct expected_reply *expected)
{
    free(expected->user);
    if (expected->password != NULL) {
        explicit_bzero(expected->password, strlen(expected->password));
        free(expected->password);
    }
    free(expected->name);
    expected->next_free = service->free_expected_replies;
    service->free_expected_replies = expected;
}

size_t expected_reply_size(const struct expected_reply *expected)
{
    const char *const texts[] = {expected->user, expected->password, expected->name};
    size_t size = sizeof *expected;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        size += texts[i] != NULL ? strlen(texts[i]) : 0;
    }
    return size;
}

void expected_reply_trim(struct client_service *service)
{
    while (service->free_expected_replies != NULL) {
        struct expected_reply *expected = service->free_expected_replies;
        service->free_expected_replies = expected->next_free;
        free(expected);
    }
}

/* ---- closing ---- */

void client_tell_identity(struct client *client)
{
    client->identity++;
    client_find_identity(client);
    struct policy_client view = client_policy_view(client);
    chain_client(client->service->chain, &view);
}

bool client_rename(struct client *client, struct slice name)
{
    bool kept =
        client_keep_text(client, &client->name, name) && (client->subscriber == NULL || client_subscriber_name(client));

    client_tell_identity(client);
    return kept;
}

void client_pass_over(struct client *client, const char *data, size_t length)
{
    size_t taken;

    if (client->streaming && length > 0 &&
        resp_command_feed(&client->command, data, length, client->service->settings.max_request, &taken) != RESP_MORE) {
        resp_command_reset(&client->command);
    }
}

/* What waits in the input is not taken any more. */
static void drop_input(struct client *client)
{
    client_stop_hold_timer(client);
    client_end_record(client, POLICY_OUTCOME_OWNERLESS);
    lane_waiter_cancel(&client->lane_waiter);
    client_pass_over(client, buffer_head(&client->input), buffer_length(&client->input));
    buffer_clear(&client->service->reactor->buffers, &client->input);
    buffer_clear(&client->service->reactor->buffers, &client->arrivals);
}

/* Lets go of everything that is under way. */
static void abandon_requests(struct client *client)
{
    drop_input(client);
    if (client->streaming && !client->discarding && client->exclusive != NULL) {
        client->exclusive->dirty = true;
    }
    client_drop_runs(client);
    if (client->exclusive != NULL) {
        session_leave_lane(client);
    }
    client_subscriber_end(client);
}

void client_finish(struct client *client)
{
    if (client->state == CLIENT_OPEN) {
        client->state = CLIENT_ENDING;
        client->wait_since_us = reactor_now(client->service->reactor);
        drop_input(client);
        client_want_flush(client);
        client_update_reading(client);
    }
}

void client_finish_presuming(struct client *client)
{
    if (client->state == CLIENT_OPEN) {
        stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_LOST, 1);
        client_finish(client);
    }
}

struct log_subject client_log_subject(const struct client *client)
{
    return (struct log_subject){
        .client = client->address_text,
        .client_id = client->id,
        .name = client->name,
        .user = profile_user(client->profile),
        .identity = client_identity_name(client),
        .lane = client->exclusive != NULL ? client->exclusive->id : 0,
    };
}

void client_end(struct client *client, const char *why)
{
    if (client->state == CLIENT_CLOSED) {
        return;
    }
    client_log(client, LOG_LEVEL_DEBUG, "ending client %s: %s", client->address_text, why);
    abandon_requests(client);
    client_finish(client);
    client_want_flush(client);
}

void client_close_refused(struct client *client)
{
    client_log(client, LOG_LEVEL_INFO, "closing client %s: Redis does not take the password of user %s any more",
               client->address_text, profile_user(client->profile));
    stats_add(client->service->reactor->stats, STATS_CLIENTS_CLOSED_LOST, 1);
    client_end(client, "its password is refused");
}

static void list_remove(struct client_service *service, struct client *client)
{
    LIST_REMOVE(client, of_service);
    service->count--;
    stats_set(service->reactor->stats, STATS_CLIENTS_CONNECTED, service->count);
}

void client_close(struct client *client, const char *why)
{
    struct client_service *service = client->service;
    struct reactor *reactor = service->reactor;

    if (client->state == CLIENT_CLOSED) {
        return;
    }
    client_log(client, LOG_LEVEL_DEBUG, "closed client %s: %s", client->address_text, why);
    abandon_requests(client);
    client->state = CLIENT_CLOSED;
    client_measure_written(client, false);
    struct policy_client view = client_policy_view(client);
    chain_client_closed(service->chain, &view);
    client_end_tls(client);
    connection_close(&client->connection);
    reactor_cancel(reactor, client->late_us != 0 ? REACTOR_STAGE_LATE : REACTOR_STAGE_CLIENTS, &client->flush);
    buffer_clear(&reactor->buffers, &client->output);
    client->borrowed_length = 0;
    profile_part(client->profile);
    /* Who has just been told that memory is short may still look at it. */
    client->profile = upstream_default_profile(service->upstream);
    list_remove(service, client);
    LIST_INSERT_HEAD(&service->closed, client, of_service);
    reactor_at_turn_end(reactor, REACTOR_STAGE_FREE, &service->free_closed);
}

bool client_out_of_memory(struct client *client)
{
    client_close(client, "out of memory");
    return false;
}

/* ---- connections that were reset ---- */

/* Whether something of what it sent is still to be done, and will be soon, as far as it depends on Headgate. */
static bool has_more_to_run(const struct client *client)
{
    bool may_have = client->first != NULL || buffer_length(&client->input) > 0 ||
                    (client->state == CLIENT_OPEN && !client->input_ended);

    return may_have && !client->streaming && !session_may_block(client) && client->session.login_us == 0 &&
           client->wait != CLIENT_WAIT_POLICY;
}

void client_was_reset(struct client *client, const char *why)
{
    if (client->deaf) {
        return;
    }
    client->deaf = true;
    if (!has_more_to_run(client)) {
        client_close(client, why);
        return;
    }
    client->deaf_us = reactor_now(client->service->reactor);
    buffer_clear(&client->service->reactor->buffers, &client->output);
    client->borrowed_length = 0;
    client_want_flush(client);
}
