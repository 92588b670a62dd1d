#include "meter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES_MAX 20000
/* Requests whose first key begins so are told apart; of all commands but these the tag is that of the command. */
#define ASKED_PREFIX "meter:"
/* Tags of commands begin here. */
#define FIRST_TAG 10
/* The tag of requests with that prefix, and of commands that Headgate does not know. */
#define ASKED_TAG 2
#define UNKNOWN_TAG 3

struct meter_options {
    int64_t slower_us; /* samples that took so long are told again when they are written */
    int64_t gather;    /* requests below so many bytes are told of together; 0: each is alone */
};

static const struct conf_option options[] = {
    {.name = "slower",
     .type = CONF_PERIOD,
     .offset = offsetof(struct meter_options, slower_us),
     .min = 1,
     .max = INT64_C(86400000000),
     .zero = "none",
     .initial = "0",
     .help = "Samples that took so long are told again.",
     .reloadable = true},
    {.name = "gather",
     .type = CONF_SIZE,
     .offset = offsetof(struct meter_options, gather),
     .min = 1,
     .max = INT64_MAX,
     .zero = "none",
     .initial = "0",
     .help = "Requests with less bytes are told of together.",
     .reloadable = true},
};

static const struct conf_section section = {
    .name = "meter",
    .has_rules = true,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .values_size = sizeof(struct meter_options),
    .help = "Measures all requests.",
};

struct meter {
    bool on;
    int64_t slower_us;
    int64_t gather;
    char *lines[SAMPLES_MAX];
    size_t count;
    size_t spots;
};

static void read_rules(struct meter *meter, const struct conf_rule *rules)
{
    meter->on = false;
    for (const struct conf_rule *rule = rules; rule != NULL; rule = rule->next) {
        if (rule->section == &section) {
            meter->on = true;
            meter->slower_us = ((const struct meter_options *)rule->values)->slower_us;
            meter->gather = ((const struct meter_options *)rule->values)->gather;
        }
    }
}

static void *meter_start(const struct policy_start *start)
{
    struct meter *meter = calloc(1, sizeof *meter);

    if (meter != NULL) {
        read_rules(meter, start->rules);
    }
    return meter;
}

static bool meter_reload(void *instance, const struct conf_rule *rules)
{
    read_rules(instance, rules);
    return true;
}

static uint32_t meter_tag(void *instance, const struct command *command)
{
    const struct meter *meter = instance;

    if (!meter->on) {
        return POLICY_TAG_NONE;
    }
    if (command == NULL) {
        return UNKNOWN_TAG;
    }
    return strcmp(command->name, "set") == 0 ? POLICY_TAG_ASK : FIRST_TAG + (uint32_t)command_index(command);
}

static uint32_t meter_measure(void *instance, const struct policy_request *request)
{
    struct resp_walk walk = resp_walk_start(request->frame);
    struct slice argument;

    (void)instance;
    (void)resp_walk_next(&walk, &argument);
    bool has_key = resp_walk_next(&walk, &argument) && argument.length >= strlen(ASKED_PREFIX);
    bool is_asked = has_key && memcmp(argument.data, ASKED_PREFIX, strlen(ASKED_PREFIX)) == 0;
    return is_asked ? ASKED_TAG : FIRST_TAG + (uint32_t)command_index(request->command);
}

static struct policy_attention meter_attends(void *instance)
{
    const struct meter *meter = instance;
    bool gathers = meter->gather > 0;

    return (struct policy_attention){
        .us = !gathers               ? 0
              : meter->slower_us > 0 ? meter->slower_us
                                     : INT64_MAX,
        .bytes = gathers ? (uint64_t)meter->gather : 0,
        .heads = meter->slower_us > 0,
    };
}

static const char *tag_name(uint32_t tag)
{
    return tag == ASKED_TAG ? "asked" : tag == UNKNOWN_TAG ? "unknown" : command_at(tag - FIRST_TAG)->name;
}

