/*
 * What Headgate knows about each Redis command: how it touches the state of a connection, where its keys are, and which
 * ACL categories it is in. One constant table; what is not in it is learned from Redis (see upstream.h).
 *
 * Facts: COMMAND and COMMAND DOCS of Redis 7.0 to 8.0 and Valkey 8 (https://redis.io/docs/latest/commands/command/).
 */
#ifndef HEADGATE_COMMAND_H
#define HEADGATE_COMMAND_H

#include "resp/resp.h"

/* How a command touches the connection that carries it; decides what it needs in pool = shared. */
enum command_kind {
    COMMAND_ORDINARY,  /* leaves no trace on the connection, one reply */
    COMMAND_CONTAINER, /* the same; the argument behind the name is that of a subcommand: CONFIG SET, OBJECT ENCODING */
    COMMAND_MULTI,
    COMMAND_EXEC,
    COMMAND_DISCARD,
    COMMAND_WATCH,
    COMMAND_UNWATCH,
    COMMAND_BLOCKING,    /* may wait for other clients: BLPOP, BLMOVE, BZPOPMIN, … */
    COMMAND_BLOCKING_IF, /* waits only with the option BLOCK: XREAD, XREADGROUP */
    COMMAND_SUBSCRIBE,   /* SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE: a reply for each argument */
    COMMAND_UNSUBSCRIBE, /* UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE */
    COMMAND_MONITOR,
    COMMAND_REPLICATION, /* SYNC, PSYNC, REPLCONF: from here on the connection speaks another protocol */
    COMMAND_CLIENT,      /* CLIENT …: decided by the subcommand */
    COMMAND_AUTH,
    COMMAND_HELLO,
    COMMAND_SELECT,
    COMMAND_RESET,
    COMMAND_WAIT, /* WAIT, WAITAOF: speak of this connection's writes */
    COMMAND_QUIT,
    COMMAND_HTTP,   /* POST and Host:, on which Redis closes */
    COMMAND_PINNED, /* leaves state that nothing clears: READONLY, READWRITE, ASKING */
    COMMAND_ALONE,  /* no lasting state, but a reply or an effect others should not share: DEBUG, SHUTDOWN */
    COMMAND_EVAL, /* EVAL, FCALL, …: leaves no trace, but may run for long, and its error is what the script makes of it
                   */
    COMMAND_SCRIPT /* SCRIPT …: a container, and ordinary except for SCRIPT DEBUG (state that nothing clears) */
};

/* How keys are found when first, last and step cannot say it (redis: "movablekeys"). */
enum command_keys {
    COMMAND_KEYS_RANGE,   /* first, last, step; none if first is 0 */
    COMMAND_KEYS_COUNTED, /* argument `first` is a count, the keys follow it: EVAL, ZUNION, LMPOP, BLMPOP, … */
    COMMAND_KEYS_STORED,  /* argument 1 is a key, argument 2 a count, keys follow: ZUNIONSTORE, … */
    COMMAND_KEYS_STREAMS, /* after the word STREAMS, the first half of what follows: XREAD, XREADGROUP */
    COMMAND_KEYS_SORT,    /* argument 1, and the one behind STORE: SORT, GEORADIUS and GEORADIUSBYMEMBER (STOREDIST);
                             and patterns of keys: SORT and SORT_RO */
    COMMAND_KEYS_MIGRATE, /* argument 3, or all behind KEYS if it is empty */
    COMMAND_KEYS_SPECS,   /* as the server says: of struct specified_command only (command_specs.h) */
    COMMAND_KEYS_ASKED    /* only the server knows, request by request (control_keys.h); else as RANGE */
};

