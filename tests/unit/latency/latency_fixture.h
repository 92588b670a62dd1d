/* The latency policy on the fake host: samples that the test makes up, scripts that it answers by their names. */
#ifndef HEADGATE_TESTS_LATENCY_FIXTURE_H
#define HEADGATE_TESTS_LATENCY_FIXTURE_H

#include "../../support/fake_host.h"

extern const struct policy latency_policy;

struct latency_fixture {
    struct fake_host *host;
    size_t answers;
    enum policy_answer answer_kind;
    char *answer; /* the last one */
};

/* That of a test, which is stopped at its end if it is not by then. In a suite's .fini what fails, or crashes, would
 * not count. */
extern struct latency_fixture fixture;
void fixture_end(void);
#define LATENCY_TEST(suite, name)                                                                                      \
    static void name(void);                                                                                            \
    Test(suite, name)                                                                                                  \
    {                                                                                                                  \
        name();                                                                                                        \
        fixture_end();                                                                                                 \
    }                                                                                                                  \
    static void name(void)

/* conf: the text of the file. It is 20 s into the minute 28333333. */
void fixture_start(const char *conf, size_t workers);
/* What was called fails, and all stops. */
void fixture_stop(void);
void *fixture_instance(size_t worker);

/* Answers the oldest call of that script, which must be there: by integers, by texts or by an error. */
void fixture_answer(const char *script, const int64_t *integers, size_t count);
void fixture_answer_texts(const char *script, const char *const *texts, size_t count);
void fixture_fail(const char *script, const char *error);
/* The oldest call of that script, or NULL. */
const struct fake_call *fixture_call(const char *script);
/* Answers 1 to all flushes and lists that are under way. */
void fixture_acknowledge(void);

/* The tag of a request: words between blanks. */
uint32_t fixture_tag(size_t worker, const char *words);
/* A request of those words that took so long, of a command that only the server knows if the name begins with LEARNED;
 * true if it is to be told when written. */
bool fixture_request(size_t worker, const char *words, int64_t us);

/* Puts an admin query to worker 0; the answer is in the fixture, and returned, unless it has to be waited for (NULL).
 */
const char *fixture_ask(const char *words);
/* Whether there is an answer, with that text in it. */
bool says(const char *answer, const char *text);

#endif
