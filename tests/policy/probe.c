#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "probe:"
/* "Until somebody resumes it": longer than any test. */
#define WAIT_US ((int64_t)600 * 1000000)

/* ---- the ledger: what became of each request ---- */

enum entry_state { ENTRY_NEW, ENTRY_HELD, ENTRY_PASSED, ENTRY_ENDED };

struct entry {
    enum entry_state state;
    uint64_t client;
    uint32_t holds;
};

struct counts {
    unsigned long long requests; /* told apart by ticket; asks counts the calls */
    unsigned long long asks;
    unsigned long long passed;
    unsigned long long replied;
    unsigned long long held;   /* verdicts, not requests, … */
    unsigned long long wanted; /* … as are these, of WHOLE */
    unsigned long long closed;
    unsigned long long outcomes[POLICY_OUTCOME_OWNERLESS + 1];
    unsigned long long errors; /* replies of Redis that are errors */
    unsigned long long clients_closed;
    unsigned long long open;
};

struct ledger {
    const char *owner;
    struct entry *entries; /* by ticket; 0 is no ticket */
    size_t count;
    size_t capacity;
    struct counts counts;
};

static void broken(const struct ledger *ledger, const char *rule, uint64_t ticket)
{
    fprintf(stderr, "assertion failed: %s: %s (ticket %llu)\n", ledger->owner, rule, (unsigned long long)ticket);
    abort();
}

static uint64_t ledger_open(struct ledger *ledger, uint64_t client)
{
    if (ledger->count == ledger->capacity) {
        ledger->capacity = ledger->capacity == 0 ? 1024 : ledger->capacity * 2;
        ledger->entries = realloc(ledger->entries, ledger->capacity * sizeof *ledger->entries);
        if (ledger->entries == NULL) {
            abort();
        }
    }
    ledger->entries[ledger->count] = (struct entry){.client = client};
    return ledger->count++;
}

static struct entry *ledger_find(struct ledger *ledger, uint64_t ticket)
{
    if (ticket == 0 || ticket >= ledger->count) {
        broken(ledger, "a ticket that was never given", ticket);
    }
    return &ledger->entries[ticket];
}

/* The entry for the request that is asked about: a new one, or the one that was held. */
static struct entry *ledger_ask(struct ledger *ledger, const struct policy_request *request)
{
    ledger->counts.asks++;
    if (*request->ticket == 0) {
        *request->ticket = ledger_open(ledger, request->client->id);
        ledger->counts.requests++;
        return ledger_find(ledger, *request->ticket);
    }
    struct entry *entry = ledger_find(ledger, *request->ticket);
    if (entry->state != ENTRY_HELD) {
        broken(ledger, "asked again about a request that is not held", *request->ticket);
    }
    if (entry->client != request->client->id || entry->holds > request->holds) {
        broken(ledger, "asked about another request than the one that was held", *request->ticket);
    }
    ledger->counts.open--;
    return entry;
}

static enum policy_verdict ledger_decide(struct ledger *ledger, struct entry *entry, enum policy_verdict verdict)
{
    static const enum entry_state states[] = {
        [POLICY_PASS] = ENTRY_PASSED, [POLICY_REPLY] = ENTRY_ENDED, [POLICY_HOLD] = ENTRY_HELD,
        [POLICY_WHOLE] = ENTRY_HELD,  [POLICY_CLOSE] = ENTRY_ENDED,
    };

    entry->state = states[verdict];
    ledger->counts.passed += verdict == POLICY_PASS;
    ledger->counts.replied += verdict == POLICY_REPLY;
    ledger->counts.closed += verdict == POLICY_CLOSE;
    ledger->counts.wanted += verdict == POLICY_WHOLE;
    if (verdict == POLICY_HOLD) {
        ledger->counts.held++;
        entry->holds++;
    }
    ledger->counts.open += entry->state != ENTRY_ENDED;
    return verdict;
}

