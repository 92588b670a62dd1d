/* JSON, and the lines of verbs as JSON. */
#include "http/http_private.h"

#include <ctype.h>
#include <string.h>

/* Longer numbers lose digits in a browser. */
#define NUMBER_MAX 15
/* Of a field's name. */
#define NAME_MAX_BYTES 32

/* ---- values ---- */

/* A byte of a string. What is no printable ASCII is written as Redis writes it, \x0a: it may be anything. What could
 * begin or end an element is written by its number, for whoever puts JSON into a page. */
static void write_byte(FILE *out, unsigned char byte)
{
    if (byte == '"' || byte == '\\') {
        fprintf(out, "\\%c", byte);
    } else if (byte < ' ' || byte >= 0x7f) {
        fprintf(out, "\\\\x%02x", byte);
    } else if (byte == '<' || byte == '>' || byte == '&') {
        fprintf(out, "\\u00%02x", byte);
    } else {
        fputc(byte, out);
    }
}

static void write_bytes(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        write_byte(out, (unsigned char)text[i]);
    }
}

void http_json_string(FILE *out, const char *text, size_t length)
{
    fputc('"', out);
    write_bytes(out, text, length);
    fputc('"', out);
}

/* -12, 3.25 */
static bool is_number(const char *text, size_t length)
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

/* ---- lines ---- */

/* A part of a line: a name (or none, length 0) and a value, which may be in quotes. */
struct part {
    const char *name;
    size_t name_length;
    const char *value;
    size_t value_length;
    bool is_quoted;
};

static size_t quoted_length(const char *at, const char *end)
{
    const char *start = at++;

    while (at < end && *at != '"') {
        at += *at == '\\' && at + 1 < end ? 2 : 1;
    }
    return (size_t)((at < end ? at + 1 : end) - start);
}

/* Takes the next one off the line. False at its end. */
static bool next_part(const char **at, const char *end, struct part *part)
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

/* What is in quotes stays as it is written, with its escapes, and without the quotes if it is alone. */
static void write_part(FILE *out, const struct part *part, bool is_alone)
{
    const char *value = part->value;
    size_t length = part->value_length;

    if (is_alone && part->is_quoted && length >= 2 && value[length - 1] == '"') {
        value++;
        length -= 2;
    }
    write_bytes(out, value, length);
}

static bool goes_on(const char *at, const char *end)
{
    struct part next;

    return next_part(&at, end, &next) && next.name_length == 0;
}

/* The fields of an object that has some already, or none. */
static void write_line(FILE *out, const char *comma, const char *at, const char *end)
{
    struct part part;

    while (next_part(&at, end, &part)) {
        bool is_alone = !goes_on(at, end);
        fprintf(out, "%s\"%.*s\":", comma, part.name_length > 0 ? (int)part.name_length : 4,
                part.name_length > 0 ? part.name : "text");
        comma = ",";
        if (is_alone && !part.is_quoted && is_number(part.value, part.value_length)) {
            fprintf(out, "%.*s", (int)part.value_length, part.value);
            continue;
        }
        fputc('"', out);
        write_part(out, &part, is_alone);
        while (!is_alone && goes_on(at, end) && next_part(&at, end, &part)) {
            fputc(' ', out);
            write_part(out, &part, false);
        }
        fputc('"', out);
    }
}

static void write_note(FILE *out, const char *comma, const char *at, const char *end)
{
    at += at + 1 < end && at[1] == ' ' ? 2 : 1;
    fprintf(out, "%s\"note\":", comma);
    http_json_string(out, at, (size_t)(end - at));
}

void http_json_lines(FILE *out, const char *server, const char *text, size_t length)
{
    const char *at = text, *end = text + length, *comma = "";

    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        line_end = line_end != NULL ? line_end : end;
        fprintf(out, "%s{", comma);
        comma = ",\n";
        if (server != NULL) {
            fputs("\"server\":", out);
            http_json_string(out, server, strlen(server));
        }
        (*at == '#' ? write_note : write_line)(out, server != NULL ? "," : "", at, line_end);
        fputc('}', out);
        at = line_end + 1;
    }
}
