#include "latency_fixture.h"

#include "../../support/frame.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 64

struct latency_fixture fixture;

/* ---- the host ---- */

static void run_script(void *context, const struct policy_script *script)
{
    struct latency_fixture *fixture = ((struct fixture_worker *)context)->fixture;

    cr_assert_lt(fixture->call_count, (size_t)CALLS_MAX);
    struct script_call *call = &fixture->calls[fixture->call_count++];
    *call = (struct script_call){
        .script = script->script,
        .argument_count = script->argument_count,
        .key_count = script->key_count,
        .database = script->database,
        .done = script->done,
        .context = script->context,
    };
    for (size_t i = 0; i < script->argument_count; i++) {
        call->arguments[i] = strndup(script->arguments[i].data, script->arguments[i].length);
    }
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

static void answer(void *context, struct admin_query *admin_query, enum policy_answer kind, struct slice text)
{
    struct latency_fixture *fixture = ((struct fixture_worker *)context)->fixture;

    cr_assert_eq((void *)admin_query, (void *)fixture);
    free(fixture->answer);
    fixture->answer = text.length > 0 ? strndup(text.data, text.length) : strdup("");
    fixture->answer_kind = kind;
    fixture->answers++;
}

static void warn(void *context, const char *rule, const char *text)
{
    struct latency_fixture *fixture = ((struct fixture_worker *)context)->fixture;

    cr_assert_str_eq(rule, "latency");
    snprintf(fixture->warning, sizeof fixture->warning, "%s", text);
    fixture->warnings++;
}

static int64_t now_us(void *context)
{
    return ((struct fixture_worker *)context)->fixture->now_us;
}

static int64_t wall_us(void *context)
{
    return ((struct fixture_worker *)context)->fixture->wall_us;
}

/* ---- start and stop ---- */

static struct conf *read_conf(const char *text)
{
    struct conf_faults faults;
    struct conf *conf = load_conf(text, latency_policy.sections, &faults);

    cr_assert_not_null(conf, "%s", faults.count > 0 ? faults.lines[0] : "");
    conf_faults_free(&faults);
    return conf;
}

void fixture_start(struct latency_fixture *fixture, const char *conf, size_t workers)
{
    *fixture = (struct latency_fixture){
        .conf = read_conf(conf),
        .worker_count = workers,
        .shared = latency_policy.share(workers),
        .now_us = 1000000,
        .wall_us = (INT64_C(28333333) * 60 + 20) * 1000000,
    };
    cr_assert_leq(latency_policy.counter_count, (size_t)COUNTERS_MAX);
    for (size_t i = 0; i < workers; i++) {
        struct fixture_worker *worker = &fixture->workers[i];
        worker->fixture = fixture;
        worker->host = (struct policy_host){
            .run_script = run_script,
            .change_server = change_server,
            .answer = answer,
            .warn = warn,
            .now_us = now_us,
            .wall_us = wall_us,
            .context = worker,
            .worker = i,
        };
        const struct policy_start start = {&worker->host, fixture->shared, fixture->conf->rules, worker->counters};
        worker->instance = latency_policy.start(&start);
        cr_assert_not_null(worker->instance);
    }
}

void fixture_reload(struct latency_fixture *fixture, const char *conf)
{
    struct conf *fresh = read_conf(conf);

    for (size_t i = 0; i < fixture->worker_count; i++) {
        cr_assert(latency_policy.reload(fixture->workers[i].instance, fresh->rules));
    }
    conf_free(fixture->conf);
    fixture->conf = fresh;
}

static void finish_call(struct latency_fixture *fixture, size_t index, const struct policy_script_reply *reply)
{
    struct script_call call = fixture->calls[index];

    fixture->call_count--;
    memmove(&fixture->calls[index], &fixture->calls[index + 1], (fixture->call_count - index) * sizeof call);
    for (size_t i = 0; i < call.argument_count; i++) {
        free(call.arguments[i]);
    }
    call.done(call.context, reply);
}

void fixture_stop(struct latency_fixture *fixture)
{
    while (fixture->call_count > 0) {
        finish_call(fixture, 0, &(struct policy_script_reply){.error = "ERR gone"});
    }
    for (size_t i = 0; i < fixture->worker_count; i++) {
        latency_policy.stop(fixture->workers[i].instance);
    }
    latency_policy.unshare(fixture->shared);
    conf_free(fixture->conf);
    fixture->conf = NULL;
    free(fixture->answer);
}

void fixture_end(void)
{
    if (fixture.conf != NULL) {
        fixture_stop(&fixture);
    }
}

/* ---- time ---- */

void fixture_pass(struct latency_fixture *fixture, int64_t us)
{
    fixture->now_us += us;
    fixture->wall_us += us;
}

void fixture_tick(struct latency_fixture *fixture, int64_t us)
{
    for (int64_t passed = 0; passed < us; passed += 100000) {
        fixture_pass(fixture, 100000);
        for (size_t i = 0; i < fixture->worker_count; i++) {
            latency_policy.on_tick(fixture->workers[i].instance, fixture->now_us);
        }
    }
}

/* ---- scripts ---- */

static size_t find_call(const struct latency_fixture *fixture, const char *script)
{
    size_t index = 0;

    while (index < fixture->call_count && strcmp(fixture->calls[index].script->name, script) != 0) {
        index++;
    }
    return index;
}

static size_t the_call(const struct latency_fixture *fixture, const char *script)
{
    size_t index = find_call(fixture, script);

    cr_assert_lt(index, fixture->call_count, "no call of %s", script);
    return index;
}

const struct script_call *fixture_call(const struct latency_fixture *fixture, const char *script)
{
    size_t index = find_call(fixture, script);

    return index < fixture->call_count ? &fixture->calls[index] : NULL;
}

void fixture_answer(struct latency_fixture *fixture, const char *script, const int64_t *integers, size_t count)
{
    struct slice no_texts[WORDS_MAX] = {0};

    cr_assert_leq(count, (size_t)WORDS_MAX);
    finish_call(fixture, the_call(fixture, script),
                &(struct policy_script_reply){.integers = integers, .texts = no_texts, .count = count});
}

void fixture_answer_texts(struct latency_fixture *fixture, const char *script, const char *const *texts, size_t count)
{
    struct slice slices[WORDS_MAX] = {0};
    int64_t integers[WORDS_MAX] = {0};

    for (size_t i = 0; i < count; i++) {
        slices[i] = (struct slice){texts[i], strlen(texts[i])};
    }
    finish_call(fixture, the_call(fixture, script),
                &(struct policy_script_reply){.integers = integers, .texts = slices, .count = count});
}

void fixture_fail(struct latency_fixture *fixture, const char *script, const char *error)
{
    finish_call(fixture, the_call(fixture, script), &(struct policy_script_reply){.error = error});
}

size_t fixture_acknowledge(struct latency_fixture *fixture)
{
    const int64_t counted = 1;
    size_t flushes = 0;

    while (fixture_call(fixture, "latency_flush") != NULL) {
        fixture_answer(fixture, "latency_flush", &counted, 1);
        flushes++;
    }
    while (fixture_call(fixture, "latency_list") != NULL) {
        fixture_answer(fixture, "latency_list", &counted, 1);
    }
    return flushes;
}

/* ---- requests ---- */

static const struct policy_client somebody = {
    .id = 7, .address_text = "10.0.0.1:4711", .user = "default", .name = "worker-1"};

/* A request taken apart; the frame is in memory of its own. */
struct made {
    struct policy_request request;
    struct resp_command framed;
    char *bytes;
    uint64_t ticket;
    void *attachment;
    char learned_name[256];
    struct command learned;
};

/* What the server would have told of the command. */
static const struct command *learn(struct made *made, struct slice name)
{
    static const char prefix[] = "LEARNED";

    if (name.length < strlen(prefix) || strncasecmp(name.data, prefix, strlen(prefix)) != 0) {
        return NULL;
    }
    snprintf(made->learned_name, sizeof made->learned_name, "%.*s", (int)name.length, name.data);
    made->learned = (struct command){.name = made->learned_name, .arity = -1};
    return &made->learned;
}

static void make_request(struct made *made, const char *text)
{
    struct slice words[FRAME_WORDS_MAX];
    size_t count = frame_split(text, words), taken;
    struct slice frame = frame_of_words(words, count);

    made->bytes = (char *)frame.data;
    made->framed = (struct resp_command){0};
    made->ticket = 0;
    made->attachment = NULL;
    resp_command_reset(&made->framed);
    cr_assert_eq(resp_command_feed(&made->framed, frame.data, frame.length, 1 << 20, &taken), RESP_DONE);
    made->request = (struct policy_request){
        .client = &somebody,
        .command = command_find(words[0]),
        .learned = learn(made, words[0]),
        .name = {made->bytes + made->framed.arguments[0].offset, (size_t)made->framed.arguments[0].length},
        .frame = frame,
        .framed = &made->framed,
        .argument_count = (uint32_t)count,
        .ticket = &made->ticket,
        .attachment = &made->attachment,
    };
}

uint32_t fixture_tag(struct latency_fixture *fixture, size_t worker, const char *words)
{
    void *instance = fixture->workers[worker].instance;
    bool in_transaction = strncmp(words, "(MULTI) ", 8) == 0;
    struct made made;

    make_request(&made, words + (in_transaction ? 8 : 0));
    made.request.in_transaction = in_transaction;
    uint32_t tag = latency_policy.observer->tag(instance, made.request.command);
    if (tag == POLICY_TAG_ASK) {
        tag = latency_policy.observer->measure(instance, &made.request);
        cr_assert_neq(tag, POLICY_TAG_ASK);
    }
    free(made.bytes);
    return tag;
}

void fixture_spot(struct latency_fixture *fixture, size_t worker, const char *words)
{
    struct made made;

    make_request(&made, words);
    latency_policy.observer->on_spot(fixture->workers[worker].instance, &made.request);
    free(made.bytes);
}

bool fixture_request(struct latency_fixture *fixture, size_t worker, const char *words, int64_t us)
{
    struct made made;

    make_request(&made, words);
    const struct policy_sample sample = {
        .count = 1,
        .tag = fixture_tag(fixture, worker, words),
        .received_us = fixture->now_us - us,
        .sent_us = fixture->now_us - us + 1,
        .answered_us = fixture->now_us,
        .request_bytes = made.request.frame.length,
        .reply_bytes = 5,
        .head = made.request.frame,
    };
    bool wants_written = latency_policy.observer->on_sample(fixture->workers[worker].instance, &sample);
    if (wants_written) {
        struct policy_sample written = sample;
        written.client = &somebody;
        written.written_us = sample.answered_us + 3;
        latency_policy.observer->on_written(fixture->workers[worker].instance, &written);
    }
    free(made.bytes);
    return wants_written;
}

/* ---- what happens ---- */

void fixture_happen(struct latency_fixture *fixture, size_t worker, enum policy_event_kind kind, uint64_t count,
                    const char *what)
{
    const struct policy_event event = {.kind = kind, .count = count, .source = "limit", .rule = "rule", .what = what};

    cr_assert(latency_policy.observer->listens(fixture->workers[worker].instance));
    latency_policy.observer->on_event(fixture->workers[worker].instance, &event);
}

/* ---- admin queries ---- */

static const struct policy_verb *find_verb(struct slice name)
{
    for (size_t i = 0; i < latency_policy.verb_count; i++) {
        const char *known = latency_policy.verbs[i].name;
        if (strlen(known) == name.length && memcmp(known, name.data, name.length) == 0) {
            return &latency_policy.verbs[i];
        }
    }
    cr_assert_fail("no verb %.*s", (int)name.length, name.data);
    return NULL;
}

const char *fixture_ask(struct latency_fixture *fixture, size_t worker, const char *text)
{
    void *instance = fixture->workers[worker].instance;
    struct slice words[FRAME_WORDS_MAX];
    size_t count = frame_split(text, words), answers = fixture->answers;
    const struct policy_verb *verb = find_verb(words[0]);

    cr_assert(count >= verb->least && count <= verb->most);
    if (verb->ask != NULL) {
        verb->ask(instance, (struct admin_query *)(void *)fixture, count, words);
        return fixture->answers > answers ? fixture->answer : NULL;
    }
    size_t length = 0;
    free(fixture->answer);
    FILE *out = open_memstream(&fixture->answer, &length);
    fixture->answer_kind = verb->run(instance, count, words, out);
    fclose(out);
    return fixture->answer;
}

bool says(const char *answer, const char *text)
{
    return answer != NULL && strstr(answer, text) != NULL;
}

uint64_t fixture_counter(struct latency_fixture *fixture, const char *name)
{
    uint64_t sum = 0;
    size_t found = 0;

    for (size_t i = 0; i < fixture->worker_count; i++) {
        latency_policy.on_stats(fixture->workers[i].instance);
        for (size_t n = 0; n < latency_policy.counter_count; n++) {
            if (strcmp(latency_policy.counters[n].name, name) == 0) {
                sum += atomic_load(&fixture->workers[i].counters[n]);
                found++;
            }
        }
    }
    cr_assert_eq(found, fixture->worker_count, "no counter %s", name);
    return sum;
}
