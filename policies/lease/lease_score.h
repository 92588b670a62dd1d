/*
 * Scores of semaphores: what a sorted set says of when a permit was acquired or when it expires, on the client's own
 * clock and in its own unit. Pure.
 */
#ifndef HEADGATE_LEASE_SCORE_H
#define HEADGATE_LEASE_SCORE_H

#include "lease/lease_rule.h"

/* A double takes at most 24 characters with 17 digits. */
#define LEASE_SCORE_TEXT_MAX 32

/* What is known of a permit's score. */
struct lease_score {
    double value;
    int64_t unit_us;
    enum lease_kind kind; /* BY_START or BY_EXPIRY */
    bool guessed;         /* the client did not say it: Redis has to */
    bool measured;        /* the lease is what the score and another time say, not what the rule says */
    int64_t lease_us;
};

/* Reads a score as Redis does; false for what is none, infinite or not a number. */
bool lease_score_read(struct slice text, double *value);

/*
 * Tells what a ZADD's score means. reaped: the bound of a ZREMRANGEBYSCORE of the same client that went before (NULL:
 * there was none); wall_us: the time by the calendar. False if it is no time, or its lease is not above 0.
 */
bool lease_score_tell(struct lease_score *score, const struct lease_rule *rule, double value, const double *reaped,
                      int64_t wall_us);
/* The unit of a score that is a time near to now; 0 if it is none. */
int64_t lease_score_unit(double value, int64_t wall_us);

/* The score so much later. */
double lease_score_later(const struct lease_score *score, int64_t elapsed_us);
/* How much later another score is, in µs, within ±LEASE_MS_MAX. */
int64_t lease_score_distance(const struct lease_score *score, double other);

/* Text from which Redis reads the same double. Returns its length. */
size_t lease_score_write(char text[LEASE_SCORE_TEXT_MAX], double value);

#endif
