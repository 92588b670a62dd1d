/* The chain of policies that bring some of the three pieces only: each piece is asked of those that have it. */
#include "chain_fixture.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

TestSuite(chain_pieces, .init = open_chain, .fini = close_chain);

#define TAG 7

static bool is_get(const struct command *command)
{
    return command != NULL && strcmp(command->name, "get") == 0;
}

static uint32_t tag_gets(void *instance, const struct command *command)
{
    (void)instance;
    return is_get(command) ? POLICY_TAG_ASK : POLICY_TAG_NONE;
}

static uint32_t measure(void *instance, const struct policy_request *request)
{
    fake_write_down(instance, "m%llu", (unsigned long long)(request->attachment - fake_attachments));
    return TAG;
}

static struct policy_attention attend(void *instance)
{
    (void)instance;
    return (struct policy_attention){.us = 5, .bytes = 6};
}

static bool take_sample(void *instance, const struct policy_sample *sample)
{
    fake_write_down(instance, "s%llu", sample->tag);
    return true;
}

static void see_written(void *instance, const struct policy_sample *sample)
{
    fake_write_down(instance, "w%llu", sample->tag);
}

static void see_spot(void *instance, const struct policy_request *request)
{
    fake_write_down(instance, "p%llu", (unsigned long long)(request->attachment - fake_attachments));
}

static bool translate_sets(void *instance, const struct command *command)
{
    (void)instance;
    return command != NULL && strcmp(command->name, "set") == 0;
}

static enum policy_translation translate(void *instance, const struct policy_request *request,
                                         enum policy_server_has server, struct slice *frame,
                                         struct policy_decision *decision)
{
    (void)request;
    (void)decision;
    fake_write_down(instance, "t%llu", server);
    *frame = (struct slice){"*0\r\n", 4};
    return POLICY_TRANSLATED;
}

static const struct policy_observer measurer = {.tag = tag_gets,
                                                .measure = measure,
                                                .attends = attend,
                                                .on_sample = take_sample,
                                                .on_written = see_written,
                                                .on_spot = see_spot};
static const struct policy_observer taciturn = {.tag = tag_gets, .on_sample = take_sample};
static const struct policy_translator translator = {.translates = translate_sets, .translate = translate};

static const struct policy only_observes = {.name = "observes", .observer = &measurer, .start = fake_start_b};
static const struct policy only_translates = {.name = "translates", .translator = &translator, .start = fake_start_c};
static const struct policy has_none = {.name = "none", .start = fake_start_b, .stop = fake_stop};

static const struct policy *const one_of_each[] = {&fake_policy_a, &only_observes, &only_translates, NULL};

static const struct command *set(void)
{
    return command_find((struct slice){"set", 3});
}

Test(chain_pieces, who_has_no_gate_is_not_asked)
{
    struct chain_record *record = NULL;

    use_policies(one_of_each);
    cr_assert_eq(ask(&record), POLICY_PASS);
    end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
    assert_calls("a?0 a=1");
    fakes[0].wants_nothing = true;
    cr_assert(chain_reload(chain, &fake_rule));
    cr_assert_not(chain_wants_any(chain), "measuring and translating need no verdict");
    cr_assert(chain_measures(chain));
}

Test(chain_pieces, who_measures_has_its_own_pointer_with_the_client)
{
    struct policy_request request = {.client = &fake_client, .command = get()};
    const struct policy_sample sample = {.tag = TAG, .count = 1};

    use_policies(one_of_each);
    cr_assert_eq(chain_interest(chain, get())->tag, POLICY_TAG_ASK);
    cr_assert_eq(chain_interest(chain, set())->tag, POLICY_TAG_NONE);
    cr_assert_eq(chain_attention(chain)->us, 5);
    cr_assert_eq(chain_measure(chain, &request), TAG);
    cr_assert(chain_sample(chain, &sample));
    chain_written(chain, &sample);
    chain_spot(chain, &request);
    assert_calls("bm1 bs7 bw7 bp1");
}

Test(chain_pieces, a_measurer_may_leave_out_all_but_tags_and_samples)
{
    static const struct policy policy = {.name = "taciturn", .observer = &taciturn, .start = fake_start_b};
    static const struct policy *const list[] = {&policy, NULL};
    struct policy_request request = {.client = &fake_client, .command = get()};
    const struct policy_sample sample = {.tag = TAG, .count = 1};

    use_policies(list);
    cr_assert_eq(chain_attention(chain)->us, INT64_MAX);
    cr_assert_eq(chain_measure(chain, &request), POLICY_TAG_NONE);
    cr_assert_not(chain_sample(chain, &sample), "nobody is to be told when it was written");
    chain_spot(chain, &request);
    assert_calls("bs7");
}

Test(chain_pieces, two_cannot_measure, .signal = SIGABRT)
{
    static const struct policy second = {.name = "second", .observer = &taciturn, .start = fake_start_c};
    static const struct policy *const list[] = {&only_observes, &second, NULL};

    use_policies(list);
}

Test(chain_pieces, the_translator_of_a_command_is_asked)
{
    struct policy_request request = {.client = &fake_client, .command = set()};
    struct policy_decision decision;
    struct slice frame;

    use_policies(one_of_each);
    cr_assert_eq(chain_interest(chain, get())->translator, 0);
    cr_assert_neq(chain_interest(chain, set())->translator, 0);
    cr_assert_eq(chain_translate(chain, &request, POLICY_SERVER_LACKS, &frame, &decision), POLICY_TRANSLATED);
    cr_assert_eq(frame.length, 4);
    assert_calls("ct2");
}

Test(chain_pieces, a_policy_may_have_none)
{
    static const struct policy *const list[] = {&has_none, NULL};

    use_policies(list);
    cr_assert_not(chain_wants_any(chain));
    cr_assert_not(chain_measures(chain));
    cr_assert_not(chain_listens(chain));
    chain_free(chain);
    chain = NULL;
    assert_calls("b.");
}
