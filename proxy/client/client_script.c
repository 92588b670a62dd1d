/* Scripts that policies have run in Redis, and what they are shown of the replies. */
#include "client/client_host_private.h"

#include <assert.h>
#include <stdlib.h>

/* Elements that are shown without taking memory: what most scripts reply is a few integers. */
#define ELEMENTS_FEW 16

/* A script under way. */
struct script_call {
    policy_script_done *done;
    void *context;
    const struct control *control;
};

static void fail(const struct script_call *call, const char *why)
{
    const struct policy_script_reply shown = {.error = why};

    call->done(call->context, &shown);
}

/* False: it is neither an integer nor a text nor nil. */
static bool read_element(const redisReply *element, int64_t *integer, struct slice *text)
{
    *integer = element->type == REDIS_REPLY_INTEGER ? element->integer : 0;
    *text = (struct slice){0};
    if (element->type == REDIS_REPLY_STRING || element->type == REDIS_REPLY_STATUS) {
        *text = (struct slice){element->str, element->len};
    }
    return text->data != NULL || element->type == REDIS_REPLY_INTEGER || element->type == REDIS_REPLY_NIL;
}

/* The elements of a reply: those of an array, or the one that it is. */
struct elements {
    const redisReply *const *list;
    size_t count;
};

/* integers, texts: with room for all elements. */
static void show(const struct script_call *call, struct elements elements, int64_t *integers, struct slice *texts)
{
    struct policy_script_reply shown = {.integers = integers, .texts = texts, .count = elements.count};

    for (size_t i = 0; i < elements.count; i++) {
        if (!read_element(elements.list[i], &integers[i], &texts[i])) {
            fail(call, "the script's reply is neither integers nor texts");
            return;
        }
    }
    shown.since_us = control_answered_since(call->control);
    call->done(call->context, &shown);
}

static void show_few(const struct script_call *call, struct elements elements)
{
    int64_t integers[ELEMENTS_FEW];
    struct slice texts[ELEMENTS_FEW];

    show(call, elements, integers, texts);
}

static void show_many(const struct script_call *call, struct elements elements)
{
    int64_t *integers = calloc(elements.count, sizeof *integers);
    struct slice *texts = calloc(elements.count, sizeof *texts);

    if (integers != NULL && texts != NULL) {
        show(call, elements, integers, texts);
    } else {
        fail(call, "out of memory");
    }
    free(integers);
    free(texts);
}

static void show_reply(const struct script_call *call, const redisReply *reply)
{
    struct elements elements = {&reply, 1};

    if (reply->type == REDIS_REPLY_ARRAY) {
        elements = (struct elements){(const redisReply *const *)reply->element, reply->elements};
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        fail(call, reply->str);
    } else if (elements.count > POLICY_SCRIPT_ELEMENTS_MAX) {
        fail(call, "the script's reply has too many elements");
    } else {
        (elements.count <= ELEMENTS_FEW ? show_few : show_many)(call, elements);
    }
}

static void script_ended(void *context, const redisReply *reply, const char *why)
{
    struct script_call call = *(struct script_call *)context;

    free(context);
    if (reply == NULL) {
        fail(&call, why);
    } else {
        show_reply(&call, reply);
    }
}

void client_script_run(struct client_service *service, const struct policy_script *script)
{
    const char *arguments[POLICY_SCRIPT_ARGUMENTS_MAX];
    size_t lengths[POLICY_SCRIPT_ARGUMENTS_MAX];
    const char *why = "out of memory";
    struct control *control = script->server == NULL ? service->control : client_server_control(script->server, &why);
    const struct script_call asked = {.done = script->done, .context = script->context, .control = control};
    struct script_call *call = control != NULL ? malloc(sizeof *call) : NULL;

    assert(script->argument_count <= POLICY_SCRIPT_ARGUMENTS_MAX);
    if (call == NULL) {
        fail(&asked, why);
        return;
    }
    *call = asked;
    for (size_t i = 0; i < script->argument_count; i++) {
        arguments[i] = script->arguments[i].data;
        lengths[i] = script->arguments[i].length;
    }
    control_script(control, script->database, script->script, script->is_sent_whole, (int)script->key_count,
                   (int)script->argument_count, arguments, lengths, script_ended, call);
}
