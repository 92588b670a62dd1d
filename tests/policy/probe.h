/*
 * Three policies that only tests use. The watcher passes every request; the probe does what the first argument that
 * begins with "probe:" says:
 *
 *   probe:pass:*             PASS, as is everything without such an argument
 *   probe:reply:*            REPLY with an error that repeats the argument
 *   probe:hold:MS:*          HOLD for so many ms, then PASS
 *   probe:delayreply:MS:*    HOLD for so many ms, then REPLY
 *   probe:delayclose:MS:*    HOLD for so many ms, then CLOSE
 *   probe:whole:MS:*         WHOLE until all of a long request is there, then HOLD for so many ms, then PASS
 *   probe:close:*            CLOSE
 *   probe:wait:*             HOLD until somebody sends probe:release:*, then PASS
 *   probe:release:*          resumes the client that waits, and REPLY with +OK
 *   probe:counts             REPLY with what the probe has counted, one name:value a line
 *   probe:watched            the same for the watcher, answered by the watcher itself
 *
 * A rule [probe:NAME] with refuse = KEY and after = N makes the probe refuse requests whose first argument is KEY, with
 * -PROBE NAME, once it has passed N of them; it counts on over a reload that leaves the rule as it is.
 *
 * The watcher and the probe abort when the contract is broken: a request that is asked about with a stranger's ticket,
 * an on_reply for none that was passed or held, a second one, or one that is missing when its client or its worker
 * ends. ECHO is wanted by neither of them, so that there are requests that no policy looks at.
 *
 * The respondent looks at no request. It has verbs on the admin port:
 *
 *   PROBE LUA code           runs the code in Redis, with the code and the numbers from 2 on as its arguments, as many
 * as a script takes, and answers with what it was shown: a line for each element, integer:N or text:LENGTH:TEXT PROBE
 * WAIT               is not answered until TELL PROBE LAST               is not answered until TELL or the end PROBE
 * TELL kind text     answers all that wait, with a TEXT, OK or an ERROR, and then tells how many they were PROBED text
 * repeats the text, at once
 */
#ifndef HEADGATE_PROBE_H
#define HEADGATE_PROBE_H

#include "policy/policy.h"

extern const struct policy probe_watcher;
extern const struct policy probe_policy;
extern const struct policy probe_respondent;

#endif
