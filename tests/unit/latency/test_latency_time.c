#include "latency/latency_time.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NOW INT64_C(1700000000)

static int64_t read_time(const char *text)
{
    int64_t time_s;

    return latency_time_read((struct slice){text, strlen(text)}, NOW, &time_s) ? time_s : -1;
}

Test(latency_time, is_read_in_several_forms)
{
    cr_assert_eq(read_time("now"), NOW);
    cr_assert_eq(read_time("NOW"), NOW);
    cr_assert_eq(read_time("0"), 0);
    cr_assert_eq(read_time("1795292100"), 1795292100);
    cr_assert_eq(read_time("253402300799"), INT64_C(253402300799));
    cr_assert_eq(read_time("-30s"), NOW - 30);
    cr_assert_eq(read_time("-15m"), NOW - 900);
    cr_assert_eq(read_time("-2h"), NOW - 7200);
    cr_assert_eq(read_time("-7d"), NOW - 7 * 86400);
    cr_assert_eq(read_time("2023-11-14T22:13"), NOW - 20);
    cr_assert_eq(read_time("2023-11-14T22:13:20"), NOW);
    cr_assert_eq(read_time("2023-11-14T22:13:20Z"), NOW);
    cr_assert_eq(read_time("2023-11-14T22:13Z"), NOW - 20);
    cr_assert_eq(read_time("2024-02-29T00:00"), 1709164800);
    cr_assert_eq(read_time("1970-01-01T00:00"), 0);
}

Test(latency_time, is_nothing_else)
{
    static const char wrong[] = "| |-|-m|-15|-15 m|-15y|--15m|-15mm|-1700000001s|-99999999999999999999d|253402300800|"
                                "99999999999999999999999|12x|1e9|yesterday|2023-11-14|2023-11-14T|2023-11-14T22|"
                                "2023-11-14T22:60|2023-11-14T24:00|2023-13-14T22:00|2023-00-14T22:00|"
                                "2023-02-29T00:00|2023-11-31T00:00|2023-11-14T22:13:60|2023-11-14T22:13:|"
                                "2023-11-14T22:13x|2023-11-14T22:-5|2023-11-14T22:13:-5|2023-11-15T-2:13|"
                                "2023-11-14T22:13ZZ|2023-11-14T22:13+01:00|1969-12-31T23:59|"
                                "2023-11-14T22:13:20Z and so on and so on";
    char text[64];

    for (const char *at = wrong; at <= wrong + strlen(wrong); at += strlen(text) + 1) {
        snprintf(text, sizeof text, "%.*s", (int)strcspn(at, "|"), at);
        cr_assert_eq(read_time(text), -1, "%s", text);
    }
    int64_t time_s;
    cr_assert_not(latency_time_read((struct slice){"1\0002", 3}, NOW, &time_s));
}

Test(latency_time, is_written_as_it_is_read)
{
    char text[LATENCY_TIME_SIZE];

    latency_time_write(NOW, text);
    cr_assert_str_eq(text, "2023-11-14T22:13");
    cr_assert_eq(read_time(text), NOW - 20);
    latency_time_write(0, text);
    cr_assert_str_eq(text, "1970-01-01T00:00");
}
