#include "rig_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void options_fail(const char *usage)
{
    fputs(usage, stderr);
    exit(2);
}

uint64_t options_number(const char *usage, const char *text, uint64_t low, uint64_t high)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || number < low || number > high)
        options_fail(usage);
    return number;
}

const char *options_word(const char *usage, const char *text, const char *one, const char *other)
{
    if (strcmp(text, one) != 0 && strcmp(text, other) != 0)
        options_fail(usage);
    return text;
}
