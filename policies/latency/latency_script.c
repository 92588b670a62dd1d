/* How scripts are run: calls, and admin queries that one call answers. */
#include "latency/latency_private.h"

#include <stdlib.h>

#define WARNING_INTERVAL_US (60 * LATENCY_US_PER_S)

void latency_warn(struct latency *latency, const char *what, const char *error)
{
    int64_t now = latency_now(latency);
    char text[POLICY_TEXT_MAX];

    if (latency->warned_us != 0 && now - latency->warned_us < WARNING_INTERVAL_US) {
        return;
    }
    latency->warned_us = now;
    snprintf(text, sizeof text, "%s: %s", what, error);
    latency->host->warn(latency->host->context, "latency", text);
}

void latency_run(struct latency *latency, const char *script, const struct slice *arguments, size_t argument_count,
                 size_t key_count, policy_script_done *done, void *context)
{
    const struct policy_script call = {
        .script = script_find(script),
        .arguments = arguments,
        .argument_count = argument_count,
        .key_count = key_count,
        .database = latency->settings.database,
        .server = latency->server,
        .done = done,
        .context = context,
    };

    latency->calls++;
    latency->host->run_script(latency->host->context, &call);
}

/* ---- admin queries ---- */

struct asked {
    struct latency *latency;
    struct admin_query *admin_query;
    const struct latency_query *query;
};

static void answered(void *context, const struct policy_script_reply *reply)
{
    struct asked *asked = context;
    struct latency *latency = asked->latency;
    struct text_stream text;
    bool is_open = text_open(&text);

    latency->calls--;
    bool is_answer = is_open && asked->query->print(reply, text.out);
    if (!is_open || !text_close(&text)) {
        latency_answer_error(latency, asked->admin_query, "out of memory");
    } else if (!is_answer) {
        latency_answer_error(latency, asked->admin_query, asked->query->trouble);
    } else {
        latency->host->answer(latency->host->context, asked->admin_query, POLICY_ANSWER_TEXT,
                              (struct slice){text.bytes, text.length});
    }
    text_free(&text);
    free(asked);
}

void latency_ask(struct latency *latency, struct admin_query *admin_query, const struct latency_query *query,
                 struct slice key, const char *most)
{
    const struct slice arguments[] = {key, slice_of(most)};
    struct asked *asked = malloc(sizeof *asked);

    if (asked == NULL) {
        latency_answer_error(latency, admin_query, "out of memory");
        return;
    }
    *asked = (struct asked){latency, admin_query, query};
    latency_run(latency, query->script, arguments, 2, 1, answered, asked);
}
