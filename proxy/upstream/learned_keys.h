/*
 * What COMMAND INFO says of where a command's keys are: its ninth part, since Redis 7.0.
 */
#ifndef HEADGATE_LEARNED_KEYS_H
#define HEADGATE_LEARNED_KEYS_H

#include "command/command_specs.h"

#include <hiredis/hiredis.h>

/* Reads the entry of a command. False: it does not say where all the keys are, or by more than there is room for. */
bool learned_keys_read(const redisReply *entry, struct command_specs *specs);
/* Whether some of its subcommands have keys: where, only the server finds. */
bool learned_keys_of_subcommands(const redisReply *entry);

#endif
