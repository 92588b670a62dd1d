#include "lease/lease_shape.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MS_PER_S INT64_C(1000)

/* What a reader is given. It takes the arguments off. */
struct request {
    const struct command *command;
    enum lease_unit unit;       /* of the command's time */
    struct resp_walk arguments; /* behind the command's name */
    lease_shape_lookup *lookup;
    void *context;
};

/* ---- arguments ---- */

bool lease_shape_begin(struct resp_walk *arguments, struct slice frame)
{
    *arguments = resp_walk_start(frame);
    return resp_walk_skip(arguments, 1);
}

bool lease_shape_next_key(struct resp_walk *keys, uint32_t step, struct slice *key)
{
    if (!resp_walk_next(keys, key)) {
        return false;
    }
    (void)resp_walk_skip(keys, step - 1);
    return true;
}

/* The argument at a place, from 1 on. */
static bool argument_at(struct resp_walk arguments, uint32_t place, struct slice *argument)
{
    return resp_walk_skip(&arguments, place - 1) && resp_walk_next(&arguments, argument);
}

/* ---- keys and tokens ---- */

/* The keys are the first `count` pairs (or single arguments, if step is 1) of a run; false if there are not so many. */
static bool set_keys(struct lease_shape *shape, struct resp_walk run, uint64_t count, uint32_t step)
{
    struct slice first;

    if (count == 0 || count > run.left / step) {
        return false;
    }
    run.left = (uint32_t)count * step;
    shape->keys = run;
    shape->key_step = step;
    shape->key_count = (uint32_t)count;
    if (!resp_walk_next(&run, &first)) {
        return false;
    }
    shape->key = first;
    return true;
}

static bool set_key(struct lease_shape *shape, struct resp_walk *arguments)
{
    return set_keys(shape, *arguments, 1, 1) && resp_walk_skip(arguments, 1);
}

static bool set_tokens(struct lease_shape *shape, struct resp_walk run, uint32_t count)
{
    struct slice first;

    run.left = count;
    shape->tokens = run;
    shape->token_count = count;
    if (!resp_walk_next(&run, &first)) {
        return false;
    }
    shape->token = first;
    return true;
}

static bool set_token(struct lease_shape *shape, struct resp_walk *arguments)
{
    return arguments->left > 0 && set_tokens(shape, *arguments, 1) && resp_walk_skip(arguments, 1);
}

/* ---- leases ---- */

static bool is_date(enum lease_unit unit)
{
    return unit == LEASE_UNIT_AT_MS || unit == LEASE_UNIT_AT_S;
}

static bool in_seconds(enum lease_unit unit)
{
    return unit == LEASE_UNIT_S || unit == LEASE_UNIT_AT_S;
}

/* The time in ms; false if that is no number that Redis can hold. */
static bool read_time(struct slice text, enum lease_unit unit, int64_t *ms)
{
    return word_integer(text, ms) && !(in_seconds(unit) && __builtin_mul_overflow(*ms, MS_PER_S, ms));
}

static void set_lease(struct lease_shape *shape, int64_t ms, enum lease_unit unit)
{
    if (is_date(unit)) {
        shape->expires_at = in_seconds(unit) ? ms / MS_PER_S : ms;
        shape->expires_unit = unit;
    } else if (ms <= LEASE_MS_MAX) {
        shape->lease_ms = ms;
    }
}

int64_t lease_shape_ms(const struct lease_shape *shape, int64_t wall_ms)
{
    int64_t at = shape->expires_at;
    int64_t left;

    if (shape->expires_unit == LEASE_UNIT_NONE) {
        return shape->lease_ms;
    }
    if ((shape->expires_unit == LEASE_UNIT_AT_S && __builtin_mul_overflow(at, MS_PER_S, &at)) ||
        __builtin_sub_overflow(at, wall_ms, &left)) {
        return 0;
    }
    return left > 0 && left <= LEASE_MS_MAX ? left : 0;
}

/* ---- SET and MSETEX ---- */

enum set_condition { SET_ALWAYS, SET_NX, SET_XX, SET_IFEQ, SET_OTHER };

struct set_options {
    enum set_condition condition;
    bool get;
    bool keeps_ttl;
    enum lease_unit unit;
    struct slice time; /* in unit */
    int64_t ms;
    struct slice match; /* of SET_IFEQ */
};

