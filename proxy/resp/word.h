/*
 * Words of a request as Redis understands them: the words of options, and numbers.
 *
 * Redis compares the words of options by strcasecmp(), which ends at the first NUL: to it "AUTH\0anything" is AUTH.
 * Names of commands and subcommands it looks up in hash tables, by a hash of all bytes, and compares them in the same
 * way afterwards; whether "GET\0anything" is found depends on a secret of the server. No such name is passed on (see
 * client_name.c).
 *
 * Source: Redis 7.0, server.c (dictSdsKeyCaseCompare, lookupCommand), networking.c (helloCommand, clientCommand),
 * util.c (string2ll).
 */
#ifndef HEADGATE_WORD_H
#define HEADGATE_WORD_H

#include "resp/resp.h"
#include "resp/resp_number.h"

static inline bool word_has_nul(struct slice text)
{
    return text.length > 0 && memchr(text.data, '\0', text.length) != NULL;
}

/* What strcasecmp() and printf() see of it. */
static inline struct slice word_before_nul(struct slice text)
{
    text.length = text.length > 0 ? strnlen(text.data, text.length) : 0;
    return text;
}

/* Whether Redis takes it for that word of an option: in any case of letters, whatever follows a NUL. */
static inline bool word_is(struct slice text, const char *word)
{
    size_t length = strlen(word);

    if (text.length > length && text.data[length] == '\0') {
        text.length = length;
    }
    return slice_is_word(text, word);
}

/* Whether Redis takes it for a whole number, and which. */
static inline bool word_integer(struct slice text, int64_t *value)
{
    uint64_t number = 0;
    uint8_t digits = 0;
    bool negative = false;

    for (size_t i = 0; i < text.length; i++) {
        resp_number_take(text.data[i], &number, &digits, &negative);
    }
    return resp_number_end(number, digits, negative, value);
}

#endif
