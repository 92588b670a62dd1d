#include "base/fields.h"

#include <ctype.h>
#include <string.h>

/* Longer numbers lose digits in a browser. */
#define NUMBER_MAX 15
/* Of a field's name. */
#define NAME_MAX_BYTES 32

bool fields_is_number(const char *text, size_t length)
{
    size_t at = length > 0 && *text == '-', digits = 0, points = 0;
    size_t first = at;

    for (; at < length; at++) {
        digits += isdigit((unsigned char)text[at]) != 0;
        points += text[at] == '.' && at > first && at + 1 < length;
    }
    bool has_zero = length > first + 1 && text[first] == '0' && text[first + 1] != '.';
    return digits > 0 && points <= 1 && first + digits + points == length && length <= NUMBER_MAX && !has_zero;
}

static size_t quoted_length(const char *at, const char *end)
{
    const char *start = at++;

    while (at < end && *at != '"') {
        at += *at == '\\' && at + 1 < end ? 2 : 1;
    }
    return (size_t)((at < end ? at + 1 : end) - start);
}

static bool next_part(const char **at, const char *end, struct fields_part *part)
{
    const char *start;
    size_t name = 0;

    while (*at < end && **at == ' ') {
        (*at)++;
    }
    start = *at;
    if (start == end) {
        return false;
    }
    while (start + name < end && (islower((unsigned char)start[name]) || start[name] == '_' ||
                                  (name > 0 && isdigit((unsigned char)start[name])))) {
        name++;
    }
    bool has_name = name > 0 && name <= NAME_MAX_BYTES && start + name < end && start[name] == '=';
    part->name = start;
    part->name_length = has_name ? name : 0;
    part->value = has_name ? start + name + 1 : start;
    part->is_quoted = part->value < end && *part->value == '"';
    if (part->is_quoted) {
        part->value_length = quoted_length(part->value, end);
    } else {
        const char *blank = memchr(part->value, ' ', (size_t)(end - part->value));
        part->value_length = (size_t)((blank != NULL ? blank : end) - part->value);
    }
    *at = part->value + part->value_length;
    return true;
}

static bool goes_on(const char *at, const char *end)
{
    struct fields_part next;

    return next_part(&at, end, &next) && next.name_length == 0;
}

bool fields_next_whole(const char **at, const char *end, struct fields_part *part, bool *was_quoted)
{
    static const char text[] = "text";
    struct fields_part next;

    *was_quoted = false;
    if (!next_part(at, end, part)) {
        return false;
    }
    if (part->name_length == 0) {
        part->name = text;
        part->name_length = sizeof text - 1;
    }
    if (!goes_on(*at, end)) {
        bool is_around = part->is_quoted && part->value_length >= 2 && part->value[part->value_length - 1] == '"';
        *was_quoted = part->is_quoted;
        part->value += is_around;
        part->value_length -= is_around ? 2 : 0;
        return true;
    }
    while (goes_on(*at, end) && next_part(at, end, &next)) {
        part->value_length = (size_t)(next.value + next.value_length - part->value);
    }
    return true;
}