static bool read_condition(struct set_options *options, struct slice word, struct resp_walk *arguments, bool *known)
{
    static const struct {
        const char *word;
        enum set_condition condition;
        bool has_value;
    } conditions[] = {{"nx", SET_NX, false},     {"xx", SET_XX, false},      {"ifeq", SET_IFEQ, true},
                      {"ifne", SET_OTHER, true}, {"ifdeq", SET_OTHER, true}, {"ifdne", SET_OTHER, true}};

    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++) {
        if (!word_is(word, conditions[i].word)) {
            continue;
        }
        *known = true;
        /* The same word twice is sound, but only if nothing has to match. */
        if (options->condition != SET_ALWAYS &&
            (options->condition != conditions[i].condition || conditions[i].has_value)) {
            return false;
        }
        options->condition = conditions[i].condition;
        return !conditions[i].has_value || resp_walk_next(arguments, &options->match);
    }
    return true;
}

static bool read_expiry(struct set_options *options, struct slice word, struct resp_walk *arguments, bool *known)
{
    static const struct {
        const char *word;
        enum lease_unit unit;
    } units[] = {{"ex", LEASE_UNIT_S}, {"px", LEASE_UNIT_MS}, {"exat", LEASE_UNIT_AT_S}, {"pxat", LEASE_UNIT_AT_MS}};

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (word_is(word, units[i].word)) {
            *known = true;
            /* The same unit twice is sound, and the last one counts. */
            if (options->keeps_ttl || (options->unit != LEASE_UNIT_NONE && options->unit != units[i].unit)) {
                return false;
            }
            options->unit = units[i].unit;
            return resp_walk_next(arguments, &options->time);
        }
    }
    return true;
}

static bool read_option(struct set_options *options, struct slice word, struct resp_walk *arguments)
{
    bool known = false;

    if (word_is(word, "get")) {
        options->get = true;
        return true;
    }
    if (word_is(word, "keepttl")) {
        options->keeps_ttl = true;
        return options->unit == LEASE_UNIT_NONE;
    }
    if (!read_condition(options, word, arguments, &known) || !read_expiry(options, word, arguments, &known)) {
        return false;
    }
    return known;
}

/* False if Redis would refuse them. */
static bool read_options(struct set_options *options, struct resp_walk *arguments)
{
    struct slice word;

    *options = (struct set_options){.condition = SET_ALWAYS};
    while (arguments->left > 0) {
        if (!resp_walk_next(arguments, &word) || !read_option(options, word, arguments)) {
            return false;
        }
    }
    return options->unit == LEASE_UNIT_NONE ||
           (read_time(options->time, options->unit, &options->ms) && options->ms > 0);
}

static enum lease_reply set_reply(const struct set_options *options)
{
    if (!options->get) {
        return LEASE_REPLY_OK;
    }
    switch (options->condition) {
    case SET_NX:
        return LEASE_REPLY_NIL;
    case SET_XX:
        return LEASE_REPLY_VALUE;
    case SET_ALWAYS:
        return LEASE_REPLY_NO_ERROR;
    default:
        return LEASE_REPLY_NONE;
    }
}

/* A value that is in place of itself extends if it brings a time to live, and so does any value by XX, as ShedLock
 * sends it: that compares nothing. All else takes the lock from its owner. */
static enum lease_action set_action(const struct set_options *options, struct slice value)
{
    bool may_extend =
        options->condition == SET_XX || (options->condition == SET_IFEQ && slice_equal(options->match, value));

    if (options->condition == SET_NX) {
        return LEASE_ACQUIRE;
    }
    if (options->keeps_ttl) {
        return LEASE_WRITE;
    }
    return may_extend && options->unit != LEASE_UNIT_NONE ? LEASE_EXTEND : LEASE_FORCE_RELEASE;
}

static bool read_set(struct lease_shape *shape, struct request *request)
{
    struct set_options options;

    if (!set_key(shape, &request->arguments) || !set_token(shape, &request->arguments) ||
        !read_options(&options, &request->arguments)) {
        return false;
    }
    shape->reply = set_reply(&options);
    set_lease(shape, options.ms, options.unit);
    shape->action = set_action(&options, shape->token);
    shape->replaces = shape->action == LEASE_EXTEND && options.condition == SET_XX;
    return true;
}

