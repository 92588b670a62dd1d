#include "lease/lease_score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_US INT64_C(1000000)
/* Scores further in the past or in the future than this are no times. */
#define FAR_US ((double)366 * 86400 * SECOND_US)
/* How much the client's clock may be ahead of ours without its scores being taken for times of expiry. */
#define CLOCK_SKEW_US ((double)2 * SECOND_US)

bool lease_score_read(struct slice text, double *value)
{
    char copy[LEASE_SCORE_TEXT_MAX * 2];
    char *end;

    if (text.length == 0 || text.length >= sizeof copy || text.data[0] == ' ') {
        return false;
    }
    memcpy(copy, text.data, text.length);
    copy[text.length] = '\0';
    *value = strtod(copy, &end);
    return end == copy + text.length && isfinite(*value);
}

int64_t lease_score_unit(double value, int64_t wall_us)
{
    static const int64_t units[] = {SECOND_US, 1000, 1};

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (fabs(value * (double)units[i] - (double)wall_us) <= FAR_US) {
            return units[i];
        }
    }
    return 0;
}

static int64_t unit_of(const struct lease_rule *rule, double value, int64_t wall_us)
{
    switch (rule->unit) {
    case LEASE_SCORE_SECONDS:
        return SECOND_US;
    case LEASE_SCORE_MILLISECONDS:
        return 1000;
    case LEASE_SCORE_MICROSECONDS:
        return 1;
    default:
        return lease_score_unit(value, wall_us);
    }
}

/* Whether the score is a time of expiry. Who reaps those before now - lease has scores of now, and the other way round:
 * the one of the two that is nearer to now says it. */
static bool is_expiry(const struct lease_rule *rule, double score_us, const double *reaped_us, int64_t wall_us)
{
    if (rule->score != LEASE_SCORE_AUTO) {
        return rule->score == LEASE_SCORE_EXPIRES;
    }
    double ahead = score_us - (double)wall_us;
    return reaped_us != NULL ? fabs(*reaped_us - (double)wall_us) < fabs(ahead) : ahead > CLOCK_SKEW_US;
}

bool lease_score_tell(struct lease_score *score, const struct lease_rule *rule, double value, const double *reaped,
                      int64_t wall_us)
{
    int64_t unit = unit_of(rule, value, wall_us);
    double score_us = value * (double)unit;
    double reaped_us = reaped != NULL ? *reaped * (double)unit : 0;

    if (unit == 0 || fabs(score_us - (double)wall_us) > FAR_US) {
        return false;
    }
    bool expiry = is_expiry(rule, score_us, reaped != NULL ? &reaped_us : NULL, wall_us);
    double lease_us = reaped != NULL ? score_us - reaped_us
                      : expiry       ? score_us - (double)wall_us
                                     : (double)rule->terms.ttl_us;
    *score = (struct lease_score){
        .value = value,
        .unit_us = unit,
        .kind = expiry ? LEASE_SEMAPHORE_BY_EXPIRY : LEASE_SEMAPHORE_BY_START,
        .lease_us = lease_us >= 1 && lease_us <= FAR_US ? (int64_t)lease_us : 0,
        .measured = reaped != NULL || expiry,
    };
    return score->lease_us > 0;
}

double lease_score_later(const struct lease_score *score, int64_t elapsed_us)
{
    return score->value + (double)elapsed_us / (double)score->unit_us;
}

int64_t lease_score_distance(const struct lease_score *score, double other)
{
    double distance_us = (other - score->value) * (double)score->unit_us;
    double most = (double)LEASE_MS_MAX * 1000;

    /* What is no number is far away. */
    return (int64_t)(distance_us < -most ? -most : distance_us < most ? distance_us : most);
}

size_t lease_score_write(char text[LEASE_SCORE_TEXT_MAX], double value)
{
    return (size_t)snprintf(text, LEASE_SCORE_TEXT_MAX, "%.17g", value);
}
