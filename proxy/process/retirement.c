#include "process/retirement.h"

#include "base/log.h"

/* How often it is looked whether it is time. */
#define CHECK_US 50000
/* How long there have to be no clients until the end: what is new of the last ones is told by then. */
#define QUIET_US ((int64_t)500000)

/* How long a new process may yet crash in its first moments, and this one is there to serve again. */
#define PROBATION_US ((int64_t)5000000)

/* The process before this one speaks to the new one by way of this one. */
static bool is_needed(const struct retirement *retirement)
{
    return servers_clients(retirement->servers) > 0 || handover_has_predecessor(retirement->handover);
}

static bool is_on_probation(const struct retirement *retirement, int64_t now_us)
{
    return handover_is_guard(retirement->handover) && now_us < retirement->proven_us;
}

/* Clients that were told sooner would be lost with a new process that crashes at once. */
static void offer_move(struct retirement *retirement, int64_t now_us)
{
    if (!retirement->has_offered && now_us >= retirement->proven_us) {
        retirement->has_offered = true;
        servers_offer_move(retirement->servers);
    }
}

static void check(evutil_socket_t fd, short what, void *context)
{
    struct retirement *retirement = context;
    int64_t now_us = clock_now_us();
    bool is_wanted = is_needed(retirement), is_over = retirement->until_us != 0 && now_us >= retirement->until_us;

    (void)fd;
    (void)what;
    offer_move(retirement, now_us);
    retirement->quiet_us = is_wanted ? 0 : retirement->quiet_us > 0 ? retirement->quiet_us : now_us;
    if (is_over && is_wanted) {
        log_warning("main", "upgrade_clients_timeout is over: the clients that are left are drained");
    }
    bool is_quiet = !is_wanted && now_us - retirement->quiet_us >= QUIET_US;
    bool may_go = handover_is_told(retirement->handover) && !is_on_probation(retirement, now_us);
    if (is_over || (is_quiet && may_go)) {
        event_del(&retirement->timer);
        retirement->drain(retirement->context);
    }
}

bool retirement_begin(struct retirement *retirement, struct reactor *reactor, struct servers *servers,
                      const struct handover *handover, int64_t patience_ms, void (*drain)(void *context), void *context)
{
    const struct timeval interval = {.tv_usec = CHECK_US};

    *retirement = (struct retirement){.servers = servers, .handover = handover, .drain = drain, .context = context};
    retirement->until_us = patience_ms > 0 ? clock_now_us() + clock_ms_to_us(patience_ms) : 0;
    event_assign(&retirement->timer, reactor->base, -1, EV_PERSIST, check, retirement);
    retirement->proven_us = clock_now_us() + PROBATION_US;
    return event_add(&retirement->timer, &interval) == 0;
}

void retirement_end(struct retirement *retirement)
{
    event_del(&retirement->timer);
}
