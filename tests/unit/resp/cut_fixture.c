#include "cut_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum resp_status feed_one_piece(cut_feed *feed, void *framer, struct slice piece, size_t *taken)
{
    char *copy = malloc(piece.length + 1);
    enum resp_status status;

    cr_assert_not_null(copy, "out of memory");
    memcpy(copy + 1, piece.data, piece.length);
    status = feed(framer, copy + 1, piece.length, taken);
    free(copy);
    return status;
}

enum resp_status feed_in_pieces(cut_feed *feed, void *framer, struct slice bytes, size_t first, size_t further,
                                size_t *total)
{
    enum resp_status status = RESP_MORE;
    size_t length = first;

    for (*total = 0; status == RESP_MORE && *total < bytes.length; length = further) {
        size_t left = bytes.length - *total;
        size_t taken;

        length = length < left ? length : left;
        status = feed_one_piece(feed, framer, (struct slice){bytes.data + *total, length}, &taken);
        cr_assert(taken <= length, "%zu bytes taken of %zu", taken, length);
        cr_assert(status != RESP_MORE || taken == length, "bytes were left though the frame goes on");
        *total += taken;
    }
    return status;
}
