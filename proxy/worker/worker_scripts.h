/* Whether Redis runs the scripts that rules of a worker need, and who is told if it does not. On the worker's thread.
 */
#ifndef HEADGATE_WORKER_SCRIPTS_H
#define HEADGATE_WORKER_SCRIPTS_H

#include "client/client.h"
#include "conf/conf.h"

struct worker_scripts {
    bool tells;                       /* all workers find the same, so one tells */
    struct server_info *server_info;  /* the worker's */
    const struct conf_rule *scripted; /* the first rule that takes scripts in Redis, or NULL */
    char *problem;                    /* why there are none, or NULL */
    bool asks_for_eval;               /* EVALSHA is asked for; EVAL comes next */
};

/* worker: its number. The rules of conf have to stay until others are given. */
void worker_scripts_open(struct worker_scripts *scripts, size_t worker, struct server_info *server_info,
                         const struct conf *conf);
/* Harmless if it was never opened and is all zeros. */
void worker_scripts_close(struct worker_scripts *scripts);
/* A reload has brought, or taken, what needs scripts. */
void worker_scripts_reconfigure(struct worker_scripts *scripts, const struct conf *conf);
/* Redis will be asked what it allows now: EVALSHA first. */
void worker_scripts_connected(struct worker_scripts *scripts);
/* why: a constant text or Redis' error; NULL: scripts work. */
void worker_scripts_find_problem(struct worker_scripts *scripts, const char *why);
/* Whether that is why they do not work. */
bool worker_scripts_have_problem(const struct worker_scripts *scripts, const char *why);

#endif
