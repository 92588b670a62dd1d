/* The chain of policies: who is asked, in which order, whose word counts, and who is owed an on_reply. */
#include "chain.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/*
 * Three policies that decide as `verdicts` says and write down each call as one word: "a?1" policy a was asked and had
 * ticket 1 before, "a=" with the outcome it was told, "a!" a client was closed, "a^" who a client is, "a~" a tick, "a-"
 * a drain, "a@" a reload, "a*" what happened, by its kind, "a." stop.
 */
struct fake {
    char letter;
    enum policy_verdict verdict;
    uint64_t last_ticket;
    uint32_t holds; /* as it was told when last asked */
    int64_t received_us;
    int64_t hold_until_us;
    bool refuses_to_start;
    bool wants_gets_only;
    bool wants_nothing;
    bool fails_to_reload;
    bool is_drained;
    bool is_deaf;
    const char *rule; /* by which it decides; NULL: none */
    struct policy_happening heard;
    _Atomic uint64_t *counters;
    struct policy_reply told;
    char told_head[RESP_HEAD_KEPT + 1];
};

static struct fake fakes[3];
static bool partial; /* what is asked about is the beginning of a request */
static char calls[1000];
static struct stats stats;
static const struct policy_host host = {0};
static const struct conf_rule rule = {.name = NULL};
static void *attachments[POLICIES_MAX];
static const struct policy_client client = {.id = 42, .user = "default", .name = "", .attachments = attachments};
static const char frame[] = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n";

static void write_down(const struct fake *fake, const char *format, unsigned long long number)
{
    size_t length = strlen(calls);

    length += (size_t)snprintf(calls + length, sizeof calls - length, "%s%c", length > 0 ? " " : "", fake->letter);
    snprintf(calls + length, sizeof calls - length, format, number);
}

static void *start(struct fake *fake, const struct policy_start *with)
{
    cr_assert_eq(with->host, &host);
    cr_assert_eq(with->rules, &rule);
    fake->counters = with->counters;
    return fake->refuses_to_start ? NULL : fake;
}

static void *start_a(const struct policy_start *with)
{
    return start(&fakes[0], with);
}

static void *start_b(const struct policy_start *with)
{
    return start(&fakes[1], with);
}

static void *start_c(const struct policy_start *with)
{
    return start(&fakes[2], with);
}

static bool wants(void *instance, const struct command *command)
{
    const struct fake *fake = instance;

    if (fake->wants_nothing) {
        return false;
    }
    return !fake->wants_gets_only || (command != NULL && strcmp(command->name, "get") == 0);
}

/* Gives each request a ticket of its own on the first question: 100 times the number of the policy, and counting. */
static enum policy_verdict on_request(void *instance, const struct policy_request *request,
                                      struct policy_decision *decision)
{
    struct fake *fake = instance;

    write_down(fake, "?%llu", *request->ticket);
    if (*request->ticket == 0) {
        *request->ticket = ++fake->last_ticket;
    }
    fake->holds = request->holds;
    fake->received_us = request->received_us;
    decision->hold_until_us = fake->hold_until_us;
    cr_assert_null(decision->rule);
    decision->rule = fake->rule;
    decision->length = (size_t)snprintf(decision->text, sizeof decision->text, "-%c\r\n", fake->letter);
    return fake->verdict;
}

static void on_reply(void *instance, const struct policy_reply *reply)
{
    struct fake *fake = instance;

    write_down(fake, "=%llu", reply->ticket);
    fake->told = *reply;
    snprintf(fake->told_head, sizeof fake->told_head, "%.*s", (int)reply->head.length,
             reply->head.length > 0 ? reply->head.data : "");
}

static void on_client_close(void *instance, const struct policy_client *closed, void *attachment)
{
    cr_assert_eq(attachment, NULL);
    write_down(instance, "!%llu", closed->id);
}

