#include "command/command.h"

#include "command/command_specs.h"
#include "resp/word.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

/* ---- the table ---- */

#define NAME_SIZE 24 /* bytes of a name with its NUL; whole words, see struct folded_name */
#define NAME_WORDS (NAME_SIZE / sizeof(uint64_t))

/* Short names for the rows. */
enum {
    KEYSPACE = CATEGORY_KEYSPACE,
    READ = CATEGORY_READ,
    WRITE = CATEGORY_WRITE,
    SET = CATEGORY_SET,
    SORTEDSET = CATEGORY_SORTEDSET,
    LIST = CATEGORY_LIST,
    HASH = CATEGORY_HASH,
    STRING = CATEGORY_STRING,
    BITMAP = CATEGORY_BITMAP,
    HYPERLOGLOG = CATEGORY_HYPERLOGLOG,
    GEO = CATEGORY_GEO,
    STREAM = CATEGORY_STREAM,
    PUBSUB = CATEGORY_PUBSUB,
    ADMIN = CATEGORY_ADMIN,
    FAST = CATEGORY_FAST,
    SLOW = CATEGORY_SLOW,
    BLOCKING = CATEGORY_BLOCKING,
    DANGEROUS = CATEGORY_DANGEROUS,
    CONNECTION = CATEGORY_CONNECTION,
    TRANSACTION = CATEGORY_TRANSACTION,
    SCRIPTING = CATEGORY_SCRIPTING
};

#define JOIN_EXPANDED(left, right) left##right
#define JOIN(left, right) JOIN_EXPANDED(left, right)
#define ROW JOIN(row_, __LINE__)

/*
 * Counts the rows: row_LINE is the place of the row in that line, start_LETTER that of the letter's first row. The
 * enumerator after a heading takes the heading's own number again.
 */
enum {
#define LETTER(letter) start_##letter, before_##letter = start_##letter - 1,
#define COMMAND(name, kind, arity, keys, first, last, step, categories) ROW,
#include "command/command_table.inc"
#undef LETTER
#undef COMMAND
    ROW_COUNT
};

/* The names apart, at even distances and filled up with NULs: the search reads nothing else. */
static const char names[ROW_COUNT][NAME_SIZE] = {
#define LETTER(letter)
#define COMMAND(name, kind, arity, keys, first, last, step, categories) name,
#include "command/command_table.inc"
#undef COMMAND
};

#define COMMAND(name, kind, arity, keys, first, last, step, categories)                                                \
    _Static_assert(sizeof(name) <= NAME_SIZE, "no room for the NUL of " name);
#include "command/command_table.inc"
#undef COMMAND

static_assert(sizeof(void *) != 8 || sizeof(struct command) == 32, "command_index() would have to divide");

