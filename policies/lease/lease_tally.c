#include "lease/lease_tally.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const struct policy_counter lease_tally_table[LEASE_TALLIES] = {
    [LEASE_TALLY_ACQUIRED] = {"lease_rule_acquired_total", STATS_COUNTER, "locks and permits whose watch began"},
    [LEASE_TALLY_HELD] = {"lease_rule_held", STATS_GAUGE, "locks and permits that are watched now"},
    [LEASE_TALLY_RENEWALS] = {"lease_rule_renewals_total", STATS_COUNTER, "renewals"},
    [LEASE_TALLY_LOST] = {"lease_rule_lost_total", STATS_COUNTER, "locks and permits that were lost, for any reason"},
    [LEASE_TALLY_MAX_HOLD] = {"lease_rule_max_hold_total", STATS_COUNTER,
                              "locks and permits that were held for max_hold, and are not renewed any more"},
};

struct lease_tallies {
    pthread_mutex_t mutex; /* guards the list; what is in it stays */
    struct lease_tally *first;
};

struct lease_tallies *lease_tallies_new(void)
{
    struct lease_tallies *tallies = calloc(1, sizeof *tallies);

    if (tallies != NULL) {
        pthread_mutex_init(&tallies->mutex, NULL);
    }
    return tallies;
}

void lease_tallies_free(struct lease_tallies *tallies)
{
    if (tallies == NULL) {
        return;
    }
    while (tallies->first != NULL) {
        struct lease_tally *tally = tallies->first;
        tallies->first = tally->next;
        free(tally);
    }
    pthread_mutex_destroy(&tallies->mutex);
    free(tallies);
}

static struct lease_tally *find(struct lease_tally *tally, const char *rule)
{
    while (tally != NULL && strcmp(tally->rule, rule) != 0) {
        tally = tally->next;
    }
    return tally;
}

struct lease_tally *lease_tallies_find(struct lease_tallies *tallies, const char *rule)
{
    pthread_mutex_lock(&tallies->mutex);
    struct lease_tally *tally = find(tallies->first, rule);
    if (tally == NULL) {
        tally = calloc(1, sizeof *tally);
        if (tally != NULL) {
            strncpy(tally->rule, rule, sizeof tally->rule - 1);
            tally->next = tallies->first;
            tallies->first = tally;
        }
    }
    pthread_mutex_unlock(&tallies->mutex);
    return tally;
}

void lease_tallies_tell(struct lease_tallies *tallies, policy_rule_told *told, void *context)
{
    uint64_t values[LEASE_TALLIES];

    pthread_mutex_lock(&tallies->mutex);
    for (const struct lease_tally *tally = tallies->first; tally != NULL; tally = tally->next) {
        for (size_t i = 0; i < LEASE_TALLIES; i++) {
            values[i] = atomic_load_explicit(&tally->counts[i], memory_order_relaxed);
        }
        told(context, tally->rule, values);
    }
    pthread_mutex_unlock(&tallies->mutex);
}
