#include "fake_host.h"

#include "../unit/conf/conf_fixture.h"
#include "frame.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS INT64_C(100)
#define MAX_REQUEST ((size_t)1 << 20)

/* ---- what the policy asks of its host ---- */

static int64_t now(void *context)
{
    return ((const struct fake_worker *)context)->fake->now_us;
}

static int64_t wall(void *context)
{
    const struct fake_host *host = ((const struct fake_worker *)context)->fake;

    return host->wall_us + host->now_us;
}

static void warn(void *context, const char *rule, const char *text)
{
    struct fake_host *host = ((const struct fake_worker *)context)->fake;

    cr_assert_not_null(rule);
    snprintf(host->warning, sizeof host->warning, "%s", text);
    host->warning_count++;
}

static void inform(void *context, const char *rule, const char *text)
{
    struct fake_host *host = ((const struct fake_worker *)context)->fake;

    cr_assert_not_null(rule);
    snprintf(host->information, sizeof host->information, "%s", text);
    host->information_count++;
}

/* It is found to be the same one again. */
static void forget_peer(void *context, void *connection)
{
    (void)context;
    cr_assert_not_null(connection);
}

/* Clients of one address and name are of one process. */
static int64_t pid_of(const struct fake_client *client)
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

static enum policy_peer_search find_peer(void *context, void *connection, bool process, struct policy_peer *peer)
{
    const struct fake_host *host = ((const struct fake_worker *)context)->fake;

    (void)process;
    *peer = (struct policy_peer){.pid = host->untold ? 0 : pid_of(connection), .started = 1, .why = "it hides"};
    return host->unfound ? POLICY_PEER_LATER : POLICY_PEER_TOLD;
}

/* As long as it has a client, unless it is told otherwise. */
static bool peer_lives(void *context, const struct policy_peer *peer)
{
    const struct fake_host *host = ((const struct fake_worker *)context)->fake;
    const struct fake_client *client = host->clients;

    while (client != NULL && pid_of(client) != peer->pid) {
        client = client->next;
    }
    return client != NULL || host->processes_live;
}

static bool look_at_peer(void *context, const struct policy_peer *peer)
{
    ((struct fake_worker *)context)->looked_at = peer->pid;
    return true;
}

static enum policy_peer_search peer_has(void *context, void *connection, bool *has)
{
    *has = pid_of(connection) == ((const struct fake_worker *)context)->looked_at;
    return POLICY_PEER_TOLD;
}

static struct fake_call *copy_call(const struct fake_worker *worker, const struct policy_script *script)
{
    struct fake_call *call = calloc(1, sizeof *call);

    cr_assert_leq(script->argument_count, (size_t)FAKE_ARGUMENTS_MAX);
    call->script = script->script->name;
    call->worker = worker->host.worker;
    call->database = script->database;
    call->key_count = script->key_count;
    call->argument_count = script->argument_count;
    call->sent_us = worker->fake->now_us;
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

static void happened(void *context, const struct policy_event *event)
{
    struct fake_host *host = ((struct fake_worker *)context)->fake;

    cr_assert_gt(event->count, 0);
    host->happened[event->kind] += event->count;
    snprintf(host->event, sizeof host->event, "%s:%s %s", event->source, event->rule, event->what);
}

static void run_script(void *context, const struct policy_script *script)
{
    struct fake_worker *worker = context;
    struct fake_host *host = worker->fake;
    struct fake_call *call = copy_call(worker, script);
    struct fake_call **end = &host->calls;

    host->sent_count++;
    if (host->refusal != NULL) {
        fake_call_free(call);
        script->done(script->context, &(struct policy_script_reply){.error = host->refusal});
        return;
    }
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = call;
    host->call_count++;
}

/* No file here names one. */
static struct policy_server *change_server(void *context, struct policy_server *server,
                                           const struct policy_server_settings *settings)
{
    (void)context;
    (void)server;
    cr_assert_null(settings->address);
    return NULL;
}

static void resume(void *context, void *holder)
{
    (void)context;
    ((struct fake_client *)holder)->resumed = true;
}

/* ---- the host ---- */

static struct conf *load_rules(const struct policy *policy, const char *text)
{
    const struct conf_section *sections[POLICY_SECTIONS_MAX + 2] = {&conf_section_server};

    for (size_t i = 0; policy->sections != NULL && policy->sections[i] != NULL; i++) {
        sections[i + 1] = policy->sections[i];
    }
    return load_conf(text, sections);
}

struct fake_host *fake_host_new(const struct policy *policy, const char *rules, size_t workers)
{
    struct fake_host *host = calloc(1, sizeof *host);
    struct conf *conf = load_rules(policy, rules);