/* Whether all of the pairs have the value of the first, which is the token. */
static bool one_value(struct lease_shape *shape, struct resp_walk pairs)
{
    struct slice value;

    if (!resp_walk_skip(&pairs, 1) || !set_token(shape, &pairs)) {
        return false;
    }
    while (pairs.left > 0) {
        if (!resp_walk_skip(&pairs, 1) || !resp_walk_next(&pairs, &value) || !slice_equal(value, shape->token)) {
            return false;
        }
    }
    return true;
}

/* MSETEX numkeys key value … options. Under several values there is no lock, but one may be replaced. */
static bool read_msetex(struct lease_shape *shape, struct request *request)
{
    struct resp_walk *arguments = &request->arguments;
    struct set_options options;
    struct slice text;
    int64_t count;

    if (!resp_walk_next(arguments, &text) || !word_integer(text, &count) || count < 1 ||
        !set_keys(shape, *arguments, (uint64_t)count, 2) || !resp_walk_skip(arguments, (uint64_t)count * 2) ||
        !read_options(&options, arguments) || options.get || options.keeps_ttl) {
        return false;
    }
    set_lease(shape, options.ms, options.unit);
    if (options.condition == SET_NX) {
        shape->action = LEASE_ACQUIRE;
        return one_value(shape, shape->keys);
    }
    return options.condition == SET_ALWAYS;
}

/* MSETNX key value … */
static bool read_msetnx(struct lease_shape *shape, struct request *request)
{
    struct resp_walk pairs = request->arguments;

    return pairs.left % 2 == 0 && set_keys(shape, pairs, pairs.left / 2, 2) && one_value(shape, shape->keys);
}

/* ---- what removes or replaces keys ---- */

/* One key and one token, and no more. */
static bool read_key_and_token(struct lease_shape *shape, struct request *request)
{
    return request->arguments.left == 2 && set_key(shape, &request->arguments) && set_token(shape, &request->arguments);
}

/* DELEX key [IFEQ token | another condition] */
static bool read_delex(struct lease_shape *shape, struct request *request)
{
    struct slice word;

    if (!set_key(shape, &request->arguments)) {
        return false;
    }
    if (request->arguments.left == 0) {
        return true;
    }
    if (request->arguments.left != 2 || !resp_walk_next(&request->arguments, &word)) {
        return false;
    }
    shape->action = word_is(word, "ifeq") ? LEASE_RELEASE : LEASE_FORCE_RELEASE;
    return set_token(shape, &request->arguments);
}

/* The keys are those of the command table. */
static bool read_keys(struct lease_shape *shape, struct request *request)
{
    const struct command *command = request->command;
    struct resp_walk arguments = request->arguments;
    int64_t total = (int64_t)arguments.left + 1;
    int64_t last = command->last_key < 0 ? total + command->last_key : command->last_key;
    int64_t span = last - command->first_key;
    uint32_t step = (uint32_t)command->key_step;

    if (command->first_key < 1 || command->key_step < 1 || span < 0 ||
        (command->arity > 0 ? total != command->arity : total < -command->arity) ||
        !resp_walk_skip(&arguments, (uint64_t)command->first_key - 1)) {
        return false;
    }
    uint64_t count = (uint64_t)span / step + 1;
    /* A last key without its value is none that Redis would take. */
    return count <= arguments.left / step && set_keys(shape, arguments, count, step);
}

/* What it does to the lock of that key is for Redis to say. */
static bool read_first_key(struct lease_shape *shape, struct request *request)
{
    return set_keys(shape, request->arguments, 1, 1);
}

/* Without an option it only reads. */
static bool read_getex(struct lease_shape *shape, struct request *request)
{
    return request->arguments.left > 1 && read_first_key(shape, request);
}

static bool read_flush(struct lease_shape *shape, struct request *request)
{
    shape->every_key = true;
    shape->one_database = strcmp(request->command->name, "flushdb") == 0;
    return true;
}

/* ---- times to live ---- */

static bool only_expire_options(struct resp_walk arguments)
{
    struct slice word;

    while (arguments.left > 0) {
        if (!resp_walk_next(&arguments, &word) ||
            !(word_is(word, "nx") || word_is(word, "xx") || word_is(word, "gt") || word_is(word, "lt"))) {
            return false;
        }
    }
    return true;
}

