/*
 * What attackers send: kinds of attacks, each of which appends bytes to its attacker's output. The head of each
 * function in crosstalk_attacks.c and crosstalk_attacks_raw.c says what it tries.
 */
#ifndef CROSSTALK_ATTACKS_H
#define CROSSTALK_ATTACKS_H

#include "crosstalk_attacker.h"

/* The users that attackers may be: that of their own, and the default user, who needs no password and whom rules bind.
 */
#define ATTACKER_USER "attacker"
#define ATTACKER_PASSWORD "attack"
/* What default users must never succeed in is denied by the rule of this text; Redis denies it to the other. */
#define ATTACKER_RULE                                                                                                  \
    "[deny:forbidden]\n"                                                                                               \
    "commands = flushall flushdb swapdb shutdown debug config acl|setuser acl|deluser acl|load client|kill "           \
    "client|pause client|unpause client|unblock script|flush script|kill function replicaof slaveof failover module "  \
    "save bgsave bgrewriteaof migrate cluster sync psync\n"                                                            \
    "except = user:" ATTACKER_USER "\n"
/* And this, where Headgate passes it on. */
#define ATTACKER_RULE_OF_SESSIONS                                                                                      \
    "[deny:debugger]\n"                                                                                                \
    "commands = script|debug\n"                                                                                        \
    "except = user:" ATTACKER_USER "\n"

/* All kinds, as a set of bits. */
uint64_t attacks_all(void);
/* Those of a list of names with commas between; 0 if one of them is unknown. */
uint64_t attacks_named(const char *names);
/* The name of a kind by its number; NULL behind the last. */
const char *attack_name(unsigned number);

/* Appends a random attack of those that the run has. */
void attack_any(struct attacker *attacker);

/* ---- the means of both files ---- */

uint32_t attacker_random(struct attacker *attacker, uint32_t bound);
bool attacker_chance(struct attacker *attacker, uint32_t one_in);
/* Appends bytes as they are. */
void put_bytes(struct attacker *attacker, const char *bytes, size_t length);
void put_text(struct attacker *attacker, const char *text);
/* Appends a command; the words are strings, ended by NULL. One that ends with '~' may get a NUL and a random ending in
 * its place, one that ends with '\1' does. */
__attribute__((sentinel)) void put_words(struct attacker *attacker, ...);
void put_list(struct attacker *attacker, const char *const *words, size_t count);
/* Random bytes, none of which can make an identity. */
void put_noise(struct attacker *attacker, size_t length);
/* One of the ordinary commands that show what a connection has become. */
void put_probe(struct attacker *attacker);
void put_forbidden(struct attacker *attacker);

void attack_garbage(struct attacker *attacker);
void attack_header(struct attacker *attacker);
void attack_inline(struct attacker *attacker);
void attack_trickle(struct attacker *attacker);
void attack_deaf(struct attacker *attacker);
void attack_flood(struct attacker *attacker);
void attack_hangup(struct attacker *attacker);
void attack_names(struct attacker *attacker);
void attack_large(struct attacker *attacker);

#endif
