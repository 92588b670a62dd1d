/* The chain of policies: who is asked about a request, in which order, whose word counts, and who is owed an on_reply.
 */
#include "chain_fixture.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

TestSuite(chain_request, .init = open_chain, .fini = close_chain);

Test(chain_request, all_are_asked_in_order_and_owed_a_reply)
{
    struct chain_record *record = NULL;

    cr_assert_eq(ask(&record), POLICY_PASS);
    cr_assert_not_null(record);
    assert_calls("a?0 b?0 c?0");
    end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
    assert_calls("a=1 b=101 c=201");
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(fakes[i].told.outcome, POLICY_OUTCOME_REPLY);
        cr_assert_eq(fakes[i].told.client, &fake_client);
        cr_assert_eq(fakes[i].told.command, get());
        cr_assert_eq(fakes[i].told.length, 77);
        cr_assert_eq(fakes[i].told.received_us, 1000);
        cr_assert_eq(fakes[i].told.now_us, 5000);
        cr_assert_str_eq(fakes[i].told_head, "+OK\r\n");
    }
}

Test(chain_request, the_first_verdict_that_is_not_pass_wins)
{
    struct chain_record *record = NULL;
    struct policy_decision decision = {0};

    fakes[1].verdict = POLICY_REPLY;
    cr_assert_eq(ask_at(&record, &decision, 1000), POLICY_REPLY);
    cr_assert_eq(decision.length, 4);
    cr_assert_eq(memcmp(decision.text, "-b\r\n", 4), 0);
    assert_calls("a?0 b?0");
    /* Only the one that passed it is told. */
    end(record, POLICY_OUTCOME_LOCAL, "");
    assert_calls("a=1");
    cr_assert_eq(fakes[0].told.outcome, POLICY_OUTCOME_LOCAL);
}

Test(chain_request, a_held_request_goes_on_where_it_was_held)
{
    struct chain_record *record = NULL;
    struct policy_decision decision = {0};

    fakes[1].verdict = POLICY_HOLD;
    fakes[1].hold_until_us = 1500;
    cr_assert_eq(ask_at(&record, &decision, 1000), POLICY_HOLD);
    cr_assert_eq(decision.hold_until_us, 1500);
    cr_assert_eq(fakes[1].holds, 0);
    assert_calls("a?0 b?0");
    fakes[1].hold_until_us = 2500;
    cr_assert_eq(ask_at(&record, &decision, 1500), POLICY_HOLD);
    cr_assert_eq(fakes[1].holds, 1);
    cr_assert_eq(fakes[1].received_us, 1000, "when it was received stays what it was");
    assert_calls("b?101");
    fakes[1].verdict = POLICY_PASS;
    cr_assert_eq(ask_at(&record, &decision, 2500), POLICY_PASS);
    cr_assert_eq(fakes[1].holds, 2);
    assert_calls("b?101 c?0");
    end(record, POLICY_OUTCOME_REPLY, "$-1\r\n");
    assert_calls("a=1 b=101 c=201");
    cr_assert_eq(fakes[1].told.received_us, 1000);
}

Test(chain_request, a_request_that_ends_while_it_is_held_is_told_to_the_holder)
{
    struct chain_record *record = NULL;

    fakes[1].verdict = POLICY_HOLD;
    ask(&record);
    end(record, POLICY_OUTCOME_OWNERLESS, "");
    assert_calls("a?0 b?0 a=1 b=101");
    cr_assert_eq(fakes[1].told.outcome, POLICY_OUTCOME_OWNERLESS);
}

Test(chain_request, who_wants_it_whole_is_asked_again_and_nobody_before)
{
    struct chain_record *record = NULL;
    struct policy_decision decision = {0};

    fake_request_is_partial = true;
    fakes[1].verdict = POLICY_WHOLE;
    cr_assert_eq(ask_at(&record, &decision, 1000), POLICY_WHOLE);
    cr_assert_eq(ask_at(&record, &decision, 1500), POLICY_WHOLE);
    assert_calls("a?0 b?0 b?101");
    cr_assert_eq(fakes[1].received_us, 1500, "more of it was received since");
    fake_request_is_partial = false;
    fakes[1].verdict = POLICY_PASS;
    cr_assert_eq(ask_at(&record, &decision, 2000), POLICY_PASS);
    assert_calls("b?101 c?0");
    cr_assert_eq(fakes[1].holds, 0, "it was not held");
    cr_assert_eq(fakes[2].received_us, 2000);
    end(record, POLICY_OUTCOME_REPLY, ":1\r\n");
    assert_calls("a=1 b=101 c=201");
    cr_assert_eq(fakes[0].told.received_us, 2000);
}