const struct command command_table[ROW_COUNT] = {
#define COMMAND(name, kind, arity, keys, first, last, step, categories)                                                \
    {names[ROW], COMMAND_##kind, arity, COMMAND_KEYS_##keys, first, last, step, categories},
#include "command/command_table.inc"
#undef COMMAND
#undef LETTER
};

/* The rows of letter i are starts[i] … starts[i + 1] - 1. */
static const uint16_t starts['z' - 'a' + 2] = {
#define LETTER(letter) start_##letter,
#define COMMAND(name, kind, arity, keys, first, last, step, categories)
#include "command/command_table.inc"
#undef LETTER
#undef COMMAND
    ROW_COUNT};

/* ---- looking up a name ---- */

/* A name in lower case as big-endian numbers, filled up with NULs: they compare as the names do. */
struct folded_name {
    uint64_t words[NAME_WORDS];
};

static inline unsigned char lower(char letter)
{
    unsigned char byte = (unsigned char)letter;
    return (unsigned char)(byte - 'A') < 26 ? byte | 0x20 : byte;
}

/* length: at most that of a word. */
static inline uint64_t fold_word(const char *data, size_t length)
{
    uint64_t word = 0;
    for (size_t i = 0; i < length; i++)
        word = word << 8 | lower(data[i]);
    return length == 0 ? 0 : word << 8 * (sizeof(word) - length);
}

static inline struct folded_name fold(struct slice name)
{
    struct folded_name folded;
    for (size_t i = 0; i < NAME_WORDS; i++) {
        size_t length = name.length < sizeof(uint64_t) ? name.length : sizeof(uint64_t);
        folded.words[i] = fold_word(name.data, length);
        name.data += length;
        name.length -= length;
    }
    return folded;
}

static inline uint64_t load_big_endian(const char *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    return be64toh(word);
}

/* Below, equal to or above 0 as folded is below, equal to or above the name of the row. */
static inline int compare(const struct folded_name *folded, size_t row)
{
    for (size_t i = 0; i < NAME_WORDS; i++) {
        uint64_t word = load_big_endian(names[row] + i * sizeof(word));
        if (folded->words[i] != word)
            return folded->words[i] < word ? -1 : 1;
    }
    return 0;
}

const struct command *command_find(struct slice name)
{
    /* A NUL at the end would pass for the filling. */
    if (name.length == 0 || name.length >= NAME_SIZE || name.data[name.length - 1] == '\0')
        return NULL;
    unsigned letter = (unsigned)lower(name.data[0]) - 'a';
    if (letter > 'z' - 'a')
        return NULL;
    struct folded_name folded = fold(name);
    size_t low = starts[letter];
    size_t high = starts[letter + 1];
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = compare(&folded, middle);
        if (order == 0)
            return &command_table[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

size_t command_count(void)
{
    return ROW_COUNT;
}

uint32_t command_category_find(struct slice name)
{
    static const struct {
        const char *name;
        uint32_t category;
    } categories[] = {
        {"keyspace", KEYSPACE},
        {"read", READ},
        {"write", WRITE},
        {"set", SET},
        {"sortedset", SORTEDSET},
        {"list", LIST},
        {"hash", HASH},
        {"string", STRING},
        {"bitmap", BITMAP},
        {"hyperloglog", HYPERLOGLOG},
        {"geo", GEO},
        {"stream", STREAM},
        {"pubsub", PUBSUB},
        {"admin", ADMIN},
        {"fast", FAST},
        {"slow", SLOW},
        {"blocking", BLOCKING},
        {"dangerous", DANGEROUS},
        {"connection", CONNECTION},
        {"transaction", TRANSACTION},
        {"scripting", SCRIPTING},
    };
    for (size_t i = 0; i < sizeof(categories) / sizeof(categories[0]); i++) {
        if (slice_is(name, categories[i].name))
            return categories[i].category;
    }
    return 0;
}

/* ---- subcommands ---- */

void command_visit_subcommands(const struct command *command, command_subcommand_visitor *visit, void *context)
{
    static const struct {
        const char *command;
        const char *name;
        uint32_t categories;
    } subcommands[] = {
#define SUBCOMMAND(command, name, categories) {command, name, categories},
#include "command/command_subcommands.inc"
#undef SUBCOMMAND
    };

    for (size_t i = 0; i < sizeof subcommands / sizeof subcommands[0]; i++) {
        if (strcmp(subcommands[i].command, command->name) == 0) {
            visit(context, subcommands[i].name, subcommands[i].categories);
        }
    }
}

/* ---- where the keys are, and whether it waits ---- */

/* A walk over the arguments of one command that knows where it is, and whom to tell of keys. */
struct key_walk {
    struct resp_walk walk;
    struct slice argument; /* the last one taken */
    uint32_t index;        /* its place; the name has 0 */
    command_key_visitor *visit;
    void *context;
};

static bool take(struct key_walk *keys)
{
    keys->index++;
    return resp_walk_next(&keys->walk, &keys->argument);
}

/* Takes so many arguments, so that `argument` is the last of them; false if there are not enough. */
static bool take_many(struct key_walk *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!take(keys))
            return false;
    }
    return true;
}

static bool visit_taken(struct key_walk *keys)
{
    return keys->visit(keys->context, keys->argument, keys->index);
}

static bool argument_is(const struct key_walk *keys, const char *word)
{
    return word_is(keys->argument, word);
}

/* The argument as a number in Redis' strict form (no sign, no blanks, no zero in front); 0 if it is none or above
 * limit. */
static uint32_t argument_count(const struct key_walk *keys, uint32_t limit)
{
    uint64_t number = 0;
    for (size_t i = 0; i < keys->argument.length; i++) {
        char digit = keys->argument.data[i];
        if (digit < '0' || digit > '9' || (digit == '0' && number == 0))
            return 0;
        number = number * 10 + (uint64_t)(digit - '0');
        if (number > limit)
            return 0;
    }
    return (uint32_t)number;
}

/* The next argument and each step-th after it, count in all. */
static void visit_run(struct key_walk *keys, uint32_t count, uint32_t step)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!take_many(keys, i == 0 ? 1 : step) || !visit_taken(keys))
            return;
    }
}

