/* The chain of policies: what happens is told to those that listen. */
#include "chain_fixture.h"

#include <criterion/criterion.h>

TestSuite(chain_event, .init = open_chain, .fini = close_chain);

static bool listens(void *instance)
{
    const struct fake *fake = instance;

    return !fake->is_deaf;
}

static void on_event(void *instance, const struct policy_event *event)
{
    struct fake *fake = instance;

    fake_write_down(fake, "*%llu", event->kind);
    fake->heard = *event;
}

static const struct policy_observer listener = {.listens = listens, .on_event = on_event};

/* Two that listen, and between them one that does not. */
static const struct policy listener_a = {.name = "first",
                                         .start = fake_start_a,
                                         .gate = &fake_bare_gate,
                                         .observer = &listener,
                                         .stop = fake_stop,
                                         .reload = fake_reload};
static const struct policy listener_c = {
    .name = "last", .start = fake_start_c, .gate = &fake_bare_gate, .observer = &listener};
static const struct policy *const listening[] = {&listener_a, &fake_bare, &listener_c, NULL};

Test(chain_event, nobody_listens_unless_it_says_so)
{
    const struct policy_event event = {POLICY_UPSTREAM_LOST, 1, "redis", NULL, "gone"};

    cr_assert_not(chain_listens(chain));
    chain_happened(chain, &event);
    assert_calls("");
    use_policies(listening);
    cr_assert(chain_listens(chain));
    chain_happened(chain, &event);
    assert_calls("a*3 c*3");
    cr_assert_eq(fakes[2].heard.count, 1);
    cr_assert_str_eq(fakes[2].heard.source, "redis");
    cr_assert_str_eq(fakes[2].heard.what, "gone");
    fakes[0].is_deaf = true;
    cr_assert(chain_reload(chain, &fake_rule));
    fake_calls[0] = '\0';
    chain_happened(chain, &event);
    assert_calls("c*3");
    fakes[2].is_deaf = true;
    cr_assert(chain_reload(chain, &fake_rule));
    cr_assert_not(chain_listens(chain));
}

Test(chain_event, who_refuses_by_a_rule_is_told_of_to_who_listens)
{
    struct chain_record *record = NULL;

    use_policies(listening);
    fakes[1].verdict = POLICY_REPLY;
    fakes[1].rule = "checkout";
    cr_assert_eq(ask(&record), POLICY_REPLY);
    assert_calls("a?0 b?0 a*0 c*0");
    cr_assert_eq(fakes[0].heard.kind, POLICY_REFUSED);
    cr_assert_eq(fakes[0].heard.count, 1);
    cr_assert_str_eq(fakes[0].heard.source, "bare");
    cr_assert_str_eq(fakes[0].heard.rule, "checkout");
    cr_assert_str_eq(fakes[0].heard.what, "get");
}

Test(chain_event, who_closes_refuses_and_names_of_unknown_commands_are_not_told)
{
    struct chain_record *record = NULL;

    use_policies(listening);
    fakes[2].verdict = POLICY_CLOSE;
    cr_assert_eq(ask_of_unknown(&record), POLICY_CLOSE);
    end(record, POLICY_OUTCOME_OWNERLESS, "");
    assert_calls("a?0 b?0 c?0 a*0 c*0");
    cr_assert_str_eq(fakes[0].heard.source, "last");
    cr_assert_null(fakes[0].heard.rule);
    cr_assert_str_eq(fakes[0].heard.what, "unknown command");
}
