#include "safety_cases.h"

#include "safety_judge.h"
#include "safety_model.h"

#include <stdio.h>
#include <string.h>

#define MS INT64_C(1000)
#define COMMANDS_MAX 16
#define PERMIT_KEY "expire:semaphore:204"
#define DIGEST "c3f8721cbb97f72bc19e972846bd7aaf91901658"

/* ---- the judge ---- */

/*
 * Slot 0 was granted a lock at 10 ms, which it had asked for at 0. At some time slot 1 was granted it, too, or slot 0
 * found that it had lost it. What is on record besides decides.
 */
struct judge_case {
    const char *name;
    const char *key;
    enum note_kind kind;
    int64_t noted_ms; /* by slot 1, or when slot 0 found its loss */
    int64_t left_ms;  /* by slot 0 */
    bool cut;         /* its connection was closed when it left */
    bool troubled;
    enum trouble_kind trouble;
    unsigned who;
    int64_t begin_ms;
    int64_t end_ms;
    int64_t pause_ms; /* from then to 890 ms its worker did not run; 0: it ran */
    bool del;         /* a late DEL of slot 2 between begin and end */
    enum verdict verdict;
};

/* What most of them say of slots 0 and 1. */
#define LOSS .key = "expire:script:0", .kind = NOTE_LOSS, .noted_ms = 700
#define OVERLAP .key = "expire:script:0", .kind = NOTE_OVERLAP, .noted_ms = 700
#define PERMIT_LOSS .key = PERMIT_KEY, .kind = NOTE_LOSS, .noted_ms = 700
#define TROUBLE(what, begin, end) .troubled = true, .trouble = what, .begin_ms = begin, .end_ms = end
#define LATE_DEL(begin, end) .del = true, .begin_ms = begin, .end_ms = end

