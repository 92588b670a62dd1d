/* The values of options that are amounts, periods and rates. */
#include "../../rig/rig_random.h"
#include "conf/conf_table.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct numbers {
    int64_t number;
    struct conf_rate rate;
};

static const struct conf_option amount = {.name = "amount",
                                          .type = CONF_AMOUNT,
                                          .offset = offsetof(struct numbers, number),
                                          .min = 1,
                                          .max = INT64_C(1) << 40};
static const struct conf_option period = {.name = "period",
                                          .type = CONF_PERIOD,
                                          .offset = offsetof(struct numbers, number),
                                          .min = 1,
                                          .max = INT64_C(1) << 50};
static const struct conf_option rate = {
    .name = "rate", .type = CONF_RATE, .offset = offsetof(struct numbers, rate), .min = 1, .max = INT64_C(1) << 40};

static struct conf_option or_zero(struct conf_option option)
{
    option.zero = "off";
    return option;
}

/* That this text is read as the value, and how that is written. */
static void assert_number(struct conf_option option, const char *text, int64_t value, const char *written)
{
    struct numbers numbers = {-1, {0, 0}};
    char problem[CONF_PROBLEM_MAX] = "";

    cr_assert(conf_value_set(&option, &numbers, text, problem), "%s %s: %s", option.name, text, problem);
    cr_assert_eq(numbers.number, value, "%s %s is %lld", option.name, text, (long long)numbers.number);
    char *again = conf_value_text(&option, &numbers);
    cr_assert_str_eq(again, written);
    free(again);
}

static void assert_rate(const char *text, int64_t expected_amount, int64_t period_us, const char *written)
{
    struct numbers numbers = {0};
    char problem[CONF_PROBLEM_MAX] = "";
    struct conf_option option = or_zero(rate);

    cr_assert(conf_value_set(&option, &numbers, text, problem), "%s: %s", text, problem);
    cr_assert(numbers.rate.amount == expected_amount && numbers.rate.period_us == period_us, "%s is %lld in %lld us",
              text, (long long)numbers.rate.amount, (long long)numbers.rate.period_us);
    char *again = conf_value_text(&option, &numbers);
    cr_assert_str_eq(again, written);
    free(again);
}

/* The fields are as they were. */
static void assert_problem(struct conf_option option, const char *text, const char *expected)
{
    struct numbers numbers = {77, {78, 79}};
    char problem[CONF_PROBLEM_MAX] = "";

    cr_assert_not(conf_value_set(&option, &numbers, text, problem), "%s %s", option.name, text);
    cr_assert_str_eq(problem, expected, "%s %s: %s", option.name, text, problem);
    cr_assert(numbers.number == 77 && numbers.rate.amount == 78 && numbers.rate.period_us == 79);
}

Test(conf_rates, periods)
{
    assert_number(period, "1us", 1, "1us");
    assert_number(period, "1000us", 1000, "1ms");
    assert_number(period, "90m", INT64_C(5400000000), "90m");
    assert_number(period, "1h", INT64_C(3600000000), "1h");
    assert_number(period, "30d", INT64_C(2592000000000), "30d");
    assert_number(period, "007s ; seven", 7000000, "7s");
    assert_number(period, "2.5ms", 2500, "2500us");
    assert_number(or_zero(period), "0", 0, "0");

    assert_problem(period, "", "is empty");
    assert_problem(period, "5", "has no unit");
    assert_problem(or_zero(period), "5", "has no unit");
    assert_problem(period, "0", "is too small");
    assert_problem(period, "1.0000001s", "has more digits behind the point than count");
    assert_problem(period, "5M", "has the unit \"M\", which is a month to some: m or min is a minute");
    assert_problem(period, "5ns", "has no such unit as \"ns\"");
    assert_problem(period, "1125899906842625us", "is too large");
    assert_problem(period, "106751992d", "is too large");
    assert_problem(period, "18446744073709551617us", "is too large");
    assert_problem(period, "99999999999999999999999999d", "is too large");
}

Test(conf_rates, amounts)
{
    assert_number(amount, "5", 5, "5");
    assert_number(amount, "1kb", 1024, "1024");
    assert_number(amount, "10MB", 10485760, "10485760");
    assert_number(amount, "5k", 5000, "5000");
    assert_number(amount, "1.5 M", 1500000, "1500000");
    assert_number(or_zero(amount), "0", 0, "0");

    assert_problem(amount, "", "is empty");
    assert_problem(amount, "0", "is too small");
    assert_problem(amount, "-1", "is not a whole number");
    assert_problem(amount, "kb", "is not a whole number");
    assert_problem(amount, "5s", "has no such unit as \"s\"");
    assert_problem(amount, "5.0", "is not a whole number");
    assert_problem(amount, "1099511627777", "is too large");
    assert_problem(amount, "9007199254740993kb", "is too large");
    assert_problem(amount, "18446744073709551617", "is too large");
}

