/* Memory and text for a configuration. */
#include "conf/conf_private.h"

#include <stdlib.h>
#include <string.h>

/* Of a word that is at fault, so many bytes. */
#define WORD_SHOWN 64

void conf_out_of_memory(void)
{
    fputs("headgate: out of memory for the configuration\n", stderr);
    abort();
}

void *conf_alloc(void *old, size_t size)
{
    void *memory = realloc(old, size > 0 ? size : 1);
    if (memory == NULL) {
        conf_out_of_memory();
    }
    return memory;
}

char *conf_vformat(const char *format, va_list arguments)
{
    char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0) {
        conf_out_of_memory();
    }
    return text;
}

char *conf_format(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = conf_vformat(format, arguments);
    va_end(arguments);
    return text;
}

bool conf_fault_word(char problem[CONF_PROBLEM_MAX], struct slice word, const char *what)
{
    int shown = (int)(word.length > WORD_SHOWN ? WORD_SHOWN : word.length);

    snprintf(problem, CONF_PROBLEM_MAX, "\"%.*s\" %s", shown, word.data, what);
    return false;
}

char *conf_copy(const char *text, size_t length)
{
    char *copy = conf_alloc(NULL, length + 1);
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

bool conf_wrong(char problem[CONF_PROBLEM_MAX], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, CONF_PROBLEM_MAX, format, arguments);
    va_end(arguments);
    return false;
}

const char *conf_read_digits(const char *text, int base, int64_t *value)
{
    *value = 0;
    for (; *text >= '0' && *text < '0' + base; text++) {
        if (__builtin_mul_overflow(*value, base, value) || __builtin_add_overflow(*value, *text - '0', value)) {
            *value = INT64_MAX;
        }
    }
    return text;
}
