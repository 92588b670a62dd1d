/* The chain of policies: which commands are wanted, and what policies are told from their start to their stop. */
#include "chain_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(chain, .init = open_chain, .fini = close_chain);

Test(chain, is_drained_when_all_are_and_asks_all)
{
    cr_assert_not(chain_drain(chain, 3));
    assert_calls("a-3 b-3 c-3");
    fakes[0].is_drained = true;
    fakes[2].is_drained = true;
    cr_assert_not(chain_drain(chain, 0));
    fakes[1].is_drained = true;
    cr_assert(chain_drain(chain, 0));
}

Test(chain, a_reload_asks_anew_what_is_wanted)
{
    struct chain_record *record = NULL;

    fakes[0].wants_nothing = true;
    fakes[2].wants_nothing = true;
    cr_assert(chain_reload(chain, &fake_rule));
    assert_calls("a@0 b@0 c@0");
    cr_assert(is_wanted(get()));
    ask(&record);
    end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
    assert_calls("b?0 b=101");
    fakes[1].wants_nothing = true;
    cr_assert(chain_reload(chain, &fake_rule));
    cr_assert_not(is_wanted(get()));
    cr_assert_not(is_wanted(NULL));
}

/* As a verb has it, without other rules. */
Test(chain, what_is_wanted_can_be_asked_anew)
{
    fakes[0].wants_nothing = true;
    fakes[1].wants_nothing = true;
    fakes[2].wants_nothing = true;
    chain_reconsider(chain);
    assert_calls("");
    cr_assert_not(is_wanted(get()));
    cr_assert_not(chain_wants_any(chain));
    fakes[1].wants_nothing = false;
    chain_reconsider(chain);
    cr_assert(is_wanted(get()));
    cr_assert(chain_wants_any(chain));
}

Test(chain, a_reload_that_fails_for_one_is_done_for_the_others_and_told)
{
    fakes[1].fails_to_reload = true;
    cr_assert_not(chain_reload(chain, &fake_rule));
    assert_calls("a@0 b@0 c@0");
}

Test(chain, those_that_were_started_are_stopped_when_one_cannot_be)
{
    fakes[1].refuses_to_start = true;
    use_policies(fake_policies);
    cr_assert_null(chain);
    assert_calls("a.");
}
