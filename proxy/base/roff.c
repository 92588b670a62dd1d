/* Manual pages. */
#include "base/roff.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* What roff would set as another character, or take for the start of something. */
static const char *escape_of(char byte)
{
    switch (byte) {
    case '\\':
        return "\\e";
    case '-':
        return "\\-";
    case '\'':
        return "\\(aq";
    case '"':
        return "\\(dq";
    case '`':
        return "\\(ga";
    case '^':
        return "\\(ha";
    case '~':
        return "\\(ti";
    default:
        return NULL;
    }
}

/* How many bytes follow the first one of a character in UTF-8, and what the first one has of its number. */
static int bytes_that_follow(unsigned char first, unsigned *number)
{
    int count = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;

    *number = first & (0x3fu >> count);
    return count;
}

/* Writes the character that is not ASCII; the bytes that it has. */
static size_t put_wide(FILE *out, const char *text)
{
    unsigned number;
    int count = bytes_that_follow((unsigned char)*text, &number);
    size_t length = 1;

    while (count-- > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) {
        number = number << 6 | ((unsigned char)text[length++] & 0x3f);
    }
    fprintf(out, "\\[u%04X]", number);
    return length;
}

/* Of one line: a dot or a quote at its start would make it a request. */
static void put_line(FILE *out, const char *text, size_t length)
{
    const char *end = text + length;

    if (length > 0 && (*text == '.' || *text == '\'')) {
        fputs("\\&", out);
    }
    while (text < end) {
        const char *escape = escape_of(*text);
        if ((unsigned char)*text >= 0x80) {
            text += put_wide(out, text);
            continue;
        }
        if (escape != NULL) {
            fputs(escape, out);
        } else {
            fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
        }
        text++;
    }
}

/* Blanks at the start of a line would break it, but for those that are shown as they are. */
static void put_lines(FILE *out, const char *text, bool as_they_are)
{
    while (*text != '\0') {
        text += as_they_are ? 0 : strspn(text, " \t\n");
        size_t length = strcspn(text, "\n");
        if (as_they_are && length == 0) {
            fputs(".sp", out);
        }
        put_line(out, text, length);
        fputc('\n', out);
        text += length + (text[length] == '\n');
    }
}

void roff_head(FILE *out, const char *title, int section, const char *date, const char *source)
{
    fprintf(out, ".\\\" Printed from the tables of the program.\n.TH \"%s\" %d %s \"%s\"\n", title, section, date,
            source);
    /* Neither hyphens nor stretched blanks: names are to be found, and copied. */
    fputs(".nh\n.ad l\n", out);
}

void roff_text(FILE *out, const char *begins, const char *text)
{
    fputs(begins, out);
    put_lines(out, text, false);
}

void roff_entry(FILE *out, const char *name, const char *argument)
{
    fputs(".TP\n\\fB", out);
    put_line(out, name, strlen(name));
    fputs("\\fR", out);
    if (argument != NULL) {
        fputs(" \\fI", out);
        put_line(out, argument, strlen(argument));
        fputs("\\fR", out);
    }
    fputc('\n', out);
}

void roff_example(FILE *out, const char *lines)
{
    fputs(".PP\n.RS 4\n.nf\n", out);
    put_lines(out, lines, true);
    fputs(".fi\n.RE\n", out);
}

void roff_see_also(FILE *out, const char *pages)
{
    fputs(".SH SEE ALSO\n", out);
    while (*pages != '\0') {
        size_t name = strcspn(pages, "("), rest = strcspn(pages + name, " ");
        fputs(".BR ", out);
        put_line(out, pages, name);
        fputc(' ', out);
        put_line(out, pages + name, rest);
        fputc('\n', out);
        pages += name + rest;
        pages += *pages == ' ';
    }
}
