/*
 * [limit:NAME]: how much clients may do. A request is charged to a subject of each rule that applies to it, or to none
 * if any of the rules refuses it.
 *
 *   request ─► charges (rule, subject, cost) ─► all locked ─► judged ─► all charged, or refused, or put on hold
 */
#include "limit_rule.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum limit_counter {
    COUNTER_ADMITTED,
    COUNTER_REFUSED,
    COUNTER_DELAYED,
    COUNTER_OBSERVED,
    COUNTER_UNTRACKED,
    COUNTER_TRACKED
};

static const struct policy_counter counter_table[] = {
    [COUNTER_ADMITTED] = {"limit_admitted_total", STATS_COUNTER,
                          "requests admitted by [limit:…] rules, each rule apart"},
    [COUNTER_REFUSED] = {"limit_refused_total", STATS_COUNTER, "requests refused by a [limit:…] rule"},
    [COUNTER_DELAYED] = {"limit_delayed_total", STATS_COUNTER, "requests held by a rule with action = delay"},
    [COUNTER_OBSERVED] = {"limit_observed_total", STATS_COUNTER,
                          "requests that a rule with action = observe would refuse"},
    [COUNTER_UNTRACKED] = {"limit_untracked_total", STATS_COUNTER,
                           "requests of clients beyond max_clients_tracked, which share one limit"},
    [COUNTER_TRACKED] = {"limit_tracked", STATS_GAUGE, "clients, users, keys … that rules keep apart now"},
};

/* What a rule knows of a client. */
struct seat {
    struct limit_subject *subject; /* pinned; NULL: not asked for yet, or it depends on the request */
    bool excepted;
};

/* Hangs from a client. */
struct limit_client {
    struct limit_client *next, *previous;
    uint32_t identity;  /* for which the seats were made */
    struct seat *seats; /* by rule; NULL at first, and after a reload */
};

/* What a request is charged with by one rule. */
struct charge {
    struct limit_rule *rule;
    struct limit_subject *subject;
    int64_t cost;
    int64_t wait_us;  /* when judged: how long until the rule admits it */
    bool pinned;      /* for this request alone */
    bool passed_over; /* its rule observes and would refuse: it is not charged */
};

/* A place in the queue of a subject. */
struct place {
    struct limit_subject *subject; /* pinned */
    int64_t cost;
};

/* A request on hold; its ticket points here. */
struct held {
    struct held *next, *previous;
    void *holder;
    size_t count; /* 0 after a reload: it has lost its places, and will be judged anew */
    struct place places[];
};

struct limit {
    struct limit_share *share;
    const struct policy_host *host;
    _Atomic uint64_t *counters;
    struct limit_rule *rules;
    size_t rule_count;
    /* For each command, by index, the numbers of the rules that may apply: those from starts[i] to starts[i + 1]. The
     * last is for commands that Headgate does not know. */
    uint32_t *starts;
    uint32_t *numbers;
    /* For each command, by index: equal for those of which no rule looks at more than the client; 0: some rule does. */
    uint32_t *groups;
    struct limit_client *clients;
    struct held *first_held, *last_held; /* in the order in which they were put on hold */
    /* The charges of the request at hand. */
    struct charge *charges;
    size_t charge_count;
    size_t charge_room;
};

static void count_for(struct limit *limit, struct limit_rule *rule, enum limit_count count, enum limit_counter counter,
                      uint32_t requests)
{
    policy_count(&rule->member.counts[count], requests);
    policy_count(&limit->counters[counter], requests);
}

/* ---- what hangs from a client ---- */

static void give_up_seats(struct limit *limit, struct limit_client *client)
{
    for (size_t i = 0; client->seats != NULL && i < limit->rule_count; i++) {
        if (client->seats[i].subject != NULL) {
            limit_subject_unpin(limit->share, client->seats[i].subject);
        }
    }
    free(client->seats);
    client->seats = NULL;
}

static struct limit_client *add_client(struct limit *limit)
{
    struct limit_client *client = calloc(1, sizeof *client);

    if (client != NULL) {
        client->next = limit->clients;
        if (client->next != NULL) {
            client->next->previous = client;
        }
        limit->clients = client;
    }
    return client;
}

