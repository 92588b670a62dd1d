#include "crosstalk_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PADDING_MAX 120

__attribute__((format(printf, 2, 3))) static size_t text_write(char *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(out, TEXT_MAX, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= TEXT_MAX)
        abort();
    return (size_t)length;
}

size_t text_identity(char *out, uint32_t client, uint64_t sequence)
{
    return text_write(out, "xt:%" PRIu32 ":%" PRIu64 ";", client, sequence);
}

size_t text_value(char *out, uint32_t client, uint64_t sequence)
{
    size_t length = text_identity(out, client, sequence);
    size_t padding = (size_t)(sequence * 7 % PADDING_MAX);
    memset(out + length, (int)('a' + sequence % 26), padding);
    out[length + padding] = '\0';
    return length + padding;
}

size_t text_key(char *out, unsigned user, uint32_t client, uint32_t generation, unsigned database, const char *name)
{
    return text_write(out, "u%u:%" PRIu32 ":%" PRIu32 ":%u:%s", user, client, generation % KEY_GENERATIONS, database,
                      name);
}

size_t text_channel(char *out, uint32_t client, uint32_t generation)
{
    return text_write(out, "ch:%" PRIu32 ":%" PRIu32, client, generation);
}

size_t text_message(char *out, const struct message *message)
{
    return text_write(out, "xm:%" PRIu32 ":%" PRIu32 ":%" PRIu32 ":%" PRIu64 ";", message->to, message->from,
                      message->generation, message->number);
}

bool text_message_parse(const char *data, size_t length, struct message *message)
{
    char text[TEXT_MAX];
    char again[TEXT_MAX];
    if (length >= sizeof text)
        return false;
    memcpy(text, data, length);
    text[length] = '\0';
    if (sscanf(text, "xm:%" SCNu32 ":%" SCNu32 ":%" SCNu32 ":%" SCNu64 ";", &message->to, &message->from,
               &message->generation, &message->number) != 4)
        return false;
    /* Nothing before, between or behind. */
    return text_message(again, message) == length && memcmp(text, again, length) == 0;
}

void text_large_fill(char *data, size_t length, uint32_t client, uint64_t sequence)
{
    char identity[TEXT_MAX];
    size_t period = text_identity(identity, client, sequence);
    for (size_t at = 0; at < length; at += period)
        memcpy(data + at, identity, length - at < period ? length - at : period);
}

bool text_large_is(const char *data, size_t length, uint32_t client, uint64_t sequence)
{
    char identity[TEXT_MAX];
    size_t period = text_identity(identity, client, sequence);
    for (size_t at = 0; at < length; at += period)
        if (memcmp(data + at, identity, length - at < period ? length - at : period) != 0)
            return false;
    return true;
}

bool text_names_other(const char *data, size_t length, uint32_t client)
{
    const char *end = data + length;
    for (const char *at = data; (at = memchr(at, 'x', (size_t)(end - at))) != NULL; at++) {
        if (end - at < 4 || (at[1] != 't' && at[1] != 'm') || at[2] != ':' || at[3] < '0' || at[3] > '9')
            continue;
        uint64_t named = 0;
        for (const char *digit = at + 3; digit < end && *digit >= '0' && *digit <= '9'; digit++)
            named = named * 10 + (uint64_t)(*digit - '0');
        if (named != client)
            return true;
    }
    return false;
}