static bool read_expire(struct lease_shape *shape, struct request *request)
{
    struct slice text;
    int64_t ms;

    if (!set_key(shape, &request->arguments) || !resp_walk_next(&request->arguments, &text) ||
        !read_time(text, request->unit, &ms) || !only_expire_options(request->arguments)) {
        return false;
    }
    if (ms > 0) {
        set_lease(shape, ms, request->unit);
    } else {
        shape->action = LEASE_FORCE_RELEASE;
    }
    return true;
}

/* ---- semaphores of plain commands ---- */

static bool read_zadd(struct lease_shape *shape, struct request *request)
{
    return request->arguments.left == 3 && set_key(shape, &request->arguments) &&
           resp_walk_next(&request->arguments, &shape->score) && set_token(shape, &request->arguments);
}

static bool read_zrem(struct lease_shape *shape, struct request *request)
{
    return set_key(shape, &request->arguments) && set_tokens(shape, request->arguments, request->arguments.left);
}

/* ZREMRANGEBYSCORE key -inf bound */
static bool read_zremrangebyscore(struct lease_shape *shape, struct request *request)
{
    struct slice least;

    return request->arguments.left == 3 && set_key(shape, &request->arguments) &&
           resp_walk_next(&request->arguments, &least) && resp_walk_next(&request->arguments, &shape->score) &&
           (word_is(least, "-inf") || word_is(least, "0"));
}

/* ---- scripts ---- */

static bool set_script_keys(struct lease_shape *shape, const struct lease_script *script, struct resp_walk arguments,
                            uint64_t count)
{
    if (script->key == 0) {
        return set_keys(shape, arguments, count, 1);
    }
    return script->key <= count && resp_walk_skip(&arguments, script->key - 1u) && set_keys(shape, arguments, 1, 1);
}

/* values: the arguments behind the keys */
static bool set_script_tokens(struct lease_shape *shape, const struct lease_script *script, struct resp_walk values)
{
    if (script->token == 0) {
        return true;
    }
    return resp_walk_skip(&values, script->token - 1u) && values.left > 0 &&
           set_tokens(shape, values, script->tokens ? values.left : 1);
}

/* Of a date in the client's time, what is left then counts; where there is a date so far away that it means never,
 * there is no lease. */
static bool read_script_lease(const struct lease_script *script, struct resp_walk values, int64_t *ms)
{
    struct slice text;
    int64_t now = 0;

    return argument_at(values, script->lease, &text) && read_time(text, script->unit, ms) &&
           (script->now == 0 || (argument_at(values, script->now, &text) && word_integer(text, &now))) &&
           !__builtin_sub_overflow(*ms, now, ms);
}

/* A lease that is over as it begins: nothing is taken with it, and what is extended by it is given back. */
static bool set_script_lease(struct lease_shape *shape, const struct lease_script *script, struct resp_walk values)
{
    int64_t ms;

    if (script->lease == 0) {
        return true;
    }
    if (!read_script_lease(script, values, &ms)) {
        return false;
    }
    if (ms <= 0) {
        shape->action = LEASE_RELEASE;
        return script->action == LEASE_EXTEND;
    }
    set_lease(shape, ms, script->now != 0 ? LEASE_UNIT_MS : script->unit);
    return true;
}

static bool set_script_extras(struct lease_shape *shape, const struct lease_script *script, struct resp_walk values)
{
    struct slice word = {NULL, 0};

    if ((script->score != 0 && !argument_at(values, script->score, &shape->score)) ||
        (script->adds != 0 && !argument_at(values, script->adds, &word))) {
        return false;
    }
    shape->adds = word_is(word, "0");
    return true;
}

/* Who does not declare the keys gives them as values, or not at all. Those that are left out because there are so many
 * may be keys, too. */
static bool read_unknown_call(struct lease_shape *shape, struct resp_walk arguments, uint32_t keys)
{
    uint32_t values = arguments.left - keys;
    uint32_t looked_at = values < LEASE_VALUES_MAX ? values : LEASE_VALUES_MAX;

    shape->action = LEASE_UNSEEN;
    shape->undeclared = keys == 0 || looked_at < values;
    return arguments.left == 0 || set_keys(shape, arguments, keys + looked_at, 1);
}