Test(conf_rates, rates)
{
    assert_rate("5/s", 5, 1000000, "5/s");
    assert_rate("5/1s", 5, 1000000, "5/s");
    assert_rate("100/250ms", 100, 250000, "100/250ms");
    assert_rate("1/1h", 1, INT64_C(3600000000), "1/h");
    assert_rate("1/h", 1, INT64_C(3600000000), "1/h");
    assert_rate("1/60m", 1, INT64_C(3600000000), "1/h");
    assert_rate("3/us", 3, 1, "3/us");
    assert_rate("3/ms", 3, 1000, "3/ms");
    assert_rate("3/10s", 3, 10000000, "3/10s");
    assert_rate("3/100ms", 3, 100000, "3/100ms");
    assert_rate("7/12d", 7, INT64_C(1036800000000), "7/12d");
    assert_rate("10mb/m", 10485760, 60000000, "10485760/m");
    assert_rate("1/365d", 1, INT64_C(31536000000000), "1/365d");
    assert_rate("5/s # five", 5, 1000000, "5/s");
    assert_rate("5 / s", 5, 1000000, "5/s");
    assert_rate("5/S", 5, 1000000, "5/s");
    assert_rate("10 MB / Min", 10485760, 60000000, "10485760/m");
    assert_rate("1.5k/0.5 sec", 1500, 500000, "1500/500ms");
    assert_rate("0", 0, 0, "0");
}

Test(conf_rates, rates_that_are_none)
{
    assert_problem(rate, "", "is empty");
    assert_problem(or_zero(rate), "", "is empty");
    assert_problem(rate, "0", "has no period");
    assert_problem(rate, "5", "has no period");
    assert_problem(or_zero(rate), "5", "has no period");
    assert_problem(or_zero(rate), "00", "has no period");
    assert_problem(rate, "5/", "has a period without a unit");
    assert_problem(rate, "5/5", "has a period without a unit");
    assert_problem(rate, "/s", "is empty");
    assert_problem(rate, "/", "is empty");
    assert_problem(rate, "0/s", "is too small");
    assert_problem(or_zero(rate), "0/s", "is too small");
    assert_problem(rate, "5/0s", "has a period that is too short");
    assert_problem(rate, "5/0", "has a period without a unit");
    assert_problem(rate, "5/366d", "has a period that is too long");
    assert_problem(rate, "5/18446744073709551617s", "has a period that is too long");
    assert_problem(rate, "5/x", "has no such unit as \"x\"");
    assert_problem(rate, "5/M", "has the unit \"M\", which is a month to some: m or min is a minute");
    assert_problem(rate, "5/s/s", "has no such unit as \"s/s\"");
    assert_problem(rate, "5//s", "has no such unit as \"/s\"");
    assert_problem(rate, "5 / ", "has a period without a unit");
    assert_problem(rate, " / s", "is empty");
    assert_problem(rate, "-5/s", "is not a whole number");
    assert_problem(rate, "5/-1s", "has no such unit as \"-1s\"");
    assert_problem(rate, "1099511627777/s", "is too large");
    assert_problem(rate, "99999999999999999999/s", "is too large");
}

/* Writes the value and reads that: nothing is lost. */
static void assert_round_trip(const struct conf_option *option, const struct numbers *numbers)
{
    struct numbers again = {0}, copy = {0};
    char problem[CONF_PROBLEM_MAX] = "";
    char *text = conf_value_text(option, numbers);

    cr_assert(conf_value_set(option, &again, text, problem), "%s %s: %s", option->name, text, problem);
    conf_value_copy(option, &copy, numbers);
    if (option->type == CONF_RATE) {
        cr_assert(again.rate.amount == numbers->rate.amount && again.rate.period_us == numbers->rate.period_us, "%s",
                  text);
        cr_assert(copy.rate.amount == numbers->rate.amount && copy.rate.period_us == numbers->rate.period_us);
    } else {
        cr_assert_eq(again.number, numbers->number, "%s", text);
        cr_assert_eq(copy.number, numbers->number);
    }
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
