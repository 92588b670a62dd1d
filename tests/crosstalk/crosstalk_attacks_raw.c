/* Attacks on framing, on names, and by how much or how little is sent and read. */
#include "crosstalk_attacks.h"

#include <stdio.h>
#include <string.h>

#define NOISE_MAX 200
#define FLOOD_MAX 20000
#define BIG_VALUE ((size_t)64 * 1024)
#define DEAF_REQUESTS_MAX 400
#define DEAF_US_MAX 3000000
#define TRICKLE_BYTES_MAX 3

/* Every name that Headgate knows. */
#define LETTER(letter)
#define COMMAND(name, kind, arity, keys, first_key, last_key, key_step, categories) name,
static const char *const command_names[] = {
#include "command/command_table.inc"
};
#undef LETTER
#undef COMMAND

static void put_one_of(struct attacker *attacker, const char *const *texts, size_t count)
{
    put_text(attacker, texts[attacker_random(attacker, (uint32_t)count)]);
}

/* Bytes that are no requests. */
void attack_garbage(struct attacker *attacker)
{
    static const char *const texts[] = {
        "\r\n\r\n\r\n",
        "\n",
        "*0\r\n",
        "*-1\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n$4\r\nPING\r",
        "*1\r\n$4\r\nPINGxx",
        "*2\r\n$4\r\nECHO\r\n$4\r\nev",
        "+OK\r\n",
        "-ERR evil\r\n",
        ":1\r\n",
        "$4\r\nevil\r\n",
        ">2\r\n$7\r\nmessage\r\n$4\r\nevil\r\n",
        "%1\r\n+a\r\n+b\r\n",
        "GET / HTTP/1.1\r\nHost: evil\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 20\r\n\r\nFLUSHALL\r\nFLUSHALL\r\n",
        "*1\n$4\nPING\n",
        "* 1\r\n$4\r\nPING\r\n",
        "*+1\r\n$4\r\nPING\r\n",
        "*01\r\n$04\r\nPING\r\n",
    };
    if (attacker_chance(attacker, 4))
        put_noise(attacker, 1 + attacker_random(attacker, NOISE_MAX));
    else
        put_one_of(attacker, texts, sizeof texts / sizeof *texts);
    put_probe(attacker);
}

/* Counts and lengths that are too large, or announce what never comes. */
void attack_header(struct attacker *attacker)
{
    static const char *const texts[] = {
        "*11\r\n$4\r\nPING\r\n",
        "*1048576\r\n",
        "*1048577\r\n",
        "*2147483647\r\n",
        "*99999999999999999999\r\n",
        "*2\r\n$4\r\nECHO\r\n$500000000\r\nevil",
        "*3\r\n$3\r\nSET\r\n$8\r\nevil:key\r\n$536870912\r\nevil",
        "*3\r\n$3\r\nSET\r\n$8\r\nevil:key\r\n$536870913\r\nevil",
        "*2\r\n$4\r\nAUTH\r\n$16385\r\nevil",
        "*2\r\n$9999999999\r\n",
        "*1\r\n$18446744073709551615\r\n",
        "*1\r\n$500000000\r\nevil",
        "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$500000000\r\nOFF",
        "*100000\r\n$3\r\nDEL\r\n$1\r\na\r\n",
    };
    put_one_of(attacker, texts, sizeof texts / sizeof *texts);
    if (attacker_chance(attacker, 2))
        put_noise(attacker, attacker_random(attacker, NOISE_MAX));
}

/* Inline commands, with quotes and escapes that may hide something. */
void attack_inline(struct attacker *attacker)
{
    static const char *const texts[] = {
        "PING\r\n",
        "PING\n",
        "\"PING\\x00\"\r\n",
        "CLIENT REPLY \"SKIP\\x00\"\r\n",
        "CLIENT REPLY \"OFF\\x00x\"\r\n",
        "\"CLIENT\" 'REPLY' \"O\\x46F\"\r\n",
        "HELLO 3 \"AUTH\\x00\" " ATTACKER_USER " " ATTACKER_PASSWORD "\r\n",
        "CLIENT \"REPLY\\x00a\" OFF\r\n",
        "ECHO \"evil\r\n",
        "ECHO 'evil\\'\r\n",
        "ECHO \"evil\"evil\r\n",
        "ECHO \"\\r\\n+OK\\r\\n\"\r\n",
        "  \t PING  \r\n",
        "SUBSCRIBE evil\r\n",
        "SET evil:key \"*1\\r\\n$8\\r\\nFLUSHALL\\r\\n\"\r\n",
        "GET \"evil:\\x00key\"\r\n",
        "XREAD \"BLOCK\\x00\" 0 STREAMS evil:stream $\r\n",
        /* The last: Redis itself may take it for what it looks like. */
        "\"FLUSHALL\\x00a\"\r\n",
    };
    bool proxied = attacker->run->options.headgate != NULL;
    put_one_of(attacker, texts, sizeof texts / sizeof *texts - (proxied ? 0 : 1));
    put_probe(attacker);
}

/* A few bytes at each turn. */
void attack_trickle(struct attacker *attacker)
{
    attacker->chunk = 1 + attacker_random(attacker, TRICKLE_BYTES_MAX);
    for (uint32_t left = 1 + attacker_random(attacker, 4); left > 0; left--)
        put_probe(attacker);
}

static void put_value(struct attacker *attacker, size_t length)
{
    char value[1024];
    memset(value, 'e', sizeof value);
    for (size_t left = length; left > 0;) {
        size_t part = left < sizeof value ? left : sizeof value;
        put_bytes(attacker, value, part);
        left -= part;
    }
    put_text(attacker, "\r\n");
}

