/* The respondent: answers on the admin port, as probe.h says. */
#include "probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Admin queries that wait at the same time. */
#define WAITING_MAX 100

struct waiting {
    struct admin_query *admin_query;
    bool is_last; /* answered by stop() */
};

struct respondent {
    const struct policy_host *host;
    struct waiting waiting[WAITING_MAX];
    size_t count;
};

static bool is(struct slice slice, const char *word)
{
    return slice.length == strlen(word) && strncasecmp(slice.data, word, slice.length) == 0;
}

static void answer(const struct respondent *respondent, struct admin_query *admin_query, enum policy_answer kind,
                   struct slice text)
{
    respondent->host->answer(respondent->host->context, admin_query, kind, text);
}

/* ---- LUA ---- */

static const char lua_text[] = "return loadstring(ARGV[1])()";
static const struct script lua_script = {.name = "probe",
                                         .text = lua_text,
                                         .length = sizeof lua_text - 1,
                                         .sha1 = "71adcbd7d60fa3cd8b166cca403f5f6fb9e6259b"};

/* An admin query that is answered when the script has ended. */
struct call {
    const struct respondent *respondent;
    struct admin_query *admin_query;
};

static void print_element(FILE *out, int64_t integer, struct slice text)
{
    if (text.data == NULL) {
        fprintf(out, "integer:%" PRId64 "\n", integer);
    } else {
        fprintf(out, "text:%zu:", text.length);
        fwrite(text.data, 1, text.length, out);
        fputc('\n', out);
    }
}

static void script_ended(void *context, const struct policy_script_reply *reply)
{
    struct call call = *(struct call *)context;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    free(context);
    if (out == NULL) {
        abort();
    }
    for (size_t i = 0; i < reply->count; i++) {
        print_element(out, reply->integers[i], reply->texts[i]);
    }
    fclose(out);
    if (reply->error != NULL) {
        answer(call.respondent, call.admin_query, POLICY_ANSWER_ERROR, slice_of(reply->error));
    } else {
        answer(call.respondent, call.admin_query, POLICY_ANSWER_TEXT, (struct slice){text, length});
    }
    free(text);
}

static void ask_lua(const struct respondent *respondent, struct admin_query *admin_query, struct slice code)
{
    struct slice arguments[POLICY_SCRIPT_ARGUMENTS_MAX] = {code};
    char numbers[POLICY_SCRIPT_ARGUMENTS_MAX][8];
    struct call *call = malloc(sizeof *call);

    if (call == NULL) {
        abort();
    }
    *call = (struct call){respondent, admin_query};
    for (int i = 1; i < POLICY_SCRIPT_ARGUMENTS_MAX; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%d", i + 1);
        arguments[i] = slice_of(numbers[i]);
    }
    const struct policy_script script = {
        .script = &lua_script,
        .arguments = arguments,
        .argument_count = POLICY_SCRIPT_ARGUMENTS_MAX,
        .done = script_ended,
        .context = call,
    };
    respondent->host->run_script(respondent->host->context, &script);
}

/* ---- WAIT, LAST and TELL ---- */

static void keep_waiting(struct respondent *respondent, struct admin_query *admin_query, bool is_last)
{
    if (respondent->count == WAITING_MAX) {
        answer(respondent, admin_query, POLICY_ANSWER_ERROR, slice_of("too many wait"));
        return;
    }
    respondent->waiting[respondent->count++] = (struct waiting){admin_query, is_last};
}

/* Answers all that wait, and then this one, with their number. */
static void tell(struct respondent *respondent, struct admin_query *admin_query, struct slice kind, struct slice text)
{
    char number[32];

    for (size_t i = 0; i < respondent->count; i++) {
        answer(respondent, respondent->waiting[i].admin_query,
               is(kind, "text") ? POLICY_ANSWER_TEXT
               : is(kind, "ok") ? POLICY_ANSWER_OK
                                : POLICY_ANSWER_ERROR,
               text);
    }
    snprintf(number, sizeof number, "%zu", respondent->count);
    respondent->count = 0;
    answer(respondent, admin_query, POLICY_ANSWER_TEXT, slice_of(number));
}

/* ---- the policy ---- */

static void ask(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    struct respondent *respondent = instance;

    if (is(arguments[1], "lua") && count == 3) {
        ask_lua(respondent, admin_query, arguments[2]);
    } else if (is(arguments[1], "wait")) {
        keep_waiting(respondent, admin_query, false);
    } else if (is(arguments[1], "last")) {
        keep_waiting(respondent, admin_query, true);
    } else if (is(arguments[1], "tell") && count == 4) {
        tell(respondent, admin_query, arguments[2], arguments[3]);
    } else {
        answer(respondent, admin_query, POLICY_ANSWER_ERROR, slice_of("see probe.h"));
    }
}

/* Repeats the argument, at once. */
static enum policy_answer run(void *instance, size_t count, const struct slice *arguments, FILE *out)
{
    (void)instance;
    (void)count;
    fwrite(arguments[1].data, 1, arguments[1].length, out);
    return POLICY_ANSWER_TEXT;
}

static const struct policy_verb verbs[] = {
    {.name = "PROBE",
     .least = 2,
     .most = 4,
     .usage = "PROBE LUA code | WAIT | LAST | TELL kind text",
     .help = "answers later",
     .ask = ask},
    {.name = "PROBED", .least = 2, .most = 2, .usage = "PROBED text", .help = "answers at once", .run = run},
};

static void *start(const struct policy_start *start)
{
    struct respondent *respondent = calloc(1, sizeof *respondent);

    if (respondent != NULL) {
        respondent->host = start->host;
    }
    return respondent;
}

static void stop(void *instance)
{
    struct respondent *respondent = instance;

    for (size_t i = 0; i < respondent->count; i++) {
        if (respondent->waiting[i].is_last) {
            answer(respondent, respondent->waiting[i].admin_query, POLICY_ANSWER_TEXT, slice_of("the last word"));
        }
    }
    free(respondent);
}

const struct policy probe_respondent = {
    .name = "respondent",
    .verbs = verbs,
    .verb_count = sizeof verbs / sizeof verbs[0],
    .start = start,
    .stop = stop,
};
