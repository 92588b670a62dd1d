#include "crosstalk_attacks.h"

#include "rig_random.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WORDS_MAX 16
#define ENDING_MAX 4
#define MAY_END '~'
#define MUST_END '\1'

/* ---- means ---- */

uint32_t attacker_random(struct attacker *attacker, uint32_t bound)
{
    return (uint32_t)(next_random(&attacker->random) % bound);
}

bool attacker_chance(struct attacker *attacker, uint32_t one_in)
{
    return attacker_random(attacker, one_in) == 0;
}

void put_bytes(struct attacker *attacker, const char *bytes, size_t length)
{
    buffer_append(&attacker->out, bytes, length);
}

void put_text(struct attacker *attacker, const char *text)
{
    put_bytes(attacker, text, strlen(text));
}

void put_noise(struct attacker *attacker, size_t length)
{
    for (; length > 0; length--) {
        char byte = (char)attacker_random(attacker, 256);
        put_bytes(attacker, byte == 'x' ? "X" : &byte, 1);
    }
}

/* Upper or lower case, as Redis takes both. */
static void put_spelled(struct attacker *attacker, const char *text, size_t length)
{
    bool lower = attacker_chance(attacker, 4);
    for (size_t at = 0; at < length; at++) {
        char letter = text[at];
        if (lower && letter >= 'A' && letter <= 'Z')
            letter = (char)(letter + ('a' - 'A'));
        put_bytes(attacker, &letter, 1);
    }
}

static void put_word(struct attacker *attacker, const char *text)
{
    char line[32];
    size_t length = strlen(text);
    char last = length > 0 ? text[length - 1] : '\0';
    size_t ending = 0;
    if (last == MAY_END || last == MUST_END) {
        length--;
        ending = last == MUST_END || attacker_chance(attacker, 2) ? 1 + attacker_random(attacker, ENDING_MAX) : 0;
    }
    snprintf(line, sizeof line, "$%zu\r\n", length + ending);
    put_text(attacker, line);
    put_spelled(attacker, text, length);
    if (ending > 0) {
        put_bytes(attacker, "", 1);
        put_noise(attacker, ending - 1);
    }
    put_text(attacker, "\r\n");
}

void put_list(struct attacker *attacker, const char *const *words, size_t count)
{
    char line[32];
    snprintf(line, sizeof line, "*%zu\r\n", count);
    put_text(attacker, line);
    for (size_t at = 0; at < count; at++)
        put_word(attacker, words[at]);
}

void put_words(struct attacker *attacker, ...)
{
    const char *words[WORDS_MAX];
    size_t count = 0;
    va_list list;
    va_start(list, attacker);
    for (const char *word = va_arg(list, const char *); word != NULL; word = va_arg(list, const char *))
        words[count++] = word;
    va_end(list);
    put_list(attacker, words, count);
}

struct line {
    const char *words[8]; /* up to the first NULL */
};

/* One of so many commands. */
static void put_one_of(struct attacker *attacker, const struct line *lines, size_t count)
{
    const struct line *line = &lines[attacker_random(attacker, (uint32_t)count)];
    size_t words = 0;
    while (words < sizeof line->words / sizeof *line->words && line->words[words] != NULL)
        words++;
    put_list(attacker, line->words, words);
}

#define PUT_ONE_OF(attacker, lines) put_one_of(attacker, lines, sizeof(lines) / sizeof *(lines))

void put_probe(struct attacker *attacker)
{
    static const struct line probes[] = {
        {{"GET", "evil:key"}},
        {{"SET", "evil:key", "evil"}},
        {{"PING"}},
        {{"PING", "evil"}},
        {{"ECHO", "evil"}},
        {{"ACL", "WHOAMI"}},
        {{"INCR", "evil:counter"}},
        {{"LPUSH", "evil:list", "1"}},
        {{"GET"}},
        {{"DEL", "evil:list"}},
        {{"PUBLISH", "evil", "evil"}},
        {{"NOSUCH", "evil"}},
        {{"EVAL", "return 'evil'", "0"}},
    };
    PUT_ONE_OF(attacker, probes);
}

/* ---- who the client is, and what its connection is told ---- */

