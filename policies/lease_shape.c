#include "lease_shape.h"

#include <string.h>
#include <strings.h>

#define MS_PER_S INT64_C(1000)

/* ---- arguments ---- */

static bool is_word(struct slice text, const char *word)
{
    return text.length == strlen(word) && strncasecmp(text.data, word, text.length) == 0;
}

static bool equal(struct slice a, struct slice b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

/* An integer as Redis reads one: no blanks, no plus sign, no zeros in front. */
static bool read_integer(struct slice text, int64_t *value)
{
    bool negative = text.length > 0 && text.data[0] == '-';
    size_t at = negative ? 1 : 0;
    int64_t sum = 0;

    if (text.length == at || text.length > 20 || (text.data[at] == '0' && text.length > 1)) {
        return false;
    }
    for (; at < text.length; at++) {
        int digit = text.data[at] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_sub_overflow(sum, digit, &sum)) {
            return false;
        }
    }
    if (!negative && sum == INT64_MIN) {
        return false;
    }
    *value = negative ? sum : -sum;
    return true;
}

/* Takes a mark, digits, CR and LF. */
static bool take_line(struct lease_run *run, char mark, uint64_t *number)
{
    const char *at = run->next;
    uint64_t sum = 0;

    if (run->end - at < 4 || *at != mark) {
        return false;
    }
    for (at++; at < run->end && *at >= '0' && *at <= '9'; at++) {
        if (sum > UINT32_MAX) {
            return false;
        }
        sum = sum * 10 + (uint64_t)(*at - '0');
    }
    if (at == run->next + 1 || run->end - at < 2 || at[0] != '\r' || at[1] != '\n') {
        return false;
    }
    run->next = at + 2;
    *number = sum;
    return true;
}

static bool take(struct lease_run *run, struct slice *argument)
{
    uint64_t length;

    if (run->left == 0) {
        return false;
    }
    if (!take_line(run, '$', &length) || (uint64_t)(run->end - run->next) < length + 2 || run->next[length] != '\r' ||
        run->next[length + 1] != '\n') {
        run->left = 0;
        return false;
    }
    *argument = (struct slice){run->next, length};
    run->next += length + 2;
    run->left--;
    return true;
}

bool lease_run_next(struct lease_run *run, struct slice *argument)
{
    struct slice passed_over;

    if (!take(run, argument)) {
        return false;
    }
    for (uint32_t i = 1; i < run->step && run->left > 0; i++) {
        (void)take(run, &passed_over);
    }
    return true;
}

/* The arguments behind the command's name. */
static bool start(struct slice frame, struct lease_run *arguments)
{
    uint64_t count;
    struct slice name;

    if (frame.length == 0) {
        return false;
    }
    *arguments = (struct lease_run){.next = frame.data, .end = frame.data + frame.length, .step = 1};
    if (!take_line(arguments, '*', &count) || count == 0 || count > RESP_ARGUMENTS_MAX) {
        return false;
    }
    arguments->left = (uint32_t)count;
    return take(arguments, &name);
}

static bool skip(struct lease_run *run, uint64_t count)
{
    struct slice passed_over;

    while (count > 0 && take(run, &passed_over)) {
        count--;
    }
    return count == 0;
}

/* The argument at a place, from 1; *from begins with it. */
static bool find(struct lease_run run, uint32_t place, struct slice *argument, struct lease_run *from)
{
    if (!skip(&run, place - 1)) {
        return false;
    }
    *from = run;
    return take(&run, argument);
}

/* The keys are the first `count` pairs (or single arguments, if step is 1) of a run; false if there are not so many. */
static bool set_keys(struct lease_shape *shape, struct lease_run run, uint64_t count, uint32_t step)
{
    struct slice first;

    if (count == 0 || count > run.left / step) {
        return false;
    }
    run.left = (uint32_t)count * step;
    run.step = step;
    shape->keys = run;
    shape->key_count = (uint32_t)count;
    if (!take(&run, &first)) {
        return false;
    }
    shape->key = first;
    return true;
}

static bool set_key(struct lease_shape *shape, struct lease_run *arguments)
{
    return set_keys(shape, *arguments, 1, 1) && skip(arguments, 1);
}

static bool set_tokens(struct lease_shape *shape, struct lease_run run, uint32_t count)
{
    struct slice first;

    run.left = count;
    run.step = 1;
    shape->tokens = run;
    shape->token_count = count;
    if (!take(&run, &first)) {
        return false;
    }
    shape->token = first;
    return true;
}

