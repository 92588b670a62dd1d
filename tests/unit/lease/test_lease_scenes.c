/*
 * The lease policy in scenes, each a line or two: what is taken, kept, released and lost, also where Redis executes the
 * requests of several connections in an order that is not that of their replies, scripts are overtaken, and connections
 * break.
 */
#include "lease_host.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define STEP_MAX 512
#define CLIENTS_MAX 26

/*
 * Steps stand between "; ". Clients are letters; at first there are a, with worker 0, and b, with worker 1, of one
 * process and name.
 *   a: REQUEST, a: REQUEST => REPLY, a< REPLY, a loses (its connection to Redis), a leaves, join c WORKER NAME
 *   after MS, quiet MS (no script is called), keep MS (whatever is called has renewed), forked (processes live on)
 *   call SCRIPT, by MS SCRIPT (is called until then; with "= N" behind it: its argument behind the token), ! ANSWER
 *   is PART (of the line of LEASES), is nothing, count COUNTER N, said PART (of the last event)
 *   since US (Redis' connection was made so long after now; since first: ever so long before), jump MS (without a look)
 *   reload (without rules), reload OPTION (added to the rules), hidden (processes cannot be told), a named NAME
 */
struct scene {
    const char *rules, *steps;
};

#define RULES "[lease:locks]\nkeys = *\nttl = 30s\ngrace = 2s\nwatchdog =\n"
/* Also for libraries that renew what they have taken. */
#define FOR_ALL RULES "libraries = redlock.net:self\n"
#define AT_MOST(time) RULES "max_hold = " time "\n"
#define TAKE "a: SET job t1 NX PX 30000"
#define TAKEN TAKE " => +OK; "
#define RENEW "lease_renew_string job / t1"
/* Looks whether the token has it, and changes nothing. */
#define ASKED "call " RENEW " = 1"

static const struct {
    const char *word, *means;
} words[] = {
    {"RELEASE", "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1"},
    {"EXTEND", "EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1"},
    {"REFRESH", "EVALSHA 594683e49a64ebaf975caf5f8079a1d097c438f1 1"},
    {"REDLOCK", "EVALSHA 96da70f7716f27d278a5218544df37fd8b0a5e4c 2"},
    {"LOCK", "EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1"},
    {"UNLOCK", "EVALSHA 3ffe249c16dee540ac8ab32e39bd408626b9aff7 2"},
    {"READ", "EVALSHA 95553a6ff11176c18e71344e89d116b06fd6f753 2"},
    {"PERMITS", "EVALSHA 992c96b09a3d8ea0b37f5dc12e5347a44d93909d 3"},
    {"ACQUIRE", "EVALSHA 43ebdb49120d170e08af560cb4e46e36f8585936 1"},
};

struct stage {
    struct fake_host *host;
    struct fake_client *clients[CLIENTS_MAX];
    const char *step; /* for who reads a failure */
};

/* ---- steps ---- */

static void request(struct stage *stage, struct fake_client *client, const char *text)
{
    char spelt[STEP_MAX], head[STEP_MAX];
    const char *reply = strstr(text, " => ");
    size_t length = reply != NULL ? (size_t)(reply - text) : strlen(text), name = strcspn(text, " ");

    snprintf(spelt, sizeof spelt, "%.*s", (int)length, text);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i].word) == name && strncmp(words[i].word, text, name) == 0) {
            snprintf(spelt, sizeof spelt, "%s%.*s", words[i].means, (int)(length - name), text + name);
        }
    }
    cr_assert(reply == NULL || client->request_count == 0, "%s", stage->step);
    fake_send(client, spelt);
    if (reply != NULL && client->request_count > 0) {
        snprintf(head, sizeof head, "%s\r\n", reply + strlen(" => "));
        fake_hear(client, head);
    }
}

static void expect_call(struct stage *stage, int64_t most_ms, const char *expected)
{
    char shown[STEP_MAX];

    fake_pass_until_call(stage->host, most_ms);
    cr_assert(stage->host->calls != NULL, "%s: nothing is called", stage->step);
    size_t length = (size_t)snprintf(shown, sizeof shown, "%s", fake_call_text(stage->host));
    if (strstr(expected, " = ") != NULL) {
        snprintf(shown + length, sizeof shown - length, " = %.0f", fake_call_number(stage->host, 1));
    }
    cr_assert_str_eq(shown, expected, "%s: %s", stage->step, shown);
}