/* The arguments begin with the number of the keys; the script is NULL if it is in no table. */
static bool read_call(struct lease_shape *shape, const struct lease_script *script, struct resp_walk arguments)
{
    struct slice text;
    int64_t count;

    if (!resp_walk_next(&arguments, &text) || !word_integer(text, &count) || count < 0 || count > arguments.left) {
        return false;
    }
    if (script == NULL) {
        return read_unknown_call(shape, arguments, (uint32_t)count);
    }
    if (count == 0) {
        return false;
    }
    struct resp_walk values = arguments;
    shape->action = script->action;
    shape->kind = script->kind;
    shape->reply = script->reply;
    shape->renews = script->renews;
    shape->script = script;
    return resp_walk_skip(&values, (uint64_t)count) && set_script_keys(shape, script, arguments, (uint64_t)count) &&
           set_script_tokens(shape, script, values) && set_script_lease(shape, script, values) &&
           set_script_extras(shape, script, values);
}

static bool read_eval(struct lease_shape *shape, struct request *request)
{
    struct slice text;

    return resp_walk_next(&request->arguments, &text) && read_call(shape, lease_shape_learn(text), request->arguments);
}

static const struct lease_script *find_script(struct slice digest, lease_shape_lookup *lookup, void *context)
{
    const struct lease_script *script;
    char lower_case[LEASE_DIGEST_LENGTH];

    if (digest.length != LEASE_DIGEST_LENGTH) {
        return NULL;
    }
    for (size_t i = 0; i < LEASE_DIGEST_LENGTH; i++) {
        lower_case[i] = (char)tolower((unsigned char)digest.data[i]);
    }
    script = lease_script_find(lower_case);
    if (script == NULL && lookup != NULL) {
        script = lookup(context, (struct slice){lower_case, sizeof lower_case});
    }
    return script;
}

static bool read_evalsha(struct lease_shape *shape, struct request *request)
{
    struct slice digest;

    return resp_walk_next(&request->arguments, &digest) &&
           read_call(shape, find_script(digest, request->lookup, request->context), request->arguments);
}

/* FCALL name numkeys key … */
static bool read_fcall(struct lease_shape *shape, struct request *request)
{
    struct slice name;

    return resp_walk_next(&request->arguments, &name) && read_call(shape, NULL, request->arguments);
}

/* ---- which request is which ---- */

/* False if the request means nothing. Where it means something else than its row says, the reader sets that. */
typedef bool shape_reader(struct lease_shape *shape, struct request *request);

