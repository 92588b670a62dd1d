/* The elements of a glob: characters, classes; and whether a word is sound as one. */
#include "conf/glob.h"

/* Reads one character of a class, which a backslash may precede. */
static unsigned char class_character(const char **at)
{
    if (**at == '\\' && (*at)[1] != '\0') {
        (*at)++;
    }
    return (unsigned char)*(*at)++;
}

/* *at stands behind the "[" and is moved behind the "]". */
static bool class_has(const char **at, unsigned char character)
{
    bool negated = **at == '^';
    bool found = false;

    *at += negated;
    while (**at != ']' && **at != '\0') {
        unsigned char first = class_character(at);
        unsigned char last = first;
        if (**at == '-' && (*at)[1] != ']' && (*at)[1] != '\0') {
            (*at)++;
            last = class_character(at);
        }
        if (first > last) {
            unsigned char swapped = first;
            first = last;
            last = swapped;
        }
        found = found || (character >= first && character <= last);
    }
    *at += **at == ']';
    return found != negated;
}

bool glob_element(const char **at, char character)
{
    if (**at == '[') {
        (*at)++;
        return class_has(at, (unsigned char)character);
    }
    if (**at == '?') {
        (*at)++;
        return true;
    }
    if (**at == '\\' && (*at)[1] != '\0') {
        (*at)++;
    }
    return *(*at)++ == character;
}

/*
 * Whether Redis takes a "-" behind this place of a class for something else than class_has() does: to Redis (util.c,
 * stringmatchlen) nothing is special behind it, not even "]", and no range begins with a backslash.
 */
static bool is_odd_range(struct slice word, size_t at, bool is_escaped)
{
    if (at + 2 >= word.length || word.data[at + 1] != '-') {
        return false;
    }
    return is_escaped ? word.data[at + 2] != ']' : word.data[at + 2] == ']' || word.data[at + 2] == '\\';
}

bool glob_check(struct slice word, char problem[CONF_PROBLEM_MAX])
{
    bool within_class = false;

    for (size_t i = 0; i < word.length; i++) {
        bool is_escaped = word.data[i] == '\\';
        if (is_escaped && ++i == word.length) {
            return conf_fault_word(problem, word, "ends with a backslash");
        }
        bool is_member = within_class && (is_escaped || word.data[i] != ']');
        if (is_member && is_odd_range(word, i, is_escaped)) {
            return conf_fault_word(problem, word,
                                   "has a \"-\" in a class that Redis takes for a range; put \"-\" first");
        }
        if (is_member && i + 2 < word.length && word.data[i + 1] == '-' && word.data[i + 2] != ']') {
            i += 2;
        } else if (!is_escaped) {
            within_class = within_class ? word.data[i] != ']' : word.data[i] == '[';
            i += within_class && word.data[i] == '[' && i + 1 < word.length && word.data[i + 1] == '^';
        }
    }
    return !within_class || conf_fault_word(problem, word, "opens a class with \"[\" that it does not close");
}
