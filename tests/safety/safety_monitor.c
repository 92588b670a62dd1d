#include "safety_monitor.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : 0;
}

/* What the two characters behind a backslash mean, or the one and two more. Returns how many were read. */
static size_t unescape(const char *at, size_t left, char *to)
{
    static const char escapes[] = "n\nr\rt\ta\ab\b";
    if (*at == 'x' && left >= 3) {
        *to = (char)(hex_value(at[1]) * 16 + hex_value(at[2]));
        return 3;
    }
    *to = *at;
    for (size_t pair = 0; escapes[pair] != '\0'; pair += 2)
        if (escapes[pair] == *at)
            *to = escapes[pair + 1];
    return 1;
}

/* A word in quotes, from behind the first of them; returns what is behind the last, or NULL. */
static char *word_take(char *at, const char *end, struct monitor_word *word)
{
    char *to = at;
    word->data = at;
    while (at < end && *at != '"') {
        if (*at == '\\' && end - at >= 2) {
            at++;
            at += unescape(at, (size_t)(end - at), to++);
        } else {
            *to++ = *at++;
        }
    }
    word->length = (size_t)(to - word->data);
    return at < end ? at + 1 : NULL;
}

bool monitor_parse(char *text, size_t length, struct monitor_line *line)
{
    const char *end = text + length;
    char *open = memchr(text, '[', length);
    char *at = open != NULL ? memchr(open, ']', (size_t)(end - open)) : NULL;
    line->count = 0;
    if (at == NULL || text[0] != '+')
        return false;
    line->time = strtod(text + 1, NULL);
    line->lua = at - open > 4 && memcmp(at - 4, " lua", 4) == 0;
    at++;
    while (at != NULL && end - at >= 3 && line->count < MONITOR_WORDS && at[0] == ' ' && at[1] == '"')
        at = word_take(at + 2, end, &line->words[line->count++]);
    return at != NULL && line->count > 0;
}

bool monitor_is(const struct monitor_line *line, unsigned at, const char *text)
{
    return at < line->count && line->words[at].length == strlen(text) &&
           strncasecmp(line->words[at].data, text, line->words[at].length) == 0;
}
