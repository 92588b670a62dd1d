/* [limit:NAME] with scope = local: who is excepted, and whose turn it is. tests/walks has how much is admitted, and
 * when. */
#include "../../support/fake_host.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

extern const struct policy limit_policy;

/* No rule that is asked may only pass: what is passed has a reply that it wants to see. */
static bool is_admitted(const char *verdict)
{
    return strcmp(verdict, "admit") == 0 || strcmp(verdict, "pass") == 0;
}

Test(limit_policy, who_is_excepted_is_not_counted)
{
    struct fake_host *host =
        fake_host_new(&limit_policy, "[limit:a]\nper = all\nlimit = 1\nwindow = 1s\nexcept = user:alice\n", 2);
    struct fake_client *bob = fake_join(host, 0, "10.0.0.1", ""), *alice = fake_join(host, 1, "10.0.0.1", "");

    snprintf(alice->user, sizeof alice->user, "alice");
    fake_rename(alice, "");
    for (int i = 0; i < 5; i++) {
        cr_assert(is_admitted(fake_verdict(alice, "GET k")));
    }
    cr_assert(is_admitted(fake_verdict(bob, "GET k")));
    cr_assert_str_eq(fake_verdict(bob, "GET k"), "-RATELIMITED a: 1 in 1s exceeded, retry in 1000 ms");
    cr_assert(is_admitted(fake_verdict(alice, "GET k")));
    fake_host_free(host);
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