/* Makes Headgate and Redis think different things of who the client is; many credentials, of which any is right. */
static void attack_auth(struct attacker *attacker)
{
    static const struct line lines[] = {
        {{"HELLO", "3", "AUTH~", ATTACKER_USER, ATTACKER_PASSWORD}},
        {{"HELLO", "3", "AUTH~", ATTACKER_USER, "wrong"}},
        {{"HELLO", "2", "AUTH~", "default", "any", "SETNAME~", "evil"}},
        {{"HELLO", "3", "SETNAME~", "evil", "AUTH~", ATTACKER_USER, ATTACKER_PASSWORD}},
        {{"HELLO", "3", "AUTH", ATTACKER_USER, ATTACKER_PASSWORD, "SETNAME", "not a name"}},
        {{"HELLO", "3", "AUTH", ATTACKER_USER, ATTACKER_PASSWORD, "EVIL~"}},
        {{"HELLO", "2"}},
        {{"HELLO", "3"}},
        {{"HELLO", "4"}},
        {{"HELLO"}},
        {{"HELLO", "3~"}},
        {{"HELLO", "3", "AUTH"}},
        {{"AUTH", ATTACKER_USER "~", ATTACKER_PASSWORD}},
        {{"AUTH", ATTACKER_USER, ATTACKER_PASSWORD "~"}},
        {{"AUTH", ATTACKER_USER, ATTACKER_PASSWORD}},
        {{"AUTH", ATTACKER_USER, "wrong"}},
        {{"AUTH", "default", "any~"}},
        {{"AUTH", "default~", "any"}},
        {{"AUTH", "any"}},
        {{"AUTH", ""}},
        {{"AUTH"}},
        {{"CLIENT", "SETNAME", "evil~"}},
        {{"CLIENT", "SETNAME", "not a name"}},
    };
    PUT_ONE_OF(attacker, lines);
}

/* Credentials that nobody else has: each is right for the default user, who needs no password. */
static void attack_password(struct attacker *attacker)
{
    char password[32];
    snprintf(password, sizeof password, "any%u", attacker_random(attacker, 1000000));
    if (attacker_chance(attacker, 2))
        put_words(attacker, "AUTH", "default", password, NULL);
    else
        put_words(attacker, "HELLO", attacker_chance(attacker, 2) ? "3" : "2", "AUTH", "default", password, NULL);
    put_words(attacker, "GET", "evil:key", NULL);
}

/* The database, and forgetting all of it. */
static void attack_state(struct attacker *attacker)
{
    static const char *const odd[] = {"-1", "16", "1~", " 1", "0x1", "01", "99999999999999999999", ""};
    char number[16];
    snprintf(number, sizeof number, "%u", attacker_random(attacker, 16));
    switch (attacker_random(attacker, 4)) {
    case 0:
        put_words(attacker, "SELECT", number, NULL);
        break;
    case 1:
        put_words(attacker, "SELECT", odd[attacker_random(attacker, sizeof odd / sizeof *odd)], NULL);
        break;
    case 2:
        put_words(attacker, "RESET", NULL);
        break;
    default:
        put_words(attacker, "SELECT", number, NULL);
        put_probe(attacker);
        put_words(attacker, "SELECT", "0", NULL);
    }
}

/* The server is to close behind its reply, and not before. */
static void attack_quit(struct attacker *attacker)
{
    if (attacker_chance(attacker, 2))
        put_probe(attacker);
    put_words(attacker, "QUIT", NULL);
    if (attacker_chance(attacker, 2))
        put_probe(attacker);
}

/* Replies that do not come. */
static void attack_reply(struct attacker *attacker)
{
    static const char *const modes[] = {"SKIP~", "OFF~", "ON~", "SKIP", "OFF", "ON", "EVIL"};
    for (uint32_t left = 1 + attacker_random(attacker, 3); left > 0; left--) {
        put_words(attacker, "CLIENT", "REPLY", modes[attacker_random(attacker, sizeof modes / sizeof *modes)], NULL);
        if (attacker_chance(attacker, 4))
            put_text(attacker, "\r\n");
        put_probe(attacker);
    }
}