static void put_big_value(struct attacker *attacker)
{
    char head[128];
    snprintf(head, sizeof head, "*3\r\n$3\r\nSET\r\n$8\r\nevil:big\r\n$%zu\r\n", BIG_VALUE);
    put_text(attacker, head);
    put_value(attacker, BIG_VALUE);
}

/* Requests that are passed on as they come, of commands that do something to the connection or are forbidden. */
void attack_large(struct attacker *attacker)
{
    static const char *const heads[] = {
        "*3\r\n$3\r\nSET\r\n$8\r\nevil:big\r\n",
        "*3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n",
        "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$5\r\nAUTH\0\r\n$7\r\ndefault\r\n",
        "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n",
        "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n",
        "*4\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$4\r\nSKIP\r\n",
        "*2\r\n$9\r\nSUBSCRIBE\r\n",
        "*3\r\n$9\r\nSUBSCRIBE\r\n$4\r\nevil\r\n",
        "*3\r\n$5\r\nBLPOP\r\n$9\r\nevil:none\r\n",
        "*3\r\n$4\r\nEVAL\r\n$1\r\n0\r\n",
        "*2\r\n$8\r\nFLUSHALL\r\n",
        "*2\r\n$5\r\nMULTI\r\n",
        "*2\r\n$6\r\nSELECT\r\n",
        "*2\r\n",
    };
    const uint32_t at = attacker_random(attacker, sizeof heads / sizeof *heads);
    /* The one with a NUL has a length of its own. */
    size_t head = strlen(heads[at]);
    char line[32];
    size_t length = 1 + attacker_random(attacker, 2 * (uint32_t)BIG_VALUE);
    if (strncmp(heads[at], "*5", 2) == 0)
        put_bytes(attacker, heads[at], head + 1 + strlen(heads[at] + head + 1));
    else
        put_text(attacker, heads[at]);
    snprintf(line, sizeof line, "$%zu\r\n", length);
    put_text(attacker, line);
    if (attacker_chance(attacker, 4))
        put_bytes(attacker, "evil", length < 4 ? length : 4);
    else
        put_value(attacker, length);
    put_probe(attacker);
}

/* Many large replies that are never read. */
void attack_deaf(struct attacker *attacker)
{
    put_big_value(attacker);
    for (uint32_t left = attacker_random(attacker, DEAF_REQUESTS_MAX); left > 0; left--)
        put_words(attacker, "GET", "evil:big", NULL);
    if (attacker_chance(attacker, 4))
        put_words(attacker, "EVAL", "return string.rep('e', 20000000)", "0", NULL);
    attacker->deaf = true;
    attacker->next_us = now_us() + attacker_random(attacker, DEAF_US_MAX);
}

/* Answers that have to wait behind one that does not come. */
void attack_flood(struct attacker *attacker)
{
    put_words(attacker, "BLPOP", "evil:none", "0", NULL);
    for (uint32_t left = attacker_random(attacker, FLOOD_MAX); left > 0; left--)
        put_forbidden(attacker);
    attacker->next_us = now_us() + attacker_random(attacker, DEAF_US_MAX);
}

/* Leaves while Redis still waits on its behalf, or with everything under way. */
void attack_hangup(struct attacker *attacker)
{
    static const enum attacker_ending endings[] = {ATTACKER_CLOSES, ATTACKER_RESETS, ATTACKER_HALF_CLOSES};
    if (attacker_chance(attacker, 3))
        put_words(attacker, "MULTI", NULL);
    put_words(attacker, "BLPOP", "evil:none", "0", NULL);
    for (uint32_t left = attacker_random(attacker, 8); left > 0; left--)
        put_probe(attacker);
    attacker->moves = 0;
    attacker->ending = endings[attacker_random(attacker, sizeof endings / sizeof *endings)];
}

/* A NUL and an ending by chance: to Redis this is the command itself, for some endings. */
void attack_names(struct attacker *attacker)
{
    static const char *const subcommands[][4] = {
        {"CLIENT", "REPLY", "OFF", NULL},    {"CLIENT", "KILL", "TYPE", "normal"},   {"CLIENT", "PAUSE", "10000", NULL},
        {"CLIENT", "NO-EVICT", "ON", NULL},  {"SCRIPT", "DEBUG", "SYNC", NULL},      {"SCRIPT", "FLUSH", NULL, NULL},
        {"CONFIG", "RESETSTAT", NULL, NULL}, {"ACL", "DELUSER", "crosstalk1", NULL}, {"FUNCTION", "FLUSH", NULL, NULL},
        {"KOBJECT", "HELP", NULL, NULL},     {"XGROUP", "HELP", NULL, NULL},
    };
    const uint32_t names = sizeof command_names / sizeof *command_names;
    char name[64];
    char subcommand[64];
    if (attacker->run->options.headgate == NULL) {
        put_probe(attacker);
        return;
    }
    if (attacker_chance(attacker, 2)) {
        snprintf(name, sizeof name, "%s\1", command_names[attacker_random(attacker, names)]);
        const char *const words[] = {name, "evil:key", "0", "evil"};
        put_list(attacker, words, 1 + attacker_random(attacker, 4));
        return;
    }
    const char *const *row = subcommands[attacker_random(attacker, sizeof subcommands / sizeof *subcommands)];
    size_t count = 2;
    snprintf(subcommand, sizeof subcommand, "%s\1", row[1]);
    const char *words[] = {row[0], subcommand, row[2], row[3]};
    while (count < 4 && words[count] != NULL)
        count++;
    put_list(attacker, words, count);
}
