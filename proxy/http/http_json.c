/* The lines of verbs as JSON. */
#include "http/http_private.h"

#include "base/fields.h"
#include "base/json.h"

#include <string.h>

/* The fields of an object that has some already, or none. What is in quotes stays as it is written, with its escapes.
 */
static void write_line(FILE *out, const char *comma, const char *at, const char *end)
{
    struct fields_part part;
    bool was_quoted;

    while (fields_next_whole(&at, end, &part, &was_quoted)) {
        fprintf(out, "%s\"%.*s\":", comma, (int)part.name_length, part.name);
        comma = ",";
        if (!was_quoted && fields_is_number(part.value, part.value_length)) {
            fprintf(out, "%.*s", (int)part.value_length, part.value);
        } else {
            json_string(out, part.value, part.value_length);
        }
    }
}

static void write_note(FILE *out, const char *comma, const char *at, const char *end)
{
    at += at + 1 < end && at[1] == ' ' ? 2 : 1;
    fprintf(out, "%s\"note\":", comma);
    json_string(out, at, (size_t)(end - at));
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
            json_string(out, server, strlen(server));
        }
        (*at == '#' ? write_note : write_line)(out, server != NULL ? "," : "", at, line_end);
        fputc('}', out);
        at = line_end + 1;
    }
}
