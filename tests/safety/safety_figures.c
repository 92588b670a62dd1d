#include "safety_figures.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
    enum figure figure;
    const char *name;
} lines[] = {
    {FIGURE_GRANTED, "locks and permits granted under a rule"},
    {FIGURE_RELEASED, "of these found by their release"},
    {FIGURE_MISSED, "of these not found any more"},
    {FIGURE_REFUSED, "requests for a lock refused"},
    {FIGURE_LONG, "sections longer than their lease"},
    {FIGURE_LONG_KEPT, "of these held to the end"},
    {FIGURE_OTHER_HEADGATE, "released through another Headgate"},
    {FIGURE_RETAKEN, "taken again in the same write"},
    {FIGURE_CONNECTIONS, "connections"},
    {FIGURE_CRASHES, "clients that vanished"},
    {FIGURE_CLOSED, "connections closed by Headgate"},
    {FIGURE_ERRORS, "errors answered"},
    {FIGURE_KILLS, "chaos: client processes killed"},
    {FIGURE_PAUSES, "chaos: client processes paused"},
    {FIGURE_LANES, "chaos: lanes of a Headgate cut"},
    {FIGURE_HEADGATE_STOPS, "chaos: Headgates stopped"},
    {FIGURE_HEADGATE_KILLS, "chaos: Headgates killed"},
    {FIGURE_RESTARTS, "chaos: Redis killed"},
    {FIGURE_STALLS, "stalls seen by the prober"},
    {FIGURE_MONITORED, "commands seen by MONITOR"},
    {FIGURE_RENEWALS, "renewals seen by MONITOR"},
    {FIGURE_RENEWALS_REFUSED, "scripts for what was released"},
    {FIGURE_OWNER_RELEASES, "releases for owners that were gone"},
    {FIGURE_SEMAPHORE_RACES, "permits too many by the algorithm"},
    {FIGURE_SWEPT, "dead holders' locks looked at"},
    {FIGURE_SWEPT_UNANSWERED, "SETNX that nobody knew of"},
    {FIGURE_SPOILED, "locks no longer judged"},
};

void figures_print(const struct shared *shared, const uint64_t verdicts[VERDICT_COUNT], double seconds)
{
    uint64_t sections = 0;
    uint64_t excused = 0;
    for (int kind = 0; kind < KIND_COUNT; kind++)
        sections += shared_figure(shared, FIGURE_SECTIONS + (enum figure)kind);
    printf("  %-36s %12" PRIu64 "\n", "sections", sections);
    for (size_t at = 0; at < sizeof lines / sizeof *lines; at++)
        printf("  %-36s %12" PRIu64 "\n", lines[at].name, shared_figure(shared, lines[at].figure));
    printf("  by kind:");
    for (int kind = 0; kind < KIND_COUNT; kind++)
        printf(" %s %" PRIu64, locks_kind_name((enum lock_kind)kind),
               shared_figure(shared, FIGURE_SECTIONS + (enum figure)kind));
    printf("\n  overlaps and losses excused:");
    for (int verdict = VERDICT_VIOLATION + 1; verdict < VERDICT_COUNT; verdict++) {
        printf(" %s %" PRIu64, judge_verdict_name((enum verdict)verdict), verdicts[verdict]);
        excused += verdicts[verdict];
    }
    printf("\n  %.1f s, %.0f sections/s; %" PRIu64 " excused, %u violations\n", seconds, (double)sections / seconds,
           excused, atomic_load(&shared->violations));
}