static void on_client(void *instance, const struct policy_client *told, void **attachment)
{
    struct fake *fake = instance;

    cr_assert_eq(attachment, &attachments[fake - fakes]);
    write_down(fake, "^%llu", told->id);
}

static bool on_drain(void *instance, size_t clients)
{
    struct fake *fake = instance;

    write_down(fake, "-%llu", clients);
    return fake->is_drained;
}

static void on_tick(void *instance, int64_t now_us)
{
    write_down(instance, "~%llu", (unsigned long long)now_us);
}

static bool listens(void *instance)
{
    const struct fake *fake = instance;

    return !fake->is_deaf;
}

static void on_happening(void *instance, const struct policy_happening *happening)
{
    struct fake *fake = instance;

    write_down(fake, "*%llu", happening->kind);
    fake->heard = *happening;
}

static void stop(void *instance)
{
    write_down(instance, ".", 0);
}

static bool reload(void *instance, const struct conf_rule *rules)
{
    struct fake *fake = instance;

    (void)rules;
    write_down(fake, "@%llu", 0);
    return !fake->fails_to_reload;
}

static const struct policy_counter fake_counters[] = {
    {"asked", STATS_COUNTER, "questions"},
    {"told", STATS_COUNTER, "answers"},
};

#define WHOLE_POLICY(letter_start)                                                                                     \
    {                                                                                                                  \
        .name = #letter_start, .start = letter_start, .wants = wants, .on_request = on_request, .on_reply = on_reply,  \
        .on_client_close = on_client_close, .on_client = on_client, .on_tick = on_tick, .on_drain = on_drain,          \
        .stop = stop, .reload = reload, .counters = fake_counters, .counter_count = 2                                  \
    }

static const struct policy policy_a = WHOLE_POLICY(start_a);
static const struct policy policy_b = WHOLE_POLICY(start_b);
static const struct policy policy_c = WHOLE_POLICY(start_c);
/* One that gives nothing but what it must. */
static const struct policy policy_bare = {.name = "bare", .start = start_b, .wants = wants, .on_request = on_request};
static const struct policy *const three[] = {&policy_a, &policy_b, &policy_c, NULL};

/* Two that listen, and between them one that does not. */
static const struct policy listener_a = {.name = "first",
                                         .start = start_a,
                                         .wants = wants,
                                         .on_request = on_request,
                                         .listens = listens,
                                         .on_happening = on_happening,
                                         .stop = stop,
                                         .reload = reload};
static const struct policy listener_c = {.name = "last",
                                         .start = start_c,
                                         .wants = wants,
                                         .on_request = on_request,
                                         .listens = listens,
                                         .on_happening = on_happening};
static const struct policy *const listening[] = {&listener_a, &policy_bare, &listener_c, NULL};

static struct chain *chain;
static struct chain_roster roster;

static struct chain *new_chain(const struct policy *const *list)
{
    cr_assert(chain_roster_open(&roster, list, 3));
    return chain_new(&roster, &rule, &stats, &host);
}

static void set_up(void)
{
    for (size_t i = 0; i < 3; i++) {
        fakes[i] = (struct fake){.letter = (char)('a' + i), .verdict = POLICY_PASS, .last_ticket = i * 100};
    }
    calls[0] = '\0';
    partial = false;
    stats = (struct stats){0};
    chain = new_chain(three);
    cr_assert_not_null(chain);
}

static void tear_down(void)
{
    if (chain != NULL) {
        chain_free(chain);
    }
}

TestSuite(chain, .init = set_up, .fini = tear_down);

#define assert_calls(expected)                                                                                         \
    do {                                                                                                               \
        cr_assert_str_eq(calls, expected);                                                                             \
        calls[0] = '\0';                                                                                               \
    } while (0)

static const struct command *get(void)
{
    return command_find((struct slice){"get", 3});
}

static bool is_wanted(const struct command *command)
{
    return chain_interest(chain, command)->wanted != 0;
}

static uint32_t group_of(const struct command *command)
{
    return chain_interest(chain, command)->group;
}

