#include "base/json.h"

#include <string.h>

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

void json_string(FILE *out, const char *text, size_t length)
{
    fputc('"', out);
    write_bytes(out, text, length);
    fputc('"', out);
}

void json_field(FILE *out, const char *name, const char *text)
{
    fprintf(out, "\"%s\":", name);
    json_string(out, text, strlen(text));
    fputc(',', out);
}