    host->policy = policy;
    host->now_us = FAKE_FIRST_US;
    host->wall_us = INT64_C(1700000000000000) - FAKE_FIRST_US;
    host->worker_count = workers;
    cr_assert_leq(workers, (size_t)FAKE_WORKERS_MAX);
    if (policy->share != NULL) {
        host->shared = policy->share(workers);
        cr_assert_not_null(host->shared);
    }
    for (size_t i = 0; i < workers; i++) {
        struct fake_worker *worker = &host->workers[i];
        worker->fake = host;
        worker->host = (struct policy_host){
            .resume = resume,
            .run_script = run_script,
            .change_server = change_server,
            .warn = warn,
            .inform = inform,
            .find_peer = find_peer,
            .forget_peer = forget_peer,
            .peer_lives = peer_lives,
            .look_at_peer = look_at_peer,
            .peer_has = peer_has,
            .happened = happened,
            .listens = true,
            .now_us = now,
            .wall_us = wall,
            .redis_us = wall,
            .context = worker,
            .worker = i,
        };
        cr_assert_leq(host->policy->counter_count, sizeof worker->counters / sizeof worker->counters[0]);
        worker->instance = host->policy->start(&(struct policy_start){
            .host = &worker->host, .shared = host->shared, .rules = conf->rules, .counters = worker->counters});
        cr_assert_not_null(worker->instance);
    }
    conf_free(conf);
    return host;
}

void fake_host_free(struct fake_host *host)
{
    while (host->clients != NULL) {
        fake_leave(host->clients);
    }
    while (host->calls != NULL) {
        fake_fail(host, "the end");
    }
    for (size_t i = 0; i < host->worker_count; i++) {
        host->policy->stop(host->workers[i].instance);
    }
    if (host->policy->unshare != NULL) {
        host->policy->unshare(host->shared);
    }
    free(host);
}

void fake_reload(struct fake_host *host, const char *rules)
{
    struct conf *conf = load_rules(host->policy, rules);

    for (size_t i = 0; i < host->worker_count; i++) {
        cr_assert(host->policy->reload(host->workers[i].instance, conf->rules));
        for (struct fake_client *client = host->clients; client != NULL; client = client->next) {
            if (client->worker == i && host->policy->on_client != NULL) {
                host->policy->on_client(host->workers[i].instance, &client->view, &client->attachment);
            }
        }
    }
    conf_free(conf);
}

void fake_tick(struct fake_host *host)
{
    for (size_t i = 0; i < host->worker_count; i++) {
        if (host->policy->on_tick != NULL) {
            host->policy->on_tick(host->workers[i].instance, host->now_us);
        }
    }
}

void fake_pass(struct fake_host *host, int64_t ms)
{
    while (ms > 0) {
        int64_t step = ms < TICK_MS ? ms : TICK_MS;
        host->now_us += step * MS;
        ms -= step;
        fake_tick(host);
    }
}

int64_t fake_pass_until_call(struct fake_host *host, int64_t most_ms)
{
    int64_t passed = 0;

    while (host->calls == NULL && passed < most_ms) {
        fake_pass(host, TICK_MS);
        passed += TICK_MS;
    }
    return passed;
}

/* ---- clients ---- */

static void *instance_of(const struct fake_client *client)
{
    return client->host->workers[client->worker].instance;
}

static void introduce(struct fake_client *client)
{
    const struct policy *policy = client->host->policy;

    client->view.identity++;
    if (policy->on_client != NULL) {
        policy->on_client(instance_of(client), &client->view, &client->attachment);
    }
}

struct fake_client *fake_join(struct fake_host *host, size_t worker, const char *address, const char *name)
{
    struct fake_client *client = calloc(1, sizeof *client);
    struct sockaddr_in *ipv4 = (struct sockaddr_in *)(void *)&client->address;

