#include "crosstalk_attacks.h"

#include "rig_random.h"

#include <stdio.h>
#include <string.h>

#define WORDS_MAX 8
#define ENDING_MAX 4
#define MAY_END '~'
#define MUST_END '\1'
#define NOISE_MAX 200
#define BIG_VALUE 65536
#define FLOOD_MAX 20000
#define DEAF_REQUESTS_MAX 400
#define DEAF_US_MAX 3000000

/* Requests, one of which is taken by chance, with "|" between them. They have blanks between their words; a word that
 * ends in '~' may get a NUL and a random ending in its place: to Redis it is the same word, for some endings. */

static const char probes[] =
    "GET evil:key|SET evil:key evil|PING|PING evil|ECHO evil|ACL WHOAMI|INCR evil:counter|LPUSH evil:list 1|GET"
    "|DEL evil:list|PUBLISH evil evil|NOSUCH evil|EVAL return{} 0";

/* Makes Headgate and Redis think different things of who the client is; the database, and forgetting all of it. */
static const char identities[] =
    "HELLO 3 AUTH~ attacker attack|HELLO 3 AUTH~ attacker wrong|HELLO 2 AUTH~ default any SETNAME~ evil"
    "|HELLO 3 SETNAME~ evil AUTH~ attacker attack|HELLO 3 AUTH attacker attack EVIL~|HELLO 2|HELLO 3|HELLO 4|HELLO"
    "|HELLO 3~|HELLO 3 AUTH|AUTH attacker~ attack|AUTH attacker attack~|AUTH attacker attack|AUTH attacker wrong"
    "|AUTH default any~|AUTH default~ any|AUTH any|AUTH|CLIENT SETNAME evil~|CLIENT SETNAME \n"
    "|SELECT 0|SELECT 1|SELECT 15|SELECT -1|SELECT 16|SELECT 1~|SELECT 0x1|SELECT 01|RESET|RESET";

/* Replies that do not come; messages and pushes on a connection that carries replies; the rest of CLIENT. Only keys of
 * attackers are told of: what comes of it is then no violation if the connection is a client's own, as Redis itself
 * does that. */
static const char modes[] =
    "CLIENT REPLY SKIP~|CLIENT REPLY OFF~|CLIENT REPLY ON~|CLIENT REPLY SKIP|CLIENT REPLY ON|CLIENT REPLY EVIL"
    "|SUBSCRIBE evil|PSUBSCRIBE evil*|SSUBSCRIBE evil|KSSUBSCRIBE evil|SUBSCRIBE evil evil:2|UNSUBSCRIBE|PUNSUBSCRIBE"
    "|UNSUBSCRIBE evil|SUNSUBSCRIBE|SPUBLISH evil evil|PUBLISH evil evil~|SUBSCRIBE|UNSUBSCRIBE evil:9 evil"
    "|PSUBSCRIBE evil* evil?|CLIENT TRACKING ON~|CLIENT TRACKING ON BCAST PREFIX evil:|CLIENT TRACKING ON OPTIN"
    "|CLIENT TRACKING OFF~|CLIENT CACHING YES~|CLIENT CACHING NO|CLIENT TRACKINGINFO|CLIENT NO-EVICT ON"
    "|CLIENT NO-EVICT OFF~|CLIENT ID|CLIENT ID evil|CLIENT INFO|CLIENT GETREDIR|CLIENT GETNAME"
    "|CLIENT SETINFO LIB-NAME evil|CLIENT SETINFO LIB-NAME\r\n+OK evil|CLIENT HELP|CLIENT|CLIENT EVIL\r\n+OK|READONLY"
    "|READWRITE|ASKING";

/* Redis blocks the connection; transactions that are begun and not ended, ended and not begun, or hold what must not be
 * in them; what is no client's any more, or is not accepted as such (real replicas change what WAIT answers to all);
 * names that nobody knows, and that Redis was told to give to other commands (crosstalk_servers.c). */