static void visit_range(const struct command *command, struct key_walk *keys)
{
    uint32_t first = (uint32_t)command->first_key;
    uint32_t step = (uint32_t)command->key_step;
    int64_t last = command->last_key < 0 ? (int64_t)keys->walk.left + 1 + command->last_key : command->last_key;
    if (first == 0 || last < first || !take_many(keys, first - 1))
        return;
    visit_run(keys, (uint32_t)(last - first) / step + 1, step);
}

static void visit_counted(const struct command *command, struct key_walk *keys)
{
    uint32_t step = (uint32_t)command->key_step;
    if (take_many(keys, (uint32_t)command->first_key))
        visit_run(keys, argument_count(keys, keys->walk.left / step), step);
}

static void visit_stored(struct key_walk *keys)
{
    struct key_walk destination;
    if (!take(keys))
        return;
    destination = *keys;
    if (!take(keys))
        return;
    uint32_t count = argument_count(keys, keys->walk.left);
    if (count > 0 && visit_taken(&destination))
        visit_run(keys, count, 1);
}

/* Takes the values of an option of XREAD or XREADGROUP, which may be words of options themselves. False if they are not
 * all there, or it is none. */
static bool take_option_values(struct key_walk *keys)
{
    if (argument_is(keys, "group"))
        return take_many(keys, 2);
    if (argument_is(keys, "noack"))
        return true;
    return (argument_is(keys, "count") || argument_is(keys, "block") || argument_is(keys, "claim")) && take(keys);
}

/* Options come before the word STREAMS. One that is not known here is passed by itself: a newer server may know it. */
static void visit_streams(struct key_walk *keys)
{
    while (take(keys)) {
        if (argument_is(keys, "streams")) {
            if (keys->walk.left % 2 == 0)
                visit_run(keys, keys->walk.left / 2, 1);
            return;
        }
        (void)take_option_values(keys);
    }
}

/* What an option of SORT or GEORADIUS has as its value. */
enum sort_value { SORT_NOTHING_TOLD, SORT_DESTINATION, SORT_PATTERN, SORT_END };

/* Takes the next option with its values, which may be words of options themselves: the last of them is `argument`. */
static enum sort_value take_sort_option(struct key_walk *keys)
{
    if (!take(keys))
        return SORT_END;
    if (argument_is(keys, "by") || argument_is(keys, "get"))
        return take(keys) ? SORT_PATTERN : SORT_END;
    if (argument_is(keys, "limit"))
        return take_many(keys, 2) ? SORT_NOTHING_TOLD : SORT_END;
    if (argument_is(keys, "store") || argument_is(keys, "storedist"))
        return take(keys) ? SORT_DESTINATION : SORT_END;
    return SORT_NOTHING_TOLD;
}

static uint32_t arguments_before_sort_options(const struct command *command)
{
    return (uint32_t)-command->arity - 2;
}

/* Of several STORE options the last counts. */
static void visit_sort(const struct command *command, struct key_walk *keys)
{
    struct key_walk stored = {.index = 0};
    enum sort_value value;

    if (!take(keys) || !visit_taken(keys) || !take_many(keys, arguments_before_sort_options(command)))
        return;
    while ((value = take_sort_option(keys)) != SORT_END) {
        if (value == SORT_DESTINATION)
            stored = *keys;
    }
    if (stored.index > 0)
        visit_taken(&stored);
}

/*
 * Takes a pattern apart as Redis does, which looks for the star, and for the "->" before a field of a hash, up to the
 * first NUL, and takes what is left whole (sort.c, lookupKeyByPattern). False if it reads no key.
 */
