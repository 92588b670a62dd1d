#include "lease_host.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct policy lease_policy;

#define HOSTS_MAX 4

static struct fake_host *hosts[HOSTS_MAX];
static size_t host_count;

struct fake_host *lease_host_new(const char *rules, size_t workers)
{
    cr_assert_lt(host_count, (size_t)HOSTS_MAX);
    hosts[host_count] = fake_host_new(&lease_policy, rules, workers);
    return hosts[host_count++];
}

/* What is told is what is counted. */
static void check_events(struct fake_host *host)
{
    static const char *const losses[] = {"lease_lost_gone_total",      "lease_lost_taken_total",
                                         "lease_lost_persisted_total", "lease_lost_shortened_total",
                                         "lease_lost_type_total",      "lease_lost_unreachable_total"};
    uint64_t lost = 0;

    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        lost += fake_counter(host, losses[i]);
    }
    cr_assert_eq(host->happened[POLICY_LEASE_LOST], lost);
    cr_assert_eq(host->happened[POLICY_LEASE_TAKEN], fake_counter(host, "lease_acquired_total"));
}

void lease_host_free(struct fake_host *host)
{
    size_t place = 0;

    while (hosts[place] != host) {
        place++;
    }
    hosts[place] = hosts[--host_count];
    check_events(host);
    fake_host_free(host);
}

void lease_host_end(void)
{
    while (host_count > 0) {
        lease_host_free(hosts[0]);
    }
}

bool lease_host_lists(struct fake_host *host, const char *part)
{
    char *text = fake_tell(host, "LEASES");
    const char *end = strchr(text, '\n');
    bool is_one = end != NULL && end[1] == '\0';
    bool lists = part == NULL ? *text == '\0' : is_one && strstr(text, part) != NULL;

    if (!lists) {
        fprintf(stderr, "LEASES: %s\nexpected: %s\n", text, part != NULL ? part : "nothing");
    }
    free(text);
    return lists;
}
