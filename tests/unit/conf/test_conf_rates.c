/* The values of options that are amounts, periods and rates. */
#include "../../rig/rig_random.h"
#include "conf/conf_table.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct numbers {
    int64_t number;
    struct conf_rate rate;
};

#define OPTION(what, kind, field, most, zero_word)                                                                     \
    {                                                                                                                  \
        .name = what, .type = kind, .offset = offsetof(struct numbers, field), .min = 1, .max = INT64_C(1) << (most),  \
        .zero = zero_word                                                                                              \
    }

static const struct conf_option amount = OPTION("amount", CONF_AMOUNT, number, 40, NULL);
static const struct conf_option period = OPTION("period", CONF_PERIOD, number, 50, NULL);
static const struct conf_option rate = OPTION("rate", CONF_RATE, rate, 40, NULL);
static const struct conf_option amount_or_0 = OPTION("amount", CONF_AMOUNT, number, 40, "off");
static const struct conf_option period_or_0 = OPTION("period", CONF_PERIOD, number, 50, "off");
static const struct conf_option rate_or_0 = OPTION("rate", CONF_RATE, rate, 40, "off");

/* Values, with bars between them: how they are written, what they are. */
static const struct {
    const struct conf_option *option;
    const char *values, *written;
    int64_t number, period_us;
} sound[] = {
    {&period, "1us", "1us", 1, 0},
    {&period, "1000us", "1ms", 1000, 0},
    {&period, "90m", "90m", INT64_C(5400000000), 0},
    {&period, "1h|60m", "1h", INT64_C(3600000000), 0},
    {&period, "30d", "30d", INT64_C(2592000000000), 0},
    {&period, "007s ; seven", "7s", 7000000, 0},
    {&period, "2.5ms", "2500us", 2500, 0},
    {&period_or_0, "0", "0", 0, 0},
    {&amount, "5", "5", 5, 0},
    {&amount, "1kb", "1024", 1024, 0},
    {&amount, "5k", "5000", 5000, 0},
    {&amount, "1.5 M", "1500000", 1500000, 0},
    {&amount_or_0, "0", "0", 0, 0},
    {&rate, "5/s|5/1s|5/s # five|5 / s|5/S", "5/s", 5, 1000000},
    {&rate, "100/250ms", "100/250ms", 100, 250000},
    {&rate, "1/h|1/1h|1/60m", "1/h", 1, INT64_C(3600000000)},
    {&rate, "3/us", "3/us", 3, 1},
    {&rate, "3/10s", "3/10s", 3, 10000000},
    {&rate, "10mb/m|10 MB / Min", "10485760/m", 10485760, 60000000},
    {&rate, "1/365d", "1/365d", 1, INT64_C(31536000000000)},
    {&rate, "1.5k/0.5 sec", "1500/500ms", 1500, 500000},
    {&rate_or_0, "0", "0", 0, 0},
};

static const struct {
    const struct conf_option *option;
    const char *values, *problem;
} faulty[] = {
    {&period, "", "is empty"},
    {&period_or_0, "5", "has no unit"},
    {&period, "0", "is too small"},
    {&period, "1.0000001s", "has more digits behind the point than count"},
    {&period, "5M", "has the unit \"M\", which is a month to some: m or min is a minute"},
    {&period, "5ns", "has no such unit as \"ns\""},
    {&period, "1125899906842625us|106751992d|18446744073709551617us|99999999999999999999999999d", "is too large"},
    {&amount, "", "is empty"},
    {&amount, "0", "is too small"},
    {&amount, "-1|kb|5.0", "is not a whole number"},
    {&amount, "5s", "has no such unit as \"s\""},
    {&amount, "1099511627777|9007199254740993kb|18446744073709551617", "is too large"},
    {&rate, "|/s|/| / s", "is empty"},
    {&rate, "0|5", "has no period"},
    {&rate_or_0, "5|00", "has no period"},
    {&rate, "5/|5/5|5/0|5 / ", "has a period without a unit"},
    {&rate_or_0, "0/s", "is too small"},
    {&rate, "5/0s", "has a period that is too short"},
    {&rate, "5/366d|5/18446744073709551617s", "has a period that is too long"},
    {&rate, "5/M", "has the unit \"M\", which is a month to some: m or min is a minute"},
    {&rate, "5/s/s", "has no such unit as \"s/s\""},
    {&rate, "5/-1s", "has no such unit as \"-1s\""},
    {&rate, "-5/s", "is not a whole number"},
    {&rate, "1099511627777/s|99999999999999999999/s", "is too large"},
};

