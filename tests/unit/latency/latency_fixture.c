#include "latency_fixture.h"

#include "../../support/frame.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct latency_fixture fixture;

/* ---- the host ---- */

static void answer(void *context, struct admin_query *admin_query, enum policy_answer kind, struct slice text)
{
    (void)context;
    cr_assert_eq((void *)admin_query, (void *)&fixture);
    free(fixture.answer);
    fixture.answer = text.length > 0 ? strndup(text.data, text.length) : strdup("");
    fixture.answer_kind = kind;
    fixture.answers++;
}

void fixture_start(const char *conf, size_t workers)
{
    fixture = (struct latency_fixture){.host = fake_host_new(&latency_policy, conf, workers)};
    for (size_t i = 0; i < workers; i++) {
        fixture.host->workers[i].host.answer = answer;
    }
}

void *fixture_instance(size_t worker)
{
    return fixture.host->workers[worker].instance;
}

void fixture_stop(void)
{
    fake_host_free(fixture.host);
    fixture.host = NULL;
    free(fixture.answer);
}

void fixture_end(void)
{
    if (fixture.host != NULL) {
        fixture_stop();
    }
}

/* ---- scripts ---- */

static struct fake_call **find_call(const char *script)
{
    struct fake_call **at = &fixture.host->calls;

    while (*at != NULL && strcmp((*at)->script, script) != 0) {
        at = &(*at)->next;
    }
    return at;
}

const struct fake_call *fixture_call(const char *script)
{
    return *find_call(script);
}

static void finish_call(const char *script, const struct policy_script_reply *reply)
{
    struct fake_call **at = find_call(script), *call = *at;

    cr_assert_not_null(call, "no call of %s", script);
    *at = call->next;
    fixture.host->call_count--;
    call->done(call->context, reply);
    fake_call_free(call);
}

void fixture_answer(const char *script, const int64_t *integers, size_t count)
{
    const struct slice no_texts[FRAME_WORDS_MAX] = {0};

    finish_call(script, &(struct policy_script_reply){.integers = integers, .texts = no_texts, .count = count});
}

void fixture_answer_texts(const char *script, const char *const *texts, size_t count)
{
    struct slice slices[FRAME_WORDS_MAX] = {0};
    const int64_t integers[FRAME_WORDS_MAX] = {0};

    for (size_t i = 0; i < count; i++) {
        slices[i] = slice_of(texts[i]);
    }
    finish_call(script, &(struct policy_script_reply){.integers = integers, .texts = slices, .count = count});
}

void fixture_fail(const char *script, const char *error)
{
    finish_call(script, &(struct policy_script_reply){.error = error});
}

void fixture_acknowledge(void)
{
    static const char *const scripts[] = {"latency_flush", "latency_list"};
    const int64_t counted = 1;

    for (size_t i = 0; i < 2; i++) {
        while (fixture_call(scripts[i]) != NULL) {
            fixture_answer(scripts[i], &counted, 1);
        }
    }
}

/* ---- requests ---- */

static const struct policy_client somebody = {
    .id = 7, .address_text = "10.0.0.1:4711", .user = "default", .name = "worker-1"};

/* A request taken apart; the frame is in memory of its own. */
struct made {
    struct policy_request request;
    struct resp_command framed;
    uint64_t ticket;
    void *attachment;
    char learned_name[256];
    struct command learned;
};

static void make_request(struct made *made, const char *text)
{
    struct slice words[FRAME_WORDS_MAX];
    size_t count = frame_split(text, words), taken;
    struct slice frame = frame_of_words(words, count);

    *made = (struct made){.learned = {.name = made->learned_name, .arity = -1}};
    snprintf(made->learned_name, sizeof made->learned_name, "%.*s", (int)words[0].length, words[0].data);
    resp_command_reset(&made->framed);
    cr_assert_eq(resp_command_feed(&made->framed, frame.data, frame.length, 1 << 20, &taken), RESP_DONE);
    made->request = (struct policy_request){
        .client = &somebody,
        .command = command_find(words[0]),
        /* What the server would have told of the command. */
        .learned = strncasecmp(made->learned_name, "LEARNED", 7) == 0 ? &made->learned : NULL,
        .name = {frame.data + made->framed.arguments[0].offset, (size_t)made->framed.arguments[0].length},
        .frame = frame,
        .framed = &made->framed,
        .argument_count = (uint32_t)count,
        .ticket = &made->ticket,
        .attachment = &made->attachment,
    };
}

uint32_t fixture_tag(size_t worker, const char *words)
{
    void *instance = fixture_instance(worker);
    bool in_transaction = strncmp(words, "(MULTI) ", 8) == 0;
    struct made made;

    make_request(&made, words + (in_transaction ? 8 : 0));
    made.request.in_transaction = in_transaction;
    uint32_t tag = latency_policy.observer->tag(instance, made.request.command);
    if (tag == POLICY_TAG_ASK) {
        tag = latency_policy.observer->measure(instance, &made.request);
        cr_assert_neq(tag, POLICY_TAG_ASK);
    }
    free((char *)made.request.frame.data);
    return tag;
}

bool fixture_request(size_t worker, const char *words, int64_t us)
{
    int64_t now_us = fixture.host->now_us;
    struct made made;

    make_request(&made, words);
    struct policy_sample sample = {
        .count = 1,
        .tag = fixture_tag(worker, words),
        .received_us = now_us - us,
        .sent_us = now_us - us + 1,
        .answered_us = now_us,
        .request_bytes = made.request.frame.length,
        .reply_bytes = 5,
        .head = made.request.frame,
    };
    bool wants_written = latency_policy.observer->on_sample(fixture_instance(worker), &sample);
    if (wants_written) {
        sample.client = &somebody;
        sample.written_us = now_us + 3;
        latency_policy.observer->on_written(fixture_instance(worker), &sample);
    }
    free((char *)made.request.frame.data);
    return wants_written;
}

/* ---- admin queries ---- */

const char *fixture_ask(const char *text)
{
    struct slice words[FRAME_WORDS_MAX];
    size_t count = frame_split(text, words), answers = fixture.answers, length = 0;
    const struct policy_verb *verb = latency_policy.verbs;

    while (!slice_is(words[0], verb->name)) {
        cr_assert_lt(++verb, latency_policy.verbs + latency_policy.verb_count, "%s", text);
    }
    cr_assert(count >= verb->least && count <= verb->most);
    if (verb->ask != NULL) {
        verb->ask(fixture_instance(0), (struct admin_query *)(void *)&fixture, count, words);
        return fixture.answers > answers ? fixture.answer : NULL;
    }
    free(fixture.answer);
    FILE *out = open_memstream(&fixture.answer, &length);
    fixture.answer_kind = verb->run(fixture_instance(0), count, words, out);
    fclose(out);
    return fixture.answer;
}

bool says(const char *answer, const char *text)
{
    return answer != NULL && strstr(answer, text) != NULL;
}
