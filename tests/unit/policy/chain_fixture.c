#include "chain_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

struct fake fakes[3];
char fake_calls[1000];
struct stats fake_stats;
const struct conf_rule fake_rule = {.name = NULL};
void *fake_attachments[POLICIES_MAX];
const struct policy_client fake_client = {.id = 42, .user = "default", .name = "", .attachments = fake_attachments};
bool fake_request_is_partial;
struct chain *chain;
struct chain_roster chain_roster;

static const struct policy_host host = {0};
static const char frame[] = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n";

/* ---- the policies ---- */

void fake_write_down(const struct fake *fake, const char *format, unsigned long long number)
{
    size_t length = strlen(fake_calls);

    length +=
        (size_t)snprintf(fake_calls + length, sizeof fake_calls - length, "%s%c", length > 0 ? " " : "", fake->letter);
    snprintf(fake_calls + length, sizeof fake_calls - length, format, number);
}

static void *start(struct fake *fake, const struct policy_start *with)
{
    cr_assert_eq(with->host, &host);
    cr_assert_eq(with->rules, &fake_rule);
    fake->counters = with->counters;
    return fake->refuses_to_start ? NULL : fake;
}

void *fake_start_a(const struct policy_start *with)
{
    return start(&fakes[0], with);
}

void *fake_start_b(const struct policy_start *with)
{
    return start(&fakes[1], with);
}

void *fake_start_c(const struct policy_start *with)
{
    return start(&fakes[2], with);
}

bool fake_wants(void *instance, const struct command *command)
{
    const struct fake *fake = instance;

    if (fake->wants_nothing) {
        return false;
    }
    return !fake->wants_gets_only || (command != NULL && strcmp(command->name, "get") == 0);
}

/* Gives each request a ticket of its own on the first admin query: 100 times the number of the policy, and counting. */
enum policy_verdict fake_on_request(void *instance, const struct policy_request *request,
                                    struct policy_decision *decision)
{
    struct fake *fake = instance;

    fake_write_down(fake, "?%llu", *request->ticket);
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

    fake_write_down(fake, "=%llu", reply->ticket);
    fake->told = *reply;
    snprintf(fake->told_head, sizeof fake->told_head, "%.*s", (int)reply->head.length,
             reply->head.length > 0 ? reply->head.data : "");
}

static void on_client_close(void *instance, const struct policy_client *closed, void *attachment)
{
    cr_assert_eq(attachment, NULL);
    fake_write_down(instance, "!%llu", closed->id);
}

static void on_client(void *instance, const struct policy_client *told, void **attachment)
{
    struct fake *fake = instance;

    cr_assert_eq(attachment, &fake_attachments[fake - fakes]);
    fake_write_down(fake, "^%llu", told->id);
}

static bool on_drain(void *instance, size_t clients)
{
    struct fake *fake = instance;

    fake_write_down(fake, "-%llu", clients);
    return fake->is_drained;
}

static void on_tick(void *instance, int64_t now_us)
{
    fake_write_down(instance, "~%llu", (unsigned long long)now_us);
}

void fake_stop(void *instance)
{
    fake_write_down(instance, ".", 0);
}

bool fake_reload(void *instance, const struct conf_rule *rules)
{
    struct fake *fake = instance;

    (void)rules;
    fake_write_down(fake, "@%llu", 0);
    return !fake->fails_to_reload;
}

static const struct policy_counter fake_counters[] = {
    {"asked", STATS_COUNTER, "questions"},
    {"told", STATS_COUNTER, "answers"},
};

static const struct policy_gate whole_gate = {.wants = fake_wants, .on_request = fake_on_request, .on_reply = on_reply};
const struct policy_gate fake_bare_gate = {.wants = fake_wants, .on_request = fake_on_request};

#define WHOLE_POLICY(start_hook)                                                                                       \
    {                                                                                                                  \
        .name = #start_hook, .gate = &whole_gate, .start = start_hook, .on_client_close = on_client_close,             \
        .on_client = on_client, .on_tick = on_tick, .on_drain = on_drain, .stop = fake_stop, .reload = fake_reload,    \
        .counters = fake_counters, .counter_count = 2                                                                  \
    }

const struct policy fake_policy_a = WHOLE_POLICY(fake_start_a);
const struct policy fake_policy_b = WHOLE_POLICY(fake_start_b);
const struct policy fake_policy_c = WHOLE_POLICY(fake_start_c);
const struct policy fake_bare = {.name = "bare", .gate = &fake_bare_gate, .start = fake_start_b};
const struct policy *const fake_policies[] = {&fake_policy_a, &fake_policy_b, &fake_policy_c, NULL};

/* ---- the chain ---- */

static void new_chain(const struct policy *const *list)
{
    cr_assert(chain_roster_open(&chain_roster, list, 3));
    chain = chain_of_roster();
}

struct chain *chain_of_roster(void)
{
    return chain_new(&chain_roster, &fake_rule, &fake_stats, &host);
}

void open_chain(void)
{
    for (size_t i = 0; i < 3; i++) {
        fakes[i] = (struct fake){.letter = (char)('a' + i), .verdict = POLICY_PASS, .last_ticket = i * 100};
    }
    new_chain(fake_policies);
    cr_assert_not_null(chain);
}

void close_chain(void)
{
    if (chain != NULL) {
        chain_free(chain);
    }
}

void use_policies(const struct policy *const *list)
{
    chain_free(chain);
    fake_calls[0] = '\0';
    new_chain(list);
}

const struct command *get(void)
{
    return command_find((struct slice){"get", 3});
}

bool is_wanted(const struct command *command)
{
    return chain_interest(chain, command)->wanted != 0;
}

uint32_t group_of(const struct command *command)
{
    return chain_interest(chain, command)->group;
}

/* ---- requests ---- */

enum policy_verdict ask_at(struct chain_record **record, struct policy_decision *decision, int64_t now_us)
{
    struct policy_request request = {
        .partial = fake_request_is_partial,
        .client = &fake_client,
        .command = get(),
        .name = {"GET", 3},
        .frame = {frame, sizeof frame - 1},
        .argument_count = 2,
        .received_us = now_us,
        .now_us = now_us,
    };

    return chain_ask(chain, &request, decision, record);
}

enum policy_verdict ask(struct chain_record **record)
{
    struct policy_decision decision = {0};

    return ask_at(record, &decision, 1000);
}

enum policy_verdict ask_of_unknown(struct chain_record **record)
{
    struct policy_decision decision;
    struct policy_request request = {.client = &fake_client, .command = NULL, .name = {"X", 1}, .frame = {frame, 1}};

    return chain_ask(chain, &request, &decision, record);
}

void end(struct chain_record *record, enum policy_outcome outcome, const char *head)
{
    chain_end(chain, record, &fake_client, outcome, (struct slice){head, strlen(head)}, 77, 5000);
}