static const char waits[] =
    "XREAD BLOCK~ 0 STREAMS evil:stream $|XREAD BLOCK~ 0 STREAMS~ evil:stream $"
    "|XREAD COUNT~ 1 BLOCK~ 0 STREAMS evil:stream $|XREADGROUP GROUP~ evil evil BLOCK~ 0 STREAMS evil:stream"
    "|BLPOP evil:none 0|BRPOP evil:none evil:none2 0.01|BLMPOP 0 1 evil:none LEFT~|BZPOPMIN evil:none 0"
    "|BLMOVE evil:none evil:none2 LEFT RIGHT 0|WAIT 1 20|WAIT 0 0|WAIT 9 0";
static const char transactions[] =
    "MULTI|EXEC|DISCARD|WATCH evil:key|UNWATCH|MULTI evil|EXEC evil|AUTH default any|HELLO 3 AUTH~ attacker attack"
    "|RESET|QUIT|SUBSCRIBE evil|CLIENT REPLY OFF~|CLIENT REPLY SKIP~|SELECT 7|BLPOP evil:none 0"
    "|CLIENT TRACKING ON BCAST PREFIX evil:";
static const char unknown[] =
    "SYNC evil|PSYNC evil|PSYNC evil evil evil evil|SYNC~ evil|REPLCONF capa eof|REPLCONF listening-port 1"
    "|REPLCONF evil evil|REPLCONF|MONITOR evil|EVIL|EVIL\r\n+OK evil|client|reply off|KOBJECT ENCODING evil:key"
    "|KOBJECT~ ENCODING evil:key|KOBJECT ENCODING~ evil:key|KOBJECT|OBJECT ENCODING evil:key|KSSUBSCRIBE";

/* Only with Headgate: the rule forbids it. */
static const char forbidden[] =
    "FLUSHALL|FLUSHALL ASYNC|FLUSHDB|SWAPDB 0 1|SHUTDOWN NOSAVE|DEBUG SLEEP 5|CONFIG SET slowlog-max-len 4321"
    "|ACL SETUSER intruder on nopass +@all|ACL DELUSER crosstalk1|CLIENT KILL TYPE normal|CLIENT KILL USER default"
    "|CLIENT PAUSE 100000|SCRIPT FLUSH|SCRIPT KILL|REPLICAOF 127.0.0.1 1|CLIENT\1 KILL TYPE normal"
    "|CLIENT KILL\1 TYPE normal|CLIENT PAUSE\1 10000|SCRIPT FLUSH\1|CONFIG RESETSTAT\1|ACL DELUSER\1 crosstalk1"
    "|FUNCTION FLUSH\1|SCRIPT DEBUG YES|SCRIPT DEBUG YES~|SCRIPT DEBUG~ YES|SCRIPT DEBUG\1 SYNC|SCRIPT DEBUG NO";

/* Scripts whose replies look like those of other commands, and one that takes its time; with "|" between. */
static const char scripts[] =
    "return {err='ERR unknown command `client`, with args beginning with: '}|return {err='NOAUTH Authentication'}"
    "|return {err='MOVED 1 127.0.0.1:1'}|return {ok='OK'}|return {ok='RESET'}|return {ok='QUEUED'}"
    "|return {ok='CONTINUE'}|return {'message','evil','evil'}|return {'subscribe','evil',1}"
    "|return {'invalidate',{'evil:key'}}|redis.setresp(3); return {map={server='redis',proto=3}}"
    "|return redis.call('SUBSCRIBE','evil')|return redis.call('CLIENT','REPLY','OFF')|return {ok='OK\\r\\n+evil'}"
    "|return redis.call('PUBLISH','evil','evil')|local t = {} for i = 1, 5000 do t = {t} end return t"
    "|redis.setresp(3); local t = {} for i = 1, 500 do t = {map={a=t}} end return t"
    "|redis.setresp(3); return {{double=0/0},{big_number='1\\r\\n+2'},{verbatim_string={format='t',string='+OK'}}}"
    "|local t = {} for i = 1, 7000 do t[i] = i end return t|return string.rep('evil', 100000)"
    "|error({err='evil\\r\\n+OK'})|error('evil\\n$3')|#!lua \"x\\r\\n+OK\"\nreturn 1|#!\"l\\r\\n-NOPERM\"\nreturn 1"
    "|local n = 0 for i = 1, 300000 do n = n + i end return n";

