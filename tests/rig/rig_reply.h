/*
 * Reads replies of RESP2 and RESP3 as a flat run of tokens: an aggregate is a token that says how many follow.
 *
 * Written for tests alone and independent of the framer under test.
 */
#ifndef RIG_REPLY_H
#define RIG_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum token_status { TOKEN_WHOLE, TOKEN_PARTIAL, TOKEN_MALFORMED };

struct token {
    char type;        /* the first byte: '+', '-', ':', '$', '*', '%', '>', '_', … */
    bool null;        /* "$-1", "*-1" or "_" */
    int64_t number;   /* of an integer; elements that follow, of an aggregate (a map's keys and values both count) */
    const char *data; /* the line or the payload; points into what is being read */
    size_t length;
};

struct cursor {
    const char *next;
    const char *end;
};

/* Takes the next token and moves the cursor behind it, if it is there as a whole. */
enum token_status token_next(struct cursor *cursor, struct token *token);

/* Bytes of the reply (or push) that data starts with; 0 if it is not whole yet; SIZE_MAX if it is not RESP. */
size_t reply_measure(const char *data, size_t length);

bool token_is(const struct token *token, char type, const char *text);

#endif