Test(conf_rates, values)
{
    for (size_t i = 0; i < COUNT_OF(sound); i++) {
        char *copy = strdup(sound[i].values), *rest = copy;
        for (char *value = strsep(&rest, "|"); value != NULL; value = strsep(&rest, "|")) {
            struct numbers numbers = {0};
            char problem[CONF_PROBLEM_MAX] = "";
            cr_assert(conf_value_set(sound[i].option, &numbers, value, problem), "%s: %s", value, problem);
            cr_expect_eq(numbers.number + numbers.rate.amount, sound[i].number, "%s", value);
            cr_expect_eq(numbers.rate.period_us, sound[i].period_us, "%s", value);
            char *again = conf_value_text(sound[i].option, &numbers);
            cr_expect_str_eq(again, sound[i].written);
            free(again);
        }
        free(copy);
    }
}

/* The fields are as they were. */
Test(conf_rates, values_that_are_none)
{
    for (size_t i = 0; i < COUNT_OF(faulty); i++) {
        char *copy = strdup(faulty[i].values), *rest = copy;
        for (char *value = strsep(&rest, "|"); value != NULL; value = strsep(&rest, "|")) {
            struct numbers numbers = {77, {78, 79}};
            char problem[CONF_PROBLEM_MAX] = "";
            cr_expect_not(conf_value_set(faulty[i].option, &numbers, value, problem), "%s", value);
            cr_expect_str_eq(problem, faulty[i].problem, "%s %s: %s", faulty[i].option->name, value, problem);
            cr_expect(numbers.number == 77 && numbers.rate.amount == 78 && numbers.rate.period_us == 79);
        }
        free(copy);
    }
}

/* Writes the value and reads that: nothing is lost. */
static void assert_round_trip(const struct conf_option *option, const struct numbers *numbers)
{
    struct numbers again = *numbers, copy = *numbers;
    char problem[CONF_PROBLEM_MAX] = "";
    char *text = conf_value_text(option, numbers);

    memset((char *)&again + option->offset, 0, sizeof again.number);
    memset((char *)&copy + option->offset, 0, sizeof copy.number);
    cr_assert(conf_value_set(option, &again, text, problem), "%s %s: %s", option->name, text, problem);
    conf_value_copy(option, &copy, numbers);
    cr_assert(memcmp(&again, numbers, sizeof again) == 0 && memcmp(&copy, numbers, sizeof copy) == 0, "%s", text);
    free(text);
}

Test(conf_rates, are_written_as_they_are_read)
{
    static const int64_t units[] = {1, 10, 1000, 1000000, 60000000, INT64_C(3600000000), INT64_C(86400000000)};
    uint64_t seed = 11;

    for (int i = 0; i < 20000; i++) {
        struct numbers numbers = {0};
        int64_t some_period = (1 + (int64_t)(next_random(&seed) % 360)) * units[next_random(&seed) % 7];
        numbers.number = 1 + (int64_t)next_random(&seed);
        assert_round_trip(&amount, &numbers);
        numbers.rate = (struct conf_rate){numbers.number, some_period};
        assert_round_trip(&rate, &numbers);
        numbers.number = some_period;
        assert_round_trip(&period, &numbers);
    }
}