static void ledger_end(struct ledger *ledger, const struct policy_reply *reply)
{
    struct entry *entry = ledger_find(ledger, reply->ticket);

    if (entry->state != ENTRY_HELD && entry->state != ENTRY_PASSED) {
        broken(ledger, "a reply to a request that is neither passed nor held", reply->ticket);
    }
    if (reply->client != NULL && reply->client->id != entry->client) {
        broken(ledger, "a reply to another client's request", reply->ticket);
    }
    if ((reply->outcome == POLICY_OUTCOME_REPLY) != (reply->head.length > 0) || reply->now_us < reply->received_us) {
        broken(ledger, "a reply without a head, or before its request", reply->ticket);
    }
    if (entry->state == ENTRY_HELD && reply->outcome == POLICY_OUTCOME_REPLY) {
        broken(ledger, "Redis answered a request that is held", reply->ticket);
    }
    entry->state = ENTRY_ENDED;
    ledger->counts.open--;
    ledger->counts.outcomes[reply->outcome]++;
    ledger->counts.errors += reply->head.length > 0 && reply->head.data[0] == '-';
}

static void ledger_client_closed(struct ledger *ledger, uint64_t client)
{
    ledger->counts.clients_closed++;
    for (size_t ticket = 1; ticket < ledger->count; ticket++) {
        if (ledger->entries[ticket].client == client && ledger->entries[ticket].state != ENTRY_ENDED) {
            broken(ledger, "a client was closed with a request open", ticket);
        }
    }
}

static void ledger_start(struct ledger *ledger, const char *owner)
{
    *ledger = (struct ledger){.owner = owner};
    (void)ledger_open(ledger, 0);
    ledger->entries[0].state = ENTRY_ENDED;
}

static void ledger_stop(struct ledger *ledger)
{
    if (ledger->counts.open != 0) {
        broken(ledger, "requests are open at the end", ledger->counts.open);
    }
    free(ledger->entries);
}

static void ledger_print(const struct ledger *ledger, struct policy_decision *decision)
{
    const struct counts *counts = &ledger->counts;
    char text[POLICY_TEXT_MAX - 16];
    int length =
        snprintf(text, sizeof text,
                 "requests:%llu\nasks:%llu\npassed:%llu\nreplied:%llu\nheld:%llu\nwanted:%llu\nclosed:%llu\n"
                 "reply:%llu\nlocal:%llu\nlost:%llu\nownerless:%llu\nerrors:%llu\nclients_closed:%llu\n"
                 "open:%llu\n",
                 counts->requests, counts->asks, counts->passed, counts->replied, counts->held, counts->wanted,
                 counts->closed, counts->outcomes[POLICY_OUTCOME_REPLY], counts->outcomes[POLICY_OUTCOME_LOCAL],
                 counts->outcomes[POLICY_OUTCOME_LOST], counts->outcomes[POLICY_OUTCOME_OWNERLESS], counts->errors,
                 counts->clients_closed, counts->open);

    decision->length = (size_t)snprintf(decision->text, sizeof decision->text, "$%d\r\n%.*s\r\n", length, length, text);
}

/* ---- what a request asks for ---- */

static bool starts_with(struct slice slice, const char *text)
{
    size_t length = strlen(text);

    return slice.length >= length && memcmp(slice.data, text, length) == 0;
}

/* The first argument if it came whole, or an empty slice. */
static struct slice first_argument(const struct policy_request *request)
{
    struct resp_command framed = {0};
    size_t taken;

    (void)resp_command_feed(&framed, request->frame.data, request->frame.length, UINT64_MAX, &taken);
    if (request->partial || resp_command_arguments_seen(&framed) < 2) {
        return (struct slice){0};
    }
    return (struct slice){request->frame.data + framed.arguments[1].offset, (size_t)framed.arguments[1].length};
}

/* The first whole argument that begins with PREFIX, or an empty slice. Also of a request that came in part. */
static struct slice order_of(const struct policy_request *request)
{
    struct resp_command framed = {0};
    size_t taken;

    (void)resp_command_feed(&framed, request->frame.data, request->frame.length, UINT64_MAX, &taken);
    for (uint32_t i = 1; i < resp_command_arguments_seen(&framed) && i < RESP_ARGUMENTS_KEPT; i++) {
        const struct resp_argument *argument = &framed.arguments[i];
        struct slice slice = {request->frame.data + argument->offset, (size_t)argument->length};
        if (starts_with(slice, PREFIX)) {
            return slice;
        }
    }
    return (struct slice){"", 0};
}

