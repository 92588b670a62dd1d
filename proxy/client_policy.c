/* What policies may ask of the worker that they run on. */
#include "client_private.h"

#include "log.h"

#include <stdlib.h>

/* Integers of a script's reply that a policy is shown. */
#define INTEGERS_MAX 16

static void resume(void *context, void *holder)
{
    (void)context;
    client_end_hold(holder);
}

/* A script under way. */
struct script_call {
    policy_script_done *done;
    void *context;
};

/* The integers of the reply. False: it holds something else. */
static bool read_integers(const redisReply *reply, int64_t integers[INTEGERS_MAX], size_t *count)
{
    bool is_array = reply->type == REDIS_REPLY_ARRAY;

    *count = is_array ? reply->elements : 1;
    if (*count > INTEGERS_MAX) {
        return false;
    }
    for (size_t i = 0; i < *count; i++) {
        const redisReply *element = is_array ? reply->element[i] : reply;
        if (element->type != REDIS_REPLY_INTEGER) {
            return false;
        }
        integers[i] = element->integer;
    }
    return true;
}

static void script_ended(void *context, const redisReply *reply, const char *why)
{
    struct script_call call = *(struct script_call *)context;
    struct policy_script_reply told = {.error = why};
    int64_t integers[INTEGERS_MAX];

    free(context);
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        told.error = reply->str;
    } else if (reply != NULL) {
        told.integers = integers;
        told.error = read_integers(reply, integers, &told.count) ? NULL : "Redis' reply is not what the script gives";
    }
    call.done(call.context, &told);
}

static void warn(void *context, const char *rule, const char *text)
{
    (void)context;
    log_warning("policy", "rule %s: %s", rule, text);
}

static int64_t wall_us(void *context)
{
    (void)context;
    return clock_wall_us();
}

static int64_t now_us(void *context)
{
    const struct client_service *service = context;

    return reactor_now(service->reactor);
}

static void run_script(void *context, const struct policy_script *script)
{
    struct client_service *service = context;
    const char *arguments[POLICY_SCRIPT_ARGUMENTS_MAX];
    size_t lengths[POLICY_SCRIPT_ARGUMENTS_MAX];
    struct script_call *call = malloc(sizeof *call);

    if (call == NULL) {
        const struct policy_script_reply told = {.error = "out of memory"};
        script->done(script->context, &told);
        return;
    }
    *call = (struct script_call){.done = script->done, .context = script->context};
    for (size_t i = 0; i < script->argument_count; i++) {
        arguments[i] = script->arguments[i].data;
        lengths[i] = script->arguments[i].length;
    }
    control_script(service->control, script->database, script->script, (int)script->key_count,
                   (int)script->argument_count, arguments, lengths, script_ended, call);
}

struct policy_host client_policy_host(struct client_service *service, size_t worker)
{
    return (struct policy_host){.resume = resume,
                                .run_script = run_script,
                                .warn = warn,
                                .now_us = now_us,
                                .wall_us = wall_us,
                                .context = service,
                                .worker = worker};
}
