#include "upstream/control_keys.h"

#include "upstream/control_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So long a user who may not ask is not asked for again. */
#define DENIED_US ((int64_t)60 * 1000000)

struct question {
    struct control *control;
    struct profile *asking; /* whose user asks now; referenced */
    struct profile *client; /* who asks next; referenced; NULL: nobody */
    control_keys_callback *answered;
    void *context;
    size_t length;
    char text[]; /* the question */
};

static void end(struct question *question, const redisReply *keys, bool none)
{
    question->control->asked_bytes -= question->length;
    question->answered(question->context, keys, none);
    profile_release(question->asking);
    if (question->client != NULL) {
        profile_release(question->client);
    }
    free(question);
}

static bool may_ask(const struct question *question)
{
    const struct profile *profile = question->asking;
    int64_t since_us = profile->no_key_questions_us;

    return !profile->needs_password &&
           (since_us == 0 || reactor_now(question->control->reactor) - since_us >= DENIED_US);
}

static void ask(struct question *question);

/* The next one asks, or it stays unsaid. */
static void go_on(struct question *question)
{
    struct profile *next = question->client;

    if (next == NULL) {
        end(question, NULL, false);
        return;
    }
    profile_release(question->asking);
    question->asking = next;
    question->client = NULL;
    ask(question);
}

/* What COMMAND GETKEYS says of requests without keys, and of those that are refused in any case. */
static bool says_none(const redisReply *error)
{
    static const char *const texts[] = {"ERR The command has no key arguments", "ERR Invalid arguments specified",
                                        "ERR Invalid number of arguments", "ERR Invalid command specified"};
    bool says = false;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        says = says || strncmp(error->str, texts[i], strlen(texts[i])) == 0;
    }
    return says;
}

static void on_reply(void *context, const redisReply *reply, const char *why)
{
    struct question *question = context;
    bool is_error = reply != NULL && reply->type == REDIS_REPLY_ERROR;

    (void)why;
    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY) {
        end(question, reply, reply->elements == 0);
    } else if (is_error && says_none(reply)) {
        end(question, NULL, true);
    } else if (is_error && strncmp(reply->str, "NOPERM", 6) == 0) {
        question->asking->no_key_questions_us = reactor_now(question->control->reactor);
        go_on(question);
    } else {
        end(question, NULL, false);
    }
}

static void ask(struct question *question)
{
    if (may_ask(question)) {
        control_send_as(question->control, question->asking, (struct slice){question->text, question->length}, on_reply,
                        question);
    } else {
        go_on(question);
    }
}

/* Writes the request behind COMMAND GETKEYS. */
static size_t write_question(struct slice request, char *text, size_t size)
{
    const char *arguments = (const char *)memchr(request.data, '\n', request.length) + 1;
    size_t length = request.length - (size_t)(arguments - request.data);
    int head = snprintf(text, size, "*%llu\r\n$7\r\nCOMMAND\r\n$7\r\nGETKEYS\r\n",
                        (unsigned long long)resp_walk_start(request).left + 2);

    memcpy(text + head, arguments, length);
    return (size_t)head + length;
}

void control_ask_keys(struct control *control, struct profile *profile, struct slice request,
                      control_keys_callback *answered, void *context)
{
    size_t size = request.length + 64;
    bool has_room = control->asked_bytes + size <= CONTROL_KEYS_UNDER_WAY_MAX;
    struct question *question = has_room ? malloc(sizeof *question + size) : NULL;

    if (question == NULL) {
        answered(context, NULL, false);
        return;
    }
    *question = (struct question){.control = control,
                                  .asking = upstream_default_profile(profile->upstream),
                                  .client = profile_reference(profile),
                                  .answered = answered,
                                  .context = context};
    question->length = write_question(request, question->text, size);
    control->asked_bytes += question->length;
    ask(question);
}
