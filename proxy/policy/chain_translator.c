/* The translators of a chain: one of them for each command that servers may lack. */
#include "policy/chain_private.h"

uint32_t chain_find_translator(const struct chain *chain, const struct command *command)
{
    for (size_t n = 0; n < chain->translator_count; n++) {
        const struct chain_translator *translator = &chain->translators[n];
        if (translator->hooks->translates(translator->instance, command)) {
            return (uint32_t)n + 1;
        }
    }
    return 0;
}

enum policy_translation chain_translate(struct chain *chain, struct policy_request *request,
                                        enum policy_server_has server, struct slice *frame,
                                        struct policy_decision *decision)
{
    const struct chain_translator *translator =
        &chain->translators[chain_interest(chain, request->command)->translator - 1];

    return translator->hooks->translate(translator->instance, request, server, frame, decision);
}