/* Leases: expire 500 ms, bounded 600 ms with a max_hold of 2 s, free 3 s. Slot 0 is with Headgate 0 and worker 0. */
static const struct judge_case judge_cases[] = {
    {"overlap", OVERLAP, .left_ms = 900},
    {"loss", LOSS},
    {"early grant", .key = "release:script:12", .kind = NOTE_EARLY, .noted_ms = 700, .left_ms = 900},
    {"nobody is known to have been inside", OVERLAP, .left_ms = 600},
    {"restart", OVERLAP, .left_ms = 900, TROUBLE(TROUBLE_RESTART, 500, 510), .verdict = VERDICT_RESTART},
    {"restart before", LOSS, TROUBLE(TROUBLE_RESTART, -20, -10)},
    {"restart after", LOSS, TROUBLE(TROUBLE_RESTART, 710, 720)},
    {"Headgate away", LOSS, TROUBLE(TROUBLE_AWAY, 500, 650), .verdict = VERDICT_AWAY},
    {"Headgate away for too short a time", LOSS, TROUBLE(TROUBLE_AWAY, 500, 620)},
    {"another Headgate away", LOSS, TROUBLE(TROUBLE_AWAY, 500, 650), .who = 1},
    {"stall", LOSS, TROUBLE(TROUBLE_STALL, 500, 650), .verdict = VERDICT_STALL},
    {"stall of less than a quarter of the lease", .key = "bounded:script:24", .kind = NOTE_LOSS, .noted_ms = 700,
     TROUBLE(TROUBLE_STALL, 500, 640)},
    {"pause of the holder", OVERLAP, .left_ms = 900, TROUBLE(TROUBLE_LATE, 100, 890)},
    {"pause in which the connection was lost", OVERLAP, .left_ms = 900, .cut = true, TROUBLE(TROUBLE_LATE, 100, 890),
     .verdict = VERDICT_LATE},
    {"killed Headgate", OVERLAP, .left_ms = 900, TROUBLE(TROUBLE_KILLED, 500, 500)},
    {"killed Headgate of a holder that did not run", OVERLAP, .left_ms = 900, TROUBLE(TROUBLE_KILLED, 500, 500),
     .pause_ms = 400, .verdict = VERDICT_LATE},
    {"the same of another Headgate", OVERLAP, .left_ms = 900, TROUBLE(TROUBLE_KILLED, 500, 500), .who = 1,
     .pause_ms = 400},
    {"Headgate killed before the lock was asked for", OVERLAP, .left_ms = 900, TROUBLE(TROUBLE_KILLED, -1, -1),
     .pause_ms = 400},
    {"lost connection without a pause", OVERLAP, .left_ms = 900, .cut = true},
    {"stall of what clocks leave of a permit's lease", PERMIT_LOSS, TROUBLE(TROUBLE_STALL, 500, 567),
     .verdict = VERDICT_STALL},
    {"the same for too short a time", PERMIT_LOSS, TROUBLE(TROUBLE_STALL, 500, 566)},
    {"pause before a permit was asked for", PERMIT_LOSS, TROUBLE(TROUBLE_LATE, -1, 67), .verdict = VERDICT_LATE},
    {"the same for too short a time", PERMIT_LOSS, TROUBLE(TROUBLE_LATE, -1, 66)},
    {"pause after a permit was asked for", PERMIT_LOSS, TROUBLE(TROUBLE_LATE, 1, 690)},
    {"pause before a lock was asked for", LOSS, TROUBLE(TROUBLE_LATE, -1, 690)},
    {"pause of another that asks for a permit", PERMIT_LOSS, TROUBLE(TROUBLE_LATE, -1, 690), .who = 1},
    {"max_hold", .key = "bounded:script:24", .kind = NOTE_LOSS, .noted_ms = 2000, .verdict = VERDICT_MAX_HOLD},
    {"just before max_hold", .key = "bounded:script:24", .kind = NOTE_LOSS, .noted_ms = 1999},
    {"unwatched", .key = "free:script:36", .kind = NOTE_LOSS, .noted_ms = 3000, .verdict = VERDICT_UNWATCHED},
    {"unwatched, within its lease", .key = "free:script:36", .kind = NOTE_LOSS, .noted_ms = 2999},
    {"late DEL", .key = "expire:del:48", .kind = NOTE_LOSS, .noted_ms = 700, LATE_DEL(300, 600),
     .verdict = VERDICT_LATE_DEL},
    {"late DEL before, after which others may have met", .key = "expire:del:48", .kind = NOTE_LOSS, .noted_ms = 700,
     LATE_DEL(-30, -1), .verdict = VERDICT_LATE_DEL},
    {"late DEL long before", .key = "expire:del:48", .kind = NOTE_LOSS, .noted_ms = 700, LATE_DEL(-4000, -3000)},
};

static void put_note(struct shared *shared, const struct judge_case *it, enum note_kind kind, unsigned slot,
                     int64_t asked_ms, int64_t end_ms)
{
    int64_t granted_ms = kind == NOTE_OVERLAP || kind == NOTE_EARLY ? end_ms : asked_ms + 10;
    struct note note = {.kind = kind,
                        .lock = (unsigned)locks_find(it->key, strlen(it->key)),
                        .slot = slot,
                        .asked_us = asked_ms * MS,
                        .granted_us = granted_ms * MS,
                        .end_us = end_ms * MS,
                        .lost = it->cut};
    shared_note(shared, &note);
}

static void put_trouble(struct shared *shared, enum trouble_kind kind, unsigned who, int64_t begin_ms, int64_t end_ms)
{
    atomic_store(&shared_trouble(shared, kind, who, begin_ms * MS)->end_us, end_ms * MS);
}

static bool judge_comes_out(const struct judge_case *it)
{
    struct shared *shared = shared_create(&(struct options){.headgate = "", .sections = 1});
    if (shared == NULL)
        return false;
    if (it->kind == NOTE_LOSS) {
        put_note(shared, it, NOTE_LOSS, 0, 0, it->noted_ms);
    } else {
        put_note(shared, it, it->kind, 1, it->noted_ms - 5, it->noted_ms);
        put_note(shared, it, NOTE_END, 0, 0, it->left_ms);
    }
    if (it->del)
        put_note(shared, it, NOTE_LATE_DEL, 2, it->begin_ms, it->end_ms);
    if (it->troubled)
        put_trouble(shared, it->trouble, it->who, it->begin_ms, it->end_ms);
    if (it->pause_ms > 0)
        put_trouble(shared, TROUBLE_LATE, 0, it->pause_ms, 890);
    const struct note *loser;
    bool right = judge_note(shared, &shared->notes[0], &loser) == it->verdict;
    shared_free(shared);
    return right;
}