static void remove_client(struct limit *limit, struct limit_client *client)
{
    give_up_seats(limit, client);
    if (client->previous != NULL) {
        client->previous->next = client->next;
    } else {
        limit->clients = client->next;
    }
    if (client->next != NULL) {
        client->next->previous = client->previous;
    }
    free(client);
}

/* The seats of the client as it is now; NULL when memory is short. */
static struct seat *take_seats(struct limit *limit, const struct policy_request *request)
{
    struct limit_client *client = *request->attachment;

    if (client == NULL) {
        client = add_client(limit);
        *request->attachment = client;
    }
    if (client == NULL || (client->seats != NULL && client->identity == request->client->identity)) {
        return client != NULL ? client->seats : NULL;
    }
    give_up_seats(limit, client);
    client->seats = calloc(limit->rule_count, sizeof *client->seats);
    client->identity = request->client->identity;
    for (size_t i = 0; client->seats != NULL && i < limit->rule_count; i++) {
        client->seats[i].excepted = match_clients_is(limit->rules[i].except, request->client);
    }
    return client->seats;
}

/* ---- charges ---- */

/* False when memory is short. */
static bool add_charge(struct limit *limit, struct charge charge)
{
    if (limit->charge_count == limit->charge_room) {
        size_t room = limit->charge_room > 0 ? limit->charge_room * 2 : 16;
        struct charge *charges = realloc(limit->charges, room * sizeof *charges);
        if (charges == NULL) {
            return false;
        }
        limit->charges = charges;
        limit->charge_room = room;
    }
    limit->charges[limit->charge_count++] = charge;
    return true;
}

static struct limit_subject *pin_subject(struct limit *limit, struct limit_rule *rule, struct slice name,
                                         int64_t now_us)
{
    struct limit_subject *subject = limit_subject_pin(limit->share, rule->member.ledger, name, now_us);

    if (!limit_subject_is_tracked(subject)) {
        policy_count(&limit->counters[COUNTER_UNTRACKED], 1);
    }
    return subject;
}

/* The keys of a request as a rule sees them. */
struct key_search {
    struct limit *limit;
    struct limit_rule *rule;
    int64_t now_us;
    int64_t cost;       /* of each subject, unless keys are counted */
    int64_t found;      /* keys that are meant */
    bool out_of_memory; /* the search was ended by it */
    size_t name_length; /* of the client's part of the name */
    char name[LIMIT_SUBJECT_MAX];
};

static bool charge_key(void *context, struct slice key, uint32_t argument_index)
{
    struct key_search *search = context;
    struct slice counted;

    (void)argument_index;
    if (!limit_keys_find(search->rule->counted_keys, key, &counted)) {
        return true;
    }
    size_t length = limit_rule_name_key(search->name, search->name_length, counted);
    struct limit_subject *subject =
        pin_subject(search->limit, search->rule, (struct slice){search->name, length}, search->now_us);
    struct charge charge = {.rule = search->rule, .subject = subject, .cost = search->cost, .pinned = true};
    search->found++;
    if (!add_charge(search->limit, charge)) {
        limit_subject_unpin(search->limit->share, subject);
        search->out_of_memory = true;
    }
    return !search->out_of_memory;
}

static bool count_key(void *context, struct slice key, uint32_t argument_index)
{
    struct key_search *search = context;

    (void)argument_index;
    search->found += match_keys_is(search->rule->keys, key);
    return true;
}

static int by_subject(const void *left, const void *right)
{
    uintptr_t a = (uintptr_t)((const struct charge *)left)->subject;
    uintptr_t b = (uintptr_t)((const struct charge *)right)->subject;

    return (a > b) - (a < b);
}

/* A subject that several keys of the request stand for is charged once, or with the number of these keys. */
static void merge_charges(struct limit *limit, size_t first, bool add)
{
    size_t kept = first;

    qsort(limit->charges + first, limit->charge_count - first, sizeof limit->charges[0], by_subject);
    for (size_t i = first + 1; i < limit->charge_count; i++) {
        struct charge *charge = &limit->charges[i];
        if (charge->subject == limit->charges[kept].subject) {
            limit->charges[kept].cost += add ? charge->cost : 0;
            limit_subject_unpin(limit->share, charge->subject);
        } else {
            limit->charges[++kept] = *charge;
        }
    }
    limit->charge_count = kept + 1;
}

