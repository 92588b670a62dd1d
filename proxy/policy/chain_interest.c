/* What policies want of each command, as they were asked when they were started. */
#include "policy/chain_private.h"

const struct chain_interest *chain_interest(const struct chain *chain, const struct command *command)
{
    return &chain->interests[command != NULL ? command_index(command) : command_count()];
}
