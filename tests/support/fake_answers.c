#include "fake_host.h"

#include "frame.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- scripts ---- */

void fake_call_free(struct fake_call *call)
{
    for (size_t i = 0; i < call->argument_count; i++) {
        free(call->arguments[i]);
    }
    free(call);
}

const char *fake_call_text(struct fake_host *host)
{
    static char text[FAKE_TEXT_MAX];
    const struct fake_call *call = host->calls;
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

double fake_call_number(struct fake_host *host, size_t place)
{
    const struct fake_call *call = host->calls;

    cr_assert(call != NULL && call->key_count + place < call->argument_count);
    return strtod(call->arguments[call->key_count + place], NULL);
}

static struct fake_call *take_call(struct fake_host *host)
{
    struct fake_call *call = host->calls;

    cr_assert_not_null(call, "no script was called");
    host->calls = call->next;
    host->call_count--;
    return call;
}

void fake_answer_with(struct fake_host *host, const int64_t *integers, size_t count)
{
    struct fake_call *call = take_call(host);

    call->done(call->context,
               &(struct policy_script_reply){.integers = integers, .count = count, .since_us = host->since_us});
    fake_call_free(call);
}

void fake_answer(struct fake_host *host, const char *integers)
{
    int64_t list[8];
    size_t count = 0;
    char *end;

    for (const char *at = integers; *at != '\0'; at = end) {
        cr_assert_lt(count, sizeof list / sizeof list[0]);
        list[count++] = strtoll(at, &end, 10);
        cr_assert(end != at, "%s", integers);
    }
    fake_answer_with(host, list, count);
}

void fake_fail(struct fake_host *host, const char *error)
{
    struct fake_call *call = take_call(host);

    call->done(call->context, &(struct policy_script_reply){.error = error});
    fake_call_free(call);
}

/* ---- what it says ---- */

uint64_t fake_counter(struct fake_host *host, const char *name)
{
    for (size_t n = 0; n < host->policy->counter_count; n++) {
        if (strcmp(host->policy->counters[n].name, name) == 0) {
            uint64_t sum = 0;
            for (size_t i = 0; i < host->worker_count; i++) {
                if (host->policy->on_stats != NULL) {
                    host->policy->on_stats(host->workers[i].instance);
                }
                sum += host->workers[i].counters[n];
            }
            return sum;
        }
    }
    cr_assert_fail("no counter is called %s", name);
    return 0;
}

char *fake_tell(struct fake_host *host, const char *text)
{
    static const char *const before[] = {
        [POLICY_ANSWER_TEXT] = "", [POLICY_ANSWER_OK] = "OK", [POLICY_ANSWER_ERROR] = "ERROR: "};
    struct slice words[FRAME_WORDS_MAX];
    size_t count = frame_split(text, words), length = 0, whole_length = 0;
    char *said = NULL, *whole = NULL;

    for (size_t i = 0; i < host->policy->verb_count; i++) {
        const struct policy_verb *verb = &host->policy->verbs[i];
        if (slice_is(words[0], verb->name) && count >= verb->least && count <= verb->most) {
            FILE *out = open_memstream(&said, &length);
            enum policy_answer answer = verb->run(host->workers[0].instance, count, words, out);
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

void fake_assert_counter(struct fake_host *host, const char *name, uint64_t expected)
{
    cr_assert_eq(fake_counter(host, name), expected, "%s is %llu", name, (unsigned long long)fake_counter(host, name));
}

void fake_assert_quiet(struct fake_host *host, int64_t ms)
{
    size_t before = host->sent_count;

    fake_pass(host, ms);
    cr_assert_eq(host->sent_count, before, "%s", fake_call_text(host));
}