/* Messages on a connection that carries replies. */
static void attack_pubsub(struct attacker *attacker)
{
    static const struct line lines[] = {
        {{"SUBSCRIBE", "evil"}},
        {{"PSUBSCRIBE", "evil*"}},
        {{"SSUBSCRIBE", "evil"}},
        {{"KSSUBSCRIBE", "evil"}},
        {{"SUBSCRIBE", "evil", "evil:2"}},
        {{"UNSUBSCRIBE"}},
        {{"UNSUBSCRIBE", "evil"}},
        {{"PUNSUBSCRIBE"}},
        {{"SUNSUBSCRIBE"}},
        {{"PUBLISH", "evil", "evil"}},
        {{"SPUBLISH", "evil", "evil"}},
        {{"PUBLISH", "evil", "evil~"}},
        {{"SUBSCRIBE"}},
        {{"UNSUBSCRIBE", "evil:9", "evil"}},
        {{"PSUBSCRIBE", "evil*", "evil?"}},
    };
    PUT_ONE_OF(attacker, lines);
    if (attacker_chance(attacker, 2))
        put_words(attacker, "PUBLISH", "evil", "evil", NULL);
}

/* An id of a connection: one that Headgate shares between clients, or a guess. */
static unsigned guess_id(struct attacker *attacker)
{
    uint32_t known = atomic_load(&attacker->run->lane_count);
    if (known == 0 || attacker_chance(attacker, 4))
        return 1 + attacker_random(attacker, 2000);
    return atomic_load(&attacker->run->lanes[attacker_random(attacker, known)]);
}

/* Pushes on somebody else's connection. Only keys of attackers are told of: what comes of it is then no violation if
 * the connection is a client's own, as Redis itself does that. */