/* Redis' ACL categories as bits (ACL CAT). */
enum command_category {
    CATEGORY_KEYSPACE = 1 << 0,
    CATEGORY_READ = 1 << 1,
    CATEGORY_WRITE = 1 << 2,
    CATEGORY_SET = 1 << 3,
    CATEGORY_SORTEDSET = 1 << 4,
    CATEGORY_LIST = 1 << 5,
    CATEGORY_HASH = 1 << 6,
    CATEGORY_STRING = 1 << 7,
    CATEGORY_BITMAP = 1 << 8,
    CATEGORY_HYPERLOGLOG = 1 << 9,
    CATEGORY_GEO = 1 << 10,
    CATEGORY_STREAM = 1 << 11,
    CATEGORY_PUBSUB = 1 << 12,
    CATEGORY_ADMIN = 1 << 13,
    CATEGORY_FAST = 1 << 14,
    CATEGORY_SLOW = 1 << 15,
    CATEGORY_BLOCKING = 1 << 16,
    CATEGORY_DANGEROUS = 1 << 17,
    CATEGORY_CONNECTION = 1 << 18,
    CATEGORY_TRANSACTION = 1 << 19,
    CATEGORY_SCRIPTING = 1 << 20,
    CATEGORY_GUESSED = 1 << 21 /* of a learned command that is taken for a read, as it is not said to write */
};

/* Of a size that is a power of two, so that command_index() needs no division. */
struct command {
    const char *name; /* lower case, without subcommand */
    enum command_kind kind;
    int16_t arity; /* as COMMAND says it: exact, or -least; the name counts */
    enum command_keys keys;
    int8_t first_key;    /* 0: none */
    int8_t last_key;     /* negative: counted from the end, -1 the last argument */
    int8_t key_step;     /* at least 1 where there are keys */
    uint32_t categories; /* enum command_category bits */
};

/* The command of that name in any case, or NULL. Constant time, no allocation. */
const struct command *command_find(struct slice name);

/* How many commands the table has, and the place of one in it (0 … count - 1): an index for tables per command. */
size_t command_count(void);
extern const struct command command_table[];

static inline size_t command_index(const struct command *command)
{
    return (size_t)(command - command_table);
}

static inline const struct command *command_at(size_t index)
{
    return &command_table[index];
}

/*
 * Calls visit for each subcommand of the command that the table knows, with its categories. Of other subcommands only
 * the command's own categories are known, which are those of all of them.
 */
typedef void command_subcommand_visitor(void *context, const char *name, uint32_t categories);
void command_visit_subcommands(const struct command *command, command_subcommand_visitor *visit, void *context);

/* Category by its name without '@' in lower case; 0 if Redis has none of that name. */
uint32_t command_category_find(struct slice name);

/* Whether the argument behind the name is the name of a subcommand, which Redis looks up as it does names. */
static inline bool command_has_subcommands(const struct command *command)
{
    return command->kind == COMMAND_CONTAINER || command->kind == COMMAND_CLIENT || command->kind == COMMAND_SCRIPT;
}

/* Whether a whole multibulk command waits when Redis has nothing for it: XREAD and XREADGROUP do with the option BLOCK.
 * In MULTI nothing waits, which is the caller's to know. */
bool command_blocks(const struct command *command, struct slice frame);

/*
 * The keys of a whole multibulk command: calls visit for each, in order of the arguments, until it returns false.
 * Malformed counts give no keys: Redis will refuse the command itself.
 */
typedef bool command_key_visitor(void *context, struct slice key, uint32_t argument_index);
void command_visit_keys(const struct command *command, struct slice frame, command_key_visitor *visit, void *context);
/* The same, and channels of shards, which have a slot as keys have. */
void command_visit_slotted(const struct command *command, struct slice frame, command_key_visitor *visit,
                           void *context);

/* Keys that a command makes up of what it finds: any text between these two. */
struct command_key_pattern {
    struct slice prefix;
    struct slice suffix;
};

/*
 * The patterns of a whole multibulk command, which are those of BY and GET of SORT and SORT_RO: calls visit for each,
 * until it returns false. What reads no key is left out: GET #, and a pattern without a star.
 */
typedef bool command_pattern_visitor(void *context, const struct command_key_pattern *pattern);
void command_visit_patterns(const struct command *command, struct slice frame, command_pattern_visitor *visit,
                            void *context);

#endif
