/*
 * DRAIN: out of service, and still there. No new clients are taken, and each of the others is closed when nothing of it
 * is under way, as at the end of the process; but that does not end, waits for as long as clients have something under
 * way, and can be asked how many there are. SHUTDOWN ends it.
 */
#include "admin/admin_gathering.h"

#include <inttypes.h>
#include <stdio.h>

/* Rounds with a worker after which it has closed who had nothing under way: it is told of the drain in the first, and
 * closes them at the end of that loop iteration. */
#define ROUNDS 2

static void pass_round(struct admin_gathering *gathering, struct worker *worker)
{
    (void)worker;
    gathering->after++;
    gathering->more = gathering->after < ROUNDS;
}

static void finish_drain(struct admin_gathering *gathering)
{
    char text[32];
    int length = snprintf(text, sizeof text, ":%zu\r\n", servers_clients(gathering->session->admin->servers));

    admin_reply_bytes(gathering->session, text, (size_t)length);
}

void admin_run_drain(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct servers *servers = session->admin->servers;
    const struct admin_host *host = &session->admin->host;
    struct admin_gathering *gathering = admin_gathering_new(session, pass_round, finish_drain);

    (void)count;
    (void)arguments;
    if (gathering == NULL) {
        return;
    }
    if (!servers->is_draining) {
        log_info("admin", "DRAIN was asked for on the admin port by %s: no new clients, until the process has ended",
                 session->address_text);
        host->drain(host->context);
    }
    admin_gathering_start(gathering);
}
