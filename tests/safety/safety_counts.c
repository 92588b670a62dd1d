#include "safety_counts.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOKS 200
#define LOOK_US 100000

enum count { COUNT_ACQUIRED, COUNT_HELD, COUNT_RELEASED, COUNT_UNSEEN, COUNT_LOST, COUNT_OTHER, COUNTS };

/* Names that begin so, in the section Lease of STATS. */
static const struct {
    const char *begin;
    enum count count;
} names[] = {
    {"lease_acquired_total:", COUNT_ACQUIRED},
    {"lease_held:", COUNT_HELD},
    {"lease_released_total:", COUNT_RELEASED},
    {"lease_unseen_total:", COUNT_UNSEEN},
    {"lease_lost_", COUNT_LOST},
    {"lease_owner_gone_total:", COUNT_OTHER},
    {"lease_max_hold_total:", COUNT_OTHER},
    {"lease_dropped_total:", COUNT_OTHER},
    {"lease_unwatched_total:", COUNT_OTHER},
};

static void add_line(const char *line, uint64_t counts[COUNTS])
{
    const char *colon = strchr(line, ':');
    for (size_t at = 0; colon != NULL && at < sizeof names / sizeof *names; at++)
        if (strncmp(line, names[at].begin, strlen(names[at].begin)) == 0)
            counts[names[at].count] += strtoull(colon + 1, NULL, 10);
}

static bool add_counts(uint16_t admin_port, uint64_t counts[COUNTS])
{
    redisContext *context = redisConnect("127.0.0.1", admin_port);
    redisReply *reply = context != NULL && context->err == 0 ? redisCommand(context, "STATS lease") : NULL;
    bool read = reply != NULL && reply->type == REDIS_REPLY_STRING;
    char *rest = NULL;
    for (char *line = read ? strtok_r(reply->str, "\r\n", &rest) : NULL; line != NULL;
         line = strtok_r(NULL, "\r\n", &rest))
        add_line(line, counts);
    if (reply != NULL)
        freeReplyObject(reply);
    if (context != NULL)
        redisFree(context);
    return read;
}

/* Until nothing is on file any more; what was not clear is asked for first. */
static bool read_counts(const struct shared *shared, const struct servers *servers, uint64_t counts[COUNTS])
{
    for (int look = 0; look < LOOKS; look++) {
        bool read = true;
        memset(counts, 0, COUNTS * sizeof *counts);
        for (unsigned number = 0; number < shared->options.headgates; number++)
            read = add_counts(servers->admin_ports[number].number, counts) && read;
        if (read && counts[COUNT_HELD] == 0)
            return true;
        usleep(LOOK_US);
    }
    return false;
}

static void compare(struct shared *shared, const char *what, uint64_t counted, uint64_t done)
{
    if (counted != done)
        shared_violation(shared, BREACH_COUNTS, "Headgate counts %" PRIu64 " %s, and its clients %" PRIu64, counted,
                         what, done);
}

void counts_judge(struct shared *shared, const struct servers *servers)
{
    uint64_t counts[COUNTS];
    if (!read_counts(shared, servers, counts)) {
        shared_violation(shared, BREACH_COUNTS, "Headgate does not tell its counts, or %" PRIu64 " leases stay on file",
                         counts[COUNT_HELD]);
        return;
    }
    printf("  Headgate counts: %" PRIu64 " acquired, %" PRIu64 " released, %" PRIu64 " lost, %" PRIu64
           " unseen, %" PRIu64 " others\n",
           counts[COUNT_ACQUIRED], counts[COUNT_RELEASED], counts[COUNT_LOST], counts[COUNT_UNSEEN],
           counts[COUNT_OTHER]);
    compare(shared, "acquired", counts[COUNT_ACQUIRED], shared_figure(shared, FIGURE_GRANTED));
    if (shared_figure(shared, FIGURE_MISSED) > 0) {
        /* The machine stood still for longer than a lease, or it is a violation: the judge says which. A DEL may have
         * hit another's lock, and both then say something else of it. */
        printf("  locks were lost, and how they ended is not compared\n");
        return;
    }
    compare(shared, "released", counts[COUNT_RELEASED], shared_figure(shared, FIGURE_RELEASED));
    compare(shared, "lost", counts[COUNT_LOST], shared_figure(shared, FIGURE_MISSED));
    compare(shared, "ended otherwise", counts[COUNT_UNSEEN] + counts[COUNT_OTHER], 0);
}