/* Reads each byte that the contract says is there, for the address sanitizer to see. */
static void touch(struct slice slice)
{
    volatile char sink;

    for (size_t i = 0; i < slice.length; i++) {
        sink = slice.data[i];
    }
    (void)sink;
}

static void check_request(const struct ledger *ledger, const struct policy_request *request)
{
    touch(request->name);
    touch(request->frame);
    if (request->command != NULL && request->command != command_find(request->name)) {
        broken(ledger, "a command by another name", *request->ticket);
    }
    if (request->frame.data[0] != '*' || request->now_us < request->received_us) {
        broken(ledger, "a request not in multibulk form, or from the future", *request->ticket);
    }
}

/* With HEADGATE_PROBE_ASKED=nothing requests are as free to go together as where no policy is. */
static bool wants(void *instance, const struct command *command)
{
    const char *asked = getenv("HEADGATE_PROBE_ASKED");

    (void)instance;
    if (asked != NULL && strcmp(asked, "nothing") == 0) {
        return false;
    }
    return command == NULL || strcmp(command->name, "echo") != 0;
}

/* ---- the watcher ---- */

static void *watcher_start(const struct policy_start *start)
{
    struct ledger *ledger = malloc(sizeof *ledger);

    (void)start;
    if (ledger != NULL) {
        ledger_start(ledger, "watcher");
    }
    return ledger;
}

static enum policy_verdict watcher_request(void *instance, const struct policy_request *request,
                                           struct policy_decision *decision)
{
    check_request(instance, request);
    if (starts_with(order_of(request), "probe:watched")) {
        ledger_print(instance, decision);
        return POLICY_REPLY;
    }
    return ledger_decide(instance, ledger_ask(instance, request), POLICY_PASS);
}

static void watcher_reply(void *instance, const struct policy_reply *reply)
{
    ledger_end(instance, reply);
}

static void watcher_client_close(void *instance, const struct policy_client *client, void *attachment)
{
    (void)attachment;
    ledger_client_closed(instance, client->id);
}

static void watcher_stop(void *instance)
{
    ledger_stop(instance);
    free(instance);
}

static const struct policy_gate watcher_gate = {
    .wants = wants,
    .on_request = watcher_request,
    .on_reply = watcher_reply,
};

const struct policy probe_watcher = {
    .name = "watcher",
    .gate = &watcher_gate,
    .start = watcher_start,
    .on_client_close = watcher_client_close,
    .stop = watcher_stop,
};

/* ---- the probe ---- */

#define RULES_MAX 8

/* What the ini file says of a rule. */
struct rule_options {
    char *refuse;
    int64_t after;
};

static const struct conf_option rule_options[] = {
    {.name = "refuse",
     .type = CONF_STRING,
     .offset = offsetof(struct rule_options, refuse),
     .max = 64,
     .initial = "",
     .reloadable = true,
     .help = "The key that is refused."},
    {.name = "after",
     .type = CONF_INTEGER,
     .offset = offsetof(struct rule_options, after),
     .min = 1,
     .max = 1000,
     .zero = "at once",
     .initial = "0",
     .reloadable = true,
     .help = "How many requests pass before."},
};

static const char *check_rule(const void *values, char problem[CONF_PROBLEM_MAX], const char **expected)
{
    const struct rule_options *options = values;

    if (*options->refuse == '\0') {
        snprintf(problem, CONF_PROBLEM_MAX, "names no key");
        *expected = "the key that is refused";
        return "refuse";
    }
    return NULL;
}

static const struct conf_section rule_section = {
    .name = "probe",
    .has_rules = true,
    .options = rule_options,
    .option_count = sizeof rule_options / sizeof rule_options[0],
    .values_size = sizeof(struct rule_options),
    .help = "Refuses a key.",
    .check = check_rule,
};

enum { COUNTER_RULES, COUNTER_REFUSED };