/* Bytes as they are, with "|" between: no requests, odd ones, inline ones; counts and lengths that are too large. */
static const char raw[] =
    "\r\n\r\n\r\n|\n|*0\r\n|*-1\r\n|*1\r\n$-1\r\n|*1\r\n:1\r\n|*1\r\n$4\r\nPING\r|*1\r\n$4\r\nPINGxx"
    "|*2\r\n$4\r\nECHO\r\n$4\r\nev|+OK\r\n|-ERR evil\r\n|$4\r\nevil\r\n|>2\r\n$7\r\nmessage\r\n$4\r\nevil\r\n"
    "|%1\r\n+a\r\n+b\r\n|POST / HTTP/1.1\r\nContent-Length: 20\r\n\r\nFLUSHALL\r\nFLUSHALL\r\n|*1\n$4\nPING\n"
    "|* 1\r\n$4\r\nPING\r\n|*+1\r\n$4\r\nPING\r\n|*01\r\n$04\r\nPING\r\n|*11\r\n$4\r\nPING\r\n|*1048576\r\n"
    "|*1048577\r\n|*99999999999999999999\r\n|*2\r\n$4\r\nECHO\r\n$500000000\r\nevil"
    "|*3\r\n$3\r\nSET\r\n$8\r\nevil:key\r\n$536870913\r\nevil|*2\r\n$4\r\nAUTH\r\n$16385\r\nevil"
    "|*1\r\n$18446744073709551615\r\n|*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$500000000\r\nOFF"
    "|\"PING\\x00\"\r\n|CLIENT REPLY \"SKIP\\x00\"\r\n|CLIENT REPLY \"OFF\\x00x\"\r\n|\"CLIENT\" 'REPLY' "
    "\"O\\x46F\"\r\n"
    "|HELLO 3 \"AUTH\\x00\" attacker attack\r\n|CLIENT \"REPLY\\x00a\" OFF\r\n|ECHO \"evil\r\n|ECHO 'evil\\'\r\n"
    "|ECHO \"\\r\\n+OK\\r\\n\"\r\n|SET evil:key \"*1\\r\\n$8\\r\\nFLUSHALL\\r\\n\"\r\n"
    "|XREAD \"BLOCK\\x00\" 0 STREAMS evil:stream $\r\n";

/* Before one large word: what is passed on as it comes, of commands that do something to the connection. */
static const char heads[] =
    "*3\r\n$3\r\nSET\r\n$8\r\nevil:big\r\n|*3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n|*3\r\n$6\r\nCLIENT\r\n$"
    "7\r\nSETNAME\r\n"
    "|*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n|*4\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$4\r\nSKIP\r\n|*2\r\n$"
    "9\r\nSUBSCRIBE\r\n"
    "|*3\r\n$9\r\nSUBSCRIBE\r\n$4\r\nevil\r\n|*3\r\n$5\r\nBLPOP\r\n$9\r\nevil:none\r\n|*3\r\n$4\r\nEVAL\r\n$1\r\n0\r\n"
    "|*2\r\n$8\r\nFLUSHALL\r\n|*2\r\n$5\r\nMULTI\r\n|*2\r\n$6\r\nSELECT\r\n|*2\r\n";

/* Every name that Headgate knows. */
#define LETTER(letter)
#define COMMAND(name, kind, arity, keys, first_key, last_key, key_step, categories) name,
static const char *const command_names[] = {
#include "command/command_table.inc"
};
#undef LETTER
#undef COMMAND

/* ---- means ---- */

uint32_t attacker_random(struct attacker *attacker, uint32_t bound)
{
    return (uint32_t)(next_random(&attacker->random) % bound);
}

static bool chance(struct attacker *attacker, uint32_t one_in)
{
    return attacker_random(attacker, one_in) == 0;
}

static void put_text(struct attacker *attacker, const char *text)
{
    buffer_append(&attacker->out, text, strlen(text));
}

/* None of it can make an identity. */
static void put_noise(struct attacker *attacker, size_t length)
{
    for (; length > 0; length--) {
        char byte = (char)attacker_random(attacker, 256);
        buffer_append(&attacker->out, byte == 'x' ? "X" : &byte, 1);
    }
}

