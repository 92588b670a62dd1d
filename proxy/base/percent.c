#include "base/percent.h"

static bool stands_for_itself(unsigned char character)
{
    return character > ' ' && character < 0x7f && character != '%';
}

size_t percent_write(FILE *out, struct slice bytes)
{
    static const char digits[] = "0123456789abcdef";
    size_t written = bytes.length == 0 ? 1 : 0;

    if (bytes.length == 0) {
        fputc('%', out);
    }
    for (size_t i = 0; i < bytes.length; i++) {
        unsigned char character = (unsigned char)bytes.data[i];
        if (stands_for_itself(character)) {
            fputc(character, out);
            written++;
        } else {
            fputc('%', out);
            fputc(digits[character >> 4], out);
            fputc(digits[character & 15], out);
            written += 3;
        }
    }
    return written;
}

static int digit_of(char character)
{
    if (character >= '0' && character <= '9') {
        return character - '0';
    }
    return character >= 'a' && character <= 'f' ? character - 'a' + 10 : -1;
}

bool percent_read(struct slice word, char *bytes, size_t room, size_t *length)
{
    *length = 0;
    if (word.length == 1 && *word.data == '%') {
        return true;
    }
    for (size_t i = 0; i < word.length; i++) {
        char character = word.data[i];
        if (*length == room) {
            return false;
        }
        if (character == '%') {
            int high = i + 2 < word.length ? digit_of(word.data[i + 1]) : -1;
            int low = high >= 0 ? digit_of(word.data[i + 2]) : -1;
            if (low < 0) {
                return false;
            }
            character = (char)(high * 16 + low);
            i += 2;
        }
        bytes[(*length)++] = character;
    }
    return word.length > 0;
}

static bool take(struct slice *text, struct slice *part, const char *ends)
{
    size_t length = 0;

    while (length < text->length && (text->data[length] == '\0' || strchr(ends, text->data[length]) == NULL)) {
        length++;
    }
    if (text->length == 0) {
        return false;
    }
    size_t taken = length < text->length ? length + 1 : length;
    *part = (struct slice){text->data, length};
    *text = (struct slice){text->data + taken, text->length - taken};
    return true;
}

bool percent_take_word(struct slice *text, struct slice *word)
{
    return take(text, word, " \n");
}

bool percent_take_line(struct slice *text, struct slice *line)
{
    return take(text, line, "\n");
}

bool percent_take_number(struct slice *text, int64_t *number)
{
    struct slice word;

    *number = 0;
    if (!percent_take_word(text, &word) || word.length == 0) {
        return false;
    }
    for (size_t i = 0; i < word.length; i++) {
        int digit = word.data[i] >= '0' && word.data[i] <= '9' ? word.data[i] - '0' : -1;
        if (digit < 0 || *number > (INT64_MAX - digit) / 10) {
            return false;
        }
        *number = *number * 10 + digit;
    }
    return true;
}
