/* Option values: from text, to text, and what they may be. */
#include "conf.h"
#include "conf_table.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#define HOST_MAX 253
#define BLANKS " \t"

struct unit {
    const char *suffix;
    int64_t factor;
};

/* From the largest to the smallest, so that printing can take the first that divides. */
static const struct unit size_units[] = {{"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}, {"", 1}, {NULL, 0}};
static const struct unit time_units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000},
                                         {"s", 1000},     {"ms", 1},      {NULL, 0}};
static const struct unit period_units[] = {{"d", INT64_C(86400000000)},
                                           {"h", INT64_C(3600000000)},
                                           {"m", 60000000},
                                           {"s", 1000000},
                                           {"ms", 1000},
                                           {"us", 1},
                                           {NULL, 0}};
/* Of a rate's period. */
#define PERIOD_MAX_US (INT64_C(365) * 86400000000)

static_assert(sizeof(enum conf_pool) == sizeof(int), "CONF_WORD fields are written as int");

static _Noreturn void out_of_memory(void)
{
    fputs("headgate: out of memory for the configuration\n", stderr);
    abort();
}

void *conf_alloc(void *old, size_t size)
{
    void *memory = realloc(old, size > 0 ? size : 1);
    if (memory == NULL) {
        out_of_memory();
    }
    return memory;
}

char *conf_vformat(const char *format, va_list arguments)
{
    char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0) {
        out_of_memory();
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

static char *copy_bytes(const char *text, size_t length)
{
    char *copy = conf_alloc(NULL, length + 1);
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

static void *field(const struct conf_option *option, void *base)
{
    return (char *)base + option->offset;
}

static const void *const_field(const struct conf_option *option, const void *base)
{
    return (const char *)base + option->offset;
}

__attribute__((format(printf, 2, 3))) static bool wrong(char problem[CONF_PROBLEM_MAX], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, CONF_PROBLEM_MAX, format, arguments);
    va_end(arguments);
    return false;
}

/* Where a comment starts after a value: at a ';' or '#' that follows a blank or opens the value. Else the text's end.
 */
static const char *comment_start(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        bool after_blank = at == text || strchr(BLANKS, at[-1]) != NULL;
        if (after_blank && (*at == ';' || *at == '#')) {
            return at;
        }
    }
    return text + strlen(text);
}

static char *without_comment(const char *text)
{
    size_t length = (size_t)(comment_start(text) - text);
    while (length > 0 && strchr(BLANKS, text[length - 1]) != NULL) {
        length--;
    }
    return copy_bytes(text, length);
}

/* ---- Numbers ---- */

/* Reads digits of the base; a number too large for int64_t becomes the largest one. Returns the first other character.
 */
static const char *read_digits(const char *text, int base, int64_t *value)
{
    *value = 0;
    for (; *text >= '0' && *text < '0' + base; text++) {
        if (__builtin_mul_overflow(*value, base, value) || __builtin_add_overflow(*value, *text - '0', value)) {
            *value = INT64_MAX;
        }
    }
    return text;
}

static const struct unit *find_unit(const struct unit *units, const char *suffix, bool any_case)
{
    for (; units->suffix != NULL; units++) {
        if ((any_case ? strcasecmp(units->suffix, suffix) : strcmp(units->suffix, suffix)) == 0) {
            return units;
        }
    }
    return NULL;
}

/* NULL: numbers of the type have none. */
static const struct unit *units_of(enum conf_type type)
{
    switch (type) {
    case CONF_SIZE:
    case CONF_AMOUNT:
        return size_units;
    case CONF_TIME:
        return time_units;
    case CONF_PERIOD:
        return period_units;
    default:
        return NULL;
    }
}

static bool apply_unit(const struct unit *units, const char *suffix, int64_t *value, char *problem)
{
    bool is_size = units == size_units;
    if (*suffix == '\0' && !is_size) {
        return *value == 0 || wrong(problem, "has no unit");
    }
    const struct unit *unit = find_unit(units, suffix, is_size);
    if (unit == NULL) {
        return wrong(problem, "has no such unit as \"%.120s\"", suffix);
    }
    if (__builtin_mul_overflow(*value, unit->factor, value)) {
        *value = INT64_MAX;
    }
    return true;
}