/* False when memory is short. */
static bool charge_keys(struct limit *limit, struct limit_rule *rule, const struct policy_request *request)
{
    static const struct slice unseen = {"(in a long request)", 19};
    struct key_search search = {.limit = limit, .rule = rule, .now_us = request->now_us, .cost = 1};
    size_t first = limit->charge_count;

    if (rule->cost == LIMIT_COST_BYTES) {
        search.cost = (int64_t)match_request_bytes(request);
    }
    search.name_length = limit_rule_name_client(rule, request->client, search.name);
    if (!match_visit_keys(request, charge_key, &search)) {
        (void)charge_key(&search, unseen, 0);
    }
    if (limit->charge_count > first + 1) {
        merge_charges(limit, first, rule->cost == LIMIT_COST_KEYS);
    }
    return !search.out_of_memory;
}

/* What the request costs by the rule; 0: the rule does not mean it. */
static int64_t cost_of(struct limit_rule *rule, const struct policy_request *request)
{
    struct key_search search = {.rule = rule};

    if (rule->cost == LIMIT_COST_KEYS) {
        /* A key that is not seen is still one. */
        return match_visit_keys(request, count_key, &search) ? search.found : 1;
    }
    if (!match_keys_any(rule->keys, request)) {
        return 0;
    }
    return rule->cost == LIMIT_COST_BYTES ? (int64_t)match_request_bytes(request) : 1;
}

/* False when memory is short. */
static bool charge_client(struct limit *limit, struct limit_rule *rule, struct seat *seat,
                          const struct policy_request *request)
{
    int64_t cost = cost_of(rule, request);
    struct charge charge = {.rule = rule, .subject = seat->subject, .cost = cost};

    if (cost > 0 && charge.subject == NULL) {
        char name[LIMIT_SUBJECT_MAX];
        size_t length = limit_rule_name_client(rule, request->client, name);
        charge.subject = pin_subject(limit, rule, (struct slice){name, length}, request->now_us);
        /* A client without room looks for it again the next time. */
        charge.pinned = !limit_subject_is_tracked(charge.subject);
        seat->subject = charge.pinned ? NULL : charge.subject;
    }
    return cost == 0 || add_charge(limit, charge);
}

/* Finds what the request is to be charged with. False when memory is short. */
static bool find_charges(struct limit *limit, const struct policy_request *request)
{
    size_t command = request->command != NULL ? command_index(request->command) : command_count();
    struct seat *seats = take_seats(limit, request);
    bool found = seats != NULL;

    for (size_t i = limit->starts[command]; found && i < limit->starts[command + 1]; i++) {
        struct limit_rule *rule = &limit->rules[limit->numbers[i]];
        struct seat *seat = &seats[limit->numbers[i]];
        if (!seat->excepted && match_commands_request(rule->commands, request)) {
            found = rule->per.key ? charge_keys(limit, rule, request) : charge_client(limit, rule, seat, request);
        }
    }
    return found;
}

static void drop_charges(struct limit *limit)
{
    for (size_t i = 0; i < limit->charge_count; i++) {
        if (limit->charges[i].pinned) {
            limit_subject_unpin(limit->share, limit->charges[i].subject);
        }
    }
    limit->charge_count = 0;
}

static limit_locks locks_of_charges(const struct limit *limit)
{
    limit_locks locks = 0;

    for (size_t i = 0; i < limit->charge_count; i++) {
        locks |= limit_subject_locks(limit->charges[i].subject);
    }
    return locks;
}

/* ---- requests on hold ---- */

/* NULL when memory is short. */
static struct held *held_new(struct limit *limit)
{
    struct held *held = calloc(1, sizeof *held + limit->charge_count * sizeof held->places[0]);

    if (held != NULL) {
        held->previous = limit->last_held;
        *(held->previous != NULL ? &held->previous->next : &limit->first_held) = held;
        limit->last_held = held;
    }
    return held;
}

/* Takes a place behind those who wait already; the subject must be locked. */
static void held_take_place(struct held *held, const struct charge *charge)
{
    charge->subject->pins++;
    charge->subject->queued += charge->cost;
    held->places[held->count++] = (struct place){charge->subject, charge->cost};
}