static enum policy_verdict ask_at(struct chain_record **record, struct policy_decision *decision, int64_t now_us)
{
    struct policy_request request = {
        .partial = partial,
        .client = &client,
        .command = get(),
        .name = {"GET", 3},
        .frame = {frame, sizeof frame - 1},
        .argument_count = 2,
        .received_us = now_us,
        .now_us = now_us,
    };

    return chain_ask(chain, &request, decision, record);
}

static enum policy_verdict ask(struct chain_record **record)
{
    struct policy_decision decision = {0};

    return ask_at(record, &decision, 1000);
}

static void end(struct chain_record *record, enum policy_outcome outcome, const char *head)
{
    chain_end(chain, record, &client, outcome, (struct slice){head, strlen(head)}, 77, 5000);
}

Test(chain, all_are_asked_in_order_and_owed_a_reply)
{
    struct chain_record *record = NULL;

    cr_assert_eq(ask(&record), POLICY_PASS);
    cr_assert_not_null(record);
    assert_calls("a?0 b?0 c?0");
    end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
    assert_calls("a=1 b=101 c=201");
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(fakes[i].told.outcome, POLICY_OUTCOME_REPLY);
        cr_assert_eq(fakes[i].told.client, &client);
        cr_assert_eq(fakes[i].told.command, get());
        cr_assert_eq(fakes[i].told.length, 77);
        cr_assert_eq(fakes[i].told.received_us, 1000);
        cr_assert_eq(fakes[i].told.now_us, 5000);
        cr_assert_str_eq(fakes[i].told_head, "+OK\r\n");
    }
}

Test(chain, the_first_verdict_that_is_not_pass_wins)
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

Test(chain, closing_is_told_to_those_that_passed)
{
    struct chain_record *record = NULL;

    fakes[2].verdict = POLICY_CLOSE;
    cr_assert_eq(ask(&record), POLICY_CLOSE);
    end(record, POLICY_OUTCOME_OWNERLESS, "");
    assert_calls("a?0 b?0 c?0 a=1 b=101");
}

Test(chain, a_held_request_goes_on_where_it_was_held)
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

Test(chain, several_may_hold_one_after_the_other)
{
    struct chain_record *record = NULL;

    for (size_t i = 0; i < 3; i++) {
        fakes[i].verdict = POLICY_HOLD;
        cr_assert_eq(ask(&record), POLICY_HOLD);
        fakes[i].verdict = POLICY_PASS;
    }
    cr_assert_eq(ask(&record), POLICY_PASS);
    cr_assert_eq(fakes[2].holds, 3);
    assert_calls("a?0 a?1 b?0 b?101 c?0 c?201");
    end(record, POLICY_OUTCOME_LOST, "");
    assert_calls("a=1 b=101 c=201");
}

Test(chain, a_request_that_ends_while_it_is_held_is_told_to_the_holder)
{
    struct chain_record *record = NULL;

    fakes[1].verdict = POLICY_HOLD;
    ask(&record);
    end(record, POLICY_OUTCOME_OWNERLESS, "");
    assert_calls("a?0 b?0 a=1 b=101");
    cr_assert_eq(fakes[1].told.outcome, POLICY_OUTCOME_OWNERLESS);
}

Test(chain, a_refusal_after_a_hold_is_not_told_to_the_one_that_refused)
{
    struct chain_record *record = NULL;

    fakes[1].verdict = POLICY_HOLD;
    ask(&record);
    fakes[1].verdict = POLICY_REPLY;
    cr_assert_eq(ask(&record), POLICY_REPLY);
    end(record, POLICY_OUTCOME_LOCAL, "");
    assert_calls("a?0 b?0 b?101 a=1");
}

