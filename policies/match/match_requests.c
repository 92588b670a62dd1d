/* Requests by commands and keys together, as most rules name them. */
#include "match/match.h"

#include <stdio.h>

const char *match_requests_compile(struct match_requests *requests, const char *commands, const char *keys,
                                   char problem[CONF_PROBLEM_MAX], const char **expected)
{
    *requests = (struct match_requests){0};
    *expected = MATCH_COMMANDS_EXPECTED;
    requests->commands = match_commands_compile(commands, problem);
    if (requests->commands == NULL) {
        return "commands";
    }
    *expected = MATCH_KEYS_EXPECTED;
    requests->keys = match_keys_compile(keys, problem);
    if (requests->keys == NULL) {
        return "keys";
    }
    if (!match_keys_all(requests->keys) && !match_commands_have_keys(requests->commands)) {
        snprintf(problem, CONF_PROBLEM_MAX, "can never match: none of the commands has keys");
        *expected = "commands with keys beside it, or no keys";
        return "keys";
    }
    return NULL;
}

void match_requests_clear(struct match_requests *requests)
{
    match_commands_free(requests->commands);
    match_keys_free(requests->keys);
}

enum match_answer match_requests_is(const struct match_requests *requests, const struct policy_request *request)
{
    return match_commands_request(requests->commands, request) ? match_keys_any(requests->keys, request) : MATCH_NO;
}

bool match_is_covered(const struct conf_rule *rule, const struct conf_rule *all,
                      bool (*covers)(const struct conf_rule *earlier, const struct conf_rule *later),
                      char problem[CONF_PROBLEM_MAX])
{
    for (; all != rule; all = all->next) {
        if (all->section == rule->section && covers(all, rule)) {
            snprintf(problem, CONF_PROBLEM_MAX, "never applies: [%s:%s] before it takes all that it means",
                     all->section->name, all->name);
            return true;
        }
    }
    return false;
}
