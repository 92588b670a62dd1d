#include "lease_stage.h"

#include "../conf/conf_fixture.h"
#include "lease/lease_registry.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define TICK_MS INT64_C(100)
#define WORDS_MAX 80

extern const struct policy lease_policy;

/* ---- the host ---- */

static int64_t host_now(void *context)
{
    return ((const struct stage_worker *)context)->stage->now_us;
}

static int64_t host_wall(void *context)
{
    const struct stage *stage = ((const struct stage_worker *)context)->stage;

    return stage->wall_us + stage->now_us;
}

static void host_warn(void *context, const char *rule, const char *text)
{
    struct stage *stage = ((const struct stage_worker *)context)->stage;

    cr_assert_not_null(rule);
    snprintf(stage->warning, sizeof stage->warning, "%s", text);
    stage->warning_count++;
}

static void host_inform(void *context, const char *rule, const char *text)
{
    struct stage *stage = ((const struct stage_worker *)context)->stage;

    cr_assert_not_null(rule);
    snprintf(stage->information, sizeof stage->information, "%s", text);
    stage->information_count++;
}

/* It is found to be the same one again. */
static void host_forget_peer(void *context, void *connection)
{
    (void)context;
    cr_assert_not_null(connection);
}

/* Clients of one address and name are of one process. */
static int64_t pid_of(const struct stage_client *client)
{
    uint32_t hash = 5381;

    for (const char *at = client->view.address_text; *at != '\0'; at++) {
        hash = hash * 33 + (uint8_t)*at;
    }
    for (const char *at = client->name; *at != '\0'; at++) {
        hash = hash * 33 + (uint8_t)*at;
    }
    return (int64_t)hash + 1;
}

static enum policy_peer_search host_find_peer(void *context, void *connection, bool process, struct policy_peer *peer)
{
    const struct stage *stage = ((const struct stage_worker *)context)->stage;

    (void)process;
    *peer = (struct policy_peer){.pid = stage->untold ? 0 : pid_of(connection), .started = 1, .why = "it hides"};
    return POLICY_PEER_TOLD;
}

/* As long as it has a client, unless it is told otherwise. */
static bool host_peer_lives(void *context, const struct policy_peer *peer)
{
    const struct stage *stage = ((const struct stage_worker *)context)->stage;
    const struct stage_client *client = stage->clients;

    while (client != NULL && pid_of(client) != peer->pid) {
        client = client->next;
    }
    return client != NULL || stage->processes_live;
}

static bool host_look_at_peer(void *context, const struct policy_peer *peer)
{
    ((struct stage_worker *)context)->looked_at = peer->pid;
    return true;
}

static enum policy_peer_search host_peer_has(void *context, void *connection, bool *has)
{
    *has = pid_of(connection) == ((const struct stage_worker *)context)->looked_at;
    return POLICY_PEER_TOLD;
}

static struct stage_call *copy_call(const struct stage_worker *worker, const struct policy_script *script)
{
    struct stage_call *call = calloc(1, sizeof *call);

    cr_assert_leq(script->argument_count, (size_t)STAGE_ARGUMENTS_MAX);
    call->script = script->script->name;
    call->worker = worker->host.worker;
    call->database = script->database;
    call->key_count = script->key_count;
    call->argument_count = script->argument_count;
    call->sent_us = worker->stage->now_us;
    call->done = script->done;
    call->context = script->context;
    for (size_t i = 0; i < script->argument_count; i++) {
        struct slice argument = script->arguments[i];
        call->lengths[i] = argument.length;
        call->arguments[i] = calloc(1, argument.length + 1);
        memcpy(call->arguments[i], argument.data, argument.length);
    }
    return call;
}

static void host_happened(void *context, const struct policy_happening *happening)
{
    struct stage *stage = ((struct stage_worker *)context)->stage;

    cr_assert_gt(happening->count, 0);
    stage->happened[happening->kind] += happening->count;
    snprintf(stage->happening, sizeof stage->happening, "%s:%s %s", happening->source, happening->rule,
             happening->what);
}

static void free_call(struct stage_call *call)
{
    for (size_t i = 0; i < call->argument_count; i++) {
        free(call->arguments[i]);
    }
    free(call);
}

static void host_run_script(void *context, const struct policy_script *script)
{
    struct stage_worker *worker = context;
    struct stage *stage = worker->stage;
    struct stage_call *call = copy_call(worker, script);
    struct stage_call **end = &stage->calls;

    stage->sent_count++;
    if (stage->on_call != NULL) {
        stage->on_call(stage->on_call_context, call);
    }
    if (stage->refusal != NULL) {
        free_call(call);
        script->done(script->context, &(struct policy_script_reply){.error = stage->refusal});
        return;
    }
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = call;
    stage->call_count++;
}