static bool parse_number(const struct conf_option *option, const char *text, int64_t *value, char *problem)
{
    if (*text == '\0') {
        return wrong(problem, "is empty");
    }
    const char *rest = read_digits(text, option->type == CONF_MODE ? 8 : 10, value);
    const struct unit *units = units_of(option->type);
    if (rest == text || (units == NULL && *rest != '\0')) {
        return wrong(problem, option->type == CONF_MODE ? "is not an octal number" : "is not a whole number");
    }
    if (units != NULL && !apply_unit(units, rest, value, problem)) {
        return false;
    }
    if (*value == 0 && option->zero != NULL) {
        return true;
    }
    if (*value < option->min || *value > option->max) {
        return wrong(problem, "is too %s", *value < option->min ? "small" : "large");
    }
    return true;
}

static char *number_text(enum conf_type type, int64_t value)
{
    if (type == CONF_MODE) {
        return conf_format("%04llo", (unsigned long long)value);
    }
    const struct unit *unit = units_of(type);
    if (unit == NULL || type == CONF_AMOUNT || value == 0) {
        return conf_format("%lld", (long long)value);
    }
    while (value % unit->factor != 0) {
        unit++;
    }
    return conf_format("%lld%s", (long long)(value / unit->factor), unit->suffix);
}

/* ---- Rates ---- */

/* The period: a time, or a unit alone for one of it. */
static bool parse_period(const char *text, int64_t *period_us, char *problem)
{
    const char *suffix = read_digits(text, 10, period_us);
    if (suffix == text) {
        *period_us = 1;
    }
    if (*suffix == '\0') {
        return wrong(problem, "has a period without a unit");
    }
    if (!apply_unit(period_units, suffix, period_us, problem)) {
        return false;
    }
    if (*period_us < 1 || *period_us > PERIOD_MAX_US) {
        return wrong(problem, "has a period that is too %s", *period_us < 1 ? "short" : "long");
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
        return none || wrong(problem, *text == '\0' ? "is empty" : "has no period");
    }
    *slash = '\0';
    return parse_number(&amount, text, &rate->amount, problem) && parse_period(slash + 1, &rate->period_us, problem);
}

static char *rate_text(const struct conf_rate *rate)
{
    if (rate->amount == 0) {
        return copy_bytes("0", 1);
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
        if (strcmp(option->words[i], text) == 0) {
            *value = i;
            return true;
        }
    }
    return wrong(problem, *text == '\0' ? "is empty" : "is not one of the known words");
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
        at += strspn(at, BLANKS);
        if (*comment_start(at) == *at) {
            return result;
        }
    }
    free(result);
    return NULL;
}

/* A comment after an unquoted string is refused: a password may well hold a ';', and cutting it would go unseen. */
static bool parse_string(const struct conf_option *option, const char *text, char **value, char *problem)
{
    if (option->secret && strcmp(text, CONF_SECRET_SHOWN) == 0) {
        return wrong(problem, "is what a hidden secret is shown as, not the secret");
    }
    if (*text != '"' && *comment_start(text) != '\0') {
        return wrong(problem, "holds a ';' or '#' that could be a comment");
    }
    char *result = *text == '"' ? unquote(text) : copy_bytes(text, strlen(text));
    if (result == NULL) {
        return wrong(problem, "starts with a double quote but does not end with one");
    }
    size_t length = strlen(result);
    if (length > (size_t)option->max) {
        free(result);
        return wrong(problem, "has %zu bytes", length);
    }
    *value = result;
    return true;
}

static bool needs_quotes(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && (*text == '"' || *comment_start(text) != '\0' || strchr(BLANKS, *text) != NULL ||
                          strchr(BLANKS, text[length - 1]) != NULL || strcmp(text, CONF_SECRET_SHOWN) == 0);
}

