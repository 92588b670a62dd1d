/* Which requests of a client are held, and in which order: that of the client. */
#include "client/client_redirect_private.h"

#include <stdlib.h>
#include <string.h>

/* So often one request is sent on at most. */
#define REDIRECTS_MAX 16

void client_redirect_free(struct held *held)
{
    if (held->question != NULL) {
        /* Its answer is for nobody. */
        held->question->receiver = NULL;
        held->question->owner = NULL;
    }
    free(held->error);
    free(held);
}

void client_redirect_forget(struct client *client)
{
    struct client_redirects *redirects = client->redirects;

    if (redirects == NULL) {
        return;
    }
    while (!TAILQ_EMPTY(&redirects->requests)) {
        struct held *held = TAILQ_FIRST(&redirects->requests);
        TAILQ_REMOVE(&redirects->requests, held, of_client);
        client_uncount_kept(client, held->request.length);
        client_redirect_free(held);
    }
    event_del(&redirects->timer);
    reactor_cancel(client->service->reactor, REACTOR_STAGE_CLIENTS, &redirects->task);
    client->redirects = NULL;
    free(redirects);
}

bool client_redirect_is_over(const struct client *client, const struct held *held)
{
    int64_t patience = clock_ms_to_us(client->service->settings.upstream_wait);

    return held != NULL &&
           (held->redirects >= REDIRECTS_MAX || reactor_now(client->service->reactor) - held->since_us >= patience);
}

void client_redirect_drop(struct client *client, struct held *held)
{
    struct client_redirects *redirects = client->redirects;
    struct held *next = TAILQ_NEXT(held, of_client);

    TAILQ_REMOVE(&redirects->requests, held, of_client);
    redirects->recent = redirects->recent != held ? redirects->recent : next;
    held->run->redirected = NULL;
    redirects->held -= held->is_held;
    client_uncount_kept(client, held->request.length);
    client_redirect_free(held);
    if (TAILQ_EMPTY(&redirects->requests)) {
        client_redirect_forget(client);
    }
}

void client_redirect_ended(struct client *client, const struct run *run)
{
    if (client->redirects != NULL && run->redirected != NULL) {
        client_redirect_drop(client, run->redirected);
    }
}

/* Whether it comes behind that one in the client's queue; *last is the last of the list that comes before it then. */
static bool is_behind(struct held *before, const struct held *held, struct held **last)
{
    struct held *next = TAILQ_NEXT(before, of_client);
    const struct run *run = before->run;

    for (*last = before; run != NULL && run != held->run; run = run->client_next) {
        if (next != NULL && run == next->run) {
            *last = next;
            next = TAILQ_NEXT(next, of_client);
        }
    }
    return run != NULL;
}

/* Those that are redirected for the first time come in the client's order but for several nodes. */
void client_redirect_insert(struct client *client, struct held *held)
{
    struct client_redirects *redirects = client->redirects;
    struct held *first = TAILQ_FIRST(&redirects->requests);
    struct held *before;

    client_count_kept(client, held->request.length);
    if ((redirects->recent != NULL && is_behind(redirects->recent, held, &before)) ||
        (first != NULL && is_behind(first, held, &before))) {
        TAILQ_INSERT_AFTER(&redirects->requests, before, held, of_client);
    } else {
        TAILQ_INSERT_HEAD(&redirects->requests, held, of_client);
    }
}

struct held *client_redirect_new(const struct client *client, struct slice request)
{
    struct held *held = malloc(sizeof *held + request.length);

    if (held == NULL) {
        return NULL;
    }
    *held = (struct held){.since_us = reactor_now(client->service->reactor)};
    memcpy(held->bytes, request.data, request.length);
    held->request = (struct slice){held->bytes, request.length};
    held->keys = client_keys_of(client_command_of(client->service, held->request), held->request);
    return held;
}