static const struct policy_counter counters[] = {
    [COUNTER_RULES] = {"probe_rules", STATS_GAUGE, "rules in force, summed over workers"},
    [COUNTER_REFUSED] = {"probe_refused_total", STATS_COUNTER, "requests refused by a rule"},
};

struct rule {
    char name[CONF_RULE_NAME_MAX + 1];
    char key[65];
    int64_t after;
    int64_t passed; /* the state that a reload keeps */
};

struct probe {
    struct ledger ledger;
    const struct policy_host *host;
    void *waiting; /* what holds the request that probe:release: is for */
    uint64_t waiting_ticket;
    struct rule rules[RULES_MAX];
    size_t rule_count;
    _Atomic uint64_t *counters;
};

/* The state of the same rule, if it was there before. */
static int64_t kept_state(const struct probe *probe, const struct rule *rule)
{
    for (size_t i = 0; i < probe->rule_count; i++) {
        const struct rule *old = &probe->rules[i];
        if (strcmp(old->name, rule->name) == 0 && strcmp(old->key, rule->key) == 0 && old->after == rule->after) {
            return old->passed;
        }
    }
    return 0;
}

static bool probe_reload(void *instance, const struct conf_rule *rules)
{
    struct probe *probe = instance;
    struct rule fresh[RULES_MAX] = {0};
    size_t count = 0;

    for (; rules != NULL && count < RULES_MAX; rules = rules->next) {
        const struct rule_options *options = rules->values;
        if (rules->section != &rule_section) {
            continue;
        }
        struct rule *rule = &fresh[count++];
        snprintf(rule->name, sizeof rule->name, "%s", rules->name);
        snprintf(rule->key, sizeof rule->key, "%s", options->refuse);
        rule->after = options->after;
        rule->passed = kept_state(probe, rule);
    }
    memcpy(probe->rules, fresh, sizeof fresh);
    policy_count(&probe->counters[COUNTER_RULES], count - probe->rule_count);
    probe->rule_count = count;
    return true;
}

static void *probe_start(const struct policy_start *start)
{
    struct probe *probe = calloc(1, sizeof *probe);

    if (probe != NULL) {
        ledger_start(&probe->ledger, "probe");
        probe->host = start->host;
        probe->counters = start->counters;
        probe_reload(probe, start->rules);
    }
    return probe;
}

/* The rule that refuses the request, or NULL. */
static const struct rule *refusing_rule(struct probe *probe, const struct policy_request *request)
{
    struct slice key = first_argument(request);

    for (size_t i = 0; i < probe->rule_count; i++) {
        struct rule *rule = &probe->rules[i];
        if (key.length == strlen(rule->key) && memcmp(key.data, rule->key, key.length) == 0) {
            if (rule->passed >= rule->after) {
                return rule;
            }
            rule->passed++;
        }
    }
    return NULL;
}

static enum policy_verdict refusal(struct slice order, struct policy_decision *decision)
{
    decision->length = (size_t)snprintf(decision->text, sizeof decision->text, "-PROBE refused %.*s\r\n",
                                        (int)(order.length > 200 ? 200 : order.length), order.data);
    return POLICY_REPLY;
}

static enum policy_verdict closing(struct policy_decision *decision)
{
    decision->length = (size_t)snprintf(decision->text, sizeof decision->text, "the probe was told to");
    return POLICY_CLOSE;
}

/* The number of ms behind the verb, in µs. */
static int64_t delay_of(struct slice order, const char *verb)
{
    int64_t milliseconds = 0;

    for (size_t i = strlen(verb); i < order.length && order.data[i] >= '0' && order.data[i] <= '9'; i++) {
        milliseconds = milliseconds * 10 + (order.data[i] - '0');
    }
    return milliseconds * 1000;
}

/* HOLD until the delay that the order names is over, then what comes after it. */
static enum policy_verdict delayed(const struct policy_request *request, struct slice order, const char *verb,
                                   struct policy_decision *decision, enum policy_verdict after)
{
    decision->hold_until_us = request->received_us + delay_of(order, verb);
    if (request->now_us < decision->hold_until_us) {
        return POLICY_HOLD;
    }
    if (after == POLICY_REPLY) {
        return refusal(order, decision);
    }
    return after == POLICY_CLOSE ? closing(decision) : POLICY_PASS;
}

