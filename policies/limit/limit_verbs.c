/* LIMITS and LIMIT on the admin port, and what is told another process. */
#include "base/percent.h"
#include "limit/limit_private.h"

#include <inttypes.h>
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

static const struct limit_rule *find_global_rule(const struct limit *limit, struct slice name)
{
    for (size_t i = 0; i < limit->rule_count; i++) {
        const struct limit_rule *rule = &limit->rules[i];
        if (rule->scope == LIMIT_GLOBAL && slice_is(name, rule->name)) {
            return rule;
        }
    }
    return NULL;
}

/* A rule whose state is in Redis, too. */
struct forgetting {
    struct limit *limit;
    const struct limit_rule *rule;
};

static void forget(void *context, const struct limit_bucket *bucket)
{
    const struct forgetting *forgetting = context;

    limit_script_forget(forgetting->limit, forgetting->rule, (struct slice){bucket->name, bucket->length});
}

/* name: as LIMITS shows it. */
static bool forget_by_name(const struct forgetting *forgetting, struct slice name)
{
    char bucket[LIMIT_BUCKET_MAX];
    size_t length = limit_bucket_table_name(name, bucket);

    if (length > 0) {
        limit_script_forget(forgetting->limit, forgetting->rule, (struct slice){bucket, length});
    }
    return length > 0;
}

enum policy_answer limit_verb_limit(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct limit *limit = instance;
    struct slice name = count > 3 ? arguments[3] : (struct slice){"", 0};

    /* An empty offender is a mistake, and not to be taken for all of them. */
    bool names_nobody = count > 3 && name.length == 0;
    if (names_nobody || !slice_is_word(arguments[1], "reset")) {
        fputs("usage: LIMIT RESET rule [offender]", answer);
        return POLICY_ANSWER_ERROR;
    }
    struct forgetting forgetting = {limit, find_global_rule(limit, arguments[2])};
    bool found =
        limit_share_reset(limit->share, arguments[2], name, forgetting.rule != NULL ? forget : NULL, &forgetting);
    if (!found && forgetting.rule != NULL && name.length > 0) {
        /* What is not tracked here may still be counted in Redis. */
        found = forget_by_name(&forgetting, name);
    }
    if (!found) {
        fputs(count > 3 ? "no such rule, or nothing is known of that offender; see LIMITS" : "no such rule; see LIMITS",
              answer);
        return POLICY_ANSWER_ERROR;
    }
    return POLICY_ANSWER_OK;
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
    if (!text_open(&text)) {
        return POLICY_ANSWER_ERROR;
    }
    uint64_t next =
        limit_share_tell(limit->share, text.out, slice_is(arguments[1], "ALL"), number_of(arguments[2]), TOLD_AT_ONCE);
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
