/* The chain of policies that bring some of the three pieces only: each piece is asked of those that have it. */
#include "chain_fixture.h"

#include "resp/resp.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
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

static const struct policy_observer measurer = {.tag = tag_gets,
                                                .measure = measure,
                                                .attends = attend,
                                                .on_sample = take_sample,
                                                .on_written = see_written,
                                                .on_spot = see_spot};

static const struct policy only_observes = {.name = "observes", .observer = &measurer, .start = fake_start_b};
static const struct policy *const gate_and_observer[] = {&fake_policy_a, &only_observes, NULL};

static const struct command *set(void)
{
    return command_find((struct slice){"set", 3});
}

Test(chain_pieces, who_has_no_gate_is_not_asked)
{
    struct chain_record *record = NULL;

    use_policies(gate_and_observer);
    cr_assert_eq(ask(&record), POLICY_PASS);
    end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
    assert_calls("a?0 a=1");
    fakes[0].wants_nothing = true;
    cr_assert(chain_reload(chain, &fake_rule));
    cr_assert_not(chain_wants_any(chain), "measuring needs no verdict");
    cr_assert(chain_measures(chain));
}

Test(chain_pieces, who_measures_has_its_own_pointer_with_the_client)
{
    struct policy_request request = {.client = &fake_client, .command = get()};
    const struct policy_sample sample = {.tag = TAG, .count = 1};

    use_policies(gate_and_observer);
    cr_assert_eq(chain_interest(chain, get())->tag, POLICY_TAG_ASK);
    cr_assert_eq(chain_interest(chain, set())->tag, POLICY_TAG_NONE);
    cr_assert_eq(chain_attention(chain)->us, 5);
    cr_assert_eq(chain_measure(chain, &request), TAG);
    cr_assert(chain_sample(chain, &sample));
    chain_written(chain, &sample);
    chain_spot(chain, &request);
    assert_calls("bm1 bs7 bw7 bp1");
}

/* ---- gates that do not go by who a client is ---- */

Test(chain_pieces, on_account_of_such_a_gate_nothing_has_to_be_known_of_clients)
{
    static const struct policy_gate gate = {
        .ignores_clients = true, .wants = fake_wants, .on_request = fake_on_request};
    static const struct policy holder = {.name = "holder", .gate = &gate, .start = fake_start_a};
    static const struct policy *const alone[] = {&holder, NULL};
    static const struct policy *const beside[] = {&holder, &fake_policy_b, NULL};
    struct chain_record *record = NULL;

    use_policies(alone);
    cr_assert_eq(ask(&record), POLICY_PASS);
    assert_calls("a?0");
    cr_assert_not(chain_wants_any(chain));
    use_policies(beside);
    cr_assert(chain_wants_any(chain));
}

/* ---- gates that tell at first sight ---- */

static uint32_t group_all(void *instance, const struct command *command)
{
    (void)instance;
    return command != NULL ? 7 : 0;
}

static uint32_t admit(void *instance, const struct policy_request *request, uint32_t count,
                      struct policy_decision *decision)
{
    (void)request;
    (void)decision;
    fake_write_down(instance, "#%llu", count);
    return count;
}

/* Keys that begin with its letter. */
static bool begins_with_letter(void *instance, const struct policy_glance *glance)
{
    const struct fake *fake = instance;

    cr_assert_eq(glance->attachment, fake_attachments[fake - fakes]);
    cr_assert_eq(glance->bytes, sizeof "*2\r\n$3\r\nget\r\n$3\r\n---\r\n" - 1);
    return glance->key.length > 0 && glance->key.data[0] == fake->letter;
}

static const struct policy_gate glancing_gate = {
    .wants = fake_wants, .on_request = fake_on_request, .concerns = begins_with_letter};
static const struct policy_gate grouping_gate = {
    .wants = fake_wants, .on_request = fake_on_request, .group = group_all, .on_batch = admit};

static const struct policy glancing_a = {.name = "a", .gate = &glancing_gate, .start = fake_start_a};
static const struct policy grouping_b = {.name = "b", .gate = &grouping_gate, .start = fake_start_b};
static const struct policy glancing_c = {.name = "c", .gate = &glancing_gate, .start = fake_start_c};
static const struct policy *const group_amid_glances[] = {&glancing_a, &grouping_b, &glancing_c, NULL};
static const struct policy *const only_glances[] = {&glancing_a, &glancing_c, NULL};
/* What the chain wants of GET with that key. */
static const struct chain_interest *glance(const char *key)
{
    char frame[64];
    struct resp_command framed = {0};
    size_t taken;
    int length = snprintf(frame, sizeof frame, "*2\r\n$3\r\nget\r\n$%zu\r\n%s\r\n", strlen(key), key);

    cr_assert_eq(resp_command_feed(&framed, frame, (size_t)length, UINT64_MAX, &taken), RESP_DONE);
    return chain_glance(chain, chain_interest(chain, get()), get(), &framed, frame, fake_attachments);
}

Test(chain_pieces, a_group_is_left_to_its_gate_by_those_that_only_glance)
{
    struct policy_request request = {.client = &fake_client, .command = get()};
    struct policy_decision decision;

    use_policies(group_amid_glances);
    fake_calls[0] = '\0';
    cr_assert_neq(chain_interest(chain, get())->glances, 0);
    cr_assert_eq(glance("abc"), chain_interest(chain, get()));
    cr_assert_eq(glance("cde"), chain_interest(chain, get()));
    cr_assert_eq(group_of(get()), 0, "who is concerned is asked about it by itself");
    cr_assert_eq(glance("bcd")->group, 7);
    cr_assert_eq(glance("bcd")->wanted, 2);
    cr_assert_eq(chain_admit(chain, &request, 16, &decision), 16);
    assert_calls("b#16");
}

Test(chain_pieces, what_concerns_none_of_those_that_glance_is_put_to_nobody)
{
    use_policies(only_glances);
    cr_assert_eq(glance("abc")->wanted, 3);
    cr_assert_eq(glance("bcd")->wanted, 0);
    cr_assert_eq(glance("bcd")->group, 0);
}

Test(chain_pieces, only_commands_with_one_key_are_glanced_at)
{
    static const char *const others[] = {"mget", "ping", "sort", "eval", "publish", "object", "zunion"};

    use_policies(group_amid_glances);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const struct command *command = command_find(slice_of(others[i]));
        cr_assert_not_null(command, "%s", others[i]);
        cr_assert_eq(group_of(command), 0, "%s", others[i]);
        cr_assert_eq(chain_interest(chain, command)->glances, 0, "%s", others[i]);
    }
    cr_assert_eq(chain_interest(chain, NULL)->glances, 0);
}

Test(chain_pieces, a_request_without_its_key_concerns_all)
{
    static const char frame[] = "*1\r\n$3\r\nget\r\n";
    struct resp_command framed = {0};
    size_t taken;

    use_policies(group_amid_glances);
    cr_assert_eq(resp_command_feed(&framed, frame, sizeof frame - 1, UINT64_MAX, &taken), RESP_DONE);
    cr_assert_eq(chain_glance(chain, chain_interest(chain, get()), get(), &framed, frame, fake_attachments),
                 chain_interest(chain, get()));
}
