/* LIMITS and LIMIT on the admin port, and what is told another process. */
#include "base/percent.h"
#include "limit/limit_call.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum policy_answer limit_verb_limits(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct limit *limit = instance;

    (void)count;
    (void)arguments;
    limit_share_print(limit->share, answer, limit->host->now_us(limit->host->context));
    return POLICY_ANSWER_TEXT;
}

static struct limit_rule *find_global_rule(const struct limit *limit, struct slice name)
{
    for (size_t i = 0; i < limit->rule_count; i++) {
        struct limit_rule *rule = &limit->rules[i];
        if (rule->scope == LIMIT_GLOBAL && slice_is(name, rule->name)) {
            return rule;
        }
    }
    return NULL;
}

/* A rule whose state is in Redis, too; the calls for what is to be forgotten are sent when nothing is locked. */
struct forgetting {
    struct limit *limit;
    struct limit_rule *rule;
    struct limit_reset *reset;
    struct limit_call *calls; /* linked by their successors */
};

static void add_forgotten(struct forgetting *forgetting, struct limit_bucket *bucket, struct slice name)
{
    struct limit_call *call = limit_call_forget(forgetting->limit, forgetting->rule, bucket, name, forgetting->reset);

    if (call != NULL) {
        call->successor = forgetting->calls;
        forgetting->calls = call;
    }
}

static void forget(void *context, struct limit_bucket *bucket)
{
    add_forgotten(context, bucket, limit_bucket_name(bucket));
}

/* name: as LIMITS shows it. */
static bool forget_by_name(struct forgetting *forgetting, struct slice name)
{
    char bucket[LIMIT_BUCKET_MAX];
    size_t length = limit_bucket_table_name(name, bucket);

    if (length > 0) {
        add_forgotten(forgetting, NULL, (struct slice){bucket, length});
    }
    return length > 0;
}

static void send_forgotten(struct forgetting *forgetting)
{
    while (forgetting->calls != NULL) {
        struct limit_call *call = forgetting->calls;
        forgetting->calls = call->successor;
        call->successor = NULL;
        limit_call_send_forget(call);
    }
}

/* NULL, or why it cannot be. */
static const char *reset(struct limit *limit, struct slice rule, struct slice name, struct limit_reset *reset)
{
    struct forgetting forgetting = {.limit = limit, .rule = find_global_rule(limit, rule), .reset = reset};
    bool found = limit_share_reset(limit->share, rule, name, forgetting.rule != NULL ? forget : NULL, &forgetting);

    if (!found && forgetting.rule != NULL && name.length > 0) {
        /* What is not tracked here may still be counted in Redis. */
        found = forget_by_name(&forgetting, name);
    }
    send_forgotten(&forgetting);
    if (!found) {
        return name.length > 0 ? "no such rule, or nothing is known of that offender; see LIMITS"
                               : "no such rule; see LIMITS";
    }
    return NULL;
}

void limit_verb_limit(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    struct limit *limit = instance;
    struct slice name = count > 3 ? arguments[3] : (struct slice){"", 0};
    /* An empty offender is a mistake, and not to be taken for all of them. */
    bool names_nobody = count > 3 && name.length == 0;
    /* One more is pending until all have been sent. */
    struct limit_reset *answer = calloc(1, sizeof *answer);

    if (answer == NULL) {
        limit->host->answer(limit->host->context, admin_query, POLICY_ANSWER_ERROR, slice_of("out of memory"));
        return;
    }
    *answer = (struct limit_reset){.admin_query = admin_query, .pending = 1};
    answer->why = names_nobody || !slice_is_word(arguments[1], "reset") ? "usage: LIMIT RESET rule [offender]"
                                                                        : reset(limit, arguments[2], name, answer);
    limit_call_end_reset(limit, answer);
}

/* The number of the argument; 0: it is none. */
static uint64_t number_of(struct slice text)
{
    int64_t number;

    return percent_take_number(&text, &number) ? (uint64_t)number : 0;
}

/* Half of what there is room for: the last bucket may take more than is left. */
#define TOLD_AT_ONCE (POLICY_TWIN_TEXT_MAX / 2)

enum policy_answer limit_verb_tell(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct limit *limit = instance;
    struct text_stream text;

    (void)count;
    if (!slice_is(arguments[1], "ALL") || !text_open(&text)) {
        return POLICY_ANSWER_ERROR;
    }
    uint64_t next = limit_share_tell(limit->share, text.out, number_of(arguments[2]), TOLD_AT_ONCE);
    bool is_whole = text_close(&text);
    fprintf(answer, "%" PRIu64 "\n", is_whole ? next : 0);
    if (is_whole) {
        (void)fwrite(text.bytes, 1, text.length, answer);
    }
    text_free(&text);
    return POLICY_ANSWER_TEXT;
}

enum policy_answer limit_verb_hear(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct limit *limit = instance;

    (void)count;
    (void)answer;
    limit_share_hear(limit->share, arguments[1], limit->host->now_us(limit->host->context));
    return POLICY_ANSWER_OK;
}
