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

/* A rule whose state is in Redis, too. */
struct forgetting {
    struct limit *limit;
    struct limit_rule *rule;
    struct limit_reset *reset;
};

static void forget(void *context, struct limit_bucket *bucket)
{
    struct forgetting *forgetting = context;

    limit_call_forget(forgetting->limit, forgetting->rule, bucket, limit_bucket_name(bucket), forgetting->reset);
}

/* NULL, or why it cannot be. name: as LIMITS shows it. */
static const char *forget_all(struct limit *limit, struct slice rule, struct slice name, struct limit_reset *reset)
{
    struct forgetting forgetting = {.limit = limit, .rule = find_global_rule(limit, rule), .reset = reset};
    bool found = limit_share_reset(limit->share, rule, name, forgetting.rule != NULL ? forget : NULL, &forgetting);
    char bucket[LIMIT_BUCKET_MAX];
    size_t length = !found && forgetting.rule != NULL ? limit_bucket_table_name(name, bucket) : 0;

    if (length > 0) {
        /* What is not tracked here may still be counted in Redis. */
        limit_call_forget(limit, forgetting.rule, NULL, (struct slice){bucket, length}, reset);
    } else if (!found) {
        return name.length > 0 ? "no such rule, or nothing is known of that offender; see LIMITS"
                               : "no such rule; see LIMITS";
    }
    return reset->why;
}

void limit_verb_limit(void *instance, struct admin_query *admin_query, size_t count, const struct slice *arguments)
{
    struct limit *limit = instance;
    struct slice name = count > 3 ? arguments[3] : (struct slice){"", 0};
    /* An empty offender is a mistake, and not to be taken for all of them. */
    bool names_nobody = count > 3 && name.length == 0;
    struct limit_reset *reset = limit->is_resetting ? NULL : calloc(1, sizeof *reset);

    if (reset == NULL) {
        limit->host->answer(limit->host->context, admin_query, POLICY_ANSWER_ERROR,
                            slice_of(limit->is_resetting ? "another LIMIT RESET is under way" : "out of memory"));
        return;
    }
    reset->admin_query = admin_query;
    limit->is_resetting = true;
    reset->why = names_nobody || !slice_is_word(arguments[1], "reset") ? "usage: LIMIT RESET rule [offender]"
                                                                       : forget_all(limit, arguments[2], name, reset);
    limit_call_go_on(limit, reset);
}

/* Half of what there is room for: the last bucket may take more than is left. */
#define TOLD_AT_ONCE (POLICY_TWIN_TEXT_MAX / 2)

enum policy_answer limit_verb_tell(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct limit *limit = instance;
    struct slice cursor = arguments[2];
    struct text_stream text;
    int64_t from;

    (void)count;
    if (!slice_is(arguments[1], "ALL") || !percent_take_number(&cursor, &from) || !text_open(&text)) {
        return POLICY_ANSWER_ERROR;
    }
    uint64_t next = limit_share_tell(limit->share, text.out, (uint64_t)from, TOLD_AT_ONCE);
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
