/*
 * [limit:NAME] with scope = local: who is admitted and who is told to come again, to the millisecond. Time stands still
 * but where a step lets it go by. Scenarios are tables.
 */
#include "../../support/fake_host.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

extern const struct policy limit_policy;

#define STEPS_MAX 12
#define CLIENTS 4

/* Time goes by, and then a client sends a request so often. All are admitted but the last: that has this answer. */
struct step {
    int64_t after_ms;
    size_t client; /* of those below */
    size_t times;
    const char *request;
    const char *last; /* "admit" if it is, too */
};

struct scenario {
    const char *name, *rules;
    struct step steps[STEPS_MAX];
};

/* Two workers have two each. */
static const struct {
    const char *address, *user, *name;
} people[CLIENTS] = {
    {"10.0.0.1", "alice", "web"},
    {"10.0.0.1", "bob", "web"},
    {"10.0.0.2", "alice", "jobs"},
    {"10.0.0.2", "default", ""},
};

#define FIVE_EACH "[limit:api]\nper = user\nlimit = 5\nwindow = 60s\n"
#define FIVE_TOLD(ms) "-RATELIMITED api: 5 in 1m per user exceeded, retry in " ms " ms"
#define SLOW "[limit:slow]\nper = ip\nalgorithm = funnel\ncapacity = 3\nleak = 10/s\n"
#define SLOW_TOLD(ms) "-RATELIMITED slow: 3 leaking 10/s per ip exceeded, retry in " ms " ms"

#define GETS "[limit:get]\nper = all\nlimit = 1\nwindow = 1s\ncommands = get\n"
#define GETS_TOLD "-RATELIMITED get: 1 in 1s exceeded, retry in 1000 ms"
#define ALL "[limit:all]\nper = all\nlimit = 4\nwindow = 1s\n"
#define ALL_TOLD "-RATELIMITED all: 4 in 1s exceeded, retry in 1000 ms"

static const struct scenario scenarios[] = {
    {"a window slides",
     FIVE_EACH,
     {{0, 0, 2, "GET k", "admit"},
      {10000, 0, 4, "GET k", FIVE_TOLD("50000")},
      {49999, 0, 1, "GET k", FIVE_TOLD("1")},
      {1, 0, 3, "GET k", FIVE_TOLD("10000")},
      {10000, 0, 4, "GET k", FIVE_TOLD("50000")}}},
    {"a user is one over addresses and workers",
     FIVE_EACH,
     {{0, 0, 3, "GET k", "admit"},
      {0, 2, 3, "GET k", FIVE_TOLD("60000")},
      {0, 1, 5, "GET k", "admit"},
      {0, 3, 6, "GET k", FIVE_TOLD("60000")}}},
    {"a refusal costs nothing",
     FIVE_EACH,
     {{0, 0, 6, "GET k", FIVE_TOLD("60000")},
      {59000, 0, 1, "GET k", FIVE_TOLD("1000")},
      {1000, 0, 5, "GET k", "admit"}}},
    {"a funnel bursts and then leaks",
     SLOW,
     {{0, 0, 4, "GET k", SLOW_TOLD("100")},
      {99, 0, 1, "GET k", SLOW_TOLD("1")},
      {1, 1, 2, "GET k", SLOW_TOLD("100")},
      {1000, 0, 4, "GET k", SLOW_TOLD("100")},
      {0, 2, 4, "GET k", SLOW_TOLD("100")}}},
    {"each key by itself",
     "[limit:hot]\nper = key\nlimit = 2\nwindow = 1s\n",
     {{0, 0, 3, "GET a", "-RATELIMITED hot: 2 in 1s per key exceeded, retry in 1000 ms"},
      {0, 0, 2, "GET b", "admit"},
      {0, 3, 1, "MGET c b", "-RATELIMITED hot: 2 in 1s per key exceeded, retry in 1000 ms"},
      {0, 3, 2, "GET c", "admit"},
      {0, 3, 3, "PING", "admit"}}},
    {"connections have their own",
     "[limit:c]\nper = connection\nlimit = 1\nwindow = 1s\ncommands = @write\n",
     {{0, 0, 2, "SET k v", "-RATELIMITED c: 1 in 1s per connection exceeded, retry in 1000 ms"},
      {0, 1, 1, "SET k v", "admit"},
      {0, 0, 9, "GET k", "admit"}}},
    {"a refusal charges no other rule",
     GETS ALL,
     {{0, 0, 2, "GET k", GETS_TOLD}, {0, 1, 1, "GET k", GETS_TOLD}, {0, 2, 4, "SET k v", ALL_TOLD}}},
    {"whichever stands first",
     ALL GETS,
     {{0, 0, 2, "GET k", GETS_TOLD}, {0, 1, 1, "GET k", GETS_TOLD}, {0, 2, 4, "SET k v", ALL_TOLD}}},
    {"who is excepted is not counted",
     "[limit:a]\nper = all\nlimit = 1\nwindow = 1s\nexcept = user:alice\n",
     {{0, 0, 5, "GET k", "admit"},
      {0, 1, 2, "GET k", "-RATELIMITED a: 1 in 1s exceeded, retry in 1000 ms"},
      {0, 2, 5, "GET k", "admit"}}},
    {"an observing rule refuses nothing",
     "[limit:a]\nper = all\nlimit = 1\nwindow = 1s\naction = observe\n",
     {{0, 0, 5, "GET k", "admit"}}},
};

