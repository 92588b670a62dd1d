/* Scores of semaphores: read and written as Redis does, and what they say of when a permit was taken or ends. */
#include "lease/lease_score.h"
#include "lease_request.h"

#include <criterion/criterion.h>
#include <math.h>

#define WALL_US INT64_C(1700000000000000)
#define SECOND INT64_C(1000000)

static bool reads(const char *text, double *value)
{
    return lease_score_read(slice_of(text), value);
}

Test(lease_score, is_read_as_redis_reads_it)
{
    static const struct {
        const char *text;
        double value;
    } sound[] = {{"0", 0},      {"1700000000", 1700000000},       {"-3.5", -3.5}, {"+7", 7},
                 {"1e3", 1000}, {"1700000000.25", 1700000000.25}, {"0x10", 16},   {".5", 0.5}};
    static const char *const unsound[] = {"",     " 1",  "1 ",  "1x",    "abc", "inf", "-inf",
                                          "+inf", "nan", "NaN", "1e999", "(1",  "-",   "1,5"};
    double value = 0;

    for (size_t i = 0; i < sizeof sound / sizeof sound[0]; i++) {
        cr_assert(reads(sound[i].text, &value), "%s", sound[i].text);
        cr_assert_eq(value, sound[i].value, "%s", sound[i].text);
    }
    for (size_t i = 0; i < sizeof unsound / sizeof unsound[0]; i++) {
        cr_assert_not(reads(unsound[i], &value), "%s", unsound[i]);
    }
    cr_assert_not(lease_score_read((struct slice){"1\0002", 3}, &value));
}

Test(lease_score, of_any_length_is_borne)
{
    char text[5000];
    double value;

    memset(text, '1', sizeof text);
    for (size_t length = 1; length < sizeof text; length++) {
        (void)lease_score_read((struct slice){text, length}, &value);
    }
}

Test(lease_score, is_written_so_that_the_same_is_read)
{
    static const double values[] = {0,
                                    -0.0,
                                    1,
                                    1700000000.1234567,
                                    1700000000123.4567,
                                    1e300,
                                    -1e-300,
                                    0.1,
                                    1.0 / 3,
                                    9007199254740993.0,
                                    5e-324,
                                    1.7976931348623157e308};
    char text[LEASE_SCORE_TEXT_MAX];
    uint32_t random = 3;

    for (size_t i = 0; i < 10000; i++) {
        size_t count = sizeof values / sizeof values[0];
        double value = i < count ? values[i] : 1.7e9 + (double)next_random(&random) / (double)next_random(&random);
        double again;
        size_t length = lease_score_write(text, value);
        cr_assert_lt(length, (size_t)LEASE_SCORE_TEXT_MAX);
        cr_assert(lease_score_read((struct slice){text, length}, &again));
        cr_assert_eq(again, value, "%s", text);
    }
}

/* Expects the kind and the lease; lease_s 0: it tells nothing. */
static void assert_told(const struct lease_rule *rule, double value, const double *reaped, enum lease_kind kind,
                        double lease_s)
{
    struct lease_score score = {0};
    bool told = lease_score_tell(&score, rule, value, reaped, WALL_US);

    cr_assert_eq(told, lease_s > 0, "%f", value);
    if (told) {
        cr_assert_eq(score.kind, kind, "%f", value);
        cr_assert_float_eq((double)score.lease_us / 1e6, lease_s, 1e-3, "%f: %lld", value, (long long)score.lease_us);
        cr_assert_eq(score.value, value);
        cr_assert_eq(score.measured, reaped != NULL || kind == LEASE_SEMAPHORE_BY_EXPIRY);
    }
}

Test(lease_score, tells_start_from_expiry)
{
    const struct lease_rule rule = {.terms = {.ttl_us = 30 * SECOND}};
    const double now = 1700000000, before = now - 10, later = now + 10;

    /* Who sweeps up to now - lease scores by the start; who sweeps up to now, by the end. */
    assert_told(&rule, now, &before, LEASE_SEMAPHORE_BY_START, 10);
    assert_told(&rule, now - 1, &before, LEASE_SEMAPHORE_BY_START, 9);
    assert_told(&rule, later, &now, LEASE_SEMAPHORE_BY_EXPIRY, 10);
    assert_told(&rule, now, NULL, LEASE_SEMAPHORE_BY_START, 30);
    assert_told(&rule, now - 100, NULL, LEASE_SEMAPHORE_BY_START, 30);
    /* Clocks differ. */
    assert_told(&rule, now + 1.9, NULL, LEASE_SEMAPHORE_BY_START, 30);
    assert_told(&rule, later, NULL, LEASE_SEMAPHORE_BY_EXPIRY, 10);
    assert_told(&rule, 1000 * later, NULL, LEASE_SEMAPHORE_BY_EXPIRY, 10);
    /* No lease, and no time. */
    assert_told(&rule, now, &later, LEASE_SEMAPHORE_BY_START, 0);
    assert_told(&rule, now, &now, LEASE_SEMAPHORE_BY_START, 0);
    assert_told(&rule, 17, NULL, LEASE_SEMAPHORE_BY_START, 0);
    const double long_ago = 0;
    assert_told(&rule, now, &long_ago, LEASE_SEMAPHORE_BY_START, 0);
}

Test(lease_score, moves_in_its_own_unit)
{
    static const struct {
        double value;
        int64_t unit_us;
        double second_later;
    } cases[] = {
        {1700000000.25, SECOND, 1700000001.25}, {1700000000250, 1000, 1700000001250}, {17e14, 1, 1700000001e6}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct lease_score score = {.value = cases[i].value, .unit_us = cases[i].unit_us};
        cr_assert_eq(lease_score_later(&score, SECOND), cases[i].second_later);
        cr_assert_eq(lease_score_later(&score, 0), cases[i].value);
        cr_assert_eq(lease_score_distance(&score, cases[i].second_later), SECOND);
        score.value = cases[i].second_later;
        cr_assert_eq(lease_score_distance(&score, cases[i].value), -SECOND);
        cr_assert_eq(lease_score_distance(&score, 1e308), LEASE_MS_MAX * 1000);
        cr_assert_eq(lease_score_distance(&score, -1e308), -LEASE_MS_MAX * 1000);
    }
}