static bool set_token(struct lease_shape *shape, struct lease_run *arguments)
{
    return arguments->left > 0 && set_tokens(shape, *arguments, 1) && skip(arguments, 1);
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
    return read_integer(text, ms) && !(in_seconds(unit) && __builtin_mul_overflow(*ms, MS_PER_S, ms));
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

static bool read_condition(struct set_options *options, struct slice word, struct lease_run *arguments, bool *known)
{
    static const struct {
        const char *word;
        enum set_condition condition;
        bool has_value;
    } conditions[] = {{"nx", SET_NX, false},     {"xx", SET_XX, false},      {"ifeq", SET_IFEQ, true},
                      {"ifne", SET_OTHER, true}, {"ifdeq", SET_OTHER, true}, {"ifdne", SET_OTHER, true}};

    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++) {
        if (!is_word(word, conditions[i].word)) {
            continue;
        }
        *known = true;
        /* The same word twice is sound, but only if nothing has to match. */
        if (options->condition != SET_ALWAYS &&
            (options->condition != conditions[i].condition || conditions[i].has_value)) {
            return false;
        }
        options->condition = conditions[i].condition;
        return !conditions[i].has_value || take(arguments, &options->match);
    }
    return true;
}

static bool read_expiry(struct set_options *options, struct slice word, struct lease_run *arguments, bool *known)
{
    static const struct {
        const char *word;
        enum lease_unit unit;
    } units[] = {{"ex", LEASE_UNIT_S}, {"px", LEASE_UNIT_MS}, {"exat", LEASE_UNIT_AT_S}, {"pxat", LEASE_UNIT_AT_MS}};

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (is_word(word, units[i].word)) {
            *known = true;
            /* The same unit twice is sound, and the last one counts. */
            if (options->keeps_ttl || (options->unit != LEASE_UNIT_NONE && options->unit != units[i].unit)) {
                return false;
            }
            options->unit = units[i].unit;
            return take(arguments, &options->time);
        }
    }
    return true;
}

static bool read_option(struct set_options *options, struct slice word, struct lease_run *arguments)
{
    bool known = false;

    if (is_word(word, "get")) {
        options->get = true;
        return true;
    }
    if (is_word(word, "keepttl")) {
        options->keeps_ttl = true;
        return options->unit == LEASE_UNIT_NONE;
    }
    if (!read_condition(options, word, arguments, &known) || !read_expiry(options, word, arguments, &known)) {
        return false;
    }
    return known;
}

