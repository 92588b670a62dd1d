/*
 * Filters, as operators write them on the admin port: words such as user=alice, name=worker*, addr=10.0.0.0/8, idle>60
 * and lane!=shared, all of which must hold. What a word may name is a table of fields; what these are of a subject, the
 * caller tells when it is looked at.
 */
#ifndef HEADGATE_FILTER_H
#define HEADGATE_FILTER_H

#include "base/slice.h"
#include "base/subnet.h"

#include <sys/socket.h>

/* Words of one filter. */
#define FILTER_WORDS_MAX 12
/* Bytes of what a word looks for. */
#define FILTER_TEXT_MAX 256
#define FILTER_PROBLEM_MAX 320

enum filter_kind {
    FILTER_TEXT,   /* a glob, or the text itself; = and != */
    FILTER_NUMBER, /* a whole number; = != < > */
    FILTER_ADDRESS /* an address, a network, "unix", or a glob for its text; = and != */
};

struct filter_field {
    const char *name;
    enum filter_kind kind;
};

/* What a field is of a subject: by its kind, text, number, or text and address. */
struct filter_value {
    const char *text;
    int64_t number;
    const struct sockaddr_storage *address;
};

typedef struct filter_value filter_value_of(const void *subject, size_t field);

struct filter_term {
    size_t field;
    char sign; /* = ! < > */
    bool is_subnet;
    int64_t number;
    struct subnet subnet;
    char text[FILTER_TEXT_MAX + 1]; /* a sound glob */
};

/* All 0: one without words, which everything passes. */
struct filter {
    size_t count;
    struct filter_term terms[FILTER_WORDS_MAX];
};

/* Whether it is meant as a word of a filter: it has one of the signs. */
bool filter_is_word(struct slice word);
/* Adds a word. False, with what is wrong in problem: one line, without control characters. */
bool filter_add(struct filter *filter, const struct filter_field *fields, size_t field_count, struct slice word,
                char problem[FILTER_PROBLEM_MAX]);
/* Whether all words hold of the subject, of which value tells. */
bool filter_passes(const struct filter *filter, const struct filter_field *fields, filter_value_of *value,
                   const void *subject);

#endif
