/* The latency policy with a host that is none: clocks that the test sets, scripts that it answers. */
#ifndef HEADGATE_TESTS_LATENCY_FIXTURE_H
#define HEADGATE_TESTS_LATENCY_FIXTURE_H

#include "../conf/conf_fixture.h"
#include "policy/policy.h"

#define WORKERS_MAX 2
#define CALLS_MAX 128
#define COUNTERS_MAX 16

extern const struct policy latency_policy;

/* A script that was called and not answered. */
struct script_call {
    const struct script *script;
    char *arguments[POLICY_SCRIPT_ARGUMENTS_MAX];
    size_t argument_count;
    size_t key_count;
    int64_t database;
    policy_script_done *done;
    void *context;
};

struct latency_fixture;

struct fixture_worker {
    struct latency_fixture *fixture;
    struct policy_host host;
    void *instance;
    _Atomic uint64_t counters[COUNTERS_MAX];
};

struct latency_fixture {
    struct conf *conf;
    void *shared;
    size_t worker_count;
    struct fixture_worker workers[WORKERS_MAX];
    int64_t now_us;
    int64_t wall_us; /* at now_us */
    struct script_call calls[CALLS_MAX];
    size_t call_count;
    size_t warnings;
    char warning[512];
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

/* conf: the text of the file. Time begins at 1 s, and 20 s into the minute 28333333. */
void fixture_start(struct latency_fixture *fixture, const char *conf, size_t workers);
/* Another file. */
void fixture_reload(struct latency_fixture *fixture, const char *conf);
/* Answers what was called by "ERR gone", stops all, and checks that each admin query had its answer. */
void fixture_stop(struct latency_fixture *fixture);

/* Both clocks go on. */
void fixture_pass(struct latency_fixture *fixture, int64_t us);
/* Ticks of all workers, ten a second, for so long. */
void fixture_tick(struct latency_fixture *fixture, int64_t us);

/* Answers the oldest call of that script, which must be there: by integers, by texts or by an error. */
void fixture_answer(struct latency_fixture *fixture, const char *script, const int64_t *integers, size_t count);
void fixture_answer_texts(struct latency_fixture *fixture, const char *script, const char *const *texts, size_t count);
void fixture_fail(struct latency_fixture *fixture, const char *script, const char *error);
/* The oldest call of that script, or NULL. */
const struct script_call *fixture_call(const struct latency_fixture *fixture, const char *script);
/* Answers 1 to all flushes and lists that are under way; returns how many flushes there were. */
size_t fixture_acknowledge(struct latency_fixture *fixture);

/* The tag of a request: words between blanks. */
uint32_t fixture_tag(struct latency_fixture *fixture, size_t worker, const char *words);
/* Shows a request to on_spot(). */
void fixture_spot(struct latency_fixture *fixture, size_t worker, const char *words);
/* A request of those words that took so long, of a command that only the server knows if the name begins with LEARNED;
 * true if it is to be told when written. */
bool fixture_request(struct latency_fixture *fixture, size_t worker, const char *words, int64_t us);
/* It happened so often on that worker: "limit:rule what". */
void fixture_happen(struct latency_fixture *fixture, size_t worker, enum policy_event_kind kind, uint64_t count,
                    const char *what);
/* Puts an admin query; the answer is in the fixture, and returned, unless it has to be waited for (NULL). */
const char *fixture_ask(struct latency_fixture *fixture, size_t worker, const char *words);
/* Whether there is an answer, with that text in it. */
bool says(const char *answer, const char *text);
/* Its value, added up over the workers, gauges brought up to date. */
uint64_t fixture_counter(struct latency_fixture *fixture, const char *name);

#endif
