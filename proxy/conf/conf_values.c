/* Option values: from text, to text, and what they may be. */
#include "conf/conf_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Of a rate's period. */
#define PERIOD_MAX_US (INT64_C(365) * 86400000000)

static_assert(sizeof(enum conf_pool) == sizeof(int), "CONF_WORD fields are written as int");

static void *field(const struct conf_option *option, void *base)
{
    return (char *)base + option->offset;
}

static const void *const_field(const struct conf_option *option, const void *base)
{
    return (const char *)base + option->offset;
}

/* Where a comment starts after a value: at a ';' or '#' that follows a blank or opens the value. Else the text's end.
 */
static const char *comment_start(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        bool after_blank = at == text || strchr(CONF_BLANKS, at[-1]) != NULL;
        if (after_blank && (*at == ';' || *at == '#')) {
            return at;
        }
    }
    return text + strlen(text);
}

static char *without_comment(const char *text)
{
    size_t length = (size_t)(comment_start(text) - text);
    while (length > 0 && strchr(CONF_BLANKS, text[length - 1]) != NULL) {
        length--;
    }
    return conf_copy(text, length);
}

/* ---- Numbers ---- */

static bool parse_number(const struct conf_option *option, const char *text, int64_t *value, char *problem)
{
    if (*text == '\0') {
        return conf_wrong(problem, "is empty");
    }
    const char *rest = conf_read_digits(text, option->type == CONF_MODE ? 8 : 10, value);
    bool has_units = conf_units_has(option->type);
    if (rest == text || (!has_units && *rest != '\0')) {
        return conf_wrong(problem, option->type == CONF_MODE ? "is not an octal number" : "is not a whole number");
    }
    if (has_units && !conf_units_apply(option->type, rest, value, problem)) {
        return false;
    }
    if (*value == 0 && option->zero != NULL) {
        return true;
    }
    if (*value < option->min || *value > option->max) {
        return conf_wrong(problem, "is too %s", *value < option->min ? "small" : "large");
    }
    return true;
}

static char *number_text(enum conf_type type, int64_t value)
{
    if (type == CONF_MODE) {
        return conf_format("%04llo", (unsigned long long)value);
    }
    if (!conf_units_has(type) || type == CONF_AMOUNT || value == 0) {
        return conf_format("%lld", (long long)value);
    }
    return conf_units_text(type, value);
}

/* ---- Rates ---- */

/* The period: a time, or a unit alone for one of it. */
static bool parse_period(const char *text, int64_t *period_us, char *problem)
{
    text += strspn(text, CONF_BLANKS);
    const char *suffix = conf_read_digits(text, 10, period_us);
    if (suffix == text) {
        *period_us = 1;
    }
    if (*suffix == '\0') {
        return conf_wrong(problem, "has a period without a unit");
    }
    if (!conf_units_apply(CONF_PERIOD, suffix, period_us, problem)) {
        return false;
    }
    if (*period_us < 1 || *period_us > PERIOD_MAX_US) {
        return conf_wrong(problem, "has a period that is too %s", *period_us < 1 ? "short" : "long");
    }
    return true;
}

static bool parse_rate(const struct conf_option *option, char *text, struct conf_rate *rate, char *problem)
{
    const struct conf_option amount = {.type = CONF_AMOUNT, .min = option->min, .max = option->max};
    char *slash = strchr(text, '/');

    *rate = (struct conf_rate){0};
    if (slash == NULL) {
        bool none = strcmp(text, "0") == 0 && option->zero != NULL;
        return none || conf_wrong(problem, *text == '\0' ? "is empty" : "has no period");
    }
    *slash = '\0';
    for (char *end = slash; end > text && strchr(CONF_BLANKS, end[-1]) != NULL; end--) {
        end[-1] = '\0';
    }
    return parse_number(&amount, text, &rate->amount, problem) && parse_period(slash + 1, &rate->period_us, problem);
}

static char *rate_text(const struct conf_rate *rate)
{
    if (rate->amount == 0) {
        return conf_copy("0", 1);
    }
    char *period = number_text(CONF_PERIOD, rate->period_us);
    bool is_one = *period == '1' && !(period[1] >= '0' && period[1] <= '9');
    char *text = conf_format("%lld/%s", (long long)rate->amount, period + is_one);
    free(period);
    return text;
}