static void keep(struct stage *stage, int64_t ms)
{
    for (; ms > 0; ms -= 100) {
        fake_pass(stage->host, 100);
        while (stage->host->calls != NULL) {
            fake_answer(stage->host, "1 30000");
        }
    }
}

static void count(struct stage *stage, const char *text)
{
    char name[STEP_MAX], counter[STEP_MAX];
    unsigned long expected;

    cr_assert_eq(sscanf(text, "%s %lu", name, &expected), 2, "%s", text);
    snprintf(counter, sizeof counter, strcmp(name, "held") == 0 ? "lease_%s" : "lease_%s_total", name);
    cr_assert_eq(fake_counter(stage->host, counter), expected, "%s: %lu", stage->step,
                 (unsigned long)fake_counter(stage->host, counter));
}

static void join(struct stage *stage, char letter, size_t worker, const char *name)
{
    stage->clients[letter - 'a'] = fake_join(stage->host, worker, "10.0.0.1", name);
}

static void take_step(struct stage *stage, const char *step)
{
    const char *rest = step + strcspn(step, " ");
    struct fake_client *client = *step >= 'a' && *step <= 'z' ? stage->clients[*step - 'a'] : NULL;
    char head[STEP_MAX], *end;

    rest += *rest == ' ';
    if (step[1] == ':') {
        request(stage, client, rest);
    } else if (step[1] == '<') {
        snprintf(head, sizeof head, "%s\r\n", rest);
        fake_hear(client, head);
    } else if (*step == '!') {
        fake_answer(stage->host, rest);
    } else if (step[1] == ' ' && strncmp(rest, "named ", 6) == 0) {
        fake_rename(client, rest + 6);
    } else if (step[1] == ' ') {
        (strcmp(rest, "loses") == 0 ? fake_lose : fake_leave)(client);
    } else if (strncmp(step, "join", 4) == 0) {
        join(stage, rest[0], (size_t)(rest[2] - '0'), rest + 4);
    } else if (strncmp(step, "after", 5) == 0) {
        fake_pass(stage->host, atoi(rest));
    } else if (strncmp(step, "quiet", 5) == 0) {
        fake_assert_quiet(stage->host, atoi(rest));
    } else if (strncmp(step, "keep", 4) == 0) {
        keep(stage, atoi(rest));
    } else if (strncmp(step, "call", 4) == 0) {
        expect_call(stage, 30000, rest);
    } else if (strncmp(step, "by", 2) == 0) {
        int64_t most_ms = strtol(rest, &end, 10);
        expect_call(stage, most_ms, end + 1);
    } else if (strncmp(step, "is", 2) == 0) {
        cr_assert(lease_host_lists(stage->host, strcmp(rest, "nothing") == 0 ? NULL : rest), "%s", stage->step);
    } else if (strncmp(step, "count", 5) == 0) {
        count(stage, rest);
    } else if (strncmp(step, "said", 4) == 0) {
        cr_assert_not_null(strstr(stage->host->event, rest), "%s: %s", stage->step, stage->host->event);
    } else if (strcmp(step, "forked") == 0) {
        stage->host->processes_live = true;
    } else if (strncmp(step, "since", 5) == 0) {
        stage->host->since_us = strcmp(rest, "first") == 0 ? 1 : stage->host->now_us + atoi(rest);
    } else if (strncmp(step, "jump", 4) == 0) {
        stage->host->now_us += atoi(rest) * MS;
        fake_tick(stage->host);
    } else if (strcmp(step, "hidden") == 0) {
        stage->host->untold = true;
    } else {
        cr_assert_eq(strncmp(step, "reload", 6), 0, "%s", step);
        snprintf(head, sizeof head, RULES "%s\n", rest);
        fake_reload(stage->host, *rest != '\0' ? head : "");
    }
}

/* ---- scenes ---- */