    cr_assert_lt(worker, host->worker_count);
    client->host = host;
    client->worker = worker;
    snprintf(client->user, sizeof client->user, "default");
    snprintf(client->name, sizeof client->name, "%s", name);
    ipv4->sin_family = AF_INET;
    ipv4->sin_port = htons((uint16_t)(1000 + host->last_id));
    cr_assert_eq(inet_pton(AF_INET, address, &ipv4->sin_addr), 1);
    client->view = (struct policy_client){
        .id = ++host->last_id,
        .address = &client->address,
        .address_text = address,
        .user = client->user,
        .name = client->name,
        .attachments = &client->attachment,
        .connection = client,
    };
    client->next = host->clients;
    host->clients = client;
    introduce(client);
    return client;
}

void fake_rename(struct fake_client *client, const char *name)
{
    snprintf(client->name, sizeof client->name, "%s", name);
    introduce(client);
}

static void end_oldest(struct fake_client *client, enum policy_outcome outcome, const char *head)
{
    cr_assert_gt(client->request_count, (size_t)0, "no request waits for %s", head);
    struct fake_request request = client->requests[0];
    client->request_count--;
    memmove(client->requests, client->requests + 1, client->request_count * sizeof client->requests[0]);
    fake_end(client, &request, outcome, head);
}

void fake_leave(struct fake_client *client)
{
    struct fake_client **link = &client->host->clients;

    if (client->held[0] != '\0') {
        fake_end(client, &(struct fake_request){.ticket = client->held_ticket}, POLICY_OUTCOME_OWNERLESS, "");
    }
    while (client->request_count > 0) {
        end_oldest(client, POLICY_OUTCOME_OWNERLESS, "");
    }
    while (*link != client) {
        link = &(*link)->next;
    }
    *link = client->next;
    if (client->host->policy->on_client_close != NULL) {
        client->host->policy->on_client_close(instance_of(client), &client->view, client->attachment);
    }
    free(client);
}

/* As the session keeps it: true for EXEC itself. */
static void follow_transaction(struct fake_client *client, enum command_kind kind)
{
    if (kind == COMMAND_MULTI) {
        client->in_transaction = true;
    } else if (kind == COMMAND_EXEC || kind == COMMAND_DISCARD) {
        client->in_transaction = false;
    }
}

/* A request of a client, taken apart as the host does it. */
struct made {
    struct slice frame;
    struct resp_command framed;
    struct policy_request request;
};

/* bytes: so many of the frame have come; SIZE_MAX: all of it. To be unmade. */
static void make_request(struct made *made, struct fake_client *client, const struct slice *words, size_t count,
                         size_t bytes)
{
    size_t taken;

    made->frame = frame_of_words(words, count);
    bool partial = bytes < made->frame.length;
    resp_command_reset(&made->framed);
    enum resp_status status =
        resp_command_feed(&made->framed, made->frame.data, partial ? bytes : made->frame.length, MAX_REQUEST, &taken);
    cr_assert_eq(status, partial ? RESP_MORE : RESP_DONE);
    made->request = (struct policy_request){
        .client = &client->view,
        .command = command_find(words[0]),
        .name = words[0],
        .frame = {made->frame.data, partial ? bytes : made->frame.length},
        .partial = partial,
        .framed = &made->framed,
        .in_transaction = client->in_transaction,
        .argument_count = (uint32_t)count,
        .received_us = client->host->now_us,
        .now_us = client->host->now_us,
        .holder = client,
        .attachment = &client->attachment,
    };
}

static void unmake(struct made *made)
{
    free((char *)made->frame.data);
}

struct fake_request fake_forward(struct fake_client *client, const struct slice *words, size_t count)
{
    const struct policy *policy = client->host->policy;
    struct made made;
    struct policy_decision decision;

