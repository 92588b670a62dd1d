/* The observers of a chain: who measures requests, and who is told what happens. */
#include "policy/chain_private.h"

/* ---- measuring ---- */

void chain_find_measurer(struct chain *chain)
{
    for (size_t n = 0; n < chain->observer_count; n++) {
        if (chain->observers[n].hooks->tag != NULL) {
            assert(chain->measurer == NULL);
            chain->measurer = &chain->observers[n];
        }
    }
}

uint32_t chain_tag(const struct chain *chain, const struct command *command)
{
    const struct chain_observer *measurer = chain->measurer;

    return measurer != NULL ? measurer->hooks->tag(measurer->instance, command) : POLICY_TAG_NONE;
}

static struct policy_attention ask_attention(const struct chain *chain)
{
    if (!chain->measures || chain->measurer->hooks->attends == NULL) {
        return (struct policy_attention){.us = INT64_MAX, .bytes = UINT64_MAX};
    }
    return chain->measurer->hooks->attends(chain->measurer->instance);
}

bool chain_measures(const struct chain *chain)
{
    return chain->measures;
}

const struct policy_attention *chain_attention(const struct chain *chain)
{
    return &chain->attention;
}

static void attach(const struct chain_observer *observer, struct policy_request *request)
{
    request->attachment = &request->client->attachments[observer->place];
}

uint32_t chain_measure(struct chain *chain, struct policy_request *request)
{
    const struct chain_observer *measurer = chain->measurer;

    if (measurer->hooks->measure == NULL) {
        return POLICY_TAG_NONE;
    }
    attach(measurer, request);
    return measurer->hooks->measure(measurer->instance, request);
}

bool chain_sample(struct chain *chain, const struct policy_sample *sample)
{
    const struct chain_observer *measurer = chain->measurer;

    return measurer->hooks->on_sample(measurer->instance, sample) && measurer->hooks->on_written != NULL;
}

void chain_written(struct chain *chain, const struct policy_sample *sample)
{
    chain->measurer->hooks->on_written(chain->measurer->instance, sample);
}

void chain_spot(struct chain *chain, struct policy_request *request)
{
    const struct chain_observer *measurer = chain->measurer;

    if (measurer->hooks->on_spot != NULL) {
        attach(measurer, request);
        measurer->hooks->on_spot(measurer->instance, request);
    }
}

bool chain_tell_durations(struct chain *chain, uint32_t *at, policy_durations_told *told, void *context)
{
    const struct chain_observer *measurer = chain->measurer;

    return measurer != NULL && measurer->hooks->tell_durations != NULL &&
           measurer->hooks->tell_durations(measurer->instance, at, told, context);
}

/* ---- what happens ---- */

static uint32_t find_listeners(const struct chain *chain)
{
    uint32_t listeners = 0;

    for (size_t n = 0; n < chain->observer_count; n++) {
        const struct chain_observer *observer = &chain->observers[n];
        bool listens = observer->hooks->listens != NULL && observer->hooks->listens(observer->instance);
        listeners |= (uint32_t)listens << n;
    }
    return listeners;
}

void chain_ask_observers(struct chain *chain)
{
    chain->listeners = find_listeners(chain);
    chain->attention = ask_attention(chain);
}

bool chain_listens(const struct chain *chain)
{
    return chain->listeners != 0;
}

void chain_happened(struct chain *chain, const struct policy_event *event)
{
    for (uint32_t left = chain->listeners; left != 0; left &= left - 1) {
        const struct chain_observer *observer = &chain->observers[__builtin_ctz(left)];
        observer->hooks->on_event(observer->instance, event);
    }
}