/* ---- Words ---- */

static bool parse_word(const struct conf_option *option, const char *text, int *value, char *problem)
{
    for (int i = 0; option->words[i] != NULL; i++) {
        if (strcasecmp(option->words[i], text) == 0) {
            *value = i;
            return true;
        }
    }
    return conf_wrong(problem, *text == '\0' ? "is empty" : "is not one of the known words");
}

/* The ways in which people write it; the first of each is how it is printed. */
static const char *const toggle_words[2][4] = {{"off", "no", "false", "0"}, {"on", "yes", "true", "1"}};

static bool parse_toggle(const char *text, int *value, char *problem)
{
    for (int i = 0; i < 8; i++) {
        if (strcasecmp(toggle_words[i / 4][i % 4], text) == 0) {
            *value = i / 4;
            return true;
        }
    }
    return conf_wrong(problem, *text == '\0' ? "is empty" : "is neither on nor off");
}

/* ---- Strings ---- */

/* Takes the text between double quotes, in which \" and \\ stand for " and \. NULL if the quotes are not in order. */
static char *unquote(const char *text)
{
    char *result = conf_alloc(NULL, strlen(text) + 1);
    size_t length = 0;
    const char *at = text + 1;
    while (*at != '\0' && *at != '"') {
        if (*at == '\\' && (at[1] == '"' || at[1] == '\\')) {
            at++;
        }
        result[length++] = *at++;
    }
    result[length] = '\0';
    if (*at == '"') {
        at++;
        at += strspn(at, CONF_BLANKS);
        if (*comment_start(at) == *at) {
            return result;
        }
    }
    free(result);
    return NULL;
}

/* Takes text as its own. */
static char *expanded(const struct conf_option *option, char *text, char *problem)
{
    bool is_address = option->type == CONF_ADDRESS || option->type == CONF_ADDRESSES;
    char *result = conf_expand(text, conf_option_hides(option) || (is_address && strchr(text, '@') != NULL), problem);

    free(text);
    return result;
}

/* A comment after an unquoted string is refused: a password may well hold a ';', and cutting it would go unseen. */
static bool parse_string(const struct conf_option *option, const char *text, bool expands, char **value, char *problem)
{
    if (conf_option_hides(option) && strcmp(text, CONF_SECRET_SHOWN) == 0) {
        return conf_wrong(problem, "is what a hidden secret is shown as, not the secret");
    }
    if (*text != '"' && *comment_start(text) != '\0') {
        return conf_wrong(problem, "holds a ';' or '#' that could be a comment");
    }
    char *result = *text == '"' ? unquote(text) : conf_copy(text, strlen(text));
    if (result == NULL) {
        return conf_wrong(problem, "starts with a double quote but does not end with one");
    }
    result = expands ? expanded(option, result, problem) : result;
    if (result == NULL) {
        return false;
    }
    size_t length = strlen(result);
    if (length > (size_t)option->max) {
        free(result);
        return conf_wrong(problem, "has %zu bytes", length);
    }
    *value = result;
    return true;
}

static bool needs_quotes(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && (*text == '"' || *comment_start(text) != '\0' || strchr(CONF_BLANKS, *text) != NULL ||
                          strchr(CONF_BLANKS, text[length - 1]) != NULL || strcmp(text, CONF_SECRET_SHOWN) == 0);
}

static char *string_text(const char *text)
{
    if (!needs_quotes(text)) {
        return conf_copy(text, strlen(text));
    }
    char *result = conf_alloc(NULL, 2 * strlen(text) + 3);
    size_t length = 0;
    result[length++] = '"';
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            result[length++] = '\\';
        }
        result[length++] = *text;
    }
    result[length++] = '"';
    result[length] = '\0';
    return result;
}

/* ---- Any value ---- */

union value {
    struct conf_address address;
    struct conf_address_list addresses;
    char *string;
    struct conf_rate rate;
    int64_t number;
    int word;
};