static const struct reader {
    const char *name;
    shape_reader *read;
    enum lease_action action;
    enum lease_kind kind;
    enum lease_reply reply;
    enum lease_unit unit;
} readers[] = {
    /* sorted */
    {"append", read_first_key, LEASE_WRITE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"del", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_COUNT, LEASE_UNIT_NONE},
    {"delex", read_delex, LEASE_FORCE_RELEASE, LEASE_STRING, LEASE_REPLY_ONE, LEASE_UNIT_NONE},
    {"delifeq", read_key_and_token, LEASE_RELEASE, LEASE_STRING, LEASE_REPLY_ONE, LEASE_UNIT_NONE},
    {"delifequals", read_key_and_token, LEASE_RELEASE, LEASE_STRING, LEASE_REPLY_ONE, LEASE_UNIT_NONE},
    {"eval", read_eval, LEASE_NOTHING, LEASE_KIND_ANY, LEASE_REPLY_NONE, LEASE_UNIT_NONE},
    {"evalsha", read_evalsha, LEASE_NOTHING, LEASE_KIND_ANY, LEASE_REPLY_NONE, LEASE_UNIT_NONE},
    {"expire", read_expire, LEASE_EXPIRE, LEASE_KIND_ANY, LEASE_REPLY_ONE, LEASE_UNIT_S},
    {"expireat", read_expire, LEASE_EXPIRE, LEASE_KIND_ANY, LEASE_REPLY_ONE, LEASE_UNIT_AT_S},
    {"fcall", read_fcall, LEASE_UNSEEN, LEASE_KIND_ANY, LEASE_REPLY_NONE, LEASE_UNIT_NONE},
    {"flushall", read_flush, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"flushdb", read_flush, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"getdel", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_VALUE, LEASE_UNIT_NONE},
    {"getex", read_getex, LEASE_WRITE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"getset", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"move", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_COUNT, LEASE_UNIT_NONE},
    {"mset", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"msetex", read_msetex, LEASE_FORCE_RELEASE, LEASE_STRINGS, LEASE_REPLY_ONE, LEASE_UNIT_NONE},
    {"msetnx", read_msetnx, LEASE_ACQUIRE, LEASE_STRINGS, LEASE_REPLY_ONE, LEASE_UNIT_NONE},
    {"persist", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_COUNT, LEASE_UNIT_NONE},
    {"pexpire", read_expire, LEASE_EXPIRE, LEASE_KIND_ANY, LEASE_REPLY_ONE, LEASE_UNIT_MS},
    {"pexpireat", read_expire, LEASE_EXPIRE, LEASE_KIND_ANY, LEASE_REPLY_ONE, LEASE_UNIT_AT_MS},
    {"psetex", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"rename", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"renamenx", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_COUNT, LEASE_UNIT_NONE},
    {"restore", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"set", read_set, LEASE_FORCE_RELEASE, LEASE_STRING, LEASE_REPLY_OK, LEASE_UNIT_NONE},
    {"setex", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"setnx", read_key_and_token, LEASE_ACQUIRE, LEASE_STRING, LEASE_REPLY_ONE, LEASE_UNIT_NONE},
    {"setrange", read_first_key, LEASE_WRITE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"swapdb", read_flush, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_NO_ERROR, LEASE_UNIT_NONE},
    {"unlink", read_keys, LEASE_FORCE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_COUNT, LEASE_UNIT_NONE},
    {"zadd", read_zadd, LEASE_SCORE, LEASE_SEMAPHORE_BY_START, LEASE_REPLY_NONE, LEASE_UNIT_NONE},
    {"zrank", read_key_and_token, LEASE_RANK, LEASE_SEMAPHORE_BY_START, LEASE_REPLY_NONE, LEASE_UNIT_NONE},
    {"zrem", read_zrem, LEASE_RELEASE, LEASE_KIND_ANY, LEASE_REPLY_COUNT, LEASE_UNIT_NONE},
    {"zremrangebylex", read_first_key, LEASE_UNSEEN, LEASE_KIND_ANY, LEASE_REPLY_NONE, LEASE_UNIT_NONE},
    {"zremrangebyrank", read_first_key, LEASE_UNSEEN, LEASE_KIND_ANY, LEASE_REPLY_NONE, LEASE_UNIT_NONE},
    {"zremrangebyscore", read_zremrangebyscore, LEASE_REAP, LEASE_SEMAPHORE_BY_START, LEASE_REPLY_NONE,
     LEASE_UNIT_NONE},
};

static int compare_reader(const void *name, const void *reader)
{
    return strcmp(name, ((const struct reader *)reader)->name);
}

static const struct reader *find_reader(const struct command *command)
{
    return command == NULL
               ? NULL
               : bsearch(command->name, readers, sizeof readers / sizeof readers[0], sizeof readers[0], compare_reader);
}

bool lease_shape_wants(const struct command *command)
{
    return find_reader(command) != NULL;
}

void lease_shape_read(struct lease_shape *shape, const struct command *command, struct slice frame,
                      lease_shape_lookup *lookup, void *context)
{
    const struct reader *reader = find_reader(command);
    struct request request = {.command = command, .lookup = lookup, .context = context};

    *shape = (struct lease_shape){.action = LEASE_NOTHING};
    if (reader == NULL || !lease_shape_begin(&request.arguments, frame)) {
        return;
    }
    request.unit = reader->unit;
    shape->action = reader->action;
    shape->kind = reader->kind;
    shape->reply = reader->reply;
    if (!reader->read(shape, &request) || shape->action == LEASE_NOTHING) {
        *shape = (struct lease_shape){.action = LEASE_NOTHING};
    }
}

bool lease_shape_text(const struct command *command, struct slice frame, struct slice *text)
{
    struct resp_walk arguments;
    struct slice word;

    if (command == NULL || !lease_shape_begin(&arguments, frame)) {
        return false;
    }
    if (strcmp(command->name, "eval") == 0) {
        return resp_walk_next(&arguments, text);
    }
    return strcmp(command->name, "script") == 0 && resp_walk_next(&arguments, &word) && word_is(word, "load") &&
           resp_walk_next(&arguments, text);
}
