/* Frames that come in pieces, for the tests of the framers. */
#ifndef HEADGATE_TESTS_CUT_FIXTURE_H
#define HEADGATE_TESTS_CUT_FIXTURE_H

#include "resp/resp.h"

/* A slice of a literal: to initialize with, and as a value. */
#define TEXT(literal)                                                                                                  \
    {                                                                                                                  \
        literal, sizeof(literal) - 1                                                                                   \
    }
#define SLICE(literal) ((struct slice)TEXT(literal))

/* The framer that is tested; taken is how many of the bytes it took. */
typedef enum resp_status cut_feed(void *framer, const char *bytes, size_t length, size_t *taken);

/* Feeds a copy in a block of just its size, so that a sanitizer sees a byte read too many. */
enum resp_status feed_one_piece(cut_feed *feed, void *framer, struct slice piece, size_t *taken);

/* Feeds a first piece, then further ones of the second length, until the frame ends. Returns how, and what it took. */
enum resp_status feed_in_pieces(cut_feed *feed, void *framer, struct slice bytes, size_t first, size_t further,
                                size_t *total);

#endif