static void forget_waiting(struct probe *probe, uint64_t ticket)
{
    if (probe->waiting_ticket == ticket) {
        probe->waiting = NULL;
    }
}

static enum policy_verdict wait_for_release(struct probe *probe, const struct policy_request *request,
                                            struct policy_decision *decision)
{
    if (request->holds > 0) {
        forget_waiting(probe, *request->ticket);
        return POLICY_PASS;
    }
    probe->waiting = request->holder;
    probe->waiting_ticket = *request->ticket;
    decision->hold_until_us = request->now_us + WAIT_US;
    return POLICY_HOLD;
}

static enum policy_verdict release(struct probe *probe, struct policy_decision *decision)
{
    if (probe->waiting != NULL) {
        probe->host->resume(probe->host->context, probe->waiting);
    }
    decision->length = (size_t)snprintf(decision->text, sizeof decision->text, "+OK\r\n");
    return POLICY_REPLY;
}

static enum policy_verdict obey(struct probe *probe, const struct policy_request *request, struct slice order,
                                struct policy_decision *decision)
{
    if (starts_with(order, "probe:reply:")) {
        return refusal(order, decision);
    }
    if (starts_with(order, "probe:close:")) {
        return closing(decision);
    }
    if (starts_with(order, "probe:hold:")) {
        return delayed(request, order, "probe:hold:", decision, POLICY_PASS);
    }
    if (starts_with(order, "probe:delayreply:")) {
        return delayed(request, order, "probe:delayreply:", decision, POLICY_REPLY);
    }
    if (starts_with(order, "probe:delayclose:")) {
        return delayed(request, order, "probe:delayclose:", decision, POLICY_CLOSE);
    }
    if (starts_with(order, "probe:whole:")) {
        return request->partial ? POLICY_WHOLE : delayed(request, order, "probe:whole:", decision, POLICY_PASS);
    }
    if (starts_with(order, "probe:wait:")) {
        return wait_for_release(probe, request, decision);
    }
    return starts_with(order, "probe:release:") ? release(probe, decision) : POLICY_PASS;
}

static enum policy_verdict probe_request(void *instance, const struct policy_request *request,
                                         struct policy_decision *decision)
{
    struct probe *probe = instance;
    struct slice order = order_of(request);

    check_request(&probe->ledger, request);
    if (starts_with(order, "probe:counts")) {
        ledger_print(&probe->ledger, decision);
        return POLICY_REPLY;
    }
    struct entry *entry = ledger_ask(&probe->ledger, request);
    const struct rule *rule = refusing_rule(probe, request);
    if (rule != NULL) {
        policy_count(&probe->counters[COUNTER_REFUSED], 1);
        decision->length = (size_t)snprintf(decision->text, sizeof decision->text, "-PROBE %s\r\n", rule->name);
        return ledger_decide(&probe->ledger, entry, POLICY_REPLY);
    }
    return ledger_decide(&probe->ledger, entry, obey(probe, request, order, decision));
}

static void probe_reply(void *instance, const struct policy_reply *reply)
{
    struct probe *probe = instance;

    forget_waiting(probe, reply->ticket);
    ledger_end(&probe->ledger, reply);
}

static void probe_client_close(void *instance, const struct policy_client *client, void *attachment)
{
    (void)attachment;
    struct probe *probe = instance;

    ledger_client_closed(&probe->ledger, client->id);
}

static void probe_stop(void *instance)
{
    struct probe *probe = instance;

    ledger_stop(&probe->ledger);
    free(probe);
}

static const struct conf_section *const sections[] = {&rule_section, NULL};

static const struct policy_gate probe_gate = {
    .wants = wants,
    .on_request = probe_request,
    .on_reply = probe_reply,
};

const struct policy probe_policy = {
    .name = "probe",
    .gate = &probe_gate,
    .sections = sections,
    .counter_section = "Probe",
    .counters = counters,
    .counter_count = sizeof counters / sizeof counters[0],
    .start = probe_start,
    .reload = probe_reload,
    .on_client_close = probe_client_close,
    .stop = probe_stop,
};
