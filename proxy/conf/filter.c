#include "conf/filter.h"

#include "conf/glob.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- reading ---- */

/* Where the sign of a word is, or its end. */
static size_t find_sign(struct slice word)
{
    size_t at = 0;

    while (at < word.length && strchr("=!<>", word.data[at]) == NULL) {
        at++;
    }
    return at;
}

bool filter_is_word(struct slice word)
{
    return memchr(word.data, '\0', word.length) == NULL && find_sign(word) < word.length;
}

/* What somebody wrote, made fit to be shown. */
static void show(struct slice word, char *text, size_t size)
{
    size_t length = word.length < size ? word.length : size - 1;

    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)word.data[i];
        text[i] = c < ' ' || c >= 0x7f ? '?' : (char)c;
    }
    text[length] = '\0';
}

static bool fault(char problem[FILTER_PROBLEM_MAX], struct slice word, const char *why)
{
    char shown[48];

    show(word, shown, sizeof shown);
    snprintf(problem, FILTER_PROBLEM_MAX, "%s: %s", shown, why);
    return false;
}

static bool has_control_characters(struct slice word)
{
    bool has = false;

    for (size_t i = 0; i < word.length && !has; i++) {
        has = (unsigned char)word.data[i] < ' ' || word.data[i] == 0x7f;
    }
    return has;
}

static bool fault_of_name(char problem[FILTER_PROBLEM_MAX], const struct filter_field *fields, size_t field_count,
                          struct slice word)
{
    char shown[48];

    show(word, shown, sizeof shown);
    int length = snprintf(problem, FILTER_PROBLEM_MAX, "there is no filter of the name in %s, but", shown);
    for (size_t i = 0; i < field_count && length < FILTER_PROBLEM_MAX; i++) {
        length += snprintf(problem + length, FILTER_PROBLEM_MAX - (size_t)length, " %s", fields[i].name);
    }
    return false;
}

static bool read_number(const char *text, int64_t *number)
{
    char *end;
    bool begins = (*text >= '0' && *text <= '9') || *text == '-';
    intmax_t value = strtoimax(text, &end, 10);

    *number = value;
    return begins && *end == '\0' && value < INTMAX_MAX && value > INTMAX_MIN;
}

static bool read_text(struct filter_term *term, const struct filter_field *field, struct slice text, struct slice word,
                      char problem[FILTER_PROBLEM_MAX])
{
    char of_glob[CONF_PROBLEM_MAX];

    if (text.length > FILTER_TEXT_MAX) {
        return fault(problem, word, "too long");
    }
    memcpy(term->text, text.data, text.length);
    term->text[text.length] = '\0';
    if (field->kind == FILTER_NUMBER) {
        return read_number(term->text, &term->number) || fault(problem, word, "wants a whole number");
    }
    if (term->sign == '<' || term->sign == '>') {
        return fault(problem, word, "only numbers are larger or smaller");
    }
    term->is_subnet = field->kind == FILTER_ADDRESS && subnet_parse(&term->subnet, text);
    return term->is_subnet || text.length == 0 || glob_check(text, of_glob) || fault(problem, word, of_glob);
}

bool filter_add(struct filter *filter, const struct filter_field *fields, size_t field_count, struct slice word,
                char problem[FILTER_PROBLEM_MAX])
{
    size_t at = find_sign(word), field = 0;
    struct slice name = {word.data, at};

    if (filter->count == FILTER_WORDS_MAX) {
        return fault(problem, word, "too many filters");
    }
    if (has_control_characters(word)) {
        return fault(problem, word, "has control characters");
    }
    while (field < field_count && !slice_is_word(name, fields[field].name)) {
        field++;
    }
    if (field == field_count || !filter_is_word(word)) {
        return fault_of_name(problem, fields, field_count, word);
    }
    struct filter_term *term = &filter->terms[filter->count];
    *term = (struct filter_term){.field = field, .sign = word.data[at]};
    size_t start = at + 1;
    if (term->sign == '!' && (start == word.length || word.data[start++] != '=')) {
        return fault(problem, word, "wants = != < or >");
    }
    struct slice text = {word.data + start, word.length - start};
    if (!read_text(term, &fields[field], text, word, problem)) {
        return false;
    }
    filter->count++;
    return true;
}

/* ---- looking ---- */

/* A text with characters of globs in it stands for itself, too: "[::1]:6379". */
static bool has_text(const struct filter_term *term, const char *text)
{
    return strcmp(term->text, text) == 0 || glob_match(term->text, slice_of(text));
}

static bool holds(const struct filter_term *term, enum filter_kind kind, const struct filter_value *value)
{
    bool is_so;

    if (kind == FILTER_NUMBER && (term->sign == '<' || term->sign == '>')) {
        return term->sign == '<' ? value->number < term->number : value->number > term->number;
    }
    if (kind == FILTER_NUMBER) {
        is_so = value->number == term->number;
    } else if (term->is_subnet) {
        is_so = subnet_has(&term->subnet, value->address);
    } else {
        is_so = has_text(term, value->text);
    }
    return is_so == (term->sign == '=');
}

bool filter_passes(const struct filter *filter, const struct filter_field *fields, filter_value_of *value,
                   const void *subject)
{
    bool passes = true;

    for (size_t i = 0; i < filter->count && passes; i++) {
        const struct filter_term *term = &filter->terms[i];
        struct filter_value found = value(subject, term->field);
        passes = holds(term, fields[term->field].kind, &found);
    }
    return passes;
}