static void check(const struct policy_sample *sample, bool is_written)
{
    bool in_order = sample->received_us > 0 && sample->answered_us >= sample->received_us &&
                    (sample->is_local ? sample->sent_us == 0 : sample->sent_us >= sample->received_us);
    bool is_counted = sample->count > 0 && sample->errors <= sample->count && sample->request_bytes >= sample->count;
    bool is_sound = in_order && is_counted && sample->tag != POLICY_TAG_NONE &&
                    (is_written ? sample->count == 1 && sample->client != NULL &&
                                      (sample->written_us == 0 || sample->written_us >= sample->answered_us)
                                : sample->written_us == 0 && sample->client == NULL);

    if (!is_sound) {
        fprintf(stderr, "assertion failed: meter: an unsound sample of %s\n", tag_name(sample->tag));
        abort();
    }
}

static void write_down(struct meter *meter, const struct policy_sample *sample, const char *what)
{
    char head[POLICY_HEAD_MAX + 1] = "";

    for (size_t i = 0; i < sample->head.length; i++) {
        char c = sample->head.data[i];
        head[i] = c > ' ' && c <= '~' ? c : '.';
    }
    if (meter->count < SAMPLES_MAX &&
        asprintf(&meter->lines[meter->count],
                 "%s %s count=%" PRIu32 " error=%" PRIu32 " local=%d in=%" PRIu64 " out=%" PRIu64 " queued=%" PRId64
                 " took=%" PRId64 " written=%" PRId64 " head=%s",
                 what, tag_name(sample->tag), sample->count, sample->errors, sample->is_local, sample->request_bytes,
                 sample->reply_bytes, sample->is_local ? 0 : sample->sent_us - sample->received_us,
                 sample->answered_us - sample->received_us,
                 sample->written_us > 0 ? sample->written_us - sample->answered_us : -1, head) > 0) {
        meter->count++;
    }
}

static bool meter_sample(void *instance, const struct policy_sample *sample)
{
    struct meter *meter = instance;

    check(sample, false);
    write_down(meter, sample, "sample");
    return meter->slower_us > 0 && sample->answered_us - sample->received_us >= meter->slower_us;
}

static void meter_written(void *instance, const struct policy_sample *sample)
{
    check(sample, true);
    write_down(instance, sample, "written");
}

static void meter_spot(void *instance, const struct policy_request *request)
{
    struct meter *meter = instance;

    if (request->frame.length == 0 || *request->frame.data != '*') {
        fprintf(stderr, "assertion failed: meter: a spot without a frame\n");
        abort();
    }
    meter->spots++;
}

static void forget(struct meter *meter)
{
    while (meter->count > 0) {
        free(meter->lines[--meter->count]);
    }
}

/* METER: what was measured since the last time, and how many spots there were. */
static enum policy_answer print(void *instance, size_t count, const struct slice *arguments, FILE *answer)
{
    struct meter *meter = instance;

    (void)count;
    (void)arguments;
    for (size_t i = 0; i < meter->count; i++) {
        fprintf(answer, "%s\n", meter->lines[i]);
    }
    fprintf(answer, "spots %zu\n", meter->spots);
    forget(meter);
    return POLICY_ANSWER_TEXT;
}

static void meter_stop(void *instance)
{
    forget(instance);
    free(instance);
}

static const struct policy_verb verbs[] = {
    {.name = "METER", .least = 1, .most = 1, .usage = "METER", .help = "what was measured", .run = print},
};

static const struct conf_section *const sections[] = {&section, NULL};

static const struct policy_observer meter_observer = {
    .tag = meter_tag,
    .measure = meter_measure,
    .attends = meter_attends,
    .on_sample = meter_sample,
    .on_written = meter_written,
    .on_spot = meter_spot,
};

const struct policy meter_policy = {
    .name = "meter",
    .observer = &meter_observer,
    .sections = sections,
    .verbs = verbs,
    .verb_count = sizeof verbs / sizeof verbs[0],
    .start = meter_start,
    .reload = meter_reload,
    .stop = meter_stop,
};
