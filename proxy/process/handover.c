#include "process/handover_private.h"

#include "base/log.h"

#include <stdlib.h>

bool handover_open(struct handover *handover, const struct handover_host *host, struct reactor *reactor,
                   struct servers *servers, struct port_list *ports, struct supervisor *supervisor)
{
    handover->host = *host;
    handover->reactor = reactor;
    handover->servers = servers;
    handover->ports = ports;
    handover->supervisor = supervisor;
    handover->is_open =
        handover_share_open(&handover->share, reactor, servers, &handover->predecessor, &handover->successor);
    if (!handover->is_open) {
        log_error("main", "out of memory");
    }
    return handover->is_open;
}

bool handover_has_predecessor(const struct handover *handover)
{
    return handover_line_is_open(&handover->predecessor);
}

bool handover_is_given(const struct handover *handover)
{
    return handover->phase == HANDOVER_GIVEN;
}

bool handover_is_guard(const struct handover *handover)
{
    return handover->is_guard;
}

bool handover_is_told(const struct handover *handover)
{
    return handover->supervisor->said == NULL &&
           (!handover_line_is_open(&handover->successor) || !handover_share_is_busy(&handover->share));
}

void handover_pass_on(struct handover *handover, const char *order)
{
    (void)handover_line_send(&handover->predecessor, order, (struct slice){"", 0}, -1);
}

/* How long the last words may take. ms. */
#define GOODBYE_PATIENCE_MS 1000

void handover_say_goodbye(struct handover *handover)
{
    handover_abandon(handover, "the process ends");
    if (handover->is_open && handover_line_is_open(&handover->successor)) {
        handover_share_say_all(&handover->share, GOODBYE_PATIENCE_MS);
    }
    handover_line_flush(&handover->predecessor, GOODBYE_PATIENCE_MS);
}

void handover_close(struct handover *handover)
{
    if (handover->is_open) {
        handover_share_close(&handover->share);
    }
    /* Its number may soon be another descriptor's. */
    log_copy_errors(-1, "");
    handover_line_close(&handover->predecessor);
    handover_line_close(&handover->successor);
    free(handover->taken);
    free(handover->faults);
}
