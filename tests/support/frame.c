#include "frame.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t frame_split(const char *text, struct slice words[FRAME_WORDS_MAX])
{
    size_t count = 0;

    for (const char *at = text;; at++) {
        cr_assert_lt(count, (size_t)FRAME_WORDS_MAX, "%s", text);
        words[count] = (struct slice){at, strcspn(at, " ")};
        at += words[count++].length;
        if (*at == '\0') {
            return count;
        }
    }
}

struct slice frame_of_words(const struct slice *words, size_t count)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    fprintf(out, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "$%zu\r\n", words[i].length);
        fwrite(words[i].data, 1, words[i].length, out);
        fputs("\r\n", out);
    }
    fclose(out);
    char *exact = malloc(length);
    memcpy(exact, text, length);
    free(text);
    return (struct slice){exact, length};
}
