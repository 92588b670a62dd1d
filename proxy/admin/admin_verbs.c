/* What can be asked on the admin port. */
#include "admin/admin_private.h"

#include <stdio.h>

#define VERB_COUNT 30

struct verb {
    const char *name;
    size_t least, most; /* arguments, with the verb */
    void (*run)(struct session_entry *session, size_t count, const struct slice *arguments);
    const char *usage;
    const char *help;
    enum policy_verb_effect effect; /* reads, unless it is said otherwise */
    bool is_of_servers;             /* may be asked of one of several servers */
};

static const struct verb verbs[VERB_COUNT + 1];

static void run_servers(struct session_entry *session, size_t count, const struct slice *arguments);
static void run_server(struct session_entry *session, size_t count, const struct slice *arguments);

static const struct verb verbs[VERB_COUNT + 1] = {
    {"PING", 1, 2, admin_hello_ping, "PING [text]", "answers PONG, or the text", POLICY_VERB_READS, false},
    {"HELP", 1, 3, admin_run_help, "HELP [name]",
     "the verbs; HELP COUNTERS explains all counters, HELP name one of both", POLICY_VERB_READS, false},
    {"STATS", 1, ADMIN_ARGUMENTS_MAX, admin_run_stats, "STATS [section ...] [JSON]",
     "counters and gauges, as key:value under # Section, or as JSON", POLICY_VERB_READS, true},
    {"INFO", 1, ADMIN_ARGUMENTS_MAX, admin_run_info, "INFO [section ...]",
     "the same as STATS; redis-cli prints the answer to this name as text", POLICY_VERB_READS, true},
    {"RESETSTAT", 1, 1, admin_run_resetstat, "RESETSTAT",
     "has counters of STATS begin at 0 anew; metrics and the page go on", POLICY_VERB_CHANGES, true},
    {"CLIENTS", 1, ADMIN_ARGUMENTS_MAX, admin_run_clients, "CLIENTS [field=value ...] [COUNT n]",
     "one line for each client, of those that the fields choose", POLICY_VERB_READS, true},
    {"LANES", 1, ADMIN_ARGUMENTS_MAX, admin_run_lanes, "LANES [field=value ...] [COUNT n]",
     "one line for each connection to Redis, of those that the fields choose", POLICY_VERB_READS, true},
    {"KILL", 2, ADMIN_ARGUMENTS_MAX, admin_run_kill, "KILL field=value ... [COUNT n] or ALL",
     "closes the clients that the fields choose, and says how many", POLICY_VERB_CHANGES, true},
    {"NODES", 1, 1, admin_run_nodes, "NODES", "one line for each node of Redis: the master, its replicas, sentinels",
     POLICY_VERB_READS, true},
    {"SERVERS", 1, 1, run_servers, "SERVERS", "one line for each of several servers", POLICY_VERB_READS, false},
    {"SERVER", 3, ADMIN_WORDS_MAX, run_server, "SERVER name verb ...",
     "asks about one of several servers, as if it were alone", POLICY_VERB_READS, false},
    {"CONFIG", 1, ADMIN_ARGUMENTS_MAX, admin_config, "CONFIG", "the configuration in force, without passwords",
     POLICY_VERB_READS, false},
    {"CONFIG GET", 3, ADMIN_ARGUMENTS_MAX, admin_config_get, "CONFIG GET pattern ...",
     "the options whose names match, each with its value", POLICY_VERB_READS, false},
    {"CONFIG SHOW", 2, ADMIN_ARGUMENTS_MAX, admin_config_show, "CONFIG SHOW [pattern ...]",
     "one line for each of them: value, default, what changes it, and who says so", POLICY_VERB_READS, false},
    {"CONFIG SET", 4, ADMIN_ARGUMENTS_MAX, admin_config_set, "CONFIG SET name value ...",
     "sets options that a reload would take, all or none, until the file is read again", POLICY_VERB_CHANGES, false},
    {"CONFIG RESETSTAT", 2, 2, admin_run_resetstat, "CONFIG RESETSTAT", "the same as RESETSTAT, as Redis has it",
     POLICY_VERB_CHANGES, false},
    {"CONFIG REWRITE", 2, 2, admin_config_rewrite, "CONFIG REWRITE", "refused: the file is the operator's",
     POLICY_VERB_READS, false},
    {"LOGLEVEL", 1, 1, admin_loglevel, "LOGLEVEL", "the level from which lines are logged", POLICY_VERB_READS, false},
    {"LOGLEVEL", 2, 2, admin_loglevel, "LOGLEVEL level",
     "sets it (debug, info, warning or error), until the file is read again", POLICY_VERB_CHANGES, false},
    {"RELOAD", 1, 2, admin_config_reload, "RELOAD [VERBOSE]",
     "reads the configuration file again, like SIGHUP; VERBOSE tells what was changed", POLICY_VERB_CHANGES, false},
    {"VERSION", 1, 1, admin_process_version, "VERSION", "the version of Headgate", POLICY_VERB_READS, false},
    {"DRAIN", 1, 1, admin_run_drain, "DRAIN",
     "takes no new clients, lets the others go, and says how many are left; the process stays", POLICY_VERB_CHANGES,
     false},
    {"SHUTDOWN", 1, 2, admin_process_shutdown, "SHUTDOWN [NOW]", "ends Headgate: drained, or at once",
     POLICY_VERB_CHANGES, false},
    {"UPGRADE", 1, 1, admin_process_upgrade, "UPGRADE",
     "starts the program anew, to take over from this process; answers when it serves", POLICY_VERB_CHANGES, false},
    {"AUTH", 2, 3, admin_process_auth, "AUTH password", "needed first if admin_password is set", POLICY_VERB_READS,
     false},
    {"QUIT", 1, 1, admin_process_quit, "QUIT", "closes this connection", POLICY_VERB_READS, false},
    {"COMMAND", 1, ADMIN_ARGUMENTS_MAX, admin_hello_command, "COMMAND", "an empty list, for redis-cli",
     POLICY_VERB_READS, false},
    {"HELLO", 1, ADMIN_ARGUMENTS_MAX, admin_hello, "HELLO [version [AUTH user password] [SETNAME name]]",
     "which RESP is spoken, 2 or 3: in 3 answers with names and values are maps", POLICY_VERB_READS, false},
    {"CLIENT", 2, ADMIN_ARGUMENTS_MAX, admin_hello_client, "CLIENT SETNAME name",
     "takes what client libraries say of themselves: SETNAME, GETNAME, SETINFO, ID", POLICY_VERB_READS, false},
    {"SELECT", 2, 2, admin_hello_select, "SELECT 0", "OK, for client libraries", POLICY_VERB_READS, false},
    {NULL, 0, 0, NULL, NULL, NULL, POLICY_VERB_READS, false},
};

