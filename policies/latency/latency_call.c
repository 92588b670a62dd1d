#include "latency/latency_call.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a number takes at most, with the blank or NUL behind it. */
#define NUMBER_SIZE 21

/* ---- arguments ---- */

void latency_call_clear(struct latency_call *call)
{
    free(call->text);
    *call = (struct latency_call){0};
}

bool latency_call_start(struct latency_call *call, size_t size)
{
    if (call->size < size) {
        latency_call_clear(call);
        call->text = malloc(size);
        if (call->text == NULL) {
            return false;
        }
        call->size = size;
    }
    call->end = call->text;
    call->argument_count = 0;
    call->key_count = 0;
    return true;
}

/* So much was written at the end. */
static void add(struct latency_call *call, size_t length)
{
    assert(call->argument_count < POLICY_SCRIPT_ARGUMENTS_MAX);
    call->arguments[call->argument_count++] = (struct slice){call->end, length};
    call->end += length;
}

static void print(struct latency_call *call, const char *format, va_list values)
{
    size_t room = call->size - (size_t)(call->end - call->text);
    int length = vsnprintf(call->end, room, format, values);

    assert(length >= 0 && (size_t)length < room);
    add(call, (size_t)length);
}

void latency_call_key(struct latency_call *call, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    print(call, format, values);
    va_end(values);
    call->key_count++;
}

void latency_call_add(struct latency_call *call, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    print(call, format, values);
    va_end(values);
}

/* ---- keys ---- */

/* Those of a minute, in the order in which the scripts take them. operation: a safe name (latency_operation_name.h). */
static void add_keys(struct latency_call *call, const struct latency_layout *layout, const char *operation,
                     int64_t minute)
{
    static const char *const names[LATENCY_KEYS] = {"max", "min", "sum_count", "hist", "errors_bytes"};

    for (size_t i = 0; i < LATENCY_KEYS; i++) {
        latency_call_key(call, layout->braces ? "%s_{%s}_%" PRId64 "_for_%s" : "%s_%s_%" PRId64 "_for_%s",
                         layout->prefix, operation, minute, names[i]);
    }
}

/* ---- the flush ---- */

static size_t figures_size(const struct latency_minute *minute)
{
    return (LATENCY_FIGURES + (size_t)minute->bucket_count * 2) * NUMBER_SIZE;
}

/* Writes digits and a blank; snprintf() takes ten times as long. */
static char *put_number(char *out, uint64_t number)
{
    char digits[NUMBER_SIZE];
    size_t length = 0;

    do {
        digits[length++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (length > 0) {
        *out++ = digits[--length];
    }
    *out++ = ' ';
    return out;
}

static void add_figures(struct latency_call *call, const struct latency_minute *minute)
{
    const uint64_t figures[LATENCY_FIGURES] = {minute->max_us, minute->min_us,   minute->sum_us,   minute->count,
                                               minute->errors, minute->bytes_in, minute->bytes_out};
    struct latency_minute_walk walk = {0};
    char *end = call->end;
    uint64_t count;
    int index;

    for (size_t i = 0; i < LATENCY_FIGURES; i++) {
        end = put_number(end, figures[i]);
    }
    while (latency_minute_next(minute, &walk, &index, &count)) {
        end = put_number(end, count);
        if (index < 0) {
            *end++ = '-';
        }
        end = put_number(end, (uint64_t)abs(index));
    }
    add(call, (size_t)(end - 1 - call->end));
}

bool latency_call_flush(struct latency_call *call, const struct latency_layout *layout, const char *operation,
                        uint64_t number, const struct latency_frozen *frozen)
{
    size_t size = (1 + frozen->count * LATENCY_KEYS) * LATENCY_KEY_SIZE + 3 * NUMBER_SIZE;

    for (size_t i = 0; i < frozen->count; i++) {
        size += figures_size(frozen->minutes[i]);
    }
    if (!latency_call_start(call, size)) {
        return false;
    }
    latency_call_key(call, layout->braces ? "%s_{%s}_flushed_by_%s" : "%s_%s_flushed_by_%s", layout->prefix, operation,
                     layout->process);
    for (size_t i = 0; i < frozen->count; i++) {
        add_keys(call, layout, operation, frozen->minutes[i]->minute);
    }
    latency_call_add(call, "%" PRIu64, number);
    latency_call_add(call, "%" PRId64, layout->remember_s);
    latency_call_add(call, "%" PRId64, layout->retention_s);
    for (size_t i = 0; i < frozen->count; i++) {
        add_figures(call, frozen->minutes[i]);
    }
    return true;
}

const char *latency_flush_problem(const struct policy_script_reply *reply)
{
    bool is_script = reply->error != NULL || (reply->count == 1 && policy_script_gave_integers(reply, 1));

    return is_script ? reply->error : "what it said is no answer to a script";
}

enum latency_flush_end latency_flush_ended(const struct policy_script_reply *reply)
{
    static const char refused[] = "HEADGATE ";

    if (latency_flush_problem(reply) == NULL) {
        return LATENCY_FLUSH_DONE;
    }
    return reply->error != NULL && strncmp(reply->error, refused, sizeof refused - 1) == 0 ? LATENCY_FLUSH_NEVER
                                                                                           : LATENCY_FLUSH_AGAIN;
}

/* ---- the report ---- */

bool latency_call_report(struct latency_call *call, const struct latency_layout *layout, const char *operation,
                         int64_t first, size_t count)
{
    assert(count >= 1 && count <= LATENCY_REPORT_MINUTES);
    if (!latency_call_start(call, count * LATENCY_KEYS * LATENCY_KEY_SIZE)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        add_keys(call, layout, operation, first + (int64_t)i);
    }
    return true;
}

static bool is_report(const int64_t *integers, size_t count)
{
    bool sound = count >= LATENCY_FIGURES && count <= LATENCY_REPORT_INTEGERS_MAX && (count - LATENCY_FIGURES) % 2 == 0;

    for (size_t i = 0; sound && i < count; i++) {
        bool is_index = i >= LATENCY_FIGURES && (i - LATENCY_FIGURES) % 2 == 0;
        sound = is_index || integers[i] >= (i < LATENCY_FIGURES ? -1 : 0);
    }
    return sound;
}

bool latency_report_read(const int64_t *integers, size_t count, struct latency_figures *figures)
{
    /* What is not known bounds nothing; and there are requests. */
    uint64_t told[LATENCY_FIGURES] = {[LATENCY_COUNT] = 1, [LATENCY_MAX] = UINT64_MAX};

    if (!is_report(integers, count)) {
        return false;
    }
    for (size_t i = 0; i < LATENCY_FIGURES; i++) {
        figures->unknown[i] |= integers[i] < 0;
        told[i] = integers[i] < 0 ? told[i] : (uint64_t)integers[i];
    }
    latency_histogram_add(&figures->histogram, told[LATENCY_COUNT], told[LATENCY_SUM], told[LATENCY_MIN],
                          told[LATENCY_MAX]);
    figures->errors += told[LATENCY_ERRORS];
    figures->bytes_in += told[LATENCY_IN];
    figures->bytes_out += told[LATENCY_OUT];
    for (size_t i = LATENCY_FIGURES; i < count; i += 2) {
        latency_histogram_add_bucket(&figures->histogram, integers[i], (uint64_t)integers[i + 1]);
    }
    return true;
}
