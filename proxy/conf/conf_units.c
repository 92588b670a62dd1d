/*
 * Amounts with units, as people write them: 64kb, "10 MB", 1.5s, "1 Min". Units of sizes are those of redis.conf: k, m
 * and g are powers of 1000, kb, mb and gb (and kib, mib, gib) of 1024. Capitals are as good as small letters, but for a
 * single M of a time, which is a month to some programs and a minute to others.
 */
#include "conf/conf_private.h"

#include <string.h>
#include <strings.h>

/* From the largest to the smallest, so that printing can take the first that divides; in the end those that are only
 * read. */
struct unit {
    const char *suffix;
    int64_t factor;
    bool is_printed;
};

#define MS INT64_C(1)
#define MS_US INT64_C(1000)

/* base: one millisecond, in the unit that times are kept in. */
#define TIME_UNITS(base)                                                                                               \
    {"d", 86400000 * (base), true}, {"h", 3600000 * (base), true}, {"m", 60000 * (base), true},                        \
        {"s", 1000 * (base), true},                                                                                    \
    {                                                                                                                  \
        "ms", base, true                                                                                               \
    }
#define TIME_NAMES(base)                                                                                               \
    {"day", 86400000 * (base), false}, {"days", 86400000 * (base), false}, {"hour", 3600000 * (base), false},          \
        {"hours", 3600000 * (base), false}, {"hr", 3600000 * (base), false}, {"min", 60000 * (base), false},           \
        {"mins", 60000 * (base), false}, {"minute", 60000 * (base), false}, {"minutes", 60000 * (base), false},        \
        {"sec", 1000 * (base), false}, {"secs", 1000 * (base), false}, {"second", 1000 * (base), false},               \
        {"seconds", 1000 * (base), false}, {"msec", base, false}, {"millisecond", base, false},                        \
    {                                                                                                                  \
        "milliseconds", base, false                                                                                    \
    }

static const struct unit size_units[] = {
    {"gb", 1 << 30, true},    {"mb", 1 << 20, true},   {"kb", 1 << 10, true},   {"", 1, true},
    {"gib", 1 << 30, false},  {"mib", 1 << 20, false}, {"kib", 1 << 10, false}, {"b", 1, false},
    {"g", 1000000000, false}, {"m", 1000000, false},   {"k", 1000, false},      {NULL, 0, false},
};
static const struct unit time_units[] = {TIME_UNITS(MS), TIME_NAMES(MS), {NULL, 0, false}};
static const struct unit period_units[] = {TIME_UNITS(MS_US),  {"us", 1, true},           TIME_NAMES(MS_US),
                                           {"usec", 1, false}, {"microsecond", 1, false}, {"microseconds", 1, false},
                                           {NULL, 0, false}};

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

static const struct unit *find_unit(const struct unit *units, const char *suffix)
{
    for (; units->suffix != NULL; units++) {
        if (strcasecmp(units->suffix, suffix) == 0) {
            return units;
        }
    }
    return NULL;
}

/* What stands behind the point, as so many of 10^digits. */
struct fraction {
    int64_t number;
    int64_t scale; /* 1: there is none */
};

/* Up to nine digits; false if there are none, or more. */
static bool read_fraction(const char **text, struct fraction *fraction)
{
    *fraction = (struct fraction){0, 1};
    if (**text != '.') {
        return true;
    }
    const char *end = conf_read_digits(*text + 1, 10, &fraction->number);
    ptrdiff_t digits = end - *text - 1;
    for (ptrdiff_t i = 0; i < digits && i < 9; i++) {
        fraction->scale *= 10;
    }
    *text = end;
    return digits > 0 && digits <= 9;
}

/* Adds the fraction of a unit; what is too large stays the largest there is. */
static bool scale(int64_t *value, struct fraction fraction, const struct unit *unit, char *problem)
{
    int64_t part = fraction.number % fraction.scale, whole;

    /* 10^9 times the longest unit is less than 2^63, but for days in microseconds. */
    if (__builtin_mul_overflow(part, unit->factor, &part)) {
        return conf_wrong(problem, "has more digits behind the point than can be read");
    }
    if (part % fraction.scale != 0) {
        return conf_wrong(problem, "has more digits behind the point than count");
    }
    if (__builtin_mul_overflow(*value, unit->factor, &whole) ||
        __builtin_add_overflow(whole, part / fraction.scale, value)) {
        *value = INT64_MAX;
    }
    return true;
}

static bool apply(enum conf_type type, const char *suffix, struct fraction fraction, int64_t *value, char *problem)
{
    const struct unit *units = units_of(type), *unit = find_unit(units, suffix);
    bool is_size = units == size_units;

    if (*suffix == '\0' && fraction.scale > 1) {
        return conf_wrong(problem, "is not a whole number");
    }
    if (*suffix == '\0' && !is_size) {
        return *value == 0 || conf_wrong(problem, "has no unit");
    }
    if (!is_size && strcmp(suffix, "M") == 0) {
        return conf_wrong(problem, "has the unit \"M\", which is a month to some: m or min is a minute");
    }
    if (unit == NULL) {
        return conf_wrong(problem, "has no such unit as \"%.120s\"", suffix);
    }
    return scale(value, fraction, unit, problem);
}

bool conf_units_apply(enum conf_type type, const char *rest, int64_t *value, char *problem)
{
    struct fraction fraction;

    if (!read_fraction(&rest, &fraction)) {
        return conf_wrong(problem, "is not a number");
    }
    return apply(type, rest + strspn(rest, CONF_BLANKS), fraction, value, problem);
}

bool conf_units_has(enum conf_type type)
{
    return units_of(type) != NULL;
}

char *conf_units_text(enum conf_type type, int64_t value)
{
    const struct unit *unit = units_of(type);

    while (!unit->is_printed || value % unit->factor != 0) {
        unit++;
    }
    return conf_format("%lld%s", (long long)(value / unit->factor), unit->suffix);
}
