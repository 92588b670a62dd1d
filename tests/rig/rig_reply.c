#include "rig_reply.h"

#include <string.h>

#define LINE_MAX_BYTES ((size_t)64 * 1024)
#define NUMBER_LIMIT (INT64_MAX / 10 - 10)

static bool number_parse(const char *data, size_t length, int64_t *number)
{
    bool negative = length > 0 && data[0] == '-';
    size_t at = negative ? 1 : 0;
    int64_t value = 0;
    if (at == length)
        return false;
    for (; at < length; at++) {
        if (data[at] < '0' || data[at] > '9' || value > NUMBER_LIMIT)
            return false;
        value = value * 10 + (data[at] - '0');
    }
    *number = negative ? -value : value;
    return true;
}

/* The line after the type byte; moves *next behind its CR LF. */
static enum token_status line_take(const char **next, const char *end, struct token *token)
{
    size_t left = (size_t)(end - *next);
    const char *stop = memchr(*next, '\r', left);
    if (stop == NULL)
        return left > LINE_MAX_BYTES ? TOKEN_MALFORMED : TOKEN_PARTIAL;
    if (end - stop < 2)
        return TOKEN_PARTIAL;
    if (stop[1] != '\n')
        return TOKEN_MALFORMED;
    token->data = *next;
    token->length = (size_t)(stop - *next);
    *next = stop + 2;
    return TOKEN_WHOLE;
}

static enum token_status payload_take(const char **next, const char *end, struct token *token)
{
    size_t length = (size_t)token->number;
    if ((size_t)(end - *next) < length + 2)
        return TOKEN_PARTIAL;
    if (memcmp(*next + length, "\r\n", 2) != 0)
        return TOKEN_MALFORMED;
    token->data = *next;
    token->length = length;
    *next += length + 2;
    return TOKEN_WHOLE;
}

/* What a token of that type has behind its line. */
static enum token_status token_complete(const char **next, const char *end, struct token *token)
{
    switch (token->type) {
    case '+':
    case '-':
    case ',':
    case '#':
    case '(':
        return TOKEN_WHOLE;
    case '_':
        token->null = true;
        return token->length == 0 ? TOKEN_WHOLE : TOKEN_MALFORMED;
    case ':':
        return number_parse(token->data, token->length, &token->number) ? TOKEN_WHOLE : TOKEN_MALFORMED;
    case '$':
    case '=':
    case '!':
    case '*':
    case '~':
    case '>':
    case '%':
    case '|':
        break;
    default:
        return TOKEN_MALFORMED;
    }
    if (!number_parse(token->data, token->length, &token->number))
        return TOKEN_MALFORMED;
    token->null = token->number == -1 && (token->type == '$' || token->type == '*');
    if (token->null)
        return TOKEN_WHOLE;
    if (token->number < 0)
        return TOKEN_MALFORMED;
    if (token->type == '$' || token->type == '=' || token->type == '!')
        return payload_take(next, end, token);
    if (token->type == '%' || token->type == '|')
        token->number *= 2;
    return TOKEN_WHOLE;
}

enum token_status token_next(struct cursor *cursor, struct token *token)
{
    const char *next = cursor->next;
    *token = (struct token){0};
    if (next == cursor->end)
        return TOKEN_PARTIAL;
    token->type = *next++;
    enum token_status status = line_take(&next, cursor->end, token);
    if (status == TOKEN_WHOLE)
        status = token_complete(&next, cursor->end, token);
    if (status == TOKEN_WHOLE)
        cursor->next = next;
    return status;
}

static int64_t tokens_behind(const struct token *token)
{
    if (token->null || token->type == ':' || strchr("*~>%|", token->type) == NULL)
        return 0;
    /* An attribute goes before the reply that it describes. */
    return token->type == '|' ? token->number + 1 : token->number;
}

size_t reply_measure(const char *data, size_t length)
{
    struct cursor cursor = {data, data + length};
    for (int64_t pending = 1; pending > 0; pending--) {
        struct token token;
        enum token_status status = token_next(&cursor, &token);
        if (status != TOKEN_WHOLE)
            return status == TOKEN_PARTIAL ? 0 : SIZE_MAX;
        pending += tokens_behind(&token);
    }
    return (size_t)(cursor.next - data);
}

bool token_is(const struct token *token, char type, const char *text)
{
    return token->type == type && !token->null && token->length == strlen(text) &&
           memcmp(token->data, text, token->length) == 0;
}