static void held_leave_places(struct limit *limit, struct held *held)
{
    for (; held->count > 0; held->count--) {
        const struct place *place = &held->places[held->count - 1];
        limit_locks locks = limit_subject_locks(place->subject);
        limit_share_lock(limit->share, locks);
        place->subject->queued -= place->cost;
        place->subject->pins--;
        limit_share_unlock(limit->share, locks);
    }
}

static void held_free(struct limit *limit, struct held *held)
{
    held_leave_places(limit, held);
    *(held->previous != NULL ? &held->previous->next : &limit->first_held) = held->next;
    *(held->next != NULL ? &held->next->previous : &limit->last_held) = held->previous;
    free(held);
}

/* ---- judging: everything here is under the locks of all charges ---- */

/* What is to become of the request. */
struct judgement {
    const struct charge *refuser; /* the one with the longest wait; NULL: none */
    int64_t hold_us;              /* how long it has to wait for rules that delay */
};

static void judge_charge(struct charge *charge, bool was_held, int64_t waited_us, int64_t now_us,
                         struct judgement *judgement)
{
    const struct limit_rule *rule = charge->rule;
    struct limit_subject *subject = charge->subject;
    bool delays = rule->action == LIMIT_DELAY;

    /* Who was held had a place in the queue, and now it is its turn; who comes now stands behind all of them. */
    charge->wait_us =
        delays && !was_held && subject->queued > 0
            ? limit_meter_wait_behind(&rule->meter, &subject->state, now_us, subject->queued, charge->cost)
            : limit_meter_wait(&rule->meter, &subject->state, now_us, charge->cost);
    if (charge->wait_us == 0) {
        return;
    }
    if (rule->action == LIMIT_OBSERVE) {
        charge->passed_over = true;
    } else if (delays && charge->wait_us <= rule->max_delay_us - waited_us) {
        judgement->hold_us = charge->wait_us > judgement->hold_us ? charge->wait_us : judgement->hold_us;
    } else if (judgement->refuser == NULL || judgement->refuser->wait_us < charge->wait_us) {
        judgement->refuser = charge;
    }
}

static struct judgement judge(struct limit *limit, const struct policy_request *request, bool was_held)
{
    struct judgement judgement = {0};

    for (size_t i = 0; i < limit->charge_count; i++) {
        judge_charge(&limit->charges[i], was_held, request->now_us - request->received_us, request->now_us, &judgement);
    }
    return judgement;
}

/* False when memory is short. */
static bool charge_all(struct limit *limit, int64_t now_us, uint32_t requests)
{
    bool charged = true;

    for (size_t i = 0; i < limit->charge_count; i++) {
        const struct charge *charge = &limit->charges[i];
        bool is_new_rule = i == 0 || charge[-1].rule != charge->rule;
        if (charge->passed_over) {
            count_for(limit, charge->rule, LIMIT_OBSERVED, COUNTER_OBSERVED, requests);
            charge->subject->refused++;
            continue;
        }
        if (is_new_rule) {
            count_for(limit, charge->rule, LIMIT_ADMITTED, COUNTER_ADMITTED, requests);
        }
        charged = limit_meter_charge(&charge->rule->meter, &charge->subject->state, now_us, charge->cost) && charged;
    }
    return charged;
}

static void write_refusal(const struct charge *charge, struct policy_decision *decision)
{
    const struct limit_rule *rule = charge->rule;

    if (charge->wait_us == LIMIT_NEVER) {
        decision->length = (size_t)snprintf(decision->text, sizeof decision->text,
                                            "-RATELIMITED %s: cost %" PRId64 " is more than %s ever admits\r\n",
                                            rule->name, charge->cost, rule->what);
    } else {
        decision->length = (size_t)snprintf(decision->text, sizeof decision->text,
                                            "-RATELIMITED %s: %s exceeded, retry in %" PRId64 " ms\r\n", rule->name,
                                            rule->what, (charge->wait_us + 999) / 1000);
    }
}

static enum policy_verdict close_for_memory(struct policy_decision *decision)
{
    decision->length = (size_t)snprintf(decision->text, sizeof decision->text, "out of memory for its limits");
    return POLICY_CLOSE;
}

/* Holds the request, in the queues of all rules that delay it. */
static enum policy_verdict hold(struct limit *limit, const struct policy_request *request, int64_t wait_us,
                                struct policy_decision *decision)
{
    struct held *held = held_new(limit);

