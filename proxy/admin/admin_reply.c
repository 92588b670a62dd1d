/* Answers, of which some have another shape in RESP3: texts, lines of fields, sections, names with values. */
#include "admin/admin_private.h"

#include "base/fields.h"

#include <stdarg.h>
#include <stdio.h>

/* Of these fields the values are texts, whatever they look like: clients and operators give them. */
static const char *const text_fields[] = {"name",    "user",      "identity", "key",      "keys",   "value",
                                          "default", "text",      "owner",    "offender", "member", "group",
                                          "option",  "server",    "rule",     "admits",   "cost",   "addr",
                                          "client",  "interface", "lane",     "reason",   "command"};

/* ---- texts that grow ---- */

bool admin_text_open(struct admin_text *text)
{
    *text = (struct admin_text){.bytes = evbuffer_new()};
    return text->bytes != NULL;
}

void admin_text_close(struct admin_text *text)
{
    if (text->bytes != NULL) {
        evbuffer_free(text->bytes);
        text->bytes = NULL;
    }
}

void admin_text_add(struct admin_text *text, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    text->is_lost = evbuffer_add_vprintf(text->bytes, format, arguments) < 0 || text->is_lost;
    va_end(arguments);
}

/* Whoever reads an answer may do so on a terminal, which obeys some of what it shows; and clients and Redis spell
 * names, keys and errors as they like. So in lines and errors, whichever verb they are of, all but printable ASCII, and
 * the ends of lines where there are several, is told by its number. False: memory is short. */
static bool add_shown(struct evbuffer *out, struct slice text, bool has_lines)
{
    bool is_added = true;
    size_t start = 0;

    for (size_t i = 0; i < text.length && is_added; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        bool is_end = byte == '\n' || (byte == '\r' && i + 1 < text.length && text.data[i + 1] == '\n');
        if ((byte < ' ' || byte >= 0x7f) && !(has_lines && is_end)) {
            is_added =
                evbuffer_add(out, text.data + start, i - start) == 0 && evbuffer_add_printf(out, "\\x%02x", byte) > 0;
            start = i + 1;
        }
    }
    return is_added && evbuffer_add(out, text.data + start, text.length - start) == 0;
}

/* ---- answers of one piece ---- */

void admin_reply_shown(struct session_entry *session, struct slice text)
{
    session->failed = !add_shown(session->output, text, false) || session->failed;
}

void admin_reply_bytes(struct session_entry *session, const char *bytes, size_t length)
{
    admin_audit_end(session, "done");
    session->failed = evbuffer_add(session->output, bytes, length) != 0 || session->failed;
}

__attribute__((format(printf, 2, 3))) static void reply(struct session_entry *session, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    session->failed = evbuffer_add_vprintf(session->output, format, arguments) < 0 || session->failed;
    va_end(arguments);
}

void admin_reply_text(struct session_entry *session, const char *text, size_t length)
{
    admin_audit_end(session, "done");
    reply(session, "$%zu\r\n", length);
    admin_reply_bytes(session, text, length);
    admin_reply_bytes(session, "\r\n", 2);
}

/* RESP3 knows texts that a program shows as they are. */
static void reply_head(struct session_entry *session, size_t length)
{
    if (session->resp == 3) {
        reply(session, "=%zu\r\ntxt:", length + strlen("txt:"));
    } else {
        reply(session, "$%zu\r\n", length);
    }
}

void admin_reply_verbatim(struct session_entry *session, const char *text, size_t length)
{
    admin_audit_end(session, "done");
    reply_head(session, length);
    admin_reply_bytes(session, text, length);
    admin_reply_bytes(session, "\r\n", 2);
}

void admin_reply_gathered(struct session_entry *session, struct admin_text *text)
{
    if (text->is_lost) {
        admin_reply_error(session, "ERR out of memory");
        return;
    }
    admin_audit_end(session, "done");
    reply_head(session, evbuffer_get_length(text->bytes));
    session->failed = evbuffer_add_buffer(session->output, text->bytes) != 0 || session->failed;
    admin_reply_bytes(session, "\r\n", 2);
}

void admin_reply_status(struct session_entry *session, const char *text)
{
    admin_audit_end(session, "done");
    reply(session, "+%s\r\n", text);
}

void admin_reply_error(struct session_entry *session, const char *text)
{
    admin_audit_end(session, text);
    reply(session, "-");
    admin_reply_shown(session, slice_of(text));
    reply(session, "\r\n");
}

void admin_reply_faults(struct session_entry *session, char *faults)
{
    size_t length = strlen(faults);

    while (length > 0 && (faults[length - 1] == '\n' || faults[length - 1] == '\r')) {
        faults[--length] = '\0';
    }
    for (char *c = faults; *c != '\0'; c++) {
        *c = *c == '\r' || *c == '\n' ? ';' : *c;
    }
    admin_audit_end(session, faults);
    reply(session, "-ERR nothing was changed: ");
    admin_reply_shown(session, slice_of(faults));
    reply(session, "\r\n");
}

/* ---- pieces ---- */

static void add_bulk(struct admin_text *out, const char *bytes, size_t length)
{
    admin_text_add(out, "$%zu\r\n", length);
    out->is_lost = evbuffer_add(out->bytes, bytes, length) != 0 || out->is_lost;
    admin_text_add(out, "\r\n");
}