/* ---- the model ---- */

struct model_case {
    const char *name;
    const char *commands[COMMANDS_MAX]; /* as MONITOR tells them, without time and address; "lua" before a script's */
    unsigned renewals;
    unsigned violations;
};

#define RENEW_A "\"EVALSHA\" \"0123\" \"1\" \"expire:script:0\" \"A\" \"500\" \"300\" \"50\""
#define RENEWAL "lua \"PEXPIRE\" \"expire:script:0\" \"500\""
#define TAKE_A "\"SET\" \"expire:script:0\" \"A\" \"NX\" \"PX\" \"500\""
#define TAKE_B "\"SET\" \"expire:script:0\" \"B\" \"NX\" \"PX\" \"500\""
#define RELEASE_A "\"EVALSHA\" \"" DIGEST "\" \"1\" \"expire:script:0\" \"A\""
#define RELEASED "lua \"del\" \"expire:script:0\""
#define RENEW_PERMIT "\"EVALSHA\" \"0123\" \"1\" \"" PERMIT_KEY "\" \"A\" \"20.5\" \"20\" \"500\""
#define PERMIT_RENEWAL "lua \"ZADD\" \"" PERMIT_KEY "\" \"XX\" \"20.5\" \"A\""

#define HOLDER_OF_PERMIT(token, score)                                                                                 \
    "\"ZADD\" \"" PERMIT_KEY "\" \"" score "\" \"" token "\"", "\"ZRANK\" \"" PERMIT_KEY "\" \"" token "\""
#define MOVED(token, score)                                                                                            \
    "\"EVALSHA\" \"0123\" \"1\" \"" PERMIT_KEY "\" \"" token "\" \"" score "\"",                                       \
        "lua \"ZADD\" \"" PERMIT_KEY "\" \"XX\" \"" score "\" \"" token "\""