void admin_verbs_tell(void (*tell)(void *context, const struct admin_verb_told *verb), void *context)
{
    for (const struct verb *verb = verbs; verb->name != NULL; verb++) {
        tell(context, &(struct admin_verb_told){verb->name, verb->usage, verb->help, verb->effect, NULL});
    }
}

/* ---- requests ---- */

static void answer_unknown(struct session_entry *session, struct slice name)
{
    char text[160];

    snprintf(text, sizeof text, "ERR unknown verb '%.*s'; HELP lists them", (int)(name.length > 64 ? 64 : name.length),
             name.data);
    admin_reply_error(session, text);
}

/* Whether the request has as many arguments as the verb wants; it is told if not. */
static bool fits(struct session_entry *session, size_t count, size_t least, size_t most, const char *usage)
{
    char text[160];

    if (count >= least && count <= most) {
        return true;
    }
    snprintf(text, sizeof text, "ERR usage: %s", usage);
    admin_reply_error(session, text);
    return false;
}

/* Whether the request would change something. */
static bool changes(enum policy_verb_effect effect, size_t count, const struct slice *arguments)
{
    return effect == POLICY_VERB_CHANGES ||
           (effect == POLICY_VERB_CHANGES_ON_RESET && count > 1 && slice_is_word(arguments[1], "reset"));
}

/* Whether the request is to be obeyed; who asks is told if not. What changes something is written down. */
static bool is_allowed(struct session_entry *session, enum policy_verb_effect effect, size_t count,
                       const struct slice *arguments)
{
    if (!changes(effect, count, arguments)) {
        return true;
    }
    if (!admin_guard_may_change(session)) {
        admin_audit_refused(session, count, arguments);
        return false;
    }
    admin_audit_begin(session, count, arguments);
    return true;
}