/* At a third of its 30 s, and up to an eighth of that sooner. */
#define KEPT(kind, script) "is kind=" kind "; count acquired 1; count held 1; quiet 8400; by 1700 " script
/* An attempt, until it has lasted; and its score stays as old as it may. */
#define KEPT_LATER(script) "is kind=semaphore; count acquired 0; quiet 17000; by 3100 " script "; count acquired 1"
/* An answer that is not clear is followed by a look at what has come of it. */
#define REFUSED(request) "a: " request "; is nothing; quiet 30000; count acquired 0"
#define LOST(answer, counter, word)                                                                                    \
    TAKEN "said lease:locks string; call " RENEW "; ! " answer "; is nothing; count " counter " 1; said " word         \
          "; quiet 60000"
/* A life that is too short may be that of a run of the server which had not heard of the last renewal; over the same
 * connection, or one that was there before, but to another node of a cluster, it is not. */
#define OTHER_RUN(call, answer, then) "call " call "; since 0; ! " answer "; by 100 " then "; ! 1 30000; "
#define OTHER_RUNS(call) OTHER_RUN(call, "-3 5000", call) OTHER_RUN(call, "-3 5000", call) "call " call "; "
#define HEALED "a: SETNX job t1 => :1; call lease_heal job / t1; ! 1 30000; "
#define HASH "lease_renew_hash job / t1"
#define PUT_OFF "quiet 19000; by 1100 " RENEW "; ! 1 30000; "
/* Nobody says whether Redis will ever come to it, and whose it is: for no longer than the lease bears. */
#define UNDER_WAY(request)                                                                                             \
    TAKEN "join c 0 other; c: " request "; " PUT_OFF PUT_OFF PUT_OFF "c loses; after 100; ! 1 29900; is state=held"
#define RELEASED(request)                                                                                              \
    TAKEN "a: " request "; is state=releasing; quiet 19000; a< :1; is nothing; quiet 90000; count released 1"
#define UNCLEAR(answer, then) TAKEN "a: RELEASE job t1 => -ERR something; after 100; " ASKED "; ! " answer "; is " then
#define GIVEN_UP(end, reply) TAKEN "a: MULTI; a: DEL job; a: " end " => " reply "; is state=held; by 10000 " RENEW
/* Sent before over another connection, and executed nobody knows when. */
#define SENT_BEFORE                                                                                                    \
    TAKEN "a: RELEASE job t1; b: SET job t1 NX PX 30000 => +OK; is state=releasing; quiet 8000; a< :1; " ASKED
/* In Redis the DEL comes first, and removes what was there before: nobody knows but Redis. */
#define AT_THE_SAME_TIME(taking, granted)                                                                              \
    "a: " taking "; b: SET job t0 NX PX 30000 => +OK; b: DEL job; a< " granted "; b< :1; call " RENEW
/* In Redis: t1 is taken and released, and t2 was asked for first. */
#define WHO_HAS_IT                                                                                                     \
    "b: SET job t2 NX PX 30000; " TAKE "; a: RELEASE job t1; b< +OK; a< +OK; a< :1; is state=checking; "               \
    "call lease_renew_string job / t2"
/* Nor is it known, of a lock that can be taken more than once, whether it is the hold of before. */
#define TAKEN_ANEW(release)                                                                                            \
    "a: LOCK job 30000 id:1 => $-1; keep 40000; is state=max-hold; b: " release                                        \
    "; a: LOCK job 30000 id:1 => $-1; b< :1; keep 1000; "
#define SHORTENED(request, reply) TAKEN "a: " request " => " reply "; is nothing; quiet 90000"
/* Behind a renewal that was sent, and is not answered, the owner has taken it anew. */
#define OVERTAKEN(answer)                                                                                              \
    TAKEN "call " RENEW "; a: RELEASE job t1 => :1; a: SET job t1 NX PX 60000 => +OK; ! " answer                       \
          "; is lease=60000 left=60000; is renewals=0"