    if (held == NULL) {
        return close_for_memory(decision);
    }
    for (size_t i = 0; i < limit->charge_count; i++) {
        const struct charge *charge = &limit->charges[i];
        if (charge->rule->action != LIMIT_DELAY) {
            continue;
        }
        held_take_place(held, charge);
        if (request->holds == 0 && charge->wait_us > 0) {
            count_for(limit, charge->rule, LIMIT_DELAYED, COUNTER_DELAYED, 1);
        }
    }
    held->holder = request->holder;
    *request->ticket = (uint64_t)(uintptr_t)held;
    decision->hold_until_us = request->now_us + wait_us;
    return POLICY_HOLD;
}

static enum policy_verdict decide(struct limit *limit, const struct policy_request *request, bool was_held,
                                  struct policy_decision *decision)
{
    struct judgement judgement = judge(limit, request, was_held);

    if (judgement.refuser != NULL) {
        struct limit_rule *rule = judgement.refuser->rule;
        judgement.refuser->subject->refused++;
        count_for(limit, rule, LIMIT_REFUSED, COUNTER_REFUSED, 1);
        write_refusal(judgement.refuser, decision);
        return POLICY_REPLY;
    }
    if (judgement.hold_us > 0) {
        return hold(limit, request, judgement.hold_us, decision);
    }
    return charge_all(limit, request->now_us, 1) ? POLICY_ADMIT : close_for_memory(decision);
}

/* ---- hooks ---- */

/* Whether the charges can be relied on. A subject that was revoked is looked for anew. */
static bool are_charges_valid(const struct limit *limit)
{
    for (size_t i = 0; i < limit->charge_count; i++) {
        if (limit->charges[i].subject->revoked) {
            return false;
        }
    }
    return true;
}

/* Finds the charges and locks them. False, and nothing is locked, when memory is short. */
static bool lock_charges(struct limit *limit, const struct policy_request *request, limit_locks *locks)
{
    for (;;) {
        if (!find_charges(limit, request)) {
            return false;
        }
        *locks = locks_of_charges(limit);
        limit_share_lock(limit->share, *locks);
        if (are_charges_valid(limit)) {
            return true;
        }
        limit_share_unlock(limit->share, *locks);
        drop_charges(limit);
        give_up_seats(limit, *request->attachment);
    }
}

/* Takes the request off its hold. Whether it had a place in the queues. */
static bool end_hold(struct limit *limit, uint64_t *ticket)
{
    struct held *held = (struct held *)(uintptr_t)*ticket;
    bool had_places = held != NULL && held->count > 0;

    if (held != NULL) {
        held_free(limit, held);
    }
    *ticket = 0;
    return had_places;
}

static enum policy_verdict limit_request(void *instance, const struct policy_request *request,
                                         struct policy_decision *decision)
{
    struct limit *limit = instance;
    enum policy_verdict verdict;
    bool was_held = end_hold(limit, request->ticket);
    limit_locks locks;

    if (!lock_charges(limit, request, &locks)) {
        verdict = close_for_memory(decision);
    } else {
        verdict = decide(limit, request, was_held, decision);
        limit_share_unlock(limit->share, locks);
    }
    drop_charges(limit);
    return verdict;
}

/* A pipeline of requests that differ in nothing that a rule looks at. */
static bool limit_batch(void *instance, const struct policy_request *request, uint32_t count)
{
    struct limit *limit = instance;
    struct judgement judgement = {0};
    limit_locks locks;

    if (!lock_charges(limit, request, &locks)) {
        return false;
    }
    bool admitted = true;
    for (size_t i = 0; i < limit->charge_count; i++) {
        limit->charges[i].cost *= count;
        judge_charge(&limit->charges[i], false, 0, request->now_us, &judgement);
        admitted = admitted && limit->charges[i].wait_us == 0;
    }
    admitted = admitted && charge_all(limit, request->now_us, count);
    limit_share_unlock(limit->share, locks);
    drop_charges(limit);
    return admitted;
}

static uint32_t limit_group(void *instance, const struct command *command)
{
    const struct limit *limit = instance;

    return command != NULL ? limit->groups[command_index(command)] : 0;
}

