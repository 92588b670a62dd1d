/* What a line of the log looks like: as text or as JSON, for a file or for the system's log. */
#include "base/log_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CUT_MARK "..."
/* What may end a line: the mark, how many were suppressed, what closes it. */
#define TEXT_RESERVE sizeof CUT_MARK
#define COUNT_RESERVE 64
/* Bytes of a text about whom a line is, so that there is room for the message. */
#define SUBJECT_SHOWN 64

static const char *const level_names[] = {"debug", "info", "warning", "error"};
/* Those of syslog(3). */
static const int severities[] = {7, 6, 4, 3};
#define SYSLOG_FACILITY (3 << 3) /* daemons */

/* All of it, or nothing and no more. */
static void append(struct log_line *line, const char *text, size_t length)
{
    if (line->cut || length > LOG_LINE_BYTES - line->length - line->reserve) {
        line->cut = true;
        return;
    }
    memcpy(line->bytes + line->length, text, length);
    line->length += length;
}

static void append_text(struct log_line *line, const char *text)
{
    append(line, text, strlen(text));
}

/* Into what was kept free. */
static void append_end(struct log_line *line, const char *text)
{
    size_t length = strlen(text);

    memcpy(line->bytes + line->length, text, length);
    line->length += length;
}

/* ---- text ---- */

/* Everything but printable ASCII is escaped: some terminals obey bytes above 0x7f, too. */
static void append_escaped(struct log_line *line, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte >= ' ' && byte < 0x7f) {
            append(line, text, 1);
            continue;
        }
        const char *named = byte == '\n' ? "\\n" : byte == '\r' ? "\\r" : byte == '\t' ? "\\t" : NULL;
        char escape[5];
        snprintf(escape, sizeof escape, "\\x%02x", byte);
        append(line, named != NULL ? named : escape, named != NULL ? 2 : 4);
    }
}

/* ---- JSON ---- */

/* The character of UTF-8 at text, of which there is at least one byte; its length, or 0 if it is none. */
static size_t read_character(const unsigned char *text, uint32_t *character)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;

    if (text[0] < 0xc2 || text[0] > 0xf4) {
        return 0;
    }
    *character = text[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
        *character = *character << 6 | (text[i] & 0x3f);
    }
    bool is_surrogate = *character >= 0xd800 && *character <= 0xdfff;
    return *character < least[length] || *character > 0x10ffff || is_surrogate ? 0 : length;
}

static void append_unicode(struct log_line *line, uint32_t character)
{
    char escape[16];

    if (character >= 0x10000) {
        snprintf(escape, sizeof escape, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + ((character - 0x10000) >> 10),
                 0xdc00 + ((character - 0x10000) & 0x3ff));
    } else {
        snprintf(escape, sizeof escape, "\\u%04" PRIx32, character);
    }
    append_text(line, escape);
}

/* Within quotes, so much of it. All of it is ASCII, for terminals; what is no UTF-8 becomes U+FFFD, byte by byte. */
static void append_json_up_to(struct log_line *line, const char *text, size_t most)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + strnlen(text, most);

    while (at < end) {
        if (*at == '"' || *at == '\\') {
            const char escape[] = {'\\', (char)*at};
            append(line, escape, sizeof escape);
            at++;
        } else if (*at < 0x80) {
            bool is_plain = *at >= ' ' && *at < 0x7f;
            if (is_plain) {
                append(line, (const char *)at, 1);
            } else {
                append_unicode(line, *at);
            }
            at++;
        } else {
            uint32_t character = 0xfffd;
            size_t length = read_character(at, &character);
            append_unicode(line, length > 0 ? character : 0xfffd);
            at += length > 0 ? length : 1;
        }
    }
}

static void append_json(struct log_line *line, const char *text)
{
    append_json_up_to(line, text, SIZE_MAX);
}

/* Each piece leaves the line within quotes, as it may be cut behind any of them. */
static void append_field(struct log_line *line, const char *name, const char *text)
{
    char head[32];

    if (text != NULL && *text != '\0') {
        snprintf(head, sizeof head, "\",\"%s\":\"", name);
        append_text(line, head);
        append_json_up_to(line, text, SUBJECT_SHOWN);
    }
}

static void append_subject(struct log_line *line, const struct log_subject *about)
{
    append_field(line, "client", about->client);
    append_field(line, "name", about->name);
    append_field(line, "user", about->user);
    append_field(line, "identity", about->identity);
    append_field(line, "rule", about->rule);
}