    make_request(&made, client, words, count, SIZE_MAX);
    struct fake_request request = {.command = made.request.command, .received_us = client->host->now_us};
    cr_assert_not_null(request.command, "%.*s", (int)words[0].length, words[0].data);
    made.request.ticket = &request.ticket;
    if (policy->gate != NULL && policy->gate->wants(instance_of(client), request.command)) {
        enum policy_verdict verdict = policy->gate->on_request(instance_of(client), &made.request, &decision);
        cr_assert(verdict == POLICY_PASS || verdict == POLICY_ADMIT);
        request.passed = verdict == POLICY_PASS;
    }
    follow_transaction(client, request.command->kind);
    unmake(&made);
    return request;
}

void fake_send(struct fake_client *client, const char *text)
{
    struct slice words[FRAME_WORDS_MAX];
    struct fake_request request = fake_forward(client, words, frame_split(text, words));

    if (request.passed) {
        cr_assert_lt(client->request_count, (size_t)FAKE_REQUESTS_MAX);
        client->requests[client->request_count++] = request;
    }
}

/* ---- what is decided on requests ---- */

static const char *say_verdict(enum policy_verdict verdict, const struct policy_decision *decision)
{
    static const char *const names[] = {
        [POLICY_PASS] = "pass", [POLICY_ADMIT] = "admit", [POLICY_HOLD] = "hold", [POLICY_WHOLE] = "whole"};
    static char text[POLICY_TEXT_MAX + 16];

    if (verdict == POLICY_REPLY) {
        cr_assert(decision->length > 2 && memcmp(&decision->text[decision->length - 2], "\r\n", 2) == 0);
        snprintf(text, sizeof text, "%.*s", (int)decision->length - 2, decision->text);
        return text;
    }
    if (verdict == POLICY_CLOSE) {
        snprintf(text, sizeof text, "close: %.*s", (int)decision->length, decision->text);
        return text;
    }
    return names[verdict];
}

static const char *decide(struct fake_client *client, const char *text, size_t bytes)
{
    const struct policy *policy = client->host->policy;
    struct policy_decision decision = {0};
    struct slice words[FRAME_WORDS_MAX];
    struct made made;
    enum policy_verdict verdict = POLICY_PASS;

    make_request(&made, client, words, frame_split(text, words), bytes);
    made.request.holds = client->holds;
    made.request.ticket = &client->held_ticket;
    if (policy->gate != NULL && policy->gate->wants(instance_of(client), made.request.command)) {
        verdict = policy->gate->on_request(instance_of(client), &made.request, &decision);
    }
    unmake(&made);
    client->resumed = false;
    client->hold_until_us = decision.hold_until_us;
    if (verdict == POLICY_HOLD) {
        memmove(client->held, text, strlen(text) + 1);
        client->holds++;
    } else {
        client->held[0] = '\0';
    }
    return say_verdict(verdict, &decision);
}

const char *fake_verdict_of_part(struct fake_client *client, const char *text, size_t bytes)
{
    cr_assert_lt(strlen(text), sizeof client->held);
    cr_assert_str_empty(client->held, "another request is on hold");
    client->holds = 0;
    client->held_ticket = 0;
    return decide(client, text, bytes);
}

const char *fake_verdict(struct fake_client *client, const char *text)
{
    return fake_verdict_of_part(client, text, SIZE_MAX);
}

const char *fake_verdict_again(struct fake_client *client)
{
    cr_assert_str_not_empty(client->held, "no request is on hold");
    return decide(client, client->held, SIZE_MAX);
}

/* The words of a frame, with single blanks between them. */
static void write_words(FILE *out, struct slice frame)
{
    struct resp_walk walk = resp_walk_start(frame);
    struct slice word;
    const char *before = "";

    while (resp_walk_next(&walk, &word)) {
        fputs(before, out);
        fwrite(word.data, 1, word.length, out);
        before = " ";
    }
}

const char *fake_translation(struct fake_client *client, const char *text, enum policy_server_has server)
{
    static char said[FAKE_TRANSLATION_MAX];
    const struct policy *policy = client->host->policy;
    struct policy_decision decision = {0};
    struct slice words[FRAME_WORDS_MAX], frame = {0};
    struct made made;
    FILE *out = fmemopen(said, sizeof said, "w");

    make_request(&made, client, words, frame_split(text, words), SIZE_MAX);
    cr_assert(policy->translator->translates(instance_of(client), made.request.command), "%s", text);
    switch (policy->translator->translate(instance_of(client), &made.request, server, &frame, &decision)) {
    case POLICY_AS_IT_IS:
        fputs("as it is", out);
        break;
    case POLICY_TRANSLATED:
        write_words(out, frame);
        break;
    case POLICY_ANSWERED:
        fprintf(out, "answered: %s", say_verdict(POLICY_REPLY, &decision));
        break;
    }
    fclose(out);
    unmake(&made);
    return said;
}

const char *fake_reads(struct fake_client *client, const char *text)
{
    static const char *const said[] = {[CONF_READS_MASTER] = "master",
                                       [CONF_READS_PREFER_REPLICA] = "prefer-replica",
                                       [CONF_READS_REPLICA] = "replica"};
    const struct policy_router *router = client->host->policy->router;
    struct slice words[FRAME_WORDS_MAX];
    struct made made;
    enum conf_reads reads = CONF_READS_MASTER;

    make_request(&made, client, words, frame_split(text, words), SIZE_MAX);
    bool is_said = router->routes(instance_of(client), made.request.command) &&
                   router->reads(instance_of(client), &made.request, &reads);
    unmake(&made);
    return is_said ? said[reads] : "unsaid";
}

/* ---- their ends ---- */

void fake_end(struct fake_client *client, const struct fake_request *request, enum policy_outcome outcome,
              const char *head)
{
    struct fake_host *host = client->host;

    host->policy->gate->on_reply(host->workers[client->worker].instance,
                                 &(struct policy_reply){.client = &client->view,
                                                        .command = request->command,
                                                        .outcome = outcome,
                                                        .head = slice_of(head),
                                                        .length = strlen(head),
                                                        .received_us = request->received_us,
                                                        .now_us = host->now_us,
                                                        .ticket = request->ticket});
}

void fake_hear(struct fake_client *client, const char *head)
{
    end_oldest(client, POLICY_OUTCOME_REPLY, head);
}

void fake_lose(struct fake_client *client)
{
    end_oldest(client, POLICY_OUTCOME_LOST, "");
}

void fake_ask(struct fake_client *client, const char *text, const char *head)
{
    fake_send(client, text);
    if (client->request_count > 0) {
        fake_hear(client, head);
    }
}
