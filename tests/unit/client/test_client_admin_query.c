/* Admin queries to policies: answered at once, later, too late or never, and told to who asked exactly once. */
#include "client/client_host_private.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_US (POLICY_ANSWER_PATIENCE_MS * INT64_C(1000))
#define ASKED_MAX 4

/* Who asks, and what it was told. */
struct asker {
    size_t told;
    enum policy_answer kind;
    char text[64];
};

static struct asker askers[ASKED_MAX];
/* What the policy has in its hands. */
static struct admin_query *admin_queries[ASKED_MAX];
static size_t asked;
static char first_argument[16];

static struct stats stats;
static struct reactor reactor;
static struct policy_host host;
static struct client_service service;
static struct chain_roster roster;

static void answered(void *context, enum policy_answer kind, struct slice text)
{
    struct asker *asker = context;

    asker->told++;
    asker->kind = kind;
    snprintf(asker->text, sizeof asker->text, "%.*s", (int)text.length, text.data);
}

static void answer(size_t number, enum policy_answer kind, const char *text)
{
    host.answer(host.context, admin_queries[number], kind, (struct slice){text, strlen(text)});
    admin_queries[number] = NULL;
}

static void *start(const struct policy_start *with)
{
    (void)with;
    return &asked;
}

static void keep(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    cr_assert_eq(instance, &asked);
    cr_assert_eq(count, 2);
    snprintf(first_argument, sizeof first_argument, "%.*s", (int)arguments[1].length, arguments[1].data);
    admin_queries[asked++] = admin_query;
}

static void answer_within(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    (void)instance;
    host.answer(host.context, admin_query, POLICY_ANSWER_TEXT, arguments[count - 1]);
}

static enum policy_answer refuse(void *instance, size_t count, const struct slice *arguments, FILE *out)
{
    cr_assert_eq(instance, &asked);
    fprintf(out, "no %.*s", (int)arguments[count - 1].length, arguments[count - 1].data);
    return POLICY_ANSWER_ERROR;
}

enum { VERB_KEEP, VERB_WITHIN, VERB_REFUSE };

static const struct policy_verb verbs[] = {
    [VERB_KEEP] = {.name = "KEEP", .ask = keep},
    [VERB_WITHIN] = {.name = "WITHIN", .ask = answer_within},
    [VERB_REFUSE] = {.name = "REFUSE", .run = refuse},
};

static const struct policy policy = {.name = "fake", .verbs = verbs, .verb_count = 3, .start = start};
static const struct policy *const list[] = {&policy, NULL};

static void ask(size_t asker, size_t verb)
{
    const struct slice arguments[] = {{"VERB", 4}, {"thing", 5}};
    const struct client_admin_query admin_query = {
        .verb = &verbs[verb],
        .count = 2,
        .arguments = arguments,
        .answered = answered,
        .context = &askers[asker],
    };

    client_service_ask_policy(&service, &admin_query);
}

static void assert_told(size_t asker, enum policy_answer kind, const char *text)
{
    cr_assert_eq(askers[asker].told, 1);
    cr_assert_eq(askers[asker].kind, kind);
    cr_assert_str_eq(askers[asker].text, text);
}

static void set_up(void)
{
    cr_assert(chain_roster_open(&roster, list, 1));
    reactor.now_us = 1000;
    host = client_policy_host(&service, 0);
    service.reactor = &reactor;
    service.chain = chain_new(&roster, NULL, &stats, &host);
    cr_assert_not_null(service.chain);
}

/* As client_service_free() does. */
static void tear_down(void)
{
    chain_free(service.chain);
    client_admin_queries_end(&service);
    cr_assert(LIST_EMPTY(&service.admin_queries));
    chain_roster_close(&roster);
}

TestSuite(client_admin_query, .init = set_up, .fini = tear_down);

Test(client_admin_query, a_verb_that_runs_is_answered_at_once)
{
    ask(0, VERB_REFUSE);
    assert_told(0, POLICY_ANSWER_ERROR, "no thing");
}

Test(client_admin_query, an_answer_may_come_within_the_admin_query)
{
    ask(0, VERB_WITHIN);
    assert_told(0, POLICY_ANSWER_TEXT, "thing");
    cr_assert(LIST_EMPTY(&service.admin_queries));
}

Test(client_admin_query, answers_come_later_and_in_any_order)
{
    static const size_t order[] = {1, 3, 0, 2};

    for (size_t i = 0; i < ASKED_MAX; i++) {
        ask(i, VERB_KEEP);
    }
    cr_assert_str_eq(first_argument, "thing");
    for (size_t i = 0; i < ASKED_MAX; i++) {
        char text[] = {(char)('a' + order[i]), '\0'};
        cr_assert_eq(askers[order[i]].told, 0);
        answer(order[i], POLICY_ANSWER_TEXT, text);
        assert_told(order[i], POLICY_ANSWER_TEXT, text);
    }
    cr_assert(LIST_EMPTY(&service.admin_queries));
}

Test(client_admin_query, who_has_waited_for_too_long_is_told_so_once)
{
    ask(0, VERB_KEEP);
    reactor.now_us += 10;
    ask(1, VERB_KEEP);
    client_admin_queries_tick(&service, 1000 + PATIENCE_US - 1);
    cr_assert_eq(askers[0].told, 0);
    client_admin_queries_tick(&service, 1000 + PATIENCE_US);
    client_admin_queries_tick(&service, 1000 + PATIENCE_US + 1);
    assert_told(0, POLICY_ANSWER_ERROR, "there was no answer in time");
    cr_assert_eq(askers[1].told, 0);
}

Test(client_admin_query, an_answer_that_comes_too_late_is_dropped)
{
    ask(0, VERB_KEEP);
    ask(1, VERB_KEEP);
    client_admin_queries_tick(&service, 1000 + PATIENCE_US);
    answer(0, POLICY_ANSWER_TEXT, "late");
    answer(1, POLICY_ANSWER_OK, "");
    assert_told(0, POLICY_ANSWER_ERROR, "there was no answer in time");
    assert_told(1, POLICY_ANSWER_ERROR, "there was no answer in time");
    cr_assert(LIST_EMPTY(&service.admin_queries));
}

Test(client_admin_query, what_the_policy_leaves_unanswered_is_ended)
{
    for (size_t i = 0; i < 3; i++) {
        ask(i, VERB_KEEP);
    }
    answer(1, POLICY_ANSWER_OK, "");
    client_admin_queries_tick(&service, 1000 + PATIENCE_US - 1);
    client_admin_queries_end(&service);
    assert_told(0, POLICY_ANSWER_ERROR, "the process is ending");
    assert_told(1, POLICY_ANSWER_OK, "");
    assert_told(2, POLICY_ANSWER_ERROR, "the process is ending");
}