static const struct model_case model_cases[] = {
    {"a lock that is held", {TAKE_A, RENEW_A, RENEWAL}, 1, 0},
    {"after its release", {TAKE_A, RELEASE_A, RELEASED, RENEW_A, RENEWAL}, 0, 1},
    {"a release that found another", {TAKE_A, RELEASE_A, RENEW_A, RENEWAL}, 1, 0},
    {"after DEL", {TAKE_A, "\"DEL\" \"expire:script:0\"", RENEW_A, RENEWAL}, 0, 1},
    {"after DEL, when another has it", {TAKE_A, "\"DEL\" \"expire:script:0\"", TAKE_B, RENEW_A, RENEWAL}, 0, 1},
    {"taken again by the same token", {TAKE_A, RELEASE_A, RELEASED, TAKE_A, RENEW_A, RENEWAL}, 1, 0},
    {"a script that finds nothing", {TAKE_A, RELEASE_A, RELEASED, RENEW_A}, 0, 0},
    {"a lock that nobody took", {RENEW_A, RENEWAL}, 0, 1},
    {"a lock without a rule",
     {"\"SET\" \"free:script:36\" \"A\" \"NX\" \"PX\" \"500\"", "\"EVALSHA\" \"0123\" \"1\" \"free:script:36\" \"A\"",
      "lua \"PEXPIRE\" \"free:script:36\" \"500\""},
     0,
     1},
    {"a key that is no lock",
     {"\"EVALSHA\" \"0123\" \"1\" \"other\" \"A\"", "lua \"PEXPIRE\" \"other\" \"500\""},
     0,
     0},
    {"a script in full, with escapes",
     {TAKE_A, "\"EVAL\" \"return \\\"\\n\\x00\\\"\" \"1\" \"expire:script:0\" \"A\"", RENEWAL},
     1,
     0},
    {"a permit", {"\"ZADD\" \"" PERMIT_KEY "\" \"20\" \"A\"", RENEW_PERMIT, PERMIT_RENEWAL}, 1, 0},
    {"a permit that was released",
     {"\"ZADD\" \"" PERMIT_KEY "\" \"20\" \"A\"", "\"ZREM\" \"" PERMIT_KEY "\" \"A\"", RENEW_PERMIT, PERMIT_RENEWAL},
     0,
     1},
    {"a permit that was reaped",
     {"\"ZADD\" \"" PERMIT_KEY "\" \"20\" \"A\"", "\"ZREMRANGEBYSCORE\" \"" PERMIT_KEY "\" \"-inf\" \"20\"",
      RENEW_PERMIT, PERMIT_RENEWAL},
     0,
     1},
    {"a permit that is given to another as renewals made way for it",
     {HOLDER_OF_PERMIT("A", "1699999999.7"), HOLDER_OF_PERMIT("B", "1699999999.8"),
      HOLDER_OF_PERMIT("C", "1699999999.9"), MOVED("A", "1700000000.2"), MOVED("B", "1700000000.2"),
      MOVED("C", "1700000000.2"), HOLDER_OF_PERMIT("D", "1700000000.0")},
     3,
     1},
    {"the same by a clock that is behind by too much",
     {HOLDER_OF_PERMIT("A", "1699999998.7"), HOLDER_OF_PERMIT("B", "1699999998.8"),
      HOLDER_OF_PERMIT("C", "1699999998.9"), MOVED("A", "1699999999.9"), MOVED("B", "1699999999.9"),
      MOVED("C", "1699999999.9"), HOLDER_OF_PERMIT("D", "1699999999.8")},
     3,
     0},
    {"a permit that is given to another whose clock was read first",
     {HOLDER_OF_PERMIT("A", "1699999999.7"), HOLDER_OF_PERMIT("B", "1699999999.8"),
      HOLDER_OF_PERMIT("C", "1700000000.1"), HOLDER_OF_PERMIT("D", "1700000000.0")},
     0,
     0},
    {"after Headgate released it for an owner that was gone",
     {TAKE_A, "\"EVALSHA\" \"4567\" \"1\" \"expire:script:0\" \"A\"", RELEASED, RENEW_A, RENEWAL},
     0,
     1},
};

static void take_command(struct model *model, const char *command)
{
    struct monitor_line line;
    char text[512];
    bool lua = strncmp(command, "lua ", 4) == 0;
    int length = snprintf(text, sizeof text, "+1700000000.000001 [0 %s] %s", lua ? "lua" : "127.0.0.1:4711",
                          lua ? command + 4 : command);
    if (monitor_parse(text, (size_t)length, &line))
        model_take(model, &line);
}

static bool model_comes_out(const struct model_case *it)
{
    struct shared *shared = shared_create(&(struct options){.headgate = "", .sections = 1, .quiet = true});
    if (shared == NULL)
        return false;
    struct model *model = model_new(shared);
    for (size_t at = 0; at < COMMANDS_MAX && it->commands[at] != NULL; at++)
        take_command(model, it->commands[at]);
    bool right = shared_figure(shared, FIGURE_RENEWALS) == it->renewals &&
                 atomic_load(&shared->breaches[BREACH_RENEWAL]) == it->violations;
    model_free(model);
    shared_free(shared);
    return right;
}

static bool tell(const char *what, const char *name, bool right)
{
    if (!right)
        printf("self-test, %s, %s: WRONG\n", what, name);
    return right;
}

bool cases_run(void)
{
    bool right = true;
    for (size_t at = 0; at < sizeof judge_cases / sizeof *judge_cases; at++)
        right = tell("judge", judge_cases[at].name, judge_comes_out(&judge_cases[at])) && right;
    for (size_t at = 0; at < sizeof model_cases / sizeof *model_cases; at++)
        right = tell("model", model_cases[at].name, model_comes_out(&model_cases[at])) && right;
    printf("self-test, %zu cases: %s\n",
           sizeof judge_cases / sizeof *judge_cases + sizeof model_cases / sizeof *model_cases,
           right ? "as they must be" : "WRONG");
    return right;
}