static void put_word(struct attacker *attacker, const char *word, size_t length)
{
    char line[32];
    char last = length > 0 ? word[length - 1] : '\0';
    size_t ending = 0;
    if (last == MAY_END || last == MUST_END) {
        length--;
        ending = last == MUST_END || chance(attacker, 2) ? 1 + attacker_random(attacker, ENDING_MAX) : 0;
    }
    snprintf(line, sizeof line, "$%zu\r\n", length + ending);
    put_text(attacker, line);
    buffer_append(&attacker->out, word, length);
    if (ending > 0) {
        buffer_append(&attacker->out, "", 1);
        put_noise(attacker, ending - 1);
    }
    put_text(attacker, "\r\n");
}

/* One part of a list, by chance. */
static size_t choose(struct attacker *attacker, const char *list, const char **part)
{
    uint32_t count = 1;
    for (const char *at = list; (at = strchr(at, '|')) != NULL; at++)
        count++;
    for (uint32_t left = attacker_random(attacker, count); left > 0; left--)
        list = strchr(list, '|') + 1;
    *part = list;
    return strcspn(list, "|");
}

static void put_request(struct attacker *attacker, const char *text, size_t length)
{
    const char *end = text + length;
    char line[32];
    size_t words = 1;
    for (const char *at = text; at < end; at++)
        words += *at == ' ';
    snprintf(line, sizeof line, "*%zu\r\n", words);
    put_text(attacker, line);
    for (const char *word = text; word <= end;) {
        const char *blank = memchr(word, ' ', (size_t)(end - word));
        size_t part = (size_t)((blank != NULL ? blank : end) - word);
        put_word(attacker, word, part);
        word += part + 1;
    }
}

static void put_line(struct attacker *attacker, const char *text)
{
    put_request(attacker, text, strlen(text));
}

static void put_one_of(struct attacker *attacker, const char *list)
{
    const char *text;
    size_t length = choose(attacker, list, &text);
    put_request(attacker, text, length);
}

void put_login(struct attacker *attacker)
{
    put_line(attacker, "AUTH " ATTACKER_USER " " ATTACKER_PASSWORD);
}

void put_quit(struct attacker *attacker)
{
    put_line(attacker, "QUIT");
}

/* ---- attacks ---- */

static void attack_identity(struct attacker *attacker)
{
    char line[64];
    put_one_of(attacker, identities);
    if (!chance(attacker, 8))
        return;
    /* Credentials that nobody else has: right for the default user, who needs no password. */
    snprintf(line, sizeof line, "AUTH default any%u", attacker_random(attacker, 1000000));
    put_line(attacker, line);
}

/* Among them, pushes on somebody else's connection: ids of shared lanes are low. And what shows all, which may hold
 * what is another's. */
static void attack_mode(struct attacker *attacker)
{
    char line[96];
    snprintf(line, sizeof line,
             "CLIENT TRACKING ON REDIRECT~ %u BCAST PREFIX evil:", 1 + attacker_random(attacker, 500));
    if (chance(attacker, 6)) {
        put_line(attacker, line);
    } else if (chance(attacker, 30)) {
        attacker->sees_all = true;
        put_line(attacker, chance(attacker, 2) ? "MONITOR" : "CLIENT LIST");
    } else {
        put_one_of(attacker, modes);
    }
    put_line(attacker, "SET evil:key evil");
}

static void attack_wait(struct attacker *attacker)
{
    put_one_of(attacker, waits);
    if (chance(attacker, 2))
        put_line(attacker, chance(attacker, 2) ? "RESET" : "QUIT");
}

static void attack_transaction(struct attacker *attacker)
{
    if (chance(attacker, 2))
        put_line(attacker, "MULTI");
    for (uint32_t left = 1 + attacker_random(attacker, 3); left > 0; left--)
        put_one_of(attacker, transactions);
    if (chance(attacker, 2))
        put_line(attacker, "EXEC");
}

static void attack_unknown(struct attacker *attacker)
{
    put_one_of(attacker, unknown);
}

/* By every way to be somebody else for a moment. */
static void attack_forbidden(struct attacker *attacker)
{
    const char *before = chance(attacker, 2) ? identities : chance(attacker, 2) ? transactions : modes;
    if (chance(attacker, 2))
        put_one_of(attacker, before);
    put_one_of(attacker, attacker->run->options.headgate != NULL ? forbidden : probes);
}