static char *string_text(const char *text)
{
    if (!needs_quotes(text)) {
        return copy_bytes(text, strlen(text));
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

/* ---- Addresses ---- */

static void free_address(struct conf_address *address)
{
    free(address->host);
    free(address->path);
    free(address->text);
    *address = (struct conf_address){0};
}

bool conf_address_equal(const struct conf_address *a, const struct conf_address *b)
{
    if (a->path != NULL || b->path != NULL) {
        return a->path != NULL && b->path != NULL && strcmp(a->path, b->path) == 0;
    }
    if (a->host == NULL || b->host == NULL) {
        return a->host == b->host;
    }
    return a->port == b->port && strcasecmp(a->host, b->host) == 0;
}

static bool parse_unix(const char *path, struct conf_address *address, char *problem)
{
    const size_t longest = sizeof((struct sockaddr_un *)NULL)->sun_path - 1;
    if (path[0] != '/' || path[1] == '\0') {
        return wrong(problem, "\"unix:%.120s\" is not an absolute path", path);
    }
    if (strlen(path) > longest) {
        return wrong(problem, "the path of the Unix socket has %zu bytes, more than %zu", strlen(path), longest);
    }
    address->path = copy_bytes(path, strlen(path));
    return true;
}

static bool parse_port(const char *text, uint16_t *port, char *problem)
{
    int64_t value = 0;
    const char *rest = read_digits(text, 10, &value);
    if (rest == text || *rest != '\0') {
        return wrong(problem, "port \"%.120s\" is not a number", text);
    }
    if (value < 1 || value > UINT16_MAX) {
        return wrong(problem, "port %.20s is not from 1 to 65535", text);
    }
    *port = (uint16_t)value;
    return true;
}

/* Returns the address in its shortest spelling, so that equal ones compare equal; a %scope is kept. NULL: not IPv6. */
static char *canonical_ipv6(const char *text)
{
    size_t length = strcspn(text, "%");
    char *bare = copy_bytes(text, length);
    struct in6_addr address;
    char shortest[INET6_ADDRSTRLEN];
    bool valid = inet_pton(AF_INET6, bare, &address) == 1 && strcmp(text + length, "%") != 0;
    free(bare);
    if (!valid) {
        return NULL;
    }
    inet_ntop(AF_INET6, &address, shortest, sizeof shortest);
    return conf_format("%s%s", shortest, text + length);
}

static bool valid_host(const char *host)
{
    static const char digits[] = "0123456789.";
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t length = strlen(host);
    if (length == 0 || length > HOST_MAX || host[0] == '.' || host[0] == '-' || strstr(host, "..") != NULL) {
        return false;
    }
    if (strspn(host, digits) == length) {
        struct in_addr address;
        return inet_pton(AF_INET, host, &address) == 1;
    }
    return strspn(host, letters) == length;
}

/* Takes host as its own. */
static bool take_host(char *host, const char *port, struct conf_address *address, char *problem)
{
    bool bracketed = strchr(host, ':') != NULL;
    if (!bracketed && !valid_host(host)) {
        wrong(problem, "\"%.120s\" is neither a host name nor an IPv4 address", host);
    } else if (parse_port(port, &address->port, problem)) {
        address->host = host;
        return true;
    }
    free(host);
    return false;
}

static bool parse_tcp(const char *text, struct conf_address *address, char *problem)
{
    const char *colon = strrchr(text, ':');
    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        char *inside = close == NULL ? NULL : copy_bytes(text + 1, (size_t)(close - text - 1));
        char *host = inside == NULL ? NULL : canonical_ipv6(inside);
        free(inside);
        if (host == NULL) {
            return wrong(problem, "\"%.120s\" holds no IPv6 address in brackets", text);
        }
        if (close[1] != ':') {
            free(host);
            return wrong(problem, "\"%.120s\" has no port", text);
        }
        return take_host(host, close + 2, address, problem);
    }
    if (colon == NULL) {
        return wrong(problem, "\"%.120s\" has no port", text);
    }
    if (strchr(text, ':') != colon) {
        return wrong(problem, "\"%.120s\" holds an IPv6 address without brackets, or too many colons", text);
    }
    return take_host(copy_bytes(text, (size_t)(colon - text)), colon + 1, address, problem);
}

static bool parse_address(const char *text, struct conf_address *address, char *problem)
{
    *address = (struct conf_address){0};
    if (text[strcspn(text, BLANKS ",")] != '\0') {
        return wrong(problem, "holds a blank or a comma");
    }
    bool parsed =
        strncmp(text, "unix:", 5) == 0 ? parse_unix(text + 5, address, problem) : parse_tcp(text, address, problem);
    if (parsed) {
        address->text = copy_bytes(text, strlen(text));
    }
    return parsed;
}

/* The one address of an option, which may do without. */
static bool parse_lone_address(const struct conf_option *option, const char *text, struct conf_address *address,
                               char *problem)
{
    if (*text != '\0') {
        return parse_address(text, address, problem);
    }
    if (option->zero == NULL) {
        return wrong(problem, "is empty");
    }
    *address = (struct conf_address){.text = copy_bytes("", 0)};
    return true;
}

static void free_addresses(struct conf_address_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free_address(&list->items[i]);
    }
    list->count = 0;
}