/* Numbers, and what comes behind them. */
static void begin_message(struct log_line *line, const struct log_subject *about)
{
    char client[48] = "", lane[48] = "", head[128];

    if (about->client_id != 0) {
        snprintf(client, sizeof client, ",\"client_id\":%" PRIu64, about->client_id);
    }
    if (about->lane != 0) {
        snprintf(lane, sizeof lane, ",\"lane\":%" PRIu64, about->lane);
    }
    snprintf(head, sizeof head, "\"%s%s,\"message\":\"", client, lane);
    append_text(line, head);
}

/* ---- lines ---- */

static void append_time(struct log_line *line, const struct timespec *now)
{
    struct tm utc;
    char text[64];

    gmtime_r(&now->tv_sec, &utc);
    size_t length = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + length, sizeof text - length, ".%06ldZ", now->tv_nsec / 1000);
    append_text(line, text);
}

/* By the clock of the machine, as everybody else writes it there; the names of months are those of English. */
static void append_syslog_head(struct log_line *line, enum log_level level, const struct timespec *now)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm local;
    char text[96];

    localtime_r(&now->tv_sec, &local);
    snprintf(text, sizeof text, "<%d>%.3s %2d %02d:%02d:%02d headgate[%ld]: ", SYSLOG_FACILITY | severities[level],
             months + 3 * (local.tm_mon % 12), local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
             (long)getpid());
    append_text(line, text);
}

static void compose_text(struct log_line *line, struct log_shape shape, enum log_level level, const char *module,
                         const char *message, const struct timespec *now)
{
    char text[16];

    if (!shape.is_syslog) {
        append_time(line, now);
        append_text(line, " ");
    }
    snprintf(text, sizeof text, "%-5s ", level_names[level]);
    append_text(line, text);
    append_escaped(line, module);
    append_text(line, ": ");
    if (shape.server != NULL) {
        append_text(line, "[");
        append_escaped(line, shape.server);
        append_text(line, "] ");
    }
    append_escaped(line, message);
}

static void compose_json(struct log_line *line, struct log_shape shape, enum log_level level, const char *module,
                         const char *message, const struct timespec *now)
{
    static const struct log_subject nobody = {0};

    append_text(line, "{\"time\":\"");
    append_time(line, now);
    append_text(line, "\",\"level\":\"");
    append_text(line, level_names[level]);
    append_text(line, "\",\"module\":\"");
    append_json(line, module);
    if (shape.server != NULL) {
        append_text(line, "\",\"server\":\"");
        append_json(line, shape.server);
    }
    append_subject(line, shape.about != NULL ? shape.about : &nobody);
    begin_message(line, shape.about != NULL ? shape.about : &nobody);
    append_json(line, message);
}

static void end_line(struct log_line *line, struct log_shape shape, uint64_t suppressed)
{
    bool is_json = shape.format == LOG_FORMAT_JSON;
    char count[COUNT_RESERVE];

    append_end(line, line->cut ? CUT_MARK : "");
    append_end(line, is_json ? "\"" : "");
    if (suppressed > 0) {
        snprintf(count, sizeof count,
                 is_json ? ",\"suppressed\":%" PRIu64 : " (%" PRIu64 " more of this kind not logged)", suppressed);
        append_end(line, count);
    }
    append_end(line, is_json ? "}" : "");
    append_end(line, shape.is_syslog ? "" : "\n");
}

void log_line_compose(struct log_line *line, struct log_shape shape, enum log_level level, const char *module,
                      uint64_t suppressed, const char *format, va_list arguments)
{
    bool is_json = shape.format == LOG_FORMAT_JSON;
    char message[LOG_LINE_BYTES];
    struct timespec now;

    line->length = 0;
    line->cut = false;
    line->reserve = TEXT_RESERVE + (is_json ? 2 : 0) + (suppressed > 0 ? COUNT_RESERVE : 0);
    int length = vsnprintf(message, sizeof message, format, arguments);
    const char *shown = length < 0 ? "(a message that cannot be formatted)" : message;
    clock_gettime(CLOCK_REALTIME, &now);
    if (shape.is_syslog) {
        append_syslog_head(line, level, &now);
    }
    if (is_json) {
        compose_json(line, shape, level, module, shown, &now);
    } else {
        compose_text(line, shape, level, module, shown, &now);
    }
    line->cut = line->cut || length >= (int)sizeof message;
    end_line(line, shape, suppressed);
}
