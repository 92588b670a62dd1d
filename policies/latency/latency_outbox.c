#include "latency/latency_outbox.h"

#include "latency/latency_private.h"

static void answered(void *context, const struct policy_script_reply *reply)
{
    struct latency_entry *entry = context;
    struct latency *latency = entry->latency;
    enum latency_flush_end end = latency_flush_ended(reply);
    bool is_lost = end == LATENCY_FLUSH_NEVER;

    latency->calls--;
    entry->is_under_way = false;
    entry->is_frozen = end == LATENCY_FLUSH_AGAIN;
    if (!entry->is_frozen && entry->kind->forget != NULL) {
        pthread_mutex_lock(&latency->share->lock);
        entry->kind->forget(latency, entry, is_lost);
        pthread_mutex_unlock(&latency->share->lock);
    }
    if (end != LATENCY_FLUSH_DONE) {
        latency_count(latency, LATENCY_COUNTER_FLUSH_FAILURES);
        latency_warn(latency, is_lost ? entry->kind->lost : entry->kind->trouble, latency_flush_problem(reply));
    }
}

/* Whether something is frozen now. The lock is held. */
static bool freeze(struct latency_entry *entry)
{
    if (!entry->is_frozen && entry->kind->freeze(entry)) {
        entry->is_frozen = true;
        entry->number++;
    }
    return entry->is_frozen;
}

bool latency_outbox_send(struct latency *latency, struct latency_entry *entry, const struct latency_entry_kind *kind)
{
    struct latency_call *call = &latency->call;

    if (entry->is_under_way) {
        return false;
    }
    entry->kind = kind;
    entry->latency = latency;
    pthread_mutex_lock(&latency->share->lock);
    bool is_frozen = freeze(entry), is_written = is_frozen && kind->write(latency, entry, call);
    pthread_mutex_unlock(&latency->share->lock);
    if (is_written) {
        entry->is_under_way = true;
        latency_run(latency, kind->script, call->arguments, call->argument_count, call->key_count, answered, entry);
    }
    return !is_frozen;
}
