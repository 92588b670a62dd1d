#include "crosstalk_figures.h"

#include "crosstalk_workload.h"

#include <inttypes.h>
#include <stdio.h>

/* All figures are uint64_t, and nothing else is in the struct. */
void figures_add(struct figures *sum, const struct figures *figures)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)figures;
    for (size_t at = 0; at < sizeof *sum / sizeof *to; at++)
        to[at] += from[at];
}

static void line(const char *name, uint64_t value)
{
    printf("  %-34s %12" PRIu64 "\n", name, value);
}

void figures_print(const struct figures *figures, const struct chaos *chaos, double seconds)
{
    static const char *const endings[] = {"ended after an excused error",
                                          "ended when drained",
                                          "ended with replies outstanding",
                                          "ended within a command",
                                          "ended within a command by reset",
                                          "ended by half-close",
                                          "ended by QUIT"};
    line("requests", figures->requests);
    line("replies verified", figures->verified);
    line("pushes and messages verified", figures->pushes);
    line("pushed keys of attackers (excused)", figures->redirected);
    line("requests without reply", figures->silent);
    line("unanswered when closed", figures->unanswered);
    line("connections", figures->connections);
    line("resumed by TLS", figures->tls_resumed);
    for (size_t ending = 0; ending < sizeof endings / sizeof *endings; ending++)
        line(endings[ending], figures->endings[ending]);
    line("closed by the peer (excused)", figures->closed_by_peer);
    line("refused connections (excused)", figures->refused);
    line("errors: LOADING (excused)", figures->errors_loading);
    line("errors: no upstream (excused)", figures->errors_upstream);
    line("replies after loss of data", figures->resynced);
    line("message gaps (excused)", figures->gaps);
    line("chaos: CLIENT KILL TYPE normal", chaos->kills);
    line("chaos: CLIENT KILL TYPE pubsub", chaos->kills_sub);
    line("chaos: Redis stopped for 200 ms", chaos->stops);
    line("chaos: Redis killed and restarted", chaos->restarts);
    printf("  by kind:");
    for (unsigned unit = 0; workload_unit_name(unit) != NULL; unit++)
        printf(" %s %" PRIu64, workload_unit_name(unit), figures->units[unit]);
    printf("\n  %.1f s, %.0f verified replies/s\n", seconds, (double)figures->verified / seconds);
}