/* ---- the stage ---- */

static struct conf *load_rules(const char *text)
{
    static const struct conf_section *const sections[] = {&lease_section, NULL};
    struct conf_faults faults;
    struct conf *conf = load_conf(text, sections, &faults);

    cr_assert_not_null(conf, "%s: %s", text, faults.count > 0 ? faults.lines[0] : "");
    conf_faults_free(&faults);
    return conf;
}

struct stage *stage_new(const char *rules, size_t workers)
{
    struct stage *stage = calloc(1, sizeof *stage);
    struct conf *conf = load_rules(rules);

    stage->now_us = STAGE_FIRST_US;
    stage->wall_us = INT64_C(1700000000000000) - STAGE_FIRST_US;
    stage->worker_count = workers;
    stage->shared = lease_policy.share(workers);
    cr_assert_not_null(stage->shared);
    for (size_t i = 0; i < workers; i++) {
        struct stage_worker *worker = &stage->workers[i];
        worker->stage = stage;
        worker->host = (struct policy_host){
            .run_script = host_run_script,
            .warn = host_warn,
            .inform = host_inform,
            .find_peer = host_find_peer,
            .forget_peer = host_forget_peer,
            .peer_lives = host_peer_lives,
            .look_at_peer = host_look_at_peer,
            .peer_has = host_peer_has,
            .happened = host_happened,
            .listens = true,
            .now_us = host_now,
            .wall_us = host_wall,
            .context = worker,
            .worker = i,
        };
        cr_assert_leq(lease_policy.counter_count, sizeof worker->counters / sizeof worker->counters[0]);
        worker->instance = lease_policy.start(&(struct policy_start){
            .host = &worker->host, .shared = stage->shared, .rules = conf->rules, .counters = worker->counters});
        cr_assert_not_null(worker->instance);
    }
    conf_free(conf);
    return stage;
}

/* What is told is what is counted. */
static void check_happenings(struct stage *stage)
{
    static const char *const losses[] = {"lease_lost_gone_total",      "lease_lost_taken_total",
                                         "lease_lost_persisted_total", "lease_lost_shortened_total",
                                         "lease_lost_type_total",      "lease_lost_unreachable_total"};
    uint64_t lost = 0;

    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        lost += stage_counter(stage, losses[i]);
    }
    cr_assert_eq(stage->happened[POLICY_LEASE_LOST], lost);
    cr_assert_eq(stage->happened[POLICY_LEASE_TAKEN], stage_counter(stage, "lease_acquired_total"));
}

void stage_free(struct stage *stage)
{
    check_happenings(stage);
    while (stage->clients != NULL) {
        stage_leave(stage->clients);
    }
    while (stage->calls != NULL) {
        stage_fail(stage, "the end");
    }
    for (size_t i = 0; i < stage->worker_count; i++) {
        lease_policy.stop(stage->workers[i].instance);
    }
    lease_policy.unshare(stage->shared);
    free(stage);
}

void stage_reload(struct stage *stage, const char *rules)
{
    struct conf *conf = load_rules(rules);

    for (size_t i = 0; i < stage->worker_count; i++) {
        cr_assert(lease_policy.reload(stage->workers[i].instance, conf->rules));
        for (struct stage_client *client = stage->clients; client != NULL; client = client->next) {
            if (client->worker == i) {
                lease_policy.on_client(stage->workers[i].instance, &client->view, &client->attachment);
            }
        }
    }
    conf_free(conf);
}

void stage_tick(struct stage *stage)
{
    for (size_t i = 0; i < stage->worker_count; i++) {
        lease_policy.on_tick(stage->workers[i].instance, stage->now_us);
    }
}

void stage_pass(struct stage *stage, int64_t ms)
{
    while (ms > 0) {
        int64_t step = ms < TICK_MS ? ms : TICK_MS;
        stage->now_us += step * MS;
        ms -= step;
        stage_tick(stage);
    }
}

int64_t stage_pass_until_call(struct stage *stage, int64_t most_ms)
{
    int64_t passed = 0;

    while (stage->calls == NULL && passed < most_ms) {
        stage_pass(stage, TICK_MS);
        passed += TICK_MS;
    }
    return passed;
}

/* ---- clients ---- */

static void introduce(struct stage_client *client)
{
    void *instance = client->stage->workers[client->worker].instance;

    client->view.identity++;
    lease_policy.on_client(instance, &client->view, &client->attachment);
}

struct stage_client *stage_join(struct stage *stage, size_t worker, const char *address, const char *name)
{
    struct stage_client *client = calloc(1, sizeof *client);
    struct sockaddr_in *ipv4 = (struct sockaddr_in *)(void *)&client->address;