static size_t value_size(enum conf_type type)
{
    switch (type) {
    case CONF_ADDRESS:
        return sizeof(struct conf_address);
    case CONF_ADDRESSES:
        return sizeof(struct conf_address_list);
    case CONF_STRING:
    case CONF_FILE:
        return sizeof(char *);
    case CONF_RATE:
        return sizeof(struct conf_rate);
    case CONF_WORD:
    case CONF_TOGGLE:
        return sizeof(int);
    default:
        return sizeof(int64_t);
    }
}

static bool is_text(enum conf_type type)
{
    return type == CONF_STRING || type == CONF_FILE;
}

static bool parse_value(const struct conf_option *option, const char *text, bool expands, union value *value,
                        char *problem)
{
    if (is_text(option->type)) {
        return parse_string(option, text, expands, &value->string, problem);
    }
    char *bare = without_comment(text);
    bool parsed = false;
    bare = expands ? expanded(option, bare, problem) : bare;
    if (bare == NULL) {
        return false;
    }
    switch (option->type) {
    case CONF_ADDRESS:
        parsed = conf_address_parse(option, bare, &value->address, problem);
        break;
    case CONF_ADDRESSES:
        parsed = conf_addresses_parse(option, bare, &value->addresses, problem);
        break;
    case CONF_RATE:
        parsed = parse_rate(option, bare, &value->rate, problem);
        break;
    case CONF_WORD:
        parsed = parse_word(option, bare, &value->word, problem);
        break;
    case CONF_TOGGLE:
        parsed = parse_toggle(bare, &value->word, problem);
        break;
    default:
        parsed = parse_number(option, bare, &value->number, problem);
    }
    free(bare);
    return parsed;
}

static bool set(const struct conf_option *option, void *base, const char *text, bool expands, char *problem)
{
    union value value;
    if (!parse_value(option, text, expands, &value, problem)) {
        return false;
    }
    conf_value_free(option, base);
    memcpy(field(option, base), &value, value_size(option->type));
    return true;
}

bool conf_value_set(const struct conf_option *option, void *base, const char *text, char problem[CONF_PROBLEM_MAX])
{
    return set(option, base, text, false, problem);
}

bool conf_value_read(const struct conf_option *option, void *base, const char *text, char problem[CONF_PROBLEM_MAX])
{
    return set(option, base, text, true, problem);
}

char *conf_value_text(const struct conf_option *option, const void *base)
{
    union value value;
    memcpy(&value, const_field(option, base), value_size(option->type));
    switch (option->type) {
    case CONF_ADDRESS:
        return conf_address_text(&value.address);
    case CONF_ADDRESSES:
        return conf_addresses_text(&value.addresses);
    case CONF_STRING:
    case CONF_FILE:
        return string_text(value.string);
    case CONF_RATE:
        return rate_text(&value.rate);
    case CONF_WORD:
        return conf_format("%s", option->words[value.word]);
    case CONF_TOGGLE:
        return conf_format("%s", toggle_words[value.word][0]);
    default:
        return number_text(option->type, value.number);
    }
}

char *conf_value_shown(const struct conf_option *option, const void *base)
{
    char *text = conf_value_text(option, base), *shown = text;

    if (conf_option_hides(option) && *text != '\0') {
        shown = conf_format(CONF_SECRET_SHOWN);
    } else if (option->type == CONF_ADDRESS || option->type == CONF_ADDRESSES) {
        shown = conf_hidden_url(text);
    }
    if (shown != text) {
        free(text);
    }
    return shown;
}

bool conf_option_hides(const struct conf_option *option)
{
    return option->secret && option->type != CONF_FILE;
}

bool conf_option_is_settable(const struct conf_option *option)
{
    return option->reloadable && option->type != CONF_FILE && !option->is_guarded;
}

bool conf_value_is_of_file(const struct conf_section *section, const struct conf_option *option, const void *values)
{
    return conf_value_file(section, option, values) != NULL;
}

