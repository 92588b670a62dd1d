/* What replies say about what was asked for. */
#include "lease_request.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static const struct lease_script some_script;

static enum lease_answer answer_to(const struct lease_script *script, enum lease_reply reply, struct slice head)
{
    struct lease_shape shape = {.action = LEASE_ACQUIRE, .reply = reply, .key_count = 3, .script = script};

    return lease_shape_answer(&shape, head);
}

static enum lease_answer answer(enum lease_reply reply, const char *head)
{
    return answer_to(&some_script, reply, slice_of(head));
}

/* Whatever the error is, as of a user without rights or a Redis without memory, nothing was done. */
Test(lease_shape_answer, a_command_that_is_answered_by_an_error_has_done_nothing)
{
    for (enum lease_reply reply = LEASE_REPLY_OK; reply <= LEASE_REPLY_FENCE; reply++) {
        cr_assert_eq(answer_to(NULL, reply, slice_of("-OOM no\r\n")), LEASE_ANSWER_NO, "%d", (int)reply);
        cr_assert_eq(answer_to(NULL, reply, slice_of("!6\r\nERR no\r\n")), LEASE_ANSWER_NO, "%d", (int)reply);
    }
}

Test(lease_shape_answer, of_every_reply)
{
    static const char heads[] = "+OK\r\n|$2\r\nOK\r\n|$-1\r\n|_\r\n|:1\r\n|:0\r\n|:3\r\n|:-1\r\n|$1\r\nx\r\n|"
                                "*2\r\n:-1\r\n:7\r\n|*2\r\n:99\r\n:-1\r\n|-ERR no\r\n|-NOSCRIPT no\r\n|+QUEUED\r\n";
    /* Yes, No, Held, ? unclear: one for each head. */
    static const char *const expected[] = {
        [LEASE_REPLY_NONE] = "??????????????",     [LEASE_REPLY_OK] = "YYNN????N???N?",
        [LEASE_REPLY_NIL] = "NNYYNNNNN???N?",      [LEASE_REPLY_ONE] = "??NNYNNN????N?",
        [LEASE_REPLY_ZERO] = "????NYNN????N?",     [LEASE_REPLY_COUNT] = "??NNYNYN????N?",
        [LEASE_REPLY_ALL_KEYS] = "??NNNNYN????N?", [LEASE_REPLY_TRUTH] = "YYNNYNYN????N?",
        [LEASE_REPLY_VALUE] = "YYNNYYYYY???N?",    [LEASE_REPLY_NO_ERROR] = "YYYYYYYYY??NN?",
        [LEASE_REPLY_HOLDS] = "??NNYH??????N?",    [LEASE_REPLY_MAYBE] = "??NNY???????N?",
        [LEASE_REPLY_FENCE] = "?????????YN?N?",
    };
    static const char letters[] = {
        [LEASE_ANSWER_UNCLEAR] = '?', [LEASE_ANSWER_YES] = 'Y', [LEASE_ANSWER_NO] = 'N', [LEASE_ANSWER_HELD] = 'H'};

    for (size_t reply = 0; reply < sizeof expected / sizeof expected[0]; reply++) {
        for (size_t i = 0; expected[reply][i] != '\0'; i++) {
            char letter = letters[answer_to(&some_script, (enum lease_reply)reply, word_of(heads, i))];
            cr_assert_eq(letter, expected[reply][i], "reply %zu: %c to head %zu", reply, letter, i);
        }
    }
    cr_assert_eq(answer(LEASE_REPLY_OK, ""), LEASE_ANSWER_UNCLEAR);
    cr_assert_eq(answer(LEASE_REPLY_OK, "-NOAUTH Authentication required.\r\n"), LEASE_ANSWER_NO);
    cr_assert_eq(answer(LEASE_REPLY_ONE, "#t\r\n"), LEASE_ANSWER_YES);
    cr_assert_eq(answer(LEASE_REPLY_ONE, "#f\r\n"), LEASE_ANSWER_NO);
    cr_assert_eq(answer(LEASE_REPLY_ONE, ":1"), LEASE_ANSWER_UNCLEAR, "the line is not whole");
}

/* ---- what EXEC says of each command ---- */

static bool exec_says(const char *head, uint32_t place, uint32_t count, const char *expected)
{
    char *copy = malloc(strlen(head) + 1);
    struct slice reply = {NULL, 0};

    /* Whoever reads on is seen by the sanitizer. */
    memcpy(copy, head, strlen(head) + 1);
    bool found = lease_answer_of_exec((struct slice){copy, strlen(head)}, place, count, &reply);
    bool is_right = expected == NULL ? !found : found && slice_is(reply, expected);
    free(copy);
    return is_right;
}

Test(lease_answer, of_exec)
{
    static const struct {
        const char *head;
        uint32_t place;
        uint32_t count;
        const char *expected;
    } cases[] = {
        {"*1\r\n:1\r\n", 0, 1, ":1\r\n"},
        {"*3\r\n:0\r\n:1\r\n:12\r\n", 2, 3, ":12\r\n"},
        {"*3\r\n$2\r\nOK\r\n+OK\r\n$-1\r\n", 0, 3, "$2\r\nOK\r\n"},
        {"*3\r\n$2\r\nOK\r\n+OK\r\n$-1\r\n", 1, 3, "+OK\r\n"},
        {"*3\r\n$2\r\nOK\r\n+OK\r\n$-1\r\n", 2, 3, "$-1\r\n"},
        {"*2\r\n-ERR no\r\n_\r\n", 1, 2, "_\r\n"},
        {"*2\r\n$4\r\n\r\n:9\r\n:1\r\n", 1, 2, ":1\r\n"},
        /* Another number of replies, or none that is whole. */
        {"*2\r\n:1\r\n:1\r\n", 0, 1, NULL},
        {"*1\r\n:1\r\n", 1, 1, NULL},
        {"*1\r\n", 0, 1, NULL},
        {"*1\r\n:1", 0, 1, NULL},
        {"*1\r\n:1\r", 0, 1, NULL},
        {"*2\r\n$9\r\nabc\r\n:1\r\n", 1, 2, NULL},
        {"*2\r\n$9223372036854775807\r\nabc\r\n", 0, 2, NULL},
        {"*2\r\n*1\r\n:1\r\n:1\r\n", 1, 2, NULL},
        {"*2\r\n%1\r\n:1\r\n:1\r\n", 0, 2, NULL},
        {"*-1\r\n", 0, 1, NULL},
        {"*0\r\n", 0, 0, NULL},
        {"_\r\n", 0, 1, NULL},
        {"-EXECABORT\r\n", 0, 1, NULL},
        {"*x\r\n:1\r\n", 0, 1, NULL},
        {"", 0, 1, NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_assert(exec_says(cases[i].head, cases[i].place, cases[i].count, cases[i].expected), "%zu", i);
    }
}
