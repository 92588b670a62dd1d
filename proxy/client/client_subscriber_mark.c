/*
 * The end of what SUNSUBSCRIBE is answered by.
 *
 * What a node drops of shard channels looks the same as confirmations. If all that a request has asked for is dropped
 * before Redis has looked at the request, that is answered, and Redis' own answer, MOVED, is still to come: it must not
 * be taken for that to another request. So something is said behind each SUNSUBSCRIBE, and until that is answered
 * nothing else about shard channels.
 */
#include "client/client_subscriber_private.h"

static void on_mark_bytes(struct run *run, const char *data, size_t length)
{
    (void)run;
    (void)data;
    (void)length;
}

/* An error before it is that to the SUNSUBSCRIBE: MOVED. */
static bool on_mark_reply(struct run *run, const struct resp_reply *reply)
{
    if (reply->type == '>') {
        (void)client_subscriber_owner.frame(run->owner, reply);
    }
    return reply->type == '%';
}

static void end_mark(struct run *run)
{
    struct subscriber_lane *at = run->owner;

    run_give(at->subscriber->client->service->runs, run);
    at->is_marked = false;
    client_subscriber_tend_soon(at->subscriber);
    client_want_flush(at->subscriber->client);
}

static void on_mark_lost(struct run *run, enum run_loss loss, const char *why)
{
    (void)loss;
    (void)why;
    end_mark(run);
}

static const struct run_receiver mark_receiver = {
    .bytes = on_mark_bytes,
    .reply = on_mark_reply,
    .answered = end_mark,
    .lost = on_mark_lost,
};

bool client_subscriber_mark(struct subscriber_lane *at)
{
    /* Any user may say it, and it changes nothing. */
    static const char hello[] = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n";
    struct run *run = run_take(at->lane->runs);

    if (run == NULL) {
        return false;
    }
    run->receiver = &mark_receiver;
    run->owner = at;
    run->expected = at;
    run->requests = 1;
    if (!lane_send(at->lane, run, hello, sizeof hello - 1)) {
        run_give(at->lane->runs, run);
        return false;
    }
    at->is_marked = true;
    return true;
}
