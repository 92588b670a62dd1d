/* HELP: what is told of verbs and counters. */
#include "admin/admin_private.h"

#include <stdio.h>

/* Of what is asked for. Bytes; there is no longer name. */
#define WANTED_SIZE 64

/* A request for each of the admin port's own verbs, by its name. */
static const struct {
    const char *name;
    const char *text;
} examples[] = {
    {"PING", "PING"},
    {"HELP", "HELP CONFIG SET"},
    {"STATS", "STATS traffic clients"},
    {"INFO", "INFO traffic"},
    {"RESETSTAT", "RESETSTAT"},
    {"CLIENTS", "CLIENTS user=default name=worker* COUNT 20"},
    {"LANES", "LANES use=exclusive"},
    {"KILL", "KILL addr=10.0.0.0/8 user=batch"},
    {"NODES", "NODES"},
    {"SERVERS", "SERVERS"},
    {"SERVER", "SERVER default STATS"},
    {"CONFIG", "CONFIG"},
    {"CONFIG GET", "CONFIG GET *timeout*"},
    {"CONFIG SHOW", "CONFIG SHOW max_clients"},
    {"CONFIG SET", "CONFIG SET max_clients 500"},
    {"CONFIG RESETSTAT", "CONFIG RESETSTAT"},
    {"CONFIG REWRITE", NULL},
    {"LOGLEVEL", "LOGLEVEL debug"},
    {"RELOAD", "RELOAD VERBOSE"},
    {"VERSION", "VERSION"},
    {"DRAIN", "DRAIN"},
    {"SHUTDOWN", "SHUTDOWN NOW"},
    {"UPGRADE", "UPGRADE"},
    {"AUTH", "AUTH password"},
    {"QUIT", "QUIT"},
    {"COMMAND", "COMMAND"},
    {"HELLO", "HELLO 3"},
    {"CLIENT", "CLIENT SETNAME monitoring"},
    {"SELECT", "SELECT 0"},
};

struct helping {
    struct admin_text text;
    const char *wanted; /* NULL: everything, in short */
};

/* Whether that is the name, or the first word of it. */
static bool is_named(const char *wanted, const char *name)
{
    size_t length = strcspn(name, " ");

    return strcasecmp(wanted, name) == 0 || (strlen(wanted) == length && strncasecmp(wanted, name, length) == 0);
}

/* ---- verbs ---- */

static const char *example_of(const char *name)
{
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        if (strcmp(examples[i].name, name) == 0) {
            return examples[i].text;
        }
    }
    return NULL;
}

static void tell_verb(void *context, const struct admin_verb_told *verb)
{
    static const char *const notes[] = {
        [POLICY_VERB_READS] = "",
        [POLICY_VERB_CHANGES] = " (changes something)",
        [POLICY_VERB_CHANGES_ON_RESET] = " (RESET changes something)",
    };
    struct helping *helping = context;

    if (helping->wanted != NULL && !is_named(helping->wanted, verb->name)) {
        return;
    }
    admin_text_add(&helping->text, "%-27s  %s%s\n", verb->usage, verb->help, notes[verb->effect]);
    const char *example = verb->example != NULL ? verb->example : example_of(verb->name);
    if (helping->wanted != NULL && example != NULL) {
        admin_text_add(&helping->text, "    for example: %s\n", example);
    }
}

static void tell_verbs(struct helping *helping, const struct chain_roster *policies)
{
    admin_verbs_tell(tell_verb, helping);
    for (size_t i = 0; i < policies->count; i++) {
        for (size_t n = 0; n < policies->list[i]->verb_count; n++) {
            const struct policy_verb *verb = &policies->list[i]->verbs[n];
            tell_verb(helping,
                      &(struct admin_verb_told){verb->name, verb->usage, verb->help, verb->effect, verb->example});
        }
    }
}

/* ---- counters ---- */

static void tell_counter(struct helping *helping, const char *name, enum stats_kind kind, const char *help)
{
    if (strcasecmp(helping->wanted, "counters") == 0 || strcasecmp(helping->wanted, name) == 0) {
        admin_text_add(&helping->text, "%s (%s): %s\n", name, kind == STATS_GAUGE ? "gauge" : "counter", help);
    }
}

static void tell_counters(struct helping *helping, const struct chain_roster *policies)
{
    for (enum stats_id id = 0; id < STATS_COUNT; id++) {
        const struct stats_description *description = stats_describe(id);
        tell_counter(helping, description->name, description->kind, description->help);
    }
    for (size_t i = 0; i < policies->count; i++) {
        for (size_t n = 0; n < policies->list[i]->counter_count; n++) {
            const struct policy_counter *counter = &policies->list[i]->counters[n];
            tell_counter(helping, counter->name, counter->kind, counter->help);
        }
    }
}

/* ---- the verb ---- */

/* The words with blanks between them; what is too long is the name of nothing. */
static void join(char wanted[WANTED_SIZE], size_t count, const struct slice *words)
{
    size_t used = 0;

    wanted[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        used += (size_t)snprintf(wanted + used, WANTED_SIZE - used, "%s%.*s", i > 0 ? " " : "", (int)words[i].length,
                                 words[i].data);
        if (used >= WANTED_SIZE) {
            wanted[0] = '\0';
            return;
        }
    }
}

void admin_run_help(struct session_entry *session, size_t count, const struct slice *arguments)
{
    const struct chain_roster *policies = admin_policies(session->admin);
    struct helping helping = {0};
    char wanted[WANTED_SIZE];

    join(wanted, count - 1, arguments + 1);
    helping.wanted = count > 1 ? wanted : NULL;
    if (!admin_text_open(&helping.text)) {
        admin_reply_error(session, "ERR out of memory");
        return;
    }
    tell_verbs(&helping, policies);
    if (helping.wanted != NULL) {
        tell_counters(&helping, policies);
    }
    if (evbuffer_get_length(helping.text.bytes) == 0 && !helping.text.is_lost) {
        admin_reply_error(session, "ERR no verb or counter of that name; see HELP and HELP COUNTERS");
    } else {
        admin_reply_gathered(session, &helping.text);
    }
    admin_text_close(&helping.text);
}