const struct conf_option *conf_value_file(const struct conf_section *section, const struct conf_option *option,
                                          const void *values)
{
    for (size_t i = 0; i < section->option_count; i++) {
        const struct conf_option *other = &section->options[i];
        const char *path;
        if (other->fills != NULL && strcmp(other->fills, option->name) == 0) {
            memcpy(&path, const_field(other, values), sizeof path);
            return *path != '\0' ? other : NULL;
        }
    }
    return NULL;
}

void conf_value_free(const struct conf_option *option, void *base)
{
    void *place = field(option, base);
    if (option->type == CONF_ADDRESS) {
        conf_address_free(place);
    } else if (option->type == CONF_ADDRESSES) {
        conf_addresses_free(place);
    } else if (is_text(option->type)) {
        char *string;
        memcpy(&string, place, sizeof string);
        if (string != NULL && option->secret) {
            explicit_bzero(string, strlen(string));
        }
        free(string);
        memset(place, 0, sizeof string);
    }
}

/* ---- What is expected ---- */

static char *expected_number(const struct conf_option *option, const char *kind, const char *examples)
{
    char *min = number_text(option->type, option->min);
    char *max = number_text(option->type, option->max);
    char *text = option->zero == NULL
                     ? conf_format("%s from %s to %s%s", kind, min, max, examples)
                     : conf_format("%s from %s to %s, or 0 (%s)%s", kind, min, max, option->zero, examples);
    free(min);
    free(max);
    return text;
}

static char *expected_word(const struct conf_option *option)
{
    char *text = conf_format("%s", option->words[0]);
    for (size_t i = 1; option->words[i] != NULL; i++) {
        char *longer = conf_format("%s%s%s", text, option->words[i + 1] == NULL ? " or " : ", ", option->words[i]);
        free(text);
        text = longer;
    }
    return text;
}

char *conf_value_expected(const struct conf_option *option)
{
    switch (option->type) {
    case CONF_ADDRESS:
        return conf_format("host:port, [IPv6]:port, unix:/path or a URL such as rediss://host%s%s",
                           option->zero != NULL ? "; nothing: " : "", option->zero != NULL ? option->zero : "");
    case CONF_ADDRESSES:
        return conf_format("%lld to %lld addresses with commas between, each host:port, [IPv6]:port, unix:/path or "
                           "rediss://host:port%s%s",
                           (long long)option->min, (long long)option->max, option->zero != NULL ? "; nothing: " : "",
                           option->zero != NULL ? option->zero : "");
    case CONF_STRING:
        return conf_format("text of up to %lld bytes, in double quotes if it holds ';' or '#' after a blank",
                           (long long)option->max);
    case CONF_FILE:
        return conf_format("the path of a file; a relative one starts at the directory of the ini file");
    case CONF_MODE:
        return expected_number(option, "an octal mode", ", such as 0700");
    case CONF_SIZE:
        return expected_number(option, "a size", ", in bytes or with kb, mb or gb");
    case CONF_TIME:
        return expected_number(option, "a time", ", with ms, s, m, h or d");
    case CONF_PERIOD:
        return expected_number(option, "a time", ", with us, ms, s, m, h or d");
    case CONF_AMOUNT:
        return expected_number(option, "a number", ", of bytes also with kb, mb or gb");
    case CONF_RATE:
        return conf_format("a number and a time such as 5/s, 100/250ms or 10mb/1m%s%s",
                           option->zero != NULL ? ", or 0: " : "", option->zero != NULL ? option->zero : "");
    case CONF_WORD:
        return expected_word(option);
    case CONF_TOGGLE:
        return conf_format("on or off (or yes, no, true, false, 1, 0)");
    default:
        return expected_number(option, "a number", "");
    }
}

void conf_value_copy(const struct conf_option *option, void *to, const void *from)
{
    char problem[CONF_PROBLEM_MAX];
    char *text = conf_value_text(option, from);
    bool set = conf_value_set(option, to, text, problem);

    assert(set);
    (void)set;
    free(text);
}

bool conf_value_equal(const struct conf_option *option, const void *a, const void *b)
{
    char *a_text = conf_value_text(option, a);
    char *b_text = conf_value_text(option, b);
    bool same = strcmp(a_text, b_text) == 0;

    free(a_text);
    free(b_text);
    return same;
}