static void attack_name(struct attacker *attacker)
{
    const uint32_t names = sizeof command_names / sizeof *command_names;
    char line[96];
    if (attacker->run->options.headgate == NULL)
        return;
    snprintf(line, sizeof line, "%s%c%s", command_names[attacker_random(attacker, names)], MUST_END,
             chance(attacker, 2) ? " evil:key 0" : "");
    put_line(attacker, line);
}

static void attack_script(struct attacker *attacker)
{
    const char *script;
    size_t length = choose(attacker, scripts, &script);
    put_text(attacker, "*3\r\n$4\r\nEVAL\r\n");
    put_word(attacker, script, length);
    put_text(attacker, "$1\r\n0\r\n");
}

static void attack_raw(struct attacker *attacker)
{
    const char *text;
    size_t length = choose(attacker, raw, &text);
    buffer_append(&attacker->out, text, length);
    if (chance(attacker, 4))
        put_noise(attacker, 1 + attacker_random(attacker, NOISE_MAX));
}

static void put_large(struct attacker *attacker, const char *head, size_t head_length, size_t length)
{
    char line[32];
    snprintf(line, sizeof line, "$%zu\r\n", length);
    buffer_append(&attacker->out, head, head_length);
    put_text(attacker, line);
    memset(buffer_reserve(&attacker->out, length), 'e', length);
    buffer_commit(&attacker->out, length);
    put_text(attacker, "\r\n");
}

static void attack_large(struct attacker *attacker)
{
    const char *head;
    size_t length = choose(attacker, heads, &head);
    put_large(attacker, head, length, 1 + attacker_random(attacker, 2 * BIG_VALUE));
}

/* A few bytes at each turn. */
static void attack_trickle(struct attacker *attacker)
{
    attacker->chunk = 1 + attacker_random(attacker, 3);
}

/* Many large replies that are never read. */
static void attack_deaf(struct attacker *attacker)
{
    put_large(attacker, heads, strcspn(heads, "|"), BIG_VALUE);
    for (uint32_t left = attacker_random(attacker, DEAF_REQUESTS_MAX); left > 0; left--)
        put_line(attacker, "GET evil:big");
    attacker->deaf = true;
    attacker->next_us = now_us() + attacker_random(attacker, DEAF_US_MAX);
}

/* Answers that have to wait behind one that does not come. */
static void attack_flood(struct attacker *attacker)
{
    put_line(attacker, "BLPOP evil:none 0");
    for (uint32_t left = attacker_random(attacker, FLOOD_MAX); left > 0; left--)
        put_one_of(attacker, attacker->run->options.headgate != NULL ? forbidden : probes);
    attacker->next_us = now_us() + attacker_random(attacker, DEAF_US_MAX);
}

/* Leaves while Redis still waits on its behalf, or with everything under way. */
static void attack_hangup(struct attacker *attacker)
{
    static const enum attacker_ending endings[] = {ATTACKER_CLOSES, ATTACKER_RESETS, ATTACKER_HALF_CLOSES};
    if (chance(attacker, 3))
        put_line(attacker, "MULTI");
    put_line(attacker, "BLPOP evil:none 0");
    attacker->moves = 0;
    attacker->ending = endings[attacker_random(attacker, sizeof endings / sizeof *endings)];
}

void attack_any(struct attacker *attacker)
{
    static const struct {
        void (*put)(struct attacker *attacker);
        uint32_t weight;
    } attacks[] = {
        {attack_identity, 200}, {attack_mode, 280},   {attack_wait, 60}, {attack_transaction, 80},
        {attack_unknown, 100},  {attack_name, 70},    {attack_raw, 110}, {attack_forbidden, 110},
        {attack_script, 80},    {attack_large, 20},   {attack_deaf, 4},  {attack_flood, 2},
        {attack_hangup, 40},    {attack_trickle, 20}, {put_quit, 20},
    };
    uint32_t total = 0;
    for (size_t at = 0; at < sizeof attacks / sizeof *attacks; at++)
        total += attacks[at].weight;
    uint32_t drawn = attacker_random(attacker, total);
    size_t at = 0;
    for (; drawn >= attacks[at].weight; at++)
        drawn -= attacks[at].weight;
    attacks[at].put(attacker);
    if (chance(attacker, 2))
        put_one_of(attacker, probes);
}
