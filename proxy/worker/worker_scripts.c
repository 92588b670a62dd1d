#include "worker/worker_scripts.h"

#include "base/log.h"
#include "conf/conf_table.h"

#include <stdlib.h>
#include <string.h>

/* Without them locks are not renewed and figures stay here. */
static void warn_of_scripts(const struct worker_scripts *scripts)
{
    const struct conf_rule *rule = scripts->scripted;
    const char *why = scripts->problem;

    if (!scripts->tells || why == NULL) {
        return;
    }
    if (rule == NULL) {
        log_info("worker", "scripts do not work on this Redis: %s", why);
        return;
    }
    log_warning("worker",
                "scripts do not work on this Redis: %s; [%s%s%s] needs them: locks will not be renewed, limits not be "
                "shared and figures not be written; allow upstream_user +eval +evalsha +time and what docs name",
                why, rule->section->name, *rule->name != '\0' ? ":" : "", rule->name);
}

/* Comes with every new connection. Where scripts are needed EVAL is asked for, once EVALSHA is known to be allowed. */
static void on_scripts(void *context, const char *why)
{
    struct worker_scripts *scripts = context;
    bool is_first = scripts->asks_for_eval;

    scripts->asks_for_eval = false;
    worker_scripts_find_problem(scripts, why);
    if (is_first && why == NULL && scripts->scripted != NULL) {
        server_info_ask_for_scripts(scripts->server_info);
    }
}

void worker_scripts_open(struct worker_scripts *scripts, size_t worker, struct server_info *server_info,
                         const struct conf *conf)
{
    scripts->tells = worker == 0;
    scripts->server_info = server_info;
    scripts->scripted = conf_rules_with_scripts(conf->rules);
    server_info_tell_scripts(server_info, on_scripts, scripts);
}

void worker_scripts_close(struct worker_scripts *scripts)
{
    free(scripts->problem);
}

void worker_scripts_reconfigure(struct worker_scripts *scripts, const struct conf *conf)
{
    const struct conf_rule *scripted = conf_rules_with_scripts(conf->rules);
    bool is_new = scripts->scripted == NULL && scripted != NULL;

    scripts->scripted = scripted;
    if (is_new && scripts->problem != NULL) {
        warn_of_scripts(scripts);
    } else if (is_new) {
        server_info_ask_for_scripts(scripts->server_info);
    }
}

void worker_scripts_connected(struct worker_scripts *scripts)
{
    scripts->asks_for_eval = true;
}

void worker_scripts_find_problem(struct worker_scripts *scripts, const char *why)
{
    free(scripts->problem);
    scripts->problem = why != NULL ? strdup(why) : NULL;
    warn_of_scripts(scripts);
}

bool worker_scripts_have_problem(const struct worker_scripts *scripts, const char *why)
{
    return scripts->problem != NULL && strcmp(scripts->problem, why) == 0;
}