/* What it changes may be there for each server; nobody is to change more than he thinks of. */
static bool is_meant(struct session_entry *session, enum policy_verb_effect effect, size_t count,
                     const struct slice *arguments)
{
    if (changes(effect, count, arguments) && admin_names_servers(session)) {
        admin_reply_error(session, "ERR there are several servers: SERVER name verb ..., as SERVERS lists them");
        return false;
    }
    return true;
}

/* False: no policy has the verb. */
static bool run_verb_of_policy(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct chain_roster *policies = admin_policies(session->admin);

    for (size_t i = 0; i < policies->count; i++) {
        const struct policy *policy = policies->list[i];
        for (size_t n = 0; n < policy->verb_count; n++) {
            const struct policy_verb *verb = &policy->verbs[n];
            if (!slice_is_word(arguments[0], verb->name)) {
                continue;
            }
            if (fits(session, count, verb->least, verb->most, verb->usage) &&
                is_allowed(session, verb->effect, count, arguments) &&
                is_meant(session, verb->effect, count, arguments)) {
                (verb->stream != NULL ? admin_open_stream : admin_ask_policy)(session, i, verb, count, arguments);
            }
            return true;
        }
    }
    return false;
}

/* How many words of the request are the verb's name; 0: it is another one. */
static size_t words_of_name(const struct verb *verb, size_t count, const struct slice *arguments)
{
    const char *blank = strchr(verb->name, ' ');
    size_t length = blank != NULL ? (size_t)(blank - verb->name) : strlen(verb->name);

    if (arguments[0].length != length || strncasecmp(arguments[0].data, verb->name, length) != 0) {
        return 0;
    }
    if (blank == NULL) {
        return 1;
    }
    return count > 1 && slice_is_word(arguments[1], blank + 1) ? 2 : 0;
}

/* Of several with the name that with more words, and then the one that takes so many. */
static const struct verb *find_verb(size_t count, const struct slice *arguments)
{
    const struct verb *found = NULL, *verb = verbs;
    size_t most = 0;

    for (; verb->name != NULL; verb++) {
        size_t words = words_of_name(verb, count, arguments);
        bool fits_better = words > 0 && words == most && count >= verb->least && count <= verb->most &&
                           !(count >= found->least && count <= found->most);
        if (words > most || fits_better) {
            found = verb;
            most = words;
        }
    }
    return found != NULL ? found : verb;
}

static void run_in_scope(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct verb *verb = find_verb(count, arguments);

    if (!admin_guard_is_trusted(session) && verb->run != admin_process_auth && verb->run != admin_hello &&
        verb->run != admin_process_quit) {
        admin_guard_turn_away(session);
    } else if (verb->name == NULL) {
        if (!run_verb_of_policy(session, count, arguments)) {
            answer_unknown(session, arguments[0]);
        }
    } else if (session->scope.is_named && !verb->is_of_servers) {
        admin_reply_error(session, "ERR this verb is about the process, and about no server");
    } else if (fits(session, count, verb->least, verb->most, verb->usage) &&
               is_allowed(session, verb->effect, count, arguments)) {
        verb->run(session, count, arguments);
    }
}

void admin_run(struct session_entry *session, size_t count, const struct slice *arguments)
{
    session->scope = (struct admin_scope){.first = 0, .end = session->admin->servers->count};
    run_in_scope(session, count, arguments);
}

/* ---- several servers ---- */

static void run_servers(struct session_entry *session, size_t count, const struct slice *arguments)
{
    (void)count;
    (void)arguments;
    admin_tell_servers(session);
}

static void run_server(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct servers *servers = session->admin->servers;
    const struct server *server = servers_find(servers, arguments[1]);

    if (server == NULL) {
        admin_reply_error(session, "ERR no server of that name; SERVERS lists them");
        return;
    }
    session->scope.first = (size_t)(server - servers->list);
    session->scope.end = session->scope.first + 1;
    session->scope.is_named = true;
    run_in_scope(session, count - 2, arguments + 2);
}
