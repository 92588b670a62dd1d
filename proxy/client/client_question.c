/* Questions to policies from the admin port, and those of them that wait for an answer. */
#include "client/client_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One that a policy has not answered yet. It is the policy's until it answers, or is stopped. */
struct policy_question {
    LIST_ENTRY(policy_question) of_service;
    client_answered *answered; /* NULL: who asked was told that there is no answer, and a later one is dropped */
    void *context;
    int64_t until_us;
};

/* Tells who asked, unless that was done before. */
static void question_tell(struct policy_question *question, enum policy_answer kind, struct slice text)
{
    client_answered *answered = question->answered;

    question->answered = NULL;
    if (answered != NULL) {
        answered(question->context, kind, text);
    }
}

/* Puts the question to a verb that answers at once. */
static void run_verb(struct client_service *service, const struct client_question *question)
{
    struct text_stream text;

    if (!text_open(&text)) {
        question->answered(question->context, POLICY_ANSWER_ERROR, slice_of("out of memory"));
        return;
    }
    enum policy_answer kind = chain_run_verb(service->chain, question->policy, question->verb, question->count,
                                             question->arguments, text.out);
    bool is_whole = text_close(&text);
    question->answered(question->context, is_whole ? kind : POLICY_ANSWER_ERROR,
                       is_whole ? (struct slice){text.bytes, text.length} : slice_of("out of memory"));
    text_free(&text);
}

static void ask_verb(struct client_service *service, const struct client_question *asked)
{
    struct policy_question *question = calloc(1, sizeof *question);

    if (question == NULL) {
        asked->answered(asked->context, POLICY_ANSWER_ERROR, slice_of("out of memory"));
        return;
    }
    question->answered = asked->answered;
    question->context = asked->context;
    question->until_us = reactor_now(service->reactor) + clock_ms_to_us(POLICY_ANSWER_PATIENCE_MS);
    LIST_INSERT_HEAD(&service->questions, question, of_service);
    chain_ask_verb(service->chain, asked->policy, asked->verb, question, asked->count, asked->arguments);
}

void client_service_ask_policy(struct client_service *service, const struct client_question *question)
{
    (question->verb->ask != NULL ? ask_verb : run_verb)(service, question);
}

void client_question_answer(struct policy_question *question, enum policy_answer kind, struct slice text)
{
    LIST_REMOVE(question, of_service);
    question_tell(question, kind, text);
    free(question);
}

void client_questions_tick(struct client_service *service, int64_t now_us)
{
    for (struct policy_question *question = LIST_FIRST(&service->questions); question != NULL;
         question = LIST_NEXT(question, of_service)) {
        if (question->until_us <= now_us) {
            question_tell(question, POLICY_ANSWER_ERROR, slice_of("there was no answer in time"));
        }
    }
}

void client_questions_end(struct client_service *service)
{
    while (!LIST_EMPTY(&service->questions)) {
        client_question_answer(LIST_FIRST(&service->questions), POLICY_ANSWER_ERROR, slice_of("the process is ending"));
    }
}