    cr_assert_lt(worker, stage->worker_count);
    client->stage = stage;
    client->worker = worker;
    snprintf(client->user, sizeof client->user, "default");
    snprintf(client->name, sizeof client->name, "%s", name);
    ipv4->sin_family = AF_INET;
    ipv4->sin_port = htons((uint16_t)(1000 + stage->last_id));
    cr_assert_eq(inet_pton(AF_INET, address, &ipv4->sin_addr), 1);
    client->view = (struct policy_client){
        .id = ++stage->last_id,
        .address = &client->address,
        .address_text = address,
        .user = client->user,
        .name = client->name,
        .attachments = &client->attachment,
        .connection = client,
    };
    client->next = stage->clients;
    stage->clients = client;
    introduce(client);
    return client;
}

void stage_rename(struct stage_client *client, const char *name)
{
    snprintf(client->name, sizeof client->name, "%s", name);
    introduce(client);
}

static void end_oldest(struct stage_client *client, enum policy_outcome outcome, const char *head)
{
    cr_assert_gt(client->request_count, (size_t)0, "no request waits for %s", head);
    struct stage_request request = client->requests[0];
    client->request_count--;
    memmove(client->requests, client->requests + 1, client->request_count * sizeof client->requests[0]);
    stage_end(client, &request, outcome, head);
}

void stage_leave(struct stage_client *client)
{
    struct stage_client **link = &client->stage->clients;

    while (client->request_count > 0) {
        end_oldest(client, POLICY_OUTCOME_OWNERLESS, "");
    }
    while (*link != client) {
        link = &(*link)->next;
    }
    *link = client->next;
    lease_policy.on_client_close(client->stage->workers[client->worker].instance, &client->view, client->attachment);
    free(client);
}

/* As the session keeps it: true for EXEC itself. */
static void follow_transaction(struct stage_client *client, enum command_kind kind)
{
    if (kind == COMMAND_MULTI) {
        client->in_transaction = true;
    } else if (kind == COMMAND_EXEC || kind == COMMAND_DISCARD) {
        client->in_transaction = false;
    }
}

struct stage_request stage_forward(struct stage_client *client, const struct slice *words, size_t count)
{
    struct stage *stage = client->stage;
    void *instance = stage->workers[client->worker].instance;
    struct request made = request_of_words(words, count);
    struct stage_request request = {.command = made.command, .received_us = stage->now_us};
    struct policy_decision decision;

    cr_assert_not_null(made.command, "%.*s", (int)words[0].length, words[0].data);
    if (lease_policy.wants(instance, made.command)) {
        enum policy_verdict verdict =
            lease_policy.on_request(instance,
                                    &(struct policy_request){.client = &client->view,
                                                             .command = made.command,
                                                             .name = words[0],
                                                             .frame = {made.bytes, made.length},
                                                             .in_transaction = client->in_transaction,
                                                             .argument_count = (uint32_t)count,
                                                             .received_us = stage->now_us,
                                                             .now_us = stage->now_us,
                                                             .ticket = &request.ticket,
                                                             .attachment = &client->attachment},
                                    &decision);
        cr_assert(verdict == POLICY_PASS || verdict == POLICY_ADMIT);
        request.passed = verdict == POLICY_PASS;
    }
    follow_transaction(client, made.command->kind);
    free(made.bytes);
    return request;
}

void stage_send(struct stage_client *client, const char *text)
{
    struct slice words[WORDS_MAX];
    size_t count = 0;

    for (const char *at = text; count < WORDS_MAX; at++) {
        words[count] = (struct slice){at, strcspn(at, " ")};
        at += words[count++].length;
        if (*at == '\0') {
            break;
        }
    }
    struct stage_request request = stage_forward(client, words, count);
    if (request.passed) {
        cr_assert_lt(client->request_count, (size_t)STAGE_REQUESTS_MAX);
        client->requests[client->request_count++] = request;
    }
}

void stage_end(struct stage_client *client, const struct stage_request *request, enum policy_outcome outcome,
               const char *head)
{
    struct stage *stage = client->stage;

    lease_policy.on_reply(stage->workers[client->worker].instance,
                          &(struct policy_reply){.client = &client->view,
                                                 .command = request->command,
                                                 .outcome = outcome,
                                                 .head = slice_of(head),
                                                 .length = strlen(head),
                                                 .received_us = request->received_us,
                                                 .now_us = stage->now_us,
                                                 .ticket = request->ticket});
}

void stage_hear(struct stage_client *client, const char *head)
{
    end_oldest(client, POLICY_OUTCOME_REPLY, head);
}

void stage_lose(struct stage_client *client)
{
    end_oldest(client, POLICY_OUTCOME_LOST, "");
}

void stage_ask(struct stage_client *client, const char *text, const char *head)
{
    stage_send(client, text);
    if (client->request_count > 0) {
        stage_hear(client, head);
    }
}