/* Only requests that left while they were held come here: those that were passed are not heard of again. */
static void limit_reply(void *instance, const struct policy_reply *reply)
{
    uint64_t ticket = reply->ticket;

    (void)end_hold(instance, &ticket);
}

static void limit_client_close(void *instance, const struct policy_client *client, void *attachment)
{
    (void)client;
    if (attachment != NULL) {
        remove_client(instance, attachment);
    }
}

static void limit_tick(void *instance, int64_t now_us)
{
    struct limit *limit = instance;

    limit_share_sweep(limit->share, now_us);
}

/* One worker tells for all. */
static void limit_stats(void *instance)
{
    struct limit *limit = instance;

    if (limit->host->worker == 0) {
        atomic_store_explicit(&limit->counters[COUNTER_TRACKED], limit_share_tracked(limit->share),
                              memory_order_relaxed);
    }
}

static bool limit_wants(void *instance, const struct command *command)
{
    const struct limit *limit = instance;
    size_t index = command != NULL ? command_index(command) : command_count();

    return limit->starts[index + 1] > limit->starts[index];
}

/* ---- the admin port ---- */

static enum policy_answer print_limits(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct limit *limit = instance;

    (void)count;
    (void)arguments;
    limit_share_print(limit->share, answer, limit->host->now_us(limit->host->context));
    return POLICY_ANSWER_TEXT;
}

/* LIMIT RESET rule [offender] */
static enum policy_answer reset_limit(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct limit *limit = instance;
    struct slice name = count > 3 ? arguments[3] : (struct slice){"", 0};

    if (arguments[1].length != 5 || strncasecmp(arguments[1].data, "reset", 5) != 0) {
        fputs("usage: LIMIT RESET rule [offender]", answer);
        return POLICY_ANSWER_ERROR;
    }
    if (!limit_share_reset(limit->share, arguments[2], name)) {
        fputs(count > 3 ? "no such rule, or nothing is known of that offender; see LIMITS" : "no such rule; see LIMITS",
              answer);
        return POLICY_ANSWER_ERROR;
    }
    return POLICY_ANSWER_OK;
}

static const struct policy_verb verb_table[] = {
    {"LIMITS", 1, 1, "LIMITS", "the [limit:…] rules: what they admitted and refused, and whom most", print_limits},
    {"LIMIT", 3, 4, "LIMIT RESET rule [offender]", "forgets what a rule has admitted: to all, or to one", reset_limit},
};

/* ---- rules ---- */

/* Whether the rule looks at nothing of a request of this command but who sent it. */
static bool looks_at_client_only(const struct limit_rule *rule, const struct command *command)
{
    return rule->keys != NULL && match_keys_all(rule->keys) && rule->cost == LIMIT_COST_ONE &&
           rule->scope == LIMIT_LOCAL && match_commands_all_of(rule->commands, command);
}

static bool have_same_rules(const struct limit *limit, size_t left, size_t right)
{
    uint32_t count = limit->starts[left + 1] - limit->starts[left];

    return limit->starts[right + 1] - limit->starts[right] == count &&
           memcmp(limit->numbers + limit->starts[left], limit->numbers + limit->starts[right],
                  count * sizeof *limit->numbers) == 0;
}

/* The group of a command: 1 + the first command with the same rules. */
static uint32_t find_group(const struct limit *limit, size_t index)
{
    size_t first = 0;

    for (size_t i = limit->starts[index]; i < limit->starts[index + 1]; i++) {
        if (!looks_at_client_only(&limit->rules[limit->numbers[i]], command_at(index))) {
            return 0;
        }
    }
    while (!have_same_rules(limit, first, index) || (first < index && limit->groups[first] == 0)) {
        first++;
    }
    return (uint32_t)first + 1;
}

static void free_rules(struct limit *limit, struct limit_rule *rules, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (rules[i].member.ledger != NULL) {
            limit_ledger_leave(limit->share, &rules[i].member);
        }
        limit_rule_clear(&rules[i]);
    }
    free(rules);
}

static struct limit_rule *make_rules(const struct conf_rule *list, size_t *count)
{
    struct limit_rule *rules;