static void attack_tracking(struct attacker *attacker)
{
    static const struct line lines[] = {
        {{"CLIENT", "TRACKING", "ON~"}},
        {{"CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "evil:"}},
        {{"CLIENT", "TRACKING", "ON", "OPTIN"}},
        {{"CLIENT", "TRACKING", "OFF~"}},
        {{"CLIENT", "CACHING", "YES~"}},
        {{"CLIENT", "CACHING", "NO"}},
        {{"CLIENT", "TRACKINGINFO"}},
    };
    char id[16];
    if (attacker_chance(attacker, 2)) {
        snprintf(id, sizeof id, "%u", guess_id(attacker));
        put_words(attacker, "CLIENT", "TRACKING", "ON", "REDIRECT~", id, "BCAST", "PREFIX", "evil:", NULL);
    } else {
        PUT_ONE_OF(attacker, lines);
    }
    put_words(attacker, "GET", "evil:key", NULL);
    put_words(attacker, "SET", "evil:key", "evil", NULL);
}

/* The rest of CLIENT that users have. */
static void attack_client(struct attacker *attacker)
{
    static const struct line lines[] = {
        {{"CLIENT", "NO-EVICT", "ON"}},
        {{"CLIENT", "NO-EVICT", "OFF~"}},
        {{"CLIENT", "ID"}},
        {{"CLIENT", "ID", "evil"}},
        {{"CLIENT", "INFO"}},
        {{"CLIENT", "GETREDIR"}},
        {{"CLIENT", "GETNAME"}},
        {{"CLIENT", "SETINFO", "LIB-NAME", "evil"}},
        {{"CLIENT", "SETINFO", "LIB-NAME\r\n+OK", "evil"}},
        {{"CLIENT", "HELP"}},
        {{"CLIENT"}},
        {{"CLIENT", "EVIL\r\n+OK"}},
        {{"READONLY"}},
        {{"READWRITE"}},
        {{"ASKING"}},
    };
    if (attacker_chance(attacker, 20)) {
        attacker->sees_all = true;
        put_words(attacker, "CLIENT", "LIST", NULL);
        return;
    }
    PUT_ONE_OF(attacker, lines);
    put_probe(attacker);
}

/* ---- scripts ---- */

/* A debugger at the other end of the connection, which with Redis may be that of anybody: shared lanes refuse it, and
 * elsewhere it is forbidden (crosstalk_servers.c). SYNC would stop Redis for everybody. */
static void attack_debug(struct attacker *attacker)
{
    static const struct line lines[] = {{{"SCRIPT", "DEBUG", "YES"}},
                                        {{"SCRIPT", "DEBUG", "YES~"}},
                                        {{"SCRIPT", "DEBUG~", "YES"}},
                                        {{"SCRIPT", "DEBUG", "NO"}}};
    if (attacker->run->options.headgate == NULL) {
        put_probe(attacker);
        return;
    }
    PUT_ONE_OF(attacker, lines);
    if (attacker_chance(attacker, 3))
        put_words(attacker, "EVAL", "return 'evil'", "0", NULL);
    if (attacker_chance(attacker, 3))
        put_words(attacker, "continue", NULL);
    put_probe(attacker);
}

/* Replies that look like those of other commands. */
static void attack_forge(struct attacker *attacker)
{
    static const char *const scripts[] = {
        "return {err='ERR unknown command'}",
        "return {err='ERR unknown command `client`, with args beginning with: '}",
        "return {err='NOAUTH Authentication required.'}",
        "return {err='WRONGPASS'}",
        "return {err='MOVED 1 127.0.0.1:1'}",
        "return {err='BUSY'}",
        "return {ok='OK'}",
        "return {ok='RESET'}",
        "return {ok='QUEUED'}",
        "return {ok='PONG'}",
        "return {ok='CONTINUE'}",
        "return {'message','evil','evil'}",
        "return {'subscribe','evil',1}",
        "return {'invalidate',{'evil:key'}}",
        "redis.setresp(3); return {map={server='redis',proto=3}}",
        "return redis.call('SUBSCRIBE','evil')",
        "return redis.call('CLIENT','REPLY','OFF')",
        "return {ok='OK\\r\\n+evil'}",
        "return redis.call('PUBLISH','evil','evil')",
        "local t = {} for i = 1, 5000 do t = {t} end return t",
        "local t = {} for i = 1, 20000 do t = {t} end return t",
        "redis.setresp(3); local t = {} for i = 1, 500 do t = {map={a=t}} end return t",
        "redis.setresp(3); return {{double=0/0},{big_number='1\\r\\n+2'},{verbatim_string={format='t',string='+OK'}}}",
        "redis.setresp(3); return {set={a=true,b=true}}",
        "local t = {} for i = 1, 7000 do t[i] = i end return t",
        "return string.rep('evil', 100000)",
        "error({err='evil\\r\\n+OK'})",
        "error('evil\\n$3')",
        "#!lua \"x\\r\\n+OK\"\nreturn 1",
        "#!lua \"x\\r\\n+RESET\"\nreturn 1",
        "#!lua \"x\\r\\n-ERR unknown command\"\nreturn 1",
        "#!lua \"flags=x\\r\\n$4\\r\\nevil\"\nreturn 1",
        "#!\"l\\r\\n-NOPERM\"\nreturn 1",
    };
    put_words(attacker, attacker_chance(attacker, 4) ? "EVAL_RO" : "EVAL",
              scripts[attacker_random(attacker, sizeof scripts / sizeof *scripts)], "0", NULL);
}

/* Redis does nothing else meanwhile: some 50 ms. */
static void attack_slow(struct attacker *attacker)
{
    put_words(attacker, "EVAL", "local n = 0 for i = 1, 3000000 do n = n + i end return n", "0", NULL);
}

/* ---- what waits, and what belongs together ---- */

/* Redis blocks the connection: on a shared lane everybody would wait. */
static void attack_block(struct attacker *attacker)
{
    static const struct line lines[] = {
        {{"XREAD", "BLOCK~", "0", "STREAMS", "evil:stream", "$"}},
        {{"XREAD", "BLOCK~", "0", "STREAMS~", "evil:stream", "$"}},
        {{"XREAD", "COUNT~", "1", "BLOCK~", "0", "STREAMS", "evil:stream", "$"}},
        {{"XREADGROUP", "GROUP~", "evil", "evil", "BLOCK~", "0", "STREAMS", "evil:stream"}},
        {{"BLPOP", "evil:none", "0"}},
        {{"BRPOP", "evil:none", "evil:none2", "0.01"}},
        {{"BLMPOP", "0", "1", "evil:none", "LEFT~"}},
        {{"BZPOPMIN", "evil:none", "0"}},
        {{"BLMOVE", "evil:none", "evil:none2", "LEFT", "RIGHT", "0"}},
        {{"WAIT", "1", "20"}},
        {{"WAIT", "0", "0"}},
        {{"WAIT", "9", "0"}},
    };
    PUT_ONE_OF(attacker, lines);
    if (attacker_chance(attacker, 2))
        put_words(attacker, attacker_chance(attacker, 2) ? "RESET" : "QUIT", NULL);
    else
        put_probe(attacker);
}

/* Connections that are no client's any more, or are not accepted as such. Real replicas are left out: they change what
 * WAIT answers to everybody. */
static void attack_replica(struct attacker *attacker)
{
    static const struct line lines[] = {
        {{"SYNC", "evil"}},
        {{"PSYNC", "evil"}},
        {{"PSYNC", "evil", "evil", "evil", "evil"}},
        {{"SYNC~", "evil"}},
        {{"REPLCONF", "capa", "eof"}},
        {{"REPLCONF", "listening-port", "1"}},
        {{"REPLCONF", "evil", "evil"}},
        {{"REPLCONF"}},
        {{"MONITOR", "evil"}},
    };
    if (attacker_chance(attacker, 4)) {
        attacker->sees_all = true;
        put_words(attacker, "MONITOR", NULL);
    } else {
        PUT_ONE_OF(attacker, lines);
    }
    put_probe(attacker);
}

/* Transactions that are begun and not ended, ended and not begun, or hold what must not be in them. */
static void attack_multi(struct attacker *attacker)
{
    static const struct line lines[] = {
        {{"MULTI"}},
        {{"EXEC"}},
        {{"DISCARD"}},
        {{"WATCH", "evil:key"}},
        {{"UNWATCH"}},
        {{"MULTI", "evil"}},
        {{"EXEC", "evil"}},
        {{"AUTH", "default", "any"}},
        {{"HELLO", "3", "AUTH~", ATTACKER_USER, ATTACKER_PASSWORD}},
        {{"RESET"}},
        {{"QUIT"}},
        {{"SUBSCRIBE", "evil"}},
        {{"CLIENT", "REPLY", "OFF~"}},
        {{"CLIENT", "REPLY", "SKIP~"}},
        {{"SELECT", "7"}},
        {{"BLPOP", "evil:none", "0"}},
        {{"CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "evil:"}},
    };
    if (attacker_chance(attacker, 2))
        put_words(attacker, "MULTI", NULL);
    for (uint32_t left = 1 + attacker_random(attacker, 3); left > 0; left--)
        PUT_ONE_OF(attacker, lines);
    if (attacker_chance(attacker, 2))
        put_words(attacker, "EXEC", NULL);
}

/* Names that nobody knows, and names that Redis was told to give to other commands (crosstalk_servers.c). */
static void attack_unknown(struct attacker *attacker)
{
    static const struct line lines[] = {
        {{"EVIL"}},
        {{"EVIL\r\n+OK", "evil"}},
        {{""}},
        {{"client|reply", "off"}},
        {{"KOBJECT", "ENCODING", "evil:key"}},
        {{"KOBJECT~", "ENCODING", "evil:key"}},
        {{"KOBJECT", "ENCODING~", "evil:key"}},
        {{"KOBJECT"}},
        {{"OBJECT", "ENCODING", "evil:key"}},
        {{"KSSUBSCRIBE", "evil"}},
        {{"KSSUBSCRIBE"}},
    };
    char name[32];
    if (attacker_chance(attacker, 3)) {
        snprintf(name, sizeof name, "evil%u", attacker_random(attacker, 100000));
        put_words(attacker, name, "evil", NULL);
    } else {
        PUT_ONE_OF(attacker, lines);
    }
    put_probe(attacker);
}

/* ---- what is forbidden ---- */

void put_forbidden(struct attacker *attacker)
{
    static const struct line lines[] = {
        {{"FLUSHALL"}},
        {{"FLUSHALL", "ASYNC"}},
        {{"FLUSHDB"}},
        {{"SWAPDB", "0", "1"}},
        {{"SHUTDOWN", "NOSAVE"}},
        {{"DEBUG", "SLEEP", "5"}},
        {{"CONFIG", "SET", "slowlog-max-len", "4321"}},
        {{"ACL", "SETUSER", "intruder", "on", "nopass", "+@all"}},
        {{"ACL", "DELUSER", "crosstalk1"}},
        {{"CLIENT", "KILL", "TYPE", "normal"}},
        {{"CLIENT", "KILL", "USER", "default"}},
        {{"CLIENT", "PAUSE", "100000"}},
        {{"SCRIPT", "FLUSH"}},
        {{"SCRIPT", "KILL"}},
        {{"REPLICAOF", "127.0.0.1", "1"}},
    };
    if (attacker->run->options.headgate != NULL)
        PUT_ONE_OF(attacker, lines);
    else
        put_probe(attacker);
}

/* By every way to be somebody else for a moment. */
static void attack_forbidden(struct attacker *attacker)
{
    switch (attacker_random(attacker, 4)) {
    case 0:
        put_words(attacker, "MULTI", NULL);
        put_forbidden(attacker);
        put_words(attacker, "EXEC", NULL);
        break;
    case 1:
        attack_auth(attacker);
        put_forbidden(attacker);
        break;
    case 2:
        attack_reply(attacker);
        put_forbidden(attacker);
        break;
    default:
        put_forbidden(attacker);
    }
}

/* ---- the table ---- */

struct attack {
    const char *name;
    void (*put)(struct attacker *attacker);
    uint32_t weight;
};

static const struct attack attacks[] = {
    {"auth", attack_auth, 100},        {"password", attack_password, 20},
    {"state", attack_state, 80},       {"quit", attack_quit, 20},
    {"reply", attack_reply, 80},       {"pubsub", attack_pubsub, 80},
    {"tracking", attack_tracking, 60}, {"client", attack_client, 60},
    {"debug", attack_debug, 20},       {"forge", attack_forge, 80},
    {"slow", attack_slow, 1},          {"block", attack_block, 60},
    {"replica", attack_replica, 40},   {"multi", attack_multi, 80},
    {"unknown", attack_unknown, 60},   {"forbidden", attack_forbidden, 60},
    {"names", attack_names, 100},      {"garbage", attack_garbage, 40},
    {"header", attack_header, 30},     {"inline", attack_inline, 40},
    {"trickle", attack_trickle, 20},   {"deaf", attack_deaf, 4},
    {"flood", attack_flood, 2},        {"hangup", attack_hangup, 40},
    {"large", attack_large, 20},
};

#define ATTACK_COUNT (sizeof attacks / sizeof *attacks)

_Static_assert(ATTACK_COUNT <= ATTACKS_MAX, "a set of attacks has a bit for each");

uint64_t attacks_all(void)
{
    return (UINT64_C(1) << ATTACK_COUNT) - 1;
}

const char *attack_name(unsigned number)
{
    return number < ATTACK_COUNT ? attacks[number].name : NULL;
}

static uint64_t attack_bit(const char *name, size_t length)
{
    for (size_t at = 0; at < ATTACK_COUNT; at++)
        if (strlen(attacks[at].name) == length && memcmp(attacks[at].name, name, length) == 0)
            return UINT64_C(1) << at;
    return 0;
}

uint64_t attacks_named(const char *names)
{
    uint64_t set = 0;
    for (bool more = true; more;) {
        size_t length = strcspn(names, ",");
        uint64_t bit = attack_bit(names, length);
        if (bit == 0)
            return 0;
        set |= bit;
        more = names[length] == ',';
        names += length + 1;
    }
    return set;
}

void attack_any(struct attacker *attacker)
{
    uint64_t set = attacker->run->options.attacks;
    uint32_t total = 0;
    for (size_t at = 0; at < ATTACK_COUNT; at++)
        total += (set >> at & 1) != 0 ? attacks[at].weight : 0;
    uint32_t drawn = attacker_random(attacker, total);
    for (size_t at = 0; at < ATTACK_COUNT; at++) {
        uint32_t weight = (set >> at & 1) != 0 ? attacks[at].weight : 0;
        if (drawn < weight) {
            attacks[at].put(attacker);
            attacker->figures->attacks[at]++;
            return;
        }
        drawn -= weight;
    }
}