/* ---- scripts ---- */

const char *stage_call_text(struct stage *stage)
{
    static char text[STAGE_TEXT_MAX];
    const struct stage_call *call = stage->calls;
    size_t end = 0;

    text[0] = '\0';
    if (call == NULL) {
        return text;
    }
    end += (size_t)snprintf(text, sizeof text, "%s", call->script);
    /* The token only: what is behind it are numbers. */
    for (size_t i = 0; i <= call->key_count && end < sizeof text; i++) {
        end += (size_t)snprintf(text + end, sizeof text - end, "%s %s", i == call->key_count ? " /" : "",
                                call->arguments[i]);
    }
    return text;
}

double stage_call_number(struct stage *stage, size_t place)
{
    const struct stage_call *call = stage->calls;

    cr_assert(call != NULL && call->key_count + place < call->argument_count);
    return strtod(call->arguments[call->key_count + place], NULL);
}

static struct stage_call *take_call(struct stage *stage)
{
    struct stage_call *call = stage->calls;

    cr_assert_not_null(call, "no script was called");
    stage->calls = call->next;
    stage->call_count--;
    return call;
}

void stage_answer_with(struct stage *stage, const int64_t *integers, size_t count)
{
    struct stage_call *call = take_call(stage);

    call->done(call->context, &(struct policy_script_reply){.integers = integers, .count = count});
    free_call(call);
}

void stage_answer(struct stage *stage, const char *integers)
{
    int64_t list[8];
    size_t count = 0;
    char *end;

    for (const char *at = integers; *at != '\0'; at = end) {
        cr_assert_lt(count, sizeof list / sizeof list[0]);
        list[count++] = strtoll(at, &end, 10);
        cr_assert(end != at, "%s", integers);
    }
    stage_answer_with(stage, list, count);
}

void stage_fail(struct stage *stage, const char *error)
{
    struct stage_call *call = take_call(stage);

    call->done(call->context, &(struct policy_script_reply){.error = error});
    free_call(call);
}

/* ---- what it says ---- */

uint64_t stage_counter(struct stage *stage, const char *name)
{
    for (size_t n = 0; n < lease_policy.counter_count; n++) {
        if (strcmp(lease_policy.counters[n].name, name) == 0) {
            uint64_t sum = 0;
            for (size_t i = 0; i < stage->worker_count; i++) {
                lease_policy.on_stats(stage->workers[i].instance);
                sum += stage->workers[i].counters[n];
            }
            return sum;
        }
    }
    cr_assert_fail("no counter is called %s", name);
    return 0;
}

char *stage_tell(struct stage *stage, const char *text)
{
    static const char *const before[] = {
        [POLICY_ANSWER_TEXT] = "", [POLICY_ANSWER_OK] = "OK", [POLICY_ANSWER_ERROR] = "ERROR: "};
    struct slice words[8];
    size_t count = 0, length = 0, whole_length = 0;
    char *said = NULL, *whole = NULL;

    for (const char *at = text; count < 8; at++) {
        words[count] = (struct slice){at, strcspn(at, " ")};
        at += words[count++].length;
        if (*at == '\0') {
            break;
        }
    }
    for (size_t i = 0; i < lease_policy.verb_count; i++) {
        const struct policy_verb *verb = &lease_policy.verbs[i];
        if (slice_is(words[0], verb->name) && count >= verb->least && count <= verb->most) {
            FILE *out = open_memstream(&said, &length);
            enum policy_answer answer = verb->run(stage->workers[0].instance, count, words, out);
            fclose(out);
            out = open_memstream(&whole, &whole_length);
            fprintf(out, "%s%s", before[answer], said);
            fclose(out);
            free(said);
            return whole;
        }
    }
    cr_assert_fail("no verb for %s", text);
    return NULL;
}

bool stage_lists(struct stage *stage, const char *part)
{
    char *text = stage_tell(stage, "LEASES");
    const char *end = strchr(text, '\n');
    bool is_one = end != NULL && end[1] == '\0';
    bool lists = part == NULL ? *text == '\0' : is_one && strstr(text, part) != NULL;

    if (!lists) {
        fprintf(stderr, "LEASES: %s\nexpected: %s\n", text, part != NULL ? part : "nothing");
    }
    free(text);
    return lists;
}

void stage_assert_counter(struct stage *stage, const char *name, uint64_t expected)
{
    cr_assert_eq(stage_counter(stage, name), expected, "%s is %llu", name,
                 (unsigned long long)stage_counter(stage, name));
}

void stage_assert_quiet(struct stage *stage, int64_t ms)
{
    size_t before = stage->sent_count;

    stage_pass(stage, ms);
    cr_assert_eq(stage->sent_count, before, "%s", stage_call_text(stage));
}