/* False if Redis would refuse them. */
static bool read_options(struct set_options *options, struct lease_run *arguments)
{
    struct slice word;

    *options = (struct set_options){.condition = SET_ALWAYS};
    while (arguments->left > 0) {
        if (!take(arguments, &word) || !read_option(options, word, arguments)) {
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
    bool may_extend = options->condition == SET_XX || (options->condition == SET_IFEQ && equal(options->match, value));

    if (options->keeps_ttl) {
        return LEASE_NOTHING;
    }
    if (options->condition == SET_NX) {
        return LEASE_ACQUIRE;
    }
    return may_extend && options->unit != LEASE_UNIT_NONE ? LEASE_EXTEND : LEASE_FORCE_RELEASE;
}

static void read_set(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    struct set_options options;

    (void)command;
    if (!set_key(shape, &arguments) || !set_token(shape, &arguments) || !read_options(&options, &arguments)) {
        return;
    }
    shape->kind = LEASE_STRING;
    shape->reply = set_reply(&options);
    set_lease(shape, options.ms, options.unit);
    shape->action = set_action(&options, shape->token);
}

static void read_setnx(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    (void)command;
    if (arguments.left == 2 && set_key(shape, &arguments) && set_token(shape, &arguments)) {
        shape->kind = LEASE_STRING;
        shape->reply = LEASE_REPLY_ONE;
        shape->action = LEASE_ACQUIRE;
    }
}

/* Whether all of the pairs have the value of the first, which is the token. */
static bool one_value(struct lease_shape *shape, struct lease_run pairs)
{
    struct slice value;

    if (!skip(&pairs, 1) || !set_token(shape, &pairs)) {
        return false;
    }
    while (pairs.left > 0) {
        if (!skip(&pairs, 1) || !take(&pairs, &value) || !equal(value, shape->token)) {
            return false;
        }
    }
    return true;
}

/* MSETEX numkeys key value … options. Under several values there is no lock, but one may be replaced. */
static void read_msetex(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    struct set_options options;
    struct slice text;
    int64_t count;

    (void)command;
    if (!take(&arguments, &text) || !read_integer(text, &count) || count < 1 ||
        !set_keys(shape, arguments, (uint64_t)count, 2) || !skip(&arguments, (uint64_t)count * 2) ||
        !read_options(&options, &arguments) || options.get || options.condition > SET_XX || options.keeps_ttl) {
        return;
    }
    shape->kind = LEASE_STRINGS;
    shape->reply = LEASE_REPLY_ONE;
    set_lease(shape, options.ms, options.unit);
    if (options.condition == SET_ALWAYS) {
        shape->action = LEASE_FORCE_RELEASE;
    } else if (options.condition == SET_NX && one_value(shape, shape->keys)) {
        shape->action = LEASE_ACQUIRE;
    }
}

/* ---- what removes or replaces keys ---- */

/* DELIFEQ key token */
static void read_delifeq(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    (void)command;
    if (arguments.left == 2 && set_key(shape, &arguments) && set_token(shape, &arguments)) {
        shape->kind = LEASE_STRING;
        shape->reply = LEASE_REPLY_ONE;
        shape->action = LEASE_RELEASE;
    }
}

/* DELEX key [IFEQ token | another condition] */
static void read_delex(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    struct slice word;

    (void)command;
    if (!set_key(shape, &arguments) || (arguments.left != 0 && arguments.left != 2)) {
        return;
    }
    shape->kind = LEASE_STRING;
    shape->reply = LEASE_REPLY_ONE;
    if (arguments.left == 0) {
        shape->action = LEASE_FORCE_RELEASE;
    } else if (take(&arguments, &word) && set_token(shape, &arguments)) {
        shape->action = is_word(word, "ifeq") ? LEASE_RELEASE : LEASE_FORCE_RELEASE;
    }
}

/* The keys are those of the command table. */
static void force(struct lease_shape *shape, const struct command *command, struct lease_run arguments,
                  enum lease_reply reply)
{
    int64_t total = (int64_t)arguments.left + 1;
    int64_t last = command->last_key < 0 ? total + command->last_key : command->last_key;
    int64_t span = last - command->first_key;
    uint32_t step = (uint32_t)command->key_step;

    if (command->first_key < 1 || command->key_step < 1 || span < 0 ||
        (command->arity > 0 ? total != command->arity : total < -command->arity) ||
        !skip(&arguments, (uint64_t)command->first_key - 1)) {
        return;
    }
    uint64_t count = (uint64_t)span / step + 1;
    /* A last key without its value is none that Redis would take. */
    if (count <= arguments.left / step && set_keys(shape, arguments, count, step)) {
        shape->reply = reply;
        shape->action = LEASE_FORCE_RELEASE;
    }
}

static void read_removal(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    force(shape, command, arguments, LEASE_REPLY_COUNT);
}

static void read_getdel(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    force(shape, command, arguments, LEASE_REPLY_VALUE);
}

static void read_replacement(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    force(shape, command, arguments, LEASE_REPLY_NO_ERROR);
}

static void read_flush(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    (void)command;
    (void)arguments;
    shape->every_key = true;
    shape->reply = LEASE_REPLY_NO_ERROR;
    shape->action = LEASE_FORCE_RELEASE;
}

/* ---- times to live ---- */

static bool only_expire_options(struct lease_run arguments)
{
    struct slice word;

    while (arguments.left > 0) {
        if (!take(&arguments, &word) ||
            !(is_word(word, "nx") || is_word(word, "xx") || is_word(word, "gt") || is_word(word, "lt"))) {
            return false;
        }
    }
    return true;
}

static void expire(struct lease_shape *shape, struct lease_run arguments, enum lease_unit unit)
{
    struct slice text;
    int64_t ms;

    if (!set_key(shape, &arguments) || !take(&arguments, &text) || !read_time(text, unit, &ms) ||
        !only_expire_options(arguments)) {
        return;
    }
    shape->reply = LEASE_REPLY_ONE;
    shape->action = LEASE_EXPIRE;
    if (ms > 0) {
        set_lease(shape, ms, unit);
    } else {
        shape->action = LEASE_FORCE_RELEASE;
    }
}

static void read_expire(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    (void)command;
    expire(shape, arguments, LEASE_UNIT_S);
}

static void read_pexpire(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    (void)command;
    expire(shape, arguments, LEASE_UNIT_MS);
}

static void read_expireat(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    (void)command;
    expire(shape, arguments, LEASE_UNIT_AT_S);
}

static void read_pexpireat(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    (void)command;
    expire(shape, arguments, LEASE_UNIT_AT_MS);
}

/* ---- semaphores of plain commands ---- */

static void read_zadd(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    struct slice score;

    (void)command;
    if (arguments.left == 3 && set_key(shape, &arguments) && take(&arguments, &score) && set_token(shape, &arguments)) {
        shape->score = score;
        shape->kind = LEASE_SEMAPHORE_BY_START;
        shape->action = LEASE_SCORE;
    }
}

static void read_zrank(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    (void)command;
    if (arguments.left == 2 && set_key(shape, &arguments) && set_token(shape, &arguments)) {
        shape->kind = LEASE_SEMAPHORE_BY_START;
        shape->action = LEASE_RANK;
    }
}

static void read_zrem(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    (void)command;
    if (set_key(shape, &arguments) && set_tokens(shape, arguments, arguments.left)) {
        shape->reply = LEASE_REPLY_COUNT;
        shape->action = LEASE_RELEASE;
    }
}

/* ZREMRANGEBYSCORE key -inf bound */
static void read_zremrangebyscore(struct lease_shape *shape, const struct command *command, struct lease_run arguments)
{
    struct slice least, bound;

    (void)command;
    if (arguments.left == 3 && set_key(shape, &arguments) && take(&arguments, &least) && take(&arguments, &bound) &&
        (is_word(least, "-inf") || is_word(least, "0"))) {
        shape->score = bound;
        shape->kind = LEASE_SEMAPHORE_BY_START;
        shape->action = LEASE_REAP;
    }
}

/* ---- SHA-1 (RFC 3174), by which Redis names scripts; it guards nothing here ---- */

#define SHA1_BLOCK 64
#define SHA1_WORDS 5

static uint32_t rotate_left(uint32_t word, unsigned int bits)
{
    return word << bits | word >> (32 - bits);
}

static uint32_t sha1_mix(int round, const uint32_t h[SHA1_WORDS])
{
    if (round < 20) {
        return ((h[1] & h[2]) | (~h[1] & h[3])) + UINT32_C(0x5a827999);
    }
    if (round < 40) {
        return (h[1] ^ h[2] ^ h[3]) + UINT32_C(0x6ed9eba1);
    }
    if (round < 60) {
        return ((h[1] & h[2]) | (h[1] & h[3]) | (h[2] & h[3])) + UINT32_C(0x8f1bbcdc);
    }
    return (h[1] ^ h[2] ^ h[3]) + UINT32_C(0xca62c1d6);
}

static void sha1_block(uint32_t state[SHA1_WORDS], const unsigned char *block)
{
    uint32_t words[80];
    uint32_t h[SHA1_WORDS];

    for (int i = 0; i < 16; i++) {
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
                   block[4 * i + 3];
    }
    for (int i = 16; i < 80; i++) {
        words[i] = rotate_left(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    }
    memcpy(h, state, sizeof h);
    for (int i = 0; i < 80; i++) {
        uint32_t next = rotate_left(h[0], 5) + sha1_mix(i, h) + h[4] + words[i];
        h[4] = h[3];
        h[3] = h[2];
        h[2] = rotate_left(h[1], 30);
        h[1] = h[0];
        h[0] = next;
    }
    for (int i = 0; i < SHA1_WORDS; i++) {
        state[i] += h[i];
    }
}

/* The rest of the text, a one bit, zeros, and the length in bits. */
static void sha1_end(uint32_t state[SHA1_WORDS], const char *rest, size_t rest_length, uint64_t length)
{
    unsigned char blocks[2 * SHA1_BLOCK] = {0};
    size_t size = rest_length < SHA1_BLOCK - 8 ? SHA1_BLOCK : 2 * SHA1_BLOCK;

    if (rest_length > 0) {
        memcpy(blocks, rest, rest_length);
    }
    blocks[rest_length] = 0x80;
    for (size_t i = 0; i < 8; i++) {
        blocks[size - 1 - i] = (unsigned char)(length * 8 >> 8 * i);
    }
    for (size_t at = 0; at < size; at += SHA1_BLOCK) {
        sha1_block(state, blocks + at);
    }
}

void lease_shape_digest(struct slice text, char digest[LEASE_DIGEST_LENGTH + 1])
{
    static const char hex[] = "0123456789abcdef";
    uint32_t state[SHA1_WORDS] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    size_t whole = text.length - text.length % SHA1_BLOCK;

    for (size_t at = 0; at < whole; at += SHA1_BLOCK) {
        sha1_block(state, (const unsigned char *)text.data + at);
    }
    sha1_end(state, whole < text.length ? text.data + whole : NULL, text.length - whole, text.length);
    for (size_t i = 0; i < LEASE_DIGEST_LENGTH; i++) {
        digest[i] = hex[state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    }
    digest[LEASE_DIGEST_LENGTH] = '\0';
}

/* ---- scripts ---- */

#define ALL 0
#define SCRIPT(library_, script_, digest_, bytes_, action_, kind_, reply_, renews_, key_, token_, lease_, ...)         \
    {.library = (library_),                                                                                            \
     .name = library_ " " script_,                                                                                     \
     .digest = (digest_),                                                                                              \
     .bytes = (bytes_),                                                                                                \
     .action = LEASE_##action_,                                                                                        \
     .kind = LEASE_##kind_,                                                                                            \
     .reply = LEASE_REPLY_##reply_,                                                                                    \
     .renews = LEASE_RENEWS_##renews_,                                                                                 \
     .key = (key_),                                                                                                    \
     .token = (token_),                                                                                                \
     .lease = (lease_),                                                                                                \
     .unit = LEASE_UNIT_##__VA_ARGS__},

static const struct lease_script script_table[] = {
#include "lease_scripts.inc"
};

#undef SCRIPT
#undef ALL

#define SCRIPT_COUNT (sizeof script_table / sizeof script_table[0])

/* "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call(", one of these, and what an idiom ends with. */
static const struct {
    const char *call;
    struct lease_script script;
} idioms[] = {
    {"'del',KEYS[1]",
     {.name = "compare and DEL",
      .action = LEASE_RELEASE,
      .kind = LEASE_STRING,
      .reply = LEASE_REPLY_ONE,
      .key = 1,
      .token = 1}},
    {"'unlink',KEYS[1]",
     {.name = "compare and UNLINK",
      .action = LEASE_RELEASE,
      .kind = LEASE_STRING,
      .reply = LEASE_REPLY_ONE,
      .key = 1,
      .token = 1}},
    {"'pexpire',KEYS[1],ARGV[2]",
     {.name = "compare and PEXPIRE",
      .action = LEASE_EXTEND,
      .kind = LEASE_STRING,
      .reply = LEASE_REPLY_ONE,
      .key = 1,
      .token = 1,
      .lease = 2,
      .unit = LEASE_UNIT_MS}},
    {"'expire',KEYS[1],ARGV[2]",
     {.name = "compare and EXPIRE",
      .action = LEASE_EXTEND,
      .kind = LEASE_STRING,
      .reply = LEASE_REPLY_ONE,
      .key = 1,
      .token = 1,
      .lease = 2,
      .unit = LEASE_UNIT_S}},
};

/* Texts of idioms are no longer, however they are indented. */
#define IDIOM_BYTES_MAX 512

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ';';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* Takes code off the text, whatever its blanks, semicolons, quotes, and case of names in quotes. */
static bool take_code(struct slice *text, const char *code)
{
    bool quoted = false;
    size_t at = 0;

    for (; *code != '\0'; code++, at++) {
        while (!quoted && at < text->length && is_blank(text->data[at])) {
            at++;
        }
        if (at == text->length) {
            return false;
        }
        char c = text->data[at] == '"' ? '\'' : text->data[at];
        if (*code != (quoted ? lower(c) : c)) {
            return false;
        }
        quoted ^= c == '\'';
    }
    *text = (struct slice){text->data + at, text->length - at};
    return true;
}

static bool ends_idiom(struct slice text)
{
    static const char *const ends[] = {"elsereturn0end", "endreturn0", "end"};

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct slice rest = text;
        if (take_code(&rest, ends[i])) {
            while (rest.length > 0 && is_blank(rest.data[0])) {
                rest = (struct slice){rest.data + 1, rest.length - 1};
            }
            if (rest.length == 0) {
                return true;
            }
        }
    }
    return false;
}

static const struct lease_script *find_idiom(struct slice text)
{
    if (text.length > IDIOM_BYTES_MAX || !take_code(&text, "ifredis.call('get',KEYS[1])==ARGV[1]then") ||
        !take_code(&text, "returnredis.call(")) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof idioms / sizeof idioms[0]; i++) {
        struct slice rest = text;
        if (take_code(&rest, idioms[i].call) && take_code(&rest, ")") && ends_idiom(rest)) {
            return &idioms[i].script;
        }
    }
    return NULL;
}

static const struct lease_script *find_digest(const char *digest)
{
    for (size_t i = 0; i < SCRIPT_COUNT; i++) {
        if (memcmp(script_table[i].digest, digest, LEASE_DIGEST_LENGTH) == 0) {
            return &script_table[i];
        }
    }
    return NULL;
}

static bool has_known_length(struct slice text)
{
    for (size_t i = 0; i < SCRIPT_COUNT; i++) {
        if (script_table[i].bytes == text.length) {
            return true;
        }
    }
    return false;
}

const struct lease_script *lease_shape_learn(struct slice text)
{
    const struct lease_script *script = NULL;
    char digest[LEASE_DIGEST_LENGTH + 1];

    if (has_known_length(text)) {
        lease_shape_digest(text, digest);
        script = find_digest(digest);
    }
    return script != NULL ? script : find_idiom(text);
}

const struct lease_script *lease_shape_script(size_t index)
{
    return index < SCRIPT_COUNT ? &script_table[index] : NULL;
}

/* The rows of a library stand together. */
const char *lease_script_library(size_t index)
{
    for (size_t i = 0; i < SCRIPT_COUNT; i++) {
        const char *library = script_table[i].library;
        if (i > 0 && strcmp(library, script_table[i - 1].library) == 0) {
            continue;
        }
        if (index == 0) {
            return library;
        }
        index--;
    }
    return NULL;
}

bool lease_script_is_of(const struct lease_script *script, struct slice library)
{
    return script->library != NULL && is_word(library, script->library);
}

static const struct lease_script *find_script(struct slice digest, lease_shape_lookup *lookup, void *context)
{
    const struct lease_script *script;
    char lower_case[LEASE_DIGEST_LENGTH];

    if (digest.length != LEASE_DIGEST_LENGTH) {
        return NULL;
    }
    for (size_t i = 0; i < LEASE_DIGEST_LENGTH; i++) {
        lower_case[i] = lower(digest.data[i]);
    }
    script = find_digest(lower_case);
    if (script == NULL && lookup != NULL) {
        script = lookup(context, (struct slice){lower_case, sizeof lower_case});
    }
    return script;
}

static bool set_script_keys(struct lease_shape *shape, const struct lease_script *script, struct lease_run arguments,
                            uint64_t count)
{
    if (script->key == 0) {
        return set_keys(shape, arguments, count, 1);
    }
    return script->key <= count && skip(&arguments, script->key - 1u) && set_keys(shape, arguments, 1, 1);
}

/* values: the arguments behind the keys */
static bool set_script_tokens(struct lease_shape *shape, const struct lease_script *script, struct lease_run values)
{
    struct slice first;

    if (script->token == 0) {
        return true;
    }
    return find(values, script->token, &first, &values) && set_tokens(shape, values, script->tokens ? values.left : 1);
}

/* Of a date in the client's time, what is left then counts; where there is a date so far away that it means never,
 * there is no lease. */
static bool read_script_lease(const struct lease_script *script, struct lease_run values, int64_t *ms)
{
    struct slice text;
    struct lease_run from;
    int64_t now;

    if (!find(values, script->lease, &text, &from) || !read_time(text, script->unit, ms)) {
        return false;
    }
    if (script->now == 0) {
        return true;
    }
    return find(values, script->now, &text, &from) && read_integer(text, &now) && !__builtin_sub_overflow(*ms, now, ms);
}

/* A lease that is over as it begins: nothing is taken with it, and what is extended by it is given back. */
static bool set_script_lease(struct lease_shape *shape, const struct lease_script *script, struct lease_run values)
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

static bool set_script_extras(struct lease_shape *shape, const struct lease_script *script, struct lease_run values)
{
    struct lease_run from;
    struct slice word;

    if (script->score != 0 && !find(values, script->score, &shape->score, &from)) {
        return false;
    }
    if (script->adds != 0) {
        if (!find(values, script->adds, &word, &from)) {
            return false;
        }
        shape->adds = is_word(word, "0");
    }
    return true;
}

static void read_call(struct lease_shape *shape, const struct lease_script *script, struct lease_run arguments)
{
    struct slice text;
    int64_t count;
    struct lease_run values;

    if (!take(&arguments, &text) || !read_integer(text, &count) || count < 1 || count > arguments.left) {
        return;
    }
    values = arguments;
    if (!skip(&values, (uint64_t)count) || !set_script_keys(shape, script, arguments, (uint64_t)count) ||
        !set_script_tokens(shape, script, values) || !set_script_extras(shape, script, values)) {
        return;
    }
    shape->action = script->action;
    if (!set_script_lease(shape, script, values)) {
        shape->action = LEASE_NOTHING;
        return;
    }
    shape->kind = script->kind;
    shape->reply = script->reply;
    shape->renews = script->renews;
    shape->script = script;
}

/* ---- which request is which ---- */

typedef void shape_reader(struct lease_shape *shape, const struct command *command, struct lease_run arguments);

static const struct {
    const char *name;
    shape_reader *read; /* NULL: a script, which needs the lookup */
} readers[] = {
    /* sorted */
    {"del", read_removal},
    {"delex", read_delex},
    {"delifeq", read_delifeq},
    {"eval", NULL},
    {"evalsha", NULL},
    {"expire", read_expire},
    {"expireat", read_expireat},
    {"flushall", read_flush},
    {"flushdb", read_flush},
    {"getdel", read_getdel},
    {"getset", read_replacement},
    {"move", read_removal},
    {"mset", read_replacement},
    {"msetex", read_msetex},
    {"persist", read_removal},
    {"pexpire", read_pexpire},
    {"pexpireat", read_pexpireat},
    {"psetex", read_replacement},
    {"rename", read_replacement},
    {"renamenx", read_removal},
    {"restore", read_replacement},
    {"set", read_set},
    {"setex", read_replacement},
    {"setnx", read_setnx},
    {"swapdb", read_flush},
    {"unlink", read_removal},
    {"zadd", read_zadd},
    {"zrank", read_zrank},
    {"zrem", read_zrem},
    {"zremrangebyscore", read_zremrangebyscore},
};

#define READER_COUNT (sizeof readers / sizeof readers[0])

/* The place in the table, or READER_COUNT. */
static size_t find_reader(const struct command *command)
{
    size_t low = 0, high = READER_COUNT;

    while (command != NULL && low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(command->name, readers[middle].name);
        if (order == 0) {
            return middle;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return READER_COUNT;
}

bool lease_shape_wants(const struct command *command)
{
    return find_reader(command) < READER_COUNT;
}

static void read_script(struct lease_shape *shape, const struct command *command, struct lease_run arguments,
                        lease_shape_lookup *lookup, void *context)
{
    const struct lease_script *script;
    struct slice first;

    if (!take(&arguments, &first)) {
        return;
    }
    script = strcmp(command->name, "eval") == 0 ? lease_shape_learn(first) : find_script(first, lookup, context);
    if (script != NULL) {
        read_call(shape, script, arguments);
    }
}

void lease_shape_read(struct lease_shape *shape, const struct command *command, struct slice frame,
                      lease_shape_lookup *lookup, void *context)
{
    size_t reader = find_reader(command);
    struct lease_run arguments;

    *shape = (struct lease_shape){.action = LEASE_NOTHING};
    if (reader == READER_COUNT || !start(frame, &arguments)) {
        return;
    }
    if (readers[reader].read != NULL) {
        readers[reader].read(shape, command, arguments);
    } else {
        read_script(shape, command, arguments, lookup, context);
    }
    if (shape->action == LEASE_NOTHING) {
        *shape = (struct lease_shape){.action = LEASE_NOTHING};
    }
}

bool lease_shape_text(const struct command *command, struct slice frame, struct slice *text)
{
    struct lease_run arguments;
    struct slice word;

    if (command == NULL || !start(frame, &arguments)) {
        return false;
    }
    if (strcmp(command->name, "eval") == 0) {
        return take(&arguments, text);
    }
    return strcmp(command->name, "script") == 0 && take(&arguments, &word) && is_word(word, "load") &&
           take(&arguments, text);
}

/* ---- replies ---- */

enum reply_form { FORM_OTHER, FORM_ERROR, FORM_NOT_RUN, FORM_NIL, FORM_INTEGER, FORM_OK, FORM_VALUE, FORM_ARRAY };

/* Whether the head begins so; what follows is put to *rest. */
static bool begins(struct slice head, const char *text, struct slice *rest)
{
    size_t length = strlen(text);

    if (head.length < length || memcmp(head.data, text, length) != 0) {
        return false;
    }
    *rest = (struct slice){head.data + length, head.length - length};
    return true;
}

/* A line of an integer, without its mark. */
static bool read_reply_integer(struct slice text, int64_t *value)
{
    const char *end = text.length > 0 ? memchr(text.data, '\r', text.length) : NULL;

    return end != NULL && read_integer((struct slice){text.data, (size_t)(end - text.data)}, value);
}

/* value: of an integer, or of an array's first element. */
static enum reply_form reply_form(struct slice head, int64_t *value)
{
    static const struct {
        const char *begin;
        enum reply_form form;
    } forms[] = {{"+OK\r\n", FORM_OK},        {"$2\r\nOK\r\n", FORM_OK}, {"$-1\r\n", FORM_NIL}, {"*-1\r\n", FORM_NIL},
                 {"_\r\n", FORM_NIL},         {"#f\r\n", FORM_NIL},      {"$", FORM_VALUE},     {"=", FORM_VALUE},
                 {"-NOSCRIPT", FORM_NOT_RUN}, {"-", FORM_ERROR},         {"!", FORM_ERROR}};
    struct slice rest;

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (begins(head, forms[i].begin, &rest)) {
            return forms[i].form;
        }
    }
    *value = 1;
    if (begins(head, "#t\r\n", &rest) || (begins(head, ":", &rest) && read_reply_integer(rest, value))) {
        return FORM_INTEGER;
    }
    if (begins(head, "*2\r\n:", &rest) && read_reply_integer(rest, value)) {
        return FORM_ARRAY;
    }
    return FORM_OTHER;
}

static enum lease_answer yes_if(bool is)
{
    return is ? LEASE_ANSWER_YES : LEASE_ANSWER_NO;
}

static enum lease_answer integer_answer(const struct lease_shape *shape, int64_t value)
{
    switch (shape->reply) {
    case LEASE_REPLY_ONE:
        return yes_if(value == 1);
    case LEASE_REPLY_ZERO:
        return yes_if(value == 0);
    case LEASE_REPLY_COUNT:
    case LEASE_REPLY_TRUTH:
        return yes_if(value > 0);
    case LEASE_REPLY_ALL_KEYS:
        return yes_if(value == shape->key_count);
    case LEASE_REPLY_NIL:
        return LEASE_ANSWER_NO;
    case LEASE_REPLY_HOLDS:
        return value == 1 ? LEASE_ANSWER_YES : value == 0 ? LEASE_ANSWER_HELD : LEASE_ANSWER_UNCLEAR;
    case LEASE_REPLY_MAYBE:
        return value == 1 ? LEASE_ANSWER_YES : LEASE_ANSWER_UNCLEAR;
    case LEASE_REPLY_NO_ERROR:
    case LEASE_REPLY_VALUE:
        return LEASE_ANSWER_YES;
    default:
        return LEASE_ANSWER_UNCLEAR;
    }
}

static enum lease_answer nil_answer(enum lease_reply reply)
{
    switch (reply) {
    case LEASE_REPLY_NIL:
    case LEASE_REPLY_NO_ERROR:
        return LEASE_ANSWER_YES;
    case LEASE_REPLY_NONE:
    case LEASE_REPLY_ZERO:
    case LEASE_REPLY_FENCE:
        return LEASE_ANSWER_UNCLEAR;
    default:
        return LEASE_ANSWER_NO;
    }
}

static enum lease_answer ok_answer(enum lease_reply reply)
{
    switch (reply) {
    case LEASE_REPLY_OK:
    case LEASE_REPLY_TRUTH:
    case LEASE_REPLY_NO_ERROR:
    case LEASE_REPLY_VALUE:
        return LEASE_ANSWER_YES;
    case LEASE_REPLY_NIL:
        return LEASE_ANSWER_NO;
    default:
        return LEASE_ANSWER_UNCLEAR;
    }
}

/* OK of a permit that is refused is a date behind a colon. */
static enum lease_answer value_answer(enum lease_reply reply)
{
    switch (reply) {
    case LEASE_REPLY_NO_ERROR:
    case LEASE_REPLY_VALUE:
        return LEASE_ANSWER_YES;
    case LEASE_REPLY_NIL:
    case LEASE_REPLY_OK:
        return LEASE_ANSWER_NO;
    default:
        return LEASE_ANSWER_UNCLEAR;
    }
}

enum lease_answer lease_shape_answer(const struct lease_shape *shape, struct slice head)
{
    int64_t value = 0;

    if (shape->action == LEASE_NOTHING || shape->reply == LEASE_REPLY_NONE) {
        return LEASE_ANSWER_UNCLEAR;
    }
    switch (reply_form(head, &value)) {
    case FORM_NOT_RUN:
        return LEASE_ANSWER_NO;
    case FORM_ERROR:
        return shape->reply == LEASE_REPLY_NO_ERROR ? LEASE_ANSWER_NO : LEASE_ANSWER_UNCLEAR;
    case FORM_NIL:
        return nil_answer(shape->reply);
    case FORM_INTEGER:
        return integer_answer(shape, value);
    case FORM_OK:
        return ok_answer(shape->reply);
    case FORM_VALUE:
        return value_answer(shape->reply);
    case FORM_ARRAY:
        return shape->reply == LEASE_REPLY_FENCE ? yes_if(value == -1) : LEASE_ANSWER_UNCLEAR;
    default:
        return LEASE_ANSWER_UNCLEAR;
    }
}
