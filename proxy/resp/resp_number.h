/*
 * Numbers in RESP lines, as strict as Redis reads them: no plus sign, no blanks, no leading zeros, no "-0", within 64
 * bits. Read byte by byte where a line may be cut anywhere, or at once where it is short and whole.
 */
#ifndef HEADGATE_RESP_NUMBER_H
#define HEADGATE_RESP_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In place of a count of digits: what was read is no number. */
#define RESP_NUMBER_NONE UINT8_MAX
/* Ten to this power is the first that needs more than 63 bits, but less than 64. */
#define RESP_NUMBER_DIGITS_MAX 19

/* Takes the next byte of a number; *number, *digits and *negative start as zeroes. */
static inline void resp_number_take(char byte, uint64_t *number, uint8_t *digits, bool *negative)
{
    bool leading_zero = *number == 0 && (*digits == 1 || (*negative && byte == '0'));

    if (*digits == RESP_NUMBER_NONE) {
        return;
    }
    if (byte == '-' && *digits == 0 && !*negative) {
        *negative = true;
    } else if (byte >= '0' && byte <= '9' && !leading_zero && *digits < RESP_NUMBER_DIGITS_MAX) {
        *number = *number * 10 + (uint64_t)(byte - '0');
        ++*digits;
    } else {
        *digits = RESP_NUMBER_NONE;
    }
}

/* The value of a number whose last byte was taken; false if it is none. */
static inline bool resp_number_end(uint64_t number, uint8_t digits, bool negative, int64_t *value)
{
    if (digits == 0 || digits == RESP_NUMBER_NONE || number > (uint64_t)INT64_MAX + negative) {
        return false;
    }
    *value = (int64_t)(negative ? 0 - number : number);
    return true;
}

/*
 * Reads a number of one to nine digits and the CR LF behind it, at once. Returns where the next line starts; NULL if
 * the number is longer or negative, or not wholly before end, or no number: then the careful way has to decide.
 */
static inline const char *resp_number_quick(const char *next, const char *end, uint32_t *value)
{
    const char *first = next;
    uint32_t number = 0;

    while (next < end && *next >= '0' && *next <= '9' && next - first < 9) {
        number = number * 10 + (uint32_t)(*next - '0');
        next++;
    }
    if (end - next < 2 || next[0] != '\r' || next[1] != '\n' || next == first || (*first == '0' && next - first > 1)) {
        return NULL;
    }
    *value = number;
    return next + 2;
}

#endif