Test(chain_request, several_may_want_it_whole_or_hold_it)
{
    struct chain_record *record = NULL;
    struct policy_decision decision = {0};

    fake_request_is_partial = true;
    fakes[0].verdict = POLICY_WHOLE;
    cr_assert_eq(ask_at(&record, &decision, 1000), POLICY_WHOLE);
    fakes[0].verdict = POLICY_ADMIT;
    fakes[1].verdict = POLICY_HOLD;
    cr_assert_eq(ask_at(&record, &decision, 2000), POLICY_HOLD);
    fakes[1].verdict = POLICY_WHOLE;
    cr_assert_eq(ask_at(&record, &decision, 3000), POLICY_WHOLE);
    cr_assert_eq(fakes[1].received_us, 2000, "how long it is held counts from its first hold");
    fakes[1].verdict = POLICY_REPLY;
    cr_assert_eq(ask_at(&record, &decision, 4000), POLICY_REPLY);
    cr_assert_eq(fakes[1].holds, 1);
    assert_calls("a?0 a?1 b?0 b?101 b?101");
    cr_assert_null(record, "nobody is owed a reply");
}

Test(chain_request, records_do_not_remember_the_request_before)
{
    struct chain_record *first = NULL, *second = NULL, *third = NULL;

    fakes[0].verdict = POLICY_HOLD;
    ask(&first);
    fakes[0].verdict = POLICY_PASS;
    ask(&first);
    end(first, POLICY_OUTCOME_REPLY, ":1\r\n");
    fake_calls[0] = '\0';
    cr_assert_eq(ask(&second), POLICY_PASS);
    cr_assert_eq(fakes[0].holds, 0);
    cr_assert_eq(ask(&third), POLICY_PASS);
    assert_calls("a?0 b?0 c?0 a?0 b?0 c?0");
    cr_assert_neq(second, third);
    end(third, POLICY_OUTCOME_REPLY, ":1\r\n");
    end(second, POLICY_OUTCOME_REPLY, ":1\r\n");
    assert_calls("a=3 b=103 c=203 a=2 b=102 c=202");
}

/* By a gate that keeps nothing of it. Who holds it is asked, though it wants no more of them, or is owed the end. */
Test(chain_request, a_held_request_is_judged_anew_after_a_reload)
{
    static const struct policy *const list[] = {&fake_policy_a, &fake_bare, &fake_policy_c, NULL};
    struct chain_record *record = NULL;

    use_policies(list);
    fakes[2].verdict = POLICY_HOLD;
    ask(&record);
    fakes[2].wants_nothing = true;
    chain_reload(chain, &fake_rule);
    ask(&record);
    ask(&record);
    chain_reload(chain, &fake_rule);
    fakes[1].verdict = POLICY_REPLY;
    cr_assert_eq(ask(&record), POLICY_REPLY);
    end(record, POLICY_OUTCOME_LOCAL, "");
    assert_calls("a?0 b?0 c?0 a@0 c@0 b?101 c?201 c?201 a@0 c@0 b?101 a=1 c=201");
}

Test(chain_request, who_admits_is_not_told_of_the_reply)
{
    struct chain_record *record = NULL;

    fakes[1].verdict = POLICY_ADMIT;
    cr_assert_eq(ask(&record), POLICY_PASS);
    cr_assert_not_null(record);
    end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
    assert_calls("a?0 b?0 c?0 a=1 c=201");
}

static uint32_t group_gets(void *instance, const struct command *command)
{
    (void)instance;
    return command != NULL && strcmp(command->name, "get") == 0 ? 7 : 0;
}

static uint32_t admit_up_to_three(void *instance, const struct policy_request *request, uint32_t count,
                                  struct policy_decision *decision)
{
    static const char refusal[] = "-ERR no\r\n";

    cr_assert_eq(request->attachment, &fake_attachments[1]);
    cr_assert_eq(decision->length, 0);
    fake_write_down(instance, "#%llu", count);
    if (count > 3) {
        memcpy(decision->text, refusal, sizeof refusal);
        decision->length = sizeof refusal - 1;
    }
    return count < 3 ? count : 3;
}

static const struct policy_gate grouping_gate = {
    .wants = fake_wants, .on_request = fake_on_request, .group = group_gets, .on_batch = admit_up_to_three};
static const struct policy grouping = {.name = "grouping", .gate = &grouping_gate, .start = fake_start_b};

Test(chain_request, a_group_is_put_to_its_policy_at_once)
{
    static const struct policy *const list[] = {&fake_policy_a, &grouping, NULL};
    struct policy_request request = {.client = &fake_client, .command = get()};
    struct policy_decision decision;

    fakes[0].wants_nothing = true;
    use_policies(list);
    cr_assert_eq(group_of(get()), 7);
    cr_assert_eq(group_of(command_find((struct slice){"set", 3})), 0);
    cr_assert_eq(group_of(NULL), 0);
    fake_calls[0] = '\0';
    cr_assert_eq(chain_admit(chain, &request, 3, &decision), 3);
    cr_assert_eq(decision.length, 0);
    cr_assert_eq(chain_admit(chain, &request, 5, &decision), 3);
    cr_assert_str_eq(decision.text, "-ERR no\r\n");
    assert_calls("b#3 b#5");
    chain_refused(chain, get(), &decision);
    cr_assert_eq(stats_get(&fake_stats, STATS_POLICY_REPLIES), 1);
}