Test(chain, who_wants_it_whole_is_asked_again_and_nobody_before)
{
    struct chain_record *record = NULL;
    struct policy_decision decision = {0};

    partial = true;
    fakes[1].verdict = POLICY_WHOLE;
    cr_assert_eq(ask_at(&record, &decision, 1000), POLICY_WHOLE);
    cr_assert_eq(ask_at(&record, &decision, 1500), POLICY_WHOLE);
    assert_calls("a?0 b?0 b?101");
    cr_assert_eq(fakes[1].received_us, 1500, "more of it was received since");
    partial = false;
    fakes[1].verdict = POLICY_PASS;
    cr_assert_eq(ask_at(&record, &decision, 2000), POLICY_PASS);
    assert_calls("b?101 c?0");
    cr_assert_eq(fakes[1].holds, 0, "it was not held");
    cr_assert_eq(fakes[2].received_us, 2000);
    end(record, POLICY_OUTCOME_REPLY, ":1\r\n");
    assert_calls("a=1 b=101 c=201");
    cr_assert_eq(fakes[0].told.received_us, 2000);
}

Test(chain, several_may_want_it_whole_or_hold_it)
{
    struct chain_record *record = NULL;
    struct policy_decision decision = {0};

    partial = true;
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

Test(chain, a_request_that_ends_before_it_is_whole_is_told_to_those_that_saw_it)
{
    struct chain_record *record = NULL;

    partial = true;
    fakes[1].verdict = POLICY_WHOLE;
    ask(&record);
    end(record, POLICY_OUTCOME_OWNERLESS, "");
    assert_calls("a?0 b?0 a=1 b=101");
}

Test(chain, a_whole_request_cannot_be_wanted_whole, .signal = SIGABRT)
{
    struct chain_record *record = NULL;

    fakes[1].verdict = POLICY_WHOLE;
    ask(&record);
}

Test(chain, records_do_not_remember_the_request_before)
{
    struct chain_record *first = NULL, *second = NULL, *third = NULL;

    fakes[0].verdict = POLICY_HOLD;
    ask(&first);
    fakes[0].verdict = POLICY_PASS;
    ask(&first);
    end(first, POLICY_OUTCOME_REPLY, ":1\r\n");
    calls[0] = '\0';
    cr_assert_eq(ask(&second), POLICY_PASS);
    cr_assert_eq(fakes[0].holds, 0);
    cr_assert_eq(ask(&third), POLICY_PASS);
    assert_calls("a?0 b?0 c?0 a?0 b?0 c?0");
    cr_assert_neq(second, third);
    end(third, POLICY_OUTCOME_REPLY, ":1\r\n");
    end(second, POLICY_OUTCOME_REPLY, ":1\r\n");
    assert_calls("a=3 b=103 c=203 a=2 b=102 c=202");
}

Test(chain, a_reload_asks_anew_what_is_wanted)
{
    struct chain_record *record = NULL;

    fakes[0].wants_nothing = true;
    fakes[2].wants_nothing = true;
    cr_assert(chain_reload(chain, &rule));
    assert_calls("a@0 b@0 c@0");
    cr_assert(is_wanted(get()));
    ask(&record);
    end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
    assert_calls("b?0 b=101");
    fakes[1].wants_nothing = true;
    cr_assert(chain_reload(chain, &rule));
    cr_assert_not(is_wanted(get()));
    cr_assert_not(is_wanted(NULL));
}

Test(chain, who_holds_a_request_is_asked_again_though_it_wants_no_more_of_them)
{
    struct chain_record *record = NULL;

    fakes[1].verdict = POLICY_HOLD;
    ask(&record);
    fakes[1].wants_nothing = true;
    fakes[1].verdict = POLICY_PASS;
    chain_reload(chain, &rule);
    calls[0] = '\0';
    cr_assert_eq(ask(&record), POLICY_PASS);
    end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
    assert_calls("b?101 c?0 a=1 b=101 c=201");
}

Test(chain, a_reload_that_fails_for_one_is_done_for_the_others_and_told)
{
    fakes[1].fails_to_reload = true;
    cr_assert_not(chain_reload(chain, &rule));
    assert_calls("a@0 b@0 c@0");
}

Test(chain, each_policy_has_counters_of_its_own)
{
    policy_count(&fakes[0].counters[1], 2);
    policy_count(&fakes[0].counters[1], 3);
    policy_count(&fakes[2].counters[0], 7);
    cr_assert_eq(chain_counter(chain, 0, 0), 0);
    cr_assert_eq(chain_counter(chain, 0, 1), 5);
    cr_assert_eq(chain_counter(chain, 1, 1), 0);
    cr_assert_eq(chain_counter(chain, 2, 0), 7);
}

Test(chain, nothing_is_owed_for_what_nobody_was_asked)
{
    end(NULL, POLICY_OUTCOME_REPLY, "+OK\r\n");
    assert_calls("");
}

Test(chain, only_those_that_want_a_command_are_asked)
{
    struct chain_record *record = NULL;

    chain_free(chain);
    fakes[0].wants_gets_only = true;
    fakes[2].wants_gets_only = true;
    chain = new_chain(three);
    calls[0] = '\0';
    struct policy_decision decision;
    struct policy_request request = {.client = &client, .command = NULL, .name = {"X", 1}, .frame = {frame, 1}};
    cr_assert(is_wanted(get()));
    cr_assert(is_wanted(NULL));
    cr_assert_eq(chain_ask(chain, &request, &decision, &record), POLICY_PASS);
    assert_calls("b?0");
    end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
    assert_calls("b=101");
}

Test(chain, a_command_that_nobody_wants_costs_nothing)
{
    static const struct policy *const list[] = {&policy_a, NULL};

    chain_free(chain);
    fakes[0].wants_gets_only = true;
    chain = new_chain(list);
    cr_assert(is_wanted(get()));
    cr_assert_not(is_wanted(command_find((struct slice){"set", 3})));
    cr_assert_not(is_wanted(NULL));
}

Test(chain, an_empty_list_wants_nothing)
{
    static const struct policy *const none[] = {NULL};

    chain_free(chain);
    chain = new_chain(none);
    cr_assert_not(is_wanted(get()));
    cr_assert_not(is_wanted(NULL));
    calls[0] = '\0';
    chain_client_closed(chain, &client);
    chain_tick(chain, 1);
    assert_calls("");
}

Test(chain, clients_and_ticks_are_told_to_all)
{
    chain_client_closed(chain, &client);
    chain_tick(chain, 7);
    assert_calls("a!42 b!42 c!42 a~7 b~7 c~7");
    chain_client(chain, &client);
    assert_calls("a^42 b^42 c^42");
}

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

Test(chain, hooks_may_be_missing)
{
    static const struct policy *const list[] = {&policy_a, &policy_bare, NULL};
    struct chain_record *record = NULL;

    chain_free(chain);
    chain = new_chain(list);
    calls[0] = '\0';
    cr_assert_eq(ask(&record), POLICY_PASS);
    end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
    chain_client_closed(chain, &client);
    chain_tick(chain, 7);
    chain_client(chain, &client);
    (void)chain_drain(chain, 0);
    assert_calls("a?0 b?0 a=1 a!42 a~7 a^42 a-0");
}

Test(chain, who_admits_is_not_told_of_the_reply)
{
    struct chain_record *record = NULL;

    fakes[1].verdict = POLICY_ADMIT;
    cr_assert_eq(ask(&record), POLICY_PASS);
    cr_assert_not_null(record);
    end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
    assert_calls("a?0 b?0 c?0 a=1 c=201");
}

Test(chain, nothing_is_remembered_of_a_request_that_all_admit)
{
    struct chain_record *record = NULL;

    for (size_t i = 0; i < 3; i++) {
        fakes[i].verdict = POLICY_ADMIT;
    }
    cr_assert_eq(ask(&record), POLICY_PASS);
    cr_assert_null(record);
    cr_assert_eq(ask(&record), POLICY_PASS);
    assert_calls("a?0 b?0 c?0 a?0 b?0 c?0");
}

/* Leaves the number of its questions with the client. */
static enum policy_verdict count_questions(void *instance, const struct policy_request *request,
                                           struct policy_decision *decision)
{
    uintptr_t questions = (uintptr_t)*request->attachment + 1;

    (void)instance;
    (void)decision;
    *request->attachment = (void *)questions;
    return POLICY_ADMIT;
}

static void told_questions(void *instance, const struct policy_client *closed, void *attachment)
{
    (void)instance;
    (void)closed;
    cr_assert_eq((uintptr_t)attachment, 2);
    calls[0] = '!';
    calls[1] = '\0';
}

static size_t shared_threads;

static void *share(size_t threads)
{
    shared_threads += threads;
    return &shared_threads;
}

static void unshare(void *shared)
{
    cr_assert_eq(shared, &shared_threads);
    shared_threads = 0;
}

static void *start_sharing(const struct policy_start *with)
{
    cr_assert_eq(with->shared, &shared_threads);
    return start_b(with);
}

Test(chain, what_a_policy_leaves_with_a_client_comes_back)
{
    static const struct policy counting = {.name = "counting",
                                           .start = start_b,
                                           .wants = wants,
                                           .on_request = count_questions,
                                           .on_client_close = told_questions};
    static const struct policy *const list[] = {&policy_bare, &counting, NULL};
    struct chain_record *record = NULL;

    chain_free(chain);
    chain = new_chain(list);
    (void)ask(&record);
    (void)ask(&record);
    cr_assert_null(attachments[0]);
    chain_client_closed(chain, &client);
    assert_calls("!");
}

static uint32_t group_gets(void *instance, const struct command *command)
{
    (void)instance;
    return command != NULL && strcmp(command->name, "get") == 0 ? 7 : 0;
}

static bool admit_up_to_three(void *instance, const struct policy_request *request, uint32_t count)
{
    cr_assert_eq(request->attachment, &attachments[1]);
    write_down(instance, "#%llu", count);
    return count <= 3;
}

#define GROUPING                                                                                                       \
    {                                                                                                                  \
        .name = "grouping", .start = start_b, .wants = wants, .on_request = on_request, .group = group_gets,           \
        .on_batch = admit_up_to_three                                                                                  \
    }

Test(chain, a_group_is_put_to_its_policy_at_once)
{
    static const struct policy grouping = GROUPING;
    static const struct policy *const list[] = {&policy_a, &grouping, NULL};
    struct policy_request request = {.client = &client, .command = get()};

    chain_free(chain);
    fakes[0].wants_nothing = true;
    chain = new_chain(list);
    cr_assert_eq(group_of(get()), 7);
    cr_assert_eq(group_of(command_find((struct slice){"set", 3})), 0);
    cr_assert_eq(group_of(NULL), 0);
    calls[0] = '\0';
    cr_assert(chain_admit(chain, &request, 3));
    cr_assert_not(chain_admit(chain, &request, 4));
    assert_calls("b#3 b#4");
}

Test(chain, there_is_no_group_if_two_policies_want_a_command)
{
    static const struct policy grouping = GROUPING;
    static const struct policy *const first[] = {&grouping, &policy_c, NULL};
    static const struct policy *const last[] = {&policy_a, &grouping, NULL};

    chain_free(chain);
    chain = new_chain(first);
    cr_assert_eq(group_of(get()), 0);
    chain_free(chain);
    chain = new_chain(last);
    cr_assert_eq(group_of(get()), 0);
}

Test(chain, what_instances_share_is_made_once)
{
    static const struct policy sharing = {.name = "sharing",
                                          .start = start_sharing,
                                          .wants = wants,
                                          .on_request = on_request,
                                          .share = share,
                                          .unshare = unshare};
    static const struct policy *const list[] = {&policy_bare, &sharing, NULL};

    chain_free(chain);
    chain = new_chain(list);
    struct chain *other = chain_new(&roster, &rule, &stats, &host);
    cr_assert_eq(shared_threads, 3);
    chain_free(other);
    chain_free(chain);
    chain = NULL;
    cr_assert_eq(shared_threads, 3);
    chain_roster_close(&roster);
    cr_assert_eq(shared_threads, 0);
}

Test(chain, all_are_stopped)
{
    chain_free(chain);
    chain = NULL;
    assert_calls("a. b. c.");
}

Test(chain, those_that_were_started_are_stopped_when_one_cannot_be)
{
    chain_free(chain);
    calls[0] = '\0';
    fakes[1].refuses_to_start = true;
    chain = new_chain(three);
    cr_assert_null(chain);
    assert_calls("a.");
}

Test(chain, verdicts_are_counted)
{
    static const enum policy_verdict verdicts[] = {POLICY_PASS, POLICY_HOLD, POLICY_HOLD, POLICY_REPLY};
    struct chain_record *record = NULL;

    for (size_t i = 0; i < sizeof verdicts / sizeof verdicts[0]; i++) {
        fakes[2].verdict = verdicts[i];
        if (i == 1) {
            end(record, POLICY_OUTCOME_REPLY, "+OK\r\n");
            record = NULL;
        }
        ask(&record);
    }
    end(record, POLICY_OUTCOME_LOCAL, "");
    cr_assert_eq(stats_get(&stats, STATS_POLICY_HOLDS), 2);
    cr_assert_eq(stats_get(&stats, STATS_POLICY_REPLIES), 1);
    cr_assert_eq(stats_get(&stats, STATS_POLICY_CLOSES), 0);
}

static void use_listeners(void)
{
    chain_free(chain);
    chain = new_chain(listening);
    calls[0] = '\0';
}

Test(chain, nobody_listens_unless_it_says_so)
{
    const struct policy_happening happening = {POLICY_UPSTREAM_LOST, 1, "redis", NULL, "gone"};

    cr_assert_not(chain_listens(chain));
    chain_happened(chain, &happening);
    assert_calls("");
    use_listeners();
    cr_assert(chain_listens(chain));
    chain_happened(chain, &happening);
    assert_calls("a*3 c*3");
    cr_assert_eq(fakes[2].heard.count, 1);
    cr_assert_str_eq(fakes[2].heard.source, "redis");
    cr_assert_str_eq(fakes[2].heard.what, "gone");
    fakes[0].is_deaf = true;
    cr_assert(chain_reload(chain, &rule));
    calls[0] = '\0';
    chain_happened(chain, &happening);
    assert_calls("c*3");
    fakes[2].is_deaf = true;
    cr_assert(chain_reload(chain, &rule));
    cr_assert_not(chain_listens(chain));
}

Test(chain, who_refuses_by_a_rule_is_told_of_to_who_listens)
{
    struct chain_record *record = NULL;

    use_listeners();
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

Test(chain, an_answer_is_no_refusal_and_a_hold_is_none)
{
    struct chain_record *record = NULL;

    use_listeners();
    fakes[1].verdict = POLICY_HOLD;
    fakes[1].rule = "later";
    ask(&record);
    fakes[1].verdict = POLICY_REPLY;
    fakes[1].rule = NULL;
    ask(&record);
    assert_calls("a?0 b?0 b?101");
}

Test(chain, who_closes_refuses_and_names_of_unknown_commands_are_not_told)
{
    struct chain_record *record = NULL;
    struct policy_decision decision;
    struct policy_request request = {.client = &client, .command = NULL, .name = {"X", 1}, .frame = {frame, 1}};

    use_listeners();
    fakes[2].verdict = POLICY_CLOSE;
    cr_assert_eq(chain_ask(chain, &request, &decision, &record), POLICY_CLOSE);
    end(record, POLICY_OUTCOME_OWNERLESS, "");
    assert_calls("a?0 b?0 c?0 a*0 c*0");
    cr_assert_str_eq(fakes[0].heard.source, "last");
    cr_assert_null(fakes[0].heard.rule);
    cr_assert_str_eq(fakes[0].heard.what, "unknown command");
}
