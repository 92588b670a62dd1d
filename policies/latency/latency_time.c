#include "latency/latency_time.h"

#include <string.h>
#include <strings.h>
#include <time.h>

/* The end of the year 9999. */
#define TIME_MAX INT64_C(253402300799)

static bool read_digits(const char **at, int64_t *number)
{
    const char *begin = *at;

    for (*number = 0; **at >= '0' && **at <= '9' && *number <= TIME_MAX; (*at)++) {
        *number = *number * 10 + (**at - '0');
    }
    return *at > begin;
}

/* "15m" */
static bool read_span(const char *at, int64_t *span_s)
{
    int64_t number;

    if (!read_digits(&at, &number) || at[0] == '\0' || at[1] != '\0') {
        return false;
    }
    int64_t unit = *at == 's' ? 1 : *at == 'm' ? 60 : *at == 'h' ? 3600 : *at == 'd' ? 86400 : 0;
    if (unit == 0 || number > TIME_MAX / unit) {
        return false;
    }
    *span_s = number * unit;
    return true;
}

static bool is_in_range(const struct tm *date)
{
    return date->tm_mon >= 0 && date->tm_mon < 12 && date->tm_mday >= 1 && date->tm_mday <= 31 && date->tm_hour >= 0 &&
           date->tm_hour < 24 && date->tm_min >= 0 && date->tm_min < 60 && date->tm_sec >= 0 && date->tm_sec < 60;
}

static bool read_date(const char *text, int64_t *time_s)
{
    struct tm date = {0};
    int length = 0, with_seconds = 0;

    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d%n", &date.tm_year, &date.tm_mon, &date.tm_mday, &date.tm_hour, &date.tm_min,
               &length) != 5 ||
        strspn(text, "0123456789-T:Z") != strlen(text)) {
        return false;
    }
    if (text[length] == ':' && sscanf(text + length, ":%2d%n", &date.tm_sec, &with_seconds) != 1) {
        return false;
    }
    const char *rest = text + length + with_seconds;
    date.tm_year -= 1900;
    date.tm_mon -= 1;
    if ((strcmp(rest, "") != 0 && strcmp(rest, "Z") != 0) || !is_in_range(&date)) {
        return false;
    }
    int day = date.tm_mday;
    *time_s = timegm(&date);
    /* The 31st of February becomes another day. */
    return date.tm_mday == day;
}

bool latency_time_read(struct slice text, int64_t now_s, int64_t *time_s)
{
    char copy[LATENCY_TIME_SIZE];
    const char *at = copy;
    bool is_read;

    if (text.length == 0 || text.length >= sizeof copy || memchr(text.data, '\0', text.length) != NULL) {
        return false;
    }
    memcpy(copy, text.data, text.length);
    copy[text.length] = '\0';
    if (strcasecmp(copy, "now") == 0) {
        *time_s = now_s;
        return true;
    }
    if (*copy == '-') {
        is_read = read_span(copy + 1, time_s);
        *time_s = is_read ? now_s - *time_s : 0;
    } else if (strchr(copy, 'T') != NULL) {
        is_read = read_date(copy, time_s);
    } else {
        is_read = read_digits(&at, time_s) && *at == '\0';
    }
    return is_read && *time_s >= 0 && *time_s <= TIME_MAX;
}

void latency_time_write(int64_t time_s, char out[LATENCY_TIME_SIZE])
{
    time_t time = (time_t)time_s;
    struct tm date;

    gmtime_r(&time, &date);
    strftime(out, LATENCY_TIME_SIZE, "%Y-%m-%dT%H:%M", &date);
}