static const struct scene scenes[] = {
    /* ---- what is taken is kept ---- */
    {RULES, TAKEN KEPT("string", RENEW)},
    {RULES, "a: set job t1 ex 30 nx => +OK; " KEPT("string", RENEW)},
    {RULES, "a: SET job t1 NX GET PX 30000 => $-1; " KEPT("string", RENEW)},
    {RULES, "a: SETNX job t1 => :1; a: EXPIRE job 30 => :1; " KEPT("string", RENEW)},
    {FOR_ALL, "a: REDLOCK a b t1 30000 => :2; " KEPT("strings", "lease_renew_string a b / t1")},
    {RULES, "a: LOCK job 30000 id:1 => $-1; " KEPT("hash", "lease_renew_hash job / id:1")},
    {RULES, "a: READ job {job}:id:1:rwlock_timeout 30000 id:1 id:1:write => $-1; "
            "a: READ job {job}:id:1:rwlock_timeout 30000 id:1 id:1:write => $-1; " KEPT(
                "read-lock", "lease_renew_hash job {job}:id:1:rwlock_timeout:1 {job}:id:1:rwlock_timeout:2 / id:1")},
    {RULES, "a: READ {a}job {a}job:id:1:rwlock_timeout 30000 id:1 id:1:write => _; " KEPT(
                "read-lock", "lease_renew_hash {a}job {a}job:id:1:rwlock_timeout:1 / id:1")},
    {FOR_ALL, "a: ACQUIRE sem 5 t1 30000 1700000000000 => :1; " KEPT("semaphore", "lease_renew_zset sem / t1")},
    {RULES, "a: PERMITS sem {sem}:timeout channel 1 1700000030000 1700000000000 9 PUBLISH t1 => +OK; " KEPT(
                "semaphore", "lease_renew_zset {sem}:timeout / t1")},
    {RULES, "a: ZREMRANGEBYSCORE sem -inf 1699999970; a: ZADD sem 1700000000 t1 => :1; " KEPT_LATER(
                "lease_renew_zset sem / t1")},
    {RULES, "a: SETNX job t1 => :1; is state=unhealed; by 1000 lease_heal job / t1 = 30000; ! 1 30000; "
            "is state=held; count healed 1; quiet 8400; by 1700 " RENEW},
    {RULES, "a: REFRESH job t1 30000 => :1; is state=self; quiet 29800; " ASKED "; ! 1 24000; quiet 23800; " ASKED
            "; ! 0 -2; count lost_gone 1"},
    {RULES, TAKEN "call " RENEW "; ! 2 60000; is lease=30000 left=60000; is deferred=1; quiet 38000; call " RENEW},
    /* ---- what is refused is not taken ---- */
    {RULES, REFUSED("SET job t1 NX PX 30000 => $-1")},
    {RULES, REFUSED("SET job t1 NX PX 30000 => _")},
    {RULES, REFUSED("SET job t1 NX PX 30000 => -OOM no")},
    {RULES, REFUSED("SET job t1 NX GET PX 30000 => $2\r\nt2")},
    {RULES, REFUSED("SETNX job t1 => :0")},
    {RULES, REFUSED("LOCK job 30000 id:1 => :1234")},
    {RULES, REFUSED("LOCK job 30000 id:1 => -NOSCRIPT No matching script")},
    {RULES, REFUSED("ACQUIRE sem 5 t1 30000 1700000000000 => :0")},
    {RULES, REFUSED("SET job t1 PX 30000 => +OK")},
    {RULES, REFUSED("SET job t1 NX PX 0 => -ERR invalid expire time")},
    {"[lease:locks]\nkeys = lock:*\nkind = hash\nwatchdog =\n",
     REFUSED("SET lock:job t1 NX PX 30000 => +OK") "; " REFUSED("LOCK job 30000 id:1 => $-1")},
    /* ---- what a renewal finds ends the watch ---- */
    {RULES, LOST("0 -2", "lost_gone", "gone")},
    {RULES, LOST("-1 5000", "lost_taken", "taken by another")},
    {RULES, LOST("-2 -1", "lost_persisted", "made persistent")},
    {RULES, LOST("-3 100", "lost_shortened", "shortened")},
    {RULES, LOST("-4 -1", "lost_type", "of another type")},
    /* What makes no sense is a failure. */
    {RULES, TAKEN "call " RENEW "; !; count failures 1; call " RENEW "; ! 1; count failures 2; call " RENEW
                  "; ! 7 30000; count failures 3; call " RENEW "; ! -5 1; count failures 4; is state=held"},
    /* ---- what another run of Redis tells is no loss ---- */
    {RULES, TAKEN OTHER_RUNS(RENEW) "! -3 5000; is nothing"},
    {RULES, TAKEN OTHER_RUNS(RENEW) "since first; ! -3 5000; is key=job"},
    {RULES, "a: LOCK job 30000 t1 => $-1; " OTHER_RUNS(HASH) "! -3 5000; is nothing"},
    {RULES, HEALED OTHER_RUN(RENEW, "-2 -1", "lease_heal job / t1") "call " RENEW "; ! -2 -1; is nothing"},
    /* Only PERSIST makes endless what never was; and the request itself may have opened the connection. */
    {RULES, TAKEN "since 1; call " RENEW "; ! -2 -1; is nothing"},
    {RULES, TAKEN "since -1; call " RENEW "; ! -2 -1; is nothing"},
    {RULES, TAKEN "since -1; call " RENEW "; ! -3 5000; is nothing"},
    /* The script waited for five seconds. */
    {RULES, TAKEN "call " RENEW "; after 5000; ! -3 15500; is state=held; call " RENEW},
    /* What each process takes by a value of its own is renewed behind an outage, if nobody has taken it. */
    {RULES, TAKEN "join c 0 other; c: SET other t1 NX PX 30000 => +OK; join d 0 own; "
                  "d: SET own t2 NX PX 30000 => +OK; jump 40000; count lost_unreachable 2; "
                  "by 0 lease_renew_string own / t2; ! 1 30000; is key=own"},
    /* ---- a release ---- */
    {RULES, UNDER_WAY("DEL job")},
    {RULES, UNDER_WAY("RELEASE job t1")},
    {RULES, UNDER_WAY("UNLINK a job")},
    {RULES, RELEASED("RELEASE job t1")},
    {RULES, RELEASED("UNLINK other job")},
    {RULES, RELEASED("PEXPIRE job 0")},
    {RULES, TAKEN "a: RELEASE job t1; after 5000; a< :0; after 100; " ASKED "; ! 1 24900; is state=held; by 5000 " RENEW
                  " = 30000"},
    {RULES, UNCLEAR("0 -2", "nothing; count released 1")},
    {RULES, UNCLEAR("-1 3000", "nothing; count released 1")},
    {RULES, UNCLEAR("-2 -1", "nothing; count released 1")},
    {RULES, UNCLEAR("2 24900", "state=held")},
    {RULES, TAKEN "a: DEL job; a loses; is nothing; count released 1; quiet 90000"},
    {RULES, TAKEN "a: RELEASE job t2; is state=held; quiet 8400; by 1700 " RENEW "; a< :0"},
    {RULES, "a: LOCK job 30000 id:1 => $-1; a: LOCK job 30000 id:1 => $-1; count acquired 1; "
            "a: UNLOCK job channel 0 30000 id:1 => :0; after 100; ! 1 30000; is state=held; "
            "a: UNLOCK job channel 0 30000 id:1 => :1; is nothing"},
    {RULES, TAKEN "a: RELEASE job t1; a: SET job t1 NX PX 6000; a: RELEASE job t1; a: SET job t1 NX PX 3000; a< :1; "
                  "is nothing; a< +OK; is state=releasing; quiet 3500; a< :1; a< +OK; is lease=3000; count acquired 3; "
                  "count released 2"},
    {RULES, TAKEN "a: FLUSHALL => +OK; by 200 " RENEW "; ! 0 -2; count released 1"},
    {RULES, TAKEN "a: FLUSHALL => -NOPERM; quiet 8000; by 2000 " RENEW "; ! 0 -2; count lost_gone 1"},
    {RULES, TAKEN "a: FLUSHALL; a loses; quiet 8000; by 2000 " RENEW "; ! 0 -2; count unseen 1"},
    /* In a transaction nothing counts before EXEC, which says it all. */
    {RULES, TAKEN "a: WATCH job; a: MULTI; a: DEL job; a: SET other t2 NX PX 30000; is state=held; a: EXEC; "
                  "is state=releasing; quiet 19000; a< *2\r\n:1\r\n+OK; after 100; call lease_renew_string other / t2; "
                  "is key=other; count released 1; count acquired 2"},
    {RULES, GIVEN_UP("EXEC", "*-1")},
    {RULES, GIVEN_UP("EXEC", "-EXECABORT")},
    {RULES, GIVEN_UP("DISCARD", "+OK")},
    /* ---- acquisitions and releases that cross ---- */
    {RULES, TAKE "; b: DEL job => :1; a< +OK; count acquired 1; after 100; " ASKED
                 "; ! 0 -2; is nothing; count lost_gone 0; count released 1"},
    {RULES, SENT_BEFORE "; ! 1 29900; is state=held; count lost_gone 0"},
    {RULES, SENT_BEFORE "; ! 0 -2; is nothing; count lost_gone 0"},
    {RULES, AT_THE_SAME_TIME("SET job t1 NX PX 30000", "+OK") "; ! 1 29900; is state=held"},
    {RULES, AT_THE_SAME_TIME("SET job t1 NX PX 30000", "+OK") "; ! 0 -2; is nothing; count lost_gone 0"},
    {RULES, AT_THE_SAME_TIME("SETNX job t1", ":1") "; ! -2 -1; is state=unhealed"},
    {RULES, AT_THE_SAME_TIME("SETNX job t1", ":1") "; ! 0 -2; is nothing; count lost_gone 0"},
    {RULES, WHO_HAS_IT "; ! 1 29900; is state=held; count lost_taken 0"},
    {RULES, WHO_HAS_IT "; ! -1 29900; is nothing; count lost_taken 1"},
    {AT_MOST("40s"), TAKEN_ANEW("DEL job") "is state=held"},
    /* A DEL of several keys proves nothing of any of them. */
    {AT_MOST("40s"), TAKEN_ANEW("DEL job other") "is state=max-hold"},
    /* ---- extensions and renewals that cross ---- */
    /* As both have succeeded, Redis executed the extension first, whichever was sent first. */
    {RULES, TAKEN "a: RELEASE job t1; b: EXTEND job t1 30000; a< :1; b< :1; is nothing; quiet 90000; count acquired 1; "
                  "count released 1; count lost_gone 0"},
    /* The token has taken it anew: that is told by the answer to that. */
    {RULES,
     TAKEN "a: RELEASE job t1; " TAKE "; b: EXTEND job t1 30000; a< :1; b< :1; a< +OK; is state=held; call " RENEW
           " = 30000; count acquired 2; count released 1"},
    /* Redis has executed both, and then the release; another has the lock now. */
    {RULES, TAKE "; a: EXTEND job t1 30000; b: RELEASE job t1 => :1; a< +OK; a< :1; is state=checking; " ASKED
                 "; ! -1 29900; is nothing; count lost_taken 0"},
    {RULES, TAKEN "b: SET job t1 XX PX 3000; a: RELEASE job t1 => :1; " TAKEN "b< +OK; is lease=30000"},
    {RULES, "a: EXTEND job t1 30000 => :0; is nothing; a: EXTEND job t1 30000 => :1; is state=held; by 10000 " RENEW},
    {RULES, TAKEN "b: EXTEND job t1 6000 => :1; is lease=6000 left=6000; by 2000 " RENEW
                  " = 6000; ! 1 6000; a: EXTEND job t1 60000 => :1; is lease=60000 left=60000"},
    /* ShedLock's unlock with lockAtLeastFor. */
    {RULES, SHORTENED("SET job t1 XX PX 3000", "+OK")},
    {RULES, SHORTENED("SET job t2 XX PX 3000", "+OK")},
    {RULES, SHORTENED("PEXPIRE job 200", ":1")},
    {RULES, "a: SET job t1 XX PX 3000 => +OK; is nothing; quiet 90000"},
    {RULES, TAKEN "a: SET job t2 XX PX 60000 => +OK; is lease=60000; by 20000 lease_renew_string job / t2"},
    {RULES, OVERTAKEN("0 -2")},
    {RULES, OVERTAKEN("-1 3000")},
    {RULES, OVERTAKEN("-3 100")},
    {RULES, OVERTAKEN("1 30000")},
    {RULES, TAKEN "call " RENEW "; a: RELEASE job t1; ! 0 -2; is state=releasing; quiet 9000; a< :1; count released 1; "
                  "count lost_gone 0"},
    {RULES, TAKEN "call " RENEW "; a: SET two t2 NX PX 30000; reload; a< +OK; ! 1 30000; quiet 30000; is nothing"},
    /* ---- what has no time to live and what has a score ---- */
    /* Whoever has chosen the same value may have set it for ever. */
    {RULES, "a: SETNX job t1; a loses; b: SETNX job t1; b leaves; quiet 90000"},
    /* Nobody knows whether Redis has heard of the DEL. */
    {RULES, "a: SETNX job t1 => :1; a: DEL job; a loses; call lease_heal job / t1; ! 1 30000; quiet 90000"},
    {RULES, "a: SETNX job t1; a: EXPIRE job 6; a< :1; after 1000; call lease_heal job / t1; a< :1; ! 2 6000; "
            "is state=held; is lease=6000 left=5000; count healed 0"},
    {RULES, "a: ZREMRANGEBYSCORE sem -inf 1699999990; a: ZADD sem 1700000000 t1 => :1; quiet 4000; "
            "a: ZADD sem 1700000004 t1 => :0; is lease=10000 left=10000; quiet 4000; a: ZADD sem 1700000008 t1 => :0; "
            "is lease=10000 left=10000; quiet 4000; a: ZADD sem 1700000012 t1 => :0; is lease=10000 left=10000"},
    {RULES, "a: ZADD sem 1700000000 t1 => :1; is lease=30000; a: ZADD sem 1700000000 t1 => :1; is nothing; "
            "count lost_gone 1"},
    /* ---- owners and max hold ---- */
    {RULES, TAKEN "join c 0 other; a leaves; is state=held; after 5000; is state=held; b leaves; is state=ownerless; "
                  "quiet 2200; is nothing; count owner_gone 1"},
    {RULES "owner = connection\n", TAKEN "a leaves; is state=ownerless; quiet 2200; is nothing"},
    /* It is not kept waiting for what is left of grace, nor for when a renewal that failed is tried again. */
    {"[lease:locks]\nkeys = *\ngrace = 60s\nowner = client\n",
     TAKEN "b leaves; quiet 8000; a leaves; quiet 4000; join c 0 app; by 200 " RENEW},
    {RULES "owner = client\n",
     TAKEN "b leaves; call " RENEW "; !; a leaves; quiet 1900; is state=ownerless; join c 0 app; by 1200 " RENEW},
    {RULES "on_owner_gone = release\n", TAKEN "b leaves; call " RENEW "; !; a leaves; quiet 1900; by 300 "
                                              "lease_release job / t1; !; by 2000 lease_release job / t1; ! 1; "
                                              "is nothing; count owner_gone 1"},
    /* Until all workers have looked for another connection of a process that lives, it has one. */
    {RULES, "forked; b leaves; join c 1 other; " TAKEN "a leaves; is state=held; after 200; is state=ownerless; "
            "after 1500; join d 1 app; after 200; is state=held; d leaves; after 2500; is nothing"},
    {RULES, "hidden; " TAKEN "a leaves; quiet 2200; is nothing"},
    {RULES "owner = client\n", TAKEN "a named job-17; b leaves; is state=held; a leaves; is state=ownerless"},
    {RULES, TAKEN "after 5000; reload max_hold = 4s; after 200; is state=max-hold"},
    {RULES, TAKEN "reload renew = 2/3; quiet 17000; by 3100 " RENEW "; ! 1 30000; reload; is nothing; count dropped 1"},
    {RULES, "a: SET \"job\x01 t NX PX 30000 => +OK; is key=\"\\\"job\\x01\" db=0"},
    {AT_MOST("10s"), TAKEN "after 11000; is state=max-hold; a: EXTEND job t1 30000 => :1; a: PEXPIRE job 60000 => :1; "
                           "is state=max-hold; quiet 59000; a: RELEASE job t1 => :1; " TAKEN "is state=held"},
    {AT_MOST("10s"), "a: LOCK job 6000 id:1 => $-1; keep 4000; a: LOCK job 6000 id:1 => $-1; keep 4000; "
                     "a: LOCK job 6000 id:1 => $-1; keep 4000; is state=max-hold; count max_hold 1"},
    {AT_MOST("40s"), TAKEN "keep 40100; count max_hold 1; " ASKED "; ! 0 -2; is nothing; count lost_gone 0"},
};

LEASE_TEST(lease_scenes, are_played)
{
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        struct stage stage = {.host = lease_host_new(scenes[i].rules, 2)};
        char step[STEP_MAX];
        join(&stage, 'a', 0, "app");
        join(&stage, 'b', 1, "app");
        for (const char *at = scenes[i].steps; *at != '\0';) {
            size_t length = strcspn(at, ";");
            stage.step = at;
            snprintf(step, sizeof step, "%.*s", (int)length, at);
            take_step(&stage, step);
            at += length + strspn(at + length, "; ");
        }
        lease_host_free(stage.host);
    }
}