static bool add_address(struct conf_address_list *list, const char *text, size_t length, char *problem)
{
    if (list->count == CONF_ADDRESSES_MAX) {
        return wrong(problem, "holds more than %d addresses", CONF_ADDRESSES_MAX);
    }
    if (length == 0) {
        return wrong(problem, "has no address beside a comma");
    }
    struct conf_address address;
    char *item = copy_bytes(text, length);
    bool parsed = parse_address(item, &address, problem);
    free(item);
    if (!parsed) {
        return false;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (conf_address_equal(&list->items[i], &address)) {
            wrong(problem, "holds %.120s twice", address.text);
            free_address(&address);
            return false;
        }
    }
    list->items[list->count++] = address;
    return true;
}

/* Addresses stand apart by blanks, or by a comma with any blanks. */
static bool parse_addresses(const struct conf_option *option, const char *text, struct conf_address_list *list,
                            char *problem)
{
    *list = (struct conf_address_list){0};
    bool more = *text != '\0';
    while (more) {
        size_t length = strcspn(text, BLANKS ",");
        if (!add_address(list, text, length, problem)) {
            free_addresses(list);
            return false;
        }
        text += length;
        text += strspn(text, BLANKS);
        more = *text != '\0';
        if (*text == ',') {
            text++;
            text += strspn(text, BLANKS);
        }
    }
    return list->count >= (size_t)option->min || wrong(problem, "is empty");
}

static char *addresses_text(const struct conf_address_list *list)
{
    char *text = copy_bytes("", 0);
    for (size_t i = 0; i < list->count; i++) {
        char *longer = conf_format("%s%s%s", text, i > 0 ? ", " : "", list->items[i].text);
        free(text);
        text = longer;
    }
    return text;
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
        return sizeof(char *);
    case CONF_RATE:
        return sizeof(struct conf_rate);
    case CONF_WORD:
        return sizeof(int);
    default:
        return sizeof(int64_t);
    }
}

static bool parse_value(const struct conf_option *option, const char *text, union value *value, char *problem)
{
    if (option->type == CONF_STRING) {
        return parse_string(option, text, &value->string, problem);
    }
    char *bare = without_comment(text);
    bool parsed = false;
    switch (option->type) {
    case CONF_ADDRESS:
        parsed = parse_lone_address(option, bare, &value->address, problem);
        break;
    case CONF_ADDRESSES:
        parsed = parse_addresses(option, bare, &value->addresses, problem);
        break;
    case CONF_RATE:
        parsed = parse_rate(option, bare, &value->rate, problem);
        break;
    case CONF_WORD:
        parsed = parse_word(option, bare, &value->word, problem);
        break;
    default:
        parsed = parse_number(option, bare, &value->number, problem);
    }
    free(bare);
    return parsed;
}

bool conf_value_set(const struct conf_option *option, void *base, const char *text, char problem[CONF_PROBLEM_MAX])
{
    union value value;
    if (!parse_value(option, text, &value, problem)) {
        return false;
    }
    conf_value_free(option, base);
    memcpy(field(option, base), &value, value_size(option->type));
    return true;
}

char *conf_value_text(const struct conf_option *option, const void *base)
{
    union value value;
    memcpy(&value, const_field(option, base), value_size(option->type));
    switch (option->type) {
    case CONF_ADDRESS:
        return conf_format("%s", value.address.text);
    case CONF_ADDRESSES:
        return addresses_text(&value.addresses);
    case CONF_STRING:
        return string_text(value.string);
    case CONF_RATE:
        return rate_text(&value.rate);
    case CONF_WORD:
        return conf_format("%s", option->words[value.word]);
    default:
        return number_text(option->type, value.number);
    }
}

void conf_value_free(const struct conf_option *option, void *base)
{
    void *place = field(option, base);
    if (option->type == CONF_ADDRESS) {
        free_address(place);
    } else if (option->type == CONF_ADDRESSES) {
        free_addresses(place);
    } else if (option->type == CONF_STRING) {
        char *string;
        memcpy(&string, place, sizeof string);
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
        return conf_format("host:port, [IPv6]:port or unix:/path%s%s", option->zero != NULL ? "; nothing: " : "",
                           option->zero != NULL ? option->zero : "");
    case CONF_ADDRESSES:
        return conf_format("%lld to %lld addresses with commas between, each host:port, [IPv6]:port or unix:/path%s%s",
                           (long long)option->min, (long long)option->max, option->zero != NULL ? "; nothing: " : "",
                           option->zero != NULL ? option->zero : "");
    case CONF_STRING:
        return conf_format("text of up to %lld bytes, in double quotes if it holds ';' or '#' after a blank",
                           (long long)option->max);
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
    default:
        return expected_number(option, "a number", "");
    }
}
