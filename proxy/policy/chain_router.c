/* The routers of a chain, which say who answers a request. */
#include "policy/chain_private.h"

uint32_t chain_find_routers(const struct chain *chain, const struct command *command)
{
    uint32_t routers = 0;

    for (size_t n = 0; n < chain->router_count; n++) {
        const struct chain_router *router = &chain->routers[n];
        routers |= router->hooks->routes(router->instance, command) ? UINT32_C(1) << n : 0;
    }
    return routers;
}

bool chain_route_reads(const struct chain *chain, const struct policy_request *request, enum conf_reads *reads)
{
    uint32_t left = chain_interest(chain, request->command)->routers;
    bool is_said = false;

    for (; left != 0 && !is_said; left &= left - 1) {
        const struct chain_router *router = &chain->routers[__builtin_ctz(left)];
        is_said = router->hooks->reads(router->instance, request, reads);
    }
    return is_said;
}
