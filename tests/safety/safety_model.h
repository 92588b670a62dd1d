/*
 * What the order of commands in Redis, as MONITOR tells it, says about renewals. Independent of what anybody believes.
 *
 * A token has a claim on a lock from its request to take it on (refused or not) until the lock, or its permit, is
 * deleted. Claims of a deleted lock are gone, all of them. What a script that is not the clients' own then does for a
 * token, giving it a time to live or a score, is a violation unless that token has a claim: it renews what was released
 * and not asked for again. So is any renewal of a lock that no rule names. As the order is that of execution, there is
 * no slack.
 */
#ifndef SAFETY_MODEL_H
#define SAFETY_MODEL_H

#include "safety_monitor.h"
#include "safety_shared.h"

/* ECHO of it is what the end of the stream is known by. */
#define OBSERVER_MARK "safety-mark"

struct model;

/* Ends the program when there is no memory. */
struct model *model_new(struct shared *shared);
void model_free(struct model *model);
/* Redis has started anew: there is nothing. */
void model_clear(struct model *model);
void model_take(struct model *model, const struct monitor_line *line);

#endif
