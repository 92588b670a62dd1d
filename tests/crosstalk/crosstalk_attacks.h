/* What attackers send: kinds of attacks, each of which appends bytes to its attacker's output. */
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

/* Says who the attacker is. */
void put_login(struct attacker *attacker);
void put_quit(struct attacker *attacker);

/* Appends a random attack. */
void attack_any(struct attacker *attacker);

uint32_t attacker_random(struct attacker *attacker, uint32_t bound);

#endif