    *count = 0;
    for (const struct conf_rule *rule = list; rule != NULL; rule = rule->next) {
        *count += rule->section == &limit_section;
    }
    rules = conf_alloc(NULL, *count * sizeof *rules);
    *count = 0;
    for (const struct conf_rule *rule = list; rule != NULL; rule = rule->next) {
        if (rule->section == &limit_section) {
            limit_rule_make(&rules[(*count)++], rule);
        }
    }
    return rules;
}

static bool join_ledgers(struct limit *limit, struct limit_rule *rules, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct limit_terms terms = {
            .rule = rules[i].name,
            .identity = rules[i].identity,
            .meter = rules[i].meter,
            .subjects_max = rules[i].subjects_max,
        };
        if (!limit_ledger_join(limit->share, &rules[i].member, &terms)) {
            return false;
        }
    }
    return true;
}

/* Which rules may apply to which command. */
static void list_rules(struct limit *limit)
{
    uint32_t count = 0;

    limit->starts = conf_alloc(limit->starts, (command_count() + 2) * sizeof *limit->starts);
    limit->numbers = conf_alloc(limit->numbers, (command_count() + 1) * limit->rule_count * sizeof *limit->numbers);
    for (size_t index = 0; index <= command_count(); index++) {
        const struct command *command = index < command_count() ? command_at(index) : NULL;
        limit->starts[index] = count;
        for (size_t i = 0; i < limit->rule_count; i++) {
            if (match_commands_may(limit->rules[i].commands, command)) {
                limit->numbers[count++] = (uint32_t)i;
            }
        }
    }
    limit->starts[command_count() + 1] = count;
    limit->groups = conf_alloc(limit->groups, command_count() * sizeof *limit->groups);
    for (size_t index = 0; index < command_count(); index++) {
        limit->groups[index] = find_group(limit, index);
    }
}

static bool limit_reload(void *instance, const struct conf_rule *list)
{
    struct limit *limit = instance;
    size_t count;
    struct limit_rule *rules = make_rules(list, &count);

    /* The new rules join before the old ones leave: so a ledger that both have goes on. */
    if (!join_ledgers(limit, rules, count)) {
        free_rules(limit, rules, count);
        return false;
    }
    for (struct limit_client *client = limit->clients; client != NULL; client = client->next) {
        give_up_seats(limit, client);
    }
    /* Nobody waits for a rule that may be gone: all are judged anew, in their order. */
    for (struct held *held = limit->first_held; held != NULL; held = held->next) {
        held_leave_places(limit, held);
        limit->host->resume(limit->host->context, held->holder);
    }
    free_rules(limit, limit->rules, limit->rule_count);
    limit->rules = rules;
    limit->rule_count = count;
    list_rules(limit);
    return true;
}

static void limit_stop(void *instance)
{
    struct limit *limit = instance;

    assert(limit->first_held == NULL);
    while (limit->clients != NULL) {
        remove_client(limit, limit->clients);
    }
    free_rules(limit, limit->rules, limit->rule_count);
    free(limit->starts);
    free(limit->groups);
    free(limit->numbers);
    free(limit->charges);
    free(limit);
}

static void *limit_start(const struct policy_start *start)
{
    struct limit *limit = calloc(1, sizeof *limit);

    if (limit == NULL) {
        return NULL;
    }
    limit->share = start->shared;
    limit->host = start->host;
    limit->counters = start->counters;
    if (!limit_reload(limit, start->rules)) {
        free(limit);
        return NULL;
    }
    return limit;
}

static void *share(size_t threads)
{
    return limit_share_new(threads);
}

static void unshare(void *shared)
{
    limit_share_free(shared);
}

const struct policy limit_policy = {
    .name = "limit",
    .section = &limit_section,
    .counter_section = "Limit",
    .counters = counter_table,
    .counter_count = sizeof counter_table / sizeof counter_table[0],
    .verbs = verb_table,
    .verb_count = sizeof verb_table / sizeof verb_table[0],
    .share = share,
    .unshare = unshare,
    .start = limit_start,
    .wants = limit_wants,
    .group = limit_group,
    .on_batch = limit_batch,
    .on_request = limit_request,
    .reload = limit_reload,
    .on_reply = limit_reply,
    .on_client_close = limit_client_close,
    .on_tick = limit_tick,
    .on_stats = limit_stats,
    .stop = limit_stop,
};