static void join_all(struct fake_host *host, struct fake_client *clients[CLIENTS])
{
    for (size_t i = 0; i < CLIENTS; i++) {
        clients[i] = fake_join(host, i % 2, people[i].address, people[i].name);
        snprintf(clients[i]->user, sizeof clients[i]->user, "%s", people[i].user);
        fake_rename(clients[i], people[i].name);
    }
}

/* No rule that is asked may only pass: what is passed has a reply that it wants to see. */
static bool is_admitted(const char *verdict)
{
    return strcmp(verdict, "admit") == 0 || strcmp(verdict, "pass") == 0;
}

static void take_step(const struct scenario *scenario, size_t number, struct fake_client *client)
{
    const struct step *step = &scenario->steps[number];
    const char *verdict = "admit";

    for (size_t i = 0; i < step->times; i++) {
        cr_expect(is_admitted(verdict), "%s, step %zu: request %zu: %s", scenario->name, number, i, verdict);
        verdict = fake_verdict(client, step->request);
    }
    if (strcmp(step->last, "admit") == 0) {
        cr_expect(is_admitted(verdict), "%s, step %zu: %s", scenario->name, number, verdict);
    } else {
        cr_expect_str_eq(verdict, step->last, "%s, step %zu: %s", scenario->name, number, verdict);
    }
}

Test(limit_policy, who_is_admitted)
{
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        struct fake_host *host = fake_host_new(&limit_policy, scenarios[i].rules, 2);
        struct fake_client *clients[CLIENTS];
        join_all(host, clients);
        for (size_t n = 0; n < STEPS_MAX && scenarios[i].steps[n].request != NULL; n++) {
            fake_pass(host, scenarios[i].steps[n].after_ms);
            take_step(&scenarios[i], n, clients[scenarios[i].steps[n].client]);
        }
        fake_host_free(host);
    }
}

/* action = delay: a request waits until it would be admitted, but not longer than max_delay, and not for those who have
 * left: their turns are given to those behind them, on other workers, too, in their order. */
Test(limit_policy, a_request_that_waits_for_its_turn)
{
    struct fake_host *host = fake_host_new(
        &limit_policy, "[limit:a]\nper = all\nlimit = 1\nwindow = 1s\naction = delay\nmax_delay = 4s\n", 2);
    struct fake_client *first = fake_join(host, 0, "10.0.0.1", ""), *second = fake_join(host, 0, "10.0.0.2", "");
    struct fake_client *others[3];

    cr_assert(is_admitted(fake_verdict(first, "GET k")));
    cr_assert_str_eq(fake_verdict(second, "GET k"), "hold");
    cr_assert_eq(second->hold_until_us, host->now_us + 1000 * MS, "%lld",
                 (long long)(second->hold_until_us - host->now_us));
    for (int64_t i = 0; i < 3; i++) {
        others[i] = fake_join(host, (size_t)i % 2, "10.0.0.3", "");
        cr_assert_str_eq(fake_verdict(others[i], "GET k"), "hold");
        cr_assert_eq(others[i]->hold_until_us, host->now_us + (2 + i) * 1000 * MS);
    }
    fake_leave(others[0]);
    fake_pass(host, 999);
    cr_assert_not(second->resumed, "it was before the one that left");
    for (int64_t i = 1; i < 3; i++) {
        cr_assert(others[i]->resumed);
        cr_assert_str_eq(fake_verdict_again(others[i]), "hold");
        cr_assert_eq(others[i]->hold_until_us, host->now_us + (1 + i) * 1000 * MS - 999 * MS);
    }
    cr_assert_str_eq(fake_verdict_again(second), "hold");
    fake_pass(host, 1);
    cr_assert(is_admitted(fake_verdict_again(second)));
    fake_host_free(host);
}
