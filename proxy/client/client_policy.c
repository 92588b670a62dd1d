/* What policies may ask of the worker that they run on, and what it tells them. */
#include "client/client_host_private.h"

#include "base/log.h"

#include <string.h>

static void happened(void *context, const struct policy_event *event)
{
    const struct client_service *service = context;

    chain_happened(service->chain, event);
}

static void resume(void *context, void *holder)
{
    (void)context;
    client_end_hold(holder);
}

static void reconsider(void *context)
{
    const struct client_service *service = context;

    chain_reconsider(service->chain);
}

static void warn(void *context, const char *rule, const char *text)
{
    (void)context;
    log_write_about(LOG_LEVEL_WARNING, &(const struct log_subject){.rule = rule}, "policy", "rule %s: %s", rule, text);
}

static void inform(void *context, const char *rule, const char *text)
{
    (void)context;
    log_write_about(LOG_LEVEL_INFO, &(const struct log_subject){.rule = rule}, "policy", "rule %s: %s", rule, text);
}

static int64_t wall_us(void *context)
{
    (void)context;
    return clock_wall_us();
}

static int64_t redis_us(void *context)
{
    const struct client_service *service = context;

    return server_info_redis_us(service->server_info);
}

static int64_t now_us(void *context)
{
    const struct client_service *service = context;

    return reactor_now(service->reactor);
}

static void run_script(void *context, const struct policy_script *script)
{
    client_script_run(context, script);
}

static struct policy_server *change_server(void *context, struct policy_server *server,
                                           const struct policy_server_settings *settings)
{
    return client_server_change(context, server, settings);
}

static void answer(void *context, struct admin_query *admin_query, enum policy_answer kind, struct slice text)
{
    (void)context;
    client_admin_query_answer(admin_query, kind, text);
}

struct policy_host client_policy_host(struct client_service *service, size_t worker)
{
    return (struct policy_host){.resume = resume,
                                .run_script = run_script,
                                .change_server = change_server,
                                .answer = answer,
                                .reconsider = reconsider,
                                .warn = warn,
                                .inform = inform,
                                .find_peer = client_find_peer,
                                .forget_peer = client_forget_peer,
                                .peer_lives = client_peer_lives,
                                .look_at_peer = client_look_at_peer,
                                .peer_has = client_peer_has,
                                .happened = happened,
                                .now_us = now_us,
                                .wall_us = wall_us,
                                .redis_us = redis_us,
                                .context = service,
                                .worker = worker,
                                .host_name = service->host_name,
                                .server_name = service->server_name,
                                .is_cluster = service->cluster != NULL};
}

void client_service_upstream_lost(struct client_service *service, const char *why, uint64_t requests)
{
    struct policy_event event = {
        .kind = POLICY_UPSTREAM_LOST,
        .count = 1,
        .source = service->settings.upstream_text,
        .what = why,
    };

    chain_happened(service->chain, &event);
    if (requests > 0) {
        event.kind = POLICY_REQUEST_LOST;
        event.count = requests;
        chain_happened(service->chain, &event);
    }
}

/* ---- requests ---- */

/* The name, or what has come of it: a name can be long, too. */
static struct slice name_so_far(const struct resp_command *framed, struct slice frame)
{
    const struct resp_argument *name = &framed->arguments[0];
    uint64_t here = frame.length > name->offset ? frame.length - name->offset : 0;

    return (struct slice){frame.data + name->offset, (size_t)(name->length < here ? name->length : here)};
}

struct policy_request client_describe(struct client *client, const struct policy_client *view,
                                      const struct request *asked)
{
    int64_t now = reactor_now(client->service->reactor);
    const struct resp_command *framed = asked->framed;
    struct slice name = name_so_far(framed, asked->frame);

    return (struct policy_request){
        .client = view,
        .command = asked->command,
        .learned = asked->command == NULL ? server_info_find(client->service->server_info, name) : NULL,
        .name = name,
        .frame = asked->frame,
        .partial = resp_command_arguments_seen(framed) < framed->argument_count,
        .framed = framed,
        .in_transaction = client->session.sent_transaction,
        .argument_count = framed->argument_count,
        .received_us = now,
        .now_us = now,
        .holder = client,
    };
}

void client_end_record(struct client *client, enum policy_outcome outcome)
{
    struct policy_client view = client_policy_view(client);

    chain_end(client->service->chain, client->held, &view, outcome, (struct slice){0}, 0,
              reactor_now(client->service->reactor));
    client->held = NULL;
}

struct policy_client client_policy_view(struct client *client)
{
    return (struct policy_client){
        .id = client->id,
        .address = &client->address,
        .address_text = client->address_text,
        .user = profile_user(client->profile),
        .name = client->name != NULL ? client->name : "",
        .database = client->session.database_unseen ? -1 : client->profile->database,
        .identity_name = client_identity_name(client),
        .identity = client->identity,
        .attachments = client->attachments,
        .connection = client,
        .is_broken = client->deaf || (client->input_ended && client->first != NULL),
        .active_us = client->active_us,
    };
}