static bool is_text_field(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof text_fields / sizeof text_fields[0]; i++) {
        if (strlen(text_fields[i]) == length && memcmp(text_fields[i], name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* A number, yes or no, or text. */
static void add_value(struct admin_text *out, const char *value, size_t length)
{
    struct slice word = {value, length};

    if (fields_is_number(value, length)) {
        admin_text_add(out, "%c%.*s\r\n", memchr(value, '.', length) != NULL ? ',' : ':', (int)length, value);
    } else if (slice_is_word(word, "yes") || slice_is_word(word, "no")) {
        admin_text_add(out, "#%c\r\n", length == 3 ? 't' : 'f');
    } else {
        add_bulk(out, value, length);
    }
}

/* The next line of the text, without its end; false behind the last one. */
static bool next_line(const char **at, const char *end, struct slice *line)
{
    if (*at == end) {
        return false;
    }
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = newline != NULL ? newline : end;
    size_t length = (size_t)(stop - *at);

    *line = (struct slice){*at, length - (length > 0 && stop[-1] == '\r')};
    *at = newline != NULL ? newline + 1 : end;
    return true;
}

/* Sends what was written, behind its head. */
static void send_behind(struct session_entry *session, const char *head, struct admin_text *out)
{
    if (out->is_lost) {
        admin_reply_error(session, "ERR out of memory");
        return;
    }
    admin_reply_bytes(session, head, strlen(head));
    session->failed = evbuffer_add_buffer(session->output, out->bytes) != 0 || session->failed;
}

/* ---- lines ---- */

/* A line that begins with # is a note. */
static void add_note(struct admin_text *out, struct slice line)
{
    size_t skipped = line.length > 1 && line.data[1] == ' ' ? 2 : 1;

    admin_text_add(out, "%%1\r\n");
    add_bulk(out, "note", strlen("note"));
    add_bulk(out, line.data + skipped, line.length - skipped);
}

static size_t count_fields(struct slice line)
{
    const char *at = line.data, *end = line.data + line.length;
    struct fields_part part;
    bool was_quoted;
    size_t count = 0;

    while (fields_next_whole(&at, end, &part, &was_quoted)) {
        count++;
    }
    return count;
}

static void add_line(struct admin_text *out, struct slice line)
{
    const char *at = line.data, *end = line.data + line.length;
    struct fields_part part;
    bool was_quoted;

    admin_text_add(out, "%%%zu\r\n", count_fields(line));
    while (fields_next_whole(&at, end, &part, &was_quoted)) {
        bool is_text = was_quoted || is_text_field(part.name, part.name_length);
        add_bulk(out, part.name, part.name_length);
        (is_text ? add_bulk : add_value)(out, part.value, part.value_length);
    }
}

static void reply_maps(struct session_entry *session, const char *text, size_t length)
{
    const char *at = text, *end = text + length;
    struct admin_text out;
    struct slice line;
    char head[32];
    size_t count = 0;

    if (!admin_text_open(&out)) {
        admin_reply_error(session, "ERR out of memory");
        return;
    }
    for (; next_line(&at, end, &line); count++) {
        if (line.length > 0 && *line.data == '#') {
            add_note(&out, line);
        } else {
            add_line(&out, line);
        }
    }
    snprintf(head, sizeof head, "*%zu\r\n", count);
    send_behind(session, head, &out);
    admin_text_close(&out);
}

void admin_reply_lines(struct session_entry *session, struct admin_text *text)
{
    size_t length = evbuffer_get_length(text->bytes);
    const char *lines = length > 0 ? (const char *)evbuffer_pullup(text->bytes, -1) : "";
    struct admin_text shown;

    shown.is_lost = !admin_text_open(&shown) || text->is_lost || lines == NULL ||
                    !add_shown(shown.bytes, (struct slice){lines, length}, true);
    if (session->resp != 3 || shown.is_lost) {
        admin_reply_gathered(session, &shown);
    } else {
        const char *bytes = (const char *)evbuffer_pullup(shown.bytes, -1);
        reply_maps(session, bytes != NULL ? bytes : "", bytes != NULL ? evbuffer_get_length(shown.bytes) : 0);
    }
    admin_text_close(&shown);
}

/* ---- sections ---- */

/* The lines up to the next section, which at is left at. */
static size_t count_pairs(const char *at, const char *end)
{
    struct slice line;
    size_t count = 0;

    while (next_line(&at, end, &line) && !(line.length > 0 && *line.data == '#')) {
        count += line.length > 0;
    }
    return count;
}

static void add_pair(struct admin_text *out, struct slice line)
{
    const char *colon = memchr(line.data, ':', line.length);
    size_t length = colon != NULL ? (size_t)(colon - line.data) : line.length;
    size_t rest = colon != NULL ? length + 1 : length;

    add_bulk(out, line.data, length);
    add_value(out, line.data + rest, line.length - rest);
}

void admin_reply_sections(struct session_entry *session, struct admin_text *text)
{
    const char *at = session->resp == 3 ? (const char *)evbuffer_pullup(text->bytes, -1) : NULL;
    struct admin_text out;
    struct slice line;
    char head[32];
    size_t count = 0;

    if (at == NULL || text->is_lost || !admin_text_open(&out)) {
        admin_reply_gathered(session, text);
        return;
    }
    const char *end = at + evbuffer_get_length(text->bytes);
    while (next_line(&at, end, &line)) {
        if (line.length > 2 && *line.data == '#') {
            count++;
            add_bulk(&out, line.data + 2, line.length - 2);
            admin_text_add(&out, "%%%zu\r\n", count_pairs(at, end));
        } else if (line.length > 0) {
            add_pair(&out, line);
        }
    }
    snprintf(head, sizeof head, "%%%zu\r\n", count);
    send_behind(session, head, &out);
    admin_text_close(&out);
}

/* ---- names with values ---- */

void admin_reply_pairs(struct session_entry *session, size_t pairs, struct admin_text *text)
{
    char head[32];

    snprintf(head, sizeof head, session->resp == 3 ? "%%%zu\r\n" : "*%zu\r\n", session->resp == 3 ? pairs : 2 * pairs);
    send_behind(session, head, text);
}
