/* Lists of words, as rules have them: where one ends, and what people write that would not be what they mean. */
#include "conf/words.h"

#include "conf/glob.h"

#include <stdio.h>
#include <string.h>

#define BLANKS " \t"

/* Up to a blank or a comma; but a comma behind a backslash or within a class of a glob is a part of the word. */
static size_t word_length(const char *text)
{
    const char *at = text;
    bool within_class = false;

    while (*at != '\0' && strchr(BLANKS, *at) == NULL && (*at != ',' || within_class)) {
        bool escapes = *at == '\\' && at[1] != '\0' && strchr(BLANKS, at[1]) == NULL;
        if (!escapes) {
            within_class = within_class ? *at != ']' : *at == '[';
        }
        at += escapes ? 2 : 1;
    }
    return (size_t)(at - text);
}

bool words_next(const char **text, struct slice *word)
{
    *text += strspn(*text, BLANKS ",");
    *word = (struct slice){*text, word_length(*text)};
    *text += word->length;
    return word->length > 0;
}

size_t words_count(const char *text)
{
    struct slice word;
    size_t count = 0;

    while (words_next(&text, &word)) {
        count++;
    }
    return count;
}

bool words_check(const char *text, char problem[CONF_PROBLEM_MAX])
{
    bool after_word = false, after_comma = false;

    for (text += strspn(text, BLANKS); *text != '\0'; text += strspn(text, BLANKS)) {
        after_comma = *text == ',';
        if (after_comma && !after_word) {
            break;
        }
        after_word = !after_comma;
        text += after_comma ? 1 : word_length(text);
    }
    if (after_comma) {
        snprintf(problem, CONF_PROBLEM_MAX, "has nothing beside a comma");
    }
    return !after_comma;
}

/* A part of a glob between bars that would do as one by itself: it has a wildcard, and something beside it. */
static bool is_like_glob(const char *part, size_t length)
{
    bool has_wildcard = false, has_letter = false;

    for (size_t i = 0; i < length; i++) {
        bool is_wildcard = strchr("*?[", part[i]) != NULL;
        has_wildcard = has_wildcard || is_wildcard;
        has_letter = has_letter || !is_wildcard;
        i += part[i] == '\\';
    }
    return has_wildcard && has_letter;
}

/* The length of what stands before the next bar or the end. */
static size_t part_length(const char *part, size_t length)
{
    size_t at = 0;
    bool within_class = false;

    while (at < length && (part[at] != '|' || within_class)) {
        bool escapes = part[at] == '\\' && at + 1 < length;
        if (!escapes) {
            within_class = within_class ? part[at] != ']' : part[at] == '[';
        }
        at += escapes ? 2 : 1;
    }
    return at;
}

/* Keys like user|42 there are; but "secret:*|*:pin" are two globs to who has written it. */
static bool joins_globs_by_bar(struct slice glob)
{
    bool follows_glob = false;

    for (size_t at = 0; at < glob.length;) {
        size_t length = part_length(glob.data + at, glob.length - at);
        bool is_glob = is_like_glob(glob.data + at, length);
        if (is_glob && follows_glob) {
            return true;
        }
        follows_glob = is_glob;
        at += length + 1;
    }
    return false;
}

/* What is wrong with a sound glob, or NULL. The text goes on behind it: a comma there shows what a brace was for. */
static const char *find_trap(struct slice glob)
{
    bool open = false, within_class = false;

    if (glob.length > 0 && (glob.data[0] == '\'' || glob.data[0] == '"')) {
        return "begins with a quote, which would be a part of it (\\' or \\\" if that is meant)";
    }
    for (size_t i = 0; i < glob.length; i++) {
        if (glob.data[i] == '\\') {
            i++;
        } else if (within_class) {
            within_class = glob.data[i] != ']';
        } else if (glob.data[i] == '[') {
            if (glob.data[i + 1] == ']') {
                return "has an empty class, \"[]\", which nothing matches";
            }
            within_class = true;
        } else if (glob.data[i] == ';') {
            return "has a semicolon, which separates nothing: blanks and commas do (\\; if it is meant)";
        } else if (glob.data[i] == '{' || glob.data[i] == '}') {
            open = glob.data[i] == '{';
        }
    }
    if (joins_globs_by_bar(glob)) {
        return "has a bar, which separates nothing: blanks and commas do (\\| if it is meant)";
    }
    return open && glob.data[glob.length] == ',' ? "has a comma within braces: globs have no {a,b} (\\, if it is meant)"
                                                 : NULL;
}

bool words_check_glob(struct slice word, char problem[CONF_PROBLEM_MAX])
{
    if (!glob_check(word, problem)) {
        return false;
    }
    const char *trap = find_trap(word);
    return trap == NULL || conf_fault_word(problem, word, trap);
}
