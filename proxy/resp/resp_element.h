/*
 * Walks the elements of whole replies, of RESP2 and RESP3, where their content matters: replies that are merged or
 * split, and what Redis tells of itself. Nothing is copied: all slices point into the reply. Attributes are passed
 * over.
 */
#ifndef HEADGATE_RESP_ELEMENT_H
#define HEADGATE_RESP_ELEMENT_H

#include "resp/resp.h"

struct resp_element {
    char type;           /* its first byte: '+', '-', ':', '$', '*', '_', '#', ',', '(', '!', '=', '%', '~', '>' */
    bool is_null;        /* "$-1", "*-1" or "_" */
    int64_t integer;     /* of ':' */
    uint64_t count;      /* elements within: of a map, twice its pairs; 0 for what is no aggregate */
    struct slice text;   /* what is no aggregate: what stands behind its type, or its payload */
    struct slice inside; /* of an aggregate: the elements within, for resp_element_next() */
    struct slice whole;  /* all of its bytes, without attributes ahead of it */
};

/* Takes the first element from *rest, which must have a byte to point to. False: there is none that is whole and sound;
 * *rest is as before. */
bool resp_element_next(struct slice *rest, struct resp_element *element);

/* The same for what has to be an aggregate of at least so many elements, a text that is no error, or a number. False:
 * it is something else, or as above. */
bool resp_element_next_list(struct slice *rest, uint64_t least, struct resp_element *element);
bool resp_element_next_text(struct slice *rest, struct slice *text);
bool resp_element_next_integer(struct slice *rest, int64_t *integer);

/* Whether it is an error, of either kind. */
static inline bool resp_element_is_error(const struct resp_element *element)
{
    return element->type == '-' || element->type == '!';
}

#endif
