/* Admin queries to policies from the admin port, and those of them that wait for an answer. */
#include "client/client_host_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One that a policy has not answered yet. It is the policy's until it answers, or is stopped. */
struct admin_query {
    LIST_ENTRY(admin_query) of_service;
    client_answered *answered; /* NULL: who asked was told that there is no answer, and a later one is dropped */
    void *context;
    int64_t until_us;
};

/* Tells who asked, unless that was done before. */
static void admin_query_tell(struct admin_query *admin_query, enum policy_answer kind, struct slice text)
{
    client_answered *answered = admin_query->answered;

    admin_query->answered = NULL;
    if (answered != NULL) {
        answered(admin_query->context, kind, text);
    }
}

/* Puts the admin query to a verb that answers at once. */
static void run_verb(struct client_service *service, const struct client_admin_query *admin_query)
{
    struct text_stream text;

    if (!text_open(&text)) {
        admin_query->answered(admin_query->context, POLICY_ANSWER_ERROR, slice_of("out of memory"));
        return;
    }
    enum policy_answer kind = chain_run_verb(service->chain, admin_query->policy, admin_query->verb, admin_query->count,
                                             admin_query->arguments, text.out);
    bool is_whole = text_close(&text);
    admin_query->answered(admin_query->context, is_whole ? kind : POLICY_ANSWER_ERROR,
                          is_whole ? (struct slice){text.bytes, text.length} : slice_of("out of memory"));
    text_free(&text);
}

static void ask_verb(struct client_service *service, const struct client_admin_query *asked)
{
    struct admin_query *admin_query = calloc(1, sizeof *admin_query);

    if (admin_query == NULL) {
        asked->answered(asked->context, POLICY_ANSWER_ERROR, slice_of("out of memory"));
        return;
    }
    admin_query->answered = asked->answered;
    admin_query->context = asked->context;
    admin_query->until_us = reactor_now(service->reactor) + clock_ms_to_us(POLICY_ANSWER_PATIENCE_MS);
    LIST_INSERT_HEAD(&service->admin_queries, admin_query, of_service);
    chain_ask_verb(service->chain, asked->policy, asked->verb, admin_query, asked->count, asked->arguments);
}

void client_service_ask_policy(struct client_service *service, const struct client_admin_query *admin_query)
{
    (admin_query->verb->ask != NULL ? ask_verb : run_verb)(service, admin_query);
}

void client_admin_query_answer(struct admin_query *admin_query, enum policy_answer kind, struct slice text)
{
    LIST_REMOVE(admin_query, of_service);
    admin_query_tell(admin_query, kind, text);
    free(admin_query);
}

void client_admin_queries_tick(struct client_service *service, int64_t now_us)
{
    for (struct admin_query *admin_query = LIST_FIRST(&service->admin_queries); admin_query != NULL;
         admin_query = LIST_NEXT(admin_query, of_service)) {
        if (admin_query->until_us <= now_us) {
            admin_query_tell(admin_query, POLICY_ANSWER_ERROR, slice_of("there was no answer in time"));
        }
    }
}

void client_admin_queries_end(struct client_service *service)
{
    while (!LIST_EMPTY(&service->admin_queries)) {
        client_admin_query_answer(LIST_FIRST(&service->admin_queries), POLICY_ANSWER_ERROR,
                                  slice_of("the process is ending"));
    }
}