static bool read_pattern(struct slice text, struct command_key_pattern *pattern)
{
    size_t seen = word_before_nul(text).length;
    const char *star = seen > 0 ? memchr(text.data, '*', seen) : NULL;

    if (star == NULL)
        return false;
    const char *behind = star + 1;
    const char *end = text.data + text.length;
    const char *arrow = memmem(behind, (size_t)(text.data + seen - behind), "->", 2);
    if (arrow != NULL && arrow + 2 < text.data + seen)
        end = arrow;
    pattern->prefix = (struct slice){text.data, (size_t)(star - text.data)};
    pattern->suffix = (struct slice){behind, (size_t)(end - behind)};
    return true;
}

void command_visit_patterns(const struct command *command, struct slice frame, command_pattern_visitor *visit,
                            void *context)
{
    struct key_walk keys = {.walk = resp_walk_start(frame)};
    struct command_key_pattern pattern;
    enum sort_value value;

    /* The name, the key, and what else stands before the options. */
    if (command->keys != COMMAND_KEYS_SORT || !take_many(&keys, 2 + arguments_before_sort_options(command)))
        return;
    while ((value = take_sort_option(&keys)) != SORT_END) {
        if (value == SORT_PATTERN && read_pattern(keys.argument, &pattern) && !visit(context, &pattern))
            return;
    }
}

/* MIGRATE host port key database timeout [COPY] [REPLACE] [AUTH password] [AUTH2 user password] [KEYS key …] */
static void visit_migrate(struct key_walk *keys)
{
    if (!take_many(keys, 3))
        return;
    struct key_walk single = *keys;
    bool whole = take_many(keys, 2);
    while (whole && take(keys)) {
        if (argument_is(keys, "keys")) {
            if (single.argument.length == 0)
                visit_run(keys, keys->walk.left, 1);
            return; /* a key and KEYS: Redis refuses both */
        }
        if (argument_is(keys, "auth"))
            whole = take(keys);
        else if (argument_is(keys, "auth2"))
            whole = take_many(keys, 2);
    }
    visit_taken(&single);
}

bool command_blocks(const struct command *command, struct slice frame)
{
    struct key_walk keys = {.walk = resp_walk_start(frame)};

    if (command->kind != COMMAND_BLOCKING_IF)
        return command->kind == COMMAND_BLOCKING;
    if (!resp_walk_next(&keys.walk, &keys.argument))
        return false;
    while (take(&keys) && !argument_is(&keys, "streams")) {
        if (argument_is(&keys, "block"))
            return true;
        /* An option that is not known here is passed by itself: BLOCK may stand behind it. */
        (void)take_option_values(&keys);
    }
    return false;
}

void command_visit_slotted(const struct command *command, struct slice frame, command_key_visitor *visit, void *context)
{
    struct key_walk keys = {.walk = resp_walk_start(frame), .visit = visit, .context = context};
    struct slice name;
    if (!resp_walk_next(&keys.walk, &name))
        return;
    switch (command->keys) {
    case COMMAND_KEYS_RANGE:
    case COMMAND_KEYS_ASKED:
        visit_range(command, &keys);
        break;
    case COMMAND_KEYS_COUNTED:
        visit_counted(command, &keys);
        break;
    case COMMAND_KEYS_STORED:
        visit_stored(&keys);
        break;
    case COMMAND_KEYS_STREAMS:
        visit_streams(&keys);
        break;
    case COMMAND_KEYS_SORT:
        visit_sort(command, &keys);
        break;
    case COMMAND_KEYS_MIGRATE:
        visit_migrate(&keys);
        break;
    case COMMAND_KEYS_SPECS:
        command_specs_visit(command_specs_of(command), frame, visit, context);
        break;
    }
}

/* COMMAND gives shard channels the place of keys, as they have a slot; they are none (COMMAND GETKEYS agrees). */
void command_visit_keys(const struct command *command, struct slice frame, command_key_visitor *visit, void *context)
{
    if ((command->categories & CATEGORY_PUBSUB) == 0)
        command_visit_slotted(command, frame, visit, context);
}
