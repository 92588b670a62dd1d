/*
 * Fuzzes the PROXY protocol's header. What must hold for all bytes:
 * - the verdict on a piece is kept: what is bad stays bad with more bytes, what is whole stays the same;
 * - PROXY_HEADER_ENOUGH bytes are enough;
 * - nothing is read beyond what was given: each piece is a memory block of its own, which the sanitizer watches.
 */
#include "net/proxy_header.h"

#include "fuzz_cut.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum proxy_header_result parse_piece(const uint8_t *data, size_t size, struct proxy_header *header)
{
    char *piece = malloc(size > 0 ? size : 1);

    require(piece != NULL);
    memcpy(piece, data, size);
    enum proxy_header_result result = proxy_header_parse(piece, size, header);
    free(piece);
    return result;
}

static void check_sound(const struct proxy_header *header)
{
    int family = header->address.ss_family;

    require(header->length >= 15);
    require(header->is_proxied || !header->has_address);
    require(header->has_address == (family != 0));
    require(family == 0 || family == AF_INET || family == AF_INET6 || family == AF_UNIX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct proxy_header first = {.length = 0}, header;
    enum proxy_header_result verdict = PROXY_HEADER_PARTIAL;

    for (size_t i = 0; i <= size && i <= 2 * PROXY_HEADER_ENOUGH; i++) {
        enum proxy_header_result result = parse_piece(data, i, &header);
        require(result != PROXY_HEADER_PARTIAL || i < PROXY_HEADER_ENOUGH);
        require(verdict == PROXY_HEADER_PARTIAL || result == verdict);
        if (result == PROXY_HEADER_WHOLE) {
            check_sound(&header);
            require(verdict != PROXY_HEADER_WHOLE || memcmp(&first, &header, sizeof header) == 0);
        } else if (result == PROXY_HEADER_BAD) {
            require(header.why != NULL);
        }
        first = verdict == PROXY_HEADER_PARTIAL ? header : first;
        verdict = result;
    }
    return 0;
}
